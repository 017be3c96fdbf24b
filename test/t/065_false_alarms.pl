# What looks like an ensemble that went back, and is none, costs whom it concerns and nobody
# else; and who waits makes nobody wait again.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils ();
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $tokens = '/zklock/tokens';
my $proxy = Proxy->new($zk->host);
# No session expires, on a machine that stands still for some seconds; a wait lasts as long.
my ($a, $b) = map { ZkLock::server(@$_, conf => "zklock.session_timeout = '15s'") } [ 'a', $proxy ], [ 'b', $zk ];
ZkLock::wait_connected($a, $b);

sub count { my ($node, $what) = @_; return scalar(() = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /$what/g); }
sub findings { return count($_[0], 'WARNING:  ZooKeeper ensemble went back to an earlier state'); }

sub next_worker
{
	my ($node, $worker) = @_;
	kill 'TERM', $worker or die;
	ZkLock::wait_until(sub { my $now = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session'); $now ne '' && $now != $worker }, 'another worker');
}

# The znode of one goes while it has no connection.  A worker that is told to end works on for
# a moment: one that had a connection might make it anew.
my $held = ZkLock::session($b);
$held->query('BEGIN');
my $token = $held->query("SELECT zk_lock('held')");
my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
$proxy->down;
ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'the connection is lost');
my ($member) = grep { /^a-/ } $zk->children('/zklock/servers');
$zk->delete("/zklock/servers/$member");
next_worker($a, $worker);
$proxy->heal;
ZkLock::wait_until(sub { findings($a) == 1 }, 'a waits');
ZkLock::wait_until(sub { count($a, 'locks are granted again') == 1 }, 'its wait is over');
ZkLock::wait_connected($a);
is($zk->get($tokens), 0, 'a server whose znode was deleted raises nothing');
is($held->query("SELECT zk_assert('held')"), $token, '... and another one goes on');

# The base is deleted while it is 0, and nobody asks for a lock: heartbeats of those who hold
# one make it anew.
my $other = ZkLock::session($a);
$other->query("BEGIN; SELECT zk_lock('other')");
$zk->delete($tokens);
ZkLock::wait_until(sub { $zk->stat($tokens) && grep { $_ eq $tokens } $zk->watches }, 'it is there again, and watched');
$_->query('COMMIT') for $held, $other;
cmp_ok(ZkLock::session($a)->query('SELECT zk_raise_tokens(50000000)'), '>', 49000000, 'the base is raised after it was made anew');
ZkLock::wait_until(sub { findings($a) == 2 && findings($b) == 1 }, 'both have noticed');
ZkLock::wait_connected($a, $b);
my $first = ZkLock::session($a)->query("SELECT zk_lock('job')");
cmp_ok($first, '>', 50000000, '... tokens are above it');
cmp_ok(ZkLock::session($b)->query("SELECT zk_lock('job')"), '>', $first, '... on both servers');

# Somebody writes the base as it is, while there is much to do.
my $holder = ZkLock::session($b);
$holder->query("BEGIN; SELECT zk_lock('held')");
my @busy = map { ZkLock::session($b) } 1 .. 4;
for my $i (0 .. $#busy)
{
	$busy[$i]->send("DO \$\$ BEGIN LOOP PERFORM zk_lock('x$i', 'exclusive', 'session'); PERFORM zk_unlock('x$i'); END LOOP; END \$\$");
}
# One that was not there yet would not hear of the cancel.
my $at_it = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid IN (" . join(', ', map { $_->pid } @busy) . ')';
ZkLock::wait_until(sub { ZkLock::ask($b, $at_it) == @busy }, 'all of them are busy');
my $base = $zk->get($tokens);
for (1 .. 5)
{
	$zk->set($tokens, $base);
	my $before = ZkLock::ask($b, 'SELECT acquired_local + acquired_kept + acquired_cold FROM zk_stat');
	ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT acquired_local + acquired_kept + acquired_cold > $before + 10 FROM zk_stat") eq 't' }, 'locks are given');
}
is($holder->fails('COMMIT'), '', 'a hold outlives that');
$_->cancel for @busy;
$_->failure for @busy;
is(findings($b), 1, '... and nobody waits');

# A server without memory waits, and is restarted meanwhile.
my $d = ZkLock::server('d', $zk, conf => "zklock.session_timeout = '10min'\nzklock.connect_timeout = '1s'", start => 0);
$d->start;
ZkLock::wait_until(sub { findings($d) == 1 && PostgreSQL::Test::Utils::slurp_file($d->data_dir . '/zklock.history') =~ /^mended 1$/m }, 'd waits');
$base = $zk->get($tokens);
for my $n (1 .. 3)
{
	$d->stop('immediate');
	$d->start;
	ZkLock::wait_until(sub { count($d, 'went back to an earlier state before this server started') == $n }, "it still waits, $n");
}
is($zk->get($tokens), $base, 'a restart in the wait raises nothing');
is(findings($a) . findings($b), '21', '... and makes nobody wait');
ZkLock::ask($d, 'CREATE EXTENSION zklock');
my $asks = ZkLock::session($d);
ZkLock::wait_until(sub { ZkLock::ask($d, 'SELECT state FROM zk_session') eq 'went back' }, 'd waits');
$asks->fails("SELECT zk_lock('job')");
like($asks->notices, qr/^DETAIL:  Connect string "\Q@{[ $zk->hosts ]}\E": the ensemble went back/m, 'whoever asks for a lock is told of which ensemble');

# The file of one that waits cannot be written at first, and its worker ends.
my $f = ZkLock::server('f', $zk, conf => "zklock.session_timeout = '1h'", start => 0);
mkdir $f->data_dir . '/zklock.history.new' or die;
$f->start;
ZkLock::wait_until(sub { count($f, 'could not create file "zklock.history') == 1 }, 'f cannot write its file');
ZkLock::ask($f, 'CREATE EXTENSION zklock');
my $pid = ZkLock::ask($f, 'SELECT worker_pid FROM zk_session');
kill 'TERM', $pid;
ZkLock::wait_until(sub { ZkLock::ask($f, "SELECT worker_pid <> $pid AND state = 'went back' FROM zk_session") eq 't' }, 'its next worker waits');
rmdir $f->data_dir . '/zklock.history.new' or die;
ok(eval { ZkLock::wait_until(sub { -e $f->data_dir . '/zklock.history' && PostgreSQL::Test::Utils::slurp_file($f->data_dir . '/zklock.history') =~ /^wait 3600000$/m }, 'the file is there') },
	'a file that could not be written is written in the wait');
ZkLock::hang_up($f);
$f->stop;
chmod 0, $f->data_dir . '/zklock.history' or die;
$f->start;
ok(eval { ZkLock::wait_until(sub { count($f, 'could not open file "zklock.history": .*\n.* DETAIL:  This server does not remember') == 1 }, 'f says so') },
	'one that cannot be read is told of, and what that means');

# Rubbish for a base is no matter of credentials, not even for the next worker.
my $rubbish = 'could not read the base of fencing tokens';
$zk->set($tokens, 'rubbish');
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT last_error ~ '^$rubbish' FROM zk_session") eq 't' }, 'b notices the rubbish');
$pid = ZkLock::ask($b, 'SELECT worker_pid FROM zk_session');
kill 'TERM', $pid;
my %state;
ZkLock::wait_until(sub { $state{ ZkLock::ask($b, 'SELECT state FROM zk_session') }++; grep { $_ != $pid } PostgreSQL::Test::Utils::slurp_file($b->logfile) =~ /\[(\d+)\] LOG:  $rubbish/g }, 'so does its next worker');
is($state{'authentication failed'}, undef, 'a base that cannot be read is no matter of credentials');
$zk->set($tokens, $base);
ZkLock::ask($_, 'SELECT pg_reload_conf()') for $a, $b;    # they look again at once
ZkLock::wait_connected($a, $b);

# A chroot path that was wiped is named, and a file that cannot be written, once by each worker.
my $wiped = ZooKeeper->new->start;
$wiped->create('/app');
my $e = ZkLock::server('e', $wiped->hosts . '/app', conf => "zklock.session_timeout = '30s'\nzklock.connect_timeout = '1s'", start => 0);
my $file = $e->data_dir . '/zklock.history';
mkdir $file or die;
$e->start;
ZkLock::ask($e, 'CREATE EXTENSION zklock');
ZkLock::wait_connected($e);
ZkLock::session($e)->query("SELECT zk_lock('job' || i, 'exclusive', 'session') FROM generate_series(1, 20) AS i");
$wiped->kill9->wipe->start;
my $missing = 'could not create znode "/zklock/servers/[^"]*": a chroot path in "zklock.hosts" must exist';
# It may come to that before it has noticed that the ensemble went back.
ZkLock::wait_until(
	sub { ZkLock::ask($e, "SELECT state || ': ' || last_error FROM zk_session") =~ /^went back: .*$missing/ },
	'a chroot path that is missing keeps the server waiting, and last_error names it', sub { ZkLock::ask($e, 'SELECT state, last_error FROM zk_session') });
my $waiter = ZkLock::session($e);
$waiter->fails("SELECT zk_lock('job')");
like($waiter->notices, qr/^DETAIL:  .*$missing/m, '... and whoever asks for a lock is told');
$wiped->create('/app');
ZkLock::wait_connected($e);
pass('... until it is made');
my %told;
$told{$_}++ for PostgreSQL::Test::Utils::slurp_file($e->logfile) =~ /\[(\d+)\] LOG:  could not (?!read)\w+ file "zklock\.history/g;
is_deeply([ grep { $_ > 1 } values %told ], [], 'a file that cannot be written is told of once');
cmp_ok(scalar keys %told, '>', 0, '... by each worker');
done_testing();
