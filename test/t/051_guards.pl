# A transaction that requires leadership cannot commit without it, and leadership
# does not pass on before it has ended.
#
# Sessions last longer than anybody waits here: what follows is not owed to their
# end.  At last comes what is about that.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'\nmax_prepared_transactions = 5") } qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($a, 'CREATE TABLE t (i int)');
my $lost = '40001: leadership of election "job" was lost';
my $not_leader = '40001: this server is not the leader of election "job"';

sub wait_leader
{
	my $session = shift;
	ZkLock::wait_until(sub { $session->query("SELECT zk_is_leader('job')") eq 't' }, $session->{node}->name . ' leads');
}

# Not leader; leader
my $sb = ZkLock::session($b);
my $sa = ZkLock::session($a);
# it waits for two seconds and no longer
my $token = ZkLock::wait_until(sub { eval { $sa->query("SELECT zk_require_leader('job')") } }, 'the first leads');
like($token, qr/^\d+$/, 'zk_require_leader makes a candidate, and returns the token');
is($sa->query("SELECT (SELECT token FROM zk_elections WHERE election = 'job')"), $token, '... of the leadership');
is($sb->fails("SELECT zk_require_leader('job')"), $not_leader, 'who does not lead is told so');
# it waits for two seconds, too, and where nobody is known to lead by then it says that
is($sb->query("SELECT zk_is_leader('job', '1 h')"), 'f', '... as ZooKeeper says');
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
is($sa2->query("SELECT (SELECT token FROM zk_elections WHERE election = 'job') IS NULL"), 't', '... is true at once');
is($sa2->query("SELECT zk_is_leader('job')"), 'f', '... and for zk_is_leader, which queues anew');
is($sa2->fails("SELECT zk_require_leader('job')"), $not_leader, '... and for a new transaction');
is($sa->query("SELECT zk_require_leader('job')"), $token, 'the old transaction still has it');
# a delete of the contender would have been sent before this, and been seen by that
is($sa2->query("SELECT zk_try_lock('something else')"), 't', '... and the worker has gone round since');
is($sb->query("SELECT server FROM zk_candidates('job') WHERE is_leader"), 'a', '... the contender is there');
is($sb->query("SELECT zk_is_leader('job')"), 'f', '... so that nobody else leads');
$sa->query('SAVEPOINT s; INSERT INTO t VALUES (2)');
is($sa->query('COMMIT; SELECT count(*) FROM t'), 2, 'the transaction can commit');
wait_leader($sb);
ok(1, '... and then the other leads');
ZkLock::wait_until(sub { $sb->query("SELECT ARRAY(SELECT server FROM zk_candidates('job'))") eq '{b,a}' }, 'the first queues anew');
is($sb->query("SELECT zk_resign('job')"), 't', 'the other resigns');
wait_leader($sa);
ok(1, '... and the first leads again');

# A savepoint's end ends what it required.
$sa->query("BEGIN; SAVEPOINT s; SELECT zk_require_leader('job'); ROLLBACK TO s");
$sa2->query("SELECT zk_resign('job')");
wait_leader($sb);
ok(1, 'a guard ends with its savepoint');
$sa->query('COMMIT');
$sb->query("SELECT zk_resign('job')");
wait_leader($sa);

# PREPARE
$sa->query("BEGIN; SELECT zk_require_leader('job')");
is($sa->fails("PREPARE TRANSACTION 'p'"), '55000: cannot PREPARE a transaction that requires leadership', 'PREPARE is refused');
$sa->query('ROLLBACK');

