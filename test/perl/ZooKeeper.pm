# ZooKeeper - a throw-away ZooKeeper ensemble for tests, in the manner of
# PostgreSQL::Test::Cluster.
#
#   my $zk = ZooKeeper->new(servers => 3)->start;
#   $node->append_conf('postgresql.conf', "zklock.hosts = '" . $zk->hosts . "'");
#   is_deeply([ $zk->children('/zklock/locks/job') ], [], 'queue is empty');
#
# Servers are numbered from 1; methods that take servers mean all of them when
# none is named.  They end with the test, even if that is killed with SIGKILL.
#
# An ensemble made with reconfigurable => 1 can be changed while it runs:
#
#   my $new = $zk->add;
#   $zk->reconfig(join => [$new], leave => [1])->kill9(1);
#   is_deeply([ $zk->members ], [ 2, 3, $new ]);
#
# Run by hand: perl -Itest/perl -MZooKeeper -e 'ZooKeeper->run(@ARGV)' COMMAND...
# runs COMMAND with ZK_HOSTS set to a server of its own.
package ZooKeeper;

use strict;
use warnings;

use Carp;
use File::Temp ();
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use List::Util qw(first);
use POSIX ();
use Wait;
use ZooKeeper::Client;

our @all;

# Java archives: what Debian's versions from 3.8.0 to 3.9.6 need.  Without
# slf4j-simple there is no log.
my $classpath = join ':',
  map { "/usr/share/java/$_.jar" } qw(zookeeper slf4j-simple slf4j-api netty);

# Options, all of them optional:
#   name                 for messages and the directory
#   servers              1 or 3
#   observer             the number of one that does not vote, in an ensemble of more
#   tick_time            ms; a session lasts at least 2 ticks
#   init_limit, sync_limit   ticks that a follower may lag
#   container_check_ms   how often empty containers are reaped (default: 60000)
#   container_max_per_minute   ... and how many of them (default: 10000)
#   dir                  instead of a temporary directory
#   keep                 leave the servers running when the test ends
#   conf                 more lines of zoo.cfg, as a hash
#   reconfigurable       anybody may change it while it runs; not with link or wire
#   link                 sub (FROM, TO, PORT): the port by which server FROM finds
#                        server TO when that leads, and listens on PORT
#   java                 more options of java, as an array
#   production           none of what makes tests quick: as an ensemble for use
#   wire                 function of a port that returns another one, by which
#                        clients and the other servers reach it
sub new
{
	my ($class, %option) = @_;
	my $self = bless {
		name => 'zookeeper',
		servers => 1,
		tick_time => 500,
		init_limit => 20,
		# A busy machine is no silent peer.
		sync_limit => 60,
		owner => $$,
		%option
	}, $class;
	$self->{dir} //= File::Temp::tempdir("$self->{name}-XXXXXX", TMPDIR => 1, CLEANUP => !$self->{keep});
	$self->{wire} //= sub { return $_[0] };
	$self->_give_port($_) for 1 .. $self->{servers};
	$self->_write_conf($_, $self->servers) for $self->servers;
	push @all, $self;
	return $self;
}

sub _give_port
{
	my ($self, $i) = @_;
	my $port = free_port();
	$self->{server}{$i} = { port => $port, reached => $self->{wire}->($port) };
}

# A TCP port that nobody listens on, outside both the range of outgoing
# connections and the one that PostgreSQL::Test::Cluster uses.  It stays ours while
# nobody listens on it, because a server is down: a socket with its name keeps it from
# other tests.  Such names, like ports, belong to the network namespace, whatever
# directories and users the tests have.
my %port_given;

sub free_port
{
	for (1 .. 1000)
	{
		my $port = 20000 + int(rand(12000));
		next if $port_given{$port};
		$port_given{$port} = IO::Socket::UNIX->new(Local => "\0zklock test port $port", Listen => 1) // next;
		return $port
		  if IO::Socket::INET->new(
			LocalAddr => '127.0.0.1',
			LocalPort => $port,
			Listen => 1,
			ReuseAddr => 1);
	}
	croak "no free port";
}

