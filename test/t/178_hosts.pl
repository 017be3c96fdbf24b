# One host that answers nothing, or rubbish, costs no session while another one answers.
use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use List::Util qw(max sum);
use POSIX ();
use Proxy;
use Test::More;
use ZkLock;

$ZkLock::damaging = 1;

sub zk_session { my ($node, $columns) = @_; return ZkLock::ask($node, "SELECT $columns FROM zk_session"); }
sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

my $zk = ZooKeeper->new->start;
my $silent = Proxy->new($zk->host)->hole;

# The one by which the node is connected.  One that was left may not have noticed that.
sub connection
{
	my ($node, @good) = @_;
	my $up;
	ZkLock::wait_until(sub { my $host = zk_session($node, 'connected_to'); ($up) = grep { $_->host eq $host } @good; return $up; }, 'it is connected');
	return $up;
}

sub accepted { return sum map { $_->accepted } @_; }

# A lock is held through so many cuts of the connection.  The session is long enough for a
# machine that is slow, and too short for one attempt that takes all of it.  Returns how often
# the silent one was tried though no other one was silent.
sub ok_cuts
{
	my ($what, $node, $token, $holder, @good) = @_;
	my $cuts = $what =~ /silent/ ? 25 : 5;
	my $id = zk_session($node, 'session_id');
	my $asked = 0;
	for my $cut (1 .. $cuts)
	{
		my $before = zk_session($node, 'reconnects');
		my $up = connection($node, @good);
		my ($silences, $tries) = ($silent->accepted, accepted(@good));
		$up->cut;
		ZkLock::wait_until(sub { zk_session($node, "reconnects > $before OR session_id IS DISTINCT FROM '$id'") eq 't' },
			"$what: it is connected again, after cut $cut");
		ZkLock::wait_connected($node);
		last if zk_session($node, 'session_id') ne $id;
		# On a slow machine others are silent, too, for a while: then it has its turn after one of them.
		my $failed = accepted(@good) - $tries - 1;
		$asked += max($silent->accepted - $silences - $failed, 0);
	}
	is(zk_session($node, 'session_id'), $id, "$what: the session outlives $cuts cuts");
	is($holder->query("SELECT zk_assert('held')"), $token, '... and the lock is held');
	return $asked;
}

# Someone else who answers each connection with these bytes.
sub rubbish
{
	my $bytes = shift;
	my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => ZooKeeper::free_port(), Listen => 10, ReuseAddr => 1) or die $!;
	my $pid = fork() // die $!;
	return ('127.0.0.1:' . $listen->sockport, $pid) if $pid;
	# not for ever, should the test die; and no end of its pipes
	$SIG{ALRM} = 'DEFAULT';
	alarm 3600;
	open $_, '>', '/dev/null' for \*STDOUT, \*STDERR;
	$SIG{PIPE} = 'IGNORE';
	my $select = IO::Select->new($listen);
	for (;;)
	{
		for my $socket ($select->can_read)
		{
			if ($socket == $listen) { my $new = $listen->accept; $select->add($new) if $new; }
			elsif (sysread $socket, my $got, 65536) { syswrite $socket, $bytes; }
			else { $select->remove($socket); $socket->close; }
		}
	}
}

# Another process, which knows nothing, has these hosts.
sub reload
{
	my ($node, @hosts) = @_;
	my $hosts = join ',', @hosts;
	my $worker = zk_session($node, 'worker_pid');
	ZkLock::ask($node, "ALTER SYSTEM SET zklock.hosts = '$hosts'");
	ZkLock::ask($node, 'SELECT pg_reload_conf()');
	ZkLock::wait_until(sub { zk_session($node, "worker_pid <> $worker AND hosts = '$hosts' AND state = 'connected'") eq 't' }, "another worker has $hosts");
}

