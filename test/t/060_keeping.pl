# A grant that nobody on the server holds any more is kept while nobody else
# wants it, and given up when somebody does.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $conf = "zklock.session_timeout = '1h'\nzklock.keep_time = '1h'";
my $a = ZkLock::server('a', $proxy, conf => "$conf\nzklock.handoff_limit = 2");
my $b = ZkLock::server('b', $zk, conf => "$conf\nzklock.handoff_limit = 0");
ZkLock::wait_connected($a, $b);
my @sa = map { ZkLock::session($a) } 0 .. 7;
my @sb = map { ZkLock::session($b) } 0 .. 2;
my $foreign = $zk->client;

# What A's worker has asked for since the last call, besides its heartbeats.
sub requests
{
	my %count = %{ $proxy->requests };
	delete @count{qw(set ping)};
	return join ' ', map { "$_=$count{$_}" } sort keys %count;
}

# After a connection the worker looks for orphans, a listing or two.
my $nothing = qr/^(children=[12])?$/;

# So many times one after the other in a transaction each, all with this token.
sub take
{
	my ($session, $name, $mode, $times, $token) = @_;
	return $session->fails(qq{DO \$\$ BEGIN
		FOR i IN 1 .. $times LOOP
			IF zk_lock('$name', '$mode') <> $token THEN RAISE 'another token'; END IF;
			COMMIT;
		END LOOP;
	END \$\$});
}

# Somebody else comes and goes: whatever is kept of the name is given up.
sub clean
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $path = $foreign->contend(ZkLock::directory($name));
	ZkLock::wait_queue($zk, $name, 1);
	$foreign->delete($path);
	ZkLock::ok_clean($zk, [ $a, $b ], $name);
}

#
# Nobody else: no request
#
for my $mode ('exclusive', 'shared')
{
	my $name = "job $mode";
	my $token = $sa[0]->query("SELECT zk_lock('$name', '$mode')");
	ZkLock::wait_watches($zk, 1);
	my @kept = ZkLock::queue($zk, $name);
	is(@kept, 1, "$mode: the contender stays");
	is($zk->stat(ZkLock::directory($name) . "/$kept[0]")->{czxid}, $token, '... whose czxid is the token');
	is(ZkLock::ask($a, 'SELECT count(*) FROM zk_locks WHERE pid IS NOT NULL'), 0, '... and zk_locks shows nobody');
	requests();
	is(take($sa[0], $name, $mode, 200, $token), '', '... and serves the same backend 200 times, with its token');
	is(take($sa[1], $name, $mode, 200, $token), '', '... and another one');
	$_->query("BEGIN; SELECT zk_lock('$name', '$mode')") for @sa[ 2 .. ($mode eq 'shared' ? 4 : 2) ];
	is(ZkLock::ask($a, 'SELECT string_agg(DISTINCT mode || token, \' \') FROM zk_locks'), "$mode$token", '... zk_locks of holders');
	is($sa[0]->query("SELECT zk_try_lock('$name', 'exclusive')"), 'f', '... who exclude others of their server') if $mode eq 'exclusive';
	$_->query('COMMIT') for @sa[ 2 .. 4 ];
	like(requests(), $nothing, '... without any request');
	is_deeply([ ZkLock::queue($zk, $name) ], \@kept, '... by the one contender');
	clean($name);
}

# Readers and a writer: tokens do not go back.
{
	my $reader = $sa[0]->query("SELECT zk_lock('mixed', 'shared')");
	ZkLock::wait_watches($zk, 1);
	my $writer = $sa[0]->query("SELECT zk_lock('mixed')");
	cmp_ok($writer, '>', $reader, 'a writer after a kept reader: a larger token');
	is(@{[ ZkLock::wait_queue($zk, 'mixed', 2) ]}, 2, '... and both are kept');
	# its own contender's arrival has made it look, also at the one that was there
	ZkLock::wait_watches($zk, 2);
	is($sa[1]->query("SELECT zk_lock('mixed', 'shared') > 0, zk_lock('mixed') > 0"), 't|t', '... both at once');
	requests();
	for my $i (1 .. 5)
	{
		is($sa[1]->query("BEGIN; SELECT zk_lock('mixed', 'shared')"), $writer, "reader $i has no smaller token than the writer before it");
		$sa[2]->send("BEGIN; SELECT zk_lock('mixed')")->wait_level(1);
		$sa[1]->query('COMMIT');
		is($sa[2]->result, $writer, "... then the writer has it");
		is($sa[2]->fails("SELECT zk_fence('mixed', zk_token('mixed'))"), '', '... and may write');
		$sa[2]->query('COMMIT');
	}
	like(requests(), $nothing, '... without any request');
	is($sb[0]->query("SELECT zk_lock('mixed', 'shared') > $writer"), 't', 'another server\'s reader has a larger token');
	clean('mixed');
	# the other way round: tokens must not go back
	$writer = $sa[0]->query("SELECT zk_lock('mixed 2')");
	ZkLock::wait_watches($zk, 1);
	for my $i (1 .. 5)
	{
		my $last = $writer;
		for my $mode ('shared', 'exclusive')
		{
			$writer = $sa[0]->query("SELECT zk_lock('mixed 2', '$mode')");
			cmp_ok($writer, '>=', $last, "$mode $i has a token as large as the one before, or larger");
		}
	}
	clean('mixed 2');
}

