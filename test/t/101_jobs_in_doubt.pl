# A server that is lost while a run commits: nobody else can tell what became of that. The
# next one runs it again, or skips it, as its caller wants; and the server tells when it is
# back.
#
# A commit is held up at two points.  A standby that is not there: the commit is on the disk.
# The lock of those who NOTIFY, which somebody has who waits for that standby: it is not.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(rows runs);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my ($a, $b) = map {
	ZkLock::server($_, $zk,
		init => { allows_streaming => 1 },
		# a reload would reach backends before the checkpointer, which tells them whether to wait
		conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'\nsynchronous_commit = local\nsynchronous_standby_names = 'nobody'")
} qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;


# The newest runs: state and server

# A run of A's comes as far as that, and A is stopped at once.  Meanwhile B waits for it.
sub lose
{
	my ($job, $committed, $in_doubt, $then) = @_;
	my ($run, $other) = map { ZkLock::session($a) } 1, 2;
	my $call = "zk_run_once('$job', 'INSERT INTO t VALUES (''$job''); NOTIFY x', slot => '2026-01-01', in_doubt => '$in_doubt')";
	if ($committed)
	{
		$run->query('SET synchronous_commit = on');
		# not the commits before and after the command's
		$run->send("CALL $call");
		$run->wait_event('SyncRep');
	}
	else
	{
		$other->query('SET synchronous_commit = on');
		$other->send("BEGIN; INSERT INTO t VALUES ('x'); NOTIFY x; COMMIT");
		$other->wait_event('SyncRep');
		$run->send("CALL $call");
		$run->wait_event('object');
	}
	is(ZkLock::ask($b, "SELECT state, server FROM zk_jobs WHERE job = '$job'"), 'running|a', "$job: the run commits");
	like($zk->get("/zklock/jobs/$job"), qr/"state": "committing"/, '... as the record says');
	my $waiter = ZkLock::session($b);
	if ($then)
	{
		$waiter->send("CALL $call")->wait_event('Extension');
	}
	$a->stop('immediate');
	if ($then)
	{
		ok($waiter->busy, '... and goes on waiting');
		# until A's session ends.  A is back later, or it could say what became of it before.
		$zk->delete("/zklock/jobs/$job/" . (ZkLock::queue($zk, $job, 'jobs'))[0]);
		ZkLock::wait_until(sub { !$waiter->busy }, 'B goes on');
	}
	$a->start;
	$_->quit for $run, $other;
	ZkLock::hang_up($a);
	ZkLock::wait_connected($a);
	is(rows($a, $job), $committed ? 1 : 0, '... which is ' . ($committed ? '' : 'not ') . 'committed');
	return $waiter;
}

# Without being asked
sub settles
{
	my ($job, $runs) = @_;
	my $seen;
	ZkLock::wait_until(sub { ($seen = runs($b, $job)) eq $runs }, 'the first says what became of its run', sub { $seen });
	return pass('the first says what became of its run');
}

for my $committed (0, 1)
{
	my $what = $committed ? 'committed' : 'not committed';

	# run it again
	my $job = "$what, run";
	is(lose($job, $committed, 'run', 1)->result, '', 'the other server has it then');
	is(rows($b, $job), 1, '... and runs it');
	settles($job, 'done b, ' . ($committed ? 'done a' : 'lost a'));
	my $again = ZkLock::session($a);
	$again->query("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '2026-01-01')");
	like($again->notices, qr/is done for slot/, '... and does not run it again');
	is(rows($a, $job), $committed ? 1 : 0, '... so nothing has changed there');

	# or skip it
	$job = "$what, skip";
	my $waiter = lose($job, $committed, 'skip', 1);
	is($waiter->result, '', 'the other server has it then');
	like($waiter->notices, qr/DETAIL:  Server "a" was lost while it committed at .*, and that counts as done/, '... and says why it does not run it');
	is(rows($b, $job), 0, '... indeed');
	settles($job, ($committed ? 'done' : 'skipped') . ' a');
	$again = ZkLock::session($a);
	$again->query("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '2026-01-01')");
	is(rows($a, $job), $committed ? 1 : 0, '... and does not run it again');

	# or nobody came
	$job = "$what, alone";
	lose($job, $committed, 'run', 0);
	settles($job, $committed ? 'done a' : 'lost a');
	$again = ZkLock::session($a);
	$again->query("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '2026-01-01')");
	is(rows($a, $job), 1, '... and runs it again if it is to');
	is(runs($b, $job), $committed ? 'done a' : 'done a, lost a', '... and no oftener');
	like(PostgreSQL::Test::Utils::slurp_file($a->logfile),
		qr/LOG:  job "$job": run 1 is no longer in doubt: it @{[ $committed ? 'is done' : 'has not committed' ]}\n/, '... and has logged what it found');
}

# A backend that is terminated while it commits has committed; the rest does not wait for
# another start.
my $run = ZkLock::session($a);
$run->query('SET synchronous_commit = on');
$run->send("CALL zk_run_once('terminated', 'INSERT INTO t VALUES (''terminated'')', slot => '2026-01-01')");
$run->wait_event('SyncRep');
$run->terminate;
like($run->failure, qr/^(?:57P0|lost)/, 'terminated while it commits');
settles('terminated', 'done a');

done_testing();
