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

# An ensemble that went back acknowledges writes, too: a connection's first write extends
# the lease only when the base of tokens has been read.
my $end = sub { return ZkLock::ask($a, 'SELECT extract(epoch FROM clock_timestamp() + lease_remaining) FROM zk_session'); };
my $latency = sub { return ZkLock::ask($a, 'SELECT write_latency FROM zk_session'); };
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT lease_remaining < '24 s' FROM zk_session") eq 't' }, 'the lease is not quite new');
$proxy->down;
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') eq 'reconnecting' }, 'the connection is lost');
my ($ends, $took) = ($end->(), $latency->());
$proxy->late('get', 3600 * 1000)->accept;
ZkLock::wait_until(sub { $latency->() ne $took }, 'a write is acknowledged');
ZkLock::wait_until(sub { $end->() < $ends + 1 }, '... the lease ends as before');
pass('before the base is known a write does not extend the lease');
isnt(ZkLock::ask($a, 'SELECT state FROM zk_session'), 'connected', '... nor does the connection count');
$proxy->heal;
ZkLock::wait_connected($a);
ZkLock::wait_until(sub { $end->() > $ends + 1 }, 'the lease is longer');
is($holder->query("SELECT zk_token('job')"), $token, '... but it does then, and the hold is good');

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
