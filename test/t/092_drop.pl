# DROP EXTENSION and DROP DATABASE: other databases and sessions that hold locks
# go on, and neither command waits for zklock.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
# The worker says nothing of a leadership that it gains while there is no such database.
my $node = ZkLock::server('node', $zk, conf => "cluster_name = node\nmax_connections = 40\nzklock.notify_database = 'postgres'");
my $far = ZkLock::server('far', $zk);
my $admin = ZkLock::session($node);

sub database
{
	my $name = shift;
	$admin->query("CREATE DATABASE $name");
	my $s = ZkLock::session($node, dbname => $name);
	$s->query('CREATE EXTENSION zklock');
	return $s;
}

sub worker { return $admin->query('SELECT worker_pid FROM zk_session'); }
sub log_of { return PostgreSQL::Test::Utils::slurp_file($node->logfile); }

#
# DROP EXTENSION
#
my $first = database('first');
my $holder = ZkLock::session($node, dbname => 'first');
my $worker = worker();
my $here = ZkLock::session($node);
$here->query("BEGIN; SELECT zk_lock('here'); SELECT zk_lock('session', 'exclusive', 'session')");
my $token = $here->query("SELECT zk_token('here')");
$holder->query("SELECT zk_lock('kept', 'exclusive', 'session'); BEGIN; SELECT zk_lock('there')");
$first->query("SELECT zk_lock('own', 'exclusive', 'session')");
my $near = ZkLock::session($node)->send("SELECT zk_lock('there')")->wait_level(1);
my $other = ZkLock::session($far)->send("SELECT zk_lock('there')")->wait_level(2);
is($first->query('DROP EXTENSION zklock; SELECT 1'), 1, 'DROP EXTENSION beside holders and waiters');
like($first->fails("SELECT zk_lock('x')"), qr/^42883/, '... the functions are gone there');
is($here->query("SELECT zk_token('here')"), $token, 'a holder in another database has its lock');
is($here->query("SELECT zk_assert('here')"), $token, '... and can prove it');
ok($near->busy && $other->busy, 'a holder in that database keeps the others out');
is($holder->query('SELECT 1; COMMIT; SELECT 2'), "1\n2", '... and commits');
ok($near->result > 0 && $other->result > 0, '... which gives it to them');
is(scalar ZkLock::queue($zk, 'kept'), 1, 'a hold in session scope stays');
is(ZkLock::ask($node, "SELECT string_agg(name, ' ' ORDER BY name) FROM zk_locks"), 'here kept own session', '... as zk_locks in other databases shows');
$holder->query('DISCARD ALL');
$first->query('SELECT pg_advisory_unlock_all()');
ZkLock::ok_clean($zk, [], $_, "what core has to end it does, $_") for qw(kept own);
is($here->query("COMMIT; SELECT zk_unlock('session')"), 't', 'the other database goes on');
is(worker(), $worker, 'the worker did not notice');
$first->query('CREATE EXTENSION zklock');
ok($first->query("SELECT zk_lock('again')") > 0, 'made again, it works');

# Open transactions that have used it hold no more than any other would
$here->query("BEGIN; SELECT zk_lock('x')");
is(ZkLock::session($node)->query('DROP EXTENSION zklock; CREATE EXTENSION zklock; SELECT 1'), 1,
	'DROP EXTENSION in the database of a holder');
is($here->query('COMMIT; SELECT 1'), 1, '... who commits');

#
# DROP DATABASE
#
$first->quit;
$holder->quit;
$here->query("BEGIN; SELECT zk_lock('here')");
$near = ZkLock::session($node)->send("SELECT zk_lock('here')")->wait_level(1);
my $contender = $zk->client->contend(ZkLock::directory('elsewhere'));
$other = ZkLock::session($node)->send("SELECT zk_lock('elsewhere')")->wait_level(2);
my $call = ZkLock::session($node)->send("CALL zk_lock_session('elsewhere')")->wait_level(1);
is($admin->fails('DROP DATABASE first'), '', 'DROP DATABASE beside a holder and waiters at both levels');
ok($near->busy && $other->busy && $call->busy, '... who go on');

