/*-------------------------------------------------------------------------
 *
 * barrier_rules.c
 *	  Meeting: one server's part in the rounds of one barrier, as a state machine.
 *
 * Each event first changes what the state says.  Then decide() sends the requests that
 * are missing.
 *
 *-------------------------------------------------------------------------
 */
#include "barrier_rules.h"

#include <assert.h>
#include <string.h>

/* Attempts to make a directory that turned out to be missing. */
#define MAX_ATTEMPTS 16

/* Heartbeats between two listings that no event calls for.  They find nodes of ours
 * that somebody has deleted by hand. */
#define LOOK_TICKS 16

/* ------------------------------------------------------------------------
 * The ends of parties
 * ------------------------------------------------------------------------
 */

/* Everything that one step works with. */
typedef struct Step
{
	ZkBarrier *b;
	ZkParty **party;
	int n;
	ZkBarrierSend send;
	void *arg;
} Step;

#define foreach_party(p, s)                                                              \
	for (ZkParty * p, **at_ = (s)->party; at_ < (s)->party + (s)->n && (p = *at_, true); \
		 at_++)

static bool
same_id(const uint64_t a[2], const uint64_t b[2])
{
	return a[0] == b[0] && a[1] == b[1];
}

static void
end_party(ZkParty *p, ZkPartyEnd end)
{
	assert(p->state != ZKLOCK_PARTY_OVER && end != ZKLOCK_PARTY_NONE);
	if (end == ZKLOCK_PARTY_LEFT && p->reason != ZKLOCK_PARTY_NONE)
		end = (ZkPartyEnd) p->reason;
	p->state = ZKLOCK_PARTY_OVER;
	p->end = end;
}

static bool
leaves(const ZkParty *p)
{
	return p->leave || p->reason != ZKLOCK_PARTY_NONE;
}

static bool
may_have_node(const ZkParty *p)
{
	return p->state != ZKLOCK_PARTY_WANTED && p->state != ZKLOCK_PARTY_OVER;
}

/* The ensemble has refused a request that no party can do without. */
static void
refuse(Step *s, int code)
{
	foreach_party (p, s)
	{
		if (p->state == ZKLOCK_PARTY_OVER)
			continue;
		p->reason = ZKLOCK_PARTY_REFUSED;
		p->rc = code;
		if (p->state == ZKLOCK_PARTY_WANTED || p->state == ZKLOCK_PARTY_UNSETTLED)
			end_party(p, ZKLOCK_PARTY_REFUSED);
	}
}

/* The record has changed, or may have. */
static void
forget_record(ZkBarrier *b)
{
	b->known = false;
}

/* Finds the party with this id, unless it is over. */
static ZkParty *
find_party(const Step *s, const uint64_t id[2])
{
	foreach_party (p, s)
	{
		if (p->state != ZKLOCK_PARTY_OVER && same_id(p->id, id))
			return p;
	}
	return NULL;
}

/* ------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------
 */

static void
make_dir(Step *s)
{
	ZkBarrierAction action = {.type = ZKLOCK_BARRIER_MAKE_DIR};

	s->b->attempts++;
	s->b->making = true;
	s->send(s->arg, &action);
}

static void
read_record(Step *s)
{
	ZkBarrierAction action = {.type = ZKLOCK_BARRIER_READ_IT};

	action.sync = s->b->fresh;
	s->b->fresh = false;
	s->b->reading = true;
	s->b->read_proven = s->b->proven;
	s->send(s->arg, &action);
}

static void
list(Step *s)
{
	ZkBarrierAction action = {.type = ZKLOCK_BARRIER_LIST};

	s->b->lists++;
	s->b->listing = true;
	s->b->list_wanted = false;
	s->b->list_proven = s->b->proven;
	s->send(s->arg, &action);
}

static void
create(Step *s, ZkParty *p)
{
	ZkBarrierAction action = {.type = ZKLOCK_BARRIER_CREATE, .party = p};
	ZkBarrier *b = s->b;

	/* before it is sent: a successor goes by it */
	p->life = b->life;
	p->round = b->newest;
	p->tried = true;
	p->judged = false;
	p->list = b->lists + 1;
	p->state = ZKLOCK_PARTY_CREATING;
	s->send(s->arg, &action);
}

