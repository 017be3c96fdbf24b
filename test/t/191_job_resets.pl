# Slots that are reset stay due until each is done, whatever else is reset, and whether a run
# goes on or the clock was wrong meanwhile.  Without a slot the one that has failed is meant.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Clock;
use Jobs qw(runs);
use ZkLock;
use ZooKeeper;

# The ensemble's clock, by which all go.
my $clock = Clock->new;
my $zk = ZooKeeper->new(tick_time => 200);
{
	local @ENV{ $clock ? $clock->names : () } = $clock ? $clock->values : ();
	$zk->start;
}
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'\ntimezone = 'UTC'") } qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text, day text)') for $a, $b;
my ($s, $other) = map { ZkLock::session($_) } $a, $b;

# A call for a day of January; by default one that notes it.
sub call
{
	my ($job, $day, $command) = @_;
	$command //= "INSERT INTO t VALUES (''$job'', ''$day'')";
	return "CALL zk_run_once('$job', '$command', slot => '2026-01-$day')";
}
sub hint { return $s->notices =~ /HINT:  Use (SELECT zk_job_reset\(.*\)) to have it run again/ ? $1 : fail('a hint'); }
# The slot fails; returns what the hint says to do then.
sub failed
{
	my ($job, $day) = @_;
	$s->fails(call($job, $day, 'SELECT 1/0'));
	like($s->fails(call($job, $day)), qr/^55000: job "$job" has failed/, "$job: $day has failed");
	return hint();
}
sub done { my ($job) = @_; return join ' ', sort map { split ' ', ZkLock::ask($_, "SELECT string_agg(day, ' ') FROM t WHERE job = '$job'") } $a, $b; }
sub next_due { my ($job) = @_; return ZkLock::ask($a, "SELECT to_char(next_due, 'DD') FROM zk_jobs WHERE job = '$job'"); }

# The one that has failed, though a later one is done
failed('which', '01');
$s->query(call('which', '02'));
is($s->query("SELECT zk_job_reset('which')"), 't', 'a reset without a slot');
$s->query(call('which', $_)) for '02', '01';
is(done('which'), '01 02', '... makes the slot due that has failed, and not the one that is done') or diag(runs($a, 'which'));
is($s->query("SELECT zk_job_reset('which')"), 't', '... and then the one last done');
$s->query(call('which', $_)) for '01', '02';
is(done('which'), '01 02 02', '... which is run again') or diag(runs($a, 'which'));

# All hints are followed, in any order, before a later slot is done and after it.
for my $order ('0 1 2', '2 1 0', '1 2 0')
{
	for my $later (0, 1)
	{
		my $job = "hints $order, $later";
		my @hint = map { failed($job, $_) } '01', '02', '03';
		$s->query(call($job, '04')) if $later;
		is($other->query($hint[$_]), 't', "$job: $hint[$_]") for split / /, $order;
		is(next_due($job), '01', '... the first of them is due next');
		is($other->fails(call($job, $_)), '', "... $_ is run") for '03', '01', '02';
		$s->query(call($job, $_)) for '01', '02', '03';
		is(done($job), '01 02 03' . ($later ? ' 04' : ''), '... each once') or diag(runs($a, $job));
	}
}

# ... while the run of another goes on, which commits
my @hint = map { failed('goes on', $_) } '01', '02';
$s->query(call('goes on', '03'));
is($s->query($hint[0]), 't', 'the first one');
my $gate = Jobs::Gate->new($a);
$gate->stand($s, call('goes on', '01', "INSERT INTO t VALUES (''goes on'', ''01''); $Jobs::at_gate"));
is($other->query($hint[1]), 't', '... and the second one, while that runs');
$gate->open;
is($s->result, '', '... which comes to its end');
$s->query(call('goes on', $_)) for '01', '02', '01';
is(done('goes on'), '01 02 03', '... each is run once') or diag(runs($a, 'goes on'));

# Followed twice it is one.
$hint[0] = failed('twice', '01');
$s->query(call('twice', '02'));
is($s->query($hint[0]), 't', $hint[0]) for 1, 2;
$s->query(call('twice', $_)) for '01', '01', '02';
is(done('twice'), '01 02', '... by two who follow it: once');

# ... also when it runs, or has run, since: then the second is told.
for my $when ('while it runs', 'when it is done')
{
	$hint[0] = failed($when, '01');
	is($s->query($hint[0]), 't', "$when: $hint[0]");
	my $work = "INSERT INTO t VALUES (''$when'', ''01'')";
	if ($when eq 'while it runs')
	{
		$gate->stand($s, call($when, '01', "$work; $Jobs::at_gate"));
		is($other->query($hint[0]), 'f', '... and again');
		$gate->open;
		is($s->result, '', '... while it runs, which goes on');
	}
	else
	{
		$s->query(call($when, '01'));
		is($other->query($hint[0]), 'f', '... and again');
	}
	like($other->notices, qr/^NOTICE 00000: slot 2026-01-01 00:00:00\+00 of job "$when" has been run since, skipping\nDETAIL:  It is done, or being run, by a later attempt than attempt 1\.\n/, '... tells');
	my ($more) = $other->notices =~ /HINT:  To have it run once more, use (SELECT .*)\.$/m;
	$other->query(call($when, '01'));
	is(done($when), '01', '... it is run once') or diag(runs($a, $when));
	is($other->query($more), 't', "... but once more by $more");
	$other->query(call($when, '01')) for 1, 2;
	is(done($when), '01 01', '... it is') or diag(runs($a, $when));
}
# What failed again is reset again, by its own hint.
$hint[0] = failed('again', '01');
is($s->query($hint[0]), 't', $hint[0]);
$hint[1] = failed('again', '01');
isnt($hint[1], $hint[0], 'failed again: another hint');
is($s->query($hint[1]), 't', $hint[1]);
$s->query(call('again', '01'));
is(done('again'), '01', '... and then it is done');
like($s->fails("SELECT zk_job_reset('again', $_)"), qr/^22023: attempt must/, "not $_") for "'2026-01-01', 0", "NULL, 1", "'2026-01-01', -1";

