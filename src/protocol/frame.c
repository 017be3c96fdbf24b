/*-------------------------------------------------------------------------
 *
 * frame.c
 *	  Checks that a ZooKeeper server can have sent what it sends.
 *
 * The names of fields and types are those of zookeeper.jute.
 *
 *-------------------------------------------------------------------------
 */
#include "frame.h"

#include "bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ZooDefs.OpCode */
enum
{
	OP_ERROR = -1,
	OP_CREATE = 1,
	OP_DELETE = 2,
	OP_EXISTS = 3,
	OP_GET_DATA = 4,
	OP_SET_DATA = 5,
	OP_GET_ACL = 6,
	OP_SET_ACL = 7,
	OP_GET_CHILDREN = 8,
	OP_SYNC = 9,
	OP_PING = 11,
	OP_GET_CHILDREN2 = 12,
	OP_CHECK = 13,
	OP_MULTI = 14,
	OP_CREATE2 = 15,
	OP_REMOVE_WATCHES = 18,
	OP_CREATE_CONTAINER = 19,
	OP_AUTH = 100,
	OP_SASL = 102,
	OP_CLOSE = -11
};

/* Xids of frames that answer no request of the caller's. */
enum
{
	XID_EVENT = -1,
	XID_PING = -2,
	XID_AUTH = -4,
	XID_SET_WATCHES = -8
};

#define HEADER_SIZE		  16 /* ReplyHeader: xid, zxid, err */
#define STAT_SIZE		  68
#define MULTI_HEADER_SIZE 9	 /* type, done, err */
#define SEQUENCE_SIZE	  11 /* "-2147483648" */
#define PASSWORD_SIZE	  16

/* ConnectResponse; servers before 3.5 do not say that they can be read alone. */
#define CONNECT_SIZE	 36
#define CONNECT_SIZE_NOW 37

/* KeeperException.Code, and room for codes that may be added */
#define LEAST_ERROR			  (-999)
#define RUNTIME_INCONSISTENCY (-2)
#define SESSION_EXPIRED		  (-112)

/* The version in the first answer of a ClickHouse Keeper that has no leader, and
 * hangs up: KEEPER_PROTOCOL_VERSION_CONNECTION_REJECT in ZooKeeperConstants.h */
#define KEEPER_REJECTS 42

/* No ensemble makes this many transactions between two replies on one connection, or
 * elects this many leaders. */
#define FAR_AWAY   (INT64_C(1) << 28)
#define FAR_LEADER (INT64_C(1) << 16)

/* Watcher.Event */
#define EVENT_CREATED	1
#define EVENT_CHILDREN	4
#define STATE_CONNECTED 3

/* ms: a session may get a longer timeout than the client asked for, but no longer
 * than this */
#define LONGEST_TIMEOUT 3600000

void
zklock_frames_init(ZkFrames *frames, bool asked)
{
	memset(frames, 0, sizeof(ZkFrames));
	frames->asked = asked;
}

void
zklock_frames_free(ZkFrames *frames)
{
	free(frames->ring);
	memset(frames, 0, sizeof(ZkFrames));
}

size_t
zklock_frame_whole(const void *data, size_t here)
{
	ZkBytes bytes = zklock_bytes(data, here, here);
	uint32_t len = (uint32_t) zklock_bytes_int(&bytes);

	return zklock_bytes_good(&bytes) && len <= bytes.here ? ZKLOCK_FRAME_LENGTH + len : 0;
}

/*-------------------------------------------------------------------------
 * Requests
 *-------------------------------------------------------------------------
 */

static ZkFrameRequest *
nth(const ZkFrames *frames, size_t i)
{
	return &frames->ring[(frames->first + i) & (frames->size - 1)];
}

/* False: no memory. */
static bool
append(ZkFrames *frames, ZkFrameRequest request)
{
	if (frames->n == frames->size)
	{
		size_t size = frames->size > 0 ? 2 * frames->size : 64;
		ZkFrameRequest *ring = calloc(size, sizeof(ZkFrameRequest));

		if (ring == NULL)
			return false;
		for (size_t i = 0; i < frames->n; i++)
			ring[i] = *nth(frames, i);
		free(frames->ring);
		frames->ring = ring;
		frames->size = size;
		frames->first = 0;
	}
	*nth(frames, frames->n++) = request;
	return true;
}

