# A loss that a session was told of is one, also if the clock alone said so and the ZooKeeper
# session turns out to live.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
# The ensemble gives the session its whole timeout again when it starts: time to come back.  It
# is to end in the outage alone, and not where the machine stands still for some seconds.
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '20s'\nzklock.elections = 'e'");
my $b = ZkLock::server('b', $zk);
ZkLock::wait_connected($a, $b);
ZkLock::ask($a, 'CREATE TABLE t (i int); CREATE ROLE careless LOGIN IN ROLE pg_monitor; GRANT INSERT ON t TO careless;
	GRANT EXECUTE ON FUNCTION zk_lock TO careless; GRANT SET ON PARAMETER zklock.on_loss TO careless');

sub state_of { my $name = shift; return ZkLock::ask($a, "SELECT string_agg(DISTINCT grant_state, ' ') FROM zk_locks WHERE name = '$name'"); }

# Session scope: how it is taken, and how the loss is acknowledged
my %session = (
	'exclusive' => [ "SELECT zk_lock('exclusive', scope => 'session')" ],
	'twice' => [ "SELECT zk_lock('twice', scope => 'session') FROM generate_series(1, 2)" ],
	'shared' => [ "SELECT zk_lock('shared', 'shared', 'session')" ],
	'both' => [ "SELECT zk_lock('both', 'shared', 'session'); SELECT zk_lock('both', 'exclusive', 'session')" ],
	'permit' => [ "SELECT zk_acquire('permit', 2, 'session')", 'zk_release' ],
);
# Transaction scope
my %transaction = (
	'lock' => "SELECT zk_lock('lock')",
	'permit too' => "SELECT zk_acquire('permit too', 2)",
	'e' => "SELECT zk_require_leader('e')",
);
my (%s, %token, $careless);

# One outage, longer than the timeout: each session is told of its loss, and then the
# ZooKeeper session goes on.  On a slow machine it may end after all, or before, or zk_require_leader
# not hear in its two seconds who leads: then again.
sub outage
{
	my $id = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
	for my $name (sort keys %session)
	{
		$s{$name} = ZkLock::session($a);
		($token{$name}) = $s{$name}->query($session{$name}[0]) =~ /(\d+)$/;
	}
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT zk_is_leader('e')") eq 't' }, 'A leads');
	for my $name (sort keys %transaction)
	{
		$s{$name} = ZkLock::session($a);
		return if $s{$name}->fails("BEGIN; $transaction{$name}; SAVEPOINT s") =~ /^40001/;
	}
	$careless = ZkLock::session($a, user => 'careless');
	$careless->query("SET zklock.on_loss = warn; SELECT zk_lock('careless', scope => 'session')");
	$zk->stop;
	$_->send('INSERT INTO t SELECT 1 FROM pg_sleep(3600)') for values %s;
	my %told = map { $_ => $s{$_}->failure . "\n" . $s{$_}->notices } keys %s;
	$careless->query('INSERT INTO t VALUES (2)');
	$told{careless} = $careless->notices;
	$zk->start;
	ZkLock::wait_connected($a, $b);
	return ZkLock::ask($a, 'SELECT session_id FROM zk_session') eq $id ? \%told : undef;
}

my $told;
for (1 .. 10)
{
	last if $told = outage();
	$_->quit for values %s, $careless // ();
}
ok($told, 'the ZooKeeper session goes on after the outage');
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT lease_remaining > '0' FROM zk_session") eq 't' }, 'there is a lease again');

my $since = qr/^DETAIL:  ZooKeeper has not confirmed this server's session since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\S+; another (?:server|session) may (hold it|have it|lead) by now\.$/m;
like($told->{$_}, qr/^55000: [\w ]+ "$_" was lost\n/, "$_: lost") for sort keys %session;
like($told->{$_}, qr/^40001: .*"$_" was lost\n/, "$_: lost") for sort keys %transaction;
like($told->{$_}, $since, "$_: ... and what is known of it") for sort keys %s;

# It stays so.
for my $name (sort keys %session)
{
	like($s{$name}->fails('INSERT INTO t VALUES (1)'), qr/^55000: [\w ]+ "$name" was lost$/, "$name: still lost");
	like($s{$name}->notices, $since, '... for the same reason');
	is(state_of($name), 'lost', '... and shown so') unless $session{$name}[1];
}
for my $name (sort keys %transaction)
{
	$s{$name}->query('ROLLBACK TO s');
	like($s{$name}->fails('INSERT INTO t VALUES (1)'), qr/^40001: .*"$name" was lost$/, "$name: still lost");
	$s{$name}->query('ROLLBACK');
	is($s{$name}->query('SELECT 1'), 1, '... until the transaction is rolled back');
}
$careless->query('INSERT INTO t VALUES (2)');
like($careless->notices, qr/^WARNING 01000: lock "careless" was lost/, 'on_loss = warn: the same');

# Another server gets what was given up, and has a larger token than the session that was told.
my $other = ZkLock::session($b);
for my $name (grep { !$session{$_}[1] } sort keys %session)
{
	my $larger = $other->query("SELECT zk_lock('$name')");
	cmp_ok($larger, '>', $token{$name}, "$name: another server has it");
	$token{$name} = $larger;
}

# What the hint says: the lock is taken anew, once, and a release ends it.
for my $name (sort keys %session)
{
	my ($take, $release) = @{ $session{$name} };
	$take = "SELECT zk_lock('$name', scope => 'session')" unless $release;
	cmp_ok($s{$name}->query($take), '>', $token{$name}, "$name: taken anew");
	$s{$name}->query('INSERT INTO t VALUES (3)');
	my $unlock = 'SELECT ' . ($release // 'zk_unlock') . "('$name')";
	is($s{$name}->query($unlock), 't', '... and released');
	$s{$name}->query($unlock);
	like($s{$name}->notices, qr/^WARNING/, '... which is all there was');
}
is($careless->query("SELECT zk_lock('careless', scope => 'session') > 0"), 't', 'on_loss = warn: taken anew');
$careless->query('INSERT INTO t VALUES (2)');
is($careless->notices, '', '... without a warning');
is(ZkLock::ask($a, 'SELECT count(*) FROM t WHERE i = 1'), 0, 'nothing was written in vain');

# Nothing is left behind.
$_->quit for values %s, $careless;
ZkLock::ok_clean($zk, [ $a, $b ], $_) for grep { !$session{$_}[1] } sort keys %session;

done_testing();
