# Schedule - sessions that make their steps in a given order, with locks of PostgreSQL's or with
# zklock's: who gets, who waits, who fails.  PostgreSQL's isolationtester does so for one server.
#
#   my $postgres = Schedule::world('table', sub { $a });
#   my $zklock = Schedule::world('zklock', sub { $_[0] eq 's1' ? $a : $b });
#   my @script = ('s1 X a', 's2 X a: waits', 's1 commits > s2');
#   Schedule::ok_plays($_, 'two in turn', @script) for $postgres, $zklock;
#
# Functions (none is exported):
#
#   world(KIND, PLACE, OPTIONS)  KIND: table (LOCK TABLE), row (FOR UPDATE), advisory, or zklock.
#           PLACE: a function of a session's name that returns its server.  Options: setup, what each
#           session does first (default: BEGIN); sql, statements by name
#   prepare(NODE)       what the worlds need in its database: once
#   ok_plays(WORLD, WHAT, STEP...)   a test: all comes as the script says
#   play(WORLD, STEP...)     the same; returns what came, as a script
#   record(WORLD, STEP...)   the steps have no outcomes; returns the script with those that come.
#           For PostgreSQL's worlds alone: who is released there is so at once, and
#           nobody may be in a deadlock
#   begin(WORLD, STEP)  one whose outcome is not waited for
#   drain(WORLD, NAME...)    these sessions commit as soon as they can.  Returns
#           what became of each that was waiting, in this order: 's2', or 's2=40P01'
#   end(WORLD)          its sessions give all back
#   session(WORLD, NAME), blocked(WORLD, NAME)
#
# A step is "SESSION WHAT", and what comes of it: nothing, ": waits", or ": OUTCOME" (a SQLSTATE, or
# what a query returns); and after ">" the sessions that go on, each perhaps with "=OUTCOME".
# WHAT is one of these:
#
#   X NAME, S NAME      exclusive and shared; "x" and "s" are the same, but for LOCK TABLE another mode,
#                       which conflicts with itself and not with S
#   X? NAME, S? NAME    if it is free: t or f
#   X1, S1              the first that is free of r1 and r2: its name
#   commits, rolls_back, savepoint
#   statement_timeout T, lock_timeout T, deadlock_timeout T
#   any other           the name of a statement in sql
#   reaches NAME        until it waits, and has this for its application_name
package Schedule;

use strict;
use warnings;

use Test::More;
use ZkLock;

my %form = (
	table => {
		X => 'LOCK TABLE %s IN ACCESS EXCLUSIVE MODE',
		S => 'LOCK TABLE %s IN ACCESS SHARE MODE',
		x => 'LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE',
		s => 'LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE',
		'X?' => 'LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE NOWAIT',
	},
	row => {
		X => "SELECT FROM rows WHERE id = '%s' FOR UPDATE",
		S => "SELECT FROM rows WHERE id = '%s' FOR SHARE",
		'X?' => "SELECT FROM rows WHERE id = '%s' FOR UPDATE NOWAIT",
		'S?' => "SELECT FROM rows WHERE id = '%s' FOR SHARE NOWAIT",
		X1 => 'SELECT id FROM rows ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED',
		S1 => 'SELECT id FROM rows ORDER BY id LIMIT 1 FOR SHARE SKIP LOCKED',
	},
	advisory => {
		X => "SELECT FROM pg_advisory_xact_lock(hashtext('%s'))",
		S => "SELECT FROM pg_advisory_xact_lock_shared(hashtext('%s'))",
		'X?' => "SELECT pg_try_advisory_xact_lock(hashtext('%s'))",
		'S?' => "SELECT pg_try_advisory_xact_lock_shared(hashtext('%s'))",
	},
	zklock => {
		X => "SELECT FROM zk_lock('%s')",
		S => "SELECT FROM zk_lock('%s', 'shared')",
		'X?' => "SELECT zk_try_lock('%s')",
		'S?' => "SELECT zk_try_lock('%s', 'shared')",
		X1 => "SELECT first_free('exclusive')",
		S1 => "SELECT first_free('shared')",
	});
for my $kind (qw(advisory zklock)) { $form{$kind}{$_} = $form{$kind}{ uc $_ } for qw(x s); }
my %plain = (commits => 'COMMIT', rolls_back => 'ROLLBACK', savepoint => 'SAVEPOINT s');

sub prepare
{
	my ($node) = @_;
	ZkLock::ask($node, <<'SQL');
CREATE TABLE rows (id text PRIMARY KEY);
INSERT INTO rows VALUES ('r1'), ('r2');
CREATE FUNCTION first_free(mode text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. 2 LOOP
			IF zk_try_lock('r' || i, mode) THEN RETURN 'r' || i; END IF;
		END LOOP;
		RETURN NULL;
	END $$;
SQL
	ZkLock::ask($node, "CREATE TABLE a$_ ()") for 1 .. 8;
	return;
}

my %pool;

sub world
{
	my ($kind, $place, %option) = @_;
	return { kind => $kind, place => $place, setup => 'BEGIN', sql => {}, sessions => {}, %option };
}

sub session
{
	my ($world, $name) = @_;
	my $node = $world->{place}->($name);
	return $world->{sessions}{$name} //= do {
		my $s = $pool{ $node->name . " $name" } //= ZkLock::session($node);
		$s->query($world->{setup});
		$s;
	};
}

sub end
{
	my ($world) = @_;
	for my $s (values %{ $world->{sessions} })
	{
		$s->fails('ROLLBACK');
		$s->query('SELECT zk_unlock_all(); SELECT pg_advisory_unlock_all(); RESET ALL; DEALLOCATE ALL');
	}
	$world->{sessions} = {};
	return;
}

