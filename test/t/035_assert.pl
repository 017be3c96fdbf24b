# zk_assert proves the hold, not only that this server reaches a quorum.  A grant by the
# next number is watched from the next heartbeat on, so its contender can go unnoticed
# until then, and another server can have the lock.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($node, $rival) = map { ZkLock::server($_, $zk) } qw(a b);
ZkLock::wait_connected($node, $rival);
my ($s, $r) = map { ZkLock::session($_) } ($node, $rival);
# The write that zk_assert waits for makes the worker set the watch: a race, hence so often.
my $proven = 0;
for my $n (1 .. 20)
{
	my $name = "job$n";
	$s->query("SELECT zk_lock('$name')") for 1 .. 2;
	my $token = $s->query("BEGIN; SELECT zk_lock('$name')");
	$r->query("SELECT zk_break('$name', $token)");
	my $other = $r->query("SELECT zk_lock('$name', scope => 'session')");
	my $failure = $s->fails("SELECT zk_assert('$name')");
	$proven++ if $other > $token && $failure eq '';
	like($failure, qr/^40001: lock "$name" was lost/, 'the error') if $n == 1;
	$s->fails('ROLLBACK');
}
is($proven, 0, 'zk_assert proves nothing that another server has');
done_testing;
