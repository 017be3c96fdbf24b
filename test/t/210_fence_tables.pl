# Tables that only holders write (zk_fence_table), and sql/zklock_fence.sql, which does without
# zklock what fences do: the same statements have the same answers with both.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Pages qw(blocks_of);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk, init => { allows_streaming => 'logical' }, conf => "cluster_name = '$_'\nzklock.session_timeout = '1h'") } qw(a b);
# ... and one without zklock, as in a managed service: its administrator is no superuser
my $managed = ZkLock::server('managed', $zk, extension => 0, conf => "shared_preload_libraries = ''\nwal_retrieve_retry_interval = '100ms'");
ZkLock::wait_connected($a, $b);
ZkLock::ask($managed, $_) for 'CREATE ROLE dba LOGIN', 'CREATE ROLE batch LOGIN', 'CREATE ROLE other LOGIN', 'CREATE DATABASE ext', 'CREATE DATABASE script OWNER dba';
ZkLock::session($managed, dbname => 'ext')->query('CREATE EXTENSION zklock; GRANT CREATE ON SCHEMA public TO dba, batch; GRANT EXECUTE ON FUNCTION zk_fence_table TO dba WITH GRANT OPTION; GRANT EXECUTE ON FUNCTION zk_fence TO dba WITH GRANT OPTION');
chomp(my $share = `$ENV{PG_CONFIG} --sharedir`);
my @script = ('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$share/extension/zklock_fence.sql", $managed->connstr('script') . ' user=dba');
$managed->command_ok(\@script, 'the script is installed by who is no superuser');
ZkLock::session($managed, dbname => 'script', user => 'dba')->query("SELECT zk_fence('again', 5)");
$managed->command_ok(\@script, '... again');
is(ZkLock::session($managed, dbname => 'script', user => 'dba')->query('TABLE zk_fences'), '|again|5', '... and forgets nothing');
ZkLock::session($managed, dbname => 'script', user => 'dba')->query('DELETE FROM zk_fences');
$managed->command_fails_like([ @script[0 .. 6], $managed->connstr('ext') ], qr/ERROR:  extension "zklock" is in this database/, '... and not where the extension is');
is(ZkLock::session($managed, dbname => 'ext')->query("SELECT count(*) FROM pg_proc JOIN pg_language l ON l.oid = prolang WHERE proname = 'zk_fence' AND lanname = 'c'"), 1, '... whose functions stay');

#
# The same with both
#
my @both = qw(ext script);
my %s;
sub connect_as { my ($user) = @_; $s{$_} = ZkLock::session($managed, dbname => $_, user => $user) for @both; return; }

# What the session is told: not what to do, which differs
sub told
{
	my ($session, $sql) = @_;
	my $error = $session->fails($sql);
	my ($detail) = $session->notices =~ /^DETAIL:  (.*)$/m;
	return $error eq '' ? $session->{answer} : join "\n", $error, $detail // ();
}

# ... and it is what is expected
sub same
{
	my ($sql, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($ext, $script) = map { told($s{$_}, $sql) } @both;
	s/This session does not hold the lock in exclusive mode, and this/This/ for $ext;
	is($script, $ext, ($what // $sql) . ': the same with both');
	return ref $expected ? like($script, $expected, $what // $sql) : is($script, $expected, $what // $sql);
}

my $without = "55000: cannot write table \"%s\" without lock \"stock\"\nThis transaction has not shown a fencing token of the lock.";
sub without { return sprintf $without, $_[0]; }

connect_as('dba');
same("SELECT zk_fence('report', 10), zk_fence('report', 10), zk_fence('other', 1)", '||', 'tokens');
same("SELECT zk_fence('report', 12)", '');
same("SELECT zk_fence('report', 11)", "40001: fencing token 11 for resource \"report\" is too old\nThe resource has seen token 12: another holder has had the lock since.");
same("SELECT zk_fence('', 1)", '22023: resource name must not be empty');
same("SELECT zk_fence(repeat('x', 1001), 1)", "22023: resource name is too long\nThe name has 1001 bytes; a resource name has 1 to 1000.");
same('SELECT zk_fence(NULL, 1)', '22004: resource name must not be null');
same("SELECT zk_fence('x', NULL)", '22004: fencing token must not be null');
same("BEGIN READ ONLY; SELECT zk_fence('x', 1)", '25006: cannot execute zk_fence() in a read-only transaction');
same('ROLLBACK', '');
same("BEGIN; SELECT zk_fence('report', 20); SAVEPOINT s; SELECT zk_fence('report', 30); ROLLBACK TO s; SELECT zk_fence('report', 21); ROLLBACK; SELECT zk_fence('report', 13)", '', 'it goes with its transaction');
same("SELECT zk_fence('n', i) FROM generate_series(1, 3) i", '', 'several in one statement');
same("SELECT zk_fence('nä''me\"', 9); SELECT zk_fence('nä''me\"', 8)", qr/^40001: fencing token 8 for resource "nä'me""/, 'any name');

# A role that has the function alone, and sets traps
same('GRANT EXECUTE ON FUNCTION zk_fence TO batch', '');
$s{script}->query('GRANT CREATE ON SCHEMA public TO batch');
connect_as('other');
same("SELECT zk_fence('report', 99)", '42501: permission denied for function zk_fence', 'not everybody may fence');
connect_as('batch');
same("CREATE FUNCTION public.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
	CREATE OPERATOR public.> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = public.never);
	CREATE TEMP TABLE zk_fences (namespace text, resource text, token bigint, PRIMARY KEY (namespace, resource))", '');
same("SELECT zk_fence('report', 14)", '', 'who may, needs no right on the table');
same("SET search_path = pg_temp, public, pg_catalog; SELECT zk_fence('report', 13)", qr/^40001: /, '... and falls for nothing');
same('TABLE pg_temp.zk_fences', '', '... least of all for a temporary table');
same('TABLE public.zk_fences', qr/^42501: /, '... which shows it to nobody');

# Who comes second waits for who came first
for my $db (@both)
{
	my ($one, $two) = map { ZkLock::session($managed, dbname => $db, user => 'dba') } 1, 2;
	for my $new (0, 1)
	{
		my $r = "wait$new";
		$one->query("SELECT zk_fence('$r', 1)") unless $new;
		$one->query("BEGIN; SELECT zk_fence('$r', 5)");
		$two->send("SELECT zk_fence('$r', 4)")->wait_event('Lock');
		$one->query('COMMIT');
		like($two->failure, qr/^40001: fencing token 4 .* is too old/, "$db: who comes second hears of it at the commit");
		$one->query("BEGIN; SELECT zk_fence('$r', 9)");
		$two->send("SELECT zk_fence('$r', 5)")->wait_event('Lock');
		$one->query('ROLLBACK');
		is($two->failure, '', '... and not of what is rolled back');
		$two->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
		$one->query("SELECT zk_fence('$r', 6)");
		like($two->fails("SELECT zk_fence('$r', 7)"), qr/^40001: could not serialize access due to concurrent update/, '... nor of what its snapshot lacks');
		$two->query('ROLLBACK');
	}
}

# Namespaces
connect_as('batch');
ZkLock::ask($managed, "ALTER ROLE batch SET zklock.namespace = 'red'");
connect_as('batch');
same("SELECT zk_fence('report', 2); SELECT zk_fence('report', 1)", qr/^40001: fencing token 1 /, 'a namespace has its own fences');

#
# Tables
#
connect_as('dba');
same("CREATE TABLE stock (id int, n int); INSERT INTO stock VALUES (1, 10); SELECT zk_fence_table('stock', 'stock'); GRANT ALL ON stock TO batch", '');
for my $sql ('INSERT INTO stock VALUES (2, 1)', 'UPDATE stock SET n = 0', 'UPDATE stock SET n = 0 WHERE false', 'DELETE FROM stock', 'TRUNCATE stock',
	"COPY stock FROM PROGRAM 'echo'", 'MERGE INTO stock USING (VALUES (1)) v (id) ON stock.id = v.id WHEN MATCHED THEN DELETE', 'WITH x AS (DELETE FROM stock RETURNING 1) SELECT count(*) FROM x')
{
	connect_as(ZkLock::ask($managed, 'SELECT current_user')) if $sql =~ /PROGRAM/;
	same($sql, without('stock'), "refused: $sql");
	connect_as('dba') if $sql =~ /PROGRAM/;
}
like($s{script}->notices, qr/^HINT:  In the same transaction, first use SELECT zk_fence\('stock', token\) with the token of the lock\.$/m, '... with a hint');
my ($hint) = $s{script}->notices =~ /^HINT:  .*use (SELECT zk_fence\(.*?\)) /m;
is($s{script}->fails('BEGIN; ' . ($hint // '') =~ s/token/3/r . '; DELETE FROM stock; ROLLBACK'), '', '... which helps');
same('TABLE stock; SELECT n FROM stock FOR UPDATE', "1|10\n10", 'everybody reads, and locks rows');
same("BEGIN; SELECT zk_fence('stock', 3); UPDATE stock SET n = n + 1; INSERT INTO stock VALUES (2, 1); DELETE FROM stock WHERE id = 2; TRUNCATE stock; INSERT INTO stock VALUES (1, 11); COMMIT; TABLE stock", "\n1|11", 'a transaction that has shown a token writes');
same('UPDATE stock SET n = 0', without('stock'), '... and the next one does not');
same("BEGIN; SELECT zk_fence('other', 3); UPDATE stock SET n = 0", qr/^55000/, 'not with the token of another resource');
same("ROLLBACK; BEGIN; SAVEPOINT s; SELECT zk_fence('stock', 4); RELEASE s; UPDATE stock SET n = n + 1; COMMIT; TABLE stock", "\n1|12", 'shown in a subtransaction');
same("BEGIN; SAVEPOINT s; SELECT zk_fence('stock', 4); SAVEPOINT t; UPDATE stock SET n = n + 1; ROLLBACK TO t; UPDATE stock SET n = n + 1; ROLLBACK TO s", '', 'beneath it, too');
same('UPDATE stock SET n = 0', without('stock'), '... which goes with it');
same("ROLLBACK; DO \$\$BEGIN BEGIN PERFORM zk_fence('stock', 1); EXCEPTION WHEN serialization_failure THEN NULL; END; UPDATE stock SET n = 0; END\$\$", without('stock'), 'a token that was refused is none');
same("DO \$\$BEGIN BEGIN PERFORM zk_fence('stock', 4); EXCEPTION WHEN serialization_failure THEN NULL; END; UPDATE stock SET n = n + 1; END\$\$; TABLE stock", '1|13', 'one shown in a block is one');

# Another transaction's token is nobody else's, whatever the order of their numbers
for my $db (@both)
{
	my ($one, $two) = map { ZkLock::session($managed, dbname => $db, user => 'dba') } 1, 2;
	$one->query('BEGIN; CREATE TEMP TABLE t (i int)'); # has the smaller number
	$two->query("SELECT zk_fence('stock', 5)");
	like($one->fails('UPDATE stock SET n = 0'), qr/^55000: /, "$db: a later transaction's token is not ours");
	$one->query('ROLLBACK');
	$two->query("BEGIN; SELECT zk_fence('stock', 6)");
	like($one->fails('UPDATE stock SET n = 0'), qr/^55000: /, '... nor one that is not committed');
	$one->query("BEGIN; SAVEPOINT s; CREATE TEMP TABLE t (i int)");
	$one->send("SELECT zk_fence('stock', 5)")->wait_event('Lock');
	$two->query('UPDATE stock SET n = n + 1; COMMIT');
	like($one->failure, qr/^40001: fencing token 5/, '... and the late one is refused');
	$one->query('ROLLBACK');
}

# ... nor if the transaction has asked for an age before it had a number: age() goes by the
# number that was the next one then, and keeps to it.
for my $db (@both)
{
	my ($one, $two) = map { ZkLock::session($managed, dbname => $db, user => 'dba') } 1, 2;
	$one->query("BEGIN; SELECT age('3'::xid)");
	$two->query("SELECT zk_fence('stock', 6)"); # has that number
	like($one->fails('UPDATE stock SET n = 0'), qr/^55000: /, "$db: a token that was shown after a look at an age is not ours");
	$one->query('ROLLBACK');
	$one->query("BEGIN; SELECT age('3'::xid)");
	$two->query('SELECT pg_current_xact_id()') for 1, 2;
	is($one->fails("SELECT zk_fence('stock', 6); UPDATE stock SET n = n; SAVEPOINT s; SELECT zk_fence('stock', 6); UPDATE stock SET n = n"), '', '... and our own is ours');
	$one->query('ROLLBACK');
}

# Partitions, cascades, inheritance
same("CREATE TABLE part (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (10);
	SELECT zk_fence_table('part', 'stock'); CREATE TABLE part2 PARTITION OF part FOR VALUES FROM (10) TO (20)", '');
same("$_", without(/(part\d?)/), "refused: $_") for 'INSERT INTO part VALUES (1)', 'INSERT INTO part1 VALUES (1)', 'INSERT INTO part2 VALUES (11)', 'TRUNCATE part';
same("BEGIN; SELECT zk_fence('stock', 6); INSERT INTO part VALUES (1), (11); INSERT INTO part2 VALUES (12); UPDATE part SET id = id + 5 WHERE id = 11; UPDATE part SET id = 19 WHERE id = 1; DELETE FROM part2 WHERE id = 12; COMMIT; SELECT id, tableoid::regclass FROM part ORDER BY 1", "\n16|part2\n19|part2", 'partitions');
same('DELETE FROM part2', without('part2'), '... one by one');
same('CREATE TABLE part3 PARTITION OF part FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (id); CREATE TABLE part31 PARTITION OF part3 FOR VALUES FROM (20) TO (25);
	SELECT zk_fence_table(\'part3\', \'stock\')', '', 'a partition that has partitions');
same("$_", without(/(part\d+)/), "refused: $_") for 'TRUNCATE part3', 'INSERT INTO part3 VALUES (20)', 'INSERT INTO part31 VALUES (20)';
same('CREATE TABLE referred (id int PRIMARY KEY); INSERT INTO referred VALUES (1); CREATE TABLE refers (id int REFERENCES referred ON DELETE CASCADE); INSERT INTO refers VALUES (1);
	SELECT zk_fence_table(\'refers\', \'stock\')', '');
same('DELETE FROM referred', qr/^55000: cannot write table "refers" without lock "stock"/, 'nor by a foreign key');

# Who may fence a table, and what is none
same('CREATE VIEW v AS SELECT 1', '');
same("SELECT zk_fence_table('v', 'x')", '42809: "v" is not a table');
same("SELECT zk_fence_table('stock', 'x')", qr/^42710: trigger "zk_fence" for relation "stock" already exists/, 'a table has one fence');
same("SELECT zk_fence_table('part', '')", '22023: resource name must have 1 to 1000 bytes');
same("SELECT zk_fence_table(NULL, 'x')", '22004: relation must not be null');
same("SELECT zk_fence_table('part', NULL)", '22004: resource name must not be null');
same("GRANT EXECUTE ON FUNCTION zk_fence_table TO batch", '');
same("GRANT TRIGGER ON referred TO batch", '');
ZkLock::ask($managed, 'ALTER ROLE batch RESET zklock.namespace');
connect_as('batch');
same("SELECT zk_fence_table('referred', 'x')", '42501: must be owner of table referred');
same('UPDATE public.stock SET n = 0', without('stock'), 'a role with the rights of the table needs the token');
same("BEGIN; SELECT zk_fence('stock', 6); UPDATE public.stock SET n = n + 1; COMMIT", '', '... and the right to show it');
ZkLock::ask($managed, "ALTER ROLE batch SET zklock.namespace = 'red'");
connect_as('batch');
same("BEGIN; SELECT zk_fence('stock', 6); UPDATE stock SET n = n + 1", "55000: cannot write table \"stock\" in namespace \"red\"\nIts fence belongs to namespace \"\".", '... of its own namespace');
connect_as('dba');
same('DROP TRIGGER zk_fence ON stock; UPDATE stock SET n = 0; DROP TRIGGER zk_fence_rows ON part; DROP TRIGGER zk_fence ON part; DROP TRIGGER zk_fence ON part3; DELETE FROM part1', '', 'undone');
same("DROP TABLE refers; SELECT zk_fence_table('stock', 'stock')", '', '... and done again');

# A dump
for my $db (@both)
{
	my $dump = PostgreSQL::Test::Utils::tempdir() . "/$db";
	$managed->command_ok([ 'pg_dump', '-f', $dump, $managed->connstr($db) ], "$db: pg_dump");
	ZkLock::ask($managed, "CREATE DATABASE restored_$db");
	$managed->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $managed->connstr("restored_$db") ], '... is restored');
	my $r = ZkLock::session($managed, dbname => "restored_$db");
	like($r->fails('UPDATE stock SET n = 0'), qr/^55000: cannot write table "stock"/, '... with the fence of the table');
	like($r->fails("SELECT zk_fence('stock', 5)"), qr/^40001: /, '... and the tokens');
	is($r->fails("BEGIN; SELECT zk_fence('stock', 6); UPDATE stock SET n = 0; COMMIT"), '', '... and it is written');

	# ... and the data alone, as the page says it
	$r->query("BEGIN; SELECT zk_fence('stock', 6); CREATE TEMP TABLE was AS TABLE stock; TRUNCATE stock; COMMIT");
	my $trigger = "SELECT tgenabled FROM pg_trigger WHERE tgname = 'zk_fences_replicated'";
	my $enabled = $r->query($trigger);
	my ($restore) = PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/../../doc/fencing.md") =~ /`(pg_restore --data-only [^`]*)`/;
	$managed->command_ok([ 'pg_dump', '-Fc', '-f', "$dump.c", $managed->connstr($db) ], '... once more');
	$managed->command_ok([ split(' ', $restore), '-d', $managed->connstr("restored_$db"), "$dump.c" ], "... $restore" =~ s/\s+/ /gr);
	is($r->query('SELECT count(*) > 0, count(*) = (SELECT count(*) FROM was) FROM stock'), 't|t', '... has the rows');
	is($r->query($trigger), $enabled, '... and the trigger of zk_fences is as it was');
}

#
# Replication into both
#
my $p = ZkLock::session($a);
$p->query("SELECT zk_fence('r', 10); CREATE TABLE stock (id int PRIMARY KEY, n int); SELECT zk_fence_table('stock', 'stock'); CREATE PUBLICATION all_of_it FOR TABLE zk_fences, stock");
for my $db (@both)
{
	my $s = ZkLock::session($managed, dbname => $db);
	$s->query("TRUNCATE zk_fences; SELECT zk_fence('r', 20), zk_fence('s', 5); CREATE SUBSCRIPTION $db CONNECTION \$\$" . $a->connstr('postgres') . "\$\$ PUBLICATION all_of_it");
}
sub catch_up
{
	my $lsn = $p->query('SELECT pg_current_wal_insert_lsn()');
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) = 2 AND bool_and(replay_lsn >= '$lsn') FROM pg_stat_replication WHERE state = 'streaming' AND application_name IN ('ext', 'script')") eq 't' }, 'the subscribers have all of it', sub { PostgreSQL::Test::Utils::slurp_file($managed->logfile) =~ /(ERROR.*)/ });
	return;
}
my %super = map { $_ => ZkLock::session($managed, dbname => $_) } @both;
ZkLock::wait_until(sub { my ($db) = @_; !grep { $super{$_}->query("SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel") ne 't' } @both }, 'the tables are copied', sub { PostgreSQL::Test::Utils::slurp_file($managed->logfile) =~ /(ERROR.*)/ });
sub fences { my ($db) = @_; return $super{$db}->query("SELECT string_agg(resource || token, ' ' ORDER BY resource) FROM zk_fences"); }
is(fences($_), 'r20 s5', "$_: the first copy lowers nothing") for @both;
$p->query("SELECT zk_fence('r', 15), zk_fence('s', 6), zk_fence('t', 1)");
catch_up();
is(fences($_), 'r20 s6 t1', "$_: a replicated row raises a token, and lowers none") for @both;
$p->query("SELECT zk_fence('r', 25); UPDATE zk_fences SET resource = 'u' WHERE resource = 's'; DELETE FROM zk_fences WHERE resource = 't'");
catch_up();
is(fences($_), 'r25 s6 t1 u6', "$_: nor does it delete one") for @both;
$p->query("BEGIN; SELECT zk_lock('stock'); INSERT INTO stock VALUES (7, 7); COMMIT");
catch_up();
is($super{$_}->query('SELECT n FROM stock WHERE id = 7'), 7, "$_: a fenced table is replicated into") for @both;
# ... in replica mode by hand, and with the trigger disabled
for my $db (@both)
{
	my $s = $super{$db};
	is($s->query("SET session_replication_role = replica; SELECT zk_fence('v', 5); UPDATE zk_fences SET token = 1 WHERE resource = 'v'; DELETE FROM zk_fences WHERE resource = 'v'; SELECT token FROM zk_fences WHERE resource = 'v'"), "\n5", "$db: zk_fence in replica mode");
	like($s->fails("SELECT zk_fence('v', 4)"), qr/^40001: /, '... refuses as ever');
	$s->query('RESET session_replication_role; ALTER TABLE zk_fences DISABLE TRIGGER ALL; SET session_replication_role = replica');
	like($s->fails("UPDATE zk_fences SET token = 1 WHERE resource = 'v'"), qr/^55000: cannot write table "zk_fences" in replica mode/, '... without the trigger nothing is written');
	my ($enable) = $s->notices =~ /^HINT:  Use (ALTER TABLE .*)\.$/m;
	is($s->fails('RESET session_replication_role; ' . ($enable // 'no hint')), '', '... until it is enabled');
	is($s->query("SET session_replication_role = replica; UPDATE zk_fences SET token = 1 WHERE resource = 'v'; RESET session_replication_role; SELECT token FROM zk_fences WHERE resource = 'v'"), 5, '... and is there');
}
# where triggers are to fire in the apply worker, the row of zk_fences comes first
for my $db (@both)
{
	$super{$db}->query('ALTER TABLE stock ENABLE ALWAYS TRIGGER zk_fence');
}

#
# Who holds the lock
#
ZkLock::ask($_, 'TRUNCATE zk_fences') for $a;
my ($one, $two) = map { ZkLock::session($a) } 1, 2;
is($one->fails('UPDATE stock SET n = 1'), '55000: cannot write table "stock" without lock "stock"', 'who does not hold the lock writes nothing');
my ($lock, $fence) = $one->notices =~ /^HINT:  In the same transaction, first use (SELECT zk_lock\(.*?\)), or (SELECT zk_fence\(.*?\)) if another session holds the lock\.$/m;
is($one->fails("BEGIN; $lock; UPDATE stock SET n = 1; COMMIT"), '', "... after the hint's $lock it does");
my $token = $one->query("BEGIN; SELECT zk_lock('stock')");
is($one->fails('UPDATE stock SET n = 2'), '', 'the holder writes');
is($one->query("SELECT token = $token FROM zk_fences WHERE resource = 'stock'"), 't', '... and has shown its token by that');
$two->send("BEGIN; SELECT zk_fence('stock', $token - 1)")->wait_event('Lock');
$one->query('COMMIT');
like($two->failure, qr/^40001: /, '... so that a late one waits for it, and is refused');
$two->query('ROLLBACK');
$token = $one->query("SELECT zk_lock('stock', scope => 'session')");
is($one->fails('UPDATE stock SET n = 3'), '', 'in session scope, too');
is($two->fails("BEGIN; " . $fence =~ s/token/$token/r . '; UPDATE stock SET n = 4; COMMIT'), '', "... or after the hint's $fence another session with its token");
$one->query("SELECT zk_unlock('stock')");
like($one->fails("BEGIN; SELECT zk_lock('stock', 'shared'); UPDATE stock SET n = 5"), qr/^55000: cannot write table "stock" without lock/, 'a reader does not write');
$one->query('ROLLBACK');
like($one->fails("BEGIN; SELECT zk_acquire('stock', 1); UPDATE stock SET n = 5"), qr/^55000: cannot write table/, '... nor who has a permit of that name');
$one->query('ROLLBACK');
$one->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$two->query("BEGIN; SELECT zk_lock('stock'); UPDATE stock SET n = 4; COMMIT");
like($one->fails("SELECT zk_lock('stock'); UPDATE stock SET n = 5"), qr/^40001: could not serialize access due to concurrent update/, '... nor who does not see what the last holder wrote');
$one->query('ROLLBACK');
is($one->fails("BEGIN; SELECT zk_fence('stock', zk_acquire('permit', 1)); UPDATE stock SET n = 5; COMMIT"), '', '... unless it shows the token of the only one');
$one->query("SET zklock.namespace = 'red'");
is($one->fails("BEGIN; SELECT zk_lock('stock'); UPDATE stock SET n = 5"), '55000: cannot write table "stock" in namespace "red"', "a lock of another namespace is another lock");
$one->query('ROLLBACK; RESET zklock.namespace');
$one->query("CREATE TABLE long (i int); SELECT zk_fence_table('long', repeat('y', 300)); CREATE TABLE odd (i int); SELECT zk_fence_table('odd', E'o\\'\\\\d\"')");
like($one->fails('INSERT INTO long VALUES (1)'), qr/^55000: cannot write table "long"/, 'a resource may have a name that no lock has');
is($one->fails("BEGIN; SELECT zk_fence(repeat('y', 300), 1); INSERT INTO long VALUES (1); COMMIT"), '', '... and be shown');
is($one->fails("BEGIN; SELECT zk_lock(E'o\\'\\\\d\"'); INSERT INTO odd VALUES (1); COMMIT"), '', '... or one with quotes');
# a larger token has been seen
$one->query("SELECT zk_fence('stock', 9000000)");
like($one->fails("BEGIN; SELECT zk_lock('stock'); UPDATE stock SET n = 6"), qr/^40001: fencing token \d+ for resource "stock" is too old/, 'a holder whose token is too old writes nothing');
$one->query('ROLLBACK');
$one->query("DELETE FROM zk_fences WHERE resource = 'stock'");
# a lock that is lost
$one->query("BEGIN; SELECT zk_lock('stock')");
my ($contender) = ZkLock::queue($zk, 'stock');
$zk->delete(ZkLock::directory('stock') . "/$contender");
ZkLock::wait_until(sub { $one->fails('UPDATE stock SET n = 7; ROLLBACK TO SAVEPOINT none') =~ /^(40001|25P02): / }, 'who has lost the lock does not write');
$one->query('ROLLBACK');
is($one->query('SELECT count(*) FROM stock WHERE n = 7'), 0, 'who has lost the lock has written nothing');
like($one->fails('DROP EXTENSION zklock'), qr/^2BP01: cannot drop extension zklock because other objects depend on it/, 'the extension stays as long as a table has its trigger');

# The trigger's function is for what zk_fence_table makes
$one->query('CREATE TABLE t (i int); CREATE TRIGGER t AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION zk_fence_required()');
like($one->fails('INSERT INTO t VALUES (1)'), qr/^39P01: /, 'no other trigger is made of it');

#
# Two servers take turns with what is elsewhere, without zklock: who is late is refused there
#
my ($sa, $sb) = (ZkLock::session($a), ZkLock::session($b));
my $in = ZkLock::session($managed, dbname => 'script');
my $late = ZkLock::session($managed, dbname => 'script');
$in->query("DROP SUBSCRIPTION script; DELETE FROM zk_fences");
$super{ext}->query('DROP SUBSCRIPTION ext');
my $old = $sa->query("BEGIN; SELECT zk_lock('stock')");
my ($mine) = ZkLock::queue($zk, 'stock');
$zk->delete(ZkLock::directory('stock') . "/$mine"); # its server is paused, say: ZooKeeper gives the lock away
my $new = $sb->query("BEGIN; SELECT zk_lock('stock')");
cmp_ok($new, '>', $old, 'a server is late, and another one has the lock');
is($in->fails("BEGIN; SELECT zk_fence('stock', $new); UPDATE stock SET n = 100; COMMIT"), '', '... and writes in a database without zklock');
like($late->fails("BEGIN; SELECT zk_fence('stock', $old); UPDATE stock SET n = 200; COMMIT"), qr/^40001: /, '... which refuses the late one');
$late->query('ROLLBACK');
is($late->fails('UPDATE stock SET n = 200'), '55000: cannot write table "stock" without lock "stock"', '... also if it forgets to show its token');
is($in->query('SELECT DISTINCT n FROM stock'), 100, '... so that nothing of it is written');

#
# What the page says of removing it
#
$in->query('DROP TRIGGER zk_fence ON stock');
my ($drop) = PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/../../doc/fencing.md") =~ /^To remove it, (.*?)\n\n/ms;
is($in->fails("$_; SELECT 1"), '', 'removed: ' . s/\s+/ /gr) for $drop =~ /`(DROP [^`]*)`/g;
is($in->query("SELECT count(*) FROM pg_proc WHERE proname LIKE 'zk\\_%'"), 0, '... all of it');

#
# ... and of an extension that takes its place, in the database that was restored
#
my $moves = ZkLock::session($managed, dbname => 'restored_script');
my ($writer, $idle) = map { ZkLock::session($managed, dbname => 'restored_script', user => 'dba') } 1, 2;
ZkLock::ask($managed, 'ALTER ROLE batch RESET zklock.namespace');
my $seen = $moves->query('TABLE zk_fences ORDER BY 1, 2');
like($seen, qr/^\|stock\|6$/m, 'the script has seen tokens');
is($idle->fails("SELECT zk_fence('report', 14)"), '', '... one of a session that stays');
my ($steps) = @{ blocks_of('doc/fencing.md', 'sql')->{'When zklock is installed there later'} };
my ($begin, $rest) = $steps =~ /^(BEGIN;\nLOCK .*?;\n)(.*)\z/s;
$moves->query($begin);
$writer->send("BEGIN; SELECT zk_fence('stock', 5)")->wait_event('Lock');
is($moves->fails($rest), '', 'the extension takes its place');
like($writer->failure, qr/^42501: permission denied for table zk_fences/, 'a late holder that waited is refused');
$writer->query('ROLLBACK');
is($moves->query('TABLE zk_fences ORDER BY 1, 2'), $seen, 'the tokens are there');
is($moves->query("SELECT l.lanname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.proname = 'zk_fence'"), 'c', '... and the functions of the extension');
my $batch = ZkLock::session($managed, dbname => 'restored_script', user => 'batch');
like($batch->fails("SELECT zk_fence('stock', 5)"), qr/^40001: fencing token 5 /, '... refuse who is late');
like($batch->fails('UPDATE stock SET n = 0'), qr/^55000: cannot write table "stock" without lock/, 'the table has its fence');
is($batch->fails("BEGIN; SELECT zk_fence('stock', 7); UPDATE stock SET n = 0; COMMIT"), '', '... and is written with a token');
like($idle->fails("SELECT zk_fence('report', 13)"), qr/^42501: permission denied for function zk_fence/, 'a role with no right to it fences no more');

done_testing();
