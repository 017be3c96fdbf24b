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

# All that came with an error: of a CONTEXT the first line is ours, unless PostgreSQL has one
# of its own, which it does from 19 on.
sub said { my $session = shift; return $session->notices . "\n" . $session->{answer}; }

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
like(said($wa), qr/^(?:CONTEXT:  )?while waiting for exclusive lock "job", which process @{[ $ha->pid ]} holds$/m, '... names the lock and who has it');
is($wa->fails("SELECT zk_lock('job', 'shared')"), '55P03: canceling statement due to lock timeout', 'the same of a reader');
like(said($wa), qr/^(?:CONTEXT:  )?while waiting for shared lock "job", which process \d+ holds$/m, '... names it');
$wa->query('RESET lock_timeout');
like($wa->fails("CALL zk_lock_session('job', timeout => '300ms')"), qr/^55P03: could not obtain lock "job" within 300 ms/, 'zk_lock_session in time');
like(said($wa), qr/^(?:CONTEXT:  )?while waiting for exclusive lock "job", which process @{[ $ha->pid ]} holds$/m, '... says who has it, too');
$wa->send("SELECT zk_lock('job')")->wait_level(1);
ZkLock::wait_until(sub { log_of($a) =~ /still waiting for ExclusiveLock on advisory lock \[[^\n]*\n(?:[^\n]*\n){0,3}?[^\n]*while waiting for exclusive lock "job", which process @{[ $ha->pid ]} holds$/m }, 'log_lock_waits names the lock');
$wa->cancel->failure;
like(said($wa), qr/^(?:CONTEXT:  )?while waiting for exclusive lock "job", which process @{[ $ha->pid ]} holds$/m, 'a cancel');

$wb->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_demanded($zk, $a, 'job');
wait_told($a, 'job', 'held', $ha->pid, $b);
$wb->cancel->failure;
like(said($wb), qr/^CONTEXT:  while waiting for exclusive lock "job", which server "a" has$/m, 'a cancel at level 2 names the server');
my ($said, $context);
$wb->query("SET lock_timeout = '300ms'");
# It may strike before it is known who has the lock.
ZkLock::wait_until(
	sub {
		$said = $wb->fails("SELECT zk_lock('job')");
		$context = said($wb);
		return $said !~ /^55P03: / || $context =~ / which server "a" has$/m;
	},
	'lock_timeout strikes when the holder is known',
	sub { "$said $context" });
is($said, '55P03: canceling statement due to lock timeout', 'a timeout at level 2');
like($context, qr/^(?:CONTEXT:  )?while waiting for exclusive lock "job", which server "a" has$/m, '... and so does its context');
$wb->query('RESET lock_timeout');
# It may strike before the wait has begun; and only this statement.
ZkLock::wait_until(
	sub {
		$wb->query("BEGIN; SET LOCAL statement_timeout = '500ms'");
		$said = $wb->fails("SELECT zk_lock('job')");
		$context = said($wb);
		$wb->query('ROLLBACK');
		return $context =~ /while waiting/;
	},
	'statement_timeout strikes in the wait',
	sub { "$said $context" });
is($said, '57014: canceling statement due to statement timeout', 'statement_timeout');
like($context, qr/^(?:CONTEXT:  )?while waiting for exclusive lock "job"/m, '... names the lock');

# Behind others
$wb->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
$wc->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 3);
$hb->send("SELECT zk_lock('job')")->wait_level(1)->cancel->failure;
like(said($hb), qr/^(?:CONTEXT:  )?while waiting for exclusive lock "job" behind process @{[ $wb->pid ]}, which waits for ZooKeeper$/m, 'behind one who waits for ZooKeeper');
my $seen;
ZkLock::wait_until(sub { $wc->cancel->failure; $seen = $wc->notices; $seen =~ / behind server "b"$/m || !$wc->send("SELECT zk_lock('job')")->wait_level(2) }, 'it is known who is next', sub { $seen });
like($seen, qr/^CONTEXT:  while waiting for exclusive lock "job" behind server "b"$/m, 'behind another waiter');
$wb->cancel->failure;
$ha->query('COMMIT');
my $path = $foreign->contend(ZkLock::directory('foreign'));
ZkLock::wait_until(sub { $wb->send("SELECT zk_lock('foreign')")->wait_level(2)->cancel->failure; $wb->notices =~ /which another program has/ }, 'who it is is known');
like(said($wb), qr/^(?:CONTEXT:  )?while waiting for exclusive lock "foreign", which another program has$/m, 'behind another program');
$foreign->delete($path);

