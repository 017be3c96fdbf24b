--
-- zk_locks and zk_session
--
CREATE EXTENSION zklock;
\d zk_locks
\d zk_session
\d zk_servers
\d zk_barriers
\d zk_stat
\d zk_stat_locks

SELECT * FROM zk_locks;
BEGIN;
SELECT zk_lock('job') AS token \gset
SELECT zk_lock('job', 'exclusive', 'session') = :token AS same, zk_lock('readers', 'shared') AS shared \gset
SELECT name, mode, scope, granted, pid = pg_backend_pid() AS mine, token = zk_token(name) AS same_token, wait_start
	FROM zk_locks ORDER BY name, scope;
-- level 1 is seen in pg_locks, without a database, and by nobody as an advisory lock of his own
SELECT count(*), min(database), max(mode) FROM pg_locks
	WHERE locktype = 'advisory' AND objsubid = 31339 AND pid = pg_backend_pid() AND granted;
-- whose, how often, and by which lock of level 1
SELECT l.name, l.count, l.grant_state, l.lease_remaining BETWEEN '0' AND (SELECT session_timeout FROM zk_session) AS lease, l.datname = current_database() AS datname,
	usename = session_user AS usename, application_name = current_setting('application_name') AS application_name, k.mode, k.granted
	FROM zk_locks l JOIN pg_locks k USING (pid, classid, objid, objsubid) WHERE k.locktype = 'advisory' ORDER BY name, scope;
-- a function reads as it is, and the view can be used as any table
SELECT l.name, a.backend_type FROM zk_locks l JOIN pg_stat_activity a USING (pid) WHERE l.scope = 'session';
SELECT count(*) FROM zk_locks a, zk_locks b WHERE a.name = b.name;
COMMIT;
SELECT name, mode, scope, granted, token = :token AS same_token FROM zk_locks;
SELECT zk_unlock_all();
SELECT * FROM zk_locks;

-- both modes by one session
BEGIN;
SELECT zk_lock('job', 'shared') AS t1, zk_lock('job') AS t2 \gset
SELECT name, mode, token = :t1 AS older, token = :t2 AS newer FROM zk_locks ORDER BY mode;
COMMIT;

SELECT state, connected_to = current_setting('zklock.hosts') AS server, hosts = current_setting('zklock.hosts') AS hosts,
	session_id ~ '^0x[0-9a-f]{5,16}$' AS session_id,
	session_timeout BETWEEN '1 s' AND current_setting('zklock.session_timeout')::interval AS session_timeout,
	(last_error IS NULL) = (last_error_time IS NULL) AS error, worker_pid <> pg_backend_pid() AS worker
	FROM zk_session;
-- the same session all the time
SELECT session_id AS session, worker_pid AS worker FROM zk_session \gset
BEGIN;
SELECT zk_lock('job') > 0 AS locked;
SELECT session_id = :'session' AS session, worker_pid = :worker AS worker FROM zk_session;
COMMIT;
SELECT count(*) FROM zk_session;

SELECT lease_remaining BETWEEN '0' AND session_timeout AS lease, write_latency BETWEEN '1 us' AND '1 h' AS write,
	read_latency BETWEEN '1 us' AND '1 h' AS read, session_uptime BETWEEN '0' AND '1 h' AS session, worker_uptime >= session_uptime AS worker,
	reconnects >= 0 AS reconnects, expiries >= 0 AS expiries, in_flight < 100 AS in_flight, names < max_names AS names, max_names, locks, kept
	FROM zk_session;
BEGIN;
SELECT zk_lock('a') > 0 AS a, zk_lock('b', 'shared') > 0 AS b, zk_lock('b') > 0 AS upgraded;
SELECT names >= 2 AS names, locks, kept FROM zk_session;
COMMIT;

-- statistics
SELECT zk_stat_reset();
SELECT acquired_local, acquired_kept, acquired_cold, waits, total_wait, longest_wait, timeouts, cancels, deadlocks, failures, losses, demands, handovers,
	stats_reset BETWEEN now() - interval '1 h' AND now() + interval '1 h' AS reset FROM zk_stat;
