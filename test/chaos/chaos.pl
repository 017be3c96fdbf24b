#!/usr/bin/perl
# chaos.pl SECONDS SEED LOGS [WORKLOADS [FAULTS]] - is the lock a lock when things break?
#
# Three ZooKeeper servers (zk1 to zk3) and three PostgreSQL servers (A, B, C) on
# hosts of their own, clients on each server (Chaos::Client), a nemesis
# (Chaos::Nemesis); a fourth database that nothing happens to.  At the end all is
# healed, and what the clients have seen is judged (Chaos::Judge):
#
#   overlaps        two clients had one lock at a time, and not both as
#                   readers, or two servers led one election            must be 0
#   token disorder  a later holder had a smaller token                  must be 0
#   lost updates    of a register written under the lock; with zk_fence they
#                   must be 0, without it a few are to be expected
#   jobs            a slot that nobody committed, or that was committed once more
#                   without a run in doubt or an ensemble that went back between: see
#                   Chaos::Jobs                                         must be 0
#   items           of a queue that were put and are lost, or not put and are there, or
#                   there twice                                         must be 0
#   crowds          more had a permit at a time than one of them names    must be 0
#   long waits      of who waits for one lock and has another, in workload "rings", or
#                   for a set: longer than a deadlock may last          must be 0
#   sessions        that a server gave up since it found that the ensemble went back, when
#                   that had not, and nothing had happened but to another server
#                                                                       must be 0
#   leaked          contenders in ZooKeeper, rows in zk_locks, or level-1 locks
#                   that nobody asks for any more                       must be 0
#
# What the clients asked and were told is judged besides by test/judge, which knows nothing of
# this: the history, build/chaos/history.jsonl, must be one that could be.
#
# Everybody must be calm again within a minute, too, every statement must have
# been answered, and errors must be of the kinds that doc/failures.md names for faults.
# It prints one table, then an "ok" or "not ok" for each of these.  Exit status: 0
# if all is well, 1 if not, 2 if the run itself failed.  test/chaos/run starts it,
# as process 1 of a PID namespace: what it leaves running ends with it.  SEED
# repeats the nemesis's choices, though not their timing.
#
# WORKLOADS and FAULTS are for who looks for something rare.  The first, a list of workloads
# with blanks between, has these clients on each server, and one of "intervals", by which
# recoveries are seen, in place of all.  The second, a regular expression, has those kinds of
# faults alone whose names it matches.
use strict;
use warnings;

use List::Util ();
use POSIX ();
use Time::HiRes qw(sleep);
use ZooKeeper;
use Chaos::Client;
use Chaos::Ensemble;
use Chaos::History;
use Chaos::Host;
use Chaos::Jobs;
use Chaos::Judge;
use Chaos::Losses;
use Chaos::Nemesis;
use Chaos::Server;
use Chaos::Told;

my ($seconds, $seed, $log, $wanted, $faults) = @ARGV;
my $work = '/run/chaos';
my $session_timeout = 2;    # s
# Until all of it has begun, while nothing is judged yet.
my $patience = 120;    # s
# One client each, on each server.  Two of one workload meet on their server, too.
my @workloads = qw(intervals long long mixed mixed mixed rings rings sets sets permits permits queue queue register register fenced fenced election reentrant barrier jobs-run jobs-skip);
@workloads = chosen(\@workloads, split ' ', $wanted) if $wanted;
my @jobs = grep { /^jobs-/ } distinct(@workloads);
my @kinds = grep { $_->[0] =~ /(?:$faults)/ } @Chaos::Nemesis::kinds;
@kinds or die "chaos: no kind of fault matches \"$faults\"\n";

$| = 1;
# Process 1 gets no signal for which it has no handler.
$SIG{$_} = sub { exit 130 } for qw(INT TERM HUP);

sub now { return Chaos::Postgres::now(); }

sub distinct
{
	my %seen;
	return grep { !$seen{$_}++ } @_;
}

# What is wanted of all workloads.
sub chosen
{
	my ($all, @wanted) = @_;
	my %known = map { $_ => 1 } @$all;
	$known{$_} or die "chaos: there is no workload \"$_\", but: " . join(' ', distinct(@$all)) . "\n" for @wanted;
	return ('intervals', grep { $_ ne 'intervals' } @wanted);
}

