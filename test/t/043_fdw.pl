# A commit that spans two servers by postgres_fdw is refused before the remote
# side commits, whichever of the two extensions came first.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '8s'");
my $b = ZkLock::server('b', $zk);
plan skip_all => 'no postgres_fdw here'
  unless ZkLock::ask($a, "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'");
ZkLock::wait_connected($a, $b);

# The remote side is another database, which for postgres_fdw is another server.
ZkLock::ask($a, 'CREATE DATABASE remote');
my $remote = ZkLock::session($a, dbname => 'remote');
$remote->query('CREATE TABLE t (name text)');
ZkLock::ask($a, 'CREATE EXTENSION postgres_fdw');
ZkLock::ask($a, sprintf "CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'remote')", $a->host, $a->port);
ZkLock::ask($a, 'CREATE USER MAPPING FOR CURRENT_USER SERVER remote');
ZkLock::ask($a, "CREATE FOREIGN TABLE ft (name text) SERVER remote OPTIONS (table_name 't')");
ZkLock::ask($a, 'CREATE TABLE t (name text)');
# A loss cancels what runs, so whoever shall get to a COMMIT must ignore that.
ZkLock::ask($a, 'CREATE PROCEDURE until_lost() LANGUAGE plpgsql AS
	$$BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END$$');

# In what order lock and connection come: NAME is the lock's and the rows'.
my $connect = 'SELECT count(*) FROM ft;';
my $lock = "SELECT zk_lock('NAME');";
my $lock_session = "SELECT zk_lock('NAME', scope => 'session');";
my $write = "INSERT INTO t VALUES ('NAME'); INSERT INTO ft VALUES ('NAME');";
my %order = (
	'library first' => "LOAD 'postgres_fdw'; BEGIN; $lock $write",
	'library last' => "BEGIN; $lock LOAD 'postgres_fdw'; $write",
	'connected before' => "$connect BEGIN; $lock $write",
	'written before' => "BEGIN; $write $lock",
	'written after' => "BEGIN; $lock $write",
	'written by a function' => "BEGIN; $lock DO \$\$BEGIN $write END\$\$",
	'read in both, written here' => "BEGIN; $lock SELECT count(*) FROM ft; INSERT INTO t VALUES ('NAME'); INSERT INTO ft SELECT 'NAME' FROM t;",
	'one statement' => "BEGIN; WITH l AS (SELECT zk_lock('NAME')), w AS (INSERT INTO ft VALUES ('NAME')) SELECT * FROM l;",
	'connected since an earlier lock' => "BEGIN; SELECT zk_lock('earlier'); COMMIT; $connect BEGIN; $lock $write",
	'locked since an earlier connection' => "$connect BEGIN; SELECT zk_lock('earlier'); COMMIT; $connect BEGIN; $write $lock",
	'savepoint' => "BEGIN; SAVEPOINT s; $lock $write RELEASE s;",
	'savepoint after the lock' => "BEGIN; $lock SAVEPOINT s; $write RELEASE s;",
	'rolled back to a savepoint' => "BEGIN; $lock SAVEPOINT s; $connect ROLLBACK TO s; $write",
	'session scope' => "$lock_session BEGIN; $write",
	'session scope, connected before' => "$connect $lock_session BEGIN; $write",
	'session scope, locked last' => "BEGIN; $write $lock_session");

# The same where no statement ends before the commit.
my %running = (
	'procedure' => "CALL p()",
	'procedure, connected before' => "$connect CALL p()",
	'block' => "DO \$\$BEGIN $write PERFORM zk_lock('NAME'); CALL until_lost(); COMMIT; END\$\$",
	'block, locked by an expression' => "BEGIN; SELECT zk_lock('earlier'); COMMIT; $connect
		DO \$\$DECLARE token bigint;
		BEGIN
			$write
			token := zk_lock('NAME');
			BEGIN IF pg_sleep(3600) IS NULL THEN END IF; EXCEPTION WHEN query_canceled THEN NULL; END;
			COMMIT;
		END\$\$");
(my $procedure = "PERFORM zk_lock('NAME'); $write CALL until_lost(); COMMIT;") =~ s/NAME/procedure/g;
ZkLock::ask($a, "CREATE PROCEDURE p() LANGUAGE plpgsql AS \$\$BEGIN $procedure END\$\$");
$running{'procedure, connected before'} =~ s/p\(\)/p2()/;
$procedure =~ s/'procedure'/'procedure, connected before'/g;
ZkLock::ask($a, "CREATE PROCEDURE p2() LANGUAGE plpgsql AS \$\$BEGIN $procedure END\$\$");

# Those that may commit, to know that the others could have.
my %good = (
	'no lock' => "BEGIN; $write",
	'lock rolled back' => "BEGIN; $write SAVEPOINT s; $lock ROLLBACK TO s;",
	'on_loss = warn' => "SET zklock.on_loss = warn; BEGIN; $lock $write");

my %session;
sub open_session
{
	my ($name, $sql, $how) = @_;
	$sql =~ s/NAME/$name/g;
	$session{$name} = ZkLock::session($a);
	$session{$name}->$how($sql);
}
open_session($_, $order{$_}, 'query') for sort keys %order;
open_session($_, $good{$_}, 'query') for sort keys %good;
open_session($_, $running{$_}, 'send') for sort keys %running;
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == keys %running },
	'all blocks wait');
is($remote->query('SELECT count(*) FROM t'), 0, 'nothing is committed at the remote side yet');

my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
ZkLock::stop_process($a, $worker);
my $rival = ZkLock::session($b);
$rival->query("SELECT zk_lock('$_', scope => 'session')") for sort(keys %order, keys %running), 'on_loss = warn';

for my $name (sort keys %order)
{
	my $state = $name =~ /session scope/ ? '55000' : '40001';
	is($session{$name}->fails('COMMIT'), "$state: lock \"$name\" was lost", "$name: COMMIT is refused");
}
for my $name (sort keys %running)
{
	is($session{$name}->failure, "40001: lock \"$name\" was lost", "$name: its COMMIT is refused");
}
is($session{$_}->fails('COMMIT'), '', "$_: COMMIT succeeds") for sort keys %good;

my $good = join ', ', sort keys %good;
for ([ $a, 'here' ], [ $remote, 'at the remote side' ])
{
	my ($who, $where) = @$_;
	my $sql = q{SELECT string_agg(name, ', ' ORDER BY name) FROM (SELECT DISTINCT name COLLATE "C" FROM t) AS t};
	is($who == $a ? ZkLock::ask($a, $sql) : $remote->query($sql), $good, "... and nothing else is committed $where");
}

kill 'CONT', $worker or die;
$rival->query('SELECT zk_unlock_all()');
$_->quit for values %session;
ZkLock::wait_connected($a);
ZkLock::ok_clean($zk, [ $a, $b ], $_) for 'written before', 'session scope', 'procedure';

done_testing();
