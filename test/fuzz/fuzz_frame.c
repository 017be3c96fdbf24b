/*-------------------------------------------------------------------------
 *
 * fuzz_frame.c
 *	  Fuzzer of src/protocol/frame.c: what a ZooKeeper server sends.
 *
 * The input is packets both ways, each behind a byte for its direction and two for its
 * length: 'c' is what the library sends, the length before it made up here; anything else
 * what the server sends.  Each is in memory of exactly its size.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "frame.h"

/* A copy of the open requests. */
static ZkFrames
copy_of(const ZkFrames *frames)
{
	ZkFrames copy = *frames;

	if (frames->size > 0)
	{
		copy.ring = malloc(frames->size * sizeof(ZkFrameRequest));
		CHECK(copy.ring != NULL);
		memcpy(copy.ring, frames->ring, frames->size * sizeof(ZkFrameRequest));
	}
	return copy;
}

static void
sent(ZkFrames *frames, const uint8_t *data, size_t size)
{
	char *packet = malloc(ZKLOCK_FRAME_LENGTH + size);

	CHECK(packet != NULL);
	packet[0] = packet[1] = 0;
	packet[2] = (char) (size >> 8);
	packet[3] = (char) size;
	if (size > 0)
		memcpy(packet + ZKLOCK_FRAME_LENGTH, data, size);
	CHECK(zklock_frame_whole(packet, ZKLOCK_FRAME_LENGTH + size) ==
		  ZKLOCK_FRAME_LENGTH + size);
	CHECK(zklock_frame_whole(packet, ZKLOCK_FRAME_LENGTH + size - 1) == 0);
	CHECK(zklock_frames_sent(frames, packet, ZKLOCK_FRAME_LENGTH + size));
	free(packet);
}

/* What is good in the end is not refused before; what is refused early is so in the end. */
static ZkFrameVerdict
received(ZkFrames *frames, const uint8_t *data, size_t size)
{
	char why[ZKLOCK_FRAME_WHY] = "";
	size_t len = 0;
	size_t open = frames->n;
	ZkFrames early = copy_of(frames);
	char *packet = fuzz_text(data, size / 2);
	ZkFrameVerdict half = zklock_frames_look(&early, packet, size / 2, &len, why);
	ZkFrameVerdict whole;

	CHECK((half == ZKLOCK_FRAME_BAD) == (why[0] != '\0'));
	free(packet);
	packet = malloc(size > 0 ? size : 1);
	CHECK(packet != NULL);
	if (size > 0)
		memcpy(packet, data, size);
	whole = zklock_frames_look(frames, packet, size, &len, why);
	CHECK(half == ZKLOCK_FRAME_PART || half == whole);
	CHECK((whole == ZKLOCK_FRAME_BAD) == (why[0] != '\0'));
	CHECK(frames->n <= open);
	if (whole == ZKLOCK_FRAME_GOOD)
		CHECK(len >= 20 && len <= size && zklock_frame_whole(packet, size) == len);
	else
		CHECK(frames->n == open);
	free(packet);
	zklock_frames_free(&early);
	return whole;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ZkFrames frames;
	ZkFrameVerdict verdict = ZKLOCK_FRAME_GOOD;

	if (size == 0)
		return 0;
	zklock_frames_init(&frames, data[0] % 2 == 1);
	data++;
	size--;
	while (size >= 3 && verdict == ZKLOCK_FRAME_GOOD)
	{
		size_t len = (size_t) data[1] << 8 | data[2];
		bool ours = data[0] == 'c';

		data += 3;
		size -= 3;
		if (len > size)
			len = size;
		if (ours)
			sent(&frames, data, len);
		else
			verdict = received(&frames, data, len);
		data += len;
		size -= len;
	}
	zklock_frames_free(&frames);
	return 0;
}
