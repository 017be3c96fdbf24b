# Work that is handed out, when the ensemble is wiped or goes back; and on standbys and copies
# of a server: who may say what became of a put.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
# What was lost with the ensemble is waited for as long.
my $conf = "zklock.session_timeout = '8s'";
my $a = ZkLock::server('a', $proxy, init => { allows_streaming => 1 },
	conf => "$conf\nzklock.server_name = 'a'\nsynchronous_commit = local\nsynchronous_standby_names = 'nobody'");
my $b = ZkLock::server('b', $zk, conf => "$conf\nzklock.server_name = 'b'");
ZkLock::wait_connected($a, $b);

sub take { my ($node, $queue) = @_; return ZkLock::ask($node, "SELECT payload || attempt FROM zk_queue_take('$queue')"); }
# A server that has not noticed yet what becomes of the ensemble says that it is connected.
sub come_back_as
{
	my ($how) = @_;
	$zk->kill9->$how;
	for my $node ($a, $b)
	{
		ZkLock::wait_until(sub { ZkLock::ask($node, 'SELECT state FROM zk_session') ne 'connected' }, $node->name . ' has lost its connection');
	}
	$zk->start;
	ZkLock::wait_connected($a, $b);
	return;
}
my %payload;
sub ids
{
	my ($what, $queue, @payloads) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($new, $wrong) = ('', 0);
	for my $payload (@payloads)
	{
		my ($id, $got) = split /\|/, ZkLock::ask($b, "SELECT id, payload FROM zk_queue_take('$queue')");
		$new .= $got;
		$wrong++ if exists $payload{$id} ? $payload{$id} ne $got : grep { $_ eq $got } values %payload;
		$payload{$id} = $got;
	}
	is("$new $wrong", join('', @payloads) . ' 0', $what);
}

#
# The ensemble
#
ZkLock::ask($a, "SELECT zk_queue_put('e', v) FROM unnest('{1,2,3,4}'::text[]) v");
length_is($b, 'e', '4 0 0', 'four items');
ids('two are taken', 'e', 1, 2);
length_is($b, 'e', '2 0 0', 'two are left');
$zk->save;
ids('... and one more', 'e', 3);
ZkLock::ask($a, "SELECT zk_queue_put('e', '5')");
length_is($b, 'e', '2 0 0', 'two are left');
my $s = ZkLock::session($a);
$s->query("BEGIN; SELECT FROM zk_queue_take('e')");
# A server that comes back after others have written need not know that the ensemble has gone
# back: its session may live.  But it looks at the marks.
come_back_as('go_back');
like($s->fails('COMMIT'), qr/^40001: item [0-9a-f-]{36} of queue "e" was lost/, 'an ensemble that goes back takes items away');
length_is($b, 'e', '2 0 0', '... and brings others back');
ZkLock::ask($a, "SELECT zk_queue_put('e', '6')");
length_is($b, 'e', '3 0 0', 'one is put');
ids('those of the backup have the ids that they had, others have new ones', 'e', 3, 4, 6);
$s->query("BEGIN; SELECT zk_queue_put('e', '7')");
come_back_as('wipe');
is(take($b, 'e'), '', 'a queue that was wiped is empty');
is(ZkLock::ask($b, 'SELECT count(*) FROM zk_queues'), 0, '... and is none');
$s->query('COMMIT');
length_is($b, 'e', '1 0 0', 'what is put then is there');
ZkLock::ask($a, "SELECT zk_queue_put('e', '8')");
length_is($b, 'e', '2 0 0', 'and one more');
ids('no id is given again', 'e', 7, 8);

#
# Standbys and copies
#
sub copy
{
	my ($node_name, $server_name, $backup, %option) = @_;
	my $node = PostgreSQL::Test::Cluster->new($node_name);
	$node->init_from_backup($a, $backup, %option);
	$node->append_conf('postgresql.conf', "zklock.server_name = '$server_name'\nzklock.hosts = '" . $zk->host . "'");
	$node->start;
	ZkLock::wait_connected($node);
	return $node;
}
$a->backup('before');
# A transaction that has written its items, and its commit, which waits
my $waits = ZkLock::session($a);
$waits->query("SET synchronous_commit = on; BEGIN; SELECT zk_queue_put('c', 'waits')");
$waits->send('COMMIT')->wait_event('SyncRep');
length_is($b, 'c', '0 0 1', 'a transaction commits');
$a->backup('while');

my $standby = copy('standby', 'standby', 'while', has_streaming => 1);
like(ZkLock::session($standby)->fails("SELECT zk_queue_put('c', 'x')"), qr/^25006: cannot execute zk_queue_put\(\) in a read-only transaction/, 'a standby puts nothing');
ZkLock::ask($a, "SELECT zk_queue_put('t', i::text) FROM generate_series(1, 2) i");
length_is($b, 't', '2 0 0', 'two items');
is(take($standby, 't'), '11', 'a standby takes');
length_is($b, 't', '1 0 0', '... and has done it');

for my $case ([ 'copy', 'before' ], [ 'copy', 'while' ], [ 'a', 'before' ], [ 'a', 'while' ])
{
	my ($name, $backup) = @$case;
	my $copy = copy("$name$backup", $name, $backup);
	# it has come to its end with what it finds
	ZkLock::ask($copy, "SELECT zk_queue_put('t', 'own')");
	length_is($b, 't', '2 0 0', 'a copy puts');
	ZkLock::ask($copy, "SELECT FROM zk_queue_take('t')");
	ZkLock::ask($copy, "SELECT zk_queue_put('t', 'own')");
	length_is($b, 't', '2 0 0', 'and takes, and puts');
	length_is($b, 'c', '0 0 1', "a copy of $backup called $name does not say what becomes of the transaction");
	ZkLock::hang_up($copy);
	$copy->stop;
	is(ZkLock::ask($b, "SELECT zk_queue_purge('t'); SELECT FROM zk_queue_put('t', '2')"), 2, 'purged');
	length_is($b, 't', '1 0 0', 'one again');
}
$waits->cancel;
$waits->failure;
length_is($b, 'c', '1 0 0', 'its own server does');

# The server is lost: a standby that is promoted says what has committed, and nothing else
my $uncommitted = ZkLock::session($a);
$uncommitted->query("BEGIN; SELECT zk_queue_put('d', 'never')");
ZkLock::ask($a, "SELECT zk_queue_put('d', 'first')");
length_is($b, 'd', '1 0 0', 'one is there');
$waits->query("BEGIN; SELECT zk_queue_put('c', 'committed')");
$waits->send('COMMIT')->wait_event('SyncRep');
length_is($b, 'c', '1 0 1', 'one commits');
$proxy->refuse->lose_reply('create', '/puts/');
$uncommitted->send('COMMIT');
length_is($b, 'd', '1 0 1', 'another one is about to');
$a->wait_for_catchup($standby, 'replay', $a->lsn('flush'));
ZkLock::hang_up($a);
$a->stop('immediate');
length_is($b, 'c', '1 0 1', 'a standby says nothing');
$standby->promote;
length_is($b, 'c', '2 0 0', 'when it is promoted, that it has committed');
length_is($b, 'd', '1 0 1', '... and not that it has not');
is(take($b, 'c') . take($b, 'c'), 'waits1committed1', 'both are there, in their order');
# ... which the server itself does, if it goes on
$proxy->heal->accept;
$a->start;
length_is($b, 'd', '1 0 0', 'its own server says so');
is(take($b, 'd'), 'first1', 'and has not put it');

$_->stop for $a, $b, $standby;
done_testing();
