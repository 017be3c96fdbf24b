# Barriers when something breaks: workers, connections, sessions, servers; what others do
# to the znodes.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
# A's session is there to expire, but not because the machine is slow: who comes then waits
# for one who has gone with it.
my $a = ZkLock::server('a', $proxy, conf => "zklock.session_timeout = '10s'");
my $b = ZkLock::server('b', $zk);
my $c = ZkLock::server('c', $zk, conf => 'restart_after_crash = on');
ZkLock::wait_connected($a, $b, $c);
my ($x, $y, $z) = map { ZkLock::session($_) } $a, $b, $c;

sub dir { return ZkLock::directory($_[0], 'barriers'); }

sub parties { my ($name) = @_; return $zk->children(dir($name)); }

sub worker { return ZkLock::ask($_[0], 'SELECT worker_pid FROM zk_session'); }

sub wait_successor
{
	my ($node, $of) = @_;
	ZkLock::wait_until(sub { my $now = worker($node); $now ne '' && $now ne $of }, 'there is another worker');
	ZkLock::wait_connected($node);
	return;
}

sub session_id { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session'); }

# One more is there.
sub come
{
	my ($s, $name, $parties) = @_;
	my $n = () = parties($name);
	$s->send("CALL zk_barrier('$name', $parties)");
	$zk->wait_children(dir($name), $n + 1);
	return $s;
}

sub ok_clean
{
	my ($name, $what) = @_;
	ZkLock::wait_until(sub { !parties($name) }, "nobody is left at $name");
	for my $node ($a, $b, $c)
	{
		ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT waiting FROM zk_stat_barriers') == 0 }, 'no slot is left');
	}
	pass("$what: nothing is left");
}

#
# The worker
#
come($z, 'worker', 2);
my $old = worker($c);
kill 'TERM', $old;
wait_successor($c, $old);
ok($z->busy, 'one waits on when the worker has a successor');
is(scalar(my @nodes = parties('worker')), 1, '... in its place');
$y->query("CALL zk_barrier('worker', 2)");
is($z->result, '', '... and meets the other');
ok_clean('worker', 'a new worker');

# The round is opened while the worker is stopped, and the one who tells is its successor.
come($z, 'stopped', 2);
$old = worker($c);
kill 'STOP', $old;
$y->query("CALL zk_barrier('stopped', 2)");
ok($z->busy, 'a worker that is stopped tells nobody');
kill 'TERM', $old;
kill 'CONT', $old;
is($z->result, '', 'it, or its successor, does');
ok_clean('stopped', 'a stopped worker');
wait_successor($c, $old);

# One who was cancelled meanwhile is not left there.
come($z, 'cancelled', 2);
$old = worker($c);
ZkLock::stop_process($c, $old);
is($z->cancel->failure, '57014: canceling statement due to user request', 'a cancel needs no worker');
kill 'CONT', $old;
ok_clean('cancelled', 'a cancel beside a stopped worker');

#
# The connection
#
for my $loss (qw(lose_reply lose_request))
{
	for my $kind (qw(create children get))
	{
		my $name = "$loss $kind";
		$proxy->$loss($kind, "/barriers/$name");
		$x->send("CALL zk_barrier('$name', 2)");
		ZkLock::wait_until(sub { (() = parties($name)) == 1 }, 'it is there');
		$y->query("CALL zk_barrier('$name', 2)");
		is($x->result, '', "$name: they meet");
		ok_clean($name, $name);
	}
	my $name = "$loss delete";
	$proxy->$loss('delete', "/barriers/$name");
	come($x, $name, 2);
	is($x->cancel->failure, '57014: canceling statement due to user request', "$name: it leaves");
	ok_clean($name, $name);

	# who opens the round does not hear of it
	$name = "$loss multi";
	come($y, $name, 2);
	# the other server would open it, too, if its listing came late and had both
	ZkLock::wait_answered($b);
	$proxy->$loss('multi', '');
	$x->query("CALL zk_barrier('$name', 2)");
	is($y->result, '', "$name: they meet");
	ok_clean($name, $name);
}
is($proxy->lost, 10, 'so much was lost');

# The round is opened while one is cut off, and comes back in time or not.
come($x, 'cut', 2);
$proxy->down;
$y->query("CALL zk_barrier('cut', 2)");
ok($x->busy, 'one who is cut off hears of nothing');
$proxy->heal;
is($x->result, '', '... and is told when he is back');
ok_clean('cut', 'cut off');

#
# The session
#
for my $what ('before', 'after')
{
	my $name = "expired $what";
	ZkLock::wait_connected($a);
	come($x, $name, 2);
	my $id = session_id($a);
	$proxy->hole;
	$y->query("CALL zk_barrier('$name', 2)") if $what eq 'after';
	ZkLock::wait_until(sub { !exists $zk->sessions->{$id} }, 'the session expires');
	is_deeply([ parties($name) ], [], "$name: nobody is there");
	ok($x->busy, '... but one who does not know it');
	$proxy->heal;
	if ($what eq 'before')
	{
		ZkLock::wait_until(sub { (() = parties($name)) == 1 }, 'it comes again');
		ok($x->busy, '... and waits on, by another session');
		$y->query("CALL zk_barrier('$name', 2)");
	}
	is($x->result, '', '... is let go');
	ok_clean($name, $name);
}

# So many rounds that the one who was cut off cannot find out.
ZkLock::wait_connected($a);
come($x, 'doubt', 2);
my $id = session_id($a);
$proxy->hole;
$y->query("CALL zk_barrier('doubt', 2)");
$z->send("DO \$\$ BEGIN FOR i IN 1..40 LOOP CALL zk_barrier('doubt', 2); END LOOP; END \$\$");
$y->query("DO \$\$ BEGIN FOR i IN 1..40 LOOP CALL zk_barrier('doubt', 2); END LOOP; END \$\$");
$z->result;
ZkLock::wait_until(sub { !exists $zk->sessions->{$id} }, 'the session expires');
$proxy->heal;
is($x->failure, '58000: could not find out whether barrier "doubt" was opened', 'one who cannot know is told so');
like($x->notices, qr/^HINT:  Find out from the other parties whether the barrier was opened\.$/m, '... and what to do: the other party has gone on');
ok_clean('doubt', 'doubt');

# The ensemble is out of reach.
ZkLock::wait_connected($a);
ZkLock::ask($a, "ALTER SYSTEM SET zklock.connect_timeout = '2s'; SELECT pg_reload_conf()");
my $impatient = ZkLock::session($a);
ZkLock::wait_until(sub { $impatient->query('SHOW zklock.connect_timeout') eq '2s' }, 'the setting is read');
# The timeout may come before a busy worker has asked for anything.
ZkLock::wait_until(sub { $impatient->send("CALL zk_barrier('reach', 2)") unless $impatient->busy; (() = parties('reach')) == 1 }, 'it is there');
$proxy->hole;
like($impatient->failure, qr/^58000: could not reach ZooKeeper within/, 'out of reach');
like($impatient->notices, qr/DETAIL/, '... with a detail');
$proxy->heal;
ZkLock::ask($a, "ALTER SYSTEM RESET zklock.connect_timeout; SELECT pg_reload_conf()");
ok_clean('reach', 'out of reach');
ZkLock::wait_connected($a);

#
# Servers
#
for my $how ('postmaster', 'worker')
{
	my $name = "killed $how";
	come($z, $name, 3);
	come($y, $name, 3);
	my $worker = worker($c);
	ZkLock::hang_up($c);
	if ($how eq 'postmaster')
	{
		$c->stop('immediate');
		$c->start;
	}
	else { kill 'KILL', $worker; }
	like($z->failure, qr/^(?:lost|57P0)/, "$name: a session ends");
	ZkLock::wait_until(sub { eval { ZkLock::wait_connected($c); 1 } }, 'c is back');
	ZkLock::wait_until(sub { (() = parties($name)) == 1 }, 'who was there has gone');
	come($x, $name, 3);
	ok($x->busy && $y->busy, "$name: who has gone does not count");
	$z = ZkLock::session($c);
	$z->query("CALL zk_barrier('$name', 3)");
	is($_->result, '', '... they meet without him') for $x, $y;
	ok_clean($name, $name);
}

#
# What others do to the znodes
#
# A server looks now and then: A does so soon.
come($x, 'by hand', 2);
$zk->delete(dir('by hand') . '/' . (parties('by hand'))[0]);
$y->send("CALL zk_barrier('by hand', 2)");
is($_->result, '', 'a node that was deleted is made anew, and they meet') for $y, $x;
ok_clean('by hand', 'by hand');
$zk->create(dir('rubbish'), data => "17 rubbish\n");
$zk->create(dir('rubbish') . '/rubbish', data => '');
$zk->create(dir('rubbish') . '/party-0-0-2-0000000001', data => '');
$z->send("CALL zk_barrier('rubbish', 2)");
$zk->wait_children(dir('rubbish'), 3);
is(ZkLock::ask($b, "SELECT name, arrived FROM zk_barriers"), 'rubbish|1', 'rubbish is not shown');
$zk->set(dir('rubbish'), "\xff\x00" x 20000);
$y->query("CALL zk_barrier('rubbish', 2)");
is($z->result, '', '... nor in the way');
like($zk->get(dir('rubbish')), qr/^\{"version": 1, "round": 1, "members": "[0-9a-f]{32} [0-9a-f]{32}"\}\n\z/, '... and is overwritten');

done_testing();
