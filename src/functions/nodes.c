/*-------------------------------------------------------------------------
 *
 * nodes.c
 *	  Nodes of the ensemble in results.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "utils/builtins.h"

#include "names.h"
#include "nodes.h"

static Datum
text_datum(const char *text)
{
	return CStringGetTextDatum(zklock_display_bytes(text, (int) strlen(text), false));
}

/* What a node's data say behind a key; NULL: nothing. */
static char *
field(const ZkNode *node, const char *key)
{
	char *text = palloc((Size) node->datalen + 1);

	return zklock_parse_field(node->data, (size_t) node->datalen, key, text) ? text : NULL;
}

void
zklock_put_field(const ZkNode *node, const char *key, Datum *value, bool *null)
{
	char *text = field(node, key);

	*null = text == NULL;
	if (text != NULL)
		*value = text_datum(text);
}

void
zklock_put_number(const ZkNode *node, const char *key, Datum *value, bool *null)
{
	char *text = field(node, key);
	char *end;
	long number;

	*null = text == NULL;
	if (text == NULL)
		return;
	errno = 0;
	number = strtol(text, &end, 10);
	*null = errno != 0 || *end != '\0' || number < 0 || number > PG_INT32_MAX;
	*value = Int32GetDatum((int32) number);
}

void
zklock_put_server(const ZkNode *node, Datum *value, bool *null)
{
	char *text = palloc((Size) node->datalen + 1);

	*null = !zklock_parse_server(node->data, (size_t) node->datalen, text);
	if (!*null)
		*value = text_datum(text);
}

Datum
zklock_session_datum(int64 session)
{
	return CStringGetTextDatum(psprintf("0x%llx", (unsigned long long) session));
}

void
zklock_put_session(const ZkNode *node, Datum *value, bool *null)
{
	*null = node->ephemeral_owner == 0;
	if (!*null)
		*value = zklock_session_datum(node->ephemeral_owner);
}

Datum
zklock_node_name_datum(const ZkNode *node)
{
	return CStringGetTextDatum(
		zklock_display_bytes(node->name, (int) strlen(node->name), node->name_cut));
}

Datum
zklock_node_data_datum(const ZkNode *node)
{
	return CStringGetTextDatum(
		zklock_display_bytes(node->data, node->datalen, node->data_cut));
}
