#!/usr/bin/perl
# endurance.pl HOURS SEED DIRECTORY - is a fleet still well after a day?
#
# Six PostgreSQL servers (A to F), three ZooKeeper servers, and clients of all workloads, for so
# many hours in all: intervals of ten minutes (INTERVAL, in seconds), one after the other.  An
# interval is a chaos run (Chaos::Run) on servers that live on, with a fault each minute and a
# night each two: all six servers try the night's job.  Beside the faults of make chaos servers
# are restarted, and the ensemble's servers, one after the other, with another zoo.cfg.  In each
# sixth interval zklock is updated under load, on one server after the other, to a build whose
# records have a higher version (test/newer); all are updated at the interval's end.
#
# At the end of an interval all is healed, and nobody is left.  Then chaos.pl's checks come, the
# judge's among them, and
#
#   nights    each was done, and once
#   left over znodes, ZooKeeper sessions, rows in views, that nobody needs any more
#   growth    of memory and open files of each server's worker, and of a session on F, whose
#             processes live from one update to the next; of the number of ZooKeeper sessions; of
#             /dev/shm: from the second look on, of the same process
#
# DIRECTORY has what was done so far: state.json, a log with a line for each interval, and
# interval-N, the report of each; failed-N has all output of one that failed.  A run goes on
# with what is left to do, with new servers.  What was interrupted is done again.  Exit status:
# 0 if all intervals were well, 1 if not, 2 if the run itself failed.
#
# test/chaos/run starts it, as process 1 of a PID namespace.
use strict;
use warnings;

use JSON::PP ();
use POSIX ();
use Chaos::Run;

my ($hours, $seed, $directory) = @ARGV;
my $length = $ENV{INTERVAL} || 600;    # s
my $work = '/run/chaos';
my $log = "$directory/now";
my $session_timeout = 4;               # s
my @workloads = qw(intervals long mixed rings rings sets permits queue register fenced election reentrant barrier jobs-run jobs-skip jobs-night);
# In the interval after the first, and then in each sixth.
my $updates_every = 6;
# Deadlocks across two versions of the waits last until a timeout (doc/operations.md): not here.
my @records = qw(barrier election job queue);
# In a fleet of two versions.
my $expected = qr/^(run|meet):55000$/;
# More than that is growth: kB and files.
my ($memory_room, $file_room) = (4096, 5);

$| = 1;
# Process 1 gets no signal for which it has no handler.
$SIG{$_} = sub { exit 130 } for qw(INT TERM HUP);

sub now { return Chaos::Postgres::now(); }

#
# What was done so far
#

# seconds, intervals, nights, faults, failed (a list), seeds, lives (of the servers), figures (a
# list: interval, life, and what is measured)
my $state;

sub slurp
{
	my ($file) = @_;
	open my $in, '<', $file or die "could not read $file: $!\n";
	local $/;
	return scalar <$in>;
}

sub load
{
	my $file = "$directory/state.json";
	$state = -f $file ? JSON::PP::decode_json(slurp($file))
	  : { map({ $_ => 0 } qw(seconds intervals nights faults operations lives)), map { $_ => [] } qw(failed seeds figures) };
}

sub save
{
	my $file = "$directory/state.json";
	open my $out, '>', "$file.new" or die "could not write $file.new: $!\n";
	print $out JSON::PP->new->canonical->pretty->encode($state);
	close $out or die "could not write $file.new: $!\n";
	rename "$file.new", $file or die "could not rename $file.new: $!\n";
}

sub say
{
	my ($text) = @_;
	print "endurance: $text\n";
	open my $out, '>>', "$directory/log" or die "could not write $directory/log: $!\n";
	print $out POSIX::strftime('%F %T', gmtime), " $text\n";
	close $out;
}

sub time_text { my ($s) = @_; return sprintf '%d h %02d min', $s / 3600, $s / 60 % 60; }

#
# Updates
#
my $version = 0;    # 1.N of the servers

# Installs version 1.N beside the one that runs.  Returns where its programs are.
sub build
{
	my ($n) = @_;
	my $root = "$work/pg-" . $n % 2;
	my $tree = "$work/newer";
	my @directories = map { chomp(my $d = `$ENV{PG_CONFIG} --$_`); $d } qw(bindir pkglibdir sharedir);
	if (!-d $root)
	{
		for (@directories) { Chaos::Host::run('mkdir', '-p', "$root$_"); Chaos::Host::run('cp', '-a', "$_/.", "$root$_"); }
	}
	Chaos::Host::run('rm', '-rf', $tree);
	Chaos::Host::run("$work/zklock/test/newer", "$work/zklock", $tree, $n, @records);
	Chaos::Host::run("nice -n 19 make -s -C $tree -j2 ASSERTIONS=yes PG_CONFIG=$ENV{PG_CONFIG} DESTDIR=$root install >$log/build.log 2>&1");
	return "$root$directories[0]";
}

