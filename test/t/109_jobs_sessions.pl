# Sessions that end between zk_run_begin and zk_run_end, or give the job up there: by their
# client they have failed, by the server they are lost.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(rows record runs);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
# whatever waits for the ensemble until it gives up waits for longer than the test
my ($a, $b) = map {
	ZkLock::server($_, $zk, init => { allows_streaming => 1 },
		conf => "zklock.session_timeout = '1h'\nzklock.connect_timeout = '1h'\ncluster_name = '$_'\nsynchronous_commit = local\n"
		  # a standby that is not there holds up a commit that asks for it
		  . "synchronous_standby_names = 'nobody'")
} qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;
my $sb = ZkLock::session($b);
my $log_start = -s $a->logfile;
my $slot = "slot => '2026-01-01'";
my $error = 'the session ended without zk_run_end';

sub row { return ZkLock::ask($a, "SELECT outcome, error FROM zk_runs WHERE name = '$_[0]'"); }

# A session of a that has begun the job
sub begin
{
	my ($job) = @_;
	my $s = ZkLock::session($a);
	is($s->query("SELECT zk_run_begin('$job', $slot)"), 't', "$job: begun");
	return $s;
}

sub gone
{
	my ($s) = @_;
	my $pid = $s->pid;
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 }, "backend $pid has gone");
	return;
}

sub has_failed
{
	my ($job) = @_;
	is(record($b, $job), 'failed|a|1|1', "$job: has failed");
	is(ZkLock::ask($b, "SELECT error FROM zk_jobs WHERE job = '$job'"), $error, '... and why');
	is(row($job), "failed|$error", '... in zk_runs, too');
	is($sb->fails("SELECT zk_run_begin('$job', $slot)"), "55000: job \"$job\" has failed for slot 2026-01-01 00:00:00+00", '... and is not run again');
	like($sb->notices, qr/DETAIL:  Attempt 1 on server "a" failed at .*: $error\n/, '... which says why');
	ZkLock::wait_until(sub { !ZkLock::queue($zk, $job, 'jobs') }, "$job: nobody holds it");
	return;
}

# It is run again, and that is the second attempt, with no failure.
sub is_lost
{
	my ($job) = @_;
	is(row($job), '', "$job: nothing is told of it");
	is($sb->query("SELECT zk_run_begin('$job', $slot)"), 't', '... and it is run again');
	is(record($a, $job), 'running|b|2|0', '... since it was lost');
	is($sb->query("SELECT zk_run_end('$job')"), 't', '... and done');
	return;
}

#
# By the client
#
begin('quit')->quit;
has_failed('quit');

{
	my $s = begin('killed');
	$s->kill_client;
	gone($s);
	has_failed('killed');
}
{
	my $s = begin('in a transaction');
	$s->query("BEGIN; INSERT INTO t VALUES ('in a transaction'); SELECT zk_lock('in it'), zk_lock('about it', scope => 'session')");
	$s->query("SAVEPOINT s; SELECT zk_lock('deeper')");
	$s->quit;
	has_failed('in a transaction');
	is(rows($a, 'in a transaction'), 0, '... and rolled back');
	ZkLock::ok_clean($zk, [ $a, $b ], $_) for 'in it', 'about it', 'deeper';
}
{
	my $s = begin('in a failed transaction');
	$s->fails("BEGIN; SELECT zk_lock('in it'); SELECT 1/0");
	$s->quit;
	has_failed('in a failed transaction');
	ZkLock::ok_clean($zk, [ $a, $b ], 'in it');
}
{
	my $s = begin('temporary');
	$s->query('CREATE TEMPORARY TABLE x (i int)');
	$s->quit;
	has_failed('temporary');
}
{
	my $s = ZkLock::session($a);
	$s->query('CREATE TEMPORARY TABLE x (i int)');
	$s->query("SELECT zk_run_begin('two, $_', $slot)") for 1, 2;
	$s->query('SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE');
	$s->quit;
	has_failed("two, $_") for 1, 2;
}
is(ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, 'nothing is held');

# Each waiter has his attempt, and then there is none.
{
	my $s = ZkLock::session($a);
	$s->query("SELECT zk_run_begin('attempts', $slot, attempts => 2)");
	my $waiter = ZkLock::session($b);
	$waiter->send("CALL zk_run_begin_session('attempts', $slot, attempts => 2)")->wait_event('Extension');
	$sb->send("CALL zk_run_begin_session('attempts', $slot, attempts => 2)")->wait_event('Lock');
	$s->quit;
	is($waiter->result, 't', 'a waiter makes the second attempt');
	is(record($a, 'attempts'), 'running|b|2|1', '... after one that failed');
	$waiter->quit;
	is($sb->failure, '55000: job "attempts" has failed for slot 2026-01-01 00:00:00+00', '... and the next one makes none');
	is(runs($a, 'attempts'), 'failed b, failed a', '... as the record says');
}

