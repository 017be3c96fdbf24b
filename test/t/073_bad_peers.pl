# What others may do to us in ZooKeeper: full directories, odd names, large data,
# names that claim to be ours, nodes that we may not touch, a disk that is full.
use strict;
use warnings;

use Proxy;
use Test::More;
use Time::HiRes qw(time);
use ZkLock;

my $zk = ZooKeeper->new(tick_time => 500)->start;
my $other = $zk->client;
my ($a, $b) = map { ZkLock::server($_, $zk) } qw(a b);
ZkLock::wait_connected($a, $b);
my $s = ZkLock::session($a);
my $t = ZkLock::session($b);

sub worker { my $node = shift; return ZkLock::ask($node, 'SELECT worker_pid FROM zk_session'); }

sub memory
{
	my $node = shift;
	return PostgreSQL::Test::Utils::slurp_file('/proc/' . worker($node) . '/status') =~ /^VmRSS:\s+(\d+)/m ? $1 : 0;
}

my %worker = (a => worker($a), b => worker($b));
my %started = map { $_->name => ZkLock::ask($_, 'SELECT pg_postmaster_start_time()') } $a, $b;

# Nothing of all this ends a worker, let alone a server.
sub ok_alive
{
	my $what = shift;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(worker($_), $worker{ $_->name }, "$what: the worker of " . $_->name . ' goes on') for $a, $b;
}

#
# A directory with 50,000 children that are no contenders.  A listing of them is
# larger than what ZooKeeper takes in one packet, and than what it usually sends.
#
$other->create('/zklock/locks/full', mode => 'persistent', parents => 1);
$other->create_many(persistent => map { sprintf '/zklock/locks/full/%s-%05d-none', 'x' x 50, $_ } 1 .. 50_000);
cmp_ok($s->query("BEGIN; SELECT zk_lock('full')"), '>', 0, '50,000 children: a lock');
$t->send("BEGIN; SELECT zk_lock('full')")->wait_level(2);
is($s->query('COMMIT'), '', '... is given back');
cmp_ok($t->result, '>', 0, '... and passed on');
$t->query('COMMIT');
ok_alive('full');
my $before = memory($a);
is($s->query("SELECT zk_try_lock('full', scope => 'session', timeout => '1 h'); SELECT zk_unlock('full')"), "t\nt", '... again')
  for 1 .. 20;
cmp_ok(memory($a) - $before, '<', 30_000, '... and no memory is lost');

# ... and with 50,000 that stand in line
$other->create('/zklock/locks/line', mode => 'persistent');
$other->create_many(ephemeral_sequential => ("/zklock/locks/line/_c_" . '0' x 36 . '-lock-') x 50_000);
is($s->query("SELECT zk_try_lock('line')"), 'f', '50,000 contenders: not free');
$s->send("SELECT zk_lock('line') > 0")->wait_level(2);
is($s->cancel->failure, '57014: canceling statement due to user request', '... a wait is cancelled');
ok_alive('line');
$other->close;
$other = $zk->client;
is($s->query("SELECT zk_try_lock('line', timeout => '1 h')"), 't', '... they go, and it is free');

#
# Names that are no contenders
#
my $directory = '/zklock/locks/odd';
$other->create($directory, mode => 'persistent');
$other->create("$directory/$_", mode => 'ephemeral')
  for '0', '-', '0000000000x', '_c_', '_c_-lock-', "j\xc3\xb6b", 'x--0000000x01', 'x' x 10_000, '-000000000',
  '9999999999', '_c_00000000-0000-0000-0000-000000000000-lock-', '_c_zzzzzzzz-0000-0000-0000-000000000000-lock-4294967296';
is($s->query("SELECT zk_try_lock('odd', timeout => '1 h')"), 't', 'odd names stand in nobody\'s way');
# This reads as -1, which ZooKeeper gives to nobody
$other->create("$directory/lock-000000001", mode => 'ephemeral');
like($t->fails("SELECT zk_lock('odd')"), qr/^55000: queue of lock "odd" has a contender whose sequence number was never given/, 'a negative number is refused');
$other->delete("$directory/lock-000000001");
# Long, but a contender
my $long = $other->create("$directory/" . 'y' x 10_000 . '-', mode => 'ephemeral_sequential');
is($s->query("SELECT zk_try_lock('odd')"), 'f', 'a contender with a long name does');
$s->send("SELECT zk_lock('odd') > 0")->wait_level(2);
$other->delete($long);
is($s->result, 't', '... until it goes');
ok_alive('odd');
$other->delete("$directory/$_") for @{ $other->children($directory) };

