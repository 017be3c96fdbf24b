# Everything that ends a wait, or a holder: the right error, and nothing is left.
# That it takes effect at once is shown by its doing so at all: all else that might end
# a wait takes an hour.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $conf = "deadlock_timeout = '50ms'\nclient_connection_check_interval = '50ms'";
my $a = ZkLock::server('a', $zk, conf => $conf);
my $b = ZkLock::server('b', $zk, conf => $conf);

#
# Waiting.  Level 1: behind a backend of the same server; level 2: of the other.
#
my %holder = (1 => ZkLock::session($b), 2 => ZkLock::session($a));

my %statement = (
	function => "SELECT zk_lock('job')",
	session => "SELECT zk_lock('job', scope => 'session')",
	try => "SELECT zk_try_lock('job', timeout => '1 hour')",
	procedure => "CALL zk_lock_session('job')",
	upgrade => "SELECT zk_lock('job')");

# How each ends, what is set before, and the error.
my @ends = (
	[ 'cancel', '', sub { $_[0]->cancel }, qr/^57014: canceling statement due to user request$/ ],
	[ 'terminate', '', sub { $_[0]->terminate }, qr/^57P01: / ],
	[ 'lock_timeout', "SET lock_timeout = '150ms'", sub { }, qr/^55P03: canceling statement due to lock timeout$/ ],
	[ 'statement_timeout', "SET statement_timeout = '150ms'", sub { }, qr/^57014: canceling statement due to statement timeout$/ ],
	[ 'client gone', '', sub { $_[0]->kill_client }, undef ]);

for my $level (1, 2)
{
	for my $kind (sort keys %statement)
	{
		# shared for an upgrade, which must not be hindered by this server's own
		my $mode = $kind eq 'upgrade' ? 'shared' : 'exclusive';
		$holder{$level}->query("BEGIN; SELECT zk_lock('job', '$mode')");
		for my $end (@ends)
		{
			my ($what, $set, $do, $error) = @$end;
			next if $kind ne 'function' && $what eq 'lock_timeout' && $kind eq 'try';    # in 010
			my $name = "$what, $kind, level $level";
			my $waiter = ZkLock::session($b);
			$waiter->query("SELECT zk_lock('job', 'shared', 'session')") if $kind eq 'upgrade';
			$waiter->query($set) if $set;
			$waiter->send($statement{$kind});
			unless ($set)
			{
				$waiter->wait_level($level);
				ZkLock::wait_until(sub { ZkLock::queue($zk, 'job') == ($level == 2 && $kind eq 'upgrade' ? 3 : $level) }, 'in the queue');
			}
			$do->($waiter);
			if ($error)
			{
				like($waiter->failure, $error, $name);
				# A busy machine may need longer than the statement_timeout for this, too.
				1 while $set && $waiter->fails('RESET ALL') =~ /^57014:/;
			}
			else
			{
				my $pid = $waiter->pid;
				ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 }, 'the backend has gone');
				pass($name);
			}
			if ($kind eq 'upgrade')
			{
				# what it had before is not touched
				is($waiter->query("SELECT zk_token('job') > 0"), 't', "$name: the shared hold stays") if $waiter->alive;
				$waiter->quit;
			}
			elsif ($waiter->alive)
			{
				is($waiter->query("SELECT zk_token('job')"), '', "$name: no hold");
				is($waiter->query('SELECT zk_unlock_all()'), 0, "$name: no session-scope hold");
			}
			is(scalar(my @q = ZkLock::wait_queue($zk, 'job', 1)), 1, "$name: its contender has gone");
			is(ZkLock::ask($b, "SELECT count(*) FROM zk_locks"), $level == 1 ? 1 : 0, "$name: and its row in zk_locks");
			is(ZkLock::ask($b, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), $level == 1 ? 1 : 0, "$name: and level 1");
		}
		$holder{$level}->query('COMMIT');
		ZkLock::ok_clean($zk, [ $a, $b ], 'job', "$kind, level $level");
	}
}

