--
-- Several locks in one step, in one session.
--
CREATE EXTENSION zklock;

-- what this session has at level 2 and at level 1
CREATE VIEW level2 AS
	SELECT name, mode, scope, count FROM zk_locks WHERE pid = pg_backend_pid() AND granted ORDER BY 1, 2, 3;
CREATE VIEW level1 AS
	SELECT mode, count(*) FROM pg_locks
	WHERE locktype = 'advisory' AND objsubid = 31339 AND pid = pg_backend_pid() AND granted
	GROUP BY mode ORDER BY 1;

SELECT array_length(zk_lock_all('set/b', 'set/a', 'set/c'), 1);

BEGIN;
SELECT zk_lock_all('set/b', 'set/a', 'set/c') AS tokens \gset
SELECT :'tokens'::bigint[] = ARRAY[zk_token('set/b'), zk_token('set/a'), zk_token('set/c')] AS in_the_order_given;
TABLE level2;
TABLE level1;
-- counted with what is held
SELECT zk_lock('set/d') > 0 AS positive;
SELECT zk_try_lock_all(ARRAY['set/d', 'set/e', 'set/d']);
TABLE level2;
SAVEPOINT s;
SELECT zk_try_lock_all(ARRAY['set/e', 'set/f'], 'shared');
TABLE level2;
ROLLBACK TO s;
TABLE level2;
COMMIT;
TABLE level2;
TABLE level1;

-- session scope
SELECT array_length(zk_lock_all(ARRAY['set/a', 'set/b'], 'shared', 'session'), 1);
TABLE level2;
SELECT zk_unlock_all();
SELECT array_length(zk_lock_all(ARRAY['set/a'], 'exclusive'), 1) AS ends_with_the_transaction;
TABLE level2;
SELECT zk_lock_all(ARRAY['set/a'], 'update');
SELECT zk_lock_all('{set/a,set/b}', 'shared');
SELECT zk_lock_all('{set/a,set/b}', 'shared', 'session');
SELECT array_length(zk_lock_all('{set/a,set/b}'::text[], 'shared'), 1);
SELECT zk_try_lock_all(ARRAY['set/a', 'set/b'], scope => 'session', timeout => '1 min');
TABLE level2;
TABLE level1;
SELECT zk_unlock('set/b');
SELECT zk_unlock_all();
TABLE level1;
SELECT zk_try_lock_all(ARRAY['set/a', 'set/b'], 'shared', 'session');
TABLE level2;
TABLE level1;
-- not from shared to exclusive
SELECT zk_try_lock_all(ARRAY['set/c', 'set/b']);
TABLE level2;
SELECT zk_unlock_all();

-- an error ends it as well
BEGIN;
SELECT array_length(zk_lock_all('set/a', 'set/b'), 1);
SELECT 1 / 0;
ROLLBACK;
TABLE level1;

--
-- Arguments
--
SELECT zk_lock_all(VARIADIC '{}');
SELECT zk_try_lock_all('{}');
SELECT zk_lock_all('set/a', NULL);
SELECT zk_lock_all('set/a', '');
SELECT zk_lock_all(VARIADIC ARRAY[['set/a', 'set/b'], ['set/c', 'set/d']]);
SELECT zk_try_lock_all('{set/a}', 'session');
SELECT zk_try_lock_all('{set/a}', timeout => '-1 s');
\set VERBOSITY terse
SELECT zk_lock_all(VARIADIC array_agg('set/' || i)) FROM generate_series(1, 100000) AS i;
\set VERBOSITY default
TABLE level2;
TABLE level1;

DROP VIEW level1, level2;
DROP EXTENSION zklock;
