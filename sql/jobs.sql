-- Jobs: arguments, errors, one server.
CREATE EXTENSION IF NOT EXISTS zklock;
SET timezone = 'UTC';

-- names
\set VERBOSITY default
CALL zk_run_once('', 'SELECT 1', every => '1 h');
CALL zk_run_once(repeat('x', 256), 'SELECT 1', every => '1 h');
SELECT zk_run_begin('', every => '1 h');
SELECT zk_run_end('');
SELECT zk_job_reset('');
SELECT zk_job_forget('');
SELECT zk_job_pause('');
SELECT zk_job_resume('');

-- what else is given
CALL zk_run_once('j', 'SELECT 1');
CALL zk_run_once('j', 'SELECT 1', every => '1 h', slot => 'today');
CALL zk_run_once('j', 'SELECT 1', every => '0');
CALL zk_run_once('j', 'SELECT 1', every => '-1 s');
CALL zk_run_once('j', 'SELECT 1', every => '40000 days');
CALL zk_run_once('j', 'SELECT 1', every => '1 month');
CALL zk_run_once('j', 'SELECT 1', every => '1 year -1 day');
CALL zk_run_once('j', 'SELECT 1', every => '1 h', origin => NULL);
CALL zk_run_once('j', 'SELECT 1', every => '1 h', origin => 'infinity');
CALL zk_run_once('j', 'SELECT 1', slot => 'infinity');
CALL zk_run_once('j', 'SELECT 1', slot => '-infinity');
CALL zk_run_once('j', 'SELECT 1', every => '1 h', timeout => '-1 s');
CALL zk_run_once('j', 'SELECT 1', every => '1 h', attempts => 0);
CALL zk_run_once('j', 'SELECT 1', every => '1 h', in_doubt => 'maybe');
CALL zk_run_once('j', 'SELECT 1', every => '1 h', after => '{i,j}');
CALL zk_run_once('j', 'SELECT 1', every => '1 h', after => '{i,NULL}');
CALL zk_run_once('j', 'SELECT 1', every => '1 h', after => '{{i}}');
CALL zk_run_once('j', 'SELECT 1', every => '1 h', after => '{""}');
SELECT zk_run_begin('j', every => '1 h', after => '{j}');
CALL zk_run_begin_session('j', every => '1 h', after => '{j}');
SELECT zk_job_reset('j', 'infinity');
\set VERBOSITY terse
SELECT zk_job_pause('j', '-infinity');
SELECT zk_job_pause('j', '2026-01-01');
\set VERBOSITY default
SELECT count(*) FROM zk_jobs WHERE job = 'j';

-- where
BEGIN;
CALL zk_run_once('j', 'SELECT 1', every => '1 h');
ROLLBACK;
BEGIN;
CALL zk_run_begin_session('j', every => '1 h');
ROLLBACK;
CREATE PROCEDURE wrapped() LANGUAGE plpgsql AS $$
BEGIN
	CALL zk_run_once('wrapped', 'CREATE TABLE job_wrapped (i int)', slot => '2026-01-01');
	CALL zk_run_once('wrapped', 'CREATE TABLE job_wrapped (i int)', slot => '2026-01-01');
END $$;
\set VERBOSITY terse
CALL wrapped();
DO $$ BEGIN CALL zk_run_once('wrapped', 'DROP TABLE job_wrapped', slot => '2026-01-02'); END $$;
SELECT to_regclass('job_wrapped') IS NULL;
DROP PROCEDURE wrapped();

-- what stays is not written by a read-only transaction
SELECT zk_run_begin('read', every => '1 h');
SET default_transaction_read_only = on;
CALL zk_run_once('j', 'SELECT 1', every => '1 h');
SELECT zk_run_begin('j', every => '1 h');
SELECT zk_run_end('read');
SELECT zk_job_reset('read');
SELECT zk_job_forget('read');
SELECT zk_job_pause('read');
SELECT zk_job_resume('read');
RESET default_transaction_read_only;
SELECT state FROM zk_jobs WHERE job = 'read';
SELECT zk_run_end('read');
SELECT count(*) FROM zk_runs WHERE name = 'read';
SELECT zk_job_forget('read');

