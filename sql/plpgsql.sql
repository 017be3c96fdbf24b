--
-- Functions, blocks, triggers, procedures, cursors.
--
CREATE EXTENSION zklock;
\set SHOW_CONTEXT never
CREATE VIEW level2 AS
	SELECT name, mode, scope FROM zk_locks WHERE pid = pg_backend_pid() AND granted ORDER BY 1, 2, 3;
CREATE VIEW level1 AS
	SELECT mode, count(*) FROM pg_locks
	WHERE locktype = 'advisory' AND objsubid = 31339 AND pid = pg_backend_pid() AND granted
	GROUP BY mode ORDER BY 1;

--
-- Functions
--
CREATE FUNCTION in_plpgsql(name text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN zk_lock(name); END $$;
CREATE FUNCTION in_sql(name text) RETURNS bigint LANGUAGE sql AS $$ SELECT zk_lock(name) $$;
CREATE FUNCTION with_setting(name text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET zklock.connect_timeout = '3s'
	AS $$ BEGIN RETURN zk_lock(name); END $$;
BEGIN;
SELECT in_plpgsql('a') > 0 AS a, in_sql('b') > 0 AS b, with_setting('c') > 0 AS c;
TABLE level2;
TABLE level1;
COMMIT;
TABLE level2;

-- a condition that is evaluated for each row
CREATE TABLE jobs (name text PRIMARY KEY);
INSERT INTO jobs VALUES ('x'), ('y'), ('z');
BEGIN;
SELECT name FROM jobs WHERE zk_try_lock(name) ORDER BY name;
TABLE level2;
COMMIT;

--
-- Blocks
--
DO $$
BEGIN
	PERFORM zk_lock('outer');
	BEGIN
		PERFORM zk_lock('inner'), zk_lock('outer');
		RAISE NOTICE 'held: %', (SELECT array_agg(name) FROM level2);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE 'after the exception: %', (SELECT array_agg(name) FROM level2);
	END;
	BEGIN
		PERFORM zk_lock('kept');
	EXCEPTION WHEN others THEN
	END;
	RAISE NOTICE 'after a block without one: %', (SELECT array_agg(name) FROM level2);
	-- an error of ours is like any other
	BEGIN
		PERFORM zk_lock('inner'), zk_lock('');
	EXCEPTION WHEN invalid_parameter_value THEN
		RAISE NOTICE 'after "%": %', SQLERRM, (SELECT array_agg(name) FROM level2);
	END;
	-- deep: 2 and 4 end in the middle, 3 outside
	FOR i IN 1..4 LOOP
		BEGIN
			BEGIN
				BEGIN
					PERFORM zk_lock('deep ' || i);
					IF i % 2 = 0 THEN RAISE no_data_found; END IF;
				EXCEPTION WHEN too_many_rows THEN
				END;
			EXCEPTION WHEN no_data_found THEN
			END;
			RAISE NOTICE 'deep %: %', i, zk_token('deep ' || i) IS NOT NULL;
			IF i > 2 THEN RAISE too_many_rows; END IF;
		EXCEPTION WHEN too_many_rows THEN
		END;
	END LOOP;
	RAISE NOTICE 'deep: %', (SELECT array_agg(name) FROM level2);
END $$;
TABLE level2;
TABLE level1;

-- in a transaction block it stays until the end of that
BEGIN;
DO $$ BEGIN PERFORM zk_lock('job'); END $$;
TABLE level2;
COMMIT;

-- an exception block does not give up what the session holds
DO $$
BEGIN
	PERFORM zk_lock('job', 'exclusive', 'session');
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
	RAISE NOTICE 'held: %', (SELECT array_agg(name || ', ' || scope) FROM level2);
	PERFORM zk_unlock('job');
END $$;
TABLE level2;

--
-- Triggers
--
CREATE TABLE log (i int, token bigint);
CREATE FUNCTION lock_it() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE '%: new %', TG_NAME, zk_token('trigger') IS NULL;
	UPDATE log SET token = zk_lock('trigger') WHERE i = NEW.i AND token IS NULL;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON log DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION lock_it();
BEGIN;
INSERT INTO log VALUES (1), (2);
TABLE level2;
COMMIT;
TABLE level2;
TABLE level1;
INSERT INTO log VALUES (3);
SELECT count(token), count(DISTINCT token) FROM log;
-- now, within a savepoint
BEGIN;
INSERT INTO log VALUES (4);
SAVEPOINT s;
SET CONSTRAINTS ALL IMMEDIATE;
TABLE level2;
ROLLBACK TO s;
TABLE level2;
COMMIT;
TABLE level2;
-- the trigger fails, after it has locked
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM zk_lock('failing'); RAISE 'no'; END $$;
CREATE CONSTRAINT TRIGGER zzz AFTER INSERT ON log DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION fail();
BEGIN;
SELECT zk_lock('job') > 0 AS locked;
INSERT INTO log VALUES (5);
COMMIT;
TABLE level2;
TABLE level1;
SELECT count(*) FROM log;

--
-- Procedures that commit
--
CREATE PROCEDURE in_parts() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_lock('part'), zk_lock('whole', 'shared', 'session');
	RAISE NOTICE 'before: %', (SELECT array_agg(name) FROM level2);
	COMMIT;
	RAISE NOTICE 'after COMMIT: %', (SELECT array_agg(name) FROM level2);
	PERFORM zk_lock('part');
	ROLLBACK;
	RAISE NOTICE 'after ROLLBACK: %', (SELECT array_agg(name) FROM level2);
	PERFORM zk_lock('part');
	COMMIT AND CHAIN;
	RAISE NOTICE 'after COMMIT AND CHAIN: %', (SELECT array_agg(name) FROM level2);
	PERFORM zk_unlock('whole');
	COMMIT;
	RAISE NOTICE 'at last: %', (SELECT array_agg(name) FROM level2);
END $$;
CALL in_parts();
TABLE level1;

-- zk_lock_session from one of those
CREATE PROCEDURE calls() LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO jobs VALUES ('committed by the call');
	CALL zk_lock_session('called');
	ROLLBACK;
	RAISE NOTICE 'held: %', (SELECT array_agg(name || ', ' || scope) FROM level2);
END $$;
CALL calls();
SELECT name FROM jobs WHERE name LIKE 'c%';
SELECT zk_unlock_all();
DO $$ BEGIN CALL zk_lock_session('called', timeout => '1 s'); END $$;
TABLE level2;
SELECT zk_unlock('called');

-- chains
BEGIN;
SELECT zk_lock('chain') > 0 AS locked;
COMMIT AND CHAIN;
TABLE level2;
SELECT zk_lock('chain') > 0 AS locked;
ROLLBACK AND CHAIN;
TABLE level2;
COMMIT;

--
-- Cursors
--
BEGIN;
DECLARE c CURSOR FOR SELECT i, zk_lock('row ' || i) > 0 AS locked, 1 / (3 - i) AS quotient FROM generate_series(1, 4) i;
FETCH c;
SAVEPOINT s;
FETCH c;
TABLE level2;
ROLLBACK TO s;
TABLE level2;
TABLE level1;
-- row 3 fails the cursor; row 1 was locked before the savepoint, by the portal
SAVEPOINT t;
FETCH c;
ROLLBACK TO t;
TABLE level2;
TABLE level1;
SELECT zk_token('row 1') > 0 AS held, zk_try_lock('row 1') AS again;
FETCH c;
ROLLBACK;
TABLE level2;
TABLE level1;

-- closed, it leaves its locks to the transaction
BEGIN;
DECLARE c CURSOR FOR SELECT i, zk_lock('row ' || i) > 0 AS locked FROM generate_series(1, 4) i;
FETCH 2 FROM c;
CLOSE c;
TABLE level2;
TABLE level1;
COMMIT;

-- materialized at COMMIT, which locks all the rest in its last moments
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT i, zk_lock('row ' || i) > 0 AS locked FROM generate_series(1, 4) i;
FETCH c;
COMMIT;
TABLE level2;
TABLE level1;
FETCH ALL FROM c;
TABLE level2;
CLOSE c;

-- in a loop that commits
CREATE PROCEDURE loops() LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT i, zk_lock('row ' || i) AS token FROM generate_series(1, 12) i LOOP
		ASSERT r.token > 0;
		COMMIT;
		ASSERT NOT EXISTS (TABLE level2), 'transaction scope ends at COMMIT';
	END LOOP;
END $$;
CALL loops();
TABLE level1;

DROP TABLE jobs, log;
DROP FUNCTION in_plpgsql, in_sql, with_setting, lock_it, fail;
DROP PROCEDURE in_parts, calls, loops;
DROP VIEW level1, level2;
DROP EXTENSION zklock;