/* Returns the most bytes that the body of a reply can have; the request goes on with
 * "bytes". */
static uint32_t
most_of(int32_t op, ZkBytes bytes)
{
	uint32_t path;

	switch (op)
	{
		case OP_CREATE:
			path = (uint32_t) zklock_bytes_string(&bytes);
			return 4 + path + SEQUENCE_SIZE;
		case OP_CREATE2:
		case OP_CREATE_CONTAINER:
			path = (uint32_t) zklock_bytes_string(&bytes);
			return 4 + path + SEQUENCE_SIZE + STAT_SIZE;
		case OP_SYNC:
			path = (uint32_t) zklock_bytes_string(&bytes);
			return 4 + path;
		case OP_EXISTS:
		case OP_SET_DATA:
		case OP_SET_ACL:
			return STAT_SIZE;
		case OP_GET_DATA:
		case OP_GET_ACL:
		case OP_GET_CHILDREN:
		case OP_GET_CHILDREN2:
		case OP_SASL:
			return ZKLOCK_FRAME_MAX - HEADER_SIZE;
		default:
			return 0;
	}
}

/* Pass an op of a multi. */
static void
pass_op(ZkBytes *bytes, int32_t op)
{
	int32_t nacl;

	(void) zklock_bytes_string(bytes);
	if (op == OP_CREATE || op == OP_CREATE2)
	{
		(void) zklock_bytes_buffer(bytes);
		nacl = zklock_bytes_vector(bytes, 12);
		for (int32_t i = 0; i < nacl; i++)
		{
			(void) zklock_bytes_int(bytes);
			(void) zklock_bytes_string(bytes);
			(void) zklock_bytes_string(bytes);
		}
	}
	else if (op == OP_SET_DATA)
		(void) zklock_bytes_buffer(bytes);
	(void) zklock_bytes_int(bytes); /* flags, version */
}

/* Appends the ops of a multi behind it. */
static bool
append_multi(ZkFrames *frames, int32_t xid, ZkBytes bytes)
{
	size_t where = frames->n;
	ZkFrameRequest multi = {.xid = xid, .op = OP_MULTI, .most = MULTI_HEADER_SIZE};

	if (!append(frames, multi))
		return false;
	for (;;)
	{
		ZkFrameRequest op = {.op = zklock_bytes_int(&bytes)};
		bool done = zklock_bytes_bool(&bytes);

		(void) zklock_bytes_int(&bytes);
		if (done || !zklock_bytes_good(&bytes))
			break;
		op.most = most_of(op.op, bytes);
		pass_op(&bytes, op.op);
		multi.nops++;
		/* an error is a number */
		multi.most += MULTI_HEADER_SIZE + (op.most > 4 ? op.most : 4);
		if (!append(frames, op))
			return false;
	}
	*nth(frames, where) = multi;
	return true;
}

bool
zklock_frames_sent(ZkFrames *frames, const void *frame, size_t size)
{
	ZkBytes bytes = zklock_bytes((const char *) frame + ZKLOCK_FRAME_LENGTH,
								 size - ZKLOCK_FRAME_LENGTH, size - ZKLOCK_FRAME_LENGTH);
	ZkFrameRequest request = {0};

	if (!frames->asked)
	{
		/* ConnectRequest */
		(void) zklock_bytes_int(&bytes);
		(void) zklock_bytes_long(&bytes);
		frames->timeout_ms = zklock_bytes_int(&bytes);
		frames->session = zklock_bytes_long(&bytes);
		frames->knows = zklock_bytes_good(&bytes);
		frames->asked = true;
		return true;
	}
	request.xid = zklock_bytes_int(&bytes);
	request.op = zklock_bytes_int(&bytes);
	switch (request.xid)
	{
		case XID_PING:
			frames->pings++;
			return true;
		case XID_AUTH:
			frames->credentials++;
			return true;
		case XID_SET_WATCHES:
			frames->watches++;
			return true;
		default:
			break;
	}
	if (request.op == OP_MULTI)
		return append_multi(frames, request.xid, bytes);
	request.most = most_of(request.op, bytes);
	return append(frames, request);
}

/*-------------------------------------------------------------------------
 * Replies
 *-------------------------------------------------------------------------
 */

