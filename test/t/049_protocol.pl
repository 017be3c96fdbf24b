# Every error that zklock raises by itself, in each way in which a driver may send what
# raises it: it comes once, at its place, and the connection goes on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Protocol3;
use Test::More;
use ZkLock;
use ZooKeeper;

# Nothing here is owed to the end of a session.
my $zk = ZooKeeper->new->start;
my ($node, $rival) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '1h'\nzklock.max_locks = 16") } qw(a b);
ZkLock::wait_connected($node, $rival);
ZkLock::ask($node, 'CREATE TABLE t (i int); SELECT zk_fence(\'r\', 10)');
my $c = Protocol3->new($node);

# One statement, and the error that it raises.
sub raises
{
	my ($sql, $error) = @_;
	my $kept = ZkLock::ask($node, 'SELECT count(*) FROM zk_locks');
	is($c->query($sql) =~ s/^columns, //r, "$error, idle", "$sql: $error");
	is($c->run($sql)->sync, "parsed, bound, $error, idle", '... by the extended protocol');
	is($c->parse('s', $sql)->sync, 'parsed, idle', '... prepared apart');
	like($c->describe('S', 's')->sync, qr/^parameters, (columns|no data), idle$/, '... described');
	is($c->bind('', 's')->execute('')->sync, "bound, $error, idle", '... executed')  for 1 .. 2;
	$c->close('S', 's')->sync;

	# A procedure that commits says so instead.
	my $inside = $sql =~ /^CALL zk_lock_session/ && $error !~ /^22/ ? '25001: zk_lock_session cannot run inside a transaction block' : $error;
	is($c->query('BEGIN'), 'BEGIN, in transaction', '... in a transaction block');
	$c->parse('', $sql)->bind('p', '')->describe('P', 'p')->execute('p', 1);
	like($c->sync, qr/^parsed, bound, (columns|no data), \Q$inside\E, aborted$/, '... from a portal with a limit of rows');
	is($c->run('SELECT 1')->sync, '25P02: current transaction is aborted, commands ignored until end of transaction block, aborted', '... which is aborted');
	is($c->run('ROLLBACK')->sync, 'parsed, bound, ROLLBACK, idle', '... and ends');
	my $answer = $c->run('INSERT INTO t VALUES (1)')->run($sql)->run('INSERT INTO t VALUES (2)')->sync;
	# of a pipeline PostgreSQL's minor releases speak in different words
	$answer =~ s/cannot be executed within a pipeline/cannot run inside a transaction block/;
	is($answer, "parsed, bound, INSERT 0 1, parsed, bound, $inside, idle", '... in a pipeline');
	is($c->query("INSERT INTO t VALUES (1); $sql; INSERT INTO t VALUES (2)") =~ s/, columns//r, "INSERT 0 1, $inside, idle", '... among other statements');
	is($c->run('SELECT 1')->sync, 'parsed, bound, row 1, SELECT 1, idle', '... and the connection goes on');
	is(ZkLock::ask($node, 'SELECT count(*) FROM zk_locks'), $kept, '... with no lock of it');
}

# Arguments
my $long = "repeat('x', 256)";
raises(@$_) for (
	[ "SELECT zk_lock('')", '22023: lock name must not be empty' ],
	[ "SELECT zk_unlock($long)", '22023: lock name is too long' ],
	[ "SELECT zk_is_leader('')", '22023: election name must not be empty' ],
	[ "SELECT zk_lock('x', 'm')", '22023: unrecognized lock mode "m"' ],
	[ "SELECT zk_lock('x', scope => 's')", '22023: unrecognized lock scope "s"' ],
	[ "SELECT zk_try_lock('x', timeout => '-1 s')", '22023: timeout must not be negative or out of range' ],
	[ "SELECT zk_is_leader('e', '-1 s')", '22023: timeout must not be negative or out of range' ],
	[ "SELECT zk_fence('', 1)", '22023: resource name must not be empty' ],
	[ 'CALL zk_lock_session(NULL)', '22004: lock name must not be null' ],
	[ "CALL zk_run_as_leader('e', NULL)", '22004: command must not be null' ]);

# The call; the ensemble says once who leads, and may take longer for it than such a call waits
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT zk_is_leader('e')") eq 't' }, 'it leads');
raises(@$_) for (
	[ "CALL zk_run_as_leader('e', 'COMMIT')", '2D000: the command of zk_run_as_leader must not end the transaction' ],
	[ "CALL zk_run_as_leader('e', 'COPY t TO STDOUT')", '0A000: the command of zk_run_as_leader cannot COPY to or from the client' ],
	[ "SELECT zk_assert('x')", '55000: you do not hold lock "x"' ],
	[ "SELECT zk_fence('r', 9)", '40001: fencing token 9 for resource "r" is too old' ],
	[ 'SELECT zk_raise_tokens(0)', '22023: fencing tokens are above 0 already' ],
	[ 'SELECT zk_raise_tokens(9223372036854775807)', '22023: fencing tokens cannot be raised above 9223372036854775807' ]);
ZkLock::ask($node, 'CREATE RULE r AS ON UPDATE TO zk_fences DO INSTEAD NOTHING');
raises("SELECT zk_fence('r', 11)", '55000: table "zk_fences" is not as extension "zklock" made it');
ZkLock::ask($node, 'DROP RULE r ON zk_fences');

# What others have made
$zk->create(ZkLock::directory('refused') . '/x', parents => 1);
$zk->admin->set_acl(ZkLock::directory('refused'), [ 0, world => 'anyone' ]);
raises(@$_) for (
	[ "SELECT zk_lock('refused')", '58000: ZooKeeper refused the request for lock "refused": not authenticated' ],
	[ "SELECT count(*) FROM zk_contenders('refused')", '58000: ZooKeeper refused to answer: not authenticated' ]);

# Others have it
my $r = ZkLock::session($rival);
$r->query("SELECT zk_lock('busy', scope => 'session'); SELECT zk_is_leader('led')");
ZkLock::wait_until(sub { $r->query("SELECT zk_is_leader('led')") eq 't' }, 'the other server leads');
$c->query("SET lock_timeout = '20ms'");
raises(@$_) for (
	[ "SELECT zk_lock('busy')", '55P03: canceling statement due to lock timeout' ],
	[ "CALL zk_lock_session('busy')", '55P03: canceling statement due to lock timeout' ]);
$c->query('RESET lock_timeout');
raises(@$_) for (
	[ "CALL zk_lock_session('busy', timeout => '20 ms')", '55P03: could not obtain lock "busy" within 20 ms' ],
	[ "SELECT zk_require_leader('led')", '40001: this server is not the leader of election "led"' ]);
is($c->run("SELECT zk_unlock('busy')")->sync, 'parsed, bound, WARNING 55000: you do not hold lock "busy" in session scope, row f, SELECT 1, idle', 'zk_unlock warns');
$c->query("SELECT zk_lock('up', 'shared', 'session')");
my $waiter = ZkLock::session($rival)->send("SELECT zk_lock('up')")->wait_level(2);
ZkLock::wait_queue($zk, 'up', 2);
raises("SELECT zk_lock('up')", '40P01: deadlock detected');
$c->query("SELECT zk_unlock('up')");
like($waiter->result, qr/^\d+$/, 'the other request is granted when the upgrade has been given up');

# Limits
$c->query("SET zklock.max_locks_per_backend = 1; SELECT zk_lock('one', scope => 'session')");
raises("SELECT zk_lock('two')", '53400: session holds too many zklock locks');
$c->query('RESET zklock.max_locks_per_backend');
my $many = ZkLock::session($node);
$many->fails("SELECT zk_lock('n' || i, scope => 'session') FROM generate_series(1, 100) AS i");
raises("SELECT zk_lock('two')", '53200: zklock lock table is full');
$many->quit;
# its locks are given back after it has gone
ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT names < 16 FROM zk_session') eq 't' }, 'there is room again');
$zk->create(ZkLock::directory('used') . '/lock-000000001', parents => 1);
raises("SELECT zk_lock('used')", '55000: queue of lock "used" has a contender whose sequence number was never given');

# A transaction that requires leadership which is lost: its end is heard the first time.
for my $end ([ 'ROLLBACK', 'ROLLBACK' ], [ 'COMMIT', '40001: leadership of election "mine" was lost' ],
	[ "PREPARE TRANSACTION 'p'", '55000: cannot PREPARE a transaction that requires leadership' ])
{
	my ($sql, $answer) = @$end;
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT zk_is_leader('mine')") eq 't' }, 'it leads');
	is($c->query('BEGIN'), 'BEGIN, in transaction', "leadership is lost, $sql:");
	is($c->run("SELECT zk_require_leader('mine') > 0")->sync, 'parsed, bound, row t, SELECT 1, in transaction', 'required by the extended protocol');
	my ($candidate) = ZkLock::queue($zk, 'mine', 'elections');
	$zk->delete(ZkLock::directory('mine', 'elections') . "/$candidate");
	ZkLock::wait_until(sub { (ZkLock::queue($zk, 'mine', 'elections'))[0] // $candidate ne $candidate }, 'it queues anew');
	is($c->run($sql)->sync, "parsed, bound, $answer, idle", "... $sql answers");
}

# ZooKeeper is away.
$c->query("SET zklock.connect_timeout = '20ms'");
$zk->stop;
ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT state FROM zk_session') ne 'connected' }, 'disconnected');
raises(@$_) for (
	[ "SELECT zk_lock('x')", '58000: could not reach ZooKeeper within 20 ms' ],
	[ "SELECT zk_try_lock('x')", '58000: could not reach ZooKeeper within 20 ms' ],
	[ "SELECT server FROM zk_candidates('led') WHERE is_leader", '58000: could not reach ZooKeeper within 20 ms' ],
	[ "SELECT zk_assert('one')", '58000: could not prove the lock within 20 ms' ]);

# No worker
$node->append_conf('postgresql.conf', "max_worker_processes = 0\nzklock.connect_timeout = '20ms'");
$node->restart;
$c = Protocol3->new($node);
raises("SELECT zk_lock('x')", '55000: zklock worker is not running');

# Where it cannot be called.  A portal with a limit of rows starts no parallel workers.
sub refuses
{
	my ($sql, $error) = @_;
	is($c->query($sql) =~ s/^columns, //r, "$error, idle", "$sql: $error");
	is($c->run($sql)->sync, "parsed, bound, $error, idle", '... by the extended protocol');
	is($c->query('BEGIN'), 'BEGIN, in transaction', '... in a transaction block');
	is($c->run($sql)->sync, "parsed, bound, $error, aborted", '... which is aborted');
	is($c->run('ROLLBACK')->sync, 'parsed, bound, ROLLBACK, idle', '... and ends');
}
my $force = ZkLock::ask($node, "SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')");
ZkLock::ask($node, q(CREATE FUNCTION unsafe() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN zk_lock(''x''); END'));
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
$c = Protocol3->new($node);
$c->query("SET $force = on");
refuses('SELECT unsafe()', '55000: cannot use zklock in a parallel worker');
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
$c = Protocol3->new($node);
refuses($_, '55000: zklock must be loaded via shared_preload_libraries')
  for "SELECT zk_lock('x')", "SELECT zk_is_leader('x')", "CALL zk_lock_session('x')", 'SELECT state FROM zk_session';

is(ZkLock::ask($node, 'SELECT count(*) FROM t'), 0, 'nothing of a failed transaction was committed');

done_testing();
