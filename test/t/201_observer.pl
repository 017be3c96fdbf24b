# A server that reaches the ensemble by an observer alone, which takes part in no vote: it
# has its locks as long as there is a quorum behind the observer, and not longer.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(servers => 4, observer => 4)->start;
my @voters = 1 .. 3;
$zk->wait_elected;
ZkLock::wait_until(sub { ($zk->mode(4) // '') eq 'observer' }, 'one observes');
my $a = ZkLock::server('a', $zk->hosts(4));
my $b = ZkLock::server('b', $zk->hosts(@voters));
# one whose lease is over before the others' sessions are
my $short = ZkLock::server('short', $zk->hosts(4), conf => "zklock.session_timeout = '4s'");
ZkLock::wait_connected($a, $b, $short);
my ($holder, $waiter, $s) = map { ZkLock::session($_) } $a, $b, $short;

sub session_id { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session') }
my @id = map { session_id($_) } $a, $b;

sub ok_true
{
	my ($what) = @_;
	ZkLock::wait_connected($a, $b);
	like($holder->query("SELECT zk_assert('job')"), qr/^\d+$/, "$what: the lock is held, and that can be proven");
	ok($waiter->busy, '... who waits for it waits');
	return is_deeply([ map { session_id($_) } $a, $b ], \@id, '... both in their sessions');
}

$holder->query("SELECT zk_lock('job', scope => 'session')");
$waiter->send("SELECT zk_lock('job', scope => 'session')")->wait_level(2);
ok_true('an observer serves');

# Another leader, which the observer has to find.
my ($leader) = $zk->wait_elected;
$zk->kill9($leader);
ok_true('the leader has died');
$zk->start($leader);
$zk->wait_elected;

# Without its connection, and with another one.
$zk->kill9(4);
$zk->start(4);
ok_true('the observer has died, and is back');
$a->append_conf('postgresql.conf', "zklock.hosts = '" . $zk->hosts(1, 4) . "'");
$a->reload;
$zk->kill9(4);
ok_true('the observer has died, and the session goes on at one that votes');
$zk->start(4);
ZkLock::wait_until(sub { ($zk->mode(4) // '') eq 'observer' }, 'it observes again');

# The observer is there, and nobody behind it.
ZkLock::wait_connected($short);
$s->query("SELECT zk_lock('short', scope => 'session')");
$zk->pause(@voters);
ZkLock::wait_until(sub { $s->fails("SELECT 1") ne '' }, 'nobody behind the observer: a lock is not believed in for longer than its lease');
like($s->fails('SELECT 1'), qr/^55000: lock "short" (?:was lost|cannot be proved)/, 'the holder is told');
$zk->resume(@voters);
$s->query('SELECT zk_unlock_all()');
ZkLock::wait_connected($a, $b, $short);
$s->query("SELECT zk_lock('short', scope => 'session'); SELECT zk_unlock_all()");

# Handed over, in both directions.
$holder->query('SELECT zk_unlock_all()');
$waiter->result;
$holder->send("SELECT zk_lock('job', scope => 'session')")->wait_level(2);
$waiter->query('SELECT zk_unlock_all()');
$holder->result;
pass('a lock goes from one to the other and back');
$holder->query('SELECT zk_unlock_all()');
ZkLock::ok_clean($zk, [ $a, $b, $short ], 'job');
done_testing();
