
CREATE FUNCTION zk_gate_close(name text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_gate_close'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION zk_gate_open(name text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_gate_open'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION zk_gate_assert(name text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_gate_assert'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION zk_gate_is_open(name text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_gate_is_open'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

REVOKE ALL ON FUNCTION zk_gate_close(text), zk_gate_open(text), zk_gate_assert(text), zk_gate_is_open(text) FROM PUBLIC;
