--
-- PostgreSQL's advisory locks by zklock_advisory, in one session: what its own regression test
-- asks of them (src/test/regress/sql/advisory_lock.sql), and what else it promises.  First
-- by pg_catalog's functions, then by ours: the answers are the same.
--
CREATE EXTENSION zklock;
CREATE EXTENSION zklock_advisory;
\dx+ zklock_advisory

-- names, arguments, results and strictness are those of pg_catalog
CREATE FUNCTION signatures(schema regnamespace) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('%s(%s) %s %s %s', proname, oidvectortypes(proargtypes), prorettype::regtype, proisstrict, provolatile)
	FROM pg_proc WHERE pronamespace = schema AND proname LIKE '%advisory%'
$$;
SELECT signatures('pg_catalog') EXCEPT SELECT signatures('zk_advisory');
SELECT count(*) FROM signatures('zk_advisory');
DROP FUNCTION signatures;

-- how many locks this session has, of PostgreSQL and of zklock
CREATE FUNCTION held() RETURNS text LANGUAGE sql AS $$
	SELECT format('%s exclusive, %s shared', count(DISTINCT name) FILTER (WHERE mode ~* 'exclusive'),
			count(DISTINCT name) FILTER (WHERE mode ~* 'share'))
	FROM (SELECT name, mode FROM zk_locks WHERE pid = pg_backend_pid() AND name LIKE 'advisory/%'
		UNION ALL SELECT format('%s %s %s', classid, objid, objsubid), mode FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid <> 31339 AND pid = pg_backend_pid()) AS l
$$;

-- each step, or the end of a transaction, by the functions of one schema
CREATE PROCEDURE run(schema text) LANGUAGE plpgsql AS $$
DECLARE
	steps text[];
	todo text;
	answer text;
BEGIN
	PERFORM set_config('search_path', schema || ', pg_catalog, public', false);
	SELECT array_agg(s.todo ORDER BY number) INTO steps FROM steps s;
	FOREACH todo IN ARRAY steps LOOP
		IF todo = 'COMMIT' THEN COMMIT; CONTINUE; END IF;
		IF todo = 'ROLLBACK' THEN ROLLBACK; CONTINUE; END IF;
		EXECUTE format('SELECT concat_ws('' '', %s, held())', todo) INTO answer;
		RAISE INFO '%: %', todo, answer;
	END LOOP;
	PERFORM set_config('search_path', 'public', false);
END $$;
CREATE TABLE steps (number serial, todo text);
COPY steps (todo) FROM stdin;
pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(2), pg_advisory_xact_lock(1, 1), pg_advisory_xact_lock_shared(2, 2)
pg_advisory_unlock_all()
pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2)
COMMIT
'the transaction has ended'
pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(2), pg_advisory_xact_lock(1, 1), pg_advisory_xact_lock_shared(2, 2)
pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock(1, 1), pg_advisory_lock_shared(2, 2)
ROLLBACK
'the session has them still'
pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock_shared(2)
pg_advisory_unlock(1, 1), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2), pg_advisory_unlock_shared(2, 2)
pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock(1, 1), pg_advisory_lock_shared(2, 2)
pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(2), pg_advisory_xact_lock(1, 1), pg_advisory_xact_lock_shared(2, 2)
ROLLBACK
'the session has them still'
pg_advisory_unlock_all()
pg_advisory_xact_lock(1), pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(2), pg_advisory_xact_lock_shared(2)
COMMIT
'the transaction has ended'
pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock_shared(2)
pg_advisory_lock(1, 1), pg_advisory_lock(1, 1), pg_advisory_lock_shared(2, 2), pg_advisory_lock_shared(2, 2)
pg_advisory_unlock(1), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2), pg_advisory_unlock_shared(2, 2)
pg_advisory_unlock(1), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2), pg_advisory_unlock_shared(2, 2)
pg_advisory_unlock(1), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2), pg_advisory_unlock_shared(2, 2)
pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock_shared(2)
pg_advisory_unlock_all()
pg_try_advisory_lock(1), pg_try_advisory_lock(1), pg_try_advisory_lock_shared(2), pg_try_advisory_lock(3, 4), pg_try_advisory_lock_shared(4, 4)
pg_try_advisory_xact_lock(1), pg_try_advisory_xact_lock_shared(2), pg_try_advisory_xact_lock(3, 4), pg_try_advisory_xact_lock_shared(5, 6)
COMMIT
pg_advisory_unlock_all()
pg_advisory_unlock_shared(1), pg_advisory_unlock(2)
pg_advisory_lock(1), pg_advisory_unlock_shared(1), pg_advisory_unlock(1)
pg_advisory_lock_shared(1), pg_advisory_unlock(1), pg_advisory_unlock_shared(1)
pg_advisory_lock(1), pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1)
pg_advisory_unlock_shared(1), pg_advisory_unlock(1), pg_advisory_unlock(1)
pg_advisory_lock(1), pg_advisory_lock_shared(1), pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock_shared(1)
pg_advisory_lock_shared(1), pg_advisory_lock(1), pg_advisory_unlock(1)
pg_advisory_unlock(1), pg_advisory_unlock_shared(1)
pg_advisory_lock_shared(1), pg_advisory_lock(1), pg_advisory_lock_shared(1), pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock_shared(1), pg_advisory_unlock_shared(1), pg_advisory_unlock_shared(1)
pg_advisory_lock(-9223372036854775808), pg_advisory_lock(9223372036854775807), pg_advisory_lock(-2147483648, 2147483647), pg_advisory_lock(0), pg_advisory_lock(0, 0)
pg_advisory_unlock(0), pg_advisory_unlock(0), pg_advisory_unlock(0, 0), pg_advisory_unlock_all()
pg_advisory_lock(NULL), pg_advisory_lock(NULL, 1), pg_advisory_unlock(NULL), pg_try_advisory_lock(1, NULL)
\.
CALL run('pg_catalog');
CALL run('zk_advisory');

