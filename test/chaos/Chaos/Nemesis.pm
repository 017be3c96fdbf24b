# Chaos::Nemesis - injects faults, one at a time and sometimes two, and heals them.
#
# All kinds come in turn, in an order that the seed gives; it also gives targets
# and durations.  After most faults it waits until every server has given a lock
# again: only then is the recovery time known.  After the others it strikes again
# at once.
package Chaos::Nemesis;

use strict;
use warnings;

use List::Util qw(shuffle max);
use POSIX ();
use Time::HiRes qw(sleep);
use Chaos::Jobs;
use Chaos::Postgres;

# In the order of the table.  The duration is in session timeouts.
our @kinds = (
	[ 'cut: halves', \&cut_halves, 0.3, 3 ],
	[ 'cut: one way', \&cut_one_way, 0.3, 3 ],
	[ 'cut: follower from quorum', \&cut_follower, 0.5, 3 ],
	[ 'cut: PostgreSQL host', \&cut_server, 0.3, 3 ],
	[ 'terminate: holder', \&terminate_holder, 0, 0 ],
	[ 'terminate: sessions', \&terminate_sessions, 0, 0 ],
	[ 'cancel: sessions', \&cancel_sessions, 0, 0 ],
	[ 'no synchronous standby', \&lose_standby, 0.3, 2 ],
	[ 'kill -9: worker', \&kill_worker, 0, 0 ],
	[ 'kill -9: backend', \&kill_backend, 0, 0 ],
	[ 'kill -9: postmaster', \&kill_postmaster, 0.1, 1.5 ],
	[ 'kill -9: ZooKeeper', \&kill_zookeeper, 0.1, 1.5 ],
	[ 'rubbish from a ZooKeeper host', \&speak_rubbish, 0.3, 3 ],
	[ 'foreign: waiters deleted', \&delete_waiters, 0, 0 ],
	[ 'other minSessionTimeout', \&change_timeout, 0.1, 1 ],
	[ 'ensemble restored', \&restore, 0, 2 ],
	[ 'ensemble wiped', \&wipe, 0, 2 ],
	[ 'lock table full', \&fill_table, 0.5, 2 ],
	[ 'pause: worker', \&pause_worker, 0.3, 3 ],
	[ 'pause: backend', \&pause_backend, 0.3, 3 ],
	[ 'pause: postmaster', \&pause_postmaster, 0.3, 3 ],
	[ 'pause: ZooKeeper follower', \&pause_follower, 0.3, 3 ],
	[ 'pause: ZooKeeper leader', \&pause_leader, 0.3, 3 ],
	[ 'pause: PostgreSQL host', \&pause_server, 0.3, 3 ]);

# Of a fleet that is looked after (endurance.pl), besides.
our @maintenance = (
	[ 'restart: PostgreSQL', \&restart, 0, 0 ],
	[ 'rolling restart of the ensemble', \&roll, 0, 0 ]);

# Only sessions are harmed by these.
our %spares_servers = map { $_ => 1 } ('terminate: holder', 'terminate: sessions', 'cancel: sessions', 'no synchronous standby');

# What change_timeout makes of the session timeout, at most: so many of them.
my $longest_timeout = 3;

# Seconds to wait for a recovery before the next fault.
my $patience = 15;

sub now { return Chaos::Postgres::now(); }

# kinds (of our @kinds, those that it may choose), zk (Chaos::Ensemble), servers (Chaos::Server), data (the fourth), clients (lists of pids by the
# server's name), small (of the servers, those with a small table), history, timeout (of
# sessions, s), log (a file); pace (at most so many seconds until the next fault), steady (the name
# of a server whose processes live on), plan (a list of [ from that second on, kind, code, least and
# greatest duration ], which come beside the kinds)
sub new
{
	my ($class, %option) = @_;
	my $self = bless { faults => [], active => [], bag => [], %option }, $class;
	open $self->{fh}, '>', $self->{log} or die "could not write $self->{log}: $!";
	$self->{fh}->autoflush(1);
	return $self;
}

sub say
{
	my ($self, $text) = @_;
	my $now = Time::HiRes::time;
	my $fraction = sprintf '%03d', 1000 * ($now - int $now);
	printf { $self->{fh} } "%s.%s %.3f  %s\n", POSIX::strftime('%T', gmtime $now), $fraction, now(), $text;
}

