# zk_check: what is wrong is a row that says so, and what to do; nothing is an error.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils qw(slurp_file);
use FindBin;
use IO::Select;
use IO::Socket::INET;
use POSIX ();
use Proxy;
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.max_locks = 50\nzklock.connect_timeout = '20s'") } 'a', 'b';
ZkLock::wait_connected($a, $b);
my $sa = ZkLock::session($a);

# The rows of a thing: ok|detail|hint
sub rows { my ($s, $what, $role) = @_; return $s->query("SELECT ok, detail, hint FROM zk_check(" . ($role ? "'$role'" : '') . ") WHERE what = '$what'"); }
sub set { my ($node, %to) = @_; ZkLock::ask($node, "ALTER SYSTEM SET $_ = '$to{$_}'") for keys %to; $node->reload; return; }

# All is well
is($sa->query("SELECT string_agg(what, ' ') FROM zk_check() WHERE ok"), 'worker host version write clock root table server name zklock version rights',
	'all is well') or diag $sa->query('SELECT * FROM zk_check()');
is($sa->query('SELECT count(*) FROM zk_check() WHERE ok AND hint IS NOT NULL'), 0, '... and nothing is to be done');
like(rows($sa, 'host'), qr/^t\|\S+:\d+: ZooKeeper \d+\.\d+\.\d+, standalone\|$/, 'a host says which version it is');
like(rows($sa, 'version'), qr/^t\|the oldest that is known is \S+: ZooKeeper \d/, '... so does the row of versions');
like(rows($sa, 'access'), qr/^\|what zklock makes in ZooKeeper is open to every client\|Set "zklock\.auth_file", unless/, 'whether a stranger comes cannot be told');

# A dead host in the list, and a name that is none
my $dead = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
my $worker = $sa->query('SELECT worker_pid FROM zk_session');
set($a, 'zklock.hosts' => $zk->host . ",$dead,no-such-host.invalid:2181");
ZkLock::wait_until(sub { $sa->query("SELECT state = 'connected' AND hosts LIKE '%invalid%' AND worker_pid <> $worker FROM zk_session") eq 't' }, 'another list');
like(rows($sa, 'host'), qr/^f\|\Q$dead\E: Connection refused\|Start this ZooKeeper server, or take it out/m, 'a dead host is found out');
ZkLock::wait_until(sub { rows($sa, 'host') =~ /^f\|no-such-host\.invalid:2181: .*no-such-host.*\|Check the name in "zklock\.hosts"/m }, 'a name that does not resolve is, too');
like(rows($sa, 'host'), qr/^t\|/m, '... beside one that answers');
like(rows($sa, 'version'), qr/^\|.*\|Check the versions of the other ZooKeeper servers/, '... and not all versions are known');
like(rows($sa, 'write'), qr/^t\|/, '... though a write is acknowledged');
set($a, 'zklock.hosts' => $zk->host);
ZkLock::wait_until(sub { $sa->query("SELECT state = 'connected' AND hosts NOT LIKE '%invalid%' FROM zk_session") eq 't' }, 'the list as it was');
is($sa->query("SELECT bool_and(ok) FROM zk_check() WHERE what = 'host'"), 't', '... after which all is well');

# A host that runs: there is nothing to start
my $three = ZooKeeper->new(name => 'three', servers => 3)->start_nowait(1);
my $deaf = Proxy->new($dead);
set($a, 'zklock.hosts' => join ',', $zk->host, $three->host(1), $deaf->host);
my $hosts;
ok(eval { ZkLock::wait_until(sub { ($hosts = rows($sa, 'host')) =~ /^f\|\Q@{[ $three->host(1) ]}\E: it serves nobody: it starts, or has no majority of the ensemble\|Wait until it has started\. If this lasts, start the other ZooKeeper servers of its ensemble\.$/m }, 'alone', sub { $hosts }) },
	'a host without a majority') or diag $hosts;
like($hosts, qr/^f\|\Q@{[ $deaf->host ]}\E: it hung up without an answer\|Check that the port is right\. If it is, see the log of this ZooKeeper server/m, 'a host that hangs up');
$three->start(2, 3);
ok(eval { ZkLock::wait_until(sub { rows($sa, 'host') =~ /^t\|\Q@{[ $three->host(1) ]}\E: ZooKeeper /m }, 'served') }, '... whose others were started');

