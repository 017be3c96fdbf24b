# Sessions that end with temporary tables.  PostgreSQL drops these at exit in a
# transaction, and ends the one that is open before it calls us.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('a', $zk, conf => "autovacuum = off\nzklock.keep_time = '1h'\nzklock.handoff_limit = 16");
ZkLock::wait_connected($node);

# Its client may live on with the token, so the next holder needs a larger one.
for my $before ('SELECT 1', 'CREATE TEMP TABLE tmp (i int)')
{
	for my $end (qw(terminate kill_client))
	{
		my $s = ZkLock::session($node);
		$s->query("SELECT zk_lock('first')");
		$s->query($before);
		my $token = $s->query("BEGIN; SELECT zk_lock('x')");
		my $waiter = ZkLock::session($node)->send("SELECT zk_lock('x')");
		$waiter->wait_level(1);
		$s->$end;
		cmp_ok($waiter->result, '>', $token, "$before, $end: the next holder has a larger token");
	}
}

# What is lost is no reason to leave them there.
my $s = ZkLock::session($node);
$s->query("SELECT zk_lock('x', scope => 'session')");
$s->query('CREATE TEMP TABLE left_over (i int)');
ZkLock::ask($node, "SELECT zk_break('x', token) FROM zk_contenders('x') WHERE ours");
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT bool_and(grant_state = 'lost') FROM zk_locks WHERE name = 'x'") eq 't' }, 'x is lost');
$s->quit;
is(ZkLock::ask($node, "SELECT count(*) FROM pg_class WHERE relname = 'left_over'"), 0, 'a session with a lost lock drops its temporary tables');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/FATAL:.*was lost/, '... and ends in order');
ZkLock::ok_clean($zk, [$node], 'x') if ZkLock::ask($node, 'ALTER SYSTEM SET zklock.keep_time = 0') eq '' && ZkLock::ask($node, 'SELECT pg_reload_conf()');
done_testing;
