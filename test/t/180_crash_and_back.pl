# Three faults at once: PostgreSQL crashes, the ensemble is restored from a backup and numbers on
# above all that there was, and the worker of a third server, which holds a lock, stands still.
# Of those that crashed nobody may get the lock: the sessions that they have left tell them that
# the ensemble went back.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;
use ZooKeeper;

# No session ends by itself, and no lease, however slow the machine is.
my $conf = "zklock.session_timeout = '1h'";
my $zk = ZooKeeper->new(servers => 3)->start;
$zk->wait_elected;
my ($a, $b, $c, $d) = map { ZkLock::server($_, $zk, conf => $conf) } 'a', 'b', 'c', 'd';
ZkLock::wait_connected($a, $b, $c, $d);

my $back = 'ZooKeeper ensemble went back to an earlier state';
sub findings { return scalar(() = PostgreSQL::Test::Utils::slurp_file($_[0]->logfile) =~ /WARNING:  $back/g); }
sub session_id { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session'); }
sub zxid { return hex(($zk->four('srvr', $zk->leader) =~ /^Zxid: 0x(\w+)/m)[0]); }

# The session of B is younger than the backup, those of C and D are in it, and have been
# written since.
sub version
{
	my $name = $_[0]->name;
	my ($node) = grep { /^$name-/ } $zk->children('/zklock/servers');
	return $zk->stat("/zklock/servers/$node")->{version};
}

$zk->save;
ZkLock::hang_up($b);
$b->restart;
ZkLock::wait_connected($b);
for my $node ($c, $d)
{
	my ($saved, $name) = (version($node), $node->name);
	my $session = ZkLock::session($node);
	$session->query("SELECT zk_lock('$name', scope => 'session')");
	ZkLock::wait_until(sub { $session->query("SELECT zk_assert('$name')"); version($node) > $saved + 1 }, "$name writes");
	$session->quit;
}
my $holder = ZkLock::session($a);
$holder->query('BEGIN');
my $token = $holder->query("SELECT zk_lock('job')");
my $last = zxid();
my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
ZkLock::stop_process($a, $worker);

# An immediate shutdown, a postmaster killed; and D ends well, without a connection, so that it
# leaves its session, too.
my %left = map { $_->name => session_id($_) } $b, $c, $d;
ZkLock::hang_up($_) for $b, $c, $d;
$b->stop('immediate');
my $postmaster = $c->{_pid};
$c->kill9;
# pg_ctl does not tell a dead one that nobody has taken note of from another
ZkLock::wait_until(sub { !kill 0, $postmaster }, 'the postmaster has gone');
$zk->kill9;
$d->stop;
ok(-e ZkLock::memory($d), 'whoever cannot close its session keeps what it knows of that');
$zk->go_back->start_nowait;
$zk->wait_elected;
cmp_ok(zxid(), '>', $last, 'the ensemble numbers on above all that there was');

$b->start;
ZkLock::start_again($c);
$d->start;
my %reason = (
	b => qr/: It does not know ZooKeeper session $left{b} any more, which was to live for another \d+ ms$/,
	map { $_ => qr{: The znode under "/zklock/servers" that this server's ZooKeeper session had made has version \d+, after version \d+$} } 'c', 'd');
for my $node ($b, $c, $d)
{
	my $name = $node->name;
	my $rival = ZkLock::session($node)->send("SELECT zk_lock('job', scope => 'session')");
	ZkLock::wait_until(sub { findings($node) > 0 || !$rival->busy }, "$name finds out, or has the lock");
	ok($rival->busy, "$name has not got the lock");
	is($holder->query("SELECT zk_token('job')"), $token, '... in which its holder believes');
	# which is shown when its file says so, too
	ok(ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT state FROM zk_session') eq 'went back' }, "$name waits"), '... and waits');
	like(ZkLock::ask($node, 'SELECT last_error FROM zk_session'), $reason{$name}, '... since it has found out');
	$rival->cancel;
}
# which comes after what is shown; by itself it lasts an hour
for my $name ('c', 'd') { ok(ZkLock::wait_until(sub { !exists $zk->sessions->{ $left{$name} } }, 'it is closed'), "the session that $name left is closed"); }

# A crash in the wait: what the file says is enough.
ZkLock::hang_up($b);
$b->stop('immediate');
$b->start;
ZkLock::wait_until(sub { ZkLock::ask($b, 'SELECT state FROM zk_session') eq 'went back' }, 'B waits on');
is(findings($b), 1, 'another crash: it waits on, and finds nothing new');

kill 'CONT', $worker or die;
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT bool_and(grant_state = 'lost') FROM zk_locks") eq 't' }, 'A hears that its contender is gone');
is($holder->fails('COMMIT'), '40001: lock "job" was lost', 'the holder hears of it as soon as its worker goes on');

done_testing();
