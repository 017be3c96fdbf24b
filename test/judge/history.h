/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Reads a history: what each process asked, what it was told, and when.
 *
 * A line of the file is one event, a JSON object such as
 *
 *   {"process":7,"server":"A","type":"invoke","f":"acquire","kind":"lock","name":"job",
 *    "value":{"mode":"shared"},"time":1234567890}
 *   {"process":7,"server":"A","type":"ok","f":"acquire","kind":"lock","name":"job",
 *    "value":{"token":42},"time":1234569999}
 *
 * type
 *	  "invoke" before the question was sent.  Then "ok": the answer was yes.  Or "fail": it was
 *	  no, the operation had no effect, and will have none.  Or "info": that is not known; it
 *	  has had its effect, will have it, or never will.  Without an answer it is "info", too.
 * f
 *	  what was asked: the functions of the models, see prepare.c
 * kind
 *	  lock, semaphore, election, job, queue, barrier, register; or fault, of the nemesis
 * value
 *	  names with numbers or strings (Key); the answer's count where both lines have one
 * time
 *	  in nanoseconds, of CLOCK_MONOTONIC
 *
 * A process asks one thing of one kind and name at a time.  Its lines stand in their
 * order; lines of other processes may stand before them or behind.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HISTORY_H
#define HISTORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define FOREVER INT64_MAX

/* The keys of a value.  Those from ITEM on have strings: numbers of history_string(). */
typedef enum Key
{
	KEY_TOKEN,
	KEY_PERMITS,
	KEY_NUMBER,
	KEY_SLOT,
	KEY_PARTIES,
	KEY_OLD,
	KEY_NEW,
	KEY_COMMITTED,
	KEY_ITEM,
	KEY_ID,
	KEY_MODE,
	KEY_HOW,
	KEY_HARM,
	KEY_HARMED,
	KEYS
} Key;

/* The value does not have this key. */
#define NOTHING INT64_MIN

typedef enum Outcome
{
	OK,
	FAIL,
	INFO
} Outcome;

typedef struct Op
{
	int process;
	int server;
	int kind;
	int f;
	int name;
	Outcome outcome;
	int64_t call;
	int64_t ret; /* FOREVER without an answer; for INFO, when the client gave up */
	int64_t value[KEYS];
} Op;

typedef struct History
{
	Op *ops; /* those of a process in their order */
	long n;
	long size;
} History;

extern void history_read(History *history, const char *file);

/* Strings and their numbers.  A string that nobody wrote gets a new number. */
extern int history_number(const char *string);
extern const char *history_string(int number);

/* Prints a message, and ends with status 2: the file is no history. */
extern void give_up(const char *format, ...)
	__attribute__((format(printf, 1, 2), noreturn));

extern void *allocate(size_t size);
extern void *enlarge(void *old, size_t size);

#endif
