# PostgreSQL's isolation tests of locks and deadlocks, as schedules of our own: which session
# gets a lock, which waits, and which fails.  Each is played with PostgreSQL's locks, with
# zklock's on one server, and with zklock's by sessions of two servers.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use List::Util qw(uniq);
use Schedule;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
# Locks are handed on as by default.  They are not kept: see at the end.
my $conf = "deadlock_timeout = '100ms'\nautovacuum = off\nzklock.handoff_limit = 16";
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "$conf\ncluster_name = '$_'") } qw(a b);
ZkLock::wait_connected($a, $b);
Schedule::prepare($_) for $a, $b;

sub on_one { my ($kind, @options) = @_; return Schedule::world($kind, sub { $a }, @options); }

# The sessions named are on the other server.
sub on_two
{
	my ($kind, $far, @options) = @_;
	my %far = map { $_ => 1 } @$far;
	return Schedule::world($kind, sub { $far{ $_[0] } ? $b : $a }, @options);
}

sub names { return uniq map { /^(\S+)/ } @_; }

# All ways to spread sessions over two servers, of which the first has the first one
sub spreads
{
	my ($first, @others) = @_;
	return map { my $bits = $_; [ map { $others[$_] } grep { $bits & 1 << $_ } 0 .. $#others ] } 1 .. 2**@others - 1;
}

# All orders of what two sessions do
sub orders
{
	my ($one, $two) = @_;
	return [ @$one, @$two ] if !@$one || !@$two;
	my ($first, @one) = @$one;
	my ($second, @two) = @$two;
	return ((map { [ $first, @$_ ] } orders(\@one, $two)), (map { [ $second, @$_ ] } orders($one, \@two)));
}

# Three times: KIND is that of PostgreSQL's locks.  The script may have no outcomes yet.
# OTHERWISE: a function of the sessions on the second server, that returns another script for them.
sub plays
{
	my ($what, $kind, $script, %option) = @_;
	my @script = $option{record} ? Schedule::record(on_one($kind), @$script) : @$script;
	Schedule::ok_plays(on_one($_), "$what: $_", @script) for $option{record} ? () : $kind, $option{advisory} ? 'advisory' : (), 'zklock';
	for my $far (spreads(names(@script)))
	{
		my $other = $option{otherwise} && $option{otherwise}->(map { $_ => 1 } @$far);
		Schedule::ok_plays(on_two('zklock', $far), "$what: @$far on another server", @{ $other || \@script });
	}
	return;
}

#
# Who is told of a deadlock
#

# Who looks for one, and who never does
sub looks { my ($who, @never) = @_; return ("$who deadlock_timeout 10ms", map { "$_ deadlock_timeout 1h" } @never); }

# Two readers who would write: the second is told at once, everywhere.
plays('deadlock-simple', 'table', [ 's1 S a1', 's2 S a1', 's1 X a1: waits', 's2 X a1: 40P01 > s1', 's1 commits', 's2 commits' ], advisory => 1);

# A ring of eight.  One server tells the one who looks.  Two servers tell the wait that they
# published last, which may be another: the others go on one after the other all the same.
my @eight = map { "s$_" } 1 .. 8;
my @ring = ((map { "s$_ X a$_" } 1 .. 8), (map { "s$_ X a" . ($_ + 1) . ': waits' } 1 .. 7));
Schedule::ok_plays(
	on_one($_), "deadlock-hard: $_", looks('s8', @eight[ 0 .. 6 ]), @ring,
	's8 X a1: 40P01 > s7', 's8 commits', (map { "s$_ commits > s" . ($_ - 1) } reverse 2 .. 7), 's1 commits') for qw(table advisory zklock);
for my $far ([ @eight[ 1, 3, 5, 7 ] ], [ @eight[ 4 .. 7 ] ], ['s8'])
{
	my $world = on_two('zklock', $far);
	my @came = Schedule::play($world, @ring);
	Schedule::begin($world, 's8 X a1');
	my @ends = Schedule::drain($world, @eight);
	my ($victim) = $ends[0] =~ /^s(\d)=40P01$/;
	is(join(', ', @came, @ends), join(', ', @ring, "s$victim=40P01", map { 's' . (($victim - $_ - 1) % 8 + 1) } 1 .. 7), "deadlock-hard: @$far on another server")
	  if ok($victim, "... one is told: $ends[0]");
	Schedule::end($world);
}

# Rings that PostgreSQL breaks without an error: it lets a reader overtake a writer that cannot
# go on.  So it is with zklock on one server.  Nobody can overtake in ZooKeeper's queue: where
# a reader waits behind a writer of another server one wait ends, or two if two writers wait one behind
# the other on one server.  RINGS: how many, by the sessions on the second server.
sub plays_soft
{
	my ($what, $looks, $script, $last, $then, %rings) = @_;
	my @names = names(@$script);
	my @never = grep { $_ ne $looks } @names;
	Schedule::ok_plays(on_one($_), "$what: $_", looks($looks, @never), @$script, @$then) for qw(table advisory zklock);
	for my $far (spreads(@names))
	{
		my $world = on_two('zklock', $far);
		my %far = map { $_ => 1 } @$far;
		# a reader joins one of its server, and does not see a writer of another
		my @came = Schedule::play($world, map { $_ eq 'd1 S a2: waits' && $far{e2} ? 'd1 S a2' : $_ } @$script);
		Schedule::begin($world, $last);
		my @ends = Schedule::drain($world, @names);
		my $failed = grep { /=40P01$/ } @ends;
		my ($least, $most) = @{ $rings{"@$far"} // [ 0, 0 ] };
		ok(@ends == @names && !grep({ /=(?!40P01)/ } @ends) && $failed >= $least && $failed <= $most, "$what: @$far on another server: @ends")
		  or diag join "\n", @came;
		Schedule::end($world);
	}
	return;
}
plays_soft(
	'deadlock-soft', 'd2', [ 'd1 S a1', 'd2 S a2', 'e1 X a1: waits', 'e2 X a2: waits', 'd1 S a2: waits' ], 'd2 S a1',
	[ 'd2 S a1: waits > d1', 'd1 commits > e1', 'e1 commits > d2', 'd2 commits > e2', 'e2 commits' ],
	'd2 e1' => [ 1, 1 ]);
plays_soft(
	'deadlock-soft-2', 's1', [ 's1 x a1', 's2 S a2', 's2 x a1: waits', 's3 X a2: waits', 's4 X a2: waits' ], 's1 s a2',
	[ 's1 s a2', 's1 commits > s2', 's2 commits > s3', 's3 commits > s4', 's4 commits' ],
	's2' => [ 1, 2 ], 's2 s3' => [ 1, 1 ], 's2 s4' => [ 1, 1 ]);

#
# Who need not wait, and who does not
#

# LOCK TABLE refuses that before PostgreSQL 17.
plays('lock-nowait', ZkLock::ask($a, 'SHOW server_version_num') < 170000 ? 'advisory' : 'table', [ 's1 X a1', 's2 X a1: waits', 's1 X? a1: t', 's1 commits > s2', 's2 commits' ]);
plays('multixact-no-deadlock', 'row',
	[ 's1 S r1', 's2 S r1', 's1 savepoint', 's3 X r1: waits', 's1 S r1', 's2 commits', 's1 commits > s3', 's3 commits' ], advisory => 1);
plays('nowait', 'row', $_, record => 1) for orders([ 's1 X? r1', 's1 commits' ], [ 's2 X? r1', 's2 commits' ]);
plays('nowait-2', 'row', $_, advisory => 1)
  for [ 's1 S? r1: t', 's2 S? r1: t', 's2 X? r1: f', 's1 commits', 's2 commits' ],
  [ 's2 S? r1: t', 's1 S? r1: t', 's2 X? r1: f', 's1 commits', 's2 commits' ],
  [ 's2 S? r1: t', 's2 X? r1: t', 's1 S? r1: f', 's1 commits', 's2 commits' ];
plays('nowait-3', 'row', [ 's1 X r1', 's2 X r1: waits', 's3 X? r1: f', 's1 commits > s2', 's2 commits', 's3 commits' ], advisory => 1);
plays('skip-locked', 'row', $_, record => 1) for orders([ 's1 X1', 's1 X1', 's1 commits' ], [ 's2 X1', 's2 X1', 's2 commits' ]);
plays('skip-locked-2', 'row', $_)
  for [ 's1 S1: r1', 's2 S1: r1', 's2 X1: r2', 's1 commits', 's2 commits' ],
  [ 's2 S1: r1', 's1 S1: r1', 's2 X1: r2', 's1 commits', 's2 commits' ],
  [ 's2 S1: r1', 's2 X1: r1', 's1 S1: r2', 's1 commits', 's2 commits' ];
plays('skip-locked-3', 'row', [ 's1 X r1', 's2 X r1: waits', 's3 X1: r2', 's1 commits > s2', 's2 commits', 's3 commits' ]);

# Where the first two are on one server the second has no place in the queue before its turn
# there, and the third is before it.
plays('tuplelock-upgrade-no-deadlock', 'row',
	[ 's1 S r1', 's2 X r1: waits', 's3 X r1: waits', 's1 rolls_back > s2', 's2 rolls_back > s3', 's3 rolls_back' ], advisory => 1,
	otherwise => sub {
		my %far = @_;
		return !$far{s2} && $far{s3} && [ 's1 S r1', 's2 X r1: waits', 's3 X r1: waits', 's1 rolls_back > s3', 's3 rolls_back > s2', 's2 rolls_back' ];
	});

for (
	[ '57014', 'statement_timeout 100ms' ],
	[ '55P03', 'lock_timeout 100ms' ],
	[ '55P03', 'lock_timeout 100ms', 'statement_timeout 1h' ],
	[ '57014', 'lock_timeout 1h', 'statement_timeout 100ms' ])
{
	my ($error, @settings) = @$_;
	my @set = map { "s2 $_" } @settings;
	plays("timeouts, @settings", 'table', [ 's1 S a1', @set, "s2 X a1: $error", 's1 commits', 's2 commits' ], advisory => 1);
	plays("timeouts of rows, @settings", 'row', [ 's1 X r1', @set, "s2 X r1: $error", 's1 commits', 's2 commits' ], advisory => 1);
}

#
# Locks as gates: PostgreSQL's tests of rows, indexes and vacuum have a session wait for an
# advisory lock just where they want it.  Here a session "gate" has the lock; on two servers, it is on
# the other one.  The statements find the functions of either kind of lock by search_path.
#
my %calls = (
	pg => {
		take => 'pg_advisory_lock(hashtext($1))',
		share => 'pg_advisory_lock_shared(hashtext($1))',
		leave => 'pg_advisory_unlock(hashtext($1))',
		try_briefly => 'pg_try_advisory_xact_lock(hashtext($1))',
		take_briefly => 'pg_advisory_xact_lock(hashtext($1))',
		leave_all => 'pg_advisory_unlock_all()',
	},
	zk => {
		take => q{public.zk_lock($1, scope => 'session')},
		share => q{public.zk_lock($1, 'shared', 'session')},
		leave => 'public.zk_unlock($1)',
		try_briefly => 'public.zk_try_lock($1)',
		take_briefly => 'public.zk_lock($1)',
		leave_all => 'public.zk_unlock_all()',
	});
for my $schema (sort keys %calls)
{
	my $sql = "CREATE SCHEMA $schema;";
	for my $name (sort keys %{ $calls{$schema} })
	{
		my $call = $calls{$schema}{$name};
		my ($arguments, $body) = ($name eq 'leave_all' ? '' : 'text', $name =~ /^try/ ? "RETURN $call" : "PERFORM $call; RETURN true");
		$sql .= "CREATE FUNCTION $schema.$name($arguments) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN " . ($body =~ s/'/''/gr) . "; END';";
	}
	# What an index calls says that it is immutable.
	$sql .= <<"SQL";
CREATE FUNCTION $schema.pass(text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $schema.share(\$1)';
CREATE FUNCTION $schema.pass_on() RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $schema.leave_all()';
CREATE FUNCTION $schema.key_of(k text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS \$\$
	DECLARE
		gate text := current_setting('application_name');
	BEGIN
		gate := left(gate, 2) || CASE WHEN $schema.try_briefly(left(gate, 2) || 'probe') THEN 'second' ELSE 'first' END;
		PERFORM set_config('application_name', gate, false);
		PERFORM $schema.take_briefly(gate);
		RETURN k;
	END \$\$;
CREATE TABLE $schema.keyed (k text, v text);
CREATE UNIQUE INDEX ON $schema.keyed ($schema.key_of(k));
SQL
	ZkLock::ask($_, $sql) for $a, $b;
}
my %step = (
	(map { ("begins_$_->[0]" => "BEGIN ISOLATION LEVEL $_->[1]") } [ 1, 'READ COMMITTED' ], [ 2, 'REPEATABLE READ' ], [ 3, 'SERIALIZABLE' ]),
	begins => 'BEGIN',
	looks => 'SELECT id, v FROM t ORDER BY id',
	(map { ("closes$_" => "SELECT FROM take('g$_')", "opens$_" => "SELECT leave('g$_')") } '', 1 .. 3));

# Recorded with PostgreSQL's locks; then with zklock's
sub gates
{
	my ($what, $table, $sql, @orders) = @_;
	my $number = 0;
	my %sql = (%step, %$sql);
	my $set_up = sub { ZkLock::ask($a, "DROP TABLE IF EXISTS t; $table"); };
	for my $order (@orders)
	{
		$set_up->();
		my @script = Schedule::record(on_one('advisory', setup => 'SET search_path = pg, public', sql => \%sql), @$order);
		my @options = (setup => 'SET search_path = zk, public', sql => \%sql);
		$number++;
		for (on_one('zklock', @options), on_two('zklock', ['gate'], @options))
		{
			$set_up->();
			Schedule::ok_plays($_, "$what, $number of " . @orders . ', ' . ($_->{place}->('gate') == $a ? 'one server' : 'two'), @script);
		}
	}
	return;
}

# In which order: the gate, an update, its commit, and who locks the row behind the gate
my @committed = (
	[ 's1 begins', 's2 begins_N', 'gate closes', 's2 locks', 's1 updates', 's1 commits', 's1 looks', 'gate opens', 's2 commits' ],
	[ 's1 begins', 's2 begins_N', 'gate closes', 's1 updates', 's2 locks', 's1 commits', 's1 looks', 'gate opens', 's2 commits' ],
	[ 's1 begins', 's2 begins_N', 'gate closes', 's2 locks', 'gate opens', 's1 updates', 's1 commits', 's1 looks', 's2 commits' ],
	[ 's1 begins', 's2 begins_N', 'gate closes', 's1 updates', 'gate opens', 's2 locks', 's1 commits', 's1 looks', 's2 commits' ]);
sub each_level
{
	my @orders = map { my $order = $_; map { my $n = $_; [ map { s/_N/_$n/r } @$order ] } 1 .. 3 } @_;
	return @orders, map { [ grep { !/looks/ } @$_ ] } @orders;
}
my $key_share = "SELECT id, v FROM t WHERE take('g') ORDER BY id FOR KEY SHARE";
gates('lock-committed-update', "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'one')",
	{ locks => $key_share, updates => "UPDATE t SET v = 'two' WHERE id = 1" }, each_level(@committed));
gates('lock-update-delete', "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)",
	{
		locks => "SELECT id, v FROM t WHERE take_briefly('g') AND id = 1 FOR KEY SHARE",
		updates => 'UPDATE t SET v = 2 WHERE id = 1',
		blocks1 => 'DELETE FROM t',
		blocks2 => 'UPDATE t SET id = 2 WHERE id = 1',
		blocks3 => 'UPDATE t SET v = 2 WHERE id = 1',
	},
	map { my $n = $_; map { [ 'gate closes', 's2 begins', 's1 locks', 's2 updates', "s2 blocks$n", @$_ ] }
		  [ 'gate opens', 's2 commits' ], [ 'gate opens', 's2 rolls_back' ], [ 's2 commits', 'gate opens' ], [ 's2 rolls_back', 'gate opens' ] } 1 .. 3);
gates('lock-committed-keyupdate', "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'one'), (3, 'three')",
	{ locks => $key_share, updates => 'UPDATE t SET id = 2 WHERE id = 3' }, each_level(@committed[ 0, 1, 3 ]));

# Whose snapshot is older than an update, and the row is locked when the gate opens
my @twice = ('s2 begins', 's2 updates', 's2 commits', 's2 begins', 's2 updates', 'gate opens', 's1 commits', 's2 commits');
gates("nowait-4", "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x')",
	{ locks => "SELECT id FROM t WHERE take('g') FOR UPDATE NOWAIT", updates => 'UPDATE t SET v = v WHERE id = 1' }, [ 'gate closes', 's1 begins', 's1 locks', @twice ]);
gates("skip-locked-4", "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x'), (2, 'x')",
	{ locks => "SELECT id FROM t WHERE take('g') ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED", updates => 'UPDATE t SET v = v WHERE id = 1' },
	[ 'gate closes', 's1 begins', 's1 locks', @twice ]);
gates("nowait-5", 'CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)',
	{
		prepares => "PREPARE locks AS SELECT id FROM t WHERE take('g') FOR UPDATE NOWAIT",
		locks => 'EXECUTE locks',
		updates => 'UPDATE t SET v = v WHERE id = 2',
		shares => 'SELECT id FROM t WHERE id = 2 FOR SHARE',
	},
	[ 's1 prepares', 'gate closes', 's1 begins', 's1 locks', 's2 updates', 's3 begins', 's3 shares', 'gate opens', 's3 commits', 's1 commits' ]);
gates('tuplelock-update', 'CREATE TABLE t (id int PRIMARY KEY, v serial); INSERT INTO t VALUES (1)',
	{
		updates => 'UPDATE t SET v = DEFAULT',
		locks => 'SELECT id FROM t FOR KEY SHARE',
		map { ("passes$_" => "UPDATE t SET v = DEFAULT WHERE share('g$_')") } 1 .. 3
	},
	[
		(map { "gate closes$_" } 1 .. 3), 's2 passes1', 's3 passes2', 's4 passes3', 's1 updates', 's1 begins', 's1 locks',
		(map { "gate opens$_" } 1 .. 3), 's1 commits'
	]);

# A variable keeps its value while VACUUM removes the row.  (PostgreSQL's test assigns it in five ways.)
gates('plpgsql-toast', "CREATE TABLE t (v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL; INSERT INTO t VALUES (repeat('foo', 2000))",
	{
		assigns => 'DO $$DECLARE x text; BEGIN SELECT v INTO x FROM t; DELETE FROM t; COMMIT; PERFORM take($q$g$q$);
			IF x <> repeat($q$foo$q$, 2000) THEN RAISE $q$it is another one$q$; END IF; END$$',
		vacuums => 'VACUUM t',
	},
	[ 'gate closes', 's1 assigns', 's2 vacuums', 'gate opens' ]);

# Two indexes at a time.  s2 opens the gate of s1 while it builds its own; "gate" has another one.
gates('multiple-cic', 'DROP TABLE IF EXISTS u; CREATE TABLE t (id int); CREATE TABLE u (id int)',
	{
		closes_other => "SELECT FROM take('other')",
		builds => "CREATE INDEX CONCURRENTLY ON t (id) WHERE pass('other')",
		builds_too => "CREATE INDEX CONCURRENTLY ON u (id) WHERE pass_on() AND pass('g')",
	},
	[ 'gate closes', 's2 closes_other', 's1 builds', 's2 builds_too', 'gate opens' ]);

# Two who insert one key.  Each comes by gates "first" and then, since the gate "probe" is open, "second".
my $insert = "INSERT INTO keyed VALUES ('k', 'of %s') ON CONFLICT (key_of(k)) DO UPDATE SET v = keyed.v || ', then of %s'";
my %inserts = (
	(map { my $s = $_; ("is_s$s" => "SET application_name = 's$s'", "inserts_s$s" => sprintf($insert, "s$s", "s$s")) } 1, 2),
	closes_all => "SELECT FROM unnest('{s1,s2}'::text[]) s, unnest('{probe,first,second}'::text[]) g WHERE take(s || g)",
	sees => 'SELECT k, v FROM keyed',
	empties => 'TRUNCATE keyed',
	map { my $s = $_; map { ("opens_s${s}_$_" => "SELECT leave('s$s$_')") } qw(probe first second) } 1, 2);
my @insert = (
	'look empties', 'gate closes_all', 'BEGINS', 's1 is_s1', 's2 is_s2', 's1 inserts_s1', 's2 inserts_s2', 's1 reaches s1first', 's2 reaches s2first', 'look sees',
	'gate opens_s1_probe', 'gate opens_s2_probe', 'gate opens_s1_first', 's1 reaches s1second', 'gate opens_s2_first', 's2 reaches s2second', 'look sees');
my @at_once = grep { $_ ne 'BEGINS' } @insert;
gates('insert-conflict-specconflict', 'SELECT 1', \%inserts,
	[ @at_once, 'gate opens_s2_second', 'look sees', 'gate opens_s1_second', 'look sees' ],
	[ @at_once, 'gate opens_s1_second', 'look sees', 'gate opens_s2_second', 'look sees' ],
	[
		(map { $_ eq 'BEGINS' ? ('s1 begins', 's2 begins') : $_ } @insert), 'gate opens_s1_second', 'look sees', 'gate opens_s2_second', 'look sees',
		's1 commits', 'look sees', 's2 commits', 'look sees'
	]);

# A session that ends has a lock until its temporary tables are gone.
for my $far ($a, $b)
{
	my ($s, $waiter) = (ZkLock::session($a), ZkLock::session($far));
	$s->query("SELECT zk_lock('temporary', scope => 'session'); CREATE TEMP TABLE mine (id serial); CREATE FUNCTION f(mine) RETURNS int LANGUAGE sql AS 'SELECT 1'");
	my $schema = $s->query('SELECT pg_my_temp_schema()');
	$waiter->send("SELECT FROM zk_lock('temporary', scope => 'session')")->wait_level($far == $a ? 1 : 2);
	$s->send('SELECT pg_terminate_backend(pg_backend_pid())');
	$waiter->result;
	is(ZkLock::ask($a, "SELECT count(*) FROM pg_class WHERE relnamespace = $schema") . ZkLock::ask($a, "SELECT count(*) FROM pg_proc WHERE proname = 'f'"),
		'00', 'temp-schema-cleanup: who waits ' . ($far == $a ? 'on the same server' : 'on another one'));
	$waiter->quit;
}

ZkLock::ok_clean($zk, [ $a, $b ], 'a1');
done_testing();
