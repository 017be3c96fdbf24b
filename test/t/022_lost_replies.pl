# Requests and replies lost with the connection: everything is done once, and what
# was done without anybody's knowledge is undone.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

$ZkLock::damaging = 1;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
# The library waits 1/60 of this before it tries a host again.
my $conf = "zklock.session_timeout = '30s'";
my $a = ZkLock::server('a', $proxy, conf => $conf);
my $b = ZkLock::server('b', $zk, conf => $conf);
ZkLock::wait_connected($a, $b);
my $sa = ZkLock::session($a);
my $sb = ZkLock::session($b);
# If it has rested, its first lock has a new session.
$sa->query("SELECT zk_lock('first')");
my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');

sub czxid { my ($name, $child) = @_; return $zk->stat(ZkLock::directory($name) . "/$child")->{czxid}; }

# Lose this, and wait until it has been lost.
sub lose
{
	my ($part, $kind, $path) = @_;
	my $method = "lose_$part";
	my $count = $proxy->lost + 1;
	$proxy->$method($kind, $path);
	return $count;
}

sub lost
{
	my $n = shift;
	ZkLock::wait_until(sub { $proxy->lost == $n }, "$n packets have been lost");
}

# Nothing else remembers an old name: each case has its own.
my $n = 0;

#
# A lock that is free
#
for my $case (
	[ 'reply of create', [ reply => 'create' ] ],
	[ 'create', [ request => 'create' ] ],
	[ 'reply of children', [ reply => 'children' ] ],
	[ 'children', [ request => 'children' ] ],
	[ 'replies of create and sync', [ reply => 'create' ], [ reply => 'sync' ] ],
	[ 'replies of create and children', [ reply => 'create' ], [ reply => 'children' ] ],
	[ 'replies of create and set', [ reply => 'create' ], [ reply => 'set' ] ],
	[ 'number of the reply of create', [ number => 'create' ] ],
	[ 'number of the reply of children', [ number => 'children' ] ],
	[ 'numbers of the replies of create and children', [ number => 'create' ], [ number => 'children' ] ],
	[ 'create, then its reply', [ request => 'create' ], [ reply => 'create' ] ])
{
	my ($what, @losses) = @$case;
	for my $directory ('known', 'new')
	{
		# A new directory's create is lost first: then there is no contender to confirm.
		next if $directory eq 'new' && $what =~ / set/;
		my $name = $directory . ++$n;
		# A new directory's own creation goes wrong, too.
		$zk->create("/zklock/locks/$name", mode => 'container') if $directory eq 'known';
		for (@losses)
		{
			my $count = lose(@$_, $_->[1] eq 'sync' ? '' : "/locks/$name");
			# Armed at once, the second would fall to the same connection.
			$_ == $losses[-1] ? $proxy->accept : $proxy->refuse;
			$sa->send("BEGIN; SELECT zk_lock('$name')") if $_ == $losses[0];
			lost($count);
		}
		my $token = $sa->result;
		my @queue = ZkLock::queue($zk, $name);
		is(@queue, 1, "$what lost, $directory directory: one contender");
		is($token, czxid($name, $queue[0]), '... whose czxid is the token');
		is($sb->query("SELECT zk_try_lock('$name')"), 'f', '... excludes');
		$sa->query('COMMIT');
		ZkLock::wait_queue($zk, $name, 0);
		is($sb->query("SELECT zk_try_lock('$name', timeout => '1h')"), 't', '... and is given up');
	}
}

#
# A lock that another server has
#
for my $case ([ 'reply', 'create' ], [ 'reply', 'children' ], [ 'reply', 'get' ], [ 'request', 'create' ], [ 'request', 'get' ],
	[ 'number', 'create' ], [ 'number', 'get' ])
{
	my ($part, $kind) = @$case;
	my $name = 'busy' . ++$n;
	$sb->query("BEGIN; SELECT zk_lock('$name')");
	my $count = lose($part, $kind, "/locks/$name");
	$sa->send("BEGIN; SELECT zk_lock('$name')");
	lost($count);
	my @queue = ZkLock::wait_queue($zk, $name, 2);
	ZkLock::wait_connected($a);
	$sa->wait_level(2);
	$sb->query('COMMIT');
	is($sa->result, czxid($name, $queue[1]), "$part of $kind lost behind another: served in turn");
	is_deeply([ ZkLock::queue($zk, $name) ], [ $queue[1] ], '... not doubled');
	$sa->query('COMMIT');
	ZkLock::wait_queue($zk, $name, 0);
}

