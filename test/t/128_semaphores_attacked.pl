# Permits, and sessions that name other numbers of them; numbers of permits that others have
# written; other programs' semaphores.
use strict;
use warnings;

use Test::More;
use ZkLock;

# Directories stay when they are empty, as long as the test needs.
my $zk = ZooKeeper->new(container_check_ms => 3_600_000)->start;
my ($a, $b) = map { ZkLock::server($_, $zk) } qw(a b);
ZkLock::wait_connected($a, $b);
my @s = map { ZkLock::session($_) } $a, $b, $a;
my $directory = ZkLock::directory('job', 'semaphores');

sub count { return ZkLock::ask($a, "SELECT count FROM zk_locks WHERE pid = @{[ $s[0]->pid ]}"); }

#
# Another number
#
$_->query("BEGIN; SELECT zk_acquire('job', 3)") for @s;
$s[0]->query('SAVEPOINT s');
for my $call ("zk_acquire('job', 2)", "zk_try_acquire('job', 1)", "zk_acquire('job', 2, 'session')")
{
	like($s[0]->fails("SELECT $call"), qr/^55000: cannot acquire one of \d permits of semaphore "job"/, "$call of who has one of three: others may have the rest");
	$s[0]->query('ROLLBACK TO s');
	is(count(), 1, '... and is not counted');
}
is($s[0]->query("SELECT zk_try_acquire('job', 4)"), 't', 'of more it is one, too');
$_->query('COMMIT') for @s;

#
# Numbers
#
# The line of a contender
sub line
{
	my ($number, $contender) = @_;
	my ($uuid) = $contender =~ /^_c_(.*)-permit/;
	return "$number " . $uuid =~ s/-//gr . "\n";
}

for my $case ([ 'too large a one', 9, 9 ], [ 'one for both', 1, 1 ], [ 'the same as large', 3, 3 ])
{
	my ($what, @number) = @$case;
	$_->query("BEGIN; SELECT zk_acquire('job', 2)") for @s[0, 1];
	my @queue = ZkLock::wait_queue($zk, 'job', 2, 'semaphores');
	$zk->set($directory, join '', map { line($number[$_], $queue[$_]) } 0, 1);
	is(join(' ', sort map { $_->query("SELECT zk_permit('job')") } @s[0, 1]), '1 2', "somebody has written $what");
	is($s[0]->query("SELECT zk_permit('job')"), $s[0]->query("SELECT zk_permit('job')"), '... and it stays');
	$_->query('COMMIT') for @s[0, 1];
	ZkLock::wait_queue($zk, 'job', 0, 'semaphores');
}
#
# Other programs' semaphores: not shared, since neither sees the other
# (doc/interoperation.md).  This is what they have in their directory.
#
my $other = $zk->client;
$other->create("$directory/$_") for qw(locks leases);
my @leases = (
	[ Curator => "$directory/leases/_c_" . '0' x 8 . '-0000-4000-8000-' . '0' x 12 . '-lease-', 'ephemeral_sequential' ],
	[ kazoo => "$directory/" . 'f' x 32, 'ephemeral' ]);
for (@leases)
{
	my ($program, $path, $mode) = @$_;
	my $lease = $other->create($path, mode => $mode);
	is($s[0]->query("SELECT zk_try_acquire('job', 1)"), 't', "a lease of $program\'s does not count");
	ZkLock::wait_until(sub { !grep { /-permit/ } ZkLock::queue($zk, 'job', 'semaphores') }, 'it is given back');
	$other->delete($lease);
}
$other->delete("$directory/$_") for qw(locks leases);
# What has a number does, whoever it is.
my $lease = $other->create("$directory/lease-", mode => 'ephemeral_sequential');
is($s[0]->query("SELECT zk_try_acquire('job', 1)"), 'f', 'what ends in a sequence number does');
is($s[0]->query("SELECT zk_try_acquire('job', 2)"), 't', '... for one');
$other->delete($lease);
ZkLock::ok_clean($zk, [ $a, $b ], 'job', 'in the end', 'semaphores');

done_testing();
