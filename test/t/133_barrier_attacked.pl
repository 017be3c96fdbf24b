# Barriers, and what others write into their directories: names that nobody here would make.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk) } qw(a b);
ZkLock::wait_connected($a, $b);
my ($x, $y) = map { ZkLock::session($_) } $a, $b;

sub dir { return ZkLock::directory($_[0], 'barriers'); }

sub meet
{
	my ($name, $what) = @_;
	$x->send("CALL zk_barrier('$name', 2)")->wait_event('Extension');
	$y->query("CALL zk_barrier('$name', 2)");
	return is($x->result, '', $what);
}

# A node that cannot be deleted by the name that its numbers make counted as a party: the
# round could not be opened, and was tried again and again.
my $party = 'party-' . 'a' x 32 . '-' . 'b' x 16;
my $n = 0;
for my $node ("$party-2-9999999999", "$party-2-2147483648", "$party-02-0000000000", "$party-2-00000000000")
{
	my $name = 'forged ' . ++$n;
	$zk->create(dir($name));
	$zk->create(dir($name) . "/$node");
	meet($name, "$node is no party");
	is_deeply([ $zk->children(dir($name)) ], [$node], '... and is left alone');
	is(ZkLock::ask($a, 'SELECT count(*) FROM zk_barriers()'), 0, '... and not shown');
}

done_testing();