#
# The blocker goes while we are cut off
#
{
	my $name = 'gone' . ++$n;
	$sb->query("BEGIN; SELECT zk_lock('$name')");
	$sa->send("BEGIN; SELECT zk_lock('$name')")->wait_level(2);
	ZkLock::wait_queue($zk, $name, 2);
	$proxy->down;
	ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'cut off');
	$sb->query('COMMIT');
	ZkLock::wait_queue($zk, $name, 1);
	ok($sa->busy, 'cut off when the blocker goes');
	$proxy->heal;
	cmp_ok($sa->result, '>', 0, '... and granted when back');
	$sa->query('COMMIT');
	ZkLock::wait_queue($zk, $name, 0);
}

#
# Withdrawn before anything is settled
#
for my $how ('cancel', 'terminate', 'timeout')
{
	my $name = 'withdrawn' . ++$n;
	$sb->query("BEGIN; SELECT zk_lock('$name')");
	my $s = ZkLock::session($a);
	$s->query("SET lock_timeout = " . ($how eq 'timeout' ? "'3s'" : 0));
	my $count = lose('reply', 'create', "/locks/$name");
	$proxy->refuse;
	# The timeout may come before a busy worker has asked for anything.
	ZkLock::wait_until(sub { $s->send("SELECT zk_lock('$name')") unless $s->busy; $proxy->lost == $count }, 'the reply has been lost');
	is(@{[ ZkLock::queue($zk, $name) ]}, 2, "$how while the reply of a create is lost: it was done");
	$s->$how unless $how eq 'timeout';
	like($s->failure, $how eq 'cancel' ? qr/^57014:/ : $how eq 'timeout' ? qr/^55P03:/ : qr/^57P01:/, '... the backend does not wait for it');
	is(ZkLock::ask($a, "SELECT count(*) FROM zk_locks"), 0, '... and has left');
	is(@{[ ZkLock::queue($zk, $name) ]}, 2, '... the contender is still there');
	$proxy->heal;
	ZkLock::wait_queue($zk, $name, 1);
	$sb->query('COMMIT');
	ZkLock::ok_clean($zk, [ $a, $b ], $name, "$how, after reconnecting");
}
{
	# ... and wanted again by somebody else
	my $name = 'withdrawn' . ++$n;
	my $s = ZkLock::session($a);
	my $count = lose('reply', 'create', "/locks/$name");
	$proxy->refuse;
	$s->send("SELECT zk_lock('$name')");
	lost($count);
	is($s->cancel->failure, '57014: canceling statement due to user request', 'cancelled and wanted again');
	$sa->send("BEGIN; SELECT zk_lock('$name')");
	$proxy->heal;
	my $token = $sa->result;
	my @queue = ZkLock::wait_queue($zk, $name, 1);
	is($token, czxid($name, $queue[0]), '... one contender');
	$sa->query('COMMIT');
	ZkLock::ok_clean($zk, [ $a, $b ], $name);
}

