# Backends that outlive their postmaster, or the order to shut down: the lock is
# theirs until their transaction has ended or the session has timed out.
#
# Any backend that waits for something hears of either at once.  These do not
# wait as far as PostgreSQL knows: they open a pipe that nobody writes.  Those that
# are stuck in a commit ignore every error there, so that all hangs on its last check.
use strict;
use warnings;

use POSIX ();
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '1h'");
my $b = ZkLock::server('b', $zk);
my $directory = PostgreSQL::Test::Utils::tempdir();
ZkLock::ask($a, 'CREATE TABLE t (name text); CREATE TABLE pipes (pipe text);
	CREATE FUNCTION read_pipe() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN EXECUTE format($f$COPY t FROM %L$f$, NEW.pipe); RETURN NULL;
		EXCEPTION WHEN query_canceled OR OTHERS THEN RETURN NULL; END$$;
	CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON pipes DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION read_pipe()');

my %alive;
END { kill 'KILL', keys %alive; }

# A process that has ended may wait for its parent to take note.
sub lives
{
	my $pid = shift;
	return kill(0, $pid) && (eval { PostgreSQL::Test::Utils::slurp_file("/proc/$pid/stat") } // '') !~ /\) Z/;
}

sub sleeps { return PostgreSQL::Test::Utils::slurp_file("/proc/$_[0]/stat") =~ /\) S/; }

sub wait_gone
{
	my ($pid, $what) = @_;
	ZkLock::wait_until(sub { !lives($pid) }, "$what has gone");
	delete $alive{$pid};
}

# A session that holds NAME and is stuck in a transaction that goes on to commit.
# AT is "statement" or "commit".
sub stuck
{
	my ($name, $at) = @_;
	my $self = ZkLock::session($a);
	my $pipe = "$directory/$name";
	unlink $pipe;
	POSIX::mkfifo($pipe, 0600) or die "$pipe: $!";
	my $token = $self->query("BEGIN; INSERT INTO t VALUES ('$name'); SELECT zk_lock('$name')");
	$self->query("INSERT INTO pipes VALUES ('$pipe')") if $at eq 'commit';
	# one message to the server: it would hear of the end where it reads the next
	$self->send($at eq 'commit' ? 'COMMIT' : "COPY t FROM '$pipe' \\; COMMIT");
	$alive{ $self->pid } = 1;
	# One that runs, and has not come to the pipe yet, would hear of the end.
	my $stuck = "SELECT state = 'active' AND wait_event IS NULL FROM pg_stat_activity WHERE pid = " . $self->pid;
	ZkLock::wait_until(sub { sleeps($self->pid) && ZkLock::ask($a, $stuck) eq 't' && sleeps($self->pid) }, 'it is stuck');
	return { session => $self, token => $token, pipe => $pipe, pid => $self->pid };
}

sub release
{
	my $stuck = shift;
	open my $pipe, '>', $stuck->{pipe} or die;
	close $pipe;
}

sub next_holder
{
	my $name = shift;
	my $next = ZkLock::session($b)->send("SELECT zk_lock('$name')");
	ZkLock::wait_queue($zk, $name, 2);
	return $next;
}

sub rows { return ZkLock::ask($a, 'SELECT string_agg(name, $$ $$ ORDER BY name) FROM t'); }

sub restart
{
	my $timeout = shift;
	$a->append_conf('postgresql.conf', "zklock.session_timeout = '$timeout'");
	$a->restart;
	ZkLock::wait_connected($a, $b);
}

# The postmaster is killed; returns when its children that wait have gone.
sub kill_postmaster
{
	my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
	my $postmaster = $a->{_pid};
	ZkLock::hang_up($a);
	$a->kill9;
	wait_gone($worker, 'the worker');
	# pg_ctl does not tell a dead one that nobody has taken note of from another
	ZkLock::wait_until(sub { !kill 0, $postmaster }, 'the postmaster has gone');
}

#
# The postmaster is killed, and the transaction ends while the lease is good
#
ZkLock::wait_connected($a, $b);
for my $at ('statement', 'commit')
{
	my $holder = stuck("good $at", $at);
	my $next = next_holder("good $at");
	my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
	kill_postmaster();
	ok(lives($holder->{pid}), "no postmaster, stuck in a $at: the backend lives");
	ok(exists $zk->sessions->{$session}, '... and the session');
	ok($next->busy, '... the other server waits');
	release($holder);
	like($holder->{session}->failure, qr/^(57P01: .*)?$/, '... the transaction goes on, and the backend ends after it');
	wait_gone($holder->{pid}, 'the backend');
	ok($next->busy, '... still excluding the other server');
	ZkLock::start_again($a);
	cmp_ok($next->result, '>', $holder->{token}, '... which has the lock after the next start');
	# its nodes go a moment before
	ZkLock::wait_until(sub { !exists $zk->sessions->{$session} }, 'the old session is closed');
	pass('... when the old session is closed');
	ZkLock::wait_connected($a);
}
is(rows(), 'good commit good statement', '... the commits are durable');

#
# ... and after the session has timed out
#
restart('15s');
my @late = map { stuck("late $_", $_) } 'statement', 'commit';
my @next = map { next_holder("late $_") } 'statement', 'commit';
my $late_session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
kill_postmaster();
is($a->start(fail_ok => 1), 0, 'no other postmaster can start while a backend lives');
like(PostgreSQL::Test::Utils::slurp_file($a->logfile), qr/FATAL:  pre-existing shared memory block/, '... as PostgreSQL sees to');
for my $i (0, 1) { cmp_ok($next[$i]->result, '>', $late[$i]{token}, 'the other server has the lock'); }
like(PostgreSQL::Test::Utils::slurp_file($zk->logfile), qr/Expiring session $late_session\b/, '... since the session has expired');
for my $stuck (@late)
{
	ok(lives($stuck->{pid}), 'the backend lives');
	release($stuck);
	(my $name = $stuck->{pipe}) =~ s{.*/}{};
	is($stuck->{session}->failure, "40001: lock \"$name\" was lost", '... but cannot commit');
	wait_gone($stuck->{pid}, 'the backend');
}
ZkLock::start_again($a);
ZkLock::wait_connected($a);
is(rows(), 'good commit good statement', '... nor has it');

#
# Fast shutdown: the worker stays for as long as there is a hold
#
restart('15s');
for my $at ('statement', 'commit')
{
	my $holder = stuck("fast $at", $at);
	my $next = next_holder("fast $at");
	my $idle = ZkLock::session($a);
	my $session = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
	my ($member) = grep { sprintf('0x%x', $zk->stat("/zklock/servers/$_")->{ephemeralOwner}) eq $session } $zk->children('/zklock/servers');
	my ($idle_pid, $postmaster) = ($idle->pid, $a->{_pid});
	ZkLock::hang_up($a);
	kill 'INT', $postmaster or die;
	wait_gone($idle_pid, 'an idle backend');
	my $version = $zk->stat("/zklock/servers/$member")->{version};
	# Heartbeats go on, and so the worker has had its signal, and time to err.
	ZkLock::wait_until(sub { $zk->stat("/zklock/servers/$member")->{version} >= $version + 2 }, 'heartbeats');
	ok(lives($holder->{pid}), "fast shutdown, stuck in a $at: the transaction is in progress");
	ok($next->busy, '... and the other server waits');
	release($holder);
	like($holder->{session}->failure, qr/^(57P01|lost)/, '... until it has ended');
	cmp_ok($next->result, '>', $holder->{token}, '... and then has the lock');
	# The contender goes a moment before the session does.
	ZkLock::wait_until(sub { !exists $zk->sessions->{$session} }, 'the session has ended');
	unlike(PostgreSQL::Test::Utils::slurp_file($zk->logfile), qr/Expiring session $session\b/, '... for the session is closed, and has not expired');
	wait_gone($holder->{pid}, 'the backend');
	wait_gone($postmaster, 'the server');
	$a->_update_pid(0);
	$a->start;
	ZkLock::wait_connected($a);
}
is(rows(), 'good commit good statement', '... and the transaction was rolled back');
ZkLock::ok_clean($zk, [ $a, $b ], "$_ statement") for 'good', 'late', 'fast';

done_testing();
