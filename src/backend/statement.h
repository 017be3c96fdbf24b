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
 * The SQL functions that acknowledge a loss, up to a NULL, and the one that looks at
 * holds and does nothing else.  A function is known by its address.
 */
extern void zklock_statement_functions(const PGFunction *acknowledging, PGFunction looking);

/* A utility statement that is admitted with a loss, of whatever scope? */
extern bool zklock_statement_is_exempt(Node *statement);

/* Does a statement, which is one of the executor's or a utility statement, acknowledge
 * losses, and do nothing else? */
extern bool zklock_statement_acknowledges(QueryDesc *query, Node *utility);

#endif /* ZKLOCK_STATEMENT_H */
