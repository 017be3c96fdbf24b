# pg_advisory_unlock_all() takes level 1 away under a hold in session scope, and
# its backend may go on for a while without noticing.  Level 2 must keep others
# out by itself until it does, and then let them in.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('a', $zk);
ZkLock::wait_connected($node);

for my $mode ([qw(exclusive exclusive)], [qw(exclusive shared)], [qw(shared exclusive)])
{
	my ($held, $wanted) = @$mode;
	my $holder = ZkLock::session($node);
	my $token = $holder->query("SELECT zk_lock('job', '$held', 'session')");
	$holder->query('BEGIN');
	$holder->query('SELECT pg_advisory_unlock_all()');

	my $other = ZkLock::session($node);
	is($other->query("SELECT zk_try_lock('job', '$wanted')"), 'f', "$wanted is kept out by $held without level 1");
	$other->send("SELECT zk_lock('job', '$wanted')");
	$other->wait_level(2);
	is(ZkLock::ask($node, "SELECT count(*) FROM zk_locks WHERE granted"), 1, 'there is one holder');

	# The end of the transaction looks.
	$holder->query('COMMIT');
	cmp_ok($other->result, '>', $token, "$wanted is granted, anew, when the holder notices");
	is($holder->query("SELECT zk_token('job') IS NULL"), 't', 'who holds nothing any more');
	ZkLock::ok_clean($zk, [$node], 'job');
	$_->quit for $holder, $other;
}

# Neither waits for the other unseen: the holder notices before it queues.
my ($a, $b) = map { ZkLock::session($node) } 1 .. 2;
$a->query("SELECT zk_lock('job', 'exclusive', 'session')");
$a->query('BEGIN');
$a->query('SELECT pg_advisory_unlock_all()');
$b->query('BEGIN');
$b->send("SELECT zk_lock('job')");
$b->wait_level(2);
$a->send("SELECT zk_lock('job')");
like($b->result, qr/^\d+$/, 'the one that has level 1 gets the lock');
$b->query('COMMIT');
like($a->result, qr/^\d+$/, 'then the other');
$a->query('COMMIT');
ZkLock::ok_clean($zk, [$node], 'job');

done_testing();
