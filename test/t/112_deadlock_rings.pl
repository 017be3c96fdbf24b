# Rings of eight servers, and many waits that are none.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Deadlocks;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my @node = map { Deadlocks::server("s$_", $zk) } 0 .. 7;
ZkLock::wait_connected(@node);

sub on { return Deadlocks::on(@_); }

# all at once
on($node[$_])->query("BEGIN; SELECT zk_lock('r$_')") for 0 .. 7;
on($node[$_])->send("SELECT zk_lock('r" . ($_ + 1) % 8 . "')") for 0 .. 7;
my ($victim, $said) = Deadlocks::ok_ring('eight servers', map { on($_) } @node);
my @round = $said =~ /waits for lock "(r\d)"/g;
is(join(' ', sort @round), 'r0 r1 r2 r3 r4 r5 r6 r7', '... and all of them are named');

# one after the other, the last one long after
my $looked = Deadlocks::watch();
on($node[$_])->query("BEGIN; SELECT zk_lock('r$_')") for 0 .. 7;
on($node[$_])->send("SELECT zk_lock('r" . ($_ + 1) . "')")->wait_level(2) for 0 .. 6;
$looked->(map { on($_) } @node[ 0 .. 6 ]);
on($node[7])->send("SELECT zk_lock('r0')");
Deadlocks::ok_ring('closed by the last of eight', map { on($_) } @node);

# two rings at a time that have a step in common
on($node[$_])->query("BEGIN; SELECT zk_lock('r$_')") for 0 .. 3;
on($node[2])->send("SELECT zk_lock('r0')")->wait_level(2);
on($node[3])->send("SELECT zk_lock('r0')")->wait_level(2);
on($node[1])->send("SELECT zk_lock('r2')")->wait_level(2);
on($node[0])->send("SELECT zk_lock('r1')");
Deadlocks::ok_ring('with one who waits beside', map { on($_) } @node[ 0 .. 3 ]);

# Many waits and no ring: s0 has r0; s1 has r1 and wants r0, and so on; and on each server
# two more who stand in line.  All of them look, some more than once.
$looked = Deadlocks::watch();
on($node[$_])->query("BEGIN; SELECT zk_lock('r$_')") for 0 .. 7;
my @waiter;
for my $i (1 .. 7)
{
	on($node[$i])->send("SELECT zk_lock('r" . ($i - 1) . "')")->wait_level(2);
	push @waiter, on($node[$i], $_)->send("BEGIN; SELECT zk_lock('r$_')") for grep { $_ != $i } 0, 7;
}
$looked->(@waiter, map { on($node[$_]) } 1 .. 7);
on($node[0])->query('COMMIT');
my $done = 0;
my @left = (@waiter, map { on($node[$_]) } 1 .. 7);
while (@left)
{
	ZkLock::wait_until(sub { grep { !$_->busy } @left }, 'somebody goes on');
	my ($next) = grep { !$_->busy } @left;
	@left = grep { $_ != $next } @left;
	$done++ if $next->failure eq '';
	$next->query('ROLLBACK');
}
is($done, @waiter + 7, 'many waits and no ring: nobody is ended');

ZkLock::ok_clean($zk, \@node, "r$_") for 0 .. 7;
Deadlocks::ok_withdrawn($zk);
done_testing();
