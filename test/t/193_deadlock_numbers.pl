# Deadlocks through permits of which different numbers are asked for.  Two sessions are in each
# other's way if either asks for one of one; so is whoever waits behind such a one.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Deadlocks;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b, $c) = my @node = map { Deadlocks::server($_, $zk, "zklock.keep_time = '1 h'") } qw(a b c);
ZkLock::wait_connected(@node);

sub on { return Deadlocks::on(@_); }

# It keeps a permit that it alone has taken again and again.
sub keep
{
	my ($node, $name, $n) = @_;
	on($node, 1)->query("SELECT zk_acquire('$name', $n)") for 1 .. 3;
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT grant_state FROM zk_locks WHERE kind = 'semaphore' AND name = '$name'") eq 'kept' }, "permit $name is kept");
	return;
}

# The holder asks for the one number, and the waiter for the other.
my $first = on($a, 1);
for my $numbers ([ 1, 3 ], [ 3, 1 ], [ 1, 1 ])
{
	my ($held, $wanted) = @$numbers;
	for my $kept (0, 1)
	{
		for my $node ($a, $b)
		{
			my $second = on($node, 2);
			# which wait is the last one, and so ends
			for my $late (0, 1)
			{
				my $name = join ' ', "$held and $wanted,", ($node == $a ? 'one server' : 'two servers'), ($kept ? 'kept' : 'cold'), ($late ? 'late' : ());
				keep($a, $name, $held) if $kept;
				$first->query("BEGIN; SELECT zk_acquire('$name', $held)");
				$second->query("BEGIN; SELECT zk_lock('$name')");
				my ($permit, $lock) = ([ $second, "SELECT zk_acquire('$name', $wanted)" ], [ $first, "SELECT zk_lock('$name')" ]);
				my @waits = $late ? ($lock, $permit) : ($permit, $lock);
				$_->[0]->send($_->[1]) for @waits;
				my ($victim, $said) = Deadlocks::ok_ring($name, $first, $second);
				like($said, qr/waits for semaphore "\Q$name\E", held by process \d+ of server|waits for lock "\Q$name\E"/, '... and it is told');
			}
		}
	}
}

# Behind one that asks for one of one: the last may have nothing before both of those before it
# have gone, though it would share with the first.
my ($second, $third) = (on($b, 1), on($c, 1));
for my $order ('first', 'last')
{
	my $name = "behind, $order";
	$first->query("BEGIN; SELECT zk_acquire('$name', 3)");
	$third->query("BEGIN; SELECT zk_lock('$name')");
	$second->send("BEGIN; SELECT zk_acquire('$name', 1)")->wait_level(2);
	ZkLock::wait_queue($zk, $name, 2, 'semaphores');
	my ($permit, $lock) = ([ $third, "SELECT zk_acquire('$name', 3)" ], [ $first, "SELECT zk_lock('$name')" ]);
	$_->[0]->send($_->[1])->wait_level(2) for $order eq 'first' ? $permit : $lock;
	$_->[0]->send($_->[1]) for $order eq 'first' ? $lock : $permit;
	Deadlocks::ok_ring($name, $first, $second, $third);
}

# The one between gives up: who was behind it shares with the holder, and waits for nobody.
my $name = 'gives up';
$first->query("BEGIN; SELECT zk_acquire('$name', 3)");
$second->send("BEGIN; SELECT zk_acquire('$name', 1)")->wait_level(2);
ZkLock::wait_queue($zk, $name, 2, 'semaphores');
$third->query("BEGIN; SELECT zk_lock('$name')");
my $looked = Deadlocks::watch();
$third->send("SELECT zk_acquire('$name', 3)")->wait_level(2);
ZkLock::wait_queue($zk, $name, 3, 'semaphores');
$looked->($third);
$second->cancel;
like($second->failure, qr/^57014/, 'who stood between gives up');
$second->query('ROLLBACK');
is($third->failure, '', '... and the one behind it has a permit beside the holder');
$first->send("SELECT zk_lock('$name')")->wait_level(2);
$third->query('COMMIT');
is($first->failure, '', '... so that nobody is ended');
$first->query('COMMIT');

# Nobody asks for one of one: any of the holders will do, and one goes.
my ($waiter, $beside) = (on($b, 3), on($a, 3));
for my $numbers ([ 2, 3 ], [ 3, 2 ])
{
	my ($held, $wanted) = @$numbers;
	$name = "several, $held and $wanted";
	$first->query("BEGIN; SELECT zk_acquire('$name', $held)");
	$beside->query("BEGIN; SELECT zk_acquire('$name', $held)");
	$waiter->query("BEGIN; SELECT zk_lock('$name')");
	$third->query("BEGIN; SELECT zk_acquire('$name', 3)") if $held == 3;
	$looked = Deadlocks::watch();
	$waiter->send("SELECT zk_acquire('$name', $wanted)")->wait_level(2);
	$first->send("SELECT zk_lock('$name')")->wait_level(2);
	$looked->($first, $waiter);
	$third->query('COMMIT') if $held == 3;
	$beside->query('COMMIT');
	for my $s ($waiter, $first)
	{
		is($s->failure, '', "$name: nobody is ended");
		$s->query('COMMIT');
	}
}

Deadlocks::ok_withdrawn($zk);
done_testing();
