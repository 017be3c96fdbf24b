# Many backends: on one name, and on many.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $conf = "max_connections = 140\nmax_locks_per_transaction = 64\nautovacuum = off";
my $left = ZkLock::server('a', $zk, conf => $conf);
my $right = ZkLock::server('b', $zk, conf => $conf);
my @both = ($left, $right);
my $dir = PostgreSQL::Test::Utils::tempdir();

my $benches = 0;

# Start pgbench with so many clients, each of which runs the script once.
sub bench
{
	my ($node, $clients, $script) = @_;
	# a new one each time, since it is appended to
	my $file = "$dir/" . $node->name . '.' . ++$benches . '.sql';
	PostgreSQL::Test::Utils::append_to_file($file, $script);
	my $run = { output => '' };
	$run->{harness} = IPC::Run::start(
		[ 'pgbench', '-n', '-t', 1, '-c', $clients, '-j', 4, '-f', $file, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'<', '/dev/null', '>&', \$run->{output}, IPC::Run::timeout($ZkLock::timeout, exception => 'pgbench has not ended in time'));
	return $run;
}

sub bench_ok
{
	my ($run, $what) = @_;
	ok($run->{harness}->finish, $what) or diag $run->{output};
}

#
# 200 backends of two servers on one name
#
ZkLock::ask($_, 'CREATE TABLE turn (token bigint, since timestamptz, until timestamptz)') for @both;
my $take_turn = q{
BEGIN;
SELECT zk_lock('one') AS token \gset
INSERT INTO turn VALUES (:token, clock_timestamp());
UPDATE turn SET until = clock_timestamp() WHERE token = :token;
COMMIT;
};
# All of them queue before the first one gets it.
my $foreign = $zk->client;
my $path = $foreign->contend(ZkLock::directory('one'));
my @runs = map { bench($_, 100, $take_turn) } @both;
for my $node (@both)
{
	ZkLock::wait_until(
		sub { $_->{harness}->pump_nb for @runs; ZkLock::ask($node, 'SELECT count(*) FROM zk_locks WHERE NOT granted') == 100 },
		'100 backends of ' . $node->name . ' wait');
}
is(scalar(my @queue = ZkLock::wait_queue($zk, 'one', 3)), 3, '200 waiters, two contenders behind the holder');
# They are in zk_locks before they wait.
ZkLock::wait_until(sub { ZkLock::ask($left, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1 AND NOT granted") == 99 }, '99 wait at level 1');
pass('all but one of a server wait at level 1');
$foreign->delete($path);
bench_ok($_, '100 backends have had their turn') for @runs;

my @turns;
for my $node (@both)
{
	push @turns, map { [ split /\|/ ] } split /\n/, ZkLock::ask($node,
		'SELECT token, extract(epoch FROM since), extract(epoch FROM until) FROM turn');
}
is(scalar(@turns), 200, 'each exactly once');
my %tokens = map { $_->[0] => 1 } @turns;
is(scalar(keys %tokens), 200, '... with a token of its own');
@turns = sort { $a->[0] <=> $b->[0] } @turns;
my @overlaps = grep { $turns[ $_ - 1 ][2] > $turns[$_][1] } 1 .. $#turns;
is(scalar(@overlaps), 0, 'no two at a time, in the order of the tokens');
ZkLock::ok_clean($zk, \@both, 'one');

#
# The same with readers among them
#
ZkLock::ask($_, 'TRUNCATE turn; ALTER TABLE turn ADD mode text') for @both;
$path = $foreign->contend(ZkLock::directory('mixed'));
my $mixed = q{
\set reader random(0, 1)
\if :reader
BEGIN;
SELECT zk_lock('mixed', 'shared') AS token \gset
INSERT INTO turn VALUES (:token, clock_timestamp(), NULL, 'shared') RETURNING ctid \gset
UPDATE turn SET until = clock_timestamp() WHERE ctid = ':ctid';
COMMIT;
\else
BEGIN;
SELECT zk_lock('mixed') AS token \gset
INSERT INTO turn VALUES (:token, clock_timestamp(), NULL, 'exclusive');
UPDATE turn SET until = clock_timestamp() WHERE token = :token;
COMMIT;
\endif
};
@runs = map { bench($_, 50, $mixed) } @both;
$foreign->delete($path);
bench_ok($_, '50 readers and writers have had their turn') for @runs;
@turns = ();
for my $node (@both)
{
	push @turns, map { [ split /\|/ ] } split /\n/, ZkLock::ask($node,
		'SELECT token, extract(epoch FROM since), extract(epoch FROM until), mode FROM turn');
}
is(scalar(@turns), 100, 'each exactly once');
my $conflicts = 0;
for my $w (grep { $_->[3] eq 'exclusive' } @turns)
{
	$conflicts += grep { $_ != $w && $_->[1] < $w->[2] && $_->[2] > $w->[1] } @turns;
}
is($conflicts, 0, 'no writer beside anybody');
ZkLock::ok_clean($zk, \@both, 'mixed');

#
# 100 backends on 100 names, all of which hold at the same time
#
my $gate = ZkLock::session($left);
$gate->query('SELECT pg_advisory_lock(1)');
my $run = bench($left, 100, q{
BEGIN;
SELECT zk_lock('name ' || :client_id);
SELECT pg_advisory_xact_lock_shared(1);
COMMIT;
});
ZkLock::wait_until(sub { $run->{harness}->pump_nb; ZkLock::ask($left, 'SELECT count(*) FROM zk_locks WHERE granted') == 100 },
	'100 backends hold 100 names');
is(ZkLock::ask($left, 'SELECT count(DISTINCT name) || \' \' || count(DISTINCT token) || \' \' || count(DISTINCT pid) FROM zk_locks'),
	'100 100 100', '100 backends hold 100 names');
my $sessions = $zk->sessions;
my @mine = grep { m{^/zklock/locks/} } map { @$_ } values %$sessions;
is(scalar(@mine), 100, '... with 100 contenders');
is(ZkLock::ask($right, "SELECT count(*) FROM generate_series(0, 99) i WHERE zk_try_lock('name ' || i)"), 0, '... and exclude the other server');
$gate->query('SELECT pg_advisory_unlock(1)');
bench_ok($run, 'all of them end');
ZkLock::wait_until(sub { ZkLock::ask($right, "SELECT count(*) FROM generate_series(0, 99) i WHERE zk_try_lock('name ' || i)") == 100 },
	'the other server can have all of them');
ZkLock::ok_clean($zk, \@both, "name $_") for 0, 99;

#
# Sessions that end at once, holders and waiters
#
my @holders = map { ZkLock::session($left) } 1 .. 10;
my @waiters = map { ZkLock::session($right) } 1 .. 10;
for my $i (0 .. 9)
{
	$holders[$i]->query("SELECT zk_lock('end $i', scope => 'session')");
	$waiters[$i]->send("SELECT zk_lock('end $i', scope => 'session')")->wait_level(2);
	ZkLock::wait_queue($zk, "end $i", 2);
}
is(ZkLock::ask($left, "SELECT count(pg_terminate_backend(pid)) FROM zk_locks WHERE name LIKE 'end %'"), 10, 'holders terminated');
is(scalar(grep { $_->result > 0 } @waiters), 10, '... all their waiters have it');
is(ZkLock::ask($right, "SELECT count(pg_terminate_backend(pid)) FROM zk_locks WHERE name LIKE 'end %'"), 10, '... and are terminated');
ZkLock::ok_clean($zk, \@both, "end $_") for 0 .. 9;

done_testing();
