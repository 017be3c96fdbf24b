/*-------------------------------------------------------------------------
 *
 * answer.h
 *	  Questions to the ensemble: the worker that answers them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ANSWER_H
#define ZKLOCK_ANSWER_H

#include "agent.h"

extern const ZkAgent zklock_answer_agent;

#endif /* ZKLOCK_ANSWER_H */
