# What is asked of the ensemble where nobody wants anything of it: next to nothing, however
# much of others' is there.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $node = ZkLock::server('a', $proxy, conf => "zklock.session_timeout = '3s'\nzklock.keep_time = 0");
ZkLock::wait_connected($node);
my $session = ZkLock::session($node);
my $foreign = $zk->client;

sub quiet { return ZkLock::ask($node, 'SELECT in_flight FROM zk_session') == 0; }

# So many heartbeats go by.  Returns all else that was asked for: others' names, that is.
sub beats
{
	my ($n, @requests) = shift;
	ZkLock::wait_until(sub
	{
		push @requests, $proxy->trace;
		return $n <= grep { m{^set /zklock/servers/} } @requests;
	}, "$n heartbeats");
	return grep { !m{^(?:ping|set /zklock/servers/)} } @requests;
}

sub writes { return grep { /^(?:create|delete|set|multi)/ } @_; }

#
# Directories of others: a new connection and a new worker list none of them.
#
for my $kind ('locks', 'elections', 'jobs', 'slots', 'barriers')
{
	$foreign->create("/zklock/$kind/foreign$_") for 1 .. 40;
	$foreign->create("/zklock/$kind/foreign$_/_c_00000000-1111-4222-8333-444455556666-lock-", mode => 'ephemeral_sequential') for 1 .. 3;
}
$session->query("SELECT zk_lock('own', scope => 'session')");
for my $how ('a new connection', 'a new worker')
{
	my $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
	my $accepted = $proxy->accepted;
	$proxy->trace;
	if ($how eq 'a new worker') { kill 'TERM', $worker; }
	else { $proxy->cut; }
	ZkLock::wait_until(sub { $proxy->accepted > $accepted }, $how);
	my @asked = beats(6);
	is_deeply([ grep { /foreign/ } @asked ], [], "$how asks for nothing of others");
	is_deeply([ grep { m{^children /zklock/(?!servers|queues)\w+$} } @asked ], [], '... nor who they are');
}
ok($session->query("SELECT zk_assert('own')"), 'what is held stays');
$session->query('SELECT zk_unlock_all()');

ZkLock::ok_clean($zk, [$node], 'own');
done_testing();
