# What a new kind costs: a file in each room, three rows in lists that there are already, and
# its SQL.  The toy in test/toy, a gate, is built into a copy of the sources; a server with it
# knows gates wherever it knows kinds by their traits.  Without any of the rows it does not.
use strict;
use warnings;

use File::Basename qw(dirname);
use FindBin;
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use ZkLock;

my $top = "$FindBin::Bin/../..";
my $tree = "$PostgreSQL::Test::Utils::tmp_check/toy";
my $pg = "$PostgreSQL::Test::Utils::tmp_check/toy_pg";
# The sandbox's PostgreSQL, or a part's copy of it, is copied with the directories that lead to it.
my ($root, $bin) = dirname($ENV{PG_CONFIG}) =~ m{^(.*/pg)(/usr/.*)$} or die "PG_CONFIG is not the sandbox's\n";
my $installed = dirname("$pg$bin");

# [ file, what stands there, what is put before that ]; a list is known by its end
my %rows = (
	kind => [
		[ 'protocol/contender.h', qr/^\tZKLOCK_NKINDS$/m, "\tZKLOCK_KIND_GATE, /* a toy */\n" ],
		[ 'protocol/contender.c', qr/^};\n\nint\nzklock_kind_find/m, <<'END' ] ],
	[ZKLOCK_KIND_GATE] =
		{
			.name = "gate",
			.held = "gate",
			.thing = "gate",
			.loss =
				{
					.when = "while {holder} kept it closed",
					.by_now = "it may be open by now",
					.retry = "Close it again.",
					.ways = "Use SELECT zk_unlock_all() to acknowledge the loss.",
				},
			.namespaced = true,
			.unlocked = true,
			.shown = true,
			.in_waits = true,
		},
END
	part => [
		[ 'zklock.c', qr/^#include "job_sql\.h"$/m, "#include \"gate_shared.h\"\n" ],
		[ 'zklock.c', qr/^};\n\nstatic shmem_request_hook_type/m, "\t&zklock_gate_part,\n" ] ],
	agent => [
		[ 'worker/worker.c', qr/^#include "grant\.h"$/m, "#include \"gate_worker.h\"\n" ],
		[ 'worker/worker.c', qr/^};\n\n\/\* Does any agent answer yes/m, "\t&zklock_gate_agent,\n" ] ]);

sub run { system(@_) == 0 or die "@_ failed\n"; }
sub make { return system("make -s -j2 -C '$tree' ASSERTIONS=yes PG_CONFIG='$pg$bin/pg_config' @_ >'$tree/make.log' 2>&1") == 0; }

sub put
{
	my ($file, $text) = @_;
	open my $out, '>', $file or die "could not write $file: $!\n";
	print $out $text;
	close $out or die "could not write $file: $!\n";
}

sub add_rows
{
	for (map { @$_ } @rows{@_})
	{
		my ($name, $before, $text) = @$_;
		my $file = slurp_file("$tree/src/$name");
		$file =~ s/(?=$before)/$text/ or die "$name has no $before\n";
		put("$tree/src/$name", $file);
	}
}

# The rows of that name are taken out again.
sub remove_row
{
	for (@{ $rows{ $_[0] } })
	{
		my ($name, undef, $text) = @$_;
		my $file = slurp_file("$tree/src/$name");
		$file =~ s/\Q$text\E// or die "$name has no row\n";
		put("$tree/src/$name", $file);
	}
}

#
# The copy
#
run('rm', '-rf', $tree, $pg);
run('mkdir', $tree);
run('cp', '-a', map({ "$top/$_" } qw(Makefile zklock.control zklock_advisory.control sql src)), $tree);
run("find '$tree' -name '*.o' -delete");
run('cp', '-a', "$top/test/toy/src", $tree);
put("$tree/sql/zklock--1.0.sql", slurp_file("$top/sql/zklock--1.0.sql") . slurp_file("$top/test/toy/gate.sql"));
add_rows(sort keys %rows);

my @changed = map { s/^Files \Q$top\E\/(\S+) .*/$1/r } grep { /^Files / } `diff -rq -x '*.o' '$top/src' '$tree/src'`;
chomp @changed;
is("@changed", 'src/protocol/contender.c src/protocol/contender.h src/worker/worker.c src/zklock.c', 'a new kind touches these files, and no other');
my @diff = grep { /^[<>]/ } map { `diff '$top/$_' '$tree/$_'` } @changed;
is(join('', sort @diff), join('', sort map { map { s/^/> /mgr =~ /^.*\n/mg } $_->[2] } map { @$_ } values %rows), '... which have its rows, and no other change');
is(join(' ', map { s/.*\/(\S+)\.c$/$1/r } sort glob "$top/test/toy/src/*/*.c"), 'gate_backend gate_sql gate_rules gate_shared gate_worker', 'a file in each room is its own');

run('cp', '-a', '--reflink=auto', $root, $pg);
ok(make('install'), 'it builds, each file with the headers of its room') or die slurp_file("$tree/make.log");

#
# A server that knows gates
#
my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '1h'", cluster => { install_path => $installed });
my ($s, $other) = map { ZkLock::session($a) } 1, 2;
my $directory = ZkLock::directory('yard', 'gates');

