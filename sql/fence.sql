-- Fencing tokens: zk_assert and zk_fence
\set VERBOSITY terse
CREATE EXTENSION IF NOT EXISTS zklock;

-- zk_assert proves a hold, and there must be one
SELECT zk_assert('nobody holds this');
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SELECT zk_lock('fence') AS token \gset
SELECT zk_assert('fence') = :token AS proven;
COMMIT;

-- zk_fence remembers the largest token of a resource
SELECT zk_fence('report', 10);
SELECT zk_fence('report', 10);
SELECT zk_fence('report', 12), zk_fence('other', 1);
\set VERBOSITY default
SELECT zk_fence('report', 11);
\set VERBOSITY terse
\echo :LAST_ERROR_SQLSTATE
SELECT zk_fence('', 1);
SELECT zk_fence(repeat('x', 1001), 1);
SELECT * FROM zk_fences ORDER BY resource;

-- the token of what others may hold at the same time is no fence
BEGIN;
SELECT zk_lock('fence', 'shared') AS token \gset
SELECT zk_acquire('s', 2) AS permit, zk_acquire('t', 1) AS alone \gset
\set VERBOSITY default
-- the numbers are never the same
DO $$
DECLARE
	detail text;
	hint text;
	token bigint;
BEGIN
	FOREACH token IN ARRAY ARRAY[zk_token('fence'), zk_assert_permit('s')] LOOP
		BEGIN
			PERFORM zk_fence('shared', token);
		EXCEPTION WHEN object_not_in_prerequisite_state THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			RAISE NOTICE '%', replace(SQLERRM, token::text, '...') USING DETAIL = detail, HINT = hint;
		END;
	END LOOP;
END $$;
\set VERBOSITY terse
SELECT zk_fence('shared', :alone);
-- an exclusive lock is one, also of a session that reads it besides
SELECT zk_lock('fence') AS exclusive \gset
SELECT zk_fence('shared', :exclusive);
ROLLBACK;

-- a fence goes with its transaction
BEGIN;
SELECT zk_fence('report', 20);
SAVEPOINT s;
SELECT zk_fence('report', 30);
ROLLBACK TO s;
SELECT token FROM zk_fences WHERE resource = 'report';
ROLLBACK;
SELECT token FROM zk_fences WHERE resource = 'report';

-- it needs no right on the table, and falls for no operator of its caller's
CREATE ROLE regress_zklock_fence;
GRANT EXECUTE ON FUNCTION zk_fence TO regress_zklock_fence;
CREATE SCHEMA regress_zklock_trap AUTHORIZATION regress_zklock_fence;
SET ROLE regress_zklock_fence;
CREATE FUNCTION regress_zklock_trap.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR regress_zklock_trap.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = regress_zklock_trap.never);
SET search_path = regress_zklock_trap, pg_catalog;
SELECT public.zk_fence('report', 13);
SELECT public.zk_fence('report', 11);
SELECT * FROM public.zk_fences;
RESET search_path;
RESET ROLE;
DROP SCHEMA regress_zklock_trap CASCADE;
DROP OWNED BY regress_zklock_fence;
DROP ROLE regress_zklock_fence;

-- a table of the extension, whose rows are dumped with the database
SELECT extcondition FROM pg_extension WHERE extname = 'zklock' AND 'zk_fences'::regclass = ANY (extconfig);

-- the extension may move
CREATE SCHEMA elsewhere;
ALTER EXTENSION zklock SET SCHEMA elsewhere;
SELECT elsewhere.zk_fence('report', 14);
SELECT * FROM elsewhere.zk_fences ORDER BY resource;
ALTER EXTENSION zklock SET SCHEMA public;
DROP SCHEMA elsewhere;
SELECT zk_fence('report', 15);
DELETE FROM zk_fences;
