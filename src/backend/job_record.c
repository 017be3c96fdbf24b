/*-------------------------------------------------------------------------
 *
 * job_record.c
 *	  Reads the record of a job's runs, changes it by the rules of job_rules.h, and
 *	  writes it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "job_record.h"
#include "loss.h"
#include "names.h"
#include "waiter.h"

StaticAssertDecl(ZKLOCK_JOB_TEXT_MAX <= ZKLOCK_RECORD_MAX, "a record fits");
StaticAssertDecl(ZKLOCK_RECORD_MAX + ZKLOCK_ANSWER_NAME_MAX + 1024 <= ZKLOCK_ANSWER_PAGE,
				 "a row fits into a page");

/* ms until a missing record that must exist is looked for again */
#define MISSING_PAUSE 50

static ZkWaitEvent wait_event_record = {.name = "ZkLockRecord"};

const char *
zklock_job_time_text(int64_t ms)
{
	return pstrdup(timestamptz_to_str(zklock_time_of_ms(ms)));
}

ZkRecordRead
zklock_job_record_parse(const ZkNode *node, ZkJob *job)
{
	ZkRecordRead text = zklock_job_read(node->data, (size_t) node->datalen, job);

	return text == ZKLOCK_RECORD_GOOD && node->data_cut ? ZKLOCK_RECORD_DAMAGED : text;
}

pg_noreturn static void
raise_newer(const char *name, const ZkNode *node)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("record of job \"%s\" in ZooKeeper is of a newer version of zklock",
					zklock_display_name(name)),
			 errdetail("The record has version %lld, and this server knows version %d.",
					   (long long) zklock_record_version(node->data, (size_t) node->datalen),
					   ZKLOCK_JOB_VERSION),
			 errhint("Update zklock on this server.")));
}

pg_noreturn static void
raise_damaged(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("record of job \"%s\" in ZooKeeper is damaged",
					zklock_display_name(name)),
			 errdetail("The data of its znode are not what zklock writes there."),
			 errhint("Repair it, or use SELECT zk_job_forget(%s) to forget all runs, those that are done included.",
					 quote_literal_cstr(zklock_display_name(name)))));
}

static bool
look_for_loss(ZkWaiter *waiter, int64 now)
{
	ZkHeldLock *held = zklock_loss_find();

	if (held != NULL)
		zklock_loss_raise(held);
	return false;
}

static void
on_missing_error(void *name)
{
	errcontext("while waiting for the record of job \"%s\"", zklock_plain_name(name));
}

/* There is no record, but the job's holder has a contender in its directory, which has
 * the record.  So the job is lost, and the holder will hear of it. */
static void
await_loss(char *name)
{
	ZkWait limits;
	ZkWaiter waiter = {
		.look = look_for_loss,
		.context = on_missing_error,
		.arg = name,
		.limits = &limits,
		.event = &wait_event_record,
		.longest = MISSING_PAUSE,
	};

	zklock_wait_begin(&limits, MISSING_PAUSE);
	(void) zklock_wait_for(&waiter);
}

/* Make one attempt.  True: it has succeeded.  "until": the time limit, or 0. */
static bool
change_once(const char *name, bool damaged, int64 until, ZkJobChange change, void *arg,
			bool *found)
{
	static char text[ZKLOCK_JOB_TEXT_MAX + 1];
	ZkJob *job = palloc(sizeof(ZkJob));
	ZkRecord record;

	*found = zklock_query_record(ZKLOCK_KIND_JOB, name, until, &record) && record.exists;
	if (!*found && until != 0)
		return true;
	if (!record.exists)
		zklock_job_init(job);
	else
	{
		switch (zklock_job_record_parse(&record.node, job))
		{
			case ZKLOCK_RECORD_GOOD:
				break;
			case ZKLOCK_RECORD_NEWER:
				raise_newer(name, &record.node);
			case ZKLOCK_RECORD_DAMAGED:
				if (!damaged)
					raise_damaged(name);
				zklock_job_init(job);
				job->changed = true;
		}
	}
	change(job, record.now, arg);
	if (!job->changed)
		return true;
	if (!record.exists)
	{
		if (zklock_held_find(ZKLOCK_KIND_JOB, name) == NULL)
			return true;
		await_loss(unconstify(char *, name));
		return false;
	}
	return zklock_query_write(ZKLOCK_KIND_JOB, name, until, &record, text,
							  (int) zklock_job_write(job, text));
}

static bool
change_record(const char *name, bool damaged, int64 until, ZkJobChange change, void *arg)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "zklock record",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext save = MemoryContextSwitchTo(context);
	bool found;

	while (!change_once(name, damaged, until, change, arg, &found))
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(save);
	MemoryContextDelete(context);
	return found;
}

bool
zklock_job_record_change(const char *name, bool damaged, ZkJobChange change, void *arg)
{
	return change_record(name, damaged, 0, change, arg);
}

bool
zklock_job_record_change_until(const char *name, int64 until, ZkJobChange change, void *arg)
{
	return change_record(name, false, until, change, arg);
}
