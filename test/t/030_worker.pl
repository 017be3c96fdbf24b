# The worker: how it ends and begins again, what it runs on.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
my $conf = 'restart_after_crash = on';
my $a = ZkLock::server('a', $proxy, conf => $conf);
my $b = ZkLock::server('b', $zk, conf => $conf);
ZkLock::wait_connected($a, $b);
my ($holder, $waiter, $other);

sub sessions
{
	$holder = ZkLock::session($a);
	$waiter = ZkLock::session($a);
	$other = ZkLock::session($b);
}
sessions();

sub zk_session { my ($node, $columns) = @_; return ZkLock::ask($node, "SELECT $columns FROM zk_session"); }

sub worker { return zk_session($a, 'worker_pid'); }

sub log_since { my $from = shift; return substr PostgreSQL::Test::Utils::slurp_file($a->logfile), $from; }

#
# Threads
#
SKIP:
{
	skip 'no /proc', 1 unless -r '/proc/self/status';
	# A ZooKeeper library with threads has two of its own for a handle.
	my $threads = zk_session($a, 'library') =~ /_mt/ ? 3 : 1;
	is(scalar(() = glob '/proc/' . worker() . '/task/*'), $threads, "the worker's threads: $threads");
}

#
# Terminated: a successor resumes the session
#
# A terminated worker's successor waits a second if its life was short.
for my $how ('terminate', 'hosts')
{
	my $token = $holder->query("BEGIN; SELECT zk_lock('held')");
	$other->query("BEGIN; SELECT zk_lock('wanted')");
	$waiter->send("BEGIN; SELECT zk_lock('wanted')")->wait_level(2);
	my @wanted = ZkLock::wait_queue($zk, 'wanted', 2);
	my @held = ZkLock::wait_queue($zk, 'held', 1);
	my ($id, $pid) = (zk_session($a, 'session_id'), worker());
	my $log = -s $a->logfile;
	if ($how eq 'hosts')
	{
		$a->append_conf('postgresql.conf', "zklock.hosts = '" . $zk->host . "'");
		$a->reload;
	}
	else { kill 'TERM', $pid; }
	ZkLock::wait_until(sub { zk_session($a, "worker_pid <> $pid AND state = 'connected'") eq 't' }, 'a successor is connected');
	is(zk_session($a, 'session_id'), $id, "$how: the successor has the session");
	like(log_since($log), qr/LOG:  session resumed: connected to ZooKeeper server \S+, session $id/, '... which the log says is resumed');
	is_deeply([ ZkLock::queue($zk, 'held') ], \@held, '... the holder\'s contender stays');
	is_deeply([ ZkLock::queue($zk, 'wanted') ], \@wanted, '... and the waiter\'s');
	is($holder->query("SELECT zk_token('held')"), $token, '... the holder keeps its token');
	is($other->query("SELECT zk_try_lock('held')"), 'f', '... and its lock');
	ok($waiter->busy, '... the waiter waits');
	my $czxid = $zk->stat("/zklock/locks/wanted/$wanted[1]")->{czxid};
	$other->query('COMMIT');
	is($waiter->result, $czxid, '... and is served in its turn');
	$waiter->query('COMMIT');
	is($holder->query('COMMIT'), '', '... the holder commits');
	is($other->query("SELECT zk_try_lock('held', timeout => '1h')"), 't', '... which frees the lock');
	my $connections = $how eq 'hosts' ? 0 : 1;
	ZkLock::wait_until(sub { $proxy->connections == $connections }, 'the connection is by way of the hosts set');
	pass('... by way of the hosts set');
	is(zk_session($a, 'hosts'), $how eq 'hosts' ? $zk->host : $proxy->host, '... as zk_session says');
	ZkLock::ok_clean($zk, [ $a, $b ], 'held', $how);
	ZkLock::ok_clean($zk, [ $a, $b ], 'wanted', $how);
}

