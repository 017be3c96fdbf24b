/*-------------------------------------------------------------------------
 *
 * sessionfile.c
 *	  Keeps the session's id and password on disk.
 *
 * The file has one purpose.  After a crash or an immediate shutdown, the next run asks
 * the session that was left what the ensemble remembers (ensemble.c), and closes it.
 * The file must never let a copy of this server touch the session of the original.  So
 * it is in the directory for temporary statistics, which base backups and pg_rewind
 * skip, and which survives a crash.  It also names the boot of the machine, and the
 * inodes of the data directory and of the file itself, which no copy shares.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"

#include "sessionfile.h"

#define SESSION_FILE	   PG_STAT_TMP_DIR "/zklock.session"
#define SESSION_FILE_MAGIC 0x7a6b6c31

typedef struct SessionFile
{
	uint32 magic;
	uint32 crc; /* of all that follows */
	ZkSessionId id;
	char boot_id[40];
	uint64 directory_device;
	uint64 directory_inode;
	uint64 file_device;
	uint64 file_inode;
} SessionFile;

/* Fill in what ties the file to this place and boot.  False if that cannot be
 * determined. */
static bool
fill_binding(SessionFile *file, int fd)
{
	struct stat st;
	int boot = OpenTransientFile("/proc/sys/kernel/random/boot_id", O_RDONLY);
	ssize_t n;

	if (boot < 0)
		return false;
	memset(file->boot_id, 0, sizeof(file->boot_id));
	n = read(boot, file->boot_id, sizeof(file->boot_id) - 1);
	CloseTransientFile(boot);
	if (n < 36 || stat(DataDir, &st) != 0)
		return false;
	file->directory_device = (uint64) st.st_dev;
	file->directory_inode = (uint64) st.st_ino;
	if (fstat(fd, &st) != 0)
		return false;
	file->file_device = (uint64) st.st_dev;
	file->file_inode = (uint64) st.st_ino;
	return true;
}

static uint32
checksum(const SessionFile *file)
{
	pg_crc32c crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &file->id, sizeof(*file) - offsetof(SessionFile, id));
	FIN_CRC32C(crc);
	return crc;
}

void
zklock_session_file_write(const ZkSessionId *id)
{
	SessionFile file;
	int fd;
	bool ok;

	(void) unlink(SESSION_FILE);
	fd = OpenTransientFilePerm(SESSION_FILE, O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR);
	if (fd < 0)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", SESSION_FILE)));
		return;
	}
	memset(&file, 0, sizeof(file));
	file.magic = SESSION_FILE_MAGIC;
	file.id = *id;
	ok = fill_binding(&file, fd);
	file.crc = checksum(&file);
	if (ok && write(fd, &file, sizeof(file)) != (ssize_t) sizeof(file))
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", SESSION_FILE)));
		ok = false;
	}
	CloseTransientFile(fd);
	if (!ok)
		(void) unlink(SESSION_FILE);
}

bool
zklock_session_file_read(ZkSessionId *id)
{
	SessionFile file;
	SessionFile here;
	int fd = OpenTransientFile(SESSION_FILE, O_RDONLY);
	bool ok;

	if (fd < 0)
		return false;
	memset(&file, 0, sizeof(file));
	ok = read(fd, &file, sizeof(file)) == (ssize_t) sizeof(file) &&
		file.magic == SESSION_FILE_MAGIC && file.crc == checksum(&file);
	here = file;
	ok = ok && fill_binding(&here, fd) && memcmp(&here, &file, sizeof(file)) == 0;
	CloseTransientFile(fd);
	if (!ok)
	{
		/* damaged, of an earlier boot, or a copy: of no use to anybody */
		(void) unlink(SESSION_FILE);
		return false;
	}
	*id = file.id;
	return id->id != 0;
}

void
zklock_session_file_remove(void)
{
	(void) unlink(SESSION_FILE);
}
