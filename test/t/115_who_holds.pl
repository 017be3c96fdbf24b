# Who has a lock, in the whole ensemble: a server says with its heartbeats which session
# its contenders are for.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $conf = "zklock.keep_time = '1h'\nzklock.handoff_limit = 4";
my $a = ZkLock::server('a', $zk, conf => "$conf\ncluster_name = 'a'");
my $b = ZkLock::server('b', $zk, conf => "$conf\ncluster_name = 'b'");
ZkLock::wait_connected($a, $b);
my $foreign = $zk->client;

ZkLock::ask($a, 'CREATE ROLE alice LOGIN; CREATE DATABASE other');
{
	my $other = ZkLock::session($a, dbname => 'other');
	$other->query('CREATE EXTENSION zklock; GRANT EXECUTE ON FUNCTION zk_lock, zk_try_lock TO alice');
	$other->quit;
}

# A look at jobs takes a write of the server's own node: a heartbeat, now.
sub heartbeat { ZkLock::ask($_, 'SELECT count(*) FROM zk_jobs') for @_; return; }

sub contenders
{
	my ($node, $name, $columns) = @_;
	return ZkLock::ask($node, "SELECT $columns FROM zk_contenders('$name')");
}

my $whose = 'position, server, granted, state, pid, datname, usename, application_name';

# Until the report of the other servers says so.
sub wait_contenders
{
	my ($node, $name, $columns, $expected, $what, @others) = @_;
	my $seen;
	ZkLock::wait_until(
		sub {
			heartbeat(@others);
			($seen = contenders($node, $name, $columns)) eq $expected;
		},
		$what,
		sub { $seen });
	return pass($what);
}

sub member
{
	my ($node) = @_;
	my $name = ZkLock::ask($node, 'SELECT node FROM zk_servers WHERE ours');
	return "/zklock/servers/$name";
}

#
# One for whom the contender was made has gone; another has the lock
#
my $first = ZkLock::session($a);
$first->query("SELECT zk_lock('job')");
is(contenders($a, 'job', 'state, pid IS NULL, state_since <= as_of, as_of <= clock_timestamp()'), 'kept|t|t|t', 'a lock that is kept, seen by its server');
is(contenders($b, 'job', 'state, pid, as_of'), '||', '... and by another: nobody has asked for it');
my $maker = $first->pid;
$first->quit;
my $holder = ZkLock::session($a, user => 'alice', dbname => 'other', env => { PGAPPNAME => 'night "job"' });
$holder->query("BEGIN; SELECT zk_lock('job')");
my $waiter = ZkLock::session($b, env => { PGAPPNAME => 'waits' });
$waiter->send("BEGIN; SELECT zk_lock('job')")->wait_level(2);
my ($h, $w) = ($holder->pid, $waiter->pid);
my $user = ZkLock::ask($a, 'SELECT current_user');
my $both = qq{1|a|t|held|$h|other|alice|night "job"\n2|b|f|waiting|$w|postgres|$user|waits};
wait_contenders($b, 'job', $whose, $both, 'the holder and the waiter, seen by the waiter\'s server', $a);
wait_contenders($a, 'job', $whose, $both, '... and by the holder\'s', $b);
is(contenders($b, 'job', "data::json->>'pid', data::json->>'pid' = pid::text"), "$maker|f\n$w|t", '... whatever the contenders say');
is(contenders($b, 'job', 'state_since <= as_of, as_of <= clock_timestamp()'), "t|t\nt|t", 'since when, and when that was so');
# unless one comes between the two
ok(ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT c.as_of = s.heartbeat FROM zk_contenders('job') c JOIN zk_servers s USING (session_id) WHERE NOT c.ours") eq 't' }, 'that is its heartbeat'),
	'... of another server: at its heartbeat');
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_servers WHERE server IS NULL OR elections IS NULL OR drain IS NULL'), 0, 'zk_servers reads on');
unlike(join('', map { $zk->four('wchp', $_) } $zk->servers), qr{/zklock/servers}, 'nobody watches what they write');

# Who may see what, as in zk_locks
ZkLock::ask($b, 'CREATE ROLE nobody LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor; GRANT EXECUTE ON FUNCTION zk_contenders TO nobody');
my $columns = 'server, state, pid, datname, usename, application_name, state_since IS NULL, as_of IS NULL';
is(ZkLock::session($b, user => 'nobody')->query("SELECT $columns FROM zk_contenders('job')"), "a|held|$h||||t|f\nb|waiting|$w||||t|f", 'one who may not look at others\' sessions');
is(ZkLock::session($b, user => 'watcher')->query("SELECT $columns FROM zk_contenders('job')"),
	qq{a|held|$h|other|alice|night "job"|f|f\nb|waiting|$w|postgres|$user|waits|f|f}, '... and one who may');

#
# What others have written into the node of a server
#
my $member = member($a);
my ($data) = $foreign->get($member);
like($data, qr/"report": \[\{"contender": \d+, "mode": "exclusive", "state": "held", "for": \d+, "sessions": \[\{"pid": $h, "database": "other", "user": "alice", "application": "night \\"job\\"", "query": \d+, "waits": "Client: ClientRead"\}\]\}\], "more": 0\}$/,
	'what the node says');
my ($contender) = $data =~ /"contender": (\d+)/;
my $item = qq({"contender": $contender, "state": "held", "sessions": [%s]});
my $nobody = "|\nwaiting|$w";

# What is seen while this is there: the server's own heartbeat may come at any moment.
sub seen_with
{
	my ($text, $code) = @_;
	my $seen;
	ZkLock::wait_until(
		sub {
			$foreign->set($member, $text);
			$seen = $code->();
			return $foreign->get($member) eq $text;
		},
		'no heartbeat comes between');
	return $seen;
}

