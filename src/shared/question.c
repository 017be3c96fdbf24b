/*-------------------------------------------------------------------------
 *
 * question.c
 *	  Keeps backends' questions to the ensemble in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "question.h"
#include "table.h"

ZkQuestions *zklock_questions = NULL;

static Size
size(void)
{
	return sizeof(ZkQuestions);
}

static void
init(void)
{
	ConditionVariableInit(&zklock_questions->free_cv);
	for (int i = 0; i < ZKLOCK_NQUESTIONS; i++)
		ConditionVariableInit(&zklock_questions->question[i].cv);
}

const ZkSharedPart zklock_question_part = {
	.name = "zklock_query",
	.nlocks = 1,
	.size = size,
	.memory = (void **) &zklock_questions,
	.init = init,
};

void
zklock_question_set_state(ZkQuestion *question, ZkQuestionState state)
{
	Assert(LWLockHeldByMeInMode(zklock_questions->box.lock, LW_EXCLUSIVE));
	switch (state)
	{
		case ZKLOCK_QUESTION_FREE:
			Assert(!zklock_in_worker() && question->state != ZKLOCK_QUESTION_FREE);
			break;
		case ZKLOCK_QUESTION_POSTED:
			Assert(!zklock_in_worker() && question->serial != 0 &&
				   (question->state == ZKLOCK_QUESTION_FREE ||
					question->state == ZKLOCK_QUESTION_RESTART));
			break;
		case ZKLOCK_QUESTION_RUNNING:
			Assert(question->state ==
				   (zklock_in_worker() ? ZKLOCK_QUESTION_POSTED : ZKLOCK_QUESTION_PAGE));
			break;
		case ZKLOCK_QUESTION_PAGE:
		case ZKLOCK_QUESTION_DONE:
			Assert(zklock_in_worker() && question->state == ZKLOCK_QUESTION_RUNNING);
			Assert(question->used >= 0 && question->used <= ZKLOCK_ANSWER_PAGE);
			break;
		case ZKLOCK_QUESTION_RESTART:
			Assert(zklock_in_worker() &&
				   (question->state == ZKLOCK_QUESTION_RUNNING ||
					question->state == ZKLOCK_QUESTION_PAGE));
			break;
	}
	question->state = state;
}