# Every fault: kind, what, target (the one of our servers that it strikes; undef: an ensemble's
# server, or more than one), begin, heal (when it was healed or let go).
sub faults { my $self = shift; return @{ $self->{faults} }; }

sub run
{
	my ($self, $seconds) = @_;
	my $end = now() + $seconds;
	my $next = now() + 1;
	my $second;    # when another one joins the first
	my $alone;     # none may, nor come before all have recovered
	$self->back_up;
	my $wait_until = 0;
	$self->{begun} = now();
	my $read = now();
	while (now() < $end || @{ $self->{plan} })
	{
		# All of it at the end would take long.
		if (now() > $read + 5)
		{
			$self->{history}->update;
			$read = now();
		}
		my $busy = @{ $self->{active} };
		$self->heal_due(0);
		if (@{ $self->{active} })
		{
			if ($second && now() >= $second)
			{
				$second = undef;
				$self->inject;
			}
		}
		elsif ($busy)
		{
			# The last one is healed.
			$second = undef;
			$wait_until = now() + ($alone || rand() < 0.7 ? $patience : 0);
			$next = now() + rand $self->{pace};
		}
		elsif ((now() >= $next || $self->planned) && (now() >= $wait_until || $self->recovered))
		{
			$self->back_up if rand() < 0.2 && $self->{zk}->leader;
			my $fault = $self->inject($self->planned);
			$alone = $fault && $fault->{alone};
			$second = now() + rand($fault->{due} - now()) if $fault && !$alone && rand() < 0.3;
		}
		sleep 0.03;
	}
	$self->say('the end');
}

# Is it time for what is planned next?
sub planned { my $self = shift; return @{ $self->{plan} } && now() - $self->{begun} >= $self->{plan}[0][0]; }

# Heal those whose time has come, or all.  A healing that is not done yet, such
# as a server that does not start, is tried again the next time.  One that is slow counts as
# healed when it is done.
sub heal_due
{
	my ($self, $all) = @_;
	$self->say($_) for $self->{zk}->revive;
	for my $fault (@{ $self->{active} })
	{
		next unless $all || now() >= $fault->{due};
		$self->say("heal    $fault->{kind}: $fault->{what}") unless $fault->{heal};
		$fault->{heal} //= now();
		$fault->{healed} = $fault->{undo}->();
		$fault->{heal} = now() if $fault->{slow};
	}
	@{ $self->{active} } = grep { !$_->{healed} } @{ $self->{active} };
	return !@{ $self->{active} };
}

sub heal_all
{
	my ($self, $wait) = @_;
	my $deadline = now() + $wait;
	until ($self->heal_due(1))
	{
		return 0 if now() > $deadline;
		sleep 0.1;
	}
	return 1;
}

# Has every server given a lock since the last fault was healed?
sub recovered
{
	my $self = shift;
	return $self->locked_since($self->last_healed);
}

