# What is asked of the ensemble where nobody wants anything of it: next to nothing, however
# much of others' is there.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

# Nor is anything reaped meanwhile.
my $zk = ZooKeeper->new(container_check_ms => 3_600_000)->start;
my $proxy = Proxy->new($zk->host);
# A heartbeat in three seconds; the session outlives a machine that stands still for some seconds.
my $node = ZkLock::server('a', $proxy, conf => "zklock.session_timeout = '18s'\nzklock.keep_time = 0");
ZkLock::wait_connected($node);
my $session = ZkLock::session($node);
my $foreign = $zk->client;

# So many heartbeats go by.  Returns all else that was asked for: others' names, that is.
sub beats
{
	my ($n, @requests) = shift;
	ZkLock::wait_until(sub
	{
		push @requests, $proxy->trace;
		return $n <= grep { m{^set /zklock/servers/} } @requests;
	}, "$n heartbeats");
	return grep { !m{^(?:ping|set /zklock/servers/)} } @requests;
}

# What is asked for until so many contenders of "cycle" have been deleted: the server does
# that after the backend has gone on.
sub cycles
{
	my ($n, @requests) = shift;
	ZkLock::wait_until(sub
	{
		push @requests, $proxy->trace;
		return $n <= grep { m{^delete /zklock/locks/cycle/} } @requests;
	}, "$n contenders are deleted");
	return grep { !m{^(?:ping|set /zklock/servers/)} } @requests;
}

# What writes, since a create that finds its node is a transaction, too.
sub writes
{
	# A connection asks for the base of tokens, and makes it where it is missing.
	my @writes = grep { /^(?:create|delete|set|multi)/ && $_ ne 'create /zklock/tokens' } @_;
	return join "\n", map { s{[0-9a-f]{16}$}{<session>}r =~ s{_c_[-0-9a-f]+-lock-\d*}{<contender>}r } @writes;
}

#
# Directories of others: a new connection and a new worker list none of them.
#
for my $kind ('locks', 'elections', 'jobs', 'semaphores', 'barriers')
{
	$foreign->create("/zklock/$kind/foreign$_") for 1 .. 40;
	$foreign->create("/zklock/$kind/foreign$_/_c_00000000-1111-4222-8333-444455556666-lock-", mode => 'ephemeral_sequential') for 1 .. 3;
}
for my $queue (map { "/zklock/queues/foreign$_" } 1 .. 3)
{
	$foreign->create("$queue$_") for '', '/items', '/held', '/puts';
}
$session->query("SELECT zk_lock('own', scope => 'session')");
# What lives before have put, if there were any, is looked for once.
beats(3);
for my $how ('a new connection', 'a new worker')
{
	my $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
	my $accepted = $proxy->accepted;
	$proxy->trace;
	if ($how eq 'a new worker') { kill 'TERM', $worker; }
	else { $proxy->cut; }
	ZkLock::wait_until(sub { $proxy->accepted > $accepted }, $how);
	my @asked = beats(6);
	is_deeply([ grep { /foreign/ } @asked ], [], "$how asks for nothing of others");
	# What a worker has written of its waits is void for the next one.
	is(writes(grep { !m{^delete /zklock/waits/} } @asked), '', '... and writes nothing but heartbeats');
	is_deeply([ grep { m{^children /zklock/(?!servers)\w+$} } @asked ], [], '... nor who they are');
}
ok($session->query("SELECT zk_assert('own')"), 'what is held stays');
$session->query('SELECT zk_unlock_all()');

#
# A lock of which nothing is new
#
$session->query("SELECT zk_lock('cycle')");
cycles(1);
$session->query("SELECT zk_lock('cycle')") for 1 .. 3;
is(writes(cycles(3), beats(2)), join("\n", ('create /zklock/locks/cycle/<contender>', 'delete /zklock/locks/cycle/<contender>') x 3), 'a lock is two writes');

#
# A server that starts where one has been, and where none has
#
$session->quit;
ZkLock::hang_up($node);
$node->stop;
$proxy->trace;
$node->start;
is(writes(beats(3)), 'create /zklock/servers/a-<session>', 'a server that starts makes a node of its own');
ZkLock::hang_up($node);
$node->stop;
sub delete_tree
{
	my $path = shift;
	delete_tree("$path/$_") for $zk->children($path);
	$zk->delete($path);
}
$foreign->close;
delete_tree('/zklock');
my $log = -s $node->logfile;
$proxy->down;
$node->start;
$session = ZkLock::session($node);
# What is wanted already is asked for as soon as there is a connection.
$session->send("SELECT zk_try_lock('own', timeout => '1h')")->wait_level(2);
$proxy->heal;
is($session->result, 't', 'the first one makes the root');
is_deeply([ sort $zk->children('/zklock') ], [qw(barriers elections jobs locks queues semaphores servers tokens)], '... all of it');
# On a slow machine the outage itself may outlast a handle.
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile, $log), qr/connected to ZooKeeper server.*trying again with a new handle|exited with exit code/s, '... at the first try');
$zk->delete('/zklock/queues');
$session->query("BEGIN; SELECT zk_queue_put('q', 'x'); COMMIT");
is($session->query("SELECT payload FROM zk_queue_take('q', timeout => '1h')"), 'x', 'a part of it that is missing is made when it is wanted');

ZkLock::ok_clean($zk, [$node], 'own');
done_testing();
