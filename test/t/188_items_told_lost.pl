# An item that a session was told is lost is lost, also if the clock alone said so and the
# ZooKeeper session turns out to live.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Queues qw(length_is);
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
# The ensemble gives the session its whole timeout again when it starts: time to come back.  It
# is to end in the outage alone, and not where the machine stands still for some seconds.
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '20s'");
my $b = ZkLock::server('b', $zk);
ZkLock::wait_connected($a, $b);
ZkLock::ask($a, 'CREATE TABLE t (s text, payload text)');

# What a session has, and how it is told: the last line of each.  What follows is its COMMIT.
my $take = sub { return "INSERT INTO t SELECT '$_[0]', payload || attempt FROM zk_queue_take('$_[0]')" };
my %case = (
	savepoint => [ $take->('savepoint') . '; SAVEPOINT s', $take->('savepoint') ],
	# told of the newest, which is rolled back
	several => [ join('; ', $take->('several'), $take->('several'), 'SAVEPOINT s', $take->('several')), $take->('several') ],
	nested => [ 'SAVEPOINT r; ' . $take->('nested') . '; RELEASE r; SAVEPOINT s', $take->('nested') ],
	caught => [ $take->('caught') . '; SAVEPOINT s', "DO \$\$ BEGIN PERFORM FROM zk_queue_take('caught'); EXCEPTION WHEN serialization_failure THEN INSERT INTO t VALUES ('caught', 'told'); END \$\$" ],
	# nobody has told it
	untold => [ $take->('untold') ],
	'all rolled back' => [ 'SAVEPOINT s; ' . $take->('all rolled back'), $take->('all rolled back') ],
);
my (%s, %told);

# One outage, longer than the timeout, and the ZooKeeper session goes on.  On a slow machine
# it may end after all: then again.
sub outage
{
	for my $name (sort keys %case)
	{
		ZkLock::ask($b, "SELECT zk_queue_purge('$name')");
		ZkLock::ask($b, "SELECT zk_queue_put('$name', i::text) FROM generate_series(1, 3) i");
		length_is($b, $name, '3 0 0', "$name: three items");
		$s{$name} = ZkLock::session($a);
		$s{$name}->query("BEGIN; $case{$name}[0]");
	}
	my $clock = ZkLock::session($a);
	$clock->query("BEGIN; SELECT zk_lock('clock')");
	my $id = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
	$zk->stop;
	like($clock->fails('SELECT pg_sleep(3600)'), qr/^40001: lock "clock" was lost/, 'the clock says that all is lost');
	ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'A has lost its connection');
	for my $name (grep { $case{$_}[1] } sort keys %case)
	{
		my $error = $s{$name}->fails($case{$name}[1]);
		$told{$name} = "$error\n" . $s{$name}->notices;
		$s{$name}->query('ROLLBACK TO s') if $error;
	}
	$zk->start;
	ZkLock::wait_connected($a, $b);
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT lease_remaining > '0' FROM zk_session") eq 't' }, 'there is a lease again');
	$clock->quit;
	return ZkLock::ask($a, 'SELECT session_id FROM zk_session') eq $id;
}

my $lived;
for (1 .. 10)
{
	last if $lived = outage();
	$_->quit for values %s;
}
ok($lived, 'the ZooKeeper session goes on after the outage');

my $since = qr/^DETAIL:  ZooKeeper has not confirmed this server's session since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\S+; another session may have the item by now\.$/m;
for my $name (grep { !/caught|untold/ } sort keys %case)
{
	like($told{$name}, qr/^40001: item [0-9a-f-]{36} of queue "$name" was lost\n/, "$name: told");
	like($told{$name}, $since, "$name: ... and what is known of it");
}
is($told{caught}, "\n", 'caught: told, and went on');

for my $name (qw(savepoint several nested caught))
{
	like($s{$name}->fails('COMMIT'), qr/^40001: item [0-9a-f-]{36} of queue "$name" was lost$/, "$name: still lost");
	like($s{$name}->notices, $since, "$name: ... for the same reason");
	is(ZkLock::ask($a, "SELECT count(*) FROM t WHERE s = '$name'"), 0, "$name: ... and rolled back");
	length_is($b, $name, '3 0 0', "$name: the items are given back");
	$s{$name}->query('BEGIN; ' . $take->($name) . '; COMMIT');
	is(ZkLock::ask($a, "SELECT payload FROM t WHERE s = '$name'"), '12', "$name: the next transaction has the first, and commits");
	length_is($b, $name, '2 0 0', "$name: which is done");
}
for my $name ('untold', 'all rolled back')
{
	$s{$name}->query('COMMIT');
	is(ZkLock::ask($a, "SELECT count(*) FROM t WHERE s = '$name'"), $name eq 'untold' ? 1 : 0, "$name: nothing that it was told is lost is committed");
	length_is($b, $name, $name eq 'untold' ? '2 0 0' : '3 0 0', "$name: ... and so says the queue");
}

$_->quit for values %s;
$_->stop for $a, $b;
done_testing();
