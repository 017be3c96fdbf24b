# A job runs once a slot, on whichever server comes first; the others wait for it, and go
# on with what it leaves.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Jobs ();
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'") } qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (i int); CREATE SEQUENCE s') for $a, $b;
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;
my $gate = Jobs::Gate->new($a);

sub rows { return ZkLock::ask($_[0], 'SELECT count(*) FROM t'); }
sub state { return ZkLock::ask($a, "SELECT state FROM zk_jobs WHERE job = '$_[0]'"); }

# Once over both
is($sa->query("CALL zk_run_once('daily', 'INSERT INTO t VALUES (1)', $Jobs::daily)"), '', 'the first who comes runs it');
is($sa->notices, '', '... and says nothing');
is(rows($a), 1, '... and it has committed');
is($sb->query("CALL zk_run_once('daily', 'INSERT INTO t VALUES (1)', $Jobs::daily)"), '', 'the second does not');
like($sb->notices, qr/^NOTICE 00000: job "daily" is done for slot .*, skipping\nDETAIL:  Server "a" ended the run at /, '... and says who did');
is(rows($b), 0, '... and has run nothing');
is($sa->query("CALL zk_run_once('daily', 'INSERT INTO t VALUES (1)', $Jobs::daily)"), '', 'nor does the first again');
is(rows($a), 1, '... in the same slot');
is(ZkLock::ask($b, "SELECT job, state, server, attempt, failures, error, slot = last_done, next_due - slot, since - slot BETWEEN '12 h' AND '24 h' FROM zk_jobs"),
	'daily|done|a|1|0||t|1 day|t', 'zk_jobs');
is(ZkLock::ask($b, "SELECT jsonb_array_length(runs), runs->0->>'state', runs->0->>'server', (runs->0->>'slot')::timestamptz = slot FROM zk_jobs"), '1|done|a|t', '... with runs');
is(ZkLock::ask($a, "SELECT kind, namespace, name, slot = (SELECT slot FROM zk_jobs), number, attempt, server, outcome, error FROM zk_runs"),
	'job||daily|t|1|1|a|done|', 'zk_runs');
is(ZkLock::ask($a, 'SELECT xmin = (SELECT xmin FROM t) FROM zk_runs'), 't', '... in the transaction of the command');
is(ZkLock::ask($b, 'SELECT count(*) FROM zk_runs'), 0, '... where it was run');

# Slots that are given
is($sa->query("CALL zk_run_once('given', 'INSERT INTO t VALUES (2)', slot => '2026-01-02')"), '', 'a slot');
is(rows($a), 2, '... is run');
$sb->query("CALL zk_run_once('given', 'INSERT INTO t VALUES (2)', slot => '2026-01-02')");
$sb->query("CALL zk_run_once('given', 'INSERT INTO t VALUES (2)', slot => '2026-01-01')");
is(rows($b), 0, '... and neither again nor one before it');
$sb->query("CALL zk_run_once('given', 'INSERT INTO t VALUES (2)', slot => '2026-01-03')");
is(rows($b), 1, '... but one after it');

# Waiters
my $ra = ZkLock::session($a);
my $ra2 = ZkLock::session($a);
$gate->stand($ra, "CALL zk_run_once('waited', 'INSERT INTO t VALUES (3); $Jobs::at_gate', slot => '2026-01-01')");
is(state('waited'), 'running', 'running');
$sb->send("CALL zk_run_once('waited', 'INSERT INTO t VALUES (3)', slot => '2026-01-01')")->wait_event('Extension');
$ra2->send("CALL zk_run_once('waited', 'INSERT INTO t VALUES (3)', slot => '2026-01-01')")->wait_event('Lock');
is(ZkLock::ask($_, "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND query LIKE '%waited%' AND pid <> pg_backend_pid() AND wait_event <> 'advisory' AND pid <> " . $ra->pid), 0, '... without a snapshot') for $a, $b;
my $sb2 = ZkLock::session($b);
my $skips = qq{NOTICE 00000: job "waited" is being run by server "a", skipping};
for my $s ($sb2, ZkLock::session($a))
{
	is($s->query("CALL zk_run_once('waited', 'SELECT 1/0', slot => '2026-01-01', timeout => '0')"), '', 'who would not wait skips it, without an error');
	is($s->notices, $skips, '... and is told who runs it');
	is($s->query("SELECT zk_run_begin('waited', slot => '2026-01-01', timeout => '0')"), 'f', '... with zk_run_begin, too');
	is($s->notices, $skips, '... in the same words');
	is($s->query("CALL zk_run_begin_session('waited', slot => '2026-01-01', timeout => '0')"), 'f', '... and zk_run_begin_session');
	is($s->notices, $skips, '... in the same words');
}
is($sb2->fails("CALL zk_run_once('waited', 'SELECT 1', slot => '2026-01-01', timeout => '20 ms')"), '55P03: could not obtain job "waited" within 20 ms', 'who waits for a while is told when it is over');
is($sb2->fails("SELECT zk_job_forget('waited')"), '55006: job "waited" is running, or a session waits for it', 'no forgetting meanwhile');
$gate->open;
is($ra->result, '', 'it ends');
is($_->result, '', '... and a waiter returns') for $sb, $ra2;
like($_->notices, qr/is done for slot/, '... and says why') for $sb, $ra2;
is(rows($a) . rows($b), '31', '... once');

