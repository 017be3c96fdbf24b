# "Not the leader" is said where somebody else leads.  While nobody is known to, calls wait
# for the answer; and where there is none zk_run_as_leader says why.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Time::HiRes qw(time);
use Proxy;
use ZkLock;
use ZooKeeper;

# No session expires, so who leads goes on without ZooKeeper.
my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $conf = "zklock.session_timeout = '1h'\n";
my $a = ZkLock::server('a', $zk, conf => "${conf}cluster_name = 'a'");
my $b = ZkLock::server('b', $proxy, conf => "${conf}cluster_name = 'b'");
ZkLock::wait_connected($a, $b);
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;
ZkLock::ask($b, 'CREATE TABLE t (i int)');
my $call = "CALL zk_run_as_leader('job', 'INSERT INTO t VALUES (1)')";
my $not_leader = 'this server is not the leader of election "job"';

ZkLock::wait_until(sub { $sa->query("SELECT zk_is_leader('job')") eq 't' }, 'A leads');
is($sb->query("SELECT zk_is_leader('job', '1 h')"), 'f', 'B does not');
$sb->query($call);
is($sb->notices, "NOTICE 00000: $not_leader, skipping", '... and says so');

# ZooKeeper is away: nobody knows
$proxy->down;
my $start;
ZkLock::wait_until(sub { $start = time; $sb->query($call); $sb->notices !~ /^NOTICE/ }, 'B is cut off');
cmp_ok(time - $start, '>=', 1.9, 'without ZooKeeper the call waits for the answer');
like($sb->notices, qr/^WARNING 58000: could not find out who leads election "job", skipping\nDETAIL:  Connect string /, '... and says why there is none');
is($sb->fails("SELECT zk_require_leader('job')"), "40001: $not_leader", 'zk_require_leader fails');
like($sb->notices, qr/^DETAIL:  It could not be found out who is\. Connect string /m, '... and says why');
is(ZkLock::ask($b, 'SELECT count(*) FROM t'), 0, '... nothing was run');
is($sa->query("SELECT zk_is_leader('job')"), 't', 'A leads on');

# A resigns meanwhile.  B hears of it when ZooKeeper is back, and a call waits until then.
$sa->query("SELECT zk_resign('job')");
# its worker takes it out of the queue; before that it would be seen to lead
ZkLock::wait_queue($zk, 'job', 1, 'elections');
$sb->send("SELECT zk_is_leader('job', '1 h')")->wait_event('Extension');
$proxy->heal;
is($sb->result, 't', 'zk_is_leader waits while nobody is known to lead');
$sb->query($call);
is($sb->notices, '', '... and zk_run_as_leader runs the command');
is(ZkLock::ask($b, 'SELECT count(*) FROM t'), 1, '... indeed');

# Who asks again and again does not wait each time.
$sb->query("SELECT zk_resign('job')");
$sa->query("SELECT zk_is_leader('job', '1 h')");
is($sb->query("SELECT zk_is_leader('job', '1 h')"), 'f', 'B follows');
$proxy->down;
is($sb->query("SELECT zk_is_leader('job', '100 ms')"), 'f', 'nobody knows');
is($sb->query("SELECT count(*) FROM generate_series(1, 100000) WHERE zk_is_leader('job', '100 ms')"), 0, '... and the wait is over');
$proxy->heal;

# It refuses the candidacy.
$zk->create('/zklock/elections/refused', mode => 'ephemeral', data => 'an ephemeral node has no children');
my $refused = "WARNING 58000: could not find out who leads election \"refused\", skipping\nDETAIL:  ZooKeeper refused the candidacy of this server; the server log says why.";
ZkLock::wait_until(sub { $sa->query("CALL zk_run_as_leader('refused', 'SELECT 1')"); $sa->notices eq $refused }, 'it is refused');
ok(1, 'a candidacy that is refused');

done_testing();