# A host that is stopped takes connections, and says nothing
$sa->query("SET zklock.connect_timeout = '1s'");
$three->pause(1);
like(rows($sa, 'host'), qr/^f\|\Q@{[ $three->host(1) ]}\E: no answer\|Check that this machine can reach this ZooKeeper server, and that it is not stopped or overloaded\.$/m, 'a host that is silent');
$three->resume(1);
ok(eval { ZkLock::wait_until(sub { rows($sa, 'host') =~ /^t\|\Q@{[ $three->host(1) ]}\E: ZooKeeper /m }, 'goes on') }, '... and goes on');
$sa->query('RESET zklock.connect_timeout');

# A host that resets connections, whether that comes before our question or after it
my $resets = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64) or die "could not listen: $!";
my $hasty = '127.0.0.1:' . $resets->sockport;
my $resetter = open(my $alive, '|-') // die "could not fork: $!";
if (!$resetter)
{
	my $both = IO::Select->new($resets, \*STDIN);
	until (grep { $_ == \*STDIN } $both->can_read)
	{
		my $taken = $resets->accept;
		setsockopt $taken, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
		close $taken;
	}
	POSIX::_exit(0);
}
$resets->close;
set($a, 'zklock.hosts' => join ',', $zk->host, $hasty);
ZkLock::wait_until(sub { $sa->query("SELECT hosts LIKE '%$hasty' FROM zk_session") eq 't' }, 'the list with a host that resets');
my %said;
$said{ ($sa->query("SELECT detail FROM zk_check() WHERE what = 'host' AND NOT ok")) }++ for 1 .. 100;
is_deeply([ keys %said ], ["$hasty: it hung up without an answer"], 'a host that resets connections') or diag explain \%said;
close $alive;
set($a, 'zklock.hosts' => $zk->host);
ZkLock::wait_until(sub { $sa->query('SELECT hosts FROM zk_session') eq $zk->host && $sa->query('SELECT state FROM zk_session') eq 'connected' }, 'the list as it was');
$_->stop for $deaf, $three;

# A worker that is stopped: the ensemble is all right, and no hint says that it is not
$worker = ZkLock::stop_process($a, $sa->query('SELECT worker_pid FROM zk_session'));
$sa->query("SET zklock.connect_timeout = '100ms'");
like(rows($sa, 'write'), qr/^f\|was not acknowledged within 100 ms\|.* the worker is not stopped\.$/, 'a worker that is stopped');
like(rows($sa, 'clock'), qr/^\|.*\|Do first what "write" says\.$/, '... and the clock is not known');
like(rows($sa, 'server name'), qr/^\|could not reach ZooKeeper within 100 ms\. The zklock worker \(PID \d+\) .*\|Check whether that process is stopped/, '... nor who is there, with a hint');
kill 'CONT', $worker;
$sa->query('RESET zklock.connect_timeout');
ZkLock::wait_until(sub { rows($sa, 'write') =~ /^t/ }, 'it goes on');

# A full table
my $full = ZkLock::session($a);
$full->query("SELECT zk_lock('f' || i, scope => 'session') FROM generate_series(1, 48) i");
like(rows($sa, 'table'), qr/^f\|\d+ of 50 names in use, \d+ of them kept for nobody\|Increase "zklock\.max_locks"/, 'a table that is nearly full');
$full->query('SELECT zk_unlock_all()');
# which the worker does when their contenders are deleted
ok(ZkLock::wait_until(sub { rows($sa, 'table') =~ /^t\|/ }, 'room'), '... and is not when its names are given back, or kept');

# One name twice
my $third = ZkLock::server('c', $zk, conf => "zklock.server_name = 'a'");
ZkLock::wait_connected($third);
set($a, 'zklock.server_name' => 'a');
ZkLock::wait_until(sub { rows($sa, 'server name') =~ /^f\|a is the name of 2 servers, on .*\|Give each server a "zklock.server_name"/ }, 'two servers of one name');
$third->stop;
ZkLock::wait_until(sub { rows($sa, 'server name') =~ /^t\|/ }, '... until one has gone');

# A worker that is replaced is no trouble: whoever does what a hint says, and looks at once, is
# not told to do something else.
for my $hosts ($zk->host . ',' . $zk->host, $zk->host, $zk->host . ',' . $zk->host, $zk->host)
{
	$sa->query("ALTER SYSTEM SET zklock.hosts = '$hosts'");
	$sa->query('SELECT pg_reload_conf()');
	is($sa->query('SELECT what, detail, hint FROM zk_check() WHERE NOT ok'), '', "hosts are $hosts now, and nothing is wrong");
}

