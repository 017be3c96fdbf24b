/* sql/zklock_advisory--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION zklock_advisory" to load this file. \quit

-- Names, arguments and results are PostgreSQL's.  Its functions are STRICT, too.  A program
-- finds these functions by a search_path with this schema before pg_catalog.  Everybody may
-- use the schema: so a role that may not call the functions gets an error, and does not take
-- a lock of this server alone.
GRANT USAGE ON SCHEMA @extschema@ TO PUBLIC;

CREATE FUNCTION pg_advisory_lock(bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_lock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_lock(bigint) IS
'obtain an exclusive distributed lock of the session';

CREATE FUNCTION pg_advisory_lock(integer, integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_lock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_lock(integer, integer) IS
'obtain an exclusive distributed lock of the session';

CREATE FUNCTION pg_advisory_lock_shared(bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_lock_shared'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_lock_shared(bigint) IS
'obtain a shared distributed lock of the session';

CREATE FUNCTION pg_advisory_lock_shared(integer, integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_lock_shared'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_lock_shared(integer, integer) IS
'obtain a shared distributed lock of the session';

CREATE FUNCTION pg_advisory_xact_lock(bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_xact_lock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_xact_lock(bigint) IS
'obtain an exclusive distributed lock of the transaction';

CREATE FUNCTION pg_advisory_xact_lock(integer, integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_xact_lock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_xact_lock(integer, integer) IS
'obtain an exclusive distributed lock of the transaction';

CREATE FUNCTION pg_advisory_xact_lock_shared(bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_xact_lock_shared'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_xact_lock_shared(bigint) IS
'obtain a shared distributed lock of the transaction';

CREATE FUNCTION pg_advisory_xact_lock_shared(integer, integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_xact_lock_shared'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_xact_lock_shared(integer, integer) IS
'obtain a shared distributed lock of the transaction';

CREATE FUNCTION pg_try_advisory_lock(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_lock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_try_advisory_lock(bigint) IS
'obtain an exclusive distributed lock of the session if it is free';

CREATE FUNCTION pg_try_advisory_lock(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_lock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_try_advisory_lock(integer, integer) IS
'obtain an exclusive distributed lock of the session if it is free';

CREATE FUNCTION pg_try_advisory_lock_shared(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_lock_shared'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_try_advisory_lock_shared(bigint) IS
'obtain a shared distributed lock of the session if it is free';

CREATE FUNCTION pg_try_advisory_lock_shared(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_lock_shared'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_try_advisory_lock_shared(integer, integer) IS
'obtain a shared distributed lock of the session if it is free';

CREATE FUNCTION pg_try_advisory_xact_lock(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_xact_lock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_try_advisory_xact_lock(bigint) IS
'obtain an exclusive distributed lock of the transaction if it is free';

CREATE FUNCTION pg_try_advisory_xact_lock(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_xact_lock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_try_advisory_xact_lock(integer, integer) IS
'obtain an exclusive distributed lock of the transaction if it is free';

CREATE FUNCTION pg_try_advisory_xact_lock_shared(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_xact_lock_shared'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_try_advisory_xact_lock_shared(bigint) IS
'obtain a shared distributed lock of the transaction if it is free';

CREATE FUNCTION pg_try_advisory_xact_lock_shared(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_xact_lock_shared'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_try_advisory_xact_lock_shared(integer, integer) IS
'obtain a shared distributed lock of the transaction if it is free';

CREATE FUNCTION pg_advisory_unlock(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_unlock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_unlock(bigint) IS
'release an exclusive distributed lock of the session';

CREATE FUNCTION pg_advisory_unlock(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_unlock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_unlock(integer, integer) IS
'release an exclusive distributed lock of the session';

CREATE FUNCTION pg_advisory_unlock_shared(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_unlock_shared'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_unlock_shared(bigint) IS
'release a shared distributed lock of the session';

CREATE FUNCTION pg_advisory_unlock_shared(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_unlock_shared'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_unlock_shared(integer, integer) IS
'release a shared distributed lock of the session';

CREATE FUNCTION pg_advisory_unlock_all()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_unlock_all'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pg_advisory_unlock_all() IS
'release all advisory and distributed locks of the session';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @extschema@ FROM PUBLIC;
