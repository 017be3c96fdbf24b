# What is said of jobs is so: a run whose session was told of its loss is not done; and what
# a hint says can be pasted.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(record runs);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'") } qw(a b);
ZkLock::wait_connected($a, $b);
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;
my $slot = "slot => '2026-01-01'";

#
# A loss between zk_run_begin and zk_run_end
#
sub begin
{
	my ($job) = @_;
	is($sa->query("SELECT zk_run_begin('$job', $slot)"), 't', "$job: begun");
	return;
}

# The server hears that its contender is gone; the session need not.
sub lose
{
	my ($job) = @_;
	$zk->delete("/zklock/jobs/$job/" . (ZkLock::queue($zk, $job, 'jobs'))[0]);
	ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /job "$job" was lost while held/ }, "$job: the job is lost");
	return;
}

sub told
{
	my ($job) = @_;
	begin($job);
	lose($job);
	is($sa->fails('SELECT count(*) FROM pg_class'), "55000: job \"$job\" was lost", '... and the session is told');
	return;
}

# Another server runs the slot.
sub is_run_again
{
	my ($job, $state) = @_;
	is($sb->query("SELECT zk_run_begin('$job', $slot, attempts => 2)"), 't', "$job: another server runs the slot");
	is($sb->query("SELECT zk_run_end('$job')"), 't', '... to its end');
	is(runs($b, $job), "done b, $state a", '... and the record says so');
	return;
}

told('told');
my ($hinted) = $sa->notices =~ /HINT:  Use (SELECT .*) to acknowledge the loss\. It records that the run was lost/;
is($hinted, "SELECT zk_run_end('told')", '... and what to call');
is($sa->query($hinted), 'f', '... which does not say that it is done');
like($sa->notices, qr/^WARNING 01000: the run of job "told" is recorded as lost, not as done\nDETAIL:  The job was lost during the run.*\nHINT:  The next call runs the job, if it is still due\.$/, '... but that it was lost');
is(record($b, 'told'), 'lost|a|1|0', '... as the record does');
is($sa->query('SELECT count(*) FROM zk_runs'), 0, '... and zk_runs has no row');
is($sa->query("SELECT zk_run_end('told')"), 'f', '... the run is over');
like($sa->notices, qr/^WARNING 55000: this session has not begun a run/, '... for this session');
is_run_again('told', 'lost');

# Others have taken it over: the newer run is not touched
told('taken over');
is($sb->query("SELECT zk_run_begin('taken over', $slot)"), 't', 'another server takes the job over');
is($sa->query("SELECT zk_run_end('taken over')"), 'f', '... and who has lost it ends');
is(runs($b, 'taken over'), 'running b, lost a', '... which does not touch the other');
is($sb->query("SELECT zk_run_end('taken over')"), 't', '... that goes on');

# The statement that runs is cancelled
begin('cancelled');
$sa->send('SELECT pg_sleep(3600)')->wait_event('PgSleep');
lose('cancelled');
is($sa->failure, '55000: job "cancelled" was lost', '... and the statement is cancelled');
is($sa->query("SELECT zk_run_end('cancelled', true)"), 'f', '... and the run is not done');
is_run_again('cancelled', 'lost');

# The call itself is refused, in a transaction that has relied on the job
begin('refused');
$sa->query('BEGIN; SELECT count(*) FROM pg_class');
lose('refused');
is($sa->fails("SELECT zk_run_end('refused')"), '55000: job "refused" was lost', 'zk_run_end is refused');
$sa->query('ROLLBACK');
is($sa->query("SELECT zk_run_end('refused')"), 'f', '... and the run is not done');
is_run_again('refused', 'lost');

# To give the job up acknowledges the loss, too, and says nothing of success
told('given up');
$sa->query('SELECT pg_advisory_unlock_all()');
is($sa->query("SELECT zk_run_end('given up')"), 'f', 'given up after it was lost: not done');
is_run_again('given up', 'lost');

# Two are lost, and the error names one
begin($_) for 'one', 'two';
lose($_) for 'one', 'two';
like($sa->fails('SELECT count(*) FROM pg_class'), qr/^55000: job "(?:one|two)" was lost/, 'two jobs are lost');
is($sa->query("SELECT zk_run_end('one')") . $sa->query("SELECT zk_run_end('two')"), 'ff', '... neither is done');
is_run_again($_, 'lost') for 'one', 'two';

# A failure is a failure
told('fails');
is($sa->query("SELECT zk_run_end('fails', ok => false)"), 't', 'a session that was told says that it failed');
is(record($b, 'fails'), 'failed|a|1|1', '... and so it has');
is_run_again('fails', 'failed');

