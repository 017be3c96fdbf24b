/*-------------------------------------------------------------------------
 *
 * nodes.h
 *	  Nodes of the ensemble in results.
 *
 * Whoever may write them wrote what they say: each column is NULL if that makes no sense.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NODES_H
#define ZKLOCK_NODES_H

#include "query.h"
#include "row.h"

/* What the data say behind a key, as text; a number that is not negative, as an integer. */
extern void zklock_row_field(ZkRow *row, const char *column, const ZkNode *node,
							 const char *key);
extern void zklock_row_number(ZkRow *row, const char *column, const ZkNode *node,
							  const char *key);

/* The columns of a contender or a party: "server", which its data name, "session_id", as
 * zk_session has it, and "node", its own name. */
extern void zklock_row_node(ZkRow *row, const ZkNode *node);

/* A ZooKeeper session's name. */
extern void zklock_row_session(ZkRow *row, const char *column, int64 session);

/* A node's data, as text. */
extern Datum zklock_node_data_datum(const ZkNode *node);

#endif /* ZKLOCK_NODES_H */
