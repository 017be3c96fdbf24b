/*-------------------------------------------------------------------------
 *
 * record.h
 *	  Reads and writes the records that servers exchange in znodes: JSON objects in
 *	  UTF-8.
 *
 * A shape says which name each field of a struct has in the text, and which values it
 * may have.  One table serves the writer, the reader, and the code that needs the
 * limits.  A text begins with its version.  It is one record, or several, each on a
 * line of its own.
 *
 * A newer server may write fields that this one does not know: the reader skips them.
 * If older servers must not read a text, it has the next version.  A reader takes its
 * own version and all before it (src/README, Versions).
 *
 * Pure: libc only.  Any client of the ensemble may have written the text: it can be any
 * bytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RECORD_H
#define ZKLOCK_RECORD_H

#include "contender.h"
#include "json.h"

typedef enum ZkFieldType
{
	ZKLOCK_FIELD_INT,  /* int, or int64_t: by its size */
	ZKLOCK_FIELD_TIME, /* int64_t; INT64_MIN is written as null */
	ZKLOCK_FIELD_UINT64,
	ZKLOCK_FIELD_UINT64_TEXT, /* as a text, for readers whose numbers are short */
	ZKLOCK_FIELD_BOOL,
	ZKLOCK_FIELD_TEXT, /* char[] */
	ZKLOCK_FIELD_NAME, /* the same, of a lock: encoded as for a znode */
	ZKLOCK_FIELD_WORD, /* an enum: one of "words" */
	ZKLOCK_FIELD_KIND, /* ZkLockKind */
	ZKLOCK_FIELD_LIST  /* of records, if there is a shape, or of numbers */
} ZkFieldType;

typedef struct ZkShape ZkShape;

typedef struct ZkField
{
	const char *name;
	ZkFieldType type;
	size_t offset;
	size_t size; /* bytes; LIST: of an element */
	bool needed; /* a record without it is none */
	int64_t min; /* INT, TIME, and numbers of a LIST; 0, like max: any */
	int64_t max;
	const char *const *words;
	int nwords;
	const ZkShape *shape;
	size_t count; /* LIST: offset of the int that says how many there are ... */
	int room;	  /* ... and how many there may be */
} ZkField;

struct ZkShape
{
	const ZkField *field; /* 64 at most */
	int nfields;
	int version;	   /* of a text of this shape; 0: it is part of another */
	const void *blank; /* a record of which nothing is known; NULL: zeros */
	size_t size;
	bool whole; /* all fields are written, else those that are not as in "blank" */
};

/* Rows of a table of fields. */
#define ZKLOCK_FIELD(key, what, of, member)                                              \
	.name = (key), .type = ZKLOCK_FIELD_##what, .offset = offsetof(of, member),          \
	.size = sizeof(((of *) NULL)->member)
#define ZKLOCK_FIELD_WORDS(table)                                                        \
	.words = (table), .nwords = (int) (sizeof(table) / sizeof((table)[0]))
#define ZKLOCK_FIELD_ITEMS(key, of, array, n)                                            \
	.name = (key), .type = ZKLOCK_FIELD_LIST, .offset = offsetof(of, array),             \
	.size = sizeof(((of *) NULL)->array[0]), .count = offsetof(of, n),                   \
	.room = (int) (sizeof(((of *) NULL)->array) / sizeof(((of *) NULL)->array[0]))
/* ... and a shape, of such a table. */
#define ZKLOCK_SHAPE(table, of)                                                          \
	.field = (table), .nfields = (int) (sizeof(table) / sizeof((table)[0])),             \
	.size = sizeof(of)

typedef enum ZkRecordRead
{
	ZKLOCK_RECORD_GOOD,
	ZKLOCK_RECORD_NEWER,  /* its version is */
	ZKLOCK_RECORD_DAMAGED /* or somebody else's */
} ZkRecordRead;

/* Write a record; a text begins with its version.  Returns its end, where a NUL is. */
extern char *zklock_record_write(const ZkShape *shape, const void *record, char *out);

/* Reads a text that is one record and nothing else.  Unless it is GOOD, the record is
 * blank. */
extern ZkRecordRead zklock_record_read(const ZkShape *shape, const char *text, size_t len,
									   void *record);

/* The version that a text names; 0: it names none. */
extern int64_t zklock_record_version(const char *text, size_t len);

/*
 * Reads the next line, which ends in a line feed: a line that was cut off does not
 * count.  Moves "text" behind it.  DAMAGED: there is no line any more, and *text is
 * NULL; or the line is no such record.
 */
extern ZkRecordRead zklock_record_line(const ZkShape *shape, const char **text,
									   const char *end, void *record);

#endif /* ZKLOCK_RECORD_H */
