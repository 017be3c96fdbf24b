# A run whose own server lives is settled by that server, whatever ends its session between
# the record that it commits and the record of its end; and nobody else has the job before.
#
# The commit waits for a standby that is not there, and with the worker stopped nothing can be
# recorded.
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

# A run of A's waits for its standby, and a call of B's for the run.
sub stand
{
	my ($job) = @_;
	my $run = ZkLock::session($a);
	my $waiter = ZkLock::session($b);
	my $call = "CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '2026-01-01')";
	$run->query('SET synchronous_commit = on');
	$run->send($call)->wait_event('SyncRep');
	$waiter->send($call)->wait_event('Extension');
	return ($run, $waiter);
}

my ($run, $waiter) = stand('terminate');
$run->terminate;
like($run->failure, qr/^(?:57P0|lost)/, 'terminated while it commits');
is_once($zk, $a, $b, 'terminate', $waiter);

($run, $waiter) = stand('cancel');
$run->cancel;
is($run->failure, '', 'cancelled while it commits: it goes on');
is_once($zk, $a, $b, 'cancel', $waiter);

# The client is gone, and the server looks whether it is
ZkLock::set($a, client_connection_check_interval => '100ms');
($run, $waiter) = stand('client');
$run->kill_client;
ZkLock::ask($a, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
is_once($zk, $a, $b, 'client', $waiter);

# Without ZooKeeper nobody can record it, and the session cannot wait for that: the server
# keeps the job.
for my $how (qw(terminate cancel))
{
	my $job = "$how without ZooKeeper";
	($run, $waiter) = stand($job);
	$proxy->down;
	$run->cancel; # the wait for the standby
	$run->wait_event('Extension');
	$run->$how;
	$run->failure;
	$run->quit;
	ok($waiter->busy, "$job: others wait");
	my $other = ZkLock::session($a);
	$other->send("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '2026-01-01')")->wait_event('Extension');
	pass('... here, too');
	$proxy->heal;
	is_once($zk, $a, $b, $job, $waiter);
	is($other->result, '', '... and here it is not run again, either');
	like(PostgreSQL::Test::Utils::slurp_file($a->logfile), qr/LOG:  job "$job": run 1 is no longer in doubt: it is done\n/, '... the log says what was found');
}

# PostgreSQL knows what became of a transaction, also where zk_runs is another one.
for my $again (0, 1)
{
	my $job = $again ? 'made anew' : 'dropped';
	($run, $waiter) = stand($job);
	$proxy->down;
	$run->cancel;
	$run->wait_event('Extension');
	$run->terminate;
	$run->failure;
	$run->quit;
	ZkLock::ask($a, 'DROP EXTENSION zklock' . ($again ? '; CREATE EXTENSION zklock' : ''));
	$proxy->heal;
	is($waiter->result, '', "the extension is $job: the other server's call comes to its end");
	like($waiter->notices, qr/is done for slot/, '... as it is done');
	is(rows($a, $job) . rows($b, $job), '10', '... and has not run it again');
	ZkLock::ask($a, 'CREATE EXTENSION IF NOT EXISTS zklock');
	ZkLock::wait_connected($a);
}

# A server that is shut down meanwhile says it, too.
($run, $waiter) = stand('shutdown');
$a->stop('fast');
is($waiter->result, '', 'shutdown: the other server comes to its end');
like($waiter->notices, qr/is done for slot/, '... as it is done');
$a->start;
ZkLock::hang_up($a);
is(rows($a, 'shutdown') . rows($b, 'shutdown'), '10', '... once');

# All memory is gone with a backend that is killed; if nobody comes before, it is settled.
$run = ZkLock::session($a);
ZkLock::wait_connected($a);
$run->query('SET synchronous_commit = on');
$run->send("CALL zk_run_once('kill', 'INSERT INTO t VALUES (''kill'')', slot => '2026-01-01')")->wait_event('SyncRep');
kill 'KILL', $run->pid;
ZkLock::hang_up($a);
$run->kill_client;
my $seen;
ZkLock::wait_until(sub { ($seen = runs($b, 'kill')) eq 'done a' }, 'a backend is killed: the run is settled', sub { $seen });
pass('a backend is killed: the run is settled');

done_testing();
