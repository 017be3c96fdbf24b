# With "every" no night is left out and none is run twice: by clocks that differ, by ticks at
# midnight, after a catch-up and a trial in the afternoon; as README.md and doc/jobs.md have it
# in their examples, literally.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Clock;
use ZkLock;
use ZooKeeper;

my $clock = Clock->new;
plan skip_all => 'no compiler' if !$clock && !$ENV{CI};

# The ensemble's clock, by which all go.
my $zk = ZooKeeper->new(tick_time => 200);
{
	local @ENV{ $clock->names } = $clock->values;
	$zk->start;
}
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'\ntimezone = 'UTC'") } qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;

# It is that time there for the ensemble.
sub at
{
	my ($time, $zone) = @_;
	$zone ||= 'UTC';
	$clock->set(ZkLock::ask($a, "SELECT extract(epoch FROM timestamptz '$time $zone')::bigint") - time);
	return;
}

# A call: 'runs' the slot, or is 'done'.
sub call
{
	my ($node, $job, $every) = @_;
	my $s = ZkLock::session($node);
	my $error = $s->fails("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', $every)");
	my $said = $error ne '' ? $error : $s->notices =~ /is done for slot/ ? 'done' : 'runs ' . slot($job);
	$said .= ', ahead' if $s->notices =~ /HINT:  The slot lies ahead/;
	$s->quit;
	return $said;
}
sub slot { my ($job) = @_; return ZkLock::ask($b, "SELECT to_char(slot, 'MM-DD HH24:MI') FROM zk_jobs WHERE job = '$job'"); }
sub next_due { my ($job) = @_; return ZkLock::ask($b, "SELECT to_char(next_due, 'MM-DD HH24:MI') FROM zk_jobs WHERE job = '$job'"); }

# A schedule: each call with its time, its server and what it is to say
sub schedule
{
	my ($what, $job, $every, @calls) = @_;
	note $what;
	for (@calls)
	{
		my ($time, $node, $says) = @$_;
		at($time);
		is(call($node, $job, $every), $says, "$job: $time on " . $node->name);
	}
	return;
}

my $daily = "every => '1 day'";
schedule('nights, a catch-up and a trial', 'nightly', $daily,
	[ '2030-01-01 03:00:00', $a, 'runs 01-01 00:00' ],
	[ '2030-01-01 03:00:01', $b, 'done' ],
	# at three nobody was there
	[ '2030-01-02 16:00:00', $b, 'runs 01-02 00:00' ],
	[ '2030-01-03 03:00:00', $a, 'runs 01-03 00:00' ],
	[ '2030-01-03 15:00:00', $a, 'done' ],
	[ '2030-01-04 03:00:00', $b, 'runs 01-04 00:00' ],
	[ '2030-01-04 23:54:00', $a, 'done' ]);
is(next_due('nightly'), '01-05 00:00', 'the next slot');
is(ZkLock::ask($b, "SELECT zk_job_reset('nightly')"), 't', 'the slot that is done is reset');
is(next_due('nightly'), '01-04 00:00', '... and due');

schedule('ticks at midnight', 'midnight', $daily,
	[ '2030-02-01 00:00:00', $a, 'runs 02-01 00:00' ],
	[ '2030-02-01 00:00:00', $b, 'done' ],
	# early, and late
	[ '2030-02-01 23:56:00', $b, 'runs 02-02 00:00' ],
	[ '2030-02-02 00:04:00', $a, 'done' ],
	[ '2030-02-02 23:54:00', $a, 'done' ],
	[ '2030-02-03 00:00:10', $a, 'runs 02-03 00:00' ],
	[ '2030-02-03 23:59:50', $a, 'runs 02-04 00:00' ],
	[ '2030-02-03 23:50:00', $a, 'done, ahead' ],
	[ '2030-02-05 00:00:00', $b, 'runs 02-05 00:00' ]);