# Another root is set
like(rows($sa, 'root'), qr{^t\|"/zklock" is in use\|$}, 'the root');
set($a, 'zklock.root' => '/other');
ZkLock::wait_until(sub { rows($sa, 'root') =~ m{^f\|"/zklock" is in use, and "/other" is set\|Set "zklock\.root" back and reload\. To use another root, stop all servers that share it, change the setting on each, and start them\.$} }, 'another root');
set($a, 'zklock.root' => '/zklock');
ok(ZkLock::wait_until(sub { rows($sa, 'root') =~ /^t/ }, 'the root as it was'), '... was set back');

# Another version in the fleet
$zk->create('/zklock/servers/old', data => '{"server":"old","host":"x","pid":1,"zklock":"0.9"}', ephemeral => 0);
like(rows($sa, 'zklock version'), qr/^f\|0\.9 on 1, \S+ on 2\|Install the same version/, 'another version');
$zk->delete('/zklock/servers/old');

# Rights
$sa->query("CREATE ROLE $_ LOGIN") for qw(nothing partly all_of_it watcher);
$sa->query("CALL zk_grant('all_of_it'); CALL zk_grant('watcher', 'look'); GRANT EXECUTE ON FUNCTION zk_lock TO partly");
like(rows($sa, 'rights', 'nothing'), qr/^\|role "nothing" may not use zklock\|If the role is to use zklock, CALL public\.zk_grant\('nothing'\)\.$/, 'a role without rights');
like(rows($sa, 'rights', 'partly'), qr/^f\|role "partly" may not use zk_acquire, .*zk_try_lock_all\|If/, '... with some of them');
is(rows($sa, 'rights', 'all_of_it'), 't|role "all_of_it" may use zklock|', '... with all');
my ($call) = rows($sa, 'rights', 'partly') =~ /(CALL .*)\.$/;
$sa->query($call);
is(rows($sa, 'rights', 'partly'), 't|role "partly" may use zklock|', '... which the hint gives');
my $watcher = ZkLock::session($a, user => 'watcher');
is($watcher->query('SELECT string_agg(what, \' \') FROM zk_check() WHERE NOT ok'), '', 'who may look may check');
like(rows($watcher, 'rights'), qr/^\|role "watcher" may not use zklock\|/, '... his own rights, unless he names others');
like(ZkLock::session($a, user => 'partly')->fails('SELECT * FROM zk_check()'), qr/^42501: permission denied for function zk_check/, 'nobody else');
is($sa->fails("SELECT * FROM zk_check('missing')"), '42704: role "missing" does not exist', 'a role that is not there');

# Znodes that strangers can change
my $file = PostgreSQL::Test::Utils::tempdir() . '/auth';
PostgreSQL::Test::Utils::append_to_file($file, "digest zklock:s3cr3t\n");
chmod 0600, $file or die;
my $mine = ZkLock::server('d', $zk, conf => "zklock.root = '/mine'");
ZkLock::wait_connected($mine);
ZkLock::ask($mine, "SELECT zk_try_lock('x')");
sub access { return rows(ZkLock::session($mine), 'access'); }
sub start_anew { ZkLock::hang_up($mine); $mine->restart; ZkLock::wait_connected($mine); return; }
set($mine, 'zklock.auth_file' => $file);
ok(ZkLock::wait_until(sub { access() =~ /^\|znodes that were made without credentials may be open to every client\|Restart the server/ }, 'looked at'),
	'what was made before there were credentials is not known');
