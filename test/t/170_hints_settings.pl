# Hints that lead to settings, and to the ensemble: what 162 does for calls.  See test/hints.md.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Clock;
use Test::More;
use ZkLock;
use ZooKeeper;

my $clock = Clock->new;
plan skip_all => 'no compiler' if !$clock && !$ENV{CI};
my $zk = ZooKeeper->new;
{
	local @ENV{ $clock->names } = $clock->values;
	$zk->start;
}

sub hint { my ($session) = @_; return $session->notices =~ /^HINT:  (.*)$/m ? $1 : 'no hint'; }
sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

# Does the hint of its last answer name this setting?  Then it gets another value.
sub set_hinted
{
	my ($node, $hint, $setting, $value) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($hint, qr/"\Q$setting\E"/, "... a hint names $setting");
	$node->append_conf('postgresql.conf', "$setting = $value");
	ZkLock::hang_up($node);
	$node->restart;
	ZkLock::wait_connected($node);
	return ZkLock::session($node);
}

#
# Not preloaded; then with a table of a few names and a worker process for nobody else
#
my $a = ZkLock::server('a', $zk, init => { allows_streaming => 1 }, conf => join "\n", "cluster_name = 'a'", "shared_preload_libraries = ''");
my $s = ZkLock::session($a);
is($s->fails("SELECT zk_lock('job')"), '55000: zklock must be loaded via shared_preload_libraries', 'not preloaded');
my ($library, $setting) = hint($s) =~ /^Add (\w+) to "(\w+)" and restart the server\.$/;
$a->append_conf('postgresql.conf', join "\n", 'zklock.max_locks = 4', "zklock.elections = 'e'",
	"zklock.notify_database = 'postgres'", 'max_worker_processes = 1', 'max_parallel_workers = 0', 'max_logical_replication_workers = 0', '');
$s = set_hinted($a, hint($s), $setting, "'$library'");
is($s->fails("SELECT zk_lock('job')"), '', '... and with that it works');

my %process = ('send notifications' => undef, 'settle runs of jobs' => undef);
for my $what (sort keys %process)
{
	ZkLock::wait_until(sub { log_of($a) =~ /(?:LOG|WARNING):  could not start a process to \Q$what\E\n(?:.*DETAIL:  .*\n)?.*HINT:  (.*)/ && ($process{$what} = $1) }, "no process to $what");
	is($process{$what}, 'You might need to increase "max_worker_processes".', "no process to $what: a hint");
}
$s->quit;
$s = set_hinted($a, $process{'send notifications'}, 'max_worker_processes', 8);
my $before = length log_of($a);
$s->query('LISTEN zklock');
ZkLock::wait_until(sub { $s->query("SELECT zk_is_leader('e')") eq 't' }, 'it leads');
my $heard = $s->query("SELECT zk_resign('e')");
ZkLock::wait_until(sub { $heard .= $s->query('SELECT 1'); $heard =~ /notification "zklock" with payload "e:"/ }, 'the change is heard of', sub { $heard });
unlike(substr(log_of($a), $before), qr/could not start/, '... and with more there is one for each');

