/*-------------------------------------------------------------------------
 *
 * gate_shared.c
 *	  Questions whether gates are open, in shared memory: one a backend.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "gate_shared.h"
#include "table.h"

typedef struct Question
{
	uint32 serial; /* 0: nobody has asked */
	char name[ZKLOCK_NAME_MAX + 1];
	ZkGateAnswer answer;
	ConditionVariable cv;
} Question;

typedef struct GatesShared
{
	ZkMailbox box;
	Question question[FLEXIBLE_ARRAY_MEMBER]; /* by proc number */
} GatesShared;

static GatesShared *shared = NULL;

static Size
shmem_size(void)
{
	return add_size(offsetof(GatesShared, question),
					mul_size(sizeof(Question), MaxBackends));
}

static void
init(void)
{
	for (int i = 0; i < MaxBackends; i++)
		ConditionVariableInit(&shared->question[i].cv);
}

const ZkSharedPart zklock_gate_part = {
	.name = "zklock_gate",
	.nlocks = 1,
	.size = shmem_size,
	.memory = (void **) &shared,
	.init = init,
};

void
zklock_gate_ask(const char *name)
{
	Question *own = &shared->question[ZKLOCK_MY_PROC_NUMBER];

	Assert(!zklock_in_worker());
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	own->serial = zklock_mailbox_serial(&shared->box);
	own->answer = ZKLOCK_GATE_UNKNOWN;
	strlcpy(own->name, name, sizeof(own->name));
	LWLockRelease(shared->box.lock);
	zklock_mailbox_post(&shared->box);
}

ZkGateAnswer
zklock_gate_answer(void)
{
	ZkGateAnswer answer;

	LWLockAcquire(shared->box.lock, LW_SHARED);
	answer = shared->question[ZKLOCK_MY_PROC_NUMBER].answer;
	LWLockRelease(shared->box.lock);
	return answer;
}

ConditionVariable *
zklock_gate_cv(void)
{
	return &shared->question[ZKLOCK_MY_PROC_NUMBER].cv;
}

bool
zklock_gate_asked(void)
{
	return zklock_mailbox_posted(&shared->box);
}

int
zklock_gate_next(int after, char *name, uint32 *serial)
{
	int found = -1;

	LWLockAcquire(shared->box.lock, LW_SHARED);
	for (int i = after + 1; i < MaxBackends && found < 0; i++)
	{
		const Question *q = &shared->question[i];

		if (q->serial == 0 || q->answer != ZKLOCK_GATE_UNKNOWN)
			continue;
		found = i;
		*serial = q->serial;
		strlcpy(name, q->name, sizeof(q->name));
	}
	LWLockRelease(shared->box.lock);
	return found;
}

void
zklock_gate_tell(int question, uint32 serial, ZkGateAnswer answer)
{
	Question *q = &shared->question[question];

	Assert(zklock_in_worker() && question < MaxBackends && answer != ZKLOCK_GATE_UNKNOWN);
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	if (q->serial == serial)
		q->answer = answer;
	LWLockRelease(shared->box.lock);
	ConditionVariableBroadcast(&q->cv);
}
