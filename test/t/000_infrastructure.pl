# The tests' own tools: ZooKeeper.pm, its client, and Proxy.pm.
use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use Proxy;
use Wait;
use ZooKeeper;

# Waits
{
	is(wait_until(sub { 7 }, 'seven'), 7, 'what is true need not be waited for');
	local $Wait::limit = 0.1;
	ok(!eval { wait_until(sub { 0 }, 'pigs fly', sub { 'none does' }); 1 }, 'a wait has a limit');
	like($@, qr/^waited 0\.1 s in vain until pigs fly: none does at \Q@{[ __FILE__ ]}\E line \d+\.$/, '... and says what for');
}

my $zk = ZooKeeper->new(container_check_ms => 100)->start;
is($zk->mode, 'standalone', 'one server serves');

#
# The client
#
my $a = $zk->client;
my $b = $zk->client;
my ($path, $stat) = $a->create('/x', data => 'one');
is($path, '/x', 'create');
ok($stat->{czxid} > 0, 'create tells the czxid');
is_deeply([ $b->get('/x') ], [ 'one', $stat ], 'get');
ok($b->set('/x', 'two'), 'set');
is($zk->get('/x'), 'two', 'set is seen');
ok(!eval { $a->create('/x'); 1 } && $@ =~ /node exists/, 'create of what exists');
is($a->create('/none/x'), undef, 'create without a parent');
is($a->get('/none'), undef, 'get of nothing');
ok(!$a->delete('/none'), 'delete of nothing');
ok($a->delete('/x'), 'delete');
is($zk->stat('/x'), undef, 'delete is seen');
$a->create("/beside$_") for 1, 2;
ok($a->delete_beside('/beside1', '/beside2') && !$zk->stat('/beside1'), 'delete beside another node');
$a->create('/beside1');
$a->delete('/beside2');
ok(!$a->delete_beside('/beside1', '/beside2') && $zk->stat('/beside1'), '... which is there no more');

my $first = $a->contend('/zklock/locks/job');
my $second = $b->contend('/zklock/locks/job');
like($first, qr{^/zklock/locks/job/_c_[0-9a-f-]{36}-lock-0000000000$}, 'contender');
is($zk->wait_children('/zklock/locks/job', 2), 2, 'two contenders');
is($zk->stat($first)->{ephemeralOwner}, $a->session, 'ephemeralOwner');
is_deeply($zk->sessions->{ $b->id }, [$second], 'sessions and their nodes');
$b->get($first, watch => 1);
is_deeply([ $zk->watches ], [$first], 'watches');
$a->close;
is_deeply([ $b->events ], [$first], 'watch event');
$b->close;
wait_until(sub { !$zk->stat('/zklock/locks/job') }, 'an empty container is reaped');
pass('an empty container is reaped');

my $start;
# On a busy machine the session may be over before it has a node.
wait_until(sub { $start = time; $a = $zk->client(timeout => 1000); eval { $a->create('/brief', mode => 'ephemeral') } }, 'a session has a node');
$a->vanish;
wait_until(sub { !$zk->stat('/brief') }, 'the session times out');
cmp_ok(time - $start, '>=', 1, 'a session that vanishes times out');

#
# The proxy
#
my $proxy = Proxy->new($zk->host);
my $c = ZooKeeper::Client->new($proxy->host);
$proxy->requests;
ok($c->create('/p'), 'through the proxy');
is_deeply($proxy->requests, { create => 1 }, 'requests counted');
is($proxy->connections, 1, 'connections counted');

$proxy->lose_reply('create', '/lost');
ok($c->create('/kept'), 'another reply passes');
ok(!eval { $c->create('/lost'); 1 } && $@ =~ /connection lost/, 'reply of a create lost');
ok($zk->stat('/lost'), '... and it was done');
is($proxy->lost, 1, 'losses counted');

$c = ZooKeeper::Client->new($proxy->host);
$proxy->lose_request('delete');
ok(!eval { $c->delete('/lost'); 1 } && $@ =~ /connection lost/, 'request lost');
ok($zk->stat('/lost'), '... and it was not done');

for my $direction ('both', 'up', 'down')
{
	$c = ZooKeeper::Client->new($proxy->host);
	$proxy->hole($direction);
	# Silence has no end to wait for: a slow machine sees less of it.
	$c->{wait} = 0.3;
	ok(!eval { $c->create("/$direction"); 1 } && $@ =~ /no answer/, "hole, $direction: silence");
	if ($direction eq 'down')
	{
		wait_until(sub { $zk->stat('/down') }, 'what went up is done');
		pass('... but it was done');
	}
	else { ok(!$zk->stat("/$direction"), '... and it was not done'); }
	$proxy->heal;
}

$c = ZooKeeper::Client->new($proxy->host);
$proxy->refuse;
ok(!eval { ZooKeeper::Client->new($proxy->host); 1 }, 'refused');
ok($c->alive, 'a connection that exists goes on');
$proxy->cut;
ok(!$c->alive, 'cut');
$c = ZooKeeper::Client->new($proxy->heal->host);
$start = time;
$proxy->delay(100);
$c->sync('/');
cmp_ok(time - $start, '>=', 0.2, 'delay both ways');
$zk->stop;
wait_until(sub { $proxy->connections == 0 }, 'the connection ends');
pass('server stopped: connection ends');
$zk->start;
ok($zk->stat('/p'), 'data survive a restart');

#
# An ensemble
#
my $three = ZooKeeper->new(name => 'ensemble', servers => 3)->start;
my ($leader, $follower) = $three->wait_elected;
pass('a leader and two followers');
$three->create('/e');
$three->kill9($leader);
wait_until(sub { $three->leader && eval { $three->stat('/e') } }, 'another leader has the data');
pass('another leader, with the data');
$three->pause($follower);
ok(!eval { ZooKeeper::Client->new($three->host($follower), wait => 0.2); 1 }, 'a paused server is silent');
$three->resume($follower)->start;
$three->wait_elected;
pass('all back');

# Whoever is killed with SIGKILL takes its servers along.
my $pid = open my $pipe, '-|', $^X, (map { "-I$_" } @INC), '-MZooKeeper', '-e',
  '$| = 1; my $zk = ZooKeeper->new->start; print $zk->pid, "\n"; sleep';
chomp(my $java = readline $pipe);
ok(kill(0, $java), 'another test\'s server');
kill 'KILL', $pid;
wait_until(sub { !kill 0, $java }, 'it dies');
pass('... dies with it');

done_testing();
