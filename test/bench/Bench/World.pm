# Bench::World - an ensemble, PostgreSQL servers with zklock, and everybody else
# who makes locks of ZooKeeper.
#
#   my $world = Bench::World->new(servers => 3, delay => 1);
#   my ($result) = together($world->pgbench($world->node(0), "SELECT zk_lock('x')", clients => 8),
#                           $world->peer('curator', 1)->start('run', 8, 1, 2.5));
#   print $result->{rate}, $result->{p50};
#
# Options: servers (of the ensemble, 1 or 3), delay (ms that each message takes
# to, from and inside the ensemble).
#
# PostgreSQL servers and peers are numbered from 0, made when first asked for,
# and spread over the ensemble's followers, so that nobody is nearer to it.
#
# A job is what "start" or "pgbench" returns; its "finish" waits and returns a
# hash: n (acquisitions), rate (per second), p50 (median, us), as far as known.
package Bench::World;

use strict;
use warnings;

use Carp;
use Exporter qw(import);
use FindBin;
use IPC::Open2;
use List::Util qw(sum sum0);
use PostgreSQL::Test::Utils ();
use Time::HiRes qw(sleep time);
use ZkLock;
use ZooKeeper;

our @EXPORT_OK = qw(together median);

# One heartbeat of zklock in 1.7 s.
my $session_timeout = 10;

# deadlock_timeout: 1000 waiters who all look for deadlocks would take far longer
# than the rest of what is measured.
my $conf = <<"CONF";
deadlock_timeout = 100s
max_connections = 1100
max_locks_per_transaction = 256
log_statement = none
zklock.session_timeout = '${session_timeout}s'
zklock.max_locks = 110000
CONF

my $classpath = join ':', map { "/usr/share/java/$_.jar" }
  qw(zookeeper zookeeper-jute zookeeper-recipes-lock curator-recipes curator-framework curator-client
  guava slf4j-api slf4j-nop);

# What takes orders on its standard input.
my @java = ('java', '-Xmx256m', '-XX:-UsePerfData', '-cp', $classpath, "$FindBin::Bin/Peer.java");
my %program = (
	limit => sub { "$FindBin::Bin/build/limit", $_[0]->hosts($_[1]) },
	(map { my $library = $_; $library => sub { @java, $_[0]->hosts($_[1]), $library } }
		qw(curator writelock plain multi10 multi100 semaphore curator-queue)),
	(map { my $recipe = $_; ($recipe eq 'lock' ? 'kazoo' : "kazoo-$recipe") => sub { '/usr/bin/python3', "$FindBin::Bin/peer.py", $_[0]->hosts($_[1]), $recipe } }
		qw(lock semaphore queue)),
	etcd => sub { ('/usr/bin/python3', "$FindBin::Bin/peer.py", $_[0]->etcd, 'etcd') },
	sql => sub { "$FindBin::Bin/build/sql", map { $_[0]->node($_)->connstr('postgres') } 0, 1 });

sub new
{
	my ($class, %option) = @_;
	my $self = bless { node => [], peer => {}, %option }, $class;
	my @links;
	my $wire = sub {
		my $port = ZooKeeper::free_port();
		push @links, "$port:$_[0]";
		return $port;
	};
	$self->{zk} = ZooKeeper->new(servers => $self->{servers}, production => 1, conf => { minSessionTimeout => 1000 }, $self->{delay} ? (wire => $wire) : ());
	$self->{delayer} = Bench::Process->new("$FindBin::Bin/build/delay", $self->{delay}, @links) if $self->{delay};
	$self->{zk}->start;
	$self->{zk}->create('/bench');
	$self->peer('limit', 0)->start('run', 16, 16, 4)->finish;    # the ensemble's compiler
	return $self;
}

sub stop
{
	my $self = shift;
	$_->stop for values %{ $self->{peer} }, $self->{etcd} ? $self->{etcd}{process} : ();
	ZkLock::hang_up($_), $_->stop for values %{ $self->{other} }, grep { defined } @{ $self->{node} };
	$self->{zk}->stop;
}

sub zk { my $self = shift; return $self->{zk}; }

# ms from host to host
sub delay { my $self = shift; return $self->{delay}; }

# etcd, where it is installed: a server of one, which writes to disk as ours do.
my $etcd = '/usr/bin/etcd';

sub has_etcd { return -x $etcd; }

