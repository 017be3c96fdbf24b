/* sql/zklock--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION zklock" to load this file. \quit

-- Functions with arguments are not STRICT, since NULL would look like an answer: they raise
-- an error for it.  It is allowed where it is the default, in zk_rows, which the views call,
-- and in zk_blocking: a pid in zk_locks may be NULL, and a join with it has no rows.
CREATE FUNCTION zk_lock(name text, mode text DEFAULT 'exclusive', scope text DEFAULT 'transaction')
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_lock'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock(text, text, text) IS
'acquire a distributed lock, waiting if necessary, and return its fencing token';

CREATE FUNCTION zk_try_lock(name text, mode text DEFAULT 'exclusive', scope text DEFAULT 'transaction', timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_lock'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_try_lock(text, text, text, interval) IS
'acquire a distributed lock if it is or becomes available within the timeout';

CREATE FUNCTION zk_lock_all(VARIADIC names text[])
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'zk_lock_all'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_all(text[]) IS
'acquire several distributed locks in one step, all or none, and return their fencing tokens';

-- The mode has no default: with one, a call with VARIADIC would fit both functions.
CREATE FUNCTION zk_lock_all(names text[], mode text, scope text DEFAULT 'transaction')
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'zk_lock_all'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_all(text[], text, text) IS
'acquire several distributed locks in one step, all or none, and return their fencing tokens';

CREATE FUNCTION zk_try_lock_all(names text[], mode text DEFAULT 'exclusive', scope text DEFAULT 'transaction', timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_lock_all'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_try_lock_all(text[], text, text, interval) IS
'acquire several distributed locks in one step, all or none, if all are or become available within the timeout';

CREATE FUNCTION zk_unlock(name text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_unlock(text) IS
'release the newest session-scope hold of a distributed lock';

CREATE FUNCTION zk_unlock_all()
RETURNS integer
AS 'MODULE_PATHNAME', 'zk_unlock_all'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_unlock_all() IS
'release all session-scope holds of distributed locks and permits, and return their number';

CREATE FUNCTION zk_token(name text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_token'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_token(text) IS
'fencing token of the distributed lock that this session holds, or null';

CREATE FUNCTION zk_assert(name text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_assert'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_assert(text) IS
'verify with a majority of the ZooKeeper servers that this session holds the lock, and return its fencing token';

CREATE PROCEDURE zk_lock_session(name text, mode text DEFAULT 'exclusive', timeout interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zk_lock_session'
LANGUAGE C;

COMMENT ON PROCEDURE zk_lock_session(text, text, interval) IS
'acquire a distributed lock in session scope, waiting without a snapshot';

CREATE FUNCTION zk_acquire(name text, permits integer, scope text DEFAULT 'transaction')
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_acquire(text, integer, text) IS
'acquire a permit of a semaphore, waiting if necessary, and return its fencing token';

CREATE FUNCTION zk_try_acquire(name text, permits integer, scope text DEFAULT 'transaction', timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_try_acquire(text, integer, text, interval) IS
'acquire a permit of a semaphore if one is or becomes free within the timeout';

CREATE FUNCTION zk_permit(name text)
RETURNS integer
AS 'MODULE_PATHNAME', 'zk_permit'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_permit(text) IS
'number of the permit that this session holds; no other session holds the same number';

CREATE FUNCTION zk_release(name text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_release(text) IS
'release the newest session-scope hold of a permit';

CREATE FUNCTION zk_assert_permit(name text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_assert_permit'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_assert_permit(text) IS
'verify with a majority of the ZooKeeper servers that this session holds a permit, and return its fencing token';

CREATE FUNCTION zk_rows(view text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_rows'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_rows(text) IS
'rows of a zklock view; needs the right to SELECT from that view';

CREATE VIEW zk_locks AS
    SELECT * FROM zk_rows('zk_locks') AS (
        name text,
        mode text,
        scope text,
        granted boolean,
        grant_state text,
        count bigint,
        token bigint,
        lease_remaining interval,
        wait_start timestamptz,
        held_since timestamptz,
        pid integer,
        datname text,
        usename text,
        application_name text,
        blocked_by integer[],
        classid oid,
        objid oid,
        objsubid smallint,
        kind text,
        permits integer);

COMMENT ON VIEW zk_locks IS
'distributed locks and permits that this server holds, caches or waits for';
COMMENT ON COLUMN zk_locks.name IS 'name of the lock or semaphore';
COMMENT ON COLUMN zk_locks.mode IS 'exclusive or shared; null for a permit';
COMMENT ON COLUMN zk_locks.scope IS 'transaction or session; null if no session holds the lock (kept)';
COMMENT ON COLUMN zk_locks.granted IS 'true if the session holds the lock, false if it waits';
COMMENT ON COLUMN zk_locks.grant_state IS 'waiting (for a session of this server), queued (in ZooKeeper), held, demanded (another server waits), releasing, lost, or kept (cached, no session holds it)';
COMMENT ON COLUMN zk_locks.count IS 'number of holds; null while the session waits, and if kept';
COMMENT ON COLUMN zk_locks.token IS 'fencing token; null while the session waits, and if the lock is lost';
COMMENT ON COLUMN zk_locks.lease_remaining IS 'time for which the lock is safe if ZooKeeper does not answer any more';
COMMENT ON COLUMN zk_locks.wait_start IS 'time when the session began to wait; null once the lock is granted';
COMMENT ON COLUMN zk_locks.held_since IS 'time when the session acquired the lock in this mode; null while it waits, and if kept';
COMMENT ON COLUMN zk_locks.pid IS 'process ID of the session; null if kept';
COMMENT ON COLUMN zk_locks.datname IS 'database of the session';
COMMENT ON COLUMN zk_locks.usename IS 'role of the session';
COMMENT ON COLUMN zk_locks.application_name IS 'application_name of the session';
COMMENT ON COLUMN zk_locks.blocked_by IS 'process IDs of the sessions of this server that must release the lock first';
COMMENT ON COLUMN zk_locks.classid IS 'same as in pg_locks, to join with it';
COMMENT ON COLUMN zk_locks.objid IS 'same as in pg_locks, to join with it';
COMMENT ON COLUMN zk_locks.objsubid IS 'same as in pg_locks, to join with it';
COMMENT ON COLUMN zk_locks.kind IS 'lock or semaphore';
COMMENT ON COLUMN zk_locks.permits IS 'number of permits of the semaphore that the session named; null for a lock';

CREATE VIEW zk_session AS
    SELECT * FROM zk_rows('zk_session') AS (
        state text,
        connected_to text,
        session_id text,
        session_timeout interval,
        last_error text,
        last_error_time timestamptz,
        worker_pid integer,
        hosts text,
        library text,
        lease_remaining interval,
        write_latency interval,
        read_latency interval,
        session_uptime interval,
        worker_uptime interval,
        reconnects bigint,
        expiries bigint,
        in_flight integer,
        names integer,
        max_names integer,
        locks integer,
        kept integer,
        drain text);

COMMENT ON VIEW zk_session IS
'state of the ZooKeeper session of this server';
COMMENT ON COLUMN zk_session.state IS 'connected, connecting, reconnecting, authentication failed, went back, closing, or no worker';
COMMENT ON COLUMN zk_session.connected_to IS 'address of the ZooKeeper server that this server is connected to';
COMMENT ON COLUMN zk_session.session_id IS 'ID of the ZooKeeper session';
COMMENT ON COLUMN zk_session.session_timeout IS 'session timeout that ZooKeeper granted; the shortest one since the session began';
COMMENT ON COLUMN zk_session.last_error IS 'newest error of the connection; it may be over';
COMMENT ON COLUMN zk_session.last_error_time IS 'time of last_error';
COMMENT ON COLUMN zk_session.worker_pid IS 'process ID of the zklock worker, which owns the ZooKeeper session';
COMMENT ON COLUMN zk_session.hosts IS 'connect string in use';
COMMENT ON COLUMN zk_session.library IS 'name and version of the ZooKeeper client library';
COMMENT ON COLUMN zk_session.lease_remaining IS 'time for which the locks are safe if ZooKeeper does not answer any more';
COMMENT ON COLUMN zk_session.write_latency IS 'time that ZooKeeper took to acknowledge the newest write';
COMMENT ON COLUMN zk_session.read_latency IS 'time that ZooKeeper took to answer the newest read';
COMMENT ON COLUMN zk_session.session_uptime IS 'age of the ZooKeeper session';
COMMENT ON COLUMN zk_session.worker_uptime IS 'age of the zklock worker';
COMMENT ON COLUMN zk_session.reconnects IS 'number of times that this server reconnected and kept its ZooKeeper session, since the server start';
COMMENT ON COLUMN zk_session.expiries IS 'number of ZooKeeper sessions that expired, since the server start';
COMMENT ON COLUMN zk_session.in_flight IS 'number of requests that ZooKeeper has not answered yet';
COMMENT ON COLUMN zk_session.names IS 'number of names in the lock table';
COMMENT ON COLUMN zk_session.max_names IS 'size of the lock table, in names';
COMMENT ON COLUMN zk_session.locks IS 'number of locks that sessions hold or wait for, counted once for each session, name and mode';
COMMENT ON COLUMN zk_session.kept IS 'number of cached locks that no session holds';
COMMENT ON COLUMN zk_session.drain IS 'off, draining, or drained (the server holds nothing and can be stopped)';

CREATE VIEW zk_servers AS
    SELECT * FROM zk_rows('zk_servers') AS (
        server text,
        host text,
        postmaster_pid integer,
        zklock_version text,
        postgres_version text,
        since timestamptz,
        heartbeat timestamptz,
        elections integer,
        jobs integer,
        drain text,
        ours boolean,
        session_id text,
        node text);

COMMENT ON VIEW zk_servers IS
'all servers with zklock, as registered in ZooKeeper';
COMMENT ON COLUMN zk_servers.server IS 'name of the server';
COMMENT ON COLUMN zk_servers.host IS 'name of the machine';
COMMENT ON COLUMN zk_servers.postmaster_pid IS 'process ID of the postmaster';
COMMENT ON COLUMN zk_servers.zklock_version IS 'version of the zklock library that the server has loaded';
COMMENT ON COLUMN zk_servers.postgres_version IS 'version of PostgreSQL';
COMMENT ON COLUMN zk_servers.since IS 'time when the server registered';
COMMENT ON COLUMN zk_servers.heartbeat IS 'time of the newest heartbeat, by the clock of ZooKeeper';
COMMENT ON COLUMN zk_servers.elections IS 'number of elections that the server leads';
COMMENT ON COLUMN zk_servers.jobs IS 'number of jobs that the server runs';
COMMENT ON COLUMN zk_servers.drain IS 'off, draining, or drained (the server holds nothing and can be stopped)';
COMMENT ON COLUMN zk_servers.ours IS 'true for this server';
COMMENT ON COLUMN zk_servers.session_id IS 'ID of the ZooKeeper session of the server';
COMMENT ON COLUMN zk_servers.node IS 'name of the znode';

CREATE FUNCTION zk_contenders(
    name text,
    OUT kind text,
    OUT "position" integer,
    OUT server text,
    OUT mode text,
    OUT granted boolean,
    OUT token bigint,
    OUT session_id text,
    OUT ours boolean,
    OUT since timestamptz,
    OUT state text,
    OUT pid integer,
    OUT datname text,
    OUT usename text,
    OUT application_name text,
    OUT state_since timestamptz,
    OUT as_of timestamptz,
    OUT data text,
    OUT node text,
    OUT permits integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_contenders'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_contenders(text) IS
'holders and waiters of a lock or semaphore on all servers, in the order of the queue in ZooKeeper';

CREATE FUNCTION zk_blocking(
    OUT step integer,
    OUT server text,
    INOUT pid integer,
    OUT datname text,
    OUT usename text,
    OUT application_name text,
    OUT query_start timestamptz,
    OUT waits_for text,
    OUT as_of timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_blocking'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_blocking(integer) IS
'chain of sessions, across servers, that block a session of this server; the last row is the session that blocks all';

CREATE VIEW zk_waits AS
    SELECT * FROM zk_rows('zk_waits') AS (
        kind text,
        name text,
        mode text,
        server text,
        pid integer,
        datname text,
        usename text,
        application_name text,
        wait_start timestamptz,
        as_of timestamptz,
        root_server text,
        root_pid integer,
        root_application_name text,
        root_query_start timestamptz,
        root_waits_for text,
        steps integer);

COMMENT ON VIEW zk_waits IS
'waits of more than a second on all servers for locks, permits and jobs, and on this server for room in a queue and for jobs that are to be done before, with the session that each waits for in the end';
COMMENT ON COLUMN zk_waits.kind IS 'lock, job, semaphore, or queue (the session waits to put an item)';
COMMENT ON COLUMN zk_waits.name IS 'name of the lock, job, semaphore or queue; of a call that waits until another job is done, that job';
COMMENT ON COLUMN zk_waits.mode IS 'exclusive or shared; null for a queue';
COMMENT ON COLUMN zk_waits.server IS 'server of the waiting session; null for another program';
COMMENT ON COLUMN zk_waits.pid IS 'process ID of the waiting session; null if its server does not report it';
COMMENT ON COLUMN zk_waits.datname IS 'database of the waiting session';
COMMENT ON COLUMN zk_waits.usename IS 'role of the waiting session';
COMMENT ON COLUMN zk_waits.application_name IS 'application_name of the waiting session';
COMMENT ON COLUMN zk_waits.wait_start IS 'time when the wait began';
COMMENT ON COLUMN zk_waits.as_of IS 'time of the report from the server of the waiting session';
COMMENT ON COLUMN zk_waits.root_server IS 'server of the session at the end of the chain, which blocks the others; null for another program';
COMMENT ON COLUMN zk_waits.root_pid IS 'process ID of that session; null if its server does not report it';
COMMENT ON COLUMN zk_waits.root_application_name IS 'application_name of that session';
COMMENT ON COLUMN zk_waits.root_query_start IS 'time when its current or last statement began';
COMMENT ON COLUMN zk_waits.root_waits_for IS 'what that session waits for, for example its client';
COMMENT ON COLUMN zk_waits.steps IS 'number of steps from the waiting session to the end of the chain';

CREATE FUNCTION zk_lock_dirs(
    prefix text DEFAULT '',
    OUT kind text,
    OUT name text,
    OUT contenders integer,
    OUT waiting integer,
    OUT oldest_waiter timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_lock_dirs'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_dirs(text) IS
'names of locks and semaphores that have holders or waiters on any server';

CREATE FUNCTION zk_break(name text, token bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_break'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_break(text, bigint) IS
'remove the holder or waiter with this fencing token from the queue of a lock or semaphore';

CREATE FUNCTION zk_raise_tokens(above bigint)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_raise_tokens'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_raise_tokens(bigint) IS
'raise the fencing tokens of all servers above a number, and return the new base';

CREATE VIEW zk_stat AS
    SELECT * FROM zk_rows('zk_stat') AS (
        acquired_local bigint,
        acquired_kept bigint,
        acquired_cold bigint,
        waits bigint,
        total_wait interval,
        longest_wait interval,
        total_hold interval,
        longest_hold interval,
        timeouts bigint,
        cancels bigint,
        deadlocks bigint,
        failures bigint,
        losses bigint,
        demands bigint,
        handovers bigint,
        items_put bigint,
        items_taken bigint,
        items_returned bigint,
        items_lost bigint,
        stats_reset timestamptz);

COMMENT ON VIEW zk_stat IS
'statistics of distributed locks and work queues on this server';
COMMENT ON COLUMN zk_stat.acquired_local IS 'acquisitions by a session that already held the lock';
COMMENT ON COLUMN zk_stat.acquired_kept IS 'acquisitions without a request to ZooKeeper';
COMMENT ON COLUMN zk_stat.acquired_cold IS 'acquisitions with a request to ZooKeeper';
COMMENT ON COLUMN zk_stat.waits IS 'calls that had to wait for another session';
COMMENT ON COLUMN zk_stat.total_wait IS 'total time of the calls that had to wait';
COMMENT ON COLUMN zk_stat.longest_wait IS 'time of the longest of these calls';
COMMENT ON COLUMN zk_stat.total_hold IS 'total time for which sessions held locks, counted when a hold ends';
COMMENT ON COLUMN zk_stat.longest_hold IS 'time of the longest of these holds';
COMMENT ON COLUMN zk_stat.timeouts IS 'calls that ended by their timeout';
COMMENT ON COLUMN zk_stat.cancels IS 'calls that were canceled or terminated';
COMMENT ON COLUMN zk_stat.deadlocks IS 'calls that failed because of a deadlock';
COMMENT ON COLUMN zk_stat.failures IS 'calls that failed with another error';
COMMENT ON COLUMN zk_stat.losses IS 'holds whose lock was lost';
COMMENT ON COLUMN zk_stat.demands IS 'locks of this server that other servers asked for';
COMMENT ON COLUMN zk_stat.handovers IS 'locks that this server got from other servers after a wait';
COMMENT ON COLUMN zk_stat.items_put IS 'items put into queues';
COMMENT ON COLUMN zk_stat.items_taken IS 'items taken from queues';
COMMENT ON COLUMN zk_stat.items_returned IS 'items given back by a rollback';
COMMENT ON COLUMN zk_stat.items_lost IS 'items lost while transactions held them';
COMMENT ON COLUMN zk_stat.stats_reset IS 'time of the last reset of these statistics';

CREATE VIEW zk_stat_locks AS
    SELECT * FROM zk_rows('zk_stat_locks') AS (
        name text,
        acquired_local bigint,
        acquired_kept bigint,
        acquired_cold bigint,
        waits bigint,
        total_wait interval,
        longest_wait interval,
        total_hold interval,
        longest_hold interval,
        timeouts bigint,
        cancels bigint,
        deadlocks bigint,
        failures bigint,
        losses bigint,
        demands bigint,
        handovers bigint,
        last_call timestamptz,
        kind text);

COMMENT ON VIEW zk_stat_locks IS
'statistics of the most recently used locks and semaphores on this server';
COMMENT ON COLUMN zk_stat_locks.name IS 'name of the lock or semaphore';
COMMENT ON COLUMN zk_stat_locks.acquired_local IS 'acquisitions by a session that already held the lock';
COMMENT ON COLUMN zk_stat_locks.acquired_kept IS 'acquisitions without a request to ZooKeeper';
COMMENT ON COLUMN zk_stat_locks.acquired_cold IS 'acquisitions with a request to ZooKeeper';
COMMENT ON COLUMN zk_stat_locks.waits IS 'calls that had to wait for another session';
COMMENT ON COLUMN zk_stat_locks.total_wait IS 'total time of the calls that had to wait';
COMMENT ON COLUMN zk_stat_locks.longest_wait IS 'time of the longest of these calls';
COMMENT ON COLUMN zk_stat_locks.total_hold IS 'total time for which sessions held locks, counted when a hold ends';
COMMENT ON COLUMN zk_stat_locks.longest_hold IS 'time of the longest of these holds';
COMMENT ON COLUMN zk_stat_locks.timeouts IS 'calls that ended by their timeout';
COMMENT ON COLUMN zk_stat_locks.cancels IS 'calls that were canceled or terminated';
COMMENT ON COLUMN zk_stat_locks.deadlocks IS 'calls that failed because of a deadlock';
COMMENT ON COLUMN zk_stat_locks.failures IS 'calls that failed with another error';
COMMENT ON COLUMN zk_stat_locks.losses IS 'holds whose lock was lost';
COMMENT ON COLUMN zk_stat_locks.demands IS 'locks of this server that other servers asked for';
COMMENT ON COLUMN zk_stat_locks.handovers IS 'locks that this server got from other servers after a wait';
COMMENT ON COLUMN zk_stat_locks.last_call IS 'time when a call last acquired the lock, or failed';
COMMENT ON COLUMN zk_stat_locks.kind IS 'lock or semaphore';

CREATE FUNCTION zk_stat_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_stat_reset'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_stat_reset() IS
'reset the statistics of zklock on this server to zero';

CREATE FUNCTION zk_is_leader(election text, timeout interval DEFAULT '2 s')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_is_leader'
LANGUAGE C VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION zk_is_leader(text, interval) IS
'true if this server leads the election; the first call makes the server a candidate';

CREATE FUNCTION zk_require_leader(election text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_require_leader'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_require_leader(text) IS
'fail unless this server leads the election until the end of the transaction, and return the fencing token';

CREATE PROCEDURE zk_run_as_leader(election text, command text)
AS 'MODULE_PATHNAME', 'zk_run_as_leader'
LANGUAGE C;

COMMENT ON PROCEDURE zk_run_as_leader(text, text) IS
'run a command if this server leads the election until the end of the transaction';

CREATE FUNCTION zk_resign(election text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_resign'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_resign(text) IS
'withdraw this server from the election';

-- Stable, so that a query of zk_elections that needs neither leader nor candidates does not
-- ask ZooKeeper.
CREATE FUNCTION zk_candidates(
    election text,
    OUT server text,
    OUT is_leader boolean,
    OUT priority integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_candidates'
LANGUAGE C STABLE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_candidates(text) IS
'candidates of the election on all servers in their order, the leader first';

-- An aggregate has one row, so the planner leaves out a join with it that no column needs.
CREATE VIEW zk_elections AS
    SELECT e.election, e.is_leader, c.servers[1] AS leader, c.servers AS candidates,
        e.token, e.since, e.changes, e.last_asked
    FROM zk_rows('zk_elections') AS e (
        election text,
        is_leader boolean,
        token bigint,
        since timestamptz,
        changes bigint,
        last_asked timestamptz)
        LEFT JOIN LATERAL (
            SELECT coalesce(array_agg(server), '{}') AS servers FROM zk_candidates(e.election)) c ON true;

COMMENT ON VIEW zk_elections IS
'elections in which this server is a candidate';
COMMENT ON COLUMN zk_elections.election IS 'name of the election';
COMMENT ON COLUMN zk_elections.is_leader IS 'true if this server leads';
COMMENT ON COLUMN zk_elections.leader IS 'server that leads; selecting this column asks ZooKeeper';
COMMENT ON COLUMN zk_elections.candidates IS 'servers of all candidates in their order; selecting this column asks ZooKeeper';
COMMENT ON COLUMN zk_elections.token IS 'fencing token if this server leads, else null';
COMMENT ON COLUMN zk_elections.since IS 'time when is_leader last changed, or when this server became a candidate';
COMMENT ON COLUMN zk_elections.changes IS 'number of changes of is_leader';
COMMENT ON COLUMN zk_elections.last_asked IS 'time, to about a second, when a session of this server last asked whether it leads; null if none has';

CREATE FUNCTION zk_fence_guarded()
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_fence_guarded'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_fence_guarded() IS
'check constraint of zk_fences: replication cannot bypass its trigger';

CREATE TABLE zk_fences (
    namespace text,
    resource text,
    token bigint NOT NULL,
    PRIMARY KEY (namespace, resource),
    CONSTRAINT zk_fences_guarded CHECK (zk_fence_guarded()))
USING heap;

COMMENT ON TABLE zk_fences IS
'largest fencing token that zk_fence has seen for each resource';
COMMENT ON COLUMN zk_fences.namespace IS 'zklock.namespace of the caller, or empty';
COMMENT ON COLUMN zk_fences.resource IS 'name of the resource, as given to zk_fence';
COMMENT ON COLUMN zk_fences.token IS 'largest fencing token seen';

SELECT pg_catalog.pg_extension_config_dump('zk_fences', '');

CREATE FUNCTION zk_fence(resource text, token bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_fence'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_fence(text, bigint) IS
'fail if a fencing token is smaller than the largest one seen for the resource in this database';

CREATE FUNCTION zk_fence_replicated()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_fence_replicated'
LANGUAGE C;

COMMENT ON FUNCTION zk_fence_replicated() IS
'trigger of zk_fences: logical replication can raise a token, but not lower or delete it';

CREATE TRIGGER zk_fences_replicated BEFORE INSERT OR UPDATE OR DELETE ON zk_fences
    FOR EACH ROW EXECUTE FUNCTION zk_fence_replicated();
ALTER TABLE zk_fences ENABLE REPLICA TRIGGER zk_fences_replicated;

-- CREATE TRIGGER lets everybody make it who may put triggers on the table.  zk_fence_table asks
-- for the owner: to refuse writes is for the owner to decide.
CREATE FUNCTION zk_fence_required()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_fence_required'
LANGUAGE C;

COMMENT ON FUNCTION zk_fence_required() IS
'trigger of zk_fence_table: refuse writes of a transaction that neither holds the lock nor has shown its fencing token';

CREATE FUNCTION zk_fence_table(relation regclass, resource text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    what pg_class;
    schema name;
    events text := 'INSERT OR UPDATE OR DELETE';
    required text;
BEGIN
    IF relation IS NULL OR resource IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be null', CASE WHEN relation IS NULL THEN 'relation' ELSE 'resource name' END);
    ELSIF octet_length(resource) NOT BETWEEN 1 AND 1000 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'resource name must have 1 to 1000 bytes';
    END IF;
    SELECT * INTO STRICT what FROM pg_class WHERE oid = relation;
    IF NOT pg_has_role(what.relowner, 'USAGE') THEN
        RAISE insufficient_privilege USING MESSAGE = format('must be owner of table %s', what.relname);
    ELSIF what.relkind NOT IN ('r', 'p') THEN
        RAISE wrong_object_type USING MESSAGE = format('"%s" is not a table', what.relname);
    END IF;
    SELECT n.nspname INTO STRICT schema
      FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'zklock';
    required := format('EXECUTE FUNCTION %I.zk_fence_required(%L, %L)',
        schema, resource, coalesce(current_setting('zklock.namespace', true), ''));
    EXECUTE format('CREATE TRIGGER zk_fence BEFORE %s OR TRUNCATE ON %s %s', events, relation, required);
    IF what.relkind = 'p' AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = relation AND tgname = 'zk_fence_rows') THEN
        -- partitions get this one, those to come, too: who writes into one by its own name
        EXECUTE format('CREATE TRIGGER zk_fence_rows BEFORE %s ON %s FOR EACH ROW %s', events, relation, required);
    END IF;
END $$;

COMMENT ON FUNCTION zk_fence_table(regclass, text) IS
'refuse writes to a table by transactions that neither hold the lock of this name nor have shown its fencing token by zk_fence';

CREATE TABLE zk_runs (
    kind text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    slot timestamptz,
    number bigint,
    attempt integer,
    token bigint NOT NULL,
    server text NOT NULL,
    started timestamptz NOT NULL,
    ended timestamptz NOT NULL,
    outcome text NOT NULL,
    error text)
USING heap;

CREATE INDEX zk_runs_slot ON zk_runs (kind, namespace, name, slot);
CREATE INDEX zk_runs_ended ON zk_runs (ended);
-- no columns tell all runs apart: those of elections have no number
ALTER TABLE zk_runs REPLICA IDENTITY FULL;

COMMENT ON TABLE zk_runs IS
'runs of jobs, and of commands by zk_run_as_leader, in this database';
COMMENT ON COLUMN zk_runs.kind IS 'job or election';
COMMENT ON COLUMN zk_runs.namespace IS 'zklock.namespace of the job, or empty';
COMMENT ON COLUMN zk_runs.name IS 'name of the job or election';
COMMENT ON COLUMN zk_runs.slot IS 'time slot of the run; null for an election';
COMMENT ON COLUMN zk_runs.number IS 'number of the run among all runs of the job';
COMMENT ON COLUMN zk_runs.attempt IS 'number of the attempt for this slot, from 1';
COMMENT ON COLUMN zk_runs.token IS 'fencing token of the job or the leadership';
COMMENT ON COLUMN zk_runs.server IS 'name of the server that ran the command';
COMMENT ON COLUMN zk_runs.started IS 'time when the run began, by the clock of the server';
COMMENT ON COLUMN zk_runs.ended IS 'time when the run ended';
COMMENT ON COLUMN zk_runs.outcome IS 'done (committed) or failed';
COMMENT ON COLUMN zk_runs.error IS 'first line of the error message';

SELECT pg_catalog.pg_extension_config_dump('zk_runs', '');

CREATE PROCEDURE zk_run_once(job text, command text, every interval DEFAULT NULL, slot timestamptz DEFAULT NULL,
    timeout interval DEFAULT NULL, attempts integer DEFAULT 1, in_doubt text DEFAULT 'run',
    origin timestamptz DEFAULT '2000-01-03 00:00:00+00', after text[] DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zk_run_once'
LANGUAGE C;

COMMENT ON PROCEDURE zk_run_once(text, text, interval, timestamptz, interval, integer, text, timestamptz, text[]) IS
'run a command exactly once for each time slot, on the server that calls first';

CREATE FUNCTION zk_run_begin(job text, every interval DEFAULT NULL, slot timestamptz DEFAULT NULL,
    timeout interval DEFAULT NULL, attempts integer DEFAULT 1, in_doubt text DEFAULT 'run',
    origin timestamptz DEFAULT '2000-01-03 00:00:00+00', after text[] DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_run_begin'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_run_begin(text, interval, timestamptz, interval, integer, text, timestamptz, text[]) IS
'true if this session is to run the job for the slot; it then holds the job until zk_run_end';

CREATE PROCEDURE zk_run_begin_session(job text, every interval DEFAULT NULL, slot timestamptz DEFAULT NULL,
    timeout interval DEFAULT NULL, attempts integer DEFAULT 1, in_doubt text DEFAULT 'run',
    origin timestamptz DEFAULT '2000-01-03 00:00:00+00', after text[] DEFAULT NULL, INOUT due boolean DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zk_run_begin_session'
LANGUAGE C;

COMMENT ON PROCEDURE zk_run_begin_session(text, interval, timestamptz, interval, integer, text, timestamptz, text[], boolean) IS
'the same as zk_run_begin, waiting without a snapshot';

CREATE FUNCTION zk_run_end(job text, ok boolean DEFAULT true)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_run_end'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_run_end(text, boolean) IS
'record that the run that this session began is done or has failed';

CREATE FUNCTION zk_job_reset(job text, slot timestamptz DEFAULT NULL, attempt integer DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_job_reset'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_job_reset(text, timestamptz, integer) IS
'make a slot of a job due again, with all its attempts; by default the failed slot, else the last one that is done';

CREATE FUNCTION zk_job_forget(job text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_job_forget'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_job_forget(text) IS
'delete the record of all runs of a job';

CREATE FUNCTION zk_job_pause(job text, until timestamptz DEFAULT 'infinity')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_job_pause'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_job_pause(text, timestamptz) IS
'let no server begin a run of a job until the given time';

CREATE FUNCTION zk_job_resume(job text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_job_resume'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_job_resume(text) IS
'end the pause of a job';

CREATE VIEW zk_jobs AS
    SELECT * FROM zk_rows('zk_jobs') AS (
        job text,
        slot timestamptz,
        state text,
        server text,
        since timestamptz,
        duration interval,
        attempt integer,
        failures integer,
        error text,
        last_done timestamptz,
        next_due timestamptz,
        paused_until timestamptz,
        runs jsonb);

COMMENT ON VIEW zk_jobs IS
'jobs of all servers and their newest runs, as recorded in ZooKeeper';
COMMENT ON COLUMN zk_jobs.job IS 'name of the job';
COMMENT ON COLUMN zk_jobs.slot IS 'time slot of the newest run';
COMMENT ON COLUMN zk_jobs.state IS 'state of the newest run: running, done, failed, lost, skipped, or in doubt; damaged or newer version if the record cannot be read';
COMMENT ON COLUMN zk_jobs.server IS 'name of the server of that run';
COMMENT ON COLUMN zk_jobs.since IS 'time when that run began';
COMMENT ON COLUMN zk_jobs.duration IS 'duration of that run, so far if it is running';
COMMENT ON COLUMN zk_jobs.attempt IS 'number of the attempt for that slot, from 1';
COMMENT ON COLUMN zk_jobs.failures IS 'number of failed attempts for that slot';
COMMENT ON COLUMN zk_jobs.error IS 'first line of the error message of that run';
COMMENT ON COLUMN zk_jobs.last_done IS 'latest slot that is done';
COMMENT ON COLUMN zk_jobs.next_due IS 'start of the slot after last_done; null if the job has no interval';
COMMENT ON COLUMN zk_jobs.paused_until IS 'time until which no run begins; null if the job is not paused';
COMMENT ON COLUMN zk_jobs.runs IS 'the newest runs, at most 16';

CREATE FUNCTION zk_queue_put(queue text, payload text)
RETURNS uuid
AS 'MODULE_PATHNAME', 'zk_queue_put'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_queue_put(text, text) IS
'put an item into a queue at the commit, and return its id';

CREATE FUNCTION zk_queue_take(
    queue text,
    timeout interval DEFAULT '0',
    count integer DEFAULT 1,
    attempts integer DEFAULT NULL,
    OUT id uuid,
    OUT payload text,
    OUT attempt integer,
    OUT since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_queue_take'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;

COMMENT ON FUNCTION zk_queue_take(text, interval, integer, integer) IS
'take the oldest free items of a queue; a commit deletes them, a rollback gives them back';

CREATE FUNCTION zk_queue_purge(queue text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_queue_purge'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_queue_purge(text) IS
'delete all items of a queue that no transaction holds, and return their number';

CREATE VIEW zk_queues AS
    SELECT * FROM zk_rows('zk_queues') AS (
        queue text,
        length bigint,
        held bigint,
        putting bigint,
        oldest timestamptz);

COMMENT ON VIEW zk_queues IS
'work queues of all servers, as recorded in ZooKeeper';
COMMENT ON COLUMN zk_queues.queue IS 'name of the queue';
COMMENT ON COLUMN zk_queues.length IS 'number of items, including those that transactions hold';
COMMENT ON COLUMN zk_queues.held IS 'number of items that transactions hold';
COMMENT ON COLUMN zk_queues.putting IS 'number of batches of items whose transaction is committing, or whose outcome is not known yet';
COMMENT ON COLUMN zk_queues.oldest IS 'time when the oldest item was put';

CREATE VIEW zk_queue_items AS
    SELECT * FROM zk_rows('zk_queue_items') AS (
        queue text,
        id uuid,
        state text,
        attempts integer,
        since timestamptz,
        server text,
        pid integer);

COMMENT ON VIEW zk_queue_items IS
'the oldest items of each work queue and the sessions that hold them, as recorded in ZooKeeper';
COMMENT ON COLUMN zk_queue_items.queue IS 'name of the queue';
COMMENT ON COLUMN zk_queue_items.id IS 'the item, as zk_queue_put returned it';
COMMENT ON COLUMN zk_queue_items.state IS 'ready: nobody has it; held: a transaction has it; done: it cannot be deleted, and nobody takes it again';
COMMENT ON COLUMN zk_queue_items.attempts IS 'number of times that the item was taken';
COMMENT ON COLUMN zk_queue_items.since IS 'time when the item was put';
COMMENT ON COLUMN zk_queue_items.server IS 'server of the session that holds the item';
COMMENT ON COLUMN zk_queue_items.pid IS 'process ID of the session that holds the item';

-- A lock stands in the way of everybody who asks for it, and so does a large token.
-- A candidacy is the whole server's.  Who holds nothing can do nothing with the others.
REVOKE ALL ON FUNCTION zk_lock_all(text[]), zk_lock_all(text[], text, text), zk_try_lock_all(text[], text, text, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION zk_lock(text, text, text), zk_try_lock(text, text, text, interval),
    zk_assert(text), zk_fence(text, bigint), zk_fence_table(regclass, text), zk_fence_replicated(), zk_is_leader(text, interval),
    zk_require_leader(text), zk_candidates(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION zk_acquire(text, integer, text), zk_try_acquire(text, integer, text, interval),
    zk_permit(text), zk_assert_permit(text) FROM PUBLIC;
REVOKE ALL ON PROCEDURE zk_lock_session(text, text, interval), zk_run_as_leader(text, text) FROM PUBLIC;

-- Like pg_stat_activity, zk_locks itself hides what is nobody else's business.  The
-- id of a ZooKeeper session is enough to end it from elsewhere.
GRANT SELECT ON zk_locks TO PUBLIC;
GRANT EXECUTE ON FUNCTION zk_candidates(text) TO pg_monitor;
GRANT SELECT ON zk_elections TO pg_monitor;
GRANT SELECT ON zk_session TO pg_monitor;

-- It takes the leadership from everybody on the server.
REVOKE ALL ON FUNCTION zk_resign(text) FROM PUBLIC;

-- They show the ids of all ZooKeeper sessions, or names of locks on all servers.
REVOKE ALL ON FUNCTION zk_contenders(text), zk_lock_dirs(text), zk_blocking(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_contenders(text), zk_lock_dirs(text), zk_blocking(integer) TO pg_monitor;
GRANT SELECT ON zk_servers, zk_waits TO pg_monitor;

-- It takes a lock from whoever has it, on any server.
REVOKE ALL ON FUNCTION zk_break(text, bigint) FROM PUBLIC;

-- It ends the ZooKeeper session of every server, and what is raised never comes down.
REVOKE ALL ON FUNCTION zk_raise_tokens(bigint) FROM PUBLIC;

-- Statistics remember names that zk_locks no longer shows.
GRANT SELECT ON zk_stat, zk_stat_locks TO pg_monitor;
REVOKE ALL ON FUNCTION zk_stat_reset() FROM PUBLIC;

-- A run of a job stands in the way of all others, and what is remembered decides which
-- are to come.  Errors of commands may show what the commands know.
REVOKE ALL ON PROCEDURE
    zk_run_once(text, text, interval, timestamptz, interval, integer, text, timestamptz, text[]),
    zk_run_begin_session(text, interval, timestamptz, interval, integer, text, timestamptz, text[], boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION zk_run_begin(text, interval, timestamptz, interval, integer, text, timestamptz, text[]),
    zk_run_end(text, boolean), zk_job_reset(text, timestamptz, integer), zk_job_forget(text),
    zk_job_pause(text, timestamptz), zk_job_resume(text)
    FROM PUBLIC;
GRANT SELECT ON zk_jobs, zk_runs TO pg_monitor;

-- Barriers
CREATE PROCEDURE zk_barrier(name text, parties integer, timeout interval DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zk_barrier'
LANGUAGE C;

COMMENT ON PROCEDURE zk_barrier(text, integer, interval) IS
'wait until the given number of sessions on all servers have reached the barrier, without a snapshot';

CREATE VIEW zk_barriers AS
    SELECT * FROM zk_rows('zk_barriers') AS (
        name text,
        parties integer,
        arrived integer,
        server text,
        pid integer,
        since timestamptz,
        ours boolean,
        session_id text,
        node text);

COMMENT ON VIEW zk_barriers IS
'sessions on all servers that wait at a barrier, as recorded in ZooKeeper';
COMMENT ON COLUMN zk_barriers.name IS 'name of the barrier';
COMMENT ON COLUMN zk_barriers.parties IS 'number of sessions that this session waits for, including itself';
COMMENT ON COLUMN zk_barriers.arrived IS 'number of sessions that wait for the same number';
COMMENT ON COLUMN zk_barriers.server IS 'server of the session';
COMMENT ON COLUMN zk_barriers.pid IS 'process ID of the session';
COMMENT ON COLUMN zk_barriers.since IS 'time when the session arrived';
COMMENT ON COLUMN zk_barriers.ours IS 'true for a session of this server';
COMMENT ON COLUMN zk_barriers.session_id IS 'ID of the ZooKeeper session of the server';
COMMENT ON COLUMN zk_barriers.node IS 'name of the znode';

CREATE VIEW zk_stat_barriers AS
    SELECT * FROM zk_rows('zk_stat_barriers') AS (
        waiting integer,
        passed bigint,
        timeouts bigint,
        cancels bigint,
        failures bigint,
        opened bigint,
        total_wait interval,
        longest_wait interval,
        stats_reset timestamptz);

COMMENT ON VIEW zk_stat_barriers IS
'statistics of barriers on this server';
COMMENT ON COLUMN zk_stat_barriers.waiting IS 'number of sessions that wait at barriers now';
COMMENT ON COLUMN zk_stat_barriers.passed IS 'calls that passed the barrier';
COMMENT ON COLUMN zk_stat_barriers.timeouts IS 'calls that ended by their timeout';
COMMENT ON COLUMN zk_stat_barriers.cancels IS 'calls that were canceled or terminated';
COMMENT ON COLUMN zk_stat_barriers.failures IS 'calls that failed with another error';
COMMENT ON COLUMN zk_stat_barriers.opened IS 'rounds that this server opened';
COMMENT ON COLUMN zk_stat_barriers.total_wait IS 'total time of all calls';
COMMENT ON COLUMN zk_stat_barriers.longest_wait IS 'time of the longest call';
COMMENT ON COLUMN zk_stat_barriers.stats_reset IS 'time of the last reset of these statistics';

-- Who comes to a barrier lets others go on.
REVOKE ALL ON PROCEDURE zk_barrier(text, integer, interval) FROM PUBLIC;
GRANT SELECT ON zk_barriers, zk_stat_barriers TO pg_monitor;
-- Who takes an item has what others have put, and who puts one gives others work.
REVOKE ALL ON FUNCTION zk_queue_put(text, text), zk_queue_take(text, interval, integer, integer),
    zk_queue_purge(text) FROM PUBLIC;
GRANT SELECT ON zk_queues, zk_queue_items TO pg_monitor;

-- Rights.  The names are those of functions, procedures, views and tables alike.
CREATE VIEW zk_rights AS
    SELECT what, unnest(names) AS name FROM (VALUES
        ('use', '{zk_lock, zk_try_lock, zk_lock_all, zk_try_lock_all, zk_lock_session, zk_assert, zk_fence,
            zk_fence_table, zk_acquire, zk_try_acquire, zk_permit, zk_assert_permit, zk_barrier, zk_queue_put, zk_queue_take, zk_queues,
            zk_is_leader, zk_require_leader, zk_run_as_leader, zk_candidates,
            zk_run_once, zk_run_begin, zk_run_begin_session, zk_run_end}'::name[]),
        ('look', '{zk_session, zk_stat, zk_stat_locks, zk_stat_barriers, zk_servers, zk_contenders, zk_lock_dirs,
            zk_blocking, zk_waits, zk_barriers, zk_queues, zk_queue_items, zk_elections, zk_candidates,
            zk_jobs, zk_runs, zk_check}'),
        ('admin', '{zk_break, zk_raise_tokens, zk_stat_reset, zk_resign, zk_queue_purge,
            zk_job_reset, zk_job_forget, zk_job_pause, zk_job_resume}')) g (what, names)
    UNION ALL
    -- ... and those of the other extension, if this database has it
    SELECT DISTINCT 'use', p.proname
      FROM pg_extension e JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
           JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
     WHERE e.extname = 'zklock_advisory' AND d.deptype = 'e';

COMMENT ON VIEW zk_rights IS
'functions, procedures, views and tables that zk_grant gives to a role';
COMMENT ON COLUMN zk_rights.what IS 'use, look or admin';
COMMENT ON COLUMN zk_rights.name IS 'name of a function, procedure, view or table';

GRANT SELECT ON zk_rights TO PUBLIC;

-- By the rights of its caller, who could grant the same one by one.  What has one of the names
-- in another schema is none of ours: it grants what belongs to the extensions, wherever that is.
CREATE PROCEDURE zk_grant(role name, what text DEFAULT 'use')
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ours oid[];
    schema name;
    granted name[];
    command text;
    lacking text;
BEGIN
    IF role IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'role must not be null';
    END IF;
    IF what IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'what must not be null';
    END IF;
    SELECT n.nspname INTO STRICT schema
      FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'zklock';
    SELECT array_agg(oid) INTO ours FROM pg_extension WHERE extname IN ('zklock', 'zklock_advisory');
    EXECUTE format('SELECT array_agg(name) FROM %I.zk_rights WHERE what = $1', schema) INTO granted USING what;
    IF granted IS NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('unrecognized value "%s" for what', what),
            HINT = 'Allowed values are "use", "look" and "admin".';
    END IF;
    FOR command IN
        SELECT format('GRANT EXECUTE ON ROUTINE %s TO %I', p.oid::regprocedure, role)
          FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
         WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = ANY (ours) AND d.deptype = 'e'
           AND p.proname = ANY (granted)
        UNION ALL
        SELECT format('GRANT SELECT ON %s TO %I', c.oid::regclass, role)
          FROM pg_depend d JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
         WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = ANY (ours) AND d.deptype = 'e'
           AND c.relname = ANY (granted)
    LOOP
        EXECUTE command;
    END LOOP;
    -- GRANT only warns a caller who has a right and may not grant it
    SELECT thing INTO lacking FROM (
        SELECT 'function ' || p.proname, has_function_privilege(current_user, p.oid, 'EXECUTE WITH GRANT OPTION')
          FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
         WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = ANY (ours) AND d.deptype = 'e'
           AND p.proname = ANY (granted)
        UNION ALL
        SELECT 'relation ' || c.relname, has_table_privilege(current_user, c.oid, 'SELECT WITH GRANT OPTION')
          FROM pg_depend d JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
         WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = ANY (ours) AND d.deptype = 'e'
           AND c.relname = ANY (granted)) g (thing, may)
     WHERE NOT may ORDER BY thing LIMIT 1;
    IF FOUND THEN
        RAISE insufficient_privilege USING MESSAGE = format('permission denied to grant %s', lacking);
    END IF;
    FOR schema IN
        SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.oid = ANY (ours)
    LOOP
        IF NOT has_schema_privilege(role, schema, 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', schema, role);
            IF NOT has_schema_privilege(role, schema, 'USAGE') THEN
                RAISE insufficient_privilege USING MESSAGE = format('permission denied to grant usage of schema %s', schema);
            END IF;
        END IF;
    END LOOP;
END $$;

COMMENT ON PROCEDURE zk_grant(name, text) IS
'give a role the rights to use zklock, to look at it, or to administer it';

-- Is this server set up well?
-- What is wrong is a row, and no error.
CREATE FUNCTION zk_check(
    role name DEFAULT current_user,
    OUT what text,
    OUT ok boolean,
    OUT detail text,
    OUT hint text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ours oid[];
    schema name;
    connected boolean; -- NULL: zklock is not preloaded
    reason text;
    lacking text[];
    uses boolean;
BEGIN
    IF role IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'role must not be null';
    END IF;
    SELECT n.nspname INTO STRICT schema
      FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'zklock';
    SELECT array_agg(oid) INTO ours FROM pg_extension WHERE extname IN ('zklock', 'zklock_advisory');
    RETURN QUERY EXECUTE format('SELECT * FROM %I.zk_rows(''zk_check'') AS (what text, ok boolean, detail text, hint text)', schema);

    BEGIN
        what := 'table';
        hint := 'Increase "zklock.max_locks" and restart the server, or set "zklock.max_locks_per_backend" for roles that lock too much.';
        EXECUTE format($q$SELECT state = 'connected', names - kept <= 0.9 * max_names,
                format('%%s of %%s names in use, %%s of them kept for nobody', names, max_names, kept)
              FROM %I.zk_session$q$, schema) INTO connected, ok, detail;
        hint := CASE WHEN NOT ok THEN hint END;
        RETURN NEXT;
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
        -- not preloaded, as another row says
    END;

    IF connected IS NOT NULL THEN
        FOREACH what IN ARRAY ARRAY['server name', 'zklock version'] LOOP
            BEGIN
                IF NOT connected THEN
                    ok := NULL;
                    detail := 'there is no connection to ZooKeeper';
                    hint := 'Do first what "write" says.';
                ELSIF what = 'server name' THEN
                    hint := 'Give each server a "zklock.server_name" or "cluster_name" of its own. After a crash a name can be there twice until the old ZooKeeper session has ended.';
                    EXECUTE format($q$SELECT coalesce(string_agg(format('%%s is the name of %%s servers, on %%s', server, n, hosts), '; '),
                            'no two servers have one name'), count(*) = 0
                          FROM (SELECT server, count(*) AS n, string_agg(DISTINCT coalesce(host, '?'), ', ') AS hosts
                            FROM (SELECT DISTINCT ON (server, host, postmaster_pid) server, host FROM %I.zk_servers
                                WHERE server IS NOT NULL) s
                            GROUP BY server HAVING count(*) > 1) d$q$, schema) INTO detail, ok;
                    hint := CASE WHEN NOT ok THEN hint END;
                ELSE
                    EXECUTE format($q$SELECT string_agg(format('%%s on %%s', coalesce(zklock_version, 'unknown'), n), ', ' ORDER BY zklock_version),
                            CASE WHEN count(zklock_version) > 1 THEN false WHEN bool_and(zklock_version IS NOT NULL) THEN true END
                          FROM (SELECT zklock_version, count(*) AS n
                            FROM (SELECT DISTINCT server, host, postmaster_pid, zklock_version, CASE WHEN server IS NULL THEN node END
                                FROM %I.zk_servers) s
                            GROUP BY 1) v$q$, schema) INTO detail, ok;
                    hint := CASE WHEN ok IS FALSE THEN 'Install the same version of zklock on all servers and restart them.'
                        ELSE 'Look in zk_servers for the znode without a version. If this server may not read it, give all servers the same credentials in "zklock.auth_file".' END;
                    IF detail IS NULL THEN
                        -- nor is this server there
                        ok := NULL;
                        detail := 'no server has written its znode';
                        hint := 'See last_error in zk_session.';
                    END IF;
                    hint := CASE WHEN ok IS NOT TRUE THEN hint END;
                END IF;
            EXCEPTION WHEN OTHERS THEN
                -- the ensemble has gone meanwhile, or refuses
                ok := NULL;
                GET STACKED DIAGNOSTICS detail = MESSAGE_TEXT, reason = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
                detail := concat_ws('. ', detail, nullif(reason, ''));
                hint := nullif(hint, '');
            END;
            RETURN NEXT;
        END LOOP;
    END IF;

    what := 'rights';
    -- who has none but those that are there to look has them for that
    EXECUTE format($q$SELECT array_agg(DISTINCT name ORDER BY name) FILTER (WHERE NOT has),
            coalesce(bool_or(has) FILTER (WHERE name NOT IN (SELECT name FROM %1$I.zk_rights WHERE what = 'look')), false)
          FROM (SELECT p.proname::text, has_function_privilege($1, p.oid, 'EXECUTE')
                AND has_schema_privilege($1, p.pronamespace, 'USAGE')
              FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
              WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = ANY ($2) AND d.deptype = 'e'
            UNION ALL
            SELECT c.relname::text, has_table_privilege($1, c.oid, 'SELECT')
                AND has_schema_privilege($1, c.relnamespace, 'USAGE')
              FROM pg_depend d JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
              WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = ANY ($2) AND d.deptype = 'e') m (name, has)
          WHERE name IN (SELECT name FROM %1$I.zk_rights WHERE what = 'use')$q$, schema) INTO lacking, uses USING role, ours;
    ok := CASE WHEN lacking IS NULL THEN true WHEN uses THEN false END;
    detail := CASE WHEN ok THEN format('role "%s" may use zklock', role)
        WHEN ok IS NULL THEN format('role "%s" may not use zklock', role)
        ELSE format('role "%s" may not use %s', role, array_to_string(lacking, ', ')) END;
    hint := CASE WHEN ok IS NOT TRUE THEN format('If the role is to use zklock, CALL %I.zk_grant(%L).', schema, role) END;
    RETURN NEXT;
END $$;

COMMENT ON FUNCTION zk_check(name) IS
'check the setup of this server and the rights of a role; one row for each check';

-- They show names of servers, and connect to those in zklock.hosts.
REVOKE ALL ON FUNCTION zk_check(name) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_check(name) TO pg_monitor;
