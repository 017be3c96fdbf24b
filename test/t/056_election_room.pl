# Elections in a full table: they make room as locks do, and those of
# zklock.elections are entered as soon as there is some.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('a', $zk, conf => "zklock.max_locks = 5\nzklock.keep_time = '1h'\nzklock.connect_timeout = '1h'\nzklock.session_timeout = '60s'");
ZkLock::wait_connected($node);
my ($s, $other, $holder) = map { ZkLock::session($node) } 1 .. 3;
$s->query('\set SHOW_CONTEXT always');

sub wait_ask
{
	my ($sql, $answer, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $now = '';
	eval { ZkLock::wait_until(sub { ($now = ZkLock::ask($node, $sql)) eq $answer }, $what) };
	is($now, $answer, $what);
}

my $serial = 0;

# The table is full: so many elections, names that are held, and one that is kept for nobody.
# The last name may have made more room than it took.
sub fill
{
	my $elections = shift;
	$holder->query('SELECT zk_unlock_all()');
	$holder->query("SELECT zk_lock('filler $_', scope => 'session')") for 1 .. 4 - $elections;
	ZkLock::wait_until(
		sub {
			$serial++;
			$other->query("SELECT zk_lock('kept $serial')");
			return ZkLock::ask($node, "SELECT names = 5 AND kept = 1 FROM zk_session") eq 't';
		},
		'the table is full');
}

my $full = '53200: zklock lock table is full';
my $elections = "SELECT string_agg(election || ' ' || is_leader, ', ' ORDER BY election) FROM zk_elections";

#
# A backend's
#
fill(0);
is($s->fails("SELECT zk_is_leader('called', timeout => '1h')"), '', 'zk_is_leader makes room');
wait_ask("SELECT zk_is_leader('called')", 't', '... and the server leads');
fill(1);
# that there is room, and who leads, may take longer than the two seconds for which it waits
my $required;
ZkLock::wait_until(sub { ($required = $s->fails("SELECT zk_require_leader('required')") || $s->{answer}) !~ /^40001:/ }, 'it leads');
like($required, qr/^\d+$/, 'zk_require_leader makes room');
fill(2);
is($s->query("SELECT zk_is_leader('impatient', timeout => '0')::text IN ('true', 'false')"), 't', '... as one that would not wait for the verdict');

# Three of five are elections now, and the worker is stopped.
fill(3);
my $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
ZkLock::stop_process($node, $worker);
is($s->fails("SELECT zk_is_leader('late', timeout => '300ms')"), $full, 'it waits for room as long as it would for the verdict');
$s->query("SET zklock.connect_timeout = '300ms'");
is($s->fails("SELECT zk_is_leader('late', timeout => '1h')"), $full, '... but not beyond connect_timeout');
$s->query('RESET ALL');
is($s->fails("SET lock_timeout = '300ms'; SELECT zk_is_leader('late', timeout => '1h')"), '55P03: canceling statement due to lock timeout', '... nor lock_timeout');
like($s->notices, qr/while waiting for room in the lock table for election "late"$/m, '... and the context says for what it waited');
$s->query('RESET ALL');
$s->send("SELECT zk_is_leader('late', timeout => '1h')");
$s->wait_event('Extension');
is($s->cancel->failure, '57014: canceling statement due to user request', '... and can be cancelled');
kill 'CONT', $worker or die;
is($s->query("SELECT zk_is_leader('late', timeout => '1h')"), 't', '... and gets it when the worker goes on');
is($s->query("SELECT zk_resign(e) FROM unnest(ARRAY['called', 'required', 'impatient', 'late']) e"), join("\n", ('t') x 4), 'all are left');

#
# zklock.elections
#
$holder->query('SELECT zk_unlock_all()');
wait_ask('SELECT names - kept FROM zk_session', 0, 'they are gone');
$s->query('BEGIN');
$s->query("SELECT zk_lock('held $_')") for 1 .. 4;
$other->query("BEGIN; SELECT zk_lock('held 5')");
is($other->fails("SAVEPOINT s; SELECT zk_is_leader('none')"), $full, 'a table full of names that are held');
$other->query('ROLLBACK TO s');
ZkLock::ask($node, "ALTER SYSTEM SET zklock.elections = 'first,second,third'");
$node->reload;
ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /could not enter election "first", will try again/ }, 'the log says so');
pass('an election of zklock.elections finds no room, and the log says so');
$other->query('COMMIT');
wait_ask($elections, 'first true', '... it is entered when there is some');
is($other->query("SELECT zk_resign('first')"), 't', '... and left by whoever resigns');
$s->query('COMMIT');
wait_ask($elections, 'second true, third true', '... the others follow, but not one that was left');
my @lines = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /could not enter election "(\w+)"/g;
is("@lines", join(' ', grep { my $name = $_; grep { $_ eq $name } @lines } qw(first second third)), 'the log says of each once at most');

done_testing();
