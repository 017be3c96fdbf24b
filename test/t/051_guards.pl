# A transaction that requires leadership cannot commit without it, and leadership
# does not pass on before it has ended.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Time::HiRes qw(sleep time);
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '2s'\ncluster_name = '$_'\nmax_prepared_transactions = 5") } qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($a, 'CREATE TABLE t (i int)');
my $lost = '40001: leadership of election "job" was lost';
my $not_leader = '40001: this server is not the leader of election "job"';

# Not leader; leader
my $sb = ZkLock::session($b);
my $sa = ZkLock::session($a);
my $token = $sa->query("SELECT zk_require_leader('job')");
like($token, qr/^\d+$/, 'zk_require_leader makes a candidate, and returns the token');
is($sa->query("SELECT zk_leader_token('job')"), $token, '... of the leadership');
is($sb->fails("SELECT zk_require_leader('job')"), $not_leader, 'who does not lead is told so');
is($sb->query("CALL zk_run_as_leader('job', 'SELECT 1/0')"), '', 'zk_run_as_leader runs nothing there');
like($sb->notices, qr/^NOTICE 00000: this server is not the leader of election "job", skipping/, '... and says so');

# Counted, shared by backends, ended by savepoints
my $sa2 = ZkLock::session($a);
$sa->query("BEGIN; SELECT zk_require_leader('job'); SELECT zk_require_leader('job'); INSERT INTO t VALUES (1)");
is($sa2->query("BEGIN; SELECT zk_require_leader('job')"), $token, 'two transactions can require it at once');
is($sa2->query('COMMIT; SELECT count(*) FROM t'), '0', '... and commit');
is($sa2->query("SELECT count(*) FROM zk_locks"), 0, 'no guard in zk_locks');
is($sa2->query("SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, '... nor in pg_locks');
is($sa->query("SELECT zk_unlock_all()"), 0, 'zk_unlock_all leaves it alone');
is($sa->query("SELECT zk_unlock('job')"), 'f', '... and so does zk_unlock');
is($sa->query("SELECT zk_token('job') IS NULL"), 't', '... and zk_token knows of no lock');

# Resign: false at once, passed on when the transaction has ended.
is($sa2->query("SELECT zk_resign('job')"), 't', 'resign while a transaction requires it');
is($sa2->query("SELECT zk_leader_token('job') IS NULL"), 't', '... is true at once');
is($sa2->query("SELECT zk_is_leader('job')"), 'f', '... and for zk_is_leader, which queues anew');
is($sa2->fails("SELECT zk_require_leader('job')"), $not_leader, '... and for a new transaction');
is($sa->query("SELECT zk_require_leader('job')"), $token, 'the old transaction still has it');
sleep 0.5;
is($sb->query("SELECT zk_is_leader('job')"), 'f', 'nobody else leads meanwhile');
is($sb->query("SELECT zk_leader('job')"), 'a', '... since the contender is there');
$sa->query('SAVEPOINT s; INSERT INTO t VALUES (2)');
my $start = time;
is($sa->query('COMMIT; SELECT count(*) FROM t'), 2, 'the transaction can commit');
ZkLock::wait_until(sub { $sb->query("SELECT zk_is_leader('job')") eq 't' }, 'the other leads');
cmp_ok(time - $start, '<', 1, '... and then the other leads, at once');
ZkLock::wait_until(sub { $sb->query("SELECT zk_candidates('job')") eq '{b,a}' }, 'the first queues anew');
is($sb->query("SELECT zk_resign('job')"), 't', 'the other resigns');
ZkLock::wait_until(sub { $sa->query("SELECT zk_is_leader('job')") eq 't' }, 'the first leads again');
ok(1, '... and the first leads again');

# A savepoint's end ends what it required.
$sa->query("BEGIN; SAVEPOINT s; SELECT zk_require_leader('job'); ROLLBACK TO s");
$sa2->query("SELECT zk_resign('job')");
ZkLock::wait_until(sub { $sb->query("SELECT zk_is_leader('job')") eq 't' }, 'passed on');
ok(1, 'a guard ends with its savepoint');
$sa->query('COMMIT');
$sb->query("SELECT zk_resign('job')");
ZkLock::wait_until(sub { $sa->query("SELECT zk_is_leader('job')") eq 't' }, 'the first leads again');

# PREPARE
$sa->query("BEGIN; SELECT zk_require_leader('job')");
is($sa->fails("PREPARE TRANSACTION 'p'"), '55000: cannot PREPARE a transaction that requires leadership', 'PREPARE is refused');
$sa->query('ROLLBACK');

# A call site remembers where in the lock table its election is; another may have
# come to be there.
$sa->query("BEGIN; DECLARE c CURSOR FOR SELECT zk_is_leader('x') FROM generate_series(1, 100)");
is($sa->query('FETCH c'), 't', 'a call site');
$sb->query("SELECT zk_is_leader('x')");
$sa2->query("SELECT zk_resign('x')");
ZkLock::wait_until(sub { $sb->query("SELECT zk_is_leader('x'), zk_candidates('x')") eq 't|{b}' }, 'the other leads');
sleep 0.1;
is($sa2->query("SELECT zk_is_leader('y')"), 't', 'another election in its place');
is($sa->query('FETCH c'), 'f', '... does not answer for it');
is($sa->query('COMMIT; SELECT zk_candidates(\'x\')'), '{b,a}', '... since the question makes a candidate again');

# zk_run_as_leader
is($sa->query("CALL zk_run_as_leader('job', 'INSERT INTO t VALUES (3); INSERT INTO t VALUES (4)')"), '', 'commands run on the leader');
is($sa->query('SELECT count(*) FROM t'), 4, '... and commit');
is($sa->fails("CALL zk_run_as_leader('job', 'SELECT 1/0')"), '22012: division by zero', '... or fail');
is($sa->fails("CALL zk_run_as_leader('job', 'COMMIT')"), '2D000: the command of zk_run_as_leader must not end the transaction', 'COMMIT is refused');
is($sa->fails("CALL zk_run_as_leader('job', 'DO \$\$BEGIN COMMIT; END\$\$')"), '2D000: invalid transaction termination', '... also within');
like($sa->fails("CALL zk_run_as_leader('job', 'VACUUM t')"), qr/^25001: VACUUM cannot be executed from a function/, '... and VACUUM');
is($sa->fails("CALL zk_run_as_leader('job', 'COPY t TO STDOUT')"), '0A000: the command of zk_run_as_leader cannot COPY to or from the client', '... and COPY to the client');
is($sa->fails("CALL zk_run_as_leader(NULL, 'SELECT 1')"), '22004: election name must not be null', 'NULL is refused');
is($sa->fails("CALL zk_run_as_leader('job', NULL)"), '22004: command must not be null', '... as a command, too');
ZkLock::ask($a, 'CREATE ROLE joe LOGIN; GRANT EXECUTE ON PROCEDURE zk_run_as_leader TO joe');
my $joe = ZkLock::session($a, user => 'joe');
is($joe->fails("CALL zk_run_as_leader('job', 'INSERT INTO t VALUES (5)')"), '42501: permission denied for table t', 'the command has the rights of its caller');
is($joe->fails("SELECT zk_resign('job')"), '42501: permission denied for function zk_resign', 'not everybody may resign');
is($joe->query("SELECT zk_is_leader('job')"), 't', '... but ask');

# The worker is stopped, the session expires, the other leads.
$sa->query("BEGIN; SELECT zk_require_leader('job'); INSERT INTO t VALUES (6)");
$sa2->query("BEGIN; SELECT zk_require_leader('job')");
my $sa3 = ZkLock::session($a);
$sa2->send('SELECT pg_sleep(60)');
$sa3->send("CALL zk_run_as_leader('job', 'SELECT pg_sleep(60)')");
my $sa4 = ZkLock::session($a);
is($sb->query("SELECT zk_is_leader('job')"), 'f', 'the other is a candidate');
my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
kill 'STOP', $worker;
ZkLock::wait_until(sub { $sb->query("SELECT zk_is_leader('job')") eq 't' }, 'the other leads');
is($sa4->query("SELECT zk_is_leader('job'), zk_leader_token('job') IS NULL"), 'f|t', 'a stopped worker fools nobody');
is($sa4->fails("SELECT zk_require_leader('job')"), $not_leader, '... no new transaction');
is($sa->fails('COMMIT'), $lost, '... not the commit of an old one');
is($sa2->failure, $lost, '... whose running statement is cancelled');
is($sa3->failure, $lost, '... and so is zk_run_as_leader');
$sa2->query('ROLLBACK');
kill 'CONT', $worker;
ZkLock::wait_until(sub { $sb->query("SELECT zk_candidates('job')") eq '{b,a}' }, 'it queues anew');
ok(1, 'the candidacy outlives the session');
is(ZkLock::ask($a, 'SELECT count(*) FROM t'), 4, 'nothing of that was committed');

# zklock.on_loss = warn
$sb->query("SET zklock.on_loss = warn; BEGIN; SELECT zk_require_leader('job')");
my ($first) = ZkLock::queue($zk, 'job', 'elections');
$zk->delete("/zklock/elections/job/$first");
ZkLock::wait_until(sub { $sa->query("SELECT zk_is_leader('job')") eq 't' }, 'the first leads again');
is($sb->query('SELECT 1'), 1, 'zklock.on_loss = warn');
like($sb->notices, qr/leadership of election "job" was lost/, '... warns');
is($sb->fails('COMMIT'), '', '... and commits');

# Fast shutdown ends the transaction first.
$sa->query("BEGIN; SELECT zk_require_leader('job')");
$sb->query("SELECT zk_is_leader('job')");
ZkLock::hang_up($a);
$a->stop('fast');
ZkLock::wait_until(sub { $sb->query("SELECT zk_is_leader('job')") eq 't' }, 'the other leads');
ok(1, 'fast shutdown passes leadership on');

done_testing();
