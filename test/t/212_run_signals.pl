# zklock-run and signals: they are passed on to the command and all that it has started; who
# waits ends by them; and nothing is left of a zklock-run that was killed, the command before
# the lock.  At a terminal the command can read, and be interrupted and stopped.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use IO::Pty;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Utils;
use Run;
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk) } qw(a b);
ZkLock::wait_connected($a, $b);

# A test that dies leaves no server paused.
my @stopped;
END { kill 'CONT', @stopped; }

sub alive { return grep { (eval { slurp_file("/proc/$_/stat") } // ') Z') !~ /\) [ZX]/ } @_; }

sub ok_gone
{
	my ($what, @pids) = @_;
	ZkLock::wait_until(sub { !alive(@pids) }, "@pids are gone");
	pass("$what: no process is left");
}

# It says what it gets, and goes on.
my @telling = ('sh', '-c', 'for s in TERM INT HUP QUIT; do trap "echo $s" $s; done; echo started $$; while ! [ -e "$0" ]; do sleep 0.02; done', '/nowhere');
# It and what it has started; both end by any signal.
my @pair = ('sh', '-c', 'sleep 1000000 & echo started $$ $!; wait');
sub processes { my ($r) = @_; my @pids = $r->wait_out(qr/started [\d ]+\n/)->out =~ /started (\d+)(?: (\d+))?/; return grep { defined } @pids; }

#
# Signals for the command
#
my $r = Run->start($a, 'job', '--', @telling);
my ($pid) = processes($r);
for my $name (qw(INT HUP QUIT TERM TERM))
{
	my $n = () = $r->out =~ /^$name$/mg;
	$r->signal($name);
	ZkLock::wait_until(sub { (() = $r->out =~ /^$name$/mg) > $n }, "the command gets SIG$name");
	pass("SIG$name is passed on");
}
ok(!$r->ended, 'the command decides when to end');
is(ZkLock::session($b)->query("SELECT zk_try_lock('job')"), 'f', '... and has the lock until then');
kill 'KILL', $pid;
is($r->status, 137, 'its end by a signal is told');
for my $name (qw(TERM INT HUP QUIT))
{
	$r = Run->start($a, 'job', '--', @pair);
	my @pids = processes($r);
	$r->signal($name);
	# what sh starts beside itself ignores INT and QUIT
	is($r->status, 128 + { TERM => 15, INT => 2, HUP => 1, QUIT => 3 }->{$name}, "SIG$name ends the command, and its status says so");
	kill 'TERM', @pids;
}
ZkLock::ok_clean($zk, [ $a, $b ], 'job');
{
	local $SIG{HUP} = 'IGNORE';
	$r = Run->start($a, qw(job -- sh -c), 'echo started $$; while ! [ -e "$0" ]; do sleep 0.02; done', my $file = PostgreSQL::Test::Utils::tempdir() . '/end');
	($pid) = processes($r);
	$r->signal('HUP');
	kill 'HUP', $pid;
	append_to_file($file, '');
	is($r->status, 0, 'what nohup has ignored is ignored by both');
}

#
# Signals while it waits
#
my $holder = ZkLock::session($b);
$holder->query("SELECT zk_lock('job', scope => 'session')");
for my $name (qw(TERM INT HUP QUIT KILL))
{
	$r = Run->start($a, qw(job -- echo run))->wait_waiting;
	$r->signal($name);
	is($r->status, 'signal ' . { TERM => 15, INT => 2, HUP => 1, QUIT => 3, KILL => 9 }->{$name}, "SIG$name ends a wait");
	is($r->out, '', '... and the command is not run');
	ZkLock::wait_queue($zk, 'job', 1);
	pass('... and nobody waits any more');
}
# ... even if the server is paused
$r = Run->start($a, qw(job -- echo run))->wait_waiting;
@stopped = ($r->backend, (slurp_file($a->data_dir . '/postmaster.pid') =~ /^(\d+)/)[0]);
kill 'STOP', @stopped;
$r->signal('TERM');
is($r->status, 'signal 15', 'SIGTERM ends a wait for a server that is paused');
kill 'CONT', splice @stopped;
ZkLock::wait_queue($zk, 'job', 1);
$holder->query("SELECT zk_unlock('job')");

# A job that its session gets just then has not failed, since the command was not started.
my @slot = (qw(--job --every), '36500 days', qw(nightly -- echo run));
$holder = ZkLock::session($b);
is($holder->query("SELECT zk_run_begin('nightly', every => '36500 days')"), 't', 'another server has the job');
$r = Run->start($a, @slot)->wait_waiting;
@stopped = ($r->pid);
kill 'STOP', @stopped;
ZkLock::ask($b, "SELECT pg_terminate_backend($holder->{pid})");
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = " . $r->backend) eq 't' }, 'zklock-run has the job');
$r->signal('TERM');
kill 'CONT', splice @stopped;
is($r->status, 'signal 15', 'SIGTERM ends it');
is($r->out . $r->err, '', '... the command is not run');
is(ZkLock::ask($b, 'SELECT failures FROM zk_jobs'), 0, '... the run has not failed');
$r = Run->start($a, @slot);
is($r->status . $r->out, "0run\n", '... and the next one runs the slot');

#
# The machine of a server that is gone, which says nothing: TCP asks for it, after 10 s at the latest
#
{
	my $silent = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') // die $@;
	my $port = $silent->sockport;
	$r = Run->start($a, '-d', "host=127.0.0.1 port=$port", qw(job -- echo run));
	my $remote = sprintf '0100007F:%04X', $port;
	# in hundredths of a second: 02 is the timer of such a question
	my $due = sub { my ($left) = slurp_file('/proc/net/tcp') =~ /^ *\d+: \S+ $remote 01 \S+ 02:(\w+)/m; return defined $left && hex $left <= 1000; };
	ZkLock::wait_until($due, 'zklock-run asks for the machine of the server', sub { slurp_file('/proc/net/tcp') });
	$r->signal('TERM');
	is($r->status, 'signal 15', 'who waits notices that the machine of the server is gone');
}

#
# SIGKILL
#
$r = Run->start($a, 'job', '--', @pair);
my @pids = processes($r);
$r->signal('KILL');
is($r->status, 'signal 9', 'zklock-run is killed');
ok_gone('the command, and what it has started', @pids);
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

# The command is dead when another one gets the lock.
$r = Run->start($a, 'job', '--', @pair);
@pids = processes($r);
my $next = Run->start($b, 'job', '--', 'sh', '-c', 'for p; do if kill -0 $p 2>/dev/null && ! grep -q ") Z" /proc/$p/stat; then echo alive; fi; done; echo checked', 'sh', @pids)->wait_waiting;
$r->signal('KILL');
is($next->status, 0, 'the next one has the lock');
is($next->out, "checked\n", '... and nothing of the first one is alive');

# Its watcher is killed with it: then the command alone dies.
$r = Run->start($a, 'job', '--', @pair);
@pids = processes($r);
my ($watcher) = grep { $_ != $pids[0] } split ' ', slurp_file('/proc/' . $r->pid . '/task/' . $r->pid . '/children');
kill 'KILL', $watcher, $r->pid;
is($r->status, 'signal 9', 'it and its watcher are killed');
ok_gone('the command', $pids[0]);
kill 'KILL', $pids[1];
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

# The watcher alone, where its end could be a SIGPIPE for zklock-run
$SIG{PIPE} = 'DEFAULT';
$r = Run->start($a, 'job', '--', @pair);
@pids = processes($r);
($watcher) = grep { $_ != $pids[0] } split ' ', slurp_file('/proc/' . $r->pid . '/task/' . $r->pid . '/children');
kill 'KILL', $watcher;
kill 'TERM', $pids[0];
is($r->status, 143, 'without its watcher zklock-run goes on');
kill 'KILL', $pids[1];

# ... or a watcher that is stopped
$r = Run->start($a, 'job', '--', @pair);
@pids = processes($r);
@stopped = grep { $_ != $pids[0] } split ' ', slurp_file('/proc/' . $r->pid . '/task/' . $r->pid . '/children');
kill 'STOP', @stopped;
kill 'TERM', $pids[0];
is($r->status, 143, 'zklock-run ends though its watcher is stopped');
ok_gone('the watcher', splice @stopped);
kill 'KILL', $pids[1];

#
# At a terminal
#
my ($pty, $seen);

# Starts a program that has a terminal of its own, and is the first one there
sub at_terminal
{
	my (@program) = @_;
	($pty, $seen) = (IO::Pty->new, '');
	my $child = fork // die;
	if ($child == 0)
	{
		$pty->make_slave_controlling_terminal;
		my $tty = $pty->slave;
		POSIX::dup2(fileno $tty, $_) for 0 .. 2;
		%ENV = (%ENV, PGHOST => $a->host, PGPORT => $a->port, PGDATABASE => 'postgres', PS1 => '');
		exec @program or POSIX::_exit(1);
	}
	$pty->close_slave;
	$pty->blocking(0);
	return $child;
}
my $shell = at_terminal('bash', '--norc', '--noprofile', '--noediting', '-i');

sub type { my ($text) = @_; syswrite $pty, $text; return; }

sub expect
{
	my ($pattern, $what) = @_;
	ZkLock::wait_until(sub { sysread $pty, $seen, 65536, length $seen; $seen =~ s/^.*?$pattern//s }, $what, sub { $seen });
	pass($what);
}
type("stty -echo; echo re''ady\n");
expect(qr/ready/, 'a shell has a terminal');
my $reading = q(zklock-run job -- sh -c 'echo start''ed; read line; echo "<$line>"'; echo "status=$?");
type("$reading\n");
expect(qr/started/, 'a command starts');
type("hello\n");
expect(qr/<hello>\s+status=0/, '... and reads from the terminal');
type("$reading\n");
expect(qr/started/, 'it starts again');
type("\x03");
expect(qr/status=130/, '... and is interrupted from the terminal');
type("$reading\n");
expect(qr/started/, 'it starts again');
type("\x1a");
expect(qr/Stopped/, '... is stopped from the terminal, and the shell has it back');
is(ZkLock::session($b)->query("SELECT zk_try_lock('job')"), 'f', '... and has the lock meanwhile');
type("fg\n");
expect(qr/zklock-run/, '... is continued');
type("again\n");
expect(qr/<again>/, '... and reads on');
type("zklock-run job -- sh -c 'echo start''ed; read line; echo \"<\$line>\"' &\n");
expect(qr/started/, 'it starts in the background');
# the shell says so when it is asked
ZkLock::wait_until(sub { type("jobs\n"); sysread $pty, $seen, 65536, length $seen; $seen =~ s/^.*Stopped//s }, 'it stops', sub { $seen });
pass('... stops when it reads');
type("fg\n");
expect(qr/zklock-run/, '... is continued in the foreground');
type("at last\n");
expect(qr/<at last>/, '... and reads');
type("sh -c '" . $reading =~ s/'/'\\''/gr . "'\n");
expect(qr/started/, 'it starts in a script');
type("\x1a");
expect(qr/Stopped/, '... which is stopped with it');
type("fg\n");
expect(qr/sh -c/, '... and continued');
type("script\n");
expect(qr/<script>\s+status=0/, '... and ends');
type("exit\n");
waitpid $shell, 0;

# Without a shell nobody could continue it: it does not stop.
my $alone = at_terminal('zklock-run', 'job', '--', 'sh', '-c', 'echo started; read line; echo "<$line>"');
expect(qr/started/, 'it starts without a shell');
type("\x1a");
type("go on\n");
expect(qr/<go on>/, '... is not stopped, and reads');
waitpid $alone, 0;
is($?, 0, '... and ends');
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

done_testing();
