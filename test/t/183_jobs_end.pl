# What did not commit is not said to be done: zk_run_end is a statement of its own, which
# nothing can roll back, and not the word of a session whose work was rolled back.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(rows record runs);
use PostgreSQL::Test::Utils ();
use Protocol3;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
# The lease is to lapse in the end, but not where the machine stands still for some seconds.
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '20s'\ncluster_name = 'a'");
ZkLock::wait_connected($a);
ZkLock::ask($a, 'CREATE TABLE t (job text PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)');
my $s = ZkLock::session($a);
my $slot = "slot => '2026-01-01'";
my $refused = qr/^25001: a run of job "[^"]+" cannot end in a transaction that does anything else$/;

sub begin { my ($job) = @_; is($s->query("SELECT zk_run_begin('$job', $slot, attempts => 9)"), 't', "$job: begun"); return; }
sub row { my ($job) = @_; return ZkLock::ask($a, "SELECT string_agg(outcome, ',' ORDER BY number) FROM zk_runs WHERE name = '$job'"); }
sub goes_on { my ($job, $what) = @_; is(record($a, $job) =~ s/\|.*//r . row($job), 'running', "$job: $what: it is not done"); return; }

# ... and can still end well.
sub ends
{
	my ($job) = @_;
	is($s->query("SELECT zk_run_end('$job')"), 't', "$job: ends on its own");
	is(record($a, $job) =~ s/\|.*//r . row($job), 'donedone', '... and is done, in zk_runs, too');
	return;
}

#
# Another hold is lost: that is said before anything is recorded
#
begin('other');
my @other = ("SELECT zk_lock('lock', scope => 'session')", "SELECT zk_acquire('permit', 1, 'session')");
my %directory = (lock => 'locks', permit => 'semaphores');
$s->query($_) for @other;
for my $name (sort keys %directory)
{
	$zk->delete(ZkLock::directory($name, $directory{$name}) . '/' . (ZkLock::queue($zk, $name, $directory{$name}))[0]);
	ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /"$name" was lost while held/ }, "$name is lost");
	like($s->fails("SELECT zk_run_end('other', ok => $_)"), qr/^55000: [\w ]+ "$name" was lost$/, "$name is lost: zk_run_end, ok => $_, says so") for 'true', 'false';
	goes_on('other', "$name is lost");
	is($s->query('SELECT ' . ($name eq 'permit' ? 'zk_release' : 'zk_unlock') . "('$name')"), 't', '... which is acknowledged');
}
ends('other');

#
# What the same transaction does could be rolled back with it
#
$s->query('CREATE FUNCTION put(job text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN PERFORM zk_queue_put(\'q\', job); RETURN zk_run_end(job); END$$');
$s->query('CREATE FUNCTION cursor(job text) RETURNS boolean LANGUAGE plpgsql AS $$DECLARE c CURSOR FOR SELECT zk_run_end(job); d boolean;
	BEGIN PERFORM zk_queue_put(\'q\', job); OPEN c; FETCH c INTO d; RETURN d; END$$');
$s->query('PREPARE the_end(text) AS SELECT zk_run_end($1)');
begin('refused');
my $end = "SELECT zk_run_end('refused')";
my @together = (
	"BEGIN; SELECT zk_queue_put('q', 'x'); $end",
	"BEGIN; $end",
	"BEGIN; SAVEPOINT s; $end",
	"SELECT zk_queue_put('q', 'x')\\; $end",
	"$end\\; INSERT INTO t VALUES ('x'), ('x')",
	"SELECT zk_queue_put('q', 'x'), zk_run_end('refused')",
	"WITH w AS (INSERT INTO t VALUES ('x') RETURNING 1) SELECT zk_run_end('refused') FROM w",
	"INSERT INTO t SELECT zk_run_end('refused')",
	"SELECT put('refused')",
	"SELECT cursor('refused')",
	"DO \$\$BEGIN PERFORM zk_queue_put('q', 'x'); EXECUTE 'EXECUTE the_end(''refused'')'; END\$\$",
	"DO \$\$BEGIN COMMIT; PERFORM zk_queue_put('q', 'x'); PERFORM zk_run_end('refused'); END\$\$",
	"DO \$\$BEGIN COMMIT; INSERT INTO t VALUES ('x'); PERFORM zk_run_end('refused'); END\$\$");
if (ZkLock::ask($a, "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'"))
{
	$s->query("CREATE EXTENSION postgres_fdw; CREATE DATABASE remote");
	my $remote = ZkLock::session($a, dbname => 'remote');
	$remote->query('CREATE TABLE t (job text)');
	$remote->quit;
	$s->query(sprintf "CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'remote')", $a->host, $a->port);
	$s->query("CREATE USER MAPPING FOR CURRENT_USER SERVER remote; CREATE FOREIGN TABLE ft (job text) SERVER remote OPTIONS (table_name 't')");
	$s->query('CREATE FUNCTION remote(job text) RETURNS void LANGUAGE sql AS $$INSERT INTO ft VALUES (job)$$');
	push @together, "BEGIN; INSERT INTO ft VALUES ('x'); $end",
	  "WITH w AS (INSERT INTO ft VALUES ('x') RETURNING 1) SELECT zk_run_end('refused') FROM w",
	  "SELECT remote('x'), zk_run_end('refused')",
	  "DO \$\$BEGIN INSERT INTO ft VALUES ('x'); PERFORM zk_run_end('refused'); END\$\$";
}
for my $sql (@together)
{
	like($s->fails($sql), $refused, "refused: $sql");
	$s->query('ROLLBACK; SELECT 1');
	goes_on('refused', 'refused');
}
is($s->query('SELECT count(*) FROM t'), 0, 'nothing was written');
like($s->fails("BEGIN; $end"), $refused, 'the hint');
like($s->notices, qr/^DETAIL:  What the transaction does could still be rolled back\.\nHINT:  The transaction is rolled back\. Repeat it without zk_run_end, commit, and then use SELECT zk_run_end\('refused'\) on its own\.$/m, '... says how');
$s->query('ROLLBACK; SELECT 1');
ends('refused');

# What it can be called from
begin('executed');
is($s->query("EXECUTE the_end('executed')"), 't', 'a prepared statement');
is(record($a, 'executed') . row('executed'), 'done|a|1|0done', '... is as good');
$s->query("DO \$\$BEGIN
	IF zk_run_begin('procedure', $slot) THEN
		COMMIT; INSERT INTO t VALUES ('procedure'); COMMIT; PERFORM zk_run_end('procedure');
	END IF; END\$\$");
is(record($a, 'procedure') . row('procedure') . rows($a, 'procedure'), 'done|a|1|0done1', 'a procedure that has committed');
begin($_) for 'one', 'two';
is($s->query("SELECT zk_run_end('one'), zk_run_end('two'), zk_run_end('one')"), 't|t|f', 'two in one statement');
is(record($a, $_) . row($_), 'done|a|1|0done', "... $_ is done") for 'one', 'two';
is($s->query("SELECT zk_run_begin('$_', $slot)"), 't', "$_: begun") for 'before', 'after';
like($s->fails("DO \$\$BEGIN COMMIT; PERFORM zk_run_end('before'); INSERT INTO t VALUES ('x'); PERFORM zk_run_end('after'); END\$\$"), $refused, 'a procedure that ends one, works, and ends another');
is(record($a, 'before'), 'done|a|1|0', '... what came before the work is done');
goes_on('after', 'what came after it');
$s->query("SELECT zk_run_end('after', ok => false)");
begin('failed in one');
is($s->query("BEGIN; SELECT FROM zk_queue_put('q', 'x'); SELECT zk_run_end('failed in one', ok => false); COMMIT"), 't', 'a failure is one in any transaction');
$s->fails("SELECT zk_run_begin('failed in one', $slot)");
like($s->notices, qr/^DETAIL:  Attempt 1 on server "a" failed at [^a-z]*\.$/m, '... of which no error is known');

SKIP:
{
	my $c = Protocol3->new($a);
	my $begin = sub { my ($job) = @_; like($c->query("SELECT zk_run_begin('$job', $slot)"), qr/row t/, "$job: begun"); };
	$begin->('pipeline');
	like($c->run("SELECT 1 FROM zk_queue_put('q', 'x')")->run("SELECT zk_run_end('pipeline')")->sync, qr/25001: a run of job/, 'a pipeline with a statement before it');
	goes_on('pipeline', 'in a pipeline');
	$c->query('SELECT 1');
	like($c->run("SELECT zk_run_end('pipeline')")->run('SELECT 1/0')->sync, qr/row t, SELECT 1, .*22012/, 'one that begins with it');
	is(record($a, 'pipeline') . row('pipeline'), 'done|a|1|0done', '... and fails later: it is done');
	$c->terminate;
}

#
# The session's latest transaction was rolled back
#
sub is_refused
{
	my ($job, $what) = @_;
	is($s->fails("SELECT zk_run_end('$job')"), "55000: the run of job \"$job\" is not done", "$what: the session cannot say that it is done");
	like($s->notices, qr/^DETAIL:  The latest transaction of this session was rolled back\.\nHINT:  Repeat it, or use SELECT zk_run_end\('$job', ok => false\)\.$/m, '... and is told what it can');
	goes_on($job, $what);
	return;
}
begin('fails');
for my $sql ('SELECT 1/0', 'VACUUM nothing', 'SELECT nothing', "INSERT INTO t VALUES ('x'), ('x')", "SELECT zk_run_end('fails', 'no boolean')",
	"BEGIN; INSERT INTO t VALUES ('x'), ('x'); COMMIT", 'DO $$BEGIN COMMIT; PERFORM 1/0; END$$')
{
	isnt($s->fails($sql), '', $sql);
	is_refused('fails', $sql);
	$s->query("SELECT zk_unlock('nothing')");
	is_refused('fails', 'nothing was repeated');
	$s->query('SELECT 1');
}
$s->query("BEGIN; INSERT INTO t VALUES ('x'); ROLLBACK");
is_refused('fails', 'ROLLBACK');
like($s->fails("SELECT zk_run_begin('fails', $slot)"), qr/^55006: /, 'begun again after that');
my ($done, $failed) = $s->notices =~ /^HINT:  If what it runs has come to its end, use (SELECT .*?\)); if not, use (SELECT .*?\))\.$/m;
is($done, "SELECT zk_run_end('fails')", '... has a hint');
is($s->fails($done // 'SELECT 1'), '55000: the run of job "fails" is not done', '... and the run is not done');
is($s->query($failed // 'SELECT 1'), 't', '... but has failed');
is(record($a, 'fails') . row('fails'), 'failed|a|1|1failed', '... as the record says');
begin('fails');
like($s->fails("SELECT zk_run_begin('fails', $slot)"), qr/^55006: /, 'begun twice');
is($s->query($done), 't', '... after it was run: it is done');
is(record($a, 'fails') . row('fails'), 'done|a|2|1failed,done', '... as the record says');
begin('tried');
is($s->fails("SET default_transaction_read_only = on; SELECT zk_run_end('tried')") , '25006: cannot execute zk_run_end() in a read-only transaction', 'a call of zk_run_end that fails');
$s->query('RESET default_transaction_read_only');
ends('tried');
begin('repeated');
isnt($s->fails('SELECT 1/0'), '', 'a statement fails');
is($s->query('SELECT 1/1'), 1, '... and is repeated');
ends('repeated');

# A commit that is cancelled while it waits for the verdict on a lapsed lease
begin('commit');
$s->query("BEGIN; INSERT INTO t VALUES ('commit')");
$zk->stop;
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT coalesce(lease_remaining, '0') <= '0' FROM zk_session") eq 't' }, 'the lease has lapsed');
$s->send('COMMIT');
ZkLock::wait_until(sub { $s->cancel; !$s->busy }, 'the commit is cancelled, or fails');
isnt($s->failure, '', 'a commit fails without ZooKeeper');
$zk->start;
ZkLock::wait_connected($a);
is($s->fails("SELECT zk_run_end('commit')"), $s->{error}, 'zk_run_end after that');
isnt($s->{answer}, 't', '... does not say that it is done');
is(rows($a, 'commit'), 0, '... as it is not');
unlike(record($a, 'commit'), qr/^done/, '... and the record does not, either');
$s->fails("SELECT zk_run_end('commit', ok => false)");

$s->quit;
ZkLock::ok_clean($zk, [$a], 'lock', 'after all');
done_testing();
