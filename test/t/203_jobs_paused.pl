# A job that is paused is run by no server; the slots of the pause are left out, and the slot
# in which it ends is run.  What has begun goes on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Clock;
use Jobs qw(rows record runs);
use ZkLock;
use ZooKeeper;

# The ensemble's clock, by which all go.
my $clock = Clock->new;
plan skip_all => 'no compiler' if !$clock && !$ENV{CI};
my $zk = ZooKeeper->new(tick_time => 200);
{
	local @ENV{ $clock->names } = $clock->values;
	$zk->start;
}
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'\ntimezone = 'UTC'") } qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;
my $gate = Jobs::Gate->new($a);

# It is that time of May 2030 for the ensemble.
sub at { my $time = shift; $clock->set(ZkLock::ask($a, "SELECT extract(epoch FROM timestamptz '2030-05-$time UTC')::bigint") - time); return; }
sub call { my ($job, $command) = @_; return "CALL zk_run_once('$job', '" . ($command // "INSERT INTO t VALUES (''$job'')") . "', every => '1 day', attempts => 2)"; }
# What a call on that server says: 'runs', or that it is 'done', or paused until when.
sub says
{
	my ($node, $job) = @_;
	my $s = ZkLock::session($node);
	my $before = rows($node, $job);
	my $error = $s->fails(call($job));
	my ($until) = $s->notices =~ /^NOTICE 00000: job "$job" is paused until (.*), skipping$/m;
	my $said = $error || ($until ? "paused until $until" : $s->notices =~ /is done for slot/ ? 'done' : rows($node, $job) == $before + 1 ? 'runs' : $s->notices);
	$s->quit;
	return $said;
}

# A pause with an end
at('01 03:00');
is(says($a, 'nightly'), 'runs', 'the first night');
is(ZkLock::ask($b, "SELECT zk_job_pause('nightly', '2030-05-05 12:00')"), 't', 'a pause');
is(ZkLock::ask($b, "SELECT state, last_done, next_due, paused_until FROM zk_jobs WHERE job = 'nightly'"), 'done|2030-05-01 00:00:00+00|2030-05-02 00:00:00+00|2030-05-05 12:00:00+00', '... as it is shown');
is(says($_, 'nightly'), 'paused until 2030-05-05 12:00:00+00', '... which all servers keep') for $a, $b;
for my $night ('02', '05')
{
	at("$night 03:00");
	is(says($_, 'nightly'), 'paused until 2030-05-05 12:00:00+00', "night $night is left out by " . $_->name) for $a, $b;
}
at('05 12:01');
is(ZkLock::ask($b, "SELECT paused_until IS NULL FROM zk_jobs WHERE job = 'nightly'"), 't', 'the pause is over');
is(says($b, 'nightly'), 'runs', '... and the slot of the present is run');
is(says($a, 'nightly'), 'done', '... once');
is(ZkLock::ask($a, "SELECT string_agg(r->>'slot', ' ') FROM zk_jobs, jsonb_array_elements(runs) r WHERE job = 'nightly'"), '2030-05-05T00:00:00+00:00 2030-05-01T00:00:00+00:00', '... those of the pause are not');
is(ZkLock::ask($b, "SELECT zk_job_resume('nightly')"), 'f', 'there is no pause to be ended');
is(ZkLock::session($b)->fails("SELECT zk_job_pause('nightly', '2030-05-05 12:00')"), '22023: until must lie in the future', 'nor can one be over by the clock of ZooKeeper');

# A pause without one, by hand
is(ZkLock::ask($a, "SELECT zk_job_pause('nightly')"), 't', 'a pause for ever');
at('08 03:00');
is(says($_, 'nightly'), 'paused until infinity', '... goes on') for $a, $b;
is(ZkLock::ask($a, "SELECT zk_job_reset('nightly')"), 't', 'a slot is reset meanwhile');
is(says($b, 'nightly'), 'paused until infinity', '... and not run');
is(ZkLock::ask($b, "SELECT zk_job_resume('nightly')"), 't', 'it is resumed');
is(says($a, 'nightly'), 'runs', '... and runs the slot of the present');
is(says($b, 'nightly'), 'runs', '... and the one that was reset');
is(says($_, 'nightly'), 'done', '... and no other') for $a, $b;
my $log = PostgreSQL::Test::Utils::slurp_file($b->logfile);
like($log, qr/LOG:  zk_job_pause paused job "nightly" until 2030-05-05 12:00:00\+00\n.*LOG:  zk_job_resume resumed job "nightly"\n/s, 'the log says so');

# A job that nobody has called yet, with a run that begins as soon as it is resumed
is(ZkLock::ask($b, "SELECT zk_job_pause('new')"), 't', 'a job that nobody knows');
is(says($a, 'new'), 'paused until infinity', '... is not run');
is(ZkLock::ask($a, "SELECT zk_job_resume('new')") . says($a, 'new'), 'truns', '... until it is resumed');

# What has begun goes on, and nobody who waits for it goes on with it
my ($ra, $rb, $by_hand) = (ZkLock::session($a), ZkLock::session($b), ZkLock::session($b));
for my $end (qw(done failed lost))
{
	my $job = "$end meanwhile";
	my $then = $end eq 'failed' ? '; SELECT 1/0' : '';
	$gate->stand($ra, call($job, "INSERT INTO t VALUES (''$job''); $Jobs::at_gate$then"));
	$rb->send(call($job))->wait_event('Extension');
	is($by_hand->query("SELECT zk_job_pause('$job')"), 't', 'a pause while it runs, at once');
	is(record($b, $job), 'running|a|1|0', '... and it goes on');
	is($by_hand->query("SELECT zk_run_begin('$job', every => '1 day', timeout => '0')"), 'f', '... nobody else does');
	is($by_hand->notices, qq{NOTICE 00000: job "$job" is being run by server "a", skipping}, '... as long as it runs');
	$end eq 'lost' ? $ra->terminate : $gate->open;
	my $said = $end eq 'done' ? '' : $end eq 'failed' ? '22012: division by zero' : '57P01: terminating connection due to administrator command';
	is($ra->failure, $said, "it is $end");
	is($rb->result, '', '... and who has waited');
	is($rb->notices, qq{NOTICE 00000: job "$job" is paused until infinity, skipping}, '... is told of the pause');
	is(runs($b, $job), "$end a", '... and does not run it');
	is($by_hand->query("SELECT zk_job_resume('$job')"), 't', '... before it is resumed');
	is(says($b, $job), $end eq 'done' ? 'done' : 'runs', '... and then as always');
	is(rows($a, $job) + rows($b, $job), 1, '... once');
}
$gate->open;

# A session that has begun a run pauses the job itself
is($by_hand->query("SELECT zk_run_begin('own', every => '1 day')") . $by_hand->query("SELECT zk_job_pause('own')") . $by_hand->query("SELECT zk_run_end('own')"), 'ttt', 'from within a run');
is(record($a, 'own'), 'done|b|1|0', '... which ends as always');

# Rights
ZkLock::ask($a, 'CREATE ROLE batch; GRANT EXECUTE ON PROCEDURE zk_run_once TO batch');
my $batch = ZkLock::session($a);
$batch->query('SET ROLE batch');
like($batch->fails("SELECT zk_job_$_('own')"), qr/^42501: permission denied for function zk_job_$_/, "zk_job_$_ is for superusers, until granted") for qw(pause resume);

# If the ensemble forgets, it forgets the pause
$zk->set('/zklock/jobs/own', '');
is(says($a, 'own'), 'runs', 'a record that is lost takes the pause along');

done_testing;
