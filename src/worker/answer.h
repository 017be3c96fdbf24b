/*-------------------------------------------------------------------------
 *
 * answer.h
 *	  Questions to the ensemble: the worker that answers them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ANSWER_H
#define ZKLOCK_ANSWER_H

#include "client.h"

/* Each time round: look at the questions. */
extern void zklock_answer_work(void);

/* A reply that is tagged ZKLOCK_TAG_ANSWER. */
extern void zklock_answer_message(const ZkMessage *message);

#endif /* ZKLOCK_ANSWER_H */