start_anew();
ok(ZkLock::wait_until(sub { access() =~ m{^f\|znode "/mine" is open to every client\|Set its ACL by ZooKeeper's setAcl -R} }, 'open'), '... until the server is started anew');

# One that has no credentials yet may not read the znode of one that has
my $theirs = ZkLock::server('theirs', $zk, conf => "zklock.root = '/mine'");
ZkLock::wait_connected($theirs);
sub version { return rows(ZkLock::session($theirs), 'zklock version'); }
like(version(), qr/^\|\S+ on 1, unknown on 1\|Look in zk_servers for the znode without a version\. .* give all servers the same credentials in "zklock\.auth_file"\.$/, 'a version that may not be read is no other version');
ZkLock::set($theirs, 'zklock.auth_file', $file);
ok(ZkLock::wait_until(sub { version() =~ /^t\|\S+ on 2\|$/ }, 'read'), '... and may be read as the hint says');
ZkLock::hang_up($theirs);
$theirs->stop;

my $owner = $zk->client(auth => [ digest => 'zklock:s3cr3t' ]);
my @open = ('/mine');
while (defined(my $path = shift @open))
{
	$owner->set_acl($path, [ 31, 'auth', '' ]);
	push @open, map { "$path/$_" } @{ $owner->children($path) };
}
start_anew();
ok(ZkLock::wait_until(sub { access() =~ /^t\|only these credentials/ }, 'closed'), '... and all is well when that was done');

# An answer that is lost is no answer
$owner->set_acl('/mine', [ 31, 'world', 'anyone' ]);
my $proxy = Proxy->new($zk->host);
$mine->append_conf('postgresql.conf', "zklock.hosts = '" . $proxy->host . "'");
ZkLock::hang_up($mine);
$mine->stop;
my $lost = $proxy->lost;
$proxy->lose_reply('op6', '/mine');
$mine->start;
ok(ZkLock::wait_until(sub { $proxy->lost > $lost && access() =~ m{^f\|znode "/mine" is open to every client\|} }, 'open'), 'what was not answered is asked for again');
ZkLock::hang_up($mine);
$mine->stop;

# A root where the server may not write
$zk->create('/locked');
$zk->admin->set_acl('/locked', [ 17, world => 'anyone' ]);
my $locked = ZkLock::server('e', $zk, conf => "zklock.root = '/locked'\nzklock.connect_timeout = '1s'");
my $sl = ZkLock::session($locked);
ok(ZkLock::wait_until(sub { $sl->query('SELECT state, last_error FROM zk_session') =~ m{^connected\|.* on /locked.*: not authenticated$} }, 'refused'), 'connected to an ensemble where it may not write');
like(rows($sl, 'write'), qr{^f\|.*see last_error in zk_session\.$}, '... no write');
my $version;
ok(eval { ZkLock::wait_until(sub { ($version = rows($sl, 'zklock version')) eq '|no server has written its znode|See last_error in zk_session.' }, 'told', sub { $version }) },
	'... and no znode of this server') or diag $version;
like($sl->fails("SET zklock.connect_timeout = '1ms'; SELECT zk_lock('x')"), qr/^58000: could not reach ZooKeeper within 1 ms/, '... nothing in a hurry');
like($sl->notices, qr/^DETAIL:  ZooKeeper server \S+ has not acknowledged a write yet\.\nHINT:  If this lasts, see last_error in zk_session\.$|has had no write acknowledged/m, '... with a hint');
$sl->query("SET zklock.connect_timeout = '1h'");
like($sl->fails("SELECT zk_lock('x')"), qr/^58000: could not create the directory of lock "x"/, '... no lock');
like($sl->notices, qr/^HINT:  Check the permissions of "zklock\.root"\./m, '... with a hint');
$zk->admin->set_acl('/locked', [ 31, world => 'anyone' ]);
$locked->restart;
$sl = ZkLock::session($locked);
ZkLock::wait_connected($locked);
ok(eval { ZkLock::wait_until(sub { $sl->query("SELECT bool_and(ok) FROM zk_check() WHERE what <> 'access'") eq 't' }, 'well') }, '... until it may');
$locked->stop;

# The ensemble is gone
$zk->stop;
$sa->query("SET zklock.connect_timeout = '1s'");
ZkLock::wait_until(sub { $sa->query("SELECT state <> 'connected' FROM zk_session") eq 't' }, 'the connection is lost');
like(rows($sa, 'write'), qr/^f\|.+\|Check that the ZooKeeper servers run, /, 'no ensemble: no write');
like(rows($sa, 'host'), qr/^f\|.*refused\|/, '... and no host');
is(rows($sa, 'version'), '|no ZooKeeper server says which version it is|Do first what "host" says.', '... nor a version');
like(rows($sa, 'clock'), qr/^\|/, '... of the clock nothing is known');
$zk->start;

# No worker: a server that does not preload
my $bare = PostgreSQL::Test::Cluster->new('bare');
$bare->init;
$bare->start;
ZkLock::ask($bare, 'CREATE EXTENSION zklock');
is(ZkLock::ask($bare, 'SELECT what, ok, hint FROM zk_check() ORDER BY ok'),
	"worker|f|Add zklock to \"shared_preload_libraries\" and restart the server.\nrights|t|", 'not preloaded');

done_testing();
