# One host that answers nothing costs no session while another one answers.
use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use POSIX ();
use Proxy;
use Test::More;
use ZkLock;

sub zk_session { my ($node, $columns) = @_; return ZkLock::ask($node, "SELECT $columns FROM zk_session"); }
sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

my $zk = ZooKeeper->new->start;
my $silent = Proxy->new($zk->host)->hole;
my $cuts = 25;

# A lock is held through so many cuts of the connection.  The session is long enough for a
# machine that is slow, and too short for one attempt that takes all of it.
sub ok_cuts
{
	my ($what, $node, $token, $holder, @good) = @_;
	my $id = zk_session($node, 'session_id');
	my $asked = $silent->accepted;
	for my $cut (1 .. $cuts)
	{
		my $before = zk_session($node, 'reconnects');
		my ($up) = grep { $_->connections } @good;
		$up->cut;
		ZkLock::wait_until(sub { zk_session($node, 'reconnects') > $before }, "$what: it is connected again, after cut $cut");
		ZkLock::wait_connected($node);
		last if zk_session($node, 'session_id') ne $id;
	}
	is(zk_session($node, 'session_id'), $id, "$what: the session outlives $cuts cuts");
	is($holder->query("SELECT zk_assert('held')"), $token, '... and the lock is held');
	return $silent->accepted - $asked;
}

for my $n (2, 3, 5)
{
	my @good = map { Proxy->new($zk->host) } 2 .. $n;
	my $node = ZkLock::server("n$n", join(',', map { $_->host } $silent, @good), conf => "zklock.session_timeout = '12s'");
	ZkLock::wait_connected($node);
	my $holder = ZkLock::session($node);
	my $token = $holder->query("SELECT zk_lock('held', scope => 'session')");
	my $asked = ok_cuts("one of $n is silent", $node, $token, $holder, @good);
	cmp_ok($asked, '<=', 1, '... which is tried once at most, before it is known');

	# The one that there is a connection to falls silent: others are tried before it.
	my $id = zk_session($node, 'session_id');
	if ($n > 2)
	{
		my ($up) = grep { $_->connections } @good;
		$up->hole;
		ZkLock::wait_until(sub { zk_session($node, "state = 'connected' AND server <> '" . $up->host . "'") eq 't' }, 'it goes elsewhere');
		$up->cut->heal;
		is(zk_session($node, 'session_id'), $id, '... another one falls silent, and the session goes on');
		is($holder->query("SELECT zk_assert('held')"), $token, '... with the lock');
	}

	# Another process knows nothing of it.
	for my $hosts (map { join ',', @$_ } [ map { $_->host } @good, $silent ], [ map { $_->host } $silent, @good ])
	{
		my $worker = zk_session($node, 'worker_pid');
		ZkLock::ask($node, "ALTER SYSTEM SET zklock.hosts = '$hosts'");
		ZkLock::ask($node, 'SELECT pg_reload_conf()');
		ZkLock::wait_until(sub { zk_session($node, "worker_pid <> $worker AND hosts = '$hosts' AND state = 'connected'") eq 't' }, 'another worker');
	}
	is(zk_session($node, 'session_id'), $id, '... the session outlives workers, too');
	is($holder->query("SELECT zk_assert('held')"), $token, '... with the lock');
	$holder->quit;
	ZkLock::hang_up($node);
	$node->stop;
}

done_testing();
