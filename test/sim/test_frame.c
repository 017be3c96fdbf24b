/*-------------------------------------------------------------------------
 *
 * test_frame.c
 *	  Unit test of src/protocol/frame.c and bytes.c, output in TAP.
 *
 * Each case is a connection: the session, requests, and a packet of the server's, which
 * is good, or wrong for a reason.  What is good is believed whole only, and refused at no
 * byte before; each of its prefixes is memory of its own, for the sanitizer.  What is
 * wrong stays so, whatever comes behind it.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"

static int ntests;
static int nfailed;

/*-------------------------------------------------------------------------
 * Packets
 *-------------------------------------------------------------------------
 */

typedef struct Packet
{
	unsigned char data[4096];
	size_t len;
} Packet;

static void
put_number(Packet *p, int64_t value, int size)
{
	for (int i = size - 1; i >= 0; i--)
		p->data[p->len++] = (unsigned char) ((uint64_t) value >> (8 * i));
}

static void
put_int(Packet *p, int32_t value)
{
	put_number(p, value, 4);
}

static void
put_long(Packet *p, int64_t value)
{
	put_number(p, value, 8);
}

static void
put_string(Packet *p, const char *text)
{
	put_int(p, (int32_t) strlen(text));
	memcpy(p->data + p->len, text, strlen(text));
	p->len += strlen(text);
}

static void
begin(Packet *p)
{
	p->len = 4;
}

static void
end(Packet *p)
{
	size_t len = p->len;

	p->len = 0;
	put_int(p, (int32_t) (len - 4));
	p->len = len;
}

static void
put_header(Packet *p, int32_t xid, int64_t zxid, int32_t err)
{
	begin(p);
	put_int(p, xid);
	put_long(p, zxid);
	put_int(p, err);
}

/* Offsets in a Stat. */
enum
{
	CZXID = 0,
	MZXID = 8,
	DATALEN = 52,
	NCHILDREN = 56,
	PZXID = 60,
	STAT = 68
};

static void
put_stat(Packet *p, int32_t datalen, int32_t nchildren)
{
	put_long(p, 1000); /* czxid */
	put_long(p, 1005); /* mzxid */
	put_long(p, 1700000000000);
	put_long(p, 1600000000000);
	put_int(p, -3); /* version */
	put_int(p, 7);
	put_int(p, 0);
	put_long(p, INT64_MIN + 7); /* ephemeralOwner */
	put_int(p, datalen);
	put_int(p, nchildren);
	put_long(p, 1002); /* pzxid */
}

static void
put_multi(Packet *p, int32_t type, int done, int32_t err)
{
	put_int(p, type);
	put_number(p, done, 1);
	put_int(p, err);
}

/*-------------------------------------------------------------------------
 * A connection
 *-------------------------------------------------------------------------
 */

#define SESSION INT64_C(0x100000f5e3b0001)

static void
ask_session(ZkFrames *frames, int64_t session, int32_t timeout)
{
	Packet p;

	begin(&p);
	put_int(&p, 0);
	put_long(&p, 0);
	put_int(&p, timeout);
	put_long(&p, session);
	put_string(&p, "0123456789abcdef");
	put_number(&p, 0, 1);
	end(&p);
	if (!zklock_frames_sent(frames, p.data, p.len))
		abort();
}

static Packet
session(int32_t version, int32_t timeout, int64_t id, const char *password, int read_only)
{
	Packet p;

	begin(&p);
	put_int(&p, version);
	put_int(&p, timeout);
	put_long(&p, id);
	put_string(&p, password);
	if (read_only >= 0)
		put_number(&p, read_only, 1);
	end(&p);
	return p;
}

static void
ask(ZkFrames *frames, int32_t xid, int32_t op, const char *path)
{
	Packet p;

	begin(&p);
	put_int(&p, xid);
	put_int(&p, op);
	if (path != NULL)
		put_string(&p, path);
	put_number(&p, 0, 1);
	end(&p);
	if (!zklock_frames_sent(frames, p.data, p.len))
		abort();
}

