# A server that rests: without a connection, without its credentials, and its worker's end.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Resting;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($p, $q) = Resting::servers($zk, 'p', 'q');
my ($sp, $sq) = map { ZkLock::session($_) } $p, $q;

# Whoever comes while there is no connection has what he asks for in the old session, and
# that has to prove its lease then: another one would take away what he has got.
$sq->query("SELECT zk_queue_put('q', 'x')");
rest($p);
$zk->stop;
ZkLock::wait_until(sub { ZkLock::ask($p, 'SELECT state FROM zk_session') ne 'connected' }, 'P has lost its connection');
$sp->send("BEGIN; SELECT payload, attempt FROM zk_queue_take('q', '1 h')");
$sp->wait_event('Extension');
$zk->start;
is($sp->result, 'x|1', 'an item is taken as the connection comes back');
is($sp->query('COMMIT'), '', '... and not lost');
is(ZkLock::ask($p, 'SELECT items_lost FROM zk_stat'), 0, '... nor counted as such');

# Settings that cannot be read are no reason to do without the session that there is.
my $file = PostgreSQL::Test::Utils::tempdir() . '/credentials';
sub write_file { PostgreSQL::Test::Utils::append_to_file($file, "digest r:s3cr3t\n"); chmod 0600, $file or die; return; }
write_file();
my $r = ZkLock::server('r', $zk, conf => "$conf\nzklock.root = '/closed'\nzklock.auth_file = '$file'");
ZkLock::wait_connected($r);
my $sr = ZkLock::session($r);
rest($r);
my $session = session_of($r);
unlink $file or die;
is($sr->query("BEGIN; SELECT zk_lock('a') > 0; COMMIT"), 't', 'a lock without the file of credentials');
is(session_of($r), $session, '... by the session that is there');
like(ZkLock::ask($r, 'SELECT last_error FROM zk_session'), qr/stays in use/, '... which is told');
write_file();
rest($r);
is($sr->query("BEGIN; SELECT zk_lock('a') > 0; COMMIT"), 't', 'a lock when it is there again');
isnt(session_of($r), $session, '... by a new session');

# The worker's successor goes on.
rest($p);
my $pid = ZkLock::ask($p, 'SELECT worker_pid FROM zk_session');
kill 'TERM', $pid or die;
ZkLock::wait_until(sub { my $now = ZkLock::ask($p, 'SELECT worker_pid FROM zk_session'); $now ne '' && $now != $pid }, 'another worker');
is($sp->query("BEGIN; SELECT zk_lock('b') > 0; COMMIT"), 't', 'a lock by its successor');

done_testing();
