# jobs.pl - whatever of a job is interrupted, wherever: it is run once, and nothing is held.
#
# As interrupts.pl: a statement is run with its first point failing, its second, and so on
# until no point fails (faults.h).  Each time nothing is held afterwards but what a session
# has begun; and when the statement has been repeated as a scheduler would, each slot has
# been run once, and the record says so.  Another server that waits for the run meanwhile does
# not run it again, either: in whichever moment between the record that it commits and the
# record of its end the session is ended, its server has the job until that is recorded.
use strict;
use warnings;

use FindBin;
use Jobs ();
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '10min'\nzklock.connect_timeout = '1h'\nautovacuum = off");
ZkLock::wait_connected($a);
ZkLock::ask($a, PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/functions.sql"));
my $b = ZkLock::server('b', $zk, conf => "zklock.session_timeout = '10min'\nautovacuum = off");
ZkLock::wait_connected($b);
ZkLock::ask($_, 'CREATE TABLE t (slot int)') for $a, $b;
my $started = ZkLock::ask($a, 'SELECT pg_postmaster_start_time()');
my $s = ZkLock::session($a);

# What is wrong with one attempt?
my @wrong;
sub check { my ($right, $what) = @_; push @wrong, $what unless $right; }

# Run a statement with its n-th point failing, and something else meanwhile.  Returns its answer,
# what failed, and its error.
sub interrupt
{
	my ($n, $statement, $meanwhile) = @_;
	$s = ZkLock::session($a) unless $s->alive;
	my $pid = $s->pid;
	my $log_seen = -s $a->logfile;
	$s->send("SELECT '' FROM zk_fault($n);\n\\echo <statement>\n$statement;\n\\echo <failed>\nSELECT zk_fault(0)");
	$meanwhile->() if $meanwhile;
	my $error = $s->failure;
	my ($answer, $failed) = $s->{answer} =~ /<statement>\n(.*?)\n?<failed>\n(.*)/s;
	if ($s->{lost})
	{
		ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 }, 'the backend has gone');
		($failed) = PostgreSQL::Test::Utils::slurp_file($a->logfile, $log_seen) =~ /\[$pid\].* fault: (.*)/;
		$failed //= 'what?';
		$s = ZkLock::session($a);
	}
	return ($answer // '', $failed // '', $error);
}

# What a session could not record its server does, soon.
sub check_nothing_held
{
	my $seen;
	ZkLock::wait_until(sub { ($seen = held()) eq '|0' }, 'nothing is held', sub { $seen });
	return;
}

sub held { return ZkLock::ask($a, 'SELECT all_of(' . $s->pid . "), locks FROM zk_session"); }

# $case->(n) returns what failed, '' if nothing.
sub run_case
{
	my ($what, $case) = @_;
	my ($n, $points, $failed) = (0, 0);
	my @all;
	do
	{
		@wrong = ();
		$failed = $case->(++$n);
		$points++ if $failed ne '';
		push @all, "$n ($failed): $_" for @wrong;
	} while ($failed ne '' && $n < 5000 && @all < 10);
	ok(!@all && $points > 0, "$what: $points points") or diag join "\n", @all;
}

sub slot { my ($n) = @_; return "slot => '2026-01-01'::timestamptz + $n * '1 min'::interval"; }

# The record of a job: its newest slot and what became of it
sub state_of { my ($job, $n) = @_; return ZkLock::ask($a, "SELECT state FROM zk_jobs WHERE job = '$job' AND slot = '2026-01-01'::timestamptz + $n * '1 min'::interval"); }

# The command is a statement of its own, which has points, too: those of zk_lock.
run_case(
	'zk_run_once',
	sub {
		my $n = shift;
		my $call = "CALL zk_run_once('once', 'INSERT INTO t SELECT $n FROM zk_lock(''x'')', @{[ slot($n) ]}, attempts => 1000)";
		my ($answer, $failed, $error) = interrupt($n, $call);
		check_nothing_held();
		my $rows = ZkLock::ask($a, "SELECT count(*) FROM t WHERE slot = $n");
		check($rows == 1, 'not run') if $error eq '';
		check($rows <= 1, 'run twice');
		check($s->fails($call) eq '', "cannot be repeated: $s->{error}");
		check(ZkLock::ask($a, "SELECT count(*) FROM t WHERE slot = $n") == 1, 'not run once');
		check(state_of('once', $n) eq 'done', 'the record says ' . state_of('once', $n));
		return $failed;
	});

run_case(
	'an error in the command',
	sub {
		my $n = shift;
		my $call = "CALL zk_run_once('error', 'SELECT 1/%d', @{[ slot($n) ]}, attempts => 1000)";
		my ($answer, $failed, $error) = interrupt($n, sprintf $call, 0);
		check(held() eq '|0', 'holds ' . held());
		check($error ne '', 'no error');
		check(state_of('error', $n) =~ /^(?:failed|lost|)$/, 'the record says ' . state_of('error', $n));
		check($s->fails(sprintf $call, 1) eq '', "cannot be repeated: $s->{error}");
		check(state_of('error', $n) eq 'done', 'at last the record says ' . state_of('error', $n));
		return $failed;
	});