/* What is looked at is memory of just that size. */
static ZkFrameVerdict
look(ZkFrames *frames, const Packet *p, size_t here, size_t *size, char *why)
{
	unsigned char *copy = malloc(here > 0 ? here : 1);
	ZkFrameVerdict verdict;

	memcpy(copy, p->data, here);
	verdict = zklock_frames_look(frames, copy, here, size, why);
	free(copy);
	return verdict;
}

static void
result(int success, const char *what, const char *said)
{
	printf("%sok %d - %s%s%s\n", success ? "" : "not ", ++ntests, what,
		   said[0] != '\0' ? ": " : "", said);
	if (!success)
		nfailed++;
}

static void
expect(ZkFrames *frames, const Packet *p, ZkFrameVerdict verdict, const char *what)
{
	char why[ZKLOCK_FRAME_WHY] = "";
	size_t size = 0;
	int success = 1;

	for (size_t here = 0; here < p->len; here++)
		success = success && look(frames, p, here, &size, why) == ZKLOCK_FRAME_PART;
	success = success && look(frames, p, p->len, &size, why) == verdict &&
		(verdict != ZKLOCK_FRAME_GOOD || size == p->len);
	result(success, what, why);
}

static void
good(ZkFrames *frames, const Packet *p, const char *what)
{
	expect(frames, p, ZKLOCK_FRAME_GOOD, what);
}

/* No damage, but the end of the connection. */
static void
last(ZkFrames *frames, const Packet *p, const char *what)
{
	expect(frames, p, ZKLOCK_FRAME_LAST, what);
}

/* "reason" is what is to be said of it.  Also if the next packet has arrived, too. */
static void
bad(ZkFrames *frames, const Packet *p, const char *reason)
{
	char why[ZKLOCK_FRAME_WHY] = "";
	Packet more = *p;
	size_t size = 0;
	int success = look(frames, p, p->len, &size, why) == ZKLOCK_FRAME_BAD &&
		strstr(why, reason) != NULL;

	memset(more.data + more.len, 0x55, 500);
	more.len += 500;
	success = success && look(frames, &more, more.len, &size, why) == ZKLOCK_FRAME_BAD;
	if (!success)
		printf("# %s, and not \"%s\"\n", why, reason);
	result(success, reason, why);
}

/* Change a number of the packet, and put it back. */
static void
bad_if(ZkFrames *frames, Packet *p, size_t at, int64_t value, int size, const char *reason)
{
	Packet changed = *p;

	changed.len = at;
	put_number(&changed, value, size);
	changed.len = p->len;
	bad(frames, &changed, reason);
}

/* A session has been made. */
static void
connect(ZkFrames *frames)
{
	char why[ZKLOCK_FRAME_WHY];
	size_t size;
	Packet p = session(0, 10000, SESSION, "0123456789abcdef", 0);

	zklock_frames_init(frames, false);
	ask_session(frames, 0, 10000);
	if (look(frames, &p, p.len, &size, why) != ZKLOCK_FRAME_GOOD)
		abort();
}

/*-------------------------------------------------------------------------
 * The cases
 *-------------------------------------------------------------------------
 */

/* A first answer that says, or has, less than one can have: refused by its length, when
 * that has arrived and before more of it is read. */
static void
test_short_session(ZkFrames *frames)
{
	char why[ZKLOCK_FRAME_WHY] = "";
	size_t size;
	int success = 1;

	for (int32_t len = 0; len < 36; len++)
		for (size_t here = 4; here <= 4 + (size_t) len; here++)
		{
			Packet p;

			begin(&p);
			memset(p.data + 4, 0, 36);
			p.len = 4 + (size_t) len;
			end(&p);
			success = success && look(frames, &p, here, &size, why) == ZKLOCK_FRAME_BAD &&
				strcmp(why, "its length is none") == 0;
		}
	result(success, "no session in fewer than 36 bytes", why);
}

