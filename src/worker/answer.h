/*-------------------------------------------------------------------------
 *
 * answer.h
 *	  Answers the questions that backends put to the ensemble: the worker's part.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ANSWER_H
#define ZKLOCK_ANSWER_H

#include "agent.h"

extern const ZkAgent zklock_answer_agent;

#endif /* ZKLOCK_ANSWER_H */
