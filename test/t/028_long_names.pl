# A contender's name may be as long as a packet.  Its path is never cut: the watch is on
# that node and on no other, or there is none and the queue is looked at now and then.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
# A heartbeat in four seconds
my $node = ZkLock::server('a', $proxy, conf => "zklock.session_timeout = '24s'");
my $foreigner = $zk->client;
ZkLock::wait_connected($node);

# Ones with so long names have the locks; the server waits, and does not ask all the time.
my @lengths = (1900, 2048, 3000, 60_000, 100_000, 900_000);
my %blocker = map { $_ => $foreigner->contend(ZkLock::directory("job $_"), kind => 'x' x $_) } @lengths;
# what a path of 2,047 bytes would be left of it
my %decoy = map { $_ => substr $blocker{$_}, 0, 2047 } grep { length $blocker{$_} > 2047 } @lengths;
$foreigner->create($_, mode => 'ephemeral') for values %decoy;
my %waiter = map { $_ => ZkLock::session($node)->send("SELECT zk_lock('job $_')") } @lengths;
$waiter{$_}->wait_level(2) for @lengths;
# as many heartbeats as it takes to say that it is quiet
ZkLock::wait_answered($node);
$proxy->requests;
my %seen;
ZkLock::wait_until(
	sub {
		my $requests = $proxy->requests;
		$seen{$_} += $requests->{$_} for keys %$requests;
		($seen{set} // 0) >= 3;
	},
	'three heartbeats');
cmp_ok(($seen{children} // 0) + ($seen{get} // 0), '<=', 4 * @lengths, 'the queues are not asked again and again');
for my $length (@lengths)
{
	ok($waiter{$length}->busy, "a name of $length bytes: the lock is waited for");
	$foreigner->delete($blocker{$length});
	cmp_ok($waiter{$length}->result, '>', 0, '... until that one has gone');
	$foreigner->delete($decoy{$length}) if $decoy{$length};
}
ZkLock::ok_clean($zk, [$node], "job $_") for @lengths;

# The watches on them must fit into one packet on the next connection.
my @blockers = map { $foreigner->contend(ZkLock::directory("many $_"), kind => 'x' x 32_000) } 1 .. 40;
my @waiters = map { ZkLock::session($node)->send("SELECT zk_lock('many $_')") } 1 .. 40;
ZkLock::wait_waiting($node, 2, 40);
ZkLock::wait_answered($node);
my $id = ZkLock::ask($node, 'SELECT session_id FROM zk_session');
$proxy->cut;
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT last_error ~ 'lost connection' FROM zk_session") eq 't' }, 'the cut is noticed');
ZkLock::wait_connected($node);
$foreigner->delete($_) for @blockers;
is(scalar(grep { $_->result > 0 } @waiters), 40, 'all are served after a new connection');
is(ZkLock::ask($node, 'SELECT session_id FROM zk_session'), $id, '... of the same session');
ZkLock::ok_clean($zk, [$node], "many $_") for 1, 40;

done_testing();
