/*-------------------------------------------------------------------------
 *
 * json.h
 *	  Reads and writes JSON in the form that zklock uses in the ensemble.
 *
 * Pure: libc only.  Any client of the ensemble may have written the text: it can be any
 * bytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JSON_H
#define ZKLOCK_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text that is still to be read. */
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

/* Reads a text: as many whole characters as have room in "size" bytes with a NUL. */
extern bool zklock_json_text(ZkJson *in, char *buf, size_t size);

extern bool zklock_json_int64(ZkJson *in, int64_t *value);
extern bool zklock_json_uint64(ZkJson *in, uint64_t *value);
extern bool zklock_json_bool(ZkJson *in, bool *value);

/* Skips any value that is not nested too deep. */
extern bool zklock_json_skip(ZkJson *in);

/*
 * Reads the value that an object has behind a key: a string, number, true or false, and
 * not the empty string.  "buf" has room for len + 1 bytes.  False: there is no such
 * key.  The text may be cut off behind the value.
 */
extern bool zklock_json_field(const char *text, size_t len, const char *key, char *buf);

/* --- to write ------------------------------------------------------------------ */

/*
 * Writes a text, in quotes.  It takes at most two bytes for each of its own, and two
 * more.  A character that no text should have, or that would need more, becomes '?'.
 * Returns what follows the text.
 */
extern char *zklock_json_write(char *out, const char *text);

#endif /* ZKLOCK_JSON_H */
