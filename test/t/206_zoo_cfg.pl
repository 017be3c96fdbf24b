# The zoo.cfg of doc/why-zookeeper.md: three servers start with it, and serve zklock with the
# default of zklock.session_timeout.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use ZkLock;
use ZooKeeper;

my ($page) = slurp_file("$FindBin::Bin/../../doc/why-zookeeper.md") =~ /```ini\n(.*?)```/s;
my $zk = ZooKeeper->new(servers => 3, production => 1);
for my $i ($zk->servers)
{
	my $file = "$zk->{dir}/$i/zoo.cfg";
	my $ours = slurp_file($file);
	my $conf = $page;
	# what differs on each machine: the directory, the port, the addresses
	for my $key (qw(dataDir clientPort), map { "server.$_" } $zk->servers)
	{
		my ($line) = $ours =~ /^(\Q$key\E=.*)$/m;
		ok($conf =~ s/^\Q$key\E=.*$/$line/m, "the page has $key") if $i == 1;
		$conf =~ s/^\Q$key\E=.*$/$line/m;
	}
	open my $out, '>', $file or die "could not write $file: $!\n";
	print $out $conf, "clientPortAddress=127.0.0.1\n";
	close $out or die "could not write $file: $!\n";
}
$zk->start;
# one that is slow says nothing
my @modes;
ok(ZkLock::wait_until(sub { @modes = sort map { $zk->mode($_) // '' } $zk->servers; "@modes" eq 'follower follower leader' }, 'there is a leader', sub { "@modes" }),
	'three servers make an ensemble');

my $node = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '10s'");
ZkLock::wait_connected($node);
is(ZkLock::ask($node, 'SELECT session_timeout FROM zk_session'), '00:00:10', 'the default of zklock.session_timeout is within its bounds');
my $s = ZkLock::session($node);
cmp_ok($s->query("BEGIN; SELECT zk_lock('job')"), '>', 0, 'a lock is granted');
$s->query('COMMIT');
if (-r '/proc/self/status')
{
	my @kb = map { slurp_file('/proc/' . $zk->pid($_) . '/status') =~ /^VmRSS:\s+(\d+)/m } $zk->servers;
	note("memory of the servers: @kb kB");
}

done_testing();
