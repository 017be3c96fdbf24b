# Kept grants, and what can happen to a worker, a session, a server.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
my $conf = "zklock.keep_time = '1h'\nzklock.handoff_limit = 4\nrestart_after_crash = on";
# A's session outlives everything here, so that nobody gets a lock because it expires.
my $a = ZkLock::server('a', $proxy, conf => "$conf\nzklock.session_timeout = '1h'");
# C's is there to expire, and may do so at any time.
my $proxy_c = Proxy->new($zk->host);
my $c = ZkLock::server('c', $proxy_c, conf => "$conf\nzklock.session_timeout = '8s'");
my $b = ZkLock::server('b', $zk, conf => "$conf\nzklock.session_timeout = '1h'");
ZkLock::wait_connected($a, $b, $c);
my ($sa, $sb, $sc) = map { ZkLock::session($_) } $a, $b, $c;
my $foreign = $zk->client(timeout => 600_000);

sub zk_session { my ($node, $columns) = @_; return ZkLock::ask($node, "SELECT $columns FROM zk_session"); }

# A name nobody has used, kept by a session's server; returns its token.
my $serial = 0;
sub keep
{
	my ($session) = @_;
	my $name = 'job ' . ++$serial;
	my $token = $session->query("SELECT zk_lock('$name')");
	ZkLock::wait_until(sub { ZkLock::watch_count($zk) > 0 }, 'its directory is watched');
	return ($name, $token);
}

