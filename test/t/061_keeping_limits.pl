# How long, and how many: what ends the keeping of grants besides others' wishes.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

# Directories are watched until they are reaped.
my $zk = ZooKeeper->new(servers => 3, container_check_ms => 10_000)->start;
my (undef, $follower) = $zk->wait_elected;
my $proxy = Proxy->new($zk->host($follower));
my $a = ZkLock::server('a', $proxy, conf => "zklock.keep_time = '1h'\nmax_locks_per_transaction = 200");
ZkLock::wait_connected($a);
my $s = ZkLock::session($a);
my $other = ZkLock::session($a);
my $foreign = $zk->client;

sub set { my ($name, $value) = @_; return ZkLock::set($a, $name, $value); }

# Names of which a contender exists.
sub contended
{
	my @paths = grep { m{^/zklock/locks/} } map { @$_ } values %{ $zk->sessions };
	return map { m{^/zklock/locks/(.*)/} } @paths;
}

sub wait_contended
{
	my ($names, $what) = @_;
	my $now;
	eval { ZkLock::wait_until(sub { ($now = join ' ', sort(contended())) eq $names }, 'the right names are kept') };
	return is($now, $names, $what);
}

#
# Time
#
my $token = $s->query("SELECT zk_lock('job')");
is($s->query("SELECT zk_lock('job')"), $token, 'kept for an hour');
set('zklock.keep_time', '0');
wait_contended('', 'keep_time = 0 by a reload gives up what is kept');
cmp_ok($s->query("SELECT zk_lock('job')"), '>', $token, '... the next one is new');
wait_contended('', '... and is not kept');
set('zklock.keep_time', '500ms');
# One that is used all the time stays, however short the time.
ZkLock::wait_until(
	sub {
		$token = $s->query("SELECT zk_lock('job')");
		return $s->query("SELECT zk_lock('job')") == $token;
	},
	'the worker has read the new time');
wait_contended('', 'a grant that nobody uses for keep_time is given up');
cmp_ok($s->query("SELECT zk_lock('job')"), '>', $token, '... the next one is new');
$token = $s->query("BEGIN; SELECT zk_lock('held')");
wait_contended('held', '... but not one that is held');
is($s->query("SELECT pg_sleep(1); SELECT zk_token('held')"), "\n$token", '... for longer than that');
$s->query('COMMIT');
wait_contended('', '... until it has been unused for so long, too');

set('zklock.keep_time', '1h');

#
# zk_try_lock after a release that happened elsewhere: never falsely false
#
my $directory = ZkLock::directory('try');
my ($false, $true) = (0, 0);
for my $i (1 .. 50)
{
	my $path = $foreign->contend($directory);
	# what we kept goes
	ZkLock::wait_queue($zk, 'try', 1);
	for my $j (1, 2)
	{
		$false++ if $s->query("SELECT zk_try_lock('try')") eq 'f';
		# The first one queued to find out; what it knew is forgotten with its contender.
		ZkLock::wait_queue($zk, 'try', 1);
	}
	# It waits no more than until its own server has heard of it.
	$foreign->delete($path);
	$true++ if $s->query("SELECT zk_try_lock('try')") eq 't';
}
is($false, 100, 'zk_try_lock behind somebody else');
is($true, 50, '... and at once after they released it at another ZooKeeper server');

