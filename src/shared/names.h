/*-------------------------------------------------------------------------
 *
 * names.h
 *	  Names, and what others wrote into the ensemble, as text for people; and what
 *	  this server is called.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAMES_H
#define ZKLOCK_NAMES_H

#include "lib/stringinfo.h"

#include "contender.h"

/*
 * Bytes that anybody may have written, in the database's encoding: as they are if they
 * are UTF-8 and that encoding has all their characters, else percent-encoded.  If "cut"
 * they go on elsewhere: then the text is whole characters and ends in "...".  palloc'd.
 */
extern char *zklock_display_bytes(const char *bytes, int len, bool cut);

/* The other way: text of the database in UTF-8, percent-encoded where that fails. */
extern char *zklock_bytes_to_utf8(const char *text);

/* The same of a text that may have been cut off anywhere, without the dots. */
extern char *zklock_display_text(const char *text);

/* A name, likewise, without its namespace. */
extern char *zklock_display_name(const char *name);

/* The same where no catalog may be read: percent-encoded unless ASCII or the
 * database's encoding is UTF8. */
extern char *zklock_plain_name(const char *name);

/* Is a name, as the table has it, in zklock.namespace? */
extern bool zklock_in_namespace(const char *name);

/* Text that is whole characters in UTF-8, or not, likewise. */
extern char *zklock_plain_text(const char *text);

/*
 * Text in the database's encoding that others have made, for a message: percent-encoded
 * where not ASCII if the client's encoding lacks it, for then the client would be told of
 * that instead, and get another SQLSTATE.  Without "catalogs", which tell, it is taken to
 * lack it.  "text" itself, or palloc'd.
 */
extern const char *zklock_client_text(const char *text, bool catalogs);

/* A name for the log: encoded if it is in a namespace.  "buf" as for zklock_encode_name. */
extern const char *zklock_log_name(const char *name, char *buf);

/*
 * The name by which people know this server: zklock.server_name, else cluster_name,
 * else host name and port; these go behind a cluster_name that is Debian's default, too,
 * as in 15/main@db1:5432.  Written to "buf".
 */
extern void zklock_effective_server_name(char *buf, size_t size);

/* The end of the name of a server's node under <root>/servers, behind its own name and a
 * '-', is its session's: 64 bits in hex. */
#define ZKLOCK_MARK_LEN 16

/* JSON for people who look into the ensemble: who made this contender?  "pid" is the
 * backend's. */
extern void zklock_describe_server(StringInfo buf, int pid);

/* The same of this server, for its node under <root>/servers (zk_servers): besides the
 * postmaster's pid, versions, in how many elections it leads, how many jobs it runs, and
 * whether it drains.  Without the closing brace, as a report (report.h) follows. */
extern void zklock_describe_member(StringInfo buf, uint32 elections, uint32 jobs,
								   const char *drain);

#endif /* ZKLOCK_NAMES_H */
