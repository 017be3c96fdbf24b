# With a loss, a statement is refused before it does anything, also what an admitted one
# does beside: the parameters of EXECUTE, the arguments of CALL zk_lock_session, all that a
# SELECT calls.  What dblink_exec does is committed elsewhere at once.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Protocol3;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($node, $rival) = map { ZkLock::server($_, $zk) } qw(a b);
ZkLock::wait_connected($node, $rival);
ZkLock::ask($node, 'CREATE TABLE t (i int); CREATE EXTENSION dblink');
my $r = ZkLock::session($rival);
my $remote = "dblink_exec('" . ($node->connstr('postgres') =~ s/'//gr) . "', 'INSERT INTO t VALUES (1)')";
my %late = (
	'a parameter of EXECUTE' => "EXECUTE p($remote)",
	'beside zk_unlock' => "SELECT $remote, zk_unlock('x')",
	'beside zk_lock of another name' => "SELECT $remote, zk_lock('other', scope => 'session')",
	'an argument of zk_lock_session' => "CALL zk_lock_session($remote, timeout => '1 s')",
	'in a subquery' => "SELECT zk_unlock('x') FROM (SELECT $remote OFFSET 0) s",
	'in a filter' => "SELECT zk_unlock('x') FROM generate_series(1, 1) i WHERE $remote <> i::text",
	'in VALUES' => "SELECT zk_unlock('x') FROM (VALUES ($remote), ('')) v",
	'in a LIMIT' => "SELECT zk_unlock('x') FROM generate_series(1, 9) LIMIT length($remote)",
	'a statement of its own' => "SELECT $remote");
for my $what (sort keys %late)
{
	my $c = Protocol3->new($node);
	$c->query('PREPARE p (text) AS SELECT $1');
	$c->query("SELECT zk_lock('x', scope => 'session')");
	ZkLock::ask($node, "SELECT zk_break('x', token) FROM zk_contenders('x') WHERE ours");
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT bool_and(grant_state = 'lost') FROM zk_locks WHERE name = 'x'") eq 't' }, 'lost');
	$r->query("SELECT zk_lock('x', scope => 'session')");
	my $had = ZkLock::ask($node, 'SELECT count(*) FROM t');
	my $answer = $c->query($late{$what});
	is(ZkLock::ask($node, 'SELECT count(*) FROM t'), $had, "$what does nothing") or diag $answer;
	$c->query('SELECT zk_unlock_all()');
	$r->query("SELECT zk_unlock('x')");
}
# What is admitted.
my %fine = (
	'a constant' => "EXECUTE q('x')",
	'a cast' => "EXECUTE q('x'::text)",
	'those that are held' => "SELECT zk_unlock(name) FROM zk_locks WHERE pid = pg_backend_pid()",
	'a comparison' => 'SELECT zk_unlock_all() > 0 AS done',
	'FROM' => "SELECT * FROM zk_unlock('x')",
	'a count' => "SELECT count(zk_unlock('x'))");
for my $what (sort keys %fine)
{
	my $c = ZkLock::session($node);
	$c->query('PREPARE q (text) AS SELECT zk_unlock($1)');
	$c->query("SELECT zk_lock('x', scope => 'session')");
	ZkLock::ask($node, "SELECT zk_break('x', token) FROM zk_contenders('x') WHERE ours");
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT bool_and(grant_state = 'lost') FROM zk_locks WHERE name = 'x'") eq 't' }, 'lost');
	is($c->fails($fine{$what}), '', "$what: admitted");
	is($c->fails('SELECT 1'), '', '... and acknowledges');
}
done_testing;
