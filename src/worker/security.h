/*-------------------------------------------------------------------------
 *
 * security.h
 *	  Credentials, TLS, and whose our znodes are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SECURITY_H
#define ZKLOCK_SECURITY_H

#include "client.h"

/* How a session is to be protected. */
typedef struct ZkProtection ZkProtection;

/* Read settings and files.  NULL and a reason when they are of no use. */
extern ZkProtection *zklock_security_read(char *error, size_t errlen);
extern void zklock_security_free(ZkProtection *security);

/* For zklock_client_open; good as long as "security" is. */
extern const ZkSecurity *zklock_security_settings(const ZkProtection *security);

/* The handle is made with this. */
extern void zklock_security_use(const ZkProtection *security);

/* Has a handle been made, and was it with the same? */
extern bool zklock_security_used(void);
extern bool zklock_security_in_use(const ZkProtection *security);

/* Is what we rely on protected?  To be asked once a session; not if it is not to be. */
extern void zklock_security_check(ZkClient *client);

/* The answer, an ACL: somebody who is not us may change what we rely on, perhaps. */
extern void zklock_security_checked(const ZkMessage *message);

#endif /* ZKLOCK_SECURITY_H */
