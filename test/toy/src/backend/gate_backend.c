/*-------------------------------------------------------------------------
 *
 * gate_backend.c
 *	  Gates: closing one, and asking whether it is open.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "acquire.h"
#include "check.h"
#include "gate_backend.h"
#include "gate_shared.h"
#include "loss.h"
#include "names.h"
#include "room.h"

/* ms: a backstop for lost wake-ups, and how often the connection is looked at */
#define LONGEST_SLEEP 1000

static uint32 wait_event_gate = 0;

int64
zklock_gate_close(const char *name)
{
	int64 token = 0;

	zklock_loss_acknowledge();
	(void) zklock_acquire(ZKLOCK_KIND_GATE, name, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_SESSION,
						  ZKLOCK_WAIT_FOREVER, &token);
	return token;
}

bool
zklock_gate_look(const char *name)
{
	int64 start = zklock_clock();
	ZkGateAnswer answer;

	zklock_gate_ask(name);
	ConditionVariablePrepareToSleep(zklock_gate_cv());
	while ((answer = zklock_gate_answer()) == ZKLOCK_GATE_UNKNOWN)
	{
		(void) zklock_check_connection(start, PG_INT64_MAX);
		(void) ConditionVariableTimedSleep(zklock_gate_cv(), LONGEST_SLEEP,
										   zklock_wait_event(&wait_event_gate,
															 "ZkLockGate"));
	}
	ConditionVariableCancelSleep();
	if (answer == ZKLOCK_GATE_REFUSED)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("ZooKeeper refused to list gate \"%s\"",
						zklock_display_name(name))));
	return answer == ZKLOCK_GATE_OPEN;
}
