# Protocol3 - a raw client of PostgreSQL's protocol 3, which sends exactly the
# messages that it is told to.  (psql knows simple queries only.)
#
#   my $c = Protocol3->new($node);
#   $c->query('BEGIN');                                  # 'BEGIN, in transaction'
#   $c->parse('s', 'SELECT $1::int')->sync;              # 'parsed, idle'
#   $c->bind('', 's', 7)->execute('')->sync;             # 'bound, row 7, SELECT 1, idle'
#   $c->parse('', 'COMMIT')->bind('', '')->execute('')->sync;
#
# It connects by the Unix-domain socket of a PostgreSQL::Test::Cluster, which trusts
# everybody there.
#
# Messages, in any order and number, each a method that returns the client; nothing is
# sent before one of the next group:
#
#   parse(STATEMENT, SQL)
#   bind(PORTAL, STATEMENT, PARAMETER...)      in text; undef is NULL
#   describe(KIND, NAME), close(KIND, NAME)    KIND: 'S', a statement, or 'P', a portal
#   execute(PORTAL, ROWS)                      without ROWS, all of them
#   run(SQL)                                   parse, bind, execute, all unnamed
#
# These send what has been gathered:
#
#   sync           and return the server's answer, up to and with ReadyForQuery
#   query(SQL)     a simple query; the same
#   call(OID)      of a function without arguments, by the fast path; the same
#   flush(N)       return the next N messages of the answer
#   send_sync, send_query(SQL)    do not wait; later "answer"
#
# An answer is one string, its messages in a few words each:
#
#   parsed, bound, closed, parameters, columns, no data, suspended, empty
#   row A|B            a row; NULL is empty
#   SELECT 1           command complete, with its tag
#   result A           of a function call
#   40001: MESSAGE     an error
#   WARNING 01000: MESSAGE    a warning or notice
#   idle, in transaction, aborted    ready for the next query, in this state
#
# notices(): whole warnings of the last answer, details and hints included.
# busy(): no answer is there yet.  pid(): of the backend.
# terminate(), hang_up(): end the connection, with a goodbye or without.
package Protocol3;

use strict;
use warnings;

use Carp;
use IO::Select;
use IO::Socket::UNIX;
use Time::HiRes qw(time);
use ZkLock;

my %plain = (1 => 'parsed', 2 => 'bound', 3 => 'closed', n => 'no data', s => 'suspended', I => 'empty',
	t => 'parameters', T => 'columns');
my %ready = (I => 'idle', T => 'in transaction', E => 'aborted');

sub new
{
	my ($class, $node, %option) = @_;
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $self = bless { out => '', in => '', notices => '' }, $class;
	$self->{socket} = IO::Socket::UNIX->new(Peer => $path) or croak "$path: $!";
	my %parameter = (user => $option{user} // scalar(getpwuid $>), database => $option{dbname} // 'postgres',
		client_encoding => 'UTF8', application_name => 'zklock test');
	my $startup = pack('N', 196608) . join('', map { "$_\0$parameter{$_}\0" } sort keys %parameter) . "\0";
	$self->{out} = pack('N', 4 + length $startup) . $startup;
	$self->_send;
	my $answer = $self->answer;
	croak "no connection: $answer" unless $answer =~ /idle$/;
	return $self;
}

#
# Messages
#

sub _add { my ($self, $type, $body) = @_; $self->{out} .= $type . pack('N', 4 + length $body) . $body; return $self; }

sub parse { my ($self, $statement, $sql) = @_; return $self->_add('P', "$statement\0$sql\0" . pack('n', 0)); }

sub bind
{
	my ($self, $portal, $statement, @parameter) = @_;
	my $values = join '', map { defined $_ ? pack('N/a*', $_) : pack('N', 0xffffffff) } @parameter;
	return $self->_add('B', "$portal\0$statement\0" . pack('nn', 0, scalar @parameter) . $values . pack('n', 0));
}

