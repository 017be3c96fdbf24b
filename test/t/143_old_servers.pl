# Servers that do not know requests which zklock makes, and hang up on them: older ones of
# ClickHouse Keeper, say.  People are told what it is.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $node = ZkLock::server('a', $proxy, conf => "zklock.session_timeout = '20s'\nzklock.connect_timeout = '5min'");
ZkLock::wait_connected($node);
my $session = ZkLock::session($node);

sub last_error { return ZkLock::ask($node, 'SELECT last_error FROM zk_session'); }

# createContainer: what is there serves on, and directories are made otherwise.
$session->query("SELECT zk_lock('known', scope => 'session')");
my $id = ZkLock::ask($node, 'SELECT session_id FROM zk_session');
$proxy->hang_up(19);
is($session->query("SELECT zk_try_lock('new', scope => 'session', timeout => '1h')"), 't', 'a server without containers serves in the end');
like(last_error(), qr/^lost 3 connections in a row while a request "createContainer" waited for an answer: the ZooKeeper server seems not to know it; lock directories are made persistent/, '... and is found out');
is($zk->stat('/zklock/locks/new')->{ephemeralOwner} // 0, 0, '... the directory is no container');
ok($session->query("SELECT zk_assert('known')"), '... what is held stays');
is(ZkLock::ask($node, 'SELECT session_id FROM zk_session'), $id, '... in one session');
my $accepted = $proxy->accepted;
is($session->query("SELECT zk_try_lock('newer', scope => 'session')"), 't', '... the next one is no trouble');
is($proxy->accepted, $accepted, '... and breaks no connection');
$session->query('SELECT zk_unlock_all()');
$session->quit;
ZkLock::hang_up($node);

# create2: without it nothing goes.
$node->stop;
$proxy->hang_up(15);
$node->start;
$session = ZkLock::session($node);
ZkLock::wait_until(sub { last_error() =~ /"create2"/ }, 'a server without create2 is found out');
my $lost = sub { scalar(() = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /LOG:  lost connection/g) };
my $so_far = $lost->();
ZkLock::wait_until(sub { $lost->() > $so_far + 2 }, 'more connections are lost');
like(last_error(), qr/^lost 3 connections in a row while a request "create2" waited for an answer: the ZooKeeper server seems not to know it$/, 'last_error says so');
$session->query("SET zklock.connect_timeout = '2s'");
my $said = $session->fails("SELECT zk_lock('x')");
like($said, qr/^58000: could not reach ZooKeeper within/, 'who waits has an error');
like($session->notices, qr/^DETAIL:  Connect string "[^"]+": \d+ connections in a row were lost while a request "create2" waited for an answer: the ZooKeeper server seems not to know it\.$/m, '... that says why');
like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/LOG:  lost 3 connections in a row while a request "create2"/, '... and so does the log');
$proxy->heal;
$session->query('RESET zklock.connect_timeout');
ZkLock::wait_connected($node);
is($session->query("SELECT zk_try_lock('x', timeout => '1h')"), 't', 'a newer server serves');

# ZooKeeper 3.4 says so, with no transaction's number, before it hangs up: that is no damage, on
# which this test would fail.
$proxy->unimplemented(15);
is($session->fails("SELECT zk_try_lock('z', timeout => '1h')"), '58000: ZooKeeper refused the request for lock "z": unimplemented', 'a server that says that create2 is unimplemented');
$proxy->heal;
ZkLock::wait_connected($node);
is($session->query("SELECT zk_try_lock('z', timeout => '1h')"), 't', 'a newer server serves');

# What is lost by accident accuses nobody.
sub accused { return scalar(() = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /LOG:  lost \d+ connections in a row/g); }
my $before = accused();
cmp_ok($before, '>=', 2, 'these were accused');
for (1 .. 4)
{
	my $n = $proxy->lost;
	$proxy->lose_request('create', "/locks/y$_");
	$session->query("SELECT zk_lock('y$_')");
	ZkLock::wait_until(sub { $proxy->lost > $n }, 'a create is lost');
}
is(accused(), $before, 'creates that are answered in between do not count');

ZkLock::ok_clean($zk, [$node], 'x');
done_testing();
