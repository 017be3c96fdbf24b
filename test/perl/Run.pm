# Run - zklock-run, as the tests call it.
#
#   use Run;
#   my $r = Run->start($node, qw(job -- sh -c), 'echo started; sleep 1000');
#   $r->wait_out(qr/started/);
#   is($r->signal('TERM')->status, 143, '...');
#   is(Run->start($node, qw(job -- sh -c), 'exit 3')->status, 3, '...');
#
# Methods:
#   start(NODE, [{ in => TEXT, env => {...} },] ARGUMENT...)   starts it; the command's standard
#                  input is TEXT
#   status         waits until it has ended: its exit status; or 'signal N', if that ended it
#   ended          true if it has ended
#   out, err       what it and the command have written so far
#   pid            of zklock-run
#   backend        process of the newest such session on the server
#   wait_out(REGEX)  until it has written that
#   wait_waiting   until its session waits for other servers
#   signal(NAME)   sends one to zklock-run, and nobody else
package Run;

use strict;
use warnings;

use Carp;
use File::Temp ();
use POSIX ();
use PostgreSQL::Test::Utils ();
use Wait;
use ZkLock;

sub start
{
	my ($class, $node, @args) = @_;
	my $option = ref $args[0] ? shift @args : {};
	my $self = bless { node => $node, dir => File::Temp->newdir }, $class;
	PostgreSQL::Test::Utils::append_to_file("$self->{dir}/$_", $_ eq 'in' ? $option->{in} // '' : '') for qw(in out err);
	my %env = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGAPPNAME => undef, %{ $option->{env} // {} });
	$self->{pid} = fork // croak "could not fork: $!";
	return $self if $self->{pid};
	%ENV = map { defined $env{$_} ? ($_ => $env{$_}) : () } keys %env;
	open STDIN, '<', "$self->{dir}/in" or POSIX::_exit(1);
	open STDOUT, '>>', "$self->{dir}/out" or POSIX::_exit(1);
	open STDERR, '>>', "$self->{dir}/err" or POSIX::_exit(1);
	exec { 'zklock-run' } 'zklock-run', @args or POSIX::_exit(1);
}

sub pid { my $self = shift; return $self->{pid}; }
sub out { my $self = shift; return PostgreSQL::Test::Utils::slurp_file("$self->{dir}/out"); }
sub err { my $self = shift; return PostgreSQL::Test::Utils::slurp_file("$self->{dir}/err"); }

sub ended
{
	my $self = shift;
	local $?;
	$self->{status} //= $? & 127 ? 'signal ' . ($? & 127) : $? >> 8
	  if !defined $self->{status} && waitpid($self->{pid}, POSIX::WNOHANG()) == $self->{pid};
	return defined $self->{status};
}

sub status
{
	my $self = shift;
	wait_until(sub { $self->ended }, 'zklock-run has ended', sub { $self->err });
	return $self->{status};
}

sub wait_out
{
	my ($self, $pattern) = @_;
	wait_until(sub { $self->out =~ $pattern }, "it has written $pattern", sub { $self->out . "\n" . $self->err });
	return $self;
}

sub wait_waiting
{
	my $self = shift;
	# by pg_stat_activity, since zk_locks does not show jobs
	my $sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'zklock-run%' AND wait_event_type = 'Extension'";
	wait_until(sub { ZkLock::ask($self->{node}, $sql) == 1 }, 'it waits for other servers', sub { $self->err });
	return $self;
}

sub backend
{
	my $self = shift;
	return ZkLock::ask($self->{node}, "SELECT max(pid) FROM pg_stat_activity WHERE application_name LIKE 'zklock-run%'");
}

sub signal
{
	my ($self, $name) = @_;
	kill $name, $self->{pid};
	return $self;
}

# A test that dies leaves none.
sub DESTROY
{
	my $self = shift;
	local ($?, $!);
	return if $self->ended;
	kill 'KILL', $self->{pid};
	waitpid $self->{pid}, 0;
}

1;
