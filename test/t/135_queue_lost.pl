# Work that is handed out, when something breaks: workers, sessions, servers, at each step;
# twelve takers on three servers who write each item once into their tables.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
# A's session is there to expire, but not because the machine is slow.
my ($a, $b, $c) = map { ZkLock::server($_, $zk, conf => "cluster_name = '$_'\n" . ($_ eq 'a' ? "zklock.session_timeout = '15s'\n" : '') . "synchronous_commit = off\nrestart_after_crash = on") } qw(a b c);
ZkLock::wait_connected($a, $b, $c);

my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;

# A worker that is killed leaves all to its successor
$sa->query("SELECT zk_queue_put('q', i::text) FROM generate_series(1, 5) i");
length_is($b, 'q', '5 0 0', 'five');
$sa->query("BEGIN; SELECT FROM zk_queue_take('q')");
my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
kill 'TERM', $worker;
my $now;
ZkLock::wait_until(
	sub { $now = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session'); return $now && $now != $worker },
	'another worker', sub { "$now after $worker" });
ZkLock::wait_connected($a);
length_is($b, 'q', '5 1 0', 'the item is held still');
$sa->query("SELECT zk_queue_put('q', '6'); COMMIT");
length_is($b, 'q', '5 0 0', 'and done, and another one put');

# A backend that is killed gives its item back
$sa->query("BEGIN; SELECT FROM zk_queue_take('q')");
length_is($b, 'q', '5 1 0', 'held');
my $killed = $sa->pid;
$sb->query('SELECT 1');
ZkLock::ask($a, "SELECT pg_terminate_backend($killed)");
length_is($b, 'q', '5 0 0', 'given back');
is($sb->query("SELECT payload, attempt FROM zk_queue_take('q')"), '2|2', 'and taken by another server');
length_is($b, 'q', '4 0 0', '... which is done');

# A session that expires takes the item away
$sa = ZkLock::session($a);
my $id = $sa->query("BEGIN; SELECT id FROM zk_queue_take('q')");
is($sb->query("SELECT payload, attempt FROM zk_queue_take('q', '1 h') WHERE payload = '3'"), '', 'the next item is another one');
$worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
ZkLock::stop_process($a, $worker);
length_is($b, 'q', '3 0 0', 'when the session is gone the item is anybody\'s');
kill 'CONT', $worker;
like($sa->fails('COMMIT'), qr/^40001: item $id of queue "q" was lost/, 'its transaction cannot commit');
like($sa->notices, qr/^HINT:  The transaction might succeed if retried\.$/m, '... and has a hint');
ZkLock::wait_connected($a);
is($sa->query("BEGIN; SELECT payload, attempt FROM zk_queue_take('q', '1 h'); COMMIT"), '3|2', '... the retry has it');
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT items_lost FROM zk_stat') eq '1' }, 'the loss is counted');
is($sb->query("SELECT zk_queue_purge('q') >= 0"), 't', 'purged');

# What follows takes no expiry; the next session is that of the server's next life
$a->append_conf('postgresql.conf', "zklock.session_timeout = '60s'");
$a->reload;

# kill -9 of the server: what has committed is put, what has not was never there
ZkLock::ask($a, "CREATE TABLE done (id uuid PRIMARY KEY, payload text)");
$worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
my $open = ZkLock::session($a);
$open->query("BEGIN; SELECT zk_queue_put('crash', 'open')");
$sa->query("SELECT zk_queue_put('crash', 'before')");
length_is($b, 'crash', '1 0 0', 'one is put');
$sa->query("BEGIN; SELECT zk_queue_put('crash', 'committed'); INSERT INTO done SELECT id, payload FROM zk_queue_take('crash'); CREATE TEMPORARY TABLE x (i int)");
# The worker stands still when the commit has come: so nothing is moved, or deleted
my $watch = ZkLock::session($a);
$watch->query("SELECT pg_advisory_lock(1)");
$sa->query("CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'; CREATE TABLE late (i int); CREATE CONSTRAINT TRIGGER stop AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION stop(); INSERT INTO late VALUES (1)");
$sa->send('COMMIT');
$sa->wait_event('Lock');
$watch->query('SELECT pg_advisory_unlock(1)');
$sa->result;
kill 'STOP', $worker;
kill 'KILL', $worker;
ZkLock::wait_until(
	sub {
		$now = eval { ZkLock::ask($a, "SELECT worker_pid FROM zk_session WHERE state = 'connected'") };
		return $now && $now != $worker;
	},
	'the server is back');
ZkLock::wait_connected($a);
my $seen;
ZkLock::wait_until(
	sub { ($seen = ZkLock::ask($b, "SELECT length || ' ' || held || ' ' || putting FROM zk_queues WHERE queue = 'crash'")) =~ /^[12] 0 0$/ },
	'nothing is left in doubt', sub { $seen });
my $all = '';
while ((my $row = $sb->query("SELECT id || ' ' || payload FROM zk_queue_take('crash')")) ne '') { $all .= "$row\n"; }
unlike($all, qr/open/, 'what was not committed was never there');
like($all, qr/ committed$/m, 'what was is');
is(ZkLock::ask($a, 'SELECT payload FROM done'), 'before', 'the item was done');
if ($all =~ /^(\S+) before/m)
{
	is(ZkLock::ask($a, "SELECT id FROM done"), $1, 'and, where it was handed out again, with the same id');
}

# Twelve takers, each item once; behind the items is one for each taker, which ends it
my $n = 200;
ZkLock::ask($_, 'CREATE TABLE result (id uuid PRIMARY KEY, payload text)') for $a, $b, $c;
my @takers = map { my $node = $_; map { ZkLock::session($node) } 1 .. 4 } $a, $b, $c;
my $ends = @takers;
$sb->query("BEGIN; SELECT zk_queue_put('work', i::text) FROM generate_series(1, $n) i; SELECT zk_queue_put('work', 'end') FROM generate_series(1, $ends); COMMIT");
my $body = q{
	DECLARE got text;
	BEGIN
		LOOP
			INSERT INTO result SELECT id, payload FROM zk_queue_take('work', '1 h') RETURNING payload INTO got;
			COMMIT;
			EXIT WHEN got = 'end';
		END LOOP;
	END};
$_->send("DO \$\$$body\$\$") for @takers;
$_->result for @takers;
length_is($b, 'work', '0 0 0', 'all are done');
my @results = map { split /\n/, ZkLock::ask($_, 'SELECT payload FROM result') } $a, $b, $c;
is(join(' ', sort @results), join(' ', sort 1 .. $n, ('end') x $ends), 'each once');
is(ZkLock::ask($a, "SELECT count(DISTINCT id) = count(*) FROM result"), 't', 'ids');

$_->stop for $a, $b, $c;
done_testing();
