# Work that is handed out, and transactions: how they end, at each step; what of them is
# where the items are put and taken; the order of items.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $a = ZkLock::server('a', $proxy, conf => "cluster_name = 'a'\nmax_prepared_transactions = 2");
my $b = ZkLock::server('b', $zk, conf => "cluster_name = 'b'");
ZkLock::wait_connected($a, $b);
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;

sub put { my ($queue, @payloads) = @_; ZkLock::ask($b, "SELECT zk_queue_put('$queue', '$_')") for @payloads; return length_is($b, $queue, @payloads . ' 0 0', "$queue has @payloads"); }
sub take { my ($s, $queue, $timeout) = @_; return $s->query("SELECT payload || attempt FROM zk_queue_take('$queue', '" . ($timeout // 0) . "')"); }
sub all { my ($queue) = @_; my @all; while ((my $item = take($sb, $queue)) ne '') { push @all, $item; } return join ' ', @all; }

#
# Ended from outside, at each step
#
for my $how (qw(cancel terminate kill_client))
{
	my $failure = $how eq 'cancel' ? qr/^57014: canceling statement due to user request/ : qr/^57P01: /;
	my $ended = sub {
		my ($s, $what) = @_;
		$s->$how;
		like($s->failure, $failure, "$how $what") unless $how eq 'kill_client';
		$s->query('ROLLBACK') if $how eq 'cancel';
	};
	my $queue = "end $how";
	put($queue, qw(one two));

	# who waits for one
	my $s = ZkLock::session($a);
	unless ($how eq 'kill_client')
	{
		$s->send("SELECT FROM zk_queue_take('$queue empty', '1 h')")->wait_event('Extension');
		$ended->($s, 'while it waits for an item');
	}

	# who has one, and puts another
	$s = ZkLock::session($a);
	$s->query("BEGIN; SELECT FROM zk_queue_take('$queue'); SELECT zk_queue_put('$queue', 'never')");
	length_is($b, $queue, '2 1 0', 'one is held');
	if ($how eq 'cancel') { $s->send('SELECT pg_sleep(3600)')->wait_event('PgSleep'); }
	elsif ($how eq 'terminate') { $s->send('SELECT pg_sleep(3600)')->wait_event('PgSleep'); }
	$ended->($s, 'while it has one');
	length_is($b, $queue, '2 0 0', '... gives it back');

	# who is being given one, or waits to hear of it, or commits: the ensemble is silent
	for my $step (qw(taking committing))
	{
		next if $how eq 'kill_client';
		$s = ZkLock::session($a);
		$s->query('BEGIN');
		$s->query("SELECT zk_queue_put('$queue', 'never')") if $step eq 'committing';
		# or it would not know yet that the item is free, and take the other one
		ZkLock::wait_answered($a);
		$proxy->hole('down');
		$s->send($step eq 'taking' ? "SELECT FROM zk_queue_take('$queue')" : 'COMMIT');
		$s->wait_event('Extension');
		$zk->wait_children("/zklock/queues/$queue/puts", 1) if $step eq 'committing';
		$ended->($s, "while it is $step");
		$proxy->heal;
		length_is($b, $queue, '2 0 0', '... leaves nothing');
	}
	is(all($queue), 'one2 two1', "$how: all is there");
}

#
# Subtransactions
#
put('sub', 1 .. 5);
$sa->query(<<'END');
DO $$
DECLARE
	p text;
BEGIN
	SELECT payload INTO p FROM zk_queue_take('sub');
	IF p <> '1' THEN RAISE EXCEPTION 'not 1: %', p; END IF;
	FOR i IN 1..3 LOOP
		BEGIN
			PERFORM zk_queue_put('sub', 'never');
			SELECT payload INTO p FROM zk_queue_take('sub');
			IF p <> '2' THEN RAISE EXCEPTION 'not 2: %', p; END IF;
			PERFORM 1 / 0;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
	END LOOP;
	BEGIN
		PERFORM zk_queue_put('sub', 'inner');
		SELECT payload INTO p FROM zk_queue_take('sub');
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
END $$
END
length_is($b, 'sub', '4 0 0', 'an exception block gives back what it took, and puts nothing');
is(all('sub'), '31 41 51 inner1', '... and one without an exception is as if it were none');

#
# Cursors, protocols
#
put('cursor', 1 .. 4);
$sa->query("BEGIN; DECLARE c CURSOR FOR SELECT payload FROM generate_series(1, 3) i, zk_queue_take('cursor', 0 * i * interval '1 s')");
is($sa->query('FETCH c'), 1, 'a cursor takes the first');
length_is($b, 'cursor', '4 1 0', '... and no more');
$sa->query('SAVEPOINT s');
is($sa->query('FETCH c'), 2, 'in a subtransaction the second');
$sa->query('ROLLBACK TO s');
length_is($b, 'cursor', '4 1 0', '... which gives it back');
$sa->query('ROLLBACK');
length_is($b, 'cursor', '4 0 0', 'as does a rollback with a cursor open');
$sa->query("BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT payload FROM zk_queue_take('cursor'); COMMIT");
length_is($b, 'cursor', '3 0 0', 'a cursor that is held over the commit takes at the commit');
is($sa->query('FETCH h; CLOSE h'), 1, '... what it shows then');
$sa->query("PREPARE take AS SELECT payload || attempt FROM zk_queue_take(\$1)");
is($sa->query("EXECUTE take('cursor')"), '22', 'a prepared statement');
is($sa->query("EXECUTE take('cursor')"), '31', '... again');
is($sa->query("SELECT payload || attempt FROM zk_queue_take('cursor') \\bind \\g") // '', '41', 'the extended protocol') if $sa->query("SHOW server_version_num") >= 160000;
all('cursor');

#
# PREPARE TRANSACTION, parallel workers, replication
#
for my $what ("SELECT zk_queue_put('p', 'x')", "SELECT FROM zk_queue_take('p')")
{
	put('p', 'p');
	$sa->query("BEGIN; $what");
	like($sa->fails("PREPARE TRANSACTION 'p'"), qr/^55000: cannot PREPARE a transaction that has put items/, "no PREPARE: $what");
	length_is($b, 'p', '1 0 0', '... which leaves all as it was');
	all('p');
}
$sa->query("BEGIN; SAVEPOINT s; SELECT zk_queue_put('p', 'x'); ROLLBACK TO s; CREATE TABLE prepared (i int)");
is($sa->fails("PREPARE TRANSACTION 'p'"), '', 'what was rolled back does not prevent it');
$sa->query("COMMIT PREPARED 'p'");
$sa->query("CREATE FUNCTION safe() RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS \$\$ BEGIN PERFORM zk_queue_put('p', 'x'); RETURN 1; END \$\$");
my $force = $sa->query('SHOW server_version_num') >= 160000 ? 'debug_parallel_query' : 'force_parallel_mode';
$sa->query("SET $force = on");
like($sa->fails('SELECT safe()'), qr/^55000: cannot use zklock in a parallel worker/, 'not in a parallel worker');
$sa->query("RESET $force");

#
# Triggers that are deferred, procedures
#
$sa->query(<<'END');
CREATE TABLE orders (id int);
CREATE FUNCTION hand_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM zk_queue_put('orders', NEW.id::text); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER hand_out AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hand_out();
CREATE PROCEDURE puts() LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..3 LOOP PERFORM zk_queue_put('orders', 'put ' || i); IF i = 2 THEN ROLLBACK; ELSE COMMIT; END IF; END LOOP; END $$;
CREATE PROCEDURE takes() LANGUAGE plpgsql AS $$ DECLARE p text; BEGIN LOOP SELECT payload INTO p FROM zk_queue_take('orders'); EXIT WHEN p IS NULL; INSERT INTO prepared VALUES (length(p)); COMMIT; END LOOP; END $$;
END
$sa->query('INSERT INTO orders SELECT generate_series(1, 3)');
length_is($b, 'orders', '3 0 0', 'a deferred trigger puts');
is(all('orders'), '11 21 31', '... in its order');
$sa->query('CALL puts()');
length_is($b, 'orders', '2 0 0', 'a procedure puts with each of its commits');
$sa->query('CALL takes()');
length_is($b, 'orders', '0 0 0', 'a procedure takes, and commits');
is($sa->query('SELECT count(*) FROM prepared'), 2, '... each');
$sa->query("BEGIN; SELECT zk_queue_put('orders', 'chain'); COMMIT AND CHAIN; SELECT zk_queue_put('orders', 'never'); ROLLBACK");
is(take($sb, 'orders', '1 h'), 'chain1', 'COMMIT AND CHAIN');
# A commit that fails after the items were written
$sa->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM orders; INSERT INTO orders VALUES (10)');
my $other = ZkLock::session($a);
$other->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM orders; INSERT INTO orders VALUES (11)');
$sa->query('COMMIT');
like($other->fails('COMMIT'), qr/^40001: /, 'a commit fails');
length_is($b, 'orders', '1 0 0', '... and puts nothing');
is(all('orders'), '101', '... of its own');

#
# The order
#
$sa->query("SELECT zk_queue_put('order', i::text) FROM generate_series(1, 20) i");
my @more = map { ZkLock::session($a) } 1 .. 3;
for my $round (1 .. 5) { $more[ $round % 3 ]->query("SELECT zk_queue_put('order', 'later $round.' || i) FROM generate_series(1, 3) i"); }
length_is($b, 'order', '35 0 0', 'all are there');
is(all('order'), join(' ', map { "${_}1" } 1 .. 20, map { my $r = $_; map { "later $r.$_" } 1 .. 3 } 1 .. 5), 'those of one transaction in the order in which they were put, those of several in that of their commits');
# Two at a time: each in its order
$_->send("DO \$\$ BEGIN FOR i IN 1..40 LOOP PERFORM zk_queue_put('order', pg_backend_pid() || ' ' || i); COMMIT; END LOOP; END \$\$") for @more, my $from_b = ZkLock::session($b);
$_->result for @more, $from_b;
length_is($b, 'order', '160 0 0', 'of four sessions on two servers');
my (%last, @wrong);
for my $item (map { [ /^(\d+) (\d+)$/ ] } split /\n/, $sb->query("SELECT payload FROM generate_series(1, 160) i, zk_queue_take('order', 0 * i * interval '1 s')"))
{
	push @wrong, "@$item" if ($last{ $item->[0] } // 0) + 1 != $item->[1];
	$last{ $item->[0] } = $item->[1];
}
is("@wrong", '', 'each session\'s in its order');
is(join(' ', values %last), '40 40 40 40', '... all of them');

is(ZkLock::ask($a, 'SELECT items_lost FROM zk_stat'), 0, 'nothing was lost');
$_->stop for $a, $b;
done_testing();
