# Who may call what, who sees what, and roles whose names are set apart.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => 'zklock.max_locks = 100');
my $b = ZkLock::server('b', $zk);
ZkLock::wait_connected($a, $b);
ZkLock::ask($a, $_)
  for 'CREATE ROLE nobody LOGIN', 'CREATE ROLE batch LOGIN', 'CREATE ROLE red LOGIN', 'CREATE ROLE blue LOGIN',
  'GRANT EXECUTE ON FUNCTION zk_lock, zk_try_lock, zk_assert, zk_fence TO batch, red, blue',
  'GRANT EXECUTE ON PROCEDURE zk_lock_session TO batch, red, blue',
  "ALTER ROLE red SET zklock.namespace = 'red'", "ALTER ROLE blue SET zklock.namespace = 'blue'",
  'ALTER ROLE blue SET zklock.max_locks_per_backend = 3';

# Who may call what
my $nobody = ZkLock::session($a, user => 'nobody');
my $batch = ZkLock::session($a, user => 'batch');
for my $sql ("SELECT zk_lock('job')", "SELECT zk_try_lock('job')", "SELECT zk_assert('job')", "SELECT zk_fence('job', 1)",
	"CALL zk_lock_session('job')")
{
	like($nobody->fails($sql), qr/^42501: permission denied for (function|procedure) zk_/, "not for everybody: $sql");
}
is($nobody->fails($_), '', "for everybody: $_")
  for "SELECT zk_unlock('job')", 'SELECT zk_unlock_all()', "SELECT zk_token('job')", 'SELECT * FROM zk_locks';
is($batch->fails($_), '', "granted: $_")
  for "BEGIN; SELECT zk_lock('job'), zk_assert('job'), zk_fence('job', 1); COMMIT", "SELECT zk_try_lock('job')",
  "CALL zk_lock_session('job'); SELECT zk_unlock_all()";

# Who sees what
$batch->query("SELECT zk_lock('seen', scope => 'session')");
my $row = "SELECT name, mode, scope, granted, pid = " . $batch->pid . ", token IS NOT NULL, wait_start FROM zk_locks";
is($batch->query($row), 'seen|exclusive|session|t|t|t|', 'one sees one\'s own');
is($nobody->query($row), '||||t|f|', '... others see that there is something');
is(ZkLock::session($a, user => 'batch')->query($row), 'seen|exclusive|session|t|t|t|', '... another session of the role sees it');
is(ZkLock::ask($a, $row), 'seen|exclusive|session|t|t|t|', '... and so does a superuser');
ZkLock::ask($a, 'GRANT pg_read_all_stats TO nobody');
is($nobody->query($row), 'seen|exclusive|session|t|t|t|', '... and who may read all statistics');
$batch->query('SELECT zk_unlock_all()');

