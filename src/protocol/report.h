/*-------------------------------------------------------------------------
 *
 * report.h
 *	  Reads and writes the report of the sessions that hold a server's contenders or wait
 *	  with them.
 *
 * In ZooKeeper a contender belongs to a server, and shows at best which session made
 * it.  So with each heartbeat a server writes into its own znode under <root>/servers
 * which sessions have its contenders now: the contenders that others demand, those with
 * which the server waits, and those that have a permit while another of them waits for
 * one.  It also writes its sessions that have waited for long and that none of these
 * shows: behind others of the same server a session waits without a contender.  The
 * text is JSON behind the rest of the znode's text (zklock_describe_member):
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
 * An omitted value means "shared", a lock, empty, or not known.  Times are ages in ms
 * at the moment of writing, so that a reader needs no clock but the ensemble's.  The
 * first session has the lock, or waits for it; each further one is in the way of the
 * one before it, on the same server.  If there is no room for the next one, "waits"
 * ends in "...".
 *
 * Pure: libc only.  Anybody may have written the text that is read.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REPORT_H
#define ZKLOCK_REPORT_H

#include "contender.h"

/* Limits of the text and of its items.  "more" counts the rest. */
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

/* A session, and its wait. */
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
 * Writes the text between the braces: as many items as have room in
 * ZKLOCK_REPORT_TEXT_MAX bytes with a NUL.  Returns the length.
 */
extern size_t zklock_report_write(const ZkReport *report, char *buf);

/*
 * Reads the report from the whole text of a server's znode.  False, and an empty
 * report: the text has none, such as that of an older version, or its report is wrong.
 */
extern bool zklock_report_read(const char *text, size_t len, ZkReport *report);

/* Finds the item of a contender, or NULL. */
extern const ZkReportItem *zklock_report_find(const ZkReport *report, uint64_t contender);

#endif /* ZKLOCK_REPORT_H */
