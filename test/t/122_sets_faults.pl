# Several locks in one step, and whatever can go wrong: all are had in the end, or none.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

$ZkLock::damaging = 1;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $conf = "zklock.session_timeout = '15s'";
my $a = ZkLock::server('a', $proxy, conf => $conf);
my $b = ZkLock::server('b', $zk, conf => "$conf\nrestart_after_crash = on");
my @both = ($a, $b);
ZkLock::wait_connected(@both);
my $sa = ZkLock::session($a);
my $sb = ZkLock::session($b);
my $foreign = $zk->client;

sub ok_none { my ($what, @names) = @_; ZkLock::ok_clean($zk, \@both, $_, "$what: $_") for @names; return; }

# All of them are there, in one transaction, and once each.
sub ok_one
{
	my ($what, @names) = @_;
	my @nodes = map { my $name = $_; map { ZkLock::directory($name) . "/$_" } ZkLock::queue($zk, $name) } @names;
	is(scalar @nodes, scalar @names, "$what: one contender each");
	my %czxid = map { ($zk->stat($_)->{czxid} => 1) } @nodes;
	return is(scalar keys %czxid, 1, '... of one transaction');
}

my $n = 0;

#
# Requests and replies that are lost
#
for my $directory ('known', 'new')
{
	for my $case (
		[ 'the request', [ request => 'multi' ] ],
		[ 'the reply', [ reply => 'multi' ] ],
		[ 'the reply and then a listing\'s', [ reply => 'multi' ], [ reply => 'children' ] ],
		[ 'the reply and then the sync\'s', [ reply => 'multi' ], [ reply => 'sync' ] ],
		[ 'the number of the reply', [ number => 'multi' ] ],
		[ 'a listing', [ request => 'children' ] ],
		[ 'the reply of a listing', [ reply => 'children' ] ],
		[ 'the request, and again', [ request => 'multi' ], [ request => 'multi' ] ])
	{
		my ($what, @losses) = @$case;
		my @names = map { "$directory$_" . ++$n } qw(x y z);
		if ($directory eq 'known')
		{
			$sb->query('SELECT zk_lock_all(' . join(', ', map { "'$_'" } @names) . ')');
			ok_none('before', $names[2]);
		}
		my $lost = $proxy->lost;
		for my $loss (@losses)
		{
			my $method = "lose_$loss->[0]";
			$proxy->$method($loss->[1]);
		}
		my $answer = $sa->query('BEGIN; SELECT zk_lock_all(' . join(', ', map { "'$_'" } @names) . ')');
		like($answer, qr/^\{(\d+),\1,\1\}$/, "$directory directories, lost: $what");
		cmp_ok($proxy->lost, '>', $lost, '... which was lost');
		ok_one($what, @names);
		$sa->query('COMMIT');
		ok_none($what, @names);
		$proxy->heal;
	}
}

# Who does not wait for that leaves nothing.
$proxy->lose_reply('multi');
$sa->send("SELECT zk_lock_all('e1', 'e2')");
$sa->cancel;
like($sa->failure, qr/^(57014|$)/, 'a cancel, whenever it comes');
ok_none('canceled', 'e1', 'e2');
$proxy->heal;

#
# A contender that goes alone
#
$sb->query("BEGIN; SELECT zk_lock('m')");
$sa->send("BEGIN; SELECT zk_lock_all('l', 'm', 'n')")->wait_level(2);
my ($l) = ZkLock::wait_queue($zk, 'l', 1);
ZkLock::wait_queue($zk, 'm', 2);
my $before = $zk->stat(ZkLock::directory('n') . '/' . (ZkLock::queue($zk, 'n'))[0])->{czxid};
# What is watched is seen at once: m waits.  Its grant of l the next listing misses, or a claim.
my ($m) = grep { $zk->stat(ZkLock::directory('m') . "/$_")->{czxid} == $before } ZkLock::queue($zk, 'm');
$foreign->delete(ZkLock::directory('m') . "/$m");
ZkLock::wait_until(
	sub {
		my ($now) = ZkLock::queue($zk, 'n');
		my $stat = $now && $zk->stat(ZkLock::directory('n') . "/$now");
		return $stat && $stat->{czxid} > $before;
	},
	'all of the set queue anew');
$sb->query('COMMIT');
like($sa->result, qr/^\{(\d+),\1,\1\}$/, 'one that is deleted takes the others with it');
ok_one('after that', qw(l m n));
$sa->query('COMMIT');
ok_none('after a deletion', qw(l m n));

# zk_break of one that is granted, while the set waits
$sb->query("BEGIN; SELECT zk_lock('m')");
$sa->send("BEGIN; SELECT zk_lock_all('l', 'm')")->wait_level(2);
ZkLock::wait_queue($zk, 'm', 2);
ZkLock::wait_queue($zk, 'l', 1);
my $token = $zk->stat(ZkLock::directory('l') . '/' . (ZkLock::queue($zk, 'l'))[0])->{czxid};
is(ZkLock::ask($a, "SELECT zk_break('l', $token)"), 't', 'zk_break of a part');
$sb->query('COMMIT');
like($sa->result, qr/^\{(\d+),\1\}$/, '... and the set is whole in the end');
ok_one('after zk_break', qw(l m));
$sa->query('COMMIT');
ok_none('after zk_break', qw(l m));

