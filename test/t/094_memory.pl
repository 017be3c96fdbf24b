# No leak: memory, the lock table and ZooKeeper's tree after many cycles of lock and
# commit are what they were after the first tenth.
#
# Eight sessions of one server, at the same time, each a psql that reads a file of
# statements.  A fifth of the cycles asks ZooKeeper each time (keep_time = 0), mostly
# for names never heard before; the others are on kept grants, mostly.  Between the
# tenths everything is given back, and the following is measured:
#
#   worker, backend    kB of anonymous memory (RssAnon), the ZooKeeper library's
#                      included; of the backends the largest
#   palloc             kB used of all memory contexts of a backend; the largest
#   names, locks       entries of the lock table in use
#   znodes, watches    in ZooKeeper
#
# Anonymous memory grows by pages, and by how threads and contexts happened to meet in
# malloc: up to 0.1 MB in 50,000 cycles and 0.5 MB in a million were seen, in a step or
# two.  Allowed are 0.4 and 1 MB.  The smallest block that malloc gives away is 32 bytes:
# one forgotten by the worker with each request to ZooKeeper, or by a backend with every
# other cycle, is more; and what a backend forgets to pfree shows in palloc at once.
#
# make soak runs this for a million cycles and shows the table; ZKLOCK_CYCLES chooses.
use strict;
use warnings;

use File::Temp ();
use List::Util qw(max min);
use Test::More;
use Time::HiRes qw(time);
use ZkLock;

my $cycles = $ENV{ZKLOCK_CYCLES} || 50_000;
my $sessions = 8;
# kB that may be had more at the end than after the first tenth
my $anonymous = min(1024, 384 + $cycles / 1500);
my %allowed = (worker => $anonymous, backend => $anonymous, palloc => 16);

# Reaping 10,000 directories a minute, as is ZooKeeper's habit, would take too long.
my $zk = ZooKeeper->new(container_check_ms => 200, container_max_per_minute => 60_000_000)->start;
my $node = ZkLock::server('a', $zk, conf => "zklock.max_locks = 5000\nlog_statement = none\nlog_min_messages = log\n"
	. "deadlock_timeout = '10s'\nautovacuum = off\nfsync = off");
ZkLock::wait_connected($node);
my $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');

my @session = map { ZkLock::session($node) } 1 .. $sessions;
# What the others meet: a holder on this server, and a contender of somebody else's.
my $holder = ZkLock::session($node);
$holder->query("SELECT zk_lock('held', scope => 'session')");
my $foreign = $zk->client;
my $contender = $foreign->contend(ZkLock::directory('foreign'));
my $tree = $zk->monitor('zk_znode_count');
# Who waits for it for long enough leaves a watch behind: let that be there from the beginning.
{
	my $waiter = ZkLock::session($node)->send("SELECT zk_lock('foreign')")->wait_level(2);
	ZkLock::wait_until(sub { grep { $_ eq $contender } $zk->watches }, 'the contender is watched');
	$waiter->cancel->failure;
	$waiter->quit;
}

sub set_keep_time
{
	ZkLock::ask($node, "ALTER SYSTEM SET zklock.keep_time = '$_[0]'");
	ZkLock::ask($node, 'SELECT pg_reload_conf()');
}

#
# The statements.  Each cycle is a line; $n is its number, different for each.
#
sub cold_cycle
{
	my ($k, $n) = @_;
	my $i = $n % 50;
	return "BEGIN; SET LOCAL lock_timeout = '1ms'; SELECT zk_lock('foreign'); COMMIT;" if $i == 0;
	return "SELECT zk_try_lock('foreign', timeout => '1 ms');" if $i == 1;
	return "SELECT zk_lock('session $k', scope => 'session'); SELECT zk_unlock('session $k');" if $i == 2;
	return "BEGIN; SAVEPOINT s; SELECT zk_lock('new $n'); ROLLBACK TO s; COMMIT;" if $i == 3;
	return "BEGIN; SELECT zk_lock('up $k', 'shared'); SELECT zk_lock('up $k'); COMMIT;" if $i == 4;
	return "SELECT zk_try_lock('new $n', 'shared');" if $i == 5;
	return "SELECT zk_lock('all', 'shared');" if $i < 10;
	return "SELECT zk_lock('new $n');";
}

