# Several locks in one step, beside sessions that have lost level 1 and not noticed yet: who
# would not wait is answered, and who waits has his locks when they have.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
# What is held is kept afterwards, as nobody else wants it.
my $a = ZkLock::server('a', $zk, conf => "zklock.keep_time = '1h'\nzklock.handoff_limit = 4");
my ($sa, $sa2) = map { ZkLock::session($a) } 1 .. 2;

# The hold of x is void, and its session finds out when the statement ends.
sub begin_void
{
	my ($mode) = @_;
	$sa->query("SELECT zk_lock('x', '$mode', 'session')");
	$sa->send('SELECT pg_advisory_unlock_all(), pg_sleep(3600)')->wait_event('PgSleep');
	return;
}

sub end_void
{
	$sa->cancel;
	return like($sa->failure, qr/^57014/, '... until the statement ends');
}

for my $held ('exclusive', 'shared')
{
	for my $wanted ('exclusive', 'shared')
	{
		my $what = "$wanted, beside a void hold in $held mode";
		begin_void($held);
		is($sa2->query("SELECT zk_try_lock_all('{x,y}', '$wanted')"), 'f', "$what: who would not wait");
		is($sa2->query("SELECT zk_try_lock_all('{x,y}', '$wanted', timeout => '10 ms')"), 'f', '... and not for long');
		$sa2->query("SET lock_timeout = '10 ms'");
		like($sa2->fails("SELECT zk_try_lock_all('{x,y}', '$wanted', timeout => '1 h')"), qr/^55P03/, '... and lock_timeout');
		$sa2->query("RESET lock_timeout");
		$sa2->send("SELECT zk_try_lock_all('{x,y}', '$wanted', timeout => '1 h')")->wait_level(2);
		ok($sa2->busy, '... who waits does so');
		end_void();
		is($sa2->result, 't', '... and has all of them then');
		is($sa2->query("SELECT count(*) FROM zk_locks WHERE pid IS NOT NULL"), 0, '... for one statement');
	}
}

done_testing();