static void
test_session(void)
{
	static const char password[] = "0123456789abcdef";
	ZkFrames frames;
	Packet p;

	zklock_frames_init(&frames, false);
	p = session(0, 10000, SESSION, password, 0);
	bad(&frames, &p, "it was not asked for");
	ask_session(&frames, 0, 10000);
	bad_if(&frames, &p, 0, 35, 4, "its length is none");
	bad_if(&frames, &p, 0, 38, 4, "its length is none");
	test_short_session(&frames);
	bad_if(&frames, &p, 4, 1, 4, "it is of an unknown version");
	bad_if(&frames, &p, 8, 0, 4, "a timeout that cannot be");
	bad_if(&frames, &p, 8, -10000, 4, "a timeout that cannot be");
	bad_if(&frames, &p, 8, 3600001, 4, "a timeout that cannot be");
	bad_if(&frames, &p, 12, 0, 8, "the session has the number 0");
	bad_if(&frames, &p, 20, 15, 4, "the session's password has a wrong length");
	bad_if(&frames, &p, 20, -1, 4, "the session's password has a wrong length");
	bad_if(&frames, &p, 40, 2, 1, "neither 0 nor 1");
	good(&frames, &p, "a new session");

	zklock_frames_init(&frames, false);
	ask_session(&frames, SESSION, 7200000);
	p = session(0, 7200000, SESSION, password, -1);
	bad_if(&frames, &p, 12, SESSION + 1, 8, "another session than was asked for");
	good(&frames, &p, "a session goes on, at an old server");
	zklock_frames_init(&frames, false);
	ask_session(&frames, SESSION, 10000);
	p = session(0, 10000, 1, "0123456789abcdef", 0);
	bad_if(&frames, &p, 4, 42, 4, "it is of an unknown version");
	memset(p.data + 24, 0, 16);
	bad_if(&frames, &p, 4, 41, 4, "it is of an unknown version");
	{
		Packet changed = p;

		changed.data[7] = 42;
		last(&frames, &changed, "ClickHouse Keeper has no leader");
	}
	good(&frames, &p, "a new one of ClickHouse Keeper's in its place");
	zklock_frames_init(&frames, false);
	ask_session(&frames, SESSION, 10000);
	p = session(0, 0, 0, password, 1);
	bad_if(&frames, &p, 8, 10000, 4, "no session has a timeout");
	good(&frames, &p, "a session has expired");
	zklock_frames_init(&frames, true);
	good(&frames, &p, "a session has expired, nobody knows which");
}

/* Every reply to "op" is refused that is short by a byte, has one more, or bytes behind
 * its error. */
static void
good_reply(ZkFrames *frames, int32_t op, const Packet *p, const char *what)
{
	Packet changed = *p;
	char name[80];

	ask(frames, 7, op, op == -11 ? NULL : "/a/path-");
	changed.len--;
	end(&changed);
	bad(frames, &changed, p->len == 20 ? "its length is none" : "too short");
	changed.len = p->len;
	put_number(&changed, 0, 1);
	end(&changed);
	bad(frames, &changed, changed.len > p->len ? "long" : "");
	if (p->len > 20)
	{
		changed = *p;
		bad_if(frames, &changed, 16, -101, 4, "longer than what it says");
	}
	good(frames, p, what);
	put_header(&changed, 7, 1005, -101);
	end(&changed);
	ask(frames, 7, op, "/a/path-");
	snprintf(name, sizeof(name), "%s, refused", what);
	good(frames, &changed, name);
}

