# Servers that do not know requests which zklock makes, as ZooKeeper 3.4 does.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host)->unimplemented(15);
my $node = ZkLock::server('a', $proxy, conf => "zklock.session_timeout = '20s'");
my $session = ZkLock::session($node);

# People are told that it is too old, and how: again and again, for it stays so.
my $log = sub { return PostgreSQL::Test::Utils::slurp_file($node->logfile); };
ZkLock::wait_until(sub { (() = $log->() =~ /LOG:  lost connection/g) > 3 }, 'connections are lost');
is(scalar(() = $log->() =~ m{LOG:  ZooKeeper refused a request of the worker on /zklock/servers/\S+: unimplemented}g), 1, 'the log tells why, once');
$session->query("SET zklock.connect_timeout = '2s'");
# on a new connection it is not known yet
my ($failure, $why);
ZkLock::wait_until(
	sub { $failure = $session->fails("SELECT zk_lock('x')"); ($why) = $session->notices =~ /^DETAIL:  (.*)/m; $why =~ /old/; },
	'who waits is told', sub { "$failure: $why" });
like($failure, qr/^58000: could not reach ZooKeeper within/, '... by an error');
like($why, qr/^Connect string "[^"]+": the ZooKeeper server is too old: 3\.6 or newer is needed\.$/, '... that says why');

$proxy->heal;
$session->query('RESET zklock.connect_timeout');
ZkLock::wait_connected($node);
is($session->query("SELECT zk_try_lock('x', timeout => '1h')"), 't', 'a newer server serves');

# What it says has no transaction's number: that is no damage, on which this test would fail.
$proxy->unimplemented(15);
is($session->fails("SELECT zk_try_lock('z', timeout => '1h')"), '58000: ZooKeeper refused the request for lock "z": unimplemented', 'a server that is exchanged for an old one');
$proxy->heal;
ZkLock::wait_connected($node);
is($session->query("SELECT zk_try_lock('z', timeout => '1h')"), 't', '... and for a newer one');

ZkLock::ok_clean($zk, [$node], 'x');
done_testing();