-- slots
CREATE TABLE job_runs (slot text);
CALL zk_run_once('j', $$INSERT INTO job_runs VALUES ('1')$$, slot => '2026-01-01');
CALL zk_run_once('j', $$INSERT INTO job_runs VALUES ('1')$$, slot => '2026-01-01 00:00:00.000999');
CALL zk_run_once('j', $$INSERT INTO job_runs VALUES ('2')$$, slot => '2026-01-01 00:00:00.001');
CALL zk_run_once('j', $$INSERT INTO job_runs VALUES ('1999')$$, slot => '1999-12-31 23:59:59.9999');
SELECT * FROM job_runs;
SELECT job, slot, state, attempt, failures, error, last_done, next_due FROM zk_jobs WHERE job = 'j';
SELECT jsonb_path_query_array(runs, '$[*].slot') FROM zk_jobs WHERE job = 'j';
CALL zk_run_once('old', 'SELECT 1', slot => '1999-12-31 23:59:59.9999');
SELECT slot, last_done FROM zk_jobs WHERE job = 'old';
SELECT kind, name, slot, number, attempt, outcome FROM zk_runs WHERE name = 'old';

-- the newest 16 runs
DO $$
BEGIN
	FOR i IN 1 .. 20 LOOP
		CALL zk_run_once('many', 'SELECT 1', slot => '2026-01-01'::timestamptz + i * '1 h'::interval);
	END LOOP;
END $$;
SELECT jsonb_array_length(runs), runs->0->>'number', runs->15->>'number' FROM zk_jobs WHERE job = 'many';
SELECT count(*) FROM zk_runs WHERE name = 'many';

\set VERBOSITY default
-- errors, with all that they have
\set SHOW_CONTEXT never
CALL zk_run_once('bad', $$DO 'BEGIN RAISE EXCEPTION USING ERRCODE = ''ZZ001'', MESSAGE = E''first\nsecond'', DETAIL = ''d'', HINT = ''h''; END'$$, slot => '2026-01-01');
\echo :LAST_ERROR_SQLSTATE
SELECT state, error FROM zk_jobs WHERE job = 'bad';
SELECT outcome, error FROM zk_runs WHERE name = 'bad';
CALL zk_run_once('bad', 'SELECT repeat(''ä'', 200)::int', slot => '2026-01-02');
SELECT octet_length(error), right(error, 3) FROM zk_jobs WHERE job = 'bad';
-- the first line may be blank, and so may all be
CALL zk_run_once('blank', $$DO 'BEGIN RAISE EXCEPTION E''\n \n  said \nmore''; END'$$, slot => '2026-01-01');
CALL zk_run_once('blank', $$DO 'BEGIN RAISE EXCEPTION E'' \n''; END'$$, slot => '2026-01-02');
SELECT run->'error' AS error FROM zk_jobs, jsonb_array_elements(runs) run WHERE job = 'blank';
SELECT error FROM zk_runs WHERE name = 'blank' ORDER BY slot;

-- commands
CALL zk_run_once('bad', 'ROLLBACK', slot => '2026-01-03');
CALL zk_run_once('bad', '', slot => '2026-01-04');
CALL zk_run_once('bad', 'SELECT 1; SELECT', slot => '2026-01-05');
CALL zk_run_once('bad', 'syntax', slot => '2026-01-06');
CALL zk_run_once('bad', 'SAVEPOINT s', slot => '2026-01-07');
CALL zk_run_once('bad', $$SELECT zk_run_begin('bad', slot => '2026-01-08')$$, slot => '2026-01-08');
CALL zk_run_once('bad', $$SELECT zk_job_reset('bad')$$, slot => '2026-01-09');

