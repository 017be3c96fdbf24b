# Several locks in one step: all of them or none, and what an answer says.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => "max_prepared_transactions = 5\nzklock.max_locks = 64");
my $b = ZkLock::server('b', $zk);
my @both = ($a, $b);
my $sa = ZkLock::session($a);
my $sa2 = ZkLock::session($a);
my $sb = ZkLock::session($b);
my $foreign = $zk->client;

sub held { my $node = shift; return ZkLock::ask($node, "SELECT string_agg(concat_ws(' ', name, mode, scope, granted, count), ',' ORDER BY name) FROM zk_locks"); }

# Of these names nothing is left, whatever is held of others.
sub ok_none
{
	my ($what, @names) = @_;
	my $list = join ', ', map { "'$_'" } @names;
	my $left;
	ZkLock::wait_until(
		sub {
			$left = join ' ', map { ZkLock::queue($zk, $_) } @names;
			$left .= ZkLock::ask($_, "SELECT string_agg(name, ' ') FROM zk_locks WHERE name IN ($list)") for @both;
			return $left eq '';
		},
		"nothing of @names is left",
		sub { $left });
	return pass("$what: nothing is left of @names");
}

#
# The answer
#
my $tokens = $sa->query("BEGIN; SELECT zk_lock_all('c', 'a', 'b')");
like($tokens, qr/^\{(\d+),\1,\1\}$/, 'one transaction, one token');
my ($token) = $tokens =~ /(\d+)/;
for my $name (qw(a b c))
{
	my ($contender) = ZkLock::queue($zk, $name);
	is($zk->stat(ZkLock::directory($name) . "/$contender")->{czxid}, $token, "the token is the czxid of the contender of $name");
	is($sa->query("SELECT zk_token('$name')"), $token, '... and what zk_token says');
	is($sa->query("SELECT zk_assert('$name')"), $token, '... and zk_assert');
}
is(held($a), join(',', map { "$_ exclusive transaction t 1" } qw(a b c)), 'zk_locks shows each');
is($sb->query("SELECT zk_try_lock('b')"), 'f', 'another server has none of them');
is($sb->query("SELECT zk_try_lock_all(ARRAY['x', 'b', 'y'])"), 'f', '... nor a set with one of them');
is($sa2->query("SELECT zk_try_lock_all(ARRAY['x', 'b', 'y'])"), 'f', '... nor has another session');
ok_none('refused', 'x', 'y');
$sa->query('COMMIT');
ok_none('after COMMIT', qw(a b c));

is($sa->query("SELECT zk_lock_all(VARIADIC '{}')"), '{}', 'no names');
is($sa->query("SELECT zk_try_lock_all('{}')"), 't', '... to be tried');
like($sa->query("BEGIN; SELECT zk_lock_all('a', 'b', 'a')"), qr/^\{(\d+),\1,\1\}$/, 'a name twice');
is(held($a), 'a exclusive transaction t 1,b exclusive transaction t 1', '... is held once');
$sa->query('COMMIT');
is($sa->fails("SELECT zk_lock_all('a', NULL)"), '22004: lock name must not be null', 'a null');
is($sa->fails("SELECT zk_lock_all('a', '')"), '22023: lock name must not be empty', 'an empty name');
is($sa->fails("SELECT zk_lock_all(VARIADIC '{{a,b},{c,d}}')"), '2202E: lock names must be a one-dimensional array', 'two dimensions');
like($sa->fails("SELECT zk_try_lock_all('{a}', 'session')"), qr/^22023: unrecognized lock mode/, 'an unknown mode');
like($sa->fails("BEGIN; SELECT zk_lock_all('a', 'b'); PREPARE TRANSACTION 'p'"), qr/^55000: cannot PREPARE/, 'PREPARE TRANSACTION');
$sa->query('ROLLBACK');
ok_none('after all that', 'a', 'b');