sub last_healed { my $self = shift; return max 0, map { $_->{heal} // 0 } $self->faults; }

sub locked_since
{
	my ($self, $when) = @_;
	$self->{history}->update;
	return !grep { $self->{history}->last_lock($_->name) < $when } @{ $self->{servers} };
}

# Has every job been called for since then on every server, and to a good end?
sub jobs_recovered
{
	my ($self, @jobs) = @_;
	my $last = $self->last_healed;
	$self->{history}->update;
	return !grep { my $server = $_->name; grep { $self->{history}->last_job($server, $_) < $last } @jobs } @{ $self->{servers} };
}

sub inject
{
	my ($self, $planned) = @_;
	$self->{bag} = [ shuffle @{ $self->{kinds} } ] unless @{ $self->{bag} };
	my $drawn = $planned ? undef : shift @{ $self->{bag} };
	my (undef, $kind, $code, $min, $max) = $planned ? @{ shift @{ $self->{plan} } } : (0, @$drawn);
	my $duration = $self->{timeout} * ($min + ($max - $min) * rand);
	my $begin = now();
	my ($what, $undo, %more) = $self->$code;
	unless (defined $what)
	{
		$self->say("skipped $kind: there is none now");
		# once more behind all others, since not many bags are emptied
		push @{ $self->{bag} }, $drawn if $drawn && ($self->{skipped}{$kind} ^= 1);
		return;
	}
	delete $self->{skipped}{$kind};
	$duration = max $duration, $more{at_least} // 0;
	my ($target) = $kind eq 'cut: halves' ? undef : $what =~ /^([A-Z])\b/;
	my $fault = { %more, target => $target, kind => $kind, what => $what, begin => $begin, due => now() + $duration, undo => $undo // sub { 1 } };
	push @{ $self->{faults} }, $fault;
	push @{ $self->{active} }, $fault;
	$self->say(sprintf 'inject  %s: %s, for %.1f s', $kind, $what, $duration);
	return $fault;
}

#
# Cuts
#
sub any { return $_[ rand @_ ]; }

# Servers whose processes may be ended.
sub mortal { my $self = shift; return grep { $_->name ne ($self->{steady} // '') } @{ $self->{servers} }; }

sub names { return join ' ', sort map { $_->name } @_; }

sub addresses { return map { $_->address } @_; }

# In a fixed order, for the seed.
sub all_hosts
{
	my $self = shift;
	my @hosts = sort { $a->name cmp $b->name } values %{ $self->{zk}{hosts} }, map { $_->host } @{ $self->{servers} };
	return @hosts;
}

# Neither here nor there a packet from the other side.
sub cut_halves
{
	my $self = shift;
	my @hosts = shuffle $self->all_hosts;
	my @half = splice @hosts, 0, @hosts / 2;
	my @heal = map { $_->cut('io', addresses(@hosts)) } @half;
	return (names(@half) . ' | ' . names(@hosts), sub { $_->() for @heal; 1 });
}

sub cut_one_way
{
	my $self = shift;
	my ($host, @others) = shuffle $self->all_hosts;
	my $direction = any('i', 'o');
	my $heal = $host->cut($direction, addresses(@others));
	return ($host->name . ' ' . ($direction eq 'i' ? 'hears' : 'is heard by') . ' nobody', sub { $heal->(); 1 });
}

# It still reaches its clients.
sub cut_follower
{
	my $self = shift;
	my $i = any($self->{zk}->followers) // return;
	my $hosts = $self->{zk}{hosts};
	my $heal = $hosts->{$i}->cut('io', addresses(map { $hosts->{$_} } grep { $_ != $i } sort keys %$hosts));
	return ("zk$i", sub { $heal->(); 1 });
}

sub cut_server
{
	my $self = shift;
	my $host = any(@{ $self->{servers} })->host;
	my $heal = $host->cut('io', addresses(grep { $_ != $host } $self->all_hosts));
	return ($host->name, sub { $heal->(); 1 });
}

#
# Kills
#
sub kill_one
{
	my ($server, $pid, $signal) = @_;
	return unless $pid && kill $signal // 'KILL', $pid;
	return $server->name . " ($pid)";
}

# Its session ends, and nothing else.  The client may not know, and go on.  One that runs a
# job and has written is such a holder, too.
sub terminate_holder
{
	my $self = shift;
	my $server = any(@{ $self->{servers} });
	my $pids = $server->ask("SELECT string_agg(pid::text, ' ') FROM (SELECT pid FROM zk_locks WHERE granted"
		  . " UNION ALL SELECT pid FROM pg_stat_activity WHERE query LIKE 'CALL zk_run_once%' AND backend_xid IS NOT NULL) AS t", 0.5) // return;
	return kill_one($server, any(split / /, $pids), 'TERM');
}

# Half of a server's sessions, whatever they are at
sub signal_sessions
{
	my ($self, $signal) = @_;
	my $server = any(@{ $self->{servers} });
	# none, while the server starts
	my @pids = shuffle $server->backends or return;
	my $n = kill $signal, @pids[ 0 .. $#pids / 2 ];
	return $n ? $server->name . " ($n)" : ();
}

sub terminate_sessions { return $_[0]->signal_sessions('TERM'); }

sub cancel_sessions { return $_[0]->signal_sessions('INT'); }

# Commits wait for a standby that is not there, and the sessions that do are terminated, as
# DBAs do, before it is given up.  What they did has committed, and nobody was told.
sub lose_standby
{
	my $self = shift;
	my $server = any(@{ $self->{servers} });
	my $waiting = q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'};
	my $reload = 'SELECT pg_reload_conf()';
	do_all($server, q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'}, $reload) // return;
	return ($server->name, sub { do_all($server, $waiting, 'ALTER SYSTEM RESET synchronous_standby_names', $reload) });
}

# Undef if it takes no connection, false if something fails.
sub do_all
{
	my ($server, @statements) = @_;
	my $pg = Chaos::Postgres->new($server->dir, 0.5) // return undef;
	for (@statements)
	{
		$pg->query($_, 5);
		return 0 if $pg->error;
	}
	return 1;
}

# Either makes the postmaster start all of its processes anew.
sub kill_worker { my $server = any($_[0]->mortal); return kill_one($server, $server->worker); }

sub kill_backend { my $server = any($_[0]->mortal); return kill_one($server, any($server->backends)); }

# Its children learn of it when they look.
sub kill_postmaster
{
	my $self = shift;
	my $server = any(grep { $_->running } $self->mortal) // return;
	$server->kill9;
	return ($server->name, sub { $server->start(0) });
}

sub kill_zookeeper
{
	my $self = shift;
	my $zk = $self->{zk};
	my $i = any(grep { $zk->pid($_) } $zk->servers) // return;
	my $mode = $zk->mode($i) // 'not serving';
	$zk->kill9($i);
	return ("zk$i ($mode)", sub { $zk->start_nowait($i); 1 });
}

# In place of a server of the ensemble there is somebody who answers rubbish: nothing but zeros, a
# length and nothing more, any bytes, any bytes of the right length; or hangs up.
my $rubbish = <<'END';
use strict;
use warnings;
use IO::Socket::INET;
my ($address, $kind) = @ARGV;
my $listener = IO::Socket::INET->new(LocalAddr => $address, Listen => 100, ReuseAddr => 1) or die "$address: $@\n";
my $any = sub { join '', map { chr int rand 256 } 1 .. $_[0] };
my @clients;
while (my $client = $listener->accept)
{
	sysread $client, my $request, 4096;
	syswrite $client, ("\0" x 400, pack('N', 37), $any->(400), pack('N', 37) . $any->(37), '')[$kind];
	push @clients, $client if $kind < 4;
}
END

sub speak_rubbish
{
	my $self = shift;
	my $zk = $self->{zk};
	my $i = any(grep { $zk->pid($_) } $zk->servers) // return;
	my $kind = int rand 5;
	$zk->kill9($i);
	my $host = $zk->{hosts}{$i};
	my $pid = $host->spawn("$zk->{log}/rubbish", '/', $^X, '-e', $rubbish, $zk->host($i), $kind);
	return ("zk$i (" . ('zeros', 'a length', 'any bytes', 'any session', 'nothing')[$kind] . ')', sub {
		kill 'KILL', $pid;
		waitpid $pid, 0;
		$zk->start_nowait($i);
		1;
	});
}

# Somebody deletes contenders that wait.  Those that have a lock are left alone: whose is deleted
# has lost the lock at that moment, and hears of it a moment later.
sub delete_waiters
{
	my $self = shift;
	my $n = 0;
	eval {
		my $client = $self->{zk}->client(wait => 0.5, timeout => 1000 * $self->{timeout});
		for my $directory (map { my $top = $_; map { "$top/$_" } @{ $client->children($top) // [] } } '/zklock/locks', '/zklock/jobs')
		{
			my @queue = sort { substr($a, -10) cmp substr($b, -10) } grep { /-\d{10}$/ } @{ $client->children($directory) // [] };
			my ($first) = grep { !/-read-lock-/ } @queue;
			next if !defined $first || $queue[-1] eq $first;
			$n += $client->delete_beside("$directory/$queue[-1]", "$directory/$first");
		}
		$client->close;
		1;
	} or $self->say("foreign: $@");
	return $n ? "$n of them" : ();
}

# One server of the ensemble gives new sessions a timeout of its own, and older ones when
# they come to it.
sub change_timeout
{
	my $self = shift;
	my $zk = $self->{zk};
	my $i = any(grep { $zk->pid($_) } $zk->servers) // return;
	my $timeout = any(1, $longest_timeout) * 1000 * $self->{timeout};
	$zk->kill9($i);
	$zk->set_min_timeout($i, $timeout);
	return ("zk$i ($timeout ms)", sub { $zk->start_nowait($i); 1 });
}

# Later faults may restore this.
sub back_up
{
	my $self = shift;
	$self->{zk}->back_up;
	$self->{backed_up} = now();
	$self->say('back up the ensemble');
}

sub restore
{
	my $self = shift;
	my $age = now() - $self->{backed_up};
	my ($what, @how) = $self->replace(0);
	return defined $what ? (sprintf('%s, from %.0f s before', $what, $age), @how) : ();
}

sub wipe { my $self = shift; return $self->replace(1); }

# The ensemble ends and begins again with an older state, or with none.  If all servers
# were well until then, it may come back at once.  Else it has to stay away until every
# session has timed out: see doc/failures.md, "When the ensemble goes back".
sub replace
{
	my ($self, $wiped) = @_;
	my $zk = $self->{zk};
	my $quick = !@{ $self->{active} } && $self->recovered;
	return if grep { !$zk->pid($_) } $zk->servers;
	$zk->kill9;
	Chaos::Jobs::went_back($self->{data});
	$zk->restore($wiped);
	return ($quick ? 'at once' : 'later', sub { $zk->start_nowait; 1 },
		alone => $quick, at_least => $quick ? 0 : ($longest_timeout + 0.5) * $self->{timeout});
}

# All the slots that are free, or become free for a while, are taken.
sub fill_table
{
	my $self = shift;
	my $server = any(@{ $self->{small} });
	my $pg = Chaos::Postgres->new($server->dir, 0.5) // return;
	my ($begin, $taken) = (now(), 0);
	while (now() < $begin + $self->{timeout} && $pg->alive)
	{
		my $answer = $pg->query("SELECT zk_try_lock('full-$taken', scope => 'session', timeout => '100 ms')", 5) // next;
		$taken++ if $answer eq 't';
	}
	return unless $taken;
	return ($server->name . " ($taken names)", sub { $pg->close; 1 });
}

#
# Maintenance
#

# A fast shutdown, whatever is done "between", and the start.
sub exchange
{
	my ($server, $between) = @_;
	my $stopped = 0;
	kill 'INT', $server->pid if $server->running;
	return ($server->name, sub {
		return 0 if !$stopped && $server->running;
		$between->() unless $stopped++;
		return $server->start(0);
	}, slow => 1, alone => 1);
}

sub restart { my $server = any(grep { $_->running } $_[0]->mortal) // return; return exchange($server, sub { }); }

# The ensemble's servers one after the other, each with another zoo.cfg.
sub roll
{
	my $self = shift;
	my $zk = $self->{zk};
	my @left = shuffle $zk->servers;
	return if grep { !$zk->pid($_) } @left;
	my $limit = $zk->change_init_limit;
	my $down;
	return ("initLimit=$limit", sub {
		return 0 if defined $down && !defined $zk->mode($down);
		return 1 unless @left;
		$down = shift @left;
		$zk->stop($down);
		$zk->start_nowait($down);
		return 0;
	}, slow => 1, alone => 1);
}

#
# Pauses
#
sub pause
{
	my ($what, $pid) = @_;
	return unless $pid && kill 'STOP', $pid;
	return ("$what ($pid)", sub { kill 'CONT', $pid; 1 });
}

sub pause_worker { my $server = any(@{ $_[0]{servers} }); return pause($server->name, $server->worker); }

sub pause_backend { my $server = any(@{ $_[0]{servers} }); return pause($server->name, any($server->backends)); }

# Its children go on; nobody new gets in, and nobody who dies is replaced.
sub pause_postmaster { my $server = any(@{ $_[0]{servers} }); return pause($server->name, $server->pid); }

sub pause_zookeeper
{
	my ($self, $i) = @_;
	return unless defined $i;
	return pause("zk$i", $self->{zk}->pid($i));
}

sub pause_follower { my $self = shift; return $self->pause_zookeeper(any($self->{zk}->followers)); }

sub pause_leader { my $self = shift; return $self->pause_zookeeper($self->{zk}->leader); }

# The server and its clients, as a virtual machine that stands still.  They go on
# in any order.
sub pause_server
{
	my $self = shift;
	my $server = any(grep { $_->running } @{ $self->{servers} }) // return;
	my @pids = ($server->pid, @{ $self->{clients}{ $server->name } });
	kill 'STOP', @pids;
	# Only now: a postmaster that is stopped starts no other.
	my @children = $server->children(qr//);
	kill 'STOP', @children;
	push @pids, @children;
	return ($server->name, sub { kill 'CONT', $_ for shuffle @pids; 1 });
}

1;
