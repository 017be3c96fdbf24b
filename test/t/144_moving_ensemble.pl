# An ensemble whose addresses are not what they were: behind a load balancer, by IPv6, by a
# name that moves.  Locks survive, and whoever might have lost one believes in nothing.
use strict;
use warnings;

use Test::More;
use Proxy;
use Resolver;
use ZkLock;

my $zk = ZooKeeper->new(servers => 3)->start;
my $conf = "zklock.session_timeout = '15s'\nzklock.connect_timeout = '10min'";
my $other = ZkLock::server('other', $zk, conf => $conf);
ZkLock::wait_connected($other);
my $rival = ZkLock::session($other);

sub session_id { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session'); }

# What A has of the lock is the truth: it has it and nobody else does; or it was told.
sub ok_true
{
	my ($node, $holder, $what) = @_;
	ZkLock::wait_connected($node);
	my $said = $holder->fails("SELECT zk_assert('held')");
	if ($said eq '')
	{
		is($rival->query("SELECT zk_try_lock('held')"), 'f', "$what: it is held, and nobody else has it");
	}
	else
	{
		like($said, qr/^55000: lock "held" was lost/, "$what: the holder is told that it is lost");
		$holder->query('SELECT zk_unlock_all()');
		$holder->query("SELECT zk_lock('held', scope => 'session')");
	}
}

#
# A load balancer before three servers
#
{
	my $balancer = Proxy->new($zk->hosts);
	my $node = ZkLock::server('balanced', $balancer, conf => $conf);
	ZkLock::wait_connected($node);
	my $holder = ZkLock::session($node);
	$holder->query("SELECT zk_lock('held', scope => 'session')");
	for my $i ($zk->servers)
	{
		$zk->kill9($i);
		ok_true($node, $holder, "server $i dies");
		$zk->start($i);
	}
	# Half open: the balancer takes connections, and nobody answers.
	my $accepted = $balancer->accepted;
	$balancer->hole;
	ZkLock::wait_until(sub { $balancer->accepted > $accepted }, 'silence is noticed');
	$balancer->heal;
	ok_true($node, $holder, 'silence');
	# Requests arrive, answers do not.
	$accepted = $balancer->accepted;
	$balancer->hole('down');
	ZkLock::wait_until(sub { $balancer->accepted > $accepted }, 'half of silence is noticed');
	$balancer->heal->cut;
	ok_true($node, $holder, 'half of silence');
	$holder->query('SELECT zk_unlock_all()');
	ZkLock::ok_clean($zk, [ $node, $other ], 'held', 'load balancer');
	$node->stop;
}

#
# IPv6
#
SKIP:
{
	skip 'no IPv6 here', 3 unless IO::Socket::IP->new(LocalHost => '::1', LocalPort => 0, Listen => 1);
	my $proxy = Proxy->new($zk->host(1), address => '::1');
	my $node = ZkLock::server('six', $proxy, conf => $conf);
	ZkLock::wait_connected($node);
	is(ZkLock::ask($node, 'SELECT connected_to FROM zk_session'), $proxy->host, 'connected by IPv6');
	my $holder = ZkLock::session($node);
	$holder->query("SELECT zk_lock('held', scope => 'session')");
	$proxy->cut;
	ok_true($node, $holder, 'IPv6, another connection');
	$proxy->down;
	ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT last_error FROM zk_session') =~ /\Q@{[ $proxy->host ]}\E: / }, 'a refusal is shown with its address');
	pass('a refusal is shown with its address');
	$proxy->accept;
	ok_true($node, $holder, 'IPv6, refused for a while');
	$holder->query('SELECT zk_unlock_all()');
	$node->stop;
}

#
# A name that moves to another address
#
SKIP:
{
	my $resolver = Resolver->new('zk.test', '127.0.0.1') or skip 'no compiler', 4;
	my $before = Proxy->new($zk->host(1));
	my $after = Proxy->new($zk->host(2), address => '127.0.0.2', port => $before->port);
	my $node;
	{
		local @ENV{ $resolver->names } = $resolver->values;
		$node = ZkLock::server('named', 'zk.test:' . $before->port, conf => $conf);
	}
	ZkLock::wait_connected($node);
	my $holder = ZkLock::session($node);
	$holder->query("SELECT zk_lock('held', scope => 'session')");
	my $id = session_id($node);
	is($before->connections, 1, 'connected by a name');
	$resolver->set('127.0.0.2');
	$before->down;
	ZkLock::wait_until(sub { $after->connections > 0 }, 'the name is resolved anew');
	ok_true($node, $holder, 'a name that moves');
	is($before->connections, 0, '... nobody is left at the old address');
	# It resolves no more, while we are connected, and while we are not.
	$resolver->set('');
	my $token = $holder->fails("SELECT zk_assert('held')");
	is($token, '', 'a name that is gone hurts nobody who is connected');
	my $accepted = $after->accepted;
	my $reconnects = ZkLock::ask($node, 'SELECT reconnects FROM zk_session');
	$after->cut;
	# The connection may be back before anybody has looked.
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT state <> 'connected' OR reconnects > $reconnects FROM zk_session") eq 't' }, 'not connected');
	$resolver->set('127.0.0.2');
	ZkLock::wait_until(sub { $after->accepted > $accepted }, 'connected when it resolves again');
	ok_true($node, $holder, 'a name that was gone for a while');
	$holder->query('SELECT zk_unlock_all()');
	ZkLock::ok_clean($zk, [ $node, $other ], 'held', 'a name');
}

done_testing();
