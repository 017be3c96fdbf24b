# zklock.leader_priority: the candidate with the highest one comes to lead, whoever came first.
use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
# A leader looks for higher priorities once in a session timeout.  So these are short, and on a slow
# machine a lease may lapse, or a session be lost, on the way.
my $conf = "zklock.session_timeout = '4s'\nzklock.keep_time = 0\n";
my %priority = (a => 100, b => 50, c => 200);
my ($a, $b, $c) = my @servers = map { ZkLock::server($_, $zk, conf => "${conf}zklock.server_name = '$_'\nzklock.leader_priority = $priority{$_}") } sort keys %priority;
ZkLock::wait_connected(@servers);

sub leader { return ZkLock::ask($a, "SELECT server FROM zk_candidates('$_[0]') WHERE is_leader"); }
sub stands { my ($node, $election) = @_; return ZkLock::ask($node, "SELECT zk_is_leader('$election')"); }
sub leads { my ($node, $election, $what) = @_; return ok(ZkLock::wait_until(sub { stands($node, $election) eq 't' }, $node->name . " leads $election"), $what); }
sub log_of { return slurp_file($_[0]->logfile); }
sub set { my ($node, $value) = @_; ZkLock::ask($node, "ALTER SYSTEM SET zklock.leader_priority = $value"); $node->reload; return; }
my $gave_way = qr/LOG:  this server is no longer leader of election "one", token \d+: a candidate has a higher priority/;

# The first is the last to be kept.
leads($a, 'one', 'who comes first leads');
stands($b, 'one');
stands($a, 'two');
stands($c, 'one');
# on a slow machine the first one may have resigned by now, and stand again
my ($all, $data);
ZkLock::wait_until(sub { ($all = ZkLock::ask($a, "SELECT server, priority FROM zk_candidates('one') ORDER BY server")) eq "a|100\nb|50\nc|200" }, 'all stand', sub { $all });
pass('all stand, with their priorities');
ZkLock::wait_until(
	sub {
		$data = join '; ', sort map { $zk->get("/zklock/elections/one/$_") // '' } $zk->children('/zklock/elections/one');
		return $data eq qq(a; b\n{"version": 1, "priority": 50}; c\n{"version": 1, "priority": 200});
	},
	'their nodes say so', sub { $data });
pass('their nodes have their names, and priorities other than the default');
leads($c, 'one', 'the highest priority leads, though others came before');
ok(ZkLock::wait_until(sub { log_of($a) =~ $gave_way }, 'the log says so'), '... for which the leader has resigned');
ok(ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT ARRAY(SELECT server FROM zk_candidates('one')) @> '{a,b,c}'") eq 't' }, 'all stand'), '... and stands again, as do all');
ok(ZkLock::wait_until(sub { leader('two') eq 'a' }, 'A leads'), 'an election without another candidate stays as it is');
my $seen = length log_of($c);

# A transaction that requires the leadership
my $guard = ZkLock::session($b);
for my $try (1 .. 5)
{
	my $election = "three $try";
	leads($b, $election, 'another election');
	my $begun = $guard->fails("BEGIN; SELECT zk_require_leader('$election')");
	stands($c, $election);
	ok(ZkLock::wait_until(sub { stands($b, $election) eq 'f' }, 'it resigns'), 'the leader resigns for a higher one');
	my $leader = leader($election);
	my $end = $guard->fails('COMMIT');
	leads($c, $election, '... which leads in the end');
	next if "$begun$end" =~ /^40001/ && $try < 5;
	is("$begun$leader$end", 'b', '... but not before a transaction that requires the leadership has committed');
	last;
}

# Equals do not resign for each other; programs that say no priority have the default.
leads($b, 'four', 'a fourth election');
$zk->client->contend('/zklock/elections/four');
ok(ZkLock::wait_until(sub { stands($b, 'four') eq 'f' && ZkLock::ask($b, "SELECT ARRAY(SELECT server FROM zk_candidates('four'))") =~ /,b\}$/ }, 'it resigns'),
	'a program without a priority comes before one that is lower');
leads($a, 'five', 'a fifth');
my $other = $zk->client->contend('/zklock/elections/five');

# One that is drained stands nowhere; when it comes back it leads.
ZkLock::ask($c, 'ALTER SYSTEM SET zklock.drain = on');
$c->reload;
ok(ZkLock::wait_until(sub { leader('one') =~ /^[ab]$/ }, 'another leads'), 'the highest is drained: another leads');
leads($a, 'one', '... in the end the highest of those that are left');
ZkLock::ask($c, 'ALTER SYSTEM RESET zklock.drain');
$c->reload;
leads($c, 'one', '... until it is back');
my @ends = grep { !/lease|session/ } substr(log_of($c), $seen) =~ /no longer leader of election "one", token \d+: (.*)/g;
# a lease that lapses on a slow machine may come before
like("@ends", qr/^(?:"zklock\.drain" is on)?$/, '... and gave it up for nothing else');

# The setting
set($b, 300);
leads($b, 'one', 'who is given the highest priority leads');
set($b, 10);
leads($c, 'one', '... and no more when it is taken away');
$c->stop('immediate');
leads($a, 'one', 'the highest has died: the next one leads');
unlike(log_of($a), qr/no longer leader of election "five", token \d+: a candidate has a higher priority/, 'equals do not resign for each other');

done_testing();