# Of a server in an ensemble of these members.
sub _write_conf
{
	my ($self, $i, @members) = @_;
	my $dir = "$self->{dir}/$i";
	-d $_ or mkdir $_ or croak "could not create $_: $!" for $dir, "$dir/data";

	my %conf = (
		tickTime => $self->{tick_time},
		initLimit => $self->{init_limit},
		syncLimit => $self->{sync_limit},
		# Foreign contenders of tests send no pings: let them ask for long sessions.
		maxSessionTimeout => 3_600_000,
		maxClientCnxns => 0,
		dataDir => "$dir/data",
		clientPort => $self->port($i),
		clientPortAddress => '127.0.0.1',
		'admin.enableServer' => 'false',
		'4lw.commands.whitelist' => '*',
		$self->{reconfigurable} ? (reconfigEnabled => 'true', standaloneEnabled => 'false', skipACL => 'yes') : (),
		%{ $self->{conf} // {} });
	if (@members > 1)
	{
		for my $j (@members)
		{
			my $quorum = $self->{quorum}{$j} //= $self->_quorum_ports;
			my $port = $quorum->{ $j == $i ? 'port' : 'reached' };
			$port = $self->{link}->($i, $j, $port) if $self->{link} && $j != $i;
			$conf{"server.$j"} = "127.0.0.1:$port:$quorum->{election}" . ($self->_observes($j) ? ':observer' : '');
		}
		$conf{peerType} = 'observer' if $self->_observes($i);
		_write("$dir/data/myid", "$i\n");
	}
	_write("$dir/zoo.cfg", join '', map { "$_=$conf{$_}\n" } sort keys %conf);
}

sub _observes { my ($self, $i) = @_; return $i == ($self->{observer} // 0); }

# Another line of zoo.cfg, for the next start.  The last of several counts.
sub append_conf
{
	my ($self, $line) = @_;
	for my $i ($self->servers)
	{
		my $file = "$self->{dir}/$i/zoo.cfg";
		open my $fh, '>>', $file or croak "could not open $file: $!";
		print $fh "$line\n";
		close $fh or croak "could not write $file: $!";
	}
	return $self;
}

sub _quorum_ports
{
	my $self = shift;
	my $port = free_port();
	return { port => $port, reached => $self->{wire}->($port), election => free_port() };
}

sub _write
{
	my ($file, $text) = @_;
	open my $fh, '>', $file or croak "could not write $file: $!";
	print $fh $text;
	close $fh or croak "could not write $file: $!";
}

#
# Where they are
#

# All the servers' numbers.
sub servers { my $self = shift; return sort keys %{ $self->{server} }; }

sub port { my ($self, $i) = @_; return $self->{server}{ $i // 1 }{port}; }

# "host:port" of one server.
sub host { my ($self, $i) = @_; return '127.0.0.1:' . $self->{server}{ $i // 1 }{reached}; }

# The connect string, of all servers or those named.
sub hosts
{
	my ($self, @which) = @_;
	return join ',', map { $self->host($_) } @which ? @which : $self->servers;
}

sub pid { my ($self, $i) = @_; return $self->{server}{ $i // 1 }{pid}; }

sub logfile { my ($self, $i) = @_; return "$self->{dir}/" . ($i // 1) . '/log'; }

#
# Their life
#

# Start servers that do not run, and wait until all of them serve.
sub start
{
	my ($self, @which) = @_;
	@which = $self->servers unless @which;
	$self->_spawn($_) for grep { !$self->pid($_) } @which;
	$self->wait_serving(@which);
	return $self;
}

# Start without waiting: a server without a quorum does not serve.
sub start_nowait
{
	my ($self, @which) = @_;
	$self->_spawn($_) for grep { !$self->pid($_) } @which ? @which : $self->servers;
	return $self;
}

sub _spawn
{
	my ($self, $i) = @_;
	my $dir = "$self->{dir}/$i";
	my @java = ('java', '-XX:-UsePerfData');
	push @java, $self->{production} ? '-Xmx512m' : (
		qw(-Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto),
		# Nobody needs these data after a power failure, nor 64 MB of log at once.
		qw(-Dzookeeper.forceSync=no -Dzookeeper.preAllocSize=1024),
		# What test/tap has made; a Java that cannot use it does without.
		$ENV{ZKLOCK_TEMPLATES} && -e "$ENV{ZKLOCK_TEMPLATES}/java.jsa" ? "-XX:SharedArchiveFile=$ENV{ZKLOCK_TEMPLATES}/java.jsa" : ());
	push @java, (
		@{ $self->{java} // [] },
		'-Dznode.container.checkIntervalMs=' . ($self->{container_check_ms} // 60000),
		'-Dznode.container.maxPerMinute=' . ($self->{container_max_per_minute} // 10000),
		'-cp', $classpath, 'org.apache.zookeeper.server.quorum.QuorumPeerMain', "$dir/zoo.cfg");
	# Should the test be killed, the kernel kills the server.
	unshift @java, qw(setpriv --pdeathsig KILL --) unless $self->{keep};

	my $pid = fork() // croak "could not fork: $!";
	if ($pid == 0)
	{
		# Here only exec or _exit: the parent's END blocks are not ours.
		POSIX::setsid();
		chdir $dir
		  && open(STDIN, '<', '/dev/null')
		  && open(STDOUT, '>>', "$dir/log")
		  && open(STDERR, '>&', \*STDOUT)
		  && exec @java;
		POSIX::_exit(127);
	}
	$self->{server}{$i}{pid} = $pid;
}

# Wait until each answers requests.  "ruok" is answered too early; "srvr" says
# its mode once the server serves.
sub wait_serving
{
	my ($self, @which) = @_;
	for my $i (@which ? @which : $self->servers)
	{
		my $log = sub { return "its log ends:\n" . `tail -n 20 @{[ $self->logfile($i) ]}` };
		wait_until(
			sub {
				return 1 if $self->mode($i);
				croak "$self->{name} server $i died, " . $log->() if $self->_reap($i);
				return 0;
			},
			"$self->{name} server $i serves", $log);
	}
	return $self;
}

# Has it not ended by itself?
sub running { my ($self, $i) = @_; $i //= 1; return !$self->_reap($i); }

# Did the server end by itself?
sub _reap
{
	my ($self, $i) = @_;
	my $pid = $self->pid($i) // return 1;
	return 0 unless waitpid($pid, POSIX::WNOHANG()) == $pid;
	delete $self->{server}{$i}{pid};
	return 1;
}

sub _end
{
	my ($self, $signal, @which) = @_;
	my @running = grep { $self->pid($_) } @which ? @which : $self->servers;
	for my $i (@running)
	{
		kill $signal, $self->pid($i);
		kill 'CONT', $self->pid($i);
	}
	for my $i (@running) { wait_until(sub { $self->_reap($i) }, "$self->{name} server $i ends"); }
	return $self;
}

sub stop { my ($self, @which) = @_; return $self->_end('TERM', @which); }

# Without a goodbye to anyone; what clients see is a reset connection.
sub kill9 { my ($self, @which) = @_; return $self->_end('KILL', @which); }

sub restart { my ($self, @which) = @_; return $self->stop(@which)->start(@which); }

# SIGSTOP: connections stay open and nothing answers.
sub pause
{
	my ($self, @which) = @_;
	$self->_signal('STOP', @which);
	# Until a thread has taken the signal, all go on.
	for my $pid (map { $self->pid($_) // () } @which ? @which : $self->servers)
	{
		wait_until(sub { !grep { !_stopped($_) } glob "/proc/$pid/task/*/stat" }, "process $pid is stopped");
	}
	return $self;
}

# A thread that has ended counts as one.
sub _stopped
{
	open my $fh, '<', $_[0] or return 1;
	return (readline($fh) // ') T') =~ /\) T/;
}

sub resume { my ($self, @which) = @_; return $self->_signal('CONT', @which); }

sub _signal
{
	my ($self, $signal, @which) = @_;
	kill $signal, map { $self->pid($_) // () } @which ? @which : $self->servers;
	return $self;
}

#
# Who is a member
#

# The members' numbers, as the ensemble has them, once it has a leader.
sub members
{
	my $self = shift;
	my $config;
	wait_until(sub { $config = eval { $self->get('/zookeeper/config') } }, "$self->{name} tells its members", sub { $@ });
	return sort $config =~ /^server\.(\d+)=/mg;
}

# One more server, which does not run and is no member yet.  Returns its number.
sub add
{
	my $self = shift;
	my $i = ++$self->{servers};
	$self->_give_port($i);
	return $i;
}

# Change the running ensemble: servers "join" it, and are started if they do not run;
# others "leave" it, which go on running and serve their clients.
sub reconfig
{
	my ($self, %change) = @_;
	my ($join, $leave) = map { $_ // [] } @change{qw(join leave)};
	my @members = $self->members;
	for my $i (grep { !$self->pid($_) } @$join)
	{
		# One that has left wrote down an ensemble without itself, and would not start.
		$self->_write_conf($i, @members, $i);
		$self->start($i);
	}
	my %leaves = map { $_ => 1 } @$leave;
	my @stay = grep { $self->pid($_) && !$leaves{$_} } @members;
	my $joining = join ',',
	  map { "server.$_=127.0.0.1:$self->{quorum}{$_}{port}:$self->{quorum}{$_}{election};" . $self->host($_) } @$join;
	wait_until(
		sub {
			eval {
				my $client = ZooKeeper::Client->new($self->hosts(@stay), wait => 30);
				$client->reconfig($joining, join(',', @$leave));
				# The change is in force when the next write is acknowledged.
				$client->close;
				1;
			}
		},
		"$self->{name} is changed", sub { $@ });
	return $self;
}

#
# Their memory
#

# Keep what the servers know, as of now, and later have them go back to it.  Both work on
# servers that run, but these had better not when they go back.
sub save
{
	my $self = shift;
	for my $i ($self->servers)
	{
		my $dir = "$self->{dir}/$i";
		system("rm -rf $dir/saved && cp -a $dir/data $dir/saved") == 0 or croak "could not save $dir/data";
	}
	return $self;
}

sub go_back
{
	my $self = shift;
	for my $i ($self->servers)
	{
		my $dir = "$self->{dir}/$i";
		system("rm -rf $dir/data && cp -a $dir/saved $dir/data") == 0 or croak "could not restore $dir/data";
	}
	return $self;
}

# They know nothing any more: all, or these.
sub wipe
{
	my ($self, @which) = @_;
	for my $i (@which ? @which : $self->servers) { system("rm -rf $self->{dir}/$i/data/version-2") == 0 or croak 'could not wipe'; }
	return $self;
}

#
# What they say
#

# A four-letter command's answer; undef if the server does not answer within a second.
# One that is just starting may accept a connection and forget it.
sub _probe
{
	my ($self, $command, $i) = @_;
	my $socket = IO::Socket::INET->new(PeerAddr => $self->host($i), Timeout => 1) or return undef;
	local $SIG{PIPE} = 'IGNORE';
	syswrite $socket, $command;
	my $answer = '';
	my $select = IO::Select->new($socket);
	while ($select->can_read(1))
	{
		sysread($socket, $answer, 65536, length $answer) or return $answer;
	}
	return undef;
}

# The same of a server that serves: it may be busy, but answers.
sub four
{
	my ($self, $command, $i) = @_;
	my $answer;
	wait_until(sub { defined($answer = $self->_probe($command, $i)) }, "$self->{name} answers $command");
	return $answer;
}

# "standalone", "leader", "follower"; undef if it does not say so now.
sub mode { my ($self, $i) = @_; return ($self->_probe('srvr', $i) // '') =~ /^Mode: (\w+)/m ? $1 : undef; }

# Wait until each server that votes is the leader or follows it; returns them in this order.
sub wait_elected
{
	my $self = shift;
	my @order;
	wait_until(
		sub {
			my %mode = map { $_ => $self->mode($_) // '' } grep { !$self->_observes($_) } $self->servers;
			@order = sort { $mode{$b} cmp $mode{$a} } keys %mode;
			return "@mode{@order}" eq join ' ', 'leader', ('follower') x (@order - 1);
		},
		"$self->{name} has a leader and followers");
	return @order;
}

# As of now.
sub leader
{
	my $self = shift;
	return first { ($self->mode($_) // '') eq 'leader' } grep { $self->pid($_) } $self->servers;
}

sub followers
{
	my $self = shift;
	return grep { ($self->mode($_) // '') eq 'follower' } grep { $self->pid($_) } $self->servers;
}

# One number of "mntr", such as zk_znode_count.
sub monitor
{
	my ($self, $key, $i) = @_;
	return $self->four('mntr', $i) =~ /^\Q$key\E\t(\S+)/m ? $1 : undef;
}

# Packets received from clients since the start, our own questions included.
sub packets { my ($self, $i) = @_; return $self->monitor('zk_packets_received', $i); }

# Ids of the sessions there are, as 0x... strings, and the paths of the
# ephemeral nodes of each: { '0x1000...' => [ '/zklock/...' ] }.
sub sessions
{
	my ($self) = @_;
	# Only the leader knows all sessions.
	my $dump;
	wait_until(
		sub {
			my $i = $self->{servers} > 1 ? $self->leader // return 0 : 1;
			return ($dump = $self->four('dump', $i)) =~ /^SessionTracker dump:/m;
		},
		"$self->{name} tells its sessions");
	my (%session, $id);
	my ($ids, $ephemerals) = split /^ephemeral nodes dump:.*$/m, $dump;
	$session{$_} = [] for $ids =~ /^(?:\t)?(0x[0-9a-f]+)$/mg;
	for (split /\n/, $ephemerals // '')
	{
		if (/^(0x[0-9a-f]+):/) { $id = $1; }
		elsif (/^\t(\/.*)/ && $id) { push @{ $session{$id} }, $1; }
	}
	return \%session;
}

# Paths watched at one server.
sub watches { my ($self, $i) = @_; return $self->four('wchp', $i) =~ /^(\/.*)$/mg; }

#
# A look at the tree, and an administrator's hand on it
#

# A new client with a session of its own: somebody else.
sub client { my ($self, %option) = @_; return ZooKeeper::Client->new($self->hosts, %option); }

# The session that the methods below share.  It may have fallen with a server.
sub admin
{
	my $self = shift;
	$self->{admin} = undef if $self->{admin} && !$self->{admin}->alive;
	# One that is no leader any more may forget what it was asked: better asked again.
	return $self->{admin} //= $self->client(wait => $Wait::limit / 10);
}

# Children of a node, sorted, as of now at the leader; none if it is missing.
sub children
{
	my ($self, $path) = @_;
	my $admin = $self->admin;
	$admin->sync($path) if $self->{servers} > 1;
	return @{ $admin->children($path) // [] };
}

# A node's state as a hash (czxid, ephemeralOwner, version, ...), or undef.
sub stat
{
	my ($self, $path) = @_;
	my $admin = $self->admin;
	$admin->sync($path) if $self->{servers} > 1;
	return $admin->exists($path);
}

# A node's data, or undef.
sub get
{
	my ($self, $path) = @_;
	my $admin = $self->admin;
	$admin->sync($path) if $self->{servers} > 1;
	return scalar $admin->get($path);
}

sub set { my ($self, $path, $data) = @_; return $self->admin->set($path, $data); }

sub create { my ($self, $path, %option) = @_; return $self->admin->create($path, %option); }

sub delete { my ($self, $path) = @_; return $self->admin->delete($path); }

# Wait until a lock directory, or any node, has so many children; returns them,
# or dies.  0 is also true of a node that is missing.
sub wait_children
{
	my ($self, $path, $count) = @_;
	my @children;
	wait_until(
		sub { (@children = $self->children($path)) == $count },
		"$path has $count children",
		sub { "it has @children" });
	return @children;
}

# Run a command with ZK_HOSTS set; exit as it does.
sub run
{
	my ($class, @command) = @_;
	my $self = $class->new->start;
	local $ENV{ZK_HOSTS} = $self->hosts;
	my $status = system @command;
	exit($status == -1 || $status & 127 ? 1 : $status >> 8);
}

END
{
	# stop() reaps children and with them would change the test's exit status.
	local ($?, $!);
	$_->kill9 for grep { $_->{owner} == $$ && !$_->{keep} } @all;
}

1;
