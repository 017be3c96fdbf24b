# Verdicts of deadlocks across servers at odd moments and in odd places: where they are
# caught, beside cancels and timeouts, in other encodings; rings that nobody can see; and
# a crowd that waits without a ring.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Deadlocks;
use Protocol3;
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $crowd = "max_connections = 300\nmax_locks_per_transaction = 64\nautovacuum = off";
my $a = Deadlocks::server('a', $zk, $crowd);
my $b = Deadlocks::server('b', $zk, $crowd);
my @node = ($a, $b);
ZkLock::wait_connected(@node);

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

sub on { return Deadlocks::on(@_); }

#
# Caught, and the transaction goes on
#
{
	my $try = 'DO $$BEGIN PERFORM zk_lock(%s); RAISE WARNING $q$got it$q$; EXCEPTION WHEN deadlock_detected THEN RAISE WARNING $q$caught$q$; END$$';
	on($a)->query("BEGIN; SELECT zk_lock('x')");
	on($b)->query("BEGIN; SELECT zk_lock('y')");
	on($a)->send(sprintf $try, "'y'");
	on($b)->send(sprintf $try, "'x'");
	ZkLock::wait_until(sub { !on($a)->busy || !on($b)->busy }, 'one goes on');
	my ($first, $second, $has, $wants) = on($b)->busy ? (on($a), on($b), 'x', 'y') : (on($b), on($a), 'y', 'x');
	$first->result;
	like($first->notices, qr/^WARNING 01000: caught/, 'a deadlock is caught');
	is($first->query("SELECT zk_token('$has') IS NOT NULL, zk_token('$wants') IS NULL"), 't|t', '... the transaction has what it had');
	ok($second->busy, '... and the other waits for that');
	# once more: it is another ring
	$first->send(sprintf $try, "'$wants'");
	ZkLock::wait_until(sub { !$first->busy || !$second->busy }, 'one goes on again');
	my ($third, $fourth) = $second->busy ? ($first, $second) : ($second, $first);
	$third->result;
	like($third->notices, qr/^WARNING 01000: caught/, '... again');
	$third->query('COMMIT');
	$fourth->result;
	like($fourth->notices, qr/^WARNING 01000: got it/, '... and at its end the other goes on');
	$fourth->query('COMMIT');
	is(Deadlocks::ended(), 2, '... counted twice');

	# rolled back to a savepoint
	on($a)->query("BEGIN; SELECT zk_lock('x'); SAVEPOINT s; SELECT zk_lock('w')");
	on($b)->query("BEGIN; SELECT zk_lock('y'); SAVEPOINT s; SELECT zk_lock('v')");
	on($a)->send("SELECT zk_lock('v')");
	on($b)->send("SELECT zk_lock('w')");
	my @error = map { on($_)->failure } @node;
	is(join('', @error), '40P01: deadlock detected', 'in a subtransaction, whose end is enough');
	$first = on($error[0] eq '' ? $b : $a);
	$second = on($error[0] eq '' ? $a : $b);
	$first->query('ROLLBACK TO s');
	is($first->query("SELECT count(*) FROM zk_locks WHERE granted AND pid = pg_backend_pid()"), 1, '... and what was held before stays');
	$_->query('COMMIT') for $first, $second;
	is(Deadlocks::ended(), 1, '... counted');
}

#
# A verdict for one who is stopped, and for whom something else comes besides: one error, and
# nothing is left
#
my $limit = 5;

