# Servers that accept connections and hang up, as those without a quorum do, are
# asked again and again, but not as fast as they answer.
use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use Proxy;
use ZkLock;

sub sum { my $n = 0; $n += $_ for @_; return $n; }

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

# How many connections a second so far?  The time is read last: a machine that is
# slow makes them fewer.
my ($start, $before) = (time, 0);

sub accepted { return sum(map { $_->accepted } @_) - $before; }

sub rate
{
	my $n = accepted(@_);
	my $seconds = time - $start;
	note sprintf '%d connections in %.1f s', $n, $seconds;
	return $n / $seconds;
}

my $zk = ZooKeeper->new(tick_time => 200);
my @proxy = map { Proxy->new($zk->host) } 1 .. 2;

# Pauses double up to a second, and the shortest are half of that.  Each handle, one
# in 3 s at first, begins with short ones: 25, 50, 100, 200, 400 ms.  That makes 6
# rounds of two hosts in the worst of seconds.  The session outlives a machine that stands
# still for some seconds.
my $a = ZkLock::server('a', join(',', map { $_->host } @proxy), extension => 0,
	conf => "zklock.session_timeout = '12s'");
ZkLock::wait_until(sub { 2 <= (() = log_of($a) =~ /trying again with a new handle/g) }, 'two handles were given up');
cmp_ok(rate(@proxy), '<', 20, 'hosts that hang up are not asked too often');
cmp_ok(accepted(@proxy), '>', 0, '... but asked');
$zk->start;
ZkLock::ask($a, 'CREATE EXTENSION zklock');
ZkLock::wait_connected($a);
my $id = ZkLock::ask($a, 'SELECT session_id FROM zk_session');

# They hang up when they have made the session.  It is seen so often that it lives.
$_->brief->cut for @proxy;
($start, $before) = (time, accepted(@proxy));
ZkLock::wait_until(sub { time > $start + 14 }, 'the session timeout is over');
cmp_ok(rate(@proxy), '<', 14, 'hosts that hang up on a session are not asked too often');
cmp_ok(accepted(@proxy), '>', 0, '... but asked');
$_->heal for @proxy;
ZkLock::wait_connected($a);
is(ZkLock::ask($a, 'SELECT session_id FROM zk_session'), $id, '... and the session goes on');
my $s = ZkLock::session($a);
is($s->query("SELECT zk_try_lock('job')"), 't', 'all is well in the end');
ZkLock::ok_clean($zk, [$a], 'job');

done_testing();
