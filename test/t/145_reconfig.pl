# An ensemble that is changed while it runs: servers leave it, and the leader too; they come
# back, and others join, until none is left of those it had.  Locks survive, and nobody
# believes in one that he has not.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new(servers => 3, reconfigurable => 1)->start;
my @old = $zk->servers;
# A server of ZooKeeper may wait a minute before it tells the others its vote again.
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '10min'") } qw(a b);
# Told too late where the ensemble is.
my $untold = ZkLock::server('untold', $zk, conf => "zklock.session_timeout = '4s'");
ZkLock::wait_connected($a, $b);
my ($holder, $waiter, $forgotten) = map { ZkLock::session($_) } $a, $b, $untold;
my $token = $holder->query("SELECT zk_lock('held', scope => 'session')");
$waiter->send("BEGIN; SELECT zk_lock('held')")->wait_level(2);

my @turn = map { ZkLock::session($_) } $a, $b;
my @id = map { session_id($_) } $a, $b;

sub session_id { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session'); }

# The ensemble has these members, and works for both.
sub ok_true
{
	my ($what, @members) = @_;
	is_deeply([ $zk->members ], \@members, "$what: members @members");
	is($holder->query("SELECT zk_assert('held')"), $token, '... the lock is held, and that can be proven');
	ok($waiter->busy, '... who waits for it waits');
	$_->query("BEGIN; SELECT zk_lock('turn'); COMMIT") for @turn;
}

sub name_hosts
{
	my ($node, @which) = @_;
	my $hosts = $zk->hosts(@which);
	$node->append_conf('postgresql.conf', "zklock.hosts = '$hosts'");
	$node->reload;
	ZkLock::wait_until(
		sub { ZkLock::ask($node, 'SELECT hosts, state FROM zk_session') eq "$hosts|connected" },
		$node->name . " is connected to some of $hosts");
}

# One after the other leaves.
my ($leader, $follower, $rest) = $zk->wait_elected;
$zk->reconfig(leave => [$follower]);
ok_true('a follower leaves', sort $leader, $rest);
$zk->kill9($follower);
ok_true('it is switched off', sort $leader, $rest);
$zk->reconfig(leave => [$leader]);
ok_true('the leader leaves', $rest);
$zk->kill9($leader);
ok_true('it is switched off', $rest);

# They come back, and vote: without them there would be no quorum.
$zk->reconfig(join => [$follower]);
ok_true('the follower is back', sort $follower, $rest);
$zk->reconfig(join => [$leader]);
ok_true('and the old leader', @old);
$zk->kill9($rest);
ok_true('the one that never left dies', @old);
$zk->start($rest);
is_deeply([ map { session_id($_) } $a, $b ], \@id, 'all of it in one session');

# Others take their places.
my @new = map { $zk->add } @old;
my @members = @old;
for my $i (0 .. $#old)
{
	if ($i == $#old)
	{
		# Of the hosts that were named one is left.
		name_hosts($_, @members) for $a, $b;
		ZkLock::wait_connected($untold);
		$forgotten->query("SELECT zk_lock('forgotten', scope => 'session')");
	}
	push @members, $new[$i];
	$zk->reconfig(join => [ $new[$i] ]);
	ok_true("server $new[$i] joins", @members);
	my $leaves = shift @members;
	$zk->reconfig(leave => [$leaves]);
	ok_true("server $leaves leaves", @members);
	$zk->kill9($leaves);
	ok_true('it is switched off', @members);
}
name_hosts($_, @new) for $a, $b;
ok_true('all old servers are named no more', @new);
is_deeply([ map { session_id($_) } $a, $b ], \@id, 'all of it in one session');

# Whoever is told too late has lost his session, but not the way back.
my $heir = ZkLock::session($b);
$heir->query("SELECT zk_lock('forgotten', scope => 'session'); SELECT zk_unlock_all()");
is($forgotten->fails("SELECT zk_assert('forgotten')"),
	'55000: lock "forgotten" was lost', 'none of the named hosts is left: the lock is lost');
name_hosts($untold, @new);
$forgotten->query('SELECT zk_unlock_all()');
$forgotten->query("SELECT zk_lock('forgotten', scope => 'session'); SELECT zk_unlock_all()");
pass('another can be had when they are named');

$holder->query('SELECT zk_unlock_all()');
cmp_ok($waiter->result, '>', $token, 'who waited has it with a larger token');
$waiter->query('COMMIT');
ZkLock::ok_clean($zk, [ $a, $b, $untold ], $_) for qw(held forgotten turn);
done_testing();
