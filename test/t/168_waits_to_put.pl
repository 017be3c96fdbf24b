# A COMMIT that waits for room to put: others commit, and wait for what they will.  It is seen
# in zk_waits with whom it waits for, and each limit ends it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => "cluster_name = 'a'\nwal_level = replica\nmax_wal_senders = 1\nsynchronous_standby_names = 'nobody'\nsynchronous_commit = local");
ZkLock::wait_connected($a);
my ($one, $two, $s, $other) = map { ZkLock::session($a) } 1 .. 4;

# Commits that wait for a standby that does not come, with half of the room each.
sub stall
{
	my ($session, $queues) = @_;
	$session->query("SET synchronous_commit = on; SET application_name = '$queues'");
	$session->query("BEGIN; SELECT zk_queue_put('$queues' || i, 'x') FROM generate_series(1, 128) i");
	$session->send('COMMIT')->wait_event('SyncRep');
	return;
}

stall($one, 'one');
is($s->fails("SELECT zk_queue_put('q', '1')"), '', 'beside a commit that stalls with as much as it can have, others commit');
length_is($a, 'q', '1 0 0', '... and the item is there');
stall($two, 'two');

#
# Whom it waits for
#
$s->query("SET application_name = 'waiter'");
$s->send("SELECT zk_queue_put('q', '2')");
my $row = '';
ZkLock::wait_until(sub { ($row = ZkLock::ask($a, "SELECT kind, name, mode IS NULL, server, pid, application_name, root_server, root_application_name, root_waits_for, steps FROM zk_waits")) ne '' }, 'zk_waits has it', sub { $row });
like($row, qr/^queue\|q\|t\|a\|@{[ $s->pid ]}\|waiter\|a\|(?:one|two)\|IPC: SyncRep\|1$/, 'zk_waits says who waits, for whom, and why');
like(ZkLock::ask($a, "SELECT string_agg(concat_ws(' ', step, pid), ', ' ORDER BY step) FROM zk_blocking(" . $s->pid . ')'), qr/^0 @{[ $s->pid ]}, 1 (?:@{[ $one->pid ]}|@{[ $two->pid ]})$/, '... and so does zk_blocking');
$other->query("SET zklock.namespace = 'x'");
is($other->query('SELECT count(*) FROM zk_waits'), 0, '... in its namespace');

#
# How it ends
#
$s->cancel;
is($s->failure, '57014: canceling statement due to user request', 'a cancel ends it');
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_waits'), 0, '... also in zk_waits');
$s->query('\set SHOW_CONTEXT always');
$s->query("SET lock_timeout = '100ms'");
is($s->fails("SELECT zk_queue_put('q', '2')"), '55P03: canceling statement due to lock timeout', 'lock_timeout ends it');
like($s->notices . "\n" . $s->{answer}, qr/while waiting to put items into queue "q", behind process (?:@{[ $one->pid ]}|@{[ $two->pid ]})$/m, '... and the context says for whom it waited');
$s->query("RESET lock_timeout; BEGIN; SELECT zk_queue_put('q', '2'), zk_queue_put('r', '2'); SET LOCAL zklock.connect_timeout = '300ms'");
is($s->fails('COMMIT'), '53400: too many transactions of this server put items into queues', 'zklock.connect_timeout ends it');
like($s->notices, qr/^DETAIL:  This one needs room for 2 queues, the server has it for 256, and process (?:@{[ $one->pid ]}|@{[ $two->pid ]}) takes 128\.\nHINT:  Retry when these have committed\. While a COMMIT waits, zk_waits shows for whom\.$/m, '... and says who is in the way');
my $victim = ZkLock::session($a);
$victim->send("SELECT zk_queue_put('q', '2')")->wait_event('Extension');
$victim->terminate;
like($victim->failure, qr/^57P01: /, 'a terminate ends it');
is($other->fails("SELECT zk_queue_purge('nobody')"), '', 'the server goes on');

#
# It goes on when there is room
#
$s->send("SELECT zk_queue_put('q', '3')")->wait_event('Extension');
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT pid FROM zk_waits') eq $s->pid }, 'a retry waits, too, and zk_waits shows for whom');
$one->cancel;
is($one->failure, '', 'the commit that stalled is done');
is($s->failure, '', 'who waited commits');
length_is($a, 'q', '2 0 0', '... and nothing is there of those that failed');
ZkLock::set($a, 'synchronous_standby_names', '');
is($two->failure, '', 'the other one, too');
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM zk_queues WHERE length = 1 AND putting = 0") == 256 }, 'all items are there');
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_waits'), 0, 'nobody waits');

done_testing();
