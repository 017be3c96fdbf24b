/* sql/zklock_fence.sql */

-- Fences of zklock in PL/pgSQL, for a database where zklock cannot be installed, such as one
-- of a managed service.  The locks are zklock's, on other servers.  Their tokens protect this
-- database: a writer shows its token, and a late one is refused (doc/fencing.md).
--
--     psql -X -v ON_ERROR_STOP=1 -f zklock_fence.sql
--
-- Run it as the role that is to own the fences.  It needs no superuser, and makes all in the
-- first schema of search_path.  To update, run it again.  Then let roles use it:
--
--     GRANT EXECUTE ON FUNCTION zk_fence TO batch;
--
-- It does what the extension does (src/functions/fence.c), with the same names and errors.

-- Functions remember the schema: a caller's search_path, operators and temporary tables mean
-- nothing to them.
BEGIN;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'zklock') THEN
        RAISE duplicate_object USING
            MESSAGE = 'extension "zklock" is in this database',
            DETAIL = 'This script is for databases without it, and would replace its functions.';
    END IF;
    PERFORM set_config('search_path', format('%I, pg_temp', current_schema()), true);
END $$;

CREATE TABLE IF NOT EXISTS zk_fences (
    namespace text,
    resource text,
    token bigint NOT NULL,
    PRIMARY KEY (namespace, resource));

COMMENT ON TABLE zk_fences IS
'largest fencing token that zk_fence has seen for each resource of each zklock.namespace';
COMMENT ON COLUMN zk_fences.namespace IS 'zklock.namespace of those who called, or empty';
COMMENT ON COLUMN zk_fences.resource IS 'as given to zk_fence';
COMMENT ON COLUMN zk_fences.token IS 'the largest that was seen';

