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
		if ($mode ne 'immediate' && $network eq 'up')
		{
			# The timeout is far away: this can only be the session's end.
			cmp_ok($next->result, '>', $token, '... and the other server has the lock');
			ok(!exists $zk->sessions->{$session}, '... for the session is closed');
			ZkLock::wait_queue($zk, 'wanted', $mode eq 'smart' ? 0 : 1);
		}
		else
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
	}
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

done_testing();
