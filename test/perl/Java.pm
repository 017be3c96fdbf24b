# Java - programs of test/java, with Curator: each does what a line of its standard input says,
# and answers with a line.
#
#   plan skip_all => 'no Curator, or no JDK' unless Java::there();
#   Java::compile('Latch');
#   my $latch = Java->start('Latch', $zk->hosts, '/zklock/elections/job', 'java', 3_600_000);
#   is($latch->ask('has'), 'false');
#   $latch->send('acquire');         # does not wait; later
#     $latch->busy, $latch->answer
#   $latch->kill;
#
# Those that run end with the test.
package Java;

use strict;
use warnings;

use Carp;
use FindBin;
use IO::Select;
use IPC::Open2;
use PostgreSQL::Test::Utils ();
use Wait;

my @jars = map { "/usr/share/java/$_.jar" }
  qw(curator-recipes curator-framework curator-client zookeeper zookeeper-jute slf4j-api slf4j-nop guava netty);
my ($classpath, @running);

sub there { return -e $jars[0] && system('command -v javac >/dev/null') == 0; }

sub compile
{
	my @classes = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir();
	$classpath = join ':', $directory, @jars;
	system('javac', '-cp', $classpath, '-d', $directory, map { "$FindBin::Bin/../java/$_.java" } @classes) == 0 or croak 'javac failed';
	return;
}

sub start
{
	my ($class, @command) = @_;
	my $self = bless { name => $command[0], buffer => '' }, $class;
	my @java = (qw(java -Xmx64m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC), '-cp', $classpath);
	$self->{pid} = open2($self->{out}, $self->{in}, @java, @command);
	push @running, $self;
	return $self;
}

sub send
{
	my ($self, $line) = @_;
	local $SIG{PIPE} = 'IGNORE';
	print { $self->{in} } "$line\n";
	$self->{in}->flush;
	$self->{sent} = $line;
	return $self;
}

sub busy
{
	my $self = shift;
	while ($self->{buffer} !~ /\n/ && IO::Select->new($self->{out})->can_read(0))
	{
		sysread($self->{out}, $self->{buffer}, 4096, length $self->{buffer}) or croak "$self->{name} has ended";
	}
	return $self->{buffer} !~ /\n/;
}

sub answer
{
	my $self = shift;
	wait_until(sub { !$self->busy }, "$self->{name} answers to $self->{sent}");
	$self->{buffer} =~ s/^(.*)\n//;
	return $1;
}

sub ask { my ($self, $line) = @_; return $self->send($line)->answer; }

sub kill
{
	my $self = shift;
	my $pid = delete $self->{pid} or return;
	CORE::kill 'KILL', $pid;
	waitpid $pid, 0;
	return;
}

END
{
	local $?;
	$_->kill for @running;
}

1;
