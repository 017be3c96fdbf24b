/*-------------------------------------------------------------------------
 *
 * own.c
 *		lets a user namespace of one user be a whole Debian
 *
 * The test is root of a user namespace that knows no other user.  There dpkg could give no
 * file to another user or group, and make no device.  This library, which LD_PRELOAD loads,
 * answers that both were done; and it waits for no disk, for a tree that is thrown away.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

int
chown(UNUSED const char *path, UNUSED uid_t owner, UNUSED gid_t group)
{
	return 0;
}

int
lchown(UNUSED const char *path, UNUSED uid_t owner, UNUSED gid_t group)
{
	return 0;
}

int
fchown(UNUSED int fd, UNUSED uid_t owner, UNUSED gid_t group)
{
	return 0;
}

int
fchownat(UNUSED int dir, UNUSED const char *path, UNUSED uid_t owner, UNUSED gid_t group,
		 UNUSED int flags)
{
	return 0;
}

int
setgroups(UNUSED size_t size, UNUSED const gid_t *list)
{
	return 0;
}

/* a file in its place: debootstrap tries whether it can make a device and write to it */
int
mknodat(int dir, const char *path, UNUSED mode_t mode, UNUSED dev_t device)
{
	int fd = openat(dir, path, O_CREAT | O_WRONLY, 0666);

	return fd < 0 ? fd : close(fd);
}

int
mknod(const char *path, mode_t mode, dev_t device)
{
	return mknodat(AT_FDCWD, path, mode, device);
}

int
fsync(UNUSED int fd)
{
	return 0;
}

int
fdatasync(UNUSED int fd)
{
	return 0;
}

int
sync_file_range(UNUSED int fd, UNUSED off_t from, UNUSED off_t length, UNUSED unsigned flags)
{
	return 0;
}

int
syncfs(UNUSED int fd)
{
	return 0;
}

void
sync(void)
{
}
