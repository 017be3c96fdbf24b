# Chaos::Client - an application on one server that locks, checks, writes and
# commits in a loop, as a process of its own.
#
# It reaches its server, and the database where the registers are, by Unix
# sockets: nothing that is cut keeps it from going wrong.
#
# What it asks and is told goes to standard output as a history for test/judge (Chaos::Told), and
# besides one line a transaction (Chaos::History reads both):
#
#   T client server workload name mode begun locked token proven ended outcome data
#
# Times are of CLOCK_BOOTTIME, which all processes of the machine share:
#
#   begun    before zk_lock was sent
#   locked   when its answer was here
#   proven   before the last statement was sent that confirmed the hold: zk_token or
#            zk_assert that answered with our token, or COMMIT that committed
#   ended    when the transaction was over
#
# What is claimed.  zk_lock's answer is a claim of the past.  zk_token, zk_assert
# and COMMIT look, after they were sent, whether the very grant that zk_lock gave
# still stands; if so it stood all the time in between, so from "locked" until
# "proven" nobody else can have had the lock.  That is the interval of workload
# "intervals" (and of the others), and no two of one name may overlap, whatever is
# paused, cut or killed.  Nothing is claimed after "proven": between the check
# within COMMIT and its effect somebody else may get the lock.  Nor is there an
# interval without a second answer: a transaction whose first check fails, or
# whose COMMIT is never answered, has claimed nothing.
#
# Workload "election" asks whether its server leads, over and over, or has a
# transaction require it, or a command run if it does.  The interval is from the first yes to the last one with
# the same token.  One server's clients may well say so at once, so each server
# has one.
#
# Workload "intervals" has its locks for a moment, "long" for up to three session
# timeouts: only such a holder can outlive its session.  "register" and "fenced"
# read a register in the fourth database, check, think, write it back, commit.
# What lies between check and write is not protected by the lock; in "fenced" it
# is by zk_fence: the token is shown to the fence before the register is read, in
# a transaction of its own, and again with the write.  (All in one transaction is
# simpler.  There the row lock alone would order the writers; here it is the token
# that must.)
#
# Workload "mixed" has readers and writers of one name, some of whom would not wait,
# or not for long: a reader and a writer must not overlap, nor two writers.  Who is
# told that somebody else has the lock has no interval, and his outcome is "busy".
#
# Workload "rings" takes two of eight names in whatever order, and waits for the second as long
# as it takes: who waits for whom may well be a ring over several servers.  It must
# be broken (40P01): "data" is from when until when the longer wait was.  Half of the names are
# permits, of which there is one, and which servers keep, too.  The second lock has a line of
# its own.
#
# Workload "sets" takes two or three of six names in one step, in whatever order; "data" as
# in "rings": none of them may wait for another in a ring.  Each name has a line of its own.
#
# Workload "permits" takes one of three permits, or of two, and asks which one it is.  "data" is of
# how many: no more may have one at a time than any of those who have one names.  The number
# has a line of its own: nobody else may have it meanwhile.
#
# Workload "reentrant" takes a lock for the session, takes it again, and gives it back twice: between
# that, it still has it.
#
# Workload "barrier" meets the others of its kind, three at a time.
#
# Workload "queue" puts an item, or takes one and writes it into the fourth database by its id,
# and by the time since when it is in the queue, before its own commit: an item that is handed
# out again is in there once, and one that was made twice is not.  "data" is the id that it put,
# or took: nobody else may have that meanwhile.
#
# Workloads "jobs-run" and "jobs-skip" are the schedule of a job on each server, with the
# one and the other for in_doubt.  Slots are 1, 2, 3 and so on; a client calls for its
# slot until it is told that this one is done, or a later one, and then for the next.  What the
# runs leave is Chaos::Jobs' business; "data" is the slot, and what the client was told: "ran",
# "done" (by another run) or "skipped" (it counts as done, in doubt), and of which slot that
# was said.  No interval is claimed: a run that was lost may still be on its way to its end.
#
# Workload "jobs-night" is the same with nights for slots: a client waits for the evening, so all
# call at the same time.
package Chaos::Client;

use strict;
use warnings;

