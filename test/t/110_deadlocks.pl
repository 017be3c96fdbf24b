# Deadlocks that go through several servers.  One of those who wait is told, by an error
# that goes all round; the others go on.  Whoever waits without a deadlock is left alone.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Deadlocks;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my @node = map { Deadlocks::server($_, $zk) } qw(a b c);
my ($a, $b, $c) = @node;
ZkLock::wait_connected(@node);

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

sub on { return Deadlocks::on(@_); }

# two, by name, and what is said
on($a)->query("BEGIN; SELECT zk_lock('x')");
on($b)->query("BEGIN; SELECT zk_lock('y')");
on($a)->send("SELECT zk_lock('y')");
on($b)->send("SELECT zk_lock('x')");
my ($victim, $said) = Deadlocks::ok_ring('two servers', on($a), on($b));
my %pid = map { $_ => on($_ eq 'a' ? $a : $b)->pid } qw(a b);
my ($me, $you) = $victim == on($a) ? qw(a b) : qw(b a);
my ($mine, $yours) = $me eq 'a' ? qw(x y) : qw(y x);
my $round = qq{Process $pid{$me} of server "$me" waits for lock "$yours", held by process $pid{$you} of server "$you"; process $pid{$you} of server "$you" waits for lock "$mine", held by process $pid{$me} of server "$me".};
like($said, qr/\Q$round\E/, '... goes all round');
like($said, qr/See server log for query details/, '... with a hint');
my $log = log_of($victim == on($a) ? $a : $b);
like($log, qr/\Q$round\E\n\tProcess $pid{$me}: SELECT zk_lock\('$yours'\)/, '... the log has the statement');
like($log, qr/process $pid{$me} still waiting for exclusive lock "$yours" after \d+\.\d{3} ms/, '... and that it was waiting');
like(log_of($victim == on($a) ? $b : $a), qr/process $pid{$you} acquired exclusive lock "$mine" after \d+\.\d{3} ms/, '... and of the other, that it was over');

# three
on($_->[0])->query("BEGIN; SELECT zk_lock('$_->[1]')") for [ $a, 'x' ], [ $b, 'y' ], [ $c, 'z' ];
on($_->[0])->send("SELECT zk_lock('$_->[1]')") for [ $a, 'y' ], [ $b, 'z' ], [ $c, 'x' ];
Deadlocks::ok_ring('three servers', map { on($_) } @node);

# one of them is paused: its worker says nothing before it goes on
on($_->[0])->query("BEGIN; SELECT zk_lock('$_->[1]')") for [ $a, 'x' ], [ $b, 'y' ], [ $c, 'z' ];
on($_->[0])->send("SELECT zk_lock('$_->[1]')")->wait_level(2) for [ $a, 'y' ], [ $b, 'z' ];
my $worker = ZkLock::ask($b, 'SELECT worker_pid FROM zk_session');
kill 'STOP', $worker or die "could not stop $worker: $!";
on($c)->send("SELECT zk_lock('x')");
# it may be the one who is ended, if server b has published before
ZkLock::wait_until(sub { !on($c)->busy || ZkLock::queue($zk, 'x') == 2 }, 'c waits');
kill 'CONT', $worker or die "could not continue $worker: $!";
Deadlocks::ok_ring('a worker was paused', map { on($_) } @node);

# the connection of one is lost meanwhile
on($_->[0])->query("BEGIN; SELECT zk_lock('$_->[1]')") for [ $a, 'x' ], [ $b, 'y' ];
on($a)->send("SELECT zk_lock('y')")->wait_level(2);
ZkLock::ask($b, 'SELECT pg_terminate_backend(worker_pid) FROM zk_session');
on($b)->send("SELECT zk_lock('x')");
Deadlocks::ok_ring('a worker was exchanged', on($a), on($b));

# shared: one of several readers
on($_)->query("BEGIN; SELECT zk_lock('x', 'shared')") for $a, $c;
on($b)->query("BEGIN; SELECT zk_lock('y')");
on($b)->send("SELECT zk_lock('x')")->wait_level(2);
on($c)->send("SELECT zk_lock('y', 'shared')")->wait_level(2);
on($a)->query('COMMIT');
Deadlocks::ok_ring('a reader and a writer', on($b), on($c));

# who waits behind somebody who waits
on($a)->query("BEGIN; SELECT zk_lock('x', 'shared')");
on($c)->query("BEGIN; SELECT zk_lock('y')");
on($b)->send("BEGIN; SELECT zk_lock('x')")->wait_level(2);
ZkLock::wait_queue($zk, 'x', 2);
on($c)->send("SELECT zk_lock('x', 'shared')")->wait_level(2);
on($a)->send("SELECT zk_lock('y')");
Deadlocks::ok_ring('a reader behind a writer who waits', map { on($_) } @node);

# both would write
on($_)->query("BEGIN; SELECT zk_lock('x', 'shared')") for $a, $b;
on($_)->send("SELECT zk_lock('x')") for $a, $b;
Deadlocks::ok_ring('two readers who would write', on($a), on($b));

# session scope stays after the error
on($a)->query("CALL zk_lock_session('x')");
on($b)->query("CALL zk_lock_session('y')");
on($a)->send("CALL zk_lock_session('y')");
on($b)->send("CALL zk_lock_session('x')");
Deadlocks::ok_ring('session scope', on($a), on($b));

# a job
on($a)->query("SELECT zk_lock('x', scope => 'session')");
on($b)->query("CALL zk_run_begin_session('j', every => '1 day', attempts => 2)");
on($a)->send("CALL zk_run_once('j', 'SELECT 1', every => '1 day', attempts => 2)");
on($b)->send("SELECT zk_lock('x')");
Deadlocks::ok_ring('a job', on($a), on($b));

ZkLock::ok_clean($zk, \@node, $_) for qw(x y z);
Deadlocks::ok_withdrawn($zk);
done_testing();
