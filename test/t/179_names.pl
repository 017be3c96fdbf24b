# Names of hosts that do not resolve, or have no answer: the worker goes on meanwhile, and nobody
# waits for the resolver.
use strict;
use warnings;

use Proxy;
use Resolver;
use Test::More;
use ZkLock;

sub zk_session { my ($node, $columns) = @_; return ZkLock::ask($node, "SELECT $columns FROM zk_session"); }
sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

my $zk = ZooKeeper->new->start;
my $resolver = Resolver->new('zk.test', '127.0.0.1') or plan skip_all => 'no compiler';
my $conf = "zklock.session_timeout = '4s'";

sub server
{
	my ($name, $hosts) = @_;
	local @ENV{ $resolver->names } = $resolver->values;
	return ZkLock::server($name, $hosts, conf => $conf);
}

sub start
{
	my $node = shift;
	local @ENV{ $resolver->names } = $resolver->values;
	$node->start;
}

# "fast": what hangs for ever would be waited for in vain.
sub ok_stop
{
	my ($what, $node) = @_;
	ZkLock::hang_up($node);
	$node->stop('fast');
	pass("$what: a fast shutdown");
	unlike(log_of($node), qr/was terminated by signal|received immediate shutdown/, '... is one');
}

#
# No answer from the beginning
#
$resolver->hang;
my $proxy = Proxy->new($zk->host);
my $node = server('hangs', 'zk.test:' . $proxy->port);
ZkLock::wait_until(sub { zk_session($node, 'last_error') ne '' }, 'it is told');
like(zk_session($node, 'last_error'), qr/^could not use ZooKeeper connect string "zk\.test:\d+": the name service has not answered yet$/, 'no answer: last_error');
my $s = ZkLock::session($node);
is($s->fails("SET zklock.connect_timeout = '100ms'; SELECT zk_lock('job')"), '58000: could not reach ZooKeeper within 100 ms', '... no lock');
like($s->notices, qr/^DETAIL:  Connect string "zk\.test:\d+": the name service has not answered yet\.$/m, '... since it has not answered');
ok_stop('no answer', $node);

# ... and another host beside it
start($node);
$s = ZkLock::session($node);
$resolver->set('127.0.0.1');
$s->query("SET zklock.connect_timeout = '1h'");
is($s->query("SELECT zk_try_lock('job')"), 't', 'an answer: a lock');
$resolver->hang;
ZkLock::ask($node, "ALTER SYSTEM SET zklock.hosts = 'zk.test:1," . $proxy->host . "'");
my $worker = zk_session($node, 'worker_pid');
ZkLock::ask($node, 'SELECT pg_reload_conf()');
ZkLock::wait_until(sub { zk_session($node, "worker_pid <> $worker AND state = 'connected'") eq 't' }, 'another worker');
is($s->query("SELECT zk_try_lock('job')"), 't', 'no answer, and another host: a lock');
ok_stop('connected to another host', $node);

#
# No answer when there was one
#
$resolver->set('127.0.0.1');
$node = server('hung', 'zk.test:' . $proxy->port);
ZkLock::wait_connected($node);
$resolver->hang;
# A new session, when it has rested.
my $id = zk_session($node, 'session_id');
ZkLock::wait_until(sub { zk_session($node, "lease_remaining <= '0'") eq 't' }, 'it rests, and the lease has lapsed');
$s = ZkLock::session($node);
is($s->query("SELECT zk_lock('held', scope => 'session') > 0"), 't', 'rested: a lock');
isnt(zk_session($node, 'session_id'), $id, '... in a new session, by the address that is known');
# An outage in which the name is asked for, and heartbeats after it.
ZkLock::ask($node, "ALTER SYSTEM SET zklock.session_timeout = '20s'");
$s->query("SELECT zk_unlock_all()");
$s->quit;
ok_stop('it was asked for nothing', $node);
$resolver->set('127.0.0.1');
start($node);
ZkLock::wait_connected($node);
$resolver->hang;
$s = ZkLock::session($node);
my $token = $s->query("SELECT zk_lock('held', scope => 'session')");
$id = zk_session($node, 'session_id');
$proxy->down;
ZkLock::wait_until(sub { log_of($node) =~ /trying again with a new handle/ }, 'another handle');
$proxy->accept;
ZkLock::wait_connected($node);
is(zk_session($node, 'session_id'), $id, 'an outage: the session goes on, by the address that is known');
is($s->query("SELECT zk_assert('held')"), $token, '... with its lock');
my ($own) = grep { /^hung-/ } $zk->children('/zklock/servers');
my $writes = sub { $zk->stat("/zklock/servers/$own")->{version} };
my $before = $writes->();
ZkLock::wait_until(sub { $writes->() > $before + 2 }, 'heartbeats go on');
pass('... and heartbeats go on');
$s->quit;
ok_stop('asked for in vain', $node);

#
# No such name
#
$resolver->set('');
$node = server('none', 'zk.test:' . $proxy->port);
ZkLock::wait_until(sub { zk_session($node, 'last_error') =~ /translate/ }, 'it is told');
like(zk_session($node, 'last_error'), qr/^could not use ZooKeeper connect string "zk\.test:\d+": could not translate host name "zk\.test" to address: /, 'no such name: last_error');
is(scalar(() = log_of($node) =~ /could not translate/g), 1, '... once in the log');
ok_stop('no such name', $node);
start($node);
$resolver->set('127.0.0.1');
ZkLock::wait_connected($node);
$s = ZkLock::session($node);
is($s->query("SELECT zk_try_lock('job')"), 't', 'a name that comes: a lock');
$s->quit;
ok_stop('connected', $node);

done_testing();
