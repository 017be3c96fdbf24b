# Resting - servers that rest: they have nothing to do, and write nothing.
#
#   my ($p, $q) = Resting::servers($zk, 'p', 'q');
#   rest($p, $q);              # wait until they rest, and have for a while
#
#   $timeout                   s: of their sessions
#   servers(ZK, NAME...)       started and connected; the zklock settings are in $conf
#   session_of(NODE)           the id of its ZooKeeper session
#   lapsed(NODE)               has it no lease now?
package Resting;

use strict;
use warnings;

use Exporter 'import';
use Time::HiRes qw(time);
use ZkLock;

our @EXPORT = qw($timeout $conf rest session_of lapsed);

# Long enough for a machine that stands still for a while.
our $timeout = 8;
our $conf = "zklock.session_timeout = '${timeout}s'\nzklock.keep_time = '1h'\nzklock.election_idle_time = 0";

sub servers
{
	my ($zk, @names) = @_;
	my @nodes = map { ZkLock::server($_, $zk, conf => "$conf\ncluster_name = '$_'") } @names;
	ZkLock::wait_connected(@nodes);
	return @nodes;
}

sub session_of { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session') }
sub lapsed { return ZkLock::ask($_[0], "SELECT lease_remaining = '0' FROM zk_session") eq 't' }

# It rests when its lease has lapsed while the connection is good.
sub rest
{
	my @nodes = @_;

	for my $node (@nodes)
	{
		ZkLock::wait_until(sub { lapsed($node) }, $node->name . ' rests', sub { ZkLock::ask($node, 'SELECT state, lease_remaining FROM zk_session') });
	}
	# Others may have had all that it keeps, if it had been cut off for as long.
	my $since = time;
	ZkLock::wait_until(sub { time > $since + 2 * $timeout }, 'time passes');
}

1;