typedef struct Header
{
	int32_t xid;
	int64_t zxid;
	int32_t err;
	bool last; /* ZKLOCK_FRAME_LAST */
} Header;

/* The lengths and counts that a Stat gives for the data beside it; -1: there are none. */
typedef struct Contents
{
	int32_t datalen;
	int32_t nchildren;
} Contents;

static const Contents nothing = {-1, -1};

/* Is a transaction far later than the reply that names it?  The numbers can be any. */
static bool
is_beyond(int64_t zxid, int64_t reply)
{
	return zxid > FAR_AWAY && zxid - FAR_AWAY > reply;
}

static void
look_at_stat(ZkBytes *bytes, const Header *header, Contents contents)
{
	int64_t czxid = zklock_bytes_long(bytes);
	int64_t mzxid = zklock_bytes_long(bytes);
	int32_t datalen;
	int32_t nchildren;
	int64_t pzxid;

	(void) zklock_bytes_long(bytes); /* ctime, mtime: by clocks that go back, too */
	(void) zklock_bytes_long(bytes);
	(void) zklock_bytes_int(bytes); /* version, cversion, aversion: they come round */
	(void) zklock_bytes_int(bytes);
	(void) zklock_bytes_int(bytes);
	(void) zklock_bytes_long(bytes); /* ephemeralOwner: any number */
	datalen = zklock_bytes_int(bytes);
	nchildren = zklock_bytes_int(bytes);
	pzxid = zklock_bytes_long(bytes);
	zklock_bytes_refuse(bytes, czxid < 0 || mzxid < czxid || pzxid < 0,
						"a Stat has transactions in a wrong order");
	/* by a little it may be, of a follower that has just been sent a snapshot */
	zklock_bytes_refuse(bytes,
						is_beyond(mzxid, header->zxid) || is_beyond(pzxid, header->zxid),
						"a Stat is newer than its reply");
	zklock_bytes_refuse(bytes,
						datalen < 0 ||
							(contents.datalen >= 0 && contents.datalen != datalen),
						"a Stat has a wrong data length");
	zklock_bytes_refuse(bytes,
						nchildren < 0 ||
							(contents.nchildren >= 0 && contents.nchildren != nchildren),
						"a Stat has a wrong number of children");
}

static void
look_at_acl(ZkBytes *bytes)
{
	int32_t n = zklock_bytes_vector(bytes, 12);

	for (int32_t i = 0; i < n && zklock_bytes_good(bytes); i++)
	{
		(void) zklock_bytes_int(bytes);
		(void) zklock_bytes_string(bytes);
		(void) zklock_bytes_string(bytes);
	}
}

static int32_t
look_at_children(ZkBytes *bytes)
{
	int32_t n = zklock_bytes_vector(bytes, 4);

	for (int32_t i = 0; i < n && zklock_bytes_good(bytes); i++)
		(void) zklock_bytes_string(bytes);
	return n;
}

/* Checks the answer to a request, or to an op of a multi.  It has this length at most. */
static void
look_at_result(ZkBytes *bytes, const Header *header, int32_t op)
{
	Contents contents = nothing;

	switch (op)
	{
		case OP_DELETE:
		case OP_CHECK:
		case OP_REMOVE_WATCHES:
		case OP_CLOSE:
			break;
		case OP_CREATE:
		case OP_SYNC:
			(void) zklock_bytes_path(bytes);
			break;
		case OP_CREATE2:
		case OP_CREATE_CONTAINER:
			(void) zklock_bytes_path(bytes);
			look_at_stat(bytes, header, nothing);
			break;
		case OP_EXISTS:
		case OP_SET_DATA:
		case OP_SET_ACL:
			look_at_stat(bytes, header, nothing);
			break;
		case OP_GET_DATA:
			contents.datalen = zklock_bytes_buffer(bytes);
			look_at_stat(bytes, header, contents);
			break;
		case OP_GET_ACL:
			look_at_acl(bytes);
			look_at_stat(bytes, header, nothing);
			break;
		case OP_GET_CHILDREN:
			(void) look_at_children(bytes);
			break;
		case OP_GET_CHILDREN2:
			contents.nchildren = look_at_children(bytes);
			look_at_stat(bytes, header, contents);
			break;
		case OP_SASL:
			(void) zklock_bytes_buffer(bytes);
			break;
		default:
			zklock_bytes_refuse(bytes, true, "it answers what is never asked");
			break;
	}
}

