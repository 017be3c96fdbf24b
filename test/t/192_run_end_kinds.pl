# zk_run_end and the kinds of work that it does not see in the transaction of its own: of a session
# that has given the job up, what is prepared, and what was rolled back by a call for the run itself.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(rows record runs);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = 'a'\nmax_prepared_transactions = 2");
ZkLock::wait_connected($a);
ZkLock::ask($a, 'CREATE TABLE t (job text PRIMARY KEY)');
ZkLock::ask($a, 'CREATE TABLE remote (job text)');
my $slot = "slot => '2026-01-01'";
my $s = ZkLock::session($a);

sub begin { my ($job) = @_; is($s->query("SELECT zk_run_begin('$job', $slot, attempts => 99)"), 't', "$job: begun"); return; }
sub is_not_done { my ($job, $what) = @_; is($s->fails("SELECT zk_run_end('$job')"), "55000: the run of job \"$job\" is not done", "$what: the run is not done"); return; }
sub goes_on { my ($job, $what) = @_; unlike(runs($a, $job), qr/^done/, "$what: the record does not say so, either"); return; }

# The session says how the run ended: done, after another transaction that did commit.
sub ends { my ($job, $what) = @_; is($s->query("SELECT zk_run_end('$job')"), 't', "$what: it ends"); like(runs($a, $job), qr/^done a/, '... and is done'); return; }

#
# The job was given up: work that was rolled back is none all the same
#
my $twice = "INSERT INTO t VALUES ('x'), ('x')";
my @fail = ($twice, 'SELECT 1/0', 'SELECT nothing', 'VACUUM nothing', "BEGIN; INSERT INTO t VALUES ('x'); ROLLBACK", "DO \$\$BEGIN COMMIT; $twice; END\$\$");
for my $reset ('DISCARD ALL', 'SELECT pg_advisory_unlock_all()')
{
	my $job = $reset;
	for my $sql (@fail)
	{
		begin($job);
		$s->query($reset);
		$s->fails($sql);
		is_not_done($job, "$reset; $sql");
		like($s->notices, qr/^DETAIL:  The latest transaction of this session was rolled back\.\nHINT:  Repeat it, or use SELECT zk_run_end\('\Q$job\E', ok => false\)\.$/m, '... as it says');
		goes_on($job, "$reset; $sql");
		$s->query($reset); # a pooler, behind each transaction
		is_not_done($job, '... nor after another reset');
		is($s->query("SELECT zk_run_end('$job', ok => false)"), 't', '... but has failed');
		like($s->notices, qr/^WARNING 01000: job "\Q$job\E" was given up before its run ended$/m, '... and the job was given up');
	}
	begin($job);
	$s->query("BEGIN; INSERT INTO t VALUES ('x'); $reset") if $reset !~ /DISCARD/; # it was given up in the transaction itself
	$s->fails('SELECT 1/0') if $reset !~ /DISCARD/;
	$s->fails('ROLLBACK; ' . ($reset =~ /DISCARD/ ? $reset : ''));
	$s->fails($twice) if $reset =~ /DISCARD/;
	is_not_done($job, "$reset in the transaction that fails");
	like($s->fails("WITH w AS (INSERT INTO t VALUES ('x') RETURNING 1) SELECT zk_run_end('$job') FROM w"), qr/^25001: /, 'the work and its end in one statement');
	is(rows($a, 'x'), 0, '... are rolled back');
	goes_on($job, '25001');
	$s->query("INSERT INTO t VALUES ('$job')");
	$s->query($reset);
	ends($job, 'what failed was repeated');
	like($s->notices, qr/^WARNING 01000: job "\Q$job\E" was given up before its run ended$/m, '... with the warning');
}

# Two runs, one of them given up and begun anew; the count of open runs is right afterwards
begin($_) for 'one', 'two';
$s->query('DISCARD ALL');
$s->fails('SELECT 1/0');
is_not_done($_, "$_, given up together") for 'one', 'two';
begin('one');
$s->query("INSERT INTO t VALUES ('one')");
ends('one', 'begun anew');
ends('two', 'the other');

