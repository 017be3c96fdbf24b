/*-------------------------------------------------------------------------
 *
 * removal.h
 *	  The extension, or a database that has it, is dropped.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REMOVAL_H
#define ZKLOCK_REMOVAL_H

/* From _PG_init, when preloaded: chain the hook of object access. */
extern void zklock_removal_install(void);

#endif /* ZKLOCK_REMOVAL_H */
