# Work that is handed out, when the ensemble goes back: items whose numbers were others', items
# that are there again, and chunks of which nobody speaks, when the look for them does not come to its end at once.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
# When the ensemble has gone back it is waited for as long, and so it is before A rests.
my $conf = "zklock.session_timeout = '6s'";
my $a = ZkLock::server('a', $proxy, conf => "$conf\nzklock.server_name = 'a'");
ZkLock::wait_connected($a);

sub items { return $zk->children(ZkLock::directory('q', 'queues') . '/items'); }

#
# A has done an item, and has not heard that it is deleted; another item has its number
#
ZkLock::ask($a, "SELECT zk_queue_put('q', 'zeroth')");
length_is($a, 'q', '1 0 0', 'the queue is there');
is(ZkLock::ask($a, "SELECT zk_queue_purge('q')"), 1, '... and empty');
$zk->save;
# Numbers of transactions come again, but not these.
$zk->set('/zklock/queues', $_) for 1 .. 1000;
ZkLock::ask($a, "SELECT zk_queue_put('q', 'first')");
length_is($a, 'q', '1 0 0', 'an item');
my ($name) = items();
my $s = ZkLock::session($a);
is($s->query("BEGIN; SELECT payload FROM zk_queue_take('q')"), 'first', 'A takes it');
my $lost = $proxy->lost;
$proxy->refuse->lose_request('multi', '');
$s->query('COMMIT');
ZkLock::wait_until(sub { $proxy->lost > $lost }, 'that it is to be deleted is lost');
$zk->kill9->go_back->start;
# It remembers nothing, and is the first that comes back.
my $b = ZkLock::server('b', $zk, conf => $conf);
ZkLock::wait_connected($b);
ZkLock::ask($b, "SELECT zk_queue_put('q', 'second')");
length_is($b, 'q', '1 0 0', 'another item');
is(join(' ', map { substr($_, -11) } items()), substr($name, -11), '... has the number of the one before');
isnt((items())[0], $name, '... and not its name');
$proxy->heal->accept;
ZkLock::wait_connected($a, $b);
ZkLock::ask($a, "SELECT zk_queue_put('q', 'third')");
length_is($b, 'q', '2 0 0', 'A comes to its end with its own, and leaves the other one there');
is(ZkLock::ask($b, "SELECT payload || attempt FROM zk_queue_take('q')"), 'second1', '... for whoever takes it');
is(ZkLock::ask($b, "SELECT payload || attempt FROM zk_queue_take('q')"), 'third1', '... and the next');
length_is($b, 'q', '0 0 0', 'none is left');

#
# ... or the item is there again: it is done
#
my $id = ZkLock::ask($a, "SELECT zk_queue_put('q', 'again')");
length_is($b, 'q', '1 0 0', 'an item');
$zk->save;
is($s->query("BEGIN; SELECT id FROM zk_queue_take('q')"), $id, 'A takes it');
$lost = $proxy->lost;
$proxy->refuse->lose_request('multi', '');
$s->query('COMMIT');
ZkLock::wait_until(sub { $proxy->lost > $lost }, 'that it is to be deleted is lost');
$zk->kill9->go_back;
ZkLock::wait_until(sub { ZkLock::ask($b, 'SELECT state FROM zk_session') ne 'connected' }, 'B has lost its connection');
$zk->start;
ZkLock::wait_connected($b);
is(ZkLock::ask($b, "SELECT id, state FROM zk_queue_items WHERE queue = 'q'"), "$id|ready", 'it is there as it was');
$proxy->heal->accept;
ZkLock::wait_connected($a, $b);
length_is($b, 'q', '0 0 0', 'A deletes it');

my $puts = ZkLock::directory('q', 'queues') . '/puts';
my $namesake = '/zklock/servers/a-fedcba9876543210';

#
# A chunk of an earlier life of A, that has not committed
#
$s = ZkLock::session($a);
$s->query("BEGIN; SELECT zk_queue_put('q', 'never')");
$proxy->refuse->lose_reply('create', '/puts/');
$s->send('COMMIT');
my $chunk;
ZkLock::wait_until(sub { ($chunk) = $zk->children($puts) }, 'the chunk is there');
my $data = $zk->get("$puts/$chunk");
ZkLock::hang_up($a);
$a->stop('immediate');
$proxy->heal->accept;
$a->start;
length_is($b, 'q', '0 0 0', 'the server has deleted it when it starts');

