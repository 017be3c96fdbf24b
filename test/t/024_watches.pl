# Many names at once: the watches on them must fit into the one packet in which
# the library sets them on a new connection.  The ensemble refuses packets above
# jute.maxbuffer, 1 MB, and a worker that exceeds it reconnects for ever.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $names = 4000;
my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $node = ZkLock::server('a', $proxy, conf => "max_locks_per_transaction = 400");
ZkLock::wait_connected($node);

# Their paths are 1.3 MB together.
my $holder = ZkLock::session($node);
my $name = "repeat('x', 245) || i";
is($holder->query("SELECT count(zk_lock($name, 'exclusive', 'session')) FROM generate_series(1, $names) i"),
	$names, 'many names are held');
my $session = ZkLock::ask($node, 'SELECT session_id FROM zk_session');

$proxy->cut;
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT last_error ~ 'lost connection' FROM zk_session") eq 't' },
	'the cut is noticed');
ZkLock::wait_connected($node);
is($holder->query("SELECT count(zk_lock('after', 'exclusive', 'session'))"), 1, 'a new lock on the new connection');
is(ZkLock::ask($node, 'SELECT session_id FROM zk_session'), $session, 'it is the same session');
is($holder->query("SELECT count(zk_token($name)) FROM generate_series(1, $names) i"), $names, 'nothing is lost');

is($holder->query('SELECT zk_unlock_all()'), $names + 1, 'all are given back');
ZkLock::ok_clean($zk, [$node], 'x' x 245 . $_) for 1, $names;

#
# Two stand before us.  When the first has gone we know that the other is the last,
# so that its end is our grant: no request is made then.
#
my @others = map { $zk->client } 1 .. 2;
my @contenders = map { $_->contend(ZkLock::directory('queue')) } @others;
$holder->send("SELECT zk_lock('queue', 'exclusive', 'session')")->wait_level(2);
ZkLock::wait_until(sub { 3 == grep { m{/queue/} } $zk->watches }, 'both are watched, and we are');
$proxy->requests;
$others[0]->delete($contenders[0]);
my $listed = 0;
ZkLock::wait_until(sub { $listed += $proxy->requests->{children} // 0; $listed }, 'who is left?');
ZkLock::wait_answered($node);
$proxy->hole('up');
$others[1]->delete($contenders[1]);
cmp_ok($holder->result, '>', 0, 'our turn comes without a question');
$proxy->heal;
is($holder->query('SELECT zk_unlock_all()'), 1, '... and passes');
ZkLock::ok_clean($zk, [$node], 'queue');

done_testing();
