# Two versions of zklock in one fleet: a server that was updated, whose records have a version
# one higher (test/newer), beside one that was not.  Locks, permits and items are shared as
# before.  What the older server cannot read it neither uses, nor changes, nor throws away, and
# says so; the night's job runs once.
#
# And the update itself: new files beside the old library, the new library with the old SQL.
use strict;
use warnings;

use File::Basename qw(dirname);
use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(rows);
use PostgreSQL::Test::Utils qw(slurp_file);
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $top = "$FindBin::Bin/../..";
my $tree = "$PostgreSQL::Test::Utils::tmp_check/newer";
my $pg = "$PostgreSQL::Test::Utils::tmp_check/newer_pg";
# As in 202_toy_kind: PostgreSQL finds its files by where its programs are.
my ($root, $bin) = dirname($ENV{PG_CONFIG}) =~ m{^(.*/pg)(/usr/.*)$} or die "PG_CONFIG is not the sandbox's\n";
my ($old, $new) = map { dirname("$_$bin") } $root, $pg;

sub run { return system(@_) == 0 || die "@_ failed\n"; }
sub log_of { return slurp_file($_[0]->logfile); }

# The same server with another installation.
sub exchange
{
	my ($node, $path, $mode) = @_;
	ZkLock::hang_up($node) unless $mode;
	$node->stop($mode // 'fast');
	$node->{_install_path} = $path;
	$node->start;
	ZkLock::wait_connected($node);
	return;
}

run('rm', '-rf', $tree, $pg);
run('cp', '-a', '--reflink=auto', $root, $pg);
my $zk = ZooKeeper->new->start;
# A leader looks for higher priorities once in a session timeout: it is as short as it can be where
# a machine may stand still for some seconds.  Commits wait for a standby that is not there, where a
# session asks for that.
my $conf = "zklock.session_timeout = '15s'\ndeadlock_timeout = '100ms'\nsynchronous_commit = local\nsynchronous_standby_names = 'nobody'\n";
my ($a, $b) = map {
	ZkLock::server($_, $zk, init => { allows_streaming => 1 }, conf => "${conf}zklock.server_name = '$_'", cluster => { install_path => $_ eq 'a' ? $old : $new })
} 'a', 'b';
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;
sub versions { return ZkLock::ask($_[0], "SELECT string_agg(concat(server, ' ', zklock_version), ', ' ORDER BY server) FROM zk_servers"); }
sub check { return ZkLock::ask($_[0], "SELECT ok, detail FROM zk_check() WHERE what = 'zklock version'"); }
is(versions($a), 'a 1.0, b 1.0', 'two servers of one version');
is(check($a), 't|1.0 on 2', '... as zk_check says');

#
# The files are new, the library is not yet
#
run("$top/test/newer", $top, $tree);
ok(system("make -s -j2 -C '$tree' ASSERTIONS=yes PG_CONFIG='$pg$bin/pg_config' install >'$tree/make.log' 2>&1") == 0, 'the next version is installed while the server runs') or die slurp_file("$tree/make.log");
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;
like($sb->fails('ALTER EXTENSION zklock UPDATE'), qr/^42883: could not find function "zk_newer" in file/, 'the new SQL does not go with the old library');
is($sb->query('SELECT extversion FROM pg_extension WHERE extname = \'zklock\''), '1.0', '... so it stays as it is');
cmp_ok($sb->query("SELECT zk_lock('x')"), '>', 0, '... and works');
is(versions($a), 'a 1.0, b 1.0', '... with the library that runs');
$sb->quit;
exchange($b, $new);
$sb = ZkLock::session($b);
is(versions($_), 'a 1.0, b 1.1', 'restarted it has the new one, which all servers see') for $a, $b;
like(check($_), qr/^f\|1\.0 on 1, 1\.1 on 1$/, '... and zk_check says so') for $a, $b;
cmp_ok($sb->query("SELECT zk_lock('x')"), '>', 0, 'the new library goes with the old SQL');
is($sb->query('ALTER EXTENSION zklock UPDATE; SELECT zk_newer()'), '1.1', '... which is updated at any time');
like($sa->fails("ALTER EXTENSION zklock UPDATE TO '1.1'"), qr/^22023: extension "zklock" has no update path/, 'a server without the new files cannot update');

#
# What has no record: locks, sets, permits.  Who waits for whom is read by names.
#
for my $pair ([ $sa, $sb, 'b', 'a' ], [ $sb, $sa, 'a', 'b' ])
{
	my ($holder, $waiter, $waits, $holds) = @$pair;
	my ($root, $pid) = map { $_->pid } $holder, $waiter;
	my $t1 = $holder->query("BEGIN; SELECT zk_lock('lock')");
	$waiter->send("SELECT zk_lock('lock')")->wait_level(2);
	my $row = "SELECT count(*) FROM zk_waits WHERE name = 'lock' AND server = '$waits' AND pid = $pid AND root_server = '$holds' AND root_pid = $root";
	for my $node ($a, $b) { ZkLock::wait_until(sub { ZkLock::ask($node, $row) }, $node->name . ' sees who waits, and for whom'); }
	pass("both see that $waits waits for $holds");
	$holder->query('COMMIT');
	cmp_ok($waiter->result, '>', $t1, "$waits gets a lock after $holds, with a larger token");
	$holder->query("BEGIN; SELECT zk_lock_all('one', 'two')");
	is($waiter->query("SELECT zk_try_lock_all('{two,three}')"), 'f', '... sets, too');
	$holder->query('COMMIT; BEGIN; SELECT zk_acquire(\'permits\', 1)');
	is($waiter->query("SELECT zk_try_acquire('permits', 1)"), 'f', '... and permits');
	$holder->query('COMMIT');
}

#
# Deadlocks: who can read all waits finds them.
#
my ($foreign, $between) = ($zk->client);
sub ring
{
	my ($first, $last, $until) = @_;
	$zk->delete($between) if $between;
	$_->query('BEGIN') for $first, $last;
	my $pid = $first->pid;
	$first->query("SELECT zk_lock('d1')");
	$last->query("SELECT zk_lock('d2')");
	$first->send("SELECT zk_lock('d2')")->wait_level(2);
	# its wait is published when somebody wants what it has
	$between = $foreign->contend(ZkLock::directory('d1'));
	ZkLock::wait_until(sub { grep { ($zk->get("/zklock/waits/$_") // '') =~ /"waiter": $pid\b/ } $zk->children('/zklock/waits') }, 'a wait is published');
	$last->send("SET lock_timeout = $until; SELECT zk_lock('d1')");
	return;
}
ring($sa, $sb, 0);
like($sb->failure, qr/^40P01: deadlock detected/, 'a deadlock in which the newer server is the last is found');
$sb->query('ROLLBACK');
cmp_ok($sa->result, '>', 0, '... and the older one goes on');
$sa->query('COMMIT');
ring($sb, $sa, "'2s'");
like($sa->failure, qr/^55P03/, 'one in which the older server is the last lasts until a timeout');
$sa->query('ROLLBACK; RESET lock_timeout');
cmp_ok($sb->result, '>', 0, '... then the newer one goes on');
$sb->query('COMMIT');

#
# Queues: items have no version.
#
for my $pair ([ $sa, $sb ], [ $sb, $sa ])
{
	my ($puts, $takes) = @$pair;
	$puts->query("SELECT zk_queue_put('work', 'item')");
	ZkLock::wait_until(sub { $takes->query("SELECT payload FROM zk_queue_take('work')") eq 'item' }, 'the other server has the item');
}
pass('items go both ways');

#
# Barriers: a round that the newer server opens cannot be read.
#
sub come
{
	my ($s, $n) = @_;
	$s->send("CALL zk_barrier('step', 2)")->wait_event('Extension');
	$zk->wait_children(ZkLock::directory('step', 'barriers'), $n);
	return;
}
come($sb, 1);
is($sa->query("CALL zk_barrier('step', 2)"), '', 'a round that the older server opens');
is($sb->result, '', '... lets both go');
come($sa, 1);
is($sb->query("CALL zk_barrier('step', 2)"), '', 'one that the newer server opens');
is($sa->failure, '58000: could not find out whether barrier "step" was opened', '... is not known to the older one');
like($sa->notices, qr/or is of a newer version of zklock/, '... which says why');
is($sa->fails("CALL zk_barrier('step', 2)"), '55000: record of barrier "step" in ZooKeeper is of a newer version of zklock', 'from then on it is told so at once');
like($sa->notices, qr/^HINT:  Update zklock on this server\.$/m, '... with what to do');
my $other = ZkLock::session($b);
come($sb, 1);
is($other->query("CALL zk_barrier('step', 2)"), '', '... and opens no round, in which others meet');
is($sb->result, '', '... as before');

#
# Jobs
#
my $slot = 0;
sub call { my ($job, $slot, $more) = @_; return "CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '$slot'" . ($more // '') . ')'; }
$sa->query(call('night', '2026-01-01'));
$sb->query(call('night', '2026-01-01'));
like($sb->notices, qr/job "night" is done for slot/, 'what the older server has done the newer one knows');
$sb->query(call('night', '2026-01-02'));
my $newer = '55000: record of job "night" in ZooKeeper is of a newer version of zklock';
is($sa->fails(call('night', $_)), $newer, "the older server does not run slot $_ again, whose record it cannot read") for '2026-01-02', '2026-01-03';
is($sa->fails(call('later', '2026-01-02', ", after => '{night}'")), $newer, '... nor what comes after it');
is($sa->fails($_), $newer, "... and refuses $_") for "SELECT zk_job_forget('night')", "SELECT zk_job_pause('night')", "SELECT zk_job_reset('night', '2026-01-02')";
is(ZkLock::ask($a, "SELECT state FROM zk_jobs WHERE job = 'night'"), 'newer version', '... as zk_jobs says');
is(rows($a, 'night') . rows($b, 'night'), '11', 'each night was done once');
$sb->query(call('night', '2026-01-02'));
like($sb->notices, qr/job "night" is done for slot/, '... which the newer server knows still');

# The record becomes newer while a run of the older server commits.
my $run = ZkLock::session($a);
$run->query('SET synchronous_commit = on');
$run->send(call('late', '2026-01-01'))->wait_event('SyncRep');
$sb->query("SELECT zk_job_pause('late'), zk_job_resume('late')");
ZkLock::ask($a, "ALTER SYSTEM SET synchronous_standby_names = ''");
$a->reload;
is($run->result, '', 'a run of the older server commits, and its record is newer by then');
like($run->notices, qr/the end of a run of job "late" could not be recorded/, '... so its end is not recorded');
my $waiter = ZkLock::session($b);
$waiter->send(call('late', '2026-01-01'))->wait_event('Extension');
ZkLock::wait_until(sub { log_of($a) =~ /LOG:  could not settle the runs of job "late"\n.*DETAIL:  record of job "late" in ZooKeeper is of a newer version of zklock/ }, 'it cannot be settled');
ok($waiter->busy, 'the server keeps the job, and so nobody runs it again');

#
# Elections: nobody resigns for a priority that he cannot read.
#
sub stands { my ($node, $election) = @_; return ZkLock::ask($node, "SELECT zk_is_leader('$election', '1 h')"); }
sub leads { my ($node, $election, $what) = @_; return ok(ZkLock::wait_until(sub { stands($node, $election) eq 't' }, $node->name . " leads $election"), $what); }
ZkLock::set($b, 'zklock.leader_priority', 50);
leads($a, 'one', 'the older server leads');
stands($b, 'one');
is(ZkLock::ask($a, "SELECT server, is_leader, priority FROM zk_candidates('one')"), "a|t|100\nb|f|", 'the older server cannot read a priority of the newer one');
is(ZkLock::ask($b, "SELECT server, is_leader, priority FROM zk_candidates('one')"), "a|t|100\nb|f|50", '... which reads all');
leads($b, 'two', 'the newer server leads');
stands($a, 'two');
leads($a, 'two', '... and resigns for a higher priority');
ZkLock::set($b, 'zklock.leader_priority', 200);
leads($b, 'three', 'the newer server leads another election');
stands($a, 'three');
leads($a, $_, "... and the older one does not resign for it: $_") for 'one', 'two';

#
# Items that a server of the newer version has left behind are not thrown away by the older one.
# That is so if it replaces the newer one: by a promotion, or as here.
#
my $put = ZkLock::session($b);
$put->query('SET synchronous_commit = on');
$put->send("SELECT zk_queue_put('left', 'item')")->wait_event('SyncRep');
my ($chunk) = $zk->children('/zklock/queues/left/puts');
exchange($b, $old, 'immediate');
ZkLock::wait_until(sub { log_of($b) =~ m{znode "/zklock/queues/left/puts/\Q$chunk\E" is of a newer version of zklock: its items are left there} }, 'an older server finds items of a newer version, and says so');
is(join(' ', $zk->children('/zklock/queues/left/puts')), $chunk, '... and leaves them');
$sb = ZkLock::session($b);
$sb->query("SELECT zk_queue_put('left', 'other')");
ZkLock::wait_until(sub { $sa->query("SELECT payload FROM zk_queue_take('left')") eq 'other' }, 'the queue goes on');
pass('the queue goes on without them');
length_is($b, 'left', '0 0 1', '... and shows that there are some');
$sb->quit;
exchange($b, $new);
$sb = ZkLock::session($b);
ZkLock::wait_until(sub { $sb->query("SELECT payload FROM zk_queue_take('left')") eq 'item' }, 'the items come into the queue');
pass('the newer version puts them into the queue');

#
# All are updated
#
$_->quit for $sa, $run;
$waiter = ZkLock::session($b);
$waiter->send(call('late', '2026-01-01'))->wait_event('Extension');
exchange($a, $new);
$sa = ZkLock::session($a);
is(check($a), 't|1.1 on 2', 'all servers are updated');
is($waiter->result, '', 'the run that was left is settled');
like($waiter->notices, qr/job "late" is done for slot/, '... as done');
is(rows($a, 'late') . rows($b, 'late'), '10', '... and was run once');
$sa->query(call('night', '2026-01-02'));
like($sa->notices, qr/job "night" is done for slot/, 'the record of the job is read');
come($sb, 1);
is($sa->query("CALL zk_barrier('step', 2)"), '', '... and the rounds of the barrier');
is($sb->result, '', '... by both');
ring($sb, $sa, 0);
like($sa->failure, qr/^40P01: deadlock detected/, 'deadlocks are found, whoever is last');
$sa->query('ROLLBACK');
$sb->result;
$sb->query('COMMIT');
is($sa->query('ALTER EXTENSION zklock UPDATE; SELECT zk_newer()'), '1.1', 'the SQL is updated last');
done_testing();
