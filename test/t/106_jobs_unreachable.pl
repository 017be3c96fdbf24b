# Jobs and a ZooKeeper that is away at the tick, or whose replies are lost: no slot is run
# twice, and none is lost that somebody waits for.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs ();
use Test::More;
use Proxy;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
my $conf = "zklock.session_timeout = '15s'\n";
my $a = ZkLock::server('a', $proxy, conf => "${conf}cluster_name = 'a'");
my $b = ZkLock::server('b', $zk, conf => "${conf}cluster_name = 'b'");
ZkLock::wait_connected($a, $b);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;
my ($ra, $rb) = map { ZkLock::session($_) } $a, $b;
my $gate = Jobs::Gate->new($a);
my $slot = "slot => '2026-01-01'";

sub rows { my $job = shift; return join '+', map { Jobs::rows($_, $job) } $a, $b; }
sub runs { return Jobs::runs($b, $_[0]); }
sub call { my ($job, $command, $more) = @_; return "CALL zk_run_once('$job', \$j\$INSERT INTO t VALUES ('$job'); $command\$j\$, $slot" . ($more // '') . ')'; }
sub lost { my $n = shift; ZkLock::wait_until(sub { $proxy->lost == $n }, "$n packets have been lost"); }

# The record is written when a run begins, when it is about to commit and when it has; what
# is lost of that, or of what was read before, is asked for again.
my $n = 0;
for my $part ('reply', 'request')
{
	for my $which (1 .. 3)
	{
		for my $kind ('set', 'get')
		{
			my $job = "$part of $kind $which, " . ++$n;
			my $count = $proxy->lost;
			my $method = "lose_$part";
			# before it begins, while the command runs, or when it has committed
			$gate->close;
			$proxy->$method($kind, "/jobs/$job") if $which == 1;
			$ra->send(call($job, $Jobs::at_gate));
			lost($count + 1) if $which == 1;
			$ra->wait_event('advisory');
			$proxy->$method($kind, "/jobs/$job") if $which == 2;
			if ($which == 3)
			{
				# that before the commit, and that after it
				$proxy->$method($kind, "/jobs/$job") for 1, 2;
			}
			$gate->open;
			is($ra->result, '', "lost: $job");
			cmp_ok($proxy->lost, '>', $count, '... indeed');
			$proxy->heal;
			is(rows($job), '1+0', '... run once');
			is(runs($job), 'done a', '... and recorded so');
			is($rb->fails(call($job, 'SELECT 1')), '', '... the other server');
			is(rows($job), '1+0', '... does not run it');
		}
	}
}

# The same for failures, and for zk_run_begin and zk_run_end
for my $part ('reply', 'request')
{
	my $method = "lose_$part";
	my $job = "failure, $part";
	my $count = $proxy->lost;
	$gate->close;
	$ra->send(call($job, 'SELECT pg_advisory_xact_lock(1); SELECT 1/0'));
	$ra->wait_event('advisory');
	$proxy->$method('set', "/jobs/$job");
	$gate->open;
	is($ra->failure, '22012: division by zero', "$job is lost");
	is(ZkLock::ask($b, "SELECT state, attempt, failures FROM zk_jobs WHERE job = '$job'"), 'failed|1|1', '... and counted once');
	for my $when ('begin', 'end')
	{
		my $own = "$when, $part";
		$proxy->$method('set', "/jobs/$own") if $when eq 'begin';
		is($ra->query("SELECT zk_run_begin('$own', $slot)"), 't', "zk_run_$when, $part lost");
		$proxy->$method('set', "/jobs/$own") if $when eq 'end';
		is($ra->query("SELECT zk_run_end('$own')"), 't', '... and ended');
		is(runs($own), 'done a', '... is recorded once');
	}
	$count = $proxy->lost - $count;
	is($count, 3, 'three have been lost');
	my $forgotten = "forgotten, $part";
	$ra->query(call($forgotten, 'SELECT 1'));
	for my $sql ("SELECT zk_job_pause('$forgotten')", "SELECT zk_job_resume('$forgotten')", "SELECT zk_job_reset('$forgotten')", "SELECT zk_job_forget('$forgotten')")
	{
		$proxy->$method('set', "/jobs/$forgotten");
		is($ra->query($sql), 't', "$part lost: $sql");
	}
	is(runs($forgotten), '', '... and it is forgotten');
}

# ZooKeeper is down at the tick, and back while there is time
$zk->stop;
$_->send(call('down', 'SELECT 1')) for $ra, $rb;
$_->wait_event('Extension') for $ra, $rb;
$zk->start;
is($_->result, '', 'ZooKeeper was down at the tick') for $ra, $rb;
like(rows('down'), qr/^(?:0\+1|1\+0)$/, '... and it was run once');

# ... and too late
$_->query("SET zklock.connect_timeout = '1ms'") for $ra, $rb;
$zk->stop;
ZkLock::wait_until(sub { ZkLock::ask($_, 'SELECT state FROM zk_session') ne 'connected' }, 'it is away') for $a, $b;
like($_->fails(call('too late', 'SELECT 1')), qr/^58000: could not reach ZooKeeper/, 'too late') for $ra, $rb;
like($_->fails(call('too late', 'SELECT 1', ", timeout => '1ms'")), qr/^(?:58000|55P03): /, '... for "timeout", too') for $ra, $rb;
is(rows('too late'), '0+0', '... nothing was run');
$zk->start;
ZkLock::wait_connected($a, $b);
$_->query('RESET zklock.connect_timeout') for $ra, $rb;
is(runs('too late'), '', '... nor begun');
is($rb->fails(call('too late', 'SELECT 1')), '', 'it is caught up with by the next call');
is($ra->fails(call('too late', 'SELECT 1')), '', '... of one of them');
is(rows('too late'), '0+1', '... once');

# It goes away while the command runs, and is back for the commit
$gate->close;
$ra->send(call('away', $Jobs::at_gate));
$ra->wait_event('advisory');
$proxy->down;
$gate->open;
$ra->wait_event('Extension');
ok($ra->busy, 'without ZooKeeper a run does not commit');
$proxy->heal;
is($ra->result, '', '... but waits for it');
is(rows('away') . runs('away'), '1+0done a', '... and commits');

is(ZkLock::ask($a, "SELECT count(*) FROM pg_locks WHERE $ZkLock::level1"), 0, 'nothing is held');
unlike(PostgreSQL::Test::Utils::slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal/, 'no bad line in the log of ' . $_->name) for $a, $b;

done_testing();
