# What a crash of one server costs the others: nothing.  Where it remembers by memory what it
# gave, a harmless finding after the crash raises no base, so that nobody else loses a session.
# Where it cannot know, it goes on above all that it may have given.
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
# A is waited for as long each time.  B has a lock all the time, and comes to that in the end alone.
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '" . ($_ eq 'a' ? 8 : 20) . "s'\nrestart_after_crash = on") } 'a', 'b';
ZkLock::wait_connected($a, $b);

sub findings { return scalar(() = PostgreSQL::Test::Utils::slurp_file($_[0]->logfile) =~ /WARNING:  ZooKeeper ensemble went back to an earlier state/g); }
sub base { return $zk->get('/zklock/tokens'); }
sub session_id { return ZkLock::ask($_[0], 'SELECT session_id FROM zk_session'); }

# Both hold a lock, and B's must go on.
my $held = ZkLock::session($b);
$held->query('BEGIN');
my $token = $held->query("SELECT zk_lock('held')");
my $of_b = session_id($b);

# A session that is in use, so that the ensemble is sure to know it still.
sub hold
{
	my $name = shift;
	ZkLock::wait_connected($a);
	my $s = ZkLock::session($a);
	$s->query("SELECT zk_lock('$name', scope => 'session')");
	return $s;
}

# A crash restart, and a connection.
sub kill_backend
{
	my $victim = hold('killed');
	my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
	kill 'KILL', $victim->pid or die;
	ZkLock::wait_until(sub { (eval { ZkLock::ask($a, "SELECT worker_pid FROM zk_session WHERE state = 'connected'") } || $worker) ne $worker }, 'A has started again');
}

# Somebody closes A's session, which looks to it as if the ensemble had gone back.
sub close_session
{
	my $holder = hold('mine');
	my $before = findings($a);
	my @id = unpack 'x8 q a16', PostgreSQL::Test::Utils::slurp_file($a->data_dir . '/pg_stat_tmp/zklock.session');
	# its own client may take it back
	ZkLock::wait_until(sub { eval { ZooKeeper::Client->new($zk->hosts, resume => \@id)->close }; findings($a) > $before }, 'A notices');
	ZkLock::wait_connected($a);
	$holder->quit;
}

sub ok_alone
{
	my $what = shift;
	is(base(), 0, "$what: the base is what it was");
	is($held->query("SELECT zk_assert('held')"), $token, '... and B has its lock');
	is(session_id($b), $of_b, '... and its session');
	is(findings($b), 0, '... and has found nothing');
}

close_session();
ok_alone('a session closed from outside');

kill_backend();
ok_alone('a backend killed');
close_session();
ok_alone('... and then the session closed from outside');

kill_backend();
ZkLock::hang_up($a);
$a->restart;
close_session();
ok_alone('... or after a clean restart');

kill_backend();
ZkLock::wait_connected($a);
my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
kill 'TERM', $worker or die;
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT worker_pid <> $worker AND state = 'connected' FROM zk_session") eq 't' }, 'the next worker');
close_session();
ok_alone('... or by a worker that is not the first');

# The data directory goes to another machine, and comes back to where the memory of its old
# time is left.  That memory has not noted what was given elsewhere.
sub crash
{
	hold('before a crash')->quit;
	ZkLock::hang_up($a);
	$a->stop('immediate');
}
crash();
my $memory = ZkLock::memory($a);
my $old = PostgreSQL::Test::Utils::slurp_file($memory);
unlink $memory or die;
$a->start;
crash();
unlink $memory or die;
PostgreSQL::Test::Utils::append_to_file($memory, $old);
chmod 0600, $memory or die;
$a->start;
my $last = hold('job');
my $largest = $last->query("SELECT zk_token('job')");
$last->quit;
close_session();
cmp_ok(base(), '>', 0, 'an old memory is not believed: the base is raised');
ZkLock::wait_connected($a, $b);
cmp_ok(ZkLock::session($b)->query("SELECT zk_lock('job')"), '>', $largest, '... so that tokens grow');

done_testing();
