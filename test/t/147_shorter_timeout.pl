# A connection that took long is not used for a while.  That the session has a shorter timeout
# on it is heeded at once, and not forgotten when the connection ends before it was used.
use strict;
use warnings;

use Proxy;
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $a = ZkLock::server('a', $proxy, conf => "zklock.session_timeout = '40s'\nzklock.log_min_messages = info");
my $b = ZkLock::server('b', $zk, conf => "zklock.session_timeout = '4s'");
ZkLock::wait_connected($a, $b);
my $holder = ZkLock::session($a);
$holder->query("SELECT zk_lock('job', scope => 'session')");

sub lease { return ZkLock::ask($a, 'SELECT extract(epoch FROM lease_remaining) FROM zk_session') }
cmp_ok(lease(), '>', 10, 'a long lease');

# The server allows no more than 4 s any more, and is slow: half a second to connect, and
# up to two that the connection is not used.
$proxy->refuse;
$zk->append_conf('maxSessionTimeout=4000');
$zk->restart;
$proxy->delay(250)->accept;
ZkLock::wait_until(sub { $proxy->connections > 0 }, 'A connects');
ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /session establishment complete[^\n]*negotiated timeout=4000\b/ }, 'A is told of the timeout');
$proxy->down;

# The ensemble goes by the connection that was.
my $waiter = ZkLock::session($b);
ZkLock::wait_connected($b);
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT session_timeout FROM zk_session') eq '00:00:04' }, 'A has heeded it');
cmp_ok(lease(), '<=', 3.5, 'the lease goes by the shorter timeout');
$waiter->query("SELECT zk_lock('job', scope => 'session')");
is($holder->fails("SELECT zk_assert('job')"), '55000: lock "job" was lost', 'B has the lock, and A knows that it has not');
$holder->query('SELECT zk_unlock_all()');
$waiter->query('SELECT zk_unlock_all()');
$proxy->heal;
$proxy->accept;
ZkLock::wait_connected($a, $b);
ZkLock::ok_clean($zk, [ $a, $b ], 'job');
done_testing();
