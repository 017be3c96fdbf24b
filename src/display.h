/*-------------------------------------------------------------------------
 *
 * display.h
 *	  Names, and what others wrote into the ensemble, as text for people.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DISPLAY_H
#define ZKLOCK_DISPLAY_H

#include <stdbool.h>

/*
 * Bytes that anybody may have written, in the database's encoding: as they are if they
 * are UTF-8 and that encoding has all their characters, else percent-encoded.  If "cut"
 * they go on elsewhere: then the text is whole characters and ends in "...".  palloc'd.
 */
extern char *zklock_display_bytes(const char *bytes, int len, bool cut);

/* The same of a text that may have been cut off anywhere, without the dots. */
extern char *zklock_display_text(const char *text);

/* A name, likewise, without its namespace. */
extern char *zklock_display_name(const char *name);

/* The same where no catalog may be read: percent-encoded unless ASCII or the
 * database's encoding is UTF8. */
extern char *zklock_plain_name(const char *name);

#endif /* ZKLOCK_DISPLAY_H */
