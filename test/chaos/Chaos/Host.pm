# Chaos::Host - a host of its own: a network namespace on a bridge of ours.
#
#   Chaos::Host::bridge();
#   my $host = Chaos::Host->new('zk1', '10.77.0.11');
#   my $pid = $host->spawn("$log/zk1.log", $directory, 'java', ...);
#   my $cut = $host->cut('io', '10.77.0.1', '10.77.0.2');   ...;   $cut->();
#
# Programs run as user postgres.  Files are shared between the hosts, and with
# them Unix sockets: a client reaches its server whatever is cut.
package Chaos::Host;

use strict;
use warnings;

use Carp;
use POSIX ();

my ($uid, $gid) = (getpwnam 'postgres')[ 2, 3 ];
my $cuts = 0;

sub run
{
	my @command = @_;
	system(@command) == 0 or croak "@command: failed";
}

# We are on the bridge, too, and no cut names our address.
sub bridge
{
	run(qw(ip link set lo up));
	run(qw(ip link add br0 type bridge));
	run(qw(ip addr add 10.77.0.100/24 dev br0));
	run(qw(ip link set br0 up));
}

sub new
{
	my ($class, $name, $address) = @_;
	my $self = bless { name => $name, address => $address }, $class;
	run(qw(ip netns add), $name);
	run(qw(ip link add), "$name-br", qw(type veth peer name eth0 netns), $name);
	run(qw(ip link set), "$name-br", qw(master br0 up));
	run(qw(ip -n), $name, qw(addr add), "$address/24", qw(dev eth0));
	run(qw(ip -n), $name, qw(link set), $_, 'up') for qw(eth0 lo);
	return $self;
}

sub name { my $self = shift; return $self->{name}; }

sub address { my $self = shift; return $self->{address}; }

# A directory, and what is in it, of the servers' user.
sub make_directory
{
	my $directory = shift;
	mkdir $directory or croak "could not create $directory: $!";
	chown $uid, $gid, $directory or croak "could not chown $directory: $!";
	chmod 0700, $directory;
	return $directory;
}

# Start a program as user postgres and return its pid.  $host undef: here.
sub spawn
{
	my ($host, $log, $directory, @command) = @_;
	my @enter = $host ? ('nsenter', "--net=/run/netns/$host->{name}") : ();
	my $pid = fork() // croak "could not fork: $!";
	return $pid if $pid;
	# Here only exec or _exit: the parent's END blocks are not ours.
	POSIX::setsid();
	@SIG{qw(INT TERM HUP)} = ('DEFAULT') x 3;
	chdir $directory
	  && open(STDIN, '<', '/dev/null')
	  && open(STDOUT, '>>', $log)
	  && open(STDERR, '>&', \*STDOUT)
	  && exec @enter, 'setpriv', '--reuid', $uid, '--regid', $gid, '--clear-groups', '--', @command;
	POSIX::_exit(127);
}

# Drop what comes in (i) from these addresses, what goes out (o) to them, or
# both; silently.  Returns what heals it.
sub cut
{
	my ($self, $chains, @addresses) = @_;
	my @nft = ('nsenter', "--net=/run/netns/$self->{name}", 'nft');
	my $table = 'inet cut' . ++$cuts;
	my $set = '{ ' . join(', ', @addresses) . ' }';
	my %chain = (
		i => "chain i { type filter hook input priority 0; ip saddr $set drop; }",
		o => "chain o { type filter hook output priority 0; ip daddr $set drop; }");
	run(@nft, "table $table { " . join('; ', map { $chain{$_} } split //, $chains) . '; }');
	return sub { run(@nft, "delete table $table"); };
}

1;