# Until it is true, at most so long.
sub wait_for
{
	my ($wait, $code) = @_;
	my $deadline = now() + $wait;
	until ($code->())
	{
		return 0 if now() > $deadline;
		sleep 0.1;
	}
	return 1;
}

#
# The hosts and their servers
#
my ($zk, @servers, $data);

sub set_up
{
	Chaos::Host::bridge();
	my %zk_hosts = map { $_ => Chaos::Host->new("zk$_", "10.77.0.1$_") } 1 .. 3;
	Chaos::Host::make_directory("$work/zookeeper");
	$zk = Chaos::Ensemble->new(hosts => \%zk_hosts, dir => "$work/zookeeper", log => $log, tick_time => 500);
	$zk->start_nowait;

	my $hosts = $zk->hosts;
	my $number = 0;
	# Two that keep locks, but not until somebody counts the contenders, and one that
	# does not.
	my $keep = "zklock.keep_time = '${session_timeout}s'";
	my %keeps = (A => $keep, B => $keep, C => "zklock.keep_time = 0\nzklock.handoff_limit = 0");
	# Room for every workload's name, and not for many that are kept.
	my %room = (A => 10000, B => 28, C => 28);
	for my $name (qw(A B C))
	{
		my $host = Chaos::Host->new($name, '10.77.0.' . ++$number);
		push @servers, Chaos::Server->new($name, $host, $work, $log, <<"CONF");
shared_preload_libraries = 'zklock'
zklock.hosts = '$hosts'
zklock.session_timeout = '${session_timeout}s'
zklock.connect_timeout = '${session_timeout}s'
$keeps{$name}
zklock.max_locks = $room{$name}
CONF
	}
	$data = Chaos::Server->new('data', undef, $work, $log, '');
	$_->start($patience) || die 'server ' . $_->name . " does not start\n" for @servers, $data;
	$_->must('CREATE EXTENSION zklock') for @servers, $data;
	$zk->wait_serving;
	wait_connected($patience) or die "the servers do not connect to ZooKeeper\n";
	make_registers();
	Chaos::Jobs::set_up($data, @servers);
}