# What happens while there is no worker
{
	$other->query("BEGIN; SELECT zk_lock('job')");
	$holder->query("BEGIN; SELECT zk_lock('held')");
	my $pid = worker();
	kill 'TERM', $pid;
	ZkLock::wait_until(sub { zk_session($a, "worker_pid IS DISTINCT FROM $pid") eq 't' }, 'it is gone');
	$waiter->send("SELECT zk_lock('job')")->wait_level(2);
	$holder->query('COMMIT');
	ok($waiter->busy, 'who comes while there is no worker waits');
	is(@{[ ZkLock::wait_queue($zk, 'job', 2) ]}, 2, '... and queues when there is one');
	is($waiter->cancel->failure, '57014: canceling statement due to user request', '... and can be cancelled');
	$other->query('COMMIT');
	ZkLock::ok_clean($zk, [ $a, $b ], 'job', 'no worker');
	ZkLock::ok_clean($zk, [ $a, $b ], 'held', '... what was released meanwhile');
	ZkLock::wait_connected($a);
}

#
# Settings
#
{
	my ($id, $pid, $log) = (zk_session($a, 'session_id'), worker(), -s $a->logfile);
	ZkLock::ask($a, "ALTER SYSTEM SET zklock.session_timeout = '1h'");
	ZkLock::ask($a, "ALTER SYSTEM SET zklock.root = '/elsewhere'");
	$a->append_conf('postgresql.conf', "zklock.hosts = 'nonsense'");
	$a->reload;
	ZkLock::wait_until(sub { ZkLock::ask($a, 'SHOW zklock.root') eq '/elsewhere' }, 'the settings are read');
	ZkLock::wait_until(sub { log_since($log) =~ /LOG:  invalid value for parameter "zklock\.hosts": "nonsense"/ }, 'a bad value is refused');
	is(zk_session($a, 'session_id, worker_pid, session_timeout, hosts'), "$id|$pid|00:01:00|" . $zk->host,
		'a bad zklock.hosts changes nothing, nor does another root or timeout so far');
	for my $name (qw(root session_timeout))
	{
		ZkLock::wait_until(sub { log_since($log) =~ /LOG:  the new value of "zklock\.$name" takes effect with the next ZooKeeper session/ }, "... zklock.$name: the log says so");
	}
	$waiter->query("BEGIN; SELECT zk_lock('job')");
	is(@{[ ZkLock::queue($zk, 'job') ]}, 1, '... the lock is where it was');
	$waiter->query('COMMIT');

	# Another chroot would put every path of the session elsewhere.
	$a->append_conf('postgresql.conf', "zklock.hosts = '" . $zk->host . "/elsewhere'");
	$a->reload;
	ZkLock::wait_until(sub { log_since($log) =~ /LOG:  the new chroot path in "zklock\.hosts" takes effect after a restart/ }, 'a new chroot is noticed');
	is(zk_session($a, 'session_id, worker_pid, hosts'), "$id|$pid|" . $zk->host, '... and waits for a new session, too');
	$a->append_conf('postgresql.conf', "zklock.hosts = '" . $proxy->host . "'");

	# A new session: by one that expires.
	$a->reload;
	ZkLock::wait_until(sub { zk_session($a, "state = 'connected' AND hosts = '" . $proxy->host . "'") eq 't' }, 'back to the proxy');
	is(zk_session($a, 'session_id, session_timeout'), "$id|00:01:00", '... and the session lives on');
	is($waiter->query("SELECT zk_try_lock('job')"), 't', '... with its root');
	kill 'KILL', worker();
	ZkLock::wait_until(sub { eval { zk_session($a, "state = 'connected' AND session_id <> '$id'") eq 't' } }, 'a new session');
	is(zk_session($a, 'session_timeout'), '01:00:00', 'the next session has the new timeout');
	sessions();
	$waiter->query("BEGIN; SELECT zk_lock('job')");
	is(scalar $zk->children('/elsewhere/locks/job'), 1, '... and the new root');
	is(scalar $zk->children('/zklock/locks/job'), 0, '... not the old');
	$waiter->query('COMMIT');
	# ... and the one after it the old again
	ZkLock::ask($a, 'ALTER SYSTEM RESET zklock.root');
	$a->reload;
	ZkLock::wait_until(sub { ZkLock::ask($a, 'SHOW zklock.root') eq '/zklock' }, 'the setting is read');
}

