# zklock_advisory: pg_advisory_lock and its like on two servers.  A program that knows nothing
# of zklock finds them by its search_path, and is told of a loss as by zk_lock.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk) } qw(a b);
ZkLock::wait_connected($a, $b);
for my $node ($a, $b)
{
	ZkLock::ask($node, $_)
	  for 'CREATE EXTENSION zklock_advisory', 'CREATE ROLE migrator LOGIN',
	  q{CALL zk_grant('migrator')},
	  'ALTER ROLE migrator SET search_path = public, zk_advisory, pg_catalog';
}
sub migrator { my ($node, @options) = @_; return ZkLock::session($node, user => 'migrator', @options); }
my ($sa, $sb) = map { migrator($_) } $a, $b;
my ($check) = PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/../../doc/advisory.md") =~ /`(SELECT to_regproc.*?)`/;
is($_->query($check), 't', 'what the page says to ask tells whose functions are found') for $sa, $sb;
is(ZkLock::ask($a, $check), 'f', '... to who finds those of PostgreSQL, too');

#
# All of them, beside each other: what others may have then
#
my %try = (
	exclusive => 'pg_try_advisory_lock(1, 2)',
	shared => 'pg_try_advisory_lock_shared(1, 2)',
	'exclusive in a transaction' => 'pg_try_advisory_xact_lock(1, 2)',
	'shared in a transaction' => 'pg_try_advisory_xact_lock_shared(1, 2)');
for my $form ('', 'xact_')
{
	for my $mode ('', '_shared')
	{
		my $function = "pg_advisory_${form}lock$mode";
		$sa->query("BEGIN; SELECT $function(1, 2)");
		for my $what (sort keys %try)
		{
			my $may = $mode eq '_shared' && $what =~ /shared/ ? 't' : 'f';
			is($sb->query("BEGIN; SELECT $try{$what}; ROLLBACK; SELECT zk_advisory.pg_advisory_unlock_all()"), $may, "$function beside one that is $what");
		}
		is($sb->query('SELECT pg_try_advisory_lock(1), pg_advisory_unlock(1)'), 't|t', '... and beside another key');
		$sb->send("SELECT pg_advisory_lock(1, 2)")->wait_level(2);
		$sa->query('ROLLBACK');
		$sa->query("SELECT pg_advisory_unlock$mode(1, 2)") if $form eq '';
		is($sb->result, '', '... another server has it next');
		is($sb->query('SELECT pg_advisory_unlock(1, 2)'), 't', '... and gives it back');
	}
}
is($sa->query('SELECT pg_try_advisory_lock(9, 9)') . ZkLock::ask($b, "SELECT pg_try_advisory_lock(9, 9)"), 'tt', 'locks of pg_catalog have nothing to do with these');
ZkLock::ask($b, 'SELECT pg_advisory_unlock_all()');
$sa->query('SELECT pg_advisory_unlock_all()');

#
# Databases
#
ZkLock::ask($_, 'CREATE DATABASE other') for $a, $b;
for my $node ($a, $b)
{
	my $s = ZkLock::session($node, dbname => 'other');
	$s->query('CREATE EXTENSION zklock_advisory CASCADE; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA zk_advisory TO migrator');
}
$sa->query('SELECT pg_advisory_lock(1)');
my $other = migrator($b, dbname => 'other');
is($other->query('SELECT pg_try_advisory_lock(1), pg_advisory_unlock(1)'), 't|t', 'another database has other locks');
ZkLock::ask($b, q(ALTER DATABASE other SET zklock_advisory.database = 'postgres'));
$other = migrator($b, dbname => 'other');
is($other->query('SELECT pg_try_advisory_lock(1)'), 'f', '... unless it counts as the same');
is($other->fails("SET zklock_advisory.database = 'x'"), '42501: permission denied to set parameter "zklock_advisory.database"', '... which a superuser decides');
$sa->query('SELECT pg_advisory_unlock(1)');