static void
test_replies(void)
{
	ZkFrames frames;
	Packet p;

	connect(&frames);
	put_header(&p, 7, 1005, 0);
	end(&p);
	good_reply(&frames, 2, &p, "delete");
	good_reply(&frames, 18, &p, "removeWatches");
	good_reply(&frames, -11, &p, "close");

	put_header(&p, 7, 1005, 0);
	put_string(&p, "/a/path-");
	end(&p);
	good_reply(&frames, 9, &p, "sync");
	put_header(&p, 7, 1005, 0);
	put_string(&p, "/a/path--2147483648");
	end(&p);
	good_reply(&frames, 1, &p, "create");
	put_stat(&p, 0, 0);
	end(&p);
	good_reply(&frames, 15, &p, "create2");
	good_reply(&frames, 19, &p, "createContainer");

	put_header(&p, 7, 1005, 0);
	put_stat(&p, 3, 3);
	end(&p);
	good_reply(&frames, 3, &p, "exists");
	good_reply(&frames, 5, &p, "setData");

	put_header(&p, 7, 1005, 0);
	put_string(&p, "data");
	put_stat(&p, 4, 3);
	end(&p);
	good_reply(&frames, 4, &p, "getData");
	put_header(&p, 7, 1005, 0);
	put_int(&p, -1);
	put_stat(&p, 0, 3);
	end(&p);
	good_reply(&frames, 4, &p, "getData, there are none");

	put_header(&p, 7, 1005, 0);
	put_int(&p, 2);
	for (int i = 0; i < 2; i++)
	{
		put_int(&p, 31);
		put_string(&p, "world");
		put_string(&p, "anyone");
	}
	put_stat(&p, 0, 0);
	end(&p);
	good_reply(&frames, 6, &p, "getACL");

	put_header(&p, 7, 1005, 0);
	put_int(&p, 3);
	put_string(&p, "one");
	put_string(&p, "");
	put_string(&p, "three");
	end(&p);
	good_reply(&frames, 8, &p, "getChildren");
	put_stat(&p, 0, 3);
	end(&p);
	good_reply(&frames, 12, &p, "getChildren2");
	zklock_frames_free(&frames);
}

static void
test_headers(void)
{
	ZkFrames frames;
	Packet p;

	connect(&frames);
	put_header(&p, 7, 1005, 0);
	end(&p);
	bad(&frames, &p, "nothing is open");
	ask(&frames, 7, 2, "/a");
	ask(&frames, 8, 2, "/b");
	bad_if(&frames, &p, 0, -1, 4, "its length is none");
	bad_if(&frames, &p, 0, 0x40000000, 4, "its length is none");
	bad_if(&frames, &p, 0, 17, 4, "it is too long");
	bad_if(&frames, &p, 4, 10, 4, "does not answer the oldest request");
	bad_if(&frames, &p, 4, -3, 4, "does not answer the oldest request");
	bad_if(&frames, &p, 16, 1, 4, "its error code is none");
	bad_if(&frames, &p, 16, -1000, 4, "its error code is none");
	bad_if(&frames, &p, 4, -2, 4, "nothing of its kind is open");
	bad_if(&frames, &p, 4, -4, 4, "nothing of its kind is open");
	bad_if(&frames, &p, 4, -8, 4, "nothing of its kind is open");
	bad_if(&frames, &p, 4, -1, 4, "too short");
	put_header(&p, 8, 1005, 0);
	put_stat(&p, 4, 0);
	end(&p);
	last(&frames, &p, "a reply before its turn: one was left out");
	put_header(&p, 7, 1005, 0);
	end(&p);
	good(&frames, &p, "the oldest one");
	bad(&frames, &p, "does not answer the oldest request");
	put_header(&p, 8, 1005, -101);
	end(&p);
	good(&frames, &p, "the next one");
	bad(&frames, &p, "nothing is open");

	/* what is no reply comes at any time, and once for each */
	ask(&frames, 9, 2, "/c");
	for (int32_t xid = -8; xid < -1; xid /= 2)
	{
		put_header(&p, xid, 1005, xid == -4 ? -115 : 0);
		end(&p);
		ask(&frames, xid, 11, NULL);
		put_number(&p, 0, 1);
		end(&p);
		bad(&frames, &p, "longer than what it says");
		p.len--;
		end(&p);
		good(&frames, &p, "a ping, credentials, watches");
		bad(&frames, &p, "nothing of its kind is open");
	}
	ask(&frames, 10, 77, "/d");
	put_header(&p, 9, 1005, 0);
	end(&p);
	good(&frames, &p, "in between");
	put_header(&p, 10, 1005, 0);
	end(&p);
	bad(&frames, &p, "it answers what is never asked");
	zklock_frames_free(&frames);
}

