/*-------------------------------------------------------------------------
 *
 * deadlock_text.c
 *	  What a server says of its waits: the text of its znode under <root>/waits.
 *
 * Lines of fields with tabs between them.  Texts are percent-encoded, so that they have
 * neither tabs nor line feeds.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char magic[] = "zklock waits 1";

/* ------------------------------------------------------------------------
 * To write
 * ------------------------------------------------------------------------
 */

static char *
write_text(char *out, const char *text)
{
	return out + zklock_escape(text, strlen(text), false, out);
}

char *
zklock_deadlock_waits_begin(char *buf, const char *server)
{
	buf += sprintf(buf, "%s\t", magic);
	buf = write_text(buf, server);
	*buf++ = '\n';
	*buf = '\0';
	return buf;
}

char *
zklock_deadlock_waits_add(char *buf, const ZkWaitEdge *edge)
{
	buf += sprintf(buf,
				   "%" PRIu64 "\t%" PRId64 "\t%016" PRIx64 "\t%016" PRIx64
				   "\t%s\t%s\t%d\t%d\t",
				   edge->number, edge->stamp, edge->grant, edge->contender,
				   edge->joins ? "joins" : "waits", zklock_kinds[edge->kind].name,
				   edge->holder, edge->waiter);
	buf = write_text(buf, edge->name);
	*buf++ = '\t';
	buf = write_text(buf, edge->via);
	*buf++ = '\n';
	*buf = '\0';
	return buf;
}

/* ------------------------------------------------------------------------
 * To read
 * ------------------------------------------------------------------------
 */

typedef struct Field
{
	const char *p;
	size_t len;
} Field;

/* The next field of a line. */
static bool
take_field(Field *line, Field *field)
{
	const char *tab;

	if (line->p == NULL)
		return false;
	tab = memchr(line->p, '\t', line->len);
	field->p = line->p;
	field->len = tab != NULL ? (size_t) (tab - line->p) : line->len;
	line->len -= field->len + (tab != NULL ? 1 : 0);
	line->p = tab != NULL ? tab + 1 : NULL;
	return true;
}

static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* A number to this base of at most "max". */
static bool
take_number(Field *line, unsigned base, uint64_t max, uint64_t *value)
{
	Field field;

	if (!take_field(line, &field) || field.len == 0)
		return false;
	*value = 0;
	for (size_t i = 0; i < field.len; i++)
	{
		int digit = hex_value(field.p[i]);

		if (digit < 0 || (unsigned) digit >= base ||
			*value > (max - (unsigned) digit) / base)
			return false;
		*value = *value * base + (unsigned) digit;
	}
	return true;
}

/* One of two words or more; which? */
static bool
take_word(Field *line, const char *const *words, int n, int *which)
{
	Field field;

	if (!take_field(line, &field))
		return false;
	for (*which = 0; *which < n; ++*which)
	{
		if (strlen(words[*which]) == field.len &&
			memcmp(words[*which], field.p, field.len) == 0)
			return true;
	}
	return false;
}

/* A text for which "buf" has room for "size" bytes with its NUL.  Control characters are
 * encoded, or it is none of ours. */
static bool
take_text(Field *line, char *buf, size_t size)
{
	Field field;
	size_t len = 0;

	if (!take_field(line, &field))
		return false;
	for (size_t i = 0; i < field.len; i++)
	{
		char c = field.p[i];

		if ((unsigned char) c < 0x20 || c == 0x7f)
			return false;
		if (c == '%')
		{
			int high = i + 2 < field.len ? hex_value(field.p[i + 1]) : -1;
			int low = i + 2 < field.len ? hex_value(field.p[i + 2]) : -1;

			if (high < 0 || low < 0)
				return false;
			c = (char) (high << 4 | low);
			i += 2;
		}
		if (c == '\0' || len + 1 >= size)
			return false;
		buf[len++] = c;
	}
	buf[len] = '\0';
	return true;
}

/* The next line, which ends in a line feed: what was cut off is none. */
static bool
take_line(ZkWaitsReader *reader, Field *line)
{
	const char *end = NULL;

	if (reader->p < reader->end)
		end = memchr(reader->p, '\n', (size_t) (reader->end - reader->p));
	if (end == NULL)
		return false;
	line->p = reader->p;
	line->len = (size_t) (end - reader->p);
	reader->p = end + 1;
	return true;
}

bool
zklock_deadlock_waits_open(ZkWaitsReader *reader, const char *text, size_t len)
{
	static const char *const first[] = {magic};
	Field line;
	int which;

	reader->p = text;
	reader->end = text + len;
	return take_line(reader, &line) && take_word(&line, first, 1, &which) &&
		take_text(&line, reader->server, sizeof(reader->server)) &&
		zklock_is_utf8(reader->server, strlen(reader->server));
}

static bool
take_edge(Field *line, ZkWaitEdge *edge)
{
	static const char *const forms[] = {"waits", "joins"};
	uint64_t stamp;
	uint64_t holder;
	uint64_t waiter;
	Field word;
	int form;
	int kind;

	if (!take_number(line, 10, UINT64_MAX, &edge->number) ||
		!take_number(line, 10, INT64_MAX, &stamp) ||
		!take_number(line, 16, UINT64_MAX, &edge->grant) ||
		!take_number(line, 16, UINT64_MAX, &edge->contender) ||
		!take_word(line, forms, 2, &form) || !take_field(line, &word) ||
		(kind = zklock_kind_find(word.p, word.len)) < 0 ||
		!take_number(line, 10, INT32_MAX, &holder) ||
		!take_number(line, 10, INT32_MAX, &waiter) ||
		!take_text(line, edge->name, sizeof(edge->name)) || edge->name[0] == '\0' ||
		!take_text(line, edge->via, sizeof(edge->via)) || line->p != NULL)
		return false;
	edge->stamp = (int64_t) stamp;
	edge->joins = form == 1;
	edge->kind = (ZkLockKind) kind;
	edge->holder = (int) holder;
	edge->waiter = (int) waiter;
	return zklock_is_utf8(edge->via, strlen(edge->via));
}

bool
zklock_deadlock_waits_next(ZkWaitsReader *reader, ZkWaitEdge *edge)
{
	Field line;

	while (take_line(reader, &line))
	{
		if (take_edge(&line, edge))
			return true;
	}
	return false;
}
