-- Work that is handed out: arguments, errors, one session

CREATE EXTENSION zklock;
SELECT zk_queue_put('', 'x');
SELECT zk_queue_put(repeat('x', 256), 'x');
SELECT zk_queue_put('q', repeat('x', 65537));
SELECT * FROM zk_queue_take('');
SELECT * FROM zk_queue_take('q', '-1 s');
SELECT * FROM zk_queue_take('q');
SELECT zk_queue_purge('q');
SET lock_timeout = '10ms';
SELECT * FROM zk_queue_take('q', '2 s');
\echo :LAST_ERROR_SQLSTATE
SET lock_timeout = '1h';
SELECT * FROM zk_queue_take('q', '10 ms');
RESET lock_timeout;
BEGIN READ ONLY;
SELECT zk_queue_put('q', 'x');
COMMIT;
SET zklock.max_item_size = 2;
SELECT zk_queue_put('q', 'äö');
RESET zklock.max_item_size;
SET zklock.max_queue_length = 2;
SELECT zk_queue_put('q', i::text) FROM generate_series(1, 3) i;
RESET zklock.max_queue_length;
BEGIN;
SELECT zk_queue_put('q', 'put') AS id \gset
SELECT payload FROM zk_queue_take('q');
COMMIT;
SELECT :'id' ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' AS version_7,
    to_timestamp(('x' || translate(left(:'id', 13), '-', ''))::bit(48)::bigint / 1000.0) BETWEEN now() - interval '1 h' AND now() + interval '1 h' AS ms;
BEGIN;
SELECT id = :'id' AS id, payload, attempt FROM zk_queue_take('q');
SELECT queue, id = :'id' AS id, state, attempts, since <= now() + interval '1 h' AS since, server <> '' AS server, pid = pg_backend_pid() AS pid
    FROM zk_queue_items;
ROLLBACK;
SELECT count(*) FROM zk_queue_items WHERE queue = 'none';
SELECT payload, attempt FROM zk_queue_take('q');
SELECT payload, attempt FROM zk_queue_take('q');

-- several, and those that fail
SELECT * FROM zk_queue_take('q', count => 0);
SELECT * FROM zk_queue_take('q', count => 101);
SELECT * FROM zk_queue_take('q', count => NULL);
SELECT * FROM zk_queue_take('q', attempts => 0);
SELECT * FROM zk_queue_take(repeat('x', 249), attempts => 1);
SELECT count(*) FROM zk_queue_take('q', count => 3);
CREATE TABLE put AS SELECT i, zk_queue_put('q', i::text) AS id FROM generate_series(1, 5) i;
SELECT bool_and(id > before) AS ascend FROM (SELECT id, lag(id) OVER (ORDER BY i) AS before FROM put) AS pairs;
BEGIN;
SELECT payload, attempt, id = (SELECT id FROM put WHERE i::text = payload) AS id FROM zk_queue_take('q', '10 s', count => 3);
SELECT payload FROM zk_queue_take('q', count => 10);
ROLLBACK;
BEGIN;
SELECT payload, attempt FROM zk_queue_take('q', count => 1, attempts => 2);
ROLLBACK;
SELECT payload, attempt FROM zk_queue_take('q', count => 2, attempts => 1);
SELECT queue, state, attempts FROM zk_queue_items;
SELECT payload, attempt, id = (SELECT id FROM put WHERE i::text = payload) AS id FROM zk_queue_take('q.failed', count => 4);
SELECT zk_queue_purge('q.failed');
DROP TABLE put;
-- COMMIT deletes what was taken, also if the query or the client left rows out
SELECT count(zk_queue_put('cut', i::text)) FROM generate_series(1, 6) i;
SELECT payload FROM zk_queue_take('cut', count => 3) LIMIT 1;
BEGIN;
DECLARE c CURSOR FOR SELECT payload FROM zk_queue_take('cut', count => 3);
FETCH 1 FROM c;
COMMIT;
SELECT count(*) FROM zk_queue_take('cut', count => 6);
DROP EXTENSION zklock;
