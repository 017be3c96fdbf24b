/*-------------------------------------------------------------------------
 *
 * statement.c
 *	  Decides which statements are admitted with a loss.
 *
 * These are the beginnings and ends of transactions and savepoints, the parts of
 * DISCARD ALL, SET and SHOW, and statements that acknowledge a loss in session scope (a
 * loss in transaction scope ends with the transaction).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "statement.h"

static const PGFunction *acknowledging = NULL;
static PGFunction looking = NULL;
static const PGFunction *asking = NULL;

void
zklock_statement_functions(const PGFunction *those, PGFunction that,
						   const PGFunction *others)
{
	acknowledging = those;
	looking = that;
	asking = others;
}

static bool
is_one_of(const PGFunction *functions, const FmgrInfo *info)
{
	for (const PGFunction *f = functions; *f != NULL; f++)
	{
		if (info->fn_addr == *f)
			return true;
	}
	return false;
}

/* Does a function acknowledge losses?  A function is known by its address. */
static bool
acknowledges(Oid function, void *context)
{
	FmgrInfo info;

	if (function == F_PG_ADVISORY_UNLOCK_ALL)
		return true;
	if (function < FirstNormalObjectId)
		return false;
	fmgr_info(function, &info);
	return is_one_of(acknowledging, &info);
}

static bool
expression_acknowledges(Node *node, void *context)
{
	return node != NULL &&
		(check_functions_in_node(node, acknowledges, context) ||
		 expression_tree_walker(node, expression_acknowledges, context));
}

/*
 * May a function do more than compute?  Such a function would work before the loss is
 * acknowledged, or without an acknowledgement.  "may_ask": functions that ask for runs
 * do not count.
 */
static bool
works(Oid function, void *may_ask)
{
	FmgrInfo info;

	if (acknowledges(function, NULL))
		return false;
	if (function < FirstNormalObjectId)
		return func_volatile(function) == PROVOLATILE_VOLATILE;
	fmgr_info(function, &info);
	return info.fn_addr != looking && !(*(bool *) may_ask && is_one_of(asking, &info));
}

static bool
expression_works(Node *node, void *may_ask)
{
	return node != NULL &&
		(check_functions_in_node(node, works, may_ask) ||
		 expression_tree_walker(node, expression_works, may_ask));
}

/* Walk the expressions in a plan's node, for the kinds of nodes that are admitted. */
static bool
plan_walker(PlanState *state, bool (*walker)(Node *node, void *context), void *context)
{
	Plan *plan = state->plan;

	return walker((Node *) plan->targetlist, context) ||
		walker((Node *) plan->qual, context) ||
		(IsA(plan, Result) && walker(((Result *) plan)->resconstantqual, context)) ||
		(IsA(plan, FunctionScan) &&
		 walker((Node *) ((FunctionScan *) plan)->functions, context)) ||
		(IsA(plan, ValuesScan) &&
		 walker((Node *) ((ValuesScan *) plan)->values_lists, context));
}

static bool
plan_acknowledges(PlanState *state, void *context)
{
	return plan_walker(state, expression_acknowledges, context) ||
		planstate_tree_walker(state, plan_acknowledges, context);
}

static bool
plan_works(PlanState *state, void *may_ask)
{
	switch (nodeTag(state->plan))
	{
		case T_Result:
		case T_ProjectSet:
		case T_FunctionScan:
		case T_SubqueryScan:
		case T_ValuesScan:
		case T_CteScan:
		case T_Agg:
		case T_Sort:
			return plan_walker(state, expression_works, may_ask) ||
				planstate_tree_walker(state, plan_works, may_ask);
		default:
			return true;
	}
}

static bool
query_works(QueryDesc *query, bool may_ask)
{
	return query->operation != CMD_SELECT || query->plannedstmt->hasModifyingCTE ||
		plan_works(query->planstate, &may_ask);
}

/* Is it a SELECT that calls such a function itself, and does nothing else? */
static bool
query_acknowledges(QueryDesc *query)
{
	return !query_works(query, false) && plan_acknowledges(query->planstate, NULL);
}

/* Are the parameters of EXECUTE constants?  They are not analyzed yet. */
static bool
are_constants(List *parameters)
{
	ListCell *cell;

	foreach (cell, parameters)
	{
		Node *node = lfirst(cell);

		if (IsA(node, TypeCast))
			node = ((TypeCast *) node)->arg;
		if (!IsA(node, A_Const))
			return false;
	}
	return true;
}

/* EXECUTE counts as what it executes, which is checked when it runs. */
static bool
utility_acknowledges(Node *statement)
{
	if (IsA(statement, ExecuteStmt))
		return are_constants(((ExecuteStmt *) statement)->params);
	if (IsA(statement, CallStmt))
	{
		FuncExpr *call = ((CallStmt *) statement)->funcexpr;
		bool may_ask = false;

		return acknowledges(call->funcid, NULL) &&
			!expression_works((Node *) call->args, &may_ask);
	}
	return false;
}

bool
zklock_statement_acknowledges(QueryDesc *query, Node *utility)
{
	return query != NULL ? query_acknowledges(query) : utility_acknowledges(utility);
}

/* A block or a procedure acts only by its own statements. */
bool
zklock_statement_acts(QueryDesc *query, Node *utility)
{
	return query != NULL ? query_works(query, true)
						 : !IsA(utility, DoStmt) && !IsA(utility, CallStmt);
}

bool
zklock_statement_is_exempt(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_TransactionStmt:
			/* but for those that end another transaction than our own */
			return ((TransactionStmt *) statement)->kind != TRANS_STMT_COMMIT_PREPARED &&
				((TransactionStmt *) statement)->kind != TRANS_STMT_ROLLBACK_PREPARED;

		case T_ClosePortalStmt:
		case T_DeallocateStmt:
		case T_DiscardStmt:
		case T_UnlistenStmt:
		case T_VariableSetStmt:
		case T_VariableShowStmt:
			return true;

		default:
			return false;
	}
}