sub etcd
{
	my $self = shift;
	return $self->{etcd}{address} //= do
	{
		my ($client, $peer) = map { '127.0.0.1:' . ZooKeeper::free_port() } 1, 2;
		my $log = "$PostgreSQL::Test::Utils::tmp_check/etcd.log";
		$self->{etcd}{process} = Bench::Process->new('sh', '-c', <<"SH");
'$etcd' --data-dir '$PostgreSQL::Test::Utils::tmp_check/etcd' --listen-client-urls http://$client --advertise-client-urls http://$client \\
	--listen-peer-urls http://$peer --initial-advertise-peer-urls http://$peer --initial-cluster default=http://$peer >'$log' 2>&1 &
cat >/dev/null
kill \$!
wait
SH
		ZkLock::wait_until(sub { -e $log && PostgreSQL::Test::Utils::slurp_file($log) =~ /ready to serve client requests/ }, 'etcd serves');
		$client;
	};
}

# The ensemble as the so-and-so-many-th server or peer knows it.
sub hosts
{
	my ($self, $i) = @_;
	my @followers = $self->{servers} == 1 ? 1 : $self->{zk}->followers;
	return $self->{zk}->host($followers[ $i % @followers ]);
}

#
# PostgreSQL
#
my $made = 0;

sub node
{
	my ($self, $i) = @_;
	return $self->{node}[$i] if $self->{node}[$i];
	return $self->{node}[$i] = $self->_make_node($i);
}