sub describe { my ($self, $kind, $name) = @_; return $self->_add('D', "$kind$name\0"); }
sub close { my ($self, $kind, $name) = @_; return $self->_add('C', "$kind$name\0"); }
sub execute { my ($self, $portal, $rows) = @_; return $self->_add('E', "$portal\0" . pack('N', $rows // 0)); }
sub run { my ($self, $sql) = @_; return $self->parse('', $sql)->bind('', '')->execute(''); }

sub _send
{
	my $self = shift;
	local $SIG{PIPE} = 'IGNORE';
	utf8::encode($self->{out}) if utf8::is_utf8($self->{out});
	while (length $self->{out})
	{
		my $n = syswrite($self->{socket}, $self->{out}) // croak "the server has gone: $!";
		substr $self->{out}, 0, $n, '';
	}
	return $self;
}

sub send_sync { my $self = shift; return $self->_add('S', '')->_send; }
sub send_query { my ($self, $sql) = @_; return $self->_add('Q', "$sql\0")->_send; }
sub sync { my $self = shift; return $self->send_sync->answer; }
sub call { my ($self, $oid) = @_; return $self->_add('F', pack('Nnnn', $oid, 0, 0, 0))->_send->answer; }
sub query { my ($self, $sql) = @_; return $self->send_query($sql)->answer; }
sub flush { my ($self, $n) = @_; return $self->_add('H', '')->_send->_answer($n); }

#
# Answers
#

# The next message, as (type, body); type '' if the connection has ended.
sub _receive
{
	my $self = shift;
	my $deadline = time + $ZkLock::timeout;
	while (length $self->{in} < 5 || length $self->{in} < 1 + unpack('xN', $self->{in}))
	{
		croak 'no answer' if time > $deadline;
		next unless IO::Select->new($self->{socket})->can_read(1);
		sysread($self->{socket}, $self->{in}, 65536, length $self->{in}) or return ('', '');
	}
	my ($type, $length) = unpack 'aN', $self->{in};
	my $body = substr $self->{in}, 5, $length - 4;
	substr $self->{in}, 0, 1 + $length, '';
	return ($type, $body);
}

# A message in a few words; undef for those of the connection itself.
sub _words
{
	my ($self, $type, $body) = @_;
	return $plain{$type} if $plain{$type};
	return $ready{$body} if $type eq 'Z';
	return unpack 'Z*', $body if $type eq 'C';
	return 'row ' . join('|', _values($body)) if $type eq 'D';
	return 'result ' . join('', _values(pack('n', 1) . $body)) if $type eq 'V';
	return 'lost' if $type eq '';
	if ($type eq 'E' || $type eq 'N')
	{
		my %field = map { /^(.)(.*)/s } split /\0/, $body;
		return "$field{C}: $field{M}" if $type eq 'E';
		$self->{notices} .= join("\n", map { "$_: $field{$_}" } grep { defined $field{$_} } qw(V C M D H W)) . "\n";
		return "$field{V} $field{C}: $field{M}";
	}
	$self->{pid} = unpack 'N', $body if $type eq 'K';
	return undef;
}

sub _values
{
	my ($n, $rest) = unpack 'na*', $_[0];
	my @value;
	for (1 .. $n)
	{
		my $length = unpack 'l>', substr $rest, 0, 4, '';
		push @value, $length < 0 ? '' : substr $rest, 0, $length, '';
	}
	return @value;
}

# The next messages: so many, or up to and with ReadyForQuery.
sub _answer
{
	my ($self, $n) = @_;
	my @answer;
	$self->{notices} = '';
	for (;;)
	{
		my ($type, $body) = $self->_receive;
		my $words = $self->_words($type, $body) // next;
		push @answer, $words;
		last if defined $n ? @answer == $n : $type eq 'Z' || $type eq '';
	}
	return join ', ', @answer;
}

sub answer { my $self = shift; return $self->_answer; }
sub busy { my $self = shift; return $self->{in} eq '' && !IO::Select->new($self->{socket})->can_read(0); }
# The ends of a connection: Terminate, and a client that is gone.
sub terminate { my $self = shift; $self->_add('X', '')->_send; return CORE::close $self->{socket}; }
sub hang_up { my $self = shift; return CORE::close $self->{socket}; }

sub notices { my $self = shift; return $self->{notices}; }
sub pid { my $self = shift; return $self->{pid}; }

1;