is($s->query("SELECT zk_gate_is_open('yard')"), 't', 'nobody has closed it');
my $token = $s->query("SELECT zk_gate_close('yard')");
my ($contender) = ZkLock::wait_queue($zk, 'yard', 1, 'gates');
is($zk->stat("$directory/$contender")->{czxid}, $token, 'it is closed by a contender in its directory');
is($other->query("SELECT zk_gate_is_open('yard')"), 'f', '... and so for others');
is($other->query("SELECT zk_gate_is_open('barn')"), 't', '... by its name');
is($other->fails('SELECT zk_gate_close(NULL)'), '22004: gate name must not be null', 'its arguments are looked at like others');
is($other->fails("SELECT zk_gate_close('')"), '22023: gate name must not be empty', '... by its word');

is(ZkLock::ask($a, "SELECT kind, name, mode IS NULL, scope, granted, token = $token FROM zk_locks"), 'gate|yard|t|session|t|t', 'zk_locks shows it');
is(ZkLock::ask($a, "SELECT granted, ours, mode IS NULL FROM zk_contenders('yard') WHERE kind = 'gate'"), 't|t|t', 'zk_contenders shows it');
is(ZkLock::ask($a, "SELECT kind, name, contenders FROM zk_lock_dirs()"), 'gate|yard|1', 'zk_lock_dirs shows it');
is($s->query("SELECT zk_gate_assert('yard')"), $token, 'its token is proven');
is($other->fails("SELECT zk_gate_assert('yard')"), '55000: you do not hold gate "yard"', '... to those who have it');
is($other->query("SELECT zk_gate_open('yard')"), 'f', '... and nobody else opens it');
like($other->notices, qr/^WARNING 55000: you do not hold gate "yard" in session scope$/m, '... as a warning says');

# Who waits, and gets it
$other->send("SELECT zk_gate_close('yard')");
$other->wait_level(1);
my $waits = 'SELECT kind, name, root_pid FROM zk_waits';
my $seen;
ZkLock::wait_until(sub { ($seen = ZkLock::ask($a, $waits)) eq 'gate|yard|' . $s->pid }, 'zk_waits shows who waits', sub { $seen });
pass('zk_waits shows who waits, and for whom');
is($s->query('SELECT zk_unlock_all()'), 1, 'zk_unlock_all ends it');
my $next = $other->result;
cmp_ok($next, '>=', $token, 'the next one has it');
is(ZkLock::ask($a, 'SELECT kind, name, acquired_kept + acquired_cold, waits FROM zk_stat_locks'), 'gate|yard|2|1', 'zk_stat_locks counts it');
is(ZkLock::ask($a, 'SELECT acquired_kept + acquired_cold FROM zk_stat'), 2, '... and zk_stat');
is($other->query("SELECT zk_gate_open('yard')"), 't', 'its own function ends it');
ZkLock::ok_clean($zk, [$a], 'yard', undef, 'gates');
is($s->query("SELECT zk_gate_is_open('yard')"), 't', 'it is open again');

# Foreign nodes
$zk->create("$directory/stone");
is($s->query("SELECT zk_gate_is_open('yard')"), 't', 'what is no contender does not close it');
$zk->delete("$directory/stone");

# Its loss
$s->query("SELECT zk_gate_close('yard')");
is(ZkLock::ask($a, "SELECT zk_break('yard', token) FROM zk_contenders('yard')"), 't', 'an administrator opens it');
ZkLock::wait_until(sub { slurp_file($a->logfile) =~ /gate "yard" was lost while held/ }, 'the log tells of the loss');
is($s->fails('SELECT count(*) FROM pg_class'), '55000: gate "yard" was lost', 'its loss is an error');
like($s->notices, qr/^DETAIL:  The ZooKeeper session ended, or the contender was deleted, while this session kept it closed; it may be open by now\.$/m, '... that says what happened');
my ($way) = $s->notices =~ /^HINT:  Use (SELECT .*) to acknowledge the loss\.$/m;
is($way, "SELECT zk_unlock_all()", '... and what to do');
is($s->query($way), 1, '... which can be done');
ok($s->query('SELECT count(*) FROM pg_class') > 0, '... and helps');
ZkLock::ok_clean($zk, [$a], 'yard', undef, 'gates');
$_->quit for $s, $other;
ZkLock::hang_up($a);
$a->stop;

#
# Without a row
#
sub broken_server
{
	my ($name) = @_;
	remove_row($name);
	ok(make('install'), "without the $name it builds") or diag(slurp_file("$tree/make.log"));
	add_rows($name);
	return ZkLock::server("no_$name", $zk, cluster => { install_path => $installed }, start => 0);
}

my $no_agent = broken_server('agent');
$no_agent->start;
ZkLock::ask($no_agent, 'CREATE EXTENSION zklock');
ZkLock::wait_connected($no_agent);
$s = ZkLock::session($no_agent);
$s->query("SET statement_timeout = '3s'");
is($s->fails("SELECT zk_gate_is_open('yard')"), '57014: canceling statement due to statement timeout', '... and nobody answers');
$s->quit;
ZkLock::hang_up($no_agent);
$no_agent->stop;

# Its worker crashes as it looks for questions, and takes the server with it.
my $no_part = broken_server('part');
$no_part->start(fail_ok => 1);
ZkLock::wait_until(sub { slurp_file($no_part->logfile) =~ /"zklock worker" \(PID \d+\) was terminated by signal/ }, 'the worker crashes');
pass('... and no worker lives');
$no_part->stop('immediate', fail_ok => 1);
unlink $no_part->logfile;

remove_row('kind');
ok(!make(), 'without the kind it does not build');
like(slurp_file("$tree/make.log"), qr/ZKLOCK_KIND_GATE/, '... and the compiler says why');

done_testing();
