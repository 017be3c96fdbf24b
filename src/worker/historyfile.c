/*-------------------------------------------------------------------------
 *
 * historyfile.c
 *	  Reads and writes the file with the history (history.h).
 *
 * The history is about the ensemble and not about this server.  So the file, unlike the
 * session's file, is in the data directory: base backups contain it, and a promoted
 * standby or a copy knows what its original knew.  But nothing depends on the file:
 * without it the server only remembers less.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <fcntl.h>
#include <unistd.h>

#include "storage/fd.h"

#include "historyfile.h"
#include "table.h"

#define HISTORY_FILE	 "zklock.history"
#define HISTORY_FILE_NEW "zklock.history.new"

static bool complained = false;

static const char *const forgotten =
	"This server does not remember what it has seen of the ZooKeeper ensemble before.";

static void
complain(const char *what)
{
	if (complained)
		return;
	complained = true;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not %s file \"%s\": %m", what, HISTORY_FILE_NEW),
			 errdetail(
				 "After a crash this server will not remember what it has seen of the ZooKeeper ensemble.")));
}

bool
zklock_history_file_write(ZkHistory *history, bool last)
{
	char text[ZKLOCK_HISTORY_TEXT_MAX];
	ZkHistory written = *history;
	size_t len = zklock_history_format(&written, last, text);
	int fd = OpenTransientFile(HISTORY_FILE_NEW, O_CREAT | O_TRUNC | O_WRONLY | PG_BINARY);
	bool ok;

	Assert(zklock_in_worker()); /* two that write at once would mix up their files */
	if (fd < 0)
	{
		complain("create");
		return false;
	}
	errno = 0;
	ok = write(fd, text, len) == (ssize_t) len;
	if (!ok)
	{
		if (errno == 0)
			errno = ENOSPC;
		complain("write");
	}
	if (CloseTransientFile(fd) != 0 && ok)
	{
		ok = false;
		complain("close");
	}
	/* it flushes the new one first, and complains itself */
	if (!ok ||
		durable_rename(HISTORY_FILE_NEW, HISTORY_FILE, complained ? DEBUG1 : LOG) != 0)
	{
		complained = true;
		(void) unlink(HISTORY_FILE_NEW);
		return false;
	}
	complained = false;
	*history = written;
	return true;
}

bool
zklock_history_file_read(ZkHistory *history, int64_t now, int64_t wait)
{
	char text[ZKLOCK_HISTORY_TEXT_MAX];
	int fd = OpenTransientFile(HISTORY_FILE, O_RDONLY | PG_BINARY);
	ssize_t n;

	zklock_history_init(history);
	if (fd < 0)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not open file \"%s\": %m", HISTORY_FILE),
					 errdetail_internal("%s", forgotten)));
		return false;
	}
	n = read(fd, text, sizeof(text));
	if (n < 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", HISTORY_FILE),
				 errdetail_internal("%s", forgotten)));
	CloseTransientFile(fd);
	if (n < 0)
		return false;
	if (zklock_history_parse(history, text, (size_t) n, now, wait))
		return true;
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED), errmsg("file \"%s\" is damaged", HISTORY_FILE),
			 errdetail_internal("%s", forgotten)));
	return false;
}
