# ZooKeeper out of reach: before, during and after.
use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use Proxy;
use ZkLock;

my $no_answer = qr/^58000: could not reach ZooKeeper within/;

# A statement's error and how long it took.
sub failing
{
	my ($session, $sql) = @_;
	my $start = time;
	my $error = $session->fails($sql);
	return ($error, time - $start);
}

sub zk_session { my ($node, $columns) = @_; return ZkLock::ask($node, "SELECT $columns FROM zk_session"); }

#
# Before
#
my $zk = ZooKeeper->new(tick_time => 200);
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '20s'");
my $s = ZkLock::session($a);
my $host = $zk->host;
ZkLock::wait_until(sub { zk_session($a, 'last_error') ne '' }, 'the worker has tried');
$s->query("SET zklock.connect_timeout = '1s'");

for my $sql ("SELECT zk_lock('job')", "SELECT zk_try_lock('job')",
	"SELECT zk_try_lock('job', timeout => '50ms')", "CALL zk_lock_session('job')")
{
	my ($error, $seconds) = failing($s, $sql);
	is($error, '58000: could not reach ZooKeeper within 1000 ms', "refused: $sql");
	cmp_ok($seconds, '>=', 1, '... after connect_timeout');
}
is($s->notices, join("\n",
		'ERROR:  58000: could not reach ZooKeeper within 1000 ms',
		"DETAIL:  Connect string \"$host\": $host: Connection refused.",
		'HINT:  Check that the ZooKeeper servers run, that this machine can reach them, and that "zklock.hosts" is right.'),
	'... names the hosts tried, what they answered, what to check');
is(zk_session($a, 'state, connected_to, session_id, session_timeout, last_error, worker_pid > 0, hosts'),
	"connecting||||could not connect to ZooKeeper server $host: Connection refused|t|$host", '... and so does zk_session');
like(PostgreSQL::Test::Utils::slurp_file($a->logfile), qr/LOG:  could not connect to ZooKeeper server \Q$host\E: Connection refused/,
	'... and the log');
my $matches = () = PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /could not connect to ZooKeeper/g;
is($matches, 1, '... once');

# A user may have more patience, and less.
is($s->fails("SET zklock.connect_timeout = '100ms'; SELECT zk_lock('job')"), '58000: could not reach ZooKeeper within 100 ms',
	'a connect_timeout of its own is obeyed');
$s->query('RESET zklock.connect_timeout');
is($s->fails("BEGIN; SET LOCAL statement_timeout = '100ms'; SELECT zk_lock('job')"), '57014: canceling statement due to statement timeout',
	'statement_timeout comes first');
# A busy machine may need longer than the statement_timeout for this, too.
1 while $s->fails('ROLLBACK') =~ /^57014:/;
is($s->fails("SET lock_timeout = '100ms'; SELECT zk_lock('job')"),
	'55P03: canceling statement due to lock timeout', 'lock_timeout comes first');
$s->query('RESET lock_timeout');
$s->send("SELECT zk_lock('job', scope => 'session')")->wait_level(2);
$zk->start;
cmp_ok($s->result, '>', 0, 'ZooKeeper comes, the waiter gets its lock');
is(zk_session($a, 'state, connected_to, session_timeout'), "connected|$host|00:00:20", 'zk_session when connected');
is(ZkLock::ask($a, 'SELECT zk_unlock_all()'), 0, 'only its own session may unlock');
is($s->query("SELECT zk_unlock('job')"), 't', 'it does');
ZkLock::ok_clean($zk, [$a], 'job', 'before');

#
# A server that accepts connections and never answers; another that refuses
#
{
	my $hole = Proxy->new($host)->hole;
	my $refused = '127.0.0.1:' . ZooKeeper::free_port();
	my $c = ZkLock::server('c', $hole->host . ",$refused",
		conf => "zklock.session_timeout = '4s'");
	my $t = ZkLock::session($c);
	$t->query("SET zklock.connect_timeout = '1s'");
	for my $sql ("SELECT zk_lock('job')", "SELECT zk_try_lock('job')")
	{
		is($t->fails($sql), '58000: could not reach ZooKeeper within 1000 ms', "black hole: $sql");
	}
	# Which host is tried first is random, and the black one takes its time.
	my $answer = qr/\Q$refused\E: Connection refused|\Q@{[ $hole->host ]}\E: Connection timed out/;
	like($t->notices, qr/^DETAIL:  Connect string "\Q@{[ $hole->host ]},$refused\E": (no answer|$answer(; $answer)?)\.$/m, '... detail');
	$t->query('RESET zklock.connect_timeout');
	# It may take a new worker: the library skips every second host when it
	# cycles, and here one of the two refuses.
	$hole->cut->heal;
	ZkLock::wait_connected($c);
	for my $i (1 .. 3)
	{
		$hole->cut;
		ZkLock::wait_until(sub { $hole->connections }, 'it finds the one of two that answers');
		ZkLock::wait_connected($c);
	}
	is($t->query("SELECT zk_try_lock('job')"), 't', 'healed');
	$t->quit;
	$c->stop;
}
{
	my $hole = Proxy->new($host)->hole;
	my $c = ZkLock::server('c2', $hole, conf => "zklock.session_timeout = '600ms'\nzklock.connect_timeout = '1s'");
	my $t = ZkLock::session($c);
	my $error;
	# It depends on how far an attempt has got.
	ZkLock::wait_until(
		sub {
			$error = $t->fails("SELECT zk_lock('job')");
			return $t->notices =~ /^DETAIL:  Connect string "(\Q@{[ $hole->host ]}\E)": \1: Connection timed out\.$/m;
		},
		'the detail says that an attempt has timed out',
		sub { $t->notices });
	like($error, $no_answer, 'black hole, tried for longer');
	$c->stop;
}

