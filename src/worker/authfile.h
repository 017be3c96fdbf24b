/*-------------------------------------------------------------------------
 *
 * authfile.h
 *	  Reads the file of credentials that zklock.auth_file names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_AUTHFILE_H
#define ZKLOCK_AUTHFILE_H

#include "client.h"

/* All of it is in one block of memory, for pfree. */
typedef struct ZkAuthFile
{
	int ncredentials;
	ZkCredential credentials[ZKLOCK_MAX_CREDENTIALS];
} ZkAuthFile;

/* Read the file.  Returns NULL if the file cannot be used; "error" (of size errlen)
 * then gets a reason, which names the file and none of its content. */
extern ZkAuthFile *zklock_auth_read(const char *path, char *error, size_t errlen);

/*
 * Do only the right users have access to a file with a secret, which the ZooKeeper
 * library will open?  The rule is that of ssl_key_file: either the server's user owns
 * the file and nobody else has any right on it, or root owns it and the server's group
 * may read it.
 */
extern bool zklock_check_private_file(const char *path, char *error, size_t errlen);

#endif /* ZKLOCK_AUTHFILE_H */
