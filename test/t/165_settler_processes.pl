# One worker process that is free does for all databases with runs to be settled; where there
# is none the log says once what to do, and the job waits.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
# zklock's own is the first
my $a = ZkLock::server('a', $proxy, init => { allows_streaming => 1 },
	conf => "zklock.session_timeout = '1h'\nzklock.connect_timeout = '1h'\nsynchronous_commit = local\nsynchronous_standby_names = 'nobody'\nmax_logical_replication_workers = 0\nmax_worker_processes = 1");
ZkLock::wait_connected($a);
my @databases = qw(d1 d2);
ZkLock::ask($a, "CREATE DATABASE $_") for @databases;
for my $database (@databases)
{
	my $s = ZkLock::session($a, dbname => $database);
	$s->query('CREATE EXTENSION zklock');
	$s->quit;
	# without ZooKeeper the session cannot record the end
	my $run = ZkLock::session($a, dbname => $database);
	$run->query('SET synchronous_commit = on');
	$run->send("CALL zk_run_once('$database', 'CREATE TABLE t ()', slot => '2026-01-01')")->wait_event('SyncRep');
	$proxy->down;
	$run->terminate;
	$run->failure;
	$proxy->heal;
	ZkLock::wait_connected($a);
}

sub warnings_of { return scalar(() = PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /WARNING:  could not start a process to settle runs of jobs\n.*DETAIL:  Runs that are in doubt stay so.*\n.*HINT:  You might need to increase "max_worker_processes"/g); }
ZkLock::wait_until(sub { warnings_of() > 0 }, 'no process is free: the log says what to do');
my $other = ZkLock::session($a, dbname => "d1");
$other->send("CALL zk_run_once('d1', 'SELECT 1', slot => '2026-01-01')")->wait_event('Extension');
is(ZkLock::queue($zk, 'd1', 'jobs'), 1, '... and the job waits');
is(warnings_of(), 1, '... which it says once');
$other->cancel->failure;

ZkLock::ask($a, 'ALTER SYSTEM SET max_worker_processes = 2');
ZkLock::hang_up($a);
$a->restart;
ZkLock::wait_connected($a);
my $seen;
ZkLock::wait_until(sub { ($seen = ZkLock::ask($a, "SELECT string_agg(state, ' ' ORDER BY job) FROM zk_jobs")) eq 'done done' }, 'one process settles both', sub { $seen });
is($seen, 'done done', 'one process settles the runs of both databases');
is(warnings_of(), 1, '... and nothing more is said');

done_testing();
