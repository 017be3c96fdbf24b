# pg_cron on three servers, with the same schedule: each slot is run once, whichever server
# dies before the tick, before, during or after the command, or while it commits.
#
# The servers' clocks are set forward by a minute for each tick; where that cannot be had,
# each tick is waited for.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Time::HiRes qw(time);
use Clock;
use Jobs ();
use ZkLock;
use ZooKeeper;

chomp(my $libraries = `$ENV{PG_CONFIG} --pkglibdir`);
plan skip_all => 'no pg_cron' unless -e "$libraries/pg_cron.so";

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $clock = Clock->new;
local @ENV{ $clock->names } = $clock->values if $clock;
my (%node, %gate, %down);
for my $name (qw(a b c))
{
	my $node = ZkLock::server($name, $zk, start => 0, init => { allows_streaming => 1 },
		conf => "shared_preload_libraries = 'pg_cron, zklock'\ncluster_name = '$name'\nzklock.session_timeout = '1h'\n"
		  # a standby that is not there holds up a commit that asks for it
		  . "synchronous_commit = local\nsynchronous_standby_names = 'nobody'");
	$node->append_conf('postgresql.conf', "cron.host = '" . $node->host . "'");
	$node->start;
	$node{$name} = $node;
}
my @names = sort keys %node;
ZkLock::ask($node{$_}, 'CREATE EXTENSION zklock; CREATE EXTENSION pg_cron; CREATE TABLE t (job text)') for @names;
ZkLock::wait_connected(@node{@names});

sub alive { return grep { !$down{$_} } @names; }
sub ask { my ($sql) = @_; return ZkLock::ask($node{ (alive())[0] }, $sql); }

sub schedule
{
	my ($job, $command, $more, @which) = @_;
	my $call = "CALL zk_run_once('$job', \$j\$INSERT INTO t VALUES ('$job'); $command\$j\$, $Jobs::daily$more)";
	ZkLock::ask($node{$_}, "SELECT cron.schedule('$job', '* * * * *', \$c\$$call\$c\$)") for @which;
}
sub unschedule { my $job = shift; ZkLock::ask($node{$_}, "SELECT cron.unschedule('$job')") for @names; }

my $ticked = time;
sub tick { $clock->set($clock->ahead + 60) if $clock; $ticked = time; }
# A tick that comes before cron has read its schedule is none: let others come, now and then.
sub let_tick { tick() if time > $ticked + 3; }

