--
-- Elections with one candidate: results, columns, errors, privileges
--
CREATE EXTENSION zklock;
\set SHOW_CONTEXT never
\d zk_elections

-- asking makes no candidate
SELECT (SELECT server FROM zk_candidates('nightly') WHERE is_leader) IS NULL AS nobody, ARRAY(SELECT server FROM zk_candidates('nightly')), (SELECT token FROM zk_elections WHERE election = 'nightly');
SELECT * FROM zk_elections;
SELECT zk_resign('nightly');

-- the first call does; it waits for the verdict, for two seconds if not told otherwise
SELECT zk_is_leader('nightly', '1 h');
SELECT (SELECT token FROM zk_elections WHERE election = 'nightly') AS token, (SELECT server FROM zk_candidates('nightly') WHERE is_leader) AS leader \gset
SELECT zk_is_leader('nightly'), (SELECT token FROM zk_elections WHERE election = 'nightly') = :token AS same, ARRAY(SELECT server FROM zk_candidates('nightly')) = ARRAY[:'leader'] AS alone;
SELECT server = :'leader' AS server, is_leader, priority FROM zk_candidates('nightly');
SELECT election, is_leader, leader = :'leader' AS leader, candidates = ARRAY[:'leader'] AS candidates,
	token = :token AS token, since BETWEEN now() - interval '1 h' AND now() AS since, changes FROM zk_elections;

-- only who needs leader or candidates asks ZooKeeper
EXPLAIN (COSTS OFF) SELECT election, is_leader, token FROM zk_elections;
-- ... and else once for each election
EXPLAIN (COSTS OFF) SELECT * FROM zk_elections;

-- in any place, with any argument
CREATE TABLE t AS SELECT i, CASE WHEN i % 10 < 5 THEN 'nightly' ELSE 'e' || i % 10 END AS election FROM generate_series(1, 1000) i;
SELECT count(*) FROM t WHERE zk_is_leader('nightly');
SELECT count(*) FROM t WHERE zk_is_leader(election, '1 h');
SELECT count(*), bool_and(is_leader) FROM zk_elections;
SELECT zk_resign('e' || i) FROM generate_series(5, 9) i;
SELECT election FROM zk_elections;
-- by a parallel worker, too
BEGIN;
SET LOCAL max_parallel_workers_per_gather = 2;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL parallel_leader_participation = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM t WHERE zk_is_leader('parallel', '1 h');
SELECT count(*) FROM t WHERE zk_is_leader('parallel', '1 h');
COMMIT;
-- a prepared statement, and a function
PREPARE p(text) AS SELECT zk_is_leader($1, '1 h');
EXECUTE p('nightly');
EXECUTE p('prepared');
CREATE FUNCTION f(e text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN zk_is_leader(e, ''1 h''); END';
SELECT f('nightly'), f('function'), f('nightly');

-- what depends on the leadership
BEGIN;
SELECT zk_require_leader('nightly') = :token AS token;
SELECT zk_fence('report', zk_require_leader('nightly'));
COMMIT;
SELECT resource, token = :token AS token FROM zk_fences;
CALL zk_run_as_leader('nightly', 'INSERT INTO t VALUES (0)');
CALL zk_run_as_leader('nightly', $$SELECT 'unseen'$$);
SELECT count(*) FROM t WHERE i = 0;
-- zk_elections is this server's alone; locks are something else
SELECT zk_try_lock('nightly');
SELECT * FROM zk_locks;

-- resign, and enter again
SELECT zk_resign('nightly'), (SELECT token FROM zk_elections WHERE election = 'nightly');
SELECT zk_is_leader('nightly', '1 h'), (SELECT token FROM zk_elections WHERE election = 'nightly') > :token AS larger;
SELECT zk_is_leader('nightly', '0') IS NULL AS never;

--
-- Errors
--
SELECT zk_is_leader('');
\echo :LAST_ERROR_SQLSTATE
SELECT zk_is_leader(repeat('é', 128));
\echo :LAST_ERROR_SQLSTATE
SELECT zk_is_leader('x', '-1 s');
SELECT * FROM zk_candidates('');
SELECT zk_require_leader('');
SELECT zk_resign('');
CALL zk_run_as_leader('', 'SELECT 1');
CALL zk_run_as_leader('nightly', 'SELECT 1/0');
CALL zk_run_as_leader('nightly', 'COMMIT');
\echo :LAST_ERROR_SQLSTATE
CALL zk_run_as_leader('nightly', 'DO $$BEGIN COMMIT; END$$');
CALL zk_run_as_leader('nightly', 'COPY t TO STDOUT');
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SELECT zk_require_leader('nightly') > 0 AS led;
PREPARE TRANSACTION 'p';
\echo :LAST_ERROR_SQLSTATE
-- zklock.max_locks is 50
SELECT count(zk_is_leader('full' || i, '0')) FROM generate_series(1, 60) i;
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) < 50 AS had, bool_and(zk_resign(election)) FROM zk_elections WHERE election LIKE 'full%';

--
-- Privileges: for those who have been granted them; pg_monitor may look.
--
CREATE ROLE regress_zklock;
SET ROLE regress_zklock;
SELECT zk_is_leader('nightly');
SELECT zk_require_leader('nightly');
SELECT * FROM zk_elections;
CALL zk_run_as_leader('nightly', 'SELECT 1');
RESET ROLE;
GRANT EXECUTE ON FUNCTION zk_is_leader, zk_require_leader TO regress_zklock;
GRANT EXECUTE ON PROCEDURE zk_run_as_leader TO regress_zklock;
GRANT pg_monitor TO regress_zklock;
SET ROLE regress_zklock;
SELECT zk_is_leader('nightly'), zk_require_leader('nightly') > 0 AS led, (SELECT server FROM zk_candidates('nightly') WHERE is_leader) = :'leader' AS leader;
SELECT election, leader = :'leader' AS leader FROM zk_elections WHERE election = 'nightly';
SELECT zk_resign('nightly');
\echo :LAST_ERROR_SQLSTATE
-- the caller's rights
CALL zk_run_as_leader('nightly', 'INSERT INTO t VALUES (1)');
RESET ROLE;
DROP OWNED BY regress_zklock;
DROP ROLE regress_zklock;

SELECT bool_and(zk_resign(election)) FROM zk_elections;
SELECT * FROM zk_elections;
DEALLOCATE p;
DROP FUNCTION f;
DROP TABLE t;
DROP EXTENSION zklock;
