# For whom one waits: in errors that end a wait, in the log of zk_break, in zk_blocking and
# zk_waits.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $conf = "zklock.keep_time = '1h'\nzklock.handoff_limit = 4\nlog_lock_waits = on\ndeadlock_timeout = '50ms'";
my ($a, $b, $c) = map { ZkLock::server($_, $zk, conf => "$conf\ncluster_name = '$_'") } qw(a b c);
ZkLock::wait_connected($a, $b, $c);
my $foreign = $zk->client;

# A look at jobs takes a write of the server's own node: a heartbeat, now.
sub heartbeat { ZkLock::ask($_, 'SELECT count(*) FROM zk_jobs') for @_; return; }

sub log_of { my $node = shift; return PostgreSQL::Test::Utils::slurp_file($node->logfile); }

# A session whose errors come with all there is.
sub talker
{
	my ($node, @options) = @_;
	my $session = ZkLock::session($node, @options);
	$session->query('\set SHOW_CONTEXT always');
	return $session;
}

sub without_times { return $_[0] =~ s/as of \d[^.]*(?:\.\d+)?[^.]*\./as of T./r; }

# What its server has told of a contender of the name, and others can read.
sub wait_told
{
	my ($node, $name, $state, $pid, @others) = @_;
	my $seen;
	ZkLock::wait_until(
		sub {
			heartbeat($node);
			($seen = join '', map { ZkLock::ask($_, "SELECT state, pid FROM zk_contenders('$name') WHERE server = '@{[ $node->name ]}'") } @others) eq "$state|$pid" x @others;
		},
		"$name is $state",
		sub { $seen });
}

#
# Errors that end a wait
#
my $ha = talker($a);
my $wa = talker($a);
my $hb = talker($b);
my $wb = talker($b);
my $wc = talker($c);
$ha->query("BEGIN; SELECT zk_lock('job')");
$wa->query("SET lock_timeout = '50ms'");
is($wa->fails("SELECT zk_lock('job')"), '55P03: canceling statement due to lock timeout', 'a timeout at level 1');
is($wa->notices =~ /^(CONTEXT:.*)/m ? $1 : '', "CONTEXT:  while waiting for exclusive lock \"job\", which process @{[ $ha->pid ]} holds", '... names the lock and who has it');
is($wa->fails("SELECT zk_lock('job', 'shared')"), '55P03: canceling statement due to lock timeout', 'the same of a reader');
like($wa->notices, qr/^CONTEXT:  while waiting for shared lock "job", which process \d+ holds$/m, '... names it');
$wa->query('RESET lock_timeout');
# as long a time is there for the answer
like($wa->fails("CALL zk_lock_session('job', timeout => '3s')"), qr/^55P03: could not obtain lock "job" within 3000 ms/, 'zk_lock_session in time');
like(without_times($wa->notices), qr/^DETAIL:  Process @{[ $ha->pid ]} of server "a" held it as of T\.$/m, '... says who has it, too');
ZkLock::wait_until(sub { log_of($a) =~ /still waiting for ExclusiveLock on lock "job" after/ }, 'log_lock_waits names the lock');
$wa->send("SELECT zk_lock('job')")->wait_level(1)->cancel->failure;
like($wa->notices, qr/^CONTEXT:  while waiting for exclusive lock "job", which process @{[ $ha->pid ]} holds$/m, 'a cancel');

$wb->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_demanded($zk, $a, 'job');
wait_told($a, 'job', 'held', $ha->pid, $b);
$wb->cancel->failure;
is(($wb->notices =~ /^(CONTEXT:.*)/m)[0], 'CONTEXT:  while waiting for exclusive lock "job", which server "a" has', 'a cancel at level 2 names the server');
$wb->query("SET lock_timeout = '3s'");
is($wb->fails("SELECT zk_lock('job')"), '55P03: canceling statement due to lock timeout', 'a timeout at level 2');
like(without_times($wb->notices), qr/^DETAIL:  (?:Process @{[ $ha->pid ]} of server "a" held it as of T|It is granted to server "a", with token \d+)\.$/m, '... says who has it');
like($wb->notices, qr/^CONTEXT:  while waiting for exclusive lock "job", which server "a" has$/m, '... and so does its context');
$wb->query('RESET lock_timeout');
$wb->query("SET statement_timeout = '500ms'");
is($wb->fails("SELECT zk_lock('job')"), '57014: canceling statement due to statement timeout', 'statement_timeout');
like($wb->notices, qr/^CONTEXT:  while waiting for exclusive lock "job"/m, '... names the lock');
$wb->query('RESET statement_timeout');

