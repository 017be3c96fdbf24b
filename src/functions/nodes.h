/*-------------------------------------------------------------------------
 *
 * nodes.h
 *	  Shows nodes of the ensemble in results.
 *
 * Any client with the right to write a node may have written its data.  So a column is
 * NULL if its value makes no sense.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NODES_H
#define ZKLOCK_NODES_H

#include "query.h"
#include "row.h"

/* Set a column to the value of a key in the data: as text, or as an integer that is not
 * negative. */
extern void zklock_row_field(ZkRow *row, const char *column, const ZkNode *node,
							 const char *key);
extern void zklock_row_number(ZkRow *row, const char *column, const ZkNode *node,
							  const char *key);

/* Set the columns of a contender or a party: "server", from its data, "session_id", in
 * the form of zk_session, and "node", its own name. */
extern void zklock_row_node(ZkRow *row, const ZkNode *node);

/* Set a column to a ZooKeeper session's name. */
extern void zklock_row_session(ZkRow *row, const char *column, int64 session);

/* A node's data as text. */
extern Datum zklock_node_data_datum(const ZkNode *node);

#endif /* ZKLOCK_NODES_H */
