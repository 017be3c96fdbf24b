/*-------------------------------------------------------------------------
 *
 * record.h
 *	  What servers write for each other into znodes: records, as JSON objects in UTF-8.
 *
 * A shape says by which name each field of a struct is written, and what it may be: one
 * table serves who writes, who reads, and whoever wants to know the limits.  A text
 * begins with its version, and is one record, or some, each on a line of its own.
 *
 * A newer server may write fields that this one does not know: they are skipped.  Where
 * older ones must not read what is written, it has another version.
 *
 * Pure: libc only.  Whoever can reach the ensemble may have written what is read, any
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

/* Read a text that is one record and nothing else.  Unless it is GOOD the record is blank. */
extern ZkRecordRead zklock_record_read(const ZkShape *shape, const char *text, size_t len,
									   void *record);

/* The version that a text says it has; 0: it says none. */
extern int64_t zklock_record_version(const char *text, size_t len);

/*
 * The next line, which ends in a line feed: what was cut off is none.  Moves "text" behind
 * it.  DAMAGED if there is no line any more, when *text is NULL, or it is no such record.
 */
extern ZkRecordRead zklock_record_line(const ZkShape *shape, const char **text,
									   const char *end, void *record);

#endif /* ZKLOCK_RECORD_H */
