# An election with Java programs in it, by Curator's LeaderLatch: both ways.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Java;
use Test::More;
use ZkLock;
use ZooKeeper;

plan skip_all => 'no Curator, or no JDK' unless Java::there();
Java::compile('Latch');

my $zk = ZooKeeper->new->start;
my %node = map { $_ => ZkLock::server($_, $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'") } qw(p q);
ZkLock::wait_connected(values %node);
sub is_leader { my $name = shift; return ZkLock::ask($node{$name}, "SELECT zk_is_leader('job', '1 h')"); }
sub candidates { return ZkLock::ask($node{p}, "SELECT ARRAY(SELECT server FROM zk_candidates('job'))"); }
sub wait_for { my ($code, $what) = @_; return ok(eval { ZkLock::wait_until($code, $what); 1 }, $what); }

# A program of this kind, and its answer to a line.  Its session is long, like those of the
# servers, unless it is there to expire.
my %java;

sub start
{
	my ($id, $timeout) = @_;
	$java{$id} = Java->start('Latch', $zk->hosts, '/zklock/elections/job', $id, $timeout // 3_600_000);
}

sub ask_java { my ($id, $line) = @_; return $java{$id}->ask($line); }

sub kill_program { my $id = shift; $java{$id}->kill; }

# A server leads, a program waits.
is(is_leader('p'), 't', 'a server leads');
start('java');
wait_for(sub { candidates() eq '{p,java}' }, 'a program queues behind it');
is(ask_java('java', 'has'), 'false', '... and does not lead');
is(ask_java('java', 'leader'), 'p', '... and knows who does');
is(is_leader('q'), 'f', 'another server queues behind the program');
is(ask_java('java', 'participants'), 'p java q', 'the program knows all of them');
is(candidates(), '{p,java,q}', '... and so do the servers');

ZkLock::ask($node{p}, "SELECT zk_resign('job')");
wait_for(sub { ask_java('java', 'has') eq 'true' }, 'the server resigns: the program leads');
is(ZkLock::ask($node{p}, "SELECT server FROM zk_candidates('job') WHERE is_leader"), 'java', '... as the servers see');
is(is_leader('p') . is_leader('q'), 'ff', '... of which none leads');
is(candidates(), '{java,q,p}', '... the first being the last now');

is(ask_java('java', 'close'), 'closed', 'the program ends');
wait_for(sub { is_leader('q') eq 't' }, '... and the next server leads');
is(is_leader('p'), 'f', '... and only that');

# The program crashes while it leads; a server does.
kill_program('java');
start('java2', 2000);
wait_for(sub { candidates() eq '{q,p,java2}' }, 'a new program is the last');
ZkLock::ask($node{$_}, "SELECT zk_resign('job')") for qw(q p);
wait_for(sub { ask_java('java2', 'has') eq 'true' }, '... and leads when the servers resign');
is_leader('p');
kill_program('java2');
wait_for(sub { is_leader('p') eq 't' }, 'the program is killed: the server leads, when its session has expired');
ZkLock::hang_up($node{p});
$node{p}->append_conf('postgresql.conf', "zklock.session_timeout = '2s'");
$node{p}->restart;
wait_for(sub { is_leader('p') eq 't' }, 'it leads after a restart');
start('java3');
wait_for(sub { candidates() =~ /java3/ }, 'a third program');
ZkLock::hang_up($node{p});
$node{p}->kill9;
wait_for(sub { ask_java('java3', 'has') eq 'true' }, 'the server is killed: the program leads, when its session has expired');

done_testing();
