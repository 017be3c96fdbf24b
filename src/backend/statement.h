/*-------------------------------------------------------------------------
 *
 * statement.h
 *	  Decides which statements are admitted with a loss.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STATEMENT_H
#define ZKLOCK_STATEMENT_H

#include "executor/execdesc.h"
#include "fmgr.h"

/*
 * Register the SQL functions that need special treatment: those that acknowledge a
 * loss, the one under the views, which only looks, and those that ask for a run of a
 * job.  Lists end with a NULL.  A function is known by its address.
 */
extern void zklock_statement_functions(const PGFunction *acknowledging,
									   PGFunction looking, const PGFunction *asking);

/* Is it a utility statement that is admitted with a loss of any scope? */
extern bool zklock_statement_is_exempt(Node *statement);

/* Does a statement, which is the executor's or a utility statement, acknowledge losses
 * and do nothing else? */
extern bool zklock_statement_acknowledges(QueryDesc *query, Node *utility);

/* May the statement do more than acknowledge losses and ask for runs of jobs?
 * Statements within it are checked when they run. */
extern bool zklock_statement_acts(QueryDesc *query, Node *utility);

#endif /* ZKLOCK_STATEMENT_H */
