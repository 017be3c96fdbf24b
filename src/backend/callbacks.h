/*-------------------------------------------------------------------------
 *
 * callbacks.h
 *	  The places where PostgreSQL calls zklock: at the ends of transactions and of the
 *	  backend, and around statements.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CALLBACKS_H
#define ZKLOCK_CALLBACKS_H

/* Chain the executor, utility and log hooks.  _PG_init calls this when the library is
 * preloaded. */
extern void zklock_callbacks_install(void);

/* Register the callbacks that end a hold, before the hold is taken, so that they are
 * called before the callbacks of modules that were loaded later.  May throw. */
extern void zklock_callbacks_begin(void);

#endif /* ZKLOCK_CALLBACKS_H */
