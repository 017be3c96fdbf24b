# Runs of jobs that lose their lock, or ZooKeeper; what an ensemble forgets; databases,
# encodings and roles.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(rows record);
use Test::More;
use Proxy;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'") } qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;
my ($ra, $sb) = map { ZkLock::session($_) } $a, $b;
my $gate = Jobs::Gate->new($a);
my $slot = "slot => '2026-01-01'";


# Its contender is deleted: the command is cancelled, and another runs the slot.
for my $on_loss ('abort', 'warn')
{
	my $job = "deleted, $on_loss";
	$ra->query("SET zklock.on_loss = $on_loss");
	$gate->stand($ra, "CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job''); $Jobs::at_gate', $slot)");
	$sb->send("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', $slot)");
	$sb->wait_event('Extension');
	ZkLock::wait_until(sub { ZkLock::queue($zk, $job, 'jobs') == 2 }, 'both are in the queue');
	$zk->delete("/zklock/jobs/$job/" . (ZkLock::queue($zk, $job, 'jobs'))[0]);
	is($sb->result, '', "$job: another runs it");
	$gate->open if $on_loss eq 'warn';
	is($ra->failure, "40001: job \"$job\" was lost", '... and it is lost');
	$gate->open if $on_loss eq 'abort';
	is(rows($a, $job) . rows($b, $job), '01', '... run once');
	is(record($b, $job), 'done|b|2|0', '... as the record says');
	is($ra->query('SELECT 1'), 1, '... and the session goes on');
}
$ra->query('RESET zklock.on_loss');

