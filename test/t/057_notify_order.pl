# Notifications that had to wait, of leadership and of runs, and are then sent together: the
# last word about an election is the newest.  (PostgreSQL delivers what is notified twice in
# one transaction once, where it came first.)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('a', $zk, conf => "zklock.notify_database = 'nowhere'");
ZkLock::wait_connected($node);
my $listener = ZkLock::session($node);
$listener->query('LISTEN zklock');
my $s = ZkLock::session($node);
my $failures = 0;

# The process that notifies has failed once more: one change, one attempt.
sub missed
{
	$failures++;
	ZkLock::wait_until(sub { (() = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /database "nowhere" does not exist/g) >= $failures },
		"attempt $failures to notify has failed");
}

sub lead
{
	my $election = shift;
	ZkLock::wait_until(sub { $s->query("SELECT zk_is_leader('$election')") eq 't' }, "it leads $election");
}
sub resign { $s->query("SELECT zk_resign('$_[0]')"); }

sub notify_in
{
	my $database = shift;
	# One that is there goes on with where it is.
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'zklock notifier'") == 0 }, 'the notifier has gone');
	ZkLock::ask($node, "ALTER SYSTEM SET zklock.notify_database = '$database'");
	ZkLock::ask($node, 'SELECT pg_reload_conf()');
	# The postmaster has read it before it tells anybody, and starts the process.
	ZkLock::wait_until(sub { ZkLock::ask($node, 'SHOW zklock.notify_database') eq $database }, "notifications go to $database");
}

# What is heard of election e before another one's, which comes after all.
sub heard
{
	my $mark = shift;
	lead($mark);
	my $seen = '';
	ZkLock::wait_until(sub { ($seen .= $listener->query('SELECT 1') . $listener->notices) =~ /payload "$mark:a"/ }, "$mark is heard", sub { $seen });
	return join ' ', $seen =~ /payload "(e:\w*)"/g;
}

lead('e'); missed();
resign('e'); missed();
notify_in('postgres');
lead('e');
is(heard('mark1'), 'e:a e: e:a', 'it leads, and that is the last word');

notify_in('nowhere');
resign('e'); missed();
lead('e'); missed();
notify_in('postgres');
resign('e');
is(heard('mark2'), 'e: e:a e:', 'it leads no more, and that is the last word');

# Ends of runs, on a channel of their own
$listener->query('LISTEN zklock_jobs');
sub run_once { my ($job, $command, $slot) = @_; return $s->fails("CALL zk_run_once('$job', '$command', slot => '2026-01-0$slot', attempts => 9)"); }
like(run_once('j', 'SELECT 1/0', 1), qr/^22012: /, 'a run fails');
is(run_once('j', 'SELECT 1', 1), '', '... and another is done');
is(run_once('j', 'SELECT 1', 1), '', '... once');
is($s->query("SELECT zk_run_begin('j', slot => '2026-01-02')") . $s->query("SELECT zk_run_end('j', false)"), 'tt', '... and one of the session fails');
my $seen = '';
run_once('end', 'SELECT 1', 1);
ZkLock::wait_until(sub { ($seen .= $listener->query('SELECT 1') . $listener->notices) =~ /payload "end:done"/ }, 'the end is heard', sub { $seen });
is(join(' ', $seen =~ /"zklock_jobs" with payload "(j:\w*)"/g), 'j:failed j:done j:failed', 'each end is heard, in its order');
done_testing;