sub _make_node
{
	my ($self, $i, %option) = @_;
	my $node = ZkLock::server('node' . $made++, $self->hosts($i), %option, conf => $conf . ($option{conf} // ''));
	ZkLock::wait_connected($node);
	return $node;
}

# One more, made with these options of ZkLock::server, which is left as it is by "keep".
# The same "what" is the same one.
sub other_node
{
	my ($self, $what, %option) = @_;
	return $self->{other}{$what} //= $self->_make_node(0, %option);
}

# It is not needed any more.
sub drop_other
{
	my ($self, $what) = @_;
	my $node = delete $self->{other}{$what} // return;
	ZkLock::hang_up($node);
	$node->stop;
}

# Have all servers keep grants, or not; if not, nothing is handed on to
# a server's own sessions either.
sub keep
{
	my ($self, $on) = @_;
	return if ($self->{keeps} // -1) == $on;
	my %setting = ('zklock.keep_time' => $on ? '1min' : '0', 'zklock.handoff_limit' => $on ? 16 : 0);
	$self->configure($_, %setting) for grep { defined } @{ $self->{node} };
	$self->{keeps} = $on;
}

# Change settings.  New sessions have them as soon as the worker has been told, too.
sub configure
{
	my ($self, $node, %setting) = @_;
	ZkLock::ask($node, "ALTER SYSTEM SET $_ = '$setting{$_}'") for keys %setting;
	ZkLock::ask($node, 'SELECT pg_reload_conf()');
	for my $name (keys %setting)
	{
		ZkLock::wait_until(
			sub {
				my $session = ZkLock::session($node);
				my $value = $session->query("SHOW $name");
				$session->quit;
				return $value eq $setting{$name};
			},
			"$name is $setting{$name}");
	}
	ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT kept FROM zk_session') == 0 }, 'nothing is kept')
	  if ($setting{'zklock.keep_time'} // '') eq '0';
}

# Until nobody waits for an answer of the ensemble.
sub wait_answered
{
	my $self = shift;
	for my $node (grep { defined } @{ $self->{node} })
	{
		ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT in_flight FROM zk_session') == 0 }, 'all is answered');
	}
}

# Start pgbench.  Options: clients, seconds, latency => 1 (for p50; the log costs
# a little), script => 1 (SQL is a script of pgbench's, not a statement).
my $benches = 0;

sub pgbench
{
	my ($self, $node, $sql, %option) = @_;
	my $clients = $option{clients} // 1;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/bench-" . $benches++;
	open my $fh, '>', $file or croak $!;
	print $fh $sql, $option{script} ? '' : ";\n";
	close $fh;
	my @command = (
		'pgbench', '-n', '-M', 'prepared', '-f', $file, '-c', $clients, '-j', $clients > 1 ? 2 : 1,
		'-T', $option{seconds}, $option{latency} ? ('-l', "--log-prefix=$file") : (),
		'-h', $node->host, '-p', $node->port, 'postgres');
	open my $out, '-|', "@command 2>&1" or croak "could not start pgbench: $!";
	return bless { out => $out, log => $option{latency} && $file }, 'Bench::Pgbench';
}

#
# The others
#

sub peer
{
	my ($self, $name, $i) = @_;
	return $self->{peer}{"$name $i"} //= do
	{
		my $peer = Bench::Peer->new($program{$name}->($self, $i));
		$peer->start('run', 4, 4, 3)->finish if $name =~ /curator|writelock|plain|multi|^semaphore/;    # their compiler
		$peer;
	};
}

sub together { return map { $_->finish } @_; }

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	return @sorted ? ($sorted[$#sorted / 2] + $sorted[ @sorted / 2 ]) / 2 : undef;
}

#
# The ensemble's work
#

# How many heartbeats each of zklock's sessions has sent: so often has it written the
# one node of its own.
sub heartbeats
{
	my $self = shift;
	my @stats = map { $self->{zk}->stat("/zklock/servers/$_") // () } $self->{zk}->children('/zklock/servers');
	return map { sprintf('0x%x', $_->{ephemeralOwner}) => $_->{version} } @stats;
}

# Until zklock has done what there was to do: two heartbeats later all that came before the
# first has been answered, and what had to follow has been sent.  A server that rests has
# nothing to do.
sub settle
{
	my $self = shift;
	my %then = $self->heartbeats;
	for my $node (grep { defined } @{ $self->{node} })
	{
		ZkLock::wait_until(
			sub {
				my ($session, $rests) = split /\|/, ZkLock::ask($node, "SELECT session_id, lease_remaining = '0' FROM zk_session");
				my %now = $self->heartbeats;
				return $rests eq 't' || ($now{$session} // 0) >= ($then{$session} // 0) + 2;
			},
			'zklock has sent two heartbeats, or rests');
	}
}

# Of the ensemble since its start: requests, writes, watch events; "servers" are the
# requests of zklock's sessions, also of each, "session 0x...".  Heartbeats and our own
# questions do not count, but pings do: a server that rests makes three in a timeout.
sub counters
{
	my $self = shift;
	my %beats = $self->heartbeats;
	my $beats = sum0 values %beats;
	my %sum = (writes => -$beats, servers => -$beats, requests => -$beats - $self->{zk}->admin->requests);
	for my $i ($self->{zk}->servers)
	{
		my $connections = $self->{zk}->four('cons', $i);
		while ($connections =~ /recved=(\d+).*?sid=(0x\w+)/g)
		{
			next unless exists $beats{$2};
			$sum{servers} += $1;
			$sum{"session $2"} = $1 - $beats{$2};
		}
		my %value = $self->{zk}->four('mntr', $i) =~ /^zk_(\S+)\t(\d+)$/mg;
		$sum{requests} += $value{packets_received} - ($self->{asked}[$i] += 2);
		$sum{writes} += $value{cnt_updatelatency};
		$sum{events} += sum map { $value{"sum_node_${_}_watch_count"} } qw(created deleted changed children);
	}
	return \%sum;
}

sub since
{
	my ($self, $then) = @_;
	my $now = $self->counters;
	return { map { $_ => $now->{$_} - ($then->{$_} // 0) } keys %$now };
}

# A program that ends when its standard input does.
package Bench::Process;

sub new
{
	my ($class, @command) = @_;
	my $self = bless {}, $class;
	$self->{pid} = IPC::Open2::open2($self->{out}, $self->{in}, @command);
	return $self;
}

sub stop
{
	my $self = shift;
	my $pid = delete $self->{pid} // return;
	close $self->{in};
	local $?;
	waitpid $pid, 0;
}

sub DESTROY { my $self = shift; $self->stop; }

# One that takes orders, a line each, and answers each with a line:
#
#   run CLIENTS NAMES SECONDS [SHARE HOME]   acquire and release; client i always
#           the name i % NAMES.  With SHARE any of 2 x NAMES names, by that
#           probability one of those at HOME (0 or 1).  Answer: how many times,
#           and the median in us
#   put N   acquire so often, and release nothing
#   fill N  hold a lock and let so many clients queue for it
#   drain   let it go; how many ms until the last of them has had it
package Bench::Peer;
use parent -norequire, 'Bench::Process';

sub start
{
	my ($self, @order) = @_;
	my $in = $self->{in};
	print $in "@order\n";
	$in->flush;
	$self->{seconds} = $order[0] eq 'run' ? $order[3] : undef;
	return $self;
}

sub finish
{
	my $self = shift;
	my ($n, $p50) = $self->answer;
	return { n => $n, p50 => $p50, $self->{seconds} ? (rate => $n / $self->{seconds}) : () };
}

# The numbers that it answers with.
sub answer
{
	my $self = shift;
	my $answer = readline $self->{out} // die "a peer is gone\n";
	return split ' ', $answer;
}

package Bench::Pgbench;

sub finish
{
	my $self = shift;
	my $out = do { local $/; readline $self->{out} };
	close $self->{out} or die "pgbench failed:\n$out";
	my ($n) = $out =~ /actually processed: (\d+)/;
	my ($rate) = $out =~ /^tps = ([\d.]+)/m;
	my %result = (n => $n, rate => $rate);
	if ($self->{log})
	{
		my @latency;
		for my $file (glob "$self->{log}.*")
		{
			open my $fh, '<', $file or die $!;
			push @latency, (split)[2] while <$fh>;
			unlink $file;
		}
		$result{p50} = Bench::World::median(@latency) // die "pgbench has logged no transaction:\n$out";
	}
	return \%result;
}

1;
