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
	if (++zklock_questions->last_serial == 0)
		zklock_questions->last_serial = 1;
	return zklock_questions->last_serial;
}
