# A server of the fleet (test/fleet) sends what a real one sends, state by state.
use strict;
use warnings;

use FindBin;
use IO::Select;
use IPC::Open2;
use Test::More;
use Proxy;
use ZkLock;

# Where the machine stands still for some seconds no connection ends: one that was made again is
# asked for less when it ends.
my $timeout = 24;
my $zk = ZooKeeper->new->start;
system('make', '-s', '-C', "$FindBin::Bin/../fleet") == 0 or BAIL_OUT('could not build the fleet');
$zk->create($_) for '/fleet', '/fleet/servers', '/fleet/tokens';

my ($ours, $theirs) = map { Proxy->new($zk->host) } 1, 2;
my $node = ZkLock::server('a', $ours, conf => "zklock.session_timeout = '${timeout}s'\nzklock.keep_time = 0");
ZkLock::wait_connected($node);
my $session = ZkLock::session($node);

my $pid = open2(my $answers, my $orders, "$FindBin::Bin/../fleet/build/fleet", $theirs->host, $timeout * 1000);

sub order
{
	print $orders "@_\n";
	$orders->flush;
	ZkLock::wait_until(sub { IO::Select->new($answers)->can_read(1) }, "the fleet has done: @_");
	return (split ' ', readline $answers // die 'the fleet has ended')[0];
}

# Both do the same, and what they ask of the ensemble until their next heartbeats but one is
# the same, apart from these and from pings.
sub same
{
	my ($what, $real, $fleet) = @_;
	my %proxy = (real => $ours, fleet => $theirs);
	my (%asked, %all);
	ZkLock::wait_answered($node);
	$_->trace for values %proxy;
	$real->();
	$fleet->();
	for my $who (sort keys %proxy)
	{
		my ($beats, %kinds) = 0;
		ZkLock::wait_until(
			sub {
				for ($proxy{$who}->trace)
				{
					if (m{^set /\w+/servers/}) { $beats++; }
					elsif (!/^ping/) { $kinds{ (split ' ')[0] }++; push @{ $all{$who} }, $_; }
				}
				return $beats >= 2;
			},
			"$who sends two heartbeats");
		$asked{$who} = join ', ', map { "$_ $kinds{$_}" } sort keys %kinds;
	}
	is($asked{fleet}, $asked{real}, $what) or diag(explain(\%all));
}

sub lock { $session->query("SELECT zk_lock('own', scope => 'session')") }
sub unlock { $session->query('SELECT zk_unlock_all()') }

is(order('grow', 1), 1, 'a server of the fleet is connected');

# The first time, directories are made besides.
lock();
order('hold', 1);
unlock();
order('hold', 0);
ZkLock::wait_queue($zk, 'own', 0);
same('a lock', \&lock, sub { order('hold', 1) });
same('it is held', sub { }, sub { });
same('a new connection', sub { $ours->cut }, sub { $theirs->cut });
same('it is given back', \&unlock, sub { order('hold', 0) });

# Both rest.
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT lease_remaining = '0' FROM zk_session") eq 't' && order('leases') == 0 }, 'both rest');
for ($ours, $theirs)
{
	# before, there may be a heartbeat: a lease also lapses where an answer was late
	my @pings;
	my $proxy = $_;
	ZkLock::wait_until(sub { for ($proxy->trace) { @pings = () if !/^ping/; push @pings, $_ if /^ping/; } @pings >= 3 }, 'three pings in a row');
	pass('there are pings, and nothing else');
}
same('a lock after that', \&lock, sub { order('hold', 1) });
unlock();
order('hold', 0);
close $orders;
waitpid $pid, 0;

ZkLock::ok_clean($zk, [$node], 'own');
done_testing();