# A call site remembers where in the lock table its election is; another may have
# come to be there.
my $names = $sa->query('SELECT names FROM zk_session');
$sa->query("BEGIN; DECLARE c CURSOR FOR SELECT zk_is_leader('x', '1 h') FROM generate_series(1, 100)");
is($sa->query('FETCH c'), 't', 'a call site');
$sb->query("SELECT zk_is_leader('x')");
$sa2->query("SELECT zk_resign('x')");
ZkLock::wait_until(sub { $sb->query("SELECT zk_is_leader('x'), ARRAY(SELECT server FROM zk_candidates('x'))") eq 't|{b}' }, 'the other leads');
ZkLock::wait_until(sub { $sa2->query('SELECT names FROM zk_session') == $names }, 'its place is free');
is($sa2->query("SELECT zk_is_leader('y', '1 h')"), 't', 'another election in its place');
is($sa->query('FETCH c'), 'f', '... does not answer for it');
is($sa->query('COMMIT; SELECT ARRAY(SELECT server FROM zk_candidates(\'x\'))'), '{b,a}', '... since the question makes a candidate again');

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
ZkLock::ask($a, 'CREATE ROLE joe LOGIN; GRANT EXECUTE ON PROCEDURE zk_run_as_leader TO joe; GRANT EXECUTE ON FUNCTION zk_is_leader TO joe');
my $joe = ZkLock::session($a, user => 'joe');
is($joe->fails("CALL zk_run_as_leader('job', 'INSERT INTO t VALUES (5)')"), '42501: permission denied for table t', 'the command has the rights of its caller');
is($joe->fails("SELECT zk_resign('job')"), '42501: permission denied for function zk_resign', 'not everybody may resign');
is($joe->query("SELECT zk_is_leader('job')"), 't', '... but ask');

# zklock.on_loss = warn
$sb->query("SELECT zk_is_leader('job')");
$sa->query("SELECT zk_resign('job')");
wait_leader($sb);
# it is the next, before the other can queue anew
is($sa->query("SELECT zk_is_leader('job', '1 h')"), 'f', 'the first is a candidate');
$sb->query("SET zklock.on_loss = warn; BEGIN; SELECT zk_require_leader('job')");
my ($first) = ZkLock::queue($zk, 'job', 'elections');
$zk->delete("/zklock/elections/job/$first");
wait_leader($sa);
# the other may have heard of it first
my $answer;
ZkLock::wait_until(sub { $answer = $sb->query('SELECT 1'); $sb->notices }, 'a warning');
is($answer, 1, 'zklock.on_loss = warn');
like($sb->notices, qr/leadership of election "job" was lost/, '... warns');
is($sb->fails('COMMIT'), '', '... and commits');

# Fast shutdown ends the transaction first.
$sa->query("BEGIN; SELECT zk_require_leader('job')");
$sb->query("SELECT zk_is_leader('job')");
ZkLock::hang_up($a);
$a->stop('fast');
wait_leader($sb);
ok(1, 'fast shutdown passes leadership on');

# The worker is stopped, the session expires, the other leads.  It may expire before
# that, as any session so short: so all is begun again until all three have it.
$a->append_conf('postgresql.conf', "zklock.session_timeout = '2s'");
$a->start;
my $sa3;
($sa, $sa2, $sa3) = map { ZkLock::session($a) } 1 .. 3;
my $sleeps = sub { ZkLock::ask($a, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = " . $sa3->pid) };
ZkLock::wait_until(
	sub {
		$sb->query("SELECT zk_resign('job')");
		$_->fails('ROLLBACK') for $sa, $sa2;
		return 0 if $sa->fails("BEGIN; SELECT zk_require_leader('job'); INSERT INTO t VALUES (6)") ne '';
		return 0 if $sa2->fails("BEGIN; SELECT zk_require_leader('job')") ne '';
		$sa3->send("CALL zk_run_as_leader('job', 'SELECT pg_sleep(3600)')");
		ZkLock::wait_until(sub { !$sa3->busy || $sleeps->() }, 'the command runs, or does not');
		return $sa3->busy;
	},
	'three transactions require the leadership');
$sa2->send('SELECT pg_sleep(3600)');
$sb->query("SELECT zk_is_leader('job')");
my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
ZkLock::stop_process($a, $worker);
wait_leader($sb);
my $sa4 = ZkLock::session($a);
is($sa4->query("SELECT zk_is_leader('job'), (SELECT token FROM zk_elections WHERE election = 'job') IS NULL"), 'f|t', 'a stopped worker fools nobody');
is($sa4->fails("SELECT zk_require_leader('job')"), $not_leader, '... no new transaction');
is($sa->fails('COMMIT'), $lost, '... not the commit of an old one');
is($sa2->failure, $lost, '... whose running statement is cancelled');
is($sa3->failure, $lost, '... and so is zk_run_as_leader');
$sa2->query('ROLLBACK');
kill 'CONT', $worker;
ZkLock::wait_until(sub { $sb->query("SELECT ARRAY(SELECT server FROM zk_candidates('job'))") eq '{b,a}' }, 'it queues anew');
ok(1, 'the candidacy outlives the session');
is(ZkLock::ask($a, 'SELECT count(*) FROM t'), 4, 'nothing of that was committed');

done_testing();
