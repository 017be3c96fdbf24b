# Servers exclude each other, in the order of the queue.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => "max_prepared_transactions = 5");
my $b = ZkLock::server('b', $zk);
my @both = ($a, $b);
my $sa = ZkLock::session($a);
my $sa2 = ZkLock::session($a);
my $sb = ZkLock::session($b);
my $foreign = $zk->client;
my $directory = ZkLock::directory('job');

#
# Exclusive
#
$sa->query('BEGIN');
my $token = $sa->query("SELECT zk_lock('job')");
my ($contender) = ZkLock::queue($zk, 'job');
like($contender, qr/^_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lock-\d{10}$/, 'contender has Curator\'s form');
is($zk->stat("$directory/$contender")->{czxid}, $token, 'the token is its czxid');
like($zk->get("$directory/$contender"), qr/"a"/, 'its data say which server');
is($sb->query("SELECT zk_try_lock('job')"), 'f', 'the other server does not get it');
is($sb->query("SELECT zk_try_lock('other')"), 't', '... but another name');
$sb->query('BEGIN');
$sb->send("SELECT zk_lock('job')")->wait_level(2);
is(scalar(my @two = ZkLock::wait_queue($zk, 'job', 2)), 2, 'two contenders');
is(ZkLock::ask($b, "SELECT name, mode, scope, granted, token, pid = @{[ $sb->pid ]}, wait_start <= now() FROM zk_locks"),
	'job|exclusive|transaction|f||t|t', 'zk_locks of a waiter');
ok($sb->busy, 'it waits');
$sa->query('COMMIT');
my $next = $sb->result;
cmp_ok($next, '>', $token, 'COMMIT hands it over, with a larger token');
is(ZkLock::ask($b, "SELECT name, mode, scope, granted, token = $next, pid = @{[ $sb->pid ]}, wait_start FROM zk_locks"),
	'job|exclusive|transaction|t|t|t|', 'zk_locks of the new holder\'s server');
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_locks'), 0, '... and of the old one\'s');
$sb->query('ROLLBACK');
ZkLock::ok_clean($zk, \@both, 'job', 'after ROLLBACK');

# Tokens grow, whoever gets it.
my $last = 0;
my $grow = 1;
for (1 .. 5)
{
	for my $session ($sa, $sb, $sa2)
	{
		my $t = $session->query("SELECT zk_lock('job')");
		$grow = 0 unless $t > $last;
		$last = $t;
	}
}
ok($grow, 'tokens grow across servers');
# Without kept grants and hand-offs, also from one local backend to the next.
for my $i (1, 2)
{
	my $t = $sa->query("BEGIN; SELECT zk_lock('alone')");
	$sa2->send("SELECT zk_lock('alone')")->wait_level(1);
	$sa->query('COMMIT');
	cmp_ok($sa2->result, '>', $t, '... and within one, although nobody else wants it');
}
ZkLock::ok_clean($zk, \@both, 'alone');

#
# Order
#
my $path = $foreign->contend($directory);
$sb->query('BEGIN');
$sb->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
$sa->query('BEGIN');
$sa->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 3);
$foreign->delete($path);
my $token_b = $sb->result;
ok($sa->busy, 'a foreign contender ends: the first in the queue has it, the second waits');
$sb->query('COMMIT');
cmp_ok($sa->result, '>', $token_b, '... its turn');

# A backend that waits behind one of its own server queues when that ends, so
# behind the others.
$sa2->query('BEGIN');
$sa2->send("SELECT zk_lock('job')")->wait_level(1);
is(scalar(my @one = ZkLock::queue($zk, 'job')), 1, 'a waiter at level 1 has no contender');
$sb->query('BEGIN');
$sb->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
$sa->query('COMMIT');
$token_b = $sb->result;
$sa2->wait_level(2);
ok($sa2->busy, 'the other server comes first');
$sb->query('COMMIT');
cmp_ok($sa2->result, '>', $token_b, '... then the waiter at level 1');
$sa2->query('COMMIT');
ZkLock::ok_clean($zk, \@both, 'job', 'after the queue');

