# Proxy - a stretch of bad network between one client and one ZooKeeper server,
# or, with plain => 1, between whoever and whomever.  With several servers (hosts, as
# zklock.hosts has them) it is a load balancer: each connection goes to the next one that
# takes it.  address => '::1', say, is where it listens; port => the port.
#
#   my $proxy = Proxy->new($zk->host);
#   ... zklock.hosts = $proxy->host ...
#   $proxy->lose_reply('create', '/job/');    # the next such reply
#   $proxy->hole;  ...;  $proxy->heal;
#
# The proxy is a process that serves until the test ends, however that ends: it
# notices the end of its standard input.  Each method has taken effect when it
# returns.
package Proxy;

use strict;
use warnings;

use Carp;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::IP;
use IPC::Open2;
use Time::HiRes qw(time);
use Wait;
use ZooKeeper;

my %opcode_name = (
	-11 => 'close', -10 => 'session',
	1 => 'create', 2 => 'delete', 3 => 'exists', 4 => 'get', 5 => 'set',
	8 => 'children', 9 => 'sync', 11 => 'ping', 12 => 'children', 14 => 'multi',
	15 => 'create', 19 => 'create', 101 => 'watches', 105 => 'watches');

sub new
{
	my ($class, $target, %option) = @_;
	my $self = bless { port => $option{port} // ZooKeeper::free_port(), address => $option{address} // '127.0.0.1' }, $class;
	# A program of its own, not a fork: it must not run the test's END blocks,
	# nor hold the other end of any of its pipes.
	$self->{pid} = open2(my $answers, my $commands, $^X, (map { "-I$_" } @INC), __FILE__, $self->{port}, $target,
		$option{plain} // 0, $self->{address});
	@$self{qw(answers commands)} = ($answers, $commands);
	$self->_tell('hello');
	return $self;
}

sub host { my $self = shift; return ($self->{address} =~ /:/ ? "[$self->{address}]" : $self->{address}) . ":$self->{port}"; }
sub port { my $self = shift; return $self->{port}; }

sub _tell
{
	my ($self, @command) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $out = $self->{commands};
	print $out join("\t", @command), "\n";
	$out->flush;
	wait_until(sub { IO::Select->new($self->{answers})->can_read(1) }, "the proxy has done: @command");
	my $answer = readline $self->{answers} // '';
	croak "proxy: " . ($answer // 'gone') unless ($answer // '') =~ /^ok\t?(.*)$/;
	return $1;
}

# A plain proxy knows nothing of requests: those up to "hole" are not for it.

# Lose the reply of the next request of this kind (create, delete, set, get,
# children, sync; of a multi any of its paths) whose path contains a string; the connection is cut
# instead.
sub lose_reply
{
	my ($self, $kind, $path) = @_;
	$self->_tell('lose', $kind, $path // '', 'reply');
	return $self;
}

# Lose the next request itself; the connection is cut.
sub lose_request
{
	my ($self, $kind, $path) = @_;
	$self->_tell('lose', $kind, $path // '', 'request');
	return $self;
}

# As if the server had kept a create that its leader does not have: the next create of a
# sequential znode whose path contains a string is lost as above; but until "heal" listings show
# its znode, with this number, and reads find it.  There may be several.
sub stray
{
	my ($self, $path, $number) = @_;
	$self->_tell('lose', 'create', $path, sprintf 'stray=%010d', $number);
	return $self;
}

# Have the reply of the next request of this kind say that it is another request's;
# the client will not have that, and cuts the connection itself.
sub lose_number
{
	my ($self, $kind, $path) = @_;
	$self->_tell('lose', $kind, $path // '', 'number');
	return $self;
}

# Damage the reply of the next such request; or the next answer to a request for a session
# ('session'), or the next event whose path contains the string ('event').  HOW, one after
# the other, with bytes in hexadecimal and offsets from the packet's length on, or, negative,
# from its end:
#   at=OFFSET:BYTES     these stand there
#   plus=OFFSET:NUMBER  the 32 bits there are more by that
#   cut=N, add=BYTES    the packet is shorter, longer, and its length says so
#   twice               it comes two times
#   before=BYTES, then=BYTES   these come, too
sub damage
{
	my ($self, $kind, $path, @how) = @_;
	$self->_tell('lose', $kind, $path, join ' ', @how);
	return $self;
}

# Say of each request with one of these numbers that it is unimplemented, without a
# transaction, as ZooKeeper does, and hang up.
sub unimplemented
{
	my ($self, @op) = @_;
	$self->_tell('unimplemented', @op);
	return $self;
}

# These bytes, in hexadecimal, stand for the answers to requests for a session, in turn, as if
# somebody else answered.  They come in pieces.
sub rubbish
{
	my ($self, @bytes) = @_;
	$self->_tell('rubbish', @bytes);
	return $self;
}

# How many requests, replies or numbers have been lost, or damaged, so far.
sub lost { my $self = shift; return $self->_tell('lost'); }

# Requests passed on since the last call, as { create => 2, ... }.
sub requests
{
	my $self = shift;
	return { split /[= ]/, $self->_tell('requests') };
}

# The same, each as 'create /path', in their order; of a multi its first path; the first 10,000 of them.
sub trace { my $self = shift; return split /\t/, $self->_tell('trace'); }

# Silence: connections stay open, new ones are accepted, nothing passes.
# "up" (requests only) or "down" (replies only) make it one way.  As on a real
# network, what was sent meanwhile arrives after "heal".
sub hole
{
	my ($self, $direction) = @_;
	$self->_tell('hole', $direction // 'both');
	return $self;
}

# End of all troubles below and above, except connections that were cut.
sub heal { my $self = shift; $self->_tell('heal'); return $self; }

# New connections are refused; those that exist go on.
sub refuse { my $self = shift; $self->_tell('refuse'); return $self; }

# ... are accepted again, with whatever troubles there are otherwise.
sub accept { my $self = shift; $self->_tell('accept'); return $self; }

# Cut all connections with a reset.
sub cut { my $self = shift; $self->_tell('cut'); return $self; }

# As if the server were switched off: cut, and refuse.
sub down { my $self = shift; return $self->refuse->cut; }

# Hold every packet back for so many ms, in each direction.
sub delay
{
	my ($self, $ms) = @_;
	$self->_tell('delay', $ms);
	return $self;
}

# Hold each request of this kind back for so many ms, and with it what its connection sends
# afterwards; other connections go on.
sub late
{
	my ($self, $kind, $ms) = @_;
	$self->_tell('late', $kind, $ms);
	return $self;
}

# Cut each connection after the server's first packet, which makes the session.
sub brief { my $self = shift; $self->_tell('brief'); return $self; }

# From the next connection on a session has no password and cannot be resumed, as with
# ClickHouse Keeper, or again as with ZooKeeper.
sub keeper { my ($self, $on) = @_; $self->_tell('keeper', $on); return $self; }

# Number of connections.
sub connections { my $self = shift; return $self->_tell('connections'); }

# How many have been accepted so far.
sub accepted { my $self = shift; return $self->_tell('accepted'); }

sub stop
{
	my $self = shift;
	return unless $self->{pid};
	close $self->{commands};
	# Not the test's exit status.
	local $?;
	waitpid delete $self->{pid}, 0;
}

sub DESTROY { my $self = shift; $self->stop; }

#
# The process.  A connection is { side => [client, server], ... }: index 0 is
# the client's, so that bytes read from side 0 go "up".
#
package Proxy::Process;

my ($port, $target, $plain, $address, $listener);
my $turn = 0;
my (@connection, @loss, %passed, %unknown, @rubbish, @trace);
my $lost = 0;
my $delay = 0;
my %late;
my $accepted = 0;
my $brief = 0;
my $keeper = 0;
my @stray; # the paths of znodes that the server does not have
my %held = (up => 0, down => 0);
my @direction = ('up', 'down');

sub listen_again
{
	$listener //= IO::Socket::IP->new(
		LocalHost => $address,
		LocalPort => $port,
		Listen => 128,
		ReuseAddr => 1) or die "proxy: could not listen on port $port: $@\n";
}

my %command = (
	hello => sub { '' },
	lose => sub { push @loss, { kind => $_[0], path => $_[1], what => $_[2] }; '' },
	unimplemented => sub { %unknown = map { $_ => 1 } @_; '' },
	rubbish => sub { @rubbish = @_; '' },
	lost => sub { $lost },
	requests => sub {
		my $text = join ' ', map { "$_=$passed{$_}" } sort keys %passed;
		%passed = ();
		$text;
	},
	trace => sub { join "\t", splice @trace; },
	hole => sub { $held{$_} = $_[0] eq 'both' || $_[0] eq $_ for 'up', 'down'; '' },
	heal => sub { %held = (up => 0, down => 0); $delay = $brief = 0; @stray = (); @loss = %unknown = @rubbish = %late = (); listen_again(); '' },
	refuse => sub { undef $listener; '' },
	accept => sub { listen_again(); '' },
	cut => sub { my @all = @connection; end_connection($_) for @all; '' },
	delay => sub { $delay = $_[0] / 1000; '' },
	late => sub { $late{ $_[0] } = $_[1] / 1000; '' },
	brief => sub { $brief = 1; '' },
	keeper => sub { $keeper = $_[0]; '' },
	connections => sub { scalar @connection },
	accepted => sub { $accepted });

sub end_connection
{
	my $c = shift;
	# Linger 0: a reset, not an orderly end.
	setsockopt $_, Socket::SOL_SOCKET(), Socket::SO_LINGER(), pack 'ii', 1, 0 for @{ $c->{side} };
	close $_ for @{ $c->{side} };
	@connection = grep { $_ != $c } @connection;
}

sub new_connection
{
	my $client = $listener->accept or return;
	$accepted++;
	my @targets = split /,/, $target;
	my $server;
	for (my $tries = 0; !$server && $tries < @targets; $tries++)
	{
		$server = IO::Socket::INET->new(PeerAddr => $targets[ $turn++ % @targets ], Timeout => 5);
	}
	# A ZooKeeper leader may be elected before it listens.  Its followers try
	# again when they are refused, but a connection that breaks ends their term;
	# should it take longer, they begin another.
	for (my $tries = 0; $plain && !$server && $tries < 200; $tries++)
	{
		Time::HiRes::sleep(0.02);
		$server = IO::Socket::INET->new(PeerAddr => $target, Timeout => 5);
	}
	my $c = { side => [ grep { defined } $client, $server ], in => [ '', '' ], out => [ [], [] ], opened => [ 0, 0 ] };
	push @connection, $c;
	return end_connection($c) unless $server;
	$_->blocking(0), setsockopt($_, Socket::IPPROTO_TCP(), Socket::TCP_NODELAY(), 1) for $client, $server;
}

my %change = (
	at => sub { substr $_[0], $_[1], length($_[2]) / 2, pack 'H*', $_[2]; },
	plus => sub { substr $_[0], $_[1], 4, pack 'N', $_[2] + unpack 'N', substr $_[0], $_[1], 4; },
	cut => sub { substr $_[0], -$_[1], $_[1], ''; substr $_[0], 0, 4, pack 'N', length($_[0]) - 4; },
	add => sub { $_[0] .= pack 'H*', $_[1]; substr $_[0], 0, 4, pack 'N', length($_[0]) - 4; },
	twice => sub { $_[0] x= 2; },
	before => sub { $_[0] = pack('H*', $_[1]) . $_[0]; },
	then => sub { $_[0] .= pack 'H*', $_[1]; },
	# a listing has a child more, and its Stat counts it (cversion, numChildren)
	child => sub {
		my ($n, $cversion) = (unpack('N', substr $_[0], 20), unpack('N', substr $_[0], -32));
		substr $_[0], -32, 4, pack 'N', $cversion + 1;
		substr $_[0], -12, 4, pack 'N', $n + 1;
		substr $_[0], 20, 4, pack 'N N/a', $n + 1, $_[1];
		substr $_[0], 0, 4, pack 'N', length($_[0]) - 4;
	},
	# a znode that is not there is, without data, made by this session at this moment
	znode => sub {
		my $zxid = substr $_[0], 8, 8;
		$_[0] = pack 'N/a', substr($_[0], 4, 12) . pack 'x4 x4 a8 a8 x16 x12 H16 x8 a8', $zxid, $zxid, $_[1], $zxid;
	});

# Change the packet in all these ways.
sub change
{
	my (undef, $how) = @_;
	for (split / /, $how)
	{
		my ($name, @arguments) = split /[=:]/;
		$change{$name}->($_[0], @arguments);
	}
}

# ... if it is of this kind, which no request announces.
sub change_one
{
	my (undef, $kind, $path) = @_;
	for my $i (0 .. $#loss)
	{
		next unless $loss[$i]{kind} eq $kind && index($path, $loss[$i]{path}) >= 0;
		my ($loss) = splice @loss, $i, 1;
		$lost++;
		return change($_[0], $loss->{what});
	}
}

# Look at a packet, which may be changed; false: it is lost and so is the connection.
sub may_pass
{
	my ($c, $from) = @_;
	my $packet = $_[2];
	# The first packet each way makes the session and has no header.
	unless ($c->{opened}[$from]++)
	{
		$c->{session} = unpack 'H16', substr $packet, 12 if $from == 1;
		# the number and the password that the client has; the password that it gets
		substr($_[2], 20, 8) = "\0" x 8 if $keeper && $from == 0;
		substr($_[2], $from == 0 ? 32 : 24, 16) = "\0" x 16 if $keeper;
		change_one($_[2], 'session', '') if $from == 1;
		if ($from == 1 && @rubbish)
		{
			push @rubbish, shift @rubbish;
			$_[2] = pack 'H*', $rubbish[-1];
			$c->{pieces} = 1;
		}
		return 1;
	}
	return 0 if $brief && $from == 1;
	my ($xid, $op) = unpack 'l> l>', substr $packet, 4;
	if ($from == 1)
	{
		change_one($_[2], 'event', unpack 'N/a', substr $packet, 28) if $xid == -1;
		change($_[2], delete $c->{shown}{$xid} // '');
		my $what = delete $c->{doomed}{$xid} // return 1;
		$lost++;
		change($_[2], $what eq 'number' ? sprintf('at=4:%08x', $xid ^ 1 << 20) : $what eq 'reply' ? '' : $what);
		return $what ne 'reply';
	}

	if (exists $unknown{$op})
	{
		push @{ $c->{out}[0] }, [ 0, pack 'N/a', pack 'l> q> l>', $xid, -1, -6 ];
		return 0;
	}
	my $kind = $opcode_name{$op} // "op$op";
	my $path = length $packet > 16 && $op > 0 && $op < 100 && $op != 11 ? unpack 'N/a', substr $packet, $kind eq 'multi' ? 21 : 12 : '';
	my $paths = $kind eq 'multi' ? substr $packet, 12 : $path;
	for my $i (0 .. $#loss)
	{
		next unless $loss[$i]{kind} eq $kind && index($paths, $loss[$i]{path}) >= 0;
		my ($loss) = splice @loss, $i, 1;
		if ($loss->{what} =~ /^request|^stray=(.*)/)
		{
			push @stray, "$path$1" if defined $1;
			$lost++;
			return 0;
		}
		$c->{doomed}{$xid} = $loss->{what};
		last;
	}
	my @how = $kind eq 'get' ? map { $path eq $_ ? "znode=$c->{session}" : () } @stray
	  : $kind eq 'children' ? map { m{^\Q$path\E/(.*)} ? "child=$1" : () } @stray
	  : ();
	$c->{shown}{$xid} = join ' ', @how if @how;
	$c->{late} = $late{$kind};
	$passed{$kind}++;
	push @trace, "$kind $path" if @trace < 10_000;
	return 1;
}

sub take
{
	my ($c, $from) = @_;
	my $n = sysread $c->{side}[$from], $c->{in}[$from], 65536, length $c->{in}[$from];
	return if !defined $n && $!{EAGAIN};
	if (!$n)
	{
		# Let pass what came before the end; a reset takes it along.
		flush($c, 1 - $from, 1) if defined $n;
		return end_connection($c);
	}
	while (length $c->{in}[$from] >= 4 || $plain && length $c->{in}[$from])
	{
		my $length = $plain ? length $c->{in}[$from] : 4 + unpack 'N', $c->{in}[$from];
		last if length $c->{in}[$from] < $length;
		my $packet = substr $c->{in}[$from], 0, $length, '';
		if (!$plain && !may_pass($c, $from, $packet))
		{
			flush($c, $_, 1) for 0, 1;
			return end_connection($c);
		}
		my $at = Time::HiRes::time() + $delay + (delete $c->{late} // 0);
		for my $piece (delete $c->{pieces} ? unpack('(a7)*', $packet) : $packet)
		{
			push @{ $c->{out}[ 1 - $from ] }, [ $at, $piece ];
			$at += 0.002;
		}
	}
}

# Write to one side what is due, or everything.
sub flush
{
	my ($c, $to, $all) = @_;
	my $out = $c->{out}[$to];
	while (@$out && ($all || $out->[0][0] <= Time::HiRes::time()))
	{
		my $n = syswrite $c->{side}[$to], $out->[0][1];
		return if !defined $n && $!{EAGAIN};
		return end_connection($c) unless defined $n;
		substr($out->[0][1], 0, $n) = '';
		shift @$out unless length $out->[0][1];
	}
}

sub serve
{
	($port, $target, $plain, $address) = @_;
	$SIG{PIPE} = 'IGNORE';
	listen_again();
	$| = 1;
	my $commands = '';
	for (;;)
	{
		my (%from, $soonest);
		my $readers = IO::Select->new(\*STDIN, $listener // ());
		my $writers = IO::Select->new;
		my $now = Time::HiRes::time();
		for my $c (@connection)
		{
			for my $side (0, 1)
			{
				my $socket = $c->{side}[$side];
				$from{ fileno $socket } = [ $c, $side ];
				$readers->add($socket) unless $held{ $direction[$side] };
				# What goes to the server goes up.
				my $due = $held{ $direction[ 1 - $side ] } ? undef : $c->{out}[$side][0] && $c->{out}[$side][0][0];
				next unless defined $due;
				$writers->add($socket) if $due <= $now;
				$soonest = $due if $due > $now && (!defined $soonest || $due < $soonest);
			}
		}
		my ($readable, $writable) =
		  IO::Select->select($readers, $writers, undef, defined $soonest ? $soonest - $now : undef);

		for (@{ $writable // [] })
		{
			my ($c, $side) = @{ $from{ fileno($_) // -1 } // next };
			flush($c, $side);
		}
		for (@{ $readable // [] })
		{
			if ($_ == \*STDIN)
			{
				sysread STDIN, $commands, 4096, length $commands or exit 0;
				while ($commands =~ s/^(.*)\n//)
				{
					my ($name, @arguments) = split /\t/, $1, -1;
					print "ok\t", $command{$name}->(@arguments), "\n";
				}
			}
			elsif ($listener && $_ == $listener) { new_connection(); }
			else
			{
				my ($c, $side) = @{ $from{ fileno($_) // -1 } // next };
				take($c, $side);
			}
		}
	}
}

serve(@ARGV) unless caller;

1;