#
# 1 MB of data, in the directory and in the contender that is waited for
#
my $mb = 'x' x 1_000_000;
$other->create('/zklock/locks/data', mode => 'persistent', data => $mb);
my $first = $other->create('/zklock/locks/data/_c_' . '1' x 36 . '-lock-', mode => 'ephemeral_sequential', data => $mb);
$s->send("SELECT zk_lock('data') > 0")->wait_level(2);
ZkLock::wait_until(sub { grep { $_ eq $first } $zk->watches }, 'it is watched');
$other->set($first, "$_$mb") for 1 .. 5;
ok($s->busy, '1 MB of data: it waits');
$other->delete($first);
is($s->result, 't', '... and is granted');
ok_alive('data');

#
# A contender that claims to be ours: the name of the holder's, of the waiter's
#
my $holder = "BEGIN; SELECT zk_lock('claim') > 0";
is($s->query($holder), 't', 'a holder');
$t->send("BEGIN; SELECT zk_lock('claim') > 0")->wait_level(2);
my @queue = ZkLock::wait_queue($zk, 'claim', 2);
# which both have listed: who lists later is told of a number that was never given
ZkLock::wait_until(sub { grep { $_ eq "/zklock/locks/claim/$queue[0]" } $zk->watches }, 'the waiter watches the holder');
for my $name (@queue)
{
	my ($stem) = $name =~ /^(.*-)\d+$/;
	$other->create("/zklock/locks/claim/$stem", mode => 'ephemeral_sequential');
	$other->create("/zklock/locks/claim/$stem" . '2000000000', mode => 'ephemeral');
	$other->create("/zklock/locks/claim/$stem" =~ s/-lock-$/-read-lock-/r, mode => 'ephemeral_sequential');
}
ok($t->busy, 'false names: the waiter waits');
is($s->query("SELECT zk_assert('claim') > 0"), 't', '... the holder holds');
is($s->query("SELECT zk_lock('claim') > 0; COMMIT"), 't', '... and lets go');
is($t->result, 't', '... and the waiter gets it');
is($t->query("SELECT zk_assert('claim') > 0; COMMIT"), 't', '... and lets go');
my $u = ZkLock::session($a);
$other->close;
$other = $zk->client;
is($u->query("SELECT zk_try_lock('claim', timeout => '1 h')"), 't', '... and all is well when they are gone');
ok_alive('claim');
ZkLock::ok_clean($zk, [ $a, $b ], 'claim');

#
# Nodes that we may not touch
#
$other->create('/zklock/locks/forbidden', mode => 'persistent', acl => [ [ 1, 'world', 'anyone' ] ]);
is($s->fails("SELECT zk_lock('forbidden')"), '58000: ZooKeeper refused the request for lock "forbidden": not authenticated',
	'a directory that we may not write');
is($s->fails("SELECT zk_try_lock('forbidden')"), '58000: ZooKeeper refused the request for lock "forbidden": not authenticated', '... try');
like($s->notices, qr/^HINT:  Check the permissions of the znodes under "zklock\.root"\.$/m, '... with a hint');
is($s->query("SELECT zk_try_lock('job')"), 't', '... and others are none the worse');
$other->create('/closed', mode => 'persistent');
$other->create('/closed/locks', mode => 'persistent', acl => [ [ 1, 'world', 'anyone' ] ]);
$other->create('/closed/servers', mode => 'persistent', acl => [ [ 1, 'world', 'anyone' ] ]);
my $proxy = Proxy->new($zk->host);
my $c = ZkLock::server('c', $proxy, conf => "zklock.connect_timeout = '1s'\nzklock.root = '/closed'");
my $v = ZkLock::session($c);
sub last_error { return ZkLock::ask($c, 'SELECT last_error FROM zk_session'); }
my $refused = qr{^ZooKeeper refused a request of the worker on /closed/servers/c-\w+: not authenticated$};
# Another error may come first on a slow machine.
ZkLock::wait_until(sub { last_error() =~ $refused }, 'the error', \&last_error);
pass('a root that we may not write: an error');
$proxy->down;
ZkLock::wait_until(sub { last_error() !~ $refused }, 'another error');
$proxy->heal;
ZkLock::wait_until(sub { last_error() =~ $refused }, 'it is refused again', \&last_error);
pass('... and so it is after another one');
like($v->fails("SELECT zk_lock('job')"), qr/^58000: /, '... no lock');
# a slow machine makes fewer, in more time; without a pause they are thousands a second
my ($packets, $start) = ($zk->packets, time);
$v->query('SELECT pg_sleep(2)');
cmp_ok($zk->packets - $packets, '<', 200 * (time - $start), '... and no storm');
$c->stop;

