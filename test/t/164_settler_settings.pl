# What the owner of a database sets there, or somebody does, keeps no other database's runs
# from being settled, and its own only if it must.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Proxy;
use Test::More;
use Time::HiRes qw(time);
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
my $a = ZkLock::server('a', $proxy, init => { allows_streaming => 1 },
	conf => "zklock.session_timeout = '1h'\nzklock.connect_timeout = '1h'\nsynchronous_commit = local\nsynchronous_standby_names = 'nobody'");
ZkLock::wait_connected($a);
my @databases = qw(d1 d2);
ZkLock::ask($a, "CREATE DATABASE $_") for @databases;
my ($d1, $d2) = map { ZkLock::session($a, dbname => $_) } @databases;
$_->query('CREATE EXTENSION zklock; CREATE TABLE t (job text)') for $d1, $d2;
$d1->query("ALTER DATABASE d1 SET $_") for 'default_transaction_isolation = serializable', 'default_transaction_read_only = on',
	'default_transaction_deferrable = on', 'search_path = nowhere', 'synchronous_commit = on';

my @limits = ('lock_timeout', $a->pg_version >= 17 ? 'transaction_timeout' : ());

# In each database a run has committed, and nobody could say so: its session has left it to
# the server, or the server has crashed, and has but its tables to go by.
sub leave
{
	my ($job, $crash) = @_;
	my @run = map { ZkLock::session($a, dbname => $_) } @databases;
	for (0, 1)
	{
		$run[$_]->query('SET default_transaction_isolation = "read committed"; SET default_transaction_read_only = off; SET search_path = public; SET synchronous_commit = on' . join '', map { "; SET $_ = 0" } @limits);
		$run[$_]->send("CALL zk_run_once('$job $databases[$_]', 'INSERT INTO t VALUES (1)', slot => '2026-01-01')")->wait_event('SyncRep');
	}
	$proxy->down;
	if ($crash)
	{
		$_->quit for $d1, $d2;
		ZkLock::hang_up($a);
		$a->stop('immediate');
		$_->failure for @run;
		$a->start;
		($d1, $d2) = map { ZkLock::session($a, dbname => $_) } @databases;
		# the limits are for the settlers
		$_->query("SET synchronous_commit = local" . join '', map { "; SET $_ = 0" } @limits) for $d1, $d2;
	}
	else
	{
		$_->terminate for @run;
		$_->failure for @run;
	}
	return;
}

sub state_of { my ($job) = @_; return ZkLock::ask($a, "SELECT state FROM zk_jobs WHERE job = '$job'"); }

sub settles
{
	my ($job, $what) = @_;
	my $seen;
	ZkLock::wait_until(sub { ($seen = state_of($job)) eq 'done' }, $what, sub { $seen });
	return pass($what);
}

# A transaction of d1 that is read only and deferrable would wait for this one.
leave('settings');
$d1->query('BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE; INSERT INTO public.t VALUES (0)');
$proxy->heal;
settles('settings d2', 'the run of the other database is settled');
settles('settings d1', '... and that of this one');
$d1->query('ROLLBACK');

# Its table is locked, and it alone waits; no limit of the database ends the wait.
$d1->query("ALTER DATABASE d1 SET $_ = '1s'") for @limits;
leave('locked', 1);
$d1->query('BEGIN READ WRITE; LOCK TABLE public.zk_runs');
$proxy->heal;
sub waits { return ZkLock::ask($a, 'SELECT pid FROM pg_locks WHERE NOT granted'); }
my $waits;
ZkLock::wait_until(sub { ($waits = waits()) ne '' }, 'a process waits for the table');
my $since = time;
ZkLock::wait_until(sub { time > $since + 2 }, 'the time of the limits is over');
is(waits(), $waits, 'no limit of the database ends the wait for its table');
settles('locked d2', 'a locked table keeps no other database waiting');
isnt(state_of('locked d1'), 'done', '... but its own');
$d1->query('ROLLBACK');
settles('locked d1', '... until it is not locked any more');

# It cannot be read.
leave('error', 1);
$d1->query('BEGIN READ WRITE; ALTER TABLE public.zk_runs ADD CHECK (true); COMMIT');
$proxy->heal;
settles('error d2', 'nor does an error');
ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /LOG:  could not settle the runs of job "error d1"\n.*DETAIL:  table "zk_runs" is not as extension "zklock" made it\n.*HINT:  Undo the change/ }, 'the log says which, and why');
$d1->query('BEGIN READ WRITE; ALTER TABLE public.zk_runs DROP CONSTRAINT zk_runs_check; COMMIT');
settles('error d1', '... and when that is undone it is settled');

# Nobody can tell any more.  The job is not held for that.
leave('gone');
$_->quit for $d1, $d2;
ZkLock::ask($a, 'DROP DATABASE d1 WITH (FORCE)');
$proxy->heal;
settles('gone d2', 'the run of a database is settled');
ZkLock::wait_queue($zk, 'gone d1', 0, 'jobs');
# the line comes after that
ok(ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /LOG:  job "gone d1": run 1 stays in doubt\n.*DETAIL:  Its database is gone/ }, 'the log says so'),
	'... and of one that is dropped the log says that it is not');

done_testing();