static void
ask_multi(ZkFrames *frames, int32_t xid)
{
	Packet p;

	begin(&p);
	put_int(&p, xid);
	put_int(&p, 14);
	put_multi(&p, 1, 0, -1);
	put_string(&p, "/a");
	put_string(&p, "data");
	put_int(&p, 1);
	put_int(&p, 31);
	put_string(&p, "world");
	put_string(&p, "anyone");
	put_int(&p, 3);
	put_multi(&p, 2, 0, -1);
	put_string(&p, "/b");
	put_int(&p, -1);
	put_multi(&p, 13, 0, -1);
	put_string(&p, "/c");
	put_int(&p, -1);
	put_multi(&p, 5, 0, -1);
	put_string(&p, "/d");
	put_int(&p, -1);
	put_int(&p, -1);
	put_multi(&p, -1, 1, -1);
	end(&p);
	if (!zklock_frames_sent(frames, p.data, p.len))
		abort();
}

static void
refused(Packet *p, int32_t xid, int64_t zxid, int32_t err)
{
	put_header(p, xid, zxid, err);
	end(p);
}

/* What real servers say when they refuse something: see look_at_zxid. */
static void
test_refusals(void)
{
	ZkFrames frames;
	Packet p;

	connect(&frames);
	ask(&frames, -2, 11, NULL);
	ask(&frames, -2, 11, NULL);
	ask(&frames, -2, 11, NULL);
	ask(&frames, -8, 101, NULL);
	ask(&frames, -4, 100, NULL);
	refused(&p, -2, 1005, -112);
	good(&frames, &p, "a ping of a session that is about to end");
	refused(&p, -2, 0, -124);
	good(&frames, &p, "a ping without credentials");
	refused(&p, -2, 0, -7);
	good(&frames, &p, "a ping of ClickHouse Keeper's that has no quorum");
	refused(&p, -8, 1005, -112);
	good(&frames, &p, "watches of a session that is about to end");
	refused(&p, -4, 0, -115);
	good(&frames, &p, "credentials that are refused");
	refused(&p, 0, INT64_C(0x5555555555555555), -112);
	last(&frames, &p, "a session has ended, with nothing open");

	ask(&frames, 7, 15, "/a");
	ask_multi(&frames, 8);
	ask(&frames, 9, 15, "/c");
	last(&frames, &p, "a session has ended, with something open");
	refused(&p, 9, -1, -6);
	last(&frames, &p, "a type that is not known, before its turn");
	bad_if(&frames, &p, 4, 10, 4, "does not answer the oldest request");
	bad_if(&frames, &p, 4, 0, 4, "does not answer the oldest request");
	refused(&p, 9, 1005, -6);
	last(&frames, &p, "the same with the number of a transaction");
	put_number(&p, 0, 1);
	end(&p);
	last(&frames, &p, "... and with a body");
	refused(&p, 8, 0, -102);
	last(&frames, &p, "a multi that an ACL is against, before its turn");
	refused(&p, 7, -1, -6);
	bad_if(&frames, &p, 8, -2, 8, "its transaction has no number");
	bad_if(&frames, &p, 16, 0, 4, "its transaction has no number");
	good(&frames, &p, "a type that is not known, in its turn");
	put_number(&p, 0, 1);
	end(&p);
	ask(&frames, 10, 15, "/d");
	bad(&frames, &p, "does not answer the oldest request");
	refused(&p, 8, 0, -124);
	good(&frames, &p, "credentials are missing");
	refused(&p, 9, 0, -4);
	good(&frames, &p, "Keeper has not got through");
	refused(&p, 10, 0, -112);
	good(&frames, &p, "a session has ended, in turn");
	zklock_frames_free(&frames);
}

