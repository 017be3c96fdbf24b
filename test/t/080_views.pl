# What administrators see, and do: the queue of a name across servers and foreign
# programs, the removal of a contender, this server's locks, its session, statistics.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Time::HiRes qw(sleep time);
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $conf = "zklock.handoff_limit = 4\nzklock.keep_time = '1h'";
my $a = ZkLock::server('a', $zk, conf => "$conf\ncluster_name = 'a'");
my $b = ZkLock::server('b', $zk, conf => qq{$conf\nzklock.server_name = 'b''s "server"'});
ZkLock::wait_connected($a, $b);
my $foreign = $zk->client;

sub log_of { my $node = shift; return PostgreSQL::Test::Utils::slurp_file($node->logfile); }

sub contenders
{
	my ($node, $name) = @_;
	return ZkLock::ask($node, "SELECT position, server, mode, granted, ours FROM zk_contenders('$name')");
}

#
# The queue of a name
#
my ($sa, $sa2, $sb, $sb2) = map { ZkLock::session($_) } $a, $a, $b, $b;
is(contenders($a, 'job'), '', 'a lock that nobody ever asked for');
my $token = $sa->query("BEGIN; SELECT zk_lock('job')");
$sb->send("BEGIN; SELECT zk_lock('job', 'shared')")->wait_level(2);
ZkLock::wait_until(sub { contenders($a, 'job') =~ /^2/m }, 'the second');
my $dir = ZkLock::directory('job');
$foreign->create("$dir/other");
my $path = $foreign->contend($dir, data => "10.0.0.1\xff");
is(contenders($a, 'job'), "1|a|exclusive|t|t\n2|b's \"server\"|shared|f|f\n3||exclusive|f|f", 'holder, a reader elsewhere, a foreign program');
is(contenders($b, 'job'), "1|a|exclusive|t|f\n2|b's \"server\"|shared|f|t\n3||exclusive|f|f", '... seen from the other server');
is(ZkLock::ask($a, "SELECT token = $token, session_id = (SELECT session_id FROM zk_session), since BETWEEN now() - '1 h'::interval AND now() + '1 s', data::json->>'server' FROM zk_contenders('job') WHERE ours"),
	't|t|t|a', 'token, session, time and data of our own');
is(ZkLock::ask($b, "SELECT session_id, data, node FROM zk_contenders('job') WHERE server IS NULL"),
	join('|', $foreign->id, '10.0.0.1%FF', $path =~ m{([^/]+)$}), 'the same of the foreign one');

# Readers share; who stands behind a writer does not
$foreign->delete($path);
$sa->query('COMMIT');
$sb->result;
$sa->query("BEGIN; SELECT zk_lock('job', 'shared')");
$path = $foreign->contend($dir);
$sa2->send("BEGIN; SELECT zk_lock('other')")->result;
ZkLock::wait_until(sub { contenders($a, 'job') eq "1|b's \"server\"|shared|t|f\n2|a|shared|t|t\n3||exclusive|f|f" }, 'two readers, and a writer that waits');
pass('readers share, and a writer behind them waits');
my $last = $foreign->create("$dir/_c_00000000-0000-0001-0000-000000000001-read-lock-", mode => 'ephemeral_sequential', data => '{"server": "c"}');
is(ZkLock::ask($a, "SELECT position, server, mode, granted FROM zk_contenders('job') WHERE position = 4"), '4|c|shared|f', '... as does a reader behind it');

is(ZkLock::ask($a, "SELECT name, contenders, waiting, oldest_waiter = (SELECT since FROM zk_contenders('job') WHERE position = 3) FROM zk_lock_dirs() ORDER BY 1"),
	"job|4|2|t\nother|1|0|", 'zk_lock_dirs');
is(ZkLock::ask($b, "SELECT string_agg(name, ',') FROM zk_lock_dirs('jo')"), 'job', '... by prefix');
is(ZkLock::ask($b, "SELECT count(*) FROM zk_lock_dirs('" . 'x' x 300 . "')"), 0, '... one that no name can have');
$foreign->delete($_) for $path, $last;
$_->query('COMMIT') for $sa, $sb, $sa2;

for my $name ('a/b%', '.x', '..', 'ä')
{
	$sa->query("BEGIN; SELECT zk_lock('$name')");
	my $prefix = substr $name, 0, $name eq 'ä' ? 2 : 1;
	is(ZkLock::ask($b, "SELECT string_agg(name, ',') FROM zk_lock_dirs('$prefix') WHERE name = '$name'"), $name, "prefix of $name");
	is(contenders($b, $name), '1|a|exclusive|t|f', "queue of $name");
	$sa->query('COMMIT');
}

