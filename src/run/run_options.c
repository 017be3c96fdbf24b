/*-------------------------------------------------------------------------
 *
 * run_options.c
 *	  Reads the command line of zklock-run.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_options.h"

/* Options without a letter. */
enum
{
	OPTION_PERMITS = 256,
	OPTION_LEADER,
	OPTION_JOB,
	OPTION_EVERY,
	OPTION_SLOT,
	OPTION_ORIGIN,
	OPTION_ATTEMPTS,
	OPTION_HELP,
	OPTION_VERSION
};

static const struct option long_options[] = {
	{"dbname", required_argument, NULL, 'd'},
	{"timeout", required_argument, NULL, 't'},
	{"shared", no_argument, NULL, 's'},
	{"permits", required_argument, NULL, OPTION_PERMITS},
	{"leader", no_argument, NULL, OPTION_LEADER},
	{"job", no_argument, NULL, OPTION_JOB},
	{"every", required_argument, NULL, OPTION_EVERY},
	{"slot", required_argument, NULL, OPTION_SLOT},
	{"origin", required_argument, NULL, OPTION_ORIGIN},
	{"attempts", required_argument, NULL, OPTION_ATTEMPTS},
	{"kill-after", required_argument, NULL, 'k'},
	{"not-run-status", required_argument, NULL, 'E'},
	{"verbose", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

static const char help[] =
	"zklock-run runs a command while a PostgreSQL session holds a distributed lock.\n"
	"\n"
	"Usage:\n"
	"  zklock-run [OPTION]... NAME [OPTION]... [--] COMMAND [ARGUMENT]...\n"
	"\n"
	"What is held (the default is the lock NAME, in exclusive mode):\n"
	"  -s, --shared              the lock NAME, in shared mode\n"
	"      --permits=N           one of N permits of the semaphore NAME\n"
	"      --leader              the leadership of the election NAME: runs the command only\n"
	"                            if this server leads\n"
	"      --job --every=INTERVAL\n"
	"                            the job NAME: runs the command once for each slot\n"
	"      --origin=TIME         when a slot of the job begins (default: midnight UTC)\n"
	"      --job --slot=TIME     the job NAME: runs the command once for this slot\n"
	"      --attempts=N          how often the command may fail for a slot (default: 1)\n"
	"\n"
	"Other options:\n"
	"  -d, --dbname=CONNINFO     database name, connection string or URI\n"
	"  -t, --timeout=INTERVAL    how long to wait; 0: not at all (default: for ever; with\n"
	"                            --leader: 2 s)\n"
	"  -k, --kill-after=SECONDS  from SIGTERM to SIGKILL, if the lock is lost (default: 3)\n"
	"  -E, --not-run-status=N    exit status if the command is not run because the lock was not\n"
	"                            acquired in time (default: 124), or because another server leads\n"
	"                            or the job is not to be run (default: 0)\n"
	"  -v, --verbose             say why the command is not run\n"
	"      --help                show this help, then exit\n"
	"      --version             show the version, then exit\n"
	"\n"
	"The connection is made by the rules of libpq: PGHOST, PGSERVICE and so on.  The command\n"
	"has ZKLOCK_NAME and ZKLOCK_TOKEN, the fencing token, in its environment.\n"
	"\n"
	"Exit status: that of the command; 128+N if signal N ended it; 122 the lock was lost;\n"
	"123 no connection, or an error of the server; 124 the lock was not acquired in time; 125\n"
	"wrong usage; 126 the command cannot be executed; 127 it was not found.\n";

void
run_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("zklock-run: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

static void __attribute__((noreturn)) refuse(void)
{
	fputs("Try \"zklock-run --help\" for more information.\n", stderr);
	exit(RUN_BROKEN);
}

/* Writes a text that the user asked for, and exits. */
static void __attribute__((noreturn)) print(const char *text)
{
	if (fputs(text, stdout) < 0 || fflush(stdout) != 0)
	{
		run_say("could not write: %s", strerror(errno));
		exit(RUN_BROKEN);
	}
	exit(0);
}

static double
get_number(const char *option, const char *text, double max, bool whole)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value >= 0 && value <= max) ||
		(whole && value != (int) value))
	{
		run_say("invalid value \"%s\" for --%s: a %snumber from 0 to %.0f is wanted",
				text, option, whole ? "whole " : "", max);
		refuse();
	}
	return value;
}

/* Only one of these may be given. */
static void
set_kind(RunOptions *options, RunKind kind)
{
	if (options->kind != RUN_LOCK && options->kind != kind)
	{
		run_say("--permits, --leader and --job exclude each other");
		refuse();
	}
	options->kind = kind;
}

static void
set_option(RunOptions *options, int option, const char *value)
{
	switch (option)
	{
		case 'd':
			options->conninfo = value;
			break;
		case 't':
			options->timeout = value;
			break;
		case 's':
			options->shared = true;
			break;
		case 'v':
			options->verbose = true;
			break;
		case 'k':
			options->kill_after =
				(int64_t) (get_number("kill-after", value, 86400, false) * 1000);
			break;
		case 'E':
			options->not_run = (int) get_number("not-run-status", value, 255, true);
			break;
		case OPTION_PERMITS:
			options->permits = value;
			set_kind(options, RUN_PERMIT);
			break;
		case OPTION_LEADER:
			set_kind(options, RUN_LEADER);
			break;
		case OPTION_JOB:
			set_kind(options, RUN_JOB);
			break;
		case OPTION_EVERY:
			options->every = value;
			break;
		case OPTION_SLOT:
			options->slot = value;
			break;
		case OPTION_ORIGIN:
			options->origin = value;
			break;
		case OPTION_ATTEMPTS:
			options->attempts = value;
			break;
		case OPTION_HELP:
			print(help);
		case OPTION_VERSION:
			print("zklock-run (zklock) " ZKLOCK_VERSION "\n");
		default:
			refuse();
	}
}

/* Checks which options go together. */
static void
check(const RunOptions *options)
{
	bool job = options->kind == RUN_JOB;

	if (options->name == NULL)
		run_say("no name given");
	else if (options->command[0] == NULL)
		run_say("no command given");
	else if (options->shared && options->kind != RUN_LOCK)
		run_say("--shared is for locks");
	else if (job && (options->every == NULL) == (options->slot == NULL))
		run_say("--job needs either --every or --slot");
	else if (options->origin && options->slot)
		run_say("--origin is for --every");
	else if (!job &&
			 (options->every || options->slot || options->origin || options->attempts))
		run_say("--every, --slot, --origin and --attempts need --job");
	else
		return;
	refuse();
}

void
run_options_read(RunOptions *options, int argc, char **argv)
{
	int option;

	memset(options, 0, sizeof(*options));
	options->kill_after = 3000;
	options->not_run = -1;
	/* "+": options end where the name, and then the command, begins */
	for (int words = 0; words < 2; words++)
	{
		while ((option = getopt_long(argc, argv, "+d:t:sk:E:v", long_options, NULL)) != -1)
			set_option(options, option, optarg);
		if (words == 0 && optind < argc)
			options->name = argv[optind++];
	}
	options->command = argv + optind;
	check(options);
}
