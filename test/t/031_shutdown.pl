# Every way to stop a server, with ZooKeeper up, down, and silent.
#
# Server A holds one lock and waits for another; server B holds the other and
# waits for the one.  Nothing waits for a timeout: all of them take an hour.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

my %signal = (fast => 'INT', smart => 'TERM', immediate => 'QUIT');

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
my $conf = "zklock.session_timeout = '1h'";
my $a = ZkLock::server('a', $proxy, conf => $conf, init => { allows_streaming => 1 });
my $b = ZkLock::server('b', $zk, conf => $conf);

sub wait_closed
{
	my $session = shift;
	ZkLock::wait_until(sub { !exists $zk->sessions->{$session} }, "session $session is closed");
	pass('... for the session is closed');
}

# A server that ends waits three seconds for the end of its session: a machine that is busy may
# need longer, and tries again.
my $slow = 0;
sub is_closed { my $session = shift; return !exists $zk->sessions->{$session} || ++$slow > 5; }

for my $mode ('fast', 'smart', 'immediate')
{
	for my $network ('up', 'down', 'hole')
	{
		my $what = "$mode shutdown, ZooKeeper $network";
		ZkLock::wait_connected($a, $b);
		my $holder = ZkLock::session($a);
		my $waiter = ZkLock::session($a);
		my $other = ZkLock::session($b);
		my $next = ZkLock::session($b);
		my $token = $holder->query("BEGIN; SELECT zk_lock('held')");
		$other->query("BEGIN; SELECT zk_lock('wanted')");
		$waiter->send("BEGIN; SELECT zk_lock('wanted')")->wait_level(2);
		$next->send("BEGIN; SELECT zk_lock('held')")->wait_level(2);
		ZkLock::wait_queue($zk, $_, 2) for 'held', 'wanted';
		my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');

		if ($network eq 'down')
		{
			$proxy->down;
			ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'the loss is seen');
		}
		elsif ($network eq 'hole') { $proxy->hole; }

		ZkLock::hang_up($a);
		my ($postmaster) = PostgreSQL::Test::Utils::slurp_file($a->data_dir . '/postmaster.pid') =~ /^(\d+)/;
		kill $signal{$mode}, $postmaster;

		if ($mode eq 'smart')
		{
			# The server lives as long as its clients do, and so does what they hold.
			ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($a->data_dir . '/postmaster.pid') =~ /^stopping/m }, 'it stops');
			is($holder->query("SELECT zk_token('held')"), $token, "$what: the holder goes on");
			ok($next->busy, '... and excludes');
			if ($network eq 'up')
			{
				$other->query('COMMIT');
				cmp_ok($waiter->result, '>', 0, '... a waiter is still served');
				is($waiter->query('COMMIT'), '', '... and commits');
			}
			is($holder->query('COMMIT'), '', '... the holder commits');
			$_->kill_client for $holder, $waiter;
			# A backend that waits looks for its client only if told to.
			kill 'TERM', $waiter->{pid} if $network ne 'up';
		}
		ZkLock::wait_until(sub { !kill 0, $postmaster }, "$what: the server ends");
		pass("$what: the server ends");
		if ($mode ne 'smart')
		{
			like($holder->fails('COMMIT'), qr/^(57P0|lost)/, '... the holder cannot commit');
			like($waiter->failure, qr/^(57P0|lost)/, '... the waiter waits no more');
		}
		my $closes = $mode ne 'immediate' && $network eq 'up';
		my $closed = $closes && is_closed($session);
		if ($closed)
		{
			# The timeout is far away: this can only be the session's end.
			cmp_ok($next->result, '>', $token, '... and the other server has the lock');
			wait_closed($session);
			ZkLock::wait_queue($zk, 'wanted', $mode eq 'smart' ? 0 : 1);
		}
		elsif (!$closes)
		{
			ok(exists $zk->sessions->{$session}, '... the session could not be closed') unless $mode eq 'smart' && $network eq 'hole';
			ok($next->busy, '... the other server waits');
		}

		# What could not be done at the end is done at the start.  What is under
		# way in the black hole, such as the session's end, never arrives.
		$proxy->cut->heal;
		$a->_update_pid(0);
		$a->start;
		cmp_ok($next->result, '>', $token, '... after the restart the other server has the lock');
		$next->query('COMMIT');
		$other->query('ROLLBACK');
		ZkLock::ok_clean($zk, [ $a, $b ], $_, $what) for 'held', 'wanted';
		redo if $closes && !$closed;
	}
}

