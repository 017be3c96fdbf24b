# Several items at once; and items that always fail, which are moved to a queue of their own.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Proxy;
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
# What fails here is no session that expires.
my $conf = "zklock.session_timeout = '60s'\nzklock.max_locks = 40";
my $a = ZkLock::server('a', $proxy, conf => "cluster_name = 'a'\n$conf");
my $b = ZkLock::server('b', $zk, conf => "cluster_name = 'b'\n$conf");
ZkLock::wait_connected($a, $b);
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;

sub put { my ($queue, @payloads) = @_; $sb->query("SELECT zk_queue_put('$queue', v) FROM unnest('{" . join(',', @payloads) . "}'::text[]) v"); return length_is($b, $queue, @payloads . ' 0 0', scalar(@payloads) . ' items'); }
# PAYLOADattempt ...
sub take { my ($s, $queue, $more) = @_; return $s->query("SELECT string_agg(payload || attempt, ' ') FROM zk_queue_take('$queue'" . ($more // '') . ')'); }

# Several
put('q', 'a' .. 'd');
$sb->query('BEGIN');
is(take($sb, 'q'), 'a1', 'one');
is(take($sa, 'q', ', count => 2'), 'b1 c1', 'several, in their order');
is(take($sa, 'q', ', count => 2'), 'd1', '... as many as there are');
is(take($sa, 'q', ', count => 2'), '', '... or none');
$sb->query('ROLLBACK');
is(take($sa, 'q', ", '1 h', 2"), 'a2', 'no wait for a second one');
length_is($b, 'q', '0 0 0', 'all are done');
$sb->send("SELECT string_agg(payload, '') FROM zk_queue_take('q', '1 h', 5)");
$sb->wait_event('Extension');
$sa->query("SELECT zk_queue_put('q', v) FROM unnest('{e,f,g}'::text[]) v");
is($sb->result, 'efg', 'a wait for the first takes what is there by then');
put('q', 1 .. 12);
$sa->query('BEGIN');
is(take($sa, 'q', ', count => 100'), join(' ', map { "${_}1" } 1 .. 5), 'no more than one transaction can have');
like($sa->fails("SELECT zk_queue_take('q')"), qr/^53400: transaction has taken too many queue items/, '... which is an error where there is no room for one');
$sa->query('ROLLBACK');
length_is($b, 'q', '12 0 0', 'all are given back');
# A savepoint gives back what was taken after it
$sa->query('BEGIN');
is(take($sa, 'q', ', count => 2'), '12 22', 'two');
$sa->query('SAVEPOINT s');
is(take($sa, 'q', ', count => 2'), '32 42', '... and two');
$sa->query('ROLLBACK TO s');
length_is($b, 'q', '12 2 0', '... of which the second are given back');
$sa->query('COMMIT');
length_is($b, 'q', '10 0 0', '... and the first are done');
is($sb->query("SELECT zk_queue_purge('q')"), 10, 'purged');

# One that always fails
my ($bad, $good) = split /\n/, $sb->query("SELECT zk_queue_put('q', v) FROM unnest('{bad,good}'::text[]) v");
length_is($b, 'q', '2 0 0', '2 items');
for my $s ($sa, $sb)
{
	$s->query('BEGIN');
	like(take($s, 'q', ', attempts => 2'), qr/^bad\d$/, 'it comes first');
	$s->query('ROLLBACK');
	length_is($b, 'q', '2 0 0', '... and fails');
}
$sb->send("SELECT payload || attempt, id FROM zk_queue_take('q.failed', '1 h')");
$sb->wait_event('Extension');
$sa->query('BEGIN');
is(take($sa, 'q', ', attempts => 2'), 'good1', 'it is not handed out a third time');
is($sb->result, "bad1|$bad", '... but from the queue of failed items, by its id, also to who waits there');
$sa->query('ROLLBACK');
length_is($b, 'q', '1 0 0', 'a rollback does not bring it back');
like(PostgreSQL::Test::Utils::slurp_file($a->logfile), qr/LOG:  item $bad of queue "q" was moved to the queue of failed items\n.*DETAIL:  It was taken 2 times without being done\./, 'the log says so');
is(take($sa, 'q', ', attempts => 1'), '', 'another server has another number');
length_is($b, 'q.failed', '1 0 0', '... and moves it');
is(ZkLock::ask($b, "SELECT queue, id, state, attempts FROM zk_queue_items"), "q.failed|$good|ready|0", 'its attempts begin anew');
$sa->query('BEGIN');
is(take($sa, 'q.failed'), 'good1', 'the queue is like any other');
$sa->query('ROLLBACK');
is(take($sa, 'q.failed', ', attempts => 1'), '', '... with items that fail');
is(take($sa, 'q.failed.failed'), 'good1', '... again');

# The largest, many at once
$sb->query("SELECT zk_queue_put('large', i || repeat('x', 65535)) FROM generate_series(1, 5) i");
length_is($b, 'large', '5 0 0', 'the largest items');
$sb->query("BEGIN; SELECT FROM zk_queue_take('large', count => 5); ROLLBACK");
length_is($b, 'large', '5 0 0', '... are given back');
is(take($sa, 'large', ', count => 5, attempts => 1'), '', 'several fail at once');
length_is($b, 'large.failed', '5 0 0', '... and are moved');
is($sb->query("SELECT string_agg(left(payload, 1) || length(payload), ' ' ORDER BY payload) FROM zk_queue_take('large.failed', '1 h', 5)"), join(' ', map { "${_}65536" } 1 .. 5), '... as they were');

# A request or a reply is lost: neither none of them nor two
for my $part (qw(request reply))
{
	for my $there (0, 1)
	{
		my $queue = "$part$there";
		put("$queue.failed", 'before') if $there;
		put($queue, 'bad', 'good');
		$sb->query('BEGIN');
		is(take($sb, $queue), 'bad1', 'one that fails');
		$sb->query('ROLLBACK');
		length_is($b, $queue, '2 0 0', '... is given back');
		my $method = "lose_$part";
		my $lost = $proxy->lost;
		$proxy->$method('multi', "/$queue.failed/items/");
		is(take($sa, $queue, ', attempts => 1'), 'good1', "$part of its move lost" . ($there ? '' : ', and the queue is not there yet'));
		is($proxy->lost, $lost + 1, '... as it was meant');
		length_is($b, $queue, '0 0 0', '... it is gone');
		is(take($sb, "$queue.failed", ', count => 5'), ($there ? 'before1 ' : '') . 'bad1', '... and there once');
	}
}

# Part of the queue is missing, too
put('part', 'bad', 'good');
$sb->query('BEGIN');
is(take($sb, 'part'), 'bad1', 'one that fails');
$sb->query('ROLLBACK');
length_is($b, 'part', '2 0 0', '... is given back');
$zk->delete(ZkLock::directory('part', 'queues') . '/held');
is(take($sa, 'part', ', attempts => 1'), 'good1', 'the directory of the marks is missing, and that of failed items');
is(take($sb, 'part.failed'), 'bad1', '... both are made');

is(ZkLock::ask($_, 'SELECT items_lost FROM zk_stat'), 0, 'none was lost') for $a, $b;
$_->stop for $a, $b;
done_testing();
