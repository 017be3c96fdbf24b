--
-- Every error that one session can provoke.
--
CREATE EXTENSION zklock;
\set SHOW_CONTEXT never

--
-- Names
--
SELECT zk_lock('');
\echo :LAST_ERROR_SQLSTATE
SELECT zk_try_lock('');
SELECT zk_unlock('');
SELECT zk_token('');
CALL zk_lock_session('');
-- 255 bytes
BEGIN;
SELECT zk_lock(repeat('x', 255)) > 0 AS locked, zk_lock(repeat('é', 127) || 'x') > 0 AS locked,
	zk_lock(repeat('🔒', 63) || '日') > 0 AS locked, zk_lock(repeat('%', 255)) > 0 AS locked;
SELECT count(*), min(octet_length(name)), max(octet_length(name)) FROM zk_locks;
COMMIT;
SELECT zk_lock(repeat('x', 256));
\echo :LAST_ERROR_SQLSTATE
SELECT zk_lock(repeat('é', 128));
SELECT zk_try_lock(repeat('🔒', 64));
SELECT zk_unlock(repeat('x', 1000));
SELECT zk_token(repeat('x', 1000000));
CALL zk_lock_session(repeat('x', 256));

--
-- Modes and scopes
--
SELECT zk_lock('job', 'Exclusive');
\echo :LAST_ERROR_SQLSTATE
SELECT zk_lock('job', '');
SELECT zk_try_lock('job', 'share');
CALL zk_lock_session('job', 'EXCLUSIVE');
SELECT zk_lock('job', 'shared', 'tx');
\echo :LAST_ERROR_SQLSTATE
SELECT zk_try_lock('job', scope => '');
-- one taken for the other
SELECT zk_lock('job', 'session');
SELECT zk_try_lock('job', 'transaction');
CALL zk_lock_session('job', 'session');
SELECT zk_lock('job', 'exclusive', 'shared');

--
-- Timeouts
--
SELECT zk_try_lock('job', timeout => '-1 s');
\echo :LAST_ERROR_SQLSTATE
SELECT zk_try_lock('job', timeout => '1 day -25 hours');
SELECT zk_try_lock('job', timeout => '178000000 years');
CALL zk_lock_session('job', 'exclusive', '-1 month');
\echo :LAST_ERROR_SQLSTATE
SELECT zk_try_lock('job', timeout => '1 month -29 days');

--
-- The procedure
--
CALL zk_lock_session(NULL);
\echo :LAST_ERROR_SQLSTATE
CALL zk_lock_session('job', NULL);
\echo :LAST_ERROR_SQLSTATE
BEGIN;
CALL zk_lock_session('job');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
CREATE FUNCTION in_function() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL zk_lock_session('job'); END $$;
SELECT in_function();
\echo :LAST_ERROR_SQLSTATE
DO $$
BEGIN
	CALL zk_lock_session('job');
EXCEPTION WHEN division_by_zero THEN
END $$;
\echo :LAST_ERROR_SQLSTATE
-- several statements in one message are one transaction
CREATE TABLE made (i int);
INSERT INTO made VALUES (1) \; CALL zk_lock_session('job');
\echo :LAST_ERROR_SQLSTATE
TABLE made;
DROP TABLE made;
SELECT count(*) FROM zk_locks;

--
-- PREPARE TRANSACTION
--
BEGIN;
SELECT zk_lock('job') > 0 AS locked;
PREPARE TRANSACTION 'zklock';
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM zk_locks;
-- given up by a savepoint: no obstacle
BEGIN;
SAVEPOINT s;
SELECT zk_lock('job') > 0 AS locked;
ROLLBACK TO s;
PREPARE TRANSACTION 'zklock';
ROLLBACK PREPARED 'zklock';
-- nor is session scope, old or new
SELECT zk_lock('old', scope => 'session') > 0 AS locked;
BEGIN;
SELECT zk_lock('new', scope => 'session') > 0 AS locked;
PREPARE TRANSACTION 'zklock';
SELECT name, scope FROM zk_locks ORDER BY name;
COMMIT PREPARED 'zklock';
SELECT zk_unlock('old'), zk_unlock('new'), zk_unlock('new');
-- both is one too many
BEGIN;
SELECT zk_lock('job', scope => 'session') > 0 AS locked, zk_lock('job') > 0 AS locked;
PREPARE TRANSACTION 'zklock';
SELECT name, scope FROM zk_locks;
SELECT zk_unlock('job');
SELECT count(*) FROM zk_locks;

--
-- Parallel workers
--
CREATE FUNCTION careless() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN zk_lock('job'); END $$;
SELECT set_config(name, 'on', false) FROM pg_settings
	WHERE name IN ('debug_parallel_query', 'force_parallel_mode') ORDER BY name LIMIT 1;
SELECT careless();
\echo :LAST_ERROR_SQLSTATE
SELECT zk_lock('job') > 0 AS in_leader;
SELECT set_config(name, 'off', false) FROM pg_settings
	WHERE name IN ('debug_parallel_query', 'force_parallel_mode') ORDER BY name LIMIT 1;