# Errors
is($sa->fails("CALL zk_run_once('failing', 'INSERT INTO t VALUES (4); SELECT 1/0', slot => '2026-01-01', attempts => 2)"), '22012: division by zero', 'an error is raised as it is');
is(rows($a), 3, '... and the command is rolled back');
is(ZkLock::ask($b, "SELECT state, server, attempt, failures, error FROM zk_jobs WHERE job = 'failing'"), 'failed|a|1|1|division by zero', '... and recorded');
is(ZkLock::ask($a, "SELECT outcome, error FROM zk_runs WHERE name = 'failing'"), 'failed|division by zero', '... also in zk_runs');
is($sb->fails("CALL zk_run_once('failing', 'SELECT no()', slot => '2026-01-01', attempts => 2)"), '42883: function no() does not exist', 'an attempt is left');
is($sb->fails("CALL zk_run_once('failing', 'SELECT 1', slot => '2026-01-01', attempts => 2)"), '55000: job "failing" has failed for slot 2026-01-01 00:00:00+00', 'no attempt is left') or diag $sb->notices;
like($sb->notices, qr/DETAIL:  Attempt 2 on server "b" failed at .*: function no\(\) does not exist\nHINT:  Use SELECT zk_job_reset\('failing', '2026-01-01 00:00:00\+00', attempt => 2\) to have it run again\./, '... and why');
is(ZkLock::ask($a, "SELECT zk_job_reset('failing', '2026-01-01')"), 't', 'a reset');
$sa->query("CALL zk_run_once('failing', 'INSERT INTO t VALUES (4)', slot => '2026-01-01', attempts => 2)");
is(rows($a), 4, '... makes the slot due again');

# Waiters go on where a run has failed
$gate->stand($ra, "CALL zk_run_once('goes on', '$Jobs::at_gate; SELECT 1/0', slot => '2026-01-01', attempts => 2)");
$sb->send("CALL zk_run_once('goes on', 'INSERT INTO t VALUES (5)', slot => '2026-01-01', attempts => 2)")->wait_event('Extension');
$gate->open;
is($ra->failure, '22012: division by zero', 'it fails');
is($sb->result, '', '... and the other server runs it');
is(rows($b), 2, '... indeed');

# A cancel is a failure; the end of the backend is none.
$gate->stand($ra, "CALL zk_run_once('killed', 'INSERT INTO t VALUES (6); $Jobs::at_gate', slot => '2026-01-01')");
$ra->cancel;
is($ra->failure, '57014: canceling statement due to user request', 'canceled');
is(ZkLock::ask($a, "SELECT state, failures FROM zk_jobs WHERE job = 'killed'"), 'failed|1', '... has failed');
ZkLock::ask($a, "SELECT zk_job_reset('killed', '2026-01-01')");
$gate->stand($ra, "CALL zk_run_once('killed', 'INSERT INTO t VALUES (6); $Jobs::at_gate', slot => '2026-01-01')");
$sb->send("CALL zk_run_once('killed', 'INSERT INTO t VALUES (6)', slot => '2026-01-01')")->wait_event('Extension');
$ra->terminate;
like($ra->failure, qr/^57P01/, 'terminated');
is($sb->result, '', '... another runs it');
is(rows($a) . rows($b), '43', '... and there it is');
is(ZkLock::ask($b, "SELECT state, server, attempt, failures, runs->1->>'state', runs->1->>'server' FROM zk_jobs WHERE job = 'killed'"), 'done|b|3|0|lost|a', '... after a run that was lost');
$gate->open;

