/*-------------------------------------------------------------------------
 *
 * display.c
 *	  Names, and what others wrote into the ensemble, as text for people.
 *
 * In ZooKeeper text is UTF-8, as far as those who write there keep to it.  Whatever
 * comes from there goes through here before it gets into a row, a message or a
 * notification, since text that is not valid in the database's encoding is refused, or
 * worse, wherever it turns up.  Nothing here has a size that is known beforehand.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "common/string.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "contender.h"
#include "display.h"

/* From UTF-8 to the database's encoding; NULL if that has not all the characters. */
static char *
convert(const char *utf8, int len)
{
	int encoding = GetDatabaseEncoding();
	Oid proc = FindDefaultConversionProc(PG_UTF8, encoding);
	int size = len * MAX_CONVERSION_GROWTH + 1;
	unsigned char *buf;

	if (!OidIsValid(proc))
		return NULL;
	buf = palloc((Size) size);
	if (pg_do_encoding_conversion_buf(proc, PG_UTF8, encoding,
									  (unsigned char *) unconstify(char *, utf8), len,
									  buf, size, true) == len)
		return (char *) buf;
	pfree(buf);
	return NULL;
}

static char *
display(const char *bytes, int len, bool may_convert)
{
	int encoding = GetDatabaseEncoding();
	bool utf8 = encoding == PG_UTF8 || encoding == PG_SQL_ASCII;
	char *text = NULL;

	if (zklock_is_utf8(bytes, (size_t) len))
	{
		text = pnstrdup(bytes, (Size) len);
		if (utf8 || pg_is_ascii(text))
			return text;
		text = may_convert ? convert(text, len) : NULL;
	}
	if (text == NULL)
	{
		text = palloc(3 * (Size) len + 1);
		(void) zklock_escape(bytes, (size_t) len, !utf8, text);
	}
	return text;
}

char *
zklock_display_bytes(const char *bytes, int len, bool cut)
{
	char *text;

	if (cut)
		len = (int) zklock_clip_utf8(bytes, (size_t) len);
	text = display(bytes, len, IsTransactionState());
	return cut ? psprintf("%s...", text) : text;
}

char *
zklock_display_text(const char *text)
{
	return zklock_display_bytes(text, (int) zklock_clip_utf8(text, strlen(text)), false);
}

char *
zklock_display_name(const char *name)
{
	name = zklock_local_name(name);
	return zklock_display_bytes(name, (int) strlen(name), false);
}

char *
zklock_plain_name(const char *name)
{
	name = zklock_local_name(name);
	return display(name, (int) strlen(name), false);
}