SELECT careless() > 0 AS in_leader;

--
-- The lock table is full
--
SHOW zklock.max_locks;
SELECT count(zk_lock('full ' || i)) FROM generate_series(1, 51) i;
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM zk_locks;
-- An entry is free when ZooKeeper has confirmed the end of its contender, so
-- there may be less room for a moment.
DO $$
BEGIN
	LOOP
		BEGIN
			PERFORM zk_lock('full ' || n) FROM generate_series(1, 50) n;
			EXIT;
		EXCEPTION WHEN out_of_memory THEN
			PERFORM pg_sleep(0.01);
		END;
	END LOOP;
	RAISE NOTICE '% locks', (SELECT count(*) FROM zk_locks);
	-- more of a name that is there is no new entry
	PERFORM zk_lock('full 1', scope => 'session');
	BEGIN
		PERFORM zk_try_lock('one more');
	EXCEPTION WHEN out_of_memory THEN
		RAISE NOTICE 'SQLSTATE %', SQLSTATE;
	END;
	-- the failure left nothing behind
	PERFORM zk_token('one more');
END $$;
SELECT name FROM zk_locks;
SELECT zk_unlock('full 1');

--
-- Settings
--
SELECT name, context, boot_val, unit, min_val, max_val, vartype FROM pg_settings
	WHERE name LIKE 'zklock.%' ORDER BY name COLLATE "C";
SET zklock.hosts = 'localhost:2181';
\echo :LAST_ERROR_SQLSTATE
SET zklock.root = '/x';
SET zklock.server_name = 'x';
SET zklock.session_timeout = '1s';
SET zklock.max_locks = 10;
\echo :LAST_ERROR_SQLSTATE
SET zklock.connect_timeout = '1s';
SHOW zklock.connect_timeout;
RESET zklock.connect_timeout;
SET zklock.no_such_setting = 1;
\echo :LAST_ERROR_SQLSTATE

ALTER SYSTEM SET zklock.hosts = '';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET zklock.hosts = 'zk1';
ALTER SYSTEM SET zklock.hosts = ':2181';
ALTER SYSTEM SET zklock.hosts = 'zk1:';
ALTER SYSTEM SET zklock.hosts = 'zk1:0';
ALTER SYSTEM SET zklock.hosts = 'zk1:65536';
ALTER SYSTEM SET zklock.hosts = 'zk1:-1';
ALTER SYSTEM SET zklock.hosts = 'zk1:2181x';
ALTER SYSTEM SET zklock.hosts = 'zk1:2181, zk2:2181';
ALTER SYSTEM SET zklock.hosts = 'zk1:2181,';
ALTER SYSTEM SET zklock.hosts = 'zk1:2181,,zk2:2181';
ALTER SYSTEM SET zklock.hosts = 'zk1:2181/';
ALTER SYSTEM SET zklock.hosts = 'zk1:2181//prod';
ALTER SYSTEM SET zklock.hosts = 'zk1:2181/prod/';
ALTER SYSTEM SET zklock.hosts = 'zk1:2181/prod/../x';
ALTER SYSTEM SET zklock.hosts = '/prod';
SELECT repeat('zk1:2181,', 113) || 'zk:2181' AS longer, repeat('zk1:2181,', 112) || 'zk000001:2181' AS long \gset
\set VERBOSITY sqlstate
ALTER SYSTEM SET zklock.hosts = :'longer';
ALTER SYSTEM SET zklock.hosts = :'long';
\set VERBOSITY default
ALTER SYSTEM SET zklock.hosts = 'zk1:2181,10.0.0.1:1,[::1]:65535/prod/a.b';
ALTER SYSTEM RESET zklock.hosts;

ALTER SYSTEM SET zklock.root = '';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET zklock.root = '/';
ALTER SYSTEM SET zklock.root = 'zklock';
ALTER SYSTEM SET zklock.root = '/zklock/';
ALTER SYSTEM SET zklock.root = '/a/./b';
SELECT '/' || repeat('x', 200) AS longer, '/' || repeat('x', 199) AS long \gset
\set VERBOSITY sqlstate
ALTER SYSTEM SET zklock.root = E'/a\001b';
ALTER SYSTEM SET zklock.root = :'longer';
ALTER SYSTEM SET zklock.root = :'long';
\set VERBOSITY default
ALTER SYSTEM SET zklock.root = '/a/b.c';
ALTER SYSTEM RESET zklock.root;

ALTER SYSTEM SET zklock.server_name = E'a\tb';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET zklock.server_name = 'berlin-1 (β)';
ALTER SYSTEM RESET zklock.server_name;

-- the limits are in pg_settings above; the words differ between versions
\set VERBOSITY sqlstate
ALTER SYSTEM SET zklock.session_timeout = 99;
ALTER SYSTEM SET zklock.session_timeout = '2h';
ALTER SYSTEM SET zklock.max_locks = 0;
SET zklock.connect_timeout = 0;
SET zklock.connect_timeout = 'soon';
\set VERBOSITY default

DROP FUNCTION in_function, careless;
DROP EXTENSION zklock;
