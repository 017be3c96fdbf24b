# losses.pl - whatever is interrupted while a lock is lost, or may be, fools nobody.
#
# losses.pl PART: lost, doubt, or one for a mutant (see the end).  As interrupts.pl has it: a case is
# a statement in some state of the world, run with its first point failing, its second, and
# so on (faults.h).  Here the session holds something, as of before, that it has lost
# when the statement comes, or of which nobody can say while it runs.  Each time
#
#   - nothing is committed that was done under a lock that is lost;
#   - as long as a lost hold is left, the next statement is refused, and then no more;
#   - a hold that is gone, or taken anew, was not lost without a word;
#   - no claim is made for a lock that is lost: what zk_lock and the like say is true;
#   - zk_locks and pg_locks say the same, and nothing waits;
#   - when the session has given up all, there is nothing of it in the server;
#
# and when all is over, a new hold is a true one, and no contender is left.
use strict;
use warnings;

use FindBin;
use List::Util qw(sum);
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;

my ($part) = @ARGV;

my $zk = ZooKeeper->new->start;
my $conf = "zklock.session_timeout = '10min'\nzklock.connect_timeout = '1h'\nautovacuum = off";
my $a = ZkLock::server('a', $zk, conf => $conf);
my $b = ZkLock::server('b', $zk, conf => $conf);
ZkLock::wait_connected($a, $b);
ZkLock::ask($a, PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/functions.sql"));
ZkLock::ask($a, 'CREATE TABLE work (n integer)');
my $started = ZkLock::ask($a, 'SELECT pg_postmaster_start_time()');
my $s = ZkLock::session($a);
my $here = ZkLock::session($a);
my $there = ZkLock::session($b);
my %interrupted;

#
# How a lock is lost, or nobody knows
#

# The worker's word: it does not know of the end of a session while it is stopped.
my $worker;
sub stop_worker
{
	$worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
	kill 'STOP', $worker or die;
	ZkLock::wait_until(sub { stopped($worker) }, 'the worker is stopped');
}
sub continue_worker { kill 'CONT', $worker if $worker; undef $worker; }
my $silent;
sub silence_zookeeper { $zk->pause(1); $silent = 1; }
sub end_silence { $zk->resume(1) if $silent; $silent = 0; }

# The worker is stopped, and has not read how ZooKeeper answered to a write of it.  An
# election that it has never seen makes it write, whatever it is about.
my $elections = 0;
sub leave_unread
{
	silence_zookeeper();
	ZkLock::ask($a, 'SELECT zk_is_leader(\'unread ' . ++$elections . '\', \'0\')');
	ZkLock::wait_until(sub { unread('ZooKeeper') }, 'a write is on its way');
	stop_worker();
	end_silence();
	ZkLock::wait_until(sub { unread('worker') }, 'ZooKeeper has answered');
}

# Stopped, they would not stop.
END { continue_worker(); end_silence() if $zk }

sub zk_session { return ZkLock::ask($a, "SELECT $_[0] FROM zk_session"); }

# Somebody deletes the contender of x.
sub break_x
{
	ZkLock::ask($a, "SELECT zk_break('x', token) FROM zk_contenders('x') WHERE ours");
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT bool_and(grant_state = 'lost') FROM zk_locks WHERE name = 'x'") eq 't' }, 'x is lost');
}

# The session's end: to the ensemble it is the same whether that expires or is closed.
sub close_session
{
	my $id = zk_session('session_id');
	# a worker that reconnects just now would be left with a session that has no answers
	stop_worker() unless $worker;
	my @session = unpack 'x8 q a16', PostgreSQL::Test::Utils::slurp_file($a->data_dir . '/pg_stat_tmp/zklock.session');
	# its own client may take it back
	ZkLock::wait_until(
		sub { eval { ZooKeeper::Client->new($zk->hosts, resume => \@session)->close }; return !exists $zk->sessions->{$id} },
		'the session has ended');
	return $id;
}

sub expire
{
	my $id = close_session();
	continue_worker();
	# A worker whose connection was made before the end hears of that when it writes.
	ZkLock::wait_until(
		sub {
			ZkLock::ask($a, "SELECT zk_try_lock('renewed')");
			zk_session("state = 'connected' AND session_id <> '$id' AND lease_remaining > '0'") eq 't';
		},
		'there is a new session');
}

# The lease comes back when a write is acknowledged that was sent after it ended.
sub renew
{
	continue_worker();
	end_silence();
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT zk_try_lock('renewed')"); zk_session("lease_remaining > '0'") eq 't' }, 'the lease is good');
}

# The worlds: what happens before the statement; and to a statement that waits, or that was
# stopped in its tracks (pause); whether the holds are lost by then.
my %world = (
	'a contender deleted' => { before => \&break_x, lost => 1 },
	'a contender deleted, and x taken' => {
		before => sub { break_x(); $there->query("BEGIN; SELECT zk_lock('x')") },
		after => sub { $there->query('COMMIT') }, lost => 1, taken => 1 },
	'the session expired' => { before => \&expire, lost => 1 },
	'the worker stopped' => {
		before => sub { stop_worker(); ZkLock::ask($a, 'SELECT zk_lapse()') }, verdict => sub { $s->cancel }, after => \&renew },
	'the worker stopped, and the session expires' => {
		before => sub { stop_worker(); ZkLock::ask($a, 'SELECT zk_lapse()') }, verdict => \&expire, lost => 1 },
	'the worker stopped, an answer unread, and the session expires' => {
		before => sub { leave_unread(); ZkLock::ask($a, 'SELECT zk_lapse()') }, verdict => \&expire,
		after => sub { ZkLock::ask($a, "SELECT zk_resign('unread $elections')") }, lost => 1 },
	'ZooKeeper stopped, and continued' => {
		before => sub { silence_zookeeper(); ZkLock::ask($a, 'SELECT zk_lapse()') }, verdict => \&renew },
	'the session expires while it looks' => { pause => \&expire, lost => 1 });

# What is held.  The work is done in good faith.
my $session = "SELECT zk_lock('x', scope => 'session')";
my $work = 'INSERT INTO work VALUES (1)';
my %hold = (
	session => $session,
	'session, twice' => "$session; $session; SELECT zk_lock('y', 'shared', 'session')",
	'session, and work' => "$session; BEGIN; $work",
	'both scopes' => "$session; BEGIN; SELECT zk_lock('x')",
	transaction => "BEGIN; $work; SELECT zk_lock('x')",
	savepoint => "BEGIN; SAVEPOINT s; $work; SELECT zk_lock('x')",
	leadership => "BEGIN; $work; SELECT zk_require_leader('e')",
	'shared, as others here' => "BEGIN; $work",
	nothing => 'BEGIN');

# Is the process stopped?
sub stopped { my ($state) = PostgreSQL::Test::Utils::slurp_file("/proc/$_[0]/stat") =~ /.*\) (\S)/s; return $state eq 'T'; }