#
# Scopes
#
is($sa->query("SELECT zk_try_lock_all('{a,b}', scope => 'session')"), 't', 'session scope');
is(held($a), 'a exclusive session t 1,b exclusive session t 1', '... is the session\'s');
is($sa->query("SELECT zk_try_lock_all('{b,c}', scope => 'session')"), 't', 'another set with one of them');
is(held($a), 'a exclusive session t 1,b exclusive session t 2,c exclusive session t 1', '... counts that');
is($sb->query("SELECT zk_try_lock('c')"), 'f', '... and has the other');
is($sa->query("SELECT zk_unlock('b')"), 't', 'zk_unlock ends one of two');
is($sb->query("SELECT zk_try_lock('b')"), 'f', '... and it is still held');
is($sa->query('SELECT zk_unlock_all()'), 3, 'zk_unlock_all ends the rest');
ok_none('after zk_unlock_all', qw(a b c));
$sa->query("SELECT zk_try_lock_all('{a,b}', scope => 'session')");
$sa->query('SELECT pg_advisory_unlock_all()');
ok_none('after pg_advisory_unlock_all', qw(a b));

# Savepoints
$sa->query("BEGIN; SELECT zk_lock('a'); SAVEPOINT s; SELECT zk_lock_all('a', 'b', 'c'); ROLLBACK TO s");
is(held($a), 'a exclusive transaction t 1', 'ROLLBACK TO gives back what the set added');
$sa->query("SAVEPOINT s; SELECT zk_lock_all('b', 'c'); RELEASE s");
is(held($a), join(',', map { "$_ exclusive transaction t 1" } qw(a b c)), 'RELEASE keeps it');
$sa->query('ROLLBACK');
ok_none('after ROLLBACK', qw(a b c));

