# Copies of a server: a run of the one that commits cannot be told of by the other, which has
# no row of it, be it that both are in use, or that the other takes its place.  What it has a
# row of has committed.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(rows);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $a = ZkLock::server('a', $zk,
	init => { allows_streaming => 1 },
	conf => "zklock.session_timeout = '1h'\nsynchronous_commit = local\nsynchronous_standby_names = 'nobody'\n"
	  # a standby that comes late needs the log from its backup on
	  . 'wal_keep_size = 1GB');
ZkLock::wait_connected($a);
ZkLock::ask($a, 'CREATE TABLE t (job text)');
$a->backup('copy');

sub job { my ($node, $job) = @_; return ZkLock::ask($node, "SELECT state, server FROM zk_jobs WHERE job = '$job'"); }
sub call { my ($job) = @_; return "CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '2026-01-01', in_doubt => 'skip')"; }

# A copy of the data directory as it was, on the same timeline, or a standby
sub copy
{
	my ($node_name, $server_name, $backup, %option) = @_;
	my $node = PostgreSQL::Test::Cluster->new($node_name);
	$node->init_from_backup($a, $backup, %option);
	$node->append_conf('postgresql.conf', "zklock.server_name = '$server_name'");
	$node->start;
	ZkLock::wait_connected($node);
	return $node;
}

# A run whose commit is on A's disk, and waits
sub commits
{
	my ($job) = @_;
	my $run = ZkLock::session($a);
	$run->query('SET synchronous_commit = on');
	return $run->send(call($job))->wait_event('SyncRep');
}

# ... is no more in the queue, which its server does not hear of
sub gone
{
	my ($job) = @_;
	my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
	kill 'STOP', $worker or die;
	$zk->delete("/zklock/jobs/$job/" . (ZkLock::queue($zk, $job, 'jobs'))[0]);
	return $worker;
}

#
# Copies that are in use beside it: of another name, and one that is like it in all
#
for my $name ('copy', 'a')
{
	my $job = "beside it: $name";
	my $run = commits($job);
	my $copy = copy("beside_$name", $name, 'copy');
	my $worker = gone($job);
	my $s = ZkLock::session($copy);
	is($s->fails(call($job)), '', "$job: the copy comes to it");
	like($s->notices, qr/DETAIL:  Server "a" was lost while it committed at .*, and that counts as done/, '... and does not say that it has not committed');
	is(job($copy, $job), 'in doubt|a', '... nor does the record');
	kill 'CONT', $worker or die;
	$run->cancel;
	$run->failure;
	ZkLock::wait_until(sub { job($copy, $job) eq 'done|a' }, 'its own server says that it has');
	is(rows($a, $job) . rows($copy, $job), '10', '... and once it has');
	$s->quit;
	ZkLock::hang_up($copy);
	$copy->stop;
}

#
# Standbys that take its place: one has the row, one has not, since it does not stream
#
my $behind = copy('behind', 'behind', 'copy', has_streaming => 1);
ZkLock::ask($a, 'SELECT pg_switch_wal()');
ZkLock::wait_until(sub { ZkLock::ask($behind, 'SELECT count(*) FROM pg_stat_wal_receiver') == 1 }, 'the one streams');
$behind->append_conf('postgresql.conf', "primary_conninfo = ''");
$behind->reload;
ZkLock::wait_until(sub { ZkLock::ask($behind, 'SELECT count(*) FROM pg_stat_wal_receiver') == 0 }, '... no more');
my $standby = copy('standby', 'standby', 'copy', has_streaming => 1);
my $run = commits('failover');
$a->wait_for_catchup($standby, 'replay', $a->lsn('flush'));
ZkLock::hang_up($a);
$a->stop('immediate');
like($run->failure, qr/^lost/, "the server is lost");
is(job($standby, 'failover'), 'running|a', '... with a run that commits');
$zk->delete('/zklock/jobs/failover/' . (ZkLock::queue($zk, 'failover', 'jobs'))[0]);

$behind->promote;
my $s = ZkLock::session($behind);
is($s->fails(call('failover')), '', 'a standby that lacks it');
like($s->notices, qr/DETAIL:  Server "a" was lost while it committed at .*, and that counts as done/, '... cannot tell');
is(job($behind, 'failover'), 'in doubt|a', '... indeed');
is(rows($behind, 'failover'), 0, '... and leaves it to the caller');

$standby->promote;
ZkLock::wait_until(sub { job($behind, 'failover') eq 'done|a' }, 'a standby that has it says so, as soon as it is promoted');
is(rows($standby, 'failover'), 1, '... indeed');

done_testing();
