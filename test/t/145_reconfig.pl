# An ensemble that is changed while it runs: servers leave it, and the leader too.
# Locks survive, and nobody believes in one that he has not.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new(
	servers => 3,
	conf => { reconfigEnabled => 'true', standaloneEnabled => 'false', skipACL => 'yes' })->start;
my $conf = "zklock.session_timeout = '6s'\nzklock.connect_timeout = '10min'";
my ($a, $b) = map { ZkLock::server($_, $zk, conf => $conf) } qw(a b);
ZkLock::wait_connected($a, $b);
my ($holder, $rival, $waiter) = (ZkLock::session($a), ZkLock::session($b), ZkLock::session($b));
my $token = $holder->query("SELECT zk_lock('held', scope => 'session')");
$waiter->send("BEGIN; SELECT zk_lock('held')")->wait_level(2);
my %member = map { $_ => 1 } $zk->servers;

sub session_id { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session'); }
my @id = map { session_id($_) } $a, $b;

# Whoever is asked may be about to leave.
sub reconfig
{
	my ($joining, $leaving, $expected) = @_;
	ZkLock::wait_until(sub
	{
		my $client = eval { ZooKeeper::Client->new(join(',', map { $zk->host($_) } grep { $zk->pid($_) } $zk->servers), wait => 30) } or return 0;
		eval { $client->reconfig($joining, $leaving) };
		my $config = eval { $client->get('/zookeeper/config') } // '';
		return join(' ', sort $config =~ /^server\.(\d)/mg) eq $expected;
	}, "members $expected");
}

sub ok_true
{
	my $what = shift;
	ZkLock::wait_connected($a, $b);
	is($holder->query("SELECT zk_assert('held')"), $token, "$what: the lock is held, and that can be proven");
	ok($waiter->busy, '... who waits for it waits');
	is($rival->query("SELECT zk_try_lock('held')"), 'f', '... and nobody else has it');
}

my ($follower) = $zk->followers;
reconfig(undef, $follower, join ' ', grep { $_ ne $follower } $zk->servers);
ok_true('a follower leaves');
$zk->kill9($follower);
ok_true('... and is switched off');
my $leader = $zk->leader;
reconfig(undef, $leader, join ' ', grep { $_ ne $leader && $_ ne $follower } $zk->servers);
$zk->kill9($leader);
ok_true('the leader leaves, and is switched off');
is_deeply([ map { session_id($_) } $a, $b ], \@id, 'all of it in one session');
$holder->query('SELECT zk_unlock_all()');
cmp_ok($waiter->result, '>', $token, 'who waited has it with a larger token');
$waiter->query('COMMIT');

ZkLock::ok_clean($zk, [ $a, $b ], 'held');
done_testing();
