# What servers say of queues of work.
package Queues;

use strict;
use warnings;

use Exporter 'import';
use Test::More;
use ZkLock;

our @EXPORT_OK = qw(length_is);

# length_is NODE, QUEUE, 'LENGTH HELD PUTTING', WHAT: a test that waits until that is so.
# What has committed is moved into the queue a moment later.
sub length_is
{
	my ($node, $queue, $length, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $seen;
	ZkLock::wait_until(
		sub { ($seen = ZkLock::ask($node, "SELECT length || ' ' || held || ' ' || putting FROM zk_queues WHERE queue = '$queue'")) eq $length },
		"$queue has $length", sub { $seen });
	return pass($what);
}

1;
