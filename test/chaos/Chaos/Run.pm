# Chaos::Run - servers, clients and a nemesis, and what is judged of them.
#
#   Chaos::Run::configure(log => ..., servers => [qw(A B C)], workloads => [...], kinds => [...]);
#   Chaos::Run::set_up();
#   my $interval = Chaos::Run::interval(seconds => 300, seed => 1);
#   exit($interval->{passed} ? 0 : 1);
#
# chaos.pl says what is judged.  An interval begins with new clients and ends when all is calm
# and nobody is left.  There may be several, one after the other, on the same servers
# (endurance.pl).
package Chaos::Run;

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
use Chaos::Log;
use Chaos::Losses;
use Chaos::Nemesis;
use Chaos::Server;
use Chaos::Told;

my $work = '/run/chaos';
# Until all of it has begun, while nothing is judged yet.
my $patience = 120;    # s

# log: a directory; servers: names, each a capital; workloads: of the clients, one each on each
# server; kinds: of Chaos::Nemesis; session_timeout: s; rest: how much longer than usual a client
# waits between two transactions; pace, steady: see Chaos::Nemesis; night: seconds from one night of
# workload jobs-night to the next; expected: a regular expression of more outcomes than ours.
my %option;
my ($log, $session_timeout, @workloads, @jobs, @kinds);

my ($zk, @servers, $data);

# Of the interval.
my ($seconds, $seed);

sub configure
{
	%option = (session_timeout => 2, rest => 1, night => 0, pace => 0.7, @_);
	($log, $session_timeout) = @option{qw(log session_timeout)};
	@workloads = @{ $option{workloads} };
	@jobs = grep { /^jobs-/ } distinct(@workloads);
	@kinds = @{ $option{kinds} };
}

sub servers { return @servers; }

sub ensemble { return $zk; }

sub data { return $data; }

sub now { return Chaos::Postgres::now(); }

sub distinct
{
	my %seen;
	return grep { !$seen{$_}++ } @_;
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
sub set_up
{
	Chaos::Host::bridge();
	my %zk_hosts = map { $_ => Chaos::Host->new("zk$_", "10.77.0.1$_") } 1 .. 3;
	Chaos::Host::make_directory("$work/zookeeper");
	# a session timeout is five ticks at least (doc/failures.md)
	$zk = Chaos::Ensemble->new(hosts => \%zk_hosts, dir => "$work/zookeeper", log => $log, tick_time => 400);
	$zk->start_nowait;

	my $hosts = $zk->hosts;
	my $number = 0;
	for my $name (@{ $option{servers} })
	{
		# C keeps no locks.  The others do, but not until somebody counts the contenders.
		my $keeps = $name eq 'C' ? "zklock.keep_time = 0\nzklock.handoff_limit = 0" : "zklock.keep_time = '${session_timeout}s'";
		# Room for every workload's name, and not for many that are kept.
		my $room = $name eq 'A' ? 10000 : 28;
		my $host = Chaos::Host->new($name, '10.77.0.' . ++$number);
		push @servers, Chaos::Server->new($name, $host, $work, $log, <<"CONF");
shared_preload_libraries = 'zklock'
zklock.hosts = '$hosts'
zklock.session_timeout = '${session_timeout}s'
zklock.connect_timeout = '${session_timeout}s'
$keeps
zklock.max_locks = $room
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
	my $first_night = now() + 20;
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
				id => $id, server => $server->name, workload => $workload, seed => $seed, rest => $option{rest}, night => $option{night}, first_night => $first_night,
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
	wait_for(60, sub { $nemesis->heal_all(1) && !grep { !$zk->mode($_) } $zk->servers }) or push @wrong, 'a server of ZooKeeper does not serve: ' . join ', ', map { "zk$_" } grep { !$zk->mode($_) } $zk->servers;
	wait_for(60, sub { $nemesis->recovered }) or push @wrong, 'a server gave no lock within a minute after all was healed';
	wait_connected(30) or push @wrong, 'a server is not connected to ZooKeeper';
	# who waits for the evening does not call
	wait_for(60, sub { $nemesis->jobs_recovered(grep { $_ ne 'jobs-night' } @jobs) }) or push @wrong, 'a server ended no call for a job within a minute after all was healed';
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
# settled them by then.  Returns complaints; what only some servers of ZooKeeper show is theirs.
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
			# an item is done even if its answer came too late
			while (my $item = $server->ask("SELECT id || ' ' || (1000 * extract(epoch FROM since))::bigint FROM zk_queue_take('queue')", 60))
			{
				my ($id, $since) = split / /, $item;
				my $value = { item => $id, id => $since };
				$history->tell(map { Chaos::Told::event($who, @$_[ 0, 1 ], \@object, @$_[ 2, 3 ]) }
					  [ 'invoke', 'take', {}, $sent ], [ 'ok', 'take', $value ], [ 'invoke', 'done', $value ], [ 'ok', 'done', {} ]);
				$data->must("INSERT INTO handed_out VALUES ('$id', $since) ON CONFLICT DO NOTHING");
				$sent = Chaos::Told::now();
			}
		}
		$left = eval { $servers[0]->must("SELECT coalesce(sum(length + putting), 0) FROM zk_queues WHERE queue = 'queue'") };
		return defined $left && !$left;
	});
	return "could not look for what is left in the queue: $@" unless defined $left;
	my %shown = $left ? $zk->shown(1, map { "/zklock/queues/queue/$_" } qw(items held puts)) : ();
	my $all = () = $zk->servers;
	my @nodes = grep { @{ $shown{$_} } == $all } sort keys %shown;
	return "$left are left in the queue: " . join ', ', @nodes if @nodes;
	$history->tell(map { Chaos::Told::event([ 900, 'A' ], $_, 'empty', \@object, {}) } 'invoke', 'ok');
	return ();
}

