# interrupts.pl - whatever is interrupted, wherever, leaves nothing behind.
#
# interrupts.pl PART: waits, calls, permits, room, queues, or mutant (see the end).  The server is of a
# build in which each call that may raise an error, and each wait, is a point that can fail by
# its number (faults.h).  A case is a statement in some state of the world.  It is run
# with its first point failing, its second, and so on until no point fails.  Each time
#
#   - what the session holds is what it was before, or what the statement brings if it
#     succeeds and a rollback does not undo it;
#   - zk_locks, pg_locks and zk_token say the same, and nothing waits;
#   - its transaction can commit, and when it has given up all, there is nothing of it in
#     the server;
#   - what another one holds is not to be had;
#
# and when the case is over, a new hold is a true one, and no contender is left.
#
# Environment: EVERY=1 runs each case in each of the places in a transaction where a
# statement can stand; else these take turns.
use strict;
use warnings;

use FindBin;
use List::Util qw(sum);
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;

my ($part) = @ARGV;

my $zk = ZooKeeper->new->start;
my $conf = "zklock.session_timeout = '10min'\nzklock.connect_timeout = '1h'\nautovacuum = off\nmax_prepared_transactions = 2";
my $b = ZkLock::server('b', $zk, conf => $conf);
# Where the table is not to be full, there is room for all, and nothing is kept.
my $full = $part eq 'room' || $part eq 'mutant';
my $a = ZkLock::server('a', $zk, conf => $conf . ($full ? "\nzklock.max_locks = 5\nzklock.keep_time = '1h'" : ''));
ZkLock::wait_connected($a, $b);