#
# Somebody else: it goes at once
#
{
	my $token = $sa[0]->query("SELECT zk_lock('job')");
	ZkLock::wait_watches($zk, 1);
	my @kept = ZkLock::queue($zk, 'job');
	$sb[0]->query('BEGIN');
	my $next = $sb[0]->query("SELECT zk_lock('job')");
	cmp_ok($next, '>', $token, 'another server takes a kept grant away: larger token');
	my @queue = ZkLock::wait_queue($zk, 'job', 1);
	isnt($queue[0], $kept[0], '... and the kept contender has gone');
	$sa[0]->send("SELECT zk_lock('job')")->wait_level(2);
	ok($sa[0]->busy, '... the first server waits');
	$sb[0]->query('COMMIT');
	cmp_ok($sa[0]->result, '>', $next, '... until it ends, and has a larger token');
	clean('job');

	# readers are in nobody's way but writers'
	$token = $sa[0]->query("SELECT zk_lock('job 2', 'shared')");
	ZkLock::wait_watches($zk, 1);
	cmp_ok($sb[0]->query("SELECT zk_lock('job 2', 'shared')"), '>', $token, 'readers of two servers');
	# since somebody came the first one watches its own contender, too
	ZkLock::wait_watches($zk, 3);
	is(@{[ ZkLock::queue($zk, 'job 2') ]}, 2, '... both are kept');
	is(take($sa[1], 'job 2', 'shared', 3, $token), '', '... and used');
	cmp_ok($sb[1]->query("SELECT zk_lock('job 2')"), '>', $token, '... until a writer comes');
	clean('job 2');

	# a writer that is kept gives way to a reader
	$token = $sa[0]->query("SELECT zk_lock('job 3')");
	cmp_ok($sb[0]->query("SELECT zk_lock('job 3', 'shared')"), '>', $token, 'a kept writer gives way to a reader');
	clean('job 3');

	# a foreign one, of either kind
	for my $kind ('lock-', 'read-lock-')
	{
		$sa[0]->query("SELECT zk_lock('foreign $kind')");
		ZkLock::wait_watches($zk, 1);
		my $path = $foreign->contend(ZkLock::directory("foreign $kind"), kind => $kind);
		my @queue = ZkLock::wait_queue($zk, "foreign $kind", 1);
		like($path, qr{/\Q$queue[0]\E$}, "a foreign $kind contender takes it away");
		is($sa[0]->query("SELECT zk_try_lock('foreign $kind')"), 'f', '... and has it');
		$foreign->delete($path);
		clean("foreign $kind");
	}
}