/* "party" waits for the reply; NULL: no party does. */
static void
delete_node(Step *s, const ZkParty *party, const ZkPartyNode *node)
{
	ZkBarrierAction action = {.type = ZKLOCK_BARRIER_DELETE,
							  .party = party,
							  .nodes = node,
							  .nnodes = 1};

	s->send(s->arg, &action);
}

static void
leave(Step *s, ZkParty *p)
{
	ZkPartyNode node = {.session = s->b->session,
						.id = {p->id[0], p->id[1]},
						.parties = p->parties,
						.sequence = p->sequence};

	p->state = ZKLOCK_PARTY_DELETING;
	delete_node(s, p, &node);
}

/* Ask for what is missing. */
static void
decide(Step *s)
{
	ZkBarrier *b = s->b;
	bool any = false;

	foreach_party (p, s)
	{
		if (b->known && b->newer)
			p->reason = ZKLOCK_PARTY_NEWER;
		if (p->state == ZKLOCK_PARTY_WANTED && leaves(p))
			end_party(p, ZKLOCK_PARTY_LEFT);
		any |= p->state != ZKLOCK_PARTY_OVER;
	}
	if (!b->connected || !any)
		return;
	if (!b->known && !b->reading && !b->making && !b->await_tick)
		read_record(s);
	foreach_party (p, s)
	{
		if (p->state == ZKLOCK_PARTY_WANTED && b->known)
			create(s, p);
		else if (p->state == ZKLOCK_PARTY_THERE && leaves(p))
			leave(s, p);
		if (may_have_node(p) && p->list > b->lists)
			b->list_wanted = true;
	}
	/* without the record it is of no use */
	if (b->list_wanted && !b->listing && (b->known || b->reading))
		list(s);
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

/* The connection ends.  Each open request has an answer of a sort, or gets none. */
static void
end_connection(ZkBarrier *b)
{
	b->connected = b->proven = b->known = false;
	b->reading = b->making = b->listing = b->opening = false;
	b->await_tick = false;
	b->attempts = 0;
}

static void
on_connected(Step *s, bool fresh)
{
	ZkBarrier *b = s->b;

	end_connection(b);
	b->connected = true;
	b->fresh = fresh;
	foreach_party (p, s)
	{
		if (p->state == ZKLOCK_PARTY_CREATING || p->state == ZKLOCK_PARTY_DELETING)
			p->state = ZKLOCK_PARTY_UNSETTLED;
		p->list = b->lists + 1;
	}
}

static void
on_session_lost(Step *s)
{
	end_connection(s->b);
	foreach_party (p, s)
	{
		if (may_have_node(p))
			p->state = ZKLOCK_PARTY_UNSETTLED;
	}
}

static void
on_tick(Step *s)
{
	ZkBarrier *b = s->b;

	b->proven = true;
	if (b->await_tick)
		/* the watch may be on an old state of things, and silent for that */
		forget_record(b);
	if (b->await_tick || ++b->ticks >= LOOK_TICKS)
	{
		b->list_wanted = true;
		b->ticks = 0;
	}
	b->await_tick = false;
}

/* Does the record have every round that was opened after the party was last known to
 * be in none? */
static bool
is_complete(const ZkBarrier *b, const ZkParty *p)
{
	return b->life == p->life && b->newest >= p->round && b->oldest <= p->round + 1;
}

/* Is the record older than one that we have seen?  A deposed leader may answer so. */
static bool
is_stale(const Step *s)
{
	const ZkBarrier *b = s->b;

	foreach_party (p, s)
	{
		if (may_have_node(p) &&
			(b->life < p->life || (b->life == p->life && b->newest < p->round)))
			return true;
	}
	return false;
}

/* Take over what was read. */
static void
take_record(ZkBarrier *b, const ZkBarrierEvent *event)
{
	ZkRecordRead read = zklock_barrier_rounds_parse(event->data, (size_t) event->datalen,
													&b->newest, &b->oldest);

	b->known = true;
	b->attempts = 0;
	b->life = event->life;
	b->version = event->version;
	b->newer = read == ZKLOCK_RECORD_NEWER;
	b->len = event->datalen;
	if (read != ZKLOCK_RECORD_GOOD || b->len >= ZKLOCK_ROUNDS_MAX)
	{
		/* what somebody else has written there is no record */
		b->newest = 0;
		b->oldest = 1;
		b->len = 0;
	}
	if (b->len > 0)
		memcpy(b->text, event->data, (size_t) b->len);
}

static void
on_record(Step *s, const ZkBarrierEvent *event)
{
	ZkBarrier *b = s->b;

	take_record(b, event);
	if (!b->read_proven && !b->newer && is_stale(s))
	{
		forget_record(b);
		b->await_tick = true;
		return;
	}
	foreach_party (p, s)
	{
		if (!may_have_node(p))
			continue;
		if (zklock_barrier_rounds_have(b->text, (size_t) b->len, p->id))
			end_party(p, ZKLOCK_PARTY_OPENED);
		else if (!b->newer && is_complete(b, p))
		{
			p->round = b->newest;
			p->gap = false;
		}
		else
		{
			/* its node, if it is there still, is the proof */
			p->gap = true;
			p->list = b->lists + 1;
		}
	}
}

static void
on_read(Step *s, const ZkBarrierEvent *event)
{
	ZkBarrier *b = s->b;

	b->reading = false;
	switch (event->rc)
	{
		case ZKLOCK_RC_OK:
			on_record(s, event);
			break;
		case ZKLOCK_RC_NO_NODE:
			if (b->attempts >= MAX_ATTEMPTS)
				refuse(s, event->code);
			else
				make_dir(s);
			break;
		case ZKLOCK_RC_LOST:
			break;
		default:
			refuse(s, event->code);
	}
}

static void
on_made_dir(Step *s, const ZkBarrierEvent *event)
{
	s->b->making = false;
	if (event->rc == ZKLOCK_RC_ERROR)
		refuse(s, event->code);
}

static void
on_created(Step *s, const ZkBarrierEvent *event)
{
	ZkParty *p = find_party(s, event->id);

	if (p == NULL || p->state != ZKLOCK_PARTY_CREATING)
		return;
	switch (event->rc)
	{
		case ZKLOCK_RC_OK:
			p->state = ZKLOCK_PARTY_THERE;
			p->sequence = event->sequence;
			break;
		case ZKLOCK_RC_LOST:
			p->state = ZKLOCK_PARTY_UNSETTLED;
			break;
		case ZKLOCK_RC_NO_NODE:
			p->state = ZKLOCK_PARTY_WANTED;
			forget_record(s->b);
			break;
		default:
			p->rc = event->code;
			end_party(p, ZKLOCK_PARTY_REFUSED);
	}
}

static void
on_deleted(Step *s, const ZkBarrierEvent *event)
{
	ZkParty *p = find_party(s, event->id);

	if (p == NULL || p->state != ZKLOCK_PARTY_DELETING)
		return;
	switch (event->rc)
	{
		case ZKLOCK_RC_OK:
			end_party(p, ZKLOCK_PARTY_LEFT);
			break;
		case ZKLOCK_RC_LOST:
		case ZKLOCK_RC_NO_NODE:
			/* it may be in a round: if so, the watch has fired */
			p->state = ZKLOCK_PARTY_UNSETTLED;
			p->list = s->b->lists + 1;
			break;
		default:
			p->rc = event->code;
			end_party(p, ZKLOCK_PARTY_REFUSED);
	}
}

static const ZkPartyNode *
find_node(const ZkBarrierEvent *event, const ZkParty *p)
{
	for (int i = 0; i < event->nnodes; i++)
		if (same_id(event->nodes[i].id, p->id))
			return &event->nodes[i];
	return NULL;
}

/* Is its node there?  The listing and the record show the same moment. */
static void
find_place(Step *s, ZkParty *p, const ZkBarrierEvent *event)
{
	ZkBarrier *b = s->b;
	const ZkPartyNode *node = find_node(event, p);

	if (node != NULL)
	{
		p->life = b->life;
		p->round = b->newest;
		p->gap = false;
		p->sequence = node->sequence;
		p->state = ZKLOCK_PARTY_THERE;
		if (node->session == b->session)
			return;
		/* that session is not ours any more, and will end: begin again */
		p->state = ZKLOCK_PARTY_UNSETTLED;
		p->list = b->lists + 1;
		delete_node(s, NULL, node);
	}
	else if (!b->list_proven)
	{
		/* a leader that was deposed may hide it, and acknowledges no heartbeat */
		p->state = ZKLOCK_PARTY_UNSETTLED;
		b->await_tick = true;
	}
	else if (p->gap)
		end_party(p, ZKLOCK_PARTY_DOUBT);
	else if (leaves(p))
		end_party(p, ZKLOCK_PARTY_LEFT);
	else
		p->state = ZKLOCK_PARTY_WANTED;
}

/* Does the node count?  A node of ours that is about to leave does not. */
static bool
counts(const Step *s, const ZkPartyNode *node)
{
	const ZkParty *p;

	if (node->session != s->b->session)
		return true;
	p = find_party(s, node->id);
	return p != NULL && p->state == ZKLOCK_PARTY_THERE && !leaves(p);
}

/* The first party's number is the barrier's. */
static void
judge(ZkParty *p, const ZkBarrierEvent *event)
{
	const ZkPartyNode *first = NULL;

	for (int i = 0; i < event->nnodes; i++)
		if (first == NULL || event->nodes[i].sequence < first->sequence)
			first = &event->nodes[i];
	p->judged = true;
	if (first != NULL && first->parties != p->parties)
	{
		p->reason = ZKLOCK_PARTY_NUMBERS;
		p->other = first->parties;
	}
}

/* Add a node to those that the round lets go: the lowest sequence numbers. */
static void
add_member(ZkBarrier *b, const ZkPartyNode *node, int max)
{
	int at;

	for (at = b->nmembers; at > 0 && b->member[at - 1].sequence > node->sequence;)
		at--;
	if (at == max)
		return;
	if (b->nmembers == max)
		b->nmembers--;
	memmove(&b->member[at + 1], &b->member[at],
			sizeof(b->member[0]) * (size_t) (b->nmembers - at));
	b->member[at] = *node;
	b->nmembers++;
}

/* Open a round for this party's number, if it is full. */
static bool
try_open(Step *s, const ZkParty *p, const ZkBarrierEvent *event)
{
	ZkBarrier *b = s->b;
	ZkBarrierAction action = {.type = ZKLOCK_BARRIER_OPEN};

	b->nmembers = 0;
	for (int i = 0; i < event->nnodes; i++)
		if (event->nodes[i].parties == p->parties && counts(s, &event->nodes[i]))
			add_member(b, &event->nodes[i], p->parties);
	if (b->nmembers < p->parties)
		return false;
	action.version = b->version;
	action.data = b->next;
	action.datalen = zklock_barrier_rounds_add(b->text, (size_t) b->len, b->newest + 1,
											   b->member, b->nmembers, b->next);
	action.nodes = b->member;
	action.nnodes = b->nmembers;
	b->opening = true;
	s->send(s->arg, &action);
	return true;
}

static void
on_listed(Step *s, const ZkBarrierEvent *event)
{
	ZkBarrier *b = s->b;

	b->listing = false;
	if (event->rc == ZKLOCK_RC_LOST)
		return;
	if (event->rc == ZKLOCK_RC_ERROR)
	{
		refuse(s, event->code);
		return;
	}
	/* it is not of the same moment as the record */
	if (!b->known)
	{
		b->list_wanted = true;
		return;
	}
	foreach_party (p, s)
	{
		if ((p->state == ZKLOCK_PARTY_THERE || p->state == ZKLOCK_PARTY_UNSETTLED) &&
			p->list <= b->lists)
			find_place(s, p, event);
	}
	foreach_party (p, s)
	{
		if (p->state == ZKLOCK_PARTY_THERE && p->list <= b->lists && !p->judged)
			judge(p, event);
	}
	if (b->opening)
	{
		b->list_wanted = true; /* in case that it fails; else it is one too many */
		return;
	}
	foreach_party (p, s)
	{
		if (p->state == ZKLOCK_PARTY_THERE && p->judged && !leaves(p) &&
			try_open(s, p, event))
			break;
	}
}

static void
on_opened(Step *s, const ZkBarrierEvent *event)
{
	ZkBarrier *b = s->b;

	b->opening = false;
	switch (event->rc)
	{
		case ZKLOCK_RC_OK:
			for (int i = 0; i < b->nmembers; i++)
			{
				ZkParty *p = find_party(s, b->member[i].id);

				if (p != NULL)
					end_party(p, ZKLOCK_PARTY_OPENED);
			}
			/* there may be others */
			foreach_party (p, s)
				b->list_wanted |= p->state == ZKLOCK_PARTY_THERE;
			break;
		case ZKLOCK_RC_NO_NODE:
		case ZKLOCK_RC_LOST: /* on a connection that goes on, too */
			b->list_wanted = true;
			break;
		default:
			refuse(s, event->code);
	}
}

/* Checks what must hold after each step. */
static void
check(const Step *s)
{
	const ZkBarrier *b = s->b;

	(void) b;
	assert(b->connected ||
		   (!b->known && !b->reading && !b->listing && !b->making && !b->opening));
	foreach_party (p, s)
	{
		(void) p;
		assert((p->end != ZKLOCK_PARTY_NONE) == (p->state == ZKLOCK_PARTY_OVER));
		assert(!may_have_node(p) || p->tried);
		/* what it waits for is on its way */
		assert(!b->connected || p->state != ZKLOCK_PARTY_WANTED || b->reading ||
			   b->making || b->await_tick);
		assert(!b->connected || p->state != ZKLOCK_PARTY_UNSETTLED || b->listing ||
			   b->reading || b->making || b->await_tick);
	}
}

void
zklock_barrier_init(ZkBarrier *barrier, uint64_t session, bool connected)
{
	memset(barrier, 0, sizeof(*barrier));
	barrier->session = session;
	barrier->connected = connected;
}

void
zklock_barrier_step(ZkBarrier *barrier, ZkParty **party, int n,
					const ZkBarrierEvent *event, ZkBarrierSend send, void *arg)
{
	Step s = {.b = barrier, .party = party, .n = n, .send = send, .arg = arg};

	barrier->session = event->session;
	switch (event->type)
	{
		case ZKLOCK_BARRIER_NEED:
			break;
		case ZKLOCK_BARRIER_CONNECTED:
			on_connected(&s, false);
			break;
		case ZKLOCK_BARRIER_RESUMED:
			on_connected(&s, true);
			break;
		case ZKLOCK_BARRIER_DISCONNECTED:
			end_connection(barrier);
			break;
		case ZKLOCK_BARRIER_SESSION_LOST:
			on_session_lost(&s);
			break;
		case ZKLOCK_BARRIER_TICK:
			on_tick(&s);
			break;
		case ZKLOCK_BARRIER_MADE_DIR:
			on_made_dir(&s, event);
			break;
		case ZKLOCK_BARRIER_READ:
			on_read(&s, event);
			break;
		case ZKLOCK_BARRIER_LISTED:
			on_listed(&s, event);
			break;
		case ZKLOCK_BARRIER_CREATED:
			on_created(&s, event);
			break;
		case ZKLOCK_BARRIER_DELETED:
			on_deleted(&s, event);
			break;
		case ZKLOCK_BARRIER_OPENED:
			on_opened(&s, event);
			break;
		case ZKLOCK_BARRIER_CHANGED:
			forget_record(barrier);
			break;
	}
	decide(&s);
	check(&s);
}