/* The first reply's number is believed, and those that come are not far ahead. */
static void
test_zxids(void)
{
	const int64_t epoch = INT64_C(5) << 32;
	ZkFrames frames;
	Packet p;

	connect(&frames);
	for (int32_t xid = 0; xid < 6; xid++)
		ask(&frames, xid, 2, "/a");
	put_header(&p, 0, epoch, 0);
	end(&p);
	bad_if(&frames, &p, 8, -epoch, 8, "its transaction has no number");
	bad_if(&frames, &p, 8, -1, 8, "its transaction has no number");
	good(&frames, &p, "the first one");
	put_header(&p, 1, epoch + (1 << 28), 0);
	end(&p);
	bad_if(&frames, &p, 8, epoch + (1 << 28) + 1, 8, "far ahead of those before");
	bad_if(&frames, &p, 8, INT64_MAX, 8, "far ahead of those before");
	good(&frames, &p, "newer ones");
	put_header(&p, 2, 0, -4);
	end(&p);
	good(&frames, &p, "an error without one");
	put_header(&p, -1, epoch + INT64_C(0x100000000), 0);
	put_int(&p, 3);
	put_int(&p, 3);
	put_string(&p, "/a");
	end(&p);
	good(&frames, &p, "an event, whatever its own");
	put_header(&p, 3, epoch + (1 << 27), 0);
	end(&p);
	good(&frames, &p, "older ones");
	/* a follower, when the new leader has had its first transaction */
	put_header(&p, 4, epoch + INT64_C(0x300000001), 0);
	end(&p);
	bad_if(&frames, &p, 8, epoch + INT64_C(0x110000001), 8, "far ahead of those before");
	bad_if(&frames, &p, 8, epoch + INT64_C(0x1000100000000), 8,
		   "far ahead of those before");
	good(&frames, &p, "the next leader but one");
	put_header(&p, 5, epoch - INT64_C(0x300000001), 0);
	end(&p);
	good(&frames, &p, "an ensemble that has gone back");
	zklock_frames_free(&frames);
}

static void
test_bodies(void)
{
	ZkFrames frames;
	Packet p;
	size_t stat;

	connect(&frames);
	ask(&frames, 7, 12, "/a");
	put_header(&p, 7, 1005, 0);
	put_int(&p, 2);
	put_string(&p, "one");
	put_string(&p, "two");
	stat = p.len;
	put_stat(&p, 5, 2);
	end(&p);
	bad_if(&frames, &p, 0, 0x30000000, 4, "it is longer than what it says");
	bad_if(&frames, &p, 20, -1, 4, "a list has a wrong length");
	bad_if(&frames, &p, 20, 24, 4, "a list has a wrong length");
	bad_if(&frames, &p, 20, 0x7fffffff, 4, "a list has a wrong length");
	bad_if(&frames, &p, 24, -1, 4, "a string has a wrong length");
	bad_if(&frames, &p, 24, 0x7fffffff, 4, "too short");
	bad_if(&frames, &p, 28, 0, 1, "a string has a zero in it");
	bad_if(&frames, &p, stat + CZXID, -1, 8, "transactions in a wrong order");
	bad_if(&frames, &p, stat + CZXID, 1006, 8, "transactions in a wrong order");
	bad_if(&frames, &p, stat + MZXID, 1006 + (1 << 28), 8,
		   "a Stat is newer than its reply");
	bad_if(&frames, &p, stat + PZXID, 1006 + (1 << 28), 8,
		   "a Stat is newer than its reply");
	bad_if(&frames, &p, stat + PZXID, -1, 8, "transactions in a wrong order");
	bad_if(&frames, &p, stat + DATALEN, -1, 4, "a Stat has a wrong data length");
	bad_if(&frames, &p, stat + NCHILDREN, 3, 4, "a Stat has a wrong number of children");
	good(&frames, &p, "a listing");

	ask(&frames, 7, 4, "/a");
	put_header(&p, 7, 1005, 0);
	put_string(&p, "data");
	stat = p.len;
	put_stat(&p, 4, 1);
	end(&p);
	bad_if(&frames, &p, 20, -2, 4, "a buffer has a wrong length");
	bad_if(&frames, &p, 20, 5, 4, "too short");
	bad_if(&frames, &p, 20, 0x7fffffff, 4, "too short");
	bad_if(&frames, &p, stat + DATALEN, 5, 4, "a Stat has a wrong data length");
	bad_if(&frames, &p, stat + NCHILDREN, -1, 4, "a Stat has a wrong number of children");
	good(&frames, &p, "data");

	ask(&frames, 7, 15, "/a");
	put_header(&p, 7, 1005, 0);
	put_string(&p, "/a-00000000001");
	put_stat(&p, 0, 0);
	end(&p);
	bad(&frames, &p, "it is too long");
	p.len -= STAT + 1;
	p.data[23]--;
	put_stat(&p, 0, 0);
	end(&p);
	bad_if(&frames, &p, 24, 'x', 1, "a path does not begin with a slash");
	bad_if(&frames, &p, 20, 0, 4, "a string has a wrong length");
	bad_if(&frames, &p, 20, 11, 4, "a Stat");
	good(&frames, &p, "a path");
	zklock_frames_free(&frames);
}

