# Behind pgbouncer: transaction scope is right in transaction pooling.  What becomes of
# session scope and of SET there, and how session pooling ends both.
use strict;
use warnings;

use File::Temp ();
use IPC::Run;
use Test::More;
use ZkLock;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
plan skip_all => 'no pgbouncer' if !$pgbouncer && !$ENV{CI};

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('node', $zk, conf => "client_connection_check_interval = '100ms'");
my $far = ZkLock::server('far', $zk);
my $tmp = File::Temp::tempdir('pgbouncer-XXXXXX', TMPDIR => 1, CLEANUP => 1);
my $user = ZkLock::ask($node, 'SELECT current_user');
my $port = ZooKeeper::free_port();

# One pooler, four databases in its words: by mode and number of server connections.
open my $ini, '>', "$tmp/ini" or die;
print $ini "[databases]\n";
for my $pool ([ 'one', 'transaction', 1 ], [ 'two', 'transaction', 2 ], [ 'session', 'session', 1 ])
{
	printf $ini "%s = host=%s port=%s dbname=postgres user=%s pool_mode=%s pool_size=%d\n",
	  $pool->[0], $node->host, $node->port, $user, @$pool[ 1, 2 ];
}
print $ini <<"INI";
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = any
server_reset_query = DISCARD ALL
ignore_startup_parameters = extra_float_digits
INI
close $ini or die;
my $output = '';
my $pooler = IPC::Run::start([ $pgbouncer, "$tmp/ini" ], '<', \undef, '>&', \$output);
END { local $?; $pooler->kill_kill if $pooler; }

sub client { my ($pool, %option) = @_; return ZkLock::session($node, host => '127.0.0.1', port => $port, dbname => $pool, %option); }
ZkLock::wait_until(sub { client('one')->alive }, 'pgbouncer is up');

#
# Transaction pooling, transaction scope
#
my ($a, $b, $c) = map { client('two') } 1 .. 3;
$_->pid for $a, $b, $c; # before there is a wait
$a->query("BEGIN; SELECT zk_lock('job')");
$b->send("BEGIN; SELECT zk_lock('job')");
ZkLock::wait_waiting($node, 1, 1);
my $other = ZkLock::session($far)->send("SELECT zk_lock('job')")->wait_level(2);
# the other server comes before the second pooled client only if it stands in the queue when the holder commits
ZkLock::wait_queue($zk, 'job', 2);
is($a->query("SELECT zk_token('job') > 0"), 't', 'the holder has it until the end of its transaction');
ok($b->busy, '... and another pooled client waits');
# both server connections are in use; a third client gets one when the holder commits
$c->send("SELECT zk_token('job')");
ok($c->busy, 'a third client waits for a server connection');
$a->query('COMMIT');
ok($other->result > 0 && $b->result > 0, 'COMMIT gives it to those who waited');
is($c->result, '', '... and nothing to whoever has the server connection next');
$b->query('ROLLBACK');
ZkLock::ok_clean($zk, [ $node, $far ], 'job', 'transaction pooling');

# Many clients on two connections: one holds at a time
$node->safe_psql('postgres', 'CREATE TABLE t (n int); INSERT INTO t VALUES (0)');
my @many = map { client('two') } 1 .. 8;
$_->pid for @many;
$_->send("BEGIN; SELECT zk_lock('many'); SELECT n AS was FROM t \\gset\nUPDATE t SET n = :was + 1; COMMIT") for @many;
$_->result for @many;
is(ZkLock::ask($node, 'SELECT n FROM t'), 8, 'eight clients on two connections: no update is lost');
ZkLock::ok_clean($zk, [$node], 'many', 'eight clients');

# A lock that is lost is told to who had it, and to nobody else.
($a, $b) = map { client('one') } 1 .. 2;
$_->pid for $a, $b;
$a->query("BEGIN; SELECT zk_lock('lost')");
my ($contender) = ZkLock::queue($zk, 'lost');
$zk->delete(ZkLock::directory('lost') . "/$contender");
ok(eval { ZkLock::wait_until(sub { $a->fails("SELECT 1") eq '40001: lock "lost" was lost' || $a->fails("SELECT 1") =~ /^25P02/ }, 'lost') }, 'the holder hears that its lock is lost');
$a->query('ROLLBACK');
is($b->query('SELECT 1'), 1, '... the next on that server connection does not');

# A client that goes while it waits
my $blocker = ZkLock::session($node);
$blocker->query("SELECT zk_lock('gone', 'exclusive', 'session')");
$a->send("BEGIN; SELECT zk_lock('gone')");
ZkLock::wait_waiting($node, 1, 1);
$a->kill_client;
ok(eval { ZkLock::wait_waiting($node, 1, 0); 1 }, 'a pooled client that is gone ends its wait');
$blocker->query("SELECT zk_unlock('gone')");
ZkLock::ok_clean($zk, [$node], 'gone', 'a client that is gone');