#
# A disk that is full: ZooKeeper cannot write its log, and gives up
#
is(ZkLock::ask($_, 'SELECT pg_postmaster_start_time()'), $started{ $_->name }, $_->name . ' was never restarted') for $a, $b;
$_->stop for $a, $b;
SKIP:
{
	# with the disk goes what ZooKeeper knew: a session timeout is waited
	my $e = ZkLock::server('e', $zk, conf => "zklock.session_timeout = '10s'");
	ZkLock::wait_connected($e);
	my ($x, $y) = map { ZkLock::session($e) } 1, 2;
	$x->query("BEGIN; SELECT zk_lock('held')");
	skip 'no prlimit', 5 if system('prlimit', '--pid', $zk->pid, '--fsize=20000:20000') != 0;
	eval { $other->set('/closed', 'x' x 5_000) for 1 .. 50; };
	$y->query("SET zklock.connect_timeout = '1s'");
	my $failed = '';
	ZkLock::wait_until(sub { ($failed = $y->fails("SELECT zk_lock('full disk')")) ne '' }, 'an error');
	like($failed, qr/^58000: could not reach ZooKeeper/, 'a full disk: no lock');
	like($x->fails("COMMIT"), qr/^(40001: lock "held" was lost|$)/, "... what is held is held as long as the lease says so");
	# what it has written by then, it cannot read
	$zk->kill9;
	system('rm', '-r', "$zk->{dir}/1/data/version-2") == 0 or die;
	$zk->start;
	ZkLock::wait_until(sub { ZkLock::ask($e, "SELECT state FROM zk_session") eq 'connected' }, 'a new disk');
	$y->query("SET zklock.connect_timeout = '1 h'");
	is($y->query("SELECT zk_try_lock('full disk', timeout => '1 h')"), 't', '... and when there is room, all is well');
	is($x->query("SELECT zk_try_lock('held', timeout => '1 h')"), 't', '... for everybody');
	unlike(PostgreSQL::Test::Utils::slurp_file($e->logfile), qr/was terminated by signal|PANIC/, 'e: no crash');
	$e->stop;
}
unlike(PostgreSQL::Test::Utils::slurp_file($_->logfile), qr/was terminated by signal|PANIC/, $_->name . ': no crash') for $a, $b, $c;

#
# An ensemble that can only be read: a server without a quorum, which serves such
# clients as want no more
#
{
	local $ENV{JDK_JAVA_OPTIONS} = '-Dreadonlymode.enabled=true';
	my $three = ZooKeeper->new(name => 'readonly', servers => 3, tick_time => 200)->start;
	my $d = ZkLock::server('d', $three, conf => "zklock.session_timeout = '4s'");
	my $w = ZkLock::session($d);
	ZkLock::wait_connected($d);
	$w->query("BEGIN; SELECT zk_lock('held')");
	$three->stop(2, 3);
	ZkLock::wait_until(sub { ($three->mode(1) // '') eq 'read' }, 'a server that can only be read');
	like(ZkLock::session($d)->fails("SET zklock.connect_timeout = '1s'; SELECT zk_lock('job')"), qr/^58000: could not reach ZooKeeper within 1000 ms/, 'read-only: no lock');
	like($w->fails('COMMIT'), qr/^(40001: lock "held" was lost|$)/, '... what is held is held as long as the lease says so');
	$three->start(2, 3);
	ZkLock::wait_connected($d);
	is($w->query("SELECT zk_try_lock('job', timeout => '1 h')"), 't', '... and with a quorum, all is well');
	$d->stop;
}

done_testing();