#
# What is prepared has not committed, and who prepared it does not hear what becomes of it
#
my $prepare = "BEGIN; INSERT INTO t VALUES ('prepared'); PREPARE TRANSACTION 'p'";
for my $given_up (0, 1)
{
	my $what = $given_up ? 'a run whose job was given up' : 'a run';
	begin('prepared');
	$s->query('DISCARD ALL') if $given_up;
	is($s->fails($prepare), '55000: cannot PREPARE a transaction during a run of job "prepared"', "PREPARE TRANSACTION with $what");
	like($s->notices, qr/^DETAIL:  What is prepared could be rolled back when the run is recorded as done\.\nHINT:  Use COMMIT, or prepare it in another session\. If the run is over and has failed, use SELECT zk_run_end\('prepared', ok => false\) first\.$/m, '... has a hint');
	is(ZkLock::ask($a, 'SELECT count(*) FROM pg_prepared_xacts'), 0, '... is not prepared');
	is_not_done('prepared', '... which rolls it back');
	goes_on('prepared', 'PREPARE TRANSACTION');
	is($s->query("SELECT zk_run_end('prepared', ok => false)"), 't', 'the end of the run in the hint');
	is($s->fails($prepare), '', '... after which the session can prepare');
	$s->query("ROLLBACK PREPARED 'p'");
	is(record($a, 'prepared') =~ s/\|.*//r, 'failed', '... and the run has failed');
}
like($s->fails("BEGIN; SELECT zk_run_begin('in it', $slot); PREPARE TRANSACTION 'p'"), qr/^55000: cannot PREPARE a transaction/, 'the transaction that begins the run');
$s->query("SELECT zk_run_end('in it', ok => false)");
begin('elsewhere');
my $other = ZkLock::session($a);
is($other->fails($prepare), '', 'another session prepares');
$s->query("COMMIT PREPARED 'p'");
ends('elsewhere', 'what another session has prepared is committed');
is(rows($a, 'prepared'), 1, '... and there');
$other->quit;

#
# A call for the run that this session has tells nothing of the work, unless it rolls work back
#
my $again = "zk_run_begin('again', $slot)";
my $hint = qr/^HINT:  If what it runs has come to its end, use (SELECT zk_run_end\('again'\)); if not, use SELECT zk_run_end\('again', ok => false\)\.$/m;
my @vain = ("SELECT $again", "SELECT 1 FROM (SELECT $again) AS x", "CALL zk_run_begin_session('again', $slot)",
	"CALL zk_run_once('again', 'SELECT 1', $slot)", "SELECT zk_job_forget('again')", "DO \$\$BEGIN IF $again THEN NULL; END IF; END\$\$", "DO \$\$BEGIN PERFORM $again; END\$\$",
	"DO \$\$BEGIN COMMIT; PERFORM $again; END\$\$", "PREPARE vain AS SELECT $again; EXECUTE vain");
my @work;
if (ZkLock::ask($a, "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'"))
{
	$s->query(sprintf "CREATE EXTENSION postgres_fdw; CREATE SERVER r FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'postgres')", $a->host, $a->port);
	$s->query("CREATE USER MAPPING FOR CURRENT_USER SERVER r; CREATE FOREIGN TABLE ft (job text) SERVER r OPTIONS (table_name 'remote')");
	$s->query('CREATE FUNCTION remote(job text) RETURNS void LANGUAGE sql AS $$INSERT INTO ft VALUES (job)$$');
	$s->query("CREATE PROCEDURE put() LANGUAGE plpgsql AS \$\$BEGIN INSERT INTO ft VALUES ('x'); PERFORM $again; END\$\$");
	push @work, "DO \$\$BEGIN INSERT INTO ft VALUES ('x'); PERFORM $again; END\$\$", 'CALL put()', 'DO $$BEGIN CALL put(); END$$',
	  "DO \$\$BEGIN IF remote('x') IS NULL AND $again THEN NULL; END IF; END\$\$",
	  "WITH w AS (INSERT INTO ft VALUES ('x') RETURNING 1) SELECT $again FROM w", "SELECT remote('x'), $again",
	  "DO \$\$BEGIN COMMIT; INSERT INTO ft VALUES ('x'); PERFORM $again; END\$\$";
}
push @work, "DO \$\$BEGIN INSERT INTO t VALUES ('x'); PERFORM $again; END\$\$", "SELECT zk_queue_put('q', 'x'), $again", "BEGIN; INSERT INTO t VALUES ('x'); SELECT $again",
  "DO \$\$BEGIN NOTIFY x; PERFORM $again; END\$\$";
for my $sql (@vain)
{
	begin('again');
	$s->query("INSERT INTO t VALUES ('again') ON CONFLICT DO NOTHING");
	like($s->fails($sql), qr/^55006: /, $sql);
	like($s->notices, $hint, '... has a hint') if $sql !~ /forget/;
	$s->query('DEALLOCATE ALL');
	is($s->query("SELECT zk_run_end('again')"), 't', '... and the run is done') or $s->fails("SELECT zk_run_end('again', ok => false)");
	is($s->query("SELECT zk_job_reset('again')"), 't', '... due again');
}
for my $sql (@work)
{
	begin('again');
	like($s->fails($sql), qr/^55006: /, $sql);
	my ($done) = $s->notices =~ $hint;
	$s->fails('ROLLBACK') if $sql =~ /^BEGIN/;
	is($s->fails($done // 'SELECT 1'), '55000: the run of job "again" is not done', '... rolls its work back, and the hint does not lose it');
	goes_on('again', 'the hint');
	$s->query("SELECT zk_run_end('again', ok => false)");
}
is(ZkLock::ask($a, "SELECT count(*) FROM remote") . rows($a, 'x'), '00', 'none of it was written');

$s->quit;
ZkLock::ok_clean($zk, [$a], 'lock', 'after all');
done_testing();
