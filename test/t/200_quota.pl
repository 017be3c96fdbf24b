# An ensemble that enforces quotas, and one that zklock has come to: the error says so, its
# hint helps, and nothing is left behind.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(conf => { enforceQuota => 'true', skipACL => 'yes' })->start;
my $node = ZkLock::server('a', $zk);
ZkLock::wait_connected($node);
my $s = ZkLock::session($node);
$s->query("SELECT zk_lock('warm')");
ZkLock::ask($node, "SELECT zk_queue_put('warm', 'up')");
my $admin = $zk->client;

# As setquota and delquota of ZooKeeper's zkCli.sh do it (SetQuotaCommand.java, createQuota;
# DelQuotaCommand.java).  The numbers are of nodes, the path's own included, and of bytes;
# -1 is no limit.
sub setquota
{
	my ($path, $nodes, $bytes) = @_;
	$bytes //= -1;
	my $quota = "/zookeeper/quota$path";
	my $data = "count=-1,bytes=-1=;byteHardLimit=$bytes;countHardLimit=$nodes";
	return $admin->set("$quota/zookeeper_limits", $data) if $admin->exists("$quota/zookeeper_limits");
	$admin->create("$quota/zookeeper_limits", data => $data, parents => 1);
	$admin->create("$quota/zookeeper_stats", data => 'count=0,bytes=0');
}

sub delquota
{
	my ($path) = @_;
	$admin->delete("/zookeeper/quota$path/$_") for qw(zookeeper_limits zookeeper_stats);
}

my $hint = q(HINT:  Find the quota of "zklock.root", or of a znode above or below it, with ZooKeeper's listquota, and raise it with setquota or remove it with delquota.);
my %request = (
	"SELECT zk_lock('new')" => 'lock "new"',
	"SELECT zk_acquire('new', 2)" => 'semaphore "new"',
	"SELECT zk_lock_all('new', 'other')" => 'lock "(?:new|other)"',
	"SELECT zk_queue_put('new', 'item')" => 'queue "new"',
	"CALL zk_barrier('new', 2)" => 'barrier "new"');
for my $case ([ 'removed', \&delquota ], [ 'raised', sub { setquota($_[0], 10_000) } ])
{
	my ($how, $help) = @$case;
	setquota('/zklock', 1);
	for my $sql (sort keys %request)
	{
		like($s->fails($sql), qr/^58000: ZooKeeper refused the request for $request{$sql}: quota exceeded/, "$sql beyond a quota");
		like($s->notices, qr/^\Q$hint\E$/m, '... has a hint');
	}
	like(ZkLock::ask($node, 'SELECT last_error FROM zk_session'), qr/: quota exceeded$/, '... and zk_session says it');
	$help->('/zklock');
	is($s->fails($_), '', "$_ when it was $how") for grep { !/barrier/ } sort keys %request;
	delquota('/zklock') if $how eq 'raised';
}

# A limit of bytes refuses each heartbeat that says something new of the server.  It costs
# nobody what he has.
my $proxy = Proxy->new($zk->host);
my $short = ZkLock::server('short', $proxy, conf => "zklock.session_timeout = '20s'");
ZkLock::wait_connected($short);
my $holder = ZkLock::session($short);
my $token = $holder->query("SELECT zk_lock('held', scope => 'session')");
setquota('/zklock', -1, 1);
ZkLock::set($short, 'zklock.drain', 'on');
ZkLock::wait_until(sub { ZkLock::ask($short, 'SELECT last_error FROM zk_session') =~ /: quota exceeded$/ }, 'a heartbeat is refused');
like($holder->query("SELECT ok, detail, hint FROM zk_check() WHERE what = 'write'"), qr/^f\|ZooKeeper refused it: quota exceeded\|\Q@{[ $hint =~ s{^HINT:  }{}r ]}\E$/, 'zk_check says so, too');
for my $when ('', ', also on another connection', ', also when the lease has lapsed', ', also when it has another name')
{
	ZkLock::set($short, 'zklock.server_name', 'renamed') if $when =~ /name/;
	$proxy->cut if $when =~ /connection/;
	if ($when =~ /lapsed/)
	{
		$proxy->hole;
		ZkLock::wait_until(sub { ZkLock::ask($short, "SELECT lease_remaining = '0' FROM zk_session") eq 't' }, 'the lease has lapsed');
		$proxy->heal;
	}
	my $lease = ZkLock::ask($short, 'SELECT now() + lease_remaining FROM zk_session');
	ZkLock::wait_until(sub { ZkLock::ask($short, "SELECT now() > '$lease'::timestamptz") eq 't' }, 'the lease of then is over');
	is($holder->query("SELECT zk_token('held')"), $token, "a quota of bytes: who has a lock has it still$when");
}
setquota('/zklock', -1, 10_000_000);
is($holder->query("SELECT zk_assert('held')"), $token, '... and can prove it, when it was raised');
is($holder->query("SELECT zk_unlock('held')"), 't', '... and gives it back');
done_testing();
