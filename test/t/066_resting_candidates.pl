# A server that rests: elections, and what is put.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Resting;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($p, $q) = Resting::servers($zk, 'p', 'q');
my ($sp, $sq) = map { ZkLock::session($_) } $p, $q;

# A candidate that does not lead rests; its turn comes.
ZkLock::wait_until(sub { $sp->query("SELECT zk_is_leader('job')") eq 't' }, 'P leads');
is($sq->query("SELECT zk_is_leader('job')"), 'f', 'Q stands');
rest($q);
is(ZkLock::ask($p, "SELECT lease_remaining > '0' FROM zk_session"), 't', 'who leads does not rest');
my $session = session_of($q);
$sp->query("SELECT zk_resign('job')");
ZkLock::wait_until(sub { $sq->query("SELECT zk_is_leader('job')") eq 't' }, 'Q leads in its turn');
is(session_of($q), $session, '... by the same session');
$sq->query("SELECT zk_resign('job')");

# The first one to stand needs no wait.
rest($p, $q);
ZkLock::wait_until(sub { $sp->query("SELECT zk_is_leader('other')") eq 't' }, 'a server that rested leads');
$sp->query("SELECT zk_resign('other')");

# A connection is lost and made again: nothing is wanted, and nothing is lost.
rest($p, $q);
$zk->restart;
ZkLock::wait_connected($p, $q);
is($sp->query("BEGIN; SELECT zk_lock('b') > 0; COMMIT"), 't', 'a lock after a restart of ZooKeeper');

# What is put needs no lease, and goes out at once.
rest($p);
$session = session_of($p);
$sp->query("SELECT zk_queue_put('p', 'x')");
is($sq->query("SELECT payload FROM zk_queue_take('p', '1 h')"), 'x', 'a server that rested puts an item');
is(session_of($p), $session, '... by the same session');

done_testing();
