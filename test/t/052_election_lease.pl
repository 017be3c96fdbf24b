# Nobody is fooled: a server whose worker is stopped, or that is cut off, ceases
# to call itself the leader before another begins to.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Time::HiRes qw(time);
use ZkLock;
use ZooKeeper;

# P's session is there to expire, and may do so whenever P is slow; Q's does not.
my $timeout = 2;
my $zk = ZooKeeper->new->start;
my ($p, $q) = map { ZkLock::server($_->[0], $zk, conf => "zklock.session_timeout = '$_->[1]'\ncluster_name = '$_->[0]'") }
  [ 'p', "${timeout}s" ], [ 'q', '1h' ];
ZkLock::wait_connected($p, $q);
my ($sp, $sq) = map { ZkLock::session($_) } $p, $q;
my $ask = "SELECT zk_is_leader('job')";
my $end = "is no longer leader of election \"job\", token";

sub log_of { my $node = shift; open my $fh, '<', $node->logfile or die; local $/; return <$fh>; }

# P leads, and Q does not stand.
sub lead
{
	$sq->query("SELECT zk_resign('job')");
	ZkLock::wait_until(sub { $sp->query($ask) eq 't' }, 'P leads');
}

# The leader's worker is stopped.  Both are asked by turns, until the old leader has said
# false and the new one true.  Each answer is there before the next question is
# put, so two who say true at once would be seen.
lead();
my $worker = ZkLock::ask($p, 'SELECT worker_pid FROM zk_session');
ZkLock::stop_process($p, $worker);
my ($both, $false, $true) = (0, 0, 0);
ZkLock::wait_until(
	sub {
		my $old = $sp->query($ask) eq 't';
		$both++ if $old && $true;
		$false ||= !$old;
		if ($sq->query($ask) eq 't')
		{
			$true = 1;
			$both++ if $sp->query($ask) eq 't';
		}
		return $false && $true;
	},
	'a stopped worker: false here and true there');
is($both, 0, 'a stopped worker: never two at once');
kill 'CONT', $worker or die;
ZkLock::wait_until(sub { $sq->query("SELECT ARRAY(SELECT server FROM zk_candidates('job'))") eq '{q,p}' }, 'the first queues anew');
is($sp->query($ask), 'f', 'when the worker goes on, the old leader is none');
ok(ZkLock::wait_until(sub { log_of($p) =~ /$end \d+: (the ZooKeeper session ended|its contender in ZooKeeper is gone|the lease has lapsed)/ }, 'the log says so'), '... and its log says so');

# The leader's worker is stopped for less than that.
$worker = ZkLock::ask($q, 'SELECT worker_pid FROM zk_session');
my $token = $sq->query("SELECT (SELECT token FROM zk_elections WHERE election = 'job')");
ZkLock::stop_process($q, $worker);
is($sp->query("SELECT server FROM zk_candidates('job') WHERE is_leader") . ' ' . $sp->query($ask), 'q f', 'a short pause: nobody else leads');
is($sq->query($ask), 't', '... who leads does');
kill 'CONT', $worker or die;
is($sq->query("SELECT server FROM zk_candidates('job') WHERE is_leader"), 'q', '... and goes on');
is($sq->query("SELECT (SELECT token FROM zk_elections WHERE election = 'job')"), $token, '... a short pause is no loss');

# ZooKeeper pauses: the lease lapses.  When it goes on, the session may live.
my $start;
ZkLock::wait_until(
	sub {
		lead();
		$sq->query($ask);
		$zk->pause(1);
		$start = time;
		# from now on its session cannot end for it, only its lease
		$token = $sp->query("SELECT (SELECT token FROM zk_elections WHERE election = 'job')");
		$zk->resume(1) if $token eq '';
		return $token ne '';
	},
	'P leads while ZooKeeper pauses');
my $late = 0;
ZkLock::wait_until(
	sub {
		my $asked = time;
		return 1 if $sp->query($ask) eq 'f';
		$late++ if $asked > $start + $timeout;
		return 0;
	},
	'P leads no more');
