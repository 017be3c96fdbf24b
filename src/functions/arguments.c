/*-------------------------------------------------------------------------
 *
 * arguments.c
 *	  Checks and converts arguments of SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "common/string.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "arguments.h"
#include "names.h"
#include "room.h"
#include "settings.h"

void
zklock_raise_null(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", what)));
}

/* The number of bytes that our namespace takes of each lock name. */
static size_t
namespace_len(void)
{
	return zklock_namespace[0] != '\0' ? strlen(zklock_namespace) + 1 : 0;
}

/* ASCII needs no conversion, and some encodings have none to UTF-8. */
char *
zklock_to_utf8(text *arg)
{
	char *name = text_to_cstring(arg);

	return pg_is_ascii(name) ? name : pg_server_to_any(name, (int) strlen(name), PG_UTF8);
}

/* The name as it is in the text if it needs no conversion, else NULL. */
static const char *
find_ascii(const text *arg, size_t *len)
{
	const char *bytes = VARDATA_ANY(arg);

	*len = VARSIZE_ANY_EXHDR(arg);
	for (size_t i = 0; i < *len; i++)
	{
		if (IS_HIGHBIT_SET(bytes[i]))
			return NULL;
	}
	return bytes;
}

/* Elections belong to the server and have no namespace. */
void
zklock_get_name(ZkLockKind kind, text *arg, char *buf)
{
	const char *what = zklock_kinds[kind].name;
	size_t len;
	const char *utf8 = find_ascii(arg, &len);
	size_t prefix = zklock_kinds[kind].namespaced ? namespace_len() : 0;
	int max = ZKLOCK_NAME_MAX - (int) prefix;

	if (utf8 == NULL)
	{
		utf8 = zklock_to_utf8(arg);
		len = strlen(utf8);
	}

	if (len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s name must not be empty", what),
				 errdetail("A name has 1 to %d bytes in UTF-8.", ZKLOCK_NAME_MAX)));
	if (len > (size_t) max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s name is too long", what),
				 errdetail("The name has %zu bytes in UTF-8; a name has 1 to %d.", len, max),
				 prefix > 0 ? errhint("The namespace \"%s\" counts, too.", zklock_namespace)
							: 0));
	if (prefix > 0)
	{
		memcpy(buf, zklock_namespace, prefix - 1);
		buf[prefix - 1] = ZKLOCK_NAMESPACE_END;
	}
	memcpy(buf + prefix, utf8, len);
	buf[prefix + len] = '\0';
}

char **
zklock_get_names(ZkLockKind kind, ArrayType *arg, int *n)
{
	Datum *elements;
	bool *nulls;
	char **names;

	if (ARR_NDIM(arg) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s names must be a one-dimensional array",
						zklock_kinds[kind].name)));
	deconstruct_array(arg, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, n);
	names = palloc(sizeof(char *) * (Size) Max(*n, 1));
	for (int i = 0; i < *n; i++)
	{
		char name[ZKLOCK_NAME_MAX + 1];

		if (nulls[i])
			zklock_raise_null(psprintf("%s name", zklock_kinds[kind].name));
		zklock_get_name(kind, DatumGetTextPP(elements[i]), name);
		names[i] = pstrdup(name);
	}
	return names;
}

int
zklock_get_permits(int32 arg)
{
	if (arg < 1 || arg > ZKLOCK_PERMITS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of permits must be between 1 and %d", ZKLOCK_PERMITS_MAX)));
	return arg;
}

#define EXCLUSIVE	"exclusive"
#define SHARED		"shared"
#define TRANSACTION "transaction"
#define SESSION		"session"

const char *const zklock_modes[ZKLOCK_NMODES] =
	{[ZKLOCK_EXCLUSIVE] = EXCLUSIVE, [ZKLOCK_SHARED] = SHARED};
const char *const zklock_scopes[ZKLOCK_NSCOPES] =
	{[ZKLOCK_SCOPE_TRANSACTION] = TRANSACTION, [ZKLOCK_SCOPE_SESSION] = SESSION};

/* For a word that the compiler knows, this is a comparison or two. */
static pg_attribute_always_inline bool
is_word(const text *arg, const char *word)
{
	size_t len = strlen(word);

	return VARSIZE_ANY_EXHDR(arg) == len && memcmp(VARDATA_ANY(arg), word, len) == 0;
}

/* -1: none */
static int
find_mode(const text *arg)
{
	return is_word(arg, EXCLUSIVE) ? ZKLOCK_EXCLUSIVE
		: is_word(arg, SHARED)	   ? ZKLOCK_SHARED
								   : -1;
}

static int
find_scope(const text *arg)
{
	return is_word(arg, TRANSACTION) ? ZKLOCK_SCOPE_TRANSACTION
		: is_word(arg, SESSION)		 ? ZKLOCK_SCOPE_SESSION
									 : -1;
}

ZkLockMode
zklock_get_mode(text *arg, bool takes_scope)
{
	int mode = find_mode(arg);

	if (mode < 0)
	{
		char *word = text_to_cstring(arg);

		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized lock mode \"%s\"", word),
				 takes_scope && find_scope(arg) >= 0
					 ? errhint("This is a scope: write scope => '%s'.", word)
					 : errhint("Allowed modes are \"exclusive\" and \"shared\".")));
	}
	return (ZkLockMode) mode;
}

ZkLockScope
zklock_get_scope(text *arg, bool takes_mode)
{
	int scope = find_scope(arg);

	if (scope < 0)
	{
		char *word = text_to_cstring(arg);

		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized lock scope \"%s\"", word),
				 takes_mode && find_mode(arg) >= 0
					 ? errhint("This is a mode: write mode => '%s'.", word)
					 : errhint("Allowed scopes are \"transaction\" and \"session\".")));
	}
	return (ZkLockScope) scope;
}

int64
zklock_get_interval(const Interval *arg, const char *what)
{
	int64 days;
	int64 usecs;

	if (ZKLOCK_INTERVAL_IS_ENDLESS(arg))
		return ZKLOCK_WAIT_FOREVER;
	/* no interval reaches beyond 64 bits of microseconds in days and months */
	days = (int64) arg->month * DAYS_PER_MONTH + arg->day;
	if (ZKLOCK_INTERVAL_IS_MINUS_ENDLESS(arg) ||
		pg_mul_s64_overflow(days, USECS_PER_DAY, &usecs) ||
		pg_add_s64_overflow(usecs, arg->time, &usecs) || usecs < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be negative or out of range", what),
				 errhint("Use an interval of zero or more, such as '5 s'.")));
	/* a century is for ever, and leaves room for the clock */
	if (usecs > INT64CONST(36525) * USECS_PER_DAY)
		return ZKLOCK_WAIT_FOREVER;
	return (usecs + 999) / 1000;
}

int64
zklock_get_timeout(FunctionCallInfo fcinfo, int i)
{
	if (PG_ARGISNULL(i))
		return ZKLOCK_WAIT_FOREVER;
	return zklock_get_interval(PG_GETARG_INTERVAL_P(i), "timeout");
}

Interval *
zklock_make_interval(int64 us)
{
	Interval *interval = palloc0(sizeof(Interval));

	interval->time = us;
	return interval;
}