my $names = join ',', map { "n$_" } 1 .. 6;
like($s->fails("SELECT zk_try_lock_all('{$names}', scope => 'session', timeout => '1 h')"), qr/^54000: cannot acquire 6 locks in one step/, 'more names than there is room for');
like(hint($s), qr/^Acquire fewer of them, or increase "zklock\.max_locks"\.$/, '... has a hint');
is($s->query("SELECT zk_try_lock_all('{n1,n2}', scope => 'session', timeout => '1 h')"), 't', '... and fewer can be had');
$s->query('SELECT zk_unlock_all()');
my $full;
$s->query("SELECT zk_resign('e')");
ZkLock::wait_until(sub { ($full = $s->fails("SELECT zk_lock('n' || i, scope => 'session') FROM generate_series(1, 6) i")) =~ /^53200/ }, 'the table is full', sub { $full });
like($full, qr/^53200: zklock lock table is full/, 'the table is full');
my $hint = hint($s);
ZkLock::ask($a, "ALTER SYSTEM SET zklock.elections = 'e, f, g, h, i, j'");
ZkLock::ask($a, 'SELECT pg_reload_conf()');
ZkLock::wait_until(sub { log_of($a) =~ /could not enter election .*, will try again/ }, 'an election finds no room');
like(log_of($a), qr/could not enter election .*\n.*DETAIL:  The lock table is full\.\n.*HINT:  \Q$hint\E$/m, '... and the log has the same hint');
$s->quit;
$s = set_hinted($a, $hint, 'zklock.max_locks', 100);
is($s->fails("SELECT zk_lock('n' || i, scope => 'session') FROM generate_series(1, 6) i"), '', '... and with more room all are had');
is($s->query("SELECT zk_unlock_all()"), 6, '... once each');
is($s->query("SELECT zk_try_lock_all('{$names}', scope => 'session', timeout => '1 h')"), 't', '... in one step, too');
$s->query('SELECT zk_unlock_all()');
for my $election (qw(f g h i j)) { ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM zk_elections WHERE election = '$election' AND is_leader") eq '1' }, "it leads $election"); }
pass('... and the elections are entered');

#
# A chroot path
#
my $b = ZkLock::server('b', $zk->host . '/prod', conf => "zklock.connect_timeout = '10s'");
ZkLock::wait_connected($b);
$s = ZkLock::session($b);
like($s->fails("SELECT zk_lock('chroot')"), qr/^58000: could not create the directory of lock "chroot" in ZooKeeper/, 'a chroot path that is missing');
my ($must) = hint($s) =~ / If "zklock\.hosts" ends in a chroot path, that path (must exist)\.$/;
is($must, 'must exist', '... has a hint');
$zk->create('/prod');
my $now;
ZkLock::wait_until(sub { ($now = $s->fails("SELECT zk_lock('chroot')")) eq '' }, 'it works when it exists', sub { $now });
pass('... and when it exists the lock is had');

#
# A resource that has seen a token from elsewhere, larger than any of this ensemble
#
my $c = ZkLock::server('c', $zk, conf => "zklock.root = '/other'\nzklock.session_timeout = '4s'");
ZkLock::wait_connected($c);
$s = ZkLock::session($c);
$s->query("SELECT zk_fence('fenced', 999999); SELECT zk_fence('other', 9999999)");
my $fenced = "SELECT zk_fence('fenced', zk_lock('fenced'))";
like($s->fails($fenced), qr/^40001: fencing token \d+ for resource "fenced" is too old/, 'a token from elsewhere');
like($s->fails($fenced), qr/^40001: fencing token/, '... also with the lock acquired anew');
my ($raise) = hint($s) =~ /a superuser can use (SELECT .*)\.$/;
cmp_ok($s->query($raise // 'SELECT 0'), '>', 0, '... ' . ($raise // 'no hint'));
ZkLock::wait_until(sub { ($now = $s->fails($fenced)) eq '' }, 'the fence lets a new token in', sub { $now });
is($s->fails("SELECT zk_fence('other', zk_lock('other'))"), '', '... and so do those of all other resources');

#
# A clock that was wrong
#
$clock->set(7200);
$s = ZkLock::session($a);
$s->query('CREATE TABLE t (job text)');
# slots of an hour, of which this one has half of it to go
my $origin = $s->query("SELECT now() - interval '30 min'");
my $call = "CALL zk_run_once('ahead', 'INSERT INTO t VALUES (''ahead'')', every => '1 hour', origin => '$origin')";
is($s->fails($call), '', "the ensemble's clock was two hours ahead");
$clock->set(0);
$s->query($call);
my ($reset) = hint($s) =~ /^The slot lies ahead of ZooKeeper's clock\. If that was wrong then, and is right now, use (SELECT .*)\.$/;
is($s->query($reset // 'SELECT NULL'), 't', '... ' . ($reset // 'no hint'));
is($s->fails($call) . $s->notices, '', '... and the present slot is run');
$s->query($call);
like($s->notices, qr/^NOTICE 00000: job "ahead" is done for slot .*, skipping/, '... once');
is($s->query('SELECT count(*) FROM t'), 2, '... and what was done is not undone');

done_testing();
