# Lock directories and contenders that others delete: the ensemble, which reaps
# empty containers, and administrators.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new(tick_time => 200, container_check_ms => 10)->start;
my $a = ZkLock::server('a', $zk);
my $b = ZkLock::server('b', $zk);
ZkLock::wait_connected($a, $b);
my $sa = ZkLock::session($a);
my $sb = ZkLock::session($b);

sub wait_reaped { my $path = ZkLock::directory(shift); ZkLock::wait_until(sub { !$zk->stat($path) }, "$path is reaped"); }

# Until the server knows that it has lost a lock that it held.
sub wait_lost
{
	my $node = shift;
	ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT count(*) FROM zk_locks WHERE granted AND token IS NULL') }, 'the loss is known');
}

sub delete_tree
{
	my $path = shift;
	delete_tree("$path/$_") for $zk->children($path);
	$zk->delete($path);
}

#
# Reaped between uses
#
my ($token, $sequence) = (0);
for (1 .. 3)
{
	my $next = $sa->query("BEGIN; SELECT zk_lock('job')");
	cmp_ok($next, '>', $token, 'a larger token each time');
	$token = $next;
	like((ZkLock::queue($zk, 'job'))[0], qr/-lock-0000000000$/, '... though sequence numbers start again');
	$sa->query('COMMIT');
	wait_reaped('job');
}

# ... at any moment
for my $i (1 .. 100)
{
	my $s = $i % 2 ? $sa : $sb;
	my $next = eval { $s->query("SELECT zk_lock('often')") } // 0;
	next if $next > $token && (($token = $next));
	fail("token $next after $token, turn $i: $@");
}
pass('a hundred turns on a directory that is reaped all the time');

# ... but never under a holder or a waiter
$sa->query("BEGIN; SELECT zk_lock('job')");
$sb->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
$sa->query("SELECT zk_lock('other'), zk_lock('more')");
$sa->query('COMMIT');
cmp_ok($sb->result, '>', $token, 'a directory in use stays');
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

#
# A persistent directory, as others make it
#
$zk->create('/zklock/locks/kept', mode => 'persistent');
is($sa->query("SELECT zk_try_lock('kept')"), 't', 'a persistent directory serves');
ZkLock::ok_clean($zk, [$a], 'kept');
wait_reaped('job');
ok($zk->stat('/zklock/locks/kept'), '... and stays');

#
# Deleted by an administrator while idle
#
$zk->delete('/zklock/locks/kept');
is($sa->query("SELECT zk_try_lock('kept')"), 't', 'a deleted directory is made again');
ZkLock::ok_clean($zk, [$a], 'kept');
for my $path ('/zklock/locks', '/zklock')
{
	# A heartbeat in the middle of it makes some of it again.
	ZkLock::wait_until(sub { eval { delete_tree($path); 1 } && !$zk->stat($path) }, "$path is deleted", sub { $@ });
	pass("$path deleted");
	$token = $sa->query("BEGIN; SELECT zk_lock('job')");
	is(@{[ ZkLock::queue($zk, 'job') ]}, 1, '... is made again');
	is($sb->query("SELECT zk_try_lock('job')"), 'f', '... and the other server sees it');
	$sa->query('COMMIT');
	is($sb->query("SELECT zk_try_lock('job', timeout => '1h')"), 't', '... lock by lock');
}

#
# A waiting contender is deleted
#
$sa->query("BEGIN; SELECT zk_lock('job')");
$sb->send("BEGIN; SELECT zk_lock('job')")->wait_level(2);
my @queue = ZkLock::wait_queue($zk, 'job', 2);
my $foreign = $zk->client;
my $third = $foreign->contend('/zklock/locks/job');
$zk->delete("/zklock/locks/job/$queue[1]");
my @again;
ZkLock::wait_until(sub { @again = ZkLock::queue($zk, 'job'); @again == 3 }, 'it queues anew');
is("/zklock/locks/job/$again[1]", $third, 'a waiting contender deleted: others go first');
isnt($again[2], $queue[1], '... and it queues anew');
ok($sb->busy, '... still waiting');
my $czxid = $zk->stat("/zklock/locks/job/$again[2]")->{czxid};
$sa->query('COMMIT');
ZkLock::wait_queue($zk, 'job', 2);
ok($sb->busy, '... also when the first has gone');
$foreign->close;
is($sb->result, $czxid, '... granted in its turn');
$sb->query('COMMIT');
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