for my $begin ('SELECT zk_run_begin', 'CALL zk_run_begin_session')
{
	run_case(
		$begin,
		sub {
			my $n = shift;
			my $call = "$begin('$begin', @{[ slot($n) ]}, attempts => 1000)";
			my ($answer, $failed, $error) = interrupt($n, $call);
			# it may have begun when its statement fails
			check($s->fails($call) eq '' && $s->{answer} eq 't', "cannot be repeated: $s->{error}") if held() eq '|0';
			check(held() =~ /^IN pg_locks ONLY\|1$/, 'holds ' . held());
			# a failure just before the end would be that of the work
			$s->query('SELECT 1');
			check($s->query("SELECT zk_run_end('$begin')") eq 't', 'cannot be ended');
			check(held() eq '|0', 'holds at last ' . held());
			check(state_of($begin, $n) eq 'done', 'the record says ' . state_of($begin, $n));
			return $failed;
		});
}

# Its job is given back while it waits for the other one.
run_case(
	'zk_run_once after another job',
	sub {
		my $n = shift;
		my $call = "CALL zk_run_once('after', '', @{[ slot($n) ]}, timeout => '150 ms', after => '{never}')";
		my ($answer, $failed, $error) = interrupt($n, $call);
		check(held() eq '|0', 'holds ' . held());
		check($error ne '', 'no error');
		check($s->fails($call) =~ /^55P03: job "never" was not done for slot /, "cannot be repeated: $s->{error}");
		return $failed;
	});

run_case(
	'zk_run_end',
	sub {
		my $n = shift;
		my $begin = "SELECT zk_run_begin('end', @{[ slot($n) ]}, attempts => 1000)";
		$s = ZkLock::session($a) unless $s->alive;
		$s->query($begin);
		my $before = $s->pid;
		my ($answer, $failed, $error) = interrupt($n, "SELECT zk_run_end('end')");
		if ($s->pid != $before)
		{
			# what it has begun was lost, or has ended just before
			check($s->query("$begin;\nSELECT count(zk_run_end('end'))") =~ /^[tf]\n1$/, 'cannot be repeated');
		}
		elsif ($error ne '') { check($s->query("SELECT zk_run_end('end')") eq 't', 'cannot be ended'); }
		check(held() eq '|0', 'holds ' . held());
		check(state_of('end', $n) eq 'done', 'the record says ' . state_of('end', $n));
		return $failed;
	});

for my $statement ("SELECT zk_job_pause('once')", "SELECT zk_job_resume('once')", "SELECT zk_job_reset('once')", 'SELECT count(*) FROM zk_jobs', "SELECT zk_job_forget('forget')")
{
	run_case(
		$statement,
		sub {
			my $n = shift;
			ZkLock::ask($a, "CALL zk_run_once('forget', '', slot => now())") if $statement =~ /forget/;
			my ($answer, $failed, $error) = interrupt($n, $statement);
			check(held() eq '|0', 'holds ' . held());
			check($s->fails($statement) eq '', "cannot be repeated: $s->{error}");
			return $failed;
		});
}

# The command stands at a gate until the other server's call waits for the run.  Each is a job of
# its own: what has failed here makes points for the next run.
my $gate = Jobs::Gate->new($a);
my $other = ZkLock::session($b);
ZkLock::ask($_, 'TRUNCATE t') for $a, $b;
run_case(
	'zk_run_once, another server behind it',
	sub {
		my $n = shift;
		my $call = "CALL zk_run_once('behind $n', 'INSERT INTO t VALUES ($n); %s', @{[ slot($n) ]}, attempts => 1000)";
		my $waits = 0;
		$s = ZkLock::session($a) unless $s->alive;
		my $pid = $s->pid;
		$gate->close;
		my ($answer, $failed, $error) = interrupt($n, sprintf($call, $Jobs::at_gate), sub {
			ZkLock::wait_until(sub { !$s->busy || ($waits = ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted AND objsubid = 1")) }, 'the command comes to the gate, or fails');
			$other->send(sprintf $call, '')->wait_event('Extension') if $waits;
			$gate->open;
		});
		check(($waits ? $other->failure : $other->fails(sprintf $call, '')) eq '', "the other server fails: $other->{error}");
		check_nothing_held();
		my @rows = map { ZkLock::ask($_, "SELECT count(*) FROM t WHERE slot = $n") } $a, $b;
		check($rows[0] + $rows[1] == 1, "run @rows times");
		check(state_of("behind $n", $n) eq 'done', 'the record says ' . state_of("behind $n", $n));
		return $failed;
	});

is(ZkLock::ask($a, 'SELECT pg_postmaster_start_time()'), $started, 'the server has not crashed');
done_testing();