SELECT * FROM zk_stat_locks;
BEGIN;
SELECT count(zk_lock('one')) FROM generate_series(1, 10);
-- what a holder takes again counts at once
SELECT acquired_local, acquired_cold FROM zk_stat;
SELECT zk_try_lock('two', 'shared'), zk_try_lock('two', 'shared', 'session');
SELECT name, acquired_local, acquired_kept, acquired_cold, waits, total_wait, longest_wait, timeouts, cancels, deadlocks, failures, losses, demands, handovers,
	last_call <= clock_timestamp() AS last_call FROM zk_stat_locks ORDER BY name;
COMMIT;
SELECT zk_unlock('two');
SELECT acquired_local, acquired_kept, acquired_cold FROM zk_stat;
SELECT name, acquired_local, acquired_kept, acquired_cold FROM zk_stat_locks ORDER BY name;
BEGIN;
SELECT count(zk_lock('one')) FROM generate_series(1, 3);
SELECT zk_stat_reset();
SELECT zk_lock('one') > 0 AS again;
COMMIT;
SELECT acquired_local, acquired_kept, acquired_cold FROM zk_stat;
SELECT name, acquired_local, acquired_kept, acquired_cold FROM zk_stat_locks;

-- the ensemble's side
BEGIN;
SELECT zk_lock('see job') AS token, zk_lock('see readers', 'shared') AS shared \gset
SELECT position, server <> '' AS server, mode, granted, token = :token AS token, session_id = (SELECT session_id FROM zk_session) AS session,
	ours, since > now() - interval '1 hour' AS since, data::json ->> 'server' = server AS data, node ~ '^_c_[-0-9a-f]{36}-lock-\d{10}$' AS node
	FROM zk_contenders('see job');
SELECT server <> '' AS server, host <> '' AS host, postmaster_pid > 0 AS pid, zklock_version = (SELECT extversion FROM pg_extension WHERE extname = 'zklock') AS zklock,
	postgres_version = split_part(current_setting('server_version'), ' ', 1) AS postgres, since <= heartbeat AS since, elections >= 0 AS elections, session_id = (SELECT session_id FROM zk_session) AS session,
	node ~ '-[0-9a-f]{16}$' AS node
	FROM zk_servers WHERE ours;
SELECT mode, granted, node ~ '-read-lock-\d{10}$' AS node FROM zk_contenders('see readers');
SELECT * FROM zk_contenders('nobody');
SELECT * FROM zk_blocking(pg_backend_pid());
SELECT * FROM zk_waits;
SELECT * FROM zk_lock_dirs('see ') ORDER BY name;
SELECT name FROM zk_lock_dirs('see r');
SELECT zk_break('see job', :token + 1), zk_break('nobody', :token);
SELECT zk_break('see job', :token);
SELECT 1;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT count(*) FROM zk_contenders('see job');
SELECT zk_contenders('');
SELECT zk_break(repeat('x', 256), 1);
SELECT count(*) FROM zk_lock_dirs('nobody');