#
# Shared and exclusive
#
$_->query('BEGIN') for $sa, $sa2, $sb;
my $shared = $sa->query("SELECT zk_lock('job', 'shared')");
is($sa2->query("SELECT zk_lock('job', 'shared')"), $shared, 'readers of one server share the grant');
isnt($sb->query("SELECT zk_lock('job', 'shared')"), $shared, 'a reader of another server has its own');
like(join(' ', ZkLock::queue($zk, 'job')), qr/^\S+-read-lock-\d{10} \S+-read-lock-\d{10}$/, 'two contenders for three readers');
my $sb2 = ZkLock::session($b);
is($sb2->query("SELECT zk_try_lock('job')"), 'f', 'no writer beside them');
$sb->query('COMMIT');
$sb->query('BEGIN');
$sb->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
$sa->query('COMMIT');
ok($sb->busy, 'a writer waits for the last reader');
$sa2->query('COMMIT');
ok($sb->result, '... and has it then');
$sa->query('BEGIN');
$sa->send("SELECT zk_lock('job', 'shared')")->wait_level(2);
$sa2->query('BEGIN');
$sa2->send("SELECT zk_lock('job', 'shared')")->wait_level(2);
ok($sa->busy && $sa2->busy, 'readers wait for the writer');
$sb->query('ROLLBACK');
is($sa->result, $sa2->result, '... and have it together');
$_->query('COMMIT') for $sa, $sa2;
ZkLock::ok_clean($zk, \@both, 'job', 'after readers and writers');

#
# zk_try_lock
#
$sa->query("BEGIN; SELECT zk_lock('job')");
is($sa2->query("SELECT zk_try_lock('job')"), 'f', 'zk_try_lock at level 1');
is($sa2->query("SELECT zk_try_lock('job', timeout => '50 ms')"), 'f', '... with a timeout');
is($sb->query("SELECT zk_try_lock('job')"), 'f', 'zk_try_lock at level 2');
is($sb->query("SELECT zk_try_lock('job', timeout => '50 ms')"), 'f', '... with a timeout');
is($sb->query("BEGIN; SELECT zk_try_lock('job', timeout => '50 ms'), zk_try_lock('job 2', timeout => '1 h'); COMMIT"),
	'f|t', 'in a transaction, which goes on');
for my $option ('', "SET lock_timeout = '1h'", "SET lock_timeout = 0")
{
	for my $case ([ $sa2, 1 ], [ $sb, 2 ])
	{
		my ($session, $level) = @$case;
		$session->query($option);
		$session->send("SELECT zk_try_lock('job', timeout => '2 h')")->wait_level($level);
		ok($session->busy, "with a long timeout it waits at level $level");
		$sa->query('COMMIT');
		is($session->result, 't', "... and gets it $option");
		ZkLock::wait_queue($zk, 'job', 0);
		$sa->query("BEGIN; SELECT zk_lock('job')");
	}
}
for my $case ([ $sa2, 1 ], [ $sb, 2 ])
{
	my ($session, $level) = @$case;
	is( $session->fails("SET lock_timeout = '30ms'; SELECT zk_try_lock('job', timeout => '1 h')"),
		'55P03: canceling statement due to lock timeout', "lock_timeout before the timeout at level $level");
	is($session->query("SET lock_timeout = '1h'; SELECT zk_try_lock('job', timeout => '30 ms')"),
		'f', "the timeout before lock_timeout at level $level");
	$session->query('RESET lock_timeout');
	is( $session->fails("CALL zk_lock_session('job', timeout => '30 ms')"),
		'55P03: could not obtain lock "job" within 30 ms', "the procedure's timeout at level $level");
}
# its subtransaction leaves nothing behind, and takes nothing away
$sa2->query("BEGIN; CREATE TABLE t (i int); INSERT INTO t VALUES (1)");
is( $sa2->query("SELECT zk_lock('kept') > 0, zk_try_lock('job', timeout => '30 ms'), zk_token('kept') > 0, (SELECT count(*) FROM t)"),
	't|f|t|1', 'after a timeout at level 1 the transaction is what it was');
