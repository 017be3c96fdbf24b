# When a job is due is told by the ensemble's clock: those of the servers may be wrong, and
# are set while runs go on.  What becomes of it if the ensemble's own was wrong.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Clock;
use Jobs ();
use ZkLock;
use ZooKeeper;

my %clock = (a => Clock->new, b => Clock->new(5400), c => Clock->new(-5400), zk => Clock->new);
plan skip_all => 'no compiler' if !$clock{a} && !$ENV{CI};
sub with
{
	my ($name, $code) = @_;
	local @ENV{ $clock{$name}->names } = $clock{$name}->values;
	return $code->();
}

my $zk = ZooKeeper->new(tick_time => 200);
with(zk => sub { $zk->start });
my ($a, $b, $c) = map {
	my $name = $_;
	with($name => sub { ZkLock::server($name, $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = '$name'") });
} qw(a b c);
my @all = ($a, $b, $c);
ZkLock::wait_connected(@all);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for @all;

sub rows { my $job = shift; return join ' ', map { ZkLock::ask($_, "SELECT count(*) FROM t WHERE job = '$job'") } @all; }
# Calls of all of them, in this order; returns what they say
sub calls
{
	my ($job, @nodes) = @_;
	my @said;
	for my $node (@nodes)
	{
		my $s = ZkLock::session($node);
		push @said, $s->fails("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', $Jobs::hourly)")
		  . ($s->notices =~ /job "$job" is done for slot .*, skipping/ ? 'done' : '') . ($s->notices =~ /HINT:  The slot lies ahead/ ? ', ahead' : '');
		$s->quit;
	}
	return join ' ', map { $_ || 'runs' } @said;
}

my $far = "extract(epoch FROM now() - to_timestamp(@{[ time ]})) / 3600";
is(join(' ', map { ZkLock::ask($_, "SELECT round($far, 0) <> 0, ($far) > 1, ($far) < -1") } @all), 'f|f|f t|t|f t|f|t', 'clocks: right, fast, slow');

for my $order ([ $a, $b, $c ], [ $b, $c, $a ], [ $c, $a, $b ])
{
	my ($first, @others) = map { $_->name } @$order;
	is(calls("first $first", @$order), 'runs done done', "$first first");
	is(join(' ', sort split / /, rows("first $first")), '0 0 1', '... and once');
	is(calls("first $first", @$order), 'done done done', '... and not again');
}
# All see the same
my @seen = map { ZkLock::ask($_, 'SELECT job, slot, state, server, since, duration, last_done, next_due - last_done FROM zk_jobs ORDER BY 1') } @all;
is($seen[1], $seen[0], 'zk_jobs is the same everywhere');
is($seen[2], $seen[0], '... indeed');
like($seen[0], qr/\|01:00:00$/, '... and tells when it is due');
is(ZkLock::ask($b, "SELECT ended - slot > '1 h' FROM zk_runs"), 't', 'zk_runs has the times of its server');

# Slots that are given come from the servers' clocks
# of one moment: an hour may end between two calls
my %hour = map { $_->name => ZkLock::ask($_, "SELECT date_trunc('hour', now())") } @all;
ZkLock::session($_)->query("CALL zk_run_once('given', 'INSERT INTO t VALUES (''given'')', slot => '$hour{ $_->name }')") for $c, $a, $b, $a, $c;
is(rows('given'), '1 1 1', 'slots that servers make are theirs');

# A clock is set while a run goes on
my ($gate, $run) = map { ZkLock::session($a) } 1, 2;
for my $set (86400, -86400, 0)
{
	my $job = "set to $set";
	$gate->query('SELECT pg_advisory_lock(1)');
	my $pid = $run->pid;
	$run->send("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job''); SELECT pg_advisory_xact_lock(1)', $Jobs::hourly)");
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT wait_event FROM pg_stat_activity WHERE pid = $pid") eq 'advisory' }, 'it runs');
	$clock{a}->set($set);
	ok($run->busy, "a clock is $job while a run goes on");
	is(ZkLock::ask($a, "SELECT duration < '12 h' FROM zk_jobs WHERE job = '$job'"), 't', '... which has not taken so long');
	$gate->query('SELECT pg_advisory_unlock(1)');
	is($run->result, '', '... and ends well');
	is(calls($job, @all), 'done done done', '... and is done');
	is(rows($job), '1 0 0', '... once');
}

# The ensemble's clock goes on: what was done is due again, for everybody
$clock{zk}->set(3600);
is(calls('first b', @all), 'runs done done', 'an hour later');
# ... and is set back, as that of a new leader.  What was done lies ahead.
$clock{zk}->set(0);
is(calls('first b', @all), 'done, ahead done, ahead done, ahead', "the ensemble's clock is set back");
sub reset_job { my ($node, $job) = @_; return ZkLock::ask($node, "SELECT zk_job_reset('$job')"); }
sub forget { my ($node, $job) = @_; return ZkLock::ask($node, "SELECT zk_job_forget('$job')"); }
is(reset_job($c, 'first b'), 't', '... until it is reset');
is(ZkLock::ask($a, "SELECT next_due = last_done AND last_done > '2020-01-01' AND last_done < slot FROM zk_jobs WHERE job = 'first b'"), 't', '... which makes the present slot due');
is(calls('first b', $c, $a, $b), 'runs done done', '... and it is run, and as before then');
is(ZkLock::ask($a, "SELECT next_due - slot, slot = last_done FROM zk_jobs WHERE job = 'first b'"), '01:00:00|t', '... the next one is due in time');

# What was done while it was far ahead, also by servers that know it from their own tables
# alone: one call mends it, whoever makes it
sub wiped
{
	my ($job) = @_;
	ZkLock::wait_until(sub { !ZkLock::queue($zk, $job, 'jobs') }, 'nobody is in the queue');
	$zk->delete("/zklock/jobs/$job");
}
my %mend = (
	'reset' => sub { my $job = shift; return reset_job($c, $job); },
	'forgotten' => sub { my $job = shift; return forget($c, $job); },
	'wiped and reset' => sub {
		my $job = shift;
		wiped($job);
		is(calls($job, $a, $b), 'done, ahead done, ahead', "$job: the record is made anew");
		return reset_job($c, $job);
	},
	'wiped and forgotten' => sub {
		my $job = shift;
		wiped($job);
		is(forget($c, $job), 'f', "$job: nothing is known to one who has not run it");
		wiped($job) if grep { $_ eq $job } $zk->children('/zklock/jobs');
		return forget($a, $job);
	},
	'wiped, run elsewhere and forgotten' => sub {
		my $job = shift;
		wiped($job);
		is(calls($job, $c), 'runs', "$job: by one who knows nothing");
		return forget($c, $job);
	});
$clock{zk}->set(86400 * 365);
is(calls($_, $a), 'runs', "$_: a year ahead") for sort keys %mend;
$clock{zk}->set(86400 * 366);
is(calls($_, $b), 'runs', "$_: ... and a day later on another server") for sort keys %mend;
$clock{zk}->set(0);
for my $job (sort keys %mend)
{
	is(calls($job, @all), 'done, ahead done, ahead done, ahead', "$job: ... and back");
	is($mend{$job}->($job), 't', "$job: mended by one call");
	is(calls($job, $a, $b, $c), 'runs done done', '... and it runs, though the server has run it then');
	is(calls($job, $b, $c, $a), 'done done done', '... once');
	is(ZkLock::ask($a, "SELECT slot = last_done, next_due - slot FROM zk_jobs WHERE job = '$job'"), 't|01:00:00', '... and again when that is due');
}
# What was done since counts when the ensemble forgets
wiped('reset');
is(calls('reset', $a), 'done, ahead', 'a record that is lost takes along what was mended');
is(reset_job($a, 'reset'), 't', '... which is done again');

# With slots that are given nothing lies ahead
sub given { my ($node, $slot) = @_; my $s = ZkLock::session($node); return $s->fails("CALL zk_run_once('slots', 'INSERT INTO t VALUES (''slots'')', slot => '$slot')") . ($s->notices =~ /is done for slot/ ? 'done' : 'runs'); }
is(given($a, $_), 'runs', "slot $_") for qw(2100-01-01 2100-01-03);
is(ZkLock::ask($a, "SELECT zk_job_reset('slots', '2100-01-01')"), 't', 'one of them is reset');
is(join(' ', map { given($b, $_) } qw(2100-01-02 2100-01-03 2100-01-01 2100-01-01)), 'done done runs done', '... and nothing else is due');

ZkLock::ok_clean($zk, \@all, 'reset', 'after all');
done_testing();
