# Work that is handed out: put at the commit, taken in order, held until the commit,
# given back by what ends otherwise.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "max_prepared_transactions = 2\ncluster_name = '$_'") } qw(a b);
ZkLock::wait_connected($a, $b);
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;

# What has committed is moved into the queue a moment later.
sub moved
{
	my ($queue) = @_;
	ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT putting FROM zk_queues WHERE queue = '$queue'") eq '0' }, "all is in $queue");
	return;
}
sub put { my ($s, $queue, @payloads) = @_; $s->query(join '; ', 'BEGIN', (map { "SELECT zk_queue_put('$queue', '$_')" } @payloads), 'COMMIT'); return moved($queue); }
sub take { my ($s, $queue, $more) = @_; return $s->query("SELECT payload || ' ' || attempt FROM zk_queue_take('$queue'" . ($more // '') . ')'); }

# Put
is(take($sa, 'q'), '', 'nothing to take');
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_queues'), 0, '... and nothing made for it');
my @ids = split /\n/, $sa->query("BEGIN; SELECT zk_queue_put('q', v) FROM unnest('{one,two,three}'::text[]) v; COMMIT");
is($sa->query("BEGIN; SELECT payload, attempt, id, since <= now() + interval '1 h', since > now() - interval '1 h' FROM zk_queue_take('q')"), "one|1|$ids[0]|t|t", 'the oldest, at once after its commit, by the id that its put returned');
length_is($b, 'q', '3 1 0', 'it is held');
sub items { return ZkLock::ask($b, "SELECT string_agg(concat_ws(' ', array_position('{" . join(',', @ids) . "}', id::text) - 1, state, attempts, server, pid), ', ' ORDER BY since, id) FROM zk_queue_items WHERE queue = '$_[0]'"); }
my $pid = $sa->query('SELECT pg_backend_pid()');
is(items('q'), "0 held 1 a $pid, 1 ready 0, 2 ready 0", '... by whom others see');
is($sb->query('BEGIN; ' . "SELECT payload FROM zk_queue_take('q')"), 'two', 'another server takes the next');
is(take($sa, 'q'), 'three 1', 'a second one in one transaction');
is(take($sb, 'q'), '', 'and no more');
$sa->query('COMMIT');
length_is($b, 'q', '1 1 0', 'the commit deletes them');
$sb->query('ROLLBACK');
length_is($b, 'q', '1 0 0', 'the rollback gives it back');
is(items('q'), '1 ready 1', '... with its attempt');
is(take($sa, 'q'), 'two 2', 'with the attempt counted');
length_is($b, 'q', '0 0 0', 'and it is gone');

# Rollback of puts
@ids = split /\n/, $sa->query("BEGIN; SELECT zk_queue_put('q', 'never'); ROLLBACK; BEGIN; SELECT zk_queue_put('q', '1'); SAVEPOINT s; SELECT zk_queue_put('q', 'never'); SAVEPOINT t; SELECT zk_queue_put('q', 'never'); RELEASE t; ROLLBACK TO s; SELECT zk_queue_put('q', '2'); SAVEPOINT u; SELECT zk_queue_put('q', '3'); RELEASE u; COMMIT");
length_is($b, 'q', '3 0 0', 'what was rolled back was never there');
is(items('q'), join(', ', map { "$_ ready 0" } 1, 4, 5), '... nor are the ids that were returned for it');
is(join(' ', @ids), join(' ', sort @ids), 'ids ascend');
is(join(',', map { take($sb, 'q') } 1 .. 3), '1 1,2 1,3 1', '... and the rest is, in order');

# Savepoints of takes
put($sa, 'q', 1 .. 4);
$sb->query('BEGIN');
is(take($sb, 'q'), '1 1', 'before the savepoint');
$sb->query('SAVEPOINT s');
is(take($sb, 'q'), '2 1', 'after it');
$sb->query('SAVEPOINT t');
is(take($sb, 'q'), '3 1', 'after the second');
$sb->query('RELEASE t; ROLLBACK TO s');
length_is($b, 'q', '4 1 0', 'given back');
is(take($sa, 'q'), '2 2', 'to its old place');
is(take($sb, 'q'), '3 2', '... each');
$sb->query('COMMIT');
length_is($b, 'q', '1 0 0', 'the others are done');
is(take($sa, 'q'), '4 1', 'the last one');

# PREPARE
for my $what ("SELECT zk_queue_put('q', 'x')", "SELECT payload FROM zk_queue_take('q')")
{
	put($sb, 'q', 'p');
	$sa->query("BEGIN; $what");
	like($sa->fails("PREPARE TRANSACTION 'p'"), qr/^55000: cannot PREPARE a transaction that has put items/, "no PREPARE: $what");
}
length_is($b, 'q', '2 0 0', 'all is as it was');
is($sa->query("SELECT zk_queue_purge('q')"), 2, 'purged');
length_is($b, 'q', '0 0 0', '... all');

# Waiting
$sb->send("SELECT payload FROM zk_queue_take('q', '1 h')");
$sb->wait_event('Extension');
put($sa, 'q', 'awaited');
is($sb->result, 'awaited', 'a waiter gets what is put');
put($sa, 'q', 'back');
$sa->query("BEGIN; SELECT FROM zk_queue_take('q')");
$sb->send("SELECT payload, attempt FROM zk_queue_take('q', '1 h')");
$sb->wait_event('Extension');
$sa->query('ROLLBACK');
is($sb->result, 'back|2', 'a waiter gets what another server gives back');
is($sb->query("SELECT count(*) FROM zk_queue_take('q', '0.2 s')"), 0, 'a wait ends');
$sb->send("SELECT payload FROM zk_queue_take('q', '1 h')");
$sb->wait_event('Extension');
is($sb->cancel->failure, '57014: canceling statement due to user request', 'a wait is canceled');

# Many
@ids = split /\n/, $sa->query("SELECT zk_queue_put('many', i::text) FROM generate_series(1, 1000) i");
is(join(' ', @ids), join(' ', sort @ids), 'ids of several chunks ascend');
length_is($b, 'many', '1000 0 0', 'a thousand in one transaction');
$sb->query("BEGIN");
is($sb->query("SELECT id, payload FROM generate_series(1, 300) i, zk_queue_take('many', 0 * i * interval '1 s')"), join("\n", map { $ids[ $_ - 1 ] . "|$_" } 1 .. 300), 'in their order, by their ids');
$sb->query("COMMIT");
length_is($b, 'many', '700 0 0', 'all of them done');

$sa->query("SELECT zk_queue_put('long', i::text) FROM generate_series(1, 1001) i");
length_is($b, 'long', '1001 0 0', 'more than are shown');
is(ZkLock::ask($a, "SELECT count(*) FROM zk_queue_items WHERE queue = 'long'"), 1000, 'the oldest thousand are shown');
is(ZkLock::ask($a, "SELECT string_agg(queue || ' ' || n, ', ' ORDER BY queue) FROM (SELECT queue, count(*) n FROM zk_queue_items GROUP BY 1) q"), 'long 1000, many 700', '... of each queue');
is($sa->query("SELECT zk_queue_purge('long')"), 1001, 'purged');

# Sizes
$sa->query("SELECT zk_queue_put('large', repeat('x', 65536)) FROM generate_series(1, 20)");
length_is($b, 'large', '20 0 0', 'the largest');
is($sb->query("SELECT length(payload) FROM zk_queue_take('large')"), 65536, '... arrives');
$sa->query("SELECT zk_queue_put('large', '')");
length_is($b, 'large', '20 0 0', 'the smallest');
is($sa->query("SELECT zk_queue_purge('large')"), 20, 'the rest is purged');

is(ZkLock::ask($a, 'SELECT items_lost FROM zk_stat'), 0, 'none was lost');
is(ZkLock::ask($a, "SELECT zk_stat_reset(); SELECT items_put FROM zk_stat") =~ s/^\n//r, 0, 'counters');
$_->stop for $a, $b;
done_testing();
