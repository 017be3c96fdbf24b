# Logical replication of the extension's tables, FOR ALL TABLES: what comes by it raises the
# tokens of fences and never lowers one, and rows of zk_runs can be changed and deleted.  What
# a trigger calls there works.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($pub, $sub) = map { ZkLock::server($_, $zk, init => { allows_streaming => 'logical' }, conf => "cluster_name = '$_'\nwal_retrieve_retry_interval = '100ms'") } qw(pub sub);
ZkLock::wait_connected($pub, $sub);
my $p = ZkLock::session($pub);
my $s = ZkLock::session($sub);

sub token { my ($session, $resource) = @_; return $session->query("SELECT token FROM zk_fences WHERE resource = '$resource'"); }

# Until the subscriber has all of what was written.
sub catch_up
{
	my $lsn = $p->query('SELECT pg_current_wal_insert_lsn()');
	ZkLock::wait_until(sub { ZkLock::ask($pub, "SELECT bool_and(replay_lsn >= '$lsn') FROM pg_stat_replication") eq 't' }, 'the subscriber has all of it', sub { PostgreSQL::Test::Utils::slurp_file($sub->logfile) =~ /(ERROR.*)/ });
	return;
}

#
# The first copy
#
$p->query("SELECT zk_fence('copied', 5), zk_fence('both', 3), zk_fence('ahead', 8)");
$s->query("SELECT zk_fence('both', 4), zk_fence('ahead', 7)");
$p->query('CREATE PUBLICATION everything FOR ALL TABLES');
$s->query("CREATE SUBSCRIPTION s CONNECTION \$\$" . $pub->connstr('postgres') . "\$\$ PUBLICATION everything");
ZkLock::wait_until(sub { ZkLock::ask($sub, "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel") eq 't' }, 'the tables are copied', sub { PostgreSQL::Test::Utils::slurp_file($sub->logfile) =~ /(ERROR.*)/ });
is(token($s, 'copied'), 5, 'the first copy brings a fence');
is(token($s, 'both'), 4, '... and does not lower one that is there');
is(token($s, 'ahead'), 8, '... but raises it');

#
# Fences
#
$p->query("SELECT zk_fence('r', 10)");
catch_up();
is(token($s, 'r'), 10, 'a row of a fence is replicated');
$s->query("SELECT zk_fence('r', 20)");
$p->query("SELECT zk_fence('r', 15)");
catch_up();
is(token($s, 'r'), 20, 'a later and smaller token of the publisher does not lower it');
like($s->fails("SELECT zk_fence('r', 16)"), qr/^40001: fencing token 16 for resource "r" is too old/, '... so a late holder does not pass');
$p->query("SELECT zk_fence('r', 25)");
catch_up();
like($s->fails("SELECT zk_fence('r', 24)"), qr/^40001: /, 'a larger one raises it');
$s->query("SELECT zk_fence('s', 5)");
$p->query("SELECT zk_fence('s', 3)");
catch_up();
is(token($s, 's'), 5, 'a row that both have made stops nothing, and is not lowered');
$p->query("UPDATE zk_fences SET resource = 'renamed' WHERE resource = 's'; DELETE FROM zk_fences WHERE resource = 'r'");
catch_up();
is(token($s, 's') . token($s, 'renamed') . token($s, 'r'), '5325', 'no row is forgotten that the publisher has renamed or deleted');
$s->query("SELECT zk_fence('r', 30); BEGIN; UPDATE zk_fences SET token = 1 WHERE resource = 'r'; DELETE FROM zk_fences WHERE resource = 's'");
is(token($s, 'r') . token($s, 's'), '1', "who writes here himself may do both");
$s->query('ROLLBACK');
like($s->fails('CREATE TABLE t (i int); CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION zk_fence_replicated(); INSERT INTO t VALUES (1)'), qr/^39P01: /, 'the trigger is for no other table');
$s->query('DROP TABLE t');
like($s->fails("SET session_replication_role = replica; INSERT INTO zk_fences VALUES ('', 'x', NULL)"), qr/^23502: /, 'nor for half a row');
$s->query('RESET session_replication_role');
$s->query('CREATE ROLE nobody LOGIN; GRANT TRIGGER ON zk_fences TO nobody');
like(ZkLock::session($sub, user => 'nobody')->fails('CREATE TRIGGER t BEFORE INSERT ON zk_fences FOR EACH ROW EXECUTE FUNCTION zk_fence_replicated()'), qr/^42501: permission denied for function/, 'nor is it for everybody');