is($late, 0, 'ZooKeeper is silent: false when the session may be over');
is($sp->query("SELECT (SELECT token FROM zk_elections WHERE election = 'job') IS NULL"), 't', '... and no token');
is($sp->fails("SELECT zk_require_leader('job')"), '40001: this server is not the leader of election "job"', '... nor a guard');
$sp->query("CALL zk_run_as_leader('job', 'SELECT 1')");
like($sp->notices, qr/^WARNING 58000: could not find out who leads election "job", skipping\nDETAIL: /, '... and zk_run_as_leader says that nobody is known to lead');
is($sp->query("SELECT is_leader, token IS NULL FROM zk_elections"), 'f|t', '... nor a leader in zk_elections, which does not ask for that');
is($sq->query($ask), 'f', '... and nobody else leads');
is($sq->query("SELECT zk_is_leader('new', '100 ms')"), 'f', 'no error from a new candidate');
ZkLock::wait_until(sub { log_of($p) =~ /$end $token: the lease has lapsed/ }, 'the log says why');
ok(1, 'the log says why');
$sp->query("SET zklock.connect_timeout = '500ms'");
like($sp->fails("SELECT server FROM zk_candidates('job') WHERE is_leader"), qr/^58000: could not reach ZooKeeper within 500 ms/, 'zk_candidates fails');
like($sp->fails("SELECT leader FROM zk_elections"), qr/^58000: could not reach ZooKeeper within 500 ms/, 'zk_elections fails where it has to ask');
$sp->query('RESET zklock.connect_timeout');
$zk->resume(1);
ZkLock::wait_until(
	sub {
		my $leader = $sq->query("SELECT server FROM zk_candidates('job') WHERE is_leader");
		return join(' ', map { $_->query($ask) } $sp, $sq) eq ($leader eq 'p' ? 't f' : 'f t');
	},
	'one leads, and nobody else');
ok(1, 'ZooKeeper goes on: one leads, and nobody else');
ZkLock::wait_until(sub { $sq->query("SELECT zk_is_leader('new')") eq 't' }, 'the new candidate leads its election');
ok(1, 'a candidacy that began without ZooKeeper is there');

# No ZooKeeper at all: false, and no wait but for the first.  More would take longer
# than anybody waits here.
$zk->stop(1);
ZkLock::wait_until(sub { $sp->query($ask) eq 'f' }, 'false');
$start = time;
is($sp->query("SELECT zk_is_leader('other', '500 ms')"), 'f', 'false without ZooKeeper');
cmp_ok(time - $start, '>=', 0.45, '... after the wait');
is($sp->query("SELECT count(*) FROM generate_series(1, 100000) WHERE zk_is_leader('other', '500 ms')"), 0, '... and again without one');
is($sp->query("SELECT count(*) FROM generate_series(1, 1000) i WHERE zk_is_leader('another ' || i, '0')"), 0, '... or where none is wished for');
is($sp->query("SELECT count(zk_resign('another ' || i)) FROM generate_series(1, 1000) i"), 1000, '... by any number of candidates');
is($sp->fails("SELECT zk_is_leader('a fourth', '-1 s')"), '22023: timeout must not be negative or out of range', 'a negative timeout is refused');
my $waiter = ZkLock::session($p);
$waiter->query('SELECT 1');
$waiter->send("SELECT zk_is_leader('a fifth', '1 h')");
$waiter->wait_event('Extension');
is($waiter->cancel->failure, '57014: canceling statement due to user request', 'the wait can be cancelled');
$zk->start(1);
ZkLock::wait_connected($p, $q);
ZkLock::wait_until(sub { $sp->query("SELECT zk_is_leader('other')") eq 't' && $sp->query("SELECT zk_is_leader('a fifth')") eq 't' }, 'it leads');
ok(1, 'what was asked for without ZooKeeper is had when it is back');

done_testing();