sub stopped
{
	my ($what, $setting, $statement, $expected, $meanwhile) = @_;
	my ($s, $other) = map { ZkLock::session($_) } $a, $b;
	my $pid = $s->pid;
	$s->query("SET deadlock_timeout = '1s'");
	my ($start, $ready);
	do
	{
		# nothing is published of a lock that is known to be wanted by nobody, and the other
		# would know, had nobody else asked for it since it had it
		ZkLock::wait_until(sub { !$zk->children('/zklock/waits') }, 'nothing is published any more');
		$s->query("SELECT zk_lock('y')");
		$s->query("BEGIN; SELECT zk_lock('x')");
		$other->query("BEGIN; SELECT zk_lock('y')");
		$other->send("SELECT zk_lock('x')")->wait_level(2);
		ZkLock::wait_until(
			sub { $zk->children('/zklock/waits') == 1 },
			'the other publishes',
			sub {
				my $published = join ', ', map { "$_: " . ($zk->get("/zklock/waits/$_") // '') } $zk->children('/zklock/waits');
				my ($x, $y) = map { join ' ', ZkLock::queue($zk, $_) } qw(x y);
				return "published: $published; x: $x; y: $y; " . substr log_of($b), -2000;
			});
		# who looks last is the one who is ended; he is stopped before he can be
		my ($theirs) = ZkLock::queue($zk, 'y');
		my $seen = length log_of($a);
		# ends with the transaction: no other statement is to meet it
		$s->query($setting) if $setting;
		$start = time;
		$s->send($statement);
		ZkLock::wait_until(sub { !$s->busy || grep { m{/locks/y/\Q$theirs\E$} } $zk->watches }, 'it waits for the other');
		# replies come in order: then its server knows, too, for whom it waits
		ZkLock::ask($a, "SELECT zk_lock('z')");
		$zk->pause;
		ZkLock::wait_until(sub { !$s->busy || substr(log_of($a), $seen) =~ /process $pid still waiting for .*\n.*CONTEXT/ }, 'it looks');
		ZkLock::stop_process($a, $pid);
		# before any of the timeouts, or they were first
		$ready = $s->busy && substr(log_of($a), $seen) =~ / which server "b" has/ && time < $start + $limit;
		$zk->resume;
		# a busy machine may have come too late for that
		if (!$ready)
		{
			kill 'CONT', $pid or die;
			# in this order: without an error $s has what the other waits for
			for ($s, $other)
			{
				$_->failure;
				$_->query('ROLLBACK');
			}
		}
	} until $ready;
	# its contender goes with the verdict
	ZkLock::wait_until(sub { ZkLock::queue($zk, 'y') == 1 }, 'a verdict');
	$meanwhile->($pid, $start) if $meanwhile;
	ok($other->busy, "$what: the other waits");
	kill 'CONT', $pid or die;
	like($s->failure, $expected, '... and it has one error');
	$s->query('ROLLBACK') if $s->alive;
	is($other->failure, '', '... at whose end the other goes on');
	$other->query('ROLLBACK');
	$_->quit for $s, $other;
	ZkLock::ok_clean($zk, \@node, $_) for qw(x y);
	return;
}
my $over = sub { my $start = $_[1]; ZkLock::wait_until(sub { time > $start + $limit }, 'the time is up') };
stopped('nothing else', '', "SELECT zk_lock('y')", qr/^40P01: deadlock detected$/);
stopped('a cancel', '', "SELECT zk_lock('y')", qr/^(?:40P01|57014): /, sub { ZkLock::ask($a, "SELECT pg_cancel_backend($_[0])") });
stopped('a termination', '', "SELECT zk_lock('y')", qr/^(?:40P01|57P01): /, sub { ZkLock::ask($a, "SELECT pg_terminate_backend($_[0])") });
stopped('statement_timeout', "SET LOCAL statement_timeout = '${limit}s'", "SELECT zk_lock('y')", qr/^(?:40P01|57014): /, $over);
stopped('lock_timeout', "SET LOCAL lock_timeout = '${limit}s'", "SELECT zk_lock('y')", qr/^40P01: /, $over);
stopped('the timeout of zk_try_lock', '', "SELECT zk_try_lock('y', timeout => '${limit}s')", qr/^40P01: /, $over);
Deadlocks::ended();

#
# deadlock_timeout is each session's own.  The longest counts, since who has not waited for
# so long says nothing.
#
{
	my ($s, $t) = map { ZkLock::session($_) } $a, $b;
	$t->query("SET deadlock_timeout = '2147483647ms'");
	$s->query("SET deadlock_timeout = '1ms'");
	$s->query("BEGIN; SELECT zk_lock('x')");
	$t->query("BEGIN; SELECT zk_lock('y')");
	$t->send("SELECT zk_lock('x')")->wait_level(2);
	$s->send("SELECT zk_lock('y')")->wait_level(2);
	my $pid = $s->pid;
	ZkLock::wait_until(sub { log_of($a) =~ /process $pid still waiting/ }, 'it looks');
	ok($s->busy && $t->busy, 'one who does not look for weeks is not found');
	$t->cancel->failure;
	$t->query("ROLLBACK; BEGIN; SELECT zk_lock('y2'); SET deadlock_timeout = '1ms'");
	$s->result;
	$s->send("SELECT zk_lock('y2')");
	$t->send("SELECT zk_lock('x')");
	Deadlocks::ok_ring('two who look after a millisecond', $s, $t);
	$_->quit for $s, $t;
}

#
# Names, and encodings
#
{
	for my $node (@node)
	{
		ZkLock::ask($node, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
		ZkLock::session($node, dbname => 'latin')->query('CREATE EXTENSION zklock');
	}
	my ($s, $t) = (ZkLock::session($a, dbname => 'latin'), ZkLock::session($b, dbname => 'latin'));
	my $x = q{chr(228) || '"' || E'\r' || repeat('x', 251)};
	my $y = q{chr(228) || '%'};
	$s->query("BEGIN; SELECT zk_lock($x)");
	$t->query("BEGIN; SELECT zk_lock($y)");
	$s->send("SELECT zk_lock($y)");
	$t->send("SELECT zk_lock($x)");
	my ($victim, $said) = Deadlocks::ok_ring('odd names', $s, $t);
	like($said, qr/lock "\xc3\xa4%"/, '... are shown in the client\'s encoding');
	like($said, qr/lock "\xc3\xa4"\rx{251}"/, '... whole');
	$_->quit for $s, $t;

	# characters that the other's database, or the client, does not have
	my $snow = '☃';
	($s, $t) = (ZkLock::session($a), ZkLock::session($b, dbname => 'latin'));
	my $u = ZkLock::session($b);
	$s->query("BEGIN; SELECT zk_lock('x$snow')");
	$t->query("BEGIN; SELECT zk_lock('y')");
	# in another database of that server
	$t->query('SELECT pg_advisory_lock(1)');
	$u->query("BEGIN; SELECT zk_lock('z')");
	$u->send("SELECT zk_lock('x$snow')")->wait_level(2);
	$s->send("SELECT zk_lock('y')")->wait_level(2);
	$t->send("SELECT zk_lock('z')");
	my ($v, $w) = Deadlocks::ok_ring('a name that a database does not have', $s, $t, $u);
	like($w, $v == $t ? qr/lock "x%E2%98%83"/ : qr/lock "x$snow"/, '... is shown percent-encoded there');
	$_->quit for $s, $t, $u;

	# or the client of one who has never heard of the name; he looks last, and so it is he who is
	# ended, as a rule
	($s, $t) = map { ZkLock::session($_) } $a, $b;
	$s->query("SET client_encoding = 'LATIN1'; SET deadlock_timeout = '500ms'");
	$t->query("SET deadlock_timeout = '1ms'");
	do
	{
		$s->query(q{BEGIN; SELECT zk_lock(U&'x\2603')});
		$t->query("BEGIN; SELECT zk_lock('y')");
		$t->send("SELECT zk_lock('x$snow')")->wait_level(2);
		$s->send("SELECT zk_lock('y')");
		($v, $w) = Deadlocks::ok_ring('a name that a client does not have', $s, $t);
	} until $v == $s;
	like($w, qr/lock "x%E2%98%83"/, '... is shown percent-encoded to him');
	$_->quit for $s, $t;
	Deadlocks::ended();
}

#
# A ring that goes through postgres_fdw
#
SKIP:
{
	skip 'no postgres_fdw here' unless ZkLock::ask($a, "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'");
	ZkLock::ask($a, 'CREATE EXTENSION postgres_fdw');
	ZkLock::ask($a, sprintf "CREATE SERVER b FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'postgres')", $b->host, $b->port);
	ZkLock::ask($a, 'CREATE USER MAPPING FOR CURRENT_USER SERVER b');
	ZkLock::ask($a, "CREATE FOREIGN TABLE ft (id int, v int) SERVER b OPTIONS (table_name 't')");
	my ($s, $t) = map { ZkLock::session($_) } $a, $b;
	my $begin = sub {
		$s->query("BEGIN; SELECT zk_lock('x')");
		$t->query('BEGIN; UPDATE t SET v = 1 WHERE id = 1');
	};
	$begin->();
	$s->send('SELECT * FROM ft WHERE id = 1 FOR UPDATE');
	ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postgres_fdw' AND wait_event_type = 'Lock'") == 1 || !$s->busy }, 'it waits over there');
	$t->send("SELECT zk_lock('x')")->wait_level(2);
	my $pid = $t->pid;
	ZkLock::wait_until(sub { log_of($b) =~ /process $pid still waiting/ }, 'it looks');
	ok($s->busy && $t->busy, 'a ring through postgres_fdw is not found');
	$t->cancel->failure;
	$t->query('ROLLBACK');
	$s->result;
	$s->query('ROLLBACK');
	# a lock_timeout of the connection ends it
	$s->quit;
	$s = ZkLock::session($a);
	ZkLock::ask($a, q{ALTER SERVER b OPTIONS (ADD options '-c lock_timeout=1s')});
	$begin->();
	$t->send("SELECT zk_lock('x')")->wait_level(2);
	$s->send('SELECT * FROM ft WHERE id = 1 FOR UPDATE');
	like($s->failure, qr/^55P03: canceling statement due to lock timeout/, '... but ends by the lock_timeout of its connection');
	$s->query('ROLLBACK');
	$t->result;
	$t->query('COMMIT');
	$_->quit for $s, $t;
}

#
# 500 waits, and no ring: a session of server a has names that 250 on b want, each of whom has a
# name that another one on a wants.  All look, and all publish.
#
{
	my $n = 250;
	my $holder = ZkLock::session($a);
	$holder->query("BEGIN; SELECT zk_lock('m' || i) FROM generate_series(1, $n) i");
	my @middle = map { my $s = Protocol3->new($b); $s->query("BEGIN; SELECT zk_lock('e$_')"); $s->send_query("SELECT zk_lock('m$_')"); $s } 1 .. $n;
	my @end = map { my $s = Protocol3->new($a); $s->query('BEGIN'); $s->send_query("SELECT zk_lock('e$_')"); $s } 1 .. $n;
	for my $s (map { [ $b, $_ ] } @middle) { my $pid = $s->[1]->pid; ZkLock::wait_until(sub { log_of($b) =~ /process $pid still waiting/ }, "$pid looks"); }
	for my $s (@end) { my $pid = $s->pid; ZkLock::wait_until(sub { log_of($a) =~ /process $pid still waiting/ }, "$pid looks"); }
	ZkLock::wait_until(sub { my ($node) = $zk->children('/zklock/waits'); $node && (grep { /"number"/ && !/"joins"/ } split /\n/, $zk->get("/zklock/waits/$node")) == $n }, 'all of them are published');
	is(scalar(grep { !$_->busy } @middle, @end), 0, '500 waits and no ring: nobody is ended');
	is(Deadlocks::ended(), 0, '... none is counted');
	$holder->query('COMMIT');
	my $good = 0;
	for my $s (@middle, @end) { $good++ if $s->answer =~ /\brow \d+/; $s->query('COMMIT'); }
	is($good, 2 * $n, '... and all get what they wait for');
	$_->terminate for @middle, @end;
	$holder->quit;
	ZkLock::ok_clean($zk, \@node, $_) for 'm1', "e$n";
	Deadlocks::ok_withdrawn($zk);
}

done_testing();
