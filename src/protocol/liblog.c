/*-------------------------------------------------------------------------
 *
 * liblog.c
 *	  Understands a line of the ZooKeeper library's log.
 *
 *-------------------------------------------------------------------------
 */
#include "liblog.h"

#include "contender.h"

#include <stdlib.h>
#include <string.h>

#define SOCKET	"Socket "
#define RETCODE " zk retcode="

/* connected at once, and when the socket was ready */
#define INITIATED		"Initiated connection to server "
#define INITIATED_LATER "initiated connection to server "

static bool
begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

const char *
zklock_liblog_text(const char *line, int *level, size_t *len)
{
	const char *text = line;
	const char *mark = strstr(line, ":ZOO_");

	*level = 3;
	if (mark != NULL)
	{
		mark += strlen(":ZOO_");
		if (begins(mark, "ERROR"))
			*level = 1;
		else if (begins(mark, "WARN"))
			*level = 2;
		else if (begins(mark, "DEBUG"))
			*level = 4;
		mark = strstr(mark, ": ");
		if (mark != NULL)
			text = mark + 2;
	}
	*len = strlen(text);
	while (*len > 0 && (text[*len - 1] == '\n' || text[*len - 1] == ' '))
		(*len)--;
	return text;
}

const char *
zklock_liblog_server(const char *text, size_t *len)
{
	static const char *const before[] = {SOCKET, INITIATED, INITIATED_LATER,
										 "session establishment complete on server "};

	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
	{
		if (begins(text, before[i]))
		{
			text += strlen(before[i]);
			*len = strcspn(text, " ,");
			return text;
		}
	}
	return NULL;
}

bool
zklock_liblog_initiated(const char *text)
{
	return begins(text, INITIATED) || begins(text, INITIATED_LATER);
}

bool
zklock_liblog_established(const char *text)
{
	return begins(text, "session establishment complete");
}

bool
zklock_liblog_io_started(const char *text)
{
	return begins(text, "started IO thread");
}

const char *
zklock_liblog_version(const char *text, size_t *len)
{
	static const char before[] = "Client environment:zookeeper.version=";
	const char *last;

	if (!begins(text, before))
		return NULL;
	/* "zookeeper C client 3.8.0" */
	text += sizeof(before) - 1;
	last = strrchr(text, ' ');
	text = last != NULL ? last + 1 : text;
	*len = strcspn(text, "\n");
	return text;
}

int
zklock_liblog_failure(const char *text)
{
	const char *code = begins(text, SOCKET) ? strstr(text, RETCODE) : NULL;

	return code != NULL ? atoi(code + strlen(RETCODE)) : 0;
}

/* Copies the text from "start" to "end", as far as there is room, in whole characters. */
static void
clip(char *buf, size_t size, const char *start, const char *end)
{
	size_t len = (size_t) (end - start);

	if (len > size - 1)
		len = size - 1;
	memcpy(buf, start, len);
	buf[zklock_clip_utf8(buf, len)] = '\0';
}

bool
zklock_liblog_answer(const char *text, ZkLogAnswer *answer)
{
	const char *socket = strstr(text, SOCKET);
	const char *host = socket != NULL ? socket + strlen(SOCKET) : NULL;
	const char *end = host != NULL ? strstr(host, RETCODE) : NULL;
	const char *said = end != NULL ? strstr(end, "errno=") : NULL;

	if (said != NULL)
		said = strchr(said, '(');
	if (said == NULL)
		return false;
	answer->rc = atoi(end + strlen(RETCODE));
	if (*host == '[' && end[-1] == ']' &&
		memchr(host, ':', (size_t) (end - host)) != NULL && strchr(host, ']') == end - 1)
	{
		host++; /* "[host:port]" */
		end--;
	}
	clip(answer->host, sizeof(answer->host), host, end);

	said++;
	end = strchr(said, ')');
	if (end == NULL)
		return false;
	if (begins(said, "Success") && end[1] == ':')
	{
		said = end + (end[2] == ' ' ? 3 : 2); /* no errno: the message says more */
		end = said + strlen(said);
	}
	clip(answer->answer, sizeof(answer->answer), said, end);
	return true;
}
