-- What the servers of test/interrupts have.
CREATE FUNCTION zk_fault(integer) RETURNS text LANGUAGE c AS 'zklock';
CREATE FUNCTION zk_pause(integer) RETURNS text LANGUAGE c AS 'zklock';
CREATE FUNCTION zk_lapse() RETURNS void LANGUAGE c AS 'zklock';

-- What a backend has, by all accounts
CREATE FUNCTION all_of(backend integer) RETURNS text LANGUAGE sql AS $$
	WITH zk AS MATERIALIZED (SELECT name, coalesce(mode, 'exclusive') AS mode, scope, count, granted, classid, objid FROM zk_locks WHERE pid = backend),
		pg AS MATERIALIZED (SELECT *, CASE pg_locks.mode WHEN 'ExclusiveLock' THEN 'exclusive' ELSE 'shared' END AS zk_mode
			FROM pg_locks WHERE pid = backend AND locktype = 'advisory' AND objsubid = 31339)
	SELECT concat_ws(' ',
		(SELECT string_agg(format('%s:%s:%s:%s', name, mode, scope, count), ' ' ORDER BY name, mode, scope) FROM zk),
		(SELECT 'WAITS AT LEVEL 1' WHERE EXISTS (SELECT FROM pg WHERE NOT granted)),
		(SELECT 'WAITS AT LEVEL 2' WHERE EXISTS (SELECT FROM zk WHERE NOT granted)),
		(SELECT 'IN pg_locks ONLY' WHERE EXISTS (SELECT classid, objid, zk_mode FROM pg EXCEPT SELECT classid, objid, mode FROM zk)),
		(SELECT 'IN zk_locks ONLY' WHERE EXISTS (SELECT classid, objid, mode FROM zk EXCEPT SELECT classid, objid, zk_mode FROM pg)))
$$;
