/*-------------------------------------------------------------------------
 *
 * gate_rules.h
 *	  Gates: when one is open.
 *
 * A gate is a toy: a kind that shows what a new kind needs (../../../t/202_toy_kind.pl).
 * A session closes it, which is to hold it like a lock, and anybody may ask whether it is
 * open.  Its directory is <root>/gates/<encoded name>.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GATE_RULES_H
#define ZKLOCK_GATE_RULES_H

#include "contender.h"

/* By the children of its directory: nobody has closed it, or is about to. */
extern bool zklock_gate_is_open(char *const *children, int n);

#endif /* ZKLOCK_GATE_RULES_H */