#
# Long names: not more than the ensemble can be told to watch
#
my $names = 800;
my $name = q{repeat('/', 240) || i};
my $length = length(ZkLock::directory('/' x 240 . 1));
my $enough = int(512 * 1024 / ($length + 7));
cmp_ok($enough, '<', $names - 50, 'there are more names than can be watched');
is($s->query("SELECT count(zk_lock($name)) FROM generate_series(1, $names) i"), $names, 'many long names are held');
my $kept;
ZkLock::wait_until(sub { ($kept = grep { /%2F/ } contended()) < $enough + 20 }, 'not many more are kept than can be watched');
# the worker has gone round when it has answered
is($s->query("SELECT count(*) FROM zk_contenders('nobody')"), 0, '... which the worker has seen') for 1 .. 3;
cmp_ok(scalar(grep { /%2F/ } contended()), '>=', $enough, 'as many as can be watched are kept');
is($s->query("SELECT count(zk_lock($name)) FROM generate_series(1, $names) i"), $names, 'all can be held again');
my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
$proxy->cut;
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT last_error ~ 'lost connection' FROM zk_session") eq 't' }, 'the cut is noticed');
ZkLock::wait_connected($a);
is($s->query("SELECT count(zk_lock($name)) FROM generate_series(1, $names) i"), $names, '... and on a new connection');
is(ZkLock::ask($a, 'SELECT session_id FROM zk_session'), $session, '... of the same session');
set('zklock.keep_time', '0');
wait_contended('', 'all are given back');
ZkLock::wait_until(sub { ZkLock::watch_count($zk, $follower) == 0 }, 'no watch is left');
ok(1, '... and no watch is left');

# With a table of another size.
sub restart_with
{
	my ($max_locks) = @_;
	ZkLock::hang_up($a);
	$_->quit for $s, $other;
	$a->append_conf('postgresql.conf', "zklock.max_locks = $max_locks");
	$a->restart;
	ZkLock::wait_connected($a);
	($s, $other) = map { ZkLock::session($a) } 1, 2;
	return;
}

#
# Number: a tenth of the table; those that were used last survive
#
set('zklock.keep_time', '1h');
restart_with(30);
$token = $s->query("SELECT zk_lock('n1')");
$s->query("SELECT zk_lock('$_')") for qw(n2 n3);
wait_contended('n1 n2 n3', 'max_locks 30: three names are kept');
is($s->query("SELECT zk_lock('n1')"), $token, '... the first is used again');
$s->query("SELECT zk_lock('$_')") for qw(n4 n5);
wait_contended('n1 n4 n5', '... two more: the three used last are kept');
is($s->query("SELECT zk_lock('n1')"), $token, '... and not touched');
$s->query('BEGIN');
$s->query("SELECT zk_lock('h$_')") for 1 .. 5;
wait_contended('h1 h2 h3 h4 h5 n1 n4 n5', 'those that are held do not count');
$s->query('COMMIT');
# they were given back one by one, in the order of the transaction's list
ZkLock::wait_until(sub { contended() == 3 }, 'three are left');
is(scalar(grep { /^h/ } contended()), 3, '... and count when they were given back');

#
# A full table
#
restart_with(4);
# Full means an error at once: connect_timeout is longer than anybody waits here.
my @errors = grep { $_ ne '' } map { $s->fails("SELECT zk_lock('full $_')") } 1 .. 30;
is("@errors", '', 'a table full of kept grants makes room for another name');
ZkLock::wait_until(sub { contended() >= 1 }, 'the last ones are kept');
ok((grep { $_ eq 'full 30' } contended()), '... and keeps the newest');
for my $i (1 .. 20)
{
	$other->query('BEGIN');
	push @errors, grep { $_ ne '' } map { $other->fails("SELECT zk_lock('held $i $_')") } 1 .. 3;
	push @errors, $s->fails("SELECT zk_lock('kept $i')");
	push @errors, $s->fails("SELECT zk_lock('another $i')");
	push @errors, $s->fails("SELECT zk_try_lock('try $i')");
	push @errors, 'false' if $errors[-1] eq '' && $s->{answer} ne 't';
	$other->query('COMMIT');
}
is_deeply([ grep { $_ ne '' } @errors ], [], '... also if all others are held');
$other->query('BEGIN');
$other->query("SELECT zk_lock('held $_')") for 1 .. 4;
is($s->fails("SELECT zk_lock('another')"), '53200: zklock lock table is full', 'a table full of names that are held');
is($other->query("SELECT count(zk_token('held ' || i)) FROM generate_series(1, 4) i"), 4, '... all of which stay');
$other->query('COMMIT');
is($s->fails("SELECT zk_lock('another')"), '', '... until one of them is kept for nobody');

done_testing();
