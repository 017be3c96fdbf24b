# Questions to the ensemble: answers of any size, several at a time, through
# whatever happens to the worker, the connection and those who ask.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('node', $zk, conf => "zklock.session_timeout = '4s'");
ZkLock::wait_connected($node);

# Foreigners, whose names and data are what they are
my $client = $zk->client;
my $dir = ZkLock::directory('big', 'elections');
my $n = 3000;
$client->contend($dir, kind => 'latch-', data => 'n1');
$client->create("$dir/_c_foreign-latch-", mode => 'ephemeral_sequential', data => "n$_") for 2 .. $n;
$client->create("$dir/no contender");
my $odd = ZkLock::directory('odd', 'elections');
$client->contend($odd, kind => 'latch-', data => $_) for 'x' x 3000, "\xff%\x00a", '', "n\xc3\xa4me";

my @sessions = map { ZkLock::session($node) } 1 .. 8;
my $sql = "SELECT array_length(c, 1), c[1], c[2], c[$n] FROM (SELECT ARRAY(SELECT server FROM zk_candidates('big')) c) x";
my $answer = "$n|n1|n2|n$n";
is($sessions[0]->query($sql), $answer, "$n candidates in order");
is($sessions[0]->query("SELECT server FROM zk_candidates('big') WHERE is_leader"), 'n1', '... of which the first leads');
is($sessions[0]->query("SELECT length(c[1]), c[2:4] FROM (SELECT ARRAY(SELECT server FROM zk_candidates('odd')) c) x"), '1027|{%FF%25%00a,"",näme}', 'odd data are shown as text');
$client->create(ZkLock::directory('none', 'elections'), mode => 'container');
is($sessions[0]->query("SELECT ARRAY(SELECT server FROM zk_candidates('none')), (SELECT server FROM zk_candidates('none') WHERE is_leader) IS NULL"), '{}|t', 'an empty directory');

# Several at a time
$_->send($sql) for @sessions;
is(join(' ', map { $_->result } @sessions), join(' ', ($answer) x @sessions), 'more questions than slots');

# Killed in the middle
$_->send($sql) for @sessions;
$_->cancel for @sessions[0, 2, 4, 6];
$_->terminate for @sessions[1, 3, 5, 7];
$_->failure for @sessions;
@sessions = map { ZkLock::session($node) } 1 .. 8;
is($sessions[0]->query($sql), $answer, 'those who are cancelled or terminated leave their slots');

# New workers, and new connections, meanwhile: until they are told to stop.  With the one that
# asks below they are no more than the slots: who waits for a slot may do so for long behind
# those who ask again at once.
ZkLock::ask($node, 'CREATE TABLE stop ()');
my $repeat = "DO \$\$BEGIN WHILE NOT EXISTS (TABLE stop) LOOP IF array_length(ARRAY(SELECT server FROM zk_candidates('big')), 1) <> $n THEN RAISE 'wrong'; END IF; END LOOP; END\$\$";
$_->send($repeat) for @sessions[0 .. 2];
my $worker;
for (1 .. 3)
{
	kill 'TERM', $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT worker_pid <> $worker AND state = 'connected' FROM zk_session") eq 't' }, 'a new worker');
	is($sessions[5]->query($sql), $answer, 'a new worker answers');
}
$zk->restart(1);
is($sessions[5]->query($sql), $answer, '... and on a new connection');
ZkLock::ask($node, 'INSERT INTO stop DEFAULT VALUES');
is(join('', map { $_->failure } @sessions[0 .. 2]), '', 'answers are complete through new workers and connections');

# A worker that is stopped; ZooKeeper away
$_->query("SET zklock.connect_timeout = '500ms'") for @sessions;
ZkLock::wait_connected($node);
$worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
ZkLock::stop_process($node, $worker);
like($sessions[$_]->send($sql)->failure, qr/^58000: could not reach ZooKeeper within 500 ms/, 'a stopped worker is no reason to wait for ever') for 0;
$_->send($sql) for @sessions;
is(join(' ', map { substr $_->failure, 0, 5 } @sessions), join(' ', ('58000') x 8), '... for however many');
kill 'CONT', $worker or die;
$sessions[0]->query('RESET zklock.connect_timeout');
is($sessions[0]->query($sql), $answer, '... and all is well again when it goes on');
$zk->stop(1);
ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT state FROM zk_session') ne 'connected' }, 'disconnected');
like($sessions[1]->fails($sql), qr/^58000: could not reach ZooKeeper within 500 ms/, 'ZooKeeper is away');
$zk->start(1);

done_testing();
