/*-------------------------------------------------------------------------
 *
 * gate_shared.h
 *	  Questions whether gates are open, in shared memory: one a backend.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GATE_SHARED_H
#define ZKLOCK_GATE_SHARED_H

#include "storage/condition_variable.h"

#include "contender.h"
#include "mailbox.h"

typedef enum ZkGateAnswer
{
	ZKLOCK_GATE_UNKNOWN, /* yet */
	ZKLOCK_GATE_OPEN,
	ZKLOCK_GATE_CLOSED,
	ZKLOCK_GATE_REFUSED /* by ZooKeeper */
} ZkGateAnswer;

extern const ZkSharedPart zklock_gate_part;

/* --- for backends ----------------------------------------------------------- */

extern void zklock_gate_ask(const char *name);

/* To the latest question; broadcast by this. */
extern ZkGateAnswer zklock_gate_answer(void);
extern ConditionVariable *zklock_gate_cv(void);

/* --- for the worker ---------------------------------------------------------- */

/* Has anybody asked since this was called last? */
extern bool zklock_gate_asked(void);

/* The next question without an answer, -1: none.  "name" has room for one. */
extern int zklock_gate_next(int after, char *name, uint32 *serial);

/* The answer, unless the backend has gone on. */
extern void zklock_gate_tell(int question, uint32 serial, ZkGateAnswer answer);

#endif /* ZKLOCK_GATE_SHARED_H */