#
# Somebody else comes while it is held, and local backends wait, too
#
# Each local waiter is one of these; returns the names in the order in which they
# got it.  After each, both servers stand in the queue as long as both have waiters, and the
# one that has it knows of the other.
sub order
{
	my ($name, $holder, @waiters) = @_;
	my ($held, @order) = ($holder);
	my %token;
	while (@waiters)
	{
		my %servers = map { substr($_->[0], 0, 1) => 1 } $held, @waiters;
		if (keys %servers == 2)
		{
			ZkLock::wait_queue($zk, $name, 2);
			my $state = 'SELECT grant_state FROM zk_locks WHERE pid = ' . $held->[1]->pid;
			ZkLock::wait_until(sub { ZkLock::ask($held->[1]{node}, $state) =~ /^(demanded|releasing)$/ }, "$name is demanded of $held->[0]");
		}
		$held->[1]->query('COMMIT');
		my $next;
		ZkLock::wait_until(sub { ($next) = grep { !$_->[1]->busy } @waiters }, "somebody gets $name");
		$token{ $next->[0] } = $next->[1]->result;
		is(scalar(grep { !$_->[1]->busy } @waiters), 1, "$next->[0] alone has it");
		push @order, $next->[0];
		@waiters = grep { $_ != $next } @waiters;
		$held = $next;
	}
	$held->[1]->query('COMMIT');
	return (\@order, \%token);
}
{
	my $token = $sa[0]->query("BEGIN; SELECT zk_lock('turns')");
	ZkLock::wait_watches($zk, 1);
	my @waiters;
	for my $i (1 .. 6)
	{
		$sa[$i]->send("BEGIN; SELECT zk_lock('turns')")->wait_level(1);
		push @waiters, [ "a$i", $sa[$i] ];
	}
	$sb[0]->send("BEGIN; SELECT zk_lock('turns')")->wait_level(2);
	$sb[1]->send("BEGIN; SELECT zk_lock('turns')")->wait_level(1);
	push @waiters, [ 'b1', $sb[0] ], [ 'b2', $sb[1] ];
	ZkLock::wait_demanded($zk, $a, 'turns');
	my ($order, $t) = order('turns', [ 'a0', $sa[0] ], @waiters);
	is("@$order", 'a1 a2 b1 a3 a4 a5 b2 a6', 'limit 2: two more of the same server, then the other, and so on');
	is("$t->{a1} $t->{a2}", "$token $token", '... on one grant');
	cmp_ok($t->{b1}, '>', $token, '... then a larger token');
	cmp_ok($t->{a3}, '>', $t->{b1}, '... and so on');
	is("$t->{a4} $t->{a5}", "$t->{a3} $t->{a3}", '... on one grant again');
	cmp_ok($t->{b2}, '>', $t->{a3}, '... with larger tokens');
	cmp_ok($t->{a6}, '>', $t->{b2}, '... to the end');
	clean('turns');

	$token = $sb[0]->query("BEGIN; SELECT zk_lock('turns')");
	ZkLock::wait_queue($zk, 'turns', 1);
	$sb[$_]->send("BEGIN; SELECT zk_lock('turns')")->wait_level(1) for 1, 2;
	$sa[0]->send("BEGIN; SELECT zk_lock('turns')")->wait_level(2);
	ZkLock::wait_demanded($zk, $b, 'turns');
	($order, $t) = order('turns', [ 'b0', $sb[0] ], [ 'b1', $sb[1] ], [ 'b2', $sb[2] ], [ 'a1', $sa[0] ]);
	is("@$order", 'a1 b1 b2', 'limit 0: the other server first');
	cmp_ok($t->{b2}, '>', $t->{b1}, '... and a grant for each');
	clean('turns');
}

#
# Readers that always overlap
#
{
	my $token = $sa[0]->query("BEGIN; SELECT zk_lock('readers', 'shared')");
	ZkLock::wait_watches($zk, 1);
	my $joined = 0;
	for my $i (1 .. 5)
	{
		is($sa[ $i % 2 ]->query("BEGIN; SELECT zk_lock('readers', 'shared')"), $token, 'readers overlap');
		$sa[ ($i + 1) % 2 ]->query('COMMIT');
	}
	my $now = 1;
	$sb[0]->send("BEGIN; SELECT zk_lock('readers')")->wait_level(2);
	ZkLock::wait_demanded($zk, $a, 'readers');
	while ($sb[0]->busy && $joined < 100)
	{
		my $next = $sa[ 1 - $now ];
		$next->send("BEGIN; SELECT zk_lock('readers', 'shared')");
		# One that may not join queues when the others have gone.
		my $waits = "SELECT count(*) FROM zk_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND wait_event_type = 'Extension'";
		ZkLock::wait_until(sub { !$next->busy || ZkLock::ask($a, $waits) == 1 }, 'the reader has joined or waits');
		$joined++ unless $next->busy;
		$sa[$now]->query('COMMIT');
		ZkLock::wait_until(sub { !$sb[0]->busy }, 'the writer is let in') if $next->busy;
		$now = 1 - $now;
	}
	is($joined, 2, 'readers that overlap on another server let a writer in after handoff_limit more');
	cmp_ok($sb[0]->result, '>', $token, '... with a larger token');
	ok($sa[$now]->busy, '... and the next reader waits for it');
	$sb[0]->query('COMMIT');
	cmp_ok($sa[$now]->result, '>', $token, '... and has its turn');
	$sa[$now]->query('COMMIT');
	clean('readers');
}

