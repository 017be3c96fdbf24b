# A server that rests: not while a lock is taken now and then, and others get what it keeps.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Resting;
use Test::More;
use Time::HiRes qw(time);
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($p, $q) = Resting::servers($zk, 'p', 'q');
my ($sp, $sq) = map { ZkLock::session($_) } $p, $q;

# One that is taken for a moment, now and then, needs a lease all the time, though nobody is
# found to hold it.
$sp->query("SELECT zk_lock('a')");
my $session = session_of($p);
my ($begun, $last) = (time) x 2;
ZkLock::wait_until(
	sub {
		my $now = time;
		# too late
		($begun, $session) = ($now, session_of($p)) if $now > $last + $timeout;
		if ($now > $last + $timeout / 4)
		{
			$sp->query("SELECT zk_lock('a')");
			$last = $now;
		}
		return $now > $begun + 5 * $timeout;
	},
	'a lock is taken again and again');
is(session_of($p), $session, 'a server does not rest while what it keeps is taken now and then');

# Whoever wants it meanwhile gets it.
rest($p, $q);
is($sq->query("BEGIN; SELECT zk_lock('a') > 0; COMMIT"), 't', 'another server takes what one that rests has kept');

done_testing();
