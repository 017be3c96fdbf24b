# A loss and the protocol that drivers speak: what runs no statement raises none, who
# rolls back may, an acknowledgement works the first time, however it is sent, and
# whatever else runs is refused before it does anything.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Protocol3;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('a', $zk, conf => 'max_prepared_transactions = 2');
ZkLock::wait_connected($node);
ZkLock::ask($node, 'CREATE TABLE t (what text); CREATE SEQUENCE done; CREATE DATABASE victim;
	CREATE FUNCTION lose(lock_name text) RETURNS void LANGUAGE sql AS $$SELECT zk_break(lock_name, token) FROM zk_contenders(lock_name) WHERE ours$$');
my $c = Protocol3->new($node);

# Lose locks of our client; it has not noticed when this returns.
sub lose
{
	for my $name (@_)
	{
		ZkLock::ask($node, "SELECT lose('$name')");
		ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT bool_and(grant_state = 'lost') FROM zk_locks WHERE name = '$name'") eq 't' }, 'lost');
	}
}

# Take locks in session scope, and lose them.
sub lose_session
{
	$c->query("SELECT zk_lock('$_', scope => 'session')") =~ /idle/ or die for @_;
	lose(@_);
}

my $lost = sub { return "$_[0]: lock \"$_[1]\" was lost"; };
sub written { return ZkLock::ask($node, "SELECT string_agg(what, ' ') FROM t"); }

#
# Session scope: what acknowledges a loss, in each way of sending it
#

my %acknowledges = (
	"SELECT zk_unlock('job')" => 'row t, SELECT 1, idle',
	"SELECT * FROM zk_unlock('job')" => 'row t, SELECT 1, idle',
	"SELECT zk_unlock(name) FROM (VALUES ('job')) AS v (name)" => 'row t, SELECT 1, idle',
	"WITH u AS MATERIALIZED (SELECT zk_unlock('job') AS ok) SELECT ok FROM u" => 'row t, SELECT 1, idle',
	'SELECT zk_unlock_all()' => 'row 1, SELECT 1, idle',
	'DISCARD ALL' => 'DISCARD ALL, idle',
	'SELECT pg_advisory_unlock_all()' => 'row , SELECT 1, idle',
	"SELECT zk_lock('job', scope => 'session') > 0" => 'row t, SELECT 1, idle',
	"SELECT zk_try_lock('job', scope => 'session')" => 'row t, SELECT 1, idle',
	"CALL zk_lock_session('job')" => 'CALL, idle');
for my $sql (sort keys %acknowledges)
{
	my $done = $acknowledges{$sql};
	my %way = (
		simple => sub { return $c->query($sql) =~ s/^columns, //r; },
		extended => sub { return $c->run($sql)->sync =~ s/^parsed, bound, //r; },
		apart => sub {
			is($c->parse('', $sql)->sync, 'parsed, idle', "$sql, apart: Parse and Sync raise nothing");
			like($c->describe('S', '')->sync, qr/^parameters, (columns|no data), idle$/, '... nor does Describe');
			return $c->bind('', '')->execute('')->sync =~ s/^bound, //r;
		});
	for my $way (sort keys %way)
	{
		lose_session('job');
		is($c->sync, 'idle', "$sql, $way: Sync alone raises nothing");
		is($c->close('P', '')->close('S', 'none')->sync, 'closed, closed, idle', '... nor does Close');
		is($c->run("INSERT INTO t VALUES (\$\$$sql\$\$)")->sync, 'parsed, bound, ' . $lost->('55000', 'job') . ', idle', '... a statement is refused');
		is($c->query("INSERT INTO t VALUES (\$\$$sql\$\$)"), $lost->('55000', 'job') . ', idle', '... each time');
		is($way{$way}->(), $done, '... until it is acknowledged, which works the first time');
		is($c->query('SELECT 1'), 'columns, row 1, SELECT 1, idle', '... and then no more');
		$c->query('SELECT zk_unlock_all()');
	}
}
is(written(), '', 'nothing was written after a loss');

# As pool managers reset a connection
for my $reset (
	'SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL',
	'SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD SEQUENCES; DISCARD TEMP')
{
	lose_session('job');
	my $answer = $c->query($reset);
	is(join(', ', $answer =~ /\b\w{5}: .*/g), '', "a pool resets the connection: $reset");
	is($c->query('SELECT 1'), 'columns, row 1, SELECT 1, idle', '... which is as new');
}

# What else concerns nothing but the session goes on in between, a prepared
# acknowledgement works, too, and one that runs in a transaction of its own.
$c->query("PREPARE u AS SELECT zk_unlock('job')");
$c->query('PREPARE s AS SELECT 1');
lose_session('job');
is($c->query($_) =~ s/^columns, row .*?, //r, $_ =~ /^(\w+)/ && "$1, idle", $_) for 'SET work_mem = 100', 'SHOW work_mem', 'RESET work_mem';
is($c->query('EXECUTE s'), $lost->('55000', 'job') . ', idle', 'EXECUTE is as good as what it executes');
is($c->query('EXECUTE u'), 'columns, row t, SELECT 1, idle', '... which may be zk_unlock');
lose_session('job');
is($c->query('BEGIN'), 'BEGIN, in transaction', 'a driver begins a transaction');
is($c->query('SAVEPOINT s'), 'SAVEPOINT, in transaction', '... and a savepoint');
is($c->query("INSERT INTO t VALUES ('savepoint')"), $lost->('55000', 'job') . ', aborted', '... hears of the loss');
is($c->query('ROLLBACK TO s'), 'ROLLBACK, in transaction', '... goes back');
is($c->query("SELECT zk_unlock('job')"), 'columns, row t, SELECT 1, in transaction', '... acknowledges');
is($c->query("INSERT INTO t VALUES ('acknowledged')"), 'INSERT 0 1, in transaction', '... writes');
is($c->query('COMMIT'), 'COMMIT, idle', '... and commits');
is(written(), 'acknowledged', '... that');

# A loss that nothing has told of: the acknowledgement does.
my $told = 'WARNING 01000: lock "job" was lost';
for my $case ([ "SELECT zk_unlock('job')", "columns, $told, row t, SELECT 1, idle" ], [ 'SELECT zk_unlock_all()', "columns, $told, row 1, SELECT 1, idle" ],
	[ "SELECT zk_lock('job', scope => 'session') > 0", "columns, $told, row t, SELECT 1, idle" ], [ "CALL zk_lock_session('job')", "$told, CALL, idle" ],
	[ 'DISCARD ALL', 'DISCARD ALL, idle' ])
{
	my ($sql, $answer) = @$case;
	lose_session('job');
	is($c->query($sql), $answer, "a loss that was not told: $sql");
	like($c->notices, qr/^D: Another server may hold it by now\.$/m, '... and what that means') if $answer =~ /WARNING/;
	is($c->query('SELECT 1'), 'columns, row 1, SELECT 1, idle', '... and then no more of it');
	$c->query('SELECT zk_unlock_all()');
}
$c->query("SELECT zk_lock('job', scope => 'session')");
lose_session('job');
is($c->query("SELECT zk_unlock('job')"), "columns, $told, row t, SELECT 1, idle", 'of two holds the first one tells');
is($c->query("SELECT zk_unlock('job')"), 'columns, row t, SELECT 1, idle', '... and the other one need not');
lose_session('job');
is($c->query("SET zklock.on_loss = warn; SELECT 1"), "SET, $told, columns, row 1, SELECT 1, idle", 'a loss that is but a warning');
is($c->query("SELECT zk_unlock('job'); SET zklock.on_loss = abort"), 'columns, row t, SELECT 1, SET, idle', '... is told by it');

# Several
lose_session('a', 'b', 'c');
is($c->query("SELECT zk_unlock('a')"), 'columns, WARNING 01000: lock "a" was lost, row t, SELECT 1, idle', 'of several lost holds the first is acknowledged without an error');
like($c->query('SELECT 1'), qr/^55000: lock "[bc]" was lost, idle$/, '... the others are not yet');
like($c->query("SELECT zk_lock('b', scope => 'session') > 0"), qr/^columns, (WARNING 01000: lock "b" was lost, )?row t, SELECT 1, idle$/, '... one is taken anew');
is($c->query('SELECT 1'), $lost->('55000', 'c') . ', idle', '... and one is left');
is($c->run("SELECT zk_unlock('c')")->sync, 'parsed, bound, row t, SELECT 1, idle', '... for a moment');
is($c->query('SELECT zk_unlock_all()'), 'columns, row 1, SELECT 1, idle', '... and what was taken anew is held');
$c->query("SELECT zk_lock('job', scope => 'session')");
lose_session('job');
is($c->query("SELECT zk_unlock('job')"), "columns, $told, row t, SELECT 1, idle", 'of two holds of one lock one ends');
is($c->query('SELECT 1'), $lost->('55000', 'job') . ', idle', '... and the other is lost as before');
is($c->query("SELECT zk_unlock('job')"), 'columns, row t, SELECT 1, idle', '... until it ends');

# A transaction that has written in good faith cannot acknowledge, and so commit,
# what it wrote.
for my $sql ("SELECT zk_unlock('job')", 'SELECT zk_unlock_all()', 'SELECT pg_advisory_unlock_all()', "SELECT zk_lock('job')",
	q(DO $$DECLARE ok bool; BEGIN ok := zk_unlock('job'); END$$))
{
	$c->query("SELECT zk_lock('job', scope => 'session')");
	$c->query("BEGIN; INSERT INTO t VALUES ('in good faith')");
	lose('job');
	is($c->query($sql), $lost->('55000', 'job') . ', aborted', "a transaction that has written: $sql");
	is($c->query('COMMIT'), 'ROLLBACK, idle', '... rolls back first');
	is($c->query('SELECT zk_unlock_all()'), 'columns, row 1, SELECT 1, idle', '... and acknowledges then');
}
# Here no statement ends between the loss and the acknowledgement.
for my $call (qw(zk_unlock('job') zk_unlock_all() zk_lock('job') zk_try_lock('job')))
{
	$c->query("SELECT zk_lock('job', scope => 'session')");
	is($c->query("DO \$\$DECLARE x text; BEGIN INSERT INTO t VALUES ('in good faith'); PERFORM lose('job'); x := $call; END\$\$"),
		$lost->('55000', 'job') . ', idle', "... nor by an expression: $call");
	$c->query('SELECT zk_unlock_all()');
}
is(written(), 'acknowledged', 'nothing else was committed');

# A procedure whose next statement is refused may roll back, acknowledge, and go on.  A timer
# looks for losses, too: if it is the first to see this one, it cancels what runs, and the CALL
# ends, as it does when a user cancels it.
ZkLock::ask($node, q(CREATE PROCEDURE survive(meanwhile text) LANGUAGE plpgsql AS $$BEGIN
	PERFORM zk_lock('job', scope => 'session');
	COMMIT;
	BEGIN
		INSERT INTO t VALUES ('in good faith');
		EXECUTE meanwhile;
		PERFORM nextval('done');
	EXCEPTION WHEN object_not_in_prerequisite_state THEN
		RAISE NOTICE '%', SQLERRM;
	END;
	ROLLBACK;
	PERFORM zk_unlock('job');
	INSERT INTO t VALUES ('survived');
END$$));
my $survived;
for (1 .. 20)
{
	$survived = $c->query(q(CALL survive('SELECT lose(''job'')')));
	last if $survived ne $lost->('55000', 'job') . ', idle';
	is(written(), 'acknowledged', 'a procedure that was cancelled for a loss commits nothing');
	$c->query('SELECT zk_unlock_all()');
}
is($survived, 'NOTICE 00000: lock "job" was lost, CALL, idle', 'a procedure survives a loss before a statement');
is(written(), 'acknowledged survived', '... and does not commit what it wrote before');
ZkLock::ask($node, "DELETE FROM t WHERE what = 'survived'");
my $sleeper = ZkLock::session($node);
$sleeper->send("CALL survive('SELECT pg_sleep(3600)')")->wait_event('PgSleep');
lose('job');
is($sleeper->failure, $lost->('55000', 'job'), '... and a loss that cancels a statement ends it');
is(written(), 'acknowledged', '... and nothing is committed');
$sleeper->quit;

# The fast path runs no statement that could be refused; its commit can.
my %oid = map { $_ => ZkLock::ask($node, "SELECT '$_'::regproc::oid") } qw(txid_current zk_unlock_all);
lose_session('job');
is($c->call($oid{txid_current}) =~ s/^result \d+, //r, $lost->('55000', 'job') . ', idle', 'a call by the fast path is refused at its commit');
is($c->call($oid{zk_unlock_all}) =~ s/^result .*?, //sr, 'idle', '... or acknowledges');
is($c->query('SELECT 1'), 'columns, row 1, SELECT 1, idle', '... which is so');

#
# Transaction scope
#

# Take a lock by the extended protocol, in a transaction, and lose it.
sub lose_transaction
{
	$c->query($_) for 'BEGIN', @_;
	is($c->run("SELECT zk_lock('job') > 0")->sync, 'parsed, bound, row t, SELECT 1, in transaction', 'taken by the extended protocol');
	lose('job');
}
my $run = sub { my $sql = shift; return $c->run($sql)->sync; };
for my $end ([ 'ROLLBACK', 'ROLLBACK, idle' ], [ 'COMMIT', $lost->('40001', 'job') . ', idle' ],
	[ 'COMMIT AND CHAIN', $lost->('40001', 'job') . ', idle' ], [ 'ROLLBACK AND CHAIN', 'ROLLBACK, in transaction' ],
	[ "PREPARE TRANSACTION 'p'", '55000: cannot PREPARE a transaction that holds a zklock lock in transaction scope, idle' ])
{
	my ($sql, $answer) = @$end;
	lose_transaction();
	is($run->($sql), "parsed, bound, $answer", "$sql, the first time");
	$c->query('ROLLBACK');
	lose_transaction();
	is($c->query($sql), $answer, '... as a simple query');
	$c->query('ROLLBACK');
	lose_transaction();
	is($c->parse('e', $sql)->sync, 'parsed, in transaction', '... prepared apart');
	is($c->bind('', 'e')->execute('')->sync, "bound, $answer", '... and executed');
	$c->close('S', 'e')->sync;
	$c->query('ROLLBACK');
}
lose_transaction('SAVEPOINT s');
is($run->('ROLLBACK TO s'), 'parsed, bound, ROLLBACK, in transaction', 'ROLLBACK TO ends a lost hold');
is($run->("INSERT INTO t VALUES ('after')"), 'parsed, bound, INSERT 0 1, in transaction', '... the transaction goes on');
is($run->('COMMIT'), 'parsed, bound, COMMIT, idle', '... and commits');
is(written(), 'acknowledged after', '... what it has written since');
lose_transaction();
is($c->close('P', '')->close('S', '')->sync, 'closed, closed, in transaction', 'Close raises nothing');
is($c->parse('', 'SELECT 1')->describe('S', '')->sync, 'parsed, parameters, columns, in transaction', '... nor do Parse and Describe');
is($c->sync, 'in transaction', '... nor does Sync');
is($c->query('SET work_mem = 100'), 'SET, in transaction', '... nor a setting');
is($run->("SELECT zk_unlock('job')"), 'parsed, bound, ' . $lost->('40001', 'job') . ', aborted', 'nothing but the end of the transaction acknowledges it');
is($run->('ROLLBACK'), 'parsed, bound, ROLLBACK, idle', '... which works');

# Portals
$c->query("BEGIN; SELECT zk_lock('job')");
my $rows = "SELECT nextval('done') FROM generate_series(1, 9)";
is($c->parse('', $rows)->bind('p', '')->execute('p', 2)->sync, 'parsed, bound, row 1, row 2, suspended, in transaction', 'a portal is suspended');
is($c->parse('', $rows)->bind('q', '')->sync, 'parsed, bound, in transaction', 'another one has not begun');
lose('job');
is($c->describe('P', 'p')->sync, 'columns, in transaction', 'Describe raises nothing');
is($c->execute('p', 2)->execute('p', 2)->sync, $lost->('40001', 'job') . ', aborted', 'no more rows come from a suspended one');
is($c->query('ROLLBACK'), 'ROLLBACK, idle', '... the transaction can be rolled back');
$c->query("BEGIN; SELECT zk_lock('job')");
$c->parse('', $rows)->bind('p', '')->sync;
lose('job');
is($c->execute('p')->sync, $lost->('40001', 'job') . ', aborted', 'none comes from one that was bound before the loss');
$c->query('ROLLBACK');
$c->query("BEGIN; SELECT zk_lock('job'); DECLARE c CURSOR FOR $rows; FETCH c");
lose('job');
is($c->query('FETCH c'), $lost->('40001', 'job') . ', aborted', 'nor from a cursor');
$c->query('ROLLBACK');
is(ZkLock::ask($node, 'SELECT last_value FROM done'), 3, 'none was made');
$c->query("SELECT zk_lock('job', scope => 'session'); BEGIN");
$c->parse('', $rows)->bind('p', '')->execute('p', 2)->sync;
lose('job');
is($c->execute('p', 2)->sync, $lost->('55000', 'job') . ', aborted', 'the same in session scope');
is($c->query('ROLLBACK'), 'ROLLBACK, idle', '... which can be rolled back');
$c->query('SELECT zk_unlock_all()');

# Pipelines: one transaction up to Sync, and nothing of it
my $begun = sub {
	$c->run("SELECT zk_lock('job') > 0")->run("INSERT INTO t VALUES ('pipeline')");
	return $c->flush(7) eq 'parsed, bound, row t, SELECT 1, parsed, bound, INSERT 0 1';
};
ok($begun->(), 'a pipeline has written');
lose('job');
is($c->run("INSERT INTO t VALUES ('refused')")->run("INSERT INTO t VALUES ('skipped')")->sync, 'parsed, bound, ' . $lost->('40001', 'job') . ', idle',
	'... its next statement is refused, and the rest skipped');
ok($begun->(), 'another one has');
lose('job');
is($c->sync, $lost->('40001', 'job') . ', idle', '... and cannot commit');
# it may hear of that before it has sent the row
is($c->run("SELECT zk_lock('job') > 0")->run("SELECT lose('job')")->run('SELECT 1')->sync =~ s/row , //r,
	'parsed, bound, row t, SELECT 1, parsed, bound, ' . $lost->('40001', 'job') . ', idle', 'one ends with the statement during which the lock was lost');
lose_session('a', 'b');
is($c->run("SELECT zk_unlock('a')")->run("SELECT zk_unlock('b')")->run("INSERT INTO t VALUES ('unlocked')")->sync,
	'parsed, bound, WARNING 01000: lock "a" was lost, row t, SELECT 1, parsed, bound, WARNING 01000: lock "b" was lost, row t, SELECT 1, parsed, bound, INSERT 0 1, idle',
	'a pipeline acknowledges, too');
is(written(), 'acknowledged after unlocked', 'and nothing else was committed');

#
# What a rollback does not undo is refused before it runs
#

my $data = $node->data_dir;
my $prepared = ZkLock::session($node);
$prepared->query("BEGIN; INSERT INTO t VALUES ('prepared'); PREPARE TRANSACTION 'p'");
ZkLock::ask($node, 'CREATE EXTENSION dblink') if my $dblink = ZkLock::ask($node, "SELECT count(*) FROM pg_available_extensions WHERE name = 'dblink'");
my $connection = sprintf "host=%s port=%s dbname=postgres", $node->host, $node->port;
my $tablespace = PostgreSQL::Test::Utils::tempdir();
mkdir "$tablespace/$_" or die for qw(old new);
ZkLock::ask($node, "CREATE TABLESPACE old LOCATION '$tablespace/old'");
sub state_of_server
{
	my @database = sort map { s{.*/}{}r } glob "$data/base/*";
	return join "\n", "@database", (sort glob "$tablespace/*/*"), -e "$tablespace/program" ? 'program' : '', written(),
	  PostgreSQL::Test::Utils::slurp_file("$data/postgresql.auto.conf"),
	  ZkLock::ask($node, "SELECT string_agg(datname || datconnlimit, ' ' ORDER BY datname) FROM pg_database"),
	  ZkLock::ask($node, 'SELECT last_value FROM done'), ZkLock::ask($node, 'SELECT count(*) FROM pg_prepared_xacts'),
	  ZkLock::ask($node, "SELECT count(*) FROM pg_class WHERE relname ~ 'index' AND relnamespace = 'public'::regnamespace");
}
my $before = state_of_server();
my @effect = ('CREATE DATABASE another', 'DROP DATABASE victim', "CREATE TABLESPACE new LOCATION '$tablespace/new'", 'DROP TABLESPACE old',
	'ALTER SYSTEM SET work_mem = 100', 'VACUUM t', 'CREATE INDEX CONCURRENTLY an_index ON t (what)', "COMMIT PREPARED 'p'", "ROLLBACK PREPARED 'p'",
	"COPY t TO PROGRAM 'cat > $tablespace/program'", "SELECT nextval('done')", "INSERT INTO t VALUES (nextval('done'))",
	"EXPLAIN ANALYZE SELECT nextval('done')", q(DO $$BEGIN PERFORM nextval('done'); END$$),
	"CREATE TABLE another AS SELECT nextval('done')", "INSERT INTO t SELECT zk_unlock('job')::text",
	"WITH x AS (INSERT INTO t VALUES (nextval('done')) RETURNING 1) SELECT zk_unlock('job') FROM x", 'NOTIFY it', 'CHECKPOINT');
push @effect, "SELECT dblink_exec('$connection', 'INSERT INTO t VALUES (1)')" if $dblink;
lose_session('job');
for my $sql (@effect)
{
	is($c->query($sql), $lost->('55000', 'job') . ', idle', "refused: $sql");
	is($c->run($sql)->sync, 'parsed, bound, ' . $lost->('55000', 'job') . ', idle', '... by the extended protocol, too');
}
$c->query('SELECT zk_unlock_all()');
# The same within a function that was running when the lock was lost, and that has
# swallowed the first error
for my $scope ('session', 'transaction')
{
	my $state = $scope eq 'session' ? '55000' : '40001';
	is($c->query("DO \$\$BEGIN PERFORM zk_lock('job', scope => '$scope'); PERFORM lose('job');
		BEGIN PERFORM nextval('done'); EXCEPTION WHEN OTHERS THEN NULL; END; PERFORM nextval('done'); END\$\$"),
		$lost->($state, 'job') . ', idle', "$scope scope: within a function");
	$c->query('SELECT zk_unlock_all()');
}
is(state_of_server(), $before, 'none of them has done anything');
$prepared->query("ROLLBACK PREPARED 'p'");

# One that was running when the lock was lost has done it, and is not said to have
# failed.  Past the lease and not yet lost, a commit waits; this one cannot.
$node->append_conf('postgresql.conf', "zklock.session_timeout = '4s'");
$node->restart;
ZkLock::wait_connected($node);
$c = Protocol3->new($node);
my $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
$c->query("SELECT zk_lock('job', scope => 'session')");
ZkLock::stop_process($node, $worker);
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT lease_remaining = '0' FROM zk_session") eq 't' }, 'the lease lapses');
my $answer = $c->query('ALTER SYSTEM SET work_mem = 100');
note $answer;
is($answer =~ /55000/ ? 'refused' : 'done', state_of_server() eq $before ? 'refused' : 'done', 'a command that cannot be undone fails only if it did nothing');
like($c->query('SELECT 1'), qr/, idle$/, '... and the connection goes on');
ZkLock::wait_until(sub { $c->query('SELECT 1') eq $lost->('55000', 'job') . ', idle' }, 'lost');
kill 'CONT', $worker or die;
$c->query('SELECT zk_unlock_all()');
ZkLock::wait_connected($node);
ZkLock::ok_clean($zk, [$node], $_) for 'job', 'a';

done_testing();