# It is lost before the run has begun, while the record is asked for: the error says so.
# (Should the lease have lapsed even before that, it is another one: then once more.)
{
	my $proxy = Proxy->new($zk->host);
	my $c = ZkLock::server('c', $proxy, conf => "zklock.session_timeout = '10s'\nzklock.connect_timeout = '2min'");
	my $rc = ZkLock::session($c);
	for my $call ("CALL zk_run_once('early', 'SELECT 1', $slot)", "SELECT zk_run_begin('early', $slot)", "CALL zk_run_begin_session('early', $slot)")
	{
		my $error;
		for (1 .. 20)
		{
			$proxy->heal->accept;
			ZkLock::wait_connected($c);
			$proxy->refuse->lose_request('get', '/jobs/early');
			$error = $rc->fails($call);
			last unless $error =~ /^58000/;
		}
		is($error, '40001: job "early" was lost', "lost before it has begun: $call");
	}
	$proxy->heal->accept;
	ZkLock::wait_connected($c);
	is(ZkLock::ask($c, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, '... and nothing is held');
	$c->stop;
}

# ZooKeeper goes while it runs, and stays away: it cannot commit.  On a slow machine the short
# timeout may be over before it has begun: then another one.
$ra->query("SET zklock.connect_timeout = '1s'");
my $away;
for my $try (1 .. 20)
{
	$away = "away $try";
	last if eval { $gate->stand($ra, "CALL zk_run_once('$away', 'INSERT INTO t VALUES (''$away''); $Jobs::at_gate', $slot)") };
	die $@ if $ra->failure !~ /^58000: could not reach ZooKeeper/;
	$gate->open;
}
$zk->stop;
$gate->open;
like($ra->failure, qr/^58000: /, 'ZooKeeper is away: no commit');
like($ra->notices, qr/WARNING 01000: the end of a run of job "$away" could not be recorded\nDETAIL:  The run failed\. /, '... and nothing can be recorded');
is(rows($a, $away), 0, '... nothing has been done');
$zk->start;
$ra->query('RESET zklock.connect_timeout');
ZkLock::wait_connected($a, $b);
$sb->query("CALL zk_run_once('$away', 'INSERT INTO t VALUES (''$away'')', $slot)");
is(rows($b, $away), 1, '... and another runs it later');

# Two databases of one server
ZkLock::ask($a, 'CREATE DATABASE other');
my $other = ZkLock::session($a, dbname => 'other');
$other->query('CREATE EXTENSION zklock; CREATE TABLE t (job text)');
$other->query("CALL zk_run_once('two', 'INSERT INTO t VALUES (''two'')', $slot)");
$ra->query("CALL zk_run_once('two', 'INSERT INTO t VALUES (''two'')', $slot)");
is($other->query('SELECT count(*) FROM t') . rows($a, 'two'), '10', 'two databases run it once');

# Another encoding: names and errors
ZkLock::ask($a, "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
my $latin = ZkLock::session($a, dbname => 'latin');
$latin->query('CREATE EXTENSION zklock');
like($latin->fails("CALL zk_run_once('j\xc3\xa4hrlich', 'DO \$\$BEGIN RAISE EXCEPTION ''\xc3\xbcbel''; END\$\$', $slot)"), qr/^P0001: /, 'an error in LATIN1');
is(ZkLock::ask($b, "SELECT job = U&'j\\00e4hrlich', error = U&'\\00fcbel' FROM zk_jobs WHERE state = 'failed'"), 't|t', '... is seen in UTF8');
is($latin->query("SELECT count(*) FROM zk_jobs WHERE job = U&'j\\00e4hrlich' AND error = U&'\\00fcbel' AND runs->0->>'error' = error"), 1, '... and there');

# Roles
ZkLock::ask($a, $_) for 'CREATE ROLE nobody LOGIN', 'CREATE ROLE batch LOGIN', 'CREATE ROLE watch LOGIN IN ROLE pg_monitor',
  'GRANT EXECUTE ON PROCEDURE zk_run_once, zk_run_begin_session TO batch', 'GRANT EXECUTE ON FUNCTION zk_run_begin, zk_run_end TO batch',
  'CREATE TABLE b (i int)', 'GRANT INSERT ON b TO batch';
my ($nobody, $batch, $watch) = map { ZkLock::session($a, user => $_) } qw(nobody batch watch);
like($nobody->fails($_), qr/^42501: permission denied for (?:function|procedure|view|table) zk_/, "not for everybody: $_")
  for "CALL zk_run_once('x', 'SELECT 1', $slot)", "SELECT zk_run_begin('x', $slot)", "CALL zk_run_begin_session('x', $slot)",
  "SELECT zk_run_end('x')", "SELECT zk_job_reset('x')", "SELECT zk_job_forget('x')", 'SELECT * FROM zk_jobs', "SELECT * FROM zk_rows('zk_jobs') AS (error text)",
  'SELECT * FROM zk_runs';
like($batch->fails($_), qr/^42501: /, "not for those who run: $_")
  for "SELECT zk_job_reset('x')", "SELECT zk_job_forget('x')", 'SELECT * FROM zk_jobs', 'SELECT * FROM zk_runs', 'INSERT INTO zk_runs DEFAULT VALUES';
is($batch->query("CALL zk_run_once('role', 'INSERT INTO b VALUES (1)', $slot)"), '', 'one who may runs it');
is($batch->fails("CALL zk_run_once('role', 'SELECT * FROM b', slot => '2026-01-02')"), '42501: permission denied for table b', '... with his rights');
is($watch->query("SELECT outcome, error FROM zk_runs WHERE name = 'role' ORDER BY number"), "done|\nfailed|permission denied for table b", 'who monitors sees that');
is($watch->query("SELECT state FROM zk_jobs WHERE job = 'role'"), 'failed', '... and what ZooKeeper has');

# The ensemble forgets all: what a server has done itself it does not do again.
$ra->query("CALL zk_run_once('wiped', 'INSERT INTO t VALUES (''wiped'')', $Jobs::daily)");
ZkLock::hang_up($_) for $a, $b;
$_->stop for $a, $b;
for my $job (map { "/zklock/jobs/$_" } $zk->children('/zklock/jobs'))
{
	$zk->delete("$job/$_") for $zk->children($job);
	$zk->delete($job);
}
$_->start for $a, $b;
ZkLock::wait_connected($a, $b);
$ra = ZkLock::session($a);
$ra->query("CALL zk_run_once('wiped', 'INSERT INTO t VALUES (''wiped'')', $Jobs::daily)");
is(rows($a, 'wiped'), 1, 'an ensemble that has forgotten');
like($ra->notices, qr/^NOTICE 00000: job "wiped" is done for slot [^\n]*$/, '... is told by the server');
$sb = ZkLock::session($b);
$sb->query("CALL zk_run_once('wiped', 'INSERT INTO t VALUES (''wiped'')', $Jobs::daily)");
is(rows($b, 'wiped'), 0, '... and so the others know, too');

# Nothing is left
is(ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, 'nothing is held');

done_testing();
