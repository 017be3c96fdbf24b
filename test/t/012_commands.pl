# Commands that wait for snapshots or commit inside; databases and encodings;
# places where zklock must not be used.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, init => { allows_streaming => 1 },
	conf => "max_connections = 50\ndeadlock_timeout = '50ms'\nautovacuum = off");
my $b = ZkLock::server('b', $zk);
my @both = ($a, $b);

#
# The holder's CREATE INDEX CONCURRENTLY goes through while others wait
#
my $holder = ZkLock::session($a);
my $foreign = $zk->client;
$holder->query('CREATE TABLE t (x int); INSERT INTO t SELECT generate_series(1, 100)');
$holder->query("CALL zk_lock_session('migration')");
my $near = ZkLock::session($a)->send("CALL zk_lock_session('migration')")->wait_level(1);
my $far = ZkLock::session($b)->send("CALL zk_lock_session('migration')")->wait_level(2);
ZkLock::wait_queue($zk, 'migration', 2);
my $path = $foreign->contend(ZkLock::directory('other'));
my $other = ZkLock::session($a)->send("CALL zk_lock_session('other')")->wait_level(2);
is($holder->query('CREATE INDEX CONCURRENTLY ON t (x); SELECT 1'), 1,
	'CREATE INDEX CONCURRENTLY beside waiters in CALL at levels 1 and 2');
is($holder->query("REINDEX TABLE CONCURRENTLY t; SELECT zk_token('migration') > 0"), 't', 'REINDEX, too, and session scope outlives both');
ok($near->busy && $far->busy && $other->busy, 'they wait on');

# That is the procedure's merit: a function's snapshot is waited for.
my $function = ZkLock::session($a)->send("SELECT zk_lock('other')")->wait_level(1);
$holder->send('CREATE INDEX CONCURRENTLY again ON t (x)');
$holder->wait_event('virtualxid');
$function->cancel->failure;
$holder->result;
ok(1, 'a waiter in SELECT zk_lock holds it up');
# ... and where it waits for the holder itself, one of the two gives way
$function = ZkLock::session($a)->send("SELECT zk_lock('migration')")->wait_level(1);
$holder->send('CREATE INDEX CONCURRENTLY third ON t (x)');
my $victim;
ZkLock::wait_until(
	sub {
		# first: one may fail, and the other go on, between two looks
		my $both = !$holder->busy && !$function->busy;
		($victim) = grep { !$_->busy && $_->failure ne '' } $holder, $function;
		return $victim || $both;
	},
	'one of the two gives way');
is($victim && $victim->failure, '40P01: deadlock detected', '... a deadlock, and detected');
# the lock is the session's: a holder whose command failed has it still
$function->cancel if $function->busy;
$_->failure for $holder, $function;

$foreign->delete($path);
$other->result;
is($holder->query("SELECT zk_unlock('migration')"), 't', 'unlocked');
# The one behind in the same server queues anew, so the other server is first.
$far->result;
ok($near->busy, 'one after the other');
$far->query("SELECT zk_unlock('migration')");
$near->result;
is($near->query("SELECT zk_unlock('migration')"), 't', '... each has had it');
$other->query("SELECT zk_unlock('other')");
ZkLock::ok_clean($zk, \@both, 'migration');
ZkLock::ok_clean($zk, \@both, 'other');