# There is room for so many.  No reset is dropped without a word.
for my $i (1 .. 16)
{
	is($s->query(failed('full', sprintf '%02d', $i)), 't', '... and is reset');
}
$hint[0] = failed('full', '17');
$s->query(call('full', '18'));
is($s->fails($hint[0]), '54000: too many slots of job "full" are due again', 'one more is refused');
my ($first) = $s->notices =~ /HINT:  Let the job run for these slots first; the earliest is slot 2026-01-(\d\d) 00:00:00\+00\.$/m;
is($first, '01', '... with a hint');
is($s->fails(call('full', $first)), '', '... which is followed');
is($s->query($hint[0]), 't', '... and then it is reset');
is($s->fails(call('full', sprintf '%02d', $_)), '', "... and $_ is run") for 2 .. 17;
is(done('full'), join(' ', map { sprintf '%02d', $_ } 1 .. 18), '... each once') or diag(runs($a, 'full'));

# Whatever the record says.
my $path = '/zklock/jobs/full';
my $good = $zk->get($path);
my ($slot) = $good =~ /"last_done": (\d+)/;
my $day = 86400 * 1000;
sub state_with
{
	my ($value) = @_;
	$zk->set($path, $good =~ s/"reset_slots": \[\]/"reset_slots": $value/r);
	return ZkLock::ask($a, "SELECT state, to_char(next_due, 'DD') FROM zk_jobs WHERE job = 'full'");
}
is(state_with('[' . ($slot - $day) . ']'), 'done|17', 'one slot is due again');
is(state_with("[" . ($slot - 2 * $day) . ", $slot]"), 'done|16', '... or two');
like($zk->get($path), qr/"reset_slots": \[\d/, '... as it is written');
is(state_with($_), 'damaged|', "... but not $_") for '"x"', 'null', '1', '[1', '[null]', '[2, 1]', '[1, 1]', '[' . join(', ', 1 .. 17) . ']';
$zk->set($path, $good);

SKIP:
{
	skip 'no compiler', 1 if !$clock && !$ENV{CI};
	my $daily = "every => '1 day'";
	my $at = sub { $clock->set(ZkLock::ask($a, "SELECT extract(epoch FROM timestamptz '2030-$_[0] 03:00+00')::bigint") - time); };
	# a call in that night: which slot is run, or the error
	my $night = sub {
		my ($job, $command) = @_;
		my $session = ZkLock::session($b);
		$command //= 'SELECT 1';
		my $count = "SELECT runs->0->>'number' FROM zk_jobs WHERE job = '$job'";
		my $before = ZkLock::ask($b, $count);
		my $error = $session->fails("CALL zk_run_once('$job', '$command', $daily)");
		my $said = $session->notices;
		$session->quit;
		return $error =~ s/:.*//r if $error;
		return ($said =~ /HINT:  The slot lies ahead/ ? 'ahead' : 'done') if ZkLock::ask($b, $count) eq $before;
		return ZkLock::ask($b, "SELECT to_char(slot, 'MM-DD') FROM zk_jobs WHERE job = '$job'");
	};
	my $reset = sub { my ($job, $date) = @_; return ZkLock::ask($a, "SELECT zk_job_reset('$job', '2030-$date 00:00+00')"); };

	# Nights that have failed are run by whoever calls, one after the other.
	for my $date ('01-01', '01-02')
	{
		$at->($date);
		is($night->('nights', 'SELECT 1/0'), '22012', "$date fails");
	}
	$at->('01-03');
	is($night->('nights'), '01-03', 'the third night is run');
	is($reset->('nights', $_), 't', "$_ is reset") for '01-02', '01-01';
	is(join(' ', map { $night->('nights') } 1 .. 3), '01-01 01-02 done', '... both are run');

	# An old one is reset while what is done lies ahead: the night of the present is not left out.
	for my $done ('', 'done')
	{
		my $job = "ahead $done";
		$at->('02-01');
		is($night->($job, 'SELECT 1/0'), '22012', "$job: a night fails");
		$at->('02-02');
		is($night->($job), '02-02', '... the next one is done') if $done;
		$at->('03-01');
		is($night->($job), '03-01', '... the clock is fast');
		$at->('02-02');
		is($night->($job), 'ahead', '... and right again');
		is($reset->($job, '02-01'), 't', '... and the night that has failed is reset');
		is(join(' ', map { $night->($job) } 1 .. 3), $done ? '02-01 done done' : '02-02 02-01 done', '... what is not done is run');
		$at->('02-03');
		is($night->($job), '02-03', '... and the next night');
	}
}

ZkLock::ok_clean($zk, [ $a, $b ], 'lock', 'after all');
done_testing();
