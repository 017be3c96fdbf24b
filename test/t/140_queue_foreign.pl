# What others do to the znodes of a queue, and may do; and how many requests items cost.
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
my $a = ZkLock::server('a', $proxy, conf => "cluster_name = 'a'");
my $b = ZkLock::server('b', $zk, conf => "cluster_name = 'b'");
# Its session is there to expire, but not because the machine is slow.
my $c = ZkLock::server('c', $zk, conf => "cluster_name = 'c'\nzklock.session_timeout = '10s'");
ZkLock::wait_connected($a, $b, $c);
my ($sa, $sb, $sc) = map { ZkLock::session($_) } $a, $b, $c;
my $foreigner = $zk->client;

sub dir { my ($queue, $part) = @_; return ZkLock::directory($queue, 'queues') . "/$part"; }
sub take { my ($s, $queue, $timeout) = @_; return $s->query("SELECT payload, attempt FROM zk_queue_take('$queue', '" . ($timeout // 0) . "')"); }
# The server log says that this item is set aside, and why.
sub wait_set_aside
{
	my ($server, $item, $queue, $why) = @_;
	my $znode = qr/znode "items\/\Q$item\E" in the queue's directory/;
	my $hint = $why =~ /moved/ ? qr/Delete what is below $znode, and kill the worker, "worker_pid" in zk_session: the next take with "attempts" then moves the item\./ : qr/Delete $znode, with what is below it\./;
	ZkLock::wait_until(
		sub { PostgreSQL::Test::Utils::slurp_file($server->logfile) =~ /LOG:  item "\Q$item\E" of queue "$queue" is set aside\n.*DETAIL:  $why\n.*HINT:  $hint/ },
		"item $item is set aside");
	return;
}
sub items
{
	my ($queue) = @_;
	my %number = map { $_ => substr($_, -10) } $zk->children(dir($queue, 'items'));
	my @numbers = sort { $number{$::a} <=> $number{$::b} } keys %number; # $a and $b are servers here
	return @numbers;
}
# A worker that asks again and again asks a hundred times in a moment.
sub calm
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$proxy->requests;
	ZkLock::ask($a, 'SELECT pg_sleep(0.5)');
	my %made = %{ $proxy->requests };
	my $n = 0;
	$n += $_ for values %made;
	return cmp_ok($n, '<', 60, "$what: the worker does not spin") || diag(explain(\%made));
}

#
# Nodes that are no items, and items that are none of ours
#
ZkLock::ask($a, "SELECT zk_queue_put('rubbish', 'first')");
length_is($b, 'rubbish', '1 0 0', 'one item');
my $id = '0198d3a0-1b2c-7345-8678-9abcdef0123'; # without the last digit
for my $name ('x', "${id}4-", "${id}4-1", "$id-0000000001", "${id}g-0000000001", "${id}4-000000000x", "${id}4--000000001", "${id}45-0000000001", uc "${id}4-0000000001", 'a' x 300)
{
	$foreigner->create(dir('rubbish', 'items') . "/$name");
}
$foreigner->create(dir('rubbish', 'held') . "/$_") for 'x', "${id}4-0000000000";
$foreigner->create(dir('rubbish', 'puts') . "/$_", data => $_) for 'x', '0' x 16 . '-' . '0' x 16 . '-00000000-00000000';
is(take($sb, 'rubbish'), 'first|1', 'what is no item is in the way of none');
is(take($sb, 'rubbish'), '', '... and is none');
# Each of these stands first.  In what order the worker comes to them is its own business.
my %spoilt = ("${id}7-0000000000" => "a\0b", "${id}8-0000000000" => "\xff\xfe", "${id}9-0000000000" => 'x' x 65537);
$foreigner->create(dir('rubbish', 'items') . "/$_", data => $spoilt{$_}) for sort keys %spoilt;
ZkLock::ask($a, "SELECT zk_queue_put('rubbish', 'behind')");
is(take($sb, 'rubbish', '1 h'), 'behind|1', 'what zklock cannot have put stands in the way of none');
wait_set_aside($b, $_, 'rubbish', 'It was not put by zklock\.') for sort keys %spoilt;
is(take($sb, 'rubbish'), '', '... and is handed to nobody');
$foreigner->set(dir('rubbish', 'items') . "/${id}7-0000000000", 'forged');
is(take($sa, 'rubbish'), 'forged|2', 'one that looks like an item is one');
cmp_ok($sb->query("SELECT zk_queue_purge('rubbish')"), '==', 12, 'a purge takes it all');

#
# Below an item: it can be taken, and given back, but not deleted when it is done
#
sub node_below
{
	my $child = dir('below', 'items') . '/' . (items('below'))[0] . '/x';
	$foreigner->create($child);
	return $child;
}
ZkLock::ask($a, "SELECT zk_queue_put('below', 'returned')");
length_is($b, 'below', '1 0 0', 'an item');
$sa->query('BEGIN');
is(take($sa, 'below'), 'returned|1', 'taken');
node_below();
$sa->query('ROLLBACK');
length_is($b, 'below', '1 0 0', 'an item with another\'s node below it is given back');
is(take($sb, 'below'), 'returned|3', '... and can be had again');
my ($item) = items('below');
wait_set_aside($b, $item, 'below', 'It is done, and cannot be deleted: there is a znode below it\.');
length_is($b, 'below', '1 0 0', '... and when it is done, it is nobody\'s');
is(take($_, 'below'), '', '... and handed to nobody') for $sa, $sb;
is(ZkLock::ask($a, "SELECT state, server FROM zk_queue_items WHERE queue = 'below'"), 'done|', '... as zk_queue_items says');
ZkLock::ask($a, "SELECT zk_queue_put('below', 'behind')");
is(take($sb, 'below', '1 h'), 'behind|1', '... and stands in nobody\'s way');
calm('an item that is set aside');
sub delete_below
{
	$foreigner->delete(dir('below', "items/$_[0]/$_")) for $zk->children(dir('below', "items/$_[0]"));
	$foreigner->delete(dir('below', "items/$_[0]"));
	length_is($b, 'below', '0 0 0', '... until it is deleted');
	return;
}
delete_below($item);

# Its session has ended before it could be deleted, and so its marks
my $worker;
for (1 .. 10)
{
	ZkLock::ask($a, "SELECT zk_queue_put('below', 'expired')");
	length_is($b, 'below', '1 0 0', 'an item');
	$worker = ZkLock::ask($c, 'SELECT worker_pid FROM zk_session');
	$sc->query('BEGIN');
	is(take($sc, 'below'), 'expired|1', 'taken');
	node_below();
	ZkLock::stop_process($c, $worker);
	last if $sc->fails('COMMIT') eq '';
	# on a slow machine it may have ended before
	kill 'CONT', $worker;
	ZkLock::wait_connected($c);
	length_is($b, 'below', '1 0 0', 'the item is given back');
	delete_below(items('below'));
}
length_is($b, 'below', '1 0 0', 'its session ends');
kill 'CONT', $worker;
($item) = items('below');
wait_set_aside($c, $item, 'below', 'It is done, and cannot be deleted: there is a znode below it\.');
is(take($_, 'below'), '', '... and handed to nobody') for $sa, $sb;
delete_below($item);

# It is given back, for which its taker does not wait, when the session ends
ZkLock::ask($a, "SELECT zk_queue_put('given', 'first')");
length_is($b, 'given', '1 0 0', 'an item');
is(take($sb, 'given'), 'first|1', 'taken');
($item) = $foreigner->create(dir('given', 'items') . "/${id}4-0000000000", data => "\xff") =~ m{([^/]*)$};
$zk->admin->set_acl(dir('given', 'held'), [ 23, world => 'anyone' ]);
$sc->send("SELECT payload FROM zk_queue_take('given', '1 h')");
wait_set_aside($c, $item, 'given', 'It was not put by zklock\.');
length_is($b, 'given', '1 1 0', 'an item that may not be given back');
kill 'STOP', $worker;
length_is($b, 'given', '1 0 0', 'its session ends');
$zk->admin->set_acl(dir('given', 'held'), [ 31, world => 'anyone' ]);
$foreigner->delete(dir('given', "items/$item"));
ZkLock::ask($a, "SELECT zk_queue_put('given', 'second')");
kill 'CONT', $worker;
is($sc->result, 'second', 'who waits has another one then');

# It was taken too often, and cannot be moved to the failed ones
ZkLock::ask($a, "SELECT zk_queue_put('below', v) FROM unnest('{fails,behind}'::text[]) v");
length_is($b, 'below', '2 0 0', 'two items');
$sb->query("BEGIN; SELECT FROM zk_queue_take('below'); ROLLBACK");
length_is($b, 'below', '2 0 0', 'one fails');
node_below();
is($sa->query("SELECT payload FROM zk_queue_take('below', '1 h', attempts => 1)"), 'behind', 'an item that cannot be moved stands in nobody\'s way');
($item) = items('below');
wait_set_aside($a, $item, 'below', 'It was taken too often, and cannot be moved: there is a znode below it\.');
calm('an item that cannot be moved');
length_is($b, 'below', '1 0 0', '... and stays');
$foreigner->delete(dir('below', "items/$item/x"));
kill 'TERM', ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
ZkLock::wait_until(sub { $sa->query("SELECT payload FROM zk_queue_take('below', attempts => 1)"); return items('below.failed') > 0; }, 'the item is moved');
is($sa->query("SELECT payload FROM zk_queue_take('below.failed', '1 min')"), 'fails', '... until the other\'s node is deleted: then it is among the failed ones');
length_is($b, $_, '0 0 0', '... and nothing is lost') for 'below', 'below.failed';

# The mark, which says that somebody has it
for my $end (qw(COMMIT ROLLBACK))
{
	ZkLock::ask($a, "SELECT zk_queue_put('mark', '$end')");
	length_is($b, 'mark', '1 0 0', 'an item');
	$sa->query('BEGIN');
	is(take($sa, 'mark'), "$end|1", 'taken');
	$foreigner->delete(dir('mark', 'items') . '/' . (items('mark'))[0] . '/held');
	$sb->query('BEGIN');
	is(take($sb, 'mark'), "$end|2", 'an item whose mark somebody deletes is another\'s');
	$sa->query($end);
	$zk->wait_children(dir('mark', 'held'), 1);
	$sb->query('ROLLBACK');
	is(take($sb, 'mark'), $end eq 'COMMIT' ? '' : "$end|3", '... and gone, or nobody\'s, when all have ended');
	length_is($b, 'mark', '0 0 0', '... and leaves no mark');
}

#
# Directories that are missing, or belong to somebody else
#
ZkLock::ask($a, "SELECT zk_queue_put('gone', 'x')");
length_is($b, 'gone', '1 0 0', 'one item');
# numbers begin again: what is put later has not that of the item that is held
is(take($sb, 'gone'), 'x|1', 'taken');
ZkLock::ask($a, "SELECT zk_queue_put('gone', 'x')");
length_is($b, 'gone', '1 0 0', 'another one');
$sa->query("BEGIN; SELECT zk_queue_put('gone', 'y'); SELECT FROM zk_queue_take('gone')");
$sb->send("SELECT payload FROM zk_queue_take('gone', '1 h')")->wait_event('Extension');
for my $part (qw(items held puts))
{
	for my $child ($zk->children(dir('gone', $part)))
	{
		$foreigner->delete(dir('gone', "$part/$child/$_")) for $zk->children(dir('gone', "$part/$child"));
		$foreigner->delete(dir('gone', "$part/$child"));
	}
	$foreigner->delete(dir('gone', $part));
}
# B, who waits, may have made them again
eval { $foreigner->delete(ZkLock::directory('gone', 'queues')) };
$sa->query('COMMIT');
is($sb->result, 'y', 'a directory that is deleted is made again');
length_is($b, 'gone', '0 0 0', '... and nothing is left');

sub shut { my ($path, $perms) = @_; return $foreigner->set_acl($path, [ $perms, 'world', 'anyone' ]); }

{
	shut('/zklock/queues', 17);
	like($sa->fails("SELECT zk_queue_put('refused', 'x')"), qr/^58000: ZooKeeper refused the request for queue "refused": /, 'a queue that may not be made is told');
	is(take($sa, 'refused'), '', '... and has no item');
	like($sa->fails("SELECT FROM zk_queue_take('refused', '1 h')"), qr/^58000: ZooKeeper refused the request for queue "refused": /, '... is told to whoever waits');
	$sa->query("SELECT zk_queue_put('gone', 'there')");
	is(take($sb, 'gone', '1 h'), 'there|1', 'one that is there is used');
	length_is($b, 'gone', '0 0 0', '... and is gone');
	shut('/zklock/queues', 31);
	shut(dir('gone', 'puts'), 17);
	like($sa->fails("SELECT zk_queue_put('gone', 'x')"), qr/^58000: ZooKeeper refused the request for queue "gone": /, 'puts that may not be written are told');
	shut(dir('gone', 'puts'), 31);
	shut(dir('gone', 'items'), 17);
	$sa->query("SELECT zk_queue_put('gone', 'late')");
	is(take($sa, 'gone', '0.1 s'), '', 'items that may not be made: nobody waits for them');
	calm('items that may not be made');
	length_is($b, 'gone', '0 0 1', '... and they are where they were');
	shut(dir('gone', 'items'), 31);
	is(take($sb, 'gone', '1 h'), 'late|1', '... until they may be');
	length_is($b, 'gone', '0 0 0', '... and is gone');
	shut(dir('gone', 'held'), 17);
	$sa->query("SELECT zk_queue_put('gone', 'held')");
	length_is($b, 'gone', '1 0 0', 'an item');
	like($sa->fails("SELECT FROM zk_queue_take('gone')"), qr/^58000: ZooKeeper refused the request for queue "gone": /, 'a mark that may not be made is told');
	shut(dir('gone', 'held'), 31);
	is(take($sa, 'gone'), 'held|1', '... and does not count');
	$sa->query("SELECT zk_queue_put('gone', 'fails')");
	$sa->query("BEGIN; SELECT FROM zk_queue_take('gone'); ROLLBACK");
	shut('/zklock/queues', 17);
	my $fail = "SELECT FROM zk_queue_take('gone', '1 h', attempts => 1)";
	like($sa->fails($fail), qr/^58000: ZooKeeper refused the request for queue "gone\.failed": /, 'a queue of failed items that may not be made is told');
	shut('/zklock/queues', 31);
	$sa->query("SELECT zk_queue_put('gone.failed', 'before')");
	is(take($sa, 'gone.failed'), 'before|1', 'it is made');
	length_is($b, 'gone.failed', '0 0 0', '... and empty');
	shut(dir('gone.failed', 'items'), 17);
	like($sa->fails($fail), qr/^58000: ZooKeeper refused the request for queue "gone\.failed": /, '... and may not be written: likewise');
	calm('an item that may not be moved');
	shut(dir('gone.failed', 'items'), 31);
	# A may have it for a moment longer
	my $handed = 0;
	ZkLock::wait_until(
		sub {
			$handed += $sb->query("SELECT count(*) FROM zk_queue_take('gone', attempts => 1)");
			return items('gone.failed') > 0;
		},
		'the item is moved');
	is($handed, 0, '... until it may be');
	is(take($sb, 'gone.failed'), 'fails|1', '... and is moved');
}

#
# What items cost
#
# ... of this queue, since the last call: not what the worker does meanwhile for one of those above
sub requests
{
	my ($queue) = @_;
	my $dir = dir($queue, '');
	my %made;
	$made{$_}++ for map { (split)[0] } grep { index($_, $dir) >= 0 } $proxy->trace;
	return \%made;
}
sub told { my ($made) = @_; return join ' ', map { "$_ $made->{$_}" } sort keys %$made; }
ZkLock::ask($b, "SELECT zk_queue_put('cost', i::text) FROM generate_series(1, 500) i");
length_is($b, 'cost', '500 0 0', '500 items');
take($sa, 'cost');
length_is($b, 'cost', '499 0 0', 'the first is taken');
requests('cost');
for my $i (2 .. 101) { die "not $i" if take($sa, 'cost') ne "$i|1"; }
length_is($b, 'cost', '399 0 0', 'a hundred more');
is(told(requests('cost')), 'get 100 multi 200', 'a take is a transaction, a read, and a transaction: no listing');
$sa->query("SELECT zk_queue_put('cost', 'x')");
length_is($b, 'cost', '400 0 0', 'one is put');
is(told(requests('cost')), 'create 1 get 1 multi 1', 'a put is a write, a read of the length, a transaction');

# The server that puts an item and takes it knows it from its put, by the number.
sub pair
{
	my ($queue, $n) = @_;
	$sa->query("SELECT zk_queue_put('$queue', i::text) FROM generate_series(1, $n) i");
	return $sa->query("SELECT string_agg(payload, ' ') FROM zk_queue_take('$queue', '1 h', $n)");
}
is(pair('pair', 1), 1, 'an item is put and taken');
length_is($b, 'pair', '0 0 0', '... and done');
requests('pair');
for my $i (1 .. 20) { die "not $i" if pair('pair', 1) ne '1'; }
length_is($b, 'pair', '0 0 0', 'twenty more');
my %pair = %{ requests('pair') };
is(join(' ', map { $pair{$_} // 0 } qw(create multi children sync)), '20 60 0 0', 'an item that is put and taken costs four writes, and no listing');
cmp_ok($pair{get}, '<=', 40, '... and at most two reads, if the length of the queue is asked for each time');
is(pair('pair', 50), join(' ', 1 .. 50), 'fifty are put and taken');
length_is($b, 'pair', '0 0 0', '... and done');
my %fifty = %{ requests('pair') };
note told(\%fifty);
is($fifty{create}, 1, 'many are one write');
cmp_ok($fifty{multi}, '<=', 8, '... and few transactions');
# another puts one in between: then it lists the queue, once
ZkLock::ask($b, "SELECT zk_queue_put('pair', 'before')");
length_is($b, 'pair', '1 0 0', 'another has put one');
$sa->query("SELECT zk_queue_put('pair', 'behind')");
length_is($b, 'pair', '2 0 0', '... before this server');
is(take($sa, 'pair'), 'before|1', 'the older one is taken first');
is(take($sa, 'pair'), 'behind|1', '... and then its own');

# Another has all but the first, and this server has not heard of it: it looks at them, and
# does not ask for each of them in vain
is(pair('meet', 1), 1, 'the queue is known');
$sa->query("SELECT zk_queue_put('meet', i::text) FROM generate_series(1, 100) i");
length_is($b, 'meet', '100 0 0', 'a hundred items');
$sc->query('BEGIN');
is(take($sc, 'meet'), '1|1', 'one server has the first');
$sb->query('BEGIN');
is($sb->query("SELECT count(*) FROM zk_queue_take('meet', '0', 50)"), 50, '... and another the next fifty');
$sc->query('ROLLBACK');
length_is($b, 'meet', '100 50 0', '... and the first is given back');
$proxy->requests;
is($sa->query("SELECT count(*), min(payload::int), max(payload::int) FILTER (WHERE payload::int < 52) FROM zk_queue_take('meet', '0', 40)"),
	'40|1|1', 'this server takes the first, and those behind the fifty');
length_is($b, 'meet', '60 50 0', '... and they are done');
my %meet = %{ $proxy->requests };
note(join ' ', map { "$_ $meet{$_}" } sort keys %meet);
cmp_ok($meet{multi}, '<=', 35, '... in few transactions, not in one for each of the fifty');
$sb->query('ROLLBACK');

# Others take, too: what is listed is what is held
my @takers = map { ZkLock::session($_) } $a, $a, $b, $b;
$proxy->requests;
$_->send(q{DO $$ BEGIN FOR i IN 1..50 LOOP PERFORM FROM zk_queue_take('cost'); COMMIT; END LOOP; END $$}) for @takers;
$_->result for @takers;
length_is($b, 'cost', '200 0 0', 'two hundred more');
my %made = %{ $proxy->requests };
note(join ' ', map { "$_ $made{$_}" } sort keys %made);
cmp_ok($made{sync} // 0, '<=', 2, 'the queue is not listed again');
cmp_ok($made{multi}, '<=', 300, 'few attempts are in vain');
cmp_ok($made{children}, '<=', 100 * 20, 'what is looked at is the next few');
$_->stop for $a, $b, $c;
done_testing();