#
# Killed: the whole server restarts, its session is closed, not timed out, which would
# take an hour
#
for my $victim ('worker', 'backend')
{
	ZkLock::wait_connected($a);
	my $id = zk_session($a, 'session_id');
	# The settings of the previous part end with its session.
	my $root = $victim eq 'worker' ? '/elsewhere' : '/zklock';
	$holder->query("BEGIN; SELECT zk_lock('held')");
	$waiter->query("SELECT zk_lock('held by session', scope => 'session')");
	$zk->wait_children("$root/locks/held", 1);
	my $rival = $zk->client;
	my ($foreign) = $rival->contend("$root/locks/held") =~ m{([^/]*)$};
	kill 'KILL', $victim eq 'worker' ? worker() : $holder->pid;
	like($waiter->failure, qr/^$/, 'no statement runs') if $waiter->busy;
	is_deeply([ $zk->wait_children("$root/locks/held", 1) ], [$foreign], "$victim killed: its server's lock is free");
	# its nodes go a moment before
	ZkLock::wait_until(sub { !exists $zk->sessions->{$id} }, 'the session has been closed');
	pass('... since the session has been closed');
	$zk->wait_children("$root/locks/held by session", 0);
	$rival->close;
	ZkLock::wait_until(sub { eval { zk_session($a, "state = 'connected' AND session_id <> '$id'") eq 't' } }, 'a new session');
	sessions();
	cmp_ok($holder->query("SELECT zk_lock('held')"), '>', 0, '... new locks work');
	like(PostgreSQL::Test::Utils::slurp_file($a->logfile), qr/closing ZooKeeper session $id from before the restart/, '... the log says so');
	ZkLock::ok_clean($zk, [ $a, $b ], 'held', "$victim killed");
}

#
# Many quick reconnects; they get slower, up to a second
#
ZkLock::ask($a, "ALTER SYSTEM SET zklock.session_timeout = '10s'");
$a->restart;
ZkLock::wait_connected($a);
sessions();
SKIP:
{
	skip 'no /proc', 4 unless -r '/proc/self/status';
	my $pid = worker();
	my $count = sub { my $pid = worker(); return join ' ', map { scalar(() = glob "/proc/$pid/$_/*") } 'fd', 'task'; };
	my $token = $holder->query("BEGIN; SELECT zk_lock('held')");
	my $id = zk_session($a, 'session_id');
	my $before = $count->();
	for (1 .. 15)
	{
		$proxy->cut;
		ZkLock::wait_until(sub { zk_session($a, 'state') eq 'connected' && $proxy->connections == 1 }, 'it connects again');
	}
	is(worker(), $pid, 'many cuts: the worker survives');
	ZkLock::wait_until(sub { $count->() eq $before }, "descriptors and threads are $before", $count);
	pass('... with as many descriptors and threads');
	is(zk_session($a, 'session_id'), $id, '... and its session');
	is($holder->query("SELECT zk_token('held')"), $token, '... and its locks');
	is($holder->query('COMMIT'), '', '... and commits');
	ZkLock::ok_clean($zk, [ $a, $b ], 'held', 'many cuts');

	# ... and sessions that expire, each with a handle of its own
	ZkLock::ask($a, "ALTER SYSTEM SET zklock.session_timeout = '3s'");
	$a->reload;
	for (1 .. 3)
	{
		$id = zk_session($a, 'session_id');
		$proxy->hole;
		ZkLock::wait_until(sub { !exists $zk->sessions->{$id} }, 'the session expires');
		$proxy->heal;
		ZkLock::wait_until(sub { zk_session($a, "state = 'connected' AND session_id <> '$id'") eq 't' }, 'a new session');
	}
	is($holder->query("SELECT zk_try_lock('held')"), 't', 'three sessions later a lock works');
	ZkLock::wait_until(sub { $count->() eq $before }, "descriptors and threads are $before", $count);
	pass('... with as many descriptors and threads');
}

#
# No worker at all
#
$a->append_conf('postgresql.conf', "max_worker_processes = 0\nzklock.connect_timeout = '200ms'\nmax_parallel_workers = 0\nmax_logical_replication_workers = 0");
$a->restart;
my $s = ZkLock::session($a);
for my $sql ("SELECT zk_lock('job')", "SELECT zk_try_lock('job')")
{
	is($s->fails($sql), '55000: zklock worker is not running', "no worker: $sql");
	like($s->notices, qr/^DETAIL: .*\nHINT: .*"max_worker_processes"/m, '... with a hint');
}
is(zk_session($a, 'state, connected_to, session_id, worker_pid'), 'no worker|||', '... and zk_session says so');
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_locks'), 0, '... nothing is left');
is(ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, '... at level 1 either');

done_testing();