# A chunk is there again, and A has reason to look, when it has looked before.  Its own
# session is another then.
my $tokens = 1_000_000;

sub come_back
{
	ZkLock::ask($a, "SELECT zk_queue_put('q', 'x')");
	length_is($b, 'q', '1 0 0', 'A has nothing else to do');
	is(ZkLock::ask($b, "SELECT zk_queue_purge('q')"), 1, '... nor the queue');
	$zk->create("$puts/$chunk", data => $data);
	$proxy->trace;
	my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
	ZkLock::ask($b, 'SELECT zk_raise_tokens(' . ($tokens *= 1000) . ')');
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT state = 'connected' AND session_id <> '$session' FROM zk_session") eq 't' }, 'A has another session');
	return;
}

# How often A has read it since.
sub looks { return scalar grep { $_ eq "get $puts/$chunk" } $proxy->trace; }

come_back();
length_is($b, 'q', '0 0 0', 'it is deleted when the ensemble has gone back');

#
# The connection breaks while A looks
#
# not that of a look before
ZkLock::wait_answered($a);
$lost = $proxy->lost;
$proxy->lose_reply('get', "/puts/$chunk");
come_back();
ZkLock::wait_until(sub { $proxy->lost > $lost }, 'what A has read is lost');
length_is($b, 'q', '0 0 0', 'it looks again on the next connection');

#
# Somebody has its name, and might be the one whose transaction it was
#
$zk->create($namesake);
come_back();
ZkLock::wait_until(sub { looks() > 0 }, 'A has read it');
# A would rest after twelve heartbeats.
my ($own) = grep { /^a-/ && $namesake !~ /$_/ } $zk->children('/zklock/servers');
my $writes = sub { return $zk->stat("/zklock/servers/$own")->{version}; };
my $from = $writes->();
ZkLock::wait_until(sub { $writes->() >= $from + 30 }, 'A does not rest, as there is something left to do');
length_is($b, 'q', '0 0 1', 'the chunk stays for as long as there is another server of that name');
$zk->delete($namesake);
length_is($b, 'q', '0 0 0', '... and no longer');

#
# The ensemble goes back by so little that no heartbeat shows it: what A has settled is there
# again.  First a chunk, that was moved
#
$proxy->refuse->lose_request('multi', '');
ZkLock::ask($a, "SELECT zk_queue_put('q', 'moved')");
ZkLock::wait_until(sub { ($chunk) = $zk->children($puts) }, 'the chunk is there');
$data = $zk->get("$puts/$chunk");
$proxy->heal->accept;
length_is($b, 'q', '1 0 0', 'it is moved into the queue');
$proxy->down;
is(ZkLock::ask($b, "SELECT zk_queue_purge('q')"), 1, 'the item is gone');
$zk->create("$puts/$chunk", data => $data);
$proxy->accept;
length_is($b, 'q', '1 0 0', 'it is moved again');

# Marks of a take that is over
my $dir = ZkLock::directory('q', 'queues');
$s = ZkLock::session($a);
is($s->query("BEGIN; SELECT payload FROM zk_queue_take('q')"), 'moved', 'A takes it');
my ($mark) = $zk->children("$dir/held");
($name) = items();
$s->query('ROLLBACK');
length_is($b, 'q', '1 0 0', '... and gives it back');
$zk->create($_) for "$dir/items/$name/held", "$dir/held/$mark";
is(ZkLock::ask($b, "SELECT payload FROM zk_queue_take('q')"), '', 'nobody else can tell that nobody has it');
length_is($b, 'q', '1 1 0', '... as zk_queues says');
is(ZkLock::ask($a, "SELECT payload || attempt FROM zk_queue_take('q', '1 h')"), 'moved3', 'A does when it looks for an item');
length_is($b, 'q', '0 0 0', 'none is left');

$_->stop for $a, $b;
done_testing();
