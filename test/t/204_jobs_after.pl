# A job that is to be run after others waits until they have done the slot, on whichever
# server, and holds nothing meanwhile.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Jobs qw(rows record runs);
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "cluster_name = '$_'\ntimezone = 'UTC'\nzklock.session_timeout = '1h'") } qw(a b);
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;
my $gate = Jobs::Gate->new($a);
my ($ra, $rb, $s) = (ZkLock::session($a), ZkLock::session($b), ZkLock::session($b));

# A call for a slot, by default one that notes it.
sub call { my ($job, $more, $command) = @_; return "CALL zk_run_once('$job', '" . ($command // "INSERT INTO t VALUES (''$job'')") . "', slot => '2026-01-01'$more)"; }
# Until it has looked, and waits for another job: it has had its own, and nobody has it now.
sub waits
{
	my ($job, $session) = @_;
	my $directory = ZkLock::directory($job, 'jobs');
	ZkLock::wait_until(sub { my $stat = $zk->stat($directory); $stat && $stat->{cversion} >= 2 && $stat->{numChildren} == 0 }, "$job has been taken and given back");
	return $session->wait_event('Extension');
}

# It waits for one that runs elsewhere, and for one that has failed
$gate->stand($ra, call('load', ', attempts => 3', "$Jobs::at_gate; SELECT 1/0"));
waits('report', $rb->send(call('report', ", after => '{load}'")));
is(ZkLock::ask($b, 'SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid = ' . $rb->pid), 0, 'it waits without a snapshot');
ZkLock::wait_queue($zk, 'report', 0, 'jobs');
my $row;
ZkLock::wait_until(sub { ($row = ZkLock::ask($b, 'SELECT kind, name, server, pid, root_server, steps FROM zk_waits')) ne '' }, 'zk_waits has it', sub { $row });
is($row, 'job|load|b|' . $rb->pid . '|a|1', 'zk_waits shows who waits, for which job, and which server runs it');
is(ZkLock::ask($b, 'SELECT waits_for FROM zk_blocking(' . $rb->pid . ') WHERE step = 0'), 'job "load"', '... and so does zk_blocking');
is($s->query("SELECT zk_run_begin('report', slot => '2026-01-01', timeout => '0', after => '{load}')"), 'f', '... and nobody else can run it');
is($s->notices, 'NOTICE 00000: job "report" is run after job "load", which is not done for slot 2026-01-01 00:00:00+00, skipping', '... as it is told');
is($s->fails(call('report', ", timeout => '300 ms', after => '{load}'")), '55P03: job "load" was not done for slot 2026-01-01 00:00:00+00 within 300 ms', '... also who waits for a while');
like($s->notices, qr/DETAIL:  Job "report" is run after it\./, '... with the job that waits');
$gate->open;
is($ra->failure, '22012: division by zero', 'the other job fails');
is($s->fails(call('report', ", timeout => '0', after => '{load}'")), '', '... and is not done');
like($s->notices, qr/which is not done for slot/, '... by that');
is($rb->busy, 1, '... so it is waited for');
is($ra->query(call('load', ', attempts => 3')), '', 'it is tried again');
is($rb->result, '', '... and who has waited');
is(ZkLock::ask($b, 'SELECT count(*) FROM zk_waits'), 0, '... is in zk_waits no more');
is($rb->notices, '', '... has nothing to tell');
is(rows($b, 'report') . record($b, 'report'), '1done|b|1|0', '... but runs the job');
is($ra->query(call('report', ", after => '{load}'")), '', 'once');
is(rows($a, 'report'), 0, '... as always');

# Who would not wait for it runs it by hand; the one who waits hears of it when the other is done
waits('by hand', $rb->send(call('by hand', ", after => '{never}'")));
is($s->query(call('by hand', ", timeout => '0'")), '', 'by hand, without the other');
is(rows($b, 'by hand'), 1, '... it is run');
is($rb->result, '', '... and who waits');
like($rb->notices, qr/^NOTICE 00000: job "by hand" is done for slot /, '... has nothing to do any more');

# What ends the wait ends it in zk_waits
waits('cancelled', $rb->send(call('cancelled', ", after => '{never}'")));
ZkLock::wait_until(sub { ZkLock::ask($b, 'SELECT name, root_server IS NULL FROM zk_waits') eq 'never|t' }, 'nobody has the other job');
$rb->cancel;
like($rb->failure, qr/^57014: /, 'the wait is cancelled');
is(ZkLock::ask($b, 'SELECT count(*) FROM zk_waits'), 0, '... also in zk_waits');
my $victim = ZkLock::session($b);
waits('terminated', $victim->send(call('terminated', ", after => '{never}'")));
ZkLock::wait_until(sub { ZkLock::ask($b, 'SELECT name FROM zk_waits') eq 'never' }, 'another one waits');
$victim->terminate;
like($victim->failure, qr/^57P01: /, '... and its session is terminated');
is(ZkLock::ask($b, 'SELECT count(*) FROM zk_waits'), 0, '... also there');

# In a function, and by a procedure
waits('begun', $rb->send("SELECT zk_run_begin('begun', slot => '2026-01-01', after => '{before,load}')"));
waits('session', $s->send("CALL zk_run_begin_session('session', slot => '2026-01-01', after => '{load,before}')"));
$ra->query(call('before', ''));
is($_->result, 't', 'a run that ends by zk_run_end, after two others') for $rb, $s;
is($rb->query("SELECT zk_run_end('begun')") . $s->query("SELECT zk_run_end('session')"), 'tt', '... ends');

# What ends the wait else
waits('canceled', $rb->send(call('canceled', ", after => '{never}'")));
$rb->cancel;
is($rb->failure, '57014: canceling statement due to user request', 'a cancel');
like(PostgreSQL::Test::Utils::slurp_file($b->logfile), qr/CONTEXT:  while waiting for job "never", after which job "canceled" is to be run/, '... and for what it has waited');
$rb->query("SET lock_timeout = '300 ms'");
is($rb->fails(call('canceled', ", after => '{never}'")), '55P03: canceling statement due to lock timeout', 'lock_timeout');
$rb->query('RESET lock_timeout');
waits('canceled', $rb->send(call('canceled', ", after => '{never}'")));
is($s->query("SELECT zk_job_pause('canceled')"), 't', 'a pause');
is($rb->result, '', '... ends it');
is($rb->notices, 'NOTICE 00000: job "canceled" is paused until infinity, skipping', '... as it is told');
waits('drained', $rb->send(call('drained', ", after => '{never}'")));
ZkLock::ask($b, 'ALTER SYSTEM SET zklock.drain = on; SELECT pg_reload_conf()');
is($rb->result, '', 'a server that is taken out of service');
like($rb->notices, qr/^NOTICE 00000: job "drained" is not run by this server, skipping/, '... does not wait');
ZkLock::ask($b, 'ALTER SYSTEM RESET zklock.drain; SELECT pg_reload_conf()');
ZkLock::wait_until(sub { ZkLock::ask($b, 'SHOW zklock.drain') eq 'off' }, 'it is back');
is(ZkLock::ask($b, "SELECT count(*) FROM zk_jobs WHERE job IN ('canceled', 'drained') AND slot IS NOT NULL"), 0, 'none of them has run');

# A circle of two jobs
$ra->send(call('chicken', ", timeout => '5 s', after => '{egg}'"));
ZkLock::wait_until(sub { !$ra->busy || ZkLock::ask($a, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $ra->pid) eq 't' }, 'one waits, or its time is up');
is($rb->fails(call('egg', ", timeout => '1 s', after => '{chicken}'")), '55P03: job "chicken" was not done for slot 2026-01-01 00:00:00+00 within 1000 ms', 'two that wait for each other');
like($ra->failure, qr/^55P03: job "egg" was not done /, '... end by their timeouts');

# With "every": the present slot waits, and one that was reset is run meanwhile
my $daily = $Jobs::daily =~ s/\$//r;
is($ra->query("CALL zk_run_once('source', 'SELECT 1', $daily)"), '', 'the slot of today there');
is($rb->query("CALL zk_run_once('sink', 'INSERT INTO t VALUES (''sink'')', $daily, after => '{source}')"), '', '... and here');
is($ra->query("SELECT zk_job_reset('source'), zk_job_reset('sink')"), 't|t', 'both are reset');
is($rb->query("CALL zk_run_once('sink', 'SELECT 1/0', $daily, timeout => '0', after => '{source}')"), '', '... and one is due again');
like($rb->notices, qr/^NOTICE 00000: job "sink" is run after job "source", which is not done for slot /, '... when the other is done again');
is($ra->query("CALL zk_run_once('source', 'SELECT 1', $daily)"), '', '... as it is now');
is($rb->query("CALL zk_run_once('sink', 'INSERT INTO t VALUES (''sink'')', $daily, timeout => '0', after => '{source}')"), '', '... so that');
is(rows($b, 'sink'), 2, '... it is run');

# A record that cannot be read
$zk->set('/zklock/jobs/source', 'rubbish');
my $many = "CALL zk_run_once('many', 'SELECT 1', slot => '2100-01-01', timeout => '0', after => array_fill('load'::text, '{%d}'))";
is($rb->fails(sprintf $many, 200000), '54000: job "many" cannot be run after 200000 jobs', 'there is a limit');
is($rb->fails(sprintf $many, 1001), '54000: job "many" cannot be run after 1001 jobs', '... of 1000 jobs');
is($rb->fails(sprintf $many, 1000), '', '... which are possible');
is($rb->fails("CALL zk_run_once('sink', 'SELECT 1/0', slot => '2100-01-01', after => '{source}')"), '22023: record of job "source" in ZooKeeper is damaged', 'a damaged record of the other job');
is($rb->query("SELECT zk_job_forget('sink')"), 't', '... and nothing is held');

# No ZooKeeper, for longer than a session lasts
my $c = ZkLock::server('c', $zk, conf => "cluster_name = 'c'\nzklock.connect_timeout = '8s'");
ZkLock::wait_connected($c);
my $sc = ZkLock::session($c);
waits('unreachable', $sc->send(call('unreachable', ", after => '{never}'")));
$zk->stop;
like($sc->failure, qr/^58000: could not reach ZooKeeper within \d+ ms/, 'without ZooKeeper nobody waits for ever');
is(ZkLock::ask($_, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, '... and nothing is held') for $a, $b, $c;

done_testing;
