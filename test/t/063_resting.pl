# A server that has nothing to do writes nothing, and is quick when it has again: locks.
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

# The newest transaction's number, by one of our own.
sub newest
{
	$zk->create('/newest');
	my $zxid = $zk->stat('/newest')->{czxid};

	$zk->delete('/newest');
	return $zxid;
}

rest($p, $q);
my ($before, $session) = (newest(), session_of($p));
rest($p, $q);
is(newest() - $before, 2, 'nothing is written');
is(session_of($p), $session, '... and the session goes on');
is(ZkLock::ask($p, 'SELECT state FROM zk_session'), 'connected', '... connected');
is(ZkLock::ask($p, 'SELECT expiries FROM zk_session'), 0, '... not expired');

# A lock, by a session whose creation is a lease.
is($sp->query("BEGIN; SELECT zk_lock('a') > 0"), 't', 'the first lock');
isnt(session_of($p), $session, '... in a session of its own');
is(ZkLock::ask($p, "SELECT lease_remaining > '0' FROM zk_session"), 't', '... whose lease is good');
ZkLock::wait_until(sub { !exists $zk->sessions->{$session} }, 'the old session is gone');
my $new = session_of($p);
like(PostgreSQL::Test::Utils::slurp_file($p->logfile), qr/connected to ZooKeeper server \S+, session $new, .*\n.*DETAIL:  It replaces ZooKeeper session $session,/,
	'... the log says which took its place');
$session = $new;

# What is held is held, for as long as it takes.
$before = time;
ZkLock::wait_until(sub { time > $before + 4 * $timeout }, 'time passes');
is(session_of($p), $session, 'a holder does not rest');
is($sp->query('SELECT count(*) FROM zk_assert(\'a\')'), 1, '... and can prove what it has');
$sp->query('COMMIT');

# It is kept while there is a lease, and nobody hears of a loss.
sub kept { return ZkLock::ask($_[0], "SELECT count(*) FROM zk_locks WHERE grant_state = 'kept'") }
is(kept($p), 1, 'a lock is kept');
rest($p);
ZkLock::wait_until(sub { kept($p) == 0 }, 'it is given back without a lease');
is($sp->query("BEGIN; SELECT zk_lock('a') > 0"), 't', '... and taken again');
is($sp->query('COMMIT'), '', '... and not lost');
is(ZkLock::ask($p, 'SELECT sum(losses) FROM zk_stat'), 0, '... nor was anything');

# Nor is what it keeps in its own way, if it has not given that back yet: whoever would not
# wait gets it, the first time and when it has learned that nobody else comes.
for my $try (1 .. 4)
{
	ZkLock::wait_until(sub { lapsed($p) }, 'P rests');
	is($sp->query("BEGIN; SELECT zk_try_lock('a')"), 't', "zk_try_lock of a lock that was kept, $try");
	$sp->query('COMMIT');
}

done_testing();