# Has one end of the worker's connection, the worker's or ZooKeeper's, bytes to read?
sub unread
{
	my $pid = zk_session('worker_pid');
	my %socket = map { (readlink($_) // '') =~ /^socket:\[(\d+)\]/ ? ($1 => 1) : () } glob "/proc/$pid/fd/*";
	my @ends = map { [split] } map { split /^/m, PostgreSQL::Test::Utils::slurp_file($_) } grep { -e } glob '/proc/net/tcp{,6}';
	my $port = sprintf ':%04X', $zk->port;
	my ($end) = grep { $socket{ $_->[9] } && $_->[2] =~ /$port$/ } @ends;
	my ($from) = $end ? $end->[1] =~ /(:\w+)$/ : ();
	($end) = grep { $_->[1] =~ /$port$/ && $_->[2] =~ /$from$/ } @ends if $end && $_[0] eq 'ZooKeeper';
	return $end && $end->[4] !~ /:0+$/;
}

# One attempt.  Returns the error, which point failed, and what is wrong.
sub attempt
{
	my ($case, $world, $n) = @_;
	my ($told, @wrong) = ('');
	$s = ZkLock::session($a) unless $s->alive;
	my $pid = $s->pid;
	my $log_seen = -s $a->logfile;
	my $others = $case->{hold} =~ /others/ ? 1 : 0;
	ZkLock::ask($a, 'TRUNCATE work');
	$here->query("BEGIN; SELECT zk_lock('x', 'shared')") if $others;
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT zk_is_leader('e')") eq 't' }, 'it leads') if $case->{hold} eq 'leadership';
	my $arm = $world->{pause} ? 'zk_pause' : 'zk_fault';
	my $in_time = $world->{taken} ? "SET lock_timeout = '100ms';" : '';
	$s->query("SET lock_timeout = 0; $hold{$case->{hold}}; $in_time SELECT '' FROM $arm($n)");
	my $holds = ZkLock::ask($a, "SELECT count(*) FROM zk_locks WHERE pid = $pid AND scope = 'session'");
	$world->{before}->() if $world->{before};

	$s->send(join "\n", "$case->{statement};", '\echo <rollback>', 'ROLLBACK;', '\echo <failed>', 'SHOW zklock.fault;');
	if ($world->{verdict} || $world->{pause})
	{
		my $waits = $world->{pause} ? sub { stopped($pid) }
		  : sub { ZkLock::ask($a, "SELECT coalesce(bool_or(wait_event_type IS NOT DISTINCT FROM 'Extension'), true) FROM pg_stat_activity WHERE pid = $pid") eq 't' };
		ZkLock::wait_until(sub { !$s->busy || $waits->() }, 'it waits, or is through');
		my $wait = $s->busy;
		if ($world->{verdict}) { $world->{verdict}->(); }
		elsif ($wait) { $world->{pause}->(); kill 'CONT', $pid; }
	}
	my $failure = $s->failure;
	my ($answer, $failed) = $s->{answer} =~ /\A(.*?)\n?<rollback>\n.*<failed>\n?(.*)\z/s;
	$told .= $s->notices;
	$world->{after}->() if $world->{after};

	my $lost_first = $world->{lost} && !($world->{pause} && ($failed // '') eq '');
	push @wrong, 'committed what was done under a lost lock' if $lost_first && ZkLock::ask($a, 'SELECT count(*) FROM work');

	if ($s->{lost})
	{
		push @wrong, "lost: $failure" unless $s->notices =~ /^FATAL:  57P01/m;
		ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 }, 'the backend has gone');
		($failed) = PostgreSQL::Test::Utils::slurp_file($a->logfile, $log_seen) =~ /\[$pid\].* fault: (.*)/;
		$failed //= 'none, and terminated';
	}
	else
	{
		my ($all, $lost, $true) = split /\|/, ZkLock::ask($a, "SELECT all_of($pid),
			(SELECT string_agg(DISTINCT name, ' ' ORDER BY name) FROM zk_locks WHERE pid = $pid AND grant_state = 'lost'),
			(SELECT string_agg(token::text, ' ') FROM zk_locks WHERE pid = $pid AND grant_state <> 'lost')"), -1;
		push @wrong, "inconsistent: $all" if $all =~ /[A-Z]{4}/;
		push @wrong, "in transaction scope: $all" if $all =~ /:transaction:/;
		if ($lost_first && $holds)
		{
			my $next = $s->fails('SELECT 1');
			my $refused = $next =~ /^55000: lock "([xy])" was lost/ ? $1 : '';
			$told .= $s->notices;
			push @wrong, "the next statement says '$next', and lost is '$lost'" if $lost eq '' ? $next ne '' : $lost !~ /$refused/ || $refused eq '';
			push @wrong, "lost without a word, and now '$all'"
			  if $lost !~ /x/ && $told !~ /: lock "x" was lost/ && $case->{statement} !~ /DISCARD|advisory/;
		}
		# Whoever is given a token has the lock, or had it when it was given.
		if ($failure eq '' && $failed ne 'nothing_lost pause' && $case->{hold} =~ /^session/ && $case->{statement} =~ /^SELECT zk_(lock|token|assert)\([^;]*$/ && $answer =~ /^\d+$/)
		{
			push @wrong, "a false claim: $answer, and true is '$true'" unless grep { $answer eq $_ } split / /, $true;
		}
		$s->fails('SET lock_timeout = 0; SELECT zk_unlock_all()');
		push @wrong, "zk_unlock_all fails: $s->{error}" if $s->{error} ne '';
	}
	$here->fails('ROLLBACK') if $others;
	my $left = ZkLock::ask($a, "SELECT all_of($pid), locks FROM zk_session");
	push @wrong, "left: $left" if $left ne '|0';
	return ($failure, $failed // 'no end', @wrong);
}

# What is to be done: how many tests, and a function that makes them.
my @steps;

# Options of a case: hold, world, statement; says: what its error is when no point fails.
sub run_case
{
	my %case = @_;
	push @steps, [ 1, sub { run_now(\%case) } ];
}

sub run_now
{
	my $case = shift;
	my $world = $world{ $case->{world} };
	my (@wrong, %known);
	my ($repeated, $points) = (0, 0);

	for my $n (0 .. 1000)
	{
		my ($failure, $failed, @found) = attempt($case, $world, $n);
		push @found, "it says '$failure'" if $n == 0 && !$world->{pause} && $failure !~ $case->{says};
		push @wrong, map { "point $n, $failed: $_" } @found;
		last if $n > 0 && $failed eq '' || @wrong > 5;
		next if $n == 0;
		$points++;
		$interrupted{$failed}++;
		$repeated = $known{$failed}++ ? $repeated + 1 : 0;
		last if $repeated > 12;
	}
	ok(!@wrong, "$case->{hold}; $case->{world}; $case->{statement}: $points points") or diag(join "\n", @wrong);
}

# All of these have failed.
sub ok_interrupted
{
	my @points = @_;
	push @steps, [ 1, sub { is(join(', ', grep { !$interrupted{$_} } @points), '', 'each of these was interrupted') } ];
}

# Nobody is fooled by what all of this has left.
sub ok_true
{
	push @steps, [ 4, sub {
		$s->quit;
		$s = ZkLock::session($a);
		$s->query('BEGIN');
		my $token = $s->query("SELECT zk_lock('x')");
		is(join(' ', map { $zk->stat(ZkLock::directory('x') . "/$_")->{czxid} } ZkLock::queue($zk, 'x')), $token, 'a new hold is a contender, and the only one');
		is($there->query("SELECT zk_try_lock('x', 'shared')"), 'f', '... which keeps the others out');
		$s->query('COMMIT');
		ZkLock::wait_queue($zk, $_, 0) for qw(x y);
		pass('... until the COMMIT');
		is(ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, '... nor is level 1 left');
	} ];
}

my $none = qr/^$/;
my ($r40001, $r55000) = map { qr/^$_: (lock "x"|leadership of election "e") was lost$/ } 40001, 55000;

# By what is held: statements, and what they say when that is lost
my @anew = ($session, "SELECT zk_try_lock('x', scope => 'session')", "SELECT zk_lock('x', 'shared', 'session')");
my %lost = (
	session => [ map({ [ $_, $none ] } @anew, "CALL zk_lock_session('x')", "BEGIN; SELECT zk_lock('x'); ROLLBACK", "SELECT zk_unlock('x')",
		"SELECT zk_unlock_all()", 'SELECT pg_advisory_unlock_all()', 'DISCARD ALL', 'ROLLBACK', 'BEGIN; COMMIT', "BEGIN; SELECT zk_unlock('x'); COMMIT"),
		map { [ $_, $r55000 ] } $work, "SELECT zk_token('x')", "SELECT zk_assert('x')", "DO \$\$ BEGIN PERFORM zk_unlock('x'); END \$\$" ],
	'session, twice' => [ map({ [ $_, $none ] } $session, 'SELECT zk_unlock_all()', 'DISCARD ALL'), [ "SELECT zk_unlock('x')", $none ] ],
	'session, and work' => [ map { [ $_, $r55000 ] } 'COMMIT', "SELECT zk_unlock('x'); COMMIT", "$session; COMMIT", 'SELECT pg_advisory_unlock_all(); COMMIT', "PREPARE TRANSACTION 'p'" ],
	'both scopes' => [ map({ [ $_, $r40001 ] } 'COMMIT', "$session; COMMIT", "SELECT zk_unlock('x'); COMMIT"), [ 'ROLLBACK', $none ] ],
	transaction => [ map({ [ $_, $r40001 ] } 'COMMIT', 'COMMIT AND CHAIN', 'SELECT 1', "SELECT zk_lock('x')", "SELECT zk_try_lock('x'); COMMIT", "SELECT zk_token('x')", "SELECT zk_assert('x')",
		"SELECT zk_unlock('x'); COMMIT", "SELECT zk_unlock_all(); COMMIT", 'SAVEPOINT t; RELEASE t; COMMIT'), map { [ $_, $none ] } 'ROLLBACK', 'ROLLBACK AND CHAIN' ],
	savepoint => [ [ 'ROLLBACK TO s; COMMIT', $none ], [ 'ROLLBACK TO s; SELECT 1; COMMIT', $none ], [ 'RELEASE s; COMMIT', $r40001 ],
		[ "SELECT 1; ROLLBACK TO s; SELECT zk_lock('x'); COMMIT", $r40001 ] ],
	leadership => [ map({ [ $_, $r40001 ] } 'COMMIT', "SELECT zk_require_leader('e')", 'SELECT 1; COMMIT'), [ 'ROLLBACK', $none ] ]);

# ... and what they say when it turns out to be good
my %good = (
	session => [ $session, "SELECT zk_token('x')", "SELECT zk_assert('x')" ],
	'session, and work' => ['COMMIT'],
	transaction => [ 'COMMIT', "SELECT zk_lock('x')", "SELECT zk_token('x')" ],
	leadership => [ 'COMMIT', "SELECT zk_require_leader('e')" ],
	'shared, as others here' => ["SELECT zk_lock('x', 'shared'); COMMIT"],
	nothing => [ "SELECT zk_is_leader('e', '0')" ]);

my %part = (
	lost => sub {
		for my $hold (sort keys %lost)
		{
			for my $case (@{ $lost{$hold} })
			{
				my ($statement, $says) = @$case;
				run_case(hold => $hold, world => $hold eq 'leadership' || $hold eq 'session, twice' ? 'the session expired' : 'a contender deleted', statement => $statement, says => $says);
			}
		}
		run_case(hold => 'session', world => 'the session expired', statement => $_, says => $none) for $session, "SELECT zk_unlock('x')";
		run_case(hold => 'transaction', world => 'the session expired', statement => 'COMMIT', says => $r40001);
		run_case(hold => 'session', world => 'a contender deleted, and x taken', statement => $_, says => qr/^(55P03|$)/) for @anew;
		ok_true();
		ok_interrupted('display pnstrdup error', map { "acquire_for_transaction LockAcquire $_" } qw(error cancel terminate));
	},

	doubt => sub {
		for my $hold (sort keys %good)
		{
			for my $statement (@{ $good{$hold} })
			{
				my $state = $hold =~ /session/ ? $r55000 : $r40001;
				run_case(hold => $hold, world => 'the worker stopped', statement => $statement, says => qr/^57014|^$/);
				run_case(hold => $hold, world => 'ZooKeeper stopped, and continued', statement => $statement, says => $none);
				run_case(hold => $hold, world => 'the worker stopped, and the session expires', statement => $statement, says => $state)
				  unless $hold =~ /others|nothing/;
				run_case(hold => $hold, world => 'the worker stopped, an answer unread, and the session expires', statement => $statement, says => $state)
				  if $statement eq 'COMMIT';
				run_case(hold => $hold, world => 'the session expires while it looks', statement => $statement, says => $none);
			}
		}
		ok_true();
		ok_interrupted(map({ "ZkLockLease ConditionVariableTimedSleep $_" } 'cancel', 'terminate'), map { "$_ pause" } qw(nothing_lost zklock_loss_settle));
	},

	# What finds the mutants of loss.c out
	'lost-mutant' => sub { run_case(hold => 'session', world => 'a contender deleted', statement => $work, says => $r55000) },
	'doubt-mutant' => sub { run_case(hold => 'session, and work', world => 'the session expires while it looks', statement => 'COMMIT', says => $none) });

$part{$part}->();
print '# steps: ', 2 + sum(map { $_->[0] } @steps), "\n";
$_->[1]->() for @steps;
is(ZkLock::ask($a, 'SELECT pg_postmaster_start_time()'), $started, 'the server has not been restarted');
my $bad = join '', grep { /TRAP|PANIC|terminated by signal|leak|you don't own/ } split /^/m, PostgreSQL::Test::Utils::slurp_file($a->logfile);
is($bad, '', 'no bad line in the log');
done_testing();