for my $bad (
	'', "\xff\xfe", '{"server": "a"}', '{"report": 1}', '{"report": [{}', '[' x 100000, '{"report": ' . '[' x 5000,
	'{"report": [' . sprintf($item, '{"pid": 0}') . '], "more": 0}',
	'{"report": [' . sprintf($item, '{"pid": 99999999999}') . '], "more": 0}',
	'{"report": [' . sprintf($item, '{"pid": 1, "query": 9223372036854775807}') . '], "more": 0}',
	'{"report": [' . sprintf($item, join ', ', ('{"pid": 1}') x 5) . '], "more": 0}',
	'{"report": [' . join(', ', (sprintf $item, '') x 33) . '], "more": 0}',
	'{"report": [' . sprintf($item, '{"pid": 1, "name": "a/b"}') . '], "more": -1}',
	'x' x 200000)
{
	is(seen_with($bad, sub { contenders($b, 'job', 'state, pid') }), $nobody, 'no report: ' . substr($bad =~ s/[^ -~]/?/gr, 0, 70));
}
my $forged = '{"report": [' . sprintf($item, '{"pid": 7, "user": "' . 'ä' x 100 . '\\u0001", "application": "x\\ny"}') . '], "more": 0}';
is(seen_with($forged, sub { contenders($b, 'job', 'state, pid, length(usename), application_name, as_of IS NULL') }), "held|7|31|x\ny|f\nwaiting|$w|" . length($user) . '|waits|f', 'a forged one is text');
ZkLock::ask($b, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
my $latin = ZkLock::session($b, dbname => 'latin');
$latin->query('CREATE EXTENSION zklock');
$forged = '{"report": [' . sprintf($item, '{"pid": 7, "user": "\\u00e4", "application": "\\u2603"}') . '], "more": 0}';
is(seen_with($forged, sub { $latin->query("SELECT usename = chr(228), application_name FROM zk_contenders('job') WHERE NOT ours") }), 't|%E2%98%83', '... of the database\'s encoding');
like($latin->fails("SET lock_timeout = '100ms'; SELECT zk_lock('job', 'shared')"), qr/^55P03/, '... also in errors');
$latin->quit;
$foreign->set(member($b), $data =~ s/"held"/"releasing"/r);
wait_contenders($b, 'job', $whose, $both, 'the next heartbeat is the server\'s own, and a report counts for its own server only', $a);

#
# Readers; a lock that passes on
#
$holder->query('COMMIT');
$waiter->result;
my $next = ZkLock::session($a);
$next->send("BEGIN; SELECT zk_lock('job', 'shared')")->wait_level(2);
wait_contenders($a, 'job', "$whose, mode", "1|b|t|held|$w|postgres|$user|waits|exclusive\n2|a|f|waiting|@{[ $next->pid ]}|postgres|$user|zklock test|shared", 'it has passed on', $b);
$waiter->query('COMMIT');
$next->result;
my $second = ZkLock::session($a);
$second->query("BEGIN; SELECT zk_lock('job', 'shared')");
$waiter->send("BEGIN; SELECT zk_lock('job')")->wait_level(2);
wait_contenders($b, 'job', 'server, state, pid', "a|held|@{[ $next->pid ]}\nb|waiting|$w", 'of two readers the one who has had it for longer', $a);
$next->query('COMMIT');
wait_contenders($b, 'job', 'server, state, pid', "a|held|@{[ $second->pid ]}\nb|waiting|$w", '... and then the other', $a);
$second->query('COMMIT');
$waiter->result;
$waiter->query('COMMIT');

#
# Bounded: the longest come first, and the rest is counted
#
my $n = 40;
ZkLock::ask($a, "ALTER SYSTEM SET max_connections = 200");
$_->quit for $next, $second, $holder;
ZkLock::hang_up($a);
$a->restart;
ZkLock::wait_connected($a);
$holder = ZkLock::session($a, env => { PGAPPNAME => 'x' x 63 });
$holder->query('BEGIN');
$holder->query("SELECT zk_lock(repeat('many ', 50) || $_)") for 1 .. $n;
my @waiters = map { ZkLock::session($b)->send("BEGIN; SELECT zk_lock(repeat('many ', 50) || $_)") } 1 .. $n;
ZkLock::wait_waiting($b, 2, $n);
for ([ $a, 'held' ], [ $b, 'waiting' ])
{
	my ($node, $state) = @$_;
	my $path = member($node);
	my $text;
	ZkLock::wait_until(
		sub {
			heartbeat($node);
			($text) = $foreign->get($path);
			my $items = () = $text =~ /"contender": /g;
			my ($more) = $text =~ /"more": (\d+)\}$/;
			return $items + $more == $n;
		},
		"all that is $state is told or counted",
		sub { $text });
	my $items = () = $text =~ /"contender": /g;
	cmp_ok($items, '>=', 4, "some of what is $state is told");
	cmp_ok($items, '<=', 32, '... no more than there is room for');
	cmp_ok(length $text, '<', 9000, '... in text that is bounded');
}
is(ZkLock::ask($b, "SELECT state, pid = @{[ $holder->pid ]} FROM zk_contenders(repeat('many ', 50) || 1) WHERE NOT ours"), 'held|t', 'the longest comes first');
is(ZkLock::ask($b, "SELECT state FROM zk_contenders(repeat('many ', 50) || $n) WHERE NOT ours"), '', '... and nothing is known of what is cut off');
$holder->query('COMMIT');
$_->result for @waiters;
$_->query('COMMIT') for @waiters;

done_testing();
