/*-------------------------------------------------------------------------
 *
 * fuzz_names.c
 *	  Fuzzer of src/protocol/contender.c: names of locks and of contenders.
 *
 * The input is taken for a lock's name, for an encoded one, and for the name of
 * a child of a lock directory.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "contender.h"

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

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	fuzz_encode(text, strlen(text));
	fuzz_decode(text);
	fuzz_child(text, strlen(text));
	free(text);
	return 0;
}