#
# Deletes
#
for my $part ('reply', 'request', 'number')
{
	my $name = 'deleted' . ++$n;
	$sa->query("BEGIN; SELECT zk_lock('$name')");
	$sb->send("BEGIN; SELECT zk_lock('$name')")->wait_level(2);
	ZkLock::wait_queue($zk, $name, 2);
	my $count = lose($part, 'delete', "/locks/$name");
	$sa->query('COMMIT');
	lost($count);
	cmp_ok($sb->result, '>', 0, "$part of a delete lost: it is done in the end");
	is($sa->fails("SET lock_timeout = '100ms'; SELECT zk_lock('$name')"), '55P03: canceling statement due to lock timeout', '... and nothing else is');
	$sa->query('RESET lock_timeout');
	ZkLock::wait_queue($zk, $name, 1);
	$sb->query('COMMIT');
	ZkLock::ok_clean($zk, [ $a, $b ], $name);
}
{
	# Taken again while the delete's reply is lost
	my $name = 'deleted' . ++$n;
	my $token = $sa->query("BEGIN; SELECT zk_lock('$name')");
	my $count = lose('request', 'delete', "/locks/$name");
	$proxy->refuse;
	$sa->query('COMMIT');
	lost($count);
	$sa->send("BEGIN; SELECT zk_lock('$name')");
	$proxy->heal;
	cmp_ok($sa->result, '>', $token, 'taken again while a delete is lost');
	is(@{[ ZkLock::wait_queue($zk, $name, 1) ]}, 1, '... one contender');
	$sa->query('COMMIT');
	ZkLock::ok_clean($zk, [ $a, $b ], $name);
}

is(ZkLock::ask($a, 'SELECT session_id FROM zk_session'), $session, 'all in one session');
unlike(PostgreSQL::Test::Utils::slurp_file($a->logfile), qr/refused a request|PANIC|WARNING/, 'nothing odd in the log');

#
# Orphans: contenders with our session's mark that our server does not know, as
# when a deposed leader hid one.  The next use of the directory shows and ends them.
#
for my $kind ('lock-', 'read-lock-')
{
	for my $orphans (1, 10)
	{
		my $name = 'orphan' . ++$n;
		my $directory = ZkLock::directory($name);
		$sa->query("BEGIN; SELECT zk_lock('$name')");
		# The mark is the first half of the UUID.
		my ($mark) = (ZkLock::queue($zk, $name))[0] =~ /^(_c_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-)/ or die;
		my $foreign = $zk->client;
		my @orphan = map { $foreign->create(sprintf("%s/%s0000-%012x-%s", $directory, $mark, $_, $kind), mode => 'ephemeral_sequential') } 1 .. $orphans;
		$sa->query('COMMIT');
		ZkLock::wait_queue($zk, $name, $orphans);
		$sb->send("BEGIN; SELECT zk_lock('$name')")->wait_level(2);
		my ($next) = (ZkLock::wait_queue($zk, $name, $orphans + 1))[-1];
		ok($sb->busy, "$orphans orphans ($kind): the other server waits behind them");
		$sa->send("BEGIN; SELECT zk_lock('$name')");
		is($sb->result, czxid($name, $next), '... until their server looks there');
		is_deeply([ grep { $zk->stat($_) } @orphan ], [], '... and deletes them');
		is((ZkLock::wait_queue($zk, $name, 2))[0], $next, '... and nobody else');
		ok($sa->busy, '... but waits in its turn');
		$sb->query('COMMIT');
		cmp_ok($sa->result, '>', 0, '... and is served');
		$sa->query('COMMIT');
		ZkLock::ok_clean($zk, [ $a, $b ], $name);
		$foreign->close;
	}
}

#
# A contender that zk_break takes away, when the connection is lost at that: it goes.
#
for my $part ('reply', 'request')
{
	my $name = 'broken' . ++$n;
	my $s = ZkLock::session($a);
	my $token = $s->query("SELECT zk_lock('$name', scope => 'session')");
	my $count = lose($part, 'delete', "/locks/$name");
	is(ZkLock::ask($a, "SELECT zk_break('$name', $token)"), 't', "$part of zk_break's delete lost: it answers");
	lost($count);
	cmp_ok($sb->query("BEGIN; SELECT zk_lock('$name')"), '>', $token, '... the lock is free');
	$sb->query('COMMIT');
	like($s->fails('SELECT 1'), qr/^55000: lock "$name" was lost/, '... who had it is told');
	$s->query('SELECT zk_unlock_all()');
	$s->quit;
	ZkLock::ok_clean($zk, [ $a, $b ], $name);
}
is(ZkLock::ask($a, 'SELECT session_id FROM zk_session'), $session, 'still in one session');

done_testing();