for my $n (2, 3, 5)
{
	my @good = map { Proxy->new($zk->host) } 2 .. $n;
	my $node = ZkLock::server("n$n", join(',', map { $_->host } $silent, @good), conf => "zklock.session_timeout = '12s'");
	ZkLock::wait_connected($node);
	my $holder = ZkLock::session($node);
	my $token = $holder->query("SELECT zk_lock('held', scope => 'session')");
	my $asked = ok_cuts("one of $n is silent", $node, $token, $holder, @good);
	cmp_ok($asked, '<=', 1, '... which is tried once at most, before it is known');

	# The one that there is a connection to falls silent: others are tried before it.
	my $id = zk_session($node, 'session_id');
	if ($n > 2)
	{
		my $up = connection($node, @good);
		$up->hole;
		ZkLock::wait_until(sub { zk_session($node, "state = 'connected' AND connected_to <> '" . $up->host . "'") eq 't' }, 'it goes elsewhere');
		$up->cut->heal;
		is(zk_session($node, 'session_id'), $id, '... another one falls silent, and the session goes on');
		is($holder->query("SELECT zk_assert('held')"), $token, '... with the lock');
	}

	reload($node, $_ == 1 ? (map({ $_->host } @good), $silent->host) : map { $_->host } $silent, @good) for 1 .. 2;
	is(zk_session($node, 'session_id'), $id, '... the session outlives workers, too');
	is($holder->query("SELECT zk_assert('held')"), $token, '... with the lock');
	$holder->quit;
	ZkLock::hang_up($node);
	$node->stop;
}

#
# Rubbish: zeros look like the end of the session, the rest like nothing
#
my %rubbish = (
	'zeros' => "\0" x 400,
	'a web server' => "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" . 'x' x 100,
	'a session without a timeout' => pack('N/a', pack 'N N q> N/a C', 0, 0, 0x1234567, "\0" x 16, 0),
	'a session without a number' => pack('N/a', pack 'N N q> N/a C', 0, 12_000, 0, "\0" x 16, 0));
my @good = map { Proxy->new($zk->host) } 1 .. 4;
my $node = ZkLock::server('r', $good[0], conf => "zklock.session_timeout = '12s'");
ZkLock::wait_connected($node);
my $id = zk_session($node, 'session_id');
my $holder = ZkLock::session($node);
my $token = $holder->query("SELECT zk_lock('held', scope => 'session')");
for my $what (sort keys %rubbish)
{
	my ($host, $pid) = rubbish($rubbish{$what});
	for my $n (2, 3, 5)
	{
		my @hosts = map { $_->host } @good[ 0 .. $n - 2 ];
		# until it was asked first
		ZkLock::wait_until(
			sub {
				my $log = -s $node->logfile;
				reload($node, reverse(@hosts), $host);
				reload($node, $host, @hosts);
				return PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /could not connect to ZooKeeper server \Q$host\E: what it answers is not ZooKeeper's/;
			},
			"$what: one of $n is asked");
		is(zk_session($node, 'session_id'), $id, "$what, one of $n: the session goes on");
		is($holder->query("SELECT zk_assert('held')"), $token, '... with the lock');
		ok_cuts("$what, one of $n", $node, $token, $holder, @good);
	}
	kill 'KILL', $pid;
	waitpid $pid, 0;
}

# Where there is nobody else, it is asked again and again, and a ZooKeeper server in its place
# is found.
my ($host, $pid) = rubbish($rubbish{zeros});
ZkLock::ask($node, "ALTER SYSTEM SET zklock.hosts = '$host'");
ZkLock::ask($node, 'SELECT pg_reload_conf()');
ZkLock::wait_until(sub { zk_session($node, 'last_error') =~ /\Q$host\E: what it answers is not ZooKeeper's/ }, 'only rubbish');
kill 'KILL', $pid;
waitpid $pid, 0;
my ($port) = $host =~ /(\d+)$/;
my $late = Proxy->new($zk->host, port => $port);
ZkLock::wait_connected($node);
is($holder->query("SELECT zk_try_lock('other')"), 't', 'and afterwards all is well');

done_testing();
