# Whose a permit is, as other servers see it, when sessions of its own server wait for it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my ($a, $b) = map { ZkLock::server($_, $_ eq 'a' ? $zk : $proxy, conf => "zklock.keep_time = '1 h'\ncluster_name = '$_'") } qw(a b);
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

# What others have is asked for once: that they are two, a lock and a semaphore, does not matter
$holder->query("BEGIN; SELECT zk_lock('n'), zk_acquire('n', 1)");
$waiter->send("CALL zk_barrier('n', 2)");
$zk->wait_children(ZkLock::directory('n', 'barriers'), 1);
for ([ "SELECT kind, server FROM zk_contenders('n')", "lock|a\nsemaphore|a" ], [ 'SELECT count(*) FROM zk_barriers', 1 ])
{
	my ($sql, $shows) = @$_;
	my %times;
	$proxy->trace;
	is($far->query($sql), $shows, $sql);
	$times{$_}++ for grep { /^(children|get) / } $proxy->trace;
	is(join(' ', grep { $times{$_} > 1 } sort keys %times), '', '... asks for nothing twice') if is(!!%times, 1, '... asks ZooKeeper');
}
is($far->query("CALL zk_barrier('n', 2)"), '', 'the barrier opens');
is($waiter->result, '', '... for both');
$holder->query('COMMIT');
done_testing();
