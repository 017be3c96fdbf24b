# After a crash of any process, or an immediate shutdown, another server has the
# lock at the restart: the session does not have to time out, which takes an hour.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $conf = "zklock.session_timeout = '1h'\nrestart_after_crash = on";
my ($a, $b) = map { ZkLock::server($_, $zk, conf => $conf) } qw(a b);
ZkLock::ask($a, 'CREATE TABLE t (i int)');

sub session_id { return ZkLock::ask(shift, 'SELECT session_id FROM zk_session'); }

sub owner { my $path = shift; return sprintf '0x%x', $zk->stat($path)->{ephemeralOwner}; }

for my $victim ('holder', 'another backend', 'worker', 'checkpointer', 'walwriter', 'immediate shutdown')
{
	ZkLock::wait_connected($a, $b);
	my ($holder, $another, $next) = map { ZkLock::session($_) } $a, $a, $b;
	my $token = $holder->query("BEGIN; INSERT INTO t VALUES (1); SELECT zk_lock('job')");
	$holder->query("SELECT zk_lock('other', scope => 'session')");
	$next->send("BEGIN; SELECT zk_lock('job'), zk_lock('other')")->wait_level(2);
	my @queue = ZkLock::wait_queue($zk, 'job', 2);
	my $session = session_id($a);
	is_deeply([ map { owner(ZkLock::directory('job') . "/$_") } @queue ], [ $session, session_id($b) ],
		"$victim: the other server waits behind this one");
	is(ZkLock::ask($a, 'SELECT session_timeout FROM zk_session'), '01:00:00', '... whose session would live for an hour');

	my $log = -s $a->logfile;
	my $ready = sub {
		my $new = substr PostgreSQL::Test::Utils::slurp_file($a->logfile), $log;
		return $new =~ /LOG:  database system is ready to accept connections/;
	};
	if ($victim eq 'immediate shutdown')
	{
		$a->stop('immediate');
		ok(exists $zk->sessions->{$session}, '... and does when the server is down');
		ok($next->busy, '... so that the other server waits');
		$a->start;
	}
	else
	{
		my %sql = (
			holder => 'SELECT ' . $holder->pid,
			'another backend' => 'SELECT ' . ($another->pid // die),
			worker => 'SELECT worker_pid FROM zk_session');
		my $pid;
		# one that has just been started again may not be seen yet
		ZkLock::wait_until(sub { $pid = ZkLock::ask($a, $sql{$victim} // "SELECT pid FROM pg_stat_activity WHERE backend_type = '$victim'") }, "there is a $victim");
		kill 'KILL', $pid or die "$victim: $pid";
	}
	ZkLock::wait_until($ready, 'the server is back');
	my ($new) = $next->result =~ /^(\d+)\|\d+$/;
	cmp_ok($new, '>', $token, '... has the lock when this one is back, with a larger token');
	# its nodes go a moment before
	ZkLock::wait_until(sub { !exists $zk->sessions->{$session} }, 'the old session is closed');
	pass('... for the old session is closed');
	is(ZkLock::ask($a, 'SELECT count(*) FROM t'), 0, '... and its transaction is gone');
	like($holder->fails('COMMIT'), qr/^(57P0|lost)/, '... as its holder hears');

	my $again = ZkLock::session($a)->send("BEGIN; SELECT zk_lock('job')");
	ZkLock::wait_queue($zk, 'job', 2);
	ok($again->busy, '... which waits, if it comes back');
	$next->query('COMMIT');
	cmp_ok($again->result, '>', $new, '... for its turn');
	$again->query('COMMIT');
	ZkLock::ok_clean($zk, [ $a, $b ], $_, $victim) for 'job', 'other';
}

done_testing();