# All servers in some order, the steady one last, with time between them.
sub plan
{
	my $bin = build(++$version);
	my @servers = (List::Util::shuffle(grep { $_->name ne 'F' } Chaos::Run::servers()), grep { $_->name eq 'F' } Chaos::Run::servers());
	my $at = 0;
	return [
		map {
			my $server = $_;
			[ $at += $length / 9, 'update of zklock', sub { Chaos::Nemesis::exchange($server, sub { $server->set_bin($bin) }) }, 0, 0 ]
		} @servers ];
}

# The SQL follows, when all have the new library.
sub update_sql
{
	for my $server (Chaos::Run::servers())
	{
		$server->must('ALTER EXTENSION zklock UPDATE');
		my $is = $server->must('SELECT zk_newer()');
		return $server->name . " has version $is, not 1.$version" if $is ne "1.$version";
	}
	return;
}

#
# Looks
#

sub status { my ($pid, $what) = @_; return (eval { slurp("/proc/$pid/status") } // '') =~ /^$what:\s+(\d+) kB/m ? $1 : undef; }

sub files { my ($pid) = @_; my $n = () = glob "/proc/$pid/fd/*"; return $n; }

my $probe;    # a session on F

# It does what sessions do.
sub probe
{
	my ($server) = grep { $_->name eq 'F' } Chaos::Run::servers();
	for (1, 2)
	{
		$probe = Chaos::Postgres->new($server->dir, 60) unless $probe && $probe->alive;
		next unless $probe;
		$probe->query(<<'SQL');
DO $$ BEGIN FOR i IN 1 .. 500 LOOP
	PERFORM zk_lock('probe-' || i % 20), zk_acquire('probe', 2), zk_try_lock_all('{probe-a,probe-b}'), zk_is_leader('election');
	COMMIT;
END LOOP; END $$
SQL
		next if $probe->error;
		my $pid = $probe->query('SELECT pg_backend_pid()') or next;
		return $pid;
	}
	return;
}

# What there is now, by name: [ pid, value ].
sub figures
{
	my %figure;
	my %pid = map { ("worker of " . $_->name => $_->worker) } Chaos::Run::servers();
	$pid{'a session on F'} = probe();
	for my $what (grep { $pid{$_} } keys %pid)
	{
		my $memory = status($pid{$what}, 'RssAnon') // next;
		$figure{"memory of $what"} = [ $pid{$what}, $memory ];
		$figure{"files of $what"} = [ $pid{$what}, files($pid{$what}) ];
	}
	my $zk = Chaos::Run::ensemble();
	$figure{znodes} = [ 0, $zk->monitor('zk_znode_count', $zk->leader) ];
	$figure{'ZooKeeper sessions'} = [ 0, $zk->monitor('zk_global_sessions', $zk->leader) ];
	my ($shm) = `du -sk /dev/shm` =~ /^(\d+)/;
	$figure{'shared memory'} = [ 0, $shm ];
	return \%figure;
}

# What has grown, of the same process and in this life of the servers, since the second look.
sub growth
{
	my @looks = grep { $_->{life} == $state->{lives} } @{ $state->{figures} };
	my @grown;
	my $last = $looks[-1];
	# left_over knows each znode that may stay.  After a wipe there are fewer of them for a while.
	for my $what (grep { $_ ne 'znodes' } sort keys %{ $last->{figure} })
	{
		my ($pid, $now) = @{ $last->{figure}{$what} };
		my @before = map { $_->{figure}{$what}[1] } grep { $_->{figure}{$what} && $_->{figure}{$what}[0] == $pid } @looks;
		next if @before < 3;
		my $room = $what =~ /memory/ ? $before[1] / 4 + $memory_room : $file_room;
		push @grown, "$what: $before[1], then $now" if $now > $before[1] + $room;
	}
	return @grown;
}

# Every path under the root.
sub tree
{
	my ($client, $path) = @_;
	return ($path, map { tree($client, "$path/$_") } @{ $client->children($path) // [] });
}

# What stays when nobody uses anything.
my $stays = qr{^/zklock(?:/(?:locks|elections|elections/election(?:/[^/]+)?|jobs|jobs/jobs-\w+|barriers|barriers/barrier|semaphores
	|queues|queues/queue|queues/queue/(?:items|held|puts)|servers|servers/[^/]+|waits|tokens))?$}x;

sub left_over
{
	my @left;
	my @servers = Chaos::Run::servers();
	my $zk = Chaos::Run::ensemble();
	my $look = sub {
		@left = ();
		my @paths = eval {
			my $client = ZooKeeper::Client->new($zk->hosts, wait => 10);
			my @all = tree($client, '/zklock');
			$client->close;
			@all;
		} or push @left, "could not look: $@";
		push @left, grep { !/$stays/ } @paths;
		for my $kind ('servers', 'elections/election')
		{
			my $n = grep { m{^/zklock/$kind/} } @paths;
			push @left, "$n under $kind" if $n > @servers;
		}
		# ours is one, and this client's may be another still
		my $sessions = eval { $zk->monitor('zk_global_sessions', $zk->leader) } // 0;
		push @left, "$sessions ZooKeeper sessions" if $sessions > @servers + 2;
		for my $server (@servers)
		{
			my $rows = $server->ask(q{SELECT concat_ws(', ', (SELECT 'zk_waits ' || count(*) FROM zk_waits HAVING count(*) > 0),
				(SELECT 'zk_barriers ' || count(*) FROM zk_barriers HAVING count(*) > 0),
				(SELECT string_agg(concat('zk_queues ', queue, ' ', length, ' ', putting), ', ') FROM zk_queues WHERE length + putting > 0),
				(SELECT string_agg(concat('zk_jobs ', job, ' ', state), ', ') FROM zk_jobs WHERE state IN ('running', 'in doubt', 'damaged', 'newer version')))}, 20);
			push @left, $server->name . ": $rows" if ($rows // 'no answer') ne '';
		}
		return !@left;
	};
	Chaos::Run::wait_for(90, $look);
	return @left;
}

#
# Intervals
#

# All servers forget what was judged, and write into empty logs.
sub clean
{
	my @servers = Chaos::Run::servers();
	for my $job (grep { /^jobs-/ } @workloads) { $servers[0]->must("SELECT zk_job_forget('$job')"); }
	$_->must("TRUNCATE job_here; DELETE FROM zk_runs") for @servers;
	Chaos::Run::data()->must("TRUNCATE job_there, went_back, handed_out, written; UPDATE register SET value = 0");
	truncate $_, 0 for glob("$log/server-*.log"), glob("$log/zk*.log");
	Chaos::Run::keep(undef);
}

# Returns what is wrong.
sub interval
{
	my ($number) = @_;
	my $began = now();
	my $own = $number - $state->{first};    # in this life
	my $plan = $own % $updates_every == 1 ? plan() : [];
	my $interval_seed = $seed + $number;
	push @{ $state->{seeds} }, $interval_seed;
	my $done = Chaos::Run::interval(seconds => $length, seed => $interval_seed, plan => $plan);
	my @wrong = $done->{passed} ? () : map { /^(not ok - .*)/ ? $1 : () } split /\n/, slurp("$log/report");
	push @wrong, update_sql() if @$plan == 0 && $own % $updates_every == 1;
	push @wrong, map { "left over: $_" } left_over();
	push @{ $state->{figures} }, { interval => $number, life => $state->{lives}, figure => figures() };
	push @wrong, map { "growth: $_" } growth();

	my $night = $done->{jobs}{'jobs-night'};
	my $operations = () = $done->{history}->transactions;
	my $faults = () = $done->{nemesis}->faults;
	$state->{seconds} += now() - $began;
	$state->{intervals}++;
	$state->{nights} += $night->{slots};
	$state->{faults} += $faults;
	$state->{operations} += $operations;
	push @{ $state->{failed} }, { interval => $number, seed => $interval_seed, wrong => \@wrong } if @wrong;
	Chaos::Host::run('cp', "$log/report", "$directory/interval-$number");
	Chaos::Host::run('cp', '-a', $log, "$directory/failed-$number") if @wrong;
	save();

	my $figure = $state->{figures}[-1]{figure};
	my ($memory) = sort { $b <=> $a } map { $figure->{$_}[1] } grep { /^memory of worker/ } keys %$figure;
	say(sprintf '%s: interval %d, version 1.%d, seed %d: %d nights done, %d faults, %d operations; the largest worker has %d kB, %d znodes: %s',
		time_text($state->{seconds}), $number, $version, $interval_seed, $night->{slots}, $faults, $operations, $memory // 0, $figure->{znodes}[1] // 0,
		@wrong ? 'not ok' : 'ok');
	say("  $_") for @wrong;
	return @wrong;
}

sub main
{
	load();
	if ($state->{seconds} >= $hours * 3600) { print "endurance: it was done before: "; }
	else
	{
		$state->{lives}++;
		$state->{first} = $state->{intervals} + 1;
		save();
		say(sprintf '%s of %s are done; servers start, life %d', time_text($state->{seconds}), time_text($hours * 3600), $state->{lives});
		Chaos::Run::configure(
			log => $log,
			servers => [qw(A B C D E F)],
			workloads => \@workloads,
			kinds => [ @Chaos::Nemesis::kinds, @Chaos::Nemesis::maintenance ],
			session_timeout => $session_timeout,
			rest => 8,
			pace => 60,
			steady => 'F',
			night => 120,
			expected => $expected);
		Chaos::Run::set_up();
		while ($state->{seconds} < $hours * 3600)
		{
			my $number = $state->{intervals} + 1;
			interval($number);
			clean();
		}
	}
	my @failed = @{ $state->{failed} };
	say(sprintf '%s: %d intervals, %d nights, %d faults, %d operations, %d lives of the servers: %s',
		time_text($state->{seconds}), @$state{qw(intervals nights faults operations lives)}, @failed ? @failed . ' intervals were not ok: ' . join(' ', map { $_->{interval} } @failed) : 'all ok');
	print "reports: build/endurance; remove it to start again\n";
	return @failed ? 1 : 0;
}

my $status = eval { main() };
say("it failed: " . $@ =~ s/\n.*//sr) unless defined $status;
exit($status // 2);