#
# The judge
#

# What the nemesis did, and which sessions and runs the servers lost (Chaos::Losses, dated), for the
# judge.  "by_itself" is when the ensemble lost something without a fault, in whole seconds.  Their
# times are in seconds since 1970.
sub tell_faults
{
	my ($history, $faults, $sessions, $runs, @by_itself) = @_;
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
	$tell->('ensemble, by itself', 'ensemble', undef, $_ + $epoch - 1, $_ + $epoch + 1) for @by_itself;
	$tell->("$_->{what} lost", 'server', $_->{server}, $_->{since} + $epoch, $_->{at} + $epoch) for @$sessions, @$runs;
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
	my $epoch = Time::HiRes::time() - now();
	my @lost = Chaos::Losses::sessions($log);
	my @lost_runs = Chaos::Losses::runs($log);
	# A session is perhaps gone long before its server learns of it.
	Chaos::Losses::date(\@lost, $epoch, $session_timeout, @transactions);
	# where it is slow a server loses its session without a fault, too
	my @harms = (
		(map { [ $_->{begin} + $epoch - 1, $_->{heal} + $epoch + 4 * $session_timeout ] } grep { !$Chaos::Nemesis::spares_servers{ $_->{kind} } } @faults),
		map { [ @$_{qw(since at server)} ] } @lost, @lost_runs);
	my %job = map { $_ => Chaos::Jobs::judge($_, \@transactions, $seen{record}, $data, \@servers, $log, \@harms, @{ $seen{losses} }) } @jobs;
	Chaos::Losses::explain(\@lost, 4 * $session_timeout, $epoch, \@faults, @{ $seen{losses} });
	my $lost = Chaos::Losses::count(@lost);
	my @needless = Chaos::Losses::needless(@lost);
	tell_faults($history, \@faults, \@lost, \@lost_runs, @{ $seen{losses} });
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
	my %strayed = $zk->strayed;
	print $fh "$_ had other znodes than its leader: $strayed{$_}\n" for sort keys %strayed;
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
	my %unexpected = map { $_ => 1 } grep { !/$expected/ && !($option{expected} && /$option{expected}/) } map { $_->{outcome} } @transactions;
	my @strange = $history->strange;
	my (@crashes, @damaged);
	my ($damaged, $not_zookeeper) = map { Chaos::Log::said($_) } 'damaged', 'not ZooKeeper';
	for my $file (glob "$log/server-*.log")
	{
		open my $in, '<', $file or die "could not read $file: $!\n";
		for (<$in>)
		{
			chomp;
			push @crashes, $_ if /^TRAP:|: Assertion `|was terminated by signal (?!9\b)/;
			push @damaged, $_ if /$damaged/ || !$injected{'rubbish from a ZooKeeper host'} && /$not_zookeeper/;
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
	push @checks, [ 'every kind of fault was injected', map { "not $_" } grep { !$injected{$_} } @names ] if $seconds >= $long_run && $option{pace} < 1;
	my $passed = 1;
	for (@checks)
	{
		my ($what, @wrong) = @$_;
		print $fh @wrong ? "not ok - $what: " . join('; ', @wrong) : "ok - $what", "\n";
		$passed = 0 if @wrong;
	}
	print $fh "$judged\n";
	return ($passed, \%job);
}

# One of so many seconds, with this seed for the nemesis, which is given "plan" besides.  Writes the
# report, "report" in the log's directory.  Returns whether all was well ("passed"), the nemesis, the history, and what was judged
# of each job.
sub interval
{
	my %interval = @_;
	($seconds, $seed) = @interval{qw(seconds seed)};
	%clients = ();
	my $history = start_clients();
	wait_for($patience, sub { $history->update; !grep { !$history->last_lock($_->name) } @servers })
	  or die "the clients get no locks\n";
	wait_for($patience, sub { keys %{ { $zk->contenders } } }) or die "no contender is seen\n";
	srand $seed;
	my $nemesis = Chaos::Nemesis->new(
		kinds => \@kinds,
		pace => $option{pace},
		steady => $option{steady},
		plan => $interval{plan} // [],
		zk => $zk,
		servers => \@servers,
		data => $data,
		small => [ grep { $_->name ne 'A' } @servers ],
		clients => \%clients,
		history => $history,
		timeout => $session_timeout,
		log => "$log/nemesis");
	$nemesis->run($seconds);
	my @wrong = calm_down($nemesis);
	my $stuck = stop_clients();
	# Locks that the servers keep for nobody are no leak.  A session that was lost
	# is counted out by ZooKeeper within its timeout.
	my (@leaked, %ghosts);
	my $record = Chaos::Jobs::record($servers[0], 60);
	my @undone = hand_out($history);
	my $stopped = now();
	keep('0');
	wait_for(4 * $session_timeout + 15, sub { !(@leaked = leaked(\%ghosts)) && !%ghosts });
	my $drained = now() - $stopped;
	$history->update;
	my @losses = $zk->losses;

	open my $fh, '>', "$log/report" or die "could not write $log/report: $!\n";
	my ($passed, $job) = report($fh, $history, $nemesis, wrong => \@wrong, stuck => $stuck, leaked => \@leaked, ghosts => \%ghosts, undone => \@undone, losses => \@losses, drained => $drained, record => $record);
	close $fh;
	return { passed => $passed, nemesis => $nemesis, history => $history, jobs => $job };
}

# Until when servers keep locks for nobody; undef: as at the beginning.
sub keep
{
	my $time = shift;
	my $setting = defined $time ? "SET zklock.keep_time = $time" : 'RESET zklock.keep_time';
	for my $server (@servers) { $server->must($_) for "ALTER SYSTEM $setting", 'SELECT pg_reload_conf()'; }
}

1;
