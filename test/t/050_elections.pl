# Elections: one leader among three servers, through whatever ends a leadership.
#
# No session here ends by itself but that of a server that is killed: what follows
# the end of another is not owed to its timeout, nor to a heartbeat.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(servers => 3)->start;
my %node = map { $_ => ZkLock::server($_, $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'\nrestart_after_crash = on") } qw(a b c);
my @nodes = @node{qw(a b c)};
ZkLock::wait_connected(@nodes);

# Whether it leads; the first time the answer has to come from ZooKeeper.
sub is_leader { my ($name, $election) = @_; return ZkLock::ask($node{$name}, "SELECT zk_is_leader('$election', '1 h')"); }

# Which of these servers say that they lead?
sub leaders { my ($election, @names) = @_; return join ' ', grep { is_leader($_, $election) eq 't' } @names; }

sub wait_leader
{
	my ($election, @names) = @_;
	return ZkLock::wait_until(sub { leaders($election, @names) }, "somebody of @names leads $election");
}

sub wait_log
{
	my ($name, $pattern, $what) = @_;
	ok(eval { ZkLock::wait_until(sub { slurp($node{$name}->logfile) =~ $pattern }, $what) }, $what);
}

sub slurp { open my $fh, '<', $_[0] or die; local $/; return <$fh>; }

# The first call makes a server a candidate and knows the answer at once.
is(is_leader('a', 'job'), 't', 'the first candidate leads');
is(is_leader('b', 'job'), 'f', '... and the second does not');
is(is_leader('c', 'job'), 'f', '... nor the third');
is(ZkLock::ask($_, "SELECT (SELECT server FROM zk_candidates('job') WHERE is_leader), ARRAY(SELECT server FROM zk_candidates('job'))"), 'a|{a,b,c}', $_->name . ' knows all of them') for @nodes;
is(ZkLock::ask($node{b}, "SELECT (SELECT token FROM zk_elections WHERE election = 'job') IS NULL"), 't', 'no token for who does not lead');
my $token = ZkLock::ask($node{a}, "SELECT (SELECT token FROM zk_elections WHERE election = 'job')");
like($token, qr/^\d+$/, 'a token for who leads');
is(ZkLock::ask($node{a}, "SELECT election, is_leader, leader, candidates, token = $token, since < now(), changes FROM zk_elections"),
	'job|t|a|{a,b,c}|t|t|1', 'zk_elections of the leader');
is(ZkLock::ask($node{b}, "SELECT election, is_leader, leader, candidates, token, since < now(), changes FROM zk_elections"),
	'job|f|a|{a,b,c}||t|0', '... and of another');
is(ZkLock::ask($node{a}, "SELECT (SELECT server FROM zk_candidates('none') WHERE is_leader) IS NULL, ARRAY(SELECT server FROM zk_candidates('none'))"), 't|{}', 'nobody leads where nobody is');
is(ZkLock::ask($node{a}, "SELECT count(*) FROM zk_elections WHERE election = 'none'"), 0, '... and asking makes no candidate');
is($zk->get('/zklock/elections/job/' . (ZkLock::queue($zk, 'job', 'elections'))[0]), 'a',
	"the contender's data is the server's name");
wait_log('a', qr/became leader of election "job", token $token: first among the candidates/, 'the log of the leader says so');

# A lock of the same name is something else.
is(ZkLock::ask($node{b}, "SELECT zk_try_lock('job')"), 't', 'a lock of the same name is another matter');
is(ZkLock::ask($node{a}, 'SELECT count(*) FROM zk_locks'), 0, 'an election is none in zk_locks');

# Resign: the next in line.
is(ZkLock::ask($node{b}, "SELECT zk_resign('none')"), 'f', 'nothing to resign from');
is(ZkLock::ask($node{a}, "SELECT zk_resign('job'), (SELECT token FROM zk_elections WHERE election = 'job') IS NULL"), 't|t', 'resign: false at once');
is(wait_leader('job', 'b', 'c'), 'b', '... the next in line leads');
cmp_ok(ZkLock::ask($node{b}, "SELECT (SELECT token FROM zk_elections WHERE election = 'job')"), '>', $token, '... with a larger token');
wait_log('a', qr/is no longer leader of election "job", token $token: resigned/, '... the log of the old leader says why');
wait_log('b', qr/became leader of election "job", token \d+: the candidate before it is gone/, '... and that of the new one');
is(is_leader('a', 'job'), 'f', 'whoever asks again is a candidate again');
is(ZkLock::ask($node{a}, "SELECT ARRAY(SELECT server FROM zk_candidates('job'))"), '{b,c,a}', '... as the last');

# The worker dies: nothing changes.
my $worker = ZkLock::ask($node{b}, 'SELECT worker_pid FROM zk_session');
kill 'TERM', $worker;
ZkLock::wait_until(sub { ZkLock::ask($node{b}, "SELECT worker_pid IS DISTINCT FROM $worker AND state = 'connected' FROM zk_session") eq 't' }, 'a new worker');
is(leaders('job', qw(a b c)), 'b', 'a leader keeps its leadership over its worker');

# A ZooKeeper server dies, the leader of the ensemble, and all connections with it:
# the same, until the two that are left have agreed and everybody is back.
my %reconnects = map { $_->name => ZkLock::ask($_, 'SELECT reconnects FROM zk_session') } @nodes;
my ($dead) = $zk->wait_elected;
$zk->kill9($dead);
my %seen;
for my $node (@nodes)
{
	my $back = "SELECT state = 'connected' AND reconnects > $reconnects{ $node->name } FROM zk_session";
	ZkLock::wait_until(sub { $seen{ leaders('job', qw(a b c)) }++; ZkLock::ask($node, $back) eq 't' }, $node->name . ' is connected again');
}
is(join(', ', sort keys %seen), 'b', 'a leader keeps its leadership over a server of the ensemble');
$zk->start($dead);

# A backend dies by SIGKILL: the whole server restarts, and the old session is closed.
my $backend = ZkLock::session($node{b});
kill 'KILL', $backend->pid;
is(wait_leader('job', 'c', 'a'), 'c', 'a crash: the next in line leads');
wait_log('c', qr/became leader/, '... and says so');
ZkLock::wait_until(sub { eval { is_leader('b', 'job') eq 'f' } }, 'b is back, and a candidate');

# The worker dies by SIGKILL: the same.
kill 'KILL', ZkLock::ask($node{c}, 'SELECT worker_pid FROM zk_session');
is(wait_leader('job', 'a', 'b'), 'a', 'the worker crashes: the next in line leads');
ZkLock::wait_until(sub { eval { is_leader('c', 'job') eq 'f' } }, 'c is back, and a candidate');

# The postmaster dies by SIGKILL: after the session timeout.  Should the session
# expire before that, b leads all the same.
ZkLock::hang_up($node{a});
$node{a}->append_conf('postgresql.conf', "zklock.session_timeout = '2s'");
$node{a}->restart;
ZkLock::ask($node{$_}, "SELECT zk_resign('job')") for qw(b c);
wait_leader('job', 'a');
is_leader($_, 'job') for qw(b c);
ZkLock::hang_up($node{a});
$node{a}->kill9;
is(wait_leader('job', 'b', 'c'), 'b', 'the postmaster is killed: the next in line leads, when the session has expired');
$node{a}->append_conf('postgresql.conf', "zklock.session_timeout = '1h'");
ZkLock::start_again($node{a});
ZkLock::wait_until(sub { eval { is_leader('a', 'job') eq 'f' } }, 'a is back');

# Fast shutdown: at once.
# The ZooKeeper server that b asks may be behind the one that a has told.
ZkLock::wait_until(sub { ZkLock::ask($node{b}, "SELECT ARRAY(SELECT server FROM zk_candidates('job'))") eq '{b,c,a}' }, 'in order');
ZkLock::hang_up($node{b});
$node{b}->stop('fast');
is(wait_leader('job', 'a', 'c'), 'c', 'shutdown: the next in line leads');
wait_log('b', qr/is no longer leader of election "job", token \d+: server shutdown/, '... and the log says why');
$node{b}->start;

# Somebody deletes the contender.
my ($first) = ZkLock::queue($zk, 'job', 'elections');
$zk->delete("/zklock/elections/job/$first");
is(wait_leader('job', 'a'), 'a', 'the contender is deleted: the next in line leads');
wait_log('c', qr/is no longer leader of election "job", token \d+: its contender in ZooKeeper is gone/, '... the log says why');
ZkLock::wait_until(sub { ZkLock::ask($node{a}, "SELECT ARRAY(SELECT server FROM zk_candidates('job'))") eq '{a,c}' }, 'it queues anew');

done_testing();