# The examples of nights at three: where their clocks are, and before and after daylight saving
# time begins and ends in America and in Europe
my @examples;
for my $page (qw(README.md doc/jobs.md))
{
	my $text = PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/../../$page");
	push @examples, map { [ $page, $_ ] } $text =~ /0 3 \* \* \*.*?'CALL nightly_report\(\)', (every => .*?)\)(?:"|\$\$)/gs;
}
is(scalar @examples, 3, 'examples');
for my $i (0 .. $#examples)
{
	my ($page, $every) = @{ $examples[$i] };
	my $zone = $every =~ m{ ([A-Z]\w+/\w+)'} ? $1 : 'UTC';
	for my $begin ('2030-03-08', '2030-03-29', '2030-10-25', '2030-11-01')
	{
		my @said;
		for (
			[ 0, '03:00:00', $a ], [ 0, '03:00:01', $b ],
			# at three nobody was there
			[ 1, '16:00', $b ],
			[ 2, '03:00:00', $a ],
			# trials
			[ 2, '15:00', $a ], [ 2, '23:50', $b ],
			[ 3, '03:00:00', $b ], [ 4, '02:59:50', $a ])
		{
			my ($day, $time, $node) = @$_;
			my $date = ZkLock::ask($a, "SELECT date '$begin' + $day");
			at("$date $time", $zone);
			push @said, call($node, "example $i", $every);
		}
		is(join(', ', map { s/ .*//r } @said), 'runs, done, runs, runs, done, done, runs, runs', "$page: $every in $zone from $begin on");
	}
	is(join('', map { ZkLock::ask($_, "SELECT count(*) FROM t WHERE job = 'example $i'") } $a, $b), 12 . 8, '... no night twice, and none left out');
}

schedule('weeks', 'weekly', "every => '7 days'",
	[ '2030-04-02 12:00:00', $a, 'runs 04-01 00:00' ],
	[ '2030-04-07 23:00:00', $b, 'done' ],
	[ '2030-04-08 00:00:00', $b, 'runs 04-08 00:00' ]);

schedule('before the origin', 'before', "every => '1 day', origin => '2040-01-01 06:00+00'",
	[ '2030-04-09 05:00:00', $a, 'runs 04-08 06:00' ],
	[ '2030-04-09 06:00:00', $a, 'runs 04-09 06:00' ]);

# A slot that was reset waits for the present one, which passes.
at('2030-05-01 03:00:00');
is(call($a, 'later', $daily), 'runs 05-01 00:00', 'a night');
is(ZkLock::ask($a, "SELECT zk_job_reset('later', '2030-05-01 00:00+00')"), 't', '... is reset');
at('2030-05-02 03:00:00');
is(call($a, 'later', $daily), 'runs 05-02 00:00', '... and the next one comes first');
is(call($a, 'later', $daily), 'runs 05-01 00:00', '... and then what was reset');
is(call($a, 'later', $daily), 'done', '... and then nothing');
is(next_due('later'), '05-03 00:00', '... until the next night');

# A failure leaves no night out, and attempts are counted in a slot.
at('2030-06-01 03:00:00');
my $s = ZkLock::session($a);
is($s->fails("CALL zk_run_once('fails', 'SELECT 1/0', $daily)"), '22012: division by zero', 'a night that fails');
at('2030-06-01 16:00:00');
like($s->fails("CALL zk_run_once('fails', 'SELECT 1', $daily)"), qr/^55000: job "fails" has failed for slot 2030-06-01 00:00:00\+00/, '... has failed all day');
at('2030-06-02 03:00:00');
is(call($b, 'fails', $daily), 'runs 06-02 00:00', '... but not the next one');

# A record of before, whose slot is when the first run for it began
at('2030-07-01 03:00:00');
is(call($a, 'old', $daily), 'runs 07-01 00:00', 'a record');
my $record = $zk->get('/zklock/jobs/old');
my $afternoon = ZkLock::ask($a, "SELECT extract(epoch FROM timestamptz '2030-07-01 16:00+00')::bigint") * 1000;
like($record, qr/"origin": 946857600000/, '... has an origin');
$zk->set('/zklock/jobs/old', $record =~ s/"origin": \d+, //r =~ s/"(last_done|slot)": \d+/"$1": $afternoon/gr);
is(ZkLock::ask($b, "SELECT state, to_char(last_done, 'MM-DD HH24:MI') FROM zk_jobs WHERE job = 'old'"), 'done|07-01 16:00', '... of before has none');
is(next_due('old'), '07-02 00:00', '... and is read');
at('2030-07-01 17:00:00');
is(call($b, 'old', $daily), 'done', '... what was done then is done');
at('2030-07-02 03:00:00');
is(call($b, 'old', $daily), 'runs 07-02 00:00', '... until the next night');

# It is date_bin.  "since" is the time by which the slot was chosen.
my $i = 0;
for my $every ('1 ms', '17 s', '00:13', '5 h', '3 days', '11 days 7 h', '30000 days')
{
	for my $origin ("'2000-01-03 00:00+00'", "'1999-07-01 12:34:56.789+00'", "'2077-01-01 00:00+00'")
	{
		$i++;
		$s->query("CALL zk_run_once('bin $i', 'SELECT 1', every => '$every', origin => $origin)");
		is(ZkLock::ask($a, "SELECT slot = date_bin('$every', since + least(interval '$every' / 20, '5 min'), $origin) FROM zk_jobs WHERE job = 'bin $i'"), 't', "every $every, origin $origin: date_bin");
	}
}

# Months have no length, and the hint says what to write.
at('2030-08-15 03:00:00');
is($s->fails("CALL zk_run_once('monthly', 'SELECT 1', every => '1 month')"), '0A000: every must not have months or years', 'every month is refused');
my ($hint) = $s->notices =~ /HINT:  Use slot, such as (slot => .*)\.$/m;
is($s->fails("CALL zk_run_once('monthly', 'SELECT 1', $hint)"), '', "... $hint");
is(ZkLock::ask($a, "SELECT slot = date_trunc('month', now(), 'UTC') FROM zk_jobs WHERE job = 'monthly'"), 't', '... is the month');

ZkLock::ok_clean($zk, [ $a, $b ], 'nightly', 'after all', 'jobs');
done_testing();
