# A hot standby takes locks like any other server, and keeps them when promoted.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $primary = ZkLock::server('primary', $zk, init => { allows_streaming => 1 }, conf => 'max_connections = 30');
# a hold during the base backup: nothing of it may come along
my $p = ZkLock::session($primary);
$p->query("SELECT zk_lock('copied', scope => 'session')");
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby = on");
$standby->start;
my @both = ($primary, $standby);

my $s = ZkLock::session($standby);
is($s->query('SELECT pg_is_in_recovery()'), 't', 'a standby');
ZkLock::wait_connected(@both);
isnt(ZkLock::ask($standby, 'SELECT session_id FROM zk_session'), ZkLock::ask($primary, 'SELECT session_id FROM zk_session'),
	'its ZooKeeper session is its own');
is($s->query("SELECT zk_try_lock('copied')"), 'f', 'the primary excludes the standby');
is($p->query("SELECT zk_unlock('copied')"), 't', '... and still can unlock');

# both ways, at both levels
$s->query('BEGIN');
my $token = $s->query("SELECT zk_lock('job')");
is($p->query("SELECT zk_try_lock('job')"), 'f', 'the standby excludes the primary');
my $s2 = ZkLock::session($standby);
is($s2->query("SELECT zk_try_lock('job')"), 'f', '... and its own backends');
is($s2->query("SELECT zk_try_lock('job', timeout => '30 ms')"), 'f', '... with a timeout, at level 1');
is($p->query("SELECT zk_try_lock('job', timeout => '30 ms')"), 'f', '... and at level 2');
$p->query('BEGIN');
$p->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
$s->query('COMMIT');
cmp_ok($p->result, '>', $token, 'a read-only COMMIT hands it over');
is($s->query("SELECT zk_try_lock('job', timeout => '30 ms')"), 'f', 'the primary has it: a timeout at level 2 of the standby');
is($s->fails("SET lock_timeout = '30ms'; SELECT zk_lock('job')"), '55P03: canceling statement due to lock timeout', '... lock_timeout');
$s->query('RESET lock_timeout');
$s->send("SELECT zk_lock('job')")->wait_level(2);
is($s->cancel->failure, '57014: canceling statement due to user request', '... cancel');
$s->query("BEGIN; SELECT zk_lock('mine'); SAVEPOINT s; SELECT zk_lock('inner')");
is($p->query("SELECT zk_try_lock('inner')"), 'f', 'a savepoint on the standby');
$s->query('ROLLBACK TO s');
is($p->query("SELECT zk_try_lock('inner', timeout => '1 h'), zk_try_lock('mine')"), 't|f', '... rolled back');
$s->query('COMMIT');
$p->query('COMMIT');
ZkLock::ok_clean($zk, \@both, 'job', 'after locks on the standby');

# promotion
is($s->query("BEGIN; SELECT zk_lock('transaction') > 0"), 't', 'a lock in a transaction of the standby');
$s2->query("SELECT zk_lock('session', scope => 'session')");
my $s3 = ZkLock::session($standby);
$p->query("BEGIN; SELECT zk_lock('job')");
$s3->send("SELECT zk_lock('job')")->wait_level(2);
ZkLock::wait_queue($zk, 'job', 2);
my $before = ZkLock::ask($standby, 'SELECT session_id, worker_pid FROM zk_session');
$standby->promote;
is(ZkLock::ask($standby, 'SELECT session_id, worker_pid FROM zk_session'), $before, 'promotion leaves the session alone');
is($s->query("SELECT zk_token('transaction') > 0"), 't', '... and a hold of the transaction');
is($s2->query("SELECT zk_token('session') > 0"), 't', '... and one of a session');
is($p->query("SELECT zk_try_lock('transaction'), zk_try_lock('session')"), 'f|f', '... which exclude the old primary');
$p->query('COMMIT');
ok($s3->result, '... and a waiter, which has its turn');
$s->query('COMMIT');
$s2->query("CREATE TABLE t AS SELECT zk_token('session') AS token");
is($s2->query("SELECT count(*) FROM t WHERE token = zk_token('session')"), 1, 'the hold serves a writer');
$s2->query('SELECT zk_unlock_all()');
is($p->query("SELECT zk_try_lock('transaction', timeout => '1 h'), zk_try_lock('session', timeout => '1 h')"), 't|t', 'all is given up');
ZkLock::ok_clean($zk, \@both, $_, "after promotion, $_") for 'job', 'transaction', 'session';

done_testing();