-- savepoints
SET search_path = zk_advisory, pg_catalog, public;
BEGIN;
SELECT pg_advisory_xact_lock(1), held();
SAVEPOINT s;
SELECT pg_advisory_xact_lock(2), pg_advisory_lock(3), held();
ROLLBACK TO s;
SELECT held();
COMMIT;
SELECT pg_advisory_unlock(3), held();

-- names, and what stands for the database
SELECT pg_advisory_lock(7), pg_advisory_lock_shared(-7, 8);
SET zklock_advisory.database = 'both';
SELECT pg_advisory_lock(7);
SELECT replace(name, current_database(), '<database>') AS name, mode, scope, count FROM zk_locks ORDER BY 1;
SELECT pg_advisory_unlock(7), pg_advisory_unlock(7);
RESET zklock_advisory.database;
SELECT pg_advisory_unlock(7), pg_advisory_unlock_shared(-7, 8);

-- what was asked for in shared mode within an exclusive lock stays exclusive
SELECT pg_advisory_lock(1), pg_advisory_lock_shared(1), pg_advisory_unlock(1), held();
SELECT pg_advisory_unlock_shared(1), held();

-- other functions that end locks of the session; zk_unlock ends the newest one, in either mode
SELECT pg_advisory_lock(1), pg_advisory_lock_shared(1), zk_unlock(format('advisory/%s/1', current_database())), held();
SELECT pg_advisory_unlock_shared(1), pg_advisory_unlock(1), pg_advisory_unlock(1), held();
SELECT pg_advisory_lock(1), zk_unlock_all(), held();
SELECT pg_advisory_lock(1), zk_lock('other', scope => 'session') > 0 AS other, pg_catalog.pg_advisory_lock(2);
SELECT pg_advisory_unlock_all();
SELECT count(*) FROM zk_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT pg_advisory_lock(1);
SELECT pg_catalog.pg_advisory_unlock_all();
SELECT pg_advisory_unlock(1), held();
SELECT pg_advisory_lock(1);
DISCARD ALL;
SET search_path = zk_advisory, pg_catalog, public;
SELECT pg_advisory_unlock(1), held();

-- a role without the rights gets an error, and takes no lock of this server alone
CREATE ROLE regress_advisory;
GRANT SELECT ON zk_locks TO regress_advisory;
SET ROLE regress_advisory;
SELECT pg_advisory_lock(1);
RESET ROLE;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA zk_advisory TO regress_advisory;
SET ROLE regress_advisory;
SELECT pg_advisory_lock(1), pg_advisory_unlock(1);
SET zklock_advisory.database = 'other';
RESET ROLE;

RESET search_path;
DROP OWNED BY regress_advisory;
DROP ROLE regress_advisory;
DROP EXTENSION zklock;
DROP EXTENSION zklock_advisory;
DROP EXTENSION zklock;
DROP PROCEDURE run;
DROP FUNCTION held;
DROP TABLE steps;
