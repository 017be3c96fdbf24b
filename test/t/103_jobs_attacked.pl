# Commands of jobs that do what they had better not, drivers, roles that mean harm,
# records of other people's making, and hands in the record while a run goes on: no slot is
# committed twice or lost, and nothing is left.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(rows record);
use Test::More;
use Protocol3;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my ($a, $b) = map {
	ZkLock::server($_, $zk, init => { allows_streaming => 1 },
		conf => "max_connections = 40\nzklock.session_timeout = '1h'\ncluster_name = '$_'\nsynchronous_commit = local\n"
		  # a standby that is not there holds up a commit that asks for it
		  . "synchronous_standby_names = 'nobody'\nmax_prepared_transactions = 2\nmax_locks_per_transaction = 200")
} qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;
my ($ra, $rb) = map { ZkLock::session($_) } $a, $b;
my $gate = Jobs::Gate->new($a);
my $slot = "slot => '2026-01-01'";

sub call { my ($job, $command, $more) = @_; return "CALL zk_run_once('$job', \$job\$INSERT INTO t VALUES ('$job'); $command\$job\$, $slot" . ($more // '') . ')'; }

#
# Commands that are done all the same
#
my $n = 0;
ZkLock::ask($a, 'CREATE ROLE weak');
for my $command ('SET ROLE weak', 'SET LOCAL ROLE weak', 'SET SESSION AUTHORIZATION weak', "SET LOCAL lock_timeout = '1ms'", "SET LOCAL statement_timeout = '1ms'",
	"SET lock_timeout = '1ms'", "SET search_path = ''", "SET LOCAL zklock.on_loss = warn", "SET zklock.namespace = 'elsewhere'",
	'SELECT zk_unlock_all()', 'SELECT pg_advisory_unlock_all()', 'SET TRANSACTION READ ONLY', 'SET CONSTRAINTS ALL DEFERRED', 'LISTEN x; NOTIFY x; UNLISTEN *',
	"DECLARE c CURSOR WITH HOLD FOR SELECT 1", 'LOCK zk_runs IN ACCESS EXCLUSIVE MODE', "SET LOCAL default_transaction_read_only = on",
	'SET synchronous_commit = off', "SET client_encoding = 'LATIN1'", 'CREATE TEMPORARY TABLE x (i int) ON COMMIT DROP', "SELECT zk_lock('x'), zk_lock('y', scope => 'session')",
	'DEALLOCATE ALL', 'CLOSE ALL', 'DISCARD PLANS', 'SELECT pg_reload_conf()', 'SELECT zk_run_end(\'done %d\')', "ALTER EXTENSION zklock SET SCHEMA other")
{
	my $job = 'done ' . ++$n;
	my $what = sprintf $command, $n;
	my $s = ZkLock::session($a);
	ZkLock::ask($a, 'CREATE SCHEMA other') if $what =~ /other/;
	is($s->fails(call($job, $what)), '', "done: $what") or diag $s->notices;
	$s->query('RESET ROLE; RESET SESSION AUTHORIZATION; RESET ALL; SELECT 1');
	ZkLock::ask($a, 'ALTER EXTENSION zklock SET SCHEMA public') if $what =~ /other/;
	is(join('|', rows($a, $job), record($b, $job), ZkLock::ask($a, "SELECT outcome FROM zk_runs WHERE name = '$job'")), '1|done|a|1|0|done', '... and told');
	$s->quit;
}

#
# ... and that are not, and so have failed
#
$n = 0;
for my $case ([ 'DISCARD ALL', '25001' ], [ "PREPARE TRANSACTION 'p'", '2D000' ], [ 'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE', '25001' ],
	[ "CALL zk_run_once('inner', 'SELECT 1', $slot)", '25001' ], [ "CALL zk_run_begin_session('inner', $slot)", '25001' ],
	[ "DO \$\$BEGIN CALL zk_run_once('inner', 'SELECT 1', $slot); END\$\$", '25001' ],
	[ 'DROP EXTENSION zklock', '55000' ], [ 'DROP EXTENSION zklock CASCADE', '55000' ], [ 'ALTER TABLE zk_runs ADD CHECK (token > 0)', '55000' ],
	[ 'ALTER EXTENSION zklock DROP TABLE zk_runs', '55000' ], [ "SELECT zk_run_begin('failed %d', $slot)", '55006' ], ["SELECT zk_job_forget('failed %d')", '55006' ],
	[ 'CREATE INDEX CONCURRENTLY ON t (job)', '25001' ], [ 'BEGIN', '2D000' ], [ 'ROLLBACK AND CHAIN', '2D000' ], [ 'COMMIT; SELECT 1', '2D000' ])
{
	my ($command, $state) = @$case;
	my $job = 'failed ' . ++$n;
	$command = sprintf $command, $n;
	my $s = ZkLock::session($a);
	like($s->fails(call($job, $command)), qr/^$state: /, "fails: $command") or diag $s->notices;
	is(join('|', rows($a, $job), record($b, $job), ZkLock::ask($a, "SELECT outcome FROM zk_runs WHERE name = '$job'")), '0|failed|a|1|1|failed', '... and told');
	$s->quit;
}
is(ZkLock::ask($a, "SELECT count(*) FROM zk_jobs WHERE job = 'inner'"), 0, 'no job within a job');

# Other isolation levels; a commit that fails although all has been done
for my $level ('repeatable read', 'serializable')
{
	my $s = ZkLock::session($a);
	$s->query("SET default_transaction_isolation = '$level'");
	$s->query(call($level, 'SELECT count(*) FROM t'));
	is(rows($a, $level) . record($b, $level), '1done|a|1|0', $level);
	$s->fails(call("$level, fails", 'SELECT 1/0'));
	is(record($b, "$level, fails"), 'failed|a|1|1', '... and a failure');
}
ZkLock::ask($a, "CREATE TABLE skew (i int, n int); INSERT INTO skew VALUES (1, 0), (2, 0)");
{
	my $s = ZkLock::session($a);
	my $other = ZkLock::session($a);
	$s->query("SET default_transaction_isolation = 'serializable'");
	$other->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(n) FROM skew; UPDATE skew SET n = 1 WHERE i = 1');
	$gate->stand($s, call('skew', "SELECT sum(n) FROM skew; UPDATE skew SET n = 1 WHERE i = 2; $Jobs::at_gate"));
	$other->query('COMMIT');
	$gate->open;
	like($s->failure, qr/^40001: could not serialize/, 'a serialization failure');
	is(rows($a, 'skew') . record($b, 'skew'), '0failed|a|1|1', '... has failed');
	$s->fails(call('skew', 'SELECT 1', ', attempts => 2'));
	is(rows($a, 'skew') . record($b, 'skew'), '1done|a|2|1', '... and another attempt is made');
}
# At the commit itself
ZkLock::ask($a, "CREATE FUNCTION bad() RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''held''; END'");
is($ra->fails(call('held', 'DECLARE c CURSOR WITH HOLD FOR SELECT bad()')), 'P0001: held', 'a commit that fails');
is(rows($a, 'held') . record($b, 'held'), '0failed|a|1|1', '... has failed');
is($rb->fails(call('held', 'SELECT 1', ', attempts => 2')), '', '... and another attempt is made');
is(rows($b, 'held') . record($b, 'held'), '1done|b|2|1', '... elsewhere');

# A commit that waits for a standby, and is not let wait: it has been done.
{
	my $s = ZkLock::session($a);
	$s->query('SET synchronous_commit = on');
	$s->send(call('standby', 'SELECT 1', ", in_doubt => 'skip'"))->wait_event('SyncRep');
	is(record($b, 'standby'), 'running|a|1|0', 'a commit that waits for a standby');
	is($s->cancel->failure, '', '... is canceled');
	like($s->notices, qr/^WARNING 01000: canceling wait for synchronous replication/, '... with a warning');
	is(rows($a, 'standby') . record($b, 'standby'), '1done|a|1|0', '... and is done');
}

# Two databases of a server at the same time
ZkLock::ask($a, 'CREATE DATABASE other');
my $other = ZkLock::session($a, dbname => 'other');
$other->query('CREATE EXTENSION zklock; CREATE TABLE t (job text)');
$gate->stand($ra, call('databases', $Jobs::at_gate));
$other->send(call('databases', 'SELECT 1'));
$gate->open;
is($_->failure, '', 'two databases') for $ra, $other;
is($other->query("SELECT count(*) FROM t") . rows($a, 'databases'), '01', '... run it once');
$gate->stand($ra, call('databases fail', "$Jobs::at_gate; SELECT 1/0", ', attempts => 2'));
$other->send(call('databases fail', 'SELECT 1', ', attempts => 2'));
$gate->open;
is($ra->failure . $other->failure, '22012: division by zero', '... and if it fails in one, it is run in the other');
is($other->query("SELECT count(*) FROM t") . rows($a, 'databases fail'), '10', '... once');

# In loops, with cursors
is($ra->fails("DO \$\$DECLARE r record; BEGIN FOR r IN SELECT i FROM generate_series(1, 3) i LOOP CALL zk_run_once('loop ' || r.i, 'INSERT INTO t VALUES (''loop'')', $slot); END LOOP; END\$\$"), '', 'called in a loop');
is(rows($a, 'loop'), 3, '... three times');
like($ra->fails("DO \$\$DECLARE r record; BEGIN FOR r IN SELECT i FROM generate_series(1, 3) i LOOP CALL zk_run_once('bad loop ' || r.i, 'SELECT 1/0', $slot); END LOOP; END\$\$"), qr/^22012/, 'an error in a loop');
like($ra->fails("DO \$\$BEGIN CALL zk_run_once('block', 'SELECT 1', $slot); EXCEPTION WHEN OTHERS THEN RAISE; END\$\$"), qr/^(?:2D000|25001): /, 'not in a block with exceptions');
is(ZkLock::ask($a, "SELECT count(*) FROM zk_jobs WHERE job = 'block'"), 0, '... which does not begin');

ZkLock::ok_clean($zk, [ $a, $b ], 'held', 'after all these commands');

#
# Drivers
#
{
	my $c = Protocol3->new($a);
	my $sql = sub { "CALL zk_run_once('$_[0]', 'INSERT INTO t VALUES (''$_[0]'')', $slot)" };
	# PostgreSQL's minor releases speak of a pipeline in different words.
	my $told = sub { $_[0] =~ s/cannot be executed within a pipeline/cannot run inside a transaction block/r };
	is($c->run($sql->('extended'))->sync, 'parsed, bound, CALL, idle', 'the extended protocol');
	is($c->parse('s', 'CALL zk_run_once($1, $2, slot => $3)')->bind('', 's', 'parameters', "INSERT INTO t VALUES ('parameters')", '2026-01-01')->describe('P', '')->execute('')->sync,
		'parsed, bound, no data, CALL, idle', '... with parameters');
	like($c->bind('', 's', 'parameters', "INSERT INTO t VALUES ('parameters')", '2026-01-01')->execute('')->sync, qr/^bound, NOTICE 00000: job "parameters" is done for slot .*, skipping, CALL, idle$/, '... and again');
	like($c->bind('', 's', 'fails', 'SELECT 1/0', '2026-01-01')->execute('')->sync, qr/^bound, 22012: division by zero, idle$/, '... and a failure');
	is(rows($a, 'extended') . rows($a, 'parameters'), '11', '... once each');
	is($told->($c->run("INSERT INTO t VALUES ('before')")->run($sql->('pipelined'))->sync), 'parsed, bound, INSERT 0 1, parsed, bound, 25001: zk_run_once cannot run inside a transaction block, idle', 'a pipeline with a statement before it');
	is(rows($a, 'before') . rows($a, 'pipelined'), '00', '... does nothing');
	is($c->run($sql->('first'))->run("INSERT INTO t VALUES ('after')")->run('SELECT 1/0')->sync, 'parsed, bound, CALL, parsed, bound, INSERT 0 1, parsed, 22012: division by zero, idle', 'one that begins with it');
	is(rows($a, 'first') . rows($a, 'after'), '10', '... is a transaction after it');
	is($told->($c->run($sql->('one'))->run($sql->('two'))->sync), 'parsed, bound, CALL, parsed, bound, 25001: zk_run_once cannot run inside a transaction block, idle', 'two in a pipeline');
	is(rows($a, 'one') . rows($a, 'two'), '10', '... are not one transaction');
	$c->query('BEGIN');
	is($c->run($sql->('autocommit off'))->sync, 'parsed, bound, 25001: zk_run_once cannot run inside a transaction block, aborted', 'with autocommit off');
	$c->query('ROLLBACK');
	is($c->query("SELECT 1; " . $sql->('simple')), 'columns, row 1, SELECT 1, 25001: zk_run_once cannot run inside a transaction block, idle', 'in one simple query with others');
	is($c->run("CALL zk_run_begin_session('own', $slot)")->sync, 'parsed, bound, row t, CALL, idle', 'zk_run_begin_session');
	is($c->parse('', "SELECT zk_run_end('own')")->bind('', '')->execute('', 1)->sync, 'parsed, bound, row t, suspended, idle', 'zk_run_end, suspended');
	is(record($b, 'own'), 'done|a|1|0', '... is told');
	$c->terminate;
}

#
# Roles that mean harm
#
ZkLock::ask($a, $_) for 'CREATE ROLE batch LOGIN', 'CREATE ROLE evil LOGIN', 'GRANT EXECUTE ON PROCEDURE zk_run_once, zk_run_begin_session TO batch, evil',
  'GRANT EXECUTE ON FUNCTION zk_run_begin, zk_run_end TO batch, evil', 'GRANT INSERT ON t TO batch', 'CREATE SCHEMA evil AUTHORIZATION evil', 'GRANT CREATE ON SCHEMA public TO evil';
my $batch = ZkLock::session($a, user => 'batch');
my $evil = ZkLock::session($a, user => 'evil');
# What others would run with the rights of whoever comes by
$evil->query($_) for 'CREATE TABLE evil.log (who text)', 'GRANT INSERT ON evil.log TO PUBLIC', 'GRANT USAGE ON SCHEMA evil TO PUBLIC',
  "CREATE FUNCTION evil.trap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO evil.log VALUES (current_user); RETURN NEW; END'",
  'CREATE TABLE evil.zk_runs (kind text, namespace text, name text, slot timestamptz, number bigint, attempt integer, token bigint, server text, started timestamptz, ended timestamptz, outcome text, error text)',
  'CREATE TRIGGER trap BEFORE INSERT ON evil.zk_runs FOR EACH ROW EXECUTE FUNCTION evil.trap()',
  'GRANT ALL ON evil.zk_runs TO PUBLIC',
  "CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN INSERT INTO evil.log VALUES (current_user); RETURN true; END'",
  'CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq)',
  "CREATE FUNCTION evil.get_relname_relid(text, oid) RETURNS oid LANGUAGE plpgsql AS 'BEGIN INSERT INTO evil.log VALUES (current_user); RETURN 0; END'";
like(ZkLock::session($a, user => 'evil')->fails($_), qr/^42501: /, "not for who may run jobs: $_")
  for "INSERT INTO public.zk_runs (kind) VALUES ('job')", 'DELETE FROM public.zk_runs', 'SELECT * FROM public.zk_runs', 'TRUNCATE public.zk_runs', 'BEGIN; LOCK public.zk_runs IN ACCESS EXCLUSIVE MODE',
  'CREATE TRIGGER trap BEFORE INSERT ON public.zk_runs FOR EACH ROW EXECUTE FUNCTION evil.trap()', 'CREATE INDEX ON public.zk_runs (token)', 'CREATE RULE r AS ON INSERT TO public.zk_runs DO INSTEAD NOTHING',
  'ALTER TABLE public.zk_runs ADD COLUMN i int', 'CREATE TABLE child () INHERITS (public.zk_runs)', 'CREATE POLICY p ON public.zk_runs', 'CREATE STATISTICS st ON kind, name FROM public.zk_runs';
for my $path ('evil, pg_catalog, public', 'evil, public', 'pg_temp, evil, public')
{
	$batch->query("SET search_path = $path");
	is($batch->fails("CALL public.zk_run_once('path $path', 'INSERT INTO public.t VALUES (''path'')', $slot)"), '', "search_path $path");
}
is(ZkLock::ask($a, 'SELECT count(*) FROM evil.log') . rows($a, 'path'), '03', '... runs nobody else\'s code');
is(ZkLock::ask($a, "SELECT count(*) FROM zk_runs WHERE name LIKE 'path %'") . ZkLock::ask($a, 'SELECT count(*) FROM evil.zk_runs'), '30', '... and it is the extension\'s table that remembers it');
# A function with the rights of its owner, which has a job run
$evil->query("CREATE PROCEDURE evil.lend() LANGUAGE plpgsql SECURITY DEFINER AS \$\$BEGIN CALL public.zk_run_once('lent', 'SELECT 1', $slot); END\$\$");
like($batch->fails('CALL evil.lend()'), qr/^25001: /, 'not in a SECURITY DEFINER procedure');
# A command has the rights of its caller, afterwards, too
is($evil->fails("CALL zk_run_once('rights', 'SET ROLE postgres', $slot)") =~ s/:.*//r, ZkLock::ask($a, "SELECT count(*) FROM pg_roles WHERE rolname = 'postgres'") ? '42501' : '22023', 'no other rights than the caller\'s');
like($evil->fails("CALL zk_run_once('rights 2', 'INSERT INTO t VALUES (1)', $slot)"), qr/^42501: permission denied for table t/, '... of tables neither');
$batch->query('RESET search_path');
# What others' commands have said
$batch->fails("CALL zk_run_once('secret', 'SELECT ''the secret''::int', $slot)");
is($evil->fails("CALL zk_run_once('secret', 'SELECT 1', $slot)"), '55000: job "secret" has failed for slot 2026-01-01 00:00:00+00', 'a job of somebody else that has failed');
like($evil->notices, qr/^DETAIL:  Attempt 1 on server "a" failed at [^a-z]*\.$/m, '... does not tell his secrets');
$ra->fails("CALL zk_run_once('secret', 'SELECT 1', $slot)");
like($ra->notices, qr/^DETAIL:  Attempt 1 on server "a" failed at .*: invalid input syntax for type integer: "the secret"$/m, '... but to those who may see them');

#
# What others write into the record
#
my $rubbish_slot = "slot => '2026-01-02'";
my $good = do { $ra->query("CALL zk_run_once('rubbish', 'INSERT INTO t VALUES (''rubbish'')', $slot)"); $zk->get('/zklock/jobs/rubbish') };
my %rubbish = ('any bytes' => join('', map { chr } 0 .. 255), 'zeroes' => "\0" x 100, 'a megabyte' => 'x' x 1000000, 'a megabyte of blanks' => $good . ' ' x 1000000,
	'deep nesting' => '[' x 500000, 'deep nesting of objects' => '{"a":' x 100000, 'deep nesting in one that is good' => $good =~ s/\}\s*$/', "x": ' . '[' x 10000 . ']' x 10000 . '}'/er,
	'a later version' => $good =~ s/"done"/"paused"/r, 'half of it' => substr($good, 0, length($good) / 2),
	'no object' => '[]', 'null' => 'null', 'a number' => '1', 'an empty object' => '{}', 'a count that is none' => $good =~ s/"count": \d+/"count": 1e400/r,
	'a count below 0' => $good =~ s/"count": \d+/"count": -1/r, 'a huge count' => $good =~ s/"count": \d+/"count": 99999999999999999999999/r,
	'a huge slot' => $good =~ s/"slot": \d+/"slot": 9223372036854775807/r, 'another state' => $good =~ s/"done"/"dome"/r, 'a state that is none' => $good =~ s/"done"/7/r,
	'more after it' => "$good$good", 'half a character' => $good =~ s/"server": "a"/"server": "\xc3"/r, 'half a surrogate' => $good =~ s/"server": "a"/"server": "\\ud800"/r,
	'a NUL' => $good =~ s/"server": "a"/"server": "\\u0000"/r, 'less than all' => $good =~ s/"last_done": \d+, //r);
for my $what (sort keys %rubbish)
{
	next if $rubbish{$what} eq $good;
	$zk->set('/zklock/jobs/rubbish', $rubbish{$what});
	is(ZkLock::ask($a, "SELECT state FROM zk_jobs WHERE job = 'rubbish'"), 'damaged', "a record of $what");
	is($ra->fails("CALL zk_run_once('rubbish', 'INSERT INTO t VALUES (''rubbish'')', $rubbish_slot)"), '22023: record of job "rubbish" in ZooKeeper is damaged', '... is refused');
	is($zk->get('/zklock/jobs/rubbish'), $rubbish{$what}, '... and left as it is');
}
# ... of a version to come: nobody here touches it
my $newer_is = '55000: record of job "rubbish" in ZooKeeper is of a newer version of zklock';
my %newer = (2 => $good =~ s/"version": 1/"version": 2/r, 17 => '{"version": 17, "count": "many"}');
for my $version (sort keys %newer)
{
	my $newer = $newer{$version};
	$zk->set('/zklock/jobs/rubbish', $newer);
	is(ZkLock::ask($a, "SELECT state FROM zk_jobs WHERE job = 'rubbish'"), 'newer version', 'a record of a newer version');
	is($ra->fails($_), $newer_is, "... is refused: $_")
	  for "CALL zk_run_once('rubbish', 'INSERT INTO t VALUES (''rubbish'')', $rubbish_slot)", "SELECT zk_job_reset('rubbish')", "SELECT zk_job_forget('rubbish')";
	like($ra->notices, qr/^DETAIL:  The record has version $version, and this server knows version 1\.$/m, '... which is said');
	is($zk->get('/zklock/jobs/rubbish'), $newer, '... and left as it is');
}
$zk->set('/zklock/jobs/rubbish', $good =~ s/"version": 1, //r);
is(ZkLock::ask($a, "SELECT state FROM zk_jobs WHERE job = 'rubbish'"), 'damaged', '... one without a version is none');
is(scalar(grep { $rubbish{$_} eq $good } keys %rubbish), 0, '... each of them was another one');
is(ZkLock::ask($a, "SELECT zk_job_forget('rubbish')"), 't', 'it can be forgotten');
is($ra->fails("CALL zk_run_once('rubbish', 'INSERT INTO t VALUES (''rubbish'')', $rubbish_slot)"), '', '... and is run again');
is(rows($a, 'rubbish'), 2, '... once');
# ... while it runs
$gate->stand($ra, call('rubbish', $Jobs::at_gate) =~ s/2026-01-01/2026-01-03/r);
$zk->set('/zklock/jobs/rubbish', '{"count"');
$gate->open;
is($ra->failure, '22023: record of job "rubbish" in ZooKeeper is damaged', 'damaged while it runs');
like($ra->notices, qr/WARNING 01000: the end of a run of job "rubbish" could not be recorded/, '... nothing can be recorded');
is(rows($a, 'rubbish'), 2, '... and it does not commit');
ZkLock::wait_queue($zk, 'rubbish', 0, 'jobs'); # its server has the job until it has seen that
is(ZkLock::ask($a, "SELECT zk_job_forget('rubbish')"), 't', '... it can be forgotten');
$rb->query(call('rubbish', 'SELECT 1') =~ s/2026-01-01/2026-01-03/r);
is(rows($b, 'rubbish'), 1, '... and run');

#
# Hands in the record while a run goes on
#
sub delete_all { my $job = shift; $zk->delete("/zklock/jobs/$job/$_") for $zk->children("/zklock/jobs/$job"); $zk->delete("/zklock/jobs/$job"); }
$gate->stand($ra, call('deleted', $Jobs::at_gate));
delete_all('deleted');
is($ra->failure, '40001: job "deleted" was lost', 'a znode that is deleted while a run goes on');
$gate->open;
is(rows($a, 'deleted'), 0, '... does not commit');
$rb->query(call('deleted', 'SELECT 1'));
is(rows($b, 'deleted') . record($b, 'deleted'), '1done|b|1|0', '... and is run elsewhere');

$gate->stand($ra, call('reset', $Jobs::at_gate));
is(ZkLock::ask($b, "SELECT zk_job_reset('reset', '2026-01-01')"), 't', 'reset while a run goes on');
is(ZkLock::session($b)->fails("SELECT zk_job_forget('reset')"), '55006: job "reset" is running, or a session waits for it', '... but not forgotten');
$gate->open;
is($ra->result, '', '... the run goes on');
$rb->query(call('reset', 'SELECT 1'));
is(rows($a, 'reset') . rows($b, 'reset'), '11', '... and is made once more');
$rb->query(call('reset', 'SELECT 1'));
is(rows($a, 'reset') . rows($b, 'reset'), '11', '... but no oftener');

# zk_run_end tells what has been done, not what may be rolled back yet
is($ra->query("BEGIN; SELECT zk_run_begin('rolled back', $slot)"), 't', 'a run in a transaction block');
my $said = $ra->fails("INSERT INTO t VALUES ('rolled back'); SELECT zk_run_end('rolled back')");
$ra->query('ROLLBACK');
isnt(record($b, 'rolled back'), 'done|a|1|0', '... is not said to be done when it was rolled back') or diag $said;
$ra->fails("SELECT zk_run_end('rolled back', false)");

# Someone's index does not tell another latest slot
ZkLock::ask($a, $_) for 'CREATE INDEX others ON zk_runs (kind, namespace, name, slot DESC)', 'CREATE INDEX others_too ON zk_runs USING brin (ended)', 'REINDEX INDEX CONCURRENTLY zk_runs_slot', 'REINDEX INDEX CONCURRENTLY zk_runs_ended';
for my $day (1 .. 3) { is($ra->fails("CALL zk_run_once('index', 'INSERT INTO t VALUES (''index'')', slot => '2026-01-0$day')"), '', "with indexes of others, day $day"); }
$zk->set('/zklock/jobs/index', '');
is($ra->fails("CALL zk_run_once('index', 'INSERT INTO t VALUES (''index'')', slot => '2026-01-02')"), '', 'a record that is lost');
is(rows($a, 'index'), 3, '... and a slot that is done is not run again');
ZkLock::ask($a, 'DROP INDEX others, others_too');

ZkLock::ok_clean($zk, [ $a, $b ], 'reset', 'after all');
unlike(PostgreSQL::Test::Utils::slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal/, 'no bad line in the log of ' . $_->name) for $a, $b;

done_testing();