$sa2->query('COMMIT');
is($sa2->query('SELECT count(*) FROM t'), 1, '... and commits');
$sa->query('COMMIT');
ZkLock::ok_clean($zk, \@both, 'job', 'after zk_try_lock');

#
# What ends a hold lets the other server in at once
#
my @ways = (
	[ 'COMMIT AND CHAIN', '', 'COMMIT AND CHAIN', 'COMMIT' ],
	[ 'ROLLBACK', '', 'ROLLBACK', '' ],
	[ 'an error', '', 'SELECT 1 / 0', 'ROLLBACK' ],
	[ 'ROLLBACK TO', 'SAVEPOINT s', 'ROLLBACK TO s', 'COMMIT' ],
	[ 'ROLLBACK TO an outer savepoint', 'SAVEPOINT r; SAVEPOINT s', 'ROLLBACK TO r', 'COMMIT' ],
	[ 'ROLLBACK TO after RELEASE', 'SAVEPOINT r; SAVEPOINT s', 'RELEASE s; ROLLBACK TO r', 'COMMIT' ]);
for my $way (@ways)
{
	my ($what, $before, $end, $after) = @$way;
	$sa->query("BEGIN; $before; SELECT zk_lock('job')");
	$sb->send("SELECT zk_lock('job')")->wait_level(2);
	ZkLock::wait_queue($zk, 'job', 2);
	$sa->fails($end);
	ok($sb->result, "handed over by $what");
	$sa->query($after);
}
# an exception block, with the transaction going on until it is told to end
$sa2->query('SELECT pg_advisory_lock(1)');
$sa->send(q{DO $$ BEGIN
	BEGIN
		PERFORM zk_lock('job');
		PERFORM pg_advisory_xact_lock(2);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN PERFORM pg_advisory_xact_lock(1);
	END;
END $$});
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 1 }, 'the exception is caught');
ok($sb->query("SELECT zk_lock('job')"), 'handed over by an exception block');
ok($sa->busy, '... whose transaction goes on');
$sa2->query('SELECT pg_advisory_unlock(1)');
$sa->result;
# session scope
for my $end ("SELECT zk_unlock('job')", 'SELECT zk_unlock_all()', 'DISCARD ALL', 'SELECT pg_advisory_unlock_all()')
{
	$sa->query("SELECT zk_lock('job', scope => 'session')");
	$sb->send("SELECT zk_lock('job')")->wait_level(2);
	ZkLock::wait_queue($zk, 'job', 2);
	$sa->query($end);
	ok($sb->result, "handed over by $end");
}
# Level 1 is taken away within a transaction: the hold ends with the statement.
# What holds until then is in 015_level1_lost.pl.
$sa->query('BEGIN');
$token = $sa->query("SELECT zk_lock('job', scope => 'session')");
$sa->query('SELECT pg_advisory_unlock_all()');
cmp_ok($sa2->query("SELECT zk_lock('job')"), '>', $token, 'the end of the statement gives up what lost level 1');
$sa->query('COMMIT');
# the session's own hold outlives the transaction's
$sa->query("BEGIN; SELECT zk_lock('job'), zk_lock('job', scope => 'session'); COMMIT");
is($sb->query("SELECT zk_try_lock('job')"), 'f', 'session scope outlives the transaction');
$sa->quit;
ok($sb->query("SELECT zk_lock('job')"), '... and ends with the session');
ZkLock::ok_clean($zk, \@both, 'job', 'after hand-overs');

