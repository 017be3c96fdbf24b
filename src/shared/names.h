/*-------------------------------------------------------------------------
 *
 * names.h
 *	  Turns names and text from the ensemble into text for people, and names this server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAMES_H
#define ZKLOCK_NAMES_H

#include "lib/stringinfo.h"

#include "contender.h"

/*
 * Bytes that anybody may have written, in the database's encoding: unchanged if they
 * are UTF-8 and that encoding has all their characters, else percent-encoded.  "cut":
 * the bytes go on elsewhere; then the text is whole characters and ends in "...".
 * palloc'd.
 */
extern char *zklock_display_bytes(const char *bytes, int len, bool cut);

/* The inverse: text of the database in UTF-8, percent-encoded where that fails. */
extern char *zklock_bytes_to_utf8(const char *text);

/* The same for a text that may have been cut off anywhere, without the dots. */
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
 * Text in the database's encoding that others have made, for a message.  It is
 * percent-encoded where not ASCII if the client's encoding lacks it: otherwise the
 * client would be told of that instead, and get another SQLSTATE.  Without "catalogs",
 * which tell, it is taken to lack it.  Returns "text" itself, or palloc'd.
 */
extern const char *zklock_client_text(const char *text, bool catalogs);

/* A name for the log: encoded if it is in a namespace.  "buf" as for zklock_encode_name. */
extern const char *zklock_log_name(const char *name, char *buf);

/*
 * Writes the name by which people know this server to "buf": zklock.server_name, else
 * cluster_name, else host name and port.  If cluster_name is Debian's default, host
 * name and port follow it, as in 15/main@db1:5432.
 */
extern void zklock_effective_server_name(char *buf, size_t size);

/* The length of the end of a server's node name under <root>/servers.  Behind the
 * server's name and a '-' it is its session's mark: 64 bits in hex. */
#define ZKLOCK_MARK_LEN 16

/* JSON for people who look into the ensemble: names the server and backend that made
 * this contender.  "pid" is the backend's. */
extern void zklock_describe_server(StringInfo buf, int pid);

/* The same for this server, for its node under <root>/servers (zk_servers).  Adds the
 * postmaster's pid, versions, the number of elections that it leads and of jobs that
 * it runs, and whether it drains.  Without the closing brace, because a report
 * (report.h) follows. */
extern void zklock_describe_member(StringInfo buf, uint32 elections, uint32 jobs,
								   const char *drain);

#endif /* ZKLOCK_NAMES_H */