static bool
is_code(int32_t err)
{
	return err <= 0 && err >= LEAST_ERROR;
}

/* The ensemble has done all ops, or none; then the first of these errors is the
 * multi's. */
static void
look_at_multi(ZkBytes *bytes, const Header *header, const ZkFrames *frames)
{
	uint32_t nops = nth(frames, 0)->nops;
	uint32_t nerrors = 0;
	bool refused = false;
	int32_t type;
	bool done;
	int32_t err;

	for (uint32_t i = 0; i < nops && zklock_bytes_good(bytes); i++)
	{
		int32_t op = nth(frames, 1 + i)->op;

		type = zklock_bytes_int(bytes);
		done = zklock_bytes_bool(bytes);
		err = zklock_bytes_int(bytes);
		zklock_bytes_refuse(bytes, done, "a multi has too few results");
		zklock_bytes_refuse(bytes, type != OP_ERROR && (type != op || err != 0),
							"a multi has a result of a wrong type");
		if (type != OP_ERROR)
		{
			look_at_result(bytes, header, op);
			continue;
		}
		nerrors++;
		refused = refused || (err != 0 && err != RUNTIME_INCONSISTENCY);
		zklock_bytes_refuse(bytes, zklock_bytes_int(bytes) != err || !is_code(err),
							"a multi has a wrong error");
	}
	type = zklock_bytes_int(bytes);
	done = zklock_bytes_bool(bytes);
	(void) zklock_bytes_int(bytes);
	zklock_bytes_refuse(bytes, !done || type != OP_ERROR, "a multi has too many results");
	zklock_bytes_refuse(bytes, nerrors != 0 && (nerrors != nops || !refused),
						"a multi is both done and refused");
}

static void
look_at_event(ZkBytes *bytes, const Header *header)
{
	int32_t type = zklock_bytes_int(bytes);
	int32_t state = zklock_bytes_int(bytes);

	zklock_bytes_refuse(bytes, header->err != 0, "an event has an error");
	zklock_bytes_refuse(bytes, type < EVENT_CREATED || type > EVENT_CHILDREN,
						"an event has a wrong type");
	zklock_bytes_refuse(bytes, state != STATE_CONNECTED, "an event has a wrong state");
	(void) zklock_bytes_path(bytes);
}

/* ConnectResponse, without its length */
static void
look_at_session(ZkBytes *bytes, const ZkFrames *frames, Header *header)
{
	int32_t longest =
		frames->timeout_ms > LONGEST_TIMEOUT ? frames->timeout_ms : LONGEST_TIMEOUT;
	int32_t version = zklock_bytes_int(bytes);
	int32_t timeout = zklock_bytes_int(bytes);
	int64_t session = zklock_bytes_long(bytes);
	bool keeper = zklock_bytes_zeros(bytes, 4, PASSWORD_SIZE);
	int32_t password = zklock_bytes_buffer(bytes);

	header->last = version == KEEPER_REJECTS && keeper;
	zklock_bytes_refuse(bytes, version != 0 && !header->last,
						"it is of an unknown version");
	zklock_bytes_refuse(bytes, password != PASSWORD_SIZE,
						"the session's password has a wrong length");
	if (bytes->left > 0)
		(void) zklock_bytes_bool(bytes);
	if (session == 0)
	{
		/* the session that was asked for has expired */
		zklock_bytes_refuse(bytes, frames->knows && frames->session == 0,
							"the session has the number 0");
		zklock_bytes_refuse(bytes, timeout != 0, "no session has a timeout");
		return;
	}
	zklock_bytes_refuse(bytes, timeout <= 0 || timeout > longest,
						"the session has a timeout that cannot be");
	/* ClickHouse Keeper makes a new one; its sessions have no password */
	zklock_bytes_refuse(bytes,
						frames->knows && frames->session != 0 &&
							frames->session != session && !keeper,
						"it is another session than was asked for");
}

