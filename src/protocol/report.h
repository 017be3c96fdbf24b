/*-------------------------------------------------------------------------
 *
 * report.h
 *	  Who has, or waits for, what others see as this server's contenders only, or not at all.
 *
 * In ZooKeeper a contender is a server's, and says at best by which session it was made.
 * So a server writes into its own znode under <root>/servers, with each heartbeat, whose
 * its contenders are now: those that others demand, those with which it waits, and those
 * for permits that have one while another of them waits; and its sessions that have
 * waited for long, and that none of these shows: behind others of the same server a
 * session waits without a contender.  The text is JSON behind what else the znode says
 * (zklock_describe_member):
 *
 *	 "report": [{"contender": 17, "mode": "exclusive", "state": "held", "for": 3512,
 *	     "sessions": [{"pid": 4711, "database": "app", "user": "batch",
 *	      "application": "nightly", "query": 3511, "waits": "Lock: transactionid"},
 *	     {"pid": 4712, ..., "waits": "Extension: ZkLockAcquire", "name": "other"}]},
 *	     {"mode": "exclusive", "state": "waiting", "for": 3021, "sessions": [
 *	     {"pid": 4713, ..., "waits": "Lock: advisory", "name": "other"},
 *	     {"pid": 4712, ...}]}],
 *	 "more": 0
 *
 * What is left out is "shared", a lock, empty, or not known.  Times are ages in ms when it
 * was written, so that no clock but the ensemble's is needed to read them.  The first
 * session is the one that has the lock, or waits for it; each further one is in the way of
 * the one before it, on the same server.  Where there is no room for the next one, "waits"
 * ends in "...".
 *
 * Pure: libc only.  Anybody may have written what is read.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REPORT_H
#define ZKLOCK_REPORT_H

#include "contender.h"

/* The text, all of it, and what is in it: the rest is counted in "more". */
#define ZKLOCK_REPORT_TEXT_MAX 8192
#define ZKLOCK_REPORT_ITEMS	   32
#define ZKLOCK_REPORT_SESSIONS 4

/* PostgreSQL's NAMEDATALEN: room for a name, in UTF-8, with a NUL. */
#define ZKLOCK_REPORT_NAME 64

typedef enum ZkReportState
{
	ZKLOCK_REPORT_HELD,		 /* by a session */
	ZKLOCK_REPORT_KEPT,		 /* for whoever comes next on the server */
	ZKLOCK_REPORT_RELEASING, /* nobody has it, and the contender is about to go */
	ZKLOCK_REPORT_WAITING	 /* it is somebody else's turn; or nobody's, yet */
} ZkReportState;

/* A session, and what it waits for. */
typedef struct ZkReportSession
{
	int pid;
	char database[ZKLOCK_REPORT_NAME];
	char user[ZKLOCK_REPORT_NAME];
	char application[ZKLOCK_REPORT_NAME];
	int64_t query;					/* ms since its latest query began, -1: not known */
	char waits[ZKLOCK_REPORT_NAME]; /* for what; "": it does not */
	ZkLockKind kind;				/* if for a lock of ours, here or elsewhere: which */
	char name[ZKLOCK_NAME_MAX + 1]; /* ... or "" */
} ZkReportSession;

/* A contender, or a session that waits without one. */
typedef struct ZkReportItem
{
	uint64_t contender; /* low half of its UUID; 0: none */
	ZkLockMode mode;	/* that it has, or waits for */
	ZkReportState state;
	int64_t age; /* ms in this state, -1: not known */
	int nsessions;
	ZkReportSession session[ZKLOCK_REPORT_SESSIONS];
} ZkReportItem;

typedef struct ZkReport
{
	int nitems;
	int more; /* items for which there was no room */
	ZkReportItem item[ZKLOCK_REPORT_ITEMS];
} ZkReport;

/* "held" and so on. */
extern const char *zklock_report_state_name(ZkReportState state);

/*
 * Write what stands between the braces, as many items as have room in
 * ZKLOCK_REPORT_TEXT_MAX bytes with a NUL.  Returns the length.
 */
extern size_t zklock_report_write(const ZkReport *report, char *buf);

/*
 * Read it from all that a server's znode says.  False, and an empty report, if there is
 * none, such as of an older version, or if it is none.
 */
extern bool zklock_report_read(const char *text, size_t len, ZkReport *report);

/* The item of a contender, or NULL. */
extern const ZkReportItem *zklock_report_find(const ZkReport *report, uint64_t contender);

#endif /* ZKLOCK_REPORT_H */
