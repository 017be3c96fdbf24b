# ZkLock - PostgreSQL servers with zklock, sessions on them, and what to expect.
#
#   use ZkLock;
#   my $zk = ZooKeeper->new->start;
#   my $node = ZkLock::server('a', $zk, conf => "zklock.connect_timeout = '2s'");
#   my $holder = ZkLock::session($node);
#   $holder->query("BEGIN; SELECT zk_lock('job')");
#   my $waiter = ZkLock::session($node)->send("SELECT zk_lock('job')");
#   $waiter->wait_level(1);                  # behind the holder, in this server
#   is($waiter->cancel->failure, '57014: canceling statement due to user request');
#   $holder->query('COMMIT');
#   ZkLock::ok_clean($zk, [$node], 'job');
#
# Functions (none is exported):
#
#   server(NAME, ZK, OPTIONS)   a PostgreSQL::Test::Cluster, started, with the
#           extension in database postgres.  ZK: a ZooKeeper, a Proxy, or a
#           connect string.  Options: conf (lines of postgresql.conf), init
#           (a hash for Cluster's init), cluster (one for its new), start => 0 (do not), extension => 0
#   configure(NODE, ZK, CONF)   the same lines for a node made otherwise
#   session(NODE, OPTIONS)      see below
#   ask(NODE, SQL)              one answer, by a session that each node keeps for
#           this (it comes back by itself after a restart)
#   hang_up(NODE)               end that session (smart shutdown waits for it)
#   start_again(NODE)           after its postmaster was killed: when the last of its
#           processes has gone, which is when PostgreSQL lets another one start
#   set(NODE, NAME, VALUE, SESSION...)  by ALTER SYSTEM and a reload; the worker has it then, and so
#           have these sessions
#   wait_connected(NODE...)     until the worker has a ZooKeeper session
#   wait_answered(NODE)         until the worker has dealt with the answers to all that it has asked
#           ZooKeeper so far.  This asks, too
#   title(PID)                  what ps says of a process
#   stop_process(NODE, PID)     SIGSTOP for a process of the server, at a moment when it has none
#           of the locks in shared memory, for which others would wait as long as it is stopped
#   wait_until(CODE, WHAT, SEEN)  see Wait.pm
#   wait_waiting(NODE, LEVEL, N)  until so many backends wait at level 1 (behind
#           a backend of this server) or 2 (for ZooKeeper).  At level 2 their contender may
#           still be on its way: whoever needs it in the queue calls wait_queue, too
#   directory(NAME, KIND)       of a lock, in ZooKeeper; KIND 'elections': of one
#   queue(ZK, NAME, KIND)       names of its contenders, in order
#   wait_queue(ZK, NAME, N)     until there are so many; returns them
#   wait_watches(ZK, N)         until so many paths are watched, by whomever: a server
#           that keeps a grant watches the directory.  The base of tokens, which each
#           server watches, does not count
#   wait_demanded(ZK, NODE, NAME)  until it knows that others want what it has
#   ok_clean(ZK, [NODE...], NAME, [WHAT])  a test: nobody is left anywhere, no
#           contender, no row in zk_locks, no level-1 lock
#
# A test fails, too, if a process of its servers has crashed, or an assertion was broken; or
# if a server called data damaged, unless the test damages some: $ZkLock::damaging = 1.
#
# A session is one psql.  One statement (or a few, separated by ;) at a time:
#
#   session(NODE, dbname => 'postgres', user => ..., host => ..., port => ...,
#           env => { PGOPTIONS => ... }, options => 'replication=database')
#   query(SQL)       its answer, unaligned, tuples only; dies if it fails
#   fails(SQL)       'SQLSTATE: message' of its first error; '' if there was none
#   notices          'WARNING SQLSTATE: message' and the like, details and hints
#           included, of the last answer
#   send(SQL)        do not wait; later
#     result         ... as of query
#     failure        ... as of fails
#     busy           ... true until the answer is there
#   pid              of the backend
#   wait_level(N)    until it waits at level 1 or 2, as wait_waiting has it
#   wait_event(NAME) until it waits for this event of pg_stat_activity, or one of this type
#   cancel, terminate   by pg_cancel_backend, pg_terminate_backend
#   kill_client      SIGKILL for psql: the client is gone
#   quit             end it and wait until the backend has gone
# Methods without an answer return the session.  A connection that ends gives
# its FATAL error, or 'lost: ...'.
package ZkLock;

use strict;
use warnings;