my $level1 = $ZkLock::level1;
ZkLock::ask($a, PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/functions.sql"));
ZkLock::ask($a, <<"END");
CREATE FUNCTION mine() RETURNS text LANGUAGE sql AS \$\$
	SELECT concat_ws(' ', all_of(pg_backend_pid()), (SELECT string_agg('FALSE TOKEN OF ' || n, ' ') FROM unnest(ARRAY['x', 'y']) n
		WHERE (zk_token(n) IS NOT NULL) <> EXISTS (SELECT FROM zk_locks WHERE name = n AND pid = pg_backend_pid() AND granted)
			OR zk_token(n) <= 0))
\$\$
END
my $started = ZkLock::ask($a, 'SELECT pg_postmaster_start_time()');

my $s = ZkLock::session($a);
my $here = ZkLock::session($a);
my $there = ZkLock::session($b);
my $keeper = ZkLock::session($a);
my %interrupted;

my $worker;
my $shared = "SELECT zk_lock('x', 'shared', 'session')";
my $exclusive = "SELECT zk_lock('x', 'exclusive', 'session')";

# The worlds: what makes them, what is done in them before each attempt, what ends them;
# what the others hold there (locks), and whether that keeps x from everybody (taken);
# and statements that do not succeed there, but for a lock_timeout (endless).
my $lock_x = sub { my ($who, $mode) = @_; return sub { $who->query("BEGIN; SELECT zk_lock('x', '$mode')") } };
my $commit = sub { my $who = shift; return sub { $who->query('COMMIT') } };
my %world = (
	free => { },
	'a holder here' => { make => $lock_x->($here, 'exclusive'), end => $commit->($here), locks => 1, taken => 1, endless => qr/^/ },
	'a reader here' => { make => $lock_x->($here, 'shared'), end => $commit->($here), locks => 1, endless => qr/^(?!.*'shared')/ },
	'a holder elsewhere' => { make => $lock_x->($there, 'exclusive'), end => $commit->($there), taken => 1, endless => qr/^/ },
	'a reader elsewhere' => { make => $lock_x->($there, 'shared'), end => $commit->($there), endless => qr/^(?!.*'shared')/ },
	'no permit' => { make => sub { $there->query("BEGIN; SELECT zk_acquire('s', 1)") }, end => $commit->($there), endless => qr/^/ },
	'a stopped worker' => { make => \&stop_worker, end => \&continue_worker, endless => qr/^/ },
	'x held, a stopped worker' => { before => sub { continue_worker(); $s->query($exclusive); stop_worker() }, end => \&continue_worker, endless => qr/^/ },
	'x kept' => { before => sub { $keeper->query("SELECT zk_lock('x')") } },
	'no room, a stopped worker' => { make => hold(4), before => sub { continue_worker(); fill(); stop_worker() }, end => sub { continue_worker(); $commit->($here)->() }, locks => 4, endless => qr/^/ },
	'no room' => { make => hold(4), before => \&fill, end => $commit->($here), locks => 4 },
	'no room at all' => { make => hold(5), end => $commit->($here), locks => 5, endless => qr/^/ },
);

sub stop_worker { $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session'); kill 'STOP', $worker or die; }

sub continue_worker { kill 'CONT', $worker if $worker; undef $worker; }

# A server with a stopped worker does not stop.
END { continue_worker() }

sub resign { $keeper->query("SELECT zk_resign('e')"); }

# So many names of the table's five are held here.
sub hold { my $n = shift; return sub { resign(); $here->query("BEGIN; SELECT zk_lock('held ' || i) FROM generate_series(1, $n) i") }; }

# Four names are held, and one is kept for nobody, which is not x.
my $kept = 0;

sub fill
{
	resign();
	ZkLock::wait_until(
		sub {
			return 1 if ZkLock::ask($a, "SELECT names = 5 AND kept = 1 AND NOT EXISTS (SELECT FROM zk_locks WHERE name = 'x') FROM zk_session") eq 't';
			# an election that was left may still be there
			my $failure = $keeper->fails("SELECT zk_lock('kept " . ++$kept . "')");
			die "$failure\n" if $failure !~ /^(?:53200: .*)?$/;
			return 0;
		},
		'the table is full');
}

# Where a statement can stand in a transaction: what goes before it and after it.
my %place = (
	alone => [ '', '%s', '' ],
	'after a savepoint' => [ 'BEGIN; SAVEPOINT s;', '%s', 'ROLLBACK TO s;' ],
	'in an exception block' => [ 'BEGIN;', 'DO $do$ BEGIN %s; EXCEPTION WHEN OTHERS OR query_canceled THEN END $do$', '' ]);
my @places = sort keys %place;

# One attempt, in one go to psql.  Returns the error, what the session holds before and
# afterwards, which point failed, and what is wrong.
sub attempt
{
	my ($case, $world, $place, $n) = @_;
	my ($before, $form, $after) = @{ $place{$place} };
	my $statement = $case->{statement} =~ s/NUMBER/$n/r;
	$statement =~ s/^SELECT/PERFORM/ if $place eq 'in an exception block';
	if ($case->{fresh} || !$s->alive)
	{
		$s->quit;
		$s = ZkLock::session($a);
	}
	$world->{before}->() if $world->{before};
	my $log_seen = -s $a->logfile;
	my $pid = $s->pid;
	my $failure = $s->fails(join "\n", "SET lock_timeout = '" . ($world->{endless} && $statement =~ $world->{endless} ? '100ms' : 0) . "';", ($case->{setup} ? "$case->{setup};" : ()),
		$before, '\echo <before>', 'SELECT mine();', '\echo <arm>', "SELECT '' FROM zk_fault($n), set_config('statement_timeout', '" . ($case->{timeout} // 0) . "', false);",
		'\echo <statement>', sprintf("$form;", $statement), '\if :ERROR', $after || 'ROLLBACK;', '\else', $after, '\endif',
		'\echo <failed>', "SELECT zk_fault(0) FROM set_config('statement_timeout', '0', false);", '\echo <after>', 'SELECT mine();',
		'\echo <release>', 'COMMIT;', '\if :ERROR', '\echo COMMIT FAILS', '\endif', 'RESET lock_timeout; SELECT zk_unlock_all();', '\echo <left>', 'SELECT mine(), locks FROM zk_session;',
		($world->{taken} ? ('\echo <try>', "SELECT zk_try_lock('x', 'shared');") : ()), '\echo <end>');
	my %answer = map { /^<(\w+)>\n(.*?)\n?\z/s ? ($1 => $2) : () } split /^(?=<\w+>)/m, "$s->{answer}\n";
	my @wrong;
	my $locks = $world->{locks} // 0;

	if ($s->{lost})
	{
		push @wrong, "lost: $failure" unless $s->notices =~ /^FATAL:  57P01/m;
		ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 }, 'the backend has gone');
		my ($point) = PostgreSQL::Test::Utils::slurp_file($a->logfile, $log_seen) =~ /\[$pid\].* fault: (.*)/;
		my $left = ZkLock::ask($a, "SELECT all_of($pid), locks FROM zk_session");
		push @wrong, "the backend has gone and left: $left" if $left ne "|$locks";
		return ($failure, '', '', $point // 'none, and terminated', @wrong);
	}
	push @wrong, "left: $answer{left}" if ($answer{left} // 'no answer') ne "|$locks";
	push @wrong, "x is to be had: $s->{error}" if $world->{taken} && ($answer{try} // '') ne 'f';
	# The point was in the statement that ends the interruption, and so the transaction
	# of "mine" is aborted.
	$answer{after} = $answer{before}
	  if $answer{failed} eq '' && $s->notices =~ /^ERROR:  (ZK000:|57014: canceling statement due to user request)/m;
	push @wrong, 'COMMIT fails' if $answer{release} =~ /FAILS/;
	push @wrong, 'no end' unless defined $answer{end};
	return ($failure, @answer{qw(before after failed)}, @wrong);
}

# What is to be done: how many tests, and a function that makes them.
my @steps;
my $turn = 0;

# Options of a case: statement (NUMBER in it is that of the attempt), world; setup, made
# before; place, if not any; waits: it passes the same points again and again; safe: there
# may be none; fresh: in a new session each time; timeout, that of the statement.
sub run_case
{
	my %case = @_;
	my @ways = $case{place} ? @{ $case{place} } : $ENV{EVERY} ? @places : $places[ $turn++ % @places ];
	push @steps, [ scalar @ways, sub { run_now(\%case, @ways) } ];
}

sub run_now
{
	my ($case, @ways) = @_;
	my %case = %$case;
	my $world = $world{ $case{world} };
	# What succeeds here is not to give up before, however slow all of this is.  (A set may not.)
	$case{statement} =~ s/^(SELECT zk_try_(?!lock_all).*)'20ms'/$1'1h'/ unless $world->{endless} && $case{statement} =~ $world->{endless};

	for my $place (@ways)
	{
		my $name = join ', ', $case{statement}, ($case{setup} ? "after $case{setup}" : ()), $case{world}, $place, $case{fresh} ? 'first call' : ();
		my (@wrong, %known);
		my ($success, $repeated, $points, $tries) = ('', 0, 0, 0);
		$world->{make}->() if $world->{make};
		for my $n (0 .. 1000)
		{
			my ($failure, $before, $after, $failed, @found) = attempt(\%case, $world, $place, $n);
			# short of time
			redo if $n == 0 && $failure ne '' && !$world->{endless} && $tries++ < 5;
			$success = $after // '' if $n == 0;
			if ($failed !~ /terminate/)
			{
				my $allowed = $before eq $after || ($after eq $success && ($failed eq '' || $case{statement} !~ /^SELECT zk_(try_)?lock\('x'(, '\w+')?\)/));
				push @found, "held '$before' and now '$after' ('$success' if nothing fails)" unless $allowed;
			}
			push @found, "inconsistent: $before; $after" if "$before $after" =~ /[A-Z]{4}/;
			push @wrong, map { "point $n, $failed: $_" } @found;
			last if $n > 0 && $failed eq '' || @wrong > 5;
			next if $n == 0;
			$points++;
			$interrupted{$failed}++;
			$repeated = $known{$failed}++ ? $repeated + 1 : 0;
			last if $case{waits} && $repeated > 12;
		}
		$world->{end}->() if $world->{end};
		push @wrong, 'no point' unless $points || $case{safe};
		ok(!@wrong, "$name: $points points") or diag(join "\n", @wrong);
	}
}

# Nobody is fooled by what all of this has left.
sub ok_true { my $what = shift; push @steps, [ 6, sub { ok_true_now($what) } ]; }

sub ok_true_now
{
	my $what = shift;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->quit;
	$s = ZkLock::session($a);
	$s->query('BEGIN');
	my $token = $s->query("SELECT zk_lock('x')");
	my $queue = join ' ', map { $zk->stat(ZkLock::directory('x') . "/$_")->{czxid} } ZkLock::queue($zk, 'x');
	is($queue, $token, "$what: a new hold is a contender, and the only one");
	is($there->query("SELECT zk_try_lock('x', 'shared')"), 'f', '... which keeps the others out');
	$s->query('COMMIT');
	is($there->query("SELECT zk_try_lock('x', timeout => '1h')"), 't', '... until the COMMIT');
	ZkLock::wait_queue($zk, 'x', 0);
	pass('... and goes with it');
	is(ZkLock::ask($a, "SELECT locks FROM zk_session"), 0, '... nothing is left');
	is(ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE $level1"), 0, '... nor level 1');
}

# The lock manager's longest wait, which is short in this build, is not ours.
sub ok_long_wait
{
	$here->query("BEGIN; SELECT zk_lock('x')");
	$s->send("SELECT zk_try_lock('x', timeout => '100 days')");
	my %start;
	ZkLock::wait_until(
		sub {
			die 'it does not wait' unless $s->busy;
			$start{$_} = 1 for ZkLock::ask($a, "SELECT waitstart FROM pg_locks WHERE waitstart IS NOT NULL AND $level1") || ();
			return keys %start > 2;
		},
		'it has waited several times');
	$here->query('COMMIT');
	is($s->result, 't', 'a timeout beyond that of the lock manager is waited out');
}

my @locks = (
	"SELECT zk_lock('x')",
	"SELECT zk_lock('x', 'shared')",
	$exclusive,
	"SELECT zk_try_lock('x')",
	"SELECT zk_try_lock('x', 'shared', 'session', '20ms')",
	"SELECT zk_try_lock('x', timeout => '20ms')",
	"SELECT zk_lock_all('w', 'x')",
	"SELECT zk_try_lock_all('{w,x}', 'shared', 'session', '20ms')");
my $procedure = "CALL zk_lock_session('x', timeout => '1 min')";

sub run_lock { run_case(statement => $_, @_) for @locks; run_case(statement => $procedure, place => ['alone'], @_); }

my %part = (
	# All ways to wait for a lock, or not to
	waits => sub {
		run_lock(world => 'free', setup => $_) for '', $shared, $exclusive;
		run_lock(world => $_, waits => 1) for 'a holder here', 'a reader here', 'a holder elsewhere', 'a reader elsewhere';
		run_lock(world => 'a stopped worker', waits => 1);
		ok_true('after a stopped worker');
		run_case(statement => $_, world => 'a reader here', setup => $shared, waits => 1) for $locks[0], $exclusive, @locks[3, 5];
		run_case(statement => $_, world => 'a reader elsewhere', setup => $shared, waits => 1) for $locks[0], $exclusive, @locks[3, 5];
		run_case(statement => $locks[0], world => 'free', fresh => 1);
		# One that does not give up before its last step, however slow all of this is.
		my %set = (statement => "SELECT zk_try_lock_all('{w,x}', 'shared', 'session', '1h')", world => 'free');
		run_case(%set);
		ok_true('after all waits');
		ok_interrupted(
			\%set, map { ("$_ error", "$_ cancel", "$_ terminate") } 'acquire_for_transaction LockAcquire',
			'zklock_acquire_again LockAcquire', 'acquire_patiently LockAcquire', 'fix_level1 LockAcquire');
		ok_interrupted(map { ("$_ cancel", "$_ terminate") } 'ZkLockAcquire ConditionVariableTimedSleep');

		push @steps, [ 1, \&ok_long_wait ];
	},

	# All other functions, and what ends a hold
	calls => sub {
		my $both = "$exclusive; SELECT zk_lock('y', 'shared', 'session')";
		ZkLock::ask($a, "SELECT zk_is_leader('e')");
		my @asking = ("SELECT zk_assert('x')", "SELECT * FROM zk_contenders('x')", 'SELECT * FROM zk_servers', "SELECT * FROM zk_lock_dirs('')", "SELECT zk_break('y', 1)",
			"SELECT * FROM zk_candidates('e')");
		my @calls = (@asking, "SELECT zk_unlock('x')", "SELECT zk_unlock('none')", "SELECT zk_token('x')", 'SELECT * FROM zk_locks',
			'SELECT * FROM zk_session', 'SELECT * FROM zk_stat', 'SELECT * FROM zk_stat_locks', "SELECT zk_is_leader('e')", "SELECT (SELECT token FROM zk_elections WHERE election = 'e')", "SELECT zk_require_leader('e')", "SELECT zk_require_leader('e'), zk_require_leader('e')",
			"SELECT zk_resign('none')", 'SELECT * FROM zk_elections', "SELECT zk_fence('r', 1)");
		my $resign = "SELECT zk_resign(election) FROM zk_elections WHERE election <> 'e'";
		for my $setup ('', $both)
		{
			run_case(statement => $_, world => 'free', setup => $setup) for @calls;
			# What ends a hold cannot fail.
			run_case(statement => $_, world => 'free', setup => $setup, safe => 1) for 'SELECT zk_unlock_all()', 'SELECT zk_stat_reset()', 'SELECT pg_advisory_unlock_all()';
			run_case(statement => 'DISCARD ALL', world => 'free', setup => $setup, safe => 1, place => ['alone']);
			# These are transactions themselves.
			run_case(statement => $_, world => 'free', setup => $setup, place => ['alone'])
			  for "CALL zk_run_as_leader('e', 'SELECT 1')", "BEGIN; SELECT zk_lock('x'); COMMIT", "BEGIN; SELECT zk_lock('x'); ROLLBACK",
			  "BEGIN; SELECT zk_require_leader('e'); COMMIT", "BEGIN; SELECT zk_lock('x'); PREPARE TRANSACTION 'p'";
		}
		my @entering = ("SELECT zk_is_leader('new NUMBER')", "SELECT zk_require_leader('new NUMBER')");
		run_case(statement => $_, world => 'free', setup => $resign) for @entering;
		# Now nothing answers.
		run_case(statement => $_, world => 'a stopped worker', timeout => '500ms', waits => 1) for @asking[1 .. $#asking];
		run_case(statement => $_, world => 'a stopped worker', setup => $resign, timeout => '500ms', waits => 1) for @entering;
		run_case(statement => $asking[0], world => 'x held, a stopped worker', timeout => '500ms', waits => 1);
		ok_interrupted(map { ("$_ cancel", "$_ terminate") } 'ZkLockLease ConditionVariableTimedSleep',
			'ZkLockQuery ConditionVariableTimedSleep', 'ZkLockElection ConditionVariableTimedSleep');
		ok_true('after all calls');
	},

	# Permits, and barriers, of which a session holds nothing
	permits => sub {
		my $permit = "SELECT zk_acquire('s', 2, 'session')";
		my @permits = ("SELECT zk_acquire('s', 2)", $permit, "SELECT zk_try_acquire('s', 2)", "SELECT zk_try_acquire('s', 2, timeout => '20ms')", "SELECT zk_acquire('s', 1)");
		my $barrier = "CALL zk_barrier('b', 2, '20ms')";
		for my $setup ('', $permit, "$permit; SELECT zk_permit('s')")
		{
			run_case(statement => $_, world => 'free', setup => $setup) for @permits, "SELECT zk_permit('s')", "SELECT zk_release('s')", "SELECT zk_assert_permit('s')";
			run_case(statement => $barrier, world => 'free', setup => $setup, place => ['alone'], waits => 1);
		}
		for my $world ('no permit', 'a stopped worker')
		{
			run_case(statement => $_, world => $world, waits => 1) for @permits;
		}
		run_case(statement => 'SELECT * FROM zk_barriers', world => 'free');
		run_case(statement => 'SELECT * FROM zk_stat_barriers', world => 'free');
		ok_true('after permits and barriers');
		ok_interrupted(map { ("$_ cancel", "$_ terminate") } 'ZkLockBarrier ConditionVariableTimedSleep');
		push @steps, [ 1, sub {
			ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT waiting FROM zk_stat_barriers') == 0 && !$zk->children(ZkLock::directory('b', 'barriers')) }, 'nobody is left at the barrier');
			pass('nobody is left at the barrier');
		} ];
	},

	# Names that are kept, and no room in the table for others
	room => sub {
		run_lock(world => 'x kept');
		my @new = (@locks, "SELECT zk_is_leader('e')", "SELECT zk_require_leader('e')");
		for my $world ('no room, a stopped worker', 'no room', 'no room at all')
		{
			run_case(statement => $_, world => $world, waits => 1) for @new;
			run_case(statement => $procedure, world => $world, place => ['alone'], waits => 1);
		}
		ok_true('after a full table');
		ok_interrupted(map { ("$_ cancel", "$_ terminate") } 'ZkLockAcquire WaitLatch', 'sleep_until CHECK_FOR_INTERRUPTS');
	},

	# Work that is handed out: whatever fails, no item is had by nobody, and no put is left
	queues => sub {
		my @calls = ("SELECT zk_queue_put('q', 'put')", "SELECT payload FROM zk_queue_take('q')", "SELECT zk_queue_purge('none')", 'SELECT queue FROM zk_queues', 'SELECT state FROM zk_queue_items');
		my $some = "SELECT zk_queue_put('q', i::text) FROM generate_series(1, 3) i";
		run_case(statement => $_, world => 'free', setup => $some) for @calls;
		ok_handed_out('after all calls');
		run_case(statement => "BEGIN; $_; $calls[1]; $_; COMMIT", world => 'free', setup => $some, place => ['alone']) for $calls[0], "SAVEPOINT s; $calls[1]; ROLLBACK TO s";
		run_case(statement => "BEGIN; $_; PREPARE TRANSACTION 'p'", world => 'free', setup => $some, place => ['alone']) for @calls[0, 1];
		ok_handed_out('after all transactions');
		# Now nothing answers.  (No statement_timeout ends a commit, and so a put,
		# whose wait 136_queue_transactions ends.)
		run_case(statement => $_, world => 'a stopped worker', timeout => '500ms', waits => 1) for $calls[1], "SELECT FROM zk_queue_take('empty', '1 h')", @calls[2, 3];
		ok_handed_out('after a stopped worker');
		ok_true('after all of them');
		ok_interrupted(map { ("$_ cancel", "$_ terminate") } 'ZkLockQueueTake ConditionVariableTimedSleep');
	},

	# What finds the mutant of acquire.c out
	mutant => sub { run_case(statement => $locks[0], world => 'no room, a stopped worker', place => ['alone'], waits => 1) });

# Nobody has an item, and none is on its way; all that is there can be had.
sub ok_handed_out
{
	my $what = shift;
	push @steps, [ 1, sub {
		my $seen;
		ZkLock::wait_until(
			sub { ($seen = ZkLock::ask($a, "SELECT coalesce(sum(held + putting), 0) FROM zk_queues")) eq '0' },
			'all is given back, and settled', sub { $seen });
		my ($length, $had) = (ZkLock::ask($a, "SELECT sum(length) FROM zk_queues"), 0);
		$had++ while $there->query("SELECT payload FROM zk_queue_take('q')") ne '';
		is($had, $length, "$what: what is there can be had");
	} ];
}

# All of these have failed.  Two attempts may pass different points before one, which is
# missed then: the case that comes first, if there is one, is repeated for that.
sub ok_interrupted
{
	my $case = ref $_[0] ? shift : undef;
	my @points = @_;
	push @steps, [ 1, sub {
		my @missed;
		for my $try (0 .. 9)
		{
			@missed = grep { !$interrupted{$_} } @points;
			last unless $case && @missed;
			run_now($case, 'alone');
		}
		is("@missed", '', 'each wait has been interrupted');
	} ];
}

$part{$part}->();
print '# steps: ', 2 + sum(map { $_->[0] } @steps), "\n";
$_->[1]->() for @steps;
is(ZkLock::ask($a, 'SELECT pg_postmaster_start_time()'), $started, 'the server has not been restarted');
my $bad = join '', grep { /TRAP|PANIC|terminated by signal|leak|you don't own/ } split /^/m, PostgreSQL::Test::Utils::slurp_file($a->logfile);
is($bad, '', 'no bad line in the log');
done_testing();
