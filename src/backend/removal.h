/*-------------------------------------------------------------------------
 *
 * removal.h
 *	  Resigns elections when the extension, or a database that has it, is dropped.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REMOVAL_H
#define ZKLOCK_REMOVAL_H

/*
 * Chain the hook of object access.  _PG_init calls this when the library is preloaded.
 */
extern void zklock_removal_install(void);

#endif /* ZKLOCK_REMOVAL_H */