#
# Runs
#
# zk_run_as_leader waits two seconds for the verdict
is($p->query("SELECT zk_is_leader('e', '1 h')"), 't', 'the publisher leads');
$p->query("CALL zk_run_once('job', 'SELECT 1', slot => '2026-01-01'); CALL zk_run_once('job', 'SELECT 1', slot => '2026-01-02'); CALL zk_run_as_leader('e', 'SELECT 1')");
catch_up();
my $runs = "SELECT string_agg(concat_ws(' ', kind, name, server), ', ' ORDER BY ended) FROM zk_runs";
is($s->query($runs), 'job job pub, job job pub, election e pub', 'rows of runs are replicated');
is($p->fails("UPDATE zk_runs SET server = 'other' WHERE kind = 'election'"), '', 'they can be changed');
is($p->fails("DELETE FROM zk_runs WHERE slot = '2026-01-01'"), '', '... and deleted');
catch_up();
is($s->query($runs), 'job job pub, election e other', '... on the subscriber, too');
$p->query("UPDATE zk_runs SET ended = '2000-01-01' WHERE kind = 'election'; CALL zk_run_once('job', 'SELECT 1', slot => '2026-01-03')");
catch_up();
is($s->query($runs), 'job job pub, job job pub', '... and what a run deletes for zklock.run_history');

#
# A run that a trigger begins and ends where rows are applied: no portal is there
#
$_->query('CREATE TABLE work (what text PRIMARY KEY)') for $p, $s;
$s->query(q{CREATE FUNCTION run() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	IF NEW.what = 'begin' THEN
		PERFORM public.zk_run_begin('applied', slot => '2026-01-01');
	ELSE
		PERFORM public.zk_run_end('applied');
	END IF;
	RETURN NULL;
END$$});
$s->query('CREATE TRIGGER run BEFORE INSERT ON work FOR EACH ROW EXECUTE FUNCTION run(); ALTER TABLE work ENABLE ALWAYS TRIGGER run');
$s->query('ALTER SUBSCRIPTION s REFRESH PUBLICATION WITH (copy_data = false)');
for my $step ([ 'begin', 'running' ], [ 'end', 'done' ])
{
	my ($what, $state) = @$step;
	$p->query("INSERT INTO work VALUES ('$what')");
	catch_up();
	is($s->query("SELECT state FROM zk_jobs WHERE job = 'applied'"), $state, "a run is $state that the worker of a subscription has");
}
$_->query('DROP TABLE work') for $s, $p;
$s->query('DROP FUNCTION run');

#
# A dump
#
ZkLock::ask($sub, 'CREATE DATABASE restored');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$sub->command_ok([ 'pg_dump', '--no-subscriptions', '-f', $dump, $sub->connstr('postgres') ], 'pg_dump');
$sub->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $sub->connstr('restored') ], '... is restored');
my $r = ZkLock::session($sub, dbname => 'restored');
my $tables = "SELECT string_agg(f::text, ' ' ORDER BY resource) FROM zk_fences f; $runs; SELECT tgenabled, (SELECT relreplident FROM pg_class WHERE oid = 'zk_runs'::regclass) FROM pg_trigger WHERE tgrelid = 'zk_fences'::regclass";
is($r->query($tables), $s->query($tables), '... with rows, trigger and replica identity');
like($r->fails("SELECT zk_fence('r', 29)"), qr/^40001: /, '... and refuses what it did before');

unlike(PostgreSQL::Test::Utils::slurp_file($sub->logfile), qr/TRAP|PANIC|logical replication.* exited with exit code/, 'no bad line in the log');

#
# The trigger is disabled, or fires for all others' writes, as it does after
# pg_restore --disable-triggers: nothing is replicated then, until it fires again
#
for my $off ('DISABLE TRIGGER ALL', 'DISABLE TRIGGER ALL; ALTER TABLE zk_fences ENABLE TRIGGER ALL')
{
	for my $write ('UPDATE', 'INSERT')
	{
		my $resource = "$write after $off";
		if ($write eq 'UPDATE')
		{
			$p->query("SELECT zk_fence('$resource', 1)");
			catch_up();
		}
		my $since = -s $sub->logfile;
		$s->query("SELECT zk_fence('$resource', 20); ALTER TABLE zk_fences $off");
		$p->query("SELECT zk_fence('$resource', 15)");
		my ($error, $hint) = ('', '');
		ZkLock::wait_until(
			sub { ($error, $hint) = PostgreSQL::Test::Utils::slurp_file($sub->logfile, $since) =~ /ERROR:  (.*)\n.*DETAIL:  .*\n(?:.*HINT:  (.*))?/ or token($s, $resource) != 20 },
			'the subscriber has tried', sub { $error });
		is($error, 'cannot write table "zk_fences" in replica mode', "$off: $write is refused");
		is(token($s, $resource), 20, '... and the token is not lowered');
		$s->query("BEGIN; UPDATE zk_fences SET token = 2 WHERE resource = '$resource'");
		is(token($s, $resource), 2, '... who writes here himself may do as before');
		$s->query("DELETE FROM zk_fences WHERE resource = '$resource'");
		is(token($s, $resource), '', '... all of it');
		$s->query('ROLLBACK');
		my ($enable) = ($hint // '') =~ /^Use (ALTER TABLE .*)\.$/;
		is($s->fails($enable // 'no hint'), '', '... ' . ($enable // 'no hint'));
		catch_up();
		is(token($s, $resource), 20, '... lets replication go on, by the trigger');
		like($s->fails("SELECT zk_fence('$resource', 16)"), qr/^40001: /, '... and a late holder does not pass');
		$p->query("SELECT zk_fence('$resource', 30)");
		catch_up();
		is(token($s, $resource), 30, '... and a larger token raises it');
	}
}

done_testing();
