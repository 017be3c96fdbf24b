/*-------------------------------------------------------------------------
 *
 * background.h
 *	  Processes of the extension that have a database, and no user.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BACKGROUND_H
#define ZKLOCK_BACKGROUND_H

/*
 * For such a process, before it connects: set what it depends on, whatever the
 * configuration file, the database and its superuser have set.
 */
extern void zklock_background_begin(void);

#endif /* ZKLOCK_BACKGROUND_H */