# The backend waits for nobody, not for a lock on zk_runs, nor for a standby.
{
	my $s = begin('locked out');
	my $other = ZkLock::session($a);
	$other->query('BEGIN; LOCK zk_runs IN ACCESS EXCLUSIVE MODE');
	$s->quit;
	is(record($b, 'locked out'), 'failed|a|1|1', 'zk_runs is locked: it has failed');
	$other->query('COMMIT');
	is(row('locked out'), '', '... but for the row');
}
{
	my $s = begin('standby');
	$s->query('SET synchronous_commit = on');
	$s->send("INSERT INTO t VALUES ('waits')")->wait_event('SyncRep')->cancel->result;
	$s->quit;
	has_failed('standby');
}

#
# By the server
#
{
	my $s = begin('terminated');
	$s->terminate;
	gone($s);
	is_lost('terminated');
}

#
# Nobody can be told: the backend goes all the same.
#
{
	my $s = begin('lost before');
	$zk->delete('/zklock/jobs/lost before/' . (ZkLock::queue($zk, 'lost before', 'jobs'))[0]);
	ZkLock::wait_until(sub { $s->fails('SELECT count(*) FROM t') eq '55000: job "lost before" was lost' }, 'the job is lost');
	$s->quit;
	is_lost('lost before');
}
{
	my $s = begin('paused');
	$zk->pause;
	$s->quit;
	$zk->resume;
	ZkLock::wait_connected($a, $b);
	is_lost('paused');
}
{
	my $s = begin('stopped');
	$zk->stop;
	$s->quit;
	$zk->start;
	ZkLock::wait_connected($a, $b);
	is_lost('stopped');
}

#
# Given up: the session is told.
#
for my $statement ('DISCARD ALL', 'SELECT pg_advisory_unlock_all()')
{
	my $job = "given up by $statement";
	my $s = begin($job);
	$s->query($statement);
	is($s->query("SELECT zk_run_end('$job')"), 't', '... and given up, and done, as nobody has taken it over');
	like($s->notices, qr/^WARNING 01000: job "\Q$job\E" was given up before its run ended/, '... with a warning');
	is(record($b, $job), 'done|a|1|0', '... as the record says');
}
{
	my $s = begin('given up and taken');
	$s->query('DISCARD ALL');
	is($sb->query("SELECT zk_run_begin('given up and taken', $slot)"), 't', 'another has it meanwhile');
	is($s->query("SELECT zk_run_end('given up and taken')"), 't', '... the first comes to its end');
	like($s->notices, qr/^WARNING 01000: job "given up and taken" was given up before its run ended/, '... and is warned');
	is(runs($a, 'given up and taken'), 'running b, done a', '... which does not touch the other');
	is($sb->query("SELECT zk_run_end('given up and taken')"), 't', '... until that ends, too');
	is($sb->notices, '', '... as usual');
	is(runs($a, 'given up and taken'), 'done b, done a', '... and both were done');
}
{
	my $s = begin('given up and away');
	$s->query('DISCARD ALL');
	$s->quit;
	is_lost('given up and away');
}

is(ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, 'nothing is held');
unlike(PostgreSQL::Test::Utils::slurp_file($a->logfile, $log_start), qr/FATAL:  (?!terminating connection due to administrator)/, 'no error was raised while a backend ended');

# What cannot be foreseen is an error, and leaves nothing behind.
{
	my $s = begin('damaged');
	$s->query("SELECT zk_lock('session', scope => 'session')");
	$zk->set('/zklock/jobs/damaged', 'rubbish');
	$s->quit;
	like(PostgreSQL::Test::Utils::slurp_file($a->logfile, $log_start), qr/FATAL:  record of job "damaged" in ZooKeeper is damaged/, 'the log says it');
	ZkLock::ok_clean($zk, [ $a, $b ], 'session');
	ZkLock::wait_until(sub { !ZkLock::queue($zk, 'damaged', 'jobs') }, 'nobody holds the job');
	is($sb->query("SELECT zk_job_forget('damaged')"), 't', '... and others can have the job');
}

done_testing;
