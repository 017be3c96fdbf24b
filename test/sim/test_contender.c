/*-------------------------------------------------------------------------
 *
 * test_contender.c
 *	  Unit test of src/protocol/contender.c, output in TAP.
 *
 * Each group counts its own failures, prints the first few as diagnostics
 * and ends in one "ok" or "not ok" line.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contender.h"
#include "json.h"

#define lengthof(array) (sizeof(array) / sizeof((array)[0]))

#define UUID_TEXT		"01234567-89ab-cdef-fedc-ba9876543210"
#define UUID_HI			UINT64_C(0x0123456789abcdef)
#define UUID_LO			UINT64_C(0xfedcba9876543210)

static int groups_done;
static int groups_failed;
static int failures; /* of the present group */
static int checks;

#define CHECK(condition, ...)                                                            \
	do                                                                                   \
	{                                                                                    \
		checks++;                                                                        \
		if (!(condition) && failures++ < 10)                                             \
		{                                                                                \
			printf("# line %d: %s: ", __LINE__, #condition);                             \
			printf(__VA_ARGS__);                                                         \
			printf("\n");                                                                \
		}                                                                                \
	} while (0)

static void
end_group(const char *name)
{
	printf("%s %d - %s (%d checks)\n", failures ? "not ok" : "ok", ++groups_done, name,
		   checks);
	if (failures)
		groups_failed++;
	failures = 0;
	checks = 0;
}

static void
check_encoding(const char *name, const char *encoded)
{
	char buf[ZKLOCK_ENCODED_MAX + 1];
	char back[ZKLOCK_NAME_MAX + 1];
	size_t len = zklock_encode_name(name, buf);

	CHECK(strcmp(buf, encoded) == 0, "got \"%s\", expected \"%s\"", buf, encoded);
	CHECK(len == strlen(buf), "%zu", len);
	CHECK(zklock_decode_name(buf, back), "\"%s\"", buf);
	CHECK(strcmp(back, name) == 0, "\"%s\"", buf);
}

static void
test_known_names(void)
{
	static const char *const pairs[][2] = {
		{"nightly", "nightly"},
		{"a b", "a b"},
		{"a/b", "a%2Fb"},
		{"100%", "100%25"},
		{"%2F", "%252F"},
		{".", "%2E"},
		{"..", "%2E%2E"},
		{"...", "..."},
		{".a", ".a"},
		{"a.", "a."},
		{"\x01\x1f\x7f", "%01%1F%7F"},
		{" ~", " ~"},
		{"\xc2\x80\xc2\x9f", "%C2%80%C2%9F"}, /* U+0080, U+009F */
		{"\xc2\xa0", "\xc2\xa0"},			  /* U+00A0 */
		{"\xed\x9f\xbf", "\xed\x9f\xbf"},	  /* U+D7FF */
		{"\xed\xa0\x80", "%ED%A0%80"},		  /* U+D800 */
		{"\xef\xa3\xbf", "%EF%A3%BF"},		  /* U+F8FF */
		{"\xef\xa4\x80", "\xef\xa4\x80"},	  /* U+F900 */
		{"\xef\xbf\xaf", "\xef\xbf\xaf"},	  /* U+FFEF */
		{"\xef\xbf\xb0", "%EF%BF%B0"},		  /* U+FFF0 */
		{"\xef\xbf\xbf", "%EF%BF%BF"},		  /* U+FFFF */
		{"\xf0\x90\x80\x80", "%F0%90%80%80"}, /* U+10000 */
		{"\xf4\x8f\xbf\xbf", "%F4%8F%BF%BF"}, /* U+10FFFF */
		{"\xf4\x90\x80\x80", "%F4%90%80%80"}, /* beyond */
		{"\xc3", "%C3"},					  /* cut short */
		{"\xc3"
		 "a",
		 "%C3a"},
		{"\xe2\x82", "%E2%82"},
		{"\xa9", "%A9"},		/* stray continuation */
		{"\xc0\xaf", "%C0%AF"}, /* overlong '/' */
		{"\xe0\x80\xaf", "%E0%80%AF"},
		{"\xff\xfe", "%FF%FE"},
		{"Gr\xc3\xbc\xc3\x9f"
		 "e",
		 "Gr\xc3\xbc\xc3\x9f"
		 "e"},
	};

	for (size_t i = 0; i < lengthof(pairs); i++)
		check_encoding(pairs[i][0], pairs[i][1]);
	end_group("known names encode and decode");
}

static bool
escape_expected(uint32_t c)
{
	return c == '/' || c == '%' || c <= 0x1f || (c >= 0x7f && c <= 0x9f) ||
		(c >= 0xd800 && c <= 0xf8ff) || (c >= 0xfff0 && c <= 0xffff) || c >= 0x10000;
}

static void
test_all_code_points(void)
{
	for (uint32_t c = 1; c <= 0x10ffff; c++)
	{
		unsigned char name[8];
		char buf[ZKLOCK_ENCODED_MAX + 1];
		char back[ZKLOCK_NAME_MAX + 1];
		int n = 0;
		size_t len;

		name[n++] = 'x'; /* so that "." is not the whole name */
		if (c < 0x80)
			name[n++] = (unsigned char) c;
		else if (c < 0x800)
		{
			name[n++] = (unsigned char) (0xc0 | c >> 6);
			name[n++] = (unsigned char) (0x80 | (c & 0x3f));
		}
		else if (c < 0x10000)
		{
			name[n++] = (unsigned char) (0xe0 | c >> 12);
			name[n++] = (unsigned char) (0x80 | (c >> 6 & 0x3f));
			name[n++] = (unsigned char) (0x80 | (c & 0x3f));
		}
		else
		{
			name[n++] = (unsigned char) (0xf0 | c >> 18);
			name[n++] = (unsigned char) (0x80 | (c >> 12 & 0x3f));
			name[n++] = (unsigned char) (0x80 | (c >> 6 & 0x3f));
			name[n++] = (unsigned char) (0x80 | (c & 0x3f));
		}
		name[n] = '\0';

		len = zklock_encode_name((char *) name, buf);
		CHECK(len == (escape_expected(c) ? 3 * (size_t) (n - 1) + 1 : (size_t) n),
			  "U+%04" PRIX32 ": \"%s\"", c, buf);
		CHECK(zklock_decode_name(buf, back) && strcmp(back, (char *) name) == 0,
			  "U+%04" PRIX32, c);
	}
	end_group("every code point is escaped or not, as the rules say");
}

static void
test_refused(void)
{
	static const char *const bad[] = {
		"",
		".",
		"..",
		"%",
		"%2",
		"a%",
		"%2f",
		"%2G",
		"%00",
		"%41",
		"%20",
		"%C3%A9", /* needs no escape */
		"%C3\xa9",
		"\xc3%A9",
		"a/b",
		"\x01",
		"\x7f",
		"\xc3",
		"\xff",
		"\xc2\x80",
		"\xed\xa0\x80",
		"\xf0\x90\x80\x80",
		"%2E.",
		".%2E",
		"%2E%2E%2E",
		"x%2E",
		"%F0\x90\x80\x80",
	};
	char buf[ZKLOCK_NAME_MAX + 1];
	char longest[ZKLOCK_ENCODED_MAX + 2];

	for (size_t i = 0; i < lengthof(bad); i++)
		CHECK(!zklock_decode_name(bad[i], buf), "\"%s\"", bad[i]);

	memset(longest, 'a', sizeof(longest));
	longest[ZKLOCK_NAME_MAX] = '\0';
	CHECK(zklock_decode_name(longest, buf), "255 characters");
	longest[ZKLOCK_NAME_MAX] = 'a';
	longest[ZKLOCK_NAME_MAX + 1] = '\0';
	CHECK(!zklock_decode_name(longest, buf), "256 characters");

	for (int i = 0; i < ZKLOCK_NAME_MAX; i++)
		memcpy(longest + 3 * i, "%2F", 3);
	longest[ZKLOCK_ENCODED_MAX] = '\0';
	CHECK(zklock_decode_name(longest, buf) && strlen(buf) == ZKLOCK_NAME_MAX,
		  "255 escapes");
	check_encoding(buf, longest);
	end_group("decoding refuses what encoding does not make");
}

/* A small generator of its own: the tests must not depend on libc's rand. */
static uint64_t
next_random(void)
{
	static uint64_t state = UINT64_C(88172645463325252);

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void
test_random_round_trips(void)
{
	static const char alphabet[] =
		"./%25EeFfaA\x01\x7f\xc2\xc3\xa9\x80\xed\xef\xbf\xf0\x90";

	for (int round = 0; round < 200000; round++)
	{
		char name[ZKLOCK_NAME_MAX + 1];
		char encoded[ZKLOCK_ENCODED_MAX + 1];
		char back[ZKLOCK_NAME_MAX + 1];
		size_t len = 1 + next_random() % 12;

		for (size_t i = 0; i < len; i++)
			name[i] = round % 2 ? alphabet[next_random() % (sizeof(alphabet) - 1)]
								: (char) (1 + next_random() % 255);
		name[len] = '\0';

		zklock_encode_name(name, encoded);
		CHECK(zklock_decode_name(encoded, back) && strcmp(back, name) == 0, "\"%s\"",
			  encoded);
		CHECK(strcmp(encoded, ".") != 0 && strcmp(encoded, "..") != 0 &&
				  strchr(encoded, '/') == NULL,
			  "\"%s\"", encoded);

		/* The other way round: the same bytes as somebody's directory. */
		if (zklock_decode_name(name, back))
		{
			zklock_encode_name(back, encoded);
			CHECK(strcmp(encoded, name) == 0, "\"%s\"", name);
		}
	}
	end_group("random names survive the round trip, both ways");
}

static void
test_sequence_numbers(void)
{
	/* Every family of interop.md, as its prefix before the number. */
	static const char *const families[] = {
		"_c_" UUID_TEXT "-lock-", /* Curator mutex; ours, exclusive */
		"_c_" UUID_TEXT "-__READ__",
		"_c_" UUID_TEXT "-__WRIT__",
		"_c_" UUID_TEXT "-lease-",
		"_c_" UUID_TEXT "-latch-",
		"0123456789abcdeffedcba9876543210__lock__",
		"0123456789abcdeffedcba9876543210__rlock__",
		"_c_0123456789abcdeffedcba9876543210-lock-",
		"x-72057594037927936-", /* ZooKeeper recipe, Java */
		"x-0100000000000000-",	/* ZooKeeper recipe, C */
		"n_",
		"qn-",
	};
	static const int64_t values[] = {0,			  1,		  7,
									 999999999,	  1000000000, INT32_MAX - 1,
									 INT32_MAX,	  INT32_MIN,  INT32_MIN + 1,
									 -1000000000, -999999999, -1};

	for (size_t f = 0; f < lengthof(families); f++)
		for (size_t v = 0; v < lengthof(values); v++)
		{
			ZkLockChild child;
			char name[128];

			snprintf(name, sizeof(name), "%s%010" PRId32, families[f], (int32_t) values[v]);
			CHECK(zklock_parse_child(name, &child) && child.sequence == values[v] &&
					  child.name == name && child.hash == zklock_hash_child(name),
				  "%s", name);
		}
	end_group("144 sequence numbers: families times values");

	/* After two dashes a sign would need a billion. */
	{
		ZkLockChild child;

		CHECK(zklock_parse_child("x--0000000001", &child) && child.sequence == 1, "1");
		CHECK(zklock_parse_child("x--1000000000", &child) && child.sequence == -1000000000,
			  "-1000000000");
	}
	end_group("sequence numbers after two dashes");

	/* Our shared form, and no prefix at all. */
	for (size_t v = 0; v < lengthof(values); v++)
	{
		ZkLockChild child;
		char name[128];

		snprintf(name, sizeof(name), "_c_" UUID_TEXT "-read-lock-%010" PRId32,
				 (int32_t) values[v]);
		CHECK(zklock_parse_child(name, &child) && child.sequence == values[v] &&
				  child.mode == ZKLOCK_SHARED && child.uuid_hi == UUID_HI &&
				  child.uuid_lo == UUID_LO,
			  "%s", name);

		/*
		 * Without a prefix the eleven characters of -1000000000 could be the
		 * prefix "-"; nobody names contenders so.
		 */
		snprintf(name, sizeof(name), "%010" PRId32, (int32_t) values[v]);
		if (strlen(name) == 10)
			CHECK(zklock_parse_child(name, &child) && child.sequence == values[v], "%s",
				  name);
	}
	end_group("our shared form and a bare number");
}

static void
test_no_contenders(void)
{
	static const char *const names[] = {
		"",
		"0",
		"000000001",
		"lock-",
		"lock-00000001",
		"lock-000000001x",
		"lock-00000000x1",
		"-000000000",
		"9999999999",
		"x2147483648",
		"x-4294967296",
		"x-2147483649",
		"leases",
		"locks",
		"0123456789abcdeffedcba9876543210", /* kazoo semaphore */
		"_c_" UUID_TEXT "-lock-",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
	};
	ZkLockChild child;

	for (size_t i = 0; i < lengthof(names); i++)
		CHECK(!zklock_parse_child(names[i], &child), "\"%s\": %" PRId64, names[i],
			  child.sequence);
	end_group("names without a sequence number are no contenders");
}

static void
test_our_form(void)
{
	static const char *const others[] = {
		"_c_01234567-89AB-cdef-fedc-ba9876543210-lock-0000000001",
		"_c_01234567-89ab-cdef-fedc-ba987654321-lock-0000000001",
		"_c_01234567-89ab-cdef-fedcba9876543210--lock-0000000001",
		"_c_" UUID_TEXT "-lock-x0000000001",
		"_c_" UUID_TEXT "-read-lock0000000001",
		"_c_" UUID_TEXT "-Read-lock-0000000001",
		"_c_" UUID_TEXT "-read-lock--0000000001x0000000001",
		"_c_" UUID_TEXT "0000000001",
		"xc_" UUID_TEXT "-lock-0000000001",
		"_c_" UUID_TEXT "-__READ__0000000001",
		"_c_" UUID_TEXT "-latch0000000001",
		"_c_" UUID_TEXT "-read-latch-0000000001",
		"_c_0123456789abcdeffedcba9876543210-lock-0000000001",
		"a_c_" UUID_TEXT "-read-lock-0000000001",
	};
	ZkLockChild child;

	for (size_t i = 0; i < lengthof(others); i++)
		CHECK(zklock_parse_child(others[i], &child) && child.uuid_hi == 0 &&
				  child.uuid_lo == 0 && child.mode == ZKLOCK_EXCLUSIVE,
			  "%s", others[i]);

	for (int round = 0; round < 1000; round++)
	{
		uint64_t hi = next_random();
		uint64_t lo = next_random();

		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			char name[ZKLOCK_CONTENDER_LEN + 11];

			memset(name, '#', sizeof(name));
			zklock_format_contender(name, hi, lo, ZKLOCK_KIND_LOCK, (ZkLockMode) mode);
			CHECK(strlen(name) < ZKLOCK_CONTENDER_LEN, "%s", name);
			strcat(name, "0000000042");
			CHECK(zklock_parse_child(name, &child) && child.uuid_hi == hi &&
					  child.uuid_lo == lo && child.mode == (ZkLockMode) mode &&
					  child.sequence == 42,
				  "%s", name);
		}
	}
	{
		char name[ZKLOCK_CONTENDER_LEN + 11];

		zklock_format_contender(name, UUID_HI, UUID_LO, ZKLOCK_KIND_ELECTION,
								ZKLOCK_EXCLUSIVE);
		CHECK(strcmp(name, "_c_" UUID_TEXT "-latch-") == 0, "%s", name);
		strcat(name, "0000000042");
		CHECK(zklock_parse_child(name, &child) && child.uuid_hi == UUID_HI &&
				  child.uuid_lo == UUID_LO && child.mode == ZKLOCK_EXCLUSIVE &&
				  child.sequence == 42,
			  "%s", name);
	}

	{
		char name[ZKLOCK_CONTENDER_LEN];

		zklock_format_contender(name, UUID_HI, UUID_LO, ZKLOCK_KIND_LOCK, ZKLOCK_EXCLUSIVE);
		CHECK(strcmp(name, "_c_" UUID_TEXT "-lock-") == 0, "%s", name);
		zklock_format_contender(name, UUID_HI, UUID_LO, ZKLOCK_KIND_LOCK, ZKLOCK_SHARED);
		CHECK(strcmp(name, "_c_" UUID_TEXT "-read-lock-") == 0, "%s", name);
	}
	end_group("uuid and mode are read from exactly our three forms");
}

/* How many permits there are is read from what we write, and from nothing that is like
 * it. */
static void
test_permits(void)
{
	static const int permits[] = {1, 2, 9, 10, 999999, ZKLOCK_PERMITS_MAX};
	static const char *const others[] = {"0-",		 "01-",		  "-",	 "",   "1",
										 "1000001-", "99999999-", "+1-", "1x-"};
	ZkLockChild child;

	for (size_t i = 0; i < lengthof(permits); i++)
	{
		char name[ZKLOCK_CONTENDER_LEN + 11];

		zklock_format_permit(name, UUID_HI, UUID_LO, permits[i]);
		CHECK(strlen(name) < ZKLOCK_CONTENDER_LEN, "%s", name);
		strcat(name, "0000000042");
		CHECK(zklock_parse_child(name, &child) && child.uuid_hi == UUID_HI &&
				  child.uuid_lo == UUID_LO && child.permits == permits[i] &&
				  child.sequence == 42,
			  "%s", name);
	}
	for (size_t i = 0; i < lengthof(others); i++)
	{
		char name[128];

		snprintf(name, sizeof(name), "_c_" UUID_TEXT "-permit%s0000000042", others[i]);
		CHECK(zklock_parse_child(name, &child) && child.uuid_hi == 0 && child.permits == 0,
			  "%s", name);
	}
	end_group("numbers of permits");
}

static void
test_hash(void)
{
	/* The published FNV-1a test vectors. */
	CHECK(zklock_hash_child("") == UINT64_C(0xcbf29ce484222325), "empty");
	CHECK(zklock_hash_child("a") == UINT64_C(0xaf63dc4c8601ec8c), "a");
	CHECK(zklock_hash_child("foobar") == UINT64_C(0x85944171f73967e8), "foobar");
	end_group("hash is FNV-1a");
}

static void
test_servers(void)
{
	static const struct
	{
		const char *data;
		const char *server; /* NULL: none */
	} known[] = {
		{"{\"server\": \"A\", \"host\": \"h\", \"pid\": 1}", "A"},
		{"{\"server\": \"\"}", NULL},
		{"{\"server\": \"n\xc3\xa4me \\\"x\\\" \\\\ \\/\"", "n\xc3\xa4me \"x\" \\ /"},
		{"{\"server\": \"\\b\\f\\n\\r\\t\\u001b\\u00e4\\u20AC\"}",
		 "\b\f\n\r\t\x1b\xc3\xa4\xe2\x82\xac"},
		{"", NULL},
		{"{\"server\": \"", NULL},
		{"{\"server\": \"A", NULL},
		{"{\"server\": \"A\\", NULL},
		{"{\"server\": \"A\\\"", NULL},
		{"{\"server\": \"A\\x\"", NULL},
		{"{\"server\": \"A\\u00", NULL},
		{"{\"server\": \"A\\u000g\"", NULL},
		{"{\"server\": \"A\\u0000\"", NULL},
		{"{\"server\": \"A\\ud800\"", NULL},
		{"{\"server\": \"A\nB\"", NULL},
		{"{\"server\": 1}", "1"},
		{"192.168.0.1", NULL},
	};

	for (size_t i = 0; i < lengthof(known); i++)
	{
		size_t len = strlen(known[i].data);
		/* not a byte more, for the sanitizer */
		char *data = malloc(len + 1);
		char *buf = malloc(len + 1);
		bool found;

		memcpy(data, known[i].data, len);
		found = zklock_json_field(data, len, "server", buf);
		CHECK(found == (known[i].server != NULL) &&
				  (!found || strcmp(buf, known[i].server) == 0),
			  "%s", known[i].data);
		free(data);
		free(buf);
	}
	end_group("the server's name in a contender's data");
}

static void
test_text(void)
{
	static const struct
	{
		const char *bytes;
		size_t len;
		bool utf8;
		size_t clipped;
		const char *escaped;
		const char *ascii;
	} known[] = {
		{"", 0, true, 0, "", ""},
		{"a b", 3, true, 3, "a b", "a b"},
		{"a\0b", 3, false, 3, "a%00b", "a%00b"},
		{"/%\x01\x7f", 4, true, 4, "%2F%25%01%7F", "%2F%25%01%7F"},
		{"x\xc3\xa4", 3, true, 3, "x\xc3\xa4", "x%C3%A4"},
		{"x\xc3", 2, false, 1, "x%C3", "x%C3"},
		{"\xe2\x98\x83", 3, true, 3, "\xe2\x98\x83", "%E2%98%83"},
		{"x\xe2\x98", 3, false, 1, "x%E2%98", "x%E2%98"},
		{"\xf0\x9d\x84\x9e", 4, true, 4, "%F0%9D%84%9E", "%F0%9D%84%9E"},
		{"\xf0\x9d\x84", 3, false, 0, "%F0%9D%84", "%F0%9D%84"},
		{"\xed\xa0\x80", 3, false, 3, "%ED%A0%80", "%ED%A0%80"}, /* surrogate */
		{"\xc0\xaf", 2, false, 2, "%C0%AF", "%C0%AF"},			 /* overlong */
		{"\xf4\x90\x80\x80", 4, false, 4, "%F4%90%80%80", "%F4%90%80%80"},
		{"\x80\x80\x80\x80", 4, false, 4, "%80%80%80%80", "%80%80%80%80"},
		{"\xff", 1, false, 1, "%FF", "%FF"},
	};

	for (size_t i = 0; i < lengthof(known); i++)
	{
		char buf[16];
		/* not a byte more, for the sanitizer */
		char *bytes = malloc(known[i].len > 0 ? known[i].len : 1);

		memcpy(bytes, known[i].bytes, known[i].len);
		CHECK(zklock_is_utf8(bytes, known[i].len) == known[i].utf8, "%s", known[i].escaped);
		CHECK(zklock_clip_utf8(bytes, known[i].len) == known[i].clipped, "%s",
			  known[i].escaped);
		CHECK(zklock_escape(bytes, known[i].len, false, buf) == strlen(known[i].escaped) &&
				  strcmp(buf, known[i].escaped) == 0,
			  "%s", known[i].escaped);
		CHECK(zklock_escape(bytes, known[i].len, true, buf) == strlen(known[i].ascii) &&
				  strcmp(buf, known[i].ascii) == 0,
			  "%s", known[i].ascii);
		free(bytes);
	}
	end_group("bytes that are text, and others");
}

int
main(void)
{
	printf("1..13\n");
	test_known_names();
	test_all_code_points();
	test_refused();
	test_random_round_trips();
	test_sequence_numbers();
	test_no_contenders();
	test_our_form();
	test_permits();
	test_hash();
	test_servers();
	test_text();
	return groups_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