# A transaction's last hold goes although an older savepoint's stays.
$sa = ZkLock::session($a);
$sa->query("BEGIN; SELECT zk_lock('job', 'shared'); SAVEPOINT s; SELECT zk_lock('job')");
is($sb->query("SELECT zk_try_lock('job', 'shared')"), 'f', 'upgraded: no reader');
$sb->send("SELECT zk_lock('job', 'shared')")->wait_level(2);
$sa->query('ROLLBACK TO s');
ok($sb->result, 'the upgrade is rolled back: a reader');
is($sb->query("SELECT zk_try_lock('job')"), 'f', '... but no writer');
is($sa->fails("PREPARE TRANSACTION 'p'"), '55000: cannot PREPARE a transaction that holds a zklock lock in transaction scope',
	'PREPARE is refused');
ok($sb->query("SELECT zk_lock('job')"), '... and that ends the hold');

#
# Upgrade, and the deadlock of two
#
$_->query("BEGIN; SELECT zk_lock('job', 'shared')") for $sa, $sb;
$sa->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 3);
ok($sa->busy, 'an upgrade waits for the other reader');
is($sb->query("SELECT zk_try_lock('job')"), 'f', 'a second upgrade that need not wait');
is($sb->query("SELECT zk_token('job') > 0"), 't', '... does no harm');
is($sb->fails("SELECT zk_lock('job')"), '40P01: deadlock detected', 'a second upgrade is a deadlock');
ok($sa->result, '... whose end lets the first one go on');
$_->query('ROLLBACK') for $sa, $sb;
$_->query("BEGIN; SELECT zk_lock('job', 'shared')") for $sa, $sb;
$sa->send("SELECT zk_lock('job')")->wait_level(2);
$sb->query('COMMIT');
ok($sa->result, 'an upgrade after the other reader');
$sa->query('COMMIT');
ZkLock::ok_clean($zk, \@both, 'job', 'after upgrades');

#
# Foreign contenders
#
$path = $foreign->contend($directory, kind => 'read-lock-');
$sb->query("BEGIN; SELECT zk_lock('job', 'shared')");
is($sa->query("SELECT zk_try_lock('job')"), 'f', 'a foreign reader: readers only');
$sb->query('COMMIT');
# else one that is yet to be deleted would pass for the writer's
ZkLock::wait_queue($zk, 'job', 1);
$sb->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
my $path2 = $foreign->contend($directory, kind => 'read-lock-');
$foreign->delete($path);
ok($sb->result, '... a writer waits for it, and for none that came later');
is($sb->query("SELECT zk_try_lock('job')"), 'f', '... but the next one does');
$foreign->delete($path2);

# a Curator lock, and names of other makers
for my $name ('_c_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f-lock-', 'lock-', '__lock__', 'x-0-')
{
	$path = $foreign->create("$directory/$name", mode => 'ephemeral_sequential', parents => 1);
	is($sa->query("SELECT zk_try_lock('job', 'shared')"), 'f', "a foreign contender $name excludes");
	ZkLock::wait_queue($zk, 'job', 1);
	$sa->send("SELECT zk_lock('job', 'shared')")->wait_level(2);
	ZkLock::wait_queue($zk, 'job', 2);
	$foreign->set($path, 'still here');
	$foreign->delete($path);
	ok($sa->result, '... and is waited for');
}
# one that is no contender, and one that queues behind us
ZkLock::wait_until(sub { $foreign->create("$directory/README", parents => 1) }, 'a README, in whatever directory the reaper has left');
$sa->query("BEGIN; SELECT zk_lock('job')");
my @ours = grep { $_ ne 'README' } $zk->children($directory);
$path = $foreign->contend($directory);
my ($theirs) = $path =~ m{([^/]+)$};
cmp_ok(substr($theirs, -10), '>', substr($ours[0], -10), 'a foreign contender queues behind us');
$sa->query('COMMIT');
is_deeply([ grep { $_ ne 'README' } ZkLock::wait_queue($zk, 'job', 2) ], [$theirs], '... and has its turn');
is($sa->query("SELECT zk_try_lock('job')"), 'f', '... in which we wait');
$foreign->close;
$sa->query("SELECT zk_lock('job')");
$zk->wait_children($directory, 1);
$zk->delete("$directory/README");
ZkLock::ok_clean($zk, \@both, 'job', 'after foreign contenders');

done_testing();
