# Deadlocks across servers that go through locks of PostgreSQL's own on one of them.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Deadlocks;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my @node = map { Deadlocks::server($_, $zk) } qw(a b);
my ($a, $b) = @node;
ZkLock::wait_connected(@node);

sub on { return Deadlocks::on(@_); }

my ($first, $second, $far) = (on($a, 1), on($a, 2), on($b, 1));
my %pid = (first => $first->query('SELECT pg_backend_pid()'), second => $second->query('SELECT pg_backend_pid()'), far => $far->query('SELECT pg_backend_pid()'));

# On server a the first session has x and waits for the second one, for what SQL says; that
# one waits for y, which b has, who waits for x.  "late": what closes the ring is the wait
# that nobody is told of.
sub local_ring
{
	my ($what, $taken, $wanted, $shown) = @_;
	for my $late (0, 1)
	{
		my $name = $what . ($late ? ', closed here' : '');
		$far->query("BEGIN; SELECT zk_lock('y')");
		$second->query("BEGIN; $taken");
		$first->query("BEGIN; SELECT zk_lock('x')");
		if (!$late)
		{
			$first->send($wanted);
			ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid{first}") eq 'Lock' }, "$name: the first waits");
		}
		my $looked = Deadlocks::watch();
		$second->send("SELECT zk_lock('y')")->wait_level(2);
		$far->send("SELECT zk_lock('x')");
		if ($late)
		{
			$looked->($second, $far);
			$first->send($wanted);
		}
		my ($victim, $said) = Deadlocks::ok_ring($name, $first, $second, $far);
		like($said, qr/process $pid{first} waits for $shown, blocked by process $pid{second}/, '... and says what for');
	}
	return;
}

local_ring('a row lock', 'UPDATE t SET v = 1 WHERE id = 1', 'UPDATE t SET v = 2 WHERE id = 1', qr/ShareLock on transaction \d+/);
local_ring('a table lock', 'LOCK TABLE t', 'SELECT * FROM t', qr/AccessShareLock on relation \d+ of database \d+/);
local_ring('an advisory lock', 'SELECT pg_advisory_xact_lock(1)', 'SELECT pg_advisory_xact_lock(1)', qr/ExclusiveLock on advisory lock \[\d+,0,1,1\]/);
local_ring('a foreign key check', 'SELECT FROM t WHERE id = 2 FOR UPDATE', 'INSERT INTO u VALUES (2)', qr/ShareLock on transaction \d+/);
local_ring('another of our locks', "SELECT zk_lock('z')", "SELECT zk_lock('z')", qr/lock "z"/);

ZkLock::ok_clean($zk, \@node, $_) for qw(x y z);
Deadlocks::ok_withdrawn($zk);
done_testing();