# Until cron has called it on this server and it said nothing bad, so many times
sub called
{
	my ($name, $job, $n) = @_;
	my $seen;
	ZkLock::wait_until(
		sub {
			let_tick();
			$seen = ZkLock::ask($node{$name}, "SELECT count(*) FROM cron.job_run_details WHERE status = 'succeeded' AND command LIKE '%zk_run_once(''$job''%'");
			return $seen >= $n;
		},
		"cron calls $job on $name", sub { $seen });
	return pass("cron has called $job on $name");
}
sub called_again
{
	my ($job, @which) = @_;
	my %n = map { $_ => ZkLock::ask($node{$_}, "SELECT count(*) FROM cron.job_run_details WHERE command LIKE '%zk_run_once(''$job''%'") } @which;
	called($_, $job, $n{$_} + 1) for @which;
}
# Until somebody, who is not this one, is at it
sub runner
{
	my ($job, $state, $but) = @_;
	my $name;
	ZkLock::wait_until(
		sub {
			let_tick();
			$name = ask("SELECT server FROM zk_jobs WHERE job = '$job' AND state = '$state'");
			return $name ne '' && $name ne ($but // '');
		},
		"$job is $state", sub { $name });
	return $name;
}
sub all_wait
{
	my ($job) = @_;
	ZkLock::wait_until(sub { let_tick(); ZkLock::queue($zk, $job, 'jobs') == alive() }, "all servers are in the queue of $job");
}
sub rows { my ($job, @which) = @_; return join ' ', map { ZkLock::ask($node{$_}, "SELECT count(*) FROM t WHERE job = '$job'") } @which; }
sub once { my ($job) = @_; return is(join(' ', sort split / /, rows($job, @names)), '0 0 1', "$job: run once"); }
# It dies, and what it has in the queue of a job goes as with its session: it may be in the
# middle of a run, or of a call that only looks.
sub lose
{
	my ($name, $job) = @_;
	my $id = hex ZkLock::ask($node{$name}, 'SELECT session_id FROM zk_session');
	$node{$name}->stop('immediate');
	$down{$name} = 1;
	for my $path (map { ZkLock::directory($job, 'jobs') . "/$_" } ZkLock::queue($zk, $job, 'jobs'))
	{
		my $stat = $zk->stat($path);
		$zk->delete($path) if $stat && $stat->{ephemeralOwner} == $id;
	}
}
sub back { my $name = shift; $node{$name}->start; delete $down{$name}; ZkLock::hang_up($node{$name}); ZkLock::wait_connected($node{$name}); }
sub close_gate { $gate{$_} = ZkLock::session($node{$_}) and $gate{$_}->query('SELECT pg_advisory_lock(1)') for @names; }
sub open_gate { $gate{$_}->quit for alive(); %gate = (); }

# All of them live
schedule('plain', 'SELECT 1', '', @names);
tick();
called_again('plain', @names);
called_again('plain', @names);
once('plain');

# Its runner dies after it
my $runner = runner('plain', 'done');
lose($runner, 'plain');
called_again('plain', alive());
is(rows('plain', alive()), '0 0', 'its runner is gone: it is not run again');
back($runner);
called_again('plain', $runner);
once('plain');
unschedule('plain');

# One is dead at the tick
lose('a', 'before');
schedule('before', 'SELECT 1', '', alive());
tick();
called_again('before', alive());
like(rows('before', alive()), qr/^(?:0 1|1 0)$/, 'one is dead at the tick: another runs it');
back('a');
schedule('before', 'SELECT 1', '', 'a');
called_again('before', 'a');
is(rows('before', 'a'), 0, '... and when it is back, it does not');
unschedule('before');

# The runner dies in the middle
close_gate();
schedule('during', 'SELECT pg_advisory_xact_lock(1)', '', @names);
tick();
$runner = runner('during', 'running');
all_wait('during');
lose($runner, 'during');
my $next = runner('during', 'running', $runner);
isnt($next, $runner, 'the runner dies: another runs it');
open_gate();
called_again('during', alive());
like(rows('during', alive()), qr/^(?:0 1|1 0)$/, '... to its end');
back($runner);
called_again('during', $runner);
once('during');
is(ask("SELECT string_agg(r->>'state', ' ') FROM zk_jobs, jsonb_array_elements(runs) r WHERE job = 'during'"), 'done lost', '... as the history says');
unschedule('during');

# Who would not wait skips the run of another, and cron counts no failure
close_gate();
schedule('skipped', 'SELECT pg_advisory_xact_lock(1)', ", timeout => '0'", @names);
tick();
$runner = runner('skipped', 'running');
called($_, 'skipped', 1) for grep { $_ ne $runner } @names;
is(ZkLock::ask($node{$_}, "SELECT DISTINCT status, return_message FROM cron.job_run_details WHERE status IN ('succeeded', 'failed') AND command LIKE '%zk_run_once(''skipped''%'"), 'succeeded|CALL', "... as a call that has succeeded") for grep { $_ ne $runner } @names;
is(rows('skipped', @names), '0 0 0', '... while another runs it');
open_gate();
called($runner, 'skipped', 1);
once('skipped');
unschedule('skipped');

# The runner dies while it commits; and so it has
schedule('committing', 'SET LOCAL synchronous_commit = on', ", in_doubt => 'skip'", @names);
tick();
$runner = runner('committing', 'running');
ZkLock::wait_until(sub { ZkLock::ask($node{$runner}, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == 1 }, 'it commits');
like($zk->get('/zklock/jobs/committing'), qr/"committing"/, 'a run commits');
all_wait('committing');
lose($runner, 'committing');
called_again('committing', alive());
is(rows('committing', alive()), '0 0', '... and its server dies: nobody runs it again');
is(ask("SELECT state, server FROM zk_jobs WHERE job = 'committing'"), "in doubt|$runner", '... as it counts as done');
back($runner);
called_again('committing', $runner);
once('committing');
is(runner('committing', 'done'), $runner, '... as it says itself');
unschedule('committing');

is(ZkLock::ask($node{$_}, "SELECT string_agg(return_message, E'\\n') FROM cron.job_run_details WHERE status = 'failed' AND return_message ~ 'ERROR'"), '', "no call failed on $_") for @names;

done_testing();
