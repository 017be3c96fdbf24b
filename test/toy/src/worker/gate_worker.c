/*-------------------------------------------------------------------------
 *
 * gate_worker.c
 *	  Answers whether gates are open: lists the directory, and goes by the rules.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "gate_rules.h"
#include "gate_shared.h"
#include "gate_worker.h"
#include "path.h"
#include "session.h"
#include "tag.h"

static uint32 own_tag = ZKLOCK_TAG_NONE; /* set by worker.c */
static bool due = true;					 /* replies may have been lost */

/* The listing is no older than the question: there is a sync before it. */
static long
work(void)
{
	ZkClient *client = zklock_session_client();
	char name[ZKLOCK_NAME_MAX + 1];
	uint32 serial = 0;

	due |= zklock_gate_asked();
	if (!due || client == NULL)
		return -1;
	due = false;
	(void) zklock_client_sync(client, zklock_path_directory(ZKLOCK_KIND_GATE),
							  &zklock_no_tag);
	for (int i = zklock_gate_next(-1, name, &serial); i >= 0;
		 i = zklock_gate_next(i, name, &serial))
	{
		ZkRequestTag tag = {.kind = own_tag, .entry = (uint32) i, .generation = serial};
		char *path = zklock_path_name(ZKLOCK_KIND_GATE, name, NULL);

		zklock_session_sent(zklock_client_list(client, path, false, &tag));
		pfree(path);
	}
	return -1;
}

static ZkGateAnswer
find_answer(const ZkMessage *message)
{
	switch (zklock_reply_rc(message->rc))
	{
		case ZKLOCK_RC_OK:
			return zklock_gate_is_open(message->children, message->nchildren)
				? ZKLOCK_GATE_OPEN
				: ZKLOCK_GATE_CLOSED;
		case ZKLOCK_RC_NO_NODE:
			return ZKLOCK_GATE_OPEN;
		case ZKLOCK_RC_LOST:
			return ZKLOCK_GATE_UNKNOWN;
		default:
			return ZKLOCK_GATE_REFUSED;
	}
}

static void
on_message(const ZkMessage *message)
{
	ZkGateAnswer answer = find_answer(message);

	if (answer != ZKLOCK_GATE_UNKNOWN)
		zklock_gate_tell((int) message->tag.entry, message->tag.generation, answer);
}

static void
on_event(ZkLockEventType type)
{
	if (type == ZKLOCK_EV_CONNECTED || type == ZKLOCK_EV_RESUMED)
		due = true;
}

const ZkAgent zklock_gate_agent = {
	.event = on_event,
	.tag = &own_tag,
	.message = on_message,
	.work = work,
};
