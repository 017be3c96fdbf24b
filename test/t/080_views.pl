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
my $conf = "zklock.handoff_limit = 4\nzklock.cache_time = '60s'";
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
my $dir = ZkLock::directory('job');
$foreign->create("$dir/other");
my $path = $foreign->contend($dir, data => "10.0.0.1\xff");
is(contenders($a, 'job'), "1|a|exclusive|t|t\n2|b's \"server\"|shared|f|f\n3||exclusive|f|f", 'holder, a reader elsewhere, a foreign program');
is(contenders($b, 'job'), "1|a|exclusive|t|f\n2|b's \"server\"|shared|f|t\n3||exclusive|f|f", '... seen from the other server');
is(ZkLock::ask($a, "SELECT token = $token, session_id = (SELECT session_id FROM zk_session), since BETWEEN now() - '1 min'::interval AND now() + '1 s', data::json->>'server' FROM zk_contenders('job') WHERE ours"),
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
my $waiter = ZkLock::ask($a, "SELECT token FROM zk_contenders('foreign') WHERE NOT granted");
is(ZkLock::ask($b, "SELECT zk_break('foreign', $waiter)"), 't', 'a waiter is removed');
ZkLock::wait_until(sub { contenders($b, 'foreign') =~ /^2\|b's "server"\|exclusive\|f\|t$/m }, 'it queues anew');
$sa->query('COMMIT');
cmp_ok($sb->result, '>', $waiter, '... and queues anew');
$sb->query('COMMIT');

# No wait for ever without ZooKeeper
$zk->stop(1);
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'disconnected');
$sa->query("SET zklock.connect_timeout = '300ms'");
like($sa->fails($_), qr/^58000: could not reach ZooKeeper within 300 ms/, "$_ without ZooKeeper")
  for "SELECT zk_contenders('job')", 'SELECT zk_lock_dirs()', "SELECT zk_break('job', 1)";
$zk->start(1);
ZkLock::wait_connected($a, $b);

done_testing();