-- The row lock orders the transactions, the token orders the holders.
CREATE OR REPLACE FUNCTION zk_fence(resource text, token bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    space text := coalesce(current_setting('zklock.namespace', true), '');
    largest bigint;
BEGIN
    IF $1 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'resource name must not be null';
    ELSIF $2 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'fencing token must not be null';
    ELSIF octet_length($1) = 0 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'resource name must not be empty';
    ELSIF octet_length($1) > 1000 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'resource name is too long',
            DETAIL = format('The name has %s bytes; a resource name has 1 to 1000.', octet_length($1));
    ELSIF current_setting('transaction_read_only')::boolean THEN
        RAISE read_only_sql_transaction USING MESSAGE = 'cannot execute zk_fence() in a read-only transaction';
    END IF;
    INSERT INTO zk_fences AS f VALUES (space, $1, $2)
        ON CONFLICT (namespace, resource) DO UPDATE SET token = greatest(f.token, excluded.token);
    -- in replica mode the trigger has written it, so that RETURNING has no row
    SELECT f.token INTO STRICT largest FROM zk_fences f WHERE f.namespace = space AND f.resource = $1;
    IF largest > $2 THEN
        RAISE serialization_failure USING
            MESSAGE = format('fencing token %s for resource "%s" is too old', $2, $1),
            DETAIL = format('The resource has seen token %s: another holder has had the lock since.', largest),
            HINT = 'Acquire the lock again, in exclusive mode, and retry the transaction. If the ensemble was wiped or restored and this is refused again and again, a superuser of a server with zklock can use SELECT zk_raise_tokens(token) with the largest token in zk_fences.';
    END IF;
END $$;

COMMENT ON FUNCTION zk_fence(text, bigint) IS
'refuse a fencing token that is older than the newest seen for the resource in this database';

-- Logical replication raises tokens, and neither lowers nor deletes one.
CREATE OR REPLACE FUNCTION zk_fence_replicated()
RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    -- deeper are our own writes, of zk_fence or of this trigger
    IF current_setting('session_replication_role') <> 'replica' OR pg_trigger_depth() > 1 THEN
        RETURN coalesce(NEW, OLD);
    ELSIF TG_OP = 'DELETE' THEN
        RETURN NULL;
    ELSIF NEW.namespace IS NULL OR NEW.resource IS NULL OR NEW.token IS NULL THEN
        RETURN NEW; -- which is refused
    END IF;
    INSERT INTO zk_fences AS f VALUES (NEW.namespace, NEW.resource, NEW.token)
        ON CONFLICT (namespace, resource) DO UPDATE SET token = greatest(f.token, excluded.token);
    RETURN NULL;
END $$;

COMMENT ON FUNCTION zk_fence_replicated() IS
'trigger of zk_fences: logical replication raises tokens, and neither lowers nor deletes one';

CREATE OR REPLACE TRIGGER zk_fences_replicated BEFORE INSERT OR UPDATE OR DELETE ON zk_fences
    FOR EACH ROW EXECUTE FUNCTION zk_fence_replicated();
ALTER TABLE zk_fences ENABLE REPLICA TRIGGER zk_fences_replicated;

-- Where that trigger is disabled, a constraint refuses what it would have seen.
CREATE OR REPLACE FUNCTION zk_fence_guarded()
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF current_setting('session_replication_role') = 'replica' AND pg_trigger_depth() = 0 THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'cannot write table "zk_fences" in replica mode',
            DETAIL = 'Its trigger does not fire in this mode, which is that of logical replication. Without it a fencing token could be lowered, and a late holder would pass.',
            HINT = format('Use ALTER TABLE %I.zk_fences ENABLE REPLICA TRIGGER zk_fences_replicated.', current_schema());
    END IF;
    RETURN true;
END $$;

COMMENT ON FUNCTION zk_fence_guarded() IS
'check of zk_fences: nothing is replicated into it past its trigger';

ALTER TABLE zk_fences DROP CONSTRAINT IF EXISTS zk_fences_guarded;
ALTER TABLE zk_fences ADD CONSTRAINT zk_fences_guarded CHECK (zk_fence_guarded());

-- Has this transaction shown a token?  Then the row's newest version is its own.  That is so if
-- it is visible and the transaction that made it goes on: of others' only what is committed is
-- visible.  It may be a subtransaction, whose number is above that of the whole.  xmin has the
-- lower 32 bits of the number; age() would not give the others, since it goes by the number that
-- was the next one when the transaction first asked for an age.  (A row that nobody has written
-- for two billion transactions may raise "transaction ID is in the future": that refuses the
-- write, too.)
CREATE OR REPLACE FUNCTION zk_fence_required()
RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
    space text := coalesce(current_setting('zklock.namespace', true), '');
    mine bigint := pg_current_xact_id()::text::bigint;
    above bigint;
BEGIN
    SELECT (f.xmin::text::bigint - mine) & 4294967295 INTO above
      FROM zk_fences f WHERE f.resource = TG_ARGV[0] AND f.namespace = TG_ARGV[1];
    IF above < 2147483648 THEN
        IF pg_xact_status((mine + above)::text::xid8) = 'in progress' THEN
            RETURN coalesce(NEW, OLD);
        END IF;
    END IF;
    IF space <> TG_ARGV[1] THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('cannot write table "%s" in namespace "%s"', TG_TABLE_NAME, space),
            DETAIL = format('Its fence belongs to namespace "%s".', TG_ARGV[1]);
    END IF;
    RAISE object_not_in_prerequisite_state USING
        MESSAGE = format('cannot write table "%s" without lock "%s"', TG_TABLE_NAME, TG_ARGV[0]),
        DETAIL = 'This transaction has not shown a fencing token of the lock.',
        HINT = format('In the same transaction, first use SELECT zk_fence(%L, token) with the token of the lock.', TG_ARGV[0]);
END $$;

COMMENT ON FUNCTION zk_fence_required() IS
'trigger of zk_fence_table: refuse writes of a transaction that has not shown a fencing token';

CREATE OR REPLACE FUNCTION zk_fence_table(relation regclass, resource text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    what pg_class;
    events text := 'INSERT OR UPDATE OR DELETE';
    required text;
BEGIN
    IF relation IS NULL OR resource IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be null', CASE WHEN relation IS NULL THEN 'relation' ELSE 'resource name' END);
    ELSIF octet_length(resource) NOT BETWEEN 1 AND 1000 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'resource name must have 1 to 1000 bytes';
    END IF;
    SELECT * INTO STRICT what FROM pg_class WHERE oid = relation;
    IF NOT pg_has_role(what.relowner, 'USAGE') THEN
        RAISE insufficient_privilege USING MESSAGE = format('must be owner of table %s', what.relname);
    ELSIF what.relkind NOT IN ('r', 'p') THEN
        RAISE wrong_object_type USING MESSAGE = format('"%s" is not a table', what.relname);
    END IF;
    required := format('EXECUTE FUNCTION %I.zk_fence_required(%L, %L)',
        current_schema(), resource, coalesce(current_setting('zklock.namespace', true), ''));
    EXECUTE format('CREATE TRIGGER zk_fence BEFORE %s OR TRUNCATE ON %s %s', events, relation, required);
    IF what.relkind = 'p' AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = relation AND tgname = 'zk_fence_rows') THEN
        -- partitions get this one, those to come, too: who writes into one by its own name
        EXECUTE format('CREATE TRIGGER zk_fence_rows BEFORE %s ON %s FOR EACH ROW %s', events, relation, required);
    END IF;
END $$;

COMMENT ON FUNCTION zk_fence_table(regclass, text) IS
'refuse writes to a table by transactions that have not shown the fencing token of this name by zk_fence';

REVOKE ALL ON FUNCTION zk_fence(text, bigint), zk_fence_table(regclass, text), zk_fence_replicated() FROM PUBLIC;

COMMIT;