# What fails late fails before the run commits
ZkLock::ask($a, "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''late''; END'; CREATE TABLE l (i int);"
	. "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON l DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()");
is($sa->fails("CALL zk_run_once('late', 'INSERT INTO l VALUES (1)', slot => '2026-01-01')"), 'P0001: late', 'a deferred trigger');
is(ZkLock::ask($a, "SELECT state, error FROM zk_jobs WHERE job = 'late'"), 'failed|late', '... fails the run');

# What a command may not
is($sa->fails("CALL zk_run_once('bad 1', 'COMMIT', slot => '2026-01-01')"), '2D000: the command of zk_run_once must not end the transaction', 'COMMIT');
is($sa->fails("CALL zk_run_once('bad 2', 'DO \$\$BEGIN COMMIT; END\$\$', slot => '2026-01-01')"), '2D000: invalid transaction termination', '... within');
like($sa->fails("CALL zk_run_once('bad 3', 'VACUUM', slot => '2026-01-01')"), qr/^25001: /, 'VACUUM');
is($sa->fails("CALL zk_run_once('bad 4', 'COPY t TO STDOUT', slot => '2026-01-01')"), '0A000: the command of zk_run_once cannot COPY to or from the client', 'COPY');
$sa->query("CALL zk_run_once('unlocks', 'SELECT pg_advisory_unlock_all(); SELECT zk_unlock_all(); INSERT INTO t VALUES (7)', slot => '2026-01-01')");
is(rows($a), 5, 'a command that gives back all that it can runs');
is($sa->fails("BEGIN; CALL zk_run_once('block', 'SELECT 1', slot => '2026-01-01')"), '25001: zk_run_once cannot run inside a transaction block', 'no transaction block');
$sa->query('ROLLBACK');

# Begin and end
is($sa->query("SELECT zk_run_begin('own', slot => '2026-01-01')"), 't', 'zk_run_begin: to run it');
$sa->query('VACUUM t');
is($sa->fails("SELECT zk_run_begin('own', slot => '2026-01-01')"), '55006: this session runs job "own" already', '... once at a time');
is(state('own'), 'running', '... and running');
$sb->send("CALL zk_run_begin_session('own', slot => '2026-01-01')")->wait_event('Extension');
is($sa->query("SELECT zk_run_end('own')"), 't', 'zk_run_end');
is($sb->result, 'f', '... and the other has nothing to do');
is($sa->query("SELECT zk_run_end('own')"), 'f', 'what was ended has ended');
like($sa->notices, qr/^WARNING 55000: this session has not begun a run of job "own"/, '... with a warning');
is($sb->query("CALL zk_run_begin_session('own', slot => '2026-01-02')"), 't', 'the next slot');
is($sb->query("SELECT zk_run_end('own', false)"), 't', '... fails');
is(ZkLock::ask($a, "SELECT state, failures FROM zk_jobs WHERE job = 'own'"), 'failed|1', '... as it says');
is($sa->query("SELECT zk_run_begin('own', slot => '2026-01-02', attempts => 3)"), 't', 'another attempt');
$sb->send("SELECT zk_run_begin('own', slot => '2026-01-02', attempts => 3)")->wait_event('Extension');
$sa->quit;
is($sb->result, 't', '... and has to run it when the session has ended without a word');
is($sb->query("SELECT zk_run_end('own')"), 't', '... and does');
$sa = ZkLock::session($a);

# By hand
is($sb->query("SELECT zk_job_forget('own'), zk_job_forget('own'), zk_job_forget('never was')"), 't|f|f', 'forgotten');
is(ZkLock::ask($a, "SELECT count(*) FROM zk_jobs WHERE job = 'own'"), 0, '... and not seen any more');
is($sb->query("SELECT zk_job_reset('never was')"), 'f', 'nothing to reset');
is(ZkLock::ask($a, "SELECT zk_job_reset('daily')"), 't', 'reset what was done last');
$sb->query("CALL zk_run_once('daily', 'INSERT INTO t VALUES (1)', $Jobs::daily)");
is(rows($b), 4, '... and it is run again');

