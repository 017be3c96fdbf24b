/*-------------------------------------------------------------------------
 *
 * callbacks.h
 *	  Where PostgreSQL calls us: at the ends of transactions, of the backend, and around
 *	  statements.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CALLBACKS_H
#define ZKLOCK_CALLBACKS_H

/* From _PG_init, when preloaded: chain the executor, utility and log hooks. */
extern void zklock_callbacks_install(void);

/*
 * A hold is about to be taken: register our callbacks that end it, so that they are
 * called before the callbacks of modules that were loaded later.  May throw.
 */
extern void zklock_callbacks_begin(void);

#endif /* ZKLOCK_CALLBACKS_H */
