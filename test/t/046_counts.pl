# Holds are counted, not listed: however often a lock is taken again, in whatever
# savepoints, it costs no more memory, and each end takes what it should.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('a', $zk);
ZkLock::wait_connected($node);
my $s = ZkLock::session($node);
sub counts { return ZkLock::ask($node, "SELECT string_agg(concat_ws(' ', name, mode, scope, count), ', ' ORDER BY name, mode, scope) FROM zk_locks"); }

my $memory = "SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE name = 'zklock holds'";
$s->query("BEGIN; SELECT zk_lock('x'); SELECT zk_lock('y')");
my $before = $s->query($memory);
my %again = (
	'blocks' => "BEGIN PERFORM zk_lock('x'); EXCEPTION WHEN OTHERS THEN NULL; END",
	'blocks in blocks' => "BEGIN BEGIN PERFORM zk_lock('x'); EXCEPTION WHEN OTHERS THEN NULL; END; PERFORM zk_lock('x'); EXCEPTION WHEN OTHERS THEN NULL; END",
	'two in turns' => "PERFORM zk_lock('x'), zk_lock('y')",
	'two scopes' => "PERFORM zk_lock('x', scope => 'session'), zk_lock('y', scope => 'session'), zk_lock('x')");
for my $what (sort keys %again)
{
	$s->query("DO \$\$BEGIN FOR i IN 1 .. 2000 LOOP $again{$what}; END LOOP; END\$\$");
	cmp_ok($s->query($memory) - $before, '<', 2000, "locked 2000 times again, $what: no more memory");
}
is(counts(), 'x exclusive session 2000, x exclusive transaction 10001, y exclusive session 2000, y exclusive transaction 2001', '... and all are counted');
is($s->query('COMMIT; SELECT zk_unlock_all()'), 4000, '... and end');
ZkLock::ok_clean($zk, [$node], $_) for 'x', 'y';

# Savepoints: what is released is the parent's, what is rolled back is gone.
my $lock = sub { return "SELECT zk_lock('x', '$_[0]', '" . ($_[1] // 'transaction') . "')"; };
my @step = (
	[ 'BEGIN', '' ],
	[ $lock->('shared'), 'x shared transaction 1' ],
	[ 'SAVEPOINT a', 'x shared transaction 1' ],
	[ $lock->('shared'), 'x shared transaction 2' ],
	[ $lock->('exclusive'), 'x exclusive transaction 1, x shared transaction 2' ],
	[ 'SAVEPOINT b', 'x exclusive transaction 1, x shared transaction 2' ],
	[ $lock->('exclusive'), 'x exclusive transaction 2, x shared transaction 2' ],
	[ $lock->('shared'), 'x exclusive transaction 3, x shared transaction 2' ],
	[ 'ROLLBACK TO b', 'x exclusive transaction 1, x shared transaction 2' ],
	[ $lock->('shared'), 'x exclusive transaction 2, x shared transaction 2' ],
	[ 'RELEASE b', 'x exclusive transaction 2, x shared transaction 2' ],
	[ $lock->('shared', 'session'), 'x exclusive session 1, x exclusive transaction 2, x shared transaction 2' ],
	[ 'ROLLBACK TO a', 'x exclusive session 1, x shared transaction 1' ],
	[ $lock->('exclusive'), 'x exclusive session 1, x exclusive transaction 1, x shared transaction 1' ],
	[ 'RELEASE a', 'x exclusive session 1, x exclusive transaction 1, x shared transaction 1' ],
	[ "SELECT zk_unlock('x')", 'x exclusive transaction 1, x shared transaction 1' ],
	[ 'COMMIT', '' ]);
for (@step)
{
	my ($sql, $counts) = @$_;
	$s->query($sql);
	is(counts(), $counts, $sql);
}
ZkLock::ok_clean($zk, [$node], 'x');

# Level 1 in session scope that pg_advisory_unlock_all has taken, beside holds in
# transaction scope: what ends is ended in silence.
for my $end ("zk_unlock('x')", 'zk_unlock_all()')
{
	$s->query("BEGIN; SELECT zk_lock('x', scope => 'session'); SELECT zk_lock('x'); SELECT pg_advisory_unlock_all()");
	like($s->query("SELECT $end"), qr/^[t1]$/, "$end after pg_advisory_unlock_all");
	is($s->notices, '', '... warns of nothing');
	is($s->query("SELECT zk_token('x') > 0"), 't', '... and the transaction has the lock');
	is(ZkLock::session($node)->query("SELECT zk_try_lock('x')"), 'f', '... alone');
	is($s->fails('COMMIT'), '', '... until its end');
	ZkLock::ok_clean($zk, [$node], 'x');
}
# What the transaction has hidden comes to light when that, or its savepoint, ends,
# whatever else the session holds; in whatever order it looks at them.
for my $end ('COMMIT', 'ROLLBACK TO s')
{
	for my $other ('a' .. 'f')
	{
		$s->query("BEGIN; SELECT zk_lock('x', scope => 'session'); SAVEPOINT s; SELECT zk_lock('x'); SELECT pg_advisory_unlock_all()");
		$s->query("SELECT zk_lock('$other', scope => 'session'); $end");
		is($s->query("SELECT zk_token('x') IS NULL, zk_token('$other') > 0"), 't|t', "after pg_advisory_unlock_all $end ends x, not $other");
		is($s->query('COMMIT; SELECT zk_unlock_all()'), 1, '... which is all that there is');
	}
	ZkLock::ok_clean($zk, [$node], 'x');
}
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/you don't own a lock/, 'nor does the server log');
like($s->query("SELECT zk_unlock('x')") . $s->notices, qr/^fWARNING 55000: you do not hold lock "x"/, 'other warnings come as before');

done_testing();
