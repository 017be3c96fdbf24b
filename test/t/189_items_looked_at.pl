# On each new connection a server looks whether the ensemble has the marks of its items still:
# one that was restored may know the session, and not the marks.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
# What fails here is no session that expires.
my $conf = "zklock.session_timeout = '60s'";
my $a = ZkLock::server('a', $proxy, conf => $conf);
my $b = ZkLock::server('b', $zk, conf => $conf);
ZkLock::wait_connected($a, $b);
ZkLock::ask($a, 'CREATE TABLE done (payload text)');
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;

my $queue = ZkLock::directory('q', 'queues');
sub marks
{
	return map({ "$queue/held/$_" } $zk->children("$queue/held")),
	  map { my $item = "$queue/items/$_"; map { "$item/$_" } $zk->children($item) } $zk->children("$queue/items");
}
sub delete_marks { my ($part) = @_; $zk->delete($_) for grep { /^\Q$queue\E\/$part\// } marks(); return; }

sub take { my ($s) = @_; return $s->query("SELECT payload || attempt FROM zk_queue_take('q')"); }

sub cut
{
	my ($n) = @_;
	ZkLock::ask($a, 'TRUNCATE done');
	ZkLock::ask($b, "SELECT zk_queue_put('q', i::text) FROM generate_series(1, $n) i");
	length_is($b, 'q', "$n 0 0", 'items');
	$sa->query('BEGIN');
	$sa->query("INSERT INTO done SELECT payload FROM zk_queue_take('q')") for 1 .. $n;
	$proxy->down;
	ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'A has lost its connection');
	return;
}

my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');

sub comes_back
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$proxy->heal;
	ZkLock::wait_connected($a);
	is(ZkLock::ask($a, 'SELECT session_id FROM zk_session'), $session, 'A has the same session again');
}

my $lost = qr/^40001: item [0-9a-f-]{36} of queue "q" was lost$/;
my $detail = qr/^DETAIL:  ZooKeeper does not say any more that this server has the item: it was restored, or somebody deleted a mark; another session may have the item by now\.$/m;

sub is_lost
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($sa->fails('COMMIT'), $lost, "$what: the item is lost");
	like($sa->notices, $detail, '... and the session is told why');
	is(ZkLock::ask($a, 'SELECT count(*) FROM done'), 0, '... and nothing is done');
}

# Whoever takes the rest finds it, and leaves nothing behind.
sub rest
{
	my ($s, @rest) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# who failed has them given back after that, one by one
	ZkLock::wait_until(sub { !marks() }, 'all are given back', sub { join ' ', marks() });
	is(take($s), $_, "$_ is taken") for @rest;
	length_is($b, 'q', '0 0 0', 'none is left');
	ZkLock::wait_until(sub { !marks() }, 'no mark is left', sub { join ' ', marks() });
}

#
# The marks are there
#
cut(3);
comes_back();
$sa->query('COMMIT');
is(ZkLock::ask($a, 'SELECT count(*) FROM done'), 3, 'what has its marks is committed');
rest($sa);
cut(2);
comes_back();
$sa->query('ROLLBACK');
rest($sa, '12', '22');

#
# They are not
#
for my $part ('(?:items|held)', 'items', 'held')
{
	for my $n (1, 3)
	{
		cut($n);
		delete_marks($part);
		comes_back();
		is_lost("marks of $part are gone, of $n");
		rest($n == 1 ? $sa : $sb, map { "${_}2" } 1 .. $n);
	}
	cut(1);
	delete_marks($part);
	comes_back();
	$sa->query('ROLLBACK');
	rest($sa, '12');
}
my $log = PostgreSQL::Test::Utils::slurp_file($a->logfile);
like($log, qr/LOG:  1 queue item was lost while a transaction had it\n.*DETAIL:  The marks that say who has them were deleted, or ZooKeeper was restored without them\./, 'the log says so');

# Of three items one
cut(3);
my ($item) = $zk->children("$queue/items");
$zk->delete("$queue/items/$item/held");
comes_back();
is_lost('one of three');
rest($sb, '12', '22', '32');

# A savepoint does not help, nor does another take
cut(1);
$sa->query('SAVEPOINT s');
delete_marks('items');
comes_back();
my $next;
# the look may have no answer yet
ZkLock::wait_until(sub { $next = $sa->fails("SELECT FROM zk_queue_take('q')"); return $next ne '' }, 'the next take is told of it');
like($next, $lost, 'the next take is told of it');
$sa->query('ROLLBACK TO s');
is_lost('a take was told');
rest($sa, '12');

# Somebody else has it by then: he does it, and nobody takes it from him
for my $part ('(?:items|held)', 'items')
{
	for my $end ('COMMIT', 'ROLLBACK')
	{
		cut(1);
		delete_marks($part);
		$sb->query('BEGIN');
		is(take($sb), '12', 'another server has the item');
		comes_back();
		if ($end eq 'COMMIT') { is_lost('another server has the item') }
		else { $sa->query('ROLLBACK') }
		ZkLock::wait_until(sub { (() = marks()) == 2 }, 'marks of A are gone', sub { join ' ', marks() });
		is(take($sa), '', '... and it is not to be had');
		$sb->query('COMMIT');
		rest($sa);
	}
}

# By the worker's successor
cut(1);
my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
kill 'TERM', $worker;
ZkLock::wait_until(sub { my $now = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session'); $now && $now != $worker }, 'another worker');
delete_marks('(?:items|held)');
comes_back();
is_lost('a resumed session');
rest($sa, '12');

#
# The look has no answer
#
sub unanswered
{
	cut(1);
	my $n = $proxy->lost;
	# each ends a connection, and on the next one A looks again
	$proxy->lose_request('get', "$queue/held/") for 1 .. 1000;
	$proxy->accept;
	ZkLock::wait_until(sub { $proxy->lost > $n }, 'A looks');
	return;
}
unanswered();
$sa->send('COMMIT')->wait_event('Extension');
is($sa->cancel->failure, '57014: canceling statement due to user request', 'COMMIT waits for the look, and can be cancelled');
comes_back();
rest($sa, '12');
unanswered();
$sa->query("SET LOCAL lock_timeout = '100ms'");
is($sa->fails('COMMIT'), '55P03: canceling statement due to lock timeout', '... as by lock_timeout');
comes_back();
rest($sa, '12');
unanswered();
$sa->send('COMMIT')->wait_event('Extension');
comes_back();
$sa->result;
is(ZkLock::ask($a, 'SELECT count(*) FROM done'), 1, 'when it has one, the transaction commits');
rest($sa);

# It is refused
cut(1);
my ($mark) = grep { /items/ } marks();
$zk->admin->set_acl($mark, [ 30, 'world', 'anyone' ]);
comes_back();
like($sa->fails('COMMIT'), qr/^58000: ZooKeeper refused the request for queue "q": /, 'a mark that may not be looked at is told');
$zk->admin->set_acl($mark, [ 31, 'world', 'anyone' ]);
# A asks again with a heartbeat
is($sa->query("SELECT payload || attempt FROM zk_queue_take('q', '1 h')"), '12', '... and may be later');
rest($sa);

$_->stop for $a, $b;
done_testing();
