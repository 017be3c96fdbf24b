/*-------------------------------------------------------------------------
 *
 * record.c
 *	  Reads and writes the records that servers exchange in znodes: JSON objects in
 *	  UTF-8.
 *
 *-------------------------------------------------------------------------
 */
#include "record.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The longest of our words: room for a text that is neither a word nor a number. */
#define WORD_MAX 32

#define NO_TIME	 INT64_MIN

/* ------------------------------------------------------------------------
 * To write
 * ------------------------------------------------------------------------
 */

static int64_t
get_number(const char *value, size_t size)
{
	int number;
	int64_t number64;

	assert(size == sizeof(number) || size == sizeof(number64));
	if (size == sizeof(number))
	{
		memcpy(&number, value, sizeof(number));
		return number;
	}
	memcpy(&number64, value, sizeof(number64));
	return number64;
}

static char *
write_list(const ZkField *field, const char *record, char *out)
{
	int n = (int) get_number(record + field->count, sizeof(int));
	const char *value = record + field->offset;

	assert(n >= 0 && n <= field->room);
	*out++ = '[';
	for (int i = 0; i < n; i++, value += field->size)
	{
		if (i > 0)
			out += sprintf(out, ", ");
		if (field->shape != NULL)
			out = zklock_record_write(field->shape, value, out);
		else
			out += sprintf(out, "%" PRId64, get_number(value, field->size));
	}
	*out++ = ']';
	return out;
}

static char *
write_value(const ZkField *field, const char *record, char *out)
{
	const char *value = record + field->offset;
	char encoded[ZKLOCK_ENCODED_MAX + 1];
	uint64_t number;
	bool flag;

	switch (field->type)
	{
		case ZKLOCK_FIELD_TIME:
		case ZKLOCK_FIELD_INT:
			if (field->type == ZKLOCK_FIELD_TIME &&
				get_number(value, field->size) == NO_TIME)
				return out + sprintf(out, "null");
			return out + sprintf(out, "%" PRId64, get_number(value, field->size));
		case ZKLOCK_FIELD_UINT64:
			memcpy(&number, value, sizeof(number));
			return out + sprintf(out, "%" PRIu64, number);
		case ZKLOCK_FIELD_UINT64_TEXT:
			memcpy(&number, value, sizeof(number));
			return out + sprintf(out, "\"%" PRIu64 "\"", number);
		case ZKLOCK_FIELD_BOOL:
			memcpy(&flag, value, sizeof(flag));
			return out + sprintf(out, flag ? "true" : "false");
		case ZKLOCK_FIELD_TEXT:
			return zklock_json_write(out, value);
		case ZKLOCK_FIELD_NAME:
			zklock_encode_name(value, encoded);
			return zklock_json_write(out, encoded);
		case ZKLOCK_FIELD_WORD:
			return zklock_json_write(out, field->words[get_number(value, field->size)]);
		case ZKLOCK_FIELD_KIND:
			return zklock_json_write(out,
									 zklock_kinds[get_number(value, field->size)].name);
		case ZKLOCK_FIELD_LIST:
			return write_list(field, record, out);
	}
	return out;
}

/* Does the field have its value in a blank record? */
static bool
is_blank(const ZkShape *shape, const ZkField *field, const char *record)
{
	static const char zeros[8];
	const char *blank = shape->blank;
	const char *value = record + field->offset;

	if (field->type == ZKLOCK_FIELD_LIST)
		return get_number(record + field->count, sizeof(int)) == 0;
	if (field->type == ZKLOCK_FIELD_TEXT || field->type == ZKLOCK_FIELD_NAME)
		return value[0] == '\0';
	return memcmp(value, blank != NULL ? blank + field->offset : zeros, field->size) == 0;
}

