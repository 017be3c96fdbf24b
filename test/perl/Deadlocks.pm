# Deadlocks - servers that are quick to see one, and what becomes of it.
#
#   server(NAME, ZK, CONF)   a server with tables t and u, that looks after 100 ms, and more
#           lines of postgresql.conf
#   on(NODE, WHICH)          a session on it, the same for the same WHICH
#   ok_ring(WHAT, SESSION...)  tests: these wait for each other; one of them fails, and is
#           rolled back, and so the others go on, one after the other, to their commits.
#           Returns the session that failed, and what it was told
#   watch()                  returns a function that waits, for sessions, until each of them has
#           looked for a deadlock since this call
#   ok_withdrawn(ZK)         a test: nothing is published any more
package Deadlocks;

use strict;
use warnings;

use Test::More;
use ZkLock;

my %session;
my %ended;

sub server
{
	my ($name, $zk, $conf) = @_;
	my $node = ZkLock::server($name, $zk, conf => "deadlock_timeout = '100ms'\nlog_lock_waits = on\n" . ($conf // ''));
	ZkLock::ask($node, 'CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1), (2); CREATE TABLE u (id int REFERENCES t)');
	$ended{ $node->name } = [ $node, 0 ];
	return $node;
}

sub on { my ($node, $which) = @_; return $session{ $node->name . ($which // '') } //= ZkLock::session($node); }

# How many more than at the last call?
sub ended
{
	my $n = 0;
	for my $server (values %ended)
	{
		my $now = ZkLock::ask($server->[0], 'SELECT deadlocks FROM zk_stat');
		$n += $now - $server->[1];
		$server->[1] = $now;
	}
	return $n;
}

sub ok_ring
{
	my ($what, @left) = @_;
	my @error;
	while (@left)
	{
		ZkLock::wait_until(sub { grep { !$_->busy } @left }, "$what: somebody goes on");
		my ($next) = grep { !$_->busy } @left;
		@left = grep { $_ != $next } @left;
		my $error = $next->failure;
		push @error, [ $next, $error, $next->notices ] if $error ne '';
		$next->query($error ne '' ? 'ROLLBACK' : 'COMMIT');
		$next->query('SELECT zk_unlock_all()');
		$next->fails("SELECT zk_run_end('j', ok => " . ($error eq '' ? 'true' : 'false') . ')');
	}
	is(join(', ', map { $_->[1] } @error), '40P01: deadlock detected', "$what: one is ended");
	is(ended(), 1, '... and counted');
	return ($error[0][0], $error[0][2]);
}

sub watch
{
	my %seen = map { $_->[0]->name => -s $_->[0]->logfile } values %ended;
	return sub {
		for my $s (@_)
		{
			my ($node, $pid) = ($s->{node}, $s->pid);
			ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($node->logfile, $seen{ $node->name }) =~ /process $pid still waiting/ }, "$pid of " . $node->name . ' looks');
		}
	};
}

sub ok_withdrawn
{
	my $zk = shift;
	ZkLock::wait_until(sub { !$zk->children('/zklock/waits') }, 'nothing is published any more');
	pass('nothing is published any more');
	return;
}

1;
