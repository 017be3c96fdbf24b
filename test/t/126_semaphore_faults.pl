# Permits whose holders and waiters are lost: on two servers and on three, by expiry, by a
# killed worker, a crashed server, a backend that dies.
use strict;
use warnings;

use Proxy;
use Test::More;
use Wait;
use ZkLock;

my $zk = ZooKeeper->new->start;
# A's session is there to expire, but not because the machine is slow.
my ($a, $b, $c) = map { ZkLock::server($_, $zk, conf => $_ eq 'a' ? "zklock.session_timeout = '15s'" : '') } qw(a b c);
my @all = ($a, $b, $c);
my @sa = map { ZkLock::session($a) } 1 .. 3;
my @sb = map { ZkLock::session($b) } 1 .. 3;
my @sc = map { ZkLock::session($c) } 1 .. 2;

sub in_queue { return ZkLock::wait_queue($zk, 'job', $_[0], 'semaphores'); }
sub clean { local $Test::Builder::Level = $Test::Builder::Level + 1; return ZkLock::ok_clean($zk, \@all, 'job', $_[0], 'semaphores'); }
sub acquire { my ($s, $n) = @_; $s->query('BEGIN'); return $s->query("SELECT zk_acquire('job', $n)"); }

sub waits
{
	my ($s, $permits) = @_;
	my $before = scalar ZkLock::queue($zk, 'job', 'semaphores');
	$s->query('BEGIN');
	$s->send("SELECT zk_acquire('job', $permits)")->wait_level(2);
	in_queue($before + 1);
	return $s;
}

sub worker { return ZkLock::ask($_[0], 'SELECT worker_pid FROM zk_session'); }

#
# A worker is killed: its successor goes on with holders and waiters
#
{
	acquire($sa[0], 2);
	acquire($sb[0], 2);
	waits($sa[1], 2);
	waits($sb[1], 2);
	waits($sa[2], 2);
	my $pid = worker($a);
	kill TERM => $pid;
	wait_until(sub { my $new = worker($a); $new ne '' && $new != $pid }, 'another worker');
	ZkLock::wait_connected($a);
	$sb[0]->query('COMMIT');
	$sa[1]->result;
	ok($sb[1]->busy && $sa[2]->busy, 'after a new worker the next one has it');
	$sa[0]->query('COMMIT');
	$sb[1]->result;
	ok($sa[2]->busy, '... and so on');
	$sa[1]->query('COMMIT');
	$sa[2]->result;
	$_->query('COMMIT') for $sb[1], $sa[2];
	clean('after a new worker');
}

#
# A backend that dies takes its permit along, and its place
#
acquire($sa[0], 1);
my $dies = ZkLock::session($b);
waits($dies, 1);
waits($sb[0], 1);
$dies->terminate;
$dies->failure;
in_queue(2);
$sa[0]->terminate;
eval { $sa[0]->query('SELECT 1') };
$sb[0]->result;
pass('a backend that dies leaves its permit to the next');
$sb[0]->query('COMMIT');
$sa[0] = ZkLock::session($a);
clean('after backends that died');

#
# The ZooKeeper session of a server with holders and waiters expires
#
acquire($sa[0], 2);
acquire($sb[0], 2);
waits($sa[1], 2);
waits($sb[1], 2);
waits($sc[0], 2);
my $worker = worker($a);
kill STOP => $worker;
# Its two contenders go: one permit is free, for the one of b that waits.
$sb[1]->result;
pass('when a session has expired the next one has its permit');
$sb[0]->query('COMMIT');
$sc[0]->result;
pass('... and so it goes on');
kill CONT => $worker;
like($sa[0]->fails('COMMIT'), qr/^40001: a permit of semaphore "job" was lost/, 'who has lost it cannot commit');
# The waiter queues anew.
in_queue(3);
ok($sa[1]->busy, 'who waited waits on');
$sc[0]->query('COMMIT');
$sa[1]->result;
$_->query('COMMIT') for $sa[1], $sb[1];
clean('after an expired session');

# The same in session scope: the statement that runs is canceled, and a loss acknowledged.
$sa[0]->query("SELECT zk_acquire('job', 1, 'session')");
$sa[0]->send('SELECT pg_sleep(3600)');
$worker = worker($a);
ZkLock::stop_process($a, $worker);
like($sa[0]->failure, qr/^55000: a permit of semaphore "job" was lost/, 'a statement is canceled');
in_queue(0);
kill CONT => $worker;
ZkLock::wait_connected($a);
like($sa[0]->fails('SELECT 1'), qr/a permit of semaphore "job" was lost/, '... and so is the next');
is($sa[0]->query("SELECT zk_release('job')"), 't', '... until it is acknowledged');
is($sa[0]->query("SELECT zk_try_acquire('job', 1, timeout => '1 h')"), 't', '... and then another can be had');
clean('after a loss in session scope');

