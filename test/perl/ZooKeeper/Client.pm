# ZooKeeper::Client - a session with ZooKeeper, in pure Perl and one request at
# a time: somebody else's contender, or an administrator.
#
#   my $client = ZooKeeper::Client->new('127.0.0.1:2181', timeout => 60_000);
#   my $path = $client->create('/zklock/locks/job/_c_x-lock-', mode => 'ephemeral_sequential');
#   my ($data, $stat) = $client->get($path);
#
# It sends no pings between requests: a session lasts as long as "timeout" (ms)
# says.  A missing node is no error: children, get, exists return undef, set and
# delete false.  Every other error dies with its number.
#
# The protocol is jute: big-endian integers, strings and buffers with their
# length before them, each packet with its length before it.
package ZooKeeper::Client;

use strict;
use warnings;

use Carp;
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);
use Wait;

my %opcode = (
	create => 1,
	delete => 2,
	exists => 3,
	get => 4,
	set => 5,
	get_acl => 6,
	set_acl => 7,
	children => 8,
	sync => 9,
	ping => 11,
	check => 13,
	multi => 14,
	create2 => 15,
	reconfig => 16,
	container => 19,
	auth => 100,
	close => -11);

my %create_flags = (
	persistent => 0,
	ephemeral => 1,
	sequential => 2,
	ephemeral_sequential => 3,
	container => 4);

use constant { NO_NODE => -101, NODE_EXISTS => -110 };

# Options: timeout (ms, default an hour, the most that test ensembles allow), wait
# (seconds to wait for any answer, if not for Wait's limit), auth (credentials,
# [ digest => 'user:password' ]), resume (id and password of a session to go on with; the
# client that had it falls out).
sub new
{
	my ($class, $hosts, %option) = @_;
	my $self = bless {
		timeout => 3_600_000,
		wait => $Wait::limit,
		xid => 0,
		events => [],
		%option
	}, $class;

	my $error = 'no host';
	for my $host (split /,/, $hosts)
	{
		return $self if eval { $self->_connect($host); 1 };
		$error = $@;
	}
	croak "could not connect to $hosts: $error";
}

