# The end of a run is told once: in the log, and to those who listen.
#
# A session cannot record the end of its run, and says so; its server records it meanwhile, or
# does not; then the session ends.  A run that was lost while it committed is told as lost, and
# the chaos run finds it in the log; as it finds the ZooKeeper sessions that were lost.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl", "$FindBin::Bin/../chaos";
use Chaos::Losses;
use Jobs qw(rows runs);
use PostgreSQL::Test::Utils ();
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
my $a = ZkLock::server('a', $proxy, init => { allows_streaming => 1 },
	conf => "zklock.session_timeout = '1h'\nzklock.connect_timeout = '1h'\ncluster_name = 'a'\nzklock.notify_database = 'postgres'\n"
	  # a standby that is not there holds up a commit that asks for it
	  . "synchronous_commit = local\nsynchronous_standby_names = 'nobody'");
my $b = ZkLock::server('b', $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = 'b'");
ZkLock::wait_connected($a, $b);
ZkLock::ask($a, 'CREATE TABLE t (job text)');
my $listener = ZkLock::session($a);
$listener->query('LISTEN zklock_jobs');

my $told = '';
sub told { my ($job) = @_; $told .= $listener->query('SELECT 1'); return () = $told =~ /payload "$job:done"/g; }
sub logged { my ($job) = @_; return () = PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /job "$job": run 1 is done after/g; }

for my $settled (1, 0)
{
	my $job = $settled ? 'settled' : 'not settled';
	my $run = ZkLock::session($a);
	$run->query('SET synchronous_commit = on');
	$run->send("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '2026-01-01')")->wait_event('SyncRep');
	$proxy->down;
	$run->cancel; # the wait for the standby
	$run->wait_event('Extension');
	$run->cancel; # the record of the end
	is($run->failure, '', "$job: the run is done");
	like($run->notices, qr/WARNING 01000: the end of a run of job "$job" could not be recorded/, '... which cannot be recorded');
	is(logged($job), 1, '... and is logged');
	if ($settled)
	{
		$proxy->heal;
		my $seen;
		ZkLock::wait_until(sub { ($seen = runs($b, $job)) eq 'done a' }, "$job: the server has recorded it", sub { $seen });
	}
	$run->quit;
	$proxy->heal;
	ZkLock::wait_until(sub { runs($b, $job) eq 'done a' }, "$job: it is recorded");
	ZkLock::wait_queue($zk, $job, 0, 'jobs');
	is(logged($job), 1, '... not again when the session ends');
	# notifications come in order
	ZkLock::ask($a, "CALL zk_run_once('after $job', 'SELECT 1', slot => '2026-01-01')");
	ZkLock::wait_until(sub { told("after $job") == 1 }, "after $job: told");
	is(told($job), 1, '... and told once');
}

# Another server runs the job again while the commit waits: by then the run is lost.
my $far = Proxy->new($zk->host);
my $c = ZkLock::server('c', $far, init => { allows_streaming => 1 },
	conf => "cluster_name = 'c'\nsynchronous_commit = local\nsynchronous_standby_names = 'nobody'");
ZkLock::wait_connected($c);
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $b, $c;
my $logs = PostgreSQL::Test::Utils::tempdir();
symlink $c->logfile, "$logs/server-C.log" or die;
sub losses { return scalar(my @runs = Chaos::Losses::runs($logs)); }
my $rb = ZkLock::session($b);
for my $end ('terminate', 'cancel', 'cut')
{
	my $job = "lost, then $end";
	if ($end eq 'cut')
	{
		# from here on its session is to end
		ZkLock::hang_up($c);
		$c->append_conf('postgresql.conf', "zklock.session_timeout = '4s'");
		$c->restart;
		ZkLock::wait_connected($c);
	}
	my $before = losses();
	my $run = ZkLock::session($c);
	$run->query('SET synchronous_commit = on');
	$run->send("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '2026-01-01')")->wait_event('SyncRep');
	if ($end eq 'cut') { $far->down; }
	else { $zk->delete("/zklock/jobs/$job/" . (ZkLock::queue($zk, $job, 'jobs'))[0]); }
	$rb->query("CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', slot => '2026-01-01', in_doubt => 'run')");
	is(rows($b, $job), 1, "$job: another server has run it, too");
	is(losses(), $before, '... which the log does not say yet');
	$end eq 'terminate' ? $run->terminate : $run->cancel;
	is($run->failure, $end eq 'terminate' ? 'lost: server closed the connection' : '', '... the run ends');
	like($run->notices, qr/\nDETAIL:  The run is done\. The error was: job "$job" was lost\.$/, '... its end is not recorded') if $end eq 'cut';
	# a second time if its end could not be recorded for that, which is a matter of time where there is a connection
	my $said = losses() - $before;
	ok($said == 2 || $said == 1 && $end ne 'cut', '... and the log says that it was lost') or diag $said;
	is(rows($c, $job), 1, '... and it has committed');
}
$far->heal;
ZkLock::wait_connected($c);

sub sessions { return scalar(my @sessions = Chaos::Losses::sessions($logs)); }
for my $end ('stopped', 'killed', 'killed, and away for long')
{
	my $before = sessions();
	$c->stop($end eq 'stopped' ? 'fast' : 'immediate');
	ZkLock::wait_until(sub { !grep { /^c-/ } $zk->children('/zklock/servers') }, "the session of c is gone") if $end =~ /long/;
	is(sessions(), $before, "$end: the log does not say yet that the session was lost");
	$c->start;
	ZkLock::wait_connected($c);
	is(sessions() - $before, $end eq 'stopped' ? 0 : 1, $end eq 'stopped' ? '... for it was not' : '... and says it then');
}

# Since when: who was cut off learns late that another server may have had its locks.
my @lost = ({ server => 'C', at => 100 }, { server => 'C', at => 200, since => 80 }, { server => 'B', at => 100 });
my @claims = map { my %t; @t{qw(server workload proven ended)} = @$_; \%t }
  [qw(C long 3 4)], [qw(C long 2 9)], [qw(C long 5 11)], [qw(C queue 6 7)], [qw(A long 8 9)];
Chaos::Losses::date(\@lost, 90, 2, @claims);
is(join(' ', map { $_->{since} } @lost), '93 80 98', 'a session was there when the last claim was proven');

is(rows($a, 'settled') . rows($a, 'not settled'), '11', 'each is run once');
done_testing();
