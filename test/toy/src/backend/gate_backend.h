/*-------------------------------------------------------------------------
 *
 * gate_backend.h
 *	  Gates: closing one, and asking whether it is open.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GATE_BACKEND_H
#define ZKLOCK_GATE_BACKEND_H

/* In session scope, waiting for others who have closed it.  Returns the token. */
extern int64 zklock_gate_close(const char *name);

/* Has nobody closed it, on any server?  Waits for the worker, and can be canceled. */
extern bool zklock_gate_look(const char *name);

#endif /* ZKLOCK_GATE_BACKEND_H */