static void
test_events(void)
{
	ZkFrames frames;
	Packet p;

	connect(&frames);
	for (int type = 1; type <= 4; type++)
	{
		put_header(&p, -1, type == 1 ? -1 : 1005, 0);
		put_int(&p, type);
		put_int(&p, 3);
		put_string(&p, "/a/path");
		end(&p);
		good(&frames, &p, "an event");
	}
	bad_if(&frames, &p, 16, -4, 4, "an event has an error");
	bad_if(&frames, &p, 20, 0, 4, "an event has a wrong type");
	bad_if(&frames, &p, 20, 5, 4, "an event has a wrong type");
	bad_if(&frames, &p, 20, -1, 4, "an event has a wrong type");
	bad_if(&frames, &p, 24, -112, 4, "an event has a wrong state");
	bad_if(&frames, &p, 28, -1, 4, "a string has a wrong length");
	bad_if(&frames, &p, 28, 6, 4, "longer than what it says");
	bad_if(&frames, &p, 28, 8, 4, "too short");
	bad_if(&frames, &p, 28, 0x7fffffff, 4, "too short");
	bad_if(&frames, &p, 32, 'a', 1, "a path does not begin with a slash");
	zklock_frames_free(&frames);
}

static void
test_multi(void)
{
	ZkFrames frames;
	Packet p;

	connect(&frames);
	ask_multi(&frames, 7);
	ask(&frames, 8, 2, "/e");
	put_header(&p, 7, 1005, 0);
	put_multi(&p, 1, 0, 0); /* at 20 */
	put_string(&p, "/a0000000001");
	put_multi(&p, 2, 0, 0); /* at 45 */
	put_multi(&p, 13, 0, 0);
	put_multi(&p, 5, 0, 0); /* at 63 */
	put_stat(&p, 0, 0);
	put_multi(&p, -1, 1, -1); /* at 140 */
	end(&p);
	bad_if(&frames, &p, 20, 15, 4, "a multi has a result of a wrong type");
	bad_if(&frames, &p, 45, 13, 4, "a multi has a result of a wrong type");
	bad_if(&frames, &p, 45, -1, 4, "a multi has a wrong error");
	bad_if(&frames, &p, 50, -4, 4, "a multi has a result of a wrong type");
	bad_if(&frames, &p, 49, 1, 1, "a multi has too few results");
	bad_if(&frames, &p, 140, 2, 4, "a multi has too many results");
	bad_if(&frames, &p, 144, 0, 1, "a multi has too many results");
	bad_if(&frames, &p, 29, 1000, 4, "too short");
	bad_if(&frames, &p, 72, 2000, 8, "transactions in a wrong order");
	good(&frames, &p, "a multi that is done");
	put_header(&p, 8, 1005, 0);
	end(&p);
	good(&frames, &p, "what was asked behind it");
	zklock_frames_free(&frames);
}

