/*-------------------------------------------------------------------------
 *
 * json.h
 *	  JSON as zklock writes it into the ensemble, and reads it there.
 *
 * Pure: libc only.  Whoever can reach the ensemble may have written what is read, any
 * bytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JSON_H
#define ZKLOCK_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is left to be read. */
typedef struct ZkJson
{
	const char *p;
	const char *end;
} ZkJson;

/* --- to read: what is next, after space, or false ---------------------------- */

extern void zklock_json_space(ZkJson *in);

/* This character; these. */
extern bool zklock_json_take(ZkJson *in, char c);
extern bool zklock_json_word(ZkJson *in, const char *word);

/* A text, as much of it as has room in "size" bytes with a NUL: whole characters. */
extern bool zklock_json_text(ZkJson *in, char *buf, size_t size);

extern bool zklock_json_int64(ZkJson *in, int64_t *value);
extern bool zklock_json_uint64(ZkJson *in, uint64_t *value);
extern bool zklock_json_bool(ZkJson *in, bool *value);

/* Whatever it is, but not too deep. */
extern bool zklock_json_skip(ZkJson *in);

/*
 * What an object says behind a key: a string, number, true or false, and not the empty
 * string.  "buf" has room for len + 1 bytes.  False if there is no such key.  The text
 * may be cut off behind it.
 */
extern bool zklock_json_field(const char *text, size_t len, const char *key, char *buf);

/* --- to write ------------------------------------------------------------------ */

/*
 * A text, in quotes: two bytes each of its own at most, and two.  What no text should
 * have, and what would need more, is written as '?'.  Returns what follows it.
 */
extern char *zklock_json_write(char *out, const char *text);

#endif /* ZKLOCK_JSON_H */