#
# zk_break
#
$token = $sa->query("BEGIN; SELECT zk_lock('broken')");
$sb->send("BEGIN; SELECT zk_lock('broken')")->wait_level(2);
is(ZkLock::ask($b, "SELECT zk_break('broken', $token - 1), zk_break('broken', 0), zk_break('broken', -1), zk_break('none', $token)"), 'f|f|f|f', 'a wrong token breaks nothing');
is(contenders($b, 'broken'), "1|a|exclusive|t|f\n2|b's \"server\"|exclusive|f|t", '... as one sees');
is(ZkLock::ask($b, "SELECT zk_break('broken', $token)"), 't', 'another server\'s holder is removed');
my $next = $sb->result;
cmp_ok($next, '>', $token, '... and the next one has the lock');
# the holder's server hears of it from ZooKeeper
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT grant_state FROM zk_locks WHERE name = 'broken'") eq 'lost' }, 'the holder\'s server knows');
is($sa->fails('COMMIT'), '40001: lock "broken" was lost', '... and the holder cannot commit');
is(ZkLock::ask($b, "SELECT zk_break('broken', $token)"), 'f', 'the old token breaks nobody any more');
like(log_of($b), qr/LOG:  zk_break removed the contender with token $token from the queue of lock "broken"/, 'the server log says so');
$sb->query('COMMIT');

# A holder of one's own, that keeps locks and whose node is therefore not watched
$token = $sa->query("BEGIN; SELECT zk_lock('own')");
$sb->send("BEGIN; SELECT zk_lock('own')")->wait_level(2);
$sa2->send("SELECT zk_lock('own')")->wait_level(1);
is(ZkLock::ask($a, "SELECT zk_break('own', $token)"), 't', 'this server\'s own holder is removed');
is($sa->fails('SELECT 1'), '40001: lock "own" was lost', '... and has lost its lock');
cmp_ok($sb->result, '>', $token, '... which the next in the queue gets');
$sa->query('ROLLBACK');
$sb->query('COMMIT');
cmp_ok($sa2->result, '>', $token, '... and then a session that waited here');
like(log_of($a), qr/LOG:  lock "own" was lost while held/, 'the log tells of the loss');
$token = $sa->query("BEGIN; SELECT zk_lock('own')");
is($sa->fails("SELECT zk_break('own', $token)") || $sa->fails('SELECT 1'), '40001: lock "own" was lost', 'one may break one\'s own lock');
$sa->query('ROLLBACK');

