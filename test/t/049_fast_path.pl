# What is done by the fast path of the protocol, or by functions in C, runs no statement
# of its own, and is work all the same: a loss is not acknowledged behind it.
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
my $r = ZkLock::session($rival);
my $c = Protocol3->new($node);

sub lo_creat { return $c->_add('F', pack('Nnnn', 957, 0, 1) . pack('N/a*', '-1') . pack('n', 0))->_send->answer; }
sub objects { return ZkLock::ask($node, 'SELECT count(*) FROM pg_largeobject_metadata'); }

sub lose
{
	ZkLock::ask($node, "SELECT zk_break('x', token) FROM zk_contenders('x') WHERE ours");
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT bool_and(grant_state = 'lost') FROM zk_locks WHERE name = 'x'") eq 't' }, 'x is lost');
	$r->query("SELECT zk_lock('x', scope => 'session')");
}

sub acknowledge
{
	$c->query('ROLLBACK');
	$c->query('SELECT zk_unlock_all()');
	$r->query("SELECT zk_unlock('x')");
}

for my $acknowledge ("SELECT zk_unlock('x')", 'SELECT zk_unlock_all()', 'SELECT pg_advisory_unlock_all()')
{
	for my $when ('before', 'after')
	{
		my $had = objects();
		$c->query("SELECT zk_lock('x', scope => 'session')");
		$c->query('BEGIN');
		lose() if $when eq 'after';
		my $made = lo_creat();
		lose() if $when eq 'before';
		my $answer = $c->query($acknowledge);
		my $end = $c->query('COMMIT');
		is(objects(), $had, "a large object made $when the loss, $acknowledge: nothing is committed")
		  or diag "lo_creat: $made; $acknowledge: $answer; COMMIT: $end";
		acknowledge();
	}
	my $had = objects();
	$c->query("SELECT zk_lock('x', scope => 'session')");
	lose();
	my $answer = $c->query("SELECT lo_from_bytea(0, 'late') > 0, " . $acknowledge =~ s/SELECT //r);
	is(objects(), $had, "a function in C, and $acknowledge in one statement: nothing is committed") or diag $answer;
	acknowledge();
}
is($c->query("SELECT zk_lock('x') > 0"), 'columns, row t, SELECT 1, idle', 'all is well afterwards');
done_testing;
