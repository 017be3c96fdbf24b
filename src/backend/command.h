/*-------------------------------------------------------------------------
 *
 * command.h
 *	  Procedures that run commands, or wait without a snapshot.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_COMMAND_H
#define ZKLOCK_COMMAND_H

#include "fmgr.h"

/*
 * For a procedure that is to wait without a snapshot: commit the transaction that CALL
 * began, in which the arguments were evaluated, and begin one of its own.  SPI is
 * connected then.  Raises 25001 inside a transaction block, with this hint.
 */
extern void zklock_leave_transaction(FunctionCallInfo fcinfo, const char *procedure,
									 const char *hint);

/*
 * Run a command with the rights of the caller in the current transaction, which it cannot
 * end, and forget what it returns.  SPI is connected.  "procedure": for messages.
 */
extern void zklock_command_run(const char *procedure, const char *command);

#endif /* ZKLOCK_COMMAND_H */
