/*-------------------------------------------------------------------------
 *
 * security.h
 *	  Credentials, TLS, and the ACLs of the znodes that zklock creates.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SECURITY_H
#define ZKLOCK_SECURITY_H

#include "client.h"

/* How a session is protected. */
typedef struct ZkProtection ZkProtection;

/* Read the settings and files.  NULL and a reason if they cannot be used. */
extern ZkProtection *zklock_security_read(char *error, size_t errlen);
extern void zklock_security_free(ZkProtection *security);

/* The settings for zklock_client_open; valid as long as "security" is. */
extern const ZkSecurity *zklock_security_settings(const ZkProtection *security);

/* The worker is about to make the handle with these settings. */
extern void zklock_security_use(const ZkProtection *security);

/* Was a handle made, and was it made with the same settings? */
extern bool zklock_security_used(void);
extern bool zklock_security_in_use(const ZkProtection *security);

/* Ask for the ACLs of the nodes that zklock relies on, unless they are meant to be
 * open.  To be called at each connection; "again": it is not the session's first, and
 * there is nothing to ask unless an answer is missing. */
extern void zklock_security_check(ZkClient *client, bool again);

/* Handle the reply with an ACL: another client may be able to change the node. */
extern void zklock_security_checked(const ZkMessage *message);

#endif /* ZKLOCK_SECURITY_H */