# Behind others
$wb->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
$wc->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 3);
$hb->send("SELECT zk_lock('job')")->wait_level(1)->cancel->failure;
like($hb->notices, qr/^CONTEXT:  while waiting for exclusive lock "job" behind process @{[ $wb->pid ]}, which waits for ZooKeeper$/m, 'behind one who waits for ZooKeeper');
my $seen;
ZkLock::wait_until(sub { $wc->cancel->failure; $seen = $wc->notices; $seen =~ / behind server "b"$/m || !$wc->send("SELECT zk_lock('job')")->wait_level(2) }, 'it is known who is next', sub { $seen });
like($seen, qr/^CONTEXT:  while waiting for exclusive lock "job" behind server "b"$/m, 'behind another waiter');
$wb->cancel->failure;
$ha->query('COMMIT');
my $path = $foreign->contend(ZkLock::directory('foreign'));
ZkLock::wait_until(sub { $wb->send("SELECT zk_lock('foreign')")->wait_level(2)->cancel->failure; $wb->notices =~ /which another program has/ }, 'who it is is known');
like($wb->notices, qr/^CONTEXT:  while waiting for exclusive lock "foreign", which another program has$/m, 'behind another program');
$foreign->delete($path);

# A deadlock within a server
$ha->query("BEGIN; SELECT zk_lock('one')");
$wa->query("BEGIN; SELECT zk_lock('two')");
$wa->query("SET deadlock_timeout = '1h'");
$wa->send("SELECT zk_lock('one')")->wait_level(1);
is($ha->fails("SELECT zk_lock('two')"), '40P01: deadlock detected', 'a deadlock at level 1');
like($ha->notices, qr/^CONTEXT:  while waiting for exclusive lock "two", which process @{[ $wa->pid ]} holds$/m, '... says for what it waited');
like($ha->notices, qr/^DETAIL:  Process \d+ waits for ExclusiveLock on lock "two"; blocked by process \d+\.$/m, '... PostgreSQL does, too');
$ha->query('ROLLBACK');
$wa->result;
$wa->query('ROLLBACK; RESET deadlock_timeout');
like(log_of($a), qr/Process \d+ waits for ExclusiveLock on lock "one"; blocked by process \d+\./, '... also of the other lock');

#
# zk_break says whose it was
#
my $token = $ha->query("BEGIN; SELECT zk_lock('broken')");
$wb->send("SELECT zk_lock('broken')")->wait_level(2);
wait_told($a, 'broken', 'held', $ha->pid, $b, $c);
is(ZkLock::ask($c, "SELECT zk_break('broken', $token)"), 't', 'another server breaks it');
my $user = ZkLock::ask($a, 'SELECT current_user');
my $broken = qr/LOG:  zk_break removed the contender with token $token from the queue of lock "broken"\n[^\n]*DETAIL:  It was made with "\{"server": "a", [^\n]*"pid": \d+\}"/;
like(log_of($c), qr/$broken, and its state was "held" since [^\n]+, by process @{[ $ha->pid ]}, database "postgres", user "\Q$user\E", application "zklock test", as of [^\n]+\.$/m, '... and its log says whose it was');
$wb->result;
is($ha->fails('COMMIT'), '40001: lock "broken" was lost', '... who has lost it');
$path = $foreign->contend(ZkLock::directory('broken'), data => '10.0.0.7');
$token = $zk->stat($path)->{czxid};
is(ZkLock::ask($c, "SELECT zk_break('broken', $token)"), 't', 'one of another program');
like(log_of($c), qr/zk_break removed the contender with token $token [^\n]*\n[^\n]*DETAIL:  It was made with "10\.0\.0\.7"\.$/m, '... says what it has written');

done_testing();
