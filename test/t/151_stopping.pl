# What a server has to do as it stops, and has no session for: a worker that has just begun, one
# that was told to end before the server was, a session that ends just then.
use strict;
use warnings;

use Proxy;
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
sub server
{
	my ($name, $hosts) = @_;
	return ZkLock::server($name, $hosts, init => { allows_streaming => 1 }, conf => join "\n",
		"cluster_name = '$name'",
		"zklock.session_timeout = '1h'",
		"zklock.keep_time = '1h'",
		"synchronous_standby_names = 'nobody'",
		'synchronous_commit = local');
}

my $a = server('a', $proxy);
my $c = server('c', $zk);
my $b = ZkLock::server('b', $zk, conf => "cluster_name = 'b'\nzklock.session_timeout = '1h'");
ZkLock::wait_connected($a, $b, $c);
my $other = ZkLock::session($b);

sub session_of { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session'); }
sub worker { return ZkLock::ask($a, "SELECT coalesce(worker_pid, 0) FROM zk_session"); }

sub begin_stop
{
	my ($node) = @_;
	ZkLock::hang_up($node);
	kill 'INT', $node->{_pid} or die;
	return;
}

sub wait_stopped
{
	my ($node, $what) = @_;
	my $postmaster = $node->{_pid};
	ZkLock::wait_until(sub { !kill 0, $postmaster }, "$what: the server has ended");
	$node->_update_pid(0);
	return;
}

sub start { $proxy->heal; $a->start; ZkLock::wait_connected($a); return; }

# C cannot tell that it has done an item, for as long as it tries: that is looked at in the end.
{
	my $s = ZkLock::session($c);
	$other->query("SELECT zk_queue_put('stuck', 'x')");
	$s->query("SELECT zk_lock('kept'); BEGIN; SELECT zk_queue_take('stuck', '1 h')");
	my ($item) = $zk->children('/zklock/queues/stuck/items');
	$zk->create("/zklock/queues/stuck/items/$item/foreign");
	$s->query('COMMIT');
	begin_stop($c);
}

# A worker that has not begun to connect.  One that was told to end soon after its start has a
# successor that waits before it does.  It does not wait for long for an ensemble that is silent
# as the server stops, and leaves the session to it then: on a slow machine there are more tries.
{
	my ($closed, $name);
	for my $try (1 .. 5)
	{
		my $session = session_of($a);
		my $holder = ZkLock::session($a);
		$name = "successor $try";
		$holder->query("BEGIN; SELECT zk_lock('$name')");
		for (1, 2)
		{
			my $worker = worker();
			kill 'TERM', $worker or die;
			ZkLock::wait_until(sub { my $now = worker(); return $now && $now != $worker }, 'another worker');
		}
		begin_stop($a);
		wait_stopped($a, 'a successor');
		$closed = !exists $zk->sessions->{$session};
		last if $closed;
		start();
	}
	ok($closed, 'a worker that has not begun to connect closes the session of the one before it');
	is($other->query("SELECT zk_try_lock('$name')"), 't', '... and its locks are free');
	start() if $closed;
}

# All processes are told at once, as at the end of some machines, and the worker first, which
# has had its signal when the postmaster says that the server stops.  On a busy machine that
# may be too late.
sub had_signal { return PostgreSQL::Test::Utils::slurp_file("/proc/$_[0]/status") =~ /^State:\s+(?:Z|S.*^ShdPnd:\s+0+$)/ms; }
{
	my $closed;
	for (1 .. 5)
	{
		my $session = session_of($a);
		my $worker = worker();
		my $s = ZkLock::session($a);
		$s->query("BEGIN; SELECT zk_lock('all')");
		ZkLock::hang_up($a);
		kill 'STOP', $a->{_pid} or die;
		kill 'TERM', $worker or die;
		ZkLock::wait_until(sub { had_signal($worker) }, 'the worker has had its signal');
		kill 'INT', $a->{_pid} or die;
		kill 'CONT', $a->{_pid} or die;
		wait_stopped($a, 'all at once');
		$closed = !exists $zk->sessions->{$session};
		last if $closed;
		start();
	}
	ok($closed, 'a worker that is told to end just before the server closes the session');
	is($other->query("SELECT zk_try_lock('all')"), 't', '... and its locks are free');
	# it is to expire, but not where the machine stands still for some seconds
	$a->append_conf('postgresql.conf', "zklock.session_timeout = '15s'");
	start() if $closed;
}

# A session that has ended before what was committed is told.  The commit waits for a standby
# until the server stops; then nobody answers, and when somebody does, the session is unknown.
{
	my $s = ZkLock::session($a);
	$other->query("SELECT zk_queue_put('done', 'x')");
	$s->query("CREATE TABLE mine (payload text)");
	$s->query("SET synchronous_commit = on; BEGIN; INSERT INTO mine SELECT payload FROM zk_queue_take('done', '1 h'); SELECT zk_queue_put('new', 'y')");
	$s->send('COMMIT')->wait_event('SyncRep');
	my $session = session_of($a);
	$proxy->hole;
	begin_stop($a);
	ZkLock::wait_until(sub { !exists $zk->sessions->{$session} }, 'the session has expired');
	$proxy->heal;
	wait_stopped($a, 'an expired session');
	is($other->query("SELECT count(*) FROM zk_queue_take('done')"), 0, 'what was done before the session ended is not done again');
	is($other->query("SELECT payload FROM zk_queue_take('new')"), 'y', '... and what was put is there');
	start();
	is(ZkLock::ask($a, 'SELECT payload FROM mine'), 'x', '... since it has committed');
}

wait_stopped($c, 'it gives up');
is($other->query("SELECT zk_try_lock('kept')"), 't', 'who gives up, and holds nothing, closes his session all the same');

done_testing();
