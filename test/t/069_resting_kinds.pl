# What a server does first after a rest begins a new session, and waits for no lease of the
# old one, though a put has written in the old one just before.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Resting;
use Test::More;
use ZkLock;
use ZooKeeper;

my $put = "SELECT zk_queue_put('q', 'x')";
my @first = (
	['a put, and a take that waits', $put, "SELECT payload = 'x' FROM zk_queue_take('q', '1 h')"],
	['a put, and a take that does not wait', $put =~ s/q'/r'/r, "SELECT payload = 'x' FROM zk_queue_take('r')"],
	['a put, and a lock', $put =~ s/q'/s'/r, "SELECT zk_lock('a') > 0"],
	['a permit', 'SELECT 1', "SELECT zk_acquire('a', 2) > 0"],
	['a job', "CALL zk_run_once('a', 'SELECT 1', every => '1 day')", "SELECT count(*) = 1 FROM zk_runs"],
	['an election', 'SELECT 1', "SELECT zk_is_leader('a', '1 h')"],
);
my $zk = ZooKeeper->new->start;
my ($b, @nodes) = Resting::servers($zk, map { "p$_" } 0 .. @first);
my ($sb, @sessions) = map { ZkLock::session($_) } $b, @nodes;
rest($b, @nodes);
for my $i (0 .. $#first)
{
	my ($name, $one, $two) = @{ $first[$i] };
	my $session = session_of($nodes[$i]);

	$sessions[$i]->query($one);
	is($sessions[$i]->query($two), 't', $name);
	isnt(session_of($nodes[$i]), $session, '... in a new session');
}

# A barrier needs no lease.
my $session = session_of($b);
my $other = ZkLock::session($b)->send("CALL zk_barrier('a', 2)");
is($sb->query("CALL zk_barrier('a', 2)"), '', 'a barrier');
is($other->result, '', '... opens');
is(session_of($b), $session, '... in the session that is there');

done_testing();
