# Many who wait for permits of one name: what they cost, by the requests of their server.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use IPC::Run;
use PostgreSQL::Test::Utils ();
use Proxy;
use Test::More;
use Wait;
use ZkLock;
use ZooKeeper;

my $n = 100;
my $zk = ZooKeeper->new->start;
# Waits are told to others after deadlock_timeout.
my $conf = "max_connections = 130\nautovacuum = off\ndeadlock_timeout = '1 h'";
my %proxy = map { $_ => Proxy->new($zk->host) } qw(a b);
my %node = map { $_ => ZkLock::server($_, $proxy{$_}, conf => $conf) } qw(a b);
my $dir = PostgreSQL::Test::Utils::tempdir();
PostgreSQL::Test::Utils::append_to_file("$dir/one.sql", "BEGIN;\nSELECT zk_acquire('one', 1);\nCOMMIT;\n");

sub waiting { return ZkLock::ask($_[0], q{SELECT count(*) FROM zk_locks WHERE kind = 'semaphore' AND NOT granted}); }

# As many clients, who take the permit one after another; so many are in the queue with them.
sub crowd
{
	my ($node, $clients, $all) = @_;
	my $run = { output => '' };
	$run->{harness} = IPC::Run::start(
		[ 'pgbench', '-n', '-t', 1, '-c', $clients, '-j', 4, '-f', "$dir/one.sql", '-h', $node->host, '-p', $node->port, 'postgres' ],
		'<', '/dev/null', '>&', \$run->{output}, IPC::Run::timeout($ZkLock::timeout, exception => 'pgbench has not ended in time'));
	wait_until(sub { $run->{harness}->pump_nb; waiting($node) == $clients }, "$clients wait");
	ZkLock::wait_queue($zk, 'one', $all, 'semaphores');
	ZkLock::wait_answered($node);
	return $run;
}

sub ok_through
{
	my ($what, @runs) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($_->{harness}->finish, $what) or diag $_->{output} for @runs;
	return;
}

# Now and then the worker lists a directory, and looks at its own contenders.
sub ok_few
{
	my ($requests, $of, $most, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $came = $requests->{$of} // 0;
	return ok($came <= $most, "$what: at most $most times $of") || diag "$came";
}

#
# One server
#
my $holder = ZkLock::session($node{a});
$holder->query('BEGIN');
$holder->query("SELECT zk_acquire('one', 1)");
ZkLock::wait_answered($node{a});
$proxy{a}->requests;
my $crowd = crowd($node{a}, $n, 1 + $n);
my $requests = $proxy{a}->requests;
is($requests->{create}, $n, "$n who wait have made a contender each");
ok_few($requests, 'children', 20, '... and have not looked at the queue each');

# Nor do they on a new connection.
my $accepted = $proxy{a}->accepted;
$proxy{a}->cut;
wait_until(sub { $proxy{a}->accepted > $accepted }, 'a new connection');
ZkLock::wait_connected($node{a});
ZkLock::wait_answered($node{a});
is(waiting($node{a}), $n, 'they wait on');
ok_few($proxy{a}->requests, 'children', 20, '... with a new connection');

$holder->query('COMMIT');
ok_through("$n have had their turn", $crowd);
ZkLock::wait_queue($zk, 'one', 0, 'semaphores');
ZkLock::wait_answered($node{a});
$requests = $proxy{a}->requests;
is($requests->{delete}, $n + 1, '... and are gone');
ok_few($requests, 'children', $n + 20, '... looking once each');
ok_few($requests, 'get', 20, '... and watching nobody');

#
# Two servers, of which each watches those of the other that come before its own
#
$holder = ZkLock::session($node{a});
$holder->query('BEGIN');
$holder->query("SELECT zk_acquire('one', 1)");
my @crowds = (crowd($node{a}, $n / 2, 1 + $n / 2), crowd($node{b}, $n / 2, 1 + $n));
$_->requests for values %proxy;
$holder->query('COMMIT');
$_->{harness}->pump_nb for @crowds;
ok_through($n / 2 . ' of two servers have had their turn', @crowds);
ZkLock::wait_queue($zk, 'one', 0, 'semaphores');
ZkLock::wait_answered($_) for values %node;
my %sum;
for my $of (values %proxy)
{
	my $few = $of->requests;
	$sum{$_} += $few->{$_} for keys %$few;
}
is($sum{delete}, $n + 1, '... and are gone');
ok_few(\%sum, 'children', $n + 40, '... looking once each');
ok_few(\%sum, 'get', $n + 40, '... and watched once each');

ZkLock::ok_clean($zk, [ values %node ], 'one', 'all', 'semaphores');
done_testing();
