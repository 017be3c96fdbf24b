# Bench::Others - lock services beside ZooKeeper: etcd with three members, three Redis nodes
# that know nothing of each other, and the Python clients of all (others.py).
#
#   my $others = Bench::Others->new($world);
#   my $result = $others->run('etcd', 8, 1, 2.5);    # rate, p50, p99 (us), passes, least, most
#   my $failure = $others->fail('redis', sub { kill 'KILL', $_[0] });    # seconds, told
#   $others->stop;
#
# All of them write to disk before they answer, as ZooKeeper does, and have the world's delay.
# The packages are not installed but unpacked, once a run.
package Bench::Others;

use strict;
use warnings;

use Bench::World;
use FindBin;
use PostgreSQL::Test::Utils ();
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use ZkLock;
use ZooKeeper;

my $root = "$ENV{HOME}/others";
my $made = 0;

sub _file { my $file = shift; return -e "$root$file" ? "$root$file" : $file; }

# What these packages bring finds its libraries and modules.
sub _command
{
	my ($program, @arguments) = @_;
	my $libraries = join ':', glob "$root/lib/*-linux-gnu $root/usr/lib/*-linux-gnu";
	return ('env', "LD_LIBRARY_PATH=$libraries", "PYTHONPATH=$root/usr/lib/python3/dist-packages", _file($program), @arguments);
}

sub new
{
	my ($class, $world) = @_;
	-d $root
	  || system("$FindBin::Bin/unpack", $root, qw(etcd-server redis-server python3-redis python3-grpcio python3-psycopg2 python3-kazoo)) == 0
	  or die "the packages of the others could not be had\n";
	my $self = bless { world => $world, servers => [] }, $class;
	# the port of a server, and the one by which it is reached
	my @links;
	my $port = sub {
		my $own = ZooKeeper::free_port();
		my $reached = $world->delay ? ZooKeeper::free_port() : $own;
		push @links, "$reached:$own" if $world->delay;
		return [ map { "127.0.0.1:$_" } $own, $reached ];
	};
	my (@etcd, @redis);
	push @etcd, { client => $port->(), peer => $port->() } for 1 .. 3;
	push @redis, $port->() for 1 .. 3;
	$self->{delayer} = Bench::Process->new("$FindBin::Bin/build/delay", $world->delay, @links) if @links;

	my $cluster = join ',', map { "member$_=http://$etcd[$_]{peer}[1]" } 0 .. 2;
	for my $i (0 .. 2)
	{
		my ($client, $peer) = @{ $etcd[$i] }{qw(client peer)};
		$self->_serve('/usr/bin/etcd', '--name', "member$i", '--initial-cluster', $cluster, '--data-dir', 'data',
			'--listen-client-urls', "http://$client->[0]", '--advertise-client-urls', "http://$client->[1]",
			'--listen-peer-urls', "http://$peer->[0]", '--initial-advertise-peer-urls', "http://$peer->[1]");
		$self->_serve('/usr/bin/redis-server', '--bind', '127.0.0.1', '--port', $redis[$i][0] =~ s/.*://r,
			'--save', '', '--appendonly', 'yes', '--appendfsync', 'always');
	}
	for my $server (@{ $self->{servers} })
	{
		ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file("$server->{dir}/log") =~ /ready to (?:serve client requests|accept connections)/i },
			'another lock service serves', sub { PostgreSQL::Test::Utils::slurp_file("$server->{dir}/log") });
	}
	$self->{addresses} = {
		zklock => [ map { $world->node($_)->connstr('postgres') } 0, 1 ],
		kazoo => [ map { $world->hosts($_) } 0, 1 ],
		etcd => [ map { $_->{client}[1] } @etcd ],
		redlock => [ map { $_->[1] } @redis ],
		redis => [ $redis[0][1] ] };
	return $self;
}

# It ends with us, even by SIGKILL.
sub _serve
{
	my ($self, @command) = @_;
	my $dir = "$PostgreSQL::Test::Utils::tmp_check/others" . $made++;
	mkdir $dir or die "$dir: $!\n";
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		chdir $dir
		  && open(STDIN, '<', '/dev/null')
		  && open(STDOUT, '>', 'log')
		  && open(STDERR, '>&', \*STDOUT)
		  && exec qw(setpriv --pdeathsig KILL --), _command(@command);
		POSIX::_exit(127);
	}
	push @{ $self->{servers} }, { pid => $pid, dir => $dir };
}

sub stop
{
	my $self = shift;
	$_->stop for values %{ $self->{clients} };
	for my $server (splice @{ $self->{servers} })
	{
		kill 'KILL', $server->{pid};
		local $?;
		waitpid $server->{pid}, 0;
	}
}

sub DESTROY { my $self = shift; $self->stop; }

sub _clients
{
	my ($self, $system) = @_;
	return $self->{clients}{$system} //= Bench::Peer->new(_command('/usr/bin/python3', "$FindBin::Bin/others.py", $system, @{ $self->{addresses}{$system} }));
}

sub run
{
	my ($self, $system, $clients, $names, $seconds) = @_;
	my %result;
	(my $n, @result{qw(p50 p99 passes least most)}) = $self->_clients($system)->start('run', $clients, $names, $seconds)->answer;
	return { %result, rate => $n / $seconds, passes => $result{passes} / $seconds };
}

# Somebody who has a lock is failed, by its process, while another one waits for it.  In the
# end the failure is undone, if it can be.
sub fail
{
	my ($self, $system, $fail, $undo) = @_;
	my $clients = $self->_clients($system);
	my ($pid) = $clients->start('hold')->answer;
	my $begun = clock_gettime(CLOCK_MONOTONIC);
	$fail->($pid);
	my ($ended) = $clients->start('passed')->answer;
	$undo->($pid) if $undo;
	return { seconds => $ended - $begun, told => join ' ', $clients->start('told')->answer };
}

1;