#
# A name that goes back and forth is not kept
#
{
	my $token = $sa[0]->query("SELECT zk_lock('ball')");
	ZkLock::wait_watches($zk, 1);
	my $other = $sb[0]->query("SELECT zk_lock('ball')");
	for my $i (1 .. 3)
	{
		my $next = $sa[ $i % 2 ]->query("SELECT zk_lock('ball')");
		cmp_ok($next, '>', $token, "after it was taken away: time $i, a new contender");
		cmp_ok($next, '>', $other, '... newer than the other server\'s');
		$token = $next;
		# its release is on its way
		$i < 3 ? ZkLock::wait_queue($zk, 'ball', 0) : ZkLock::wait_watches($zk, 1);
	}
	is(take($sa[0], 'ball', 'exclusive', 5, $token), '', '... and is kept after the third');
	# It was of use now, so it is kept again at once when nobody is in the way.
	my $path = $foreign->contend(ZkLock::directory('ball'));
	ZkLock::wait_queue($zk, 'ball', 1);
	$foreign->delete($path);
	$token = $sa[0]->query("SELECT zk_lock('ball')");
	ZkLock::wait_watches($zk, 1);
	is(take($sa[1], 'ball', 'exclusive', 5, $token), '', 'a grant that was of use before it was taken away is kept the next time');
	clean('ball');
}

#
# zk_try_lock
#
{
	$sb[0]->query("BEGIN; SELECT zk_lock('try')");
	is($sa[0]->query("SELECT zk_try_lock('try')"), 'f', 'zk_try_lock of what another server has');
	my ($contender) = ZkLock::wait_queue($zk, 'try', 1);
	requests();
	my $created = $zk->stat(ZkLock::directory('try'))->{pzxid};
	for my $mode ('exclusive', 'shared')
	{
		is($sa[0]->query("SELECT count(*) FROM generate_series(1, 10) WHERE zk_try_lock('try', '$mode')"), 0, "... and again, ten times, $mode");
		is($sa[1]->query("SELECT count(*) FROM generate_series(1, 10) WHERE zk_try_lock('try', '$mode', 'session')"), 0, '... by another backend');
	}
	# The end of one and the beginning of the next may make it ask twice.
	my ($listings, $syncs) = requests() =~ /^children=(\d+) sync=(\d+)$/;
	ok($syncs && $syncs >= 40 && $syncs < 80 && $listings >= $syncs, '... asks without queueing');
	is($zk->stat(ZkLock::directory('try'))->{pzxid}, $created, '... and changes nothing in ZooKeeper');
	# It may have gone before its server has come to it.
	my ($false, $asked) = ('', '');
	ZkLock::wait_until(
		sub {
			$false .= $sa[0]->query("SELECT zk_try_lock('try', timeout => '10ms')");
			return ($asked .= requests()) =~ /create=/;
		},
		'it queues', sub { $asked });
	like($false, qr/^f+$/, 'one that waits');
	like($asked, qr/create=1/, '... queues');
	is(@{[ ZkLock::wait_queue($zk, 'try', 1) ]}, 1, '... and leaves');
	$sb[0]->query('COMMIT');
	ZkLock::wait_queue($zk, 'try', 0);
	is($sa[0]->query("SELECT zk_try_lock('try')"), 't', 'free: true at once');
	clean('try');

	# The server has it, though no session does.
	$sb[0]->query("SELECT zk_lock('left')");
	is($sa[0]->query("SELECT zk_try_lock('left', timeout => '1 h')"), 't', 'what another server keeps goes to zk_try_lock with a timeout');
	clean('left');

	# This server has been told that the other one has it, and asks without queueing.
	for my $mode ('exclusive', 'shared')
	{
		$sb[0]->query("BEGIN; SELECT zk_lock('again', '$mode')");
		is($sa[0]->query("SELECT zk_try_lock('again')"), 'f', "zk_try_lock of what another server has, $mode");
		$sb[0]->query('COMMIT');
		ZkLock::wait_until(sub { $sb[0]->query("SELECT zk_lock('again', '$mode')"); ZkLock::ask($b, "SELECT string_agg(state, '') FROM zk_contenders('again')") eq 'kept' }, 'it keeps it');
		ok(ZkLock::wait_until(sub { $sa[0]->query("SELECT zk_try_lock('again')") eq 't' }, 'it gets it'), '... and of what it keeps for nobody later');
		clean('again');
	}
}