#
# Transaction pooling, session scope: nobody can refuse it, and it is wrong
#
($a, $b) = map { client('one') } 1 .. 2;
$_->pid for $a, $b;
$a->query("SELECT zk_lock('stray', 'exclusive', 'session')");
is($b->query("SELECT zk_token('stray') > 0"), 't', 'session scope: the hold is the server connection\'s, and so every client\'s');
is($b->query("SELECT zk_try_lock('stray')"), 't', '... whom it does not keep out');
$a->kill_client;
is($b->query("SELECT zk_token('stray') > 0"), 't', '... and it stays when its client has gone: no server_reset_query there');
$b->query("CALL zk_lock_session('stray too')");
is(ZkLock::ask($node, "SELECT string_agg(name || ' ' || scope, ', ' ORDER BY name) FROM zk_locks"), 'stray session, stray too session', '... as zk_locks shows');
# When it is lost, all of them fail until somebody acknowledges it
($contender) = ZkLock::queue($zk, 'stray');
$zk->delete(ZkLock::directory('stray') . "/$contender");
ok(eval { ZkLock::wait_until(sub { $b->fails('SELECT 1') eq '55000: lock "stray" was lost' }, 'lost') }, '... when it is lost, statements fail');
is(client('one')->fails('SELECT 1'), '55000: lock "stray" was lost', '... those of every client');
is(client('one')->query('SELECT zk_unlock_all() > 0'), 't', 'zk_unlock_all ends it');
ZkLock::ok_clean($zk, [$node], $_, "session scope, ended: $_") for 'stray', 'stray too';
# So take it away from those who come by a pooler.
ZkLock::ask($node, 'CREATE ROLE pooled LOGIN');
ZkLock::ask($node, 'REVOKE EXECUTE ON PROCEDURE zk_lock_session FROM PUBLIC');
is(ZkLock::session($node, user => 'pooled')->fails("CALL zk_lock_session('x')"), '42501: permission denied for procedure zk_lock_session', 'zk_lock_session can be revoked');

#
# Transaction pooling: SET
#
$b->query("SET zklock.on_loss = 'warn'");
is(client('one')->query('SHOW zklock.on_loss'), 'warn', 'SET is the server connection\'s, too');
$b->query('RESET zklock.on_loss');
is($b->query("BEGIN; SET LOCAL zklock.on_loss = 'warn'; SHOW zklock.on_loss; COMMIT; SHOW zklock.on_loss"), "warn\nabort", 'SET LOCAL ends with the transaction');
is(client('one')->query('SHOW zklock.on_loss'), 'abort', '... and reaches nobody else');
$b->query("BEGIN; SET LOCAL zklock.connect_timeout = '2h'; SELECT zk_lock('set'); COMMIT");
isnt(client('one')->query('SHOW zklock.connect_timeout'), '2h', '... connect_timeout alike');

#
# Session pooling: server_reset_query, DISCARD ALL, between clients
#
$a = client('session');
my $pid = $a->query("SELECT zk_lock('kept', 'exclusive', 'session') > 0; SET zklock.on_loss = 'warn'; SELECT pg_backend_pid()");
is($a->query("BEGIN; SELECT 1; COMMIT; SELECT zk_token('kept') > 0"), "1\nt", 'session pooling: the hold outlives transactions');
$a->kill_client;
$b = client('session');
is($b->query("SELECT zk_token('kept') IS NULL; SHOW zklock.on_loss"), "t\nabort", 'DISCARD ALL ends it, and SET, when its client has gone');
is('t' . "\n" . $b->query('SELECT pg_backend_pid()'), $pid, '... on the same server connection');
ZkLock::ok_clean($zk, [$node], 'kept', 'session pooling');
is($b->query("SELECT zk_try_lock('kept', 'exclusive', 'session'); SELECT zk_unlock('kept')"), "t\nt", 'the next client can have it');

# server_reset_query_always: the same after each transaction
open $ini, '>>', "$tmp/ini" or die;
print $ini "server_reset_query_always = 1\n";
close $ini or die;
$pooler->signal('HUP');
$a = client('one');
ok(eval {
	ZkLock::wait_until(sub { $a->query("SELECT zk_lock('always', 'exclusive', 'session')"); $a->query("SELECT zk_token('always') IS NULL") eq 't' }, 'reset');
}, 'server_reset_query_always ends session scope after the statement');
ZkLock::ok_clean($zk, [$node], 'always', 'server_reset_query_always');

done_testing();
