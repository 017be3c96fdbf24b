# A ZooKeeper server was about to lead, and has kept a contender that its leader does not have.
# That is no lock.  The server's log says so, and the hint there loses nothing.
use strict;
use warnings;

use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(servers => 3)->start;
my ($leader, $strayed) = $zk->wait_elected;
my $proxy = Proxy->new($zk->host($strayed));
my $conf = "zklock.session_timeout = '40s'";
my $a = ZkLock::server('a', $proxy, conf => $conf);
my $b = ZkLock::server('b', $zk, conf => $conf);
ZkLock::wait_connected($a, $b);
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;
my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
my $client = $zk->client;
my $kept = $sa->query("SELECT zk_lock('kept', scope => 'session')");

sub contenders { my ($path) = @_; $client->sync($path); return grep { /-\d{10}$/ } @{ $client->children($path) // [] }; }

# Has said so, of this name.
sub warned { return PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ m{WARNING:  ZooKeeper server \S+ has a znode that its leader does not have\n.*DETAIL:  It is "/zklock/\w+/$_[0]/}; }

# [ what it is, how it is asked for, whether it may be had, how many creates have strayed ]
my @kinds = (
	[ 'a lock', "zk_lock('%s')", "zk_try_lock('%s')", 1 ],
	[ 'a shared lock', "zk_lock('%s', mode => 'shared')", "zk_try_lock('%s')", 1 ],
	[ 'a permit', "zk_acquire('%s', 1)", "zk_try_acquire('%s', 1)", 1 ],
	[ 'a lock', "zk_lock('%s')", "zk_try_lock('%s')", 3 ],
	[ 'a permit', "zk_acquire('%s', 1)", "zk_try_acquire('%s', 1)", 3 ]);
my $n = 0;
for my $kind (@kinds)
{
	for my $held (1, 0)
	{
		my ($what, $ask, $try, $creates) = @$kind;
		my $name = 'strayed' . ++$n;
		$_ = sprintf $_, $name for $ask, $try;
		my $dir = '/zklock/' . ($what eq 'a permit' ? 'semaphores' : 'locks') . "/$name";
		# The numbers of what is not there are lower than that of whoever has it.
		for (1 .. $creates)
		{
			$sb->query("BEGIN; SELECT $ask; COMMIT");
			$sa->query("BEGIN; SELECT $ask; COMMIT");
			ZkLock::wait_until(sub { !contenders($dir) }, "$name is free");
		}
		$sb->query("BEGIN; SELECT " . ($what eq 'a permit' ? $ask : "zk_lock('$name')")) if $held;
		my $count = $proxy->lost + $creates;
		$proxy->stray("$dir/", $_) for 0 .. $creates - 1;
		$sa->send("BEGIN; SELECT $ask");
		ZkLock::wait_until(sub { $proxy->lost == $count }, 'the create has been lost');
		if ($held)
		{
			$sa->wait_level(2);
			ZkLock::wait_until(sub { contenders($dir) == 2 }, 'another contender waits');
			ok($sa->busy, "$what that one ZooKeeper server alone knows ($creates): it is not had by that");
			$sb->query('COMMIT');
		}
		my $token = $sa->result;
		ZkLock::wait_until(sub { contenders($dir) == 1 }, 'the other one is gone');
		my @queue = contenders($dir);
		is(@queue, 1, "$what: another contender is made");
		is($token, $zk->stat("$dir/$queue[0]")->{czxid}, '... whose czxid is the token') unless $what eq 'a permit';
		is($sb->query("SELECT $try"), 'f', '... and it excludes');
		$sa->query('COMMIT');
		# What is not there is deleted once for each connection, if at all.
		$proxy->requests;
		$sa->query("SELECT $ask") for 1 .. 20;
		ZkLock::wait_until(sub { !contenders($dir) }, "$name is free again") if $what eq 'a permit';
		my $requests = $proxy->requests;
		cmp_ok($requests->{delete} // 0, '<=', 20 + $creates, '... nobody deletes again and again what is not there') or diag explain $requests;
		ZkLock::wait_until(sub { warned($name) }, "the log tells of $name");
		$proxy->heal;
	}
}

# Two sessions of one server wait for a permit.  The create of the second has strayed: that is in
# nobody's way, not in the first one's either.
{
	my ($s1, $s2) = map { ZkLock::session($a) } 1 .. 2;
	my $dir = '/zklock/semaphores/siblings';
	my $ask = "BEGIN; SELECT zk_acquire('siblings', 1)";
	$sb->query("$ask; COMMIT");
	$sb->query($ask);
	$s1->send($ask);
	ZkLock::wait_until(sub { contenders($dir) == 2 }, 'the first waits');
	my $count = $proxy->lost + 1;
	$proxy->stray("$dir/", 0);
	$s2->send($ask);
	ZkLock::wait_until(sub { $proxy->lost == $count && contenders($dir) == 3 }, 'the second waits again');
	ok($s1->busy && $s2->busy, 'two sessions wait for a permit');
	$sb->query('COMMIT');
	for ($s1, $s2)
	{
		cmp_ok($_->result, '>', 0, '... and each gets it');
		$_->query('COMMIT');
		$_->quit;
	}
	$proxy->heal;
}

my $log = PostgreSQL::Test::Utils::slurp_file($a->logfile);
my $warnings = () = $log =~ /WARNING:  ZooKeeper server/g;
my $connections = () = $log =~ /onnected to ZooKeeper server/g;
cmp_ok($warnings, '<=', $connections, '... once a connection');
like(ZkLock::ask($a, 'SELECT last_error FROM zk_session'), qr/^ZooKeeper server \S+ has a znode that its leader does not have/, 'zk_session tells of it');

# "While the other servers of the ensemble are a majority and run, stop this ZooKeeper server,
# remove its data, and start it again."
$zk->stop($strayed);
$zk->wipe($strayed);
$zk->start($strayed);
$zk->wait_elected;
ZkLock::wait_connected($a);
is($sa->query("SELECT zk_assert('kept')"), $kept, 'what was held is held still');
is($sb->query("SELECT zk_try_lock('kept')"), 'f', '... and excludes');
is(ZkLock::ask($a, 'SELECT session_id FROM zk_session'), $session, '... in the same ZooKeeper session');
is($sa->query("SELECT zk_unlock('kept')"), 't', '... and is given back');
ZkLock::ok_clean($zk, [ $a, $b ], $_) for 'kept', 'strayed1';

done_testing();
