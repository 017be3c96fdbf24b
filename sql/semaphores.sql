--
-- At most N at a time, in one session
--
CREATE EXTENSION zklock;
\pset null -

SELECT zk_acquire('s', 0);
SELECT zk_acquire('s', 1, 'exclusive');
SELECT zk_try_acquire('s', 1, timeout => '-1 s');
SELECT zk_release('s');
SELECT zk_assert_permit('s');
SELECT zk_permit('s');

BEGIN;
SELECT zk_acquire('s', 2) AS token \gset
SELECT zk_acquire('s', 2) = :token AS same, zk_try_acquire('s', 2) AS again, zk_assert_permit('s') = :token AS token, zk_token('s') AS lock;
SELECT zk_permit('s');
SELECT zk_permit('s');
SELECT kind, name, permits, mode, scope, granted, count, token = :token AS token FROM zk_locks;
SELECT kind, position, granted, token = :token AS token, ours, mode, permits FROM zk_contenders('s');
SELECT kind, name, contenders, waiting FROM zk_lock_dirs();
-- level 1 is the session's own
SELECT k.granted, k.mode FROM zk_locks l JOIN pg_locks k USING (pid, classid, objid, objsubid) WHERE k.locktype = 'advisory';
-- a lock of the name is another thing
SELECT zk_try_lock('s');
SELECT kind, name, permits, mode FROM zk_locks ORDER BY kind;
SAVEPOINT a;
SELECT zk_acquire('t', 1) > 0 AS t;
SELECT kind, name, permits FROM zk_locks ORDER BY kind, name;
ROLLBACK TO a;
SELECT kind, name, permits FROM zk_locks ORDER BY kind, name;
PREPARE TRANSACTION 'no';

SELECT zk_acquire('s', 2, scope => 'session') > 0 AS session;
BEGIN;
SELECT zk_acquire('s', 3) > 0 AS again;
ROLLBACK;
SELECT kind, name, permits, scope, count FROM zk_locks;
SELECT zk_release('s'), zk_release('s');
SELECT * FROM zk_locks;

-- in PL/pgSQL, with an error caught
DO $$
BEGIN
	PERFORM zk_acquire('s', 1);
	BEGIN
		PERFORM zk_acquire('t', 1);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE '%', (SELECT string_agg(name, ' ') FROM zk_locks);
	END;
END $$;
SELECT * FROM zk_locks;
SELECT kind, name, acquired_cold > 0 AS cold FROM zk_stat_locks WHERE kind = 'semaphore' ORDER BY name;

CREATE ROLE regress_zklock_nobody;
SET ROLE regress_zklock_nobody;
SELECT zk_acquire('s', 1);
SELECT zk_try_acquire('s', 1);
SELECT zk_permit('s');
RESET ROLE;
DROP ROLE regress_zklock_nobody;
DROP EXTENSION zklock;
