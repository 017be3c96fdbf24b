# ZooKeeper is away for longer than the library has patience for one attempt: the worker
# begins anew again and again, with a handle that has seen nothing, and the same session.
# It stays the process that it is, and no line of the log tells of an exit.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

sub zk_session { my ($node, $columns) = @_; return ZkLock::ask($node, "SELECT $columns FROM zk_session"); }
sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }
sub anew { return scalar(() = log_of($_[0]) =~ /could not reach ZooKeeper for \d+ ms, trying again with a new handle/g); }

sub wait_anew
{
	my ($node, $n) = @_;
	my $until = anew($node) + $n;
	ZkLock::wait_until(sub { anew($node) >= $until }, "$n more handles are given up");
}

sub ok_no_exit
{
	my ($node, $what) = @_;
	unlike(log_of($node), qr/"zklock worker" \(PID \d+\) exited|restarting/, "$what: no process has ended");
}

# Descriptors and threads of the worker.
my $linux = -r '/proc/self/status';
sub resources
{
	my $pid = zk_session($_[0], 'worker_pid');
	return join ' ', map { scalar(() = glob "/proc/$pid/$_/*") } 'fd', 'task';
}

my $zk = ZooKeeper->new->start;

#
# The session outlives the outage
#
# Down: connections are refused.  Silent: they are taken, and nothing is answered; what the
# handles that are left have asked for arrives in the end, all of it.
for my $how ('down', 'silent')
{
	my $proxy = Proxy->new($zk->host);
	my $node = ZkLock::server($how, $proxy, conf => "zklock.session_timeout = '10min'");
	my $other = ZkLock::server("${how}_other", $zk);
	ZkLock::wait_connected($node, $other);
	my ($holder, $waiter, $rival) = map { ZkLock::session($_) } $node, $node, $other;
	my $before = resources($node);
	my $token = $holder->query("BEGIN; SELECT zk_lock('held')");
	$rival->query("BEGIN; SELECT zk_lock('wanted')");
	$waiter->send("BEGIN; SELECT zk_lock('wanted')")->wait_level(2);
	my @wanted = ZkLock::wait_queue($zk, 'wanted', 2);
	my ($id, $worker) = (zk_session($node, 'session_id'), zk_session($node, 'worker_pid'));

	$how eq 'down' ? $proxy->down : $proxy->hole->cut;
	wait_anew($node, 2);
	is(zk_session($node, 'session_id'), $id, "$how: the session is not given up");
	$proxy->heal->accept;
	ZkLock::wait_connected($node);
	is(zk_session($node, 'session_id'), $id, '... and resumed');
	# a moment after the state is shown
	ok(ZkLock::wait_until(sub { log_of($node) =~ /LOG:  session resumed: connected to ZooKeeper server \S+, session $id/ }, 'the log says so'), '... as the log says');
	is($rival->query("SELECT zk_try_lock('held')"), 'f', '... with its lock');
	is($holder->query("SELECT zk_assert('held')"), $token, '... whose holder can prove it');
	is_deeply([ ZkLock::queue($zk, 'wanted') ], \@wanted, '... and the waiter\'s place');
	$rival->query('COMMIT');
	cmp_ok($waiter->result, '>', 0, '... who is served in its turn');
	$_->query('COMMIT') for $holder, $waiter;
	is(zk_session($node, 'worker_pid'), $worker, '... by the same process');
	ok_no_exit($node, $how);
	# else a client that was left is there for as long as the session timeout
	if ($linux && $how eq 'down')
	{
		ZkLock::wait_until(sub { resources($node) eq $before }, "descriptors and threads are $before", sub { resources($node) });
		pass('... with as many descriptors and threads as before');
	}
	ZkLock::ok_clean($zk, [ $node, $other ], $_, $how) for 'held', 'wanted';
}

#
# The ensemble comes back with less than the worker has seen
#
{
	# Its session must be there when it comes back: else nothing tells what was forgotten.
	my $node = ZkLock::server('back', $zk, conf => "zklock.session_timeout = '30s'");
	ZkLock::wait_connected($node);
	$zk->save;
	my $s = ZkLock::session($node);
	my $token = $s->query("SELECT zk_lock('job')");
	my $worker = zk_session($node, 'worker_pid');
	# It counts them: by its number alone a write is a late one, when other servers have
	# written enough in between.
	my ($own) = grep { /^back-/ } $zk->children('/zklock/servers');
	my $writes = sub { $zk->stat("/zklock/servers/$own")->{version} };
	my $from = $writes->();
	ZkLock::wait_until(sub { $writes->() > $from }, 'there is a heartbeat that is forgotten');
	$zk->kill9;
	wait_anew($node, 1);
	$zk->go_back->start;
	ZkLock::wait_until(sub { log_of($node) =~ /WARNING:  ZooKeeper ensemble went back/ }, 'it notices');
	cmp_ok($s->query("SELECT zk_lock('job')"), '>', $token, 'the ensemble went back: a larger token');
	is(zk_session($node, 'worker_pid'), $worker, '... by the same process');
	ok_no_exit($node, 'went back');
}

done_testing();