# A deadlock within a server
$ha->query("BEGIN; SELECT zk_lock('one')");
$wa->query("BEGIN; SELECT zk_lock('two')");
$wa->query("SET deadlock_timeout = '1h'");
$wa->send("SELECT zk_lock('one')")->wait_level(1);
is($ha->fails("SELECT zk_lock('two')"), '40P01: deadlock detected', 'a deadlock at level 1');
like(said($ha), qr/^(?:CONTEXT:  )?while waiting for exclusive lock "two", which process @{[ $wa->pid ]} holds$/m, '... says for what it waited');
$ha->query('ROLLBACK');
$wa->result;
$wa->query('ROLLBACK; RESET deadlock_timeout');

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
# Each server hears of it by itself: the next holder's may be the first.
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM zk_locks WHERE name = 'broken' AND grant_state = 'lost'") }, 'the holder\'s server has heard of it');
is($ha->fails('COMMIT'), '40001: lock "broken" was lost', '... who has lost it');
$path = $foreign->contend(ZkLock::directory('broken'), data => '10.0.0.7');
$token = $zk->stat($path)->{czxid};
is(ZkLock::ask($c, "SELECT zk_break('broken', $token)"), 't', 'one of another program');
like(log_of($c), qr/zk_break removed the contender with token $token [^\n]*\n[^\n]*DETAIL:  It was made with "10\.0\.0\.7"\.$/m, '... says what it has written');

#
# Whole chains
#
$_->quit for $ha, $wa, $hb, $wb, $wc;
my ($p0, $p1, $p2, $p3, $p4) = map { ZkLock::session($_->[0], env => { PGAPPNAME => $_->[1] }) } [ $a, 'first' ], [ $b, 'second' ], [ $b, 'third' ], [ $c, 'root' ], [ $a, 'behind' ];
my %who = map { ($p0->pid, 'p0', $p1->pid, 'p1', $p2->pid, 'p2', $p3->pid, 'p3', $p4->pid, 'p4')[ 2 * $_, 2 * $_ + 1 ] } 0 .. 4;

