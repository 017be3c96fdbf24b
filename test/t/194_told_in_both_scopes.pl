# A name that is held in session scope and in transaction scope, and lost: what the
# transaction is told says nothing of the session's own hold, of which it is told besides.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk);
ZkLock::wait_connected($a);
ZkLock::ask($a, 'CREATE TABLE t (what text)');

sub lose
{
	my ($name, $directory) = @_;
	my $lost = sub { return scalar(() = PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /"$name" was lost while held/g) };
	my $before = $lost->();
	$zk->delete(ZkLock::directory($name, $directory) . '/' . (ZkLock::queue($zk, $name, $directory))[0]);
	ZkLock::wait_until(sub { $lost->() > $before }, "$name is lost");
	return;
}

my %take = (
	lock => [ 'locks', "zk_lock('lock')", "zk_lock('lock', scope => 'session')", 'zk_unlock' ],
	semaphore => [ 'semaphores', "zk_acquire('semaphore', 1)", "zk_acquire('semaphore', 1, 'session')", 'zk_release' ]);
for my $name (sort keys %take)
{
	my ($directory, $transaction, $session, $release) = @{ $take{$name} };
	my $s = ZkLock::session($a);
	my $start = sub {
		$s->query("SELECT $session");
		$s->query("BEGIN; SAVEPOINT s; SELECT $transaction");
		lose($name, $directory);
		like($s->fails('SELECT 1'), qr/^40001: [\w ]+ "$name" was lost$/, "$name: lost, in transaction scope");
		like($s->notices, qr/The transaction might succeed if retried/, '... with its hint');
	};

	# whatever is next is refused
	$start->();
	$s->query('ROLLBACK');
	like($s->fails("INSERT INTO t VALUES ('$name')"), qr/^55000: [\w ]+ "$name" was lost$/, '... and then the session is told');
	is($s->query("SELECT $release('$name')"), 't', '... acknowledges');
	is($s->query('SELECT 1'), 1, '... and goes on');

	# the transaction is retried, as its hint says
	$start->();
	$s->query('ROLLBACK; BEGIN');
	$s->query("SELECT $transaction");
	like($s->notices, qr/^WARNING 01000: [\w ]+ "$name" was lost$/m, '... a retry tells of the hold that it acknowledges');
	$s->query('COMMIT');
	is($s->query("SELECT count(*) FROM zk_locks WHERE name = '$name' AND pid = pg_backend_pid()"), 0, '... which is gone');

	# it goes on behind the savepoint
	$start->();
	$s->query('ROLLBACK TO s');
	like($s->fails("INSERT INTO t VALUES ('$name')"), qr/^55000: [\w ]+ "$name" was lost$/, '... behind a savepoint the session is told, too');
	$s->query('ROLLBACK');
	is($s->query('SELECT zk_unlock_all()'), 1, '... and acknowledges');
	$s->quit;
}
is(ZkLock::ask($a, 'SELECT count(*) FROM t'), 0, 'nothing was committed without a lock');

done_testing();
