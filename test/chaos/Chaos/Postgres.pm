# Chaos::Postgres - a connection to PostgreSQL in pure Perl, over a Unix socket,
# as user postgres and trusted; one simple query at a time.
#
#   my $pg = Chaos::Postgres->new($directory) or die $Chaos::Postgres::error;
#   my $answer = $pg->query("SELECT zk_token('job')", 10);
#   if ($pg->error) { ... }        # SQLSTATE, or LOST, or SILENT
#
# What a psql on a pipe could not do: the moment when an answer arrives is known
# here, and a server that says nothing is given up after so many seconds.
package Chaos::Postgres;

use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;
use Time::HiRes ();

use constant { LOST => 'lost', SILENT => 'silent' };

our $error;

# Deadlines and claims alike: the clock that all processes of a machine share.
sub now { return Time::HiRes::clock_gettime(7); }    # CLOCK_BOOTTIME

# Returns undef if the server does not take a connection; $error says why.
sub new
{
	my ($class, $directory, $wait) = @_;
	my $self = bless { buffer => '', wait => $wait // 10 }, $class;
	$error = LOST;
	$self->{socket} = IO::Socket::UNIX->new(Peer => "$directory/.s.PGSQL.5432") or return;
	my %parameter = (user => 'postgres', database => 'postgres', application_name => 'chaos');
	my $startup = pack('N', 196608) . join('', map { "$_\0$parameter{$_}\0" } sort keys %parameter) . "\0";
	$self->_send(pack('N', 4 + length $startup) . $startup) && $self->_answer($self->{wait});
	$error = $self->{error};
	return $error eq '' ? $self : undef;
}

# The first column of the answer's last row, or undef.
sub query
{
	my ($self, $sql, $wait) = @_;
	@$self{qw(value tag error message notice)} = (undef, '', '', '', '');
	$self->_send('Q' . pack('N', 5 + length $sql) . "$sql\0") && $self->_answer($wait // $self->{wait});
	return $self->{value};
}

# '' if all was well.
sub error { my $self = shift; return $self->{error}; }

sub message { my $self = shift; return $self->{message}; }

# Message and detail of the last notice, or ''.
sub notice { my $self = shift; return $self->{notice}; }

# Command tag of the last statement: a COMMIT may turn out to be a ROLLBACK.
sub tag { my $self = shift; return $self->{tag}; }

# After LOST and SILENT nothing more comes.
sub alive { my $self = shift; return defined $self->{socket}; }

sub close { my $self = shift; $self->{socket} = undef; }

sub _fail
{
	my ($self, $why) = @_;
	$self->{error} ||= $why;
	$self->{socket} = undef;
	return 0;
}

sub _send
{
	my ($self, $bytes) = @_;
	return $self->_fail(LOST) unless $self->{socket};
	local $SIG{PIPE} = 'IGNORE';
	while (length $bytes)
	{
		my $n = syswrite($self->{socket}, $bytes) // return $self->_fail(LOST);
		substr($bytes, 0, $n) = '';
	}
	return 1;
}

# The next message, its kind and its body.
sub _message
{
	my ($self, $deadline) = @_;
	my $select = IO::Select->new($self->{socket});
	for (;;)
	{
		if (length $self->{buffer} >= 5)
		{
			my ($kind, $length) = unpack 'a N', $self->{buffer};
			if (length $self->{buffer} > $length)
			{
				my $body = substr $self->{buffer}, 5, $length - 4;
				substr($self->{buffer}, 0, $length + 1) = '';
				return ($kind, $body);
			}
		}
		# Look before giving up: it may be we who were stopped.
		my $left = $deadline - now();
		if ($select->can_read($left > 0 ? $left : 0))
		{
			sysread($self->{socket}, $self->{buffer}, 65536, length $self->{buffer}) or return $self->_fail(LOST);
		}
		elsif ($left <= 0) { return $self->_fail(SILENT); }
	}
}

# Of an error, or a notice
sub fields { return map { /^(.)(.*)/s ? ($1 => $2) : () } split /\0/, $_[0]; }

# Read until the server is ready for the next query.
sub _answer
{
	my ($self, $wait) = @_;
	my $deadline = now() + $wait;
	$self->{error} = '';
	for (;;)
	{
		my ($kind, $body) = $self->_message($deadline);
		return 0 unless $kind;
		if ($kind eq 'Z') { return 1; }
		elsif ($kind eq 'D')
		{
			my (undef, $length) = unpack 'n l>', $body;
			$self->{value} = $length < 0 ? undef : substr $body, 6, $length;
		}
		elsif ($kind eq 'C') { $self->{tag} = $body =~ s/\0//r; }
		elsif ($kind eq 'E')
		{
			my %field = fields($body);
			@$self{qw(error message)} = @field{qw(C M)};
		}
		elsif ($kind eq 'N')
		{
			my %field = fields($body);
			$self->{notice} = join ' ', grep { defined } @field{qw(M D)};
		}
		elsif ($kind eq 'R' && unpack('N', $body) != 0) { return $self->_fail('authentication'); }
	}
}

1;