static void
test_refused_multi(void)
{
	ZkFrames frames;
	Packet p;

	connect(&frames);
	ask_multi(&frames, 9);
	put_header(&p, 9, 1005, 0);
	for (int i = 0; i < 4; i++)
	{
		int32_t err = i < 2 ? 0 : i == 2 ? -101 : -2;

		put_multi(&p, -1, 0, err); /* the third at 46 */
		put_int(&p, err);
	}
	put_multi(&p, -1, 1, -1);
	end(&p);
	bad_if(&frames, &p, 55, -102, 4, "a multi has a wrong error");
	{
		Packet changed = p;

		changed.len = 51;
		put_int(&changed, -2);
		put_int(&changed, -2);
		changed.len = p.len;
		bad(&frames, &changed, "a multi is both done and refused");
		changed = p;
		changed.len = 51;
		put_int(&changed, 77);
		put_int(&changed, 77);
		changed.len = p.len;
		bad(&frames, &changed, "a multi has a wrong error");
	}
	good(&frames, &p, "a multi that is refused");

	ask_multi(&frames, 10);
	put_header(&p, 10, 1005, 0);
	put_multi(&p, -1, 0, -101);
	put_int(&p, -101);
	put_multi(&p, 2, 0, 0);
	put_multi(&p, 13, 0, 0);
	put_multi(&p, 5, 0, 0);
	put_stat(&p, 0, 0);
	put_multi(&p, -1, 1, -1);
	end(&p);
	bad(&frames, &p, "a multi is both done and refused");
	put_header(&p, 10, 1005, -4);
	end(&p);
	good(&frames, &p, "a multi that was not looked at");
	zklock_frames_free(&frames);
}

/* Requests by the thousand, which are answered a thousand later. */
static void
test_many(void)
{
	enum
	{
		MANY = 100000,
		BEHIND = 1000
	};
	ZkFrames frames;
	Packet p;
	char why[ZKLOCK_FRAME_WHY] = "";
	size_t size;
	int32_t answered = 0;

	connect(&frames);
	for (int32_t i = 0; i < MANY; i++)
	{
		if (i % 7 == 0)
			ask_multi(&frames, i);
		else
			ask(&frames, i, 2, "/a");
		if (i < BEHIND)
			continue;
		put_header(&p, i - BEHIND, 1005, (i - BEHIND) % 7 == 0 ? -4 : 0);
		end(&p);
		if (look(&frames, &p, p.len, &size, why) == ZKLOCK_FRAME_GOOD)
			answered++;
	}
	result(answered == MANY - BEHIND, "many requests", why);
	zklock_frames_free(&frames);
}

/* A large listing that arrives in pieces is not looked at for each of them. */
static void
test_large(void)
{
	enum
	{
		CHILDREN = 1000000,
		NAME = 40
	};
	const size_t len = 20 + 4 + (size_t) CHILDREN * (4 + NAME) + STAT;
	unsigned char *data = malloc(len);
	char why[ZKLOCK_FRAME_WHY] = "";
	ZkFrames frames;
	ZkFrameVerdict verdict = ZKLOCK_FRAME_PART;
	size_t size = 0;
	size_t here = 0;
	Packet p;

	connect(&frames);
	ask(&frames, 7, 12, "/a");
	put_header(&p, 7, 1005, 0);
	put_int(&p, CHILDREN);
	memcpy(data, p.data, p.len);
	p.data[3] = 0;
	for (int i = 0; i < CHILDREN; i++)
	{
		unsigned char *child = data + 24 + (size_t) i * (4 + NAME);

		memset(child, 0, 4);
		child[3] = NAME;
		memset(child + 4, 'x', NAME);
	}
	p.len = 0;
	put_int(&p, (int32_t) (len - 4));
	memcpy(data, p.data, 4);
	p.len = 0;
	put_stat(&p, 0, CHILDREN);
	memcpy(data + len - STAT, p.data, STAT);
	for (; verdict == ZKLOCK_FRAME_PART && here < len; here += 100)
		verdict = zklock_frames_look(&frames, data, here, &size, why);
	if (verdict == ZKLOCK_FRAME_PART)
		verdict = zklock_frames_look(&frames, data, len, &size, why);
	result(verdict == ZKLOCK_FRAME_GOOD && size == len, "a million children", why);
	zklock_frames_free(&frames);
	free(data);
}

int
main(void)
{
	test_session();
	test_replies();
	test_headers();
	test_refusals();
	test_zxids();
	test_bodies();
	test_events();
	test_multi();
	test_refused_multi();
	test_many();
	test_large();
	printf("1..%d\n", ntests);
	return nfailed ? EXIT_FAILURE : EXIT_SUCCESS;
}
