# Whose a permit is, as other servers see it, when sessions of its own server wait for it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.keep_time = '1 h'\ncluster_name = '$_'") } qw(a b);
ZkLock::wait_connected($a, $b);
my ($holder, $waiter) = map { ZkLock::session($a) } 1 .. 2;
my $far = ZkLock::session($b);

# What another server shows, after heartbeats of this one: a look at jobs takes one
sub wait_shown
{
	my ($sql, $expected, $what) = @_;
	my $seen;
	ZkLock::wait_until(
		sub {
			ZkLock::ask($a, 'SELECT count(*) FROM zk_jobs');
			($seen = ZkLock::ask($b, $sql)) eq $expected;
		},
		$what,
		sub { $seen });
	return pass($what);
}

my $queue = "SELECT position, granted, state, pid FROM zk_contenders('n')";
$holder->query("SELECT zk_acquire('n', 1)") for 1 .. 3;
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT grant_state FROM zk_locks WHERE name = 'n'") eq 'kept' }, 'it is kept');
$holder->query("BEGIN; SELECT zk_acquire('n', 1)");
wait_shown($queue, '1|t||', 'nobody wants the permit, and nothing is said of it');

$waiter->query("BEGIN; SELECT zk_lock('x')");
$waiter->send("SELECT zk_acquire('n', 1)")->wait_level(2);
wait_shown($queue, '1|t|held|' . $holder->pid . "\n2|f|waiting|" . $waiter->pid, 'a session of its own server waits for it');

$far->send("BEGIN; SELECT zk_lock('x')")->wait_level(2);
wait_shown(
	"SELECT step, server, pid, waits_for FROM zk_blocking(" . $far->pid . ')',
	join("\n", '0|b|' . $far->pid . '|lock "x"', '1|a|' . $waiter->pid . '|semaphore "n"', '2|a|' . $holder->pid . '|Client: ClientRead'),
	'a chain goes on to the one who has it');

$waiter->cancel;
like($waiter->failure, qr/^57014/, 'the wait is over');
$waiter->query('ROLLBACK');
is($far->failure, '', '... and so is the other');
wait_shown($queue, '1|t||', '... and nothing is said of the permit any more');
$holder->query('COMMIT');
$far->query('COMMIT');
done_testing();
