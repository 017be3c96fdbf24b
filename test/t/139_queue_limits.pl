# Work that is handed out: limits and their messages, encodings, namespaces, rights, drain,
# purge, DROP EXTENSION.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $file = PostgreSQL::Test::Utils::tempdir() . '/credentials';
PostgreSQL::Test::Utils::append_to_file($file, "digest\tzklock:s3cr3t\n");
chmod 0600, $file or die;
my $zk = ZooKeeper->new->start;
my $conf = "zklock.auth_file = '$file'\nzklock.acl = 'creator'";
my $a = ZkLock::server('a', $zk, conf => "$conf\ncluster_name = 'a'\nzklock.max_locks = 12");
my $b = ZkLock::server('b', $zk, conf => "$conf\ncluster_name = 'b'");
ZkLock::wait_connected($a, $b);
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;

sub take { my ($s, $queue, $timeout) = @_; return $s->query("SELECT payload || attempt FROM zk_queue_take('$queue', '" . ($timeout // 0) . "')"); }

#
# Limits
#
$sb->query("SELECT zk_queue_put('q', i::text) FROM generate_series(1, 5) i");
length_is($b, 'q', '5 0 0', 'five items');
is($sb->query("SELECT oldest BETWEEN now() - interval '1 h' AND now() + interval '1 h' FROM zk_queues"), 't', 'the oldest');
$sa->query('BEGIN');
take($sa, 'q') for 1 .. 2;
my ($other, $third) = map { ZkLock::session($a) } 1, 2;
$other->query('BEGIN');
take($other, 'q');
like($third->fails("SELECT FROM zk_queue_take('q', '1 h')"), qr/^53400: too many queue items are held on this server/, 'as many as it can have');
like($third->notices, qr/Its sessions hold or wait for 3, which is a quarter of "zklock.max_locks"/, '... says how many');
$other->query('ROLLBACK');
$sa->query('ROLLBACK');
length_is($b, 'q', '5 0 0', 'given back');
$_->query("SET zklock.max_queue_length = 6; SET zklock.max_item_size = '10'") for $sa, $sb;
$sa->query("BEGIN; SELECT zk_queue_put('q', '6'); SELECT zk_queue_put('q', '7')");
like($sa->fails('COMMIT'), qr/^54000: queue "q" is full/, 'max_queue_length');
like($sa->notices, qr/It has 5 items, the transaction puts 2, and "zklock.max_queue_length" is 6/, '... says how many');
length_is($b, 'q', '5 0 0', '... and nothing is put');
$sa->query("SELECT zk_queue_put('q', '1234567890')");
length_is($b, 'q', '6 0 0', 'one more');
like($sa->fails("SELECT zk_queue_put('q', '12345678901')"), qr/^54000: /, 'max_item_size');
like($sa->fails("SELECT zk_queue_put('q', 'x')"), qr/^54000: queue "q" is full/, 'full');
$_->query('RESET zklock.max_queue_length; RESET zklock.max_item_size') for $sa, $sb;
$sa->query("SELECT zk_queue_put(repeat(chr(128) || 'ü', 60) || (i + 128 * $_), 'x') FROM generate_series(1, 128) i") for 0, 1;
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT count(*) FROM zk_queues WHERE length = 1 AND putting = 0") == 256 }, 'as many as there may be are put');
pass('128 queues at a time');
is($sb->query("SELECT sum(zk_queue_purge(queue)) FROM zk_queues WHERE queue <> 'q'"), 256, '... and purged');
# the largest names, and as many of the smallest items as a step has
my $long = 'x' . ("\x01" x 254);
$sa->query("SELECT zk_queue_put('$long', '') FROM generate_series(1, 600) i");
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT length FROM zk_queues WHERE queue = '$long'") eq '600' }, 'all are there');
is($sb->query("SELECT count(*), sum(length(payload)) FROM generate_series(1, 3) i, zk_queue_take('$long', 0 * i * interval '1 s')"), '3|0', 'empty ones');
is($sb->query("SELECT zk_queue_purge('$long')"), 597, 'a long name');

#
# Purge beside those who have items
#
$sa->query('BEGIN');
is(take($sa, 'q'), '12', 'one is taken');
is($sb->query("SELECT zk_queue_purge('q')"), 5, 'the others are purged');
length_is($b, 'q', '1 1 0', '... and that one not');
is($sb->query("BEGIN; SELECT zk_queue_purge('q'); ROLLBACK"), 0, 'there is nothing more to be purged');
$sa->query('ROLLBACK');
is(take($sb, 'q', '1 h'), '13', 'it is given back');
is($sb->query("SELECT zk_queue_purge('no such')"), 0, 'a purge of none');

#
# Encodings
#
$sa->query("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'");
$sa->query("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'");
my ($latin, $ascii) = map { my $s = ZkLock::session($a, dbname => $_); $s->query('CREATE EXTENSION zklock'); $s } qw(latin ascii);
$latin->query("SELECT zk_queue_put('größe', 'Maß')");
is(take($sb, 'größe', '1 h'), 'Maß1', 'from LATIN1 to UTF-8');
$sb->query("SELECT zk_queue_put('größe', 'Öl €')");
length_is($b, 'größe', '1 0 0', 'an item');
like($latin->fails("SELECT payload FROM zk_queue_take('größe')"), qr/^22P05: character with byte sequence 0xe2 0x82 0xac in encoding "UTF8" has no equivalent/, 'what this database cannot show');
is(take($sb, 'größe', '1 h'), 'Öl €2', '... is given back');
is($ascii->fails("SELECT zk_queue_put('bytes', E'\\xC3\\xA4')"), '', 'SQL_ASCII: UTF-8 is put');
is(take($sb, 'bytes', '1 h'), 'ä1', '... as that');
like($ascii->fails("SELECT zk_queue_put('bytes', E'\\xFF')"), qr/^22021: /, '... and nothing else');

#
# Rights
#
$sb->query('CREATE ROLE nobody LOGIN; CREATE ROLE worker LOGIN; GRANT EXECUTE ON FUNCTION zk_queue_take(text, interval, integer, integer) TO worker; CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
my %as = map { $_ => ZkLock::session($b, user => $_) } qw(nobody worker watcher);
for my $call ("zk_queue_put('q', 'x')", "zk_queue_take('q')", "zk_queue_purge('q')")
{
	my ($function) = $call =~ /^(\w+)/;
	like($as{nobody}->fails("SELECT $call"), qr/^42501: permission denied for function $function/, "$function is not for everybody");
}
for my $view (qw(zk_queues zk_queue_items))
{
	like($as{nobody}->fails("SELECT * FROM $view"), qr/^42501: /, "nor is the view $view");
	is($as{watcher}->fails("SELECT * FROM $view"), '', 'it is for pg_monitor');
}
is(take($as{worker}, 'q'), '', 'who may take takes');
like($as{worker}->fails("SET zklock.max_queue_length = 1"), qr/^42501: /, 'limits are set by superusers');
# ... in ZooKeeper
my $friend = $zk->client(auth => [ digest => 'zklock:s3cr3t' ]);
$sa->query("SELECT zk_queue_put('q', 'secret')");
length_is($b, 'q', '1 0 0', 'an item');
my ($item) = @{ $friend->children('/zklock/queues/q/items') };
for my $path ('/zklock/queues/q', (map { "/zklock/queues/q/$_" } qw(items held puts)), "/zklock/queues/q/items/$item")
{
	is_deeply($friend->acl($path), $friend->acl('/zklock/locks'), "$path is ours alone");
}
like(eval { $zk->client->get("/zklock/queues/q/items/$item") } // $@, qr/error -102/, '... nobody else reads it');
is(take($sb, 'q'), 'secret1', '... we do');

#
# Namespaces
#
ZkLock::ask($b, "ALTER SYSTEM SET zklock.namespace = 'test'");
ZkLock::ask($b, 'SELECT pg_reload_conf()');
ZkLock::wait_until(sub { $sb->query('SHOW zklock.namespace') eq 'test' && ZkLock::ask($b, 'SHOW zklock.namespace') eq 'test' }, 'B has a namespace');
$sa->query("SELECT zk_queue_put('q', 'out')");
$sb->query("SELECT zk_queue_put('q', 'in')");
is(take($sb, 'q', '1 h'), 'in1', 'queues of one name');
is(take($sa, 'q', '1 h'), 'out1', '... in two namespaces');
is(ZkLock::ask($b, "SELECT string_agg(queue, ' ') FROM zk_queues"), 'q', 'each sees its own');
$_->query("SELECT zk_queue_put('q', 'x')") for $sa, $sb;
length_is($b, 'q', '1 0 0', 'an item');
$_->query("BEGIN; SELECT FROM zk_queue_take('q', '1 h'); ROLLBACK") for $sa, $sb;
# a slow machine may need more than one look at it
my ($handed, $items) = (0);
ZkLock::wait_until(
	sub {
		$handed += $sb->query("SELECT count(*) FROM zk_queue_take('q', '1 s', attempts => 1)");
		return $handed || ($items = $sb->query('SELECT queue, attempts FROM zk_queue_items')) eq 'q.failed|0';
	},
	'it has gone to a queue of its namespace', sub { $items });
is($handed, 0, 'one that fails has gone to a queue of its namespace');
is(take($sb, 'q.failed') . take($sa, 'q', '1 h'), 'x1x2', '... and nothing else');
ZkLock::ask($b, 'ALTER SYSTEM RESET zklock.namespace');
ZkLock::ask($b, 'SELECT pg_reload_conf()');
ZkLock::wait_until(sub { $sb->query('SHOW zklock.namespace') eq '' && ZkLock::ask($b, 'SHOW zklock.namespace') eq '' }, 'B has none');

#
# Drain
#
$sa->query("SELECT zk_queue_put('q', 'drain')");
length_is($b, 'q', '1 0 0', 'an item');
$sa->query("BEGIN; SELECT FROM zk_queue_take('q')");
$third->send("SELECT payload FROM zk_queue_take('before', NULL)")->wait_event('Extension');
ZkLock::ask($a, 'ALTER SYSTEM SET zklock.drain = on');
ZkLock::ask($a, 'SELECT pg_reload_conf()');
ZkLock::wait_until(sub { ZkLock::ask($a, 'SHOW zklock.drain') eq 'on' && ZkLock::ask($a, 'SELECT drain FROM zk_session') ne 'off' }, 'A drains');
is(ZkLock::ask($a, 'SELECT drain FROM zk_session'), 'draining', '... while it has an item');
is(take($other, 'q'), '', 'it takes no other');
like($other->notices, qr/^NOTICE 00000: no item of queue "q" is taken by this server/, '... and says so');
is(take($other, 'q', '100 ms'), '', 'it waits as if there were none');
$other->send("SELECT payload FROM zk_queue_take('q', NULL)");
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query ~ 'zk_queue_take' AND state = 'active'") eq '2' }, '... for ever, if it is told so');
like($sa->query("SELECT zk_queue_put('q', 'more'); COMMIT"), qr/^[0-9a-f-]{36}$/, 'it puts');
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT drain FROM zk_session') eq 'drained' }, 'it is drained, also with a take that has waited since before');
is(take($sb, 'q', '1 h'), 'more1', 'another server takes');
$sb->query("SELECT zk_queue_put('q', 'after'), zk_queue_put('before', 'before')");
length_is($b, 'before', '1 0 0', '... and A, which has waited since before, does not');
ZkLock::ask($a, 'ALTER SYSTEM RESET zklock.drain');
ZkLock::ask($a, 'SELECT pg_reload_conf()');
is($other->result, 'after', 'when it is in service again the one that waited takes');
is($third->result, 'before', '... so does the one that has waited since before');
like($third->notices, qr/^NOTICE 00000: no item of queue "before" is taken by this server/, '... and was told');

#
# DROP EXTENSION
#
$sb->query("SELECT zk_queue_put('q', i::text) FROM generate_series(1, 2) i");
length_is($b, 'q', '2 0 0', 'two items');
$sb->query("BEGIN; SELECT FROM zk_queue_take('q'); SELECT zk_queue_put('q', 'last'); DROP EXTENSION zklock; COMMIT; CREATE EXTENSION zklock");
length_is($b, 'q', '2 0 0', 'a transaction that drops the extension puts and has done what it took');
$sb->query("BEGIN; SELECT FROM zk_queue_take('q'); DROP EXTENSION zklock; ROLLBACK");
length_is($b, 'q', '2 0 0', '... or gives it back');
is(take($sb, 'q'), '22', '... in its place');
is(take($sb, 'q'), 'last1', '... before the other');
is(ZkLock::ask($_, 'SELECT items_lost FROM zk_stat'), 0, 'nothing was lost') for $a, $b;

$_->stop for $a, $b;
done_testing();
