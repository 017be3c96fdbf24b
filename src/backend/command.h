/*-------------------------------------------------------------------------
 *
 * command.h
 *	  Runs commands of procedures, and lets procedures wait without a snapshot.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_COMMAND_H
#define ZKLOCK_COMMAND_H

#include "fmgr.h"

/*
 * For a procedure that waits without a snapshot: commit the transaction that CALL has
 * begun, in which the arguments were evaluated, and begin another one.  SPI is
 * connected then.  Raises 25001 inside a transaction block, with this hint.
 */
extern void zklock_leave_transaction(FunctionCallInfo fcinfo, const char *procedure,
									 const char *hint);

/*
 * Run a command with the rights of the caller in the current transaction, which the
 * command cannot end, and ignore its result.  SPI is connected.  "procedure": its name
 * for messages.
 */
extern void zklock_command_run(const char *procedure, const char *command);

#endif /* ZKLOCK_COMMAND_H */