#
# An administrator deletes contenders
#
for my $mode ('exclusive', 'shared')
{
	my $token = $sa[0]->query("SELECT zk_lock('gone $mode', '$mode')");
	ZkLock::wait_watches($zk, 1);
	requests();
	my ($contender) = ZkLock::queue($zk, "gone $mode");
	$zk->delete(ZkLock::directory("gone $mode") . "/$contender");
	# It asks for something when it has noticed.
	my $asked = '';
	ZkLock::wait_until(sub { ($asked .= requests()) =~ /\w/ }, 'the server has noticed');
	my ($next, $tries) = ($token, 0);
	# A server of readers has to look whether it was theirs.
	ZkLock::wait_until(sub { $tries++; ($next = $sa[0]->query("SELECT zk_lock('gone $mode', '$mode')")) != $token }, 'another token');
	cmp_ok($next, '>', $token, "a kept $mode contender is deleted: a new one with a larger token");
	is($tries, 1, '... at once') if $mode eq 'exclusive';
	clean("gone $mode");

	# one that is held
	$sa[0]->query("SELECT zk_lock('held $mode', '$mode')");
	ZkLock::wait_watches($zk, 1);
	$sa[0]->query("BEGIN; SELECT zk_lock('held $mode', '$mode')");
	$zk->delete(ZkLock::directory("held $mode") . "/$_") for ZkLock::queue($zk, "held $mode");
	is($sa[0]->fails('SELECT pg_sleep(3600)'), qq{40001: lock "held $mode" was lost}, "a held $mode one is lost");
	$sa[0]->query('ROLLBACK');
	clean("held $mode");
}

#
# Ends of holds: the grant stays
#
{
	my $token = $sa[0]->query("SELECT zk_lock('ends', scope => 'session')");
	ZkLock::wait_watches($zk, 1);
	requests();
	my @ways = (
		[ 'zk_unlock', "SELECT zk_unlock('ends')" ],
		[ 'zk_unlock_all', 'SELECT zk_unlock_all()' ],
		[ 'DISCARD ALL', 'DISCARD ALL' ],
		[ 'pg_advisory_unlock_all', 'SELECT pg_advisory_unlock_all()' ]);
	for my $way (@ways)
	{
		my ($what, $sql) = @$way;
		is($sa[0]->query("SELECT zk_lock('ends', scope => 'session')"), $token, "$what: the kept grant is held");
		is($sa[0]->query("SELECT zk_lock('ends', scope => 'session'); SELECT zk_unlock('ends')"), "$token\nt", '... twice');
		is($sa[1]->query("SELECT zk_try_lock('ends')"), 'f', '... and excludes');
		$sa[0]->query($sql) for 1 .. 2 - ($what ne 'zk_unlock');
		is($sa[1]->query("SELECT zk_lock('ends')"), $token, '... and is another backend\'s then');
	}
	for my $way ([ '', 'ROLLBACK' ], [ 'SAVEPOINT s', 'ROLLBACK TO s' ], [ 'SAVEPOINT r; SAVEPOINT s', 'RELEASE s; ROLLBACK TO r' ])
	{
		my ($before, $end) = @$way;
		is($sa[0]->query("BEGIN; $before; SELECT zk_lock('ends')"), $token, "$end: the kept grant is held");
		is($sa[1]->query("SELECT zk_try_lock('ends')"), 'f', '... and excludes');
		$sa[0]->query($end);
		is($sa[1]->query("SELECT zk_lock('ends')"), $token, '... and is another backend\'s then');
		$sa[0]->query('ROLLBACK') if $before;
	}
	like(requests(), $nothing, 'all of that without any request');
	is(ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, '... and nothing is left at level 1');
	is(ZkLock::ask($a, 'SELECT count(*) FROM zk_locks WHERE pid IS NOT NULL'), 0, '... nor in zk_locks');
	# A client that is gone has not been told, and may go on with its token.
	is($sa[7]->query("SELECT zk_lock('ends', scope => 'session')"), $token, 'a backend ends: the kept grant is held');
	$sa[7]->quit;
	cmp_ok($sa[1]->query("SELECT zk_lock('ends')"), '>', $token, '... and the next one has a larger token');
	clean('ends');
	# Nor may a reader have it, by a grant that was kept beside that, or is part of an upgrade.
	for my $what ([ 'kept', "zk_lock('gone 1', 'shared')" ], [ 'held', "zk_lock('gone 2', 'shared', 'session')" ])
	{
		my ($state, $call) = @$what;
		my ($name) = $call =~ /'(.*?)'/;
		my $holder = ZkLock::session($a);
		$holder->query("SELECT $call");
		ZkLock::wait_watches($zk, 1);
		$token = $holder->query("SELECT zk_lock('$name', scope => 'session')");
		ZkLock::wait_queue($zk, $name, 2);
		$holder->quit;
		cmp_ok($sa[1]->query("SELECT zk_lock('$name', 'shared')"), '>', $token, "... nor does a reader have that, whose grant is $state");
		clean($name);
	}
}

done_testing();