char *
zklock_record_write(const ZkShape *shape, const void *record, char *out)
{
	bool first = shape->version == 0;

	*out++ = '{';
	if (!first)
		out += sprintf(out, "\"version\": %d", shape->version);
	for (const ZkField *field = shape->field; field < shape->field + shape->nfields; field++)
	{
		if (!shape->whole && !field->needed && is_blank(shape, field, record))
			continue;
		out += sprintf(out, "%s\"%s\": ", first ? "" : ", ", field->name);
		out = write_value(field, record, out);
		first = false;
	}
	*out++ = '}';
	*out = '\0';
	return out;
}

/* ------------------------------------------------------------------------
 * To read: what is next, or false
 * ------------------------------------------------------------------------
 */

static bool
set_number(const ZkField *field, char *value, int64_t number)
{
	int small = (int) number;

	if (field->min < field->max && (number < field->min || number > field->max))
		return false;
	if (field->size == sizeof(small) && (number < INT32_MIN || number > INT32_MAX))
		return false;
	if (field->size == sizeof(small))
		memcpy(value, &small, sizeof(small));
	else
		memcpy(value, &number, sizeof(number));
	return true;
}

/* Reads a text that is a number and nothing else. */
static bool
take_text_uint64(ZkJson *in, uint64_t *number)
{
	char digits[WORD_MAX];
	ZkJson inner = {.p = digits};

	if (!zklock_json_text(in, digits, sizeof(digits)))
		return false;
	inner.end = digits + strlen(digits);
	return zklock_json_uint64(&inner, number) && inner.p == inner.end;
}

/* Reads a word, or the name of a kind, as its number. */
static bool
take_word(ZkJson *in, const ZkField *field, char *value)
{
	char word[WORD_MAX];
	int which = 0;

	if (!zklock_json_text(in, word, sizeof(word)))
		return false;
	if (field->type == ZKLOCK_FIELD_KIND)
		which = zklock_kind_find(word, strlen(word));
	else
	{
		while (which < field->nwords && strcmp(word, field->words[which]) != 0)
			which++;
		which = which < field->nwords ? which : -1;
	}
	if (which < 0)
		return false;
	memcpy(value, &which, sizeof(which));
	return true;
}

static bool take_record(ZkJson *in, const ZkShape *shape, void *record);

/* A list with more entries than we would write is not believed. */
static bool
take_list(ZkJson *in, const ZkField *field, char *record)
{
	int n = 0;
	bool ok = zklock_json_take(in, '[');
	bool more = ok && !zklock_json_take(in, ']');

	for (; more && ok; more = ok && zklock_json_take(in, ','))
	{
		char *value = record + field->offset + (size_t) n * field->size;
		int64_t number;

		if (n++ == field->room)
			return false;
		if (field->shape != NULL)
			ok = take_record(in, field->shape, value);
		else
			ok = zklock_json_int64(in, &number) && set_number(field, value, number);
	}
	memcpy(record + field->count, &n, sizeof(n));
	return ok && (n == 0 || zklock_json_take(in, ']'));
}

static bool
take_value(ZkJson *in, const ZkField *field, char *record)
{
	char *value = record + field->offset;
	char encoded[ZKLOCK_ENCODED_MAX + 2];
	int64_t number = NO_TIME;
	uint64_t number64;
	bool flag;

	switch (field->type)
	{
		case ZKLOCK_FIELD_TIME:
		case ZKLOCK_FIELD_INT:
			if (field->type == ZKLOCK_FIELD_TIME && zklock_json_word(in, "null"))
			{
				memcpy(value, &number, sizeof(number));
				return true;
			}
			return zklock_json_int64(in, &number) && set_number(field, value, number);
		case ZKLOCK_FIELD_UINT64:
		case ZKLOCK_FIELD_UINT64_TEXT:
			if (!(field->type == ZKLOCK_FIELD_UINT64 ? zklock_json_uint64(in, &number64)
													 : take_text_uint64(in, &number64)))
				return false;
			memcpy(value, &number64, sizeof(number64));
			return true;
		case ZKLOCK_FIELD_BOOL:
			if (!zklock_json_bool(in, &flag))
				return false;
			memcpy(value, &flag, sizeof(flag));
			return true;
		case ZKLOCK_FIELD_TEXT:
			return zklock_json_text(in, value, field->size);
		case ZKLOCK_FIELD_NAME:
			return zklock_json_text(in, encoded, sizeof(encoded)) &&
				zklock_decode_name(encoded, value);
		case ZKLOCK_FIELD_WORD:
		case ZKLOCK_FIELD_KIND:
			return take_word(in, field, value);
		case ZKLOCK_FIELD_LIST:
			return take_list(in, field, record);
	}
	return false;
}

