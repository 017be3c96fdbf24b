/*-------------------------------------------------------------------------
 *
 * command.c
 *	  Runs commands of procedures, and lets procedures wait without a snapshot.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "nodes/parsenodes.h"
#include "utils/snapmgr.h"

#include "command.h"

void
zklock_leave_transaction(FunctionCallInfo fcinfo, const char *procedure, const char *hint)
{
	CallContext *call = (CallContext *) fcinfo->context;

	if (call == NULL || !IsA(call, CallContext) || call->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block", procedure),
				 errhint("%s", hint)));
	/* a pipeline's earlier statements must not be committed by ours */
	PreventInTransactionBlock(true, procedure);
	/* what a DO block did before can be refused, as in any commit (loss.c) */
	MyXactFlags &= ~XACT_FLAGS_NEEDIMMEDIATECOMMIT;

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	SPI_commit();
	InvalidateCatalogSnapshot();
}

void
zklock_command_run(const char *procedure, const char *command)
{
	SPIExecuteOptions options = {.dest = None_Receiver};
	int rc = SPI_execute_extended(command, &options);

	if (rc == SPI_ERROR_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("the command of %s must not end the transaction", procedure)));
	if (rc == SPI_ERROR_COPY)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the command of %s cannot COPY to or from the client", procedure)));
	if (rc < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(rc));
}