# Somebody comes; whoever keeps the grant must give it up, and they go again.
sub wants
{
	my ($name, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $path = $foreign->contend(ZkLock::directory($name));
	my ($theirs) = $path =~ m{([^/]+)$};
	my @queue = ZkLock::wait_queue($zk, $name, 1);
	is("@queue", $theirs, $what);
	$foreign->delete($path);
}

#
# The connection is lost
#
for my $how ('cut', 'hole', 'down')
{
	my ($name, $token) = keep($sa);
	my $session = zk_session($a, 'session_id');
	$proxy->$how;
	ZkLock::wait_until(sub { zk_session($a, 'state') ne 'connected' }, 'the loss is seen') if $how eq 'down';
	is($sa->query("SELECT zk_lock('$name')"), $token, "$how: a kept grant is used");
	# somebody comes meanwhile
	my $path = $foreign->contend(ZkLock::directory($name));
	is($sa->query("SELECT zk_lock('$name')"), $token, '... also while somebody waits of whom it cannot know') if $how ne 'cut';
	is(@{[ ZkLock::queue($zk, $name) ]}, 2, '... who must wait') if $how ne 'cut';
	$proxy->heal;
	my ($theirs) = $path =~ m{([^/]+)$};
	is(join(' ', ZkLock::wait_queue($zk, $name, 1)), $theirs, '... and has it when the connection is back');
	is(zk_session($a, 'session_id'), $session, '... of the same session');
	$foreign->delete($path);
	cmp_ok($sa->query("SELECT zk_lock('$name')"), '>', $token, '... and the next token is larger');

	# one that is held at that time
	($name, $token) = keep($sa);
	$sa->query("BEGIN; SELECT zk_lock('$name')");
	$proxy->$how;
	$sb->send("BEGIN; SELECT zk_lock('$name')")->wait_level(2);
	ZkLock::wait_queue($zk, $name, 2);
	$proxy->heal;
	ZkLock::wait_demanded($zk, $a, $name);
	is($sa->query("SELECT zk_token('$name')"), $token, "$how: a holder goes on");
	ok($sb->busy, '... and the other server waits');
	$sa->query('COMMIT');
	cmp_ok($sb->result, '>', $token, '... until it ends');
	$sb->query('COMMIT');

	# nobody came: nothing changes
	($name, $token) = keep($sa);
	my @kept = ZkLock::queue($zk, $name);
	$proxy->cut;
	ZkLock::wait_connected($a);
	is($sa->query("SELECT zk_lock('$name')"), $token, "$how, and nobody came: still kept");
	is_deeply([ ZkLock::queue($zk, $name) ], \@kept, '... by the same contender');
	wants($name, '... and given up when somebody does');
}

#
# The worker is terminated
#
for my $when ('before', 'while it is stopped')
{
	my ($name, $token) = keep($sa);
	my $pid = zk_session($a, 'worker_pid');
	my @kept = ZkLock::queue($zk, $name);
	my $path;
	if ($when ne 'before')
	{
		kill 'STOP', $pid or die;
		$path = $foreign->contend(ZkLock::directory($name));
	}
	kill 'TERM', $pid or die;
	kill 'CONT', $pid if $when ne 'before';
	ZkLock::wait_until(sub { zk_session($a, "worker_pid <> $pid AND state = 'connected'") eq 't' }, 'a successor is connected');
	if ($path)
	{
		my ($theirs) = $path =~ m{([^/]+)$};
		is(join(' ', ZkLock::wait_queue($zk, $name, 1)), $theirs, 'who came while the worker was stopped has it from its successor');
		$foreign->delete($path);
	}
	else
	{
		is($sa->query("SELECT zk_lock('$name')"), $token, 'a new worker: a kept grant is used');
		is_deeply([ ZkLock::queue($zk, $name) ], \@kept, '... by the same contender');
		wants($name, '... and given up when somebody comes');
	}
	cmp_ok($sa->query("SELECT zk_lock('$name')"), '>', $token, '... and the next token is larger');
}

# The worker ends between a reader's create and its reply, while a writer's grant is
# kept.  The successor finds both.  Tokens do not go back all the same.
{
	my ($name, $token) = keep($sa);
	my $reader = ZkLock::session($a);
	my $pid = zk_session($a, 'worker_pid');
	$reader->query('BEGIN');
	$proxy->hole('down');
	$reader->send("SELECT zk_lock('$name', 'shared')")->wait_level(2);
	ZkLock::wait_queue($zk, $name, 2);
	kill 'TERM', $pid or die;
	ZkLock::wait_until(sub { zk_session($a, "worker_pid <> $pid") eq 't' }, 'there is a successor');
	$proxy->heal;
	my $read = $reader->result;
	cmp_ok($read, '>', $token, 'a reader after a kept writer, with a new worker between: a larger token');
	$reader->query('COMMIT');
	cmp_ok($sa->query("SELECT zk_lock('$name')"), '>=', $read, '... and the next writer has no smaller one');
	$reader->quit;
	wants($name, '... until somebody comes');
}

#
# The session expires
#
# 1. Its server is cut off.
{
	my ($name, $token) = keep($sc);
	my $session = zk_session($c, 'session_id');
	$proxy_c->down;
	my $other = $sb->query("BEGIN; SELECT zk_lock('$name')");
	cmp_ok($other, '>', $token, 'cut off for longer than the session timeout: another server has it');
	$sc->send("SELECT zk_lock('$name')")->wait_level(2);
	is($sc->cancel->failure, '57014: canceling statement due to user request', '... and the kept grant is of no use any more');
	# It was kept in the one before, if that had expired already.
	ZkLock::wait_until(sub { !exists $zk->sessions->{$session} }, 'the session has expired');
	$proxy_c->heal;
	ZkLock::wait_until(sub { zk_session($c, "state = 'connected' AND session_id <> '$session'") eq 't' }, 'there is a new session');
	$sc->send("SELECT zk_lock('$name')")->wait_level(2);
	ok($sc->busy, '... nor in the new session');
	$sb->query('COMMIT');
	cmp_ok($sc->result, '>', $other, '... in which it queues for a larger token');

	# nobody came: a new session is a new contender
	($name, $token) = keep($sc);
	$session = zk_session($c, 'session_id');
	my @kept = ZkLock::queue($zk, $name);
	$proxy_c->down;
	ZkLock::wait_queue($zk, $name, 0);
	ZkLock::wait_until(sub { !exists $zk->sessions->{$session} }, 'the session has expired');
	$proxy_c->heal;
	ZkLock::wait_until(sub { zk_session($c, "state = 'connected' AND session_id <> '$session'") eq 't' }, 'there is a new session');
	my ($next, @queue);
	ZkLock::wait_until(sub { $next = $sc->query("SELECT zk_lock('$name')"); @queue = ZkLock::queue($zk, $name) }, 'it is kept');
	cmp_ok($next, '>', $token, 'a new session: a larger token');
	isnt("@queue", "@kept", '... of a new contender');
}

# 2. Its worker is stopped, and cannot tell anybody.
{
	my ($name, $token, $session);
	my $pid = zk_session($c, 'worker_pid');
	my $trier = ZkLock::session($c);
	# It may use what it has until its lease ends, which may be soon: so until it was used.
	ZkLock::wait_until(
		sub {
			$trier->query('RESET zklock.connect_timeout');
			($name, $token) = keep($sc);
			$session = zk_session($c, 'session_id');
			$trier->query("SET zklock.connect_timeout = '50ms'");
			ZkLock::stop_process($c, $pid);
			return 1 if $trier->fails("SELECT zk_lock('$name')") eq '';
			kill 'CONT', $pid or die;
			return 0;
		},
		'a kept grant is used while the worker is stopped');
	$sb->send("BEGIN; SELECT zk_lock('$name')");
	# ... and not from then on, which is before the other server has it.
	my ($after, $wrong) = (0, 0);
	while ($sb->busy)
	{
		my $got = $trier->fails("SELECT zk_lock('$name')") eq '';
		$wrong++ if $got && $after;
		$after++ unless $got;
	}
	my $other = $sb->result;
	cmp_ok($other, '>', $token, 'a stopped worker: another server has it when the session has expired');
	is($wrong, 0, '... the kept grant was used until the lease ended, and not any more');
	like($trier->fails("SELECT zk_lock('$name', '$_', 'session')"), qr/^58000: could not reach ZooKeeper/, "... by zk_lock, $_") for 'exclusive', 'shared';
	like($trier->fails("SELECT zk_try_lock('$name')"), qr/^58000: could not reach ZooKeeper/, '... nor by zk_try_lock');
	my @waiters = map { ZkLock::session($c) } 1 .. 3;
	$_->send("SELECT zk_lock('$name')") for @waiters;
	ZkLock::wait_waiting($c, 2, 1);
	ZkLock::wait_waiting($c, 1, 2);
	is($sb->query("SELECT zk_token('$name')"), $other, '... the other server has it');
	kill 'CONT', $pid or die;
	ZkLock::wait_until(sub { zk_session($c, "state = 'connected' AND session_id <> '$session'") eq 't' }, 'there is a new session');
	ZkLock::wait_queue($zk, $name, 2);
	is(scalar(grep { $_->busy } @waiters), 3, 'the worker goes on: all wait');
	$sb->query('COMMIT');
	cmp_ok($_->result, '>', $other, '... until the other server ends') for @waiters;
	is(PostgreSQL::Test::Utils::slurp_file($c->logfile) =~ /was lost/ ? 'lost' : '', '', '... and nobody has lost what nobody held');
}

#
# A server ends
#
{
	my ($name, $token) = keep($sa);
	ZkLock::hang_up($a);
	$a->stop('fast');
	# a server that ends does not wait for long until its session has ended
	is($sb->query("SELECT zk_try_lock('$name', timeout => '1 h')"), 't', 'fast shutdown gives up what is kept');
	$a->start;
	ZkLock::wait_connected($a);
	$sa = ZkLock::session($a);

	# Who waits at that time has it at once.
	($name, $token) = keep($sa);
	ZkLock::hang_up($a);
	$a->stop('immediate');
	$sb->send("SELECT zk_lock('$name')")->wait_level(2);
	ZkLock::wait_queue($zk, $name, 2);
	$a->start;
	cmp_ok($sb->result, '>', $token, 'immediate shutdown: at the next start');
	ZkLock::wait_connected($a);

	$sa = ZkLock::session($a);
	($name, $token) = keep($sa);
	my $victim = ZkLock::session($a);
	my $worker = zk_session($a, 'worker_pid');
	$victim->pid;
	# the session that asks may go later than the worker
	ZkLock::hang_up($a);
	kill 'KILL', $victim->pid or die;
	# It shall not hear of the other server's wish any more.
	ZkLock::wait_until(sub { !kill 0, $worker }, 'the worker has gone');
	cmp_ok($sb->query("SELECT zk_lock('$name')"), '>', $token, 'a crash of a backend gives up what is kept');
	ZkLock::wait_until(sub { eval { zk_session($a, 'state'); 1 } }, 'the server is back');
	ZkLock::wait_connected($a);
	$sa = ZkLock::session($a);
	cmp_ok($sa->query("SELECT zk_lock('$name')"), '>', $token, '... and the server goes on');
}

done_testing();