# Commands that commit inside end transaction scope there.
$holder->query(q{
	CREATE FUNCTION locking(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
	BEGIN
		-- from 17 on these commands set a safe search_path
		PERFORM public.zk_lock('inside'), public.zk_lock('session', scope => 'session');
		RAISE NOTICE 'locked';
		RETURN i;
	END $$});
$holder->query('DELETE FROM t WHERE x > 1; VACUUM t');
my $old = ZkLock::session($a);
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$holder->send('CREATE INDEX CONCURRENTLY on_function ON t (public.locking(x))');
$holder->wait_event('virtualxid');
is(ZkLock::ask($a, "SELECT string_agg(name, ',') FROM zk_locks"), 'session', 'CREATE INDEX CONCURRENTLY ends transaction scope in its course');
$old->query('COMMIT');
$holder->result;
like($holder->notices, qr/locked/, '... it had locked');
$holder->query('SELECT zk_unlock_all(); DROP INDEX on_function; CREATE INDEX ON t (public.locking(x))');
$holder->query('SELECT zk_unlock_all(); VACUUM ANALYZE t');
like($holder->notices, qr/locked/, 'ANALYZE locks');
is(ZkLock::ask($a, "SELECT string_agg(name, ',') FROM zk_locks"), 'session', '... and VACUUM ANALYZE has given it up at its end');
$holder->query('SELECT zk_unlock_all(); DROP TABLE t');
ZkLock::ok_clean($zk, \@both, 'inside', 'after VACUUM');

#
# Databases and encodings
#
ZkLock::ask($a, "CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'");
ZkLock::ask($a, "CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'");
my $utf8 = $holder;
my $latin1 = ZkLock::session($a, dbname => 'latin1');
my $ascii = ZkLock::session($a, dbname => 'ascii');
$_->query('CREATE EXTENSION zklock') for $latin1, $ascii;
is($utf8->query('SHOW server_encoding'), 'UTF8', 'a database in UTF-8');
is($latin1->query('SHOW server_encoding'), 'LATIN1', '... and one in LATIN1');

$utf8->query("BEGIN; SELECT zk_lock('grüße')");
is($latin1->query("SELECT zk_try_lock('grüße')"), 'f', 'the same lock in both');
is($ascii->query("SELECT zk_try_lock('grüße')"), 'f', '... and in SQL_ASCII, by its bytes');
is($latin1->query('SELECT name FROM zk_locks'), 'grüße', 'zk_locks shows it');
is(scalar(my @queue = ZkLock::queue($zk, 'grüße')), 1, 'its directory has UTF-8\'s name');
$latin1->query('BEGIN');
$latin1->send("SELECT zk_lock('grüße')")->wait_level(1);
ok($latin1->busy, 'a backend in another database waits at level 1');
$utf8->query('COMMIT');
$latin1->result;
is($utf8->query("SELECT zk_try_lock('grüße')"), 'f', '... and excludes in its turn');
is($utf8->query('SELECT name FROM zk_locks'), 'grüße', 'zk_locks of the other');
$latin1->query('COMMIT');

$utf8->query("BEGIN; SELECT zk_lock('日本 50%'), zk_lock('€')");
is($latin1->query('SELECT name FROM zk_locks ORDER BY 1'), "%E2%82%AC\n%E6%97%A5%E6%9C%AC 50%25",
	'what the encoding lacks is percent-encoded in zk_locks');
is($utf8->query('SELECT count(*) FROM zk_locks'), 2, '... and only there');
is($utf8->query("SELECT name FROM zk_locks WHERE name LIKE '日%'"), '日本 50%', '... of that database');
$utf8->query('COMMIT');
is($latin1->query("SELECT zk_lock(repeat('é', 127)) > 0"), 't', '254 bytes in UTF-8');
is($latin1->fails("SELECT zk_lock(repeat('é', 128))"), '22023: lock name is too long', '256 bytes in UTF-8, if 128 here');
like($latin1->notices, qr/256 bytes in UTF-8/, '... and the detail says so');
is($latin1->fails("SELECT zk_unlock('é')"), '', 'a warning with such a name');
like($latin1->notices, qr/WARNING 55000: .* "é"/, '... comes as it was written');
like($ascii->fails("SELECT zk_lock(E'\\377')"), qr/^22021: invalid byte sequence for encoding "UTF8"/, 'SQL_ASCII: no UTF-8, no name');
ZkLock::ok_clean($zk, \@both, 'grüße', 'after encodings');

# A database that is dropped does not matter.
$ascii->query("SELECT zk_lock('job', scope => 'session')");
is($latin1->query("SELECT zk_try_lock('job')"), 'f', 'a third database excludes');
$_->send("SELECT zk_lock('job')")->wait_level(1) for $latin1, $utf8;
$ascii->quit;
ok($_->result, '... until its session ends') for $latin1, $utf8;
is(ZkLock::ask($a, 'DROP DATABASE ascii; SELECT 1'), 1, 'DROP DATABASE');

#
# Where it must not be used
#
my $walsender = ZkLock::session($a, options => 'replication=database');
is($walsender->fails("SELECT zk_lock('job')"), '55000: cannot use zklock in a replication connection', 'in a walsender');
like($walsender->notices, qr/HINT/, '... with a hint');
is($walsender->fails("SELECT zk_unlock_all()"), '55000: cannot use zklock in a replication connection', '... nor any other function');
$_->quit for $walsender, $holder, $near, $other, $latin1, $function;
ZkLock::hang_up($a);

# Not preloaded: everything about the extension works but its functions.
$a->append_conf('postgresql.conf', "shared_preload_libraries = ''\nzklock.connect_timeout = '3s'\nzklock.max_locks = 20");
$a->restart;
my $session = ZkLock::session($a);
is($session->query("LOAD 'zklock'; SHOW zklock.connect_timeout"), '3s', 'not preloaded: LOAD');
like($session->notices, qr/^$/, '... without a warning');
$session->query('DROP EXTENSION zklock; CREATE EXTENSION zklock');
ok(1, 'CREATE EXTENSION');
for my $sql ("SELECT zk_lock('job')", "SELECT zk_try_lock('job')", "SELECT zk_unlock('job')", 'SELECT zk_unlock_all()',
	"SELECT zk_token('job')", "CALL zk_lock_session('job')", 'SELECT * FROM zk_locks', 'SELECT * FROM zk_session',
	"SELECT zk_contenders('job')", 'SELECT * FROM zk_servers', 'SELECT zk_lock_dirs()', "SELECT zk_break('job', 1)", 'SELECT * FROM zk_stat', 'SELECT * FROM zk_stat_locks', 'SELECT zk_stat_reset()')
{
	is($session->fails($sql), '55000: zklock must be loaded via shared_preload_libraries', $sql);
	like($session->notices, qr/^HINT:  Add zklock to "shared_preload_libraries" and restart the server\.$/m, '... with a hint');
}
is($session->query("DISCARD ALL; BEGIN; SAVEPOINT s; ROLLBACK TO s; COMMIT; SELECT 1"), 1, 'and all else goes on');
$a->command_ok([ 'pg_dump', '-f', '/dev/null', $a->connstr('postgres') ], 'pg_dump');

done_testing();
