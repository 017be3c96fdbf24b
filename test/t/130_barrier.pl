# Sessions that meet at a barrier: rounds, those who leave, errors, roles, views.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => "max_connections = 60");
my $b = ZkLock::server('b', $zk, conf => "max_connections = 60");
my @both = ($a, $b);

sub parties { my ($name) = @_; return $zk->children(ZkLock::directory($name, 'barriers')); }

# A session that waits there, and its node is there.
sub come
{
	my ($s, $name, $parties, $more) = @_;
	my $n = () = parties($name);
	$s->send("CALL zk_barrier('$name', $parties" . ($more // '') . ')')->wait_event('Extension');
	$zk->wait_children(ZkLock::directory($name, 'barriers'), $n + 1);
	return $s;
}

sub ok_clean
{
	my ($name, $what) = @_;
	ZkLock::wait_until(sub { !parties($name) }, "nobody is left at $name");
	ZkLock::wait_until(sub { ZkLock::ask($_, 'SELECT waiting FROM zk_stat_barriers') == 0 }, 'no slot is left') for @both;
	pass("$what: nothing is left");
}

#
# Two servers meet, again and again
#
my ($x, $y, $z) = map { ZkLock::session($_) } $a, $b, $a;
come($x, 'step', 2);
ok($x->busy, 'one waits');
is(ZkLock::ask($b, 'SELECT name, parties, arrived, server, pid, ours FROM zk_barriers'),
	join('|', 'step', 2, 1, 'a', $x->{pid}, 'f'), 'zk_barriers shows who is there');
is(ZkLock::ask($a, "SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $x->{pid}"), 't', 'it waits without a snapshot');
is($y->query("CALL zk_barrier('step', 2); SELECT 1"), 1, 'the second one opens the round');
is($x->result, '', '... for both');
is(ZkLock::ask($b, 'SELECT count(*) FROM zk_barriers'), 0, 'nobody is there');
for my $round (1 .. 20)
{
	my ($fast, $slow) = $round % 2 ? ($x, $y) : ($y, $x);
	$fast->send("CALL zk_barrier('step', 2); CALL zk_barrier('step', 2)");
	$slow->query("CALL zk_barrier('step', 2)");
	$zk->wait_children(ZkLock::directory('step', 'barriers'), 1);
	ok($fast->busy, "round $round: the fast one waits for the next one");
	$slow->query("CALL zk_barrier('step', 2)");
	$fast->result;
}
ok_clean('step', 'rounds in a row');

# Three of two servers, and parties of one server alone.
come($x, 'three', 3);
come($z, 'three', 3);
$y->query("CALL zk_barrier('three', 3)");
$_->result for $x, $z;
come($x, 'near', 2);
$z->query("CALL zk_barrier('near', 2)");
$x->result;
is($x->query("CALL zk_barrier('alone', 1); SELECT 1"), 1, 'one alone waits for nobody');
is_deeply([ parties('alone') ], [], '... and leaves no trace');
# Names are apart from those of locks.
$x->query("BEGIN; SELECT zk_lock('three')");
come($z, 'three', 2);
$y->query("CALL zk_barrier('three', 2)");
$z->result;
$x->query('COMMIT');

#
# Those who leave
#
come($x, 'leave', 2);
is($x->cancel->failure, '57014: canceling statement due to user request', 'cancelled');
ok_clean('leave', 'cancel');
come($x, 'leave', 2);
$x->terminate->failure;
ok_clean('leave', 'terminate');
$x = ZkLock::session($a);
come($x, 'leave', 2);
$x->kill_client;
ZkLock::ask($a, 'SELECT pg_terminate_backend(' . $x->{pid} . ')');
ok_clean('leave', 'a client that is gone');
$x = ZkLock::session($a);
# How many there were is told if the answer comes in time.
sub fails_in_time
{
	my ($timeout) = @_;
	my $failure;
	ZkLock::wait_until(sub { $failure = $x->fails("CALL zk_barrier('leave', 2, '$timeout')"); $x->notices =~ /^DETAIL/m }, 'it has a detail', sub { $failure });
	return $failure;
}
is(fails_in_time('10 ms'), '55P03: barrier "leave" was not opened within 10 ms', 'a timeout');
like($x->notices, qr/DETAIL: .*1 of 2 parties were there/, '... says how many were there');
is($x->fails("CALL zk_barrier('leave', 2, '0')"), '55P03: barrier "leave" was not opened within 0 ms', 'no time at all');
$x->query("SET lock_timeout = '10ms'");
is(fails_in_time('1 h'), '55P03: canceling statement due to lock timeout', 'lock_timeout');
like($x->notices, qr/DETAIL: .*1 of 2 parties/, '... likewise');
$x->query('RESET lock_timeout');
ok_clean('leave', 'timeouts');

# Who has left does not count: the two who stay wait for a third.
come($x, 'leave', 3);
come($z, 'leave', 3);
$z->cancel->failure;
ZkLock::wait_until(sub { (() = parties('leave')) == 1 }, 'one has left');
come($y, 'leave', 3);
ok($x->busy && $y->busy, 'two of three wait, though three have come');
$z->query("CALL zk_barrier('leave', 3)");
$_->result for $x, $y;
ok_clean('leave', 'a round with one who had left');

#
# Numbers
#
come($x, 'numbers', 3);
is($y->fails("CALL zk_barrier('numbers', 2)"), '22023: barrier "numbers" is for 3 parties, not 2', 'another number');
like($y->notices, qr/DETAIL: .*first/, '... is told');
ok($x->busy, '... and the first one waits on');
$x->cancel->failure;
ok_clean('numbers', 'numbers');
for my $n (-1, 0, 501)
{
	is($x->fails("CALL zk_barrier('n', $n)"), '22023: number of parties must be between 1 and 500', "$n parties");
}

#
# Where it cannot be called
#
is($x->fails("CALL zk_barrier(NULL, 2)"), '22004: barrier name must not be null', 'no name');
is($x->fails("CALL zk_barrier('n', NULL)"), '22004: number of parties must not be null', 'no number');
is($x->fails("CALL zk_barrier('', 2)"), '22023: barrier name must not be empty', 'an empty name');
is($x->fails("CALL zk_barrier('n', 2, '-1 s')"), '22023: timeout must not be negative or out of range', 'a negative timeout');
for my $parties (1, 2)
{
	$x->query('BEGIN');
	is($x->fails("CALL zk_barrier('n', $parties)"), '25001: zk_barrier cannot run inside a transaction block', "in a transaction block, $parties");
	$x->query('ROLLBACK');
}
$x->query("CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN CALL zk_barrier('n', 2); END \$\$");
is($x->fails('SELECT f()'), '25001: zk_barrier cannot run inside a transaction block', 'in a function');
come($y, 'procedure', 2);
$x->query("DO \$\$ BEGIN CALL zk_barrier('procedure', 2); END \$\$");
$y->result;
pass('in a DO block');
$x->query('CREATE ROLE nobody');
$x->query('SET ROLE nobody');
is($x->fails("CALL zk_barrier('n', 2)"), '42501: permission denied for procedure zk_barrier', 'not for everybody');
is($x->fails('SELECT * FROM zk_barriers'), '42501: permission denied for view zk_barriers', '... nor to look');
$x->query('RESET ROLE; GRANT EXECUTE ON PROCEDURE zk_barrier TO nobody; GRANT pg_monitor TO nobody; SET ROLE nobody');
is($x->query("CALL zk_barrier('n', 1); SELECT count(*) FROM zk_barriers"), 0, 'but to whom it is granted');
is($x->query('SELECT waiting FROM zk_stat_barriers'), 0, '... and pg_monitor');
$x->query('RESET ROLE');

# Namespaces.
ZkLock::ask($a, "ALTER DATABASE postgres SET zklock.namespace = 'team'");
my $team = ZkLock::session($a);
come($z, 'space', 2);
$team->send("CALL zk_barrier('space', 2)");
ZkLock::wait_until(sub { (() = $zk->children('/zklock/barriers/team%FFspace')) == 1 }, 'it is in its namespace');
ok($z->busy && $team->busy, 'namespaces are apart');
my $other = ZkLock::session($a);
is($other->query('SELECT name, arrived FROM zk_barriers'), 'space|1', '... also in zk_barriers');
is($other->query("CALL zk_barrier('space', 2); SELECT 1"), 1, '... and one meets there');
$team->result;
ZkLock::ask($a, 'ALTER DATABASE postgres RESET zklock.namespace');
$z->cancel->failure;
ok_clean('space', 'namespaces');

#
# Locks that wait along, and drain
#
$x->query("SELECT zk_lock('held', scope => 'session')");
come($x, 'holding', 2);
is($y->query("SELECT zk_try_lock('held')"), 'f', 'a lock of the session stays held');
$y->query("CALL zk_barrier('holding', 2)");
$x->result;
is($x->query("SELECT zk_unlock('held')"), 't', '... and is held afterwards');
come($x, 'drain', 2);
ZkLock::ask($a, "ALTER SYSTEM SET zklock.drain = on; SELECT pg_reload_conf()");
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT drain FROM zk_session') eq 'draining' }, 'a drains');
$y->query("CALL zk_barrier('drain', 2)");
$x->result;
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT drain FROM zk_session') eq 'drained' }, 'a is drained');
ZkLock::ask($a, "ALTER SYSTEM RESET zklock.drain; SELECT pg_reload_conf()");
pass('who waits is waited for by drain');

# DROP EXTENSION does not touch who waits.
ZkLock::ask($a, 'CREATE DATABASE other');
my $dropped = ZkLock::session($a, dbname => 'other');
$dropped->query('CREATE EXTENSION zklock');
come($dropped, 'drop', 2);
my $dropper = ZkLock::session($a, dbname => 'other');
$dropper->query('DROP EXTENSION zklock');
$y->query("CALL zk_barrier('drop', 2)");
$dropped->result;
pass('DROP EXTENSION beside one who waits');
$_->quit for $dropped, $dropper;

#
# Statistics
#
is(ZkLock::ask($a, 'SELECT waiting, passed > 20, timeouts >= 3, cancels >= 5, opened > 5, longest_wait > \'0\' FROM zk_stat_barriers'),
	'0|t|t|t|t|t', 'zk_stat_barriers');
is(ZkLock::ask($a, 'SELECT zk_stat_reset(); SELECT passed, opened FROM zk_stat_barriers'), "\n0|0", '... is reset');
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_locks'), 0, 'no lock is left');

#
# Many: 8 and 32 parties
#
for my $n (8, 32)
{
	my @sessions = map { ZkLock::session($both[ $_ % 2 ]) } 1 .. $n;
	$_->query('SELECT 1') for @sessions;
	for my $round (1 .. 3)
	{
		my @early = @sessions[ 1 .. $#sessions ];
		$_->send("CALL zk_barrier('many', $n); SELECT 'through'") for @early;
		$zk->wait_children(ZkLock::directory('many', 'barriers'), $n - 1);
		is(scalar(grep { $_->busy } @early), $n - 1, "$n parties, round $round: all but one wait");
		is($sessions[0]->query("CALL zk_barrier('many', $n); SELECT 'through'"), 'through', '... the last one goes');
		is(scalar(grep { $_->result eq 'through' } @early), $n - 1, '... with all others');
	}
	# all at once
	$_->send("DO \$\$ BEGIN FOR i IN 1..10 LOOP CALL zk_barrier('many', $n); END LOOP; END \$\$") for @sessions;
	$_->result for @sessions;
	pass("$n parties, ten rounds in a row");
	$_->quit for @sessions;
}
ok_clean('many', 'many');

done_testing();
