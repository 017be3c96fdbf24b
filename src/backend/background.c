/*-------------------------------------------------------------------------
 *
 * background.c
 *	  Sets up processes of the extension that have a database, and no user.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "libpq/pqsignal.h"
#include "postmaster/bgworker.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"

#include "background.h"

/*
 * The owner of a database may set transaction defaults: a transaction that is
 * serializable, read only and deferrable waits for all others there.  Commits of these
 * processes need not wait for a standby.
 */
static const struct
{
	const char *name;
	const char *value;
} settings[] = {
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_deferrable", "off"},
	{"synchronous_commit", "local"},
	{"search_path", ""},
	{"statement_timeout", "0"},
	{"lock_timeout", "0"},
	{"idle_in_transaction_session_timeout", "0"},
#if PG_VERSION_NUM >= 170000
	{"transaction_timeout", "0"},
#endif
};

void
zklock_background_begin(void)
{
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	for (int i = 0; i < (int) lengthof(settings); i++)
		SetConfigOption(settings[i].name, settings[i].value, PGC_SUSET, PGC_S_OVERRIDE);
}
