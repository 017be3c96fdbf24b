# The watch over a hold ends with the hold, and what the table says of others is
# worth nothing while the worker is silent.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use IPC::Run;
use PostgreSQL::Test::Utils ();
use Proxy;
use Test::More;
use Time::HiRes qw(sleep time);
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
my $a = ZkLock::server('a', $proxy, conf => "zklock.session_timeout = '8s'");
my $b = ZkLock::server('b', $zk, conf => 'restart_after_crash = on');
ZkLock::wait_connected($a, $b);

# Backends that held something once are left alone when the ensemble goes away.
my %session = map { $_ => ZkLock::session($a) } qw(unlock rollback commit discard never holder);
$session{unlock}->query("SELECT zk_lock('job', scope => 'session')");
$session{unlock}->query("SELECT zk_unlock('job')");
$session{rollback}->query("BEGIN; SAVEPOINT s; SELECT zk_lock('job'); ROLLBACK TO s");
$session{commit}->query("BEGIN; SELECT zk_lock('job'); COMMIT");
$session{discard}->query("SELECT zk_lock('job', scope => 'session')");
$session{discard}->query('DISCARD ALL');
$session{holder}->query("BEGIN; SELECT zk_lock('job')");
$proxy->down;
$session{holder}->send('SELECT pg_sleep(3600)');
# On a slow machine they may not see the loss, but end well all the same.
$session{$_}->send('SELECT pg_sleep(12)') for grep { $_ ne 'holder' } keys %session;
is($session{holder}->failure, '40001: lock "job" was lost', 'a holder is told');
is($session{$_}->failure, '', "$_: who holds nothing any more is not") for qw(unlock rollback commit discard never);
$proxy->heal;
ZkLock::wait_connected($a);
$_->quit for values %session;

# Nor does the timer outlive the process.
my $script = PostgreSQL::Test::Utils::tempdir() . '/script';
PostgreSQL::Test::Utils::append_to_file($script,
	"\\set i random(1, 1000000)\nSELECT zk_lock('n' || :i, 'exclusive', 'session');\n\\sleep 40 ms\n");
my $output;
IPC::Run::run([ 'pgbench', '-n', '-C', '-h', $b->host, '-p', $b->port, '-t', 60, '-c', 8, '-f', $script, 'postgres' ],
	'<', \'', '>&', \$output, IPC::Run::timeout($ZkLock::timeout, exception => 'pgbench has not ended in time'));
like($output, qr{number of transactions actually processed: 480/480}, 'sessions that end while they hold');
unlike(PostgreSQL::Test::Utils::slurp_file($b->logfile), qr/terminated by signal|reinitializing/, '... do not crash');

# "False" is an answer about others.  One that was true before the worker was
# stopped is none.
my ($holder, $waiter, $trier) = (ZkLock::session($b), ZkLock::session($a), ZkLock::session($a));
ZkLock::wait_connected($a, $b);
$holder->query("BEGIN; SELECT zk_lock('job')");
is($trier->query("SELECT zk_try_lock('job')"), 'f', 'false: the other server has it');
ZkLock::wait_queue($zk, 'job', 1);
$waiter->send("SELECT zk_lock('job')");
$waiter->wait_level(2);
# what is remembered is a place behind the other server
ZkLock::wait_queue($zk, 'job', 2);
my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
ZkLock::stop_process($a, $worker);
$waiter->cancel;
$waiter->failure;
$holder->query('COMMIT');
# The stopped worker counts as silent after four heartbeats.
$trier->query("SET zklock.connect_timeout = '1s'");
ZkLock::wait_until(sub { $trier->fails("SELECT zk_try_lock('job')") =~ /^58000: / }, 'an old refusal is no answer');
like($trier->fails("SELECT zk_try_lock('job')"), qr/^58000: could not reach ZooKeeper/, 'an old refusal is no answer');
kill 'CONT', $worker or die;
ZkLock::wait_until(sub { eval { $trier->query("SELECT zk_try_lock('job')") eq 't' } }, 'the lock is free');
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

# A commit that waits for the verdict, while time runs out, says that the lock was
# lost, and not that somebody has cancelled it: the timer is not to interfere.
# Some commit before the lease has lapsed, some after the loss, some in between,
# where the timer's and the waiter's next looks are 40 and 50 ms away.
my $c = ZkLock::server('c', $zk, conf => "zklock.session_timeout = '400ms'");
ZkLock::wait_connected($c);
my %commit = map { $_ => ZkLock::session($c) } map { sprintf 'c%02d', $_ } 1 .. 30;
$commit{$_}->fails("BEGIN; SELECT zk_lock('$_')") for sort keys %commit;
$worker = ZkLock::ask($c, 'SELECT worker_pid FROM zk_session');
kill 'STOP', $worker or die;
for (sort keys %commit)
{
	sleep 0.01;
	$commit{$_}->send('COMMIT');
}
# A worker that was stopped with a lock of shared memory has to go on, or they would wait for that.
my $stopped = time;
ZkLock::wait_until(sub { time > $stopped + 10 || !grep { $_->busy } values %commit }, 'the commits have ended');
kill 'CONT', $worker or die;
my %end = map { $_ => $commit{$_}->failure } sort keys %commit;
note join ' ', map { substr($end{$_}, 0, 5) || 'ok' } sort keys %end;
is(join("\n", grep { !/^40001: lock "c\d\d" was lost$/ && $_ ne '' } values %end), '', 'a commit succeeds, or says that its lock was lost');
$_->quit for values %commit;
ZkLock::ok_clean($zk, [$c], $_) for 'c01', 'c30';

# A lock that a server keeps for its next holder keeps its token.  Not so when a
# holder's session ends: its client may not know, and goes on with the old one.
ZkLock::ask($c, "ALTER SYSTEM SET zklock.$_") for "session_timeout = '60s'", "keep_time = '1h'", 'handoff_limit = 16';
$c->restart;
ZkLock::wait_connected($c);
my ($first, $next) = (ZkLock::session($c), ZkLock::session($c));
my $old = $first->query("BEGIN; SELECT zk_lock('kept')");
$first->query('COMMIT');
is($next->query("BEGIN; SELECT zk_lock('kept')"), $old, 'a lock that is kept keeps its token');
$first->send("BEGIN; SELECT zk_lock('kept')")->wait_level(1);
$next->terminate;
my $new = $first->result;
cmp_ok($new, '>', $old, 'a holder is terminated: who waits gets a larger one');
$first->terminate;
cmp_ok(ZkLock::session($c)->query("SELECT zk_lock('kept')"), '>', $new, '... and so does who comes later');
my $fence = ZkLock::session($b);
$fence->query("SELECT zk_fence('kept', $new)");
like($fence->fails("SELECT zk_fence('kept', $old)"), qr/^40001: /, '... so that the fence tells them apart');

done_testing();