sub kept_cycle
{
	my ($k, $n) = @_;
	my $i = $n % 200;
	my $hot = sprintf 'hot %d %d', $k, $n / 200 % 40;
	return "BEGIN; SET LOCAL lock_timeout = '1ms'; SELECT zk_lock('held'); COMMIT;" if $i == 0;
	return "SELECT zk_try_lock('held');" if $i == 1;
	return "SELECT zk_try_lock('foreign');" if $i == 2;
	return "BEGIN; SELECT zk_lock('$hot'), 1/0; ROLLBACK;" if $i == 3;
	return "CALL zk_lock_session('$hot'); SELECT zk_unlock_all();" if $i == 4;
	return "SELECT zk_lock('$hot', scope => 'session'); DISCARD ALL;" if $i == 5;
	return "BEGIN; SELECT zk_lock('$hot ' || j) FROM generate_series(1, 3) j; SELECT zk_token('$hot 1'); ROLLBACK;" if $i == 6;
	return "SELECT count(*) FROM zk_contenders('foreign');" if $i == 7;
	return "SELECT zk_is_leader('election $k'); SELECT zk_resign('election $k');" if $i == 8;
	return "SELECT count(*) FROM zk_locks;" if $i == 9;
	return "SELECT zk_lock('new $n');" if $i < 15;
	return "SELECT zk_lock('common');" if $i < 25;
	return "SELECT zk_lock('all', 'shared');" if $i < 45;
	return "SELECT zk_lock('$hot');";
}

my $dir = File::Temp::tempdir(CLEANUP => 1);
my $n = 0;
my %errors;

# Taken so far
sub locks { return ZkLock::ask($node, 'SELECT acquired_local + acquired_kept + acquired_cold FROM zk_stat'); }

# All sessions, so many cycles together; then those errors that came.
sub run_cycles
{
	my ($make, $count) = @_;
	for my $k (0 .. $#session)
	{
		open my $file, '>', "$dir/$k.sql" or die "could not write $dir/$k.sql: $!";
		print $file $make->($k, $n++), "\n" for 1 .. $count / $sessions;
		close $file or die;
		$session[$k]->send("\\o /dev/null\n\\i $dir/$k.sql\n\\o");
	}
	for my $s (@session)
	{
		# A million may take hours, as long as they go on.
		while ($s->busy)
		{
			my $locks = locks();
			ZkLock::wait_until(sub { !$s->busy || locks() != $locks }, 'the cycles go on');
		}
		$errors{$_}++ for $s->result =~ /^psql:\S+ (?:ERROR|FATAL):  (\w{5})/mg;
	}
}

#
# Measuring
#
sub anonymous_kb
{
	my $pid = shift;
	return PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^RssAnon:\s*(\d+) kB/m ? $1 : die "no RssAnon of $pid";
}

sub rest
{
	set_keep_time(0);
	my $now = '';
	eval {
		ZkLock::wait_until(
			sub {
				$now = ZkLock::ask($node, "SELECT concat_ws(' ', names, locks, kept) FROM zk_session");
				return $now eq '1 1 0';
			}, '');
	};
	my ($names, $locks) = split ' ', $now;
	my $znodes;
	eval { ZkLock::wait_until(sub { ($znodes = $zk->monitor('zk_znode_count')) == $tree }, '') };
	return {
		worker => anonymous_kb($worker),
		backend => max(map { anonymous_kb($_->pid) } @session),
		palloc => int(max(map { $_->query('SELECT sum(used_bytes) FROM pg_backend_memory_contexts') } @session) / 1024),
		names => $names,
		locks => $locks,
		znodes => $znodes,
		watches => ZkLock::watch_count($zk),
	};
}

my @column = qw(worker backend palloc names locks znodes watches);
my @row;
my $seconds = 0;
note join ' ', sprintf('%9s %8s', 'cycles', 'seconds'), map { sprintf '%8s', $_ } @column;
for my $tenth (1 .. 10)
{
	my $start = time;
	run_cycles(\&cold_cycle, $cycles / 50);
	set_keep_time('1h');
	run_cycles(\&kept_cycle, $cycles * 4 / 50);
	$seconds += time - $start;
	my $row = rest();
	push @row, $row;
	note join ' ', sprintf('%9d %8.1f', $n, $seconds), map { sprintf '%8d', $row->{$_} } @column;
}
note 'errors: ', join ', ', map { "$errors{$_} of $_" } sort keys %errors;

is(join(' ', sort keys %errors), '22012 55P03', 'errors were those that should be');
is(ZkLock::ask($node, 'SELECT worker_pid FROM zk_session'), $worker, 'the worker is the same');
for my $column (qw(worker backend palloc))
{
	my $growth = max(map { $_->{$column} } @row[ 8, 9 ]) - $row[0]{$column};
	cmp_ok($growth, '<=', $allowed{$column}, "$column: $growth kB more than after the first tenth");
}
# the holder's, and nobody else's
my %expected = (names => 1, locks => 1, znodes => $tree, watches => $row[0]{watches});
for my $column (sort keys %expected)
{
	is(join(' ', map { $_->{$column} } @row), join(' ', ($expected{$column}) x @row), "$column: none is left");
}
my ($kept, $cold) = split ' ', ZkLock::ask($node, "SELECT acquired_kept || ' ' || acquired_cold FROM zk_stat");
note "acquired: $kept on kept grants, $cold from ZooKeeper";
cmp_ok($cold, '>', 0.15 * $cycles, 'many locks were asked of ZooKeeper');
cmp_ok($kept, '>', 0.6 * $cycles, '... and most were kept');

done_testing();
