# doc/patroni.md: what a failover leaves behind.  The old primary is cut off and not stopped; its
# pg_cron goes on, but nothing that zklock guards is committed there.  What a standby may call.
# And servers in containers: one comes back in its place, another one elsewhere.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use Time::HiRes qw(time);
use Clock;
use Proxy;
use ZkLock;
use ZooKeeper;

chomp(my $libraries = `$ENV{PG_CONFIG} --pkglibdir`);
my $cron = -e "$libraries/pg_cron.so";

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
# pg_cron ticks once a minute: the clocks are set forward
my $clock = Clock->new;
local @ENV{ $clock->names } = $clock->values if $clock;

my $old = ZkLock::server('old', $proxy, start => 0, init => { allows_streaming => 1 }, conf => join "\n",
	"shared_preload_libraries = '" . ($cron ? 'pg_cron, ' : '') . "zklock'",
	"cluster_name = 'cluster'", "zklock.server_name = 'old'",
	"zklock.session_timeout = '4s'");
$old->append_conf('postgresql.conf', "cron.host = '" . $old->host . "'\ncron.log_run = on");
$old->start;
ZkLock::ask($old, "CREATE EXTENSION zklock; CREATE TABLE done (kind text, server text DEFAULT current_setting('zklock.server_name'));
	CREATE TABLE due (slot timestamptz); INSERT INTO due VALUES ('2026-01-01');
	CREATE FUNCTION due() RETURNS timestamptz STABLE LANGUAGE sql AS 'SELECT max(slot) FROM due'");
$old->backup('backup');
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init_from_backup($old, 'backup', has_streaming => 1);
$new->append_conf('postgresql.conf', "zklock.server_name = 'new'\nzklock.hosts = '" . $zk->host . "'\nzklock.session_timeout = '1h'\nzklock.connect_timeout = '1h'");
$new->start;
ZkLock::wait_connected($old, $new);
sub caught_up { my $lsn = ZkLock::ask($old, 'SELECT pg_current_wal_insert_lsn()'); return ZkLock::wait_until(sub { ZkLock::ask($new, "SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' }, 'the standby has all of it'); }
sub rows { my ($node, $kind) = @_; return ZkLock::ask($node, "SELECT count(*) FROM done WHERE kind = '$kind' AND server = '" . $node->name . "'"); }

#
# What a standby may call: the table of the page
#
my $s = ZkLock::session($new);
ZkLock::ask($old, "SELECT zk_queue_put('q', 'x'); CREATE TABLE stock (i int)");
caught_up();
my %answer = (
	"SELECT zk_lock('x') > 0" => 't',
	"SELECT zk_try_lock('x')" => 't',
	"SELECT count(*) FROM zk_lock_all('x', 'y')" => '1',
	"SELECT zk_acquire('s', 2) > 0" => 't',
	"CALL zk_lock_session('x')" => '',
	"SELECT zk_unlock('x')" => 't',
	"CALL zk_barrier('b', 1)" => '',
	"SELECT payload FROM zk_queue_take('q', '1 h')" => 'x',
	"SELECT count(*) >= 2 FROM zk_servers" => 't',
	"SELECT count(*) = 0 FROM zk_contenders('nobody')" => 't',
	"SELECT zk_is_leader('e')" => 'f',
	"SELECT zk_require_leader('e')" => '40001',
	"CALL zk_run_as_leader('e', 'SELECT 1')" => '',
	"CALL zk_run_once('j', 'SELECT 1', every => '1 day')" => '25006',
	"SELECT zk_run_begin('j', every => '1 day')" => '25006',
	"SELECT zk_queue_put('q', 'x')" => '25006',
	"SELECT zk_fence('r', 1)" => '25006');
my ($table) = slurp_file("$FindBin::Bin/../../doc/patroni.md") =~ /^\| on a standby \|.*?\n\|[-| ]*\n(.*?)\n\n/ms;
my %listed = map { $_ => 1 } map { /`(zk_\w+)/g } $table =~ /^\| ([^|]*) \|/mg;
my %called = map { $_ => 1 } map { /\b(zk_\w+)/ } keys %answer;
is(join(' ', sort keys %called), join(' ', sort keys %listed), 'a call for each name in the table of the page');
for my $sql ("CALL zk_lock_session('x')", "SELECT zk_unlock('x')", grep { !/session|unlock/ } sort keys %answer)
{
	my $error = $s->fails($sql);
	is($error =~ /^(\w{5}): / ? $1 : $s->{answer}, $answer{$sql}, "on a standby: $sql");
	# a rule of the page: where it may not lead it says so
	like($s->notices, qr/^NOTICE/, '... with a notice') if $sql =~ /run_as_leader/;
}

#
# A failover without fencing
#
my $ticked = 0;
sub let_tick { if (time > $ticked + 3) { $clock->set($clock->ahead + 60) if $clock; $ticked = time; } return; }
sub ticks { my ($node, $kind) = @_; return ZkLock::ask($node, "SELECT count(*) FROM cron.job_run_details WHERE status NOT IN ('starting', 'running', 'connecting', 'sending') AND command LIKE '%''$kind''%'"); }
# Until what cron begins from now on has ended, twice
sub wait_ticks
{
	my ($node, @kinds) = @_;
	return unless $cron;
	my %n = map { $_ => ticks($node, $_) + 3 } @kinds;
	for my $kind (@kinds) { ZkLock::wait_until(sub { let_tick(); ticks($node, $kind) >= $n{$kind} }, "cron runs $kind on " . $node->name, sub { ZkLock::ask($node, "SELECT string_agg(status || coalesce(return_message, ''), ' ' ORDER BY runid DESC) FROM (SELECT * FROM cron.job_run_details WHERE command LIKE '%''$kind''%' ORDER BY runid DESC LIMIT 3) d") }); }
	return;
}
my %command = (
	plain => "INSERT INTO done VALUES ('plain')",
	leader => "CALL zk_run_as_leader('sync', \$\$INSERT INTO done VALUES ('leader')\$\$)",
	once => "CALL zk_run_once('nightly', \$\$INSERT INTO done VALUES ('once')\$\$, slot => due())");
if ($cron)
{
	ZkLock::ask($old, 'CREATE EXTENSION pg_cron');
	ZkLock::ask($old, "SELECT cron.schedule('$_', '* * * * *', \$c\$$command{$_}\$c\$)") for sort keys %command;
}
# without pg_cron, by hand
sub run { my ($node) = @_; return if $cron; my $by_hand = ZkLock::session($node); $by_hand->fails($command{$_}) for sort keys %command; return; }
run($old);
wait_ticks($old, sort keys %command);
ZkLock::wait_until(sub { let_tick(); run($old); rows($old, 'leader') > 0 && rows($old, 'once') > 0 }, 'the primary does its work');
cmp_ok(rows($old, $_), '>', 0, "the primary does its work: $_") for 'plain', 'leader';
is(rows($old, 'once'), 1, '... and that which is to be done once');
caught_up();

# In the middle of it the primary is cut off from ZooKeeper and from its standby, which is promoted
my ($tx, $job, $locked) = map { ZkLock::session($old) } 1 .. 3;
# A busy machine may be so slow that a session of four seconds is lost.
sub begins { my ($s, $sql) = @_; return ZkLock::wait_until(sub { $s->fails("BEGIN; $sql; INSERT INTO done VALUES ('late')") eq '' || $s->fails('ROLLBACK') }, $sql); }
begins($tx, "SELECT zk_require_leader('sync')");
begins($locked, "SELECT zk_lock('job')");
my $gate = ZkLock::session($old);
$gate->query('SELECT pg_advisory_lock(1)');
# what has begun does not read the settings again
$job->query("SET zklock.connect_timeout = '1s'");
my $half = "CALL zk_run_once('half', \$\$INSERT INTO done VALUES ('half'); SELECT pg_advisory_xact_lock(1)\$\$, slot => due(), attempts => 1000)";
ZkLock::wait_until(sub { $job->send($half) unless $job->busy; ZkLock::ask($old, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted") == 1 }, 'a job is in the middle of its run');
$proxy->hole;
# From now on what needs ZooKeeper there fails soon.
ZkLock::ask($old, "ALTER SYSTEM SET zklock.connect_timeout = '1s'");
$old->reload;
$new->promote;
my $n = ZkLock::session($new);
$n->query("UPDATE cron.job SET nodeport = " . $new->port) if $cron;
ZkLock::wait_until(sub { $n->query("SELECT zk_is_leader('sync')") eq 't' }, 'the new primary leads when a session timeout has passed');
ok(1, 'the new primary leads when a session timeout has passed');
is(ZkLock::ask($old, "SELECT zk_is_leader('sync', '0')"), 'f', '... and the old one does not');
my %before = map { $_ => rows($old, $_) } keys %command;
$n->query("SELECT zk_lock('job') > 0");
like($tx->fails('COMMIT'), qr/^40001: /, '... which cannot commit what it began as the leader');
like($locked->fails('COMMIT'), qr/^40001: /, '... nor what it did under a lock');
$n->query("CALL zk_run_once('half', \$\$INSERT INTO done VALUES ('half')\$\$, slot => due(), attempts => 1000)");
is(rows($new, 'half'), 1, '... nor what it began once, which the new one does');
$gate->query('SELECT pg_advisory_unlock(1)');
like($job->failure, qr/^40001: /, '... and the old one hears of it');
is(rows($old, 'half') . rows($old, 'late'), '00', '... nothing of it is there');

# The next night
ZkLock::ask($_, "INSERT INTO due VALUES ('2026-01-02')") for $old, $new;
run($_) for $old, $new;
wait_ticks($old, sort keys %command);
wait_ticks($new, sort keys %command);
my $look = sub {
	my ($when) = @_;
	cmp_ok(rows($old, 'plain'), '>', $before{plain}, "$when: the old primary goes on writing by itself");
	is(rows($old, $_), $before{$_}, "... but not $_") for 'leader', 'once';
	cmp_ok(rows($new, 'leader'), '>', 0, '... which the new one does');
	is(rows($new, 'once'), 1, '... once');
	return;
};
$look->('cut off');
if ($cron)
{
	is(ZkLock::ask($old, "SELECT DISTINCT status FROM (SELECT status FROM cron.job_run_details WHERE command LIKE '%''once''%' AND status IN ('failed', 'succeeded') ORDER BY runid DESC LIMIT 2) d"), 'failed', "... on the old one pg_cron says that it failed");
	is(ZkLock::ask($old, "SELECT count(*) FROM cron.job_run_details WHERE command LIKE '%''once''%' AND return_message LIKE '%could not reach ZooKeeper%'") > 0, 1, '... and why');
}

# ZooKeeper is there again, and the old primary still has not been stopped
$before{$_} = rows($old, $_) for keys %before;
$proxy->heal;
ZkLock::wait_connected($old);
run($_) for $old, $new;
wait_ticks($old, sort keys %command);
$look->('connected again');
ok(ZkLock::wait_until(sub { ZkLock::ask($new, "SELECT server FROM zk_contenders('none') UNION SELECT server FROM zk_servers ORDER BY 1") eq "new\nold" }, 'both are there'), 'both are told apart by zklock.server_name');
$_->quit for $tx, $job, $locked, $gate, $n, $s;

#
# Containers
#
my $zk2 = ZooKeeper->new->start;
my $pod = ZkLock::server('pod', $zk2, conf => "cluster_name = 'pod'\nzklock.session_timeout = '1h'");
my $other = ZkLock::server('other', $zk2, conf => "cluster_name = 'other'\nzklock.session_timeout = '1h'");
ZkLock::wait_connected($pod, $other);
my $waiter;
sub lose_pod
{
	my $holder = ZkLock::session($pod);
	$holder->query("BEGIN; SELECT zk_lock('job')");
	$waiter = ZkLock::session($other)->send("SELECT zk_lock('job') > 0")->wait_level(2);
	$pod->stop('immediate');
	ok($waiter->busy, 'a pod is killed: others wait for its lock');
	return;
}

lose_pod();
unlink ZkLock::memory($pod); # as /dev/shm of a container that is made anew
$pod->start;
is($waiter->result, 't', '... until it is back in its place, with another /dev/shm');
ZkLock::wait_connected($pod);

lose_pod();
my $data = $pod->data_dir;
system("cp -a $data $data.moved && rm -rf $data && mv $data.moved $data") == 0 or die;
$pod->start;
ZkLock::wait_connected($pod);
ok($waiter->busy, '... also when it is back elsewhere');
my ($first) = ZkLock::queue($zk2, 'job');
my $held = $zk2->stat(ZkLock::directory('job') . "/$first");
isnt(sprintf('0x%x', $held->{ephemeralOwner}), ZkLock::ask($pod, 'SELECT session_id FROM zk_session'), '... where it has another ZooKeeper session');
$zk2->delete(ZkLock::directory('job') . "/$first"); # a session timeout has passed
is($waiter->result, 't', '... until a session timeout has passed');

$waiter = ZkLock::session($other);
my $holder = ZkLock::session($pod);
$holder->query("BEGIN; SELECT zk_lock('job')");
$waiter->send("SELECT zk_lock('job') > 0")->wait_level(2);
$pod->stop('fast');
is($waiter->result, 't', '... and not at all for one that was shut down');

done_testing();
