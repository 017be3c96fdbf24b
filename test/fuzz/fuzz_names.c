/*-------------------------------------------------------------------------
 *
 * fuzz_names.c
 *	  Fuzzer of names of locks and contenders, items, marks and chunks of queues, parties
 *	  of barriers.
 *
 * The input is taken for each of them.  A name that is read is the one that is written of
 * it.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "barrier_text.h"
#include "contender.h"
#include "queue_text.h"

static void
fuzz_encode(const char *name, size_t len)
{
	char encoded[ZKLOCK_ENCODED_MAX + 1];
	char decoded[ZKLOCK_NAME_MAX + 1];
	size_t n;

	if (len == 0 || len > ZKLOCK_NAME_MAX)
		return;
	n = zklock_encode_name(name, encoded);
	CHECK(n == strlen(encoded) && n >= len && n <= ZKLOCK_ENCODED_MAX);
	CHECK(strchr(encoded, '/') == NULL);
	CHECK(strcmp(encoded, ".") != 0 && strcmp(encoded, "..") != 0);
	for (size_t i = 0; i < n; i++)
		CHECK((unsigned char) encoded[i] >= 0x20 && encoded[i] != 0x7f);
	CHECK(zklock_decode_name(encoded, decoded));
	CHECK(strcmp(decoded, name) == 0);
	CHECK(zklock_local_name(name) >= name && zklock_local_name(name) <= name + len);
}

static void
fuzz_decode(const char *encoded)
{
	char decoded[ZKLOCK_NAME_MAX + 1];
	char again[ZKLOCK_ENCODED_MAX + 1];

	if (!zklock_decode_name(encoded, decoded))
		return;
	CHECK(decoded[0] != '\0' && strlen(decoded) <= ZKLOCK_NAME_MAX);
	zklock_encode_name(decoded, again);
	CHECK(strcmp(again, encoded) == 0);
}

static void
fuzz_child(const char *name, size_t len)
{
	ZkLockChild child;
	char ours[ZKLOCK_CONTENDER_LEN];
	char whole[ZKLOCK_CONTENDER_LEN + 16];
	bool same = false;
	char digits[16];
	size_t n;

	if (!zklock_parse_child(name, &child))
		return;
	CHECK(child.name == name && child.hash != 0);
	CHECK(child.sequence >= INT32_MIN && child.sequence <= INT32_MAX);
	CHECK(child.mode == ZKLOCK_SHARED || child.mode == ZKLOCK_EXCLUSIVE);

	/* what was read is what is there */
	n = (size_t) snprintf(digits, sizeof(digits), "%010d", (int) child.sequence);
	CHECK(len >= n && strcmp(name + len - n, digits) == 0);
	if (child.uuid_hi == 0 && child.uuid_lo == 0)
		return;
	for (int kind = 0; kind < ZKLOCK_NKINDS && !same; kind++)
	{
		zklock_format_contender(ours, child.uuid_hi, child.uuid_lo, (ZkLockKind) kind,
								child.mode);
		snprintf(whole, sizeof(whole), "%s%s", ours, digits);
		same = strcmp(whole, name) == 0;
	}
	CHECK(same);
}

static void
fuzz_item(const char *text)
{
	char ours[ZKLOCK_ITEM_NAME + 16];
	char chunk[ZKLOCK_CHUNK_NAME];
	char mark[ZKLOCK_MARK_NAME];
	uint64_t life;
	uint32_t take;
	ZkItemName item;
	ZkChunkName name;

	if (zklock_item_parse(text, &item))
	{
		zklock_item_prefix(ours, item.id);
		snprintf(ours + strlen(ours), 16, "%010lld", (long long) item.sequence);
		CHECK(strcmp(ours, text) == 0 && strlen(text) < ZKLOCK_ITEM_NAME);
		zklock_item_mark(mark, text, UINT64_MAX, UINT32_MAX);
		CHECK(zklock_item_of_mark(mark, &life, &take));
		CHECK(strcmp(mark, text) == 0 && life == UINT64_MAX && take == UINT32_MAX);
	}
	snprintf(mark, sizeof(mark), "%s", text);
	(void) zklock_item_of_mark(mark, &life, &take);
	if (zklock_chunk_parse(text, &name))
	{
		zklock_chunk_format(chunk, &name);
		CHECK(strcmp(chunk, text) == 0);
	}
}

/* Ids are in the order of their times, and make names. */
static void
fuzz_id(const uint8_t *data, size_t size)
{
	char id[ZKLOCK_ITEM_ID];
	char next[ZKLOCK_ITEM_ID];
	char name[ZKLOCK_ITEM_NAME];
	ZkItemName item;
	int64_t us;
	uint64_t random[2];

	if (size < sizeof(us) + sizeof(random))
		return;
	memcpy(&us, data, sizeof(us));
	memcpy(random, data + sizeof(us), sizeof(random));
	us &= (INT64_C(1) << 57) - 1;
	zklock_item_make_id(id, us, random[0]);
	zklock_item_make_id(next, us + 1, random[1]);
	CHECK(strcmp(id, next) < 0);
	CHECK(id[14] == '7' && strchr("89ab", id[19]) != NULL);
	zklock_item_prefix(name, id);
	strcat(name, "0000000000");
	CHECK(zklock_item_parse(name, &item) && strcmp(item.id, id) == 0 && item.sequence == 0);
}

static void
fuzz_party(const char *text)
{
	char ours[ZKLOCK_PARTY_NAME_MAX + 16];
	ZkPartyNode node;

	if (!zklock_barrier_parse_party(text, &node))
		return;
	zklock_barrier_format_party(ours, node.id, node.session, node.parties);
	snprintf(ours + strlen(ours), 16, "%010d", (int) node.sequence);
	CHECK(strcmp(ours, text) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	fuzz_encode(text, strlen(text));
	fuzz_decode(text);
	fuzz_child(text, strlen(text));
	fuzz_item(text);
	fuzz_id(data, size);
	fuzz_party(text);
	free(text);
	return 0;
}