-- the function below the views: its caller lists the columns
SELECT zk_lock('rows', scope => 'session') > 0 AS locked;
SELECT * FROM zk_rows('zk_locks') AS (granted boolean, no_such jsonb, name text, tokens bigint);
SELECT * FROM zk_rows('zk_locks') AS (no_such integer);
SELECT v, name FROM unnest('{zk_session,zk_locks}'::text[]) v, LATERAL zk_rows(v) AS (name text);
SELECT name, i, n FROM ROWS FROM (zk_rows('zk_locks') AS (name text), generate_series(1, 2)) WITH ORDINALITY AS t (name, i, n);
SELECT l.name, s.names > 0 AS names FROM zk_rows('zk_locks') AS l (name text), zk_rows('zk_session') AS s (names integer);
SELECT * FROM zk_rows('zk_locks');
SELECT zk_rows('zk_locks');
SELECT * FROM zk_rows('zk_locks') WITH ORDINALITY AS t (name text);
SELECT * FROM zk_rows('zk_locks') AS (name text, name text);
SELECT * FROM zk_rows('zk_locks') AS (name varchar);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM zk_rows('zk_locks') AS (pid text);
SELECT * FROM zk_rows('zk_locks') AS (token integer);
SELECT * FROM zk_rows('zk_locks') AS (granted text);
SELECT * FROM zk_rows('zk_locks') AS (held_since timestamp);
SELECT * FROM zk_rows('zk_locks') AS (lease_remaining double precision);
SELECT * FROM zk_rows('zk_locks') AS (classid text);
SELECT * FROM zk_rows('zk_locks') AS (objsubid text[]);
-- which has no rows of this type, and so no error
SELECT * FROM zk_rows('zk_locks') AS (permits text, blocked_by integer);
SELECT * FROM zk_rows('zk_runs') AS (name text);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM zk_rows(NULL) AS (name text);
SELECT count(*) > 3 AS many FROM zk_rows('zk_check') AS (what text);
SELECT zk_unlock('rows');
-- each view, without one of its columns
CREATE FUNCTION answer(view text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT FROM zk_rows(%L) AS (none integer)', view);
    RETURN 'rows';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ': ' || SQLERRM;
END
$$;
SELECT relname, answer(relname) FROM pg_class WHERE relname LIKE 'zk\_%' AND relkind = 'v' ORDER BY relname COLLATE "C";

-- there is a comment for everything
SELECT p.oid::regprocedure FROM pg_proc p WHERE proname LIKE 'zk\_%' AND obj_description(oid, 'pg_proc') IS NULL;
SELECT oid::regclass FROM pg_class WHERE relname LIKE 'zk\_%' AND obj_description(oid, 'pg_class') IS NULL ORDER BY relname;
SELECT attrelid::regclass, attname FROM pg_attribute WHERE attrelid IN (SELECT oid FROM pg_class WHERE relname LIKE 'zk\_%' AND relkind IN ('r', 'v'))
	AND attnum > 0 AND col_description(attrelid, attnum) IS NULL;
SELECT proname, proparallel, provolatile, proisstrict FROM pg_proc WHERE proname LIKE 'zk\_%' ORDER BY proname COLLATE "C";

-- what everybody may call
SELECT p.oid::regprocedure FROM pg_proc p WHERE proname LIKE 'zk\_%' AND has_function_privilege('public', oid, 'EXECUTE')
	ORDER BY proname COLLATE "C";

-- who may look
CREATE ROLE regress_zklock;
SET ROLE regress_zklock;
SELECT count(*) FROM zk_locks;
SELECT count(*) FROM zk_session;
\echo :LAST_ERROR_SQLSTATE
SELECT zk_contenders('job');
SELECT zk_lock_dirs();
TABLE zk_servers;
TABLE zk_barriers;
SELECT zk_break('job', 1);
SELECT * FROM zk_stat;
SELECT * FROM zk_stat_locks;
SELECT zk_stat_reset();
-- the function below the views wants the right to the view, and no more
SELECT relname, answer(relname) FROM pg_class WHERE relname LIKE 'zk\_%' AND relkind = 'v' ORDER BY relname COLLATE "C";
SELECT answer('zk_check');
RESET ROLE;
CREATE VIEW wrapped AS SELECT state FROM zk_session;
GRANT SELECT ON wrapped, zk_servers TO regress_zklock;
SET ROLE regress_zklock;
SELECT count(*) FROM zk_servers WHERE ours;
TABLE wrapped;
RESET ROLE;
-- ... or to those of its columns that are read
GRANT SELECT (state) ON zk_session TO regress_zklock;
SET ROLE regress_zklock;
TABLE wrapped;
SELECT state FROM zk_session;
SELECT session_id FROM zk_session;
RESET ROLE;
DROP VIEW wrapped;
REVOKE SELECT ON zk_servers FROM regress_zklock;
REVOKE SELECT (state) ON zk_session FROM regress_zklock;
GRANT pg_monitor TO regress_zklock;
SET ROLE regress_zklock;
SELECT state FROM zk_session;
SELECT zk_contenders('job');
SELECT count(*) FROM zk_lock_dirs('see ');
SELECT count(*) FROM zk_servers WHERE ours;
SELECT zk_break('job', 1);
SELECT count(*) FROM zk_stat;
SELECT name FROM zk_stat_locks WHERE name = 'one';
SELECT zk_stat_reset();
SELECT relname, answer(relname) FROM pg_class WHERE relname LIKE 'zk\_%' AND relkind = 'v' ORDER BY relname COLLATE "C";
RESET ROLE;
DROP FUNCTION answer;
DROP ROLE regress_zklock;

DROP EXTENSION zklock;
