# Deadlocks through a permit of one that no other server wants: whoever waits for it waits on
# the holder's server.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Deadlocks;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my @node = map { Deadlocks::server($_, $zk, "zklock.keep_time = '1 h'") } qw(a b c);
my ($a, $b, $c) = @node;
ZkLock::wait_connected(@node);

sub on { return Deadlocks::on(@_); }

sub state { return ZkLock::ask($_[0], "SELECT string_agg(grant_state, ' ' ORDER BY token) FROM zk_locks WHERE kind = 'semaphore' AND name = '$_[1]'"); }

# It keeps a permit that it alone has taken again and again.
sub keep
{
	my ($node, $name, $n) = @_;
	on($node, 1)->query("SELECT zk_acquire('$name', $n)") for 1 .. 3;
	ZkLock::wait_until(sub { state($node, $name) eq 'kept' }, "permit $name is kept");
	return;
}

sub take
{
	my ($name, $holder) = @_;
	$holder->query("BEGIN; SELECT zk_acquire('$name', 1)");
	is(state($holder->{node}, $name), 'held', "permit $name: nobody else wants it");
	return;
}

# On one server: the lock manager knows one half of it
my ($first, $second) = (on($a, 1), on($a, 2));
for my $how ('kept', 'handed over')
{
	my $name = "one $how";
	keep($a, $name, 1);
	$second->query("BEGIN; SELECT zk_acquire('$name', 1)") if $how ne 'kept';
	if ($how eq 'kept') { take($name, $first); }
	else
	{
		$first->send("BEGIN; SELECT zk_acquire('$name', 1)")->wait_level(2);
		ZkLock::wait_queue($zk, $name, 2, 'semaphores');
		$second->query('COMMIT');
		$first->result;
		is(state($a, $name), 'held', "permit $name: nobody else wants it");
	}
	$second->query("BEGIN; SELECT zk_lock('$name')");
	$second->send("SELECT zk_acquire('$name', 1)")->wait_level(2);
	$first->send("SELECT zk_lock('$name')");
	my ($victim, $said) = Deadlocks::ok_ring("one server, $how", $first, $second);
	like($said, qr/waits for semaphore "$name", held by process \d+ of server/, '... and the permit is named');
}

# On two, each with one session
keep($b, 'two', 1);
take('two', on($b, 1));
$first->query("BEGIN; SELECT zk_lock('two')");
$first->send("SELECT zk_acquire('two', 1)")->wait_level(2);
on($b, 1)->send("SELECT zk_lock('two')");
Deadlocks::ok_ring('a permit of another server', $first, on($b, 1));

# Back to the same server by one other, and by two.  "late": the wait for the permit is the last
for my $others ([$b], [ $b, $c ])
{
	for my $late (0, 1)
	{
		my @other = map { on($_, 1) } @$others;
		my $name = (1 + @other) . ($late ? ' late' : '');
		keep($a, $name, 1);
		take($name, $first);
		$second->query("BEGIN; SELECT zk_lock('x0')");
		$other[$_]->query("BEGIN; SELECT zk_lock('x" . ($_ + 1) . "')") for 0 .. $#other;
		my $waits = sub { return $second->send("SELECT zk_acquire('$name', 1)"); };
		$waits->()->wait_level(2) if !$late;
		$other[$_]->send("SELECT zk_lock('x$_')")->wait_level(2) for 0 .. $#other;
		my $looked = Deadlocks::watch();
		# the session that closes the ring may be ended before anybody sees it wait
		$first->send("SELECT zk_lock('x" . @other . "')");
		$first->wait_level(2) if $late;
		$looked->($first) if $late;
		$waits->() if $late;
		Deadlocks::ok_ring("over $name servers", $first, $second, @other);
	}
}

# One of two: the other holder may go, and does
keep($a, 'several', 2);
my $third = on($a, 3);
$_->query("BEGIN; SELECT zk_acquire('several', 2)") for $first, $third;
$second->query("BEGIN; SELECT zk_lock('x0')");
on($b, 1)->query("BEGIN; SELECT zk_lock('x1')");
my $looked = Deadlocks::watch();
on($b, 1)->send("SELECT zk_lock('x0')")->wait_level(2);
$second->send("SELECT zk_acquire('several', 2)")->wait_level(2);
$first->send("SELECT zk_lock('x1')")->wait_level(2);
$looked->($first, $second, on($b, 1));
$third->query('COMMIT');
for my $s ($second, on($b, 1), $first)
{
	is($s->failure, '', 'one of two permits: nobody is ended');
	$s->query('COMMIT');
}

Deadlocks::ok_withdrawn($zk);
done_testing();
