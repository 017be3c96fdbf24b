# Barriers, and what others write into their directories: names that nobody here would make;
# and barriers that are used once.
use strict;
use warnings;

use Proxy;
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
# With a heartbeat every half second.
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '4s'") } qw(a b);
ZkLock::wait_connected($a, $b);
my ($x, $y) = map { ZkLock::session($_) } $a, $b;

sub dir { return ZkLock::directory($_[0], 'barriers'); }

sub meet
{
	my ($name, $what) = @_;
	$x->send("CALL zk_barrier('$name', 2)")->wait_event('Extension');
	$y->query("CALL zk_barrier('$name', 2)");
	return is($x->result, '', $what);
}

# A node that cannot be deleted by the name that its numbers make counted as a party: the
# round could not be opened, and was tried again and again.
my $party = 'party-' . 'a' x 32 . '-' . 'b' x 16;
my $n = 0;
for my $node ("$party-2-9999999999", "$party-2-2147483648", "$party-02-0000000000", "$party-2-00000000000")
{
	my $name = 'forged ' . ++$n;
	$zk->create(dir($name));
	$zk->create(dir($name) . "/$node");
	meet($name, "$node is no party");
	is_deeply([ $zk->children(dir($name)) ], [$node], '... and is left alone');
	is(ZkLock::ask($a, 'SELECT count(*) FROM zk_barriers'), 0, '... and not shown');
}

# Barriers of many names: what is watched takes from what locks may watch.  A server watches
# no more than a few that nobody waits at, and none after a while.
my @names = map { "watched $_ " . '/' x 200 } 1 .. 60;
like($x->fails(join ';', map { "CALL zk_barrier('$_', 2, '1 ms')" } @names), qr/^55P03/, 'nobody comes');
meet($names[0], 'one of many');
my $seen;
ZkLock::wait_until(sub { ($seen = ZkLock::watch_count($zk)) <= 32 }, 'no more than a few are watched', sub { $seen });
pass('no more than a few barriers are watched');
meet($_, '... and they are as good as new') for @names[ 0, 1, -2, -1 ];
ZkLock::wait_watches($zk, 0);
pass('in the end none is');

# A slow ensemble acknowledges fewer heartbeats before a server rests.
my $proxy = Proxy->new($zk->host);
my $slow = ZkLock::server('slow', $proxy->host, conf => "zklock.session_timeout = '4s'");
ZkLock::wait_connected($slow);
my $z = ZkLock::session($slow);
$z->send(q(CALL zk_barrier('slow', 2)))->wait_event('Extension');
$x->query(q(CALL zk_barrier('slow', 2)));
is($z->result, '', 'they meet');
$proxy->delay(350);
ZkLock::wait_watches($zk, 0);
pass('in the end a slow server watches none');

# A queue is watched for a minute after its last use, which is longer than a server without
# needs goes on with its heartbeats.
$x->query(q(SELECT zk_queue_put('used', 'item')));
is($y->query(q(SELECT payload FROM zk_queue_take('used', '1min'))), 'item', 'an item');
is($y->query(q(SELECT zk_queue_take('used'))), '', '... and no more');
cmp_ok(ZkLock::watch_count($zk), '>', 0, 'a queue that was used is watched');
ZkLock::wait_watches($zk, 0);
pass('... and not for ever');

done_testing();