# Answers that are under way when the session is closed: to hang up before they have come
# would be a reset, which may overtake the session's end.
for (my $closed = 0; !$closed;)
{
	ZkLock::wait_connected($a, $b);
	my $holder = ZkLock::session($a);
	my $next = ZkLock::session($b);
	my @names = map { "open$_" } 1 .. 5;
	my $all = join ', ', map { "zk_lock('$_')" } @names;
	$holder->query("BEGIN; SELECT $all");
	$next->send("BEGIN; SELECT $all")->wait_level(2);
	my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
	ZkLock::hang_up($a);
	$proxy->delay(100)->late('close', 500);
	$a->stop('fast');
	if ($closed = is_closed($session))
	{
		isnt($next->result, '', 'open requests: the other server has the locks');
		wait_closed($session);
	}
	$proxy->heal;
	$a->start;
	$next->result;
	$next->query('COMMIT');
	ZkLock::ok_clean($zk, [ $a, $b ], $_) for @names;
}

# A connection that breaks just before, and comes back at once.  There is but a kept grant,
# which nothing needs to be asked for.
{
	$a->append_conf('postgresql.conf', "zklock.keep_time = '1h'");
	$a->reload;
	ZkLock::wait_until(sub { ZkLock::ask($a, 'SHOW zklock.keep_time') eq '1h' }, 'grants are kept');
	my $next = ZkLock::session($b);
	my $closed = 0;
	# A machine that is busy may need longer than the 2 s for which it waits.
	for (1 .. 5)
	{
		my $s = ZkLock::session($a);
		$s->query("SELECT zk_lock('kept')");
		ZkLock::wait_queue($zk, 'kept', 1);
		my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
		my ($postmaster) = PostgreSQL::Test::Utils::slurp_file($a->data_dir . '/postmaster.pid') =~ /^(\d+)/;
		$proxy->delay(50)->cut;
		# The connection may be back before anybody has looked.
		ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT state <> 'connected' OR last_error ~ 'lost connection' FROM zk_session") eq 't' }, 'the loss is seen');
		ZkLock::hang_up($a);
		kill 'INT', $postmaster;
		ZkLock::wait_until(sub { !kill 0, $postmaster }, 'the server ends');
		last if $closed = !exists $zk->sessions->{$session};
		$a->_update_pid(0);
		$proxy->heal;
		$a->start;
		ZkLock::wait_connected($a);
	}
	ok($closed, 'the session is closed');
	isnt($next->query("SELECT zk_lock('kept')"), '', '... though its connection had just broken');
	$a->_update_pid(0);
	$a->append_conf('postgresql.conf', 'zklock.keep_time = 0');
	$proxy->heal;
	$a->start;
}

# A copy of the data directory must not close the original's session.
{
	my $holder = ZkLock::session($a);
	my $token = $holder->query("BEGIN; SELECT zk_lock('held')");
	$a->backup('copy');
	my $copy = PostgreSQL::Test::Cluster->new('copy');
	$copy->init_from_backup($a, 'copy');
	$copy->start;
	ZkLock::wait_connected($copy);
	my ($original, $other) = map { ZkLock::ask($_, 'SELECT session_id FROM zk_session') } $a, $copy;
	isnt($other, $original, 'a base backup has a session of its own');
	ok(exists $zk->sessions->{$original}, '... and leaves the original\'s alone');
	is(ZkLock::ask($copy, "SELECT zk_try_lock('held')"), 'f', '... and is another server');
	$copy->stop('immediate');
	# ... not even one by cp, session file included
	system('cp', '-a', $copy->data_dir, $copy->data_dir . '-2') == 0 or die;
	rename $copy->data_dir, $copy->data_dir . '-1' or die;
	rename $copy->data_dir . '-2', $copy->data_dir or die;
	my @before = keys %{ $zk->sessions };
	$copy->start;
	ZkLock::wait_connected($copy);
	ok(exists $zk->sessions->{$other}, 'a copied session file is not believed');
	$copy->stop;
	is($holder->query('COMMIT'), '', 'the original holds on');
}

# An item that nobody can give back any more: it comes back with the session's end, which is
# not worth a wait here.
{
	ZkLock::ask($b, "SELECT zk_queue_put('work', 'x')");
	my $s = ZkLock::session($a);
	is($s->query("BEGIN; SELECT payload FROM zk_queue_take('work', timeout => '1h')"), 'x', 'an item');
	my ($postmaster) = PostgreSQL::Test::Utils::slurp_file($a->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	$proxy->hole;
	ZkLock::hang_up($a);
	kill 'INT', $postmaster;
	ZkLock::wait_until(sub { !kill 0, $postmaster }, 'the server ends');
	my $taker = ZkLock::session($b)->send("SELECT payload, attempt FROM zk_queue_take('work', timeout => '1h')");
	$proxy->cut->heal;
	$a->_update_pid(0);
	$a->start;
	is($taker->result, 'x|2', '... is back when the session has ended');
}

done_testing();