use List::Util ();
use Time::HiRes qw(sleep);
use Time::Local ();
use Chaos::Jobs;
use Chaos::Log;
use Chaos::Postgres;
use Chaos::Told;

my $stop = 0;

sub now { return Chaos::Postgres::now(); }

sub any { return $_[ rand @_ ]; }

# Arguments as chaos.pl gives them.
sub run
{
	my ($class, %option) = @_;
	my $self = bless { %option, serial => 0 }, $class;
	srand($self->{seed} * 1000 + $self->{id});
	$| = 1;
	$SIG{TERM} = sub { $stop = 1 };
	until ($stop)
	{
		my $outcome = $self->transaction;
		sleep($self->{rest} * ($outcome eq 'ok' ? 0.01 + rand 0.06 : 0.1 + rand 0.1));
	}
}

sub transaction
{
	my $self = shift;
	my %t = (begun => now(), data => '-');
	my $workload = $self->{workload} =~ s/-.*//r;
	eval { $self->$workload(\%t); 1 } or $t{outcome} = $@ =~ s/\n.*//sr;
	$t{outcome} //= 'ok';
	$t{ended} = now();
	if ($t{outcome} ne 'ok' && $self->{pg})
	{
		$self->{pg}->query('ROLLBACK') if $self->{pg}->alive;
		# what it has for the session ends with that
		$self->{pg}->close if $workload eq 'reentrant';
		$self->{pg} = undef unless $self->{pg}->alive;
	}
	print Chaos::Told::event([ @$self{qw(id server)} ], 'info', 'rollback', $_, {}) for @{ $self->{held} };
	$self->{held} = [];
	$self->tell(\%t);
	return $t{outcome};
}

