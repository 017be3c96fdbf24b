# Something else listens where ZooKeeper should, and answers rubbish.
use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use POSIX ();
use Test::More;
use ZkLock;

$ZkLock::damaging = 1;

# A peer that keeps to the protocol, and answers what was not asked, is in 175_damage.
#
# What it says: at once, or when it has been told something; what it does then.
my $handshake = sub { pack 'N/a', pack 'N N q> N/a C', 0, $_[0] // 1000, $_[1] // 0x1234567, "\0" x 16, 0 };
my %answer = (
	'a web server' => "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" . 'x' x 100,
	'zeros' => "\0" x 200,
	'ones' => "\xff" x 200,
	'random bytes' => join('', map { chr int rand 256 } 1 .. 1000),
	'half a handshake' => substr($handshake->(), 0, 20),
	'another protocol' => pack('N N', 80877103, 0) . 'S' x 100,
	'an endless timeout' => $handshake->(0x7fffffff) . pack('N', 8),
	'a negative timeout' => $handshake->(0xfffffff0) . pack('N', 8),
	'a packet of 2 GB' => $handshake->() . pack('N', 0x7fffffff) . 'x' x 1000,
	'a packet of less than nothing' => $handshake->() . pack('N', 0xfffffff0) . 'x' x 1000,
	'many pings' => $handshake->() . pack('N/a', pack 'l> q> l>', -2, 1, 0) x 1000);

# A process that answers so to everybody, once on each connection: a handshake that
# comes again reads as the answer to a request that was never made.
sub rubbish
{
	my $bytes = shift;
	my $port = ZooKeeper::free_port();
	my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 10, ReuseAddr => 1) or die $!;
	my $pid = fork() // die $!;
	if ($pid == 0)
	{
		# not for ever, should the test die; and no end of its pipes
		$SIG{ALRM} = 'DEFAULT';
		alarm 3600;
		open $_, '>', '/dev/null' for \*STDOUT, \*STDERR;
		$SIG{PIPE} = 'IGNORE';
		my $select = IO::Select->new($listen);
		my %answered;
		for (;;)
		{
			for my $socket ($select->can_read)
			{
				if ($socket == $listen) { my $new = $listen->accept; $select->add($new) if $new; next; }
				if (sysread $socket, my $got, 65536)
				{
					syswrite $socket, $bytes unless $answered{$socket}++;
					next;
				}
				$select->remove($socket);
				delete $answered{$socket};
				$socket->close;
			}
		}
		POSIX::_exit(0);
	}
	return ("127.0.0.1:$port", $pid);
}

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '1s'");
my $s = ZkLock::session($a);
my $started = ZkLock::ask($a, 'SELECT pg_postmaster_start_time()');
my $crash = qr/was terminated by signal/;
for my $what (sort keys %answer)
{
	ZkLock::wait_connected($a);
	my ($host, $pid) = rubbish($answer{$what});
	ZkLock::ask($a, "ALTER SYSTEM SET zklock.hosts = '$host'");
	ZkLock::ask($a, 'SELECT pg_reload_conf()');
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT hosts = '$host' FROM zk_session") eq 't' }, 'it is asked');
	like($s->fails("SET zklock.connect_timeout = '300ms'; SELECT zk_lock('job')"), qr/^58000: (could not reach ZooKeeper within|ZooKeeper refused the request)/, "$what: no lock");
	# It is asked again and again.  What a slow machine does not come to is not tried.
	sleep 1;
	ZkLock::ask($a, 'ALTER SYSTEM RESET zklock.hosts');
	ZkLock::ask($a, 'SELECT pg_reload_conf()');
	ZkLock::wait_connected($a);
	$s->query('RESET zklock.connect_timeout');
	# so short a session may expire on the way
	ok(ZkLock::wait_until(sub { eval { $s->query("SELECT zk_try_lock('job', timeout => '1 h')") eq 't' } }, 'a lock'), '... and afterwards all is well');
	kill 'KILL', $pid;
	waitpid $pid, 0;
	unlike(PostgreSQL::Test::Utils::slurp_file($a->logfile), $crash, '... without a crash') or last;
}
is(ZkLock::ask($a, 'SELECT pg_postmaster_start_time()'), $started, 'it is the same server');

done_testing();
