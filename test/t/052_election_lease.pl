# Nobody is fooled: a server whose worker is stopped, or that is cut off, ceases
# to call itself the leader before another begins to.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Time::HiRes qw(sleep time);
use ZkLock;
use ZooKeeper;

my $timeout = 2;
my $zk = ZooKeeper->new->start;
my ($p, $q) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '${timeout}s'\ncluster_name = '$_'") } qw(p q);
ZkLock::wait_connected($p, $q);
my ($sp, $sq) = map { ZkLock::session($_) } $p, $q;
my $ask = "SELECT zk_is_leader('job')";
my $end = "is no longer leader of election \"job\", token";

sub log_of { my $node = shift; open my $fh, '<', $node->logfile or die; local $/; return <$fh>; }

# Ask both by turns for so many seconds.  Returns when the old leader first said
# false and the new one true.  Each answer is there before the next question is
# put, so two who say true at once would be seen.
sub poll
{
	my ($old, $new, $seconds) = @_;
	my ($first_false, $first_true);
	my $both = 0;
	my $deadline = time + $seconds;
	while (time < $deadline)
	{
		my $o = $old->query($ask) eq 't';
		$first_false //= time unless $o;
		$both++ if $o && $first_true;
		my $n = $new->query($ask) eq 't';
		$first_true //= time if $n;
		$both++ if $n && $old->query($ask) eq 't';
		sleep 0.002;
	}
	is($both, 0, 'never two at once');
	return ($first_false, $first_true);
}

is($sp->query($ask), 't', 'one leads');
is($sq->query($ask), 'f', '... and the other does not');

# The leader's worker is stopped.
my $worker = ZkLock::ask($p, 'SELECT worker_pid FROM zk_session');
kill 'STOP', $worker or die;
my $start = time;
my ($false, $true) = poll($sp, $sq, 3 * $timeout);
kill 'CONT', $worker or die;
ok($false && $true && $false < $true, 'a stopped worker: false here before true there')
  and note sprintf 'false after %.2f s, true after %.2f s', $false - $start, $true - $start;
cmp_ok($true - $start, '<', $timeout + 1.5, '... within the session timeout and some ticks');
ZkLock::wait_until(sub { $sq->query("SELECT zk_candidates('job')") eq '{q,p}' }, 'the first queues anew');
is($sp->query($ask), 'f', 'when the worker goes on, the old leader is none');
like(log_of($p), qr/$end \d+: (the ZooKeeper session ended|its contender in ZooKeeper is gone|the lease has lapsed)/, '... and its log says so');

# The leader's worker is stopped for less than that: true, or false for a while,
# and true again.
$worker = ZkLock::ask($q, 'SELECT worker_pid FROM zk_session');
my $token = $sq->query("SELECT zk_leader_token('job')");
kill 'STOP', $worker or die;
sleep 0.3 * $timeout;
kill 'CONT', $worker or die;
ZkLock::wait_until(sub { $sq->query($ask) eq 't' }, 'true again');
is($sq->query("SELECT zk_leader_token('job')"), $token, 'a short pause is no loss');

# ZooKeeper pauses: the lease lapses.  When it goes on, the session may live.
$zk->pause(1);
$start = time;
ZkLock::wait_until(sub { $sq->query($ask) eq 'f' }, 'false');
cmp_ok(time - $start, '<', $timeout, 'ZooKeeper is silent: false in time');
is($sq->query("SELECT zk_leader_token('job') IS NULL"), 't', '... and no token');
is($sq->fails("SELECT zk_require_leader('job')"), '40001: this server is not the leader of election "job"', '... nor a guard');
is($sq->query("SELECT is_leader, token IS NULL FROM zk_elections"), 'f|t', '... nor a leader in zk_elections, which does not ask for that');
is($sp->query($ask), 'f', '... and nobody else leads');
is($sp->query("SELECT zk_is_leader('new', '100 ms')"), 'f', 'no error from a new candidate');
ZkLock::wait_until(sub { log_of($q) =~ /$end $token: the lease has lapsed/ }, 'the log says why');
ok(1, 'the log says why');
$sq->query("SET zklock.connect_timeout = '500ms'");
like($sq->fails("SELECT zk_leader('job')"), qr/^58000: could not reach ZooKeeper within 500 ms/, 'zk_leader fails');
like($sq->fails("SELECT leader FROM zk_elections"), qr/^58000: could not reach ZooKeeper within 500 ms/, 'zk_elections fails where it has to ask');
$zk->resume(1);
ZkLock::wait_connected($p, $q);
ZkLock::wait_until(sub { $sq->query($ask) eq 't' || $sp->query($ask) eq 't' }, 'somebody leads');
my $leader = $sq->query("SELECT zk_leader('job')");
is(join(' ', map { $_->query($ask) } $sp, $sq), $leader eq 'p' ? 't f' : 'f t', "$leader leads, and nobody else");
ZkLock::wait_until(sub { $sp->query("SELECT zk_is_leader('new')") eq 't' }, 'the new candidate leads its election');
ok(1, 'a candidacy that began without ZooKeeper is there');

# No ZooKeeper at all: false, and no wait but for the first.
$zk->stop(1);
ZkLock::wait_until(sub { $sp->query($ask) eq 'f' && $sq->query($ask) eq 'f' }, 'false');
$start = time;
is($sp->query("SELECT zk_is_leader('other', '500 ms')"), 'f', 'false without ZooKeeper');
cmp_ok(time - $start, '>=', 0.45, '... after the wait');
$start = time;
is($sp->query("SELECT count(*) FROM generate_series(1, 1000) WHERE zk_is_leader('other', '500 ms')"), 0, '... and again');
cmp_ok(time - $start, '<', 0.4, '... at once');
$start = time;
is($sp->query("SELECT zk_is_leader('another', '0')"), 'f', 'no wait');
cmp_ok(time - $start, '<', 0.4, '... at once');
is($sp->fails("SELECT zk_is_leader('a fourth', '-1 s')"), '22023: wait must not be negative or out of range', 'a negative wait is refused');
my $waiter = ZkLock::session($p);
$waiter->query('SELECT 1');
$waiter->send("SELECT zk_is_leader('a fifth', '1 min')");
ZkLock::wait_until(sub { ZkLock::ask($p, 'SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $waiter->pid) eq 'Extension' }, 'it waits');
is($waiter->cancel->failure, '57014: canceling statement due to user request', 'the wait can be cancelled');
$zk->start(1);
ZkLock::wait_connected($p, $q);
ZkLock::wait_until(sub { $sp->query("SELECT zk_is_leader('other')") eq 't' && $sp->query("SELECT zk_is_leader('a fifth')") eq 't' }, 'it leads');
ok(1, 'what was asked for without ZooKeeper is had when it is back');

done_testing();