#
# One that is refused
#
$zk->create(ZkLock::directory('closed'));
$foreign->set_acl(ZkLock::directory('closed'), [ 1, 'world', 'anyone' ]);
like($sa->fails("SELECT zk_lock_all('o1', 'closed', 'o2')"), qr/^58000: ZooKeeper refused the request for lock "closed"/, 'no rights for one of them');
ok_none('refused', 'o1', 'o2');
$foreign->contend(ZkLock::directory('future'));
$foreign->create(ZkLock::directory('future') . '/x-0000000900');
like($sa->fails("SELECT zk_lock_all('o1', 'future', 'o2')"), qr/^55000: queue of lock "future" has a contender whose sequence number was never given/, 'a queue that is no queue');
ok_none('a queue that is none', 'o1', 'o2');

#
# Sessions that end
#
$sb->query("BEGIN; SELECT zk_lock('t')");
$sa->send("BEGIN; SELECT zk_lock_all('s', 't')")->wait_level(2);
ZkLock::wait_queue($zk, 't', 2);
my $id = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
$proxy->down;
$zk->run('expire', $id) if 0;
ZkLock::wait_queue($zk, 't', 1);
ok($sa->busy, 'the session expires, and the set waits');
$proxy->accept;
ZkLock::wait_queue($zk, 't', 2);
isnt(ZkLock::ask($a, 'SELECT session_id FROM zk_session'), $id, '... in another');
$sb->query('COMMIT');
like($sa->result, qr/^\{(\d+),\1\}$/, '... and has it in the end');
$sa->query('COMMIT');
ok_none('after the session', qw(s t));

# The worker ends
for my $signal ('TERM', 'KILL')
{
	my ($node, $holder) = $signal eq 'TERM' ? ($a, $sb) : ($b, $sa);
	my $waiter = ZkLock::session($node);
	$holder->query("BEGIN; SELECT zk_lock('t')");
	$waiter->send("BEGIN; SELECT zk_lock_all('s', 't')")->wait_level(2);
	ZkLock::wait_queue($zk, 't', 2);
	my $pid = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
	if ($signal eq 'TERM')
	{
		kill $signal, $pid;
		ZkLock::wait_until(sub { (ZkLock::ask($node, 'SELECT coalesce(worker_pid, 0) FROM zk_session') || $pid) != $pid }, 'there is another worker');
		$holder->query('COMMIT');
		like($waiter->result, qr/^\{(\d+),\1\}$/, 'a new worker goes on with a set');
		$waiter->query('COMMIT');
	}
	else
	{
		# PostgreSQL begins anew.  It ends its sessions one by one: the one that asks might answer
		# after the waiter has gone, and the server would seem to be back.
		ZkLock::hang_up($node);
		kill $signal, $pid;
		isnt($waiter->failure, '', 'a crash ends all sessions');
		$holder->query('COMMIT');
		ZkLock::wait_until(sub { eval { ZkLock::ask($node, 'SELECT state FROM zk_session') eq 'connected' } }, 'the server is back');
	}
	ok_none("SIG$signal", qw(s t));
}

# The server ends while it has a part of the set
$sa->query("BEGIN; SELECT zk_lock('t')");
$sb = ZkLock::session($b);
$sb->send("BEGIN; SELECT zk_lock_all('s', 't')")->wait_level(2);
ZkLock::wait_queue($zk, 't', 2);
ZkLock::hang_up($b);
$b->stop('immediate');
isnt($sb->failure, '', 'an immediate shutdown');
$b->start;
ZkLock::wait_connected($b);
$sa->query('COMMIT');
ok_none('after the server', qw(s t));

# The client goes, the backend is terminated
$sa->query("BEGIN; SELECT zk_lock('t')");
for my $end (qw(terminate kill_client))
{
	my $waiter = ZkLock::session($a);
	$waiter->query("SET client_connection_check_interval = '100ms'");
	my $second = ZkLock::session($b);
	$second->query("SET client_connection_check_interval = '100ms'");
	$waiter->send("SELECT zk_lock_all('s', 't')")->wait_level(1);
	$second->send("SELECT zk_lock_all('s', 't')")->wait_level(2);
	ZkLock::wait_queue($zk, 't', 2);
	$_->$end for $waiter, $second;
	ZkLock::wait_queue($zk, 't', 1);
	ZkLock::wait_queue($zk, 's', 0);
	ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT count(*) FROM zk_locks') == 1 }, 'nobody waits');
	pass("$end");
}
$sa->query('COMMIT');
ok_none('in the end', qw(s t));

done_testing();