-- by hand
SELECT zk_job_reset('j'), zk_job_reset('none'), zk_job_reset('many', '2026-01-01 03:00');
SELECT slot, last_done, next_due FROM zk_jobs WHERE job = 'j';
BEGIN;
SELECT zk_job_reset('j');
SELECT zk_job_forget('j'), zk_job_forget('j');
COMMIT;
SELECT count(*) FROM zk_jobs WHERE job = 'j';

-- pauses, also of a job that nobody has called yet
SELECT zk_job_pause('paused'), zk_job_pause('paused');
SELECT job, slot, state, last_done, next_due, paused_until, runs FROM zk_jobs WHERE job = 'paused';
CALL zk_run_once('paused', 'SELECT 1/0', slot => '2026-01-01');
SELECT zk_run_begin('paused', slot => '2026-01-01');
CALL zk_run_begin_session('paused', slot => '2026-01-01');
SELECT zk_job_forget('paused'), zk_job_reset('paused');
SELECT zk_job_pause('paused', '2200-01-01'), zk_job_pause('paused', '2200-01-01 00:00:00.0001');
SELECT paused_until FROM zk_jobs WHERE job = 'paused';
CALL zk_run_once('paused', 'SELECT 1/0', every => '1 h');
SELECT zk_job_resume('paused'), zk_job_resume('paused'), zk_job_resume('none');
SELECT count(*) FROM zk_jobs WHERE job = 'paused';
-- what has begun goes on; to forget the job ends no pause
SELECT zk_run_begin('paused', slot => '2026-01-01');
SELECT zk_job_pause('paused');
SELECT state, paused_until FROM zk_jobs WHERE job = 'paused';
SELECT zk_run_end('paused');
SELECT state, paused_until, last_done FROM zk_jobs WHERE job = 'paused';
SELECT zk_job_forget('paused');
CALL zk_run_once('paused', 'SELECT 1/0', slot => '2026-01-01');
SELECT zk_job_resume('paused');
CALL zk_run_once('paused', 'SELECT 1', slot => '2026-01-01');
SELECT state, paused_until FROM zk_jobs WHERE job = 'paused';

-- one job after others
CALL zk_run_once('last', 'SELECT 1/0', slot => '2026-01-02', timeout => '0', after => '{first,second}');
CALL zk_run_once('first', 'SELECT 1', slot => '2026-01-02');
SELECT zk_run_begin('last', slot => '2026-01-02', timeout => '0', after => '{first,second}');
CALL zk_run_once('second', 'SELECT 1', slot => '2026-01-01');
CALL zk_run_begin_session('last', slot => '2026-01-02', timeout => '0', after => '{first,second}');
CALL zk_run_once('last', 'SELECT 1/0', slot => '2026-01-02', timeout => '1 ms', after => '{first,second}');
\echo :LAST_ERROR_SQLSTATE
SET lock_timeout = '1 ms';
CALL zk_run_once('last', 'SELECT 1/0', slot => '2026-01-02', after => '{first,second}');
\echo :LAST_ERROR_SQLSTATE
RESET lock_timeout;
-- a later slot will do
CALL zk_run_once('second', 'SELECT 1', slot => '2026-01-03');
CALL zk_run_once('last', 'SELECT 1', slot => '2026-01-02', timeout => '0', after => '{first,second}');
\set VERBOSITY terse
CALL zk_run_once('last', 'SELECT 1', slot => '2026-01-02', timeout => '0', after => '{first,second,third}');
\set VERBOSITY default
SELECT slot, state FROM zk_jobs WHERE job = 'last';
-- a slot that has failed, or is due again, will not
CALL zk_run_once('second', 'SELECT 1/0', slot => '2026-01-04');
CALL zk_run_once('last', 'SELECT 1/0', slot => '2026-01-04', timeout => '0', after => '{second}');
CALL zk_run_once('second', 'SELECT 1', slot => '2026-01-05');
CALL zk_run_once('last', 'SELECT 1/0', slot => '2026-01-04', timeout => '0', after => '{second}');
SELECT zk_job_reset('second', '2026-01-03');
CALL zk_run_once('last', 'SELECT 1/0', slot => '2026-01-03', timeout => '0', after => '{second}');
CALL zk_run_once('second', 'SELECT 1', slot => '2026-01-03');
CALL zk_run_once('last', 'SELECT 1', slot => '2026-01-03', timeout => '0', after => '{second}');
SELECT zk_job_reset('second', '2026-01-04');
CALL zk_run_once('second', 'SELECT 1', slot => '2026-01-04');
CALL zk_run_once('last', 'SELECT 1', slot => '2026-01-04', timeout => '0', after => '{second}');
CALL zk_run_once('last', 'SELECT 1', slot => '2026-01-06', timeout => '0', after => '{}');
SELECT slot, state FROM zk_jobs WHERE job = 'last';
-- the other job has slots of its own
CALL zk_run_once('days', 'SELECT 1', every => '30000 days', origin => '2026-02-01');
CALL zk_run_once('last', 'SELECT 1', slot => '2026-03-05', timeout => '0', after => '{days}');
CALL zk_run_once('last', 'SELECT 1/0', slot => '2110-01-01', timeout => '0', after => '{days}');
SELECT slot, state FROM zk_jobs WHERE job = 'last';

