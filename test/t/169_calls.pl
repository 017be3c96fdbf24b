# Calls of which the documentation says what they do: zk_queue_take in FROM and in a select
# list, functions of others beside those of the extension, a namespace that changes.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk);
ZkLock::wait_connected($a);
my $s = ZkLock::session($a);

#
# doc/queues.md: many items in one statement
#
sub taken
{
	my $sql = shift;
	$s->query("SELECT zk_queue_put('import', i::text) FROM generate_series(1, 12) i");
	length_is($a, 'import', '12 0 0', 'twelve items');
	my $rows = $s->query("BEGIN; $sql") =~ tr/\n/ /r;
	$s->query('ROLLBACK');
	length_is($a, 'import', '12 0 0', 'they are given back');
	$s->query("SELECT zk_queue_purge('import')");
	return $rows;
}

is(taken("SELECT payload FROM generate_series(1, 3), zk_queue_take('import')"), '1 1 1', 'in FROM it is called once');
is(taken("SELECT payload FROM generate_series(1, 3), LATERAL zk_queue_take('import')"), '1 1 1', '... also with LATERAL');
is(taken("SELECT (item).payload FROM (SELECT zk_queue_take('import') AS item FROM generate_series(1, 10)) AS taken"), join(' ', 1 .. 10), 'in the select list of a subquery it is called for each row');

#
# doc/security.md: the schema
#
my $theirs = "CREATE FUNCTION zk_fence(text, integer) RETURNS text LANGUAGE sql AS \$\$SELECT 'taken over'\$\$";
$s->query($theirs);
is($s->query("SELECT zk_fence('report', 12)"), 'taken over', 'a function beside that of the extension takes a call over');
$s->query('DROP FUNCTION zk_fence(text, integer); CREATE DATABASE closed');
my $closed = ZkLock::session($a, dbname => 'closed');
$closed->query('CREATE SCHEMA zklock; CREATE EXTENSION zklock SCHEMA zklock; CREATE ROLE batch LOGIN; GRANT USAGE ON SCHEMA zklock TO batch; GRANT EXECUTE ON FUNCTION zklock.zk_fence TO batch');
$closed->query($theirs);
my $batch = ZkLock::session($a, dbname => 'closed', user => 'batch');
like($batch->fails($theirs =~ s/zk_fence/zklock.zk_fence/r), qr/^42501: /, 'not in a schema where nobody else may create');
is($batch->query("SELECT zklock.zk_fence('report', 12)"), '', '... whose functions are called by their schema');

#
# ... a new namespace
#
my $before = ZkLock::session($a);
$s->query('CREATE ROLE tenant LOGIN SUPERUSER');
my $tenant = ZkLock::session($a, user => 'tenant');
$tenant->query("SELECT zk_lock('old', scope => 'session')");
$s->query("ALTER ROLE tenant SET zklock.namespace = 'n'");
is($tenant->query('SHOW zklock.namespace'), '', 'ALTER ROLE changes nothing for a session that is there');
is(ZkLock::session($a, user => 'tenant')->query('SHOW zklock.namespace'), 'n', '... but for the next one');
ZkLock::set($a, 'zklock.namespace', 'm', $tenant);
is($tenant->query("SELECT zk_token('old') IS NULL, count(*) FROM zk_locks"), 't|0', 'after a reload a session looks into the new one');
$before->query("SET zklock.namespace = ''");
is($before->query("SELECT zk_try_lock('old')"), 'f', '... and has what it held in the old one');
$before->query("SET zklock.namespace = 'm'");
is($before->query("SELECT zk_try_lock('old')"), 't', '... where names are others');
like($tenant->fails("SELECT zk_unlock('old')") . $tenant->notices, qr/you do not hold lock "old"/, '... zk_unlock does not find it');
is($tenant->query('SELECT zk_unlock_all()'), 1, '... zk_unlock_all does');

done_testing();
