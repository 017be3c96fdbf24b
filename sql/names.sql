--
-- A name may have any character, and none leads out of the lock root.
--
CREATE EXTENSION zklock;

CREATE TABLE odd (i serial, name text);
INSERT INTO odd (name) VALUES
	('/'), ('//'), ('/zklock'), ('a/b'), ('a/../b'), ('../../zookeeper'),
	('.'), ('..'), ('...'), ('./'), ('.x'), ('x.'),
	('%'), ('%%'), ('%2F'), ('%2f'), ('%2E'), ('%252F'), ('100 %'), ('%s%n%d'),
	(' '), ('  '), (' a'), ('a '), (E'\t'), (E'\n'), (E'a\r\nb'), (E'\001'), (E'\037'), (E'\177'),
	(E'\u0080'), (E'\u009f'), (E'\u00a0'), (E'\ue000'), (E'\uf8ff'), (E'\ufff0'), (E'\ufeff'), (E'\u200b'),
	('ß'), ('é'), (E'e\u0301'), ('日本'), ('🔒'), ('👩‍👩‍👧'), ('"'), (''''), ('\'), ('_c_-lock-0000000000'),
	(repeat('/', 255));
SELECT count(*), count(DISTINCT name) FROM odd;

-- all at once; those of a group would meet if they were the same lock
BEGIN;
SELECT count(DISTINCT zk_lock(name)) FROM odd;
SELECT count(*) FROM odd JOIN zk_locks USING (name) WHERE granted AND token = zk_token(name);
-- names that some systems take for one
SELECT zk_token('JOB'), zk_token('/%'), zk_token('%2F%2F'), zk_token('日'), zk_token('e');
COMMIT;
SELECT count(*) FROM zk_locks;

-- and again, one by one and with growing tokens
DO $$
DECLARE
	n text;
	newest bigint := 0;
	token bigint;
BEGIN
	FOR n IN SELECT name FROM odd ORDER BY i LOOP
		token := zk_lock(n, 'exclusive', 'session');
		ASSERT token > newest AND zk_token(n) = token, n;
		newest := token;
		ASSERT zk_unlock(n), n;
		ASSERT zk_token(n) IS NULL, n;
	END LOOP;
END $$;

DROP TABLE odd;
DROP EXTENSION zklock;