-- namespaces
SET zklock.namespace = 'n';
CALL zk_run_once('old', 'SELECT 1', slot => '1998-01-01');
SELECT job, slot FROM zk_jobs;
SELECT namespace, name, slot FROM zk_runs WHERE namespace <> '';
RESET zklock.namespace;
SELECT job, slot FROM zk_jobs WHERE job = 'old';

-- old rows go
UPDATE zk_runs SET ended = ended - '89 d'::interval WHERE name = 'many' AND number <= 10;
UPDATE zk_runs SET ended = ended - '91 d'::interval WHERE name = 'many' AND number <= 5;
CALL zk_run_once('old', 'SELECT 1', slot => '2000-01-01');
SELECT count(*) FROM zk_runs WHERE name = 'many';

-- zk_run_as_leader
SELECT zk_is_leader('jobs', '1 h');
CALL zk_run_as_leader('jobs', 'SELECT 1');
SELECT kind, namespace, name, slot, number, attempt, token = (SELECT token FROM zk_elections WHERE election = 'jobs') AS token, started <= ended AS time, outcome, error FROM zk_runs WHERE kind = 'election';
BEGIN READ ONLY;
CALL zk_run_as_leader('jobs', 'SELECT 1');
COMMIT;
BEGIN;
CALL zk_run_as_leader('jobs', 'SELECT 1');
ROLLBACK;
SELECT count(*) FROM zk_runs WHERE kind = 'election';
SELECT zk_resign('jobs');

-- a table that is not as it was
ALTER TABLE zk_runs ADD CHECK (token > 0);
CALL zk_run_once('j', 'SELECT 1', every => '30000 days', origin => '2026-02-01');
ALTER TABLE zk_runs DROP CONSTRAINT zk_runs_token_check;
CREATE INDEX job_index ON zk_runs ((token + 1));
CALL zk_run_once('j', 'SELECT 1', every => '30000 days', origin => '2026-02-01');
DROP INDEX job_index;
CREATE INDEX job_index ON zk_runs (token);
CALL zk_run_once('j', 'SELECT 1', every => '30000 days', origin => '2026-02-01');
SET client_min_messages = warning;
CALL zk_run_once('j', 'SELECT 1', every => '30000 days', origin => '2026-02-01');
RESET client_min_messages;
SELECT count(*) FROM zk_runs WHERE name = 'j' AND slot = '2026-02-01';
DROP INDEX job_index;

-- nothing is held
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 31339;
SELECT zk_job_forget(job) FROM zk_jobs;
DROP TABLE job_runs;
