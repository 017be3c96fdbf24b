# ClickHouse Keeper speaks as ZooKeeper does, but ends sessions whose clients cannot know it:
# a server that is one is not used (doc/interoperation.md).
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host)->keeper(1);
my $host = $proxy->host;
my $a = ZkLock::server('a', $proxy, conf => "zklock.session_timeout = '20s'");
my $session = ZkLock::session($a);

sub last_error { return ZkLock::ask($a, 'SELECT last_error FROM zk_session') }

ZkLock::wait_until(sub { last_error() =~ /Keeper/ }, 'the server is looked at', \&last_error);
like(last_error(), qr/^\Q$host\E is ClickHouse Keeper, which could give one lock to two servers$/, 'it is refused');
is(ZkLock::ask($a, 'SELECT state, session_id FROM zk_session'), 'connecting|', '... and no session of it is used');
$session->query("SET zklock.connect_timeout = '1s'");
is($session->fails("SELECT zk_lock('a')"), '58000: could not reach ZooKeeper within 1000 ms', 'no lock is to be had');
like($session->notices, qr/^DETAIL:  Connect string "[^"]+": \Q$host\E is ClickHouse Keeper, which could give one lock to two servers\.$/m, '... which is told');
$session->query('RESET zklock.connect_timeout');
is_deeply([ $zk->children('/') ], ['zookeeper'], 'nothing was written');

# One of ZooKeeper's takes its place.
$proxy->keeper(0);
ZkLock::ask($a, 'SELECT pg_reload_conf()');
ZkLock::wait_connected($a);
my $token = $session->query("SELECT zk_lock('a', scope => 'session')");
cmp_ok($token, '>', 0, 'a lock of ZooKeeper');

# It is one of Keeper's once more: the session that it cannot resume is lost, and whoever
# has a lock hears of that.
# The last error stays, so it is the time that tells.
my $before = ZkLock::ask($a, 'SELECT last_error_time FROM zk_session');
$proxy->keeper(1)->cut;
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT last_error ~ 'Keeper' AND last_error_time > '$before' FROM zk_session") eq 't' }, 'the server is looked at again', \&last_error);
is($session->fails("SELECT zk_assert('a')"), '55000: lock "a" was lost', 'a lock that Keeper has no session for is lost');
$session->query('SELECT zk_unlock_all()');
$proxy->keeper(0);
ZkLock::ask($a, 'SELECT pg_reload_conf()');
ZkLock::wait_connected($a);
cmp_ok($session->query("SELECT zk_lock('a')"), '>', $token, 'ZooKeeper grants it again');

ZkLock::ok_clean($zk, [$a], 'a');
done_testing();
