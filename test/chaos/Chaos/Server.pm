# Chaos::Server - a PostgreSQL server on a host of its own (or on ours).
package Chaos::Server;

use strict;
use warnings;

use Carp;
use POSIX ();
use Time::HiRes qw(sleep);
use Chaos::Host;
use Chaos::Postgres;

# Arguments: name, host (or undef), directory, log, lines of postgresql.conf.
sub new
{
	my ($class, $name, $host, $dir, $log, $conf) = @_;
	my $self = bless {
		name => $name,
		host => $host,
		dir => Chaos::Host::make_directory("$dir/$name"),
		log => "$log/server-$name.log"
	}, $class;
	my $pid = Chaos::Host::spawn(undef, "$log/initdb.log", $self->{dir},
		qw(initdb --no-sync --no-locale -A trust -U postgres -E UTF8 --wal-segsize=1 -D), "$self->{dir}/data");
	waitpid $pid, 0;
	croak "initdb failed: $log/initdb.log" if $?;
	open my $fh, '>>', "$self->{dir}/data/postgresql.conf" or croak $!;
	print $fh <<"CONF";
cluster_name = '$name'
listen_addresses = ''
unix_socket_directories = '$self->{dir}'
max_connections = 40
shared_buffers = 16MB
fsync = off
autovacuum = off
timezone = 'UTC'
log_line_prefix = '%m [%p] '
log_min_error_statement = panic
$conf
CONF
	close $fh;
	return $self;
}

sub name { my $self = shift; return $self->{name}; }

sub host { my $self = shift; return $self->{host}; }

sub dir { my $self = shift; return $self->{dir}; }

# Where its programs are, from the next start on.
sub set_bin { my ($self, $bin) = @_; $self->{bin} = $bin; return; }

sub _spawn
{
	my $self = shift;
	my $program = defined $self->{bin} ? "$self->{bin}/postgres" : 'postgres';
	$self->{pid} = Chaos::Host::spawn($self->{host}, $self->{log}, $self->{dir}, $program, '-D', "$self->{dir}/data");
}

# Start it, and again as long as it refuses: a new postmaster does not start
# while a backend of a killed one lives.  False if it is not up after so many
# seconds.
sub start
{
	my ($self, $wait) = @_;
	my $deadline = Chaos::Postgres::now() + $wait;
	$self->_spawn unless $self->running;
	until ($self->answers)
	{
		return 0 if Chaos::Postgres::now() > $deadline;
		sleep 0.1;
		$self->_spawn unless $self->running;
	}
	return 1;
}

sub answers { my $self = shift; return defined Chaos::Postgres->new($self->{dir}, 1); }

sub running
{
	my $self = shift;
	return 0 unless $self->{pid};
	return 1 if waitpid($self->{pid}, POSIX::WNOHANG()) == 0;
	$self->{pid} = undef;
	return 0;
}

sub kill9
{
	my $self = shift;
	kill 'KILL', $self->{pid};
	waitpid $self->{pid}, 0;
	$self->{pid} = undef;
}

# One answer within so many seconds, or undef.
sub ask
{
	my ($self, $sql, $wait) = @_;
	my $pg = Chaos::Postgres->new($self->{dir}, $wait // 5) or return undef;
	return $pg->query($sql);
}

# The same, of what must work.
sub must
{
	my ($self, $sql) = @_;
	my $pg = Chaos::Postgres->new($self->{dir}, 30) or croak "server $self->{name}: no connection";
	my $answer = $pg->query($sql);
	croak "server $self->{name}: " . $pg->error . ' ' . $pg->message if $pg->error;
	return $answer;
}

# Pids of children of the postmaster whose title matches.
sub children
{
	my ($self, $title) = @_;
	return unless $self->running;
	my @pid;
	for my $dir (glob '/proc/[0-9]*')
	{
		open my $stat, '<', "$dir/stat" or next;
		next unless (readline($stat) // '') =~ /^(\d+) \(.*\) [^Z] $self->{pid} /;
		my $pid = $1;
		open my $cmdline, '<', "$dir/cmdline" or next;
		push @pid, $pid if (readline($cmdline) // '') =~ $title;
	}
	return @pid;
}

sub pid { my $self = shift; return $self->{pid}; }

sub worker { my $self = shift; return ($self->children(qr/zklock worker/))[0]; }

sub backends { my $self = shift; return $self->children(qr/\[local\]/); }

1;