# ... together with the whole directory, the holder's contender included
$sa->query("BEGIN; SELECT zk_lock('job')");
$sb->send("BEGIN; SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
# Last first: the second must not be granted in between.
for (reverse ZkLock::queue($zk, 'job')) { $zk->delete("/zklock/locks/job/$_"); }
cmp_ok($sb->result, '>', $czxid, 'all contenders deleted: the waiter queues anew and is served');
wait_lost($a);
like($sa->fails('COMMIT'), qr/^40001: lock "job" was lost/, '... the holder knows');
is($sb->query("SELECT zk_token('job') IS NOT NULL"), 't', '... the new holder holds');
is($sa->query("SELECT zk_try_lock('job')"), 'f', '... and excludes the old one');
$sb->query('COMMIT');
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

#
# A granted contender is deleted
#
for my $mode ('exclusive', 'shared')
{
	$sa->query("CREATE TABLE IF NOT EXISTS t (i int)");
	$token = $sa->query("BEGIN; INSERT INTO t VALUES (1); SELECT zk_lock('job', '$mode')");
	$sb->send("SELECT zk_lock('job')")->wait_level(2);
	@queue = ZkLock::wait_queue($zk, 'job', 2);
	$zk->delete("/zklock/locks/job/$queue[0]");
	cmp_ok($sb->result, '>', $token, "the contender of a holder ($mode) deleted: the next gets the lock");
	ZkLock::wait_queue($zk, 'job', 0);
	wait_lost($a);
	like($sa->fails('COMMIT'), qr/^40001: lock "job" was lost/, '... COMMIT fails');
	is($sa->query('SELECT count(*) FROM t'), 0, '... and rolls back');
	ZkLock::ok_clean($zk, [ $a, $b ], 'job');
	is($sa->query("SELECT zk_try_lock('job', '$mode')"), 't', '... the next transaction can have it again');
}
ZkLock::wait_queue($zk, 'job', 0);

# ... with another backend waiting for the first at level 1
{
	my $next = ZkLock::session($a);
	$token = $sa->query("BEGIN; SELECT zk_lock('job')");
	$next->send("SELECT zk_lock('job')")->wait_level(1);
	@queue = ZkLock::wait_queue($zk, 'job', 1);
	$zk->delete("/zklock/locks/job/$queue[0]");
	$sb->query("BEGIN; SELECT zk_lock('job')");
	wait_lost($a);
	like($sa->fails('COMMIT'), qr/^40001: /, 'another backend waits behind the one that lost');
	$next->wait_level(2);
	$sb->query('COMMIT');
	cmp_ok($next->result, '>', $token, '... and gets it');
	ZkLock::ok_clean($zk, [ $a, $b ], 'job');
}

# ... of a session-scope hold
$sa->query("SELECT zk_lock('job', scope => 'session')");
@queue = ZkLock::wait_queue($zk, 'job', 1);
$zk->delete("/zklock/locks/job/$queue[0]");
cmp_ok($sb->query("BEGIN; SELECT zk_lock('job')"), '>', $token, 'a session-scope hold is lost');
wait_lost($a);
like($sa->fails("SELECT zk_token('job')"), qr/^55000: lock "job" was lost/, '... zk_token says so');
$sa->send("SELECT zk_lock('job', scope => 'session')")->wait_level(2);
pass('... zk_lock acknowledges the loss and queues again');
$sb->query('COMMIT');
cmp_ok($sa->result, '>', $token, '... and is served');
is($sa->query("SELECT zk_unlock_all()"), 1, '... one hold');
ZkLock::ok_clean($zk, [ $a, $b ], 'job', 'in the end');

is(ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, 'no level-1 lock');
unlike(PostgreSQL::Test::Utils::slurp_file($_->logfile), qr/expired|lost connection/, 'one session throughout') for $a, $b;

done_testing();
