/*-------------------------------------------------------------------------
 *
 * fuzz.h
 *	  What the fuzzers share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FUZZ_H
#define ZKLOCK_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                 \
	do                                                                                   \
	{                                                                                    \
		if (!(condition))                                                                \
		{                                                                                \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);    \
			abort();                                                                     \
		}                                                                                \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input as a string in memory of exactly its size, for the sanitizer's sake. */
static inline char *
fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	CHECK(text != NULL);
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

#endif /* ZKLOCK_FUZZ_H */