sub _sql
{
	my ($world, $what) = @_;
	return $world->{sql}{$what} // $plain{$what} // do {
		my ($op, $name) = split / /, $what;
		my $form = $form{ $world->{kind} }{$op};
		$form ? sprintf($form, $name // ()) : $op =~ /_timeout$/ ? "SET $op = '$name'" : die "step \"$what\"";
	};
}

# Does it wait for somebody, and has its place?  Behind another session of its server, or by
# the rule of the queue; or as a reader whose server's grant a writer elsewhere wants.
sub blocked
{
	my ($world, $name) = @_;
	my $s = session($world, $name);
	my $pid = $s->pid;
	return ZkLock::ask($s->{node}, <<"SQL") eq 't';
SELECT cardinality(pg_blocking_pids($pid)) > 0
	OR EXISTS (SELECT FROM zk_locks AS wait, zk_contenders(wait.name) AS own
		WHERE wait.pid = $pid AND NOT wait.granted AND own.ours AND own.mode = wait.mode
			AND (NOT own.granted OR wait.mode = 'shared'
				AND EXISTS (SELECT FROM zk_contenders(wait.name) WHERE NOT ours AND mode = 'exclusive')))
SQL
}

# A release does not wait until ZooKeeper knows.
sub _wait_given_back
{
	my ($node) = @_;
	my $sql = q{SELECT count(*) FROM zk_lock_dirs() AS d, zk_contenders(d.name) WHERE ours AND (state IN ('held', 'waiting')) IS NOT TRUE};
	my $seen;
	ZkLock::wait_until(sub { ($seen = ZkLock::ask($node, $sql)) == 0 }, 'all is given back', sub { $seen });
	return;
}

# What became of the step of a session that is not busy any more.
sub _outcome
{
	my ($s, $what) = @_;
	my $failure = $s->failure;
	return $what =~ /\?/ && $failure =~ /^55P03/ ? 'f' : substr $failure, 0, 5 if $failure ne '';
	my $answer = $s->{answer} =~ s/\n/ /gr;
	return $what =~ /\?/ && $answer eq '' ? 't' : $answer;
}

sub _with { my ($name, $outcome) = @_; return $outcome eq '' ? $name : "$name=$outcome"; }

sub _play
{
	my ($world, $recording, @script) = @_;
	my (@came, %waits);
	for my $line (@script)
	{
		my ($name, $what, $outcome, $then) = $line =~ /^(\S+) ([^\s:>]+(?: [^\s:>]+)?)(?:: (.*?))?(?: > (.*))?$/ or die "line \"$line\"";
		my $s = session($world, $name);
		if ($what =~ /^reaches (.*)/)
		{
			my $sql = "SELECT application_name = '$1' FROM pg_stat_activity WHERE pid = " . $s->pid;
			ZkLock::wait_until(sub { ZkLock::ask($s->{node}, $sql) eq 't' && blocked($world, $name) }, $line);
			push @came, $line;
			next;
		}
		$s->send(_sql($world, $what));
		my $may_wait = $recording || ($outcome // '') eq 'waits';
		ZkLock::wait_until(sub { !$s->busy || $may_wait && blocked($world, $name) }, "$line: it waits, or is done");
		$waits{$name} = $what if $s->busy;
		$outcome = $s->busy ? 'waits' : _outcome($s, $what);
		_wait_given_back($s->{node}) if $world->{kind} eq 'zklock' && $what =~ /^(?:commits|rolls_back|open)/;
		my $go_on = sub {
			my $gone = $_[0];
			return _with($gone, _outcome(session($world, $gone), delete $waits{$gone}));
		};
		my @gone;
		if ($recording)
		{
			my $again = 1;
			while ($again)
			{
				$again = 0;
				for my $other (sort keys %waits)
				{
					my $o = session($world, $other);
					ZkLock::wait_until(sub { !$o->busy || blocked($world, $other) }, "$line: $other waits, or is done");
					next if $o->busy;
					push @gone, $go_on->($other);
					$again = 1;
				}
			}
		}
		else
		{
			for my $expected (map { s/=.*//r } split / /, $then // '')
			{
				next if !$waits{$expected};
				ZkLock::wait_until(sub { !session($world, $expected)->busy }, "$line: $expected goes on");
			}
			push @gone, map { $go_on->($_) } grep { !session($world, $_)->busy } sort keys %waits;
		}
		push @came, "$name $what" . ($outcome eq '' ? '' : ": $outcome") . (@gone ? " > @gone" : '');
	}
	return @came;
}

sub play { my ($world, @script) = @_; return _play($world, 0, @script); }

sub record
{
	my ($world, @steps) = @_;
	my @script = _play($world, 1, @steps);
	end($world);
	return @script;
}

sub ok_plays
{
	my ($world, $what, @script) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @came = play($world, @script);
	end($world);
	return is(join("\n", @came), join("\n", @script), $what);
}

sub begin
{
	my ($world, $step) = @_;
	my ($name, $what) = split / /, $step, 2;
	session($world, $name)->send(_sql($world, $what));
	return;
}

sub drain
{
	my ($world, @names) = @_;
	my @came;
	while (@names)
	{
		ZkLock::wait_until(sub { grep { !session($world, $_)->busy } @names }, "one of @names goes on");
		# who has failed may have let another one go on
		my @done = grep { !session($world, $_)->busy } @names;
		my ($next) = ((grep { session($world, $_)->failure ne '' } @done), @done);
		@names = grep { $_ ne $next } @names;
		push @came, _with($next, _outcome(session($world, $next), ''));
		session($world, $next)->query('COMMIT');
	}
	return @came;
}

1;
