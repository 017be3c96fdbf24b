/*-------------------------------------------------------------------------
 *
 * authfile.h
 *	  The file of credentials that zklock.auth_file names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_AUTHFILE_H
#define ZKLOCK_AUTHFILE_H

#include "client.h"

/* In one block of memory, for pfree. */
typedef struct ZkAuthFile
{
	int ncredentials;
	ZkCredential credentials[ZKLOCK_MAX_CREDENTIALS];
} ZkAuthFile;

/*
 * Read the file.  NULL when it cannot be used, with a reason in "error" (room
 * errlen) that names the file and nothing of what is in it.
 */
extern ZkAuthFile *zklock_auth_read(const char *path, char *error, size_t errlen);

/*
 * Is a file with a secret, which the ZooKeeper library will open, in the right hands? The
 * rule of ssl_key_file: it belongs to the server's user and nobody else may do anything
 * with it, or to root, and the server's group may read it.
 */
extern bool zklock_check_private_file(const char *path, char *error, size_t errlen);

#endif /* ZKLOCK_AUTHFILE_H */