# Within a transaction that survives, by savepoint and by exception block.
for my $level (1, 2)
{
	$holder{$level}->query("BEGIN; SELECT zk_lock('job')");
	my $waiter = ZkLock::session($b);
	$waiter->query("BEGIN; SELECT zk_lock('mine'); SAVEPOINT s; SELECT zk_lock('inner'); SET LOCAL lock_timeout = '50ms'");
	is($waiter->fails("SELECT zk_lock('job')"), '55P03: canceling statement due to lock timeout', "lock_timeout in a savepoint, level $level");
	is($waiter->query("ROLLBACK TO s; SELECT zk_token('mine') > 0, zk_token('job'), zk_token('inner'), current_setting('lock_timeout')"),
		't|||0', '... rolled back');
	is($waiter->query(q{
			CREATE FUNCTION patient() RETURNS text LANGUAGE plpgsql AS $$
			BEGIN
				SET LOCAL lock_timeout = '50ms';
				PERFORM zk_lock('job');
				RETURN 'locked';
			EXCEPTION WHEN lock_not_available THEN
				RETURN 'caught';
			END $$;
			SELECT patient()}), 'caught', "... in an exception block");
	$waiter->query('COMMIT');
	is($waiter->query("SELECT zk_try_lock('mine')"), 't', '... and the transaction commits');
	$waiter->query('DROP FUNCTION patient');
	$holder{$level}->query('COMMIT');
	$waiter->quit;
}

# The procedure waits without a snapshot, and a cancelled one leaves no transaction.
for my $level (1, 2)
{
	$holder{$level}->query("BEGIN; SELECT zk_lock('job')");
	my $waiter = ZkLock::session($b);
	$waiter->send("CALL zk_lock_session('job')")->wait_level($level);
	is(ZkLock::ask($b, "SELECT backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = @{[ $waiter->pid ]}"),
		'|', "the procedure waits without a snapshot at level $level");
	$waiter->cancel->failure;
	is($waiter->query('SELECT pg_current_xact_id_if_assigned()'), '', '... and can be cancelled');
	$waiter->send("SELECT zk_lock('job')")->wait_level($level);
	isnt(ZkLock::ask($b, "SELECT backend_xmin FROM pg_stat_activity WHERE pid = @{[ $waiter->pid ]}"),
		'', '... other than the function');
	$waiter->cancel->failure;
	$waiter->quit;
	$holder{$level}->query('COMMIT');
}
# Wait events have names from 17 on.
if ($b->pg_version >= 17)
{
	$holder{2}->query("BEGIN; SELECT zk_lock('job')");
	# it wakes for a moment, now and then
	my $waiter = ZkLock::session($b)->send("SELECT zk_lock('job')")->wait_event('ZkLockAcquire');
	pass('wait event');
	$holder{2}->query('COMMIT');
	$waiter->result;
}

#
# Holding.  The other server gets the lock at once.
#
my $other = ZkLock::session($a);
my $sleep = 'SELECT pg_sleep(3600)';
my @deaths = (
	[ 'cancel', $sleep, sub { $_[0]->cancel }, qr/^57014/ ],
	[ 'terminate', $sleep, sub { $_[0]->terminate }, qr/^57P01/ ],
	[ 'terminate of an idle one', '', sub { $_[0]->terminate }, undef ],
	[ 'statement_timeout', "SET statement_timeout = '100ms'; $sleep", sub { }, qr/^57014/ ],
	[ 'idle_in_transaction_session_timeout', "SET idle_in_transaction_session_timeout = '100ms'", sub { }, undef ],
	[ 'client gone', $sleep, sub { $_[0]->kill_client }, undef ],
	[ 'client of an idle one gone', '', sub { $_[0]->kill_client }, undef ]);
