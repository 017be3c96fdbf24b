# Whom the DETAIL of a deadlock across servers tells which names: its own to everybody, all to
# the log and to those who may see other roles' sessions.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Deadlocks;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { Deadlocks::server($_, $zk) } qw(a b);
ZkLock::wait_connected($a, $b);
for my $node ($a, $b)
{
	ZkLock::ask($node, 'CREATE ROLE app LOGIN; GRANT EXECUTE ON FUNCTION zk_lock TO app; CREATE ROLE watcher LOGIN IN ROLE app, pg_read_all_stats');
}

# One has "xx" and waits for "yy".  Two has "yy" and waits on its server for Three, who has "zz"
# and waits for "xx".  Returns which of them is ended, what it is told, and what its log has.
sub ring
{
	my ($user) = @_;
	my ($one, $two, $three) = map { ZkLock::session($_, user => $user) } $a, $b, $b;
	my %begin = map { ($_->name, -s $_->logfile) } $a, $b;
	$one->query("BEGIN; SELECT zk_lock('xx')");
	$two->query("BEGIN; SELECT zk_lock('yy')");
	$three->query("BEGIN; SELECT zk_lock('zz')");
	$two->send("SELECT zk_lock('zz')")->wait_level(1);
	$three->send("SELECT zk_lock('xx')");
	$one->send("SELECT zk_lock('yy')");
	my ($victim, $said) = Deadlocks::ok_ring("a ring of $user", $one, $two, $three);
	my ($detail) = $said =~ /^DETAIL:  (.*)$/m;
	my $node = $victim == $one ? $a : $b;
	my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile, $begin{ $node->name });
	my %is = ($one->pid => 'One', $two->pid => 'Two', $three->pid => 'Three');
	s/([Pp]rocess) (\d+)/"$1 " . ($is{$2} \/\/ $2)/ge for $detail, $log;
	$_->quit for $one, $two, $three;
	return ($victim == $one ? 'One' : 'Three', $detail, $log);
}

my %own = (
	One => 'Process One of server "a" waits for lock "yy", held by process Two of server "b"; there process Two waits for process Three; '
	  . 'process Three of server "b" waits for lock "xx", held by process One of server "a".',
	Three => 'Process Three of server "b" waits for lock "xx", held by process One of server "a"; '
	  . 'process One of server "a" waits for a lock, held by process Two of server "b"; there process Two waits for process Three.');
my $there = 'there process Two waits for lock "zz", blocked by process Three';
my %all = (
	One => $own{One} =~ s/there process Two waits for process Three/$there/r,
	Three => $own{Three} =~ s/a lock, (.*); there.*/lock "yy", $1; $there./r);

for my $user (qw(app watcher))
{
	my ($victim, $detail, $log) = ring($user);
	is($detail, $user eq 'app' ? $own{$victim} : $all{$victim}, "... what $user is told as $victim");
	like($log, qr/DETAIL:  \Q$all{$victim}\E$/m, '... the log has all names');
}

done_testing();
