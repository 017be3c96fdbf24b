# A server that has nothing to do writes nothing, and is quick when it has again.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Time::HiRes qw(time);
use ZkLock;
use ZooKeeper;

# Long enough for a machine that stands still for a while.
my $timeout = 8;
my $zk = ZooKeeper->new->start;
my $conf = "zklock.session_timeout = '${timeout}s'\nzklock.keep_time = '1h'\nzklock.election_idle_time = 0";
my ($p, $q) = map { ZkLock::server($_, $zk, conf => "$conf\ncluster_name = '$_'") } 'p', 'q';
ZkLock::wait_connected($p, $q);
my ($sp, $sq) = map { ZkLock::session($_) } $p, $q;

sub session_of { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session') }
sub lapsed { return ZkLock::ask($_[0], "SELECT lease_remaining = '0' FROM zk_session") eq 't' }

# The newest transaction's number, by one of our own.
sub newest
{
	$zk->create('/newest');
	my $zxid = $zk->stat('/newest')->{czxid};

	$zk->delete('/newest');
	return $zxid;
}

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
$session = session_of($p);

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

# One that is taken for a moment, now and then, needs a lease all the time, though nobody is
# found to hold it.
$sp->query("SELECT zk_lock('a')");
$session = session_of($p);
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

# A candidate that does not lead rests; its turn comes.
ZkLock::wait_until(sub { $sp->query("SELECT zk_is_leader('job')") eq 't' }, 'P leads');
is($sq->query("SELECT zk_is_leader('job')"), 'f', 'Q stands');
rest($q);
is(ZkLock::ask($p, "SELECT lease_remaining > '0' FROM zk_session"), 't', 'who leads does not rest');
$session = session_of($q);
$sp->query("SELECT zk_resign('job')");
ZkLock::wait_until(sub { $sq->query("SELECT zk_is_leader('job')") eq 't' }, 'Q leads in its turn');
is(session_of($q), $session, '... by the same session');
$sq->query("SELECT zk_resign('job')");

# The first one to stand needs no wait.
rest($p, $q);
ZkLock::wait_until(sub { $sp->query("SELECT zk_is_leader('other')") eq 't' }, 'a server that rested leads');
$sp->query("SELECT zk_resign('other')");

# A connection is lost and made again: nothing is wanted, and nothing is lost.
rest($p, $q);
$session = session_of($p);
$zk->restart;
ZkLock::wait_connected($p, $q);
is($sp->query("BEGIN; SELECT zk_lock('b') > 0; COMMIT"), 't', 'a lock after a restart of ZooKeeper');

# What is put needs no lease, and goes out at once.
rest($p);
$session = session_of($p);
$sp->query("SELECT zk_queue_put('p', 'x')");
is($sq->query("SELECT payload FROM zk_queue_take('p', '1 h')"), 'x', 'a server that rested puts an item');
is(session_of($p), $session, '... by the same session');

# Whoever comes while there is no connection has what he asks for in the old session, and
# that has to prove its lease then: another one would take away what he has got.
$sq->query("SELECT zk_queue_put('q', 'x')");
rest($p);
$zk->stop;
ZkLock::wait_until(sub { ZkLock::ask($p, 'SELECT state FROM zk_session') ne 'connected' }, 'P has lost its connection');
$sp->send("BEGIN; SELECT payload, attempt FROM zk_queue_take('q', '1 h')");
$sp->wait_event('Extension');
$zk->start;
is($sp->result, 'x|1', 'an item is taken as the connection comes back');
is($sp->query('COMMIT'), '', '... and not lost');
is(ZkLock::ask($p, 'SELECT items_lost FROM zk_stat'), 0, '... nor counted as such');

# Settings that cannot be read are no reason to do without the session that there is.
my $file = PostgreSQL::Test::Utils::tempdir() . '/credentials';
sub write_file { PostgreSQL::Test::Utils::append_to_file($file, "digest r:s3cr3t\n"); chmod 0600, $file or die; return; }
write_file();
my $r = ZkLock::server('r', $zk, conf => "$conf\nzklock.root = '/closed'\nzklock.auth_file = '$file'");
ZkLock::wait_connected($r);
my $sr = ZkLock::session($r);
rest($r);
$session = session_of($r);
unlink $file or die;
is($sr->query("BEGIN; SELECT zk_lock('a') > 0; COMMIT"), 't', 'a lock without the file of credentials');
is(session_of($r), $session, '... by the session that is there');
like(ZkLock::ask($r, 'SELECT last_error FROM zk_session'), qr/stays in use/, '... which is told');
write_file();
rest($r);
is($sr->query("BEGIN; SELECT zk_lock('a') > 0; COMMIT"), 't', 'a lock when it is there again');
isnt(session_of($r), $session, '... by a new session');

# The worker's successor goes on.
rest($p);
my $pid = ZkLock::ask($p, 'SELECT worker_pid FROM zk_session');
kill 'TERM', $pid or die;
ZkLock::wait_until(sub { my $now = ZkLock::ask($p, 'SELECT worker_pid FROM zk_session'); $now ne '' && $now != $pid }, 'another worker');
is($sp->query("BEGIN; SELECT zk_lock('b') > 0; COMMIT"), 't', 'a lock by its successor');

done_testing();