sub tell
{
	my ($self, $t) = @_;
	print join("\t", 'T', @$self{qw(id server workload)}, $t->{name} // '-', $t->{mode} // 'exclusive',
		(map { $_ // '-' } @$t{qw(begun locked token proven ended outcome data)})), "\n";
}

# One answer of the server or of the database; dies with "what:SQLSTATE".
sub ask
{
	my ($self, $where, $what, $sql, $wait) = @_;
	$self->{$where} = undef if $self->{$where} && !$self->{$where}->alive;
	my $pg = $self->{$where} //= Chaos::Postgres->new($self->{"${where}_dir"})
	  // die "connect:$Chaos::Postgres::error\n";
	my $answer = $pg->query($sql, $wait // 20);
	die "$what:" . $pg->error . "\n" if $pg->error;
	return $answer;
}

# An operation of the history (Chaos::Told).  Objects that it has acquired are held until commit().
sub told
{
	my ($self, $f, $objects, $asked, $code) = @_;
	Chaos::Told::ask([ @$self{qw(id server)} ], $f, $objects, $asked, $code);
	push @{ $self->{held} }, @$objects if $f eq 'acquire';
}

sub lock
{
	my ($self, $t, $name, $patience) = @_;
	$t->{name} = $name;
	# Some have little patience: their contenders must go.
	my $timeout = rand() < 0.1 ? "SET LOCAL lock_timeout = '50ms';" : '';
	$self->told('acquire', [ [ lock => $name ] ], {}, sub {
		$t->{token} = $self->ask('pg', 'lock', "BEGIN; $timeout SELECT zk_lock('$name')", $patience // 60);
		return { token => $t->{token} };
	});
	$t->{locked} = now();
}

sub check
{
	my ($self, $t) = @_;
	my $sent = now();
	my $permit = ($t->{kind} // '') eq 'semaphore';
	my $function = $permit ? 'zk_assert_permit' : rand() < 0.8 ? 'zk_token' : 'zk_assert';
	$self->told('check', [ [ $permit ? 'semaphore' : 'lock', $t->{name} ] ], {}, sub {
		my $token = $self->ask('pg', 'check', "SELECT $function('$t->{name}')");
		$t->{token} //= $token;    # zk_try_lock has told none
		die "check:changed\n" unless defined $token && $token == $t->{token};
		return { token => $token };
	});
	$t->{proven} = $sent;
}

# All of them stand as they were given.
sub check_all
{
	my ($self, @t) = @_;
	my $sent = now();
	my @tokens;
	$self->told('check', [ map { [ lock => $_->{name} ] } @t ], {}, sub {
		@tokens = split /,/, $self->ask('pg', 'check', "SELECT concat_ws(',', " . join(', ', map { "zk_token('$_->{name}')" } @t) . ')');
		die "check:changed\n" unless @tokens == @t;
		return map { +{ token => $_ } } @tokens;
	});
	for my $i (0 .. $#t)
	{
		$t[$i]{token} //= $tokens[$i];    # zk_try_lock_all has told none
		die "check:changed\n" unless $t[$i]{token} == $tokens[$i];
		$t[$i]{proven} = $sent;
	}
}

# "f" and object are what it does to others than what is held, if anything: [ kind, name ].
sub commit
{
	my ($self, $t, $f, $object, $value) = @_;
	my $sent = now();
	my @objects = $f ? $object : splice @{ $self->{held} };
	$self->told($f // 'commit', \@objects, $value // {}, sub {
		$self->ask('pg', 'commit', 'COMMIT');
		die "commit:" . lc($self->{pg}->tag) . "\n" unless $self->{pg}->tag eq 'COMMIT';
		return ({}) x @objects;
	});
	$t->{proven} = $sent;
}

#
# The workloads
#
sub intervals
{
	my ($self, $t) = @_;
	# Mostly one that everybody wants; sometimes one that hardly anybody does.
	$self->lock($t, rand() < 0.2 ? 'rare-' . int rand 50 : 'short');
	for (1 .. rand 3)
	{
		sleep(rand 0.03);
		$self->check($t);
	}
	sleep(rand 0.03);
	$self->commit($t);
}

sub long
{
	my ($self, $t) = @_;
	# Six hosts take turns, each for up to three session timeouts.  A host whose session has expired
	# begins again at the end of the queue.
	$self->lock($t, 'long-' . int rand 2, 2 * 6 * 3 * $self->{timeout});
	my $until = now() + (0.1 + rand 2.9) * $self->{timeout};
	# A third asks nothing until COMMIT.
	my $checks = rand() < 0.67;
	while (now() < $until && !$stop)
	{
		sleep(0.05 + rand 0.3);
		$self->check($t) if $checks;
	}
	$self->commit($t);
}

sub mixed
{
	my ($self, $t) = @_;
	my $name = $t->{name} = 'mixed';
	my $mode = $t->{mode} = rand() < 0.7 ? 'shared' : 'exclusive';
	my $how = any("zk_lock('$name', '$mode')", "zk_try_lock('$name', '$mode')",
		"zk_try_lock('$name', '$mode', timeout => '100 ms')");
	$self->told('acquire', [ [ lock => $name ] ], { mode => $mode }, sub {
		my $answer = $self->ask('pg', 'lock', "BEGIN; SELECT $how", 60);
		die "busy\n" if $answer eq 'f';
		$t->{token} = $how =~ /try/ ? undef : $answer;
		return { token => $t->{token} };
	});
	$t->{locked} = now();
	for (1 .. 1 + rand 3)
	{
		sleep(rand 0.05);
		$self->check($t);
	}
	$self->commit($t);
}

sub register
{
	my ($self, $t) = @_;
	my $name = $self->{workload};
	$self->lock($t, $name);
	my $value = $self->ask('data', 'read', "SELECT value FROM register WHERE name = '$name'");
	$self->check($t);
	$self->think;
	$self->write($t, $value, '');
	$self->commit($t);
}

sub fenced
{
	my ($self, $t) = @_;
	my $name = $self->{workload};
	$self->lock($t, $name);
	my $fence = "SELECT zk_fence('$name', $t->{token})";
	my @register = ([ register => $name ]);
	my $value;
	$self->told('fence', \@register, { token => $t->{token} }, sub { $self->ask('data', 'fence', $fence); return {}; });
	$self->told('read', \@register, {}, sub { return { new => $value = $self->ask('data', 'read', "SELECT value FROM register WHERE name = '$name'") }; });
	$self->check($t);
	$self->think;
	$self->write($t, $value, "$fence;");
	$self->commit($t);
}

sub election
{
	my ($self, $t) = @_;
	my $name = $t->{name} = 'election';
	my $require = rand() < 0.3;
	my $ask = $require ? "SELECT zk_require_leader('$name')"
	  : "SELECT CASE WHEN zk_is_leader('$name') THEN (SELECT token FROM zk_elections WHERE election = '$name') END";
	return $self->run_as_leader($name) if !$require && rand() < 0.2;
	my $until = now() + (0.05 + rand 1) * $self->{timeout};
	$self->ask('pg', 'begin', 'BEGIN') if $require;
	while (now() < $until && !$stop)
	{
		my $sent = now();
		my $token;
		$self->told('lead', [ [ election => $name ] ], {}, sub {
			$token = $self->ask('pg', 'lead', $ask);
			return defined $token ? { token => $token } : ();
		});
		if (!defined $t->{token})
		{
			@$t{qw(token locked)} = ($token, now()) if defined $token;
		}
		elsif (defined $token && $token == $t->{token}) { $t->{proven} = $sent; }
		else
		{
			die "lead:changed\n" if $require;
			last if defined $token;
		}
		sleep(0.005 + rand 0.03);
	}
	return $self->commit($t, 'lead', [ election => $name ], { token => $t->{token} }) if $require;
	# Else hardly anybody else would ever lead.
	$self->ask('pg', 'resign', "SELECT zk_resign('$name')") if rand() < 0.3;
}

# The command tells the token, if it is run.
sub run_as_leader
{
	my ($self, $name) = @_;
	$self->told('lead', [ [ election => $name ] ], {}, sub {
		$self->ask('pg', 'lead', "SET chaos.token = ''");
		$self->ask('pg', 'lead', "CALL zk_run_as_leader('$name', \$\$SELECT set_config('chaos.token', token::text, false) FROM zk_elections WHERE election = '$name'\$\$)");
		my $token = $self->ask('pg', 'lead', 'SHOW chaos.token');
		return $token ne '' ? { token => $token } : ();
	});
}

sub rings
{
	my ($self, $t) = @_;
	my ($one, $other) = map { ($_ < 4 ? 'ring-' : 'permit-') . $_ } List::Util::shuffle(0 .. 7);
	my $longest = 0;
	my $wait = sub {
		my ($name, $begin) = @_;
		my $from = now();
		my $permit = $name =~ /^permit/;
		my $token;
		eval {
			$self->told('acquire', [ [ $permit ? 'semaphore' : 'lock', $name ] ], $permit ? { permits => 1 } : {}, sub {
				$token = $self->ask('pg', 'lock', "$begin SELECT " . ($permit ? "zk_acquire('$name', 1)" : "zk_lock('$name')"), 80);
				return { token => $token };
			});
		};
		my $error = $@;
		my $until = now();
		($longest, $t->{data}) = ($until - $from, "$from $until") if $until - $from > $longest;
		die $error if $error;
		return (token => $token, locked => $until, kind => $permit ? 'semaphore' : 'lock');
	};
	$t->{name} = $one;
	my %first = $wait->($one, 'BEGIN;');
	@$t{ keys %first } = values %first;
	sleep(rand 0.2);
	my %second = (name => $other, begun => now(), $wait->($other, ''));
	$self->check($t);
	sleep(rand 0.05);
	$self->commit($t);
	$self->tell({ %second, proven => $t->{proven}, ended => now(), outcome => 'ok' });
}

sub sets
{
	my ($self, $t) = @_;
	my @names = (List::Util::shuffle(map { "set-$_" } 0 .. 5))[ 0 .. any(1, 2) ];
	my $list = join ', ', map { "'$_'" } @names;
	my $mode = any(qw(exclusive exclusive shared));
	my $how = any("zk_lock_all($list)", "zk_lock_all($list)", "zk_try_lock_all(ARRAY[$list], '$mode')", "zk_try_lock_all(ARRAY[$list], '$mode', timeout => '1 s')");
	$mode = 'exclusive' if $how !~ /try/;
	@$t{qw(name mode)} = ($names[0], $mode);
	my @tokens;
	eval {
		$self->told('acquire', [ map { [ lock => $_ ] } @names ], { mode => $mode }, sub {
			my $answer = $self->ask('pg', 'lock', "BEGIN; SELECT $how", 80);
			die "busy\n" if $answer eq 'f';
			@tokens = $answer =~ /\d+/g;
			return map { +{ token => $_ } } @tokens[ 0 .. $#names ];
		});
	};
	my $error = $@;
	my $locked = now();
	$t->{data} = "$t->{begun} $locked";
	die $error if $error;
	$t->{locked} = $locked;
	my @others = map { { name => $_, mode => $mode, begun => $t->{begun}, locked => $locked } } @names[ 1 .. $#names ];
	$_->{token} = shift @tokens for $t, @others;
	sleep(rand 0.05);
	$self->check_all($t, @others);
	sleep(rand 0.05);
	$self->commit($t);
	$self->tell({ %$_, proven => $t->{proven}, ended => now(), outcome => 'ok' }) for @others;
}

sub permits
{
	my ($self, $t) = @_;
	my $name = $t->{name} = 'permits';
	my $permits = $t->{data} = rand() < 0.9 ? 3 : 2;
	my %number = (mode => 'number', begun => $t->{begun});
	my @semaphore = ([ semaphore => $name ]);
	my $check = sub {
		my $sent = now();
		$self->told('check', \@semaphore, {}, sub {
			my $answer = $self->ask('pg', 'check', "SELECT zk_assert_permit('$name')");
			die "check:changed\n" unless $answer == $t->{token};
			return { token => $answer };
		});
		$t->{proven} = $sent;
		$number{proven} = $sent if $number{locked};
	};
	$t->{mode} = 'semaphore';
	my $how = any("zk_acquire('$name', $permits)", "zk_acquire('$name', $permits)", "zk_try_acquire('$name', $permits)", "zk_try_acquire('$name', $permits, timeout => '200 ms')");
	my $answer;
	$self->told('acquire', \@semaphore, { permits => $permits }, sub {
		$answer = $self->ask('pg', 'lock', "BEGIN; SELECT $how", 60);
		die "busy\n" if $answer eq 'f';
		return {};
	});
	$t->{locked} = now();
	$t->{token} = $answer eq 't' ? $self->ask('pg', 'check', "SELECT zk_assert_permit('$name')") : $answer;
	if (rand() < 0.7)
	{
		$self->told('check', \@semaphore, {}, sub {
			my $number = $self->ask('pg', 'number', "SELECT zk_permit('$name')");
			$number{name} = "permit $number";
			return { number => $number };
		});
		@number{qw(token locked)} = ($t->{token}, now());
	}
	sleep(rand 0.1);
	$check->() if rand() < 0.7;
	sleep(rand 0.1);
	$self->commit($t);
	$self->tell({ %number, proven => $t->{proven}, ended => now(), outcome => 'ok' }) if $number{locked};
}

sub reentrant
{
	my ($self, $t) = @_;
	my $name = $t->{name} = 'reentrant';
	my @lock = ([ lock => $name ]);
	for (1, 2)
	{
		$self->told('acquire', \@lock, {}, sub {
			my $token = $self->ask('pg', 'lock', "SELECT zk_lock('$name', scope => 'session')", 60);
			$t->{token} //= $token;
			die "lock:40001\n" if $token != $t->{token};
			return { token => $token };
		});
		$t->{locked} //= now();
		sleep(rand 0.05);
	}
	for (1, 2)
	{
		$self->check($t);
		$self->told('release', \@lock, {}, sub {
			my $given = $self->ask('pg', 'unlock', "SELECT zk_unlock('$name')");
			# it was lost, and this is the first that is told of it
			die "unlock:40001\n" if $given ne 't' || $self->{pg}->notice ne '';
			return {};
		});
		sleep(rand 0.05);
	}
	$self->{held} = [];
}

sub barrier
{
	my ($self, $t) = @_;
	$t->{name} = 'barrier';
	sleep(rand 0.3);
	$self->told('arrive', [ [ barrier => 'barrier' ] ], { parties => 3 }, sub {
		$self->ask('pg', 'meet', "CALL zk_barrier('barrier', 3, timeout => '5 s')", 30);
		return {};
	});
}

sub queue
{
	my ($self, $t) = @_;
	my @queue = (queue => 'queue');
	if (rand() < 0.5)
	{
		$t->{data} = 'put ' . $self->ask('pg', 'put', "BEGIN; SELECT zk_queue_put('queue', 'item')");
		sleep(rand 0.05);
		$self->ask('pg', 'put', 'ROLLBACK'), die "busy\n" if rand() < 0.1;
		$self->commit($t, 'put', \@queue, { item => substr($t->{data}, 4) });
		return;
	}
	my ($id, $since);
	$self->told('take', [ \@queue ], {}, sub {
		my $answer = $self->ask('pg', 'take', "BEGIN; SELECT id || ' ' || (1000 * extract(epoch FROM since))::bigint FROM zk_queue_take('queue', '" . any('0', '300 ms') . "')") // '';
		($id, $since) = split / /, $answer or die "busy\n";
		return { item => $id, id => $since };
	});
	@$t{qw(name mode data locked)} = ("item $id", 'item', "took $id", now());
	sleep(rand 0.1);
	$self->ask('data', 'write', "INSERT INTO handed_out VALUES ('$id', $since) ON CONFLICT DO NOTHING");
	$self->commit($t, 'done', \@queue, { item => $id });
}

sub jobs
{
	my ($self, $t) = @_;
	my ($job, $in_doubt) = $self->{workload} =~ /^(jobs-(.*))/;
	my $slot = $t->{data} = $self->{slot} //= 1;
	if ($in_doubt eq 'night')
	{
		$in_doubt = 'run';
		my $evening = $self->{first_night} + ($slot - 1) * $self->{night};
		sleep 0.2 until $stop || now() >= $evening;
		die "busy\n" if $stop;
	}
	my $call = $self->{id} * 1_000_000_000 + ++$self->{serial};
	# Some have little patience.
	my $wait = any("'200ms'", "'20s'", 'NULL');
	sleep($self->{rest} * rand 0.4);
	$t->{begun} = now();
	$self->told('run', [ [ job => $job ] ], { slot => $slot, mode => $in_doubt }, sub { return $self->run_job($t, $job, $in_doubt, $slot, $call, $wait); });
	my (undef, undef, $done) = split / /, $t->{data};
	$self->{slot} = $done + 1;
}

sub run_job
{
	my ($self, $t, $job, $in_doubt, $slot, $call, $wait) = @_;
	$self->ask('pg', 'run', "CALL zk_run_once('$job', \$\$" . Chaos::Jobs::command($job, $slot, $call) . '$$,'
		  . " slot => to_timestamp($slot), timeout => $wait, attempts => 1000000, in_doubt => '$in_doubt')", 60);
	my $notice = $self->{pg}->notice;
	my $skipping = Chaos::Log::said('done for slot', undef, '(\S+ [\d:]+)\S*');
	my ($time) = $notice =~ $skipping;
	my $done = $slot;
	my $how = 'ran';
	if (defined $time)
	{
		my ($year, $month, @rest) = split /[- :]/, $time;
		$done = Time::Local::timegm(reverse(@rest), $month - 1, $year);
		$how = $notice =~ Chaos::Log::said('counts as done') ? 'skipped' : 'done';
	}
	$t->{data} = "$slot $how $done";
	return { slot => $done, how => $how };
}

# Now and then for long: whoever is paused then writes late.
sub think { sleep(rand() < 0.1 ? rand 1 : 0.01 + rand 0.05); }

# Statements sent together are one transaction.
sub write
{
	my ($self, $t, $previous, $fence) = @_;
	my $name = $self->{workload};
	my $value = $self->{id} * 1_000_000_000 + ++$self->{serial};
	# that without a fence updates are lost is no news
	$self->told('cas', $fence ? [ [ register => $name ] ] : [], { old => $previous, new => $value, token => $t->{token} }, sub {
		$self->ask('data', 'write', "$fence UPDATE register SET value = $value WHERE name = '$name';"
			  . "INSERT INTO written VALUES ('$name', $value, $previous)");
		return {};
	});
	$t->{data} = 'written';
}

1;
