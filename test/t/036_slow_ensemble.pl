# An ensemble that acknowledges each write, and takes so long for it that no lease can
# be proven.  The session lives; whoever needs a lease hears that there is none.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $node = ZkLock::server('a', $proxy, conf => "zklock.session_timeout = '16s'\nzklock.connect_timeout = '1s'");
ZkLock::wait_connected($node);
ZkLock::ask($node, 'CREATE TABLE t (i int)');

my $holder = ZkLock::session($node);
$holder->query("BEGIN; SELECT zk_lock('held'); INSERT INTO t VALUES (1)");
my $session = ZkLock::ask($node, 'SELECT session_id FROM zk_session');
# There and back 2.8 s a write; 7/100 of the timeout are 1.12 s.
$proxy->delay(1400);
ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT coalesce(lease_remaining <= interval \'0\', true) FROM zk_session') eq 't' }, 'the lease has lapsed');

my $unproven = qr/^58000: could not (prove the lock|reach ZooKeeper) within/;
my %ask = map { $_ => ZkLock::session($node)->send($_) }
  ("SELECT zk_try_lock('a')", "SELECT zk_try_lock('b', timeout => '1 s')", "SELECT zk_lock('c')", "CALL zk_lock_session('d', timeout => '1 s')");
my $impatient = ZkLock::session($node)->send("SET lock_timeout = '300ms'; SELECT zk_lock('e')");
$holder->send('COMMIT');
like($ask{$_}->failure, $unproven, $_) for sort keys %ask;
like($impatient->failure, qr/^(55P03: canceling statement due to lock timeout|58000: )/, 'lock_timeout');
like($holder->failure, qr/^58000: could not prove the lock within 17000 ms/, 'COMMIT');
like($holder->notices, qr/took \d+ ms to acknowledge the latest write; with a session timeout of 16000 ms it may take 1120 ms/, '... and says why');
is(ZkLock::ask($node, 'SELECT count(*) FROM t'), 0, '... and has not committed');
is(ZkLock::ask($node, 'SELECT state, session_id FROM zk_session'), "connected|$session", 'the session lives');
my ($setting) = $holder->notices =~ /^HINT:  Find out why the ensemble is slow, or increase "([^"]+)" and restart the server\.$/m;

$proxy->heal;
ZkLock::wait_until(sub { ZkLock::session($node)->fails("SELECT zk_lock('a')") eq '' }, 'locks are given again');
ok(1, 'locks are given again');

# What its hint says: with a longer timeout the same ensemble will do.
$proxy->delay(1400);
$node->append_conf('postgresql.conf', ($setting // 'none') . " = '1h'\nzklock.connect_timeout = '1h'");
$holder->quit;
ZkLock::hang_up($node);
$node->restart;
ZkLock::wait_connected($node);
is(ZkLock::session($node)->fails("BEGIN; SELECT zk_lock('held'); INSERT INTO t VALUES (1); COMMIT"), '', 'with a longer session timeout a slow ensemble gives locks');
is(ZkLock::ask($node, 'SELECT count(*) FROM t'), 1, '... and the transaction commits, once');
done_testing;