database('second')->quit;
ZkLock::stop_process($node, $worker);
is($admin->fails('DROP DATABASE second'), '', 'DROP DATABASE while the worker is stopped');
kill 'CONT', $worker;
database('second')->quit;
$zk->stop;
is($admin->fails('DROP DATABASE second'), '', 'DROP DATABASE while ZooKeeper is down');
$zk->start;
ZkLock::wait_connected($node);

# A session in it: as with any other, it is in use, unless forced
my $third = database('third');
$third->query("BEGIN; SELECT zk_lock('third')");
like($admin->fails('DROP DATABASE third'), qr/^55006: database "third" is being accessed/, 'DROP DATABASE where a holder is');
# PostgreSQL waits for five seconds that the holder has gone.
ok(ZkLock::wait_until(sub { $admin->fails('DROP DATABASE third WITH (FORCE)') eq '' }, 'the database is dropped'), '... forced');
like($third->fails('SELECT 1'), qr/^57P01/, '... ends the holder');
ZkLock::ok_clean($zk, [], 'third', '... and gives its lock back');
$_->cancel->failure for $near, $other, $call;
$here->query('COMMIT');
is(worker(), $worker, 'the worker stays');

#
# zklock.notify_database: the notifier is in it for a moment
#
my $fourth = database('fourth');
$fourth->query('LISTEN zklock');
# the worker must have it before the server leads
ZkLock::set($node, 'zklock.notify_database', 'fourth');
$admin->query("SELECT zk_is_leader('first')");
ok(eval { ZkLock::wait_until(sub { $fourth->query('SELECT 1') =~ /payload "first:node"/ }, 'notified') }, 'notified');
$fourth->quit;
# Changes all the time, more than anybody waits for
my $busy = ZkLock::session($node);
$busy->send("SELECT zk_is_leader('e' || i % 20, '1 h'), zk_resign('e' || i % 20), pg_sleep(0.01) FROM generate_series(1, 1000000) i");
ZkLock::wait_until(sub { log_of() =~ /became leader of election "e19"/ }, 'leaderships come');
# it waits for five seconds that the notifier is not there
ok(ZkLock::wait_until(sub { $admin->fails('DROP DATABASE fourth') eq '' }, 'the database is dropped'),
	'DROP DATABASE of zklock.notify_database while changes are notified');
ok($busy->busy, '... which go on');
$busy->cancel->failure;
$admin->query("SELECT zk_is_leader('last')");
ok(eval { ZkLock::wait_until(sub { log_of() =~ /database "fourth" does not exist/ }, 'told') }, 'the log says what is missing');
is(worker(), $worker, 'the worker stays, here, too');
ok($admin->query("SELECT zk_lock('works')") > 0, '... and locks are given');

#
# Removal, in the order of doc/operations.md
#
$admin->query('CREATE ROLE batch LOGIN; ALTER SYSTEM RESET zklock.notify_database');
$admin->query("ALTER ROLE batch SET zklock.on_loss = 'warn'");
$here->query("BEGIN; SELECT zk_lock('held')");
$other = ZkLock::session($far)->send("SELECT zk_lock('held')")->wait_level(2);
ZkLock::hang_up($node);
my $conf = PostgreSQL::Test::Utils::slurp_file($node->data_dir . '/postgresql.conf');
sub configure
{
	open my $file, '>', $node->data_dir . '/postgresql.conf' or die;
	print $file @_;
	close $file or die;
}
configure($conf =~ s/^(?:shared_preload_libraries|zklock\.).*$//gmr);
$node->restart;
ok($other->result > 0, 'taken out of shared_preload_libraries: its locks pass on');
is(ZkLock::ask($node, 'DROP EXTENSION zklock; SELECT 1'), 1, '... DROP EXTENSION works');
is(ZkLock::session($node, user => 'batch')->query('SELECT 1'), 1, '... and a setting of a role that is left harms nobody');
ZkLock::hang_up($node);
$node->stop;
configure($conf =~ s/'zklock'/'zklock_removed'/r);
ok(!$node->start(fail_ok => 1), 'a server that preloads what has been removed does not start');
like(log_of(), qr/FATAL:  could not access file "zklock_removed": No such file or directory/, '... as its log says');

done_testing();
