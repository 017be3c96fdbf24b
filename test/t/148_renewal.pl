# A server that has rested has another session for its next wish: what it wants then, whatever
# others have, lead and wait for, and whatever happens meanwhile.
use strict;
use warnings;

use Proxy;
use Test::More;
use Time::HiRes qw(time);
use Jobs ();
use ZkLock;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $timeout = 2;
my $conf = "zklock.keep_time = '1h'\nzklock.election_idle_time = 0\nzklock.log_min_messages = info";
# P alone has to rest.  Q holds what it has for longer than such a session may last on a slow
# machine.
my $p = ZkLock::server('p', $proxy, conf => "$conf\ncluster_name = 'p'\nzklock.session_timeout = '${timeout}s'");
my $q = ZkLock::server('q', $zk, conf => "$conf\ncluster_name = 'q'");
ZkLock::wait_connected($p, $q);
my ($sp, $sp2, $sp3) = map { ZkLock::session($p) } 1 .. 3;
my ($sq, $sq2) = map { ZkLock::session($q) } 1 .. 2;
# a session that has never been asked has no answer to be waited for (steady)
$_->pid for $sp, $sp2, $sp3, $sq, $sq2;

sub session_of { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session') }
sub state_of { return ZkLock::ask($_[0], 'SELECT state FROM zk_session') }

# One that is told to end works on for a moment.
sub next_worker
{
	my $node = shift;
	my $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
	kill 'TERM', $worker or die;
	ZkLock::wait_until(sub { my $now = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session'); $now ne '' && $now != $worker }, 'another worker');
	return;
}

# The delete of what was kept is a write, and may give it a lease for a while.
sub rest
{
	my $since = time;
	my $seen;
	ZkLock::wait_until(
		sub {
			$seen = ZkLock::ask($p, "SELECT state, lease_remaining, (SELECT count(*) FROM zk_locks) FROM zk_session");
			$since = time if $seen !~ /^connected\|00:00:00\|0$/;
			return time > $since + $timeout;
		},
		'P rests',
		sub { $seen });
	return session_of($p);
}

#
# The old session's end comes first
#

# What was asked for as the connection came back is in the way of the new session's wish until
# the old one is closed, which comes late; but not for long.  A slow machine has more tries.
sub try_beside_old
{
	my ($late) = @_;
	my $session = rest();
	$proxy->late('close', $late)->down;
	ZkLock::wait_until(sub { state_of($p) ne 'connected' }, 'P has lost its connection');
	$sp->send("SELECT zk_try_lock('late')")->wait_event('Extension');
	$proxy->accept;
	my $got = $sp->result;
	my $renewed = session_of($p) ne $session;
	ZkLock::wait_until(sub { !exists $zk->sessions->{$session} }, 'the old session is gone') if $renewed;
	$proxy->heal;
	return $renewed ? $got : 'the old session';
}

my $got = '';
for (1 .. 5)
{
	$got = try_beside_old(200);
	last if $got eq 't';
}
is($got, 't', 'nobody is told that a lock is taken by the session before');
isnt(try_beside_old(3000), '', 'nor does he wait for its end for long');

#
# Whatever is wanted
#
# P's session is so short that it may expire where the machine stands still.  What came of a step
# then counts for nothing: it is made once more, with other names.
my $excused = 0;
sub losses { return ZkLock::ask($_[0], 'SELECT sum(losses) FROM zk_stat'); }

sub steady
{
	my ($step) = @_;
	for my $try (1 .. 10)
	{
		my ($expiries, $losses) = (expiries(), losses($p));
		my @seen;
		my $died = !eval { $step->(sub { push @seen, [@_]; return }, "n$try"); 1 } && $@;
		if (expiries() == $expiries)
		{
			die $died if $died;
			is($_->[0], $_->[1], $_->[2]) for @seen;
			return;
		}
		for my $s ($sp, $sp2, $sp3, $sq, $sq2)
		{
			$s->cancel if $s->busy;
			$s->failure;
			$s->fails('ROLLBACK');
			$s->fails($_) for 'SELECT zk_unlock_all()', "SELECT zk_resign('n$try')", "SELECT zk_run_end('n$try', false)";
		}
		$excused += losses($p) - $losses;
	}
	die 'P loses its session again and again';
}

# An answer shows that it has noticed.
sub expiries { ZkLock::wait_answered($p); return ZkLock::ask($p, 'SELECT expiries FROM zk_session'); }

sub renewed { my ($session) = @_; return session_of($p) ne $session; }

# permits
steady(
	sub {
		my ($is, $n) = @_;
		$sp->query("SELECT zk_acquire('$n', 2)") for 1 .. 3;
		$sq->query("BEGIN; SELECT zk_acquire('$n', 2)");
		my $session = rest();
		$sp->query("BEGIN; SELECT zk_acquire('$n', 2)");
		$is->(renewed($session), 1, 'a permit: another session');
		$is->($sp->query("SELECT zk_permit('$n')") != $sq->query("SELECT zk_permit('$n')"), 1, '... and a number of its own');
		$sq2->send("SELECT zk_acquire('$n', 2) > 0")->wait_level(2);
		$sp->query('COMMIT');
		$is->($sq2->result, 't', '... which others have after it');
		$sq2->query("BEGIN; SELECT zk_acquire('$n', 2)");
		$session = rest();
		$is->($sp->query("SELECT zk_try_acquire('$n', 2)"), 'f', 'there is none');
		$is->(renewed($session), 1, 'no permit: another session');
		$_->query('COMMIT') for $sq, $sq2;
	});

# a set, of which another server has one
steady(
	sub {
		my ($is, $n) = @_;
		$sq->query("BEGIN; SELECT zk_lock('b $n')");
		my $session = rest();
		$sp->send("BEGIN; SELECT cardinality(zk_lock_all('a $n', 'b $n', 'c $n'))")->wait_event('Extension');
		ZkLock::wait_until(sub { session_of($p) ne $session }, 'another session');
		$sp2->send("SELECT zk_lock('c $n') > 0")->wait_event('Lock');
		$sq->query('COMMIT');
		$is->($sp->result, 3, 'a set');
		$is->($sp->query("SELECT zk_assert('a $n') > 0 AND zk_assert('b $n') > 0 AND zk_assert('c $n') > 0"), 't', '... and all of it is there');
		$sp->query('COMMIT');
		$is->($sp2->result, 't', '... and whoever wants one of it has it then');
	});

# queues: who waits for an item, and what is put meanwhile
steady(
	sub {
		my ($is, $n) = @_;
		my $session = rest();
		$sp->send("SELECT payload, attempt FROM zk_queue_take('$n', '1 h')")->wait_event('Extension');
		$sq->query("SELECT zk_queue_put('$n', 'x')");
		$is->($sp->result, 'x|1', 'an item');
		$is->(renewed($session), 1, 'an item: another session');
		rest();
		$sp->query("BEGIN; SELECT zk_queue_put('$n', 'y')");
		$sp2->query("SELECT zk_lock('a')");
		$sp->query('COMMIT');
		$is->($sq->query("SELECT payload FROM zk_queue_take('$n', '1 h')"), 'y', 'what is put beside a renewal');
	});

# barriers: who waits at one keeps the session, and the lock comes by that
steady(
	sub {
		my ($is, $n) = @_;
		rest();
		$_->send("CALL zk_barrier('$n', 3)") for $sp, $sp3;
		$sp2->send("SELECT zk_lock('a') > 0");
		$is->($sq->query("CALL zk_barrier('$n', 3)"), '', 'a barrier beside a lock');
		$is->(join(' ', map { $_->result } $sp, $sp2, $sp3), ' t ', '... for all');
		rest();
		$sp2->query("SELECT zk_lock('a')");
		$sp->send("CALL zk_barrier('$n', 2)");
		$is->($sq->query("CALL zk_barrier('$n', 2)"), '', '... and after it');
		$is->($sp->result, '', '... for all');
	});

# jobs
steady(
	sub {
		my ($is, $n) = @_;
		$sq->query("SELECT zk_run_begin('$n', $Jobs::daily, attempts => 3)");
		my $session = rest();
		$sp->send("CALL zk_run_once('$n', 'SELECT 1', $Jobs::daily, timeout => '1 h', attempts => 3)")->wait_event('Extension');
		ZkLock::wait_until(sub { session_of($p) ne $session }, 'another session');
		$sq->query("SELECT zk_run_end('$n', false)");
		$is->($sp->result, '', 'a job that another server has tried');
		$is->($sp->query("SELECT state, attempt FROM zk_jobs WHERE job = '$n'"), 'done|2', '... is done');
		rest();
		$is->($sp->query("CALL zk_run_once('$n', 'SELECT 1/0', $Jobs::daily)"), '', '... and not again');
	});

#
# Elections: the leader goes just then
#
for my $first ($sp2, $sq)
{
	steady(
		sub {
			my ($is, $n) = @_;
			ZkLock::wait_until(sub { $sq->query("SELECT zk_is_leader('$n')") eq 't' }, 'Q leads');
			$is->($sp->query("SELECT zk_is_leader('$n', '0')"), 'f', 'P stands');
			rest();
			for my $s ($first, $first == $sq ? $sp2 : $sq)
			{
				$s->send($s == $sq ? "SELECT zk_resign('$n')" : "SELECT zk_lock('x') > 0");
			}
			$is->($sp2->result, 't', 'a lock as the leader resigns');
			$sq->result;
			ZkLock::wait_until(sub { $sp->query("SELECT zk_is_leader('$n')") eq 't' }, 'P leads in its turn');
			$is->(join(' ', scalar ZkLock::wait_queue($zk, $n, 1, 'elections'), $sp->query("SELECT zk_require_leader('$n') > 0")), '1 t', '... once');
			$sq->query("SELECT zk_is_leader('$n', '0')");
			$sp->query("SELECT zk_resign('$n')");
		});
	$sq->query("SELECT zk_resign('n$_')") for 1 .. 10;
}

#
# Nobody answers the new session yet
#
sub renew_in_vain
{
	my $old = rest();
	$proxy->hole;
	$sp->send("SELECT zk_lock('hole', scope => 'session') > 0");
	ZkLock::wait_until(sub { session_of($p) ne $old }, 'the old session is given up');
	return;
}

for my $what ('a worker that ends', 'a server to be drained', 'another root')
{
	steady(
		sub {
			my ($is) = @_;
			renew_in_vain();
			next_worker($p) if $what =~ /worker/;
			ZkLock::ask($p, 'ALTER SYSTEM SET zklock.drain = on') if $what =~ /drain/;
			ZkLock::ask($p, "ALTER SYSTEM SET zklock.root = '/other'") if $what =~ /root/;
			ZkLock::ask($p, 'SELECT pg_reload_conf()');
			$proxy->heal;
			$is->($sp->result, 't', "$what, as nobody answers");
			$is->($sp->query("SELECT zk_assert('hole') > 0"), 't', '... the lock is there');
			$is->($sp->query('SELECT zk_unlock_all()'), 1, '... and ended');
		});
	ZkLock::ask($p, "ALTER SYSTEM RESET zklock.$_") for qw(drain root);
	ZkLock::ask($p, 'SELECT pg_reload_conf()');
}
renew_in_vain();
$sp2->query("SET lock_timeout = '50ms'");
is($sp2->fails("SELECT zk_lock('hole')"), '55P03: canceling statement due to lock timeout', 'lock_timeout, as nobody answers');
is($sp->cancel->failure, '57014: canceling statement due to user request', '... and a cancel');
is($sp3->send("SELECT zk_lock('hole')")->wait_event('Extension')->terminate->failure, '57P01: terminating connection due to administrator command', '... and the end of a backend');
$proxy->heal;
ZkLock::wait_connected($p);
is($sq->query("SELECT zk_try_lock('hole')"), 't', '... nothing of which is left');
is(losses($p) - $excused, 0, 'nothing was lost on p');
is(losses($q), 0, '... nor on q');
renew_in_vain();
ZkLock::hang_up($p);
$_->quit for $sp2;
$p->stop('fast');
is($sq->query("SELECT zk_lock('hole') > 0"), 't', 'a server that ends as nobody answers has nothing');
$proxy->heal;

#
# A connection that is not used yet
#
my $slow = ZkLock::server('slow', $proxy, conf => "zklock.session_timeout = '20s'\nzklock.keep_time = '1h'\nzklock.log_min_messages = info\ncluster_name = 'slow'");
ZkLock::wait_connected($slow);
my ($ss, $ss2, $ss3, $ss4) = map { ZkLock::session($slow) } 1 .. 4;

sub log_of { return PostgreSQL::Test::Utils::slurp_file($slow->logfile) }
sub established { my $n = () = log_of() =~ /session establishment complete/g; return $n; }

# Until one has to wait for long enough to be seen: how long is at random.
sub wait_unused
{
	for (1 .. 20)
	{
		my $n = established();
		$proxy->delay(600)->cut;
		ZkLock::wait_until(sub { established() > $n }, 'there is a connection');
		return if state_of($slow) ne 'connected';
		$proxy->heal;
		ZkLock::wait_connected($slow);
	}
	die 'each connection was used at once';
}

# The time of a line of the log.
sub seconds { my ($line) = @_; return $line =~ /(\d\d):(\d\d):(\d\d\.\d+)/ ? $1 * 3600 + $2 * 60 + $3 : die $line; }

# So does one that a new handle has made, when nobody was reached for long.  The old handle may
# have one attempt left, with which it would take the session from the new one.
sub descriptors { my $pid = ZkLock::ask($slow, 'SELECT worker_pid FROM zk_session'); return scalar(() = glob "/proc/$pid/fd/*"); }
my $descriptors = descriptors();
my $waited = 0;
for (1 .. 8)
{
	my $known = established();
	$proxy->down->delay(600);
	ZkLock::wait_until(sub { log_of() =~ /trying again with a new handle(?!.*session establishment).*Connection refused/s && descriptors() <= $descriptors }, 'a new handle');
	$proxy->accept;
	ZkLock::wait_until(sub { established() > $known }, 'there is a connection');
	ZkLock::wait_connected($slow);
	$proxy->heal;
	log_of() =~ /.*^(\S+ \S+) [^\n]*session establishment.*?^(\S+ \S+) [^\n]*session resumed/ms or next;
	$waited = seconds($2) - seconds($1);
	last if $waited > 0.4;
}
cmp_ok($waited, '>', 0.4, 'a connection of a new handle waits, too');


# What is told of meanwhile by watches is not lost on those who wait, nor on what is kept.
$ss->query("SELECT zk_lock('held', scope => 'session'), zk_is_leader('e', '1 h'), zk_acquire('semaphores', 1, 'session')");
$ss->query("SELECT zk_lock('kept')");
$sq->query("SELECT zk_lock('wanted', scope => 'session')");
$ss2->send("SELECT zk_lock('wanted') > 0")->wait_level(2);
$ss3->send("CALL zk_barrier('meet', 2)")->wait_event('Extension');
$ss4->send("SELECT payload FROM zk_queue_take('slow', '1 h')")->wait_event('Extension');
ZkLock::wait_queue($zk, 'wanted', 2);
$zk->wait_children(ZkLock::directory('meet', 'barriers'), 1);
# all of them watch
ZkLock::wait_answered($slow);
my $sq3 = ZkLock::session($q);
wait_unused();
$sq->query("SELECT zk_unlock('wanted')");
$sq2->send("SELECT zk_lock('kept') > 0");
$sq3->send("CALL zk_barrier('meet', 2)");
$sq->query("SELECT zk_queue_put('slow', 'x')");
is(join(' ', map { $_->result } $ss2, $ss3, $ss4, $sq2, $sq3), 't  x t ', 'what comes as a connection waits is heard of');
is($ss->query("SELECT zk_assert('held') > 0 AND zk_require_leader('e') > 0 AND zk_permit('semaphores') = 1"), 't', '... and all is held that was');
$proxy->heal;
ZkLock::wait_connected($slow);

# A contender that somebody deletes then is lost.
my ($contender) = ZkLock::wait_queue($zk, 'held', 1);
wait_unused();
$zk->delete(ZkLock::directory('held') . "/$contender");
is($sq->query("SELECT zk_lock('held') > 0"), 't', 'a contender that is deleted as a connection waits');
is($ss->fails("SELECT zk_assert('held')"), '55000: lock "held" was lost', '... is lost');
$ss->query('SELECT zk_unlock_all()');
$proxy->heal;
ZkLock::wait_connected($slow);

# One that ends before it was used.
$ss->query("SELECT zk_lock('held', scope => 'session')");
for (1 .. 5)
{
	wait_unused();
	$proxy->down->accept;
}
$ss2->query("SET lock_timeout = '50ms'; SET statement_timeout = 0");
# taken, for whoever comes when the connection is used already
$sq->query("SELECT zk_lock('new', scope => 'session')");
wait_unused();
is($ss2->fails("SELECT zk_lock('new')"), '55P03: canceling statement due to lock timeout', 'lock_timeout as a connection waits');
is($ss3->send("SELECT zk_lock('new')")->wait_event('Extension')->terminate->failure, '57P01: terminating connection due to administrator command', '... and the end of a backend');
$sq->query("SELECT zk_unlock('new')");
$proxy->heal;
ZkLock::wait_connected($slow);
is($ss->query("SELECT zk_assert('held') > 0"), 't', 'connections that end before they are used lose nothing');
cmp_ok(descriptors(), '<=', $descriptors + 1, '... and cost no descriptors');

# The worker's end, and the server's.
wait_unused();
next_worker($slow);
$proxy->heal;
ZkLock::wait_connected($slow);
is($ss->query("SELECT zk_assert('held') > 0"), 't', 'a worker that ends as its connection waits leaves all to its successor');
my $session = session_of($slow);
wait_unused();
ZkLock::hang_up($slow);
$slow->stop('fast');
ZkLock::wait_until(sub { !exists $zk->sessions->{$session} }, 'the session is closed');
like(log_of(), qr/closing ZooKeeper session/, 'a server that ends then closes its session');
is($sq->query("SELECT zk_try_lock('held')"), 't', '... and its locks are free');

done_testing();