#
# A server crashes, with the first two of those who wait
#
acquire($sb[0], 1);
waits($sa[1], 1);
waits($sa[2], 1);
waits($sc[0], 1);
waits($sb[1], 1);
$a->stop('immediate');
ZkLock::hang_up($a);
in_queue(3);
$sb[0]->query('COMMIT');
$sc[0]->result;
pass('after a crash the next one that lives has it');
$sc[0]->query('COMMIT');
$sb[1]->result;
$sb[1]->query('COMMIT');
# What follows takes no expiry.
$a->append_conf('postgresql.conf', "zklock.session_timeout = '60s'");
ZkLock::start_again($a);
@sa = map { ZkLock::session($a) } 1 .. 3;
ZkLock::wait_connected($a);
clean('after a crash');

#
# ZooKeeper goes away and comes back: nothing is lost
#
acquire($sa[0], 2);
acquire($sb[0], 2);
waits($sc[0], 2);
waits($sa[1], 2);
$zk->restart;
ZkLock::wait_connected(@all);
$sb[0]->query('COMMIT');
$sc[0]->result;
ok($sa[1]->busy, 'after a restart of ZooKeeper the order is the same');
$sa[0]->query('COMMIT');
$sa[1]->result;
$_->query('COMMIT') for $sc[0], $sa[1];
clean('after a restart of ZooKeeper');

#
# Somebody deletes contenders that wait
#
acquire($sa[0], 1);
waits($sb[0], 1);
waits($sc[0], 1);
waits($sa[1], 1);
my @queue = in_queue(4);
$zk->delete(ZkLock::directory('job', 'semaphores') . "/$queue[2]");
wait_until(sub { my @now = ZkLock::queue($zk, 'job', 'semaphores'); @now == 4 && $now[3] ne $queue[3] }, 'it queues again, at the end');
$sa[0]->query('COMMIT');
$sb[0]->result;
$sb[0]->query('COMMIT');
$sa[1]->result;
$sa[1]->query('COMMIT');
$sc[0]->result;
$sc[0]->query('COMMIT');
pass('who is deleted while he waits has lost his place, and no more');
clean('after a deleted contender');

#
# Two places of a server that both count who goes: the create of the one before was in
# doubt when the other began.  What that is not told meanwhile it does not miss.
#
my $proxy = Proxy->new($zk->host);
my $d = ZkLock::server('d', $proxy);
push @all, $d;
ZkLock::wait_connected($d);
my @sd = map { ZkLock::session($d) } 1 .. 3;

sub lost { my ($n) = @_; return wait_until(sub { $proxy->lost == $n }, "$n replies are lost"); }

acquire($sd[0], 1);
waits($sb[0], 1);
$proxy->refuse->lose_reply('create', '/semaphores/job');
$worker = worker($d);
# The second one has a place before that of the first one in the table, and looks before it.
ZkLock::stop_process($d, $worker);
$sd[2]->send(q{SELECT zk_acquire('other', 1)})->wait_level(2);
$sd[1]->query('BEGIN');
$sd[1]->send(q{SELECT zk_acquire('job', 1)})->wait_level(2);
$sd[2]->cancel->failure;
kill CONT => $worker;
lost(1);
# ... and counts it, as its token is not known yet.
$proxy->lose_reply('get', (in_queue(3))[2]);
$sd[2]->query('BEGIN');
$sd[2]->send(q{SELECT zk_acquire('job', 1)})->wait_level(2);
$proxy->accept;
lost(2);
ZkLock::wait_answered($d);
in_queue(4);
$sd[0]->query('COMMIT');
$sb[0]->result;
ZkLock::wait_answered($d);
like($sd[1]->cancel->failure, qr/^57014/, 'the first one does not wait any more');
$sd[1]->query('ROLLBACK');
in_queue(2);
ZkLock::wait_answered($d);
$sb[0]->query('COMMIT');
$sd[2]->result;
pass('the second one has its turn');
$sd[2]->query('COMMIT');
clean('after two who counted');

done_testing();
