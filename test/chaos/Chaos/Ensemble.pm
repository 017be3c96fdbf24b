# Chaos::Ensemble - a ZooKeeper whose servers are hosts of their own.
package Chaos::Ensemble;

use strict;
use warnings;

use parent 'ZooKeeper';

# Their patience with a silent peer, in ticks, differs.  The first gives up when
# a session times out; the last one, cut off from its quorum as a follower, goes
# on answering its clients while the leader expires their sessions.
my %sync_limit = (1 => 5, 2 => 10, 3 => 18);

# Options: hosts (Chaos::Host by number), dir, log, tick_time
sub new
{
	my ($class, %option) = @_;
	return $class->SUPER::new(
		name => 'zk',
		servers => scalar keys %{ $option{hosts} },
		container_check_ms => 1000,
		init_limit => 25,
		keep => 1,
		%option);
}

sub port { return 2181; }

sub host { my ($self, $i) = @_; return $self->{hosts}{ $i // 1 }->address . ':' . $self->port($i); }

sub logfile { my ($self, $i) = @_; return "$self->{log}/zk$i.log"; }

sub _write_conf
{
	my ($self, $i) = @_;
	my $dir = "$self->{dir}/zk$i";
	Chaos::Host::make_directory($dir) unless -d $dir;
	my %conf = (
		tickTime => $self->{tick_time},
		initLimit => $self->{init_limit},
		syncLimit => $sync_limit{$i},
		minSessionTimeout => $self->{min_timeout}{$i} // 2 * $self->{tick_time},
		maxSessionTimeout => 60_000,
		maxClientCnxns => 0,
		dataDir => $dir,
		clientPort => $self->port,
		clientPortAddress => $self->{hosts}{$i}->address,
		'admin.enableServer' => 'false',
		'4lw.commands.whitelist' => '*');
	$conf{"server.$_"} = $self->{hosts}{$_}->address . ':2888:3888' for $self->servers;
	ZooKeeper::_write("$dir/myid", "$i\n");
	ZooKeeper::_write("$dir/zoo.cfg", join '', map { "$_=$conf{$_}\n" } sort keys %conf);
}

sub _spawn
{
	my ($self, $i) = @_;
	my $dir = "$self->{dir}/zk$i";
	my $classpath = join ':', map { "/usr/share/java/$_.jar" } qw(zookeeper slf4j-simple slf4j-api netty);
	$self->{server}{$i}{pid} = $self->{hosts}{$i}->spawn(
		$self->logfile($i), $dir,
		qw(java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto),
		qw(-Dzookeeper.forceSync=no -Dzookeeper.preAllocSize=1024),
		qw(-Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS),
		"-Dznode.container.checkIntervalMs=$self->{container_check_ms}",
		'-cp', $classpath, 'org.apache.zookeeper.server.quorum.QuorumPeerMain', "$dir/zoo.cfg");
}

# At its next start the server gives no session a shorter timeout than this, in ms.
sub set_min_timeout
{
	my ($self, $i, $timeout) = @_;
	$self->{min_timeout}{$i} = $timeout;
	$self->_write_conf($i);
}

# The same for all, of how long they wait for each other when they start.  Returns it, in ticks.
sub change_init_limit
{
	my $self = shift;
	$self->{init_limit} = $self->{init_limit} == 25 ? 38 : 25;
	$self->_write_conf($_) for $self->servers;
	return $self->{init_limit};
}

# Its snapshots and transactions.
sub _state { my ($self, $i) = @_; return "$self->{dir}/zk$i/version-2"; }

# Copy what the servers have, while they write it, as backups are made.
sub back_up
{
	my $self = shift;
	for my $i ($self->servers)
	{
		my $copy = "$self->{dir}/backup$i";
		Chaos::Host::run('rm', '-rf', $copy);
		Chaos::Host::run('cp', '-a', $self->_state($i), $copy);
	}
	$self->{backed_up} = 1;
}

# For servers that do not run: what the backup has, or nothing.
sub restore
{
	my ($self, $wiped) = @_;
	for my $i ($self->servers)
	{
		Chaos::Host::run('rm', '-rf', $self->_state($i));
		Chaos::Host::run('cp', '-a', "$self->{dir}/backup$i", $self->_state($i)) unless $wiped;
	}
}

# Starts again the servers that have ended by themselves, as a supervisor does.  A server that soon
# ends once more cannot read what it has: a backup may have been copied during an election.  It
# begins with nothing, and gets the state from the others, who may lack what it has acknowledged
# (losses).  Returns what is to be said.
sub revive
{
	my $self = shift;
	my @said;
	for my $i ($self->servers)
	{
		next unless $self->pid($i) && $self->_reap($i);
		my $again = time - ($self->{revived}{$i} // 0) < 30;
		my ($why) = grep { /ERROR|Exception|Error:/ } reverse split /\n/, `tail -n 60 @{[ $self->logfile($i) ]}`;
		push @said, "zk$i ended by itself" . ($again ? ' again, and begins with nothing: ' : ': ') . ($why // 'its log does not say why');
		if ($again)
		{
			Chaos::Host::run('rm', '-rf', $self->_state($i));
			push @{ $self->{emptied} }, time;
		}
		$self->{revived}{$i} = time;
		$self->start_nowait($i);
	}
	return @said;
}

# When the ensemble has lost by itself what it may have acknowledged: a server led that lacked what
# both others had (ZOOKEEPER-4785), or began with nothing (revive).  Seconds since 1970, of the run
# that ends now.
sub losses
{
	my $self = shift;
	my @losses;
	no warnings 'portable';
	for my $i ($self->servers)
	{
		open my $in, '<', $self->logfile($i) or die "could not read @{[ $self->logfile($i) ]}: $!\n";
		my ($proposed, %term);
		my $end = sub {
			my @more = grep { $term{more}{$_} > $term{from} && $term{more}{$_} < $term{first} } keys %{ $term{more} };
			push @losses, $term{at} if @more > 1;
			%term = ();
		};
		while (<$in>)
		{
			if (/ New election\. .*proposed zxid=0x([0-9a-f]+)/) { $end->(); $proposed = hex $1; }
			elsif (/^(\d+):(\d+):([\d.]+) .* LEADING - LEADER ELECTION TOOK/) { %term = (at => 3600 * $1 + 60 * $2 + $3, from => $proposed // 0, first => 0); }
			elsif (%term && / Synchronizing with Learner sid: (\d+) .*peerLastZxid=0x([0-9a-f]+)/) { $term{more}{$1} //= hex $2; }
			elsif (%term && / setting last processed zxid: 0x([0-9a-f]+)/) { $term{first} = hex $1; }
		}
		$end->();
		close $in;
	}
	# their clocks say the time of the day
	my ($second, $minute, $hour) = localtime;
	return @{ $self->{emptied} // [] }, map { time - (3600 * $hour + 60 * $minute + $second - int $_) % 86400 } @losses;
}

# Servers whose znodes were others than the leader's, with the first line in which each says so as
# it applies what the leader sends.  Not those that say so of a backup that they read as they start.
sub strayed
{
	my $self = shift;
	my %strayed;
	for my $i ($self->servers)
	{
		open my $in, '<', $self->logfile($i) or die "could not read @{[ $self->logfile($i) ]}: $!\n";
		while (<$in>)
		{
			chomp;
			$strayed{"zk$i"} //= $_ if /\[CommitProcessor.*Digests are not matching/;
		}
		close $in;
	}
	return %strayed;
}

# What is so far below these directories: by each path the servers that show it.  One that has read
# its log out of order may go on showing what is long deleted.
sub shown
{
	my ($self, $depth, @directories) = @_;
	my %shown;
	for my $i ($self->servers)
	{
		my $client = ZooKeeper::Client->new($self->host($i), wait => $Wait::limit / 10);
		my @paths = @directories;
		for (1 .. $depth)
		{
			@paths = map { my $path = $_; $client->sync($path); map { "$path/$_" } @{ $client->children($path) // [] } } @paths;
		}
		push @{ $shown{$_} }, "zk$i" for @paths;
		$client->close;
	}
	return %shown;
}

# What is left in the directories of locks, permits and jobs.
sub contenders { my $self = shift; return $self->shown(2, '/zklock/locks', '/zklock/semaphores', '/zklock/jobs'); }

1;
