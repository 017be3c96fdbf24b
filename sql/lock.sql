--
-- Taking and releasing locks in one session.
--
CREATE EXTENSION zklock;
\df zk_*

-- what this session has at level 2 and at level 1
CREATE VIEW level2 AS
	SELECT name, mode, scope FROM zk_locks WHERE pid = pg_backend_pid() AND granted ORDER BY 1, 2, 3;
CREATE VIEW level1 AS
	SELECT mode, count(*) FROM pg_locks
	WHERE locktype = 'advisory' AND objsubid = 31339 AND pid = pg_backend_pid() AND granted
	GROUP BY mode ORDER BY 1;

--
-- Transaction scope, exclusive
--
BEGIN;
SELECT zk_lock('job') AS token \gset
SELECT :token > 0 AS positive, zk_token('job') = :token AS same;
TABLE level2;
TABLE level1;
COMMIT;
TABLE level2;
TABLE level1;
SELECT zk_token('job');

-- without a block, the statement is the transaction
SELECT zk_lock('job') AS token2 \gset
SELECT :token2 > :token AS grows, zk_token('job');

BEGIN;
SELECT zk_lock('job') > :token2 AS grows;
ROLLBACK;
SELECT zk_token('job');

-- tokens of two names
BEGIN;
SELECT zk_lock('one') AS one, zk_lock('two') AS two \gset
SELECT :one <> :two AS differ, zk_token('one') = :one AS one, zk_token('two') = :two AS two, zk_token('three');
COMMIT;

-- an error ends it as well
BEGIN;
SELECT zk_lock('job') > 0 AS locked;
SELECT 1 / 0;
ROLLBACK;
TABLE level2;

--
-- Arguments
--
BEGIN;
SELECT zk_lock(name => 'job', scope => 'transaction', mode => 'shared') > 0 AS shared;
SELECT zk_try_lock('job 2', scope => 'session'), zk_try_lock('job 3', timeout => '1 s'),
	zk_try_lock('job 4', 'shared', 'session', '0.5 ms'), zk_try_lock('job 5', timeout => '1000 years');
TABLE level2;
COMMIT;
TABLE level2;
SELECT zk_unlock_all();

--
-- Counting
--
BEGIN;
SELECT zk_lock('job') AS t1, zk_lock('job') AS t2, zk_lock('job', 'shared') AS t3, zk_try_lock('job') AS t4 \gset
SELECT :t1 = :t2 AND :t1 = :t3 AS one_grant, :'t4' AS again;
TABLE level2;
TABLE level1;
COMMIT;
TABLE level1;

SELECT zk_lock('job', 'exclusive', 'session') AS t1 \gset
SELECT zk_lock('job', 'exclusive', 'session') = :t1 AS same;
SELECT zk_unlock('job'), zk_token('job') = :t1 AS still;
TABLE level2;
SELECT zk_unlock('job'), zk_token('job');
TABLE level2;
TABLE level1;

-- across scopes, transaction first
BEGIN;
SELECT zk_lock('job') AS t1 \gset
SELECT zk_lock('job', scope => 'session') = :t1 AS same;
TABLE level2;
COMMIT;
TABLE level2;
TABLE level1;
SELECT zk_token('job') = :t1 AS still;
SELECT zk_unlock('job');

-- session first; the one is unlocked while the other lasts
SELECT zk_lock('job', scope => 'session') AS t1 \gset
BEGIN;
SELECT zk_lock('job') = :t1 AS same;
SELECT zk_unlock('job');
TABLE level2;
TABLE level1;
SELECT zk_token('job') = :t1 AS still;
COMMIT;
TABLE level2;
TABLE level1;

-- a session's hold outlives the transaction that took it, even if that fails
BEGIN;
SELECT zk_lock('job', scope => 'session') > 0 AS locked;
ROLLBACK;
TABLE level2;
BEGIN;
SELECT zk_unlock('job');
ROLLBACK;
TABLE level2;
TABLE level1;

--
-- Shared, and from shared to exclusive
--
BEGIN;
SELECT zk_lock('job', 'shared') AS t1 \gset
TABLE level2;
TABLE level1;
SELECT zk_lock('job', 'exclusive') AS t2 \gset
SELECT :t2 > :t1 AS grows, zk_token('job') = :t2 AS newer;
TABLE level2;
TABLE level1;
SELECT zk_lock('job', 'shared') = :t2 AS covered;
COMMIT;
TABLE level2;

-- and back, with the session's scope
SELECT zk_lock('job', 'shared', 'session') AS t1 \gset
SELECT zk_lock('job', 'exclusive', 'session') AS t2 \gset
SELECT zk_unlock('job'), zk_token('job') = :t1 AS shared_again;
TABLE level2;
TABLE level1;
BEGIN;
SELECT zk_lock('job') > :t2 AS upgraded;
TABLE level2;
COMMIT;
TABLE level2;
TABLE level1;
SELECT zk_unlock('job');

-- with a savepoint
BEGIN;
SELECT zk_lock('job', 'shared') AS t1 \gset
SAVEPOINT s;
SELECT zk_lock('job') > :t1 AS upgraded;
ROLLBACK TO s;
TABLE level2;
TABLE level1;
SELECT zk_token('job') = :t1 AS shared_again;
SELECT zk_lock('job') > :t1 AS upgraded;
COMMIT;

