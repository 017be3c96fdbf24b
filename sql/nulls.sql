-- NULL arguments: an answer to NULL would look like a lock that is had, or free, or like
-- nobody there.  All functions of the extension are looked at, as pg_proc has them.
CREATE EXTENSION zklock;

-- STRICT, and why: sql/zklock--1.0.sql
SELECT oid::regprocedure FROM pg_proc WHERE proname LIKE 'zk\_%' AND proisstrict AND pronargs > 0 ORDER BY proname;

CREATE FUNCTION answer(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE call;
    RETURN 'none: ' || call;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ': ' || SQLERRM;
END
$$;

-- Each argument is NULL once, but where that is its default; the others are not.  A timeout
-- of NULL waits for ever.
SELECT proname, proargnames[n] AS argument,
    answer(CASE prokind WHEN 'p' THEN 'CALL ' ELSE 'SELECT ' END || p.oid::regproc || '(' || string_agg(
        CASE WHEN provariadic <> 0 AND i = pronargs THEN 'VARIADIC ' ELSE '' END ||
        CASE WHEN i = n THEN 'NULL' WHEN type IN ('text'::regtype, 'name'::regtype) THEN '''x''' WHEN type = 'text[]'::regtype THEN '''{x}'''
            WHEN type IN ('integer'::regtype, 'bigint'::regtype) THEN '1' WHEN type = 'interval'::regtype THEN '''1 s'''
            WHEN type = 'boolean'::regtype THEN 'true' ELSE 'NULL' END ||
        '::' || format_type(type, NULL), ', ' ORDER BY i) || ')')
FROM pg_proc p, generate_series(1, pronargs) n, generate_series(1, pronargs) i, LATERAL (SELECT proargtypes[i - 1] AS type) t
WHERE proname LIKE 'zk\_%' AND NOT proisstrict AND proargnames[n] <> 'timeout' AND pg_get_function_arg_default(p.oid, n) IS DISTINCT FROM 'NULL::' || format_type(proargtypes[n - 1], NULL)
GROUP BY p.oid, n ORDER BY proname, n;

-- zk_locks has no pid for a lock that is kept for nobody.
SELECT * FROM zk_blocking(NULL);

DROP FUNCTION answer;
DROP EXTENSION zklock;
