# The next number: where locks are not kept, one that this server alone takes again and
# again costs its create and its delete.  That nobody else has it, the number of the
# contender says, the one after our last, as long as the directory is the same one.
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
	my $mode = shift // 'exclusive';
	settle();
	$proxy->requests;
	$session->query("SELECT zk_lock('x', '$mode', 'session')");
	$last = substr((ZkLock::queue($zk, 'x'))[-1], -10) + 0;
	$session->query("SELECT zk_unlock('x')");
	settle();
	my $requests = $proxy->requests;
	return join ' ', map { "$requests->{$_} $_" } grep { !/^(?:set|ping)$/ } sort keys %$requests;
}

# Now and then the worker lists a directory to look for orphans.
sub learn
{
	my $what = shift // 'the lock is known';
	cycle() for 1 .. 3;
	ZkLock::wait_until(sub { cycle() eq '1 create 1 delete' }, $what);
	return pass($what);
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

like(cycle(), qr/children/, 'a lock that is not known is listed');
learn('a known one costs a create and a delete');
cmp_ok(scalar(grep { cycle() eq '1 create 1 delete' } 1 .. 10), '>=', 8, '... each time');
like(cycle('shared'), qr/children/, 'a reader lists');
like(cycle(), qr/children/, 'a writer after it, too');
learn('... and the next one does not');

#
# Others come in between
#
$foreigner->delete($foreigner->contend($directory));
like(cycle(), qr/1 children/, 'somebody had it meanwhile');
learn();
ok_excluded($foreigner->contend($directory), 'somebody has it');

# Somebody numbers himself ahead of what was given.  Our number must not come past his.
learn();
settle();
my $ahead = sprintf "$directory/by-hand-%010d", $last + 4;
$foreigner->create($ahead, mode => 'ephemeral');
my @answers;
push @answers, $session->fails("SELECT zk_try_lock('x')") || $session->{answer} while @answers < 10;
is(join(' ', map { substr $_, 0, 5 } @answers), '55000 55000 f f f f f f f f', 'beside a number that was made up nobody is granted the lock');
$foreigner->delete($ahead);
like(cycle(), qr/children/, '... until it is gone');

#
# Numbers that mean nothing: the directory is another one
#
learn();
settle();
$foreigner->delete($directory);
ok_excluded(imitate(), 'a new directory');

learn();
settle();
$proxy->down;
ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT state FROM zk_session') ne 'connected' }, 'the connection is lost');
$foreigner->delete($directory);
my $path = imitate();
$proxy->heal;
ZkLock::wait_connected($node);
ok_excluded($path, 'a new directory after a new connection');

learn();
settle();
my $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
kill 'STOP', $worker;
$foreigner->delete($directory);
$path = imitate();
kill 'TERM', $worker;
kill 'CONT', $worker;
ZkLock::wait_until(sub { (ZkLock::ask($node, 'SELECT worker_pid FROM zk_session') || $worker) != $worker }, 'a new worker');
ZkLock::wait_connected($node);
ok_excluded($path, 'a new directory for a new worker');

# The watch is used up by what means nothing, too.
learn();
settle();
$zk->set($directory, 'a note');
ZkLock::wait_until(sub { !grep { $_ eq $directory } $zk->watches }, 'the directory was written');
$foreigner->delete($directory);
ok_excluded(imitate(), 'a new directory, when the old one was no longer watched');

#
# A hold that lasts is watched in the end.
#
learn();
$session->query("SELECT zk_lock('x', 'exclusive', 'session')");
$path = "$directory/" . (ZkLock::queue($zk, 'x'))[0];
ZkLock::wait_until(sub { grep { $_ eq $path } $zk->watches }, 'our contender is watched');
$foreigner->delete($path);
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT count(*) FROM zk_locks WHERE name = 'x' AND grant_state = 'lost'") }, 'it is missed when somebody deletes it');
like($session->fails('SELECT 1'), qr/lock "x" was lost/, '... and the holder is told');
$session->query('SELECT zk_unlock_all()');

# ... and missed all the same where the watch comes too late.
learn();
$session->query("SELECT zk_lock('x', 'exclusive', 'session')");
$foreigner->delete("$directory/" . (ZkLock::queue($zk, 'x'))[0]);
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT count(*) FROM zk_locks WHERE name = 'x' AND grant_state = 'lost'") }, 'one that was deleted before is missed');
$session->query('SELECT zk_unlock_all()');

#
# The ensemble reaps a directory that we are done with; what we knew of it is over.
#
learn();
settle();
$foreigner->delete($directory);
like(cycle(), qr/children/, 'a lock whose directory was reaped');
learn();
ZkLock::ok_clean($zk, [$node], 'x');

done_testing();