#
# During a wait: ZooKeeper restarts with its data
#
my $proxy = Proxy->new($host);
my $b = ZkLock::server('b', $proxy);
ZkLock::ask($a, "ALTER SYSTEM SET zklock.session_timeout = '60s'");
$a->restart;
ZkLock::wait_connected($a, $b);
my $holder = ZkLock::session($a);
my $waiter = ZkLock::session($b);
my $third = $zk->client;
my ($id_a, $id_b) = map { zk_session($_, 'session_id') } $a, $b;
my $first = $holder->query("BEGIN; SELECT zk_lock('job')");
$waiter->send("BEGIN; SELECT zk_lock('job')")->wait_level(2);
my @queue = ZkLock::wait_queue($zk, 'job', 2);
my $own = $third->exists("/zklock/locks/job/$queue[1]");
my $last = $third->contend('/zklock/locks/job');
$zk->stop;
ZkLock::wait_until(sub { zk_session($_, 'state') ne 'connected' }, 'the loss is seen') for $a, $b;
like(zk_session($b, 'connected_to IS NULL, session_id, last_error'),
	qr/^t\|$id_b\|(lost connection to ZooKeeper|could not connect to ZooKeeper server)/, 'zk_session while reconnecting');
like(ZkLock::session($b)->fails("SET zklock.connect_timeout = '1s'; SELECT zk_lock('other')"), $no_answer, 'who comes now gets an error after connect_timeout');
ok($waiter->busy, 'who came before goes on waiting');
# who held goes on holding
is($holder->query("SELECT zk_token('job')"), $first, 'the holder has its token');
$zk->start;
ZkLock::wait_connected($a, $b);
is(zk_session($a, 'session_id'), $id_a, 'the holder\'s session goes on');
is(zk_session($b, 'session_id'), $id_b, 'the waiter\'s session goes on');
is_deeply([ (ZkLock::wait_queue($zk, 'job', 3))[ 0, 1 ] ], \@queue, 'both keep their places');
ok($waiter->busy, 'the waiter waits');
$holder->query('COMMIT');
is($waiter->result, $own->{czxid}, 'it gets the lock in its turn, and its first contender\'s token');
$waiter->query('COMMIT');
is_deeply([ ZkLock::wait_queue($zk, 'job', 1) ], [ $last =~ m{([^/]*)$} ], 'who came later is next');
$zk->delete($last);
ZkLock::ok_clean($zk, [ $a, $b ], 'job', 'after a restart of ZooKeeper');

