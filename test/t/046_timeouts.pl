# A session keeps the timeout that it was made with, whatever the ensemble sets
# later: a new leader goes by the one that was written down when the session was made.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

# Server A reaches ZooKeeper through a proxy, B without.
my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $a = ZkLock::server('a', $proxy->host, conf => "zklock.session_timeout = '30s'");
my $b = ZkLock::server('b', $zk);
ZkLock::wait_connected($a, $b);
my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');

my $holder = ZkLock::session($a);
my $waiter = ZkLock::session($b);
$_->query('BEGIN') for $holder, $waiter;
my $token = $holder->query("SELECT zk_lock('job')");
$waiter->send("SELECT zk_lock('job')");
ZkLock::wait_queue($zk, 'job', 2);

# The ensemble allows nothing below 40 s any more.
my $reconnects = ZkLock::ask($a, 'SELECT reconnects FROM zk_session');
$zk->append_conf('minSessionTimeout=40000');
$zk->restart;
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT reconnects > $reconnects AND state = 'connected' AND lease_remaining > '0' FROM zk_session") eq 't' },
	'A has a lease again');
is(ZkLock::ask($a, 'SELECT session_id FROM zk_session'), $session, 'the session outlives a restart with a larger minSessionTimeout');
is(ZkLock::ask($a, 'SELECT session_timeout FROM zk_session'), '00:00:30', '... and keeps its timeout');
like(PostgreSQL::Test::Utils::slurp_file($a->logfile),
	qr/WARNING:  ZooKeeper server \S+ set the timeout of ZooKeeper session $session to 40000 ms instead of 30000 ms/,
	'... the log tells of the longer one');
cmp_ok(ZkLock::ask($a, 'SELECT extract(epoch FROM lease_remaining) FROM zk_session'), '<=', 26.25, '... the lease goes by the shorter one');
is($holder->query("SELECT zk_token('job')"), $token, '... and so does the hold, which is good');

# Nobody hears A, and the ensemble begins anew with the timeout of the session's
# creation.  When B has the lock A must know that its own is lost.
$proxy->hole;
$zk->restart;
ZkLock::wait_until(sub { !$waiter->busy }, 'B has the lock');
cmp_ok($waiter->result, '>', $token, 'the other server has the lock, with a larger token');
is($holder->fails('COMMIT'), '40001: lock "job" was lost', '... and the first does not commit');
$waiter->query('COMMIT');
$proxy->heal;
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT session_timeout FROM zk_session') eq '00:00:40' }, 'A has a new session');
pass('a new session has the new timeout');
ZkLock::wait_connected($a, $b);
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

done_testing();