for my $death (@deaths)
{
	my ($what, $sql, $do, $error) = @$death;
	for my $scope ('transaction', 'session')
	{
		my $holder = ZkLock::session($b);
		$holder->query("BEGIN; SELECT zk_lock('job', scope => '$scope')");
		$other->send("SELECT zk_lock('job')")->wait_level(2);
		ZkLock::wait_queue($zk, 'job', 2);
		if ($sql =~ /pg_sleep/)
		{
			$holder->send($sql);
			my $pid = $holder->pid;
			ZkLock::wait_until(sub { !$holder->busy || ZkLock::ask($b, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND wait_event = 'PgSleep'") },
				'the holder sleeps') unless $sql =~ /timeout/;
		}
		elsif ($sql) { $holder->query($sql); }
		$do->($holder);
		like($holder->failure, $error, "$what while holding in $scope scope") if $error;
		if ($scope eq 'session' && $error && $error !~ /57P/)
		{
			# the session lives, and so does its hold
			# the timeout is for the ROLLBACK, too
			1 while $holder->fails('ROLLBACK') =~ /^57014:/;
			is($holder->query("SELECT zk_token('job') > 0"), 't', '... the session still holds');
			ok($other->busy, '... and the other server waits');
			$holder->query("SELECT zk_unlock('job')");
		}
		ok($other->result, "$what of a holder in $scope scope: the other server has it");
	}
}
ZkLock::ok_clean($zk, [ $a, $b ], 'job', 'after holders that ended');

# Who is cancelled when the grant arrives: whichever it is, nothing is left.
my ($got, $lost) = (0, 0);
my $waiter = ZkLock::session($b);
for my $i (1 .. 30)
{
	$holder{2}->query("BEGIN; SELECT zk_lock('job')");
	$waiter->send("SELECT zk_lock('job', scope => 'session')")->wait_level(2);
	$holder{2}->send('COMMIT');
	$waiter->cancel if $i % 3;
	$holder{2}->result;
	my $failure = $waiter->failure;
	$failure eq '' ? $got++ : $lost++;
	# a cancellation that came late may hit this one
	$waiter->fails('SELECT 1');
	my $pid = $waiter->pid;
	my $held = $waiter->query("SELECT (SELECT count(*) FROM zk_locks WHERE pid = $pid), (SELECT count(*) FROM pg_locks WHERE pid = $pid AND $ZkLock::level1)");
	# a session has what it got even if the statement was cancelled afterwards
	like($held, $failure eq '' ? qr/^1\|1$/ : qr/^(0\|0|1\|1)$/, 'cancelled or granted, at both levels');
	is($waiter->query('SELECT zk_unlock_all()'), substr($held, 0, 1), '... and known to the session');
}
note("a cancel raced with the grant: $got got it, $lost did not");
ZkLock::ok_clean($zk, [ $a, $b ], 'job', 'after the races');

#
# Deadlocks within one server
#
my ($s1, $s2) = (ZkLock::session($b), ZkLock::session($b));
ZkLock::ask($b, 'CREATE TABLE t (i int)');
my @deadlocks = (
	[ 'two names', "SELECT zk_lock('x')", "SELECT zk_lock('y')", "SELECT zk_lock('y')", "SELECT zk_lock('x')" ],
	[ 'a table', "SELECT zk_lock('x')", 'LOCK TABLE t', 'LOCK TABLE t', "SELECT zk_lock('x')" ],
	[ 'a table, the other way round', 'LOCK TABLE t', "SELECT zk_lock('x')", "SELECT zk_lock('x')", 'LOCK TABLE t' ],
	[ 'a name and an advisory lock', "SELECT zk_lock('x', scope => 'session')", 'SELECT pg_advisory_xact_lock(1)',
		'SELECT pg_advisory_xact_lock(1)', "SELECT zk_lock('x')" ],
	[ 'two upgrades', "SELECT zk_lock('x', 'shared')", "SELECT zk_lock('x', 'shared')", "SELECT zk_lock('x')", "SELECT zk_lock('x')" ]);
for my $deadlock (@deadlocks)
{
	my ($what, $first1, $first2, $then1, $then2) = @$deadlock;
	$s1->query("BEGIN; $first1");
	$s2->query("BEGIN; $first2");
	$s1->send($then1);
	my $pid = $s1->pid;
	ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $pid") }, 'the first waits');
	$s2->send($then2);
	my ($victim, $winner);
	ZkLock::wait_until(
		sub {
			# first: one may fail, and the other go on, between two looks
			my $both = !$s1->busy && !$s2->busy;
			($victim) = grep { !$_->busy && $_->failure ne '' } $s1, $s2;
			return $victim || $both;
		},
		'one is chosen');
	$victim //= $s1;
	$winner = $victim == $s1 ? $s2 : $s1;
	is($victim->failure, '40P01: deadlock detected', "deadlock by $what");
	$victim->query("ROLLBACK; SELECT zk_unlock_all()");
	is($winner->failure, '', '... of which one survives');
	$winner->query("ROLLBACK; SELECT zk_unlock_all()");
	ZkLock::ok_clean($zk, [ $a, $b ], $_, "after the deadlock by $what") for 'x', 'y';
}

# who blocks whom
$s1->query("BEGIN; SELECT zk_lock('x')");
$s2->send("SELECT zk_lock('x')")->wait_level(1);
is(ZkLock::ask($b, "SELECT pg_blocking_pids(@{[ $s2->pid ]}) = ARRAY[@{[ $s1->pid ]}]"), 't', 'pg_blocking_pids');
$s1->query('COMMIT');
$s2->result;

done_testing();