# One line a step, with names for pids.
sub chain
{
	my ($node, $session, $columns) = @_;
	my $rows = ZkLock::ask($node, 'SELECT ' . ($columns // 'step, server, pid, application_name, waits_for') . ' FROM zk_blocking(' . $session->pid . ') ORDER BY step');
	return $rows =~ s/\|(\d+)\|/'|' . ($who{$1} \/\/ $1) . '|'/gemr;
}

sub wait_chain
{
	my ($node, $session, $expected, $what, @others) = @_;
	my $seen;
	ZkLock::wait_until(
		sub {
			heartbeat(@others);
			($seen = chain($node, $session)) eq $expected;
		},
		$what,
		sub { $seen });
	return pass($what);
}

# a ring is to last
$_->query("SET deadlock_timeout = '1h'") for $p0, $p1, $p2, $p3, $p4;
is(chain($a, $p0), '', 'one who does not wait has no chain');
is(ZkLock::ask($a, 'SELECT count(*) FROM unnest(ARRAY[1, -1, 0]) p, zk_blocking(p)'), 0, '... nor has a pid of nobody');
ZkLock::ask($b, 'CREATE TABLE t (i int); INSERT INTO t VALUES (1)');
$p3->query("BEGIN; SELECT zk_lock('y')");
$p1->query("BEGIN; SELECT zk_lock('x')");
$p2->query('BEGIN; UPDATE t SET i = i');
$p2->send("SELECT zk_lock('y')")->wait_level(2);
$p1->send('UPDATE t SET i = i');
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT wait_event FROM pg_stat_activity WHERE pid = @{[ $p1->pid ]}") eq 'transactionid' }, 'it waits for a row');
$p0->send("BEGIN; SELECT zk_lock('x')")->wait_level(2);
$p4->send("BEGIN; SELECT zk_lock('x')")->wait_level(1);
my $rest = qq{|b|p1|second|Lock: transactionid\n%d|b|p2|third|lock "y"\n%d|c|p3|root|Client: ClientRead};
wait_chain($a, $p0, qq{0|a|p0|first|lock "x"\n1} . sprintf($rest, 2, 3), 'over a lock, a row and a lock, on three servers', $b, $c);
is(chain($a, $p4), qq{0|a|p4|behind|lock "x"\n1|a|p0|first|lock "x"\n2} . sprintf($rest, 3, 4), '... from behind another session, too');
is(chain($b, $p1), qq{0|b|p1|second|Lock: transactionid\n1|b|p2|third|lock "y"\n2|c|p3|root|Client: ClientRead}, '... and from its middle');
is(ZkLock::ask($a, "SELECT bool_and(query_start <= as_of), bool_and(as_of <= clock_timestamp()), bool_and(usename = '$user'), bool_and(datname = 'postgres') FROM zk_blocking(@{[ $p0->pid ]})"), 't|t|t|t', '... with times and names');

ZkLock::ask($a, 'CREATE ROLE nobody LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor; GRANT EXECUTE ON FUNCTION zk_blocking TO nobody');
is(ZkLock::session($a, user => 'nobody')->query('SELECT string_agg(server, $$,$$ ORDER BY step), count(pid), count(application_name), count(waits_for) FROM zk_blocking(' . $p0->pid . ')'), 'a,b,b,c|4|0|0', 'one who may not look at others\' sessions');
my $watcher = ZkLock::session($a, user => 'watcher');
is($watcher->query('SELECT count(application_name), count(waits_for) FROM zk_blocking(' . $p0->pid . ')'), '4|4', '... and one who may');

# All of them
sub waits
{
	my ($node) = @_;
	my $rows = $node->query('SELECT server, pid, kind, name, mode, application_name, root_server, root_pid, root_application_name, root_waits_for, steps FROM zk_waits ORDER BY 1, 6');
	return $rows =~ s/\|(\d+)\|/'|' . ($who{$1} \/\/ $1) . '|'/gemr;
}
my $root = 'c|p3|root|Client: ClientRead';
my $all = qq{a|p4|lock|x|exclusive|behind|$root|4\na|p0|lock|x|exclusive|first|$root|3\nb|p2|lock|y|exclusive|third|$root|1};
ZkLock::wait_until(sub { heartbeat($b, $c); ($seen = waits($watcher)) eq $all }, 'all waits, and who is to blame', sub { $seen });
pass('zk_waits');
is($watcher->query("SELECT bool_and(wait_start <= clock_timestamp() - '1 s'::interval), bool_and(root_query_start < wait_start) FROM zk_waits"), 't|t', '... that are long enough');
like($watcher->fails("SET ROLE nobody; SELECT * FROM zk_waits"), qr/^42501/, '... not for everybody');
$watcher->quit;

# More sessions on one server than it tells of
my $h1 = ZkLock::session($b);
$h1->query("BEGIN; SELECT zk_lock('long')");
ZkLock::ask($b, 'CREATE TABLE r AS SELECT generate_series(1, 9) i');
my @row = map { my $s = ZkLock::session($b); $s->query("BEGIN; SELECT i FROM r WHERE i = $_ FOR UPDATE"); $s } 1 .. 6;
# each has its row and waits for the next one's, and who has the lock for the first one
$row[$_]->send('SELECT i FROM r WHERE i = ' . ($_ + 2) . ' FOR UPDATE')->wait_event('transactionid') for 0 .. 4;
$h1->send('SELECT i FROM r WHERE i = 1 FOR UPDATE')->wait_event('transactionid');
my $l0 = ZkLock::session($a);
$l0->send("SELECT zk_lock('long')")->wait_level(2);
my $long = 'SELECT count(*), count(DISTINCT pid), string_agg(waits_for, $$,$$ ORDER BY step DESC) FILTER (WHERE step = last) FROM (SELECT *, max(step) OVER () AS last FROM zk_blocking(%d)) z';
ZkLock::wait_until(sub { heartbeat($b); ($seen = ZkLock::ask($a, sprintf $long, $l0->pid)) eq '5|5|Lock: transactionid ...' }, 'a chain is cut off', sub { $seen });
is(ZkLock::ask($b, sprintf $long, $h1->pid), '7|7|Client: ClientRead', 'a chain that is cut off, and whole on its own server');
$_->quit for reverse @row;
$h1->result;
$h1->query('COMMIT');
$l0->result;
$_->quit for $h1, $l0;

# Another program, at the end and as a waiter
$path = $foreign->contend(ZkLock::directory('theirs'), data => '10.0.0.7');
my $p5 = ZkLock::session($b);
$p5->send("SELECT zk_lock('theirs')")->wait_level(2);
ZkLock::wait_queue($zk, 'theirs', 2);
is(ZkLock::ask($b, 'SELECT step, server, pid IS NULL, waits_for FROM zk_blocking(' . $p5->pid . ')'), qq{0|b|f|lock "theirs"\n1||t|}, 'a program that is not zklock ends a chain');
$foreign->delete($path);
$p5->result;
$path = $foreign->contend(ZkLock::directory('y'));
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT name, root_pid FROM zk_waits WHERE server IS NULL') eq 'y|' . $p3->pid }, 'it may wait itself');
$foreign->delete($path);

# Round a ring, which is shown once
$p3->send("SELECT zk_lock('x')")->wait_level(2);
wait_chain($a, $p0, qq{0|a|p0|first|lock "x"\n1|b|p1|second|Lock: transactionid\n2|b|p2|third|lock "y"\n3|c|p3|root|lock "x"\n4|b|p1|second|Lock: transactionid}, 'a ring', $b, $c);
$p3->cancel->failure;
$p3->query('ROLLBACK');
$p2->result;
$p2->query('COMMIT');
$p1->result;
$p1->query('COMMIT');
$p0->result;
$p0->query('COMMIT');
$p4->result;
$p4->query('COMMIT');
ZkLock::ok_clean($zk, [], 'z');

done_testing();
