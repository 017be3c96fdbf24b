/*-------------------------------------------------------------------------
 *
 * statement.h
 *	  Which statements are admitted with a loss.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STATEMENT_H
#define ZKLOCK_STATEMENT_H

#include "executor/execdesc.h"
#include "fmgr.h"

/*
 * Tell which SQL functions are special: those that acknowledge a loss, the one under the
 * views, which only looks, and those that ask for a run of a job.  Lists end with a NULL.
 * A function is known by its address.
 */
extern void zklock_statement_functions(const PGFunction *acknowledging,
									   PGFunction looking, const PGFunction *asking);

/* A utility statement that is admitted with a loss, of whatever scope? */
extern bool zklock_statement_is_exempt(Node *statement);

/* Does a statement, which is one of the executor's or a utility statement, acknowledge
 * losses, and do nothing else? */
extern bool zklock_statement_acknowledges(QueryDesc *query, Node *utility);

/* May it do more than acknowledge losses and ask for runs of jobs?  What statements
 * within it do is looked at when they run. */
extern bool zklock_statement_acts(QueryDesc *query, Node *utility);

#endif /* ZKLOCK_STATEMENT_H */
