# Nobody gets the rights of another by zk_fence, whatever is done to schemas, names and
# tables around it, and a fence goes on working.  Nobody but who is allowed to turns an
# error of a lost lock into a warning.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('node', $zk, extension => 0);
my $admin = ZkLock::session($node);
$admin->query('CREATE ROLE mallory LOGIN; CREATE ROLE owner LOGIN');

# A database whose extension is in schema "ext", which belongs to an ordinary role.  Mallory
# may fence, and make schemas.  Whatever runs her function "trap" as a superuser makes
# her one.
my $n = 0;
my $database;
sub database
{
	$database = 'd' . ++$n;
	$admin->query("CREATE DATABASE $database");
	my $super = ZkLock::session($node, dbname => $database);
	$super->query("CREATE SCHEMA ext; CREATE EXTENSION zklock SCHEMA ext; ALTER SCHEMA ext OWNER TO owner;
		GRANT USAGE ON SCHEMA ext TO mallory; GRANT EXECUTE ON FUNCTION ext.zk_fence TO mallory;
		GRANT CREATE ON DATABASE $database TO mallory, owner; GRANT CREATE ON SCHEMA public TO mallory");
	my $mallory = ZkLock::session($node, dbname => $database, user => 'mallory');
	$mallory->query(q{
		CREATE FUNCTION public.trap() RETURNS void LANGUAGE plpgsql AS
			$$BEGIN IF current_setting('is_superuser') = 'on' OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
				THEN ALTER ROLE mallory SUPERUSER; END IF; END$$;
		CREATE FUNCTION public.trap_row() RETURNS trigger LANGUAGE plpgsql AS
			$$BEGIN PERFORM public.trap(); IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END$$;
		CREATE FUNCTION public.trap_value(bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS
			$$BEGIN PERFORM public.trap(); RETURN $1; END$$;
		CREATE FUNCTION public.trap_true(bigint, bigint) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
			$$BEGIN PERFORM public.trap(); RETURN $1 < $2; END$$;
		SELECT ext.zk_fence('data', 10)});
	return ($super, $mallory);
}

sub table
{
	my $schema = shift;
	return "CREATE TABLE $schema.zk_fences (namespace text, resource text, token bigint, PRIMARY KEY (namespace, resource));
		GRANT ALL ON $schema.zk_fences TO PUBLIC;
		CREATE TRIGGER t BEFORE INSERT OR UPDATE ON $schema.zk_fences FOR EACH ROW EXECUTE FUNCTION public.trap_row();
		CREATE TRIGGER s BEFORE INSERT ON $schema.zk_fences EXECUTE FUNCTION public.trap_row();";
}

# After all this mallory is no superuser, in the session that has fenced before and in
# a new one.  A fence remembers (schema: where zk_fence is now), or says why it cannot.
sub attack
{
	my ($what, %attack) = @_;
	my $schema = $attack{schema} // 'ext';
	my $refused = $attack{refused} // '';
	my ($super, $mallory) = database();
	$super->query("SET ROLE owner; $attack{owner}; RESET ROLE") if $attack{owner};
	$super->query($attack{super}) if $attack{super};
	$mallory->query($attack{mallory}) if $attack{mallory};
	for my $old (1, 0)
	{
		my $s = $old ? $mallory : ZkLock::session($node, dbname => $database, user => 'mallory');
		my $which = $old ? 'the same session' : 'a new one';
		$s->query($attack{before}) if $attack{before};
		my @errors = map { $s->fails("SELECT $schema.zk_fence('data', $_)") } 12 - $old, 11 - $old;
		is($admin->query("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), 'f', "$what, $which: nobody becomes a superuser");
		$admin->query('ALTER ROLE mallory NOSUPERUSER');
		if ($refused)
		{
			like($errors[0], $refused, '... it is refused');
		}
		else
		{
			is($errors[0], '', '... the fence works');
			like($errors[1], qr/^40001: fencing token \d+ for resource "data" is too old/, '... and refuses');
			# ... in the extension's own table
			is($super->query("SELECT token FROM " . ($attack{table} // "$schema.zk_fences")), 12 - $old, '... in its own table');
		}
		# DROP DATABASE waits for five seconds that its backend goes
		$s->quit unless $old;
	}
	$_->quit for $super, $mallory;
	$admin->query("DROP DATABASE $database");
	return;
}

my $changed = qr/^55000: table "zk_fences" is not as extension "zklock" made it$/;
attack('a schema of the old name', owner => 'ALTER SCHEMA ext RENAME TO real', schema => 'real',
	mallory => 'CREATE SCHEMA ext;' . table('ext'));
attack('a view in it', owner => 'ALTER SCHEMA ext RENAME TO real', schema => 'real',
	mallory => "CREATE SCHEMA ext; CREATE TABLE ext.t (namespace text, resource text, token bigint); GRANT ALL ON ext.t TO PUBLIC;
		CREATE VIEW ext.zk_fences AS SELECT * FROM ext.t;
		CREATE TRIGGER t INSTEAD OF INSERT ON ext.zk_fences FOR EACH ROW EXECUTE FUNCTION public.trap_row(); GRANT ALL ON ext.zk_fences TO PUBLIC");
attack('a rule in it', owner => 'ALTER SCHEMA ext RENAME TO real', schema => 'real',
	mallory => "CREATE SCHEMA ext; CREATE TABLE ext.zk_fences (namespace text, resource text, token bigint, PRIMARY KEY (namespace, resource));
		GRANT ALL ON ext.zk_fences TO PUBLIC;
		CREATE TABLE ext.t AS SELECT 1 AS i; GRANT ALL ON ext.t TO PUBLIC;
		CREATE TRIGGER t BEFORE DELETE ON ext.t FOR EACH ROW EXECUTE FUNCTION public.trap_row();
		CREATE RULE r AS ON INSERT TO ext.zk_fences DO ALSO DELETE FROM ext.t");
attack('the extension moved', super => 'CREATE SCHEMA real; GRANT USAGE ON SCHEMA real TO mallory; ALTER EXTENSION zklock SET SCHEMA real;
		GRANT CREATE ON SCHEMA ext TO mallory', schema => 'real', mallory => table('ext'));
attack('the table moved', super => 'CREATE SCHEMA real; ALTER TABLE ext.zk_fences SET SCHEMA real; GRANT CREATE ON SCHEMA ext TO mallory',
	mallory => table('ext'), refused => $changed);
attack('the table renamed', super => 'ALTER TABLE ext.zk_fences RENAME TO fences; GRANT CREATE ON SCHEMA ext TO mallory',
	mallory => table('ext'), refused => $changed);
attack('the function moved', super => 'CREATE SCHEMA real; GRANT CREATE, USAGE ON SCHEMA real TO mallory; ALTER FUNCTION ext.zk_fence SET SCHEMA real',
	schema => 'real', mallory => table('real'), refused => $changed);
attack('the table no part of the extension', super => 'ALTER EXTENSION zklock DROP TABLE ext.zk_fences; ALTER TABLE ext.zk_fences OWNER TO mallory', refused => $changed);
attack('made again', super => 'DROP EXTENSION zklock; CREATE EXTENSION zklock SCHEMA ext; GRANT EXECUTE ON FUNCTION ext.zk_fence TO mallory',
	mallory => 'CREATE SCHEMA x;' . table('x') . 'SET search_path = x, public');
attack('made again elsewhere', super => 'DROP EXTENSION zklock; CREATE SCHEMA real; GRANT USAGE ON SCHEMA real TO mallory;
		CREATE EXTENSION zklock SCHEMA real; GRANT EXECUTE ON FUNCTION real.zk_fence TO mallory; GRANT CREATE ON SCHEMA ext TO mallory',
	schema => 'real', mallory => table('ext'));
attack('a temporary table', before => table('pg_temp') . 'SET search_path = pg_temp, public, ext');
attack('operators and casts', mallory => 'CREATE SCHEMA x;
		CREATE FUNCTION x.greatest(bigint, bigint) RETURNS bigint LANGUAGE sql AS $$SELECT public.trap_value($1)$$;
		CREATE OPERATOR x.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = public.trap_true);
		CREATE OPERATOR x.> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = public.trap_true);
		CREATE TYPE x.text AS (i int); CREATE DOMAIN x.int8 AS pg_catalog.int8 CHECK (public.trap_value(value) > 0);
		CREATE FUNCTION x.cast(x.text) RETURNS bigint LANGUAGE sql AS $$SELECT public.trap_value(1)$$;
		CREATE CAST (x.text AS bigint) WITH FUNCTION x.cast(x.text) AS IMPLICIT', before => 'SET search_path = x, pg_catalog, public');

# What mallory may do to the table itself, by a right on it or as its owner
attack('a trigger on the table', super => 'GRANT TRIGGER ON ext.zk_fences TO mallory',
	mallory => 'CREATE TRIGGER t BEFORE INSERT OR UPDATE ON ext.zk_fences FOR EACH ROW EXECUTE FUNCTION public.trap_row()', refused => $changed);
my $own = 'ALTER TABLE ext.zk_fences OWNER TO mallory; GRANT CREATE ON SCHEMA ext TO mallory';
attack('a policy on it', super => $own, mallory => 'ALTER TABLE ext.zk_fences ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
	CREATE POLICY p ON ext.zk_fences USING (public.trap_value(token) > 0)');
attack('a default', super => $own, mallory => 'ALTER TABLE ext.zk_fences ADD more bigint DEFAULT public.trap_value(1)');
attack($_->[0], super => $own, mallory => $_->[1], refused => $changed)
  for (
	[ 'a rule on it', 'CREATE TABLE ext.t AS SELECT 1 AS i; GRANT ALL ON ext.t TO PUBLIC;
		CREATE TRIGGER t BEFORE DELETE ON ext.t FOR EACH ROW EXECUTE FUNCTION public.trap_row();
		CREATE RULE r AS ON INSERT TO ext.zk_fences DO ALSO DELETE FROM ext.t' ],
	[ 'a check', 'ALTER TABLE ext.zk_fences ADD CHECK (public.trap_value(token) > 0)' ],
	[ 'a column that is generated', 'ALTER TABLE ext.zk_fences ADD more bigint GENERATED ALWAYS AS (public.trap_value(token)) STORED' ],
	[ 'a column that cannot be null', 'ALTER TABLE ext.zk_fences ADD more bigint NOT NULL DEFAULT public.trap_value(1)' ],
	[ 'an index on an expression', 'CREATE INDEX ON ext.zk_fences (public.trap_value(token))' ],
	[ 'an index of some rows', 'CREATE INDEX ON ext.zk_fences (token) WHERE public.trap_value(token) > 0' ],
	[ 'no primary key', 'ALTER TABLE ext.zk_fences DROP CONSTRAINT zk_fences_pkey' ],
	[ 'another primary key', 'ALTER TABLE ext.zk_fences DROP CONSTRAINT zk_fences_pkey, ADD PRIMARY KEY (resource, namespace)' ],
	[ 'a token of another type', 'ALTER TABLE ext.zk_fences ALTER token TYPE text' ],
	[ 'a column renamed', 'ALTER TABLE ext.zk_fences RENAME token TO t' ]);

#
# The fence itself, which reads and writes its table without SQL: who comes second waits
#
$admin->query('CREATE EXTENSION zklock');
is($admin->query("SELECT bool_or(prosecdef) FROM pg_proc WHERE probin LIKE '%zklock%'"), 'f', 'no function runs with the rights of another');
my ($one, $two) = map { ZkLock::session($node) } 1 .. 2;

# Wait for the other's transaction
sub waits
{
	my ($s, $sql) = @_;
	$s->send($sql);
	my $pid = $s->pid;
	ZkLock::wait_until(sub { die $s->failure unless $s->busy; $admin->query("SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted") > 0 }, 'it waits');
	return $s;
}
my $old = qr/^40001: fencing token \d+ for resource "\w+" is too old$/;
my $concurrent = '40001: could not serialize access due to concurrent update';
for my $new (1, 0)
{
	my $which = $new ? 'a new resource' : 'a resource';
	my $i = 0;
	my $begin = sub {
		$i++;
		$admin->query("SELECT zk_fence('r$new$i', 1)") unless $new;
		$one->query("BEGIN; SELECT zk_fence('r$new$i', 5)");
		return "r$new$i";
	};
	my $r = $begin->();
	waits($two, "SELECT zk_fence('$r', 4)");
	$one->query('COMMIT');
	like($two->failure, $old, "$which: who comes second waits, and is too late");
	$r = $begin->();
	waits($two, "SELECT zk_fence('$r', 5)");
	$one->query('COMMIT');
	is($two->failure, '', '... or is not, with the same token');
	$r = $begin->();
	waits($two, "SELECT zk_fence('$r', 4)");
	$one->query('ROLLBACK');
	is($two->failure, '', '... nor if the first rolls back');
	is($two->query("SELECT token FROM zk_fences WHERE resource = '$r'"), 4, '... whose token is forgotten');
	$r = $begin->();
	waits($two, "BEGIN; SAVEPOINT s; SELECT zk_fence('$r', 6)");
	$two->cancel;
	is($two->failure, '57014: canceling statement due to user request', '... it can be cancelled');
	$one->query('COMMIT');
	is($two->query("ROLLBACK TO s; SELECT zk_fence('$r', 7); COMMIT; SELECT token FROM zk_fences WHERE resource = '$r'"), "\n7", '... and goes on');
	for my $isolation ('REPEATABLE READ', 'SERIALIZABLE')
	{
		$r = $begin->();
		waits($two, "BEGIN ISOLATION LEVEL $isolation; SELECT zk_fence('$r', 6)");
		$one->query('COMMIT');
		is($two->failure, $concurrent, "$which, $isolation: what its snapshot does not show ends the transaction");
		$r = $begin->();
		$two->query("ROLLBACK; BEGIN ISOLATION LEVEL $isolation; SELECT 1");
		$one->query('COMMIT');
		is($two->fails("SELECT zk_fence('$r', 6)"), $concurrent, '... also if it was there before');
		$r = $begin->();
		waits($two, "ROLLBACK; BEGIN ISOLATION LEVEL $isolation; SELECT zk_fence('$r', 6), zk_fence('$r', 7)");
		$one->query('ROLLBACK');
		is($two->failure, '', '... and what is rolled back does not');
		is($two->query("SELECT zk_fence('$r', 8); COMMIT; SELECT token FROM zk_fences WHERE resource = '$r'"), "\n8", '... nor its own');
	}
	$r = $begin->();
	$two->query("BEGIN; SELECT zk_fence('x$new', 1)");
	waits($two, "SELECT zk_fence('$r', 6)");
	$one->send("SELECT zk_fence('x$new', 1)");
	my @ends = map { $_->failure } $one, $two;
	is(join(' ', sort map { substr $_, 0, 5 } @ends), ' 40P01', "$which: a deadlock is found");
	$_->query('ROLLBACK') for $one, $two;
}
is($one->fails("BEGIN READ ONLY; SELECT zk_fence('r', 1)"), '25006: cannot execute zk_fence() in a read-only transaction', 'not in a read-only transaction');
$one->query('ROLLBACK');
is($one->query("SELECT zk_fence('s', i) FROM generate_series(1, 3) i; SELECT token FROM zk_fences WHERE resource = 's'"), "\n\n\n3", 'several in one statement');
is($one->query("SELECT zk_fence('m' || i, i) FROM generate_series(1, 2000) i; SELECT count(*) FROM zk_fences WHERE resource ~ '^m'") =~ s/\n//gr, 2000, 'many at once');

# All at once, on few resources: nothing but late ones, and no two rows
my $script = PostgreSQL::Test::Utils::tempdir() . '/script';
PostgreSQL::Test::Utils::append_to_file($script,
	"\\set i random(1, 400)\nBEGIN;\nSELECT zk_fence('p' || (:i % 20 + extract(epoch FROM now())::bigint % 7 * 20), nextval('tokens'));\nCOMMIT;\n");
$admin->query('CREATE SEQUENCE tokens CACHE 10');
my $output;
IPC::Run::run([ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-t', 500, '-c', 8, '-f', $script, '--max-tries=1', '--failures-detailed', 'postgres' ], '<', \'', '>&', \$output);
my ($done) = $output =~ /actually processed: (\d+)/;
my ($late) = $output =~ /serialization failures: (\d+)/;
is($done + $late, 4000, 'many at once on few resources: they get through, or are late') or diag $output;
cmp_ok($done, '>', 100, '... not all of them');
is($admin->query("SELECT count(*) - count(DISTINCT resource) FROM zk_fences"), 0, '... each has one row');

#
# zklock.on_loss
#
$admin->query('CREATE ROLE batch LOGIN; CREATE DATABASE owned OWNER owner');
ZkLock::wait_connected($node);
my $owner = ZkLock::session($node, dbname => 'owned', user => 'owner');
like($owner->fails($_), qr/^42501: permission denied to set parameter "zklock\.on_loss"$/, "not for everybody: $_")
  for 'SET zklock.on_loss = warn', 'SET LOCAL zklock.on_loss = warn', "SELECT set_config('zklock.on_loss', 'warn', false)",
  'ALTER DATABASE owned SET zklock.on_loss = warn', 'ALTER ROLE owner SET zklock.on_loss = warn',
  'CREATE FUNCTION pg_temp.f() RETURNS void LANGUAGE sql SET zklock.on_loss = warn BEGIN ATOMIC END';
{
	local $ENV{PGOPTIONS} = '-c zklock.on_loss=warn';
	$node->connect_fails('user=owner', '... nor when it connects', expected_stderr => qr/FATAL:  permission denied to set parameter "zklock\.on_loss"/);
}
is($owner->query('SHOW zklock.on_loss'), 'abort', '... it stays');
sub setting { return ZkLock::session($node, @_)->query('SHOW zklock.on_loss'); }
$admin->query('GRANT SET ON PARAMETER zklock.on_loss TO owner');
is($owner->query('SET zklock.on_loss = warn; SHOW zklock.on_loss; ALTER DATABASE owned SET zklock.on_loss = warn; RESET zklock.on_loss'), 'warn', 'who was granted it may');
is(setting(dbname => 'owned', user => 'mallory'), 'warn', '... for a database of its own, too');
is(setting(user => 'mallory'), 'abort', '... and no other');
$admin->query("ALTER ROLE batch SET zklock.on_loss = warn");
is(setting(user => 'batch'), 'warn', 'a superuser sets it for a role');

done_testing();
