/*-------------------------------------------------------------------------
 *
 * gate_rules.c
 *	  Gates: when one is open.
 *
 *-------------------------------------------------------------------------
 */
#include "gate_rules.h"

bool
zklock_gate_is_open(char *const *children, int n)
{
	for (int i = 0; i < n; i++)
	{
		ZkLockChild child;

		if (zklock_parse_child(children[i], &child))
			return false;
	}
	return true;
}
