# pg_advisory_unlock_all() takes level 1 away under a hold in session scope, and
# its backend does not notice before its statement has ended.  Level 2 must keep
# others out by itself until then, and then let them in.
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

# As long as this is held, so is a statement that wants it.
my $brake = ZkLock::session($node);
my $unlock = 'SELECT pg_advisory_unlock_all(), pg_advisory_xact_lock(1)';

for my $mode ([qw(exclusive exclusive)], [qw(exclusive shared)], [qw(shared exclusive)])
{
	my ($held, $wanted) = @$mode;
	$brake->query('SELECT pg_advisory_lock(1)');
	my $holder = ZkLock::session($node);
	my $token = $holder->query("SELECT zk_lock('job', '$held', 'session')");
	$holder->send($unlock);
	$holder->wait_event('advisory');

	my $other = ZkLock::session($node);
	is($other->query("SELECT zk_try_lock('job', '$wanted')"), 'f', "$wanted is kept out by $held without level 1");
	$other->send("SELECT zk_lock('job', '$wanted')");
	$other->wait_level(2);
	is(ZkLock::ask($node, "SELECT count(*) FROM zk_locks WHERE granted"), 1, 'there is one holder');

	$brake->query('SELECT pg_advisory_unlock(1)');
	$holder->result;
	cmp_ok($other->result, '>', $token, "$wanted is granted, anew, when the holder notices");
	is($holder->query("SELECT zk_token('job') IS NULL"), 't', 'who holds nothing any more');
	ZkLock::ok_clean($zk, [$node], 'job');
	$_->quit for $holder, $other;
}

# A shared hold that is void is no part of an upgrade: whoever asks for exclusive
# behind another server's exclusive contender waits, and is in no deadlock.
{
	$brake->query('SELECT pg_advisory_lock(1)');
	my ($holder, $other) = map { ZkLock::session($node) } 1 .. 2;
	$holder->query("SELECT zk_lock('job', 'shared', 'session')");
	$holder->send($unlock);
	$holder->wait_event('advisory');
	my $foreign = $zk->admin->contend(ZkLock::directory('job'));
	is($other->query("SELECT zk_try_lock('job')"), 'f', 'exclusive is kept out');
	$other->send("SELECT zk_lock('job')");
	$other->wait_level(2);
	$brake->query('SELECT pg_advisory_unlock(1)');
	$holder->result;
	$zk->delete($foreign);
	like($other->result, qr/^\d+$/, '... without a deadlock, until its turn comes');
	ZkLock::ok_clean($zk, [$node], 'job');
	$_->quit for $holder, $other;
}

# Neither waits for the other unseen: the holder notices before it queues.
my ($a, $b) = map { ZkLock::session($node) } 1 .. 2;
$a->query("SELECT zk_lock('job', 'exclusive', 'session')");
$brake->query('SELECT pg_advisory_lock(1)');
$a->send("$unlock, zk_lock('job')");
$a->wait_event('advisory');
$b->query('BEGIN');
$b->send("SELECT zk_lock('job')");
$b->wait_level(2);
$brake->query('SELECT pg_advisory_unlock(1)');
like($b->result, qr/^\d+$/, 'the one that has level 1 gets the lock');
$b->query('COMMIT');
like($a->result, qr/\d+$/, 'then the other');
ZkLock::ok_clean($zk, [$node], 'job');

# Beside a hold in transaction scope nobody sees that the session's is void, until the
# session takes it anew: then the old one does not count with the new one.
for my $way ('shared', 'exclusive')
{
	my $holder = ZkLock::session($node);
	my $count = "SELECT sum(count) FROM zk_locks WHERE name = 'job' AND scope = 'session'";
	$holder->query('BEGIN');
	$holder->query("SELECT zk_lock('job', '$way', '$_')") for qw(session session transaction);
	$holder->query('SELECT pg_advisory_unlock_all()');
	$holder->query("SELECT zk_lock('job', '$way', 'session')");
	is($holder->query($count), 1, "$way: one hold in session scope since pg_advisory_unlock_all()");
	$holder->query('COMMIT');
	is($holder->query($count), 1, '... and after the transaction');
	is($holder->query("SELECT zk_unlock('job')"), 't', '... to be given up');
	is($holder->query('SELECT count(*) FROM zk_locks'), 0, '... and no other');

	$holder->query('BEGIN');
	$holder->query("SELECT zk_lock('job', '$way', '$_')") for qw(session transaction session);
	is($holder->query($count), 2, '... what is not void is counted');
	$holder->query('COMMIT');
	is($holder->query('SELECT zk_unlock_all()'), 2, '... and given up');
	ZkLock::ok_clean($zk, [$node], 'job');
	$holder->quit;
}

done_testing();
