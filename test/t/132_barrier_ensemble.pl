# Barriers in an ensemble of three that loses its leader, with nodes that belong to nobody
# else, on three servers; and directories that nobody uses.
use strict;
use warnings;

use Clock;
use Test::More;
use ZkLock;
use ZooKeeper;

my $clock = Clock->new;
plan skip_all => 'no compiler' if !$clock && !$ENV{CI};
my $file = PostgreSQL::Test::Utils::tempdir() . '/credentials';
PostgreSQL::Test::Utils::append_to_file($file, "digest\tzklock:s3cr3t\n");
chmod 0600, $file or die;
my $zk = ZooKeeper->new(servers => 3, tick_time => 300)->start;
my $conf = "zklock.auth_file = '$file'\nzklock.acl = 'creator'";
my ($a, $b) = map { ZkLock::server($_, $zk, conf => $conf) } qw(a b);
my $c;
{
	local @ENV{ $clock->names } = $clock->values;
	$c = ZkLock::server('c', $zk, conf => $conf);
}
my @all = ($a, $b, $c);
ZkLock::wait_connected(@all);
my @session = map { ZkLock::session($_) } @all;

sub arrived { return ZkLock::ask($b, "SELECT count(*) FROM zk_barriers WHERE name = '$_[0]'"); }

# Rounds in a row, while leaders die.
for my $round (1 .. 2)
{
	my ($leader) = $zk->wait_elected;
	$_->send("CALL zk_barrier('step', 3)") for @session[ 0, 2 ];
	ZkLock::wait_until(sub { arrived('step') == 2 }, 'two are there');
	$zk->kill9($leader);
	$session[1]->send("CALL zk_barrier('step', 3)");
	is($_->result, '', "round $round: they meet, though the leader died") for @session;
	$zk->start($leader);
}
for my $s (@session) { $s->send("DO \$\$ BEGIN FOR i IN 1..20 LOOP CALL zk_barrier('row', 3); END LOOP; END \$\$"); }
is($_->result, '', 'twenty rounds in a row') for @session;
is(ZkLock::ask($b, 'SELECT count(*) FROM zk_barriers'), 0, 'nobody is left');

# Nobody else can touch what is there.
my $friend = $zk->client(auth => [ digest => 'zklock:s3cr3t' ]);
$friend->sync('/zklock/barriers');
is_deeply($friend->acl('/zklock/barriers/step'), $friend->acl('/zklock/locks'), 'the directory is ours alone');
like($friend->get('/zklock/barriers/row'), qr/^\{"version": 1, "round": 20, /, 'the record has the newest round first');

# Directories that nobody uses go after a day: C's clock says that it is over.
is_deeply([ sort @{ $friend->children('/zklock/barriers') } ], [qw(row step)], 'two barriers');
$session[0]->send("CALL zk_barrier('row', 2)");
ZkLock::wait_until(sub { arrived('row') == 1 }, 'one waits');
my $worker = ZkLock::ask($c, 'SELECT worker_pid FROM zk_session');
kill 'TERM', $worker;
my $successor;
ZkLock::wait_until(sub { $successor = ZkLock::ask($c, 'SELECT worker_pid FROM zk_session'); $successor ne '' && $successor ne $worker }, 'another connection');
ZkLock::wait_connected($c);
is_deeply([ sort @{ $friend->children('/zklock/barriers') } ], [qw(row step)], 'they stay for a day');
$clock->set(86400 + 3600);
kill 'TERM', $successor;
ZkLock::wait_until(sub { "@{ $friend->children('/zklock/barriers') }" eq 'row' }, 'the one that nobody uses goes');
pass('a directory that nobody used for a day goes, and one that somebody waits in stays');
$session[1]->query("CALL zk_barrier('row', 2)");
is($session[0]->result, '', '... and they meet there');
$_->send("CALL zk_barrier('step', 2)") for @session[ 0, 1 ];
is($_->result, '', 'and where it was made anew') for @session[ 0, 1 ];

done_testing();