# Nothing has failed: it came to its end
begin('not told');
lose('not told');
is($sa->query("SELECT zk_run_end('not told')"), 't', 'a session that was not told has done its work');
like($sa->notices, qr/^WARNING 01000: job "not told" was lost/, '... and is warned');
is(record($b, 'not told'), 'done|a|1|0', '... and so it is done');

# A loss of something else is none of the job's
begin('job');
$sa->query("SELECT zk_lock('lock', scope => 'session')");
$zk->delete(ZkLock::directory('lock') . '/' . (ZkLock::queue($zk, 'lock'))[0]);
ZkLock::wait_until(sub { $sa->fails('SELECT count(*) FROM pg_class') eq '55000: lock "lock" was lost' }, 'a lock is lost beside a job');
is($sa->query("SELECT zk_unlock('lock')") . $sa->query('SELECT count(*) > 0 FROM pg_class'), 'tt', '... and what failed is repeated');
is($sa->query("SELECT zk_run_end('job')"), 't', '... and the job is done');

#
# A job that has failed: the hint is executed as it is
#
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;
sub quoted { my ($text) = @_; return "'" . $text =~ s/'/''/gr . "'"; }
sub call
{
	my ($job, $when, $command) = @_;
	$command //= 'INSERT INTO t VALUES (' . quoted($job) . ')';
	return 'CALL zk_run_once(' . quoted($job) . ', ' . quoted($command) . ", slot => '$when')";
}
sub hinted { my ($session) = @_; return $session->notices =~ /HINT:  .*?(SELECT .*\)) to have it run again\./ ? $1 : 'SELECT 1/0'; }

for my $job ('plain', "it's", 'back\\slash', '"both" \'of\' \\')
{
	$sa->query("SET timezone = 'Asia/Kolkata'");
	$sa->query(call($job, '2026-01-01 03:00:00.001+00'));
	$sa->fails(call($job, '2026-01-02 03:00:00.002+00', 'SELECT 1/0'));
	like($sa->fails(call($job, '2026-01-02 03:00:00.002+00')), qr/^55000: job ".*" has failed for slot 2026-01-02 08:30:00\.002\+05:30$/, "$job: has failed");
	my $hint = hinted($sa);
	$sb->query("SET timezone = 'America/New_York'");
	is($sb->query($hint), 't', "... $hint");
	is($sb->query(call($job, '2026-01-01 03:00:00.001+00')), '', '... and of two slots');
	like($sb->notices, qr/is done for slot/, '... the one that was done is not run again');
	is($sb->query(call($job, '2026-01-02 03:00:00.002+00')), '', '... and the one that has failed');
	is($sb->notices, '', '... is');
}
is(ZkLock::ask($a, 'SELECT count(*) FROM t') . ZkLock::ask($b, 'SELECT count(*) FROM t'), '44', '... each once');

# Without a slot the one that has failed is meant, and then the one last done
$sa->query(call('which', '2026-01-01'));
$sa->fails(call('which', '2026-01-02', 'SELECT 1/0'));
is($sa->query("SELECT zk_job_reset('which')"), 't', 'a reset without a slot');
$sa->query(call('which', '2026-01-01'));
like($sa->notices, qr/is done for slot/, '... does not make the slot due that was done');
is($sa->fails(call('which', '2026-01-02')), '', '... but the one that has failed');
is(record($a, 'which'), 'done|a|2|0', '... which is done');
is($sa->query("SELECT zk_job_reset('which')"), 't', '... and then the one last done');
$sa->query(call('which', '2026-01-02'));
is($sa->notices, '', '... is run again');
$sa->fails(call('again', '2026-01-01', 'SELECT 1/0')) for 1, 2;
is($sa->query("SELECT zk_job_reset('again')"), 't', 'nothing was done, and one slot has failed');
$sa->fails(call('again', '2026-01-01', 'SELECT 1/0'));
is($sa->query("SELECT zk_job_reset('again')"), 't', '... and once more');
is($sa->fails(call('again', '2026-01-01')), '', '... and it is run');

# What changes nothing says so
sub says_so
{
	my ($call, $what) = @_;
	is($sa->query("SELECT $call"), 'f', "$call: changes nothing");
	like($sa->notices, qr/^NOTICE 00000: nothing to $what\nDETAIL:  /, '... and says so');
	return;
}
says_so("zk_job_reset('none')", 'reset for job "none"');
says_so("zk_job_reset('none', '2026-01-01')", 'reset for job "none"');
says_so("zk_job_forget('none')", 'forget of job "none"');
says_so("zk_job_reset('which', '2026-02-01')", 'reset for job "which"');
$sa->query("SELECT zk_run_begin('only begun', $slot)");
says_so("zk_job_reset('only begun')", 'reset for job "only begun"');
$sa->query("SELECT zk_run_end('only begun')");

ZkLock::ok_clean($zk, [ $a, $b ], 'lock', 'after all');
done_testing();
