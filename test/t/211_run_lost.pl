# zklock-run loses its lock, its connection or its server: the command and all that it has
# started get SIGTERM, and SIGKILL when that is not enough, and nothing runs on without the
# lock.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(record);
use PostgreSQL::Test::Utils;
use Run;
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk) } qw(a b);
ZkLock::wait_connected($a, $b);
my $long = 80000;

# A command that says when it gets SIGTERM, and one that ignores it.  Each has a process that
# it has started, and says which.
my @polite = ('sh', '-c', 'trap "echo terminated; exit 0" TERM; sleep 1000000 & echo "started $$ $!"; wait');
my @deaf = ('sh', '-c', 'trap "" TERM; sleep 1000000 & echo "started $$ $!"; while :; do wait; done');

sub processes { my ($r) = @_; my @pids = $r->wait_out(qr/started \d+ \d+/)->out =~ /started (\d+) (\d+)/; return @pids; }
sub zombie { my ($pid) = @_; return (eval { slurp_file("/proc/$pid/stat") } // ') Z') =~ /\) [ZX]/; }

sub ok_gone
{
	my ($what, @pids) = @_;
	ZkLock::wait_until(sub { !grep { !zombie($_) } @pids }, "@pids are gone");
	pass("$what: no process is left");
}

# ... and its server knows that
sub lose
{
	my ($node, $name) = @_;
	my $losses = ZkLock::ask($node, 'SELECT losses FROM zk_stat');
	my $broken = ZkLock::ask($node, "SELECT bool_and(zk_break('$name', token)) FROM zk_contenders('$name') WHERE ours");
	ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT losses FROM zk_stat') > $losses }, "the loss of $name is known");
	return $broken;
}

#
# The lock is lost by ZooKeeper's word
#
my $r = Run->start($a, '--kill-after', $long, 'job', '--', @polite);
my @pids = processes($r);
is(lose($a, 'job'), 't', 'somebody breaks the lock');
is($r->status, 122, 'the status says that it was lost');
like($r->out, qr/^terminated$/m, '... the command was asked to end');
is($r->err, qq(zklock-run: lock "job" was lost\nDETAIL:  The ZooKeeper session ended, or the contender was deleted, while this session held the lock; another server may hold it by now.\n), '... it says why');
ok_gone('SIGTERM', @pids);
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

$r = Run->start($a, qw(-k 0.3 job --), @deaf);
@pids = processes($r);
lose($a, 'job');
is($r->status, 122, 'a command that ignores SIGTERM');
ok_gone('SIGKILL', @pids);

# The command ends at SIGTERM, and not what it has started.
$r = Run->start($a, qw(-k 0.3 job -- sh -c), q(sh -c 'trap "" TERM; echo "started $PPID $$"; while :; do sleep 1; done' & wait));
@pids = processes($r);
lose($a, 'job');
is($r->status, 122, 'a process that the command has left behind');
ok_gone('SIGKILL', @pids);

# A loss in the last moment: between the latest heartbeat and the end of the command.
$r = Run->start($a, qw(job -- sh -c), 'echo started; while ! [ -e "$0" ]; do sleep 0.02; done', my $file = PostgreSQL::Test::Utils::tempdir() . '/end');
$r->wait_out(qr/started/);
$r->signal('STOP');
lose($a, 'job');
append_to_file($file, '');
$r->signal('CONT');
is($r->status, 122, 'a loss that comes to light at the end');

$r = Run->start($a, qw(-k 0 --permits=2 sem --), @polite);
processes($r);
lose($a, 'sem');
is($r->status, 122, 'a permit is lost');
like($r->err, qr/^zklock-run: a permit of semaphore "sem" was lost$/m, '... it says so');

$r = Run->start($a, qw(--timeout 1h --leader lead --), @polite);
processes($r);
$zk->delete(ZkLock::directory('lead', 'elections') . '/' . (ZkLock::queue($zk, 'lead', 'elections'))[0]);
is($r->status, 122, 'the leadership is lost');
like($r->err, qr/^zklock-run: leadership of election "lead" was lost$/m, '... it says so');

# "zklock.on_loss" of a role lets no command run on.
ZkLock::ask($a, "CREATE ROLE warned SUPERUSER LOGIN; ALTER ROLE warned SET zklock.on_loss = warn; CREATE ROLE batch LOGIN; CALL zk_grant('batch'); ALTER ROLE batch SET zklock.on_loss = warn");
$r = Run->start($a, qw(-k 0 -d user=warned job --), @polite);
processes($r);
lose($a, 'job');
is($r->status, 122, 'the role gets a warning of a loss: zklock-run gets an error');
$r = Run->start($a, qw(-d user=batch job -- echo run));
is($r->status . $r->out, 123, '... or does not run the command, if the role may not change that');
is($r->err, qq(zklock-run: permission denied to set parameter "zklock.on_loss"\n), '... and says so');

my @job = (qw(--job --every), '36500 days');
$r = Run->start($a, @job, 'nightly', '--', @polite);
processes($r);
$zk->delete(ZkLock::directory('nightly', 'jobs') . '/' . (ZkLock::queue($zk, 'nightly', 'jobs'))[0]);
is($r->status, 122, 'a job is lost');
like($r->err, qr/^zklock-run: job "nightly" was lost$/m, '... it says so');
$r = Run->start($b, @job, qw(nightly -- echo run));
is($r->status . $r->out, "0run\n", '... and the other server runs the slot');
is(record($a, 'nightly'), 'done|b|2|0', '... which is its second attempt, and none has failed');

#
# The connection
#
$r = Run->start($a, 'job', '--', @polite);
@pids = processes($r);
ZkLock::ask($a, 'SELECT pg_terminate_backend(' . $r->backend . ')');
is($r->status, 122, 'the session is terminated');
like($r->err, qr/terminating connection due to administrator command/, '... it says why');
ok_gone('the connection', @pids);
$r = Run->start($a, @job, 'gone', '--', @polite);
processes($r);
ZkLock::ask($a, 'SELECT pg_terminate_backend(' . $r->backend . ')');
is($r->status, 122, '... during a job');
ZkLock::wait_until(sub { record($b, 'gone') =~ /^in doubt\|a/ }, 'nobody knows what became of the run', sub { record($b, 'gone') });
is(Run->start($b, @job, qw(gone -- true))->status, 0, '... and runs again');
is(record($a, 'gone'), 'done|b|2|0', '... as the second attempt');
$r = Run->start($b, 'job', '--', @polite);
@pids = processes($r);
$b->stop('immediate');
is($r->status, 122, 'the server stops');
ok_gone('the server', @pids);
# which gives back what its life before had
$b->start;
ZkLock::wait_connected($b);

#
# The server does not know whether it has the lock: ZooKeeper is gone
#
ZkLock::set($a, 'zklock.session_timeout', '4s');
$a->restart;
ZkLock::wait_connected($a);

# A busy machine may be so slow that it ends before, or for another reason.
sub ok_ends
{
	my ($what, $break, $mend, $why) = @_;
	for (1 .. 5)
	{
		$r = Run->start($a, 'job', '--', @polite);
		ZkLock::wait_until(sub { $r->out =~ /started \d+ \d+/ || $r->ended }, 'the command has begun');
		@pids = $r->out =~ /started (\d+) (\d+)/;
		$break->();
		my $status = $r->status;
		ok_gone($what, @pids);
		$mend->();
		return is($status, 122, "$what: it says why") if $r->err =~ $why;
	}
	return like($r->err, $why, "$what: it says why");
}
ok_ends(
	'ZooKeeper is gone for longer than the session timeout',
	sub { $zk->stop },
	sub { $zk->start; ZkLock::wait_connected($a) },
	qr/^zklock-run: lock "job" was lost\nDETAIL:  ZooKeeper has not confirmed this server's session since /);

#
# The server is paused, and does not answer
#
my @backend;
ok_ends(
	'the server does not answer for half a session timeout',
	sub { @backend = grep { $_ } $r->backend; kill 'STOP', @backend; },
	sub { kill 'CONT', @backend; },
	qr/^zklock-run: the server has not answered for 2000 ms\n\z/);
ZkLock::ok_clean($zk, [$a], 'job');

done_testing();
