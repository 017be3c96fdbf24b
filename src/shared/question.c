/*-------------------------------------------------------------------------
 *
 * question.c
 *	  Questions of backends to the ensemble, in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "storage/ipc.h"
#include "storage/shmem.h"

#include "question.h"
#include "table.h"

ZkQuestions *zklock_questions = NULL;

void
zklock_question_shmem_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(ZkQuestions)));
	RequestNamedLWLockTranche("zklock_query", 1);
}

void
zklock_question_shmem_startup(void)
{
	bool found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	zklock_questions = ShmemInitStruct("zklock queries", sizeof(ZkQuestions), &found);
	if (!found)
	{
		memset(zklock_questions, 0, sizeof(*zklock_questions));
		zklock_questions->lock = &GetNamedLWLockTranche("zklock_query")->lock;
		ConditionVariableInit(&zklock_questions->free_cv);
		for (int i = 0; i < ZKLOCK_NQUESTIONS; i++)
			ConditionVariableInit(&zklock_questions->slot[i].cv);
	}
	LWLockRelease(AddinShmemInitLock);
}

uint32
zklock_question_serial(void)
{
	Assert(LWLockHeldByMeInMode(zklock_questions->lock, LW_EXCLUSIVE));
	if (++zklock_questions->last_serial == 0)
		zklock_questions->last_serial = 1;
	return zklock_questions->last_serial;
}

void
zklock_question_set_state(ZkQuestion *slot, ZkQuestionState state)
{
	Assert(LWLockHeldByMeInMode(zklock_questions->lock, LW_EXCLUSIVE));
	switch (state)
	{
		case ZKLOCK_QUESTION_FREE:
			Assert(!zklock_in_worker() && slot->state != ZKLOCK_QUESTION_FREE);
			break;
		case ZKLOCK_QUESTION_POSTED:
			Assert(!zklock_in_worker() && slot->serial != 0 &&
				   (slot->state == ZKLOCK_QUESTION_FREE ||
					slot->state == ZKLOCK_QUESTION_RESTART));
			break;
		case ZKLOCK_QUESTION_RUNNING:
			Assert(slot->state ==
				   (zklock_in_worker() ? ZKLOCK_QUESTION_POSTED : ZKLOCK_QUESTION_PAGE));
			break;
		case ZKLOCK_QUESTION_PAGE:
		case ZKLOCK_QUESTION_DONE:
			Assert(zklock_in_worker() && slot->state == ZKLOCK_QUESTION_RUNNING);
			Assert(slot->used >= 0 && slot->used <= ZKLOCK_ANSWER_PAGE);
			break;
		case ZKLOCK_QUESTION_RESTART:
			Assert(zklock_in_worker() &&
				   (slot->state == ZKLOCK_QUESTION_RUNNING ||
					slot->state == ZKLOCK_QUESTION_PAGE));
			break;
	}
	slot->state = state;
}
