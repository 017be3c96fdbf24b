# Waits that are on one server only, as the others see them in zk_waits.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
# A tells of its waits with its heartbeats, so its session is short; but not so short that it is
# lost where the machine stands still for some seconds.
my ($a, $b, $c) = map { ZkLock::server($_, $zk, conf => "cluster_name = '$_'\nzklock.session_timeout = '15s'") } qw(a b c);
ZkLock::wait_connected($a, $b, $c);

sub named { my ($node, $name) = @_; return ZkLock::session($node, env => { PGAPPNAME => $name }); }

my $asked = "SELECT kind, name, mode, server, pid, application_name, root_server, root_pid, steps FROM zk_waits";

# Wait until the others show the waits of a name, one a line, in the order of their pids.
sub shown
{
	my ($what, $where, @rows) = @_;
	for my $node ($b, $c)
	{
		my $seen;
		ZkLock::wait_until(
			sub { ($seen = ZkLock::ask($node, "$asked WHERE $where ORDER BY pid")) eq join "\n", @rows },
			"$what: " . join(' / ', @rows), sub { $seen });
		pass("$what, on " . $node->name);
	}
	return;
}

sub row { return join '|', @_; }

# A lock that nobody else wants: neither its holder nor who waits has a contender that waits.
my $holder = named($a, 'holder');
my $writer = named($a, 'writer');
my $reader = named($a, 'reader');
$holder->query("BEGIN; SELECT zk_lock('job')");
$writer->send("SELECT zk_lock('job')")->wait_level(1);
$reader->send("SELECT zk_lock('job', 'shared')")->wait_level(1);
my @chain = ('a', $holder->pid);
sub exclusive { my ($session, $name, @end) = @_; return row('lock', $name, 'exclusive', 'a', $session->pid, @end); }
shown('waits of one server', "name = 'job' AND application_name = 'writer'", exclusive($writer, 'job', 'writer', @chain, 1));
my $seen;
ZkLock::wait_until(
	sub { ($seen = ZkLock::ask($b, "SELECT mode, root_server, root_pid IS NOT NULL FROM zk_waits WHERE application_name = 'reader'")) eq 'shared|a|t' },
	'the reader behind', sub { $seen });
pass('... and of a reader');
is(ZkLock::ask($b, "SELECT bool_and(wait_start <= as_of - '1 s'::interval), count(*) FROM zk_waits"), 't|2', 'since when, each once');
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_waits'), 2, '... and on their own server no more');

# The holder waits elsewhere: the chain leads there.
my $end = named($c, 'end');
$end->query("BEGIN; SELECT zk_lock('far')");
$holder->send("SELECT zk_lock('far')")->wait_level(2);
shown('a chain to another server', "application_name = 'writer'", exclusive($writer, 'job', 'writer', 'c', $end->pid, 2));
$end->query('COMMIT');
$holder->result;
$holder->query('COMMIT');
$_->result for $writer, $reader;
for my $node ($b, $c)
{
	ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT count(*) FROM zk_waits') == 0 }, 'none waits');
	pass('those whose wait is over are shown no more');
}

# Several of a server in one place of the queue.
$end->query("BEGIN; SELECT zk_lock('job')");
my @waiting = map { named($a, "waiter $_")->send("SELECT zk_lock('job')") } 1 .. 3;
for my $node ($b, $c)
{
	ZkLock::wait_until(
		sub { ($seen = ZkLock::ask($node, "SELECT string_agg(application_name, ',' ORDER BY application_name), bool_and(root_pid = @{[ $end->pid ]}) FROM zk_waits WHERE server = 'a'")) eq 'waiter 1,waiter 2,waiter 3|t' },
		'all that wait on one server', sub { $seen });
	pass('all that wait on one server, on ' . $node->name);
}
$end->query('COMMIT');
$_->result for @waiting;

# Permits.
$holder->query("BEGIN; SELECT zk_acquire('semaphores', 1)");
$writer->send("SELECT zk_acquire('semaphores', 1)")->wait_event('Extension');
for my $node ($b, $c)
{
	ZkLock::wait_until(
		sub { ($seen = ZkLock::ask($node, "SELECT kind, name, server, pid, root_server, root_pid FROM zk_waits")) eq row('semaphore', 'semaphores', 'a', $writer->pid, @chain) },
		'a wait for a permit', sub { $seen });
	pass('a wait for a permit, on ' . $node->name);
}
$holder->query('COMMIT');
$writer->result;

# More than a report has room for: the longest waits, and nobody is taken for another.
$holder->query("BEGIN; SELECT zk_lock('crowd')");
my @crowd = map { named($a, "crowd $_")->send("SELECT zk_lock('crowd')") } 1 .. 40;
ZkLock::wait_until(
	sub { ($seen = ZkLock::ask($b, "SELECT count(*) BETWEEN 8 AND 32, count(DISTINCT pid) = count(*), bool_and(root_pid = @{[ $holder->pid ]}) FROM zk_waits")) eq 't|t|t' },
	'a crowd', sub { $seen });
pass('of a crowd those for whom there is room');
$_->cancel->failure for @crowd;

done_testing();
