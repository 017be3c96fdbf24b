/*-------------------------------------------------------------------------
 *
 * models.h
 *	  Decides what each kind of name may answer, one step at a time.
 *
 * The models are those of two public suites of Jepsen, so that results can be compared:
 * Hazelcast's CP subsystem (github.com/hazelcast/jepsen) and etcd
 * (github.com/jepsen-io/etcd).  A model that neither suite has is marked (*).
 *
 * mutex
 *	  etcd's lock, and Hazelcast's non-reentrant lock: nobody gets the lock while
 *	  somebody has it, and only the holder checks or ends the hold.
 *
 * fenced mutex
 *	  Hazelcast's reentrant fenced lock.  The holder may take the lock again, gets the
 *	  token that it has, and gives the lock back with its last count.  A new hold's
 *	  token is larger than all before.  Hazelcast has a token for each hold; zklock has
 *	  one for each grant of a server, whose sessions may take the lock in turn with the
 *	  same token.  So a token may also be as large as the largest, on the same server.
 *
 * reader-writer lock (*)
 *	  Any number of readers, or one writer.  A writer's token is larger than all before,
 *	  a reader's larger than all writers'.
 *
 * semaphore
 *	  Hazelcast's semaphore, if all name one number.  A holder names how many permits
 *	  there are; there are never more holders than any of them names.  Numbers of
 *	  permits differ.
 *
 * leader (*)
 *	  Claims to lead have tokens that never fall, and one token is one server's: so
 *	  nobody leads between two claims of another.
 *
 * register
 *	  etcd's register and Hazelcast's cas-long: a read sees the last write, a compare-
 *	  and-set finds the value that it expects.  In place of etcd's version there is the
 *	  fence: its token never falls.
 *
 * item of a queue
 *	  Hazelcast's queue, one item each (its checker, total-queue, asks as little): what
 *	  was put is taken and done, what was not put never.  One transaction at a time has
 *	  an item.  What was done is taken again only if the server that did it was lost, or
 *	  the ensemble went back: these are the at-least-once marks, and they are counted.
 *
 * slot of a job (*)
 *	  A slot is run once, and again only as an item is.
 *
 * round of a barrier (*)
 *	  The parties of a round are all there at one moment, and a round is full.
 *
 * Hazelcast's suite lets sessions live for 300 s and breaks something for 20 s at a
 * time, so no lock is ever lost there. zklock's sessions live for 2 s in the chaos run,
 * and locks are lost all the time.  A holder is told of the loss only when it asks or
 * commits.  So the models count claims: an answer of zk_lock, zk_token or zk_assert,
 * and a COMMIT that committed.  A hold lasts from its first claim to its last one
 * (prepare.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef MODELS_H
#define MODELS_H

#include "search.h"

extern const Model mutex_model;
extern const Model fenced_mutex_model;
extern const Model reader_writer_model;
extern const Model semaphore_model;
extern const Model leader_model;
extern const Model register_model;
extern const Model item_model;
extern const Model slot_model;
extern const Model round_model;

/* A fault that hits those that answer: its kind, its beginning and its end. */
typedef enum Harm
{
	HARM_NONE,	  /* nothing that excuses an answer */
	HARM_SERVER,  /* a server stopped, or lost its session */
	HARM_ENSEMBLE /* it went back to an earlier state */
} Harm;

typedef struct Fault
{
	Harm harm;
	int server; /* NO_SERVER: any of them */
	int64_t from;
	int64_t until;
} Fault;

#define NO_SERVER (-1)

extern void models_set_faults(const Fault *faults, int n);

/* Did the server stop between these times, or lose its session? */
extern bool models_harmed(int server, int64_t from, int64_t until);

/* Did the ensemble go back between these times? */
extern bool models_went_back(int64_t from, int64_t until);

#endif
