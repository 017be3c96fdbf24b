# Nobody is fooled: a worker is stopped for longer than the session timeout, the
# ensemble gives its server's locks to another, and every kind of holder hears
# of it in time, by its own clock.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(servers => 1)->start;
# It must not expire before the worker is stopped, on a machine that stands still for some seconds.
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '20s'");
my $b = ZkLock::server('b', $zk);
ZkLock::wait_connected($a, $b);
# For the pause at the end: the session after this one has more time, so that it lives.
ZkLock::ask($a, "ALTER SYSTEM SET zklock.session_timeout = '60s'");
ZkLock::ask($a, 'SELECT pg_reload_conf()');
ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /"zklock\.session_timeout" takes effect with the next/ }, 'the next session has another timeout');
ZkLock::ask($a, 'CREATE TABLE t (i int); CREATE TABLE slow (i int);
	CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(3600); RETURN NEW; END$$;
	CREATE TRIGGER slow BEFORE INSERT ON slow FOR EACH ROW EXECUTE FUNCTION slowly()');
my $sb = ZkLock::session($b);
my $lost = sub { my ($state, $name) = @_; return "$state: lock \"$name\" was lost"; };

# A name a holder, what it does while the lock is lost, and how it hears of it.
my %running = (
	sleep => 'SELECT pg_sleep(3600)',
	row => 'UPDATE t SET i = 2',
	trigger => 'INSERT INTO slow VALUES (1)',
	plpgsql => 'DO $$BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN OTHERS THEN NULL; END$$',
	handler => 'DO $$BEGIN BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; PERFORM pg_sleep(3600); END$$',
	lock => "SELECT zk_lock('taken')",
	asking => q(DO $$BEGIN LOOP PERFORM zk_token('asking'), pg_sleep(0.01); END LOOP; END$$),
	copy => "COPY (SELECT i, pg_sleep(0.01) FROM generate_series(1, 1000000) i) TO '/dev/null'",
	procedure => 'CALL pause()',
	expression => 'DO $$BEGIN IF pg_sleep(3600) IS NULL THEN END IF; END$$',
	table => 'LOCK TABLE locked',
	behind => "SELECT zk_lock('held here')",
	fetch => 'DECLARE c CURSOR FOR SELECT pg_sleep(3600); FETCH c',
	prepared => 'PREPARE p AS SELECT pg_sleep(3600); EXECUTE p',
	stdout => 'COPY (SELECT i, pg_sleep(0.01) FROM generate_series(1, 1000000) i) TO STDOUT',
	deferred => 'INSERT INTO deferred VALUES (1); COMMIT',
	interpreter => 'INSERT INTO deferred_too VALUES (1); COMMIT',
	analysis => 'SELECT * FROM locked',
);
ZkLock::ask($a, 'INSERT INTO t VALUES (1); CREATE PROCEDURE pause() LANGUAGE sql AS $$SELECT pg_sleep(3600)$$');
my $row = ZkLock::session($a);
$row->query('BEGIN; UPDATE t SET i = 1');
ZkLock::ask($a, 'CREATE TABLE locked (i int); CREATE TABLE deferred (i int); CREATE TABLE copied (i int);
	CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slowly();
	CREATE TABLE deferred_too (i int);
	CREATE FUNCTION slow_expression() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF pg_sleep(3600) IS NULL THEN END IF; RETURN NEW; END$$;
	CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON deferred_too DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow_expression()');
my $neighbour = ZkLock::session($a);
$neighbour->query("SELECT zk_lock('held here', scope => 'session'); BEGIN; LOCK TABLE locked");
$sb->query("SELECT zk_lock('taken', 'exclusive', 'session')");

my (%session, %token);
for my $name (sort(keys %running), 'idle', 'commit', 'token', 'again', 'rollback', 'warn', 'copy sends', 'copy ends')
{
	$session{$name} = ZkLock::session($a);
	$session{$name}->query("SET zklock.on_loss = warn") if $name eq 'warn';
	$session{$name}->query('BEGIN');
	$token{$name} = $session{$name}->query("SELECT zk_lock('$name')");
}
# Many, their timers out of step: one may be the first to see the loss.
my @doubter = map { ZkLock::session($a) } 1 .. 25;
$doubter[$_]->send("BEGIN; DO 'BEGIN PERFORM pg_sleep($_ * 0.008); END'; SELECT zk_lock('doubt', 'shared')") for 0 .. $#doubter;
$token{doubt} = $_->result for @doubter;
my $session = ZkLock::session($a);
$token{session} = $session->query("SELECT zk_lock('session', 'exclusive', 'session')");
my $discard = ZkLock::session($a);
$token{discard} = $discard->query("SELECT zk_lock('discard', 'exclusive', 'session')");
# psql speaks the simple protocol only
my $script = PostgreSQL::Test::Utils::tempdir() . '/script';
PostgreSQL::Test::Utils::append_to_file($script, "BEGIN;\nSELECT zk_lock('extended');\nSELECT pg_sleep(3600);\n");
my $output = '';
my $pgbench = IPC::Run::start([ qw(pgbench -n -M prepared -t 1 --verbose-errors -f), $script, '-h', $a->host, '-p', $a->port, 'postgres' ],
	'<', \'', '>&', \$output, IPC::Run::timeout($ZkLock::timeout, exception => 'pgbench has not ended in time'));
ZkLock::wait_until(sub { $token{extended} = ZkLock::ask($a, "SELECT token FROM zk_locks WHERE name = 'extended'") }, 'pgbench has a lock');
my $waiter = ZkLock::session($a)->send("SELECT zk_lock('taken')");
$waiter->wait_level(2);
# its place is lost with the session, too
ZkLock::wait_queue($zk, 'taken', 2);
$session{$_}->send($running{$_}) for sort keys %running;

# Clients that are silent in the middle of a COPY FROM STDIN: they wait for data
# from a pipe of ours.
my %pipe;
for my $name ('copy sends', 'copy ends')
{
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$name";
	POSIX::mkfifo($file, 0600) or die "$file: $!";
	$session{$name}->send("\\copy copied FROM '$file'");
	open $pipe{$name}, '>', $file or die "$file: $!";
	ZkLock::wait_until(sub { state_of($name) eq 'active ClientRead' }, 'the server waits for data');
}
sub state_of { return ZkLock::ask($a, "SELECT concat_ws(' ', state, wait_event) FROM pg_stat_activity WHERE pid = " . $session{ $_[0] }->pid); }

my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
ZkLock::stop_process($a, $worker);
# It waits for the verdict, or has had it.
my $in_doubt = "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $session{asking}->pid;
ZkLock::wait_until(sub { !$session{asking}->busy || ZkLock::ask($a, $in_doubt) eq 't' }, 'the lease has lapsed');
$doubter[$_]->send("DO 'BEGIN PERFORM pg_sleep($_ * 0.002); END'; COMMIT") for 0 .. $#doubter;

# The other server's clock starts with its own grant: by then every claim of the
# first server must be false.  A commit is the claim that matters.
for my $name (sort keys %token)
{
	my $new = $sb->query("SELECT zk_lock('$name', 'exclusive', 'session')");
	cmp_ok($new, '>', $token{$name}, "$name: the other server has it, with a larger token");
}
is($session{commit}->fails('COMMIT'), $lost->('40001', 'commit'), 'COMMIT fails, the worker still stopped');
is(join(', ', grep { $_ ne $lost->('40001', 'doubt') } map { $_->failure } @doubter), '', 'so does every one that waited for the verdict');
is($session{token}->fails("SELECT zk_token('token')"), $lost->('40001', 'token'), 'so does zk_token');
is($session{again}->fails("SELECT zk_lock('again')"), $lost->('40001', 'again'), 'and zk_lock of the same name');
is($session{idle}->fails('SELECT 1'), $lost->('40001', 'idle'), 'an idle transaction hears of it at its next statement');
is($session{rollback}->query('ROLLBACK; SELECT 1'), 1, 'ROLLBACK is always allowed');
is($session{$_}->failure, $lost->('40001', $_), "$_: the running statement is cancelled") for sort keys %running;
$pgbench->finish;
like($output, qr/ERROR:  lock "extended" was lost/, 'extended: the running statement is cancelled');
for my $name (sort keys %pipe)
{
	# its timer wakes it for a moment, now and then
	ZkLock::wait_until(sub { state_of($name) eq 'active ClientRead' }, "$name waits for data", sub { state_of($name) });
	pass("$name: a silent client is not disturbed");
}
# Its timer may not have seen the loss yet: what comes before that is taken.
ZkLock::wait_until(
	sub {
		syswrite $pipe{'copy sends'}, "1\n" x 30000;
		state_of('copy sends') =~ /^idle in transaction \(aborted\)/;
	},
	'the data are refused', sub { state_of('copy sends') });
for my $name (sort keys %pipe)
{
	close $pipe{$name};
	is($session{$name}->failure, $lost->('40001', $name), "$name: and hears of it");
	is($session{$name}->query('ROLLBACK; SELECT pg_backend_pid()'), $session{$name}->pid, '... on a connection that goes on');
}
is(ZkLock::ask($a, 'SELECT count(*) FROM copied'), 0, '... and nothing was copied');
is($session{warn}->query('SELECT 1'), 1, 'zklock.on_loss = warn: the statement goes on');
is(scalar(() = $session{warn}->notices =~ /lock "warn" was lost/g), 1, '... with a warning, one');
is($session{warn}->fails('COMMIT'), '', '... and so does the commit');
is($session->fails('SELECT 1'), $lost->('55000', 'session'), 'session scope: the next statement fails');
is($session->fails('SELECT 2'), $lost->('55000', 'session'), '... and the next');
# ... which may take as long as it likes: the timer that ends statements spares it
is($session->query("SELECT zk_unlock('session') FROM (SELECT count(*) FROM generate_series(1, 3000000)) AS s"), 't', '... until it is acknowledged');
is($session->query('SELECT 3'), '3', '... and then no more');
is($discard->fails('SELECT 1'), $lost->('55000', 'discard'), 'session scope: the same');
$discard->query('DISCARD ALL');
is($discard->query('SELECT 4'), '4', '... DISCARD ALL acknowledges, too');
ok($waiter->busy, 'a waiter waits on');

kill 'CONT', $worker or die;
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT state = 'connected' AND last_error ~ 'expired' FROM zk_session") eq 't' },
	'the first server has a new session');
$sb->query('SELECT zk_unlock_all()');
like($waiter->result, qr/^\d+$/, '... and gets it in its turn, on the new session');
like($session->query("SELECT zk_lock('session')"), qr/^\d+$/, 'the first server can lock again');
$row->query('ROLLBACK');
$neighbour->quit;
ZkLock::ok_clean($zk, [ $a, $b ], $_) for sort(keys %token), 'taken';

# Shorter than the lease: a pause is nothing but a pause.  A commit that meets a
# lapsed lease waits for the verdict, which here is a good one.
my $holder = ZkLock::session($a);
$holder->query("BEGIN; SELECT zk_lock('pause')");
$zk->pause(1);
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT state <> 'connected' FROM zk_session") eq 't' }, 'the ensemble is silent');
$holder->send('COMMIT');
$zk->resume(1);
is($holder->result, '', 'a commit waits for the verdict');
ZkLock::wait_connected($a, $b);
ZkLock::ok_clean($zk, [ $a, $b ], 'pause');

done_testing();