# A grant that is kept for nobody, a foreign program, a waiter
$token = $sa->query("SELECT zk_lock('kept')");
is(contenders($a, 'kept'), '1|a|exclusive|t|t', 'a kept lock has a contender');
is(ZkLock::ask($a, "SELECT zk_break('kept', $token)"), 't', '... which can be removed');
is(contenders($a, 'kept'), '', '... and is gone');
cmp_ok($sa->query("SELECT zk_lock('kept')"), '>', $token, '... and nobody believes in it');
$foreign->contend(ZkLock::directory('foreign'));
my $theirs = $zk->stat(ZkLock::directory('foreign') . '/' . (ZkLock::queue($zk, 'foreign'))[0])->{czxid};
$sa->send("BEGIN; SELECT zk_lock('foreign')")->wait_level(2);
is(ZkLock::ask($b, "SELECT zk_break('foreign', $theirs)"), 't', 'a foreign program is removed');
cmp_ok($sa->result, '>', $theirs, '... and who waited has the lock');
$sb->send("BEGIN; SELECT zk_lock('foreign')")->wait_level(2);
my $waiter;
ZkLock::wait_until(sub { $waiter = ZkLock::ask($a, "SELECT token FROM zk_contenders('foreign') WHERE NOT granted") }, 'its contender');
is(ZkLock::ask($b, "SELECT zk_break('foreign', $waiter)"), 't', 'a waiter is removed');
ZkLock::wait_until(sub { contenders($b, 'foreign') =~ /^2\|b's "server"\|exclusive\|f\|t$/m }, 'it queues anew');
$sa->query('COMMIT');
cmp_ok($sb->result, '>', $waiter, '... and queues anew');
$sb->query('COMMIT');

#
# zk_locks
#
sub locks
{
	my ($node, $name) = @_;
	return ZkLock::ask($node, "SELECT mode, scope, granted, grant_state, count, token IS NULL, lease_remaining >= '0', wait_start IS NULL, "
		. "CASE pid WHEN @{[ $sa->pid ]} THEN 'sa' WHEN @{[ $sa2->pid ]} THEN 'sa2' WHEN @{[ $sb->pid ]} THEN 'sb' ELSE pid::text END "
		. "FROM zk_locks WHERE name = '$name' ORDER BY granted DESC, pid");
}

ZkLock::ask($a, "CREATE ROLE alice LOGIN; CREATE ROLE nobody LOGIN; CREATE DATABASE other");
{
	my $other = ZkLock::session($a, dbname => 'other');
	$other->query('CREATE EXTENSION zklock; GRANT EXECUTE ON FUNCTION zk_lock TO alice');
	$other->quit;
}
my $alice = ZkLock::session($a, user => 'alice', dbname => 'other', env => { PGAPPNAME => 'night job' });
$sa->query("BEGIN; SELECT zk_lock('state'), zk_lock('state'), zk_lock('state', 'exclusive', 'session')");
is(locks($a, 'state'), "exclusive|transaction|t|held|2|f|t|t|sa\nexclusive|session|t|held|1|f|t|t|sa", 'held');
$alice->send("BEGIN; SELECT zk_lock('state', 'shared')")->wait_level(1);
is(ZkLock::ask($a, "SELECT mode, granted, grant_state, count, token, lease_remaining, wait_start <= now(), pid = @{[ $alice->pid ]}, datname, usename, application_name FROM zk_locks WHERE name = 'state' AND NOT granted"),
	'shared|f|waiting||||t|t|other|alice|night job', 'a waiter behind a session of this server');
is(ZkLock::ask($a, "SELECT k.mode, k.granted, a.state FROM zk_locks l JOIN pg_locks k USING (pid, classid, objid, objsubid) JOIN pg_stat_activity a USING (pid) WHERE l.usename = 'alice'"),
	'ShareLock|f|active', '... joins pg_locks and pg_stat_activity');
$sb->send("BEGIN; SELECT zk_lock('state')")->wait_level(2);
is(locks($b, 'state'), 'exclusive|transaction|f|queued||t||f|sb', 'a waiter behind another server');
ZkLock::wait_until(sub { locks($a, 'state') =~ /^exclusive\|transaction\|t\|demanded\|2\|f\|t\|t\|sa\n/ }, 'demanded');
pass('a lock that another server wants is demanded');
$sa->query('COMMIT; SELECT zk_unlock_all()');
$sb->result;
# where the other server queues behind it
ZkLock::wait_until(sub { locks($b, 'state') =~ /^exclusive\|transaction\|t\|(demanded|releasing)\|1\|f\|t\|t\|sb$/ }, 'it is wanted there, too', sub { locks($b, 'state') });
pass('it has moved on');
$sb->query('COMMIT');
$alice->result;
$alice->query('COMMIT');
$alice->quit;
$sa->query("SELECT zk_lock('idle')");
is(locks($a, 'idle'), 'exclusive||t|kept||f|t|t|', 'kept for nobody');
is(ZkLock::ask($a, 'SELECT kept = (SELECT count(*) FROM zk_locks WHERE pid IS NULL) AND kept > 0 FROM zk_session'), 't', '... and counted');
is(ZkLock::session($a, user => 'nobody')->query('SELECT count(*) FROM zk_locks WHERE pid IS NULL'), 0, '... and no business of other roles');
$sb->query("SELECT zk_lock('idle')");
is(locks($a, 'idle'), '', '... until somebody else wants it');

#
# Statistics
#
my $columns = 'acquired_local, acquired_kept, acquired_cold, waits, timeouts, cancels, failures, losses, demands, handovers';

sub stats { my ($node, $name) = @_; return ZkLock::ask($node, "SELECT $columns FROM zk_stat_locks WHERE name = '$name'"); }

ZkLock::ask($_, 'SELECT zk_stat_reset()') for $a, $b;
$sa->query("SELECT zk_lock('stat')") for 1 .. 5;
is(stats($a, 'stat'), '0|4|1|0|0|0|0|0|0|0', 'one cold acquisition, and four by the kept grant');
is(ZkLock::ask($a, "SELECT total_hold >= longest_hold, longest_hold > '0' FROM zk_stat_locks WHERE name = 'stat'"), 't|t', '... which held it for some time');
is(ZkLock::ask($a, "SELECT s.total_hold = l.total_hold, s.longest_hold = l.longest_hold FROM zk_stat s, zk_stat_locks l WHERE l.name = 'stat'"), 't|t', '... as the server says');
$sa->query("BEGIN; SELECT zk_lock('stat'), zk_lock('stat')");
is(ZkLock::ask($a, "SELECT held_since > now() - '1 h'::interval, held_since <= clock_timestamp(), wait_start IS NULL FROM zk_locks WHERE name = 'stat'"), 't|t|t', 'since when it is held');
my $held = ZkLock::ask($a, "SELECT longest_hold FROM zk_stat_locks WHERE name = 'stat'");
is(ZkLock::ask($a, "SELECT longest_hold FROM zk_stat_locks WHERE name = 'stat'"), $held, '... which is counted at its end');
is(stats($a, 'stat'), '1|5|1|0|0|0|0|0|0|0', '... and one by its holder');
is($sa2->query("SELECT zk_try_lock('stat')"), 'f', 'no');
like($sa2->fails("SET lock_timeout = '50ms'; SELECT zk_lock('stat')"), qr/^55P03/, 'lock_timeout');
$sa2->query('RESET lock_timeout');
is($sa2->send("SELECT zk_lock('stat')")->wait_level(1)->cancel->failure, '57014: canceling statement due to user request', 'cancel');
is(stats($a, 'stat'), '1|5|1|2|2|1|0|0|0|0', 'timeouts and cancels; zk_try_lock that does not wait is no wait');
my $killed = ZkLock::session($a);
$killed->send("SELECT zk_lock('stat')")->wait_level(1)->terminate->failure;
ZkLock::wait_until(sub { stats($a, 'stat') eq '1|5|1|3|2|2|0|0|0|0' }, 'a terminated one counts as cancelled');
$sb->send("BEGIN; SELECT zk_lock('stat')")->wait_level(2);
ZkLock::wait_until(sub { stats($a, 'stat') eq '1|5|1|3|2|2|0|0|1|0' }, 'a demand is counted');
sleep 0.2; # for a wait that can be seen in the statistics
$sa->query('COMMIT');
$sb->result;
is(stats($b, 'stat'), '0|0|1|1|0|0|0|0|0|1', 'the other server has waited and got it from the first');
is(ZkLock::ask($b, "SELECT total_wait = longest_wait, total_wait BETWEEN '200 ms' AND '1 h' FROM zk_stat_locks WHERE name = 'stat'"), 't|t', '... for so long');
is(ZkLock::ask($b, "SELECT zk_break('stat', token) FROM zk_contenders('stat') WHERE ours"), 't', 'break it');
is($sb->fails('COMMIT'), '40001: lock "stat" was lost', 'lost');
is(stats($b, 'stat'), '0|0|1|1|0|0|0|1|0|1', 'a loss is counted');
is(ZkLock::ask($_, "SELECT $columns FROM zk_stat"), ZkLock::ask($_, "SELECT $columns FROM zk_stat_locks"), 'the server\'s counters are the sum') for $a, $b;

# Bounded: the name used last is there, the sum complete
$sa->query('SELECT zk_stat_reset()');
$sa->query("DO \$\$BEGIN FOR i IN 1 .. 3000 LOOP PERFORM zk_lock('many ' || i, 'exclusive', 'session'); PERFORM zk_lock('often', 'exclusive', 'session'); PERFORM zk_unlock_all(); END LOOP; END\$\$");
is($sa->query('SELECT acquired_local, acquired_kept + acquired_cold FROM zk_stat'), '0|6000', 'many names');
is($sa->query("SELECT count(*) BETWEEN 900 AND 1024, bool_or(name = 'many 3000'), bool_or(name = 'many 1'), max(acquired_kept + acquired_cold) FROM zk_stat_locks"),
	't|t|f|3000', '... of which the most recent are remembered');
is($sa->query("SELECT name FROM zk_stat_locks ORDER BY last_call DESC LIMIT 1"), 'often', '... with the time of the last call');
$sa->query('SELECT zk_stat_reset()');
is($sa->query('SELECT count(*) FROM zk_stat_locks'), 0, 'zk_stat_reset');

#
# The session, ps, the log
#
is(ZkLock::ask($a, "SELECT lease_remaining BETWEEN '0' AND session_timeout, write_latency BETWEEN '1 us' AND '1 h', read_latency BETWEEN '1 us' AND '1 h', reconnects, expiries, "
	. "session_uptime <= worker_uptime, max_names, in_flight BETWEEN 0 AND 1000, locks FROM zk_session"), 't|t|t|0|0|t|10000|t|0', 'zk_session');
my ($worker, $session) = split /\|/, ZkLock::ask($a, 'SELECT worker_pid, session_id FROM zk_session');
my $host = $zk->host;
like(ZkLock::title($worker), qr/zklock worker connected to \Q$host\E$/, 'ps says state and server');

# The queries for Prometheus, by a member of pg_monitor
ZkLock::ask($a, 'CREATE ROLE exporter LOGIN IN ROLE pg_monitor');
my $exporter = ZkLock::session($a, user => 'exporter');
my $yaml = PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/../../doc/prometheus.yaml");
while ($yaml =~ /^(\w+):\n  query: \|\n((?:    .*\n)+)  metrics:\n((?:    - .*\n)+)/mg)
{
	my ($metric, $query, $metrics) = ($1, $2, $3);
	my $names = join ', ', $metrics =~ /- (\w+): \{usage: (?:GAUGE|COUNTER|LABEL), description: "[^"]+"\}$/mg;
	is($exporter->fails("SELECT $names FROM ($query) AS q"), '', "query of $metric");
	is($exporter->query("SELECT string_agg(concat_ws(' ', kind, grant_state, sessions >= 0, longest_seconds >= 0), ', ' ORDER BY kind, grant_state) FROM ($query) AS q"),
		'lock queued t t, lock waiting t t, semaphore queued t t, semaphore waiting t t', '... has a row though nobody waits')
	  if $metric eq 'zklock_waiting';
}
is(scalar(() = $yaml =~ /^\w/mg), 10, 'ten of them');

# No wait for ever without ZooKeeper, and a loss that only the clock tells: of a session
# that is there to expire
ZkLock::hang_up($b);
$_->quit for $sb, $sb2;
$b->append_conf('postgresql.conf', "zklock.session_timeout = '2s'");
$b->restart;
my $holder = ZkLock::session($b);
$sb = ZkLock::session($b);
$holder->query("BEGIN; SELECT zk_lock('lapsed')");
$sb->query("SELECT zk_lock('session', scope => 'session')");
$zk->stop(1);
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'disconnected');
ok(ZkLock::wait_until(sub { ZkLock::title($worker) =~ /zklock worker reconnecting$/ }, 'ps says so', sub { ZkLock::title($worker) }), '... also without one');
$sa->query("SET zklock.connect_timeout = '300ms'");
like($sa->fails($_), qr/^58000: could not reach ZooKeeper within 300 ms/, "$_ without ZooKeeper")
  for "SELECT zk_contenders('job')", 'SELECT zk_lock_dirs()', "SELECT zk_break('job', 1)";
is($holder->fails('SELECT pg_sleep(3600)'), '40001: lock "lapsed" was lost', 'lost without a word from ZooKeeper');
$holder->query('ROLLBACK');
is($sb->query('SELECT zk_unlock_all()'), 1, '... and acknowledged');
is(stats($b, $_) =~ s/.*\|(\d+)\|\d+\|\d+$/$1/r, 1, "... the loss of $_ is counted") for 'lapsed', 'session';
$zk->start(1);
ZkLock::wait_connected($a, $b);
is(ZkLock::ask($a, "SELECT reconnects > 0, session_id = '$session', expiries FROM zk_session"), 't|t|0', 'reconnects are counted');

# The library's own words
unlike(log_of($a), qr/libzookeeper:/, 'the library is silent');
ZkLock::ask($a, "ALTER SYSTEM SET zklock.log_min_messages = info; SELECT pg_reload_conf()");
kill 'TERM', ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
ZkLock::wait_until(sub { log_of($a) =~ /LOG:  libzookeeper: .*session establishment complete/ }, 'the library speaks');
pass('... unless told to speak');
ZkLock::wait_connected($a);

# One line for each change of the session's state
$a->restart;
my @lines = log_of($a) =~ /LOG:  (connected to ZooKeeper|lost connection|session resumed|reconnected to|closing ZooKeeper session(?= \S+ as soon))/g;
like(join(',', @lines[0 .. 2]), qr/^connected to ZooKeeper,lost connection,(session resumed|reconnected to)$/, 'the log tells of the session');
is(scalar(grep { $_ eq 'closing ZooKeeper session' } @lines), 1, '... and of its end');
is(join("\n", log_of($a) =~ /^(?:\S+ ){3}\[\d+\] (?:LOG|WARNING):  (.*\b(?:many \d+|often|idle|state|kept)\b.*)$/mg), '', '... and of no lock, as long as all is well');

done_testing();
