/*-------------------------------------------------------------------------
 *
 * background.h
 *	  Sets up processes of the extension that have a database, and no user.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BACKGROUND_H
#define ZKLOCK_BACKGROUND_H

/* Set the settings on which such a process depends, before it connects.  This overrides
 * the configuration file, the database and its superuser. */
extern void zklock_background_begin(void);

#endif /* ZKLOCK_BACKGROUND_H */
