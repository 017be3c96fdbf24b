# Where locks are not kept, one that this server alone takes costs its create, a listing
# that goes out with it, and its delete, every time; and its number in a directory means
# nothing in another one of that name.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

# Directories go when the test says so.
my $zk = ZooKeeper->new(container_check_ms => 3_600_000)->start;
my $proxy = Proxy->new($zk->host);
my $node = ZkLock::server('a', $proxy);
my $session = ZkLock::session($node);
my $foreigner = $zk->client;
my $directory = ZkLock::directory('x');
my $last;    # number of our newest contender

ZkLock::wait_connected($node);

# All is answered, and no contender of ours is left.
sub settle
{
	ZkLock::wait_until(
		sub { !ZkLock::queue($zk, 'x') && ZkLock::ask($node, 'SELECT in_flight FROM zk_session') == 0 },
		'nothing is under way');
	return;
}

# Take it and give it back.  Returns the requests that this takes; heartbeats are none.
sub cycle
{
	settle();
	$proxy->requests;
	$session->query("SELECT zk_lock('x', scope => 'session')");
	$last = substr((ZkLock::queue($zk, 'x'))[-1], -10) + 0;
	$session->query("SELECT zk_unlock('x')");
	settle();
	my $requests = $proxy->requests;
	return join ' ', map { "$requests->{$_} $_" } grep { !/^(?:set|ping)$/ } sort keys %$requests;
}

# Somebody else takes the lock with the number of our newest contender.
sub imitate
{
	my $path = $foreigner->contend($directory);
	while (substr($path, -10) < $last)
	{
		$foreigner->delete($path);
		$path = $foreigner->contend($directory);
	}
	is(substr($path, -10) + 0, $last, 'somebody has the lock, and the number that we had');
	return $path;
}

sub ok_excluded
{
	my ($path, $what) = @_;
	is($session->query("SELECT zk_try_lock('x')"), 'f', $what);
	is($session->query("SELECT zk_try_lock('x')"), 'f', '... at the second look, too');
	$foreigner->delete($path);
	return is($session->query("SELECT zk_try_lock('x', timeout => '1 h')"), 't', '... until it is gone');
}

cycle() for 1 .. 3;
# Now and then the worker lists a directory to look for orphans.
cmp_ok(scalar(grep { cycle() eq '1 children 1 create 1 delete' } 1 .. 10), '>=', 8, 'a lock that is not kept costs three requests');
ok_excluded($foreigner->contend($directory), 'somebody has it');

# Somebody numbers himself ahead of what was given.  Our number must not come past his.
cycle();
settle();
my $ahead = sprintf "$directory/by-hand-%010d", $last + 4;
$foreigner->create($ahead, mode => 'ephemeral');
my @answers;
push @answers, $session->fails("SELECT zk_try_lock('x')") || $session->{answer} while @answers < 10;
is(join(' ', map { substr $_, 0, 5 } @answers), '55000 55000 f f f f f f f f', 'beside a number that was made up nobody is granted the lock');
$foreigner->delete($ahead);

cycle();
settle();
$foreigner->delete($directory);
ok_excluded(imitate(), 'a new directory');

#
# Somebody deletes the contender of a hold: it is missed.
#
cycle() for 1 .. 3;
$session->query("SELECT zk_lock('x', scope => 'session')");
$foreigner->delete("$directory/" . (ZkLock::queue($zk, 'x'))[0]);
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT count(*) FROM zk_locks WHERE name = 'x' AND grant_state = 'lost'") }, 'it is missed when somebody deletes it');
like($session->fails('SELECT 1'), qr/lock "x" was lost/, 'the holder is told of a contender that was deleted');
$session->query('SELECT zk_unlock_all()');

#
# The ensemble reaps a directory that we are done with.
#
settle();
$foreigner->delete($directory);
like(cycle(), qr/children/, 'a lock whose directory was reaped');
ZkLock::ok_clean($zk, [$node], 'x');

done_testing();
