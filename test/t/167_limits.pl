# What one session may have of what all share: zklock.max_locks_per_backend counts locks,
# elections, items and queues, and one transaction has half of a small place at most.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => "cluster_name = 'a'\nzklock.max_locks = 36\nzklock.elections = 'of_server'");
ZkLock::wait_connected($a);
my $super = ZkLock::session($a);
$super->query("CREATE ROLE $_ LOGIN; GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO $_") for qw(limited other);
$super->query("ALTER ROLE limited SET zklock.max_locks_per_backend = 2; ALTER ROLE other SET zklock.max_locks_per_backend = 2");
my ($s, $again, $other) = map { ZkLock::session($a, user => $_) } qw(limited limited other);

sub refused
{
	my ($session, $sql, $message, $detail, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($session->fails($sql), "53400: $message", $what);
	like($session->notices, qr/^DETAIL:  $detail\.\nHINT:  (?:.*, or ask an administrator for a higher limit|Put into fewer queues in one transaction)\.$/m, '... and why');
	return;
}

#
# Elections: a candidacy is the server's, and stays
#
my $elections = 'role has made this server a candidate in too many elections';
my $in_two = 'It has in 2 elections, and "zklock.max_locks_per_backend" is 2';
# zk_require_leader waits for two seconds, which may be too short
ok(ZkLock::wait_until(sub { $s->fails("SELECT zk_is_leader('e1'); SELECT zk_require_leader('e2')") eq '' }, 'it leads'), 'as many candidacies as are allowed');
refused($s, "SELECT zk_is_leader('e3')", $elections, $in_two, '... no more');
refused($s, "SELECT zk_require_leader('e3')", $elections, $in_two, '... nor with zk_require_leader');
refused($s, "CALL zk_run_as_leader('e3', 'SELECT 1')", $elections, $in_two, '... nor with zk_run_as_leader');
is(ZkLock::ask($a, "SELECT string_agg(election, ', ' ORDER BY election) FROM zk_elections"), 'e1, e2, of_server', '... and none is entered');
refused($again, "SELECT zk_is_leader('e3')", $elections, $in_two, 'nor in another session of the role');
is($s->fails("SELECT zk_is_leader('e1'); SELECT zk_is_leader('of_server')"), '', 'those that are entered may be asked for');
is($other->fails("SELECT zk_is_leader('e3')"), '', 'another role may enter it');
is($s->fails("SELECT zk_is_leader('e3')"), '', '... which lets everybody ask');
is($s->query("SELECT zk_resign('e1'); SELECT zk_is_leader('e4', '1 h')"), "t\nt", 'one goes, one comes');
$again->quit;
$s->quit;
$s = ZkLock::session($a, user => 'limited');
refused($s, "SELECT zk_is_leader('e5')", $elections, $in_two, 'the end of a session does not end what it has entered');
is($super->fails("SELECT zk_is_leader('s' || i) FROM generate_series(1, 20) i"), '', 'who has no limit is not refused');

#
# Items
#
$super->query("SELECT zk_queue_put('q', i::text) FROM generate_series(1, 9) i");
length_is($a, 'q', '9 0 0', 'nine items');
sub take { my $session = shift; return $session->query("SELECT payload FROM zk_queue_take('q')"); }
my $take = "SELECT payload FROM zk_queue_take('q')";
$s->query('BEGIN');
is(take($s) . take($s), '12', 'as many items as are allowed');
$s->query('SAVEPOINT s');
refused($s, $take, 'transaction has taken too many queue items', 'It has 2 items, and "zklock.max_locks_per_backend" is 2', '... no more');
$s->query('ROLLBACK TO s; COMMIT; BEGIN');
is(take($s) . take($s), '34', '... but in the next transaction');
$super->query('BEGIN');
is(join('', map { take($super) } 1 .. 5), '56789', 'who has no limit takes half of what the server can have');
refused($super, $take, 'transaction has taken too many queue items', 'It has 5 items, and one transaction can have 5: half of what the server has room for', '... no more');
$_->query('ROLLBACK') for $s, $super;
length_is($a, 'q', '7 0 0', 'what was not committed is given back');

#
# Queues
#
my $put = "SELECT zk_queue_put('p' || i, 'x') FROM generate_series(1, 2) i, generate_series(1, 3)";
$s->query("BEGIN; $put; SAVEPOINT s");
refused($s, "SELECT zk_queue_put('p3', 'x')", 'transaction puts into too many queues', 'It puts into 2 queues, and "zklock.max_locks_per_backend" is 2', 'as many queues as are allowed');
is($s->fails('ROLLBACK TO s; COMMIT'), '', '... are put into');
is($s->fails("BEGIN; SAVEPOINT s; SELECT zk_queue_put('p3', 'x'), zk_queue_put('p4', 'x'); ROLLBACK TO s; SELECT zk_queue_put('p1', 'x'), zk_queue_put('p2', 'x'); COMMIT"), '', 'what is rolled back does not count');
length_is($a, 'p2', '4 0 0', 'the items are there');
length_is($a, 'p3', '', 'and the others not');
refused($super, "SELECT zk_queue_put('x' || i, 'x') FROM generate_series(1, 129) i", 'transaction puts into too many queues',
	'It puts into 128 queues, and one transaction can have 128: half of what the server has room for', 'who has no limit puts into half of what the server has room for');
is($super->fails("SELECT zk_queue_put('x' || i, 'x') FROM generate_series(1, 128) i"), '', '... and no less');

#
# Locks
#
$s->query("BEGIN; SELECT zk_lock('l1'), zk_acquire('l2', 3)");
refused($s, "SELECT zk_lock('l3')", 'session holds too many zklock locks', 'It holds locks of 2 names, and "zklock.max_locks_per_backend" is 2', 'locks and permits, of which each kind of limit knows nothing');
$s->query('ROLLBACK');
ZkLock::wait_until(sub { $s->fails("SELECT zk_require_leader('of_server')") eq '' }, 'the server leads');
$s->query("BEGIN; SELECT zk_lock('l1'), zk_lock('l2')");
refused($s, "SELECT zk_require_leader('of_server')", 'session holds too many zklock locks', 'It holds locks of 2 names, and "zklock.max_locks_per_backend" is 2', 'nor a leadership that is required');
$s->query('ROLLBACK');
is($s->fails("BEGIN; SELECT zk_lock('l1'); SELECT zk_require_leader('of_server'); SELECT zk_require_leader('of_server'); COMMIT"), '', '... which counts once');

done_testing();