use Carp;
use Fcntl qw(LOCK_EX);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils ();
use Test::More;
use Time::HiRes qw(sleep);
use Wait;
use ZooKeeper;

# The one limit, by its name here, and for PostgreSQL's modules, which may be older.
our $timeout;
*timeout = \$Wait::limit;
$PostgreSQL::Test::Utils::timeout_default = $timeout;

# What a test dies of is seen with its results: PostgreSQL's modules send standard error to
# a log that stays behind.
$SIG{__DIE__} = sub { Test::More->builder->diag($_[0]) if defined $^S && !$^S };

# The class, in the lock tag's fourth field, of level-1 locks.
our $level1 = "locktype = 'advisory' AND objsubid = 31339";

#
# Servers
#

sub configure
{
	my ($node, $zk, $conf) = @_;
	my $hosts = !ref $zk ? $zk : $zk->can('hosts') ? $zk->hosts : $zk->host;
	$node->append_conf('postgresql.conf', join "\n",
		"shared_preload_libraries = 'zklock'",
		"zklock.hosts = '$hosts'",
		# Nobody loses a session, or gives up, because the machine is busy.  A session
		# that breaks off needs a sixtieth of its timeout to be resumed.
		"zklock.session_timeout = '60s'",
		"zklock.connect_timeout = '1h'",
		# One hold, one contender: most tests look at the queue.
		'zklock.keep_time = 0',
		'zklock.handoff_limit = 0',
		$conf // '');
	return $node;
}

# What a crash of this server leaves in memory: src/worker/historymemory.c.
sub memory { my $node = shift; return _memory($node->data_dir); }
sub _memory { my $data = shift; return sprintf '/dev/shm/zklock.%x.%x', (stat $data)[ 0, 1 ]; }

# initdb is most of what a test costs, and the same in all of them: test/tap names a directory
# where the first test that needs an Nth server leaves what initdb has made, for all others to
# copy.  Of the servers of one test each has a system identifier of its own, by which zklock
# tells a server from copies of it.
my $made = 0;

sub _init
{
	my ($node, @options) = @_;
	@options = (extra => [ '--encoding=UTF8', '--wal-segsize=1' ], @options);
	return $node->init(@options) unless $ENV{ZKLOCK_TEMPLATES};
	my $system = \&PostgreSQL::Test::Utils::system_or_bail;
	my $initdb = sub {
		my @command = @_;
		return $system->(@command) if $command[0] ne 'initdb';
		my $data = $node->data_dir;
		my $template = "$ENV{ZKLOCK_TEMPLATES}/" . ++$made;
		open my $lock, '>', "$template.lock" or croak "could not open $template.lock: $!";
		flock $lock, LOCK_EX or croak "could not lock $template.lock: $!";
		unless (-d $template)
		{
			$system->(map { $_ eq $data ? "$template.new" : $_ } @command);
			rename "$template.new", $template or croak "could not rename $template.new: $!";
		}
		close $lock;
		return $system->('cp', '-a', '--reflink=auto', $template, $data);
	};
	no warnings 'redefine';
	local *PostgreSQL::Test::Utils::system_or_bail = $initdb;
	return $node->init(@options);
}

sub server
{
	my ($name, $zk, %option) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, %{ $option{cluster} // {} });
	_init($node, %{ $option{init} // {} });
	configure($node, $zk, $option{conf});
	return $node unless $option{start} // 1;
	$node->start;
	ask($node, 'CREATE EXTENSION zklock') if $option{extension} // 1;
	return $node;
}

# Before PostgreSQL's modules stop the servers, and remove what a good test has left.
our $crash = qr/^TRAP:|: Assertion `|\bPANIC:|was terminated by signal (?!9\b)/m;
our $damaging;
my $damage = qr/, from which damaged data came: |: what it answers is not ZooKeeper's/;

END
{
	my $failed = $?;
	my ($test) = $0 =~ m{([^/]+?)(?:\.[^./]*)?$};
	unlink map { _memory($_) } glob "$PostgreSQL::Test::Utils::tmp_check/t_${test}_*_data/pgdata";
	for my $log (glob "$PostgreSQL::Test::Utils::log_path/${test}_*.log")
	{
		my @lines = grep { /$crash/ || !$damaging && /$damage/ } split /^/, PostgreSQL::Test::Utils::slurp_file($log);
		next unless @lines;
		Test::More->builder->diag("$log:\n", @lines);
		$failed ||= 1;
	}
	$? = $failed;
}

sub session { return ZkLock::Session->new(@_); }

my %observer;

sub ask
{
	my ($node, $sql) = @_;
	my $name = $node->name;
	$observer{$name} = session($node) unless $observer{$name} && $observer{$name}->alive;
	return $observer{$name}->query($sql);
}

sub hang_up
{
	my $node = shift;
	# quit would ask whether the backend has gone, and so need the next observer
	my $s = $observer{ $node->name } or return;
	$s->quit;
	delete $observer{ $node->name };
}

#
# Waiting for things to come true
#

sub start_again
{
	my ($node) = @_;
	wait_until(sub { $node->start(fail_ok => 1) }, $node->name . ' starts again');
}

sub set
{
	my ($node, $name, $value, @sessions) = @_;
	ask($node, "ALTER SYSTEM SET $name = '$value'");
	ask($node, 'SELECT pg_reload_conf()');
	wait_until(sub { ask($node, "SHOW $name") eq $value && !grep { $_->query("SHOW $name") ne $value } @sessions }, "$name is $value");
	# the worker has gone round when it has answered
	ask($node, "SELECT count(*) FROM zk_contenders('nobody')") for 1, 2;
	return;
}

sub wait_connected
{
	for my $node (@_)
	{
		my $state;
		wait_until(
			sub { ($state = ask($node, 'SELECT state, last_error FROM zk_session')) =~ /^connected\|/ },
			$node->name . ' is connected to ZooKeeper',
			sub { $state });
	}
}

sub wait_answered
{
	my $node = shift;
	# The worker counts what is under way at the end of its round: until then this may be 0 though
	# it has sent something.  Answers come in the order of requests, and this one was counted.
	ask($node, "SELECT count(*) FROM zk_contenders('nobody')");
	my $seen;
	wait_until(sub { ($seen = ask($node, 'SELECT in_flight FROM zk_session')) == 0 }, 'nothing of ' . $node->name . ' is under way', sub { $seen });
	return;
}

# A title is what a process has made of its arguments.
sub title { return PostgreSQL::Test::Utils::slurp_file("/proc/$_[0]/cmdline") =~ s/[\0\s]+$//r; }

sub stop_process
{
	my ($node, $pid) = @_;
	for (;;)
	{
		kill 'STOP', $pid or croak "could not stop process $pid: $!";
		wait_until(sub { PostgreSQL::Test::Utils::slurp_file("/proc/$pid/stat") =~ /^\d+ \(.*\) T /s }, "process $pid is stopped");
		# This takes those locks, one after the other.  The answer of the worker never comes; who
		# waits for a lock in shared memory hears of no timeout.
		my $probe = session($node);
		$probe->send("SELECT count(*) FROM zk_locks, zk_session, zk_stat, zk_stat_barriers; SET statement_timeout = 10; SELECT count(*) FROM zk_contenders('nobody')");
		for (my $tries = 0; $probe->busy && $tries < 200; $tries++) { sleep 0.01; }
		my $free = !$probe->busy;
		kill 'CONT', $pid unless $free;
		$probe->failure;
		$probe->quit;
		return $pid if $free;
	}
}

sub _waiting_sql
{
	my $type = $_[0] == 1 ? 'Lock' : 'Extension';
	return "FROM zk_locks l JOIN pg_stat_activity a USING (pid) "
	  . "WHERE NOT l.granted AND a.wait_event_type = '$type'";
}

sub wait_waiting
{
	my ($node, $level, $n) = @_;
	my $sql = 'SELECT count(*) ' . _waiting_sql($level);
	my $seen;
	wait_until(sub { ($seen = ask($node, $sql)) == $n }, "$n backends of " . $node->name . " wait at level $level", sub { $seen });
}

#
# ZooKeeper's side
#

sub directory
{
	my ($name, $kind) = @_;
	$kind //= 'locks';
	utf8::decode($name) unless utf8::is_utf8($name);
	my $escape = $name =~ /^\.\.?$/ ? qr/./ : qr{[/%\x00-\x1f\x7f-\x9f\x{fff0}-\x{10ffff}]};
	$name =~ s{($escape)}{my $c = $1; utf8::encode($c); join '', map { sprintf '%%%02X', $_ } unpack 'C*', $c}ge;
	utf8::encode($name);
	return "/zklock/$kind/$name";
}

sub _sorted { my @sorted = sort { substr($a, -10) <=> substr($b, -10) } @_; return @sorted; }

sub queue { my ($zk, $name, $kind) = @_; return _sorted($zk->children(directory($name, $kind))); }

sub wait_queue { my ($zk, $name, $n, $kind) = @_; return _sorted($zk->wait_children(directory($name, $kind), $n)); }

sub wait_watches
{
	my ($zk, $n) = @_;
	# wchp does not tell of watches on children
	my $seen;
	wait_until(sub { ($seen = watch_count($zk)) == $n }, "$n paths are watched", sub { $seen });
}

sub watch_count
{
	my ($zk, $i) = @_;
	my $bases = $zk->four('wchp', $i) =~ m{^/zklock/tokens\n((?:\t.*\n?)*)}m ? () = $1 =~ /\t/g : 0;
	return $zk->monitor('zk_watch_count', $i) - $bases;
}

# It watches its own contender instead of the directory then.
sub wait_demanded
{
	my ($zk, $node, $name) = @_;
	my $id = ask($node, 'SELECT session_id FROM zk_session');
	my $own = sub {
		my $stat = $zk->stat($_[0]);
		return $stat && $stat->{ephemeralOwner} == hex $id;
	};
	wait_until(
		sub {
			my $text = join '', map { $zk->four('wchp', $_) } $zk->servers;
			for my $path (map { directory($name) . "/$_" } queue($zk, $name))
			{
				return 1 if $own->($path) && $text =~ /^\Q$path\E\n(?:\t.*\n)*?\t\Q$id\E$/m;
			}
			return 0;
		},
		$node->name . " knows that others want $name");
}

sub ok_clean
{
	my ($zk, $nodes, $name, $what, $kind) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $left;
	# Contenders are deleted after the backend has gone on.
	wait_until(
		sub {
			$left = join ' ', queue($zk, $name, $kind);
			for my $node (@$nodes)
			{
				$left .= ask($node, "SELECT concat_ws(' ', ' zk_locks', pid, mode, scope, granted) FROM zk_locks");
				$left .= ask($node, "SELECT concat_ws(' ', ' pg_locks', pid, mode, granted) FROM pg_locks WHERE $level1");
			}
			return $left eq '';
		},
		"nothing of $name is left",
		sub { $left });
	return pass(($what // $name) . ': nothing is left');
}

#
# Sessions
#
package ZkLock::Session;

use strict;
use warnings;

use Carp;
use IO::Select;
use IPC::Open2;
use Time::HiRes qw(time);
use Wait;

sub new
{
	my ($class, $node, %option) = @_;
	my $self = bless { node => $node, buffer => '', sent => 0, notices => '' }, $class;
	my $conninfo = sprintf "host='%s' port=%s dbname='%s' %s",
	  $option{host} // $node->host, $option{port} // $node->port, $option{dbname} // 'postgres', $option{options} // '';
	$conninfo .= " user=$option{user}" if $option{user};
	local %ENV = (%ENV, PGAPPNAME => 'zklock test', PGCLIENTENCODING => 'UTF8', %{ $option{env} // {} });
	# psql speaks on one pipe, in the order of events
	$self->{psql} = open2($self->{out}, $self->{in}, 'sh', '-c',
		'exec psql -XAtq -v VERBOSITY=verbose -v SHOW_CONTEXT=never -d "$0" 2>&1', $conninfo);
	return $self;
}

sub send
{
	my ($self, $sql) = @_;
	croak 'the session is busy' if $self->busy;
	unless (defined $self->{pid})
	{
		# now: later it may be waiting
		$self->_transmit('SELECT pg_backend_pid()')->_wait;
		$self->{pid} = $self->{error} eq '' ? $self->{answer} : 0;
	}
	return $self->_transmit($sql);
}

sub _transmit
{
	my ($self, $sql) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $in = $self->{in};
	$self->{sql} = $sql;
	$self->{sent}++;
	$self->{answered} = 0;
	my $bytes = "$sql\n;\n\\echo <end $self->{sent}>\n";
	utf8::encode($bytes) if utf8::is_utf8($bytes);
	print $in $bytes;
	$in->flush;
	return $self;
}

# Read what there is, waiting so many seconds for it.
sub _read
{
	my ($self, $seconds) = @_;
	return 1 if $self->{answered};
	if (!$self->{lost} && IO::Select->new($self->{out})->can_read($seconds))
	{
		sysread($self->{out}, $self->{buffer}, 65536, length $self->{buffer}) or $self->{lost} = 1;
	}
	return 0 unless $self->{buffer} =~ /^<end $self->{sent}>\n/m || $self->{lost};
	$self->{answered} = 1;
	my $text = $self->{buffer};
	$self->{buffer} = '';
	my $complete = $text =~ s/^<end $self->{sent}>\n//m;

	# messages begin a line and may go on with a few kinds of others
	my @answer;
	my @notices;
	my ($error, $in_message) = ('', 0);
	for my $line (split /\n/, $text)
	{
		if ($line =~ /^(?:psql: error: .*)?(ERROR|FATAL|PANIC):  (?:(\w{5}): )?(.*)/)
		{
			$error ||= ($2 // 'lost') . ": $3";
			push @notices, $line;
		}
		elsif ($line =~ /^(WARNING|NOTICE|INFO|LOG|DEBUG):  (\w{5}: .*)/) { push @notices, "$1 $2"; }
		elsif ($line =~ /^(DETAIL|HINT|CONTEXT|QUERY):  /) { push @notices, $line; }
		elsif ($line =~ /^(?:psql: error: )?(server closed the connection|connection to server was lost|no connection to the server)/)
		{
			$error ||= "lost: $1";
		}
		elsif ($line =~ /^(LOCATION:  |LINE \d+: |\s+\^$)/) { }
		else { push @answer, $line; }
	}
	$error ||= "lost: $text" unless $complete;
	@$self{qw(answer error notices)} = (join("\n", @answer), $error, join("\n", @notices));
	return 1;
}

sub busy
{
	my $self = shift;
	return 0 if !$self->{sent} || $self->{answered};
	return !$self->_read(0);
}

sub _wait
{
	my $self = shift;
	wait_until(
		sub {
			# one piece after the other, without a pause
			my $pause = time + 1;
			until ($self->_read(1)) { return 0 if time > $pause; }
			return 1;
		},
		'there is an answer',
		sub { "$self->{sql}\n$self->{buffer}" });
}

sub result
{
	my $self = shift;
	$self->_wait;
	croak "query failed: $self->{error}\n$self->{notices}" if $self->{error} ne '';
	return $self->{answer};
}

sub failure
{
	my $self = shift;
	$self->_wait;
	return $self->{error};
}

sub notices { my $self = shift; return $self->{notices}; }

sub query { my ($self, $sql) = @_; return $self->send($sql)->result; }

sub fails { my ($self, $sql) = @_; return $self->send($sql)->failure; }

# Does the connection still work?
sub alive
{
	my $self = shift;
	return !$self->{lost} && !$self->{quit} && eval { $self->fails('SELECT 1') eq '' };
}

sub pid
{
	my $self = shift;
	$self->query('SELECT 1') unless defined $self->{pid};
	return $self->{pid};
}

sub wait_level
{
	my ($self, $level) = @_;
	my $sql = 'SELECT count(*) ' . ZkLock::_waiting_sql($level) . ' AND a.pid = ' . $self->pid;
	wait_until(
		sub {
			croak "the session does not wait: $self->{error} $self->{answer}" unless $self->busy;
			ZkLock::ask($self->{node}, $sql) > 0;
		},
		"the session waits at level $level");
	return $self;
}

sub wait_event
{
	my ($self, $event) = @_;
	my $sql = 'SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = ' . $self->pid;
	my $seen;
	wait_until(
		sub {
			croak "the session does not wait: $self->{error} $self->{answer}" unless $self->busy;
			$seen = ZkLock::ask($self->{node}, $sql);
			return grep { $_ eq $event } split /\|/, $seen;
		},
		"the session waits for $event",
		sub { $seen });
	return $self;
}

sub cancel { my $self = shift; ZkLock::ask($self->{node}, 'SELECT pg_cancel_backend(' . $self->pid . ')'); return $self; }

sub terminate { my $self = shift; ZkLock::ask($self->{node}, 'SELECT pg_terminate_backend(' . $self->pid . ')'); return $self; }

sub kill_client
{
	my $self = shift;
	kill 'KILL', $self->{psql};
	$self->_reap;
	return $self;
}

sub _reap
{
	my $self = shift;
	local $?;
	$self->{quit} = 1;
	close $self->{in};
	waitpid delete $self->{psql}, 0 if $self->{psql};
}

sub quit
{
	my $self = shift;
	return if $self->{quit};
	my $pid = $self->{pid};
	$self->_reap;
	return unless $pid && !$self->{lost};
	my $observer = $observer{ $self->{node}->name };
	return if $observer && $observer == $self;
	wait_until(sub { ZkLock::ask($self->{node}, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 },
		"backend $pid has gone");
	return;
}

sub DESTROY
{
	my $self = shift;
	return unless $self->{psql};
	local ($?, $@, $!);
	kill 'KILL', $self->{psql};
	waitpid $self->{psql}, 0;
}

1;
