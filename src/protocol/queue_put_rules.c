/*-------------------------------------------------------------------------
 *
 * queue_put_rules.c
 *	  Moves what a transaction puts into a queue, chunk by chunk.
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>

#include "queue_put_rules.h"

void
zklock_put_begin(ZkPut *put)
{
	assert(put->state == ZKLOCK_PUT_FREE);
	*put = (ZkPut){.state = ZKLOCK_PUT_WRITING, .round = 1};
}

void
zklock_put_posted(ZkPut *put, int chunk)
{
	assert(put->state == ZKLOCK_PUT_WRITING);
	if (put->nchunks <= chunk)
		put->nchunks = chunk + 1;
}

void
zklock_put_repeat(ZkPut *put)
{
	assert(put->state == ZKLOCK_PUT_WRITING);
	put->again = false;
	put->acked = 0;
	put->round++;
}

bool
zklock_put_created(ZkPut *put, uint32_t round, ZkReply rc)
{
	if (put->state != ZKLOCK_PUT_WRITING || put->round != round)
		return false;
	switch (rc)
	{
		case ZKLOCK_REPLY_OK:
		case ZKLOCK_REPLY_EXISTS:
			put->acked++;
			return false;
		case ZKLOCK_REPLY_NO_NODE:
			put->again = true;
			return true;
		case ZKLOCK_REPLY_LOST:
			put->again = true;
			return false;
		default:
			return false;
	}
}

void
zklock_put_lost(ZkPut *put)
{
	if (put->state == ZKLOCK_PUT_WRITING)
		put->again = true;
}

bool
zklock_put_is_written(const ZkPut *put)
{
	assert(put->acked <= put->nchunks);
	return put->acked == put->nchunks;
}

void
zklock_put_end(ZkPut *put, bool committed)
{
	assert(put->state == ZKLOCK_PUT_WRITING);
	put->state = committed ? ZKLOCK_PUT_COMMITTED : ZKLOCK_PUT_ABORTED;
}

static bool
is_over(const ZkPut *put)
{
	return put->state == ZKLOCK_PUT_COMMITTED || put->state == ZKLOCK_PUT_ABORTED;
}

ZkPutRequest
zklock_put_request(ZkPut *put, bool known, bool *behind)
{
	*behind |= put->reading;
	if (!is_over(put) || put->open || put->pause)
		return ZKLOCK_SETTLE_NOTHING;
	if (put->settled == put->nchunks)
	{
		put->state = ZKLOCK_PUT_FREE;
		return ZKLOCK_SETTLE_FREE;
	}
	put->open = true;
	if (put->state == ZKLOCK_PUT_ABORTED)
		return ZKLOCK_SETTLE_DROP;
	if (known && !*behind)
		return ZKLOCK_SETTLE_MOVE;
	*behind = put->reading = true;
	return ZKLOCK_SETTLE_READ;
}

/* Was it settled, by this request or before? */
static bool
is_settled(ZkPutRequest request, ZkReply rc, int failed, bool proven)
{
	switch (request)
	{
		case ZKLOCK_SETTLE_READ:
			/* what is no chunk stays where it is, for somebody to look at */
			return rc == ZKLOCK_REPLY_EXISTS || (rc == ZKLOCK_REPLY_NO_NODE && proven);
		case ZKLOCK_SETTLE_MOVE:
			return rc == ZKLOCK_REPLY_OK || (rc == ZKLOCK_REPLY_NO_NODE && failed == 0);
		case ZKLOCK_SETTLE_DROP:
			return rc == ZKLOCK_REPLY_OK || rc == ZKLOCK_REPLY_NO_NODE;
		default:
			assert(false);
			return false;
	}
}

ZkPutRequest
zklock_put_reply(ZkPut *put, ZkPutRequest request, ZkReply rc, int failed, bool proven)
{
	bool directory =
		request == ZKLOCK_SETTLE_MOVE && rc == ZKLOCK_REPLY_NO_NODE && failed > 0;

	assert(is_over(put) && put->open && put->settled < put->nchunks);
	put->reading = false;
	if (request == ZKLOCK_SETTLE_READ && rc == ZKLOCK_REPLY_OK)
		return ZKLOCK_SETTLE_MOVE;
	put->open = false;
	if (rc == ZKLOCK_REPLY_LOST)
		return ZKLOCK_SETTLE_NOTHING;
	if (is_settled(request, rc, failed, proven))
	{
		put->settled++;
		put->stuck = false;
		return ZKLOCK_SETTLE_NOTHING;
	}
	/* the directory of the items is made meanwhile, which may fail, too */
	put->pause = put->stuck || !directory;
	put->stuck = true;
	return ZKLOCK_SETTLE_NOTHING;
}

void
zklock_put_tick(ZkPut *put)
{
	put->pause = false;
}

void
zklock_put_connection(ZkPut *put)
{
	put->pause = put->open = put->reading = false;
	zklock_put_lost(put);
}