static void
make_blank(const ZkShape *shape, void *record)
{
	if (shape->blank != NULL)
		memcpy(record, shape->blank, shape->size);
	else
		memset(record, 0, shape->size);
}

/* A text's version comes first, because only another reader may understand the rest. */
static bool
take_version(ZkJson *in, int64_t *version)
{
	char name[WORD_MAX];

	return zklock_json_text(in, name, sizeof(name)) && strcmp(name, "version") == 0 &&
		zklock_json_take(in, ':') && zklock_json_int64(in, version);
}

int64_t
zklock_record_version(const char *text, size_t len)
{
	ZkJson in = {.p = text, .end = text + len};
	int64_t version;

	return zklock_json_take(&in, '{') && take_version(&in, &version) ? version : 0;
}

static const ZkField *
find_field(const ZkShape *shape, const char *name)
{
	for (const ZkField *field = shape->field; field < shape->field + shape->nfields; field++)
		if (strcmp(name, field->name) == 0)
			return field;
	return NULL;
}

static bool
take_record(ZkJson *in, const ZkShape *shape, void *record)
{
	uint64_t seen = 0;
	int64_t version;
	bool more;

	make_blank(shape, record);
	if (!zklock_json_take(in, '{'))
		return false;
	if (shape->version > 0 &&
		!(take_version(in, &version) && version >= 1 && version <= shape->version))
		return false;
	more = shape->version > 0 ? zklock_json_take(in, ',') : !zklock_json_take(in, '}');
	if (shape->version > 0 && !more && !zklock_json_take(in, '}'))
		return false;
	while (more)
	{
		char name[WORD_MAX];
		const ZkField *field;

		if (!zklock_json_text(in, name, sizeof(name)) || !zklock_json_take(in, ':'))
			return false;
		field = find_field(shape, name);
		if (!(field != NULL ? take_value(in, field, record) : zklock_json_skip(in)))
			return false;
		if (field != NULL)
			seen |= UINT64_C(1) << (field - shape->field);
		more = zklock_json_take(in, ',');
		if (!more && !zklock_json_take(in, '}'))
			return false;
	}
	for (int i = 0; i < shape->nfields; i++)
		if (shape->field[i].needed && (seen & UINT64_C(1) << i) == 0)
			return false;
	return true;
}

ZkRecordRead
zklock_record_read(const ZkShape *shape, const char *text, size_t len, void *record)
{
	ZkJson in = {.p = text, .end = text + len};
	bool good = zklock_is_utf8(text, len) && take_record(&in, shape, record);

	zklock_json_space(&in);
	if (good && in.p == in.end)
		return ZKLOCK_RECORD_GOOD;
	make_blank(shape, record);
	/* nothing but the version of a newer text is known: it may have been cut off */
	return zklock_record_version(text, len) > shape->version ? ZKLOCK_RECORD_NEWER
															 : ZKLOCK_RECORD_DAMAGED;
}

ZkRecordRead
zklock_record_line(const ZkShape *shape, const char **text, const char *end, void *record)
{
	const char *line = *text;
	const char *feed = line < end ? memchr(line, '\n', (size_t) (end - line)) : NULL;

	*text = feed != NULL ? feed + 1 : NULL;
	if (feed == NULL)
	{
		make_blank(shape, record);
		return ZKLOCK_RECORD_DAMAGED;
	}
	return zklock_record_read(shape, line, (size_t) (feed - line), record);
}