sub wait_connected
{
	my $wait = shift;
	return wait_for($wait, sub { !grep { ($_->ask('SELECT state FROM zk_session') // '') ne 'connected' } @servers });
}

sub make_registers
{
	$data->must(<<'SQL');
CREATE TABLE register (name text PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 10);
CREATE TABLE handed_out (id uuid, since numeric, PRIMARY KEY (id, since));
CREATE TABLE written (name text, value bigint, previous bigint, PRIMARY KEY (name, value));
INSERT INTO register VALUES ('register', 0), ('fenced', 0);
SQL
}

#
# The clients
#
my %clients;    # lists of pids by server

sub start_clients
{
	my $id = 0;
	my @files;
	for my $server (@servers)
	{
		for my $workload (@workloads)
		{
			$id++;
			push @files, "$log/client-$id";
			open my $touch, '>', $files[-1] or die "could not write $files[-1]: $!\n";
			push @{ $clients{ $server->name } },
			  Chaos::Host::spawn(undef, $files[-1], $work, $^X, (map { "-I$_" } @INC),
				'-MChaos::Client', '-e', 'Chaos::Client->run(@ARGV)',
				id => $id, server => $server->name, workload => $workload, seed => $seed,
				timeout => $session_timeout, pg_dir => $server->dir, data_dir => $data->dir);
		}
	}
	return Chaos::History->new("$log/history.jsonl", @files);
}

# Returns how many did not end by themselves.
sub stop_clients
{
	my @left = map { @$_ } values %clients;
	kill 'TERM', @left;
	wait_for(90, sub { @left = grep { waitpid($_, POSIX::WNOHANG()) == 0 } @left; !@left });
	kill 'KILL', @left;
	return scalar @left;
}

#
# Calm
#

# Everything heals, and every server gives a lock again.  Returns complaints.
sub calm_down
{
	my $nemesis = shift;
	my @wrong;
	$nemesis->heal_all(60) or push @wrong, 'not everything could be healed';
	eval { $zk->wait_serving; 1 } or push @wrong, "ZooKeeper: $@" =~ s/\n.*//sr;
	wait_for(60, sub { $nemesis->recovered }) or push @wrong, 'a server gave no lock within a minute after all was healed';
	wait_connected(30) or push @wrong, 'a server is not connected to ZooKeeper';
	wait_for(60, sub { $nemesis->jobs_recovered(@jobs) }) or push @wrong, 'a server ended no call for a job within a minute after all was healed';
	return @wrong;
}

# What is there although nobody wants it: paths, and rows of the servers.  What only some
# servers of ZooKeeper show, which all were asked to be up to date, is theirs: a path by each.
sub leaked
{
	my $ghosts = shift;
	my %shown = eval { $zk->contenders };
	my @left = $@ ? "could not look: $@" : ();
	my $all = () = $zk->servers;
	%$ghosts = map { $_ => join ', ', @{ $shown{$_} } } grep { @{ $shown{$_} } < $all } keys %shown;
	push @left, sort grep { @{ $shown{$_} } == $all } keys %shown;
	for my $server (@servers)
	{
		my $rows = $server->ask("SELECT string_agg(x, ', ') FROM ("
			  . "SELECT format('zk_locks %s %s', name, pid) FROM zk_locks UNION ALL "
			  . "SELECT format('pg_locks %s %s', objid, pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 31339) AS t(x)");
		push @left, $server->name . ": $rows" if defined $rows;
	}
	return @left;
}

# Take what is left in the queue, by a server after the other: whose puts were in doubt has
# settled them by then.  Returns complaints.
sub hand_out
{
	my $history = shift;
	my $left;
	my @object = (queue => 'queue');
	wait_for(60, sub {
		for my $server (@servers)
		{
			my $who = [ 900, $server->name ];
			my $sent = Chaos::Told::now();
			while (my $item = $server->ask("SELECT id || ' ' || (1000 * extract(epoch FROM since))::bigint FROM zk_queue_take('queue')"))
			{
				my ($id, $since) = split / /, $item;
				my $value = { item => $id, id => $since };
				$history->tell(map { Chaos::Told::event($who, @$_[ 0, 1 ], \@object, @$_[ 2, 3 ]) }
					  [ 'invoke', 'take', {}, $sent ], [ 'ok', 'take', $value ], [ 'invoke', 'done', $value ], [ 'ok', 'done', {} ]);
				$data->must("INSERT INTO handed_out VALUES ('$id', $since) ON CONFLICT DO NOTHING");
				$sent = Chaos::Told::now();
			}
		}
		$left = $servers[0]->ask("SELECT length + putting FROM zk_queues WHERE queue = 'queue'");
		return !$left;
	});
	$history->tell(map { Chaos::Told::event([ 900, 'A' ], $_, 'empty', \@object, {}) } 'invoke', 'ok') unless $left;
	return () unless $left;
	my $queue = '/zklock/queues/queue';
	my @nodes = map { my $part = $_; map { "$part/$_" } $zk->children("$queue/$part") } qw(items held puts);
	return "$left are left in the queue: " . join ', ', @nodes;
}

#
# The judge
#

# What the nemesis did, and which sessions the servers lost (Chaos::Losses, explained), for the judge.
# A session is perhaps gone long before its server learns of it: since the first of the faults
# by which it may have been lost.  "by_itself" is when the ensemble lost something without a fault.
# Their times are in seconds since 1970.
sub tell_faults
{
	my ($history, $faults, $lost, @by_itself) = @_;
	my $number = 1000;
	my $tell = sub {
		my ($kind, $harm, $server, $from, $until) = @_;
		my $who = [ ++$number, '' ];
		my $value = { harm => $harm, harmed => $server };
		$history->tell(map { Chaos::Told::event($who, $_->[0], 'fault', [ fault => $kind ], $value, sprintf '%.0f', 1e9 * $_->[1]) } [ 'invoke', $from ], [ 'info', $until ]);
	};
	# what is to be added to times of the harness, and to those since 1970
	my $monotonic = Chaos::Told::now() / 1e9;
	my ($zero, $epoch) = ($monotonic - now(), $monotonic - Time::HiRes::time());
	$tell->($_->{kind}, $_->{kind} =~ /^ensemble / ? 'ensemble' : 'none', $_->{target}, $_->{begin} + $zero, $_->{heal} + $zero) for @$faults;
	$tell->('ensemble, by itself', 'ensemble', undef, $_ + $epoch - 1, $_ + $epoch) for @by_itself;
	for my $loss (@$lost)
	{
		my $from = List::Util::min($loss->{at} - $session_timeout, map { $_->{from} } grep { $_->{kind} !~ /^ensemble |^by itself/ && Chaos::Losses::strikes($_, $loss) } @{ $loss->{near} });
		$tell->('session lost', 'server', $loss->{server}, $from + $epoch, $loss->{at} + $epoch);
	}
}

# How often each slot was committed, as the servers' databases have it.
sub tell_slots
{
	my ($history, $job, $last) = @_;
	my %committed = map { $_ => 0 } 1 .. $last;
	for my $server (@servers) { $committed{ $_->{slot} } += $_->{n} for Chaos::Jobs::rows($server, "SELECT slot, count(*) AS n FROM job_here WHERE job = '$job' GROUP BY slot"); }
	for my $slot (sort { $a <=> $b } keys %committed)
	{
		$history->tell(Chaos::Told::event([ 901, '' ], 'invoke', 'count', [ job => $job ], { slot => $slot }),
			Chaos::Told::event([ 901, '' ], 'ok', 'count', [ job => $job ], { committed => $committed{$slot} }));
	}
}

# Its last line, and all of them.
sub judge
{
	my $history = shift;
	$history->close_told;
	open my $fh, '-|', "$ENV{JUDGE} --seconds 30 $log/history.jsonl 2>&1" or die "the judge: $!\n";
	my @said = <$fh>;
	close $fh;
	open my $out, '>', "$log/judged" or die "could not write $log/judged: $!\n";
	print $out @said;
	close $out;
	chomp(my $last = $said[-1] // 'it says nothing');
	return ($last, @said);
}

#
# The run
#

# What clients may be told when something breaks: see doc/failures.md, Errors.
my $expected = qr/^(ok|busy|connect:.*|\w+:(lost|40001|57014|57P0[123]|58000)|lock:(40P01|53200|55000|55P03)|lead:53200|run:(53200|55P03)|meet:(53200|55P03)|(check|unlock):55000)$/;

# So long may a wait in "rings" last while nothing breaks.
my $longest_wait = 30;    # s

# So long a run has every kind of fault in it, even on a slow machine.
my $long_run = 300;    # s

sub report
{
	my ($fh, $history, $nemesis, %seen) = @_;
	my @transactions = $history->transactions;
	my @faults = $nemesis->faults;
	my @names = map { $_->[0] } @kinds;
	my @leaked = @{ $seen{leaked} };
	my @overlaps = Chaos::Judge::overlaps(@transactions);
	my @disorders = Chaos::Judge::disorders(@transactions);
	my @crowds = Chaos::Judge::crowds(@transactions);
	my @items = (@{ $seen{undone} }, Chaos::Judge::items($data, \@transactions, \@faults, map { $_ + 1 + now() - time } @{ $seen{losses} }));
	my @long_waits = Chaos::Judge::long_waits($longest_wait, 4 * $session_timeout, \@transactions, \@faults);
	# the servers' clock is another one
	my $zero = time - now();
	my @harms = map { [ $_->{begin} + $zero - 1, $_->{heal} + $zero + 4 * $session_timeout ] } grep { !$Chaos::Nemesis::spares_servers{ $_->{kind} } } @faults;
	my %job = map { $_ => Chaos::Jobs::judge($_, \@transactions, $seen{record}, $data, \@servers, $log, \@harms, @{ $seen{losses} }) } @jobs;
	my @lost = Chaos::Losses::sessions($log);
	Chaos::Losses::explain(\@lost, 4 * $session_timeout, Time::HiRes::time() - now(), \@faults, @{ $seen{losses} });
	my $lost = Chaos::Losses::count(@lost);
	my @needless = Chaos::Losses::needless(@lost);
	tell_faults($history, \@faults, \@lost, @{ $seen{losses} });
	tell_slots($history, $_, $job{$_}{slots}) for @jobs;
	my ($judged, @judged) = judge($history);
	my %rows = map { $_ => { lost => Chaos::Judge::lost_updates($data, $_), writes => Chaos::Judge::writes($data, $_) } } qw(register fenced);

	print $fh "chaos: $seconds s, seed $seed, session timeout $session_timeout s\n\n";
	Chaos::Judge::print_faults($fh, \@names, \@faults,
		Chaos::Judge::recovery(\@transactions, \@faults, map { $_->name } @servers), $lost);
	printf $fh "sessions lost without a fault: %d\n", $lost->{''}{elsewhere} if $lost->{''};
	Chaos::Judge::print_workloads($fh, \@transactions, \@overlaps, \%rows);
	Chaos::Jobs::print_table($fh, map { $job{$_} } @jobs) if @jobs;
	printf $fh "the ensemble lost what it may have acknowledged, by itself: %d times\n\n", scalar @{ $seen{losses} } if @{ $seen{losses} };
	printf $fh "leaked contenders: %d%s\n\n", scalar @leaked, @leaked ? '' : sprintf ' (the last one was gone after %.1f s)', $seen{drained};
	Chaos::Judge::print_outcomes($fh, \@transactions);
	print $fh @judged[ 0 .. $#judged - 1 ], "\n";

	print $fh "leaked: $_\n" for @leaked;
	print $fh "not deleted in all servers of ZooKeeper alike: $_, by $seen{ghosts}{$_}\n" for sort keys %{ $seen{ghosts} };
	my $n = 0;
	for (@overlaps)
	{
		my ($name, $one, $other, $length) = @$_;
		last if ++$n > 20;
		printf $fh "overlap of %.3f s at %.3f: %s of client %s (%s) and %s (%s); %s\n", $length, $other->{locked}, $name,
		  (map { @$_{qw(client server)} } $one, $other),
		  join(', ', Chaos::Judge::faults_at($other->{locked}, 2 * $session_timeout, @faults)) || 'no fault';
	}
	$n = 0;
	for (@disorders)
	{
		my ($one, $other) = @$_;
		last if ++$n > 20;
		printf $fh "token disorder at %.3f: %s %s of client %s (%s) after %s of %s (%s); %s\n", $other->{locked}, @$other{qw(name token client server)},
		  @$one{qw(token client server)},
		  join(', ', Chaos::Judge::faults_at($other->{locked}, 2 * $session_timeout, @faults)) || 'no fault';
	}

	printf $fh "server %s found at %.3f that the ensemble went back; %s\n", $_->{server}, $_->{at} - Time::HiRes::time() + now(),
	  join(', ', map { "$_->{kind} of $_->{target}" } @{ $_->{near} }) || 'no fault'
	  for @needless;
	printf $fh "crowd at %.3f: %d have one of %d permits with client %s (%s); %s\n", $_->[2]{locked}, @$_[ 0, 1 ], @{ $_->[2] }{qw(client server)},
	  join(', ', Chaos::Judge::faults_at($_->[2]{locked}, 2 * $session_timeout, @faults)) || 'no fault'
	  for @crowds[ 0 .. ($#crowds < 20 ? $#crowds : 19) ];
	printf $fh "long wait of %.1f s for %s: client %s (%s), %s\n", $_->[0], @{ $_->[1] }{qw(name client server outcome)} for @long_waits[ 0 .. ($#long_waits < 20 ? $#long_waits : 19) ];

	# What is wrong, if anything is.
	my %injected = map { $_->{kind} => 1 } @faults;
	my @idle = grep { my $workload = $_; !grep { $_->{workload} eq $workload && $_->{outcome} eq 'ok' } @transactions } distinct(@workloads);
	my %unexpected = map { $_ => 1 } grep { !/$expected/ } map { $_->{outcome} } @transactions;
	my @strange = $history->strange;
	my (@crashes, @damaged);
	for my $file (glob "$log/server-*.log")
	{
		open my $in, '<', $file or die "could not read $file: $!\n";
		for (<$in>)
		{
			chomp;
			push @crashes, $_ if /^TRAP:|: Assertion `|was terminated by signal (?!9\b)/;
			push @damaged, $_ if /, from which damaged data came: / || !$injected{'rubbish from a ZooKeeper host'} && /: what it answers is not ZooKeeper's/;
		}
		close $in;
	}
	my @checks = (
		[ 'no lock was held twice', @overlaps ? scalar(@overlaps) . ' overlaps' : () ],
		[ 'a later holder had a larger token', @disorders ? scalar(@disorders) . ' tokens out of order' : () ],
		[ 'no permit was held by one too many', @crowds ? scalar(@crowds) . ' crowds' : () ],
		[ "nobody waited for longer than $longest_wait s in a ring, or for a set", @long_waits ? scalar(@long_waits) . ' did' : () ],
		[ 'no update was lost behind the fence', $rows{fenced}{lost} ? "$rows{fenced}{lost} lost" : () ],
		[ 'each item was handed out, and done once', @items ? scalar(@items) . " were not: $items[0]" : () ],
		[ 'no slot was left out', map { @{ $_->{missing} } } @job{@jobs} ],
		[ 'no slot was committed once more', map { @{ $_->{wrong} } } @job{@jobs} ],
		[ 'what jobs left, and what is told of them, is true', map { @{ $_->{untrue} } } @job{@jobs} ],
		[ 'the judge finds no anomaly', $judged =~ /^judged: .* 0 anomalies, / ? () : $judged ],
		[ 'no fault of one server cost another its session', @needless ? scalar(@needless) . ' were given up without need' : () ],
		[ 'no contender leaked', @leaked ? scalar(@leaked) . ' leaked' : () ],
		[ 'every server gave locks and ran jobs again', @{ $seen{wrong} } ],
		[ 'every client came to an end', $seen{stuck} ? "$seen{stuck} did not" : (), @strange ? "one says: $strange[0]" : () ],
		[ 'every error was one to be expected', sort keys %unexpected ],
		[ 'no process crashed, nor broke an assertion', @crashes ],
		[ 'no server called damaged what ZooKeeper has sent', @damaged ],
		[ 'every workload committed', map { "not $_" } @idle ]);
	push @checks, [ 'every kind of fault was injected', map { "not $_" } grep { !$injected{$_} } @names ] if $seconds >= $long_run;
	my $passed = 1;
	for (@checks)
	{
		my ($what, @wrong) = @$_;
		print $fh @wrong ? "not ok - $what: " . join('; ', @wrong) : "ok - $what", "\n";
		$passed = 0 if @wrong;
	}
	print $fh "$judged\n";
	return $passed;
}

sub main
{
	print "chaos: starting ...\n";
	set_up();
	my $history = start_clients();
	wait_for($patience, sub { $history->update; !grep { !$history->last_lock($_->name) } @servers })
	  or die "the clients get no locks\n";
	wait_for($patience, sub { keys %{ { $zk->contenders } } }) or die "no contender is seen\n";
	srand $seed;
	my $nemesis = Chaos::Nemesis->new(
		kinds => \@kinds,
		zk => $zk,
		servers => \@servers,
		data => $data,
		small => [ grep { $_->name ne 'A' } @servers ],
		clients => \%clients,
		history => $history,
		timeout => $session_timeout,
		log => "$log/nemesis");
	print "chaos: $seconds s of it, seed $seed ...\n";
	$nemesis->run($seconds);
	my @wrong = calm_down($nemesis);
	my $stuck = stop_clients();
	# Locks that the servers keep for nobody are no leak.  A session that was lost
	# is counted out by ZooKeeper within its timeout.
	my (@leaked, %ghosts);
	my $record = Chaos::Jobs::record($servers[0], 60);
	my @undone = hand_out($history);
	my $stopped = now();
	for my $server (@servers) { $server->must($_) for 'ALTER SYSTEM SET zklock.keep_time = 0', 'SELECT pg_reload_conf()'; }
	wait_for(4 * $session_timeout + 15, sub { !(@leaked = leaked(\%ghosts)) && !%ghosts });
	my $drained = now() - $stopped;
	$history->update;
	my @losses = $zk->losses;

	open my $fh, '>', "$log/report" or die "could not write $log/report: $!\n";
	my $passed = report($fh, $history, $nemesis, wrong => \@wrong, stuck => $stuck, leaked => \@leaked, ghosts => \%ghosts, undone => \@undone, losses => \@losses, drained => $drained, record => $record);
	close $fh;
	open $fh, '<', "$log/report" or die "$!\n";
	print "\n", <$fh>;
	my $chosen = ($wanted ? " WORKLOADS='$wanted'" : '') . ($faults ? " FAULTS='$faults'" : '');
	print "logs: build/chaos; to repeat: make chaos SECONDS=$seconds SEED=$seed$chosen\n" unless $passed;
	return $passed ? 0 : 1;
}

my $status = eval { main() };
print "chaos: $@" unless defined $status;
exit($status // 2);
