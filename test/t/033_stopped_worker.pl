# A worker that is stopped says nothing, not even that it is out of reach: a
# request must not wait for it without end, nor be told that somebody else has
# the lock.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
# A worker counts as silent after 40 s.  The session has 20 s more, for a slow machine.
my $node = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '60s'\nzklock.connect_timeout = '1s'");
ZkLock::wait_connected($node);
my $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
my $holder = ZkLock::session($node);
my $token = $holder->query("SELECT zk_lock('held', 'exclusive', 'session')");

ZkLock::stop_process($node, $worker);
my $waiter = ZkLock::session($node)->send("SELECT zk_lock('job')");
$waiter->wait_level(2);
# It begins while all seems well, and still must not wait for the session's end.
my $trier = ZkLock::session($node);
$trier->query("SET zklock.connect_timeout = '100ms'");
$trier->send("SELECT zk_try_lock('other')");
like($trier->failure, qr/^58000: could not reach ZooKeeper within 100 ms/,
	'zk_try_lock fails while the worker is stopped, after connect_timeout');
like($waiter->failure, qr/^58000: could not reach ZooKeeper within \d+ ms/, 'so does a wait');
like($waiter->notices, qr/^HINT:  Check whether that process is stopped or stuck\. If it is not, see last_error in zk_session\.$/m, '... with a hint');
my ($that) = $waiter->notices =~ /worker \(PID (\d+)\) has had no write acknowledged/;
is($that, $worker, '... at the worker, which is silent');
like(ZkLock::ask($node, "SELECT ok, detail, hint FROM zk_check() WHERE what = 'write'"),
	qr/^f\|The zklock worker \(PID $worker\) has had no write acknowledged for \d+ ms\.\|Check whether that process is stopped or stuck\. If/,
	'... as zk_check does');
like(PostgreSQL::Test::Utils::slurp_file("/proc/$that/stat"), qr/^\d+ \(.*\) T /s, '... since it is stopped');

kill 'CONT', $that or die;
is($holder->query("SELECT zk_token('held')"), $token, 'a hold survives the pause');
ZkLock::wait_until(sub { ZkLock::session($node)->fails("SELECT zk_lock('job')") eq '' },
	'a lock can be had again');
is($holder->query("SELECT zk_unlock('held')"), 't', 'the hold ends as usual');
ZkLock::ok_clean($zk, [$node], $_) for qw(job other held);

done_testing();
