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

/* What the data say behind a key, as text; a number that is not negative, as an integer. */
extern void zklock_put_field(const ZkNode *node, const char *key, Datum *value, bool *null);
extern void zklock_put_number(const ZkNode *node, const char *key, Datum *value,
							  bool *null);

/* The server that a contender's or a party's data name. */
extern void zklock_put_server(const ZkNode *node, Datum *value, bool *null);

/* Whose the node is, as zk_session names it. */
extern void zklock_put_session(const ZkNode *node, Datum *value, bool *null);

/* A session's name. */
extern Datum zklock_session_datum(int64 session);

/* Its own name, and its data. */
extern Datum zklock_node_name_datum(const ZkNode *node);
extern Datum zklock_node_data_datum(const ZkNode *node);

#endif /* ZKLOCK_NODES_H */