/* Checks a frame that is no reply to a request.  False: it is one. */
static bool
look_at_special(ZkBytes *bytes, const Header *header, const ZkFrames *frames)
{
	uint32_t open;

	switch (header->xid)
	{
		case XID_EVENT:
			look_at_event(bytes, header);
			return true;
		case XID_PING:
			open = frames->pings;
			break;
		case XID_AUTH:
			open = frames->credentials;
			break;
		case XID_SET_WATCHES:
			open = frames->watches;
			break;
		default:
			return false;
	}
	zklock_bytes_refuse(bytes, open == 0, "nothing of its kind is open");
	return true;
}

/*
 * Can a server that was at transaction "before" be at transaction "zxid" now?  A leader
 * counts from 0, in the lower half.  A server that follows a new leader stays where the
 * old one left it until there is a first transaction.  A server that has gone back is
 * believed here: history.h deals with that.
 */
static bool
is_near(int64_t before, int64_t zxid)
{
	int64_t leaders = (zxid >> 32) - (before >> 32);

	if (zxid <= before)
		return true;
	return leaders == 0 ? zxid - before <= FAR_AWAY
						: leaders <= FAR_LEADER && (zxid & UINT32_MAX) <= FAR_AWAY;
}

/*
 * The zxids that servers send, by the sources of ZooKeeper 3.4 to 3.9 (also as
 * observers, which have the same classes) and of ClickHouse Keeper (src/Coordination):
 *
 *	 newest  the newest transaction that the server has applied: of all replies, errors
 *	         among them, of pings and of setWatches.  It is never below zero, and 0 in an
 *	         empty database, or one that is being closed
 *	             FinalRequestProcessor, ReadOnlyRequestProcessor; KeeperStateMachine
 *	 0       of credentials and SASL, and of what is refused before it is processed, for
 *	         missing credentials (ZSESSIONCLOSEDREQUIRESASLAUTH) or by an ACL
 *	             ZooKeeperServer: processPacket, processSasl, authWriteRequest;
 *	             AuthenticationHelper
 *	         of each request that Keeper has not got through: ZOPERATIONTIMEOUT,
 *	         ZCONNECTIONLOSS
 *	             KeeperDispatcher::addErrorResponses
 *	 -1      of a request whose type is not known: ZUNIMPLEMENTED
 *	             UnimplementedRequestProcessor, with Request.zxid as it was made
 *	 any     of an event: -1, and from 3.9 on its own
 *	             NIOServerCnxn, NettyServerCnxn: process
 *
 * A ping has an error, too, where a session is about to end (PrepRequestProcessor:
 * checkSession), credentials are missing, or Keeper has no quorum.  No ping has a body,
 * and no error to a request that zklock makes has one: see sendResponse.
 */
static void
look_at_zxid(ZkBytes *bytes, const Header *header, const ZkFrames *frames)
{
	if (header->xid == XID_EVENT || header->zxid == 0 ||
		(header->zxid == -1 && header->err != 0))
		return;
	zklock_bytes_refuse(bytes, header->zxid < 0, "its transaction has no number");
	zklock_bytes_refuse(bytes, frames->zxid > 0 && !is_near(frames->zxid, header->zxid),
						"its transaction is far ahead of those before");
}

/*
 * Does the server end the connection with this frame, or would the library?  A reply
 * may come out of turn.  If a type is not known, credentials are missing, or the server
 * checks an ACL early, the refusal does not wait for the replies to earlier requests:
 * see look_at_zxid.  If a session comes back to a server that still has earlier
 * requests of it, the server may leave out a reply (CommitProcessor, ZOOKEEPER-2684).
 * Keeper says unasked, and without numbers, that a session has ended:
 * KeeperDispatcher::finishSession.
 */
static bool
is_last(const ZkBytes *bytes, const Header *header, const ZkFrames *frames)
{
	if (header->xid == 0 && header->err == SESSION_EXPIRED && bytes->left == 0)
		return true;
	for (size_t i = 0; i < frames->n; i += 1 + nth(frames, i)->nops)
		if (i > 0 && nth(frames, i)->xid == header->xid)
			return true;
	return false;
}