#
# ... and the holder commits while it is away
#
$holder->query("BEGIN; SELECT zk_lock('job')");
$waiter->send("BEGIN; SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
$zk->stop;
ZkLock::wait_until(sub { zk_session($a, 'state') ne 'connected' }, 'the loss is seen');
$holder->query('COMMIT');
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_locks'), 0, 'COMMIT does not wait for ZooKeeper');
ok($waiter->busy, '... but the waiter does');
$zk->start;
cmp_ok($waiter->result, '>', 0, '... until it is back');

#
# ... and a waiter is cancelled while it is away
#
$holder->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
$zk->stop;
ZkLock::wait_until(sub { zk_session($a, 'state') ne 'connected' }, 'the loss is seen');
is($holder->cancel->failure, '57014: canceling statement due to user request', 'cancelled while ZooKeeper is away');
$zk->start;
ZkLock::wait_queue($zk, 'job', 1);
$waiter->query('COMMIT');
ZkLock::ok_clean($zk, [ $a, $b ], 'job', 'after cancel');

#
# During a wait: the session expires.  A worker counts as silent after two thirds of this, which
# a machine that stands still for some seconds does not reach.
#
ZkLock::ask($b, "ALTER SYSTEM SET zklock.session_timeout = '18s'");
$waiter->quit;
$b->restart;
ZkLock::wait_connected($b);
$waiter = ZkLock::session($b);
my $loser = ZkLock::session($b);
$loser->query("BEGIN; SELECT zk_lock('lost')");
my $lost_session = ZkLock::session($b);
$lost_session->query("SELECT zk_lock('lost for good', scope => 'session')");
$holder->query("BEGIN; SELECT zk_lock('job')");
$waiter->send("BEGIN; SELECT zk_lock('job')")->wait_level(2);
@queue = ZkLock::wait_queue($zk, 'job', 2);
$id_b = zk_session($b, 'session_id');
$proxy->hole;
is_deeply([ ZkLock::wait_queue($zk, 'job', 1) ], [ $queue[0] ], 'a session expires, its contender goes');
my $heir = ZkLock::session($a);
cmp_ok($heir->query("BEGIN; SELECT zk_lock('lost')"), '>', 0, 'what it held goes to others');
$proxy->heal;
my @again = ZkLock::wait_queue($zk, 'job', 2);
isnt($again[1], $queue[1], 'the waiter queues anew');
isnt(zk_session($b, 'session_id'), $id_b, '... in a new session');
like(PostgreSQL::Test::Utils::slurp_file($b->logfile), qr/LOG:  ZooKeeper session $id_b expired/, '... with a LOG line');
like(zk_session($b, 'last_error'), qr/^ZooKeeper session $id_b expired$/, '... and in zk_session');
like($loser->fails('COMMIT'), qr/^40001: lock "lost" was lost/, 'who held a lock cannot commit');
like($lost_session->fails("BEGIN; SELECT 1; COMMIT; SELECT zk_token('lost for good')"), qr/^(55000: lock "lost for good" was lost|$)/,
	'who held one for the session');
$heir->query('COMMIT');
$holder->query('COMMIT');
is($waiter->result, $zk->stat(ZkLock::directory('job') . "/$again[1]")->{czxid}, 'the waiter gets the lock with its new contender');
$waiter->query('COMMIT');
$lost_session->quit;
ZkLock::ok_clean($zk, [ $a, $b ], 'job', 'after expiry');
ZkLock::ok_clean($zk, [ $a, $b ], 'lost', 'after expiry');

#
# After: it goes for good
#
$waiter->query("SET zklock.connect_timeout = '1s'");
$holder->query("BEGIN; SELECT zk_lock('job')");
$waiter->send("SELECT zk_lock('job')")->wait_level(2);
my $dead = time;
$proxy->down;
is($waiter->failure, '58000: could not reach ZooKeeper within 18000 ms', 'a waiter does not wait for ever');
cmp_ok(time - $dead, '>=', 17.9, '... but as long as its session may live');
like($waiter->notices, qr/^DETAIL:  Connect string "(\Q@{[ $proxy->host ]}\E)": \1: Connection refused\.$/m,
	'... and is told why');
is($waiter->query('RESET zklock.connect_timeout; SELECT 1'), 1, '... and can go on');
$holder->query('COMMIT');
$proxy->heal;
ZkLock::wait_connected($b);
is($waiter->query("SELECT zk_try_lock('job', timeout => '1h')"), 't', 'all is well again');
ZkLock::ok_clean($zk, [ $a, $b ], 'job', 'in the end');

#
# It comes back without its memory, as from an old backup.  libzookeeper, which
# has seen more than such an ensemble, is refused by it for ever.
#
$loser->query("BEGIN; SELECT zk_lock('lost')");
$id_b = zk_session($b, 'session_id');
$zk->stop;
system('rm', '-r', "$zk->{dir}/1/data/version-2") == 0 or die;
$zk->start;
ZkLock::wait_until(sub { zk_session($b, "state = 'connected' AND session_id <> '$id_b'") eq 't' }, 'a new session');
like($loser->fails('COMMIT'), qr/^40001: lock "lost" was lost/, 'an ensemble without memory: what was held is lost');
is($waiter->query("SELECT zk_try_lock('job')"), 't', '... and a new session works');

#
# A path that is not there
#
my $lost = ZkLock::server('lost', "$host/nowhere", conf => "zklock.session_timeout = '4s'");
ZkLock::wait_until(sub { zk_session($lost, 'last_error') =~ /^could not create znode/ }, 'an error', sub { zk_session($lost, 'last_error') });
like(zk_session($lost, 'last_error'), qr{^could not create znode "/zklock/servers/\S+": a chroot path in "zklock\.hosts" must exist$},
	'a chroot that does not exist is told');
my $log = $lost->logfile;
is(scalar(() = PostgreSQL::Test::Utils::slurp_file($log) =~ /could not create znode/g), 1, '... once');
$lost->safe_psql('postgres', "ALTER SYSTEM SET zklock.hosts = '127.0.0.1:1'");
$lost->restart;
ZkLock::wait_until(sub { zk_session($lost, 'last_error') =~ /refused$/ }, 'no connection');
my $end = -s $log;
$lost->stop;
unlike(PostgreSQL::Test::Utils::slurp_file($log, $end), qr/closing ZooKeeper session/, 'no session, none to close');

done_testing();