sub _connect
{
	my ($self, $host) = @_;
	$self->{socket} = IO::Socket::INET->new(PeerAddr => $host, Timeout => $self->{wait}) or die "$host: $@\n";
	# protocol version, last zxid seen, timeout, session id, password, read only
	$self->_send(pack 'N q> N q> N/a C', 0, 0, $self->{timeout}, @{ $self->{resume} // [ 0, "\0" x 16 ] }, 0);
	(undef, $self->{timeout}, $self->{session}, my $password) = unpack 'N N q> N/a', $self->_receive;
	die "$host: session refused\n" unless $self->{timeout};
	$self->auth(@{ $self->{auth} }) if $self->{auth};
}

# The session's id as ZooKeeper prints it, and as stat's ephemeralOwner says it.
sub id { my $self = shift; return sprintf '0x%x', $self->{session}; }
sub session { my $self = shift; return $self->{session}; }

# How many requests it has made.
sub requests { my $self = shift; return $self->{xid}; }

sub _send
{
	my ($self, $packet) = @_;
	my $bytes = pack 'N/a', $packet;
	local $SIG{PIPE} = 'IGNORE';
	while (length $bytes)
	{
		my $n = syswrite($self->{socket}, $bytes) // die "connection lost: $!\n";
		substr($bytes, 0, $n) = '';
	}
}

sub _receive
{
	my ($self) = @_;
	my $length = unpack 'N', $self->_read(4);
	return $self->_read($length);
}

sub _read
{
	my ($self, $length) = @_;
	my $deadline = time + $self->{wait};
	my $bytes = '';
	while (length $bytes < $length)
	{
		my $left = $deadline - time;
		die "no answer for $self->{wait} s\n" unless $left > 0;
		# the end of a child interrupts the wait
		next unless IO::Select->new($self->{socket})->can_read($left);
		sysread($self->{socket}, $bytes, $length - length $bytes, length $bytes) or die "connection lost\n";
	}
	return $bytes;
}

# Send one request and return the reply's body, or undef when there is no such
# node.  Watch events that come in between are kept.
sub _request
{
	my ($self, $op, $body) = @_;
	my $xid = $op eq 'ping' ? -2 : $op eq 'auth' ? -4 : ++$self->{xid};
	my ($error, $reply);
	eval {
		$self->_send(pack('l> l>', $xid, $opcode{$op}) . $body);
		for (;;)
		{
			my $packet = $self->_receive;
			(my $got, undef, $error) = unpack 'l> q> l>', $packet;
			$reply = substr $packet, 16;
			last if $got == $xid;
			push @{ $self->{events} }, (unpack 'l> l> N/a', $reply)[2] if $got == -1;
		}
		1;
	} or do { $self->{socket} = undef; croak "ZooKeeper $op: $@"; };
	return $reply if $error == 0;
	return undef if $error == NO_NODE;
	croak "ZooKeeper $op: " . ($error == NODE_EXISTS ? 'node exists' : "error $error");
}

sub _stat
{
	my %stat;
	@stat{
		qw(czxid mzxid ctime mtime version cversion aversion ephemeralOwner
		  dataLength numChildren pzxid)
	} = unpack 'q>4 l>3 q> l>2 q>', shift;
	return \%stat;
}

# Does the connection still work?
sub alive
{
	my $self = shift;
	return $self->{socket} && eval { $self->_request('ping', ''); 1 };
}

# Present a credential.
sub auth
{
	my ($self, $scheme, $credential) = @_;
	$self->_request('auth', pack 'N N/a N/a', 0, $scheme, $credential);
}

# Who may do what with a node: [ permissions, scheme, id ]...; undef if there is none.
sub acl
{
	my ($self, $path) = @_;
	my $reply = $self->_request('get_acl', pack 'N/a', $path) // return undef;
	my ($n, @fields) = unpack 'N/(N N/a N/a)', $reply;
	unshift @fields, $n;
	return [ map { [ @fields[ 3 * $_ .. 3 * $_ + 2 ] ] } 0 .. @fields / 3 - 1 ];
}

# Set it; the scheme "auth" stands for the credentials of this client.
sub set_acl
{
	my ($self, $path, @acl) = @_;
	return defined $self->_request('set_acl',
		pack('N/a N', $path, scalar @acl) . join('', map { pack 'N N/a N/a', @$_ } @acl) . pack('l>', -1));
}

# Options: mode (persistent, ephemeral, sequential, ephemeral_sequential,
# container), data, acl (of [ permissions, scheme, id ]), parents (make missing ones).  Returns the path, in list
# context its state too; undef if the parent is missing.
sub create
{
	my ($self, $path, %option) = @_;
	my $mode = $option{mode} // 'persistent';
	if ($option{parents} && $path =~ m{^(/.+)/} && !$self->exists($1))
	{
		eval { $self->create($1, parents => 1) };
		croak $@ if $@ && $@ !~ /node exists/;
	}
	# Unless told otherwise: everything, for the world's anyone.
	my @acl = @{ $option{acl} // [ [ 31, 'world', 'anyone' ] ] };
	my $reply = $self->_request(
		$mode eq 'container' ? 'container' : 'create2',
		pack('N/a N/a N', $path, $option{data} // '', scalar @acl)
		  . join('', map { pack 'N N/a N/a', @$_ } @acl)
		  . pack('N', $create_flags{$mode} // croak "no create mode $mode")) // return;
	(my $made, my $stat) = unpack 'N/a a*', $reply;
	return wantarray ? ($made, _stat($stat)) : $made;
}

# Many at once, for speed: persistent nodes, or whatever the mode says.  Dies if one
# fails.
sub create_many
{
	my ($self, $mode, @paths) = @_;
	while (my @some = splice @paths, 0, 1000)
	{
		$self->_send(join '', pack('l> l>', ++$self->{xid}, $opcode{create2})
			  . pack('N/a N N N N/a N/a N', $_, 0, 1, 31, 'world', 'anyone', $create_flags{$mode})) for @some;
		for (@some)
		{
			my (undef, undef, $error) = unpack 'l> q> l>', $self->_receive;
			croak "ZooKeeper create: error $error" if $error;
		}
	}
}

# Queue for a lock, as Curator does: an ephemeral sequential contender in the
# directory, which is made if missing.  Returns its path.
sub contend
{
	my ($self, $directory, %option) = @_;
	my $uuid = join '-', map { join '', map { sprintf '%04x', rand 65536 } 1 .. $_ } 2, 1, 1, 1, 3;
	# as he does again when the server has reaped it meanwhile
	for (1 .. 10)
	{
		eval { $self->create($directory, mode => 'container', parents => 1) };
		croak $@ if $@ && $@ !~ /node exists/;
		my $path = $self->create("$directory/_c_$uuid-" . ($option{kind} // 'lock-'), mode => 'ephemeral_sequential', %option);
		return $path if defined $path;
	}
	croak "could not queue in $directory";
}

sub delete
{
	my ($self, $path) = @_;
	return defined $self->_request('delete', pack 'N/a l>', $path, -1);
}

# Delete a node if another one is there at the same moment.
sub delete_beside
{
	my ($self, $path, $other) = @_;
	my $reply = $self->_request('multi',
		join '', (map { pack('l> C l>', $opcode{ $_->[0] }, 0, -1) . pack('N/a l>', $_->[1], -1) } [ check => $other ], [ delete => $path ]), pack('l> C l>', -1, 1, -1));
	# the results have the types of what was asked, or -1
	return unpack('l>', $reply) == $opcode{check};
}

# A node's state, or undef.
sub exists
{
	my ($self, $path) = @_;
	my $reply = $self->_request('exists', pack 'N/a C', $path, 0) // return undef;
	return _stat($reply);
}

# Children's names, sorted, in an array; undef if there is no such node.
sub children
{
	my ($self, $path) = @_;
	my $reply = $self->_request('children', pack 'N/a C', $path, 0) // return undef;
	return [ sort(unpack 'N/(N/a)', $reply) ];
}

# The data, in list context also the state.  Option: watch.
sub get
{
	my ($self, $path, %option) = @_;
	my $reply = $self->_request('get', pack 'N/a C', $path, $option{watch} ? 1 : 0) // return;
	my ($length) = unpack 'l>', $reply;
	$length = 0 if $length < 0;
	my $data = substr $reply, 4, $length;
	return wantarray ? ($data, _stat(substr $reply, 4 + $length)) : $data;
}

sub set
{
	my ($self, $path, $data) = @_;
	return defined $self->_request('set', pack 'N/a N/a l>', $path, $data, -1);
}

# Change a running ensemble: servers that join, as "server.N=..." has them, and numbers of
# those that leave; each separated by commas.  Returns the new members.
sub reconfig
{
	my ($self, $joining, $leaving) = @_;
	return unpack 'N/a', $self->_request('reconfig',
		join('', map { defined ? pack('N/a', $_) : pack('l>', -1) } $joining, $leaving, undef) . pack('q>', -1));
}

# What is read afterwards is at least as new as this moment.
sub sync
{
	my ($self, $path) = @_;
	return $self->_request('sync', pack 'N/a', $path);
}

# Paths of the watch events so far; "alive" collects what has arrived.
sub events
{
	my $self = shift;
	$self->alive;
	return splice @{ $self->{events} };
}

# End the session: its ephemeral nodes go at once.
sub close
{
	my $self = shift;
	$self->_request('close', '') if $self->{socket};
	$self->{socket} = undef;
}

# Fall silent: the session times out.
sub vanish { my $self = shift; $self->{socket} = undef; }

1;
