# A crash leaves a session, which the next run asks what it tells before it closes it.  Where
# nothing has been forgotten nobody waits.  Where somebody else has closed that session its own
# server waits alone: the others keep their sessions, their locks and the base of tokens.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;
use ZooKeeper;
use ZooKeeper::Client;

my $zk = ZooKeeper->new->start;
# A session lasts for as long as the test, but where it says so.
sub server { my ($name, $timeout) = @_; return ZkLock::server($name, $zk, conf => "zklock.session_timeout = '$timeout'\nrestart_after_crash = on"); }
my ($a, $b) = map { server($_, '1h') } 'a', 'b';
ZkLock::wait_connected($a, $b);

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }
sub findings { return scalar(() = log_of($_[0]) =~ /WARNING:  ZooKeeper ensemble went back to an earlier state/g); }
sub session_id { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session'); }
sub state { return ZkLock::ask($_[0], 'SELECT state FROM zk_session'); }

my $held = ZkLock::session($b);
$held->query('BEGIN');
my $token = $held->query("SELECT zk_lock('held')");
my $of_b = session_id($b);

sub ok_alone
{
	my $what = shift;
	is($zk->get('/zklock/tokens'), 0, "$what: the base is what it was");
	is($held->query("SELECT zk_assert('held')"), $token, '... and B has its lock');
	is(session_id($b), $of_b, '... and its session');
	is(findings($b), 0, '... and has found nothing');
}

# A server is down, and has left this session, which has a lock.
sub leave_session
{
	my ($node, $how) = @_;
	ZkLock::wait_connected($node);
	my $session = ZkLock::session($node);
	$session->query("SELECT zk_lock('left', scope => 'session')");
	$session->query("SELECT zk_assert('left')");
	my $id = session_id($node);
	ZkLock::hang_up($node);
	if ($how eq 'immediate shutdown') { $node->stop('immediate'); }
	else
	{
		my $postmaster = $node->{_pid};
		$node->kill9;
		# pg_ctl does not tell a dead one that nobody has taken note of from another
		ZkLock::wait_until(sub { !kill 0, $postmaster }, 'the postmaster has gone');
	}
	return $id;
}

sub start { my ($node, $how) = @_; return $how eq 'immediate shutdown' ? $node->start : ZkLock::start_again($node); }

# Back, in a session of its own.
sub ok_back
{
	my ($node, $id, $what, $name) = @_;
	ZkLock::wait_until(sub { (eval { ZkLock::ask($node, "SELECT state = 'connected' AND session_id <> '$id' FROM zk_session") } // '') eq 't' }, 'it is back');
	is(findings($node), 0, "$what: there is nothing to find out");
	$name //= 'left';
	cmp_ok(ZkLock::session($node)->query("SELECT zk_lock('$name')"), '>', 0, '... and locks are granted');
	ok(ZkLock::wait_until(sub { !exists $zk->sessions->{$id} }, 'it is closed'), '... and the session that was left is closed');
}

#
# Nothing was forgotten
#
for my $how ('immediate shutdown', 'postmaster killed')
{
	my $id = leave_session($a, $how);
	start($a, $how);
	ok_back($a, $id, $how);
	ok_alone($how);
}

my $victim = ZkLock::session($a);
$victim->query("SELECT zk_lock('left', scope => 'session')");
my $id = session_id($a);
ZkLock::hang_up($a);
kill 'KILL', $victim->pid or die;
ok_back($a, $id, 'backend killed');
ok_alone('backend killed');

$id = session_id($a);
ZkLock::hang_up($a);
$a->restart;
ok_back($a, $id, 'a good end after that');
ok_alone('a good end after that');

# Another name, and so another node, after the crash
$id = leave_session($a, 'immediate shutdown');
$a->append_conf('postgresql.conf', "zklock.server_name = 'renamed'");
$a->start;
ok_back($a, $id, 'renamed');

# It was down for so long that the session has ended in its time: not so short that it ends before.
my $short = server('c', '8s');
$id = leave_session($short, 'immediate shutdown');
ZkLock::wait_until(sub { !exists $zk->sessions->{$id} }, 'the session has expired');
$short->start;
ok_back($short, $id, 'expired in its time');
ok_alone('expired in its time');

#
# Somebody closes the session while its server is down
#
for my $how ('immediate shutdown', 'postmaster killed')
{
	my $node = server($how =~ /^i/ ? 'd' : 'e', '1h');
	$id = leave_session($node, $how);
	my @id = unpack 'x8 q a16', PostgreSQL::Test::Utils::slurp_file($node->data_dir . '/pg_stat_tmp/zklock.session');
	ZooKeeper::Client->new($zk->hosts, resume => \@id)->close;
	start($node, $how);
	ZkLock::wait_until(sub { findings($node) > 0 || state($node) eq 'connected' }, 'it finds out, or not');
	is(findings($node), 1, "$how, and the session closed from outside: its server finds out");
	like(log_of($node), qr/DETAIL:  It does not know ZooKeeper session $id any more, which was to live for another \d+ ms\. /, '... by the session');
	ok_alone("... after which");
	ZkLock::hang_up($node);
	$node->restart;
	ZkLock::wait_until(sub { state($node) eq 'went back' }, 'it waits on');
	is(findings($node), 1, '... and waits on after a restart, without another finding');
	ok_alone("... after which");
	ZkLock::hang_up($node);
	$node->stop;
}

#
# With credentials, without which the node may not be written
#
my $file = PostgreSQL::Test::Utils::tempdir() . '/auth';
PostgreSQL::Test::Utils::append_to_file($file, "digest zklock:s3cr3t\n");
chmod 0600, $file or die;
my $f = ZkLock::server('f', $zk, conf => "zklock.session_timeout = '1h'\nzklock.auth_file = '$file'");
$id = leave_session($f, 'immediate shutdown');
$f->start;
ok_back($f, $id, 'with credentials');

# By now it has other credentials: its session is closed, and not asked.
$id = leave_session($f, 'immediate shutdown');
my $right = PostgreSQL::Test::Utils::slurp_file($file);
unlink $file or die;
PostgreSQL::Test::Utils::append_to_file($file, "digest zklock:guess\n");
chmod 0600, $file or die;
$f->start;
# The znode of lock "left" may be that of the credentials before.
ok_back($f, $id, 'with other credentials', 'anew');
unlink $file or die;
PostgreSQL::Test::Utils::append_to_file($file, $right);
chmod 0600, $file or die;
ZkLock::hang_up($f);
$f->restart;

# Somebody has made the node anew, with the same credentials.
$id = leave_session($f, 'immediate shutdown');
my $friend = $zk->client(auth => [ digest => 'zklock:s3cr3t' ]);
my ($node) = grep { /^f-/ } $zk->children('/zklock/servers');
$friend->delete("/zklock/servers/$node");
$friend->create("/zklock/servers/$node");
$friend->set_acl("/zklock/servers/$node", [ 31, 'auth', '' ]);
$f->start;
ZkLock::wait_until(sub { findings($f) > 0 || state($f) eq 'connected' }, 'it finds out, or not');
like(log_of($f), qr{DETAIL:  The znode under "/zklock/servers" that this server's ZooKeeper session had made has version 1, after version \d+\. }, 'a node that was written less often is seen with credentials');
ok_alone('... and its server waits alone');

done_testing();
