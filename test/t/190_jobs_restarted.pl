# A run that may have committed when its server ended is settled by the server's next life,
# before anybody else has the job: whatever ends the server, and whatever kept it from settling
# the run before.
#
# The commit waits for a standby that is not there, and ZooKeeper is away then, so that the
# session that is ended leaves its run to the server.  Nothing waits for a timeout, but where
# that is the matter: all others take an hour.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(is_once rows runs);
use PostgreSQL::Test::Utils ();
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
my %conf = (init => { allows_streaming => 1 });
my $conf = "zklock.session_timeout = '1h'\nsynchronous_commit = local\nsynchronous_standby_names = 'nobody'\nrestart_after_crash = on";
my $a = ZkLock::server('a', $proxy, %conf, conf => "$conf\ncluster_name = 'a'\nzklock.connect_timeout = '1h'");
my $b = ZkLock::server('b', $zk, %conf, conf => "$conf\ncluster_name = 'b'");
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;

sub call { my ($job) = @_; return "CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '2026-01-01')"; }

# A run of A's stands in its commit, which has come to the disk, in a database of A's.
sub commit
{
	my ($job, $database) = @_;
	my $run = ZkLock::session($a, dbname => $database // 'postgres');
	$run->query('SET synchronous_commit = on');
	$run->send(call($job))->wait_event('SyncRep');
	return $run;
}

# ... or just before that, and cannot go on.
my $gate = Jobs::Gate->new($a);
sub begin_commit
{
	my ($job) = @_;
	my $run = ZkLock::session($a);
	$gate->stand($run, call($job) =~ s/', slot/; $Jobs::at_gate', slot/r);
	$proxy->refuse->lose_reply('set', "/jobs/$job");
	$gate->open;
	$run->wait_event('Extension');
	ZkLock::wait_until(sub { $proxy->lost > 0 && ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'the connection is lost');
	return $run;
}

# A call of B's waits for A's run.
sub wait_for
{
	my ($job) = @_;
	my $waiter = ZkLock::session($b);
	$waiter->send(call($job))->wait_event('Extension');
	return $waiter;
}

# The session of a run is ended, and leaves it to the server.
sub leave
{
	my ($run) = @_;
	$run->terminate;
	$run->failure;
	$run->quit;
	return;
}

sub lose_zookeeper
{
	$proxy->down;
	ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'the connection is lost');
	return;
}

sub restart
{
	my ($mode, %set) = @_;
	ZkLock::ask($a, "ALTER SYSTEM SET $_ = '$set{$_}'") for sort keys %set;
	ZkLock::hang_up($a);
	$a->stop($mode);
	$a->start;
	return;
}

sub logged { my ($what) = @_; return scalar(() = PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /$what/g); }

sub wait_logged
{
	my ($what, $before) = @_;
	ZkLock::wait_until(sub { logged($what) > ($before // 0) }, "the log says: $what");
	return;
}

# A's contender goes, as at its session's end.
sub lose_contender
{
	my ($job) = @_;
	$zk->delete(ZkLock::directory($job, 'jobs') . '/' . (ZkLock::queue($zk, $job, 'jobs'))[0]);
	return;
}

# A has not, and B does.
sub is_run_again
{
	my ($job, $waiter) = @_;
	is($waiter->result, '', "$job: the other server's call comes to its end");
	is(rows($a, $job) . rows($b, $job), '01', '... and has run it');
	is(runs($b, $job), 'done b, lost a', '... as the record says');
	ZkLock::wait_queue($zk, $job, 0, 'jobs');
	return;
}

my $most = ZkLock::ask($a, 'SHOW max_worker_processes');
my $keeping = qr/keeping ZooKeeper session \w+ from before the restart until it is known which runs of jobs committed/;
my $few = 2; # the worker, and PostgreSQL's for subscriptions

# A's run has committed, a call of B's waits for it, and A's next life can start no process
# that would settle it.
sub cannot_settle
{
	my ($job) = @_;
	my $run = commit($job);
	my $waiter = wait_for($job);
	lose_zookeeper();
	leave($run);
	my $kept = logged($keeping);
	restart('fast', max_worker_processes => $few);
	$proxy->heal;
	wait_logged($keeping, $kept);
	ZkLock::wait_connected($a);
	return $waiter;
}

# A restart while ZooKeeper is away.
for my $mode ('fast', 'immediate')
{
	my $job = "$mode restart";
	my ($run, $other) = (commit($job), commit("$job, too"));
	my ($waiter, $waiter2) = map { wait_for($_) } $job, "$job, too";
	lose_zookeeper();
	leave($_) for $run, $other;
	restart($mode);
	ok($waiter->busy, "$job: the other server waits");
	$proxy->heal;
	is_once($zk, $a, $b, $job, $waiter);
	is_once($zk, $a, $b, "$job, too", $waiter2);
	ZkLock::wait_connected($a);
}

# The same, and the run has not committed.
for my $mode ('fast', 'immediate')
{
	$gate = Jobs::Gate->new($a);
	my $job = "not committed, $mode";
	my $run = begin_commit($job);
	my $waiter = wait_for($job);
	leave($run);
	restart($mode);
	$proxy->heal;
	is_run_again($job, $waiter);
	ZkLock::wait_connected($a);
}

# All memory is gone with a backend that is killed; the commit is on the disk.
{
	my $run = commit('killed');
	my $waiter = wait_for('killed');
	kill 'KILL', $run->pid;
	ZkLock::hang_up($a);
	is_once($zk, $a, $b, 'killed', $waiter);
	$run->kill_client;
	ZkLock::wait_connected($a);
}

# No process is to be had for settlers, and the log's hint is followed, while ZooKeeper
# answers.
{
	restart('fast', max_worker_processes => $few);
	ZkLock::wait_connected($a);
	my $run = commit('no process');
	my $waiter = wait_for('no process');
	lose_zookeeper();
	leave($run);
	$proxy->heal;
	wait_logged('could not start a process to settle runs of jobs');
	ok($waiter->busy, 'no process: the other server waits');
	restart('fast', max_worker_processes => $most);
	is_once($zk, $a, $b, 'no process', $waiter);
}

# The next life cannot settle it either, and is restarted in its turn.
{
	my $waiter = cannot_settle('twice');
	ok($waiter->busy, 'twice: the other server waits');
	# the session that is kept has a znode of its own
	is(ZkLock::ask($a, q{SELECT string_agg(concat_ws(' ', server, ours, zklock_version IS NOT NULL), ', ' ORDER BY server, ours) FROM zk_servers}),
		'a f t, a t t, b f t', '... and zk_servers shows whose the two sessions are');
	is(ZkLock::ask($_, q{SELECT ok, detail FROM zk_check() WHERE what IN ('server name', 'zklock version')}), "t|no two servers have one name\nt|1.0 on 2", '... which zk_check counts as one server')
		for $a, $b;
	ZkLock::set($a, 'zklock.drain', 'on');
	is(ZkLock::ask($a, 'SELECT drain FROM zk_session'), 'draining', '... nor is a server drained while it keeps one');
	ZkLock::set($a, 'zklock.drain', 'off');
	restart('fast', max_worker_processes => $most);
	is_once($zk, $a, $b, 'twice', $waiter);
}

# ... or crashes.  The old session is left to its timeout then, and the contender goes with it.
{
	my $waiter = cannot_settle('crash');
	restart('immediate', max_worker_processes => $most);
	ZkLock::wait_until(sub { runs($b, 'crash') eq 'done a' }, 'crash: the run is settled');
	ok($waiter->busy, 'crash: the other server waits still');
	lose_contender('crash');
	is_once($zk, $a, $b, 'crash', $waiter);
}

# ... or cannot for longer than the session would last: nobody waits for ever.
{
	my $run = commit('limit');
	my $waiter = wait_for('limit');
	lose_zookeeper();
	leave($run);
	restart('fast', max_worker_processes => $few, 'zklock.session_timeout' => '2s');
	$proxy->heal;
	is($waiter->result, '', 'limit: the other server runs the slot');
	is(runs($b, 'limit'), 'done b, in doubt a', '... as the run is in doubt');
	restart('fast', max_worker_processes => $most, 'zklock.session_timeout' => '1h');
	ZkLock::wait_until(sub { runs($b, 'limit') eq 'done b, done a' }, 'limit: the run is settled');
}

# Where another server has run the slot meanwhile, since the session was over, both are told.
{
	my $run = commit('too late');
	my $waiter = wait_for('too late');
	lose_zookeeper();
	leave($run);
	ZkLock::hang_up($a);
	$a->stop('fast');
	lose_contender('too late');
	is($waiter->result, '', 'too late: the other server runs the slot');
	is(runs($b, 'too late'), 'done b, in doubt a', '... as the run is in doubt');
	$a->start;
	$proxy->heal;
	ZkLock::wait_until(sub { runs($b, 'too late') eq 'done b, done a' }, 'too late: the run is settled');
	is(rows($a, 'too late') . rows($b, 'too late'), '11', '... and had committed, too');
}

# In another database, and in one that is dropped: nobody can tell any more, and nobody waits.
{
	for my $database ('other', 'dropped')
	{
		ZkLock::ask($a, "CREATE DATABASE $database");
		$a->safe_psql($database, 'CREATE EXTENSION zklock; CREATE TABLE t (job text)');
	}
	my @run = map { commit("in $_", $_) } 'other', 'dropped';
	my @waiter = map { wait_for("in $_") } 'other', 'dropped';
	lose_zookeeper();
	leave($_) for @run;
	ZkLock::ask($a, 'DROP DATABASE dropped');
	restart('fast');
	$proxy->heal;
	is($_->result, '', 'other databases: a call comes to its end') for @waiter;
	is(runs($b, 'in other'), 'done a', '... the run of one is settled');
	is(rows($b, 'in other'), 0, '... and not run again');
	is(runs($b, 'in dropped'), 'done b, in doubt a', '... that of the other is in doubt');
}

done_testing();
