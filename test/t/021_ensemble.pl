# A server of the ensemble dies: the session moves, and nothing else does.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new(servers => 3, tick_time => 300)->start;
my $a = ZkLock::server('a', $zk);
my $b = ZkLock::server('b', $zk);
ZkLock::wait_connected($a, $b);
my $holder = ZkLock::session($a);
my $waiter = ZkLock::session($a);
my $other = ZkLock::session($b);

sub server_of
{
	my $host = ZkLock::ask($_[0], 'SELECT connected_to FROM zk_session');
	my ($i) = grep { $zk->host($_) eq $host } $zk->servers;
	return $i // 0;
}

# Our own look at the tree, wherever there is a quorum.
sub queue
{
	my ($name, $n) = @_;
	my @queue;
	ZkLock::wait_until(
		sub {
			@queue = eval { ZkLock::queue($zk, $name) };
			$zk->{admin} = undef if $@;
			!$@ && @queue == $n;
		},
		"$n contenders for $name");
	return @queue;
}

for my $round ('the server connected to', 'the leader')
{
	my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
	my $token = $holder->query("BEGIN; SELECT zk_lock('held')");
	$other->query("BEGIN; SELECT zk_lock('wanted')");
	$waiter->send("BEGIN; SELECT zk_lock('wanted')")->wait_level(2);
	my @wanted = queue('wanted', 2);
	my @held = queue('held', 1);
	my $czxid = $zk->stat("/zklock/locks/wanted/$wanted[1]")->{czxid};

	my $victim = $round eq 'the leader' ? ($zk->wait_elected)[0] : server_of($a);
	my $mine = $victim == server_of($a);
	ok($victim, "$round is known");
	$zk->kill9($victim);
	ZkLock::wait_until(sub { my $i = server_of($_); $i && $i != $victim }, 'connected to another server') for $a, $b;
	ZkLock::wait_connected($a, $b);

	# Without a leader nothing is acknowledged; the other survivor may be slow.
	is_deeply([ queue('held', 1) ], \@held, "$round killed: the holder's contender stays");
	is_deeply([ queue('wanted', 2) ], \@wanted, '... so do those of who holds and waits');
	is(ZkLock::ask($a, 'SELECT session_id FROM zk_session'), $session, '... the session is the same');
	# A moment after the state is shown; after some seconds it is another handle that resumes.
	ok(ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /LOG:  (?:reconnected|session resumed: connected) to ZooKeeper server \S+, session $session/ }, 'the log says so'), '... the log says so')
	  if $mine;
	ok($waiter->busy, '... the waiter waits');
	is($holder->query("SELECT zk_token('held')"), $token, '... the holder holds');
	is($other->query("SELECT zk_try_lock('held')"), 'f', '... and excludes');
	$other->query('COMMIT');
	is($waiter->result, $czxid, '... the waiter gets the lock in its turn, with its first contender');
	$waiter->query('COMMIT');
	is($holder->query('COMMIT'), '', '... the holder commits');
	is($other->query("SELECT zk_try_lock('held', timeout => '1h')"), 't', '... and the lock is free');
	queue('held', 0);
	queue('wanted', 0);
	$zk->start;
}

# Without a quorum there is no lock, and no false "somebody else has it".
my $token = $holder->query("BEGIN; SELECT zk_lock('held')");
my @rest = ($zk->wait_elected)[ 0, 1 ];
$zk->kill9(@rest);
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'no quorum is seen');
like($other->fails("SET zklock.connect_timeout = '500ms'; SELECT zk_try_lock('held')"), qr/^58000: could not reach ZooKeeper/, 'no quorum: an error');
$other->query('RESET zklock.connect_timeout');
$zk->start;
ZkLock::wait_connected($a, $b);
is($holder->query("SELECT zk_token('held')"), $token, 'quorum is back, so is everything');
is($other->query("SELECT zk_try_lock('held')"), 'f', '... exclusion, too');
$holder->query('COMMIT');
queue('held', 0);
ZkLock::ok_clean($zk, [ $a, $b ], 'held');

done_testing();