--
-- Savepoints
--
BEGIN;
SELECT zk_lock('outer') > 0 AS locked;
SAVEPOINT s1;
SELECT zk_lock('s1') > 0 AS locked, zk_lock('outer') > 0 AS again;
SAVEPOINT s2;
SELECT zk_lock('s2') > 0 AS locked, zk_lock('s1') > 0 AS again, zk_lock('held', scope => 'session') > 0 AS session;
TABLE level2;
ROLLBACK TO s2;
TABLE level2;
SELECT zk_lock('s2') > 0 AS locked;
RELEASE s2;
TABLE level2;
ROLLBACK TO s1;
TABLE level2;
TABLE level1;
SELECT zk_lock('s1') > 0 AS locked;
RELEASE s1;
TABLE level2;
COMMIT;
TABLE level2;
SELECT zk_unlock_all();
TABLE level1;

-- session scope in a savepoint: what zk_unlock gave up does not come back
BEGIN;
SELECT zk_lock('job', scope => 'session') > 0 AS locked;
SAVEPOINT s;
SELECT zk_unlock('job');
ROLLBACK TO s;
TABLE level2;
COMMIT;

--
-- Giving up
--
-- not held at all
SELECT zk_unlock('job');
\set VERBOSITY sqlstate
SELECT zk_unlock('job');
\set VERBOSITY default
-- held by the transaction
BEGIN;
SELECT zk_lock('job') > 0 AS locked;
SELECT zk_unlock('job');
SELECT zk_unlock_all();
TABLE level2;
COMMIT;
-- the newest first
SELECT zk_lock('job', 'shared', 'session') > 0 AS locked, zk_lock('job', 'shared', 'session') > 0 AS locked,
	zk_lock('job', 'exclusive', 'session') > 0 AS locked, zk_lock('other', 'exclusive', 'session') > 0 AS locked;
TABLE level2;
SELECT zk_unlock('job');
TABLE level2;
SELECT zk_unlock_all();
SELECT zk_unlock_all();
TABLE level2;
TABLE level1;

-- DISCARD ALL, as connection poolers run it
SELECT zk_lock('job', 'shared', 'session') > 0 AS locked, zk_lock('other', 'exclusive', 'session') > 0 AS locked;
DISCARD ALL;
TABLE level2;
TABLE level1;
SELECT zk_token('job'), zk_token('other');

-- and what it calls
SELECT zk_lock('job', 'exclusive', 'session') > 0 AS locked;
SELECT pg_advisory_unlock_all();
TABLE level2;
SELECT zk_unlock('job');
BEGIN;
SELECT zk_lock('job', 'exclusive', 'session') AS t1, zk_lock('job') AS t2 \gset
SELECT pg_advisory_unlock_all();
SELECT zk_token('job') = :t1 AS still;
COMMIT;
TABLE level2;
TABLE level1;
-- in the middle of things
BEGIN;
SELECT zk_lock('job', 'shared', 'session') AS t1 \gset
SELECT pg_advisory_unlock_all();
SELECT zk_lock('job') > :t1 AS anew;
TABLE level2;
COMMIT;
TABLE level2;
TABLE level1;

-- the user's own advisory locks are others
SELECT pg_advisory_lock(1), zk_lock('job', 'exclusive', 'session') > 0 AS locked;
SELECT zk_unlock_all();
SELECT pg_advisory_unlock(1);

--
-- The procedure
--
CALL zk_lock_session('job');
TABLE level2;
CALL zk_lock_session('job', 'shared');
CALL zk_lock_session(name => 'other', mode => 'shared', timeout => '1 s');
TABLE level2;
SELECT zk_unlock('job'), zk_unlock('job'), zk_unlock('other');
CALL zk_lock_session('job', 'shared', NULL);
CALL zk_lock_session('job', 'exclusive', '0');
TABLE level2;
SELECT zk_unlock_all();
TABLE level1;

--
-- A few hundred holds of one name, and of a name again and again
--
BEGIN;
SELECT count(DISTINCT zk_lock('many')) FROM generate_series(1, 300);
TABLE level2;
COMMIT;
SELECT count(zk_lock('many', scope => 'session')) FROM generate_series(1, 300);
SELECT count(*) FROM generate_series(1, 299) WHERE zk_unlock('many');
TABLE level2;
SELECT zk_unlock('many');
DO $$
DECLARE
	newest bigint := 0;
	token bigint;
BEGIN
	FOR i IN 1..100 LOOP
		BEGIN
			token := zk_lock('many');
			ASSERT token > newest, format('token %s after %s', token, newest);
			newest := token;
			RAISE no_data_found;
		EXCEPTION WHEN no_data_found THEN
		END;
	END LOOP;
END $$;
TABLE level2;
TABLE level1;

--
-- Everybody may who has been granted it
--
CREATE ROLE regress_zklock;
GRANT EXECUTE ON FUNCTION zk_lock, zk_try_lock TO regress_zklock;
GRANT EXECUTE ON PROCEDURE zk_lock_session TO regress_zklock;
SET ROLE regress_zklock;
BEGIN;
SELECT zk_lock('job') > 0 AS locked, zk_try_lock('job 2', scope => 'session'), zk_unlock('job 2');
COMMIT;
CALL zk_lock_session('job');
SELECT zk_unlock_all();
RESET ROLE;
DROP OWNED BY regress_zklock;
DROP ROLE regress_zklock;

DROP VIEW level1, level2;
DROP EXTENSION zklock;