# Modes
is($sa->query("SELECT zk_try_lock_all('{a,b}', 'shared', 'session')"), 't', 'readers');
is($sb->query("BEGIN; SELECT zk_try_lock_all('{b,c}', 'shared')"), 't', '... of several servers');
is($sa2->query("BEGIN; SELECT zk_try_lock_all('{a,b}', 'shared')"), 't', '... and sessions');
is($sb->query("SELECT zk_try_lock('a')"), 'f', 'no writer');
is($sa->fails("SELECT zk_lock_all('a', 'd')"), '55000: cannot acquire lock "a" in exclusive mode together with others', 'what is held to be read is not had to write in a set');
is($sa->query('SELECT zk_unlock_all()'), 2, 'the reader ends');
$sa->send("BEGIN; SELECT zk_lock_all('a', 'b', 'd')")->wait_level(1);
$_->query('COMMIT') for $sa2, $sb;
like($sa->result, qr/^\{/, 'a writer comes behind the readers');
is($sa2->query("SELECT zk_try_lock_all('{d,e}', 'shared')"), 'f', '... and no reader beside it');
$sa->query('COMMIT');
ok_none('after readers', qw(a b c d e));

# An exclusive hold covers a set that is to be read.
$sa->query("BEGIN; SELECT zk_lock('a')");
is($sa->query("SELECT zk_try_lock_all('{a,b}', 'shared')"), 't', 'an exclusive hold covers a shared one');
is(held($a), 'a exclusive transaction t 2,b shared transaction t 1', '... in its own mode');
$sa->query('COMMIT');

#
# Waiting
#
$sb->query("BEGIN; SELECT zk_lock('m')");
is($sa->query("SELECT zk_try_lock_all('{l,m,n}', timeout => '100 ms')"), 'f', 'a timeout is for the whole set');
ok_none('timed out', 'l', 'n');
$sa->query("SET lock_timeout = '100ms'");
is($sa->fails("SELECT zk_lock_all('l', 'm', 'n')"), '55P03: canceling statement due to lock timeout', 'lock_timeout');
$sa->query('RESET lock_timeout');
ok_none('after lock_timeout', 'l', 'n');
$sa->send("SELECT zk_lock_all('l', 'm', 'n')")->wait_level(2);
is(scalar(my @two = ZkLock::wait_queue($zk, 'm', 2)), 2, 'it queues');
# m may have had one of the call before for a moment longer than these
is(scalar(@{[ ZkLock::wait_queue($zk, $_, 1) ]}), 1, "... in $_, too") for 'l', 'n';
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_locks WHERE NOT granted'), 3, 'zk_locks of a set that waits');
my $waits;
ZkLock::wait_until(
	sub {
		ZkLock::ask($_, 'SELECT count(*) FROM zk_jobs') for @both; # a heartbeat
		# A may not have heard of the others yet
		($waits = ZkLock::ask($a, "SELECT string_agg(name, ',') FROM zk_waits WHERE pid = @{[ $sa->pid ]}")) eq 'm';
	},
	'zk_waits has it',
	sub { $waits });
pass('zk_waits names the one that is missing');
is($sa->cancel->failure, '57014: canceling statement due to user request', 'cancel');
ok_none('canceled', 'l', 'n');
$sa->send("BEGIN; SELECT zk_lock_all('l', 'm', 'n')")->wait_level(2);
ZkLock::wait_queue($zk, 'm', 2);
$sb->query('COMMIT');
like($sa->result, qr/^\{\d+,\d+,\d+\}$/, 'COMMIT of another server ends the wait');
$sa2->send("SELECT zk_lock_all('m', 'k')")->wait_level(1);
is($sa2->cancel->failure, '57014: canceling statement due to user request', 'cancel at level 1');
$sa2->send("SELECT zk_lock_all('m', 'k')")->wait_level(1);
$sa->query('COMMIT');
like($sa2->result, qr/^\{\d+,\d+\}$/, 'COMMIT of another session does, too');
ok_none('after waits', qw(k l m n));

# Foreign programs
my $path = $foreign->contend(ZkLock::directory('m'));
$sa->send("BEGIN; SELECT zk_lock_all('l', 'm')")->wait_level(2);
ZkLock::wait_queue($zk, 'm', 2);
$foreign->delete($path);
like($sa->result, qr/^\{/, 'a foreign contender ends');
my ($lost) = ZkLock::queue($zk, 'l');
$foreign->delete(ZkLock::directory('l') . "/$lost");
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM zk_locks WHERE grant_state = 'lost'") == 1 }, 'the loss is seen');
like($sa->fails('SELECT 1'), qr/^40001: lock "l" was lost/, 'one that is lost fails the transaction');
$sa->query('ROLLBACK');
ok_none('after a loss', 'l', 'm');

#
# Limits
#
like($sa->fails("SELECT zk_lock_all(VARIADIC array_agg('name ' || i)) FROM generate_series(1, 100000) i"),
	qr/^54000: cannot acquire 100000 locks in one step/, 'a hundred thousand names');
like($sa->fails("SELECT zk_lock_all(VARIADIC array_agg('name ' || i)) FROM generate_series(1, 65) i"), qr/^54000: cannot acquire 65 locks in one step/, 'more than the table has room for');
like($sb->fails("SELECT zk_lock_all(VARIADIC array_agg(repeat('%', 250) || i)) FROM generate_series(1, 1000) i"), qr/^54000: cannot acquire 1000 locks in one step/, 'more than a request has room for');
like($sa->query("SELECT array_length(zk_lock_all(VARIADIC array_agg('name ' || i)), 1) FROM generate_series(1, 50) i"), qr/^50$/, 'many');
$sa->query("BEGIN; SELECT zk_lock('a')");
like($sa2->fails("SELECT zk_lock_all(VARIADIC array_agg('name ' || i)) FROM generate_series(1, 64) i"), qr/^53200: zklock lock table is full/, 'no room');
$sa->query('COMMIT');
$sa->query("SET zklock.max_locks_per_backend = 3");
is($sa->fails("SELECT zk_lock_all('a', 'b', 'c', 'd')"), '53400: session holds too many zklock locks', 'zklock.max_locks_per_backend');
ZkLock::ok_clean($zk, \@both, 'name 64', 'after limits');

done_testing();