#
# Deadlocks, timeouts, an upgrade that cannot be
#
$sa->query('SELECT pg_advisory_lock(1)');
$sb->query('SELECT pg_advisory_lock(2)');
$sb->send('SELECT pg_advisory_lock(1)')->wait_level(2);
$sa->send('SELECT pg_advisory_lock(2)');
ZkLock::wait_until(sub { !$sa->busy || !$sb->busy }, 'one wait ends');
my ($loser, $winner) = $sa->busy ? ($sb, $sa) : ($sa, $sb);
like($loser->failure, qr/^40P01: deadlock detected/, 'a deadlock across servers is found');
$loser->query('SELECT pg_advisory_unlock_all()');
is($winner->result, '', '... and the other one goes on');
$_->query('SELECT pg_advisory_unlock_all()') for $sa, $sb;
$sb->query('SELECT pg_advisory_lock(2)');
is($sa->fails("SET lock_timeout = '50ms'; SELECT pg_advisory_lock(2)"), '55P03: canceling statement due to lock timeout', 'lock_timeout ends a wait');
$_->query('RESET lock_timeout; SELECT pg_advisory_unlock_all()') for $sa, $sb;
$_->query('SELECT pg_advisory_lock_shared(3)') for $sa, $sb;
is($sa->query('SELECT pg_try_advisory_lock(3)'), 'f', 'no upgrade beside another reader');
$sb->query('SELECT pg_advisory_unlock_shared(3)');
ZkLock::wait_until(sub { $sa->query('SELECT pg_try_advisory_lock(3)') eq 't' }, 'it is upgraded');
is($sa->query('SELECT pg_advisory_unlock(3)'), 't', 'the upgrade is given back');
ZkLock::wait_until(sub { $sb->query('SELECT pg_try_advisory_lock_shared(3)') eq 't' }, 'others may read again');
is($sb->query('SELECT pg_try_advisory_lock(3)'), 'f', '... beside this reader');
$_->query('SELECT pg_advisory_unlock_all()') for $sa, $sb;

#
# A loss: each call that ends or takes a lock anew acknowledges it
#
my %acknowledges = (
	'pg_advisory_unlock(1)' => 't',
	'pg_advisory_unlock_all()' => '',
	'pg_advisory_lock(1)' => '',
	'pg_advisory_lock_shared(1)' => '',
	'pg_try_advisory_lock(1)' => 't',
	'pg_try_advisory_lock_shared(1)' => 't');
for my $call (sort keys %acknowledges)
{
	$sa->query('SELECT pg_advisory_lock(1)');
	ZkLock::ask($a, q(SELECT zk_break('advisory/postgres/1', token) FROM zk_contenders('advisory/postgres/1') WHERE ours));
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT grant_state FROM zk_locks") eq 'lost' }, 'lost');
	like($sa->fails('SELECT 1'), qr{^55000: lock "advisory/postgres/1" was lost}, 'a lost lock fails the next statement');
	is($sa->query("SELECT $call"), $acknowledges{$call}, "... until $call acknowledges it");
	is($sa->query('SELECT 1'), '1', '... and then all is well');
	$sa->query('SELECT pg_advisory_unlock_all()');
}
$sa->query('BEGIN; SELECT pg_advisory_xact_lock(1)');
ZkLock::ask($a, q(SELECT zk_break('advisory/postgres/1', token) FROM zk_contenders('advisory/postgres/1') WHERE ours));
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT grant_state FROM zk_locks") eq 'lost' }, 'lost');
like($sa->fails('COMMIT'), qr{^40001: lock "advisory/postgres/1" was lost}, 'a lost lock of the transaction fails its COMMIT');
$sa->query('ROLLBACK');

# A session that ends, and a name that is too long
$sa->query('SELECT pg_advisory_lock(1)');
$sa->quit;
ZkLock::wait_until(sub { $sb->query('SELECT pg_try_advisory_lock(1)') eq 't' }, 'the end of a session gives its locks back');
$sb->quit;
my $super = ZkLock::session($a);
$super->query("SET zklock_advisory.database = '" . 'x' x 250 . "'");
like($super->fails('SELECT zk_advisory.pg_advisory_lock(1)'), qr/^22023: /, 'a database of too long a name');

ZkLock::ok_clean($zk, [ $a, $b ], 'advisory/postgres/1');

done_testing();
