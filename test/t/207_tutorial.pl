# doc/tutorial.md, as it stands there, on servers like those that "make demo KEEP=1" leaves.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Pages qw(blocks_of);
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use Transcript;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
# As in test/demo, but for the time that a slow machine is given
my $conf = "zklock.session_timeout = '10s'\nzklock.keep_time = '60s'\nzklock.handoff_limit = 16\ntimezone = 'UTC'";
my ($a, $b, $c) = my @servers = map { ZkLock::server($_, $zk, conf => $conf) } 'A', 'B', 'C';
ZkLock::wait_connected(@servers);
ZkLock::wait_until(sub { ZkLock::ask($b, 'SELECT count(*) FROM zk_servers') == 3 }, 'all servers are known');
ZkLock::ask($_, 'CREATE ROLE postgres SUPERUSER LOGIN') for grep { ZkLock::ask($_, "SELECT count(*) FROM pg_roles WHERE rolname = 'postgres'") == 0 } @servers;

# Slots of a day begin five minutes before midnight, and all calls are for one.
my $day = sub { return ZkLock::ask($b, "SELECT date_bin('1 day', clock_timestamp() + '5 min', '2000-01-03 00:00+00') <> date_bin('1 day', clock_timestamp() + '15 min', '2000-01-03 00:00+00')") };
ZkLock::wait_until(sub { $day->() eq 'f' }, 'the day is not about to end');

my $page = slurp_file("$FindBin::Bin/../../doc/tutorial.md");
my ($kill) = @{ blocks_of('doc/tutorial.md')->{'One failure'} };
$kill or die 'the page kills nobody';
my $alive = 3;
my $run = Transcript->new(
	name => 'the tutorial',
	sessions => { A => $a, B => $b, C => $c },
	# The worker of a server that was killed may give back what its backends had before it notices:
	# then B has the lock before A's session has ended.
	rewrite => sub {
		my ($sql) = @_;
		ZkLock::wait_until(sub { ZkLock::ask($b, 'SELECT count(*) FROM zk_servers') == $alive }, "$alive servers are alive") if $sql =~ /FROM zk_servers/;
		return $sql;
	},
	waits => sub {
		ZkLock::wait_waiting($b, 2, 1);
		ZkLock::wait_queue($zk, 'report', 2);
	});

# The blocks in their order: what psql says, and one command that kills a server
my @blocks = $page =~ /^```(\w*\n.*?)^```$/msg;
for (@blocks)
{
	my ($kind, $text) = /^(\w*)\n(.*)/s;
	if ($kind eq '') { $run->block($text); }
	elsif ($text eq $kill)
	{
		my $data = $a->data_dir;
		like($kill, qr{^kill -9 \$\(head -1 '\S+/a/data/postmaster\.pid'\)$}, 'a server is killed');
		is(system('sh', '-c', "kill -9 \$(head -1 '$data/postmaster.pid')"), 0, '... as the page says');
		# it does not count as running any more
		$a->kill9;
		$alive = 2;
	}
}

# ZooKeeper has forgotten the server, and it comes back.
ZkLock::start_again($a);
ZkLock::wait_connected($a);
is(ZkLock::ask($a, 'SELECT count(*) FROM report'), 1, 'what was late was not written');

# What the page shows of the demo is what test/demo says.
my $demo = slurp_file("$FindBin::Bin/../demo");
my ($shown) = map { /^text\n(.*)/s } @blocks;
for my $line (grep { /^\S/ } split /\n/, $shown) { like($demo, qr/\Q$line\E/, "the demo says: $line"); }

done_testing();
