/*-------------------------------------------------------------------------
 *
 * fuzz_liblog.c
 *	  Fuzzer of src/protocol/liblog.c: lines of the ZooKeeper library's log.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "liblog.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *line = fuzz_text(data, size);
	const char *end = line + strlen(line);
	int level;
	size_t len;
	const char *text = zklock_liblog_text(line, &level, &len);
	const char *server;
	const char *version;
	ZkLogAnswer answer;

	CHECK(level >= 1 && level <= 4);
	CHECK(text >= line && text + len <= end);
	CHECK(len == 0 || (text[len - 1] != '\n' && text[len - 1] != ' '));

	server = zklock_liblog_server(text, &len);
	CHECK(server == NULL || (server > text && server + len <= end));
	CHECK(server == NULL || memchr(server, ' ', len) == NULL);
	CHECK(zklock_liblog_initiated(text) + zklock_liblog_established(text) +
			  (zklock_liblog_failure(text) != 0) <=
		  1);
	CHECK(server != NULL || !zklock_liblog_initiated(text));

	version = zklock_liblog_version(text, &len);
	CHECK(version == NULL || (version > text && version + len <= end));
	CHECK(version == NULL || !zklock_liblog_io_started(text));

	if (zklock_liblog_answer(text, &answer))
		CHECK(strstr(text, answer.host) != NULL && strstr(text, answer.answer) != NULL);
	free(line);
	return 0;
}
