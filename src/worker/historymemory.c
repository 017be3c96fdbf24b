/*-------------------------------------------------------------------------
 *
 * historymemory.c
 *	  Keeps a part of the history (history.h) in memory that outlives this server, but
 *	  not its machine.
 *
 * The memory is a POSIX shared memory segment, as PostgreSQL uses them (dsm_impl.c),
 * but with a name of its own: PostgreSQL removes its own segments when it starts again
 * after a crash.  The name identifies the data directory, and no copy shares it.  The
 * content identifies the cluster, since a deleted directory may leave a segment that
 * another directory gets later.  Only a user who may write in the data directory may
 * write in the segment: a segment of another owner is not used.
 *
 * One store notes each number, so no end of a process can leave half of it.  While the
 * worker exchanges the session, or the name of its node, the segment contains no
 * session.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"

#include "historymemory.h"
#include "table.h"

#define MEMORY_MAGIC UINT64CONST(0x7a6b746f70303033)

typedef struct HistoryMemory
{
	uint64 magic; /* written last */
	uint64 system;
	ZkHistoryMemory kept;
	char member[ZKLOCK_MEMBER_PATH_SIZE]; /* of our node in kept.session */
} HistoryMemory;

static volatile HistoryMemory *memory = NULL;

/* Make the segment's name.  Returns false, with errno, if there is no data directory. */
static bool
make_name(char *name, size_t size)
{
	struct stat st;

	if (stat(DataDir, &st) != 0)
		return false;
	snprintf(name, size, "/zklock.%llx.%llx", (unsigned long long) st.st_dev,
			 (unsigned long long) st.st_ino);
	return true;
}

/* Allocate all of the segment: from then on no access to it can fail for lack of
 * memory. */
static bool
reserve(int fd, const struct stat *st)
{
	int rc = 0;

	if (st->st_uid != geteuid() || st->st_nlink != 1 ||
		(st->st_mode & (S_IRWXG | S_IRWXO)) != 0)
		rc = EACCES;
	while (rc == 0 && (rc = posix_fallocate(fd, 0, sizeof(HistoryMemory))) == EINTR)
		rc = 0;
	errno = rc;
	return rc == 0;
}

/* Attach the segment.  NULL, with errno: it cannot be attached. */
static volatile HistoryMemory *
attach(const char *name)
{
	int fd = shm_open(name, O_RDWR | O_CREAT, S_IRUSR | S_IWUSR);
	struct stat st;
	void *mapped = MAP_FAILED;
	int error;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && reserve(fd, &st))
		mapped =
			mmap(NULL, sizeof(HistoryMemory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	error = errno;
	close(fd);
	errno = error;
	return mapped == MAP_FAILED ? NULL : mapped;
}

bool
zklock_history_memory_open(ZkHistoryMemory *found)
{
	char name[64] = "/zklock";

	memset(found, 0, sizeof(*found));
	Assert(memory == NULL);
	if (make_name(name, sizeof(name)))
		memory = attach(name);
	if (memory == NULL)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not open shared memory segment \"%s\": %m", name),
				 errdetail(
					 "After a crash this server will not remember all that it has seen of the ZooKeeper ensemble.")));
		return false;
	}
	if (memory->magic == MEMORY_MAGIC && memory->system == GetSystemIdentifier())
		*found = memory->kept;
	return true;
}

void
zklock_history_memory_begin(const ZkHistoryMemory *kept)
{
	memory->magic = 0;
	memory->system = GetSystemIdentifier();
	memory->kept = *kept;
	memory->magic = MEMORY_MAGIC;
}

void
zklock_history_memory_note(const ZkHistoryMemory *kept, const char *member)
{
	if (memory == NULL)
		return;
	memory->kept.top = kept->top;
	if (memory->kept.session != kept->session ||
		strcmp(zklock_history_memory_member(), member) != 0)
	{
		memory->kept.session = 0;
		pg_write_barrier();
		strlcpy((char *) memory->member, member, sizeof(memory->member));
	}
	memory->kept.lost_at = kept->lost_at;
	memory->kept.version = kept->version;
	pg_write_barrier();
	memory->kept.session = kept->session;
}

const char *
zklock_history_memory_member(void)
{
	return (const char *) memory->member;
}

void
zklock_history_memory_remove(void)
{
	char name[64];

	if (memory != NULL && make_name(name, sizeof(name)))
		(void) shm_unlink(name);
}