static void
look_at_reply(ZkBytes *bytes, ZkFrames *frames, Header *header)
{
	const ZkFrameRequest *due;

	header->xid = zklock_bytes_int(bytes);
	header->zxid = zklock_bytes_long(bytes);
	header->err = zklock_bytes_int(bytes);
	zklock_bytes_refuse(bytes, !is_code(header->err), "its error code is none");
	header->last = zklock_bytes_good(bytes) && is_last(bytes, header, frames);
	if (header->last)
	{
		bytes->left = 0; /* nobody reads it */
		return;
	}
	look_at_zxid(bytes, header, frames);
	if (!zklock_bytes_good(bytes) || look_at_special(bytes, header, frames))
		return;
	zklock_bytes_refuse(bytes, frames->n == 0, "nothing is open");
	if (!zklock_bytes_good(bytes))
		return;
	due = nth(frames, 0);
	zklock_bytes_refuse(bytes, header->xid != due->xid,
						"it does not answer the oldest request");
	/* an error has no body; and a body has its length, whether it has arrived or not */
	if (header->err != 0)
		return;
	zklock_bytes_refuse(bytes, bytes->left > due->most, "it is too long");
	if (due->op == OP_MULTI)
		look_at_multi(bytes, header, frames);
	else if (zklock_bytes_good(bytes))
		look_at_result(bytes, header, due->op);
}

/* The frame is good: pass it. */
static void
consume(ZkFrames *frames, const Header *header)
{
	if (!frames->answered)
		frames->answered = true;
	else if (header->xid == XID_EVENT)
		return;
	else if (header->xid == XID_PING)
		frames->pings--;
	else if (header->xid == XID_AUTH)
		frames->credentials--;
	else if (header->xid == XID_SET_WATCHES)
		frames->watches--;
	else
	{
		size_t gone = 1 + nth(frames, 0)->nops;

		frames->first = (frames->first + gone) & (frames->size - 1);
		frames->n -= gone;
	}
	if (header->zxid != 0 && header->zxid != -1)
		frames->zxid = header->zxid;
}

/* Says which frame is wrong, and why. */
static void
explain(const ZkFrames *frames, const Header *header, const char *wrong, size_t len,
		char *why)
{
	if (!frames->answered)
		snprintf(why, ZKLOCK_FRAME_WHY, "%s", wrong);
	else if (frames->n > 0)
		snprintf(why, ZKLOCK_FRAME_WHY,
				 "packet of %zu bytes with xid %d, while %d of type %d is due: %s", len,
				 (int) header->xid, (int) nth(frames, 0)->xid, (int) nth(frames, 0)->op,
				 wrong);
	else
		snprintf(why, ZKLOCK_FRAME_WHY,
				 "packet of %zu bytes with xid %d, while no reply is due: %s", len,
				 (int) header->xid, wrong);
}

ZkFrameVerdict
zklock_frames_look(ZkFrames *frames, const void *data, size_t here, size_t *size, char *why)
{
	ZkBytes bytes = zklock_bytes(data, here, here);
	size_t len = (uint32_t) zklock_bytes_int(&bytes);
	Header header = {0};
	bool whole;

	/* a listing that arrives in many pieces is looked at as often as its length doubles */
	if (here < ZKLOCK_FRAME_LENGTH || (here < frames->look_again && here < len + 4))
		return ZKLOCK_FRAME_PART;
	whole = here >= len + ZKLOCK_FRAME_LENGTH;
	bytes = zklock_bytes(bytes.at, bytes.here, len);
	if (!frames->answered)
	{
		zklock_bytes_refuse(&bytes, !frames->asked, "it was not asked for");
		zklock_bytes_refuse(&bytes, len < CONNECT_SIZE || len > CONNECT_SIZE_NOW,
							"its length is none");
		look_at_session(&bytes, frames, &header);
	}
	else
	{
		zklock_bytes_refuse(&bytes, len < HEADER_SIZE || len > ZKLOCK_FRAME_MAX,
							"its length is none");
		look_at_reply(&bytes, frames, &header);
	}
	zklock_bytes_refuse(&bytes, bytes.left > 0, "it is longer than what it says");
	if (bytes.wrong != NULL)
	{
		explain(frames, &header, bytes.wrong, len, why);
		return ZKLOCK_FRAME_BAD;
	}
	if (!whole)
	{
		frames->look_again = 2 * here;
		return ZKLOCK_FRAME_PART;
	}
	frames->look_again = 0;
	if (header.last)
		return ZKLOCK_FRAME_LAST;
	*size = ZKLOCK_FRAME_LENGTH + len;
	consume(frames, &header);
	return ZKLOCK_FRAME_GOOD;
}