# One who has the job and does not run it
$sa->query("BEGIN; SELECT zk_job_forget('given')");
$sb->query("CALL zk_run_once('given', 'SELECT 1/0', slot => '2026-01-05', timeout => '0')");
is($sb->notices, 'NOTICE 00000: job "given" is held by another session, skipping', 'somebody has the job, and runs nothing');
$sa->query('COMMIT');

# Rubbish
$zk->set('/zklock/jobs/given', '{"count": 1');
is(ZkLock::ask($a, "SELECT state, slot IS NULL FROM zk_jobs WHERE job = 'given'"), 'damaged|t', 'a damaged record');
is($sa->fails("CALL zk_run_once('given', 'SELECT 1', slot => '2026-01-05')"), '22023: record of job "given" in ZooKeeper is damaged', '... is refused');
is($sa->query("SELECT zk_job_forget('given')"), 't', '... until it is forgotten');
$sa->query("CALL zk_run_once('given', 'INSERT INTO t VALUES (2)', slot => '2026-01-05')");
is(rows($a), 6, '... and then it runs');

# What a server has done itself it knows by its own table
$zk->set('/zklock/jobs/given', '');
$sa->query("CALL zk_run_once('given', 'INSERT INTO t VALUES (2)', slot => '2026-01-05')");
is(rows($a), 6, 'a record that is lost');
is(ZkLock::ask($b, "SELECT last_done, slot IS NULL FROM zk_jobs WHERE job = 'given'"), '2026-01-05 00:00:00+00|t', '... is made anew from what is known');

# A thousand
$sb->query(q{DO $$BEGIN FOR i IN 1 .. 1000 LOOP CALL zk_run_once('thousand ' || i, 'INSERT INTO t VALUES (' || 1000 + i || ')', every => '1 ms'); END LOOP; END$$});
is(ZkLock::ask($a, "SELECT count(*), count(DISTINCT slot) > 1, bool_and(state = 'done' AND server = 'b') FROM zk_jobs WHERE job LIKE 'thousand%'"), '1000|t|t', 'a thousand jobs');
is(ZkLock::ask($b, 'SELECT count(DISTINCT i) FROM t WHERE i > 1000'), 1000, '... have been run');
is(ZkLock::ask($b, "SELECT zk_job_forget(job) FROM zk_jobs WHERE job = 'thousand 7'"), 't', '... and one is forgotten');
is(ZkLock::ask($a, "SELECT count(*) FROM zk_jobs WHERE job LIKE 'thousand%'"), 999, '... among them');

# Nothing is left
ZkLock::wait_until(
	sub { !grep { ZkLock::ask($_, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1") } $a, $b },
	'no job is held');
is(join(' ', map { ZkLock::queue($zk, $_, 'jobs') } qw(daily given waited killed own)), '', 'no contender is left');
like(PostgreSQL::Test::Utils::slurp_file($a->logfile), qr/LOG:  job "daily": run 1 begins for slot .*, attempt 1, token \d+\n.*LOG:  job "daily": run 1 is done after \d+ ms\n/s, 'the log says it');

# To another root, as doc/settings.md says it: first where the slot was run
my $slot = "slot => '2026-02-01'";
is(ZkLock::ask($_, "CALL zk_run_once('moves', 'INSERT INTO t VALUES (9)', $slot); SELECT count(*) FROM t WHERE i = 9"), $_ == $a ? 1 : 0, 'a slot before the servers move') for $a, $b;
my $last = ZkLock::ask($b, "SELECT server FROM zk_jobs WHERE job = 'moves'");
is($last, 'a', '... has the server that ran it last');
$_->stop for $a, $b;
for my $node ($a, $b)
{
	$node->append_conf('postgresql.conf', "zklock.root = '/moved'");
	$node->start;
}
is(ZkLock::ask($_, "CALL zk_run_once('moves', 'INSERT INTO t VALUES (9)', $slot); SELECT count(*) FROM t WHERE i = 9"), $_ == $a ? 1 : 0, '... and is not run again under another root') for $a, $b;
is(ZkLock::ask($b, 'SELECT job FROM zk_jobs'), 'moves', '... where the record is made anew');

done_testing;
