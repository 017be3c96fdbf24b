/*-------------------------------------------------------------------------
 *
 * nodes.c
 *	  Shows nodes of the ensemble in results.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "utils/builtins.h"

#include "json.h"
#include "names.h"
#include "nodes.h"

/* The value of a key in a node's data; NULL: there is none. */
static char *
field(const ZkNode *node, const char *key)
{
	char *text = palloc((Size) node->datalen + 1);

	return zklock_json_field(node->data, (size_t) node->datalen, key, text) ? text : NULL;
}

void
zklock_row_field(ZkRow *row, const char *column, const ZkNode *node, const char *key)
{
	char *text = field(node, key);

	if (text != NULL)
		zklock_row_text(row, column, zklock_display_bytes(text, (int) strlen(text), false));
}

void
zklock_row_number(ZkRow *row, const char *column, const ZkNode *node, const char *key)
{
	char *text = field(node, key);
	char *end;
	long number;

	if (text == NULL)
		return;
	errno = 0;
	number = strtol(text, &end, 10);
	if (errno == 0 && *end == '\0' && number >= 0 && number <= PG_INT32_MAX)
		zklock_row_int(row, column, (int32) number);
}

void
zklock_row_session(ZkRow *row, const char *column, int64 session)
{
	if (session != 0)
		zklock_row_text(row, column, psprintf("0x%llx", (unsigned long long) session));
}

void
zklock_row_node(ZkRow *row, const ZkNode *node)
{
	char *server = palloc((Size) node->datalen + 1);

	if (zklock_json_field(node->data, (size_t) node->datalen, "server", server))
		zklock_row_text(row, "server",
						zklock_display_bytes(server, (int) strlen(server), false));
	zklock_row_session(row, "session_id", node->ephemeral_owner);
	zklock_row_text(row, "node",
					zklock_display_bytes(node->name, (int) strlen(node->name),
										 node->name_cut));
}

Datum
zklock_node_data_datum(const ZkNode *node)
{
	return CStringGetTextDatum(
		zklock_display_bytes(node->data, node->datalen, node->data_cut));
}