# Names set apart
my $red = ZkLock::session($a, user => 'red');
my $blue = ZkLock::session($a, user => 'blue');
my $none = ZkLock::session($a);
my $far = ZkLock::session($b);
$far->query("SET zklock.namespace = 'red'");
for my $name ('job', 'red', 'redjob', '%FFjob')
{
	my $token = $red->query("SELECT zk_lock('$name', scope => 'session')");
	cmp_ok($token, '>', 0, "red has $name");
	is($_->query("SELECT zk_try_lock('$name', scope => 'session')"), 't', '... others have a lock of that name')
	  for $blue, $none;
	is($far->query("SELECT zk_try_lock('$name')"), 'f', '... but not on another server, in the same namespace');
	is($_->query('SELECT count(*), min(name) FROM zk_locks'), "1|$name", '... each sees one, by its name')
	  for $red, $blue, $none;
	is($_->query("SELECT zk_unlock('$name')"), 't', '... and ends it') for $red, $blue, $none;
	like($red->fails("SELECT zk_unlock('$name')") . $red->notices, qr/you do not hold lock "\Q$name\E"/, '... messages name it')
	  if $name eq 'job';
}
# No name that can be written reaches into a namespace.
$red->query("SELECT zk_lock('job', scope => 'session')");
ok(scalar(grep { $_ eq 'red%FFjob' } $zk->children('/zklock/locks')), 'directories bear the namespace');
is($none->query("SELECT zk_try_lock('$_')"), 't', "... $_ is another name") for 'red%FFjob', 'redjob', 'red/job';
like($none->fails("SELECT zk_try_lock(E'red\\xffjob')"), qr/^22021: invalid byte sequence/, '... and this is no name');
$none->query("SET zklock.namespace = 'red'");
is($none->query("SELECT zk_try_lock('job')"), 'f', 'an administrator can join a namespace');
is($none->query('SELECT name, pid = ' . $red->pid . ' FROM zk_locks'), 'job|t', '... and look around');
like($red->fails("SET zklock.namespace = 'blue'"), qr/^42501: permission denied to set parameter/, 'others cannot change theirs');
like($red->fails('SET zklock.max_locks_per_backend = 100'), qr/^42501: /, '... nor their limit');
is($red->query('RESET ALL; SHOW zklock.namespace'), 'red', '... and RESET is no way out');
is($red->query('DISCARD ALL; SHOW zklock.namespace'), 'red', '... nor is DISCARD');
like($none->fails("SET zklock.namespace = '$_'"), qr/^22023: invalid value/, "no namespace: $_")
  for 'a b', 'a/b', 'x' x 64;
$none->query("SET zklock.namespace = '" . 'x' x 63 . "'");
is($none->query("SELECT zk_try_lock(repeat('y', 191))"), 't', 'both have 255 bytes together');
is($none->fails("SELECT zk_try_lock(repeat('y', 192))"), '22023: lock name is too long', '... and no more');
like($none->notices, qr/DETAIL:  The name has 192 bytes in UTF-8; a name has 1 to 191\.\nHINT:  The namespace "x{63}" counts, too\./,
	'... and why');

# A loss is told by the name, and logged with the namespace.
$red->query("SELECT zk_lock('job', scope => 'session')");
my ($contender) = $zk->children('/zklock/locks/red%FFjob');
$zk->delete("/zklock/locks/red%FFjob/$contender");
ZkLock::wait_until(sub { $red->fails('SELECT 1') =~ /^55000: lock "job" was lost/ }, 'the loss is seen');
# the worker marks it, and then says so
ok(ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /LOG:  lock "red%FFjob" was lost while held/ }, 'the log has the loss'), 'a loss in a namespace');
$red->query('SELECT zk_unlock_all()');

# Fences, too
$red->query("SELECT zk_fence('data', 9000)");
is($blue->fails("SELECT zk_fence('data', 10)"), '', 'a fence is set apart, too');
like($red->fails("SELECT zk_fence('data', 10)"), qr/^40001: fencing token 10 for resource "data" is too old/, '... and works');

# How many
my $three = "SELECT zk_lock('n' || i, scope => 'session') > 0 FROM generate_series(1, 3) i";
is($blue->query($three), "t\nt\nt", 'as many as are allowed');
is($blue->fails("SELECT zk_lock('n4')"), '53400: session holds too many zklock locks', '... no more');
like($blue->notices, qr/It holds locks of 3 names, and "zklock.max_locks_per_backend" is 3\.\nHINT:/, '... and why');
is($blue->query("SELECT zk_lock('n1') > 0"), 't', '... the same again');
is($blue->query("SELECT zk_unlock('n1'); SELECT zk_lock('n4') > 0"), "t\nt", '... one goes, one comes');
is($blue->query('SELECT zk_unlock_all()'), 2, '... and all end');
my $full = ZkLock::session($a);
like($full->fails("SELECT zk_lock('f' || i, scope => 'session') FROM generate_series(1, 200) i"), qr/^53200: zklock lock table is full/,
	'without a limit one session can fill the table');
$full->quit;
ZkLock::ok_clean($zk, [ $a, $b ], $_) for 'job', 'n1';

done_testing();
