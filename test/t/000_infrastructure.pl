# The tests' own tools: ZooKeeper.pm, its client, and Proxy.pm.
use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);
use Proxy;
use ZooKeeper;

# Does code come true within a few seconds?
sub soon
{
	my $code = shift;
	for (1 .. 1000) { return 1 if $code->(); sleep 0.01; }
	return 0;
}

my $zk = ZooKeeper->new(container_check_ms => 100)->start;
is($zk->mode, 'standalone', 'one server serves');

#
# The client
#
my $a = $zk->client(timeout => 1000);
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

my $first = $a->contend('/zklock/locks/job');
my $second = $b->contend('/zklock/locks/job');
like($first, qr{^/zklock/locks/job/_c_[0-9a-f-]{36}-lock-0000000000$}, 'contender');
is($zk->wait_children('/zklock/locks/job', 2), 2, 'two contenders');
is($zk->stat($first)->{ephemeralOwner}, $a->session, 'ephemeralOwner');
is_deeply($zk->sessions->{ $b->id }, [$second], 'sessions and their nodes');
$b->get($first, watch => 1);
is_deeply([ $zk->watches ], [$first], 'watches');
my $start = time;
$a->vanish;
$zk->wait_children('/zklock/locks/job', 1);
cmp_ok(time - $start, '>', 0.4, 'a session that vanishes times out');
is_deeply([ $b->events ], [$first], 'watch event');
$b->close;
ok(soon(sub { !$zk->stat('/zklock/locks/job') }), 'an empty container is reaped');

#
# The proxy
#
my $proxy = Proxy->new($zk->host);
my $c = ZooKeeper::Client->new($proxy->host, wait => 0.3);
$proxy->requests;
ok($c->create('/p'), 'through the proxy');
is_deeply($proxy->requests, { create => 1 }, 'requests counted');
is($proxy->connections, 1, 'connections counted');

$proxy->lose_reply('create', '/lost');
ok($c->create('/kept'), 'another reply passes');
ok(!eval { $c->create('/lost'); 1 } && $@ =~ /connection lost/, 'reply of a create lost');
ok($zk->stat('/lost'), '... and it was done');
is($proxy->lost, 1, 'losses counted');

$c = ZooKeeper::Client->new($proxy->host, wait => 0.3);
$proxy->lose_request('delete');
ok(!eval { $c->delete('/lost'); 1 }, 'request lost');
ok($zk->stat('/lost'), '... and it was not done');

for my $direction ('both', 'up', 'down')
{
	$c = ZooKeeper::Client->new($proxy->host, wait => 0.3);
	$proxy->hole($direction);
	ok(!eval { $c->create("/$direction"); 1 } && $@ =~ /no answer/, "hole, $direction: silence");
	is(!!$zk->stat("/$direction"), $direction eq 'down', $direction eq 'down' ? '... but it was done' : '... and it was not done');
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
ok(soon(sub { $proxy->connections == 0 }), 'server stopped: connection ends');
$zk->start;
ok($zk->stat('/p'), 'data survive a restart');

#
# An ensemble
#
my $three = ZooKeeper->new(name => 'ensemble', servers => 3)->start;
my $leader = $three->leader;
is(scalar $three->followers, 2, 'a leader and two followers');
$three->create('/e');
$three->kill9($leader);
ok(soon(sub { $three->leader }), 'another leader');
ok($three->stat('/e'), '... with the data');
my ($follower) = $three->followers;
$three->pause($follower);
ok(!eval { ZooKeeper::Client->new($three->host($follower), wait => 0.2); 1 }, 'a paused server is silent');
$three->resume($follower)->start;
is(scalar $three->followers, 2, 'all back');

# Whoever is killed with SIGKILL takes its servers along.
my $pid = open my $pipe, '-|', $^X, (map { "-I$_" } @INC), '-MZooKeeper', '-e',
  '$| = 1; my $zk = ZooKeeper->new->start; print $zk->pid, "\n"; sleep 60';
chomp(my $java = readline $pipe);
ok(kill(0, $java), 'another test\'s server');
kill 'KILL', $pid;
ok(soon(sub { !kill 0, $java }), '... dies with it');

done_testing();
