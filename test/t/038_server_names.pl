# What servers are called, and who they are: names that tell servers apart where nobody
# has given them any, a word about two of one name, and zk_servers.
use strict;
use warnings;

use Proxy;
use Sys::Hostname qw(hostname);
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
# A heartbeat in three seconds; the session outlives a machine that stands still for some seconds.
my $heartbeats = "zklock.session_timeout = '18s'";

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }
sub of { my ($pattern) = @_; return grep { /^$pattern-[0-9a-f]{16}$/ } $zk->children('/zklock/servers'); }
my $told = qr/another live server has the name/;

# PostgreSQL's module starts a server with its own name for cluster_name.
sub start_as
{
	my ($node, $cluster_name) = @_;
	{
		local $node->{_name} = $cluster_name;
		$node->start;
	}
	ZkLock::ask($node, 'CREATE EXTENSION IF NOT EXISTS zklock');
	return $node;
}

sub server { my ($name, $cluster_name, $conf) = @_; return start_as(ZkLock::server($name, $zk, conf => $conf, start => 0), $cluster_name); }

#
# The default
#
my @debian = map { server("main$_", '15/main') } 1 .. 3;
my ($chosen, $slashed, $plain) = (server('chosen', 'A', $heartbeats), server('slashed', 'prod/1'), server('plain', ''));
my $host = hostname;
is(ZkLock::ask($_, "SELECT zk_is_leader('job', '1 h')"), $_ == $debian[0] ? 't' : 'f', $_->name . ' is a candidate') for @debian, $chosen, $slashed, $plain;
# Who does not lead may be told so before its contender is made.
my $all = join ' ', map({ "15/main\@$host:" . $_->port } @debian), 'A', 'prod/1', "$host:" . $plain->port;
my $seen;
ZkLock::wait_until(
	sub { ($seen = ZkLock::ask($plain, "SELECT array_to_string(ARRAY(SELECT server FROM zk_candidates('job')), ' ')")) eq $all },
	"Debian's default is made to tell servers apart, a name that was chosen stays: $all", sub { $seen });
is(scalar(of(quotemeta "15%2Fmain\@$host:" . $_->port)), 1, '... in their own znodes, too: ' . $_->name) for @debian;
ZkLock::ask($debian[0], "ALTER SYSTEM SET zklock.server_name = '15/main'");
$debian[0]->restart;
ZkLock::wait_connected($debian[0]);
is(scalar(of('15%2Fmain')), 1, 'zklock.server_name is taken as it is');
unlike(log_of($_), $told, $_->name . ' has found no other one of its name') for @debian, $chosen, $slashed, $plain;
$_->stop for @debian, $slashed, $plain;

#
# A server that is renamed by a reload says so with its next heartbeat.  Its znode is called as
# before until the next session, whichever worker writes it: one server is never there twice.
#
my $renamed = server('renamed', 'before');
ZkLock::wait_connected($renamed);
my $keeper = ZkLock::session($renamed);
my $kept = $keeper->query('SELECT session_id FROM zk_session');
my $token = $keeper->query("BEGIN; SELECT zk_lock('kept')");
my $servers = q{SELECT string_agg(server || ' ' || ours || ' ' || regexp_replace(node, '-[0-9a-f]{16}$', ''), ', ') FROM zk_servers WHERE server <> 'A'};
my $shown = '';
sub shows { my ($what, $test) = @_; return ok(ZkLock::wait_until(sub { ($shown = ZkLock::ask($renamed, $servers)) eq $what }, $what, sub { $shown }), $test); }
ZkLock::set($renamed, 'zklock.server_name', 'after');
shows('after true before', 'renamed: zk_servers has the new name');
kill 'TERM', my $writer = $keeper->query('SELECT worker_pid FROM zk_session');
ZkLock::wait_until(sub { ZkLock::ask($renamed, "SELECT worker_pid <> $writer AND state = 'connected' FROM zk_session") eq 't' }, 'the next worker');
shows('after true before', '... after the next worker has begun, too');
is_deeply([ map { /^(.*)-[0-9a-f]{16}$/ } grep { !/^A-/ } $zk->children('/zklock/servers') ], ['before'], '... which has made no other znode');
is($keeper->query('SELECT session_id FROM zk_session'), $kept, '... in the same session');
is($keeper->query("SELECT zk_token('kept')"), $token, '... with the lock');
is($keeper->query('COMMIT'), '', '... which is there at commit');
$renamed->restart;
ZkLock::wait_connected($renamed);
shows('after true after', 'the next session has a znode of the new name');
unlike(log_of($renamed), $told, '... and nobody is taken for another of the name');
ZkLock::hang_up($renamed);
$renamed->stop;

#
# Two of one name
#
my $first = $chosen;
my $second = server('second', 'A', $heartbeats);
# which comes after the line in the log
ZkLock::wait_until(sub { ZkLock::ask($second, 'SELECT last_error FROM zk_session') =~ $told }, 'the later one says so');
pass('the later one says so in last_error');
like(log_of($second), qr/WARNING:  another live server has the name "A", too$/m, '... in the log, too');
my ($pid) = ZkLock::ask($second, "SELECT postmaster_pid FROM zk_servers WHERE NOT ours");
like(log_of($second), qr/DETAIL:  It runs on host "\Q$host\E", as process $pid\.$/m, '... and who it is');
like(ZkLock::ask($second, 'SELECT last_error FROM zk_session'), qr/^another live server has the name "A", too: host "\Q$host\E", process $pid$/, '... and in last_error');
$second->append_conf('postgresql.conf', "zklock.server_name = 'B'");
$second->restart;
ZkLock::wait_connected($second);
ZkLock::wait_until(sub { ZkLock::ask($second, "SELECT string_agg(server, ',' ORDER BY server) FROM zk_servers") eq 'A,B' }, 'two names, as the hint says');
$_->stop for $second;

# The reply about the other server's node is lost
my ($node_of_first) = of('A');
my $proxy = Proxy->new($zk->host)->lose_reply('get', $node_of_first);
my $third = ZkLock::server('third', $zk, conf => "$heartbeats\nzklock.hosts = '" . $proxy->host . "'", start => 0);
start_as($third, 'A');
ZkLock::wait_until(sub { ZkLock::ask($third, 'SELECT last_error FROM zk_session') =~ $told }, 'a lost reply does not hide the other server');
is($proxy->lost, 1, '... and one was lost');
$_->stop for $first, $third;
$proxy->stop;

#
# Of one's own earlier session there may be a node, which nobody writes, and which goes; and
# names that begin alike are others.
#
my $other = $zk->client;
my $mark = '0123456789abcdef';
my $old = "/zklock/servers/a%2Fb-$mark";
my $data = '{"server": "a/b", "host": "' . 'h' x 300 . "\xff\"}";
$other->create($old, mode => 'ephemeral', data => $data);
my @others = map { "/zklock/servers/$_" } "a%2Fb-c-$mark", "a%2Fb-$mark-$mark", "a%2Fb-" . uc $mark, "a%2Fb";
$other->create($_, mode => 'ephemeral') for @others;
my $lasting = "/zklock/servers/a%2Fb-fedcba9876543210";
$other->create($lasting);
my $node = server('node', 'a/b', "zklock.session_timeout = '12s'");
$zk->delete($old);
# A server that rests sends no heartbeats.
my $busy = ZkLock::session($node);
$busy->query("SELECT zk_lock('busy', scope => 'session')");

# So many are sent; each is followed by a look at the others.
sub wait_heartbeats
{
	my $n = shift;
	my ($own) = grep { !/$mark$|fedcba9876543210$/ } of('a%2Fb');
	my $writes = sub { return $zk->stat("/zklock/servers/$own")->{version}; };
	my $from = $writes->();
	ZkLock::wait_until(sub { $writes->() >= $from + $n }, 'heartbeats');
}
$other->set($_, 'x') for @others, $lasting;
wait_heartbeats(8);
unlike(log_of($node), $told, 'a node that goes is no live server, nor is one of another name');
$node->stop;

# One that stays is, whether it is written or the server rests.
$other->create($old, mode => 'ephemeral', data => $data);
start_as($node, 'a/b');
$busy = ZkLock::session($node);
$busy->query("SELECT zk_lock('busy', scope => 'session')");
ZkLock::wait_until(sub { log_of($node) =~ $told }, 'one that stays is');
like(log_of($node), qr/another live server has the name "a\/b", too\n.*DETAIL:  It runs on host "h{100}\.\.\.", as process \?\.$/m, 'one that stays is');
kill 'TERM', my $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT worker_pid <> $worker AND state = 'connected' FROM zk_session") eq 't' }, 'the next worker');
wait_heartbeats(3);
is(scalar(() = log_of($node) =~ /$told/g), 1, '... and that is said once');

#
# zk_servers: all of them, from each
#
my ($p, $q) = (server('p', 'p', $heartbeats), server('q', 'q_1', $heartbeats));
ZkLock::wait_connected($p, $q);
$zk->delete($_) for @others, $lasting, $old;
$_->stop for $node;
my $about = "server, host, postmaster_pid, zklock_version = (SELECT extversion FROM pg_extension WHERE extname = 'zklock'),
	postgres_version = split_part(current_setting('server_version'), ' ', 1), elections, ours";
my %row = map { $_->name => join '|', $_ == $p ? 'p' : 'q_1', $host, (PostgreSQL::Test::Utils::slurp_file($_->data_dir . '/postmaster.pid') =~ /^(\d+)/), 't', 't', 0 } $p, $q;
is(ZkLock::ask($p, "SELECT $about FROM zk_servers WHERE server ~ '^[pq]' ORDER BY server"), "$row{p}|t\n$row{q}|f", 'all servers, seen from one');
is(ZkLock::ask($q, "SELECT $about FROM zk_servers WHERE server ~ '^[pq]' ORDER BY server"), "$row{p}|f\n$row{q}|t", '... and from the other');
is(ZkLock::ask($p, 'SELECT s.session_id, node FROM zk_servers s JOIN zk_session z USING (session_id)') =~ s/\|p-[0-9a-f]{16}$//r, ZkLock::ask($p, 'SELECT session_id FROM zk_session'), 'the session and the znode');

# A heartbeat tells it
is(ZkLock::ask($q, "SELECT zk_is_leader(e, '1 h') FROM unnest('{e1,e2,e3}'::text[]) e"), "t\nt\nt", 'one leads in three elections');
my $elections = sub { return ZkLock::ask($p, "SELECT string_agg(elections::text, ' ' ORDER BY server) FROM zk_servers WHERE server ~ '^[pq]'"); };
ZkLock::wait_until(sub { $elections->() eq '0 3' }, 'elections');
pass('zk_servers shows how many it leads');
ZkLock::ask($q, "SELECT zk_resign('e2')");
ZkLock::wait_until(sub { $elections->() eq '0 2' }, 'elections');
kill 'TERM', $worker = ZkLock::ask($q, 'SELECT worker_pid FROM zk_session');
ZkLock::wait_until(sub { ZkLock::ask($q, "SELECT worker_pid <> $worker AND state = 'connected' FROM zk_session") eq 't' }, 'the next worker');
ZkLock::ask($q, "SELECT zk_resign('e1')");
ZkLock::wait_until(sub { $elections->() eq '0 1' }, 'elections, counted by the next worker');
pass('... also when it resigns, and across a new worker');

my $jobs = sub { return ZkLock::ask($p, "SELECT string_agg(jobs::text, ' ' ORDER BY server) FROM zk_servers WHERE server ~ '^[pq]'"); };
my @run = map { ZkLock::session($q) } 1, 2;
$run[$_]->query("SELECT zk_run_begin('j$_', every => '1 day')") for 0, 1;
ZkLock::wait_until(sub { $jobs->() eq '0 2' }, 'jobs');
$run[0]->query("SELECT zk_run_end('j0')");
ZkLock::wait_until(sub { $jobs->() eq '0 1' }, 'one has ended');
$zk->delete('/zklock/jobs/j1/' . (ZkLock::queue($zk, 'j1', 'jobs'))[0]);
ZkLock::wait_until(sub { $jobs->() eq '0 0' }, 'one is lost');
$run[1]->quit;
$run[0]->query("CALL zk_run_once('j2', 'SELECT 1', every => '1 day')");
my $then = ZkLock::ask($q, 'SELECT heartbeat FROM zk_servers WHERE ours');
ZkLock::wait_until(sub { ZkLock::ask($q, "SELECT heartbeat > '$then' FROM zk_servers WHERE ours") eq 't' }, 'a heartbeat after all of them');
is($jobs->(), '0 0', '... and how many jobs it runs');
# One that rests makes none.
my $holder = ZkLock::session($p);
$holder->query("BEGIN; SELECT zk_lock('beats')");
my $since = ZkLock::ask($p, "SELECT since FROM zk_servers WHERE ours");
my $beat = ZkLock::ask($p, "SELECT heartbeat FROM zk_servers WHERE ours");
ZkLock::wait_until(sub { ZkLock::ask($p, "SELECT heartbeat > '$beat' FROM zk_servers WHERE ours") eq 't' }, 'the next heartbeat');
is(ZkLock::ask($p, "SELECT since = '$since', since < heartbeat, heartbeat BETWEEN now() - interval '1 h' AND now() + interval '1 h' FROM zk_servers WHERE ours"), 't|t|t', 'since when it is there, and its newest heartbeat');
$holder->query('COMMIT');

# What others have put there, and a server with an older zklock
$other->create('/zklock/servers/foreign', mode => 'ephemeral', data => '10.0.0.7');
$other->create("/zklock/servers/lasting", data => '{"server": "x", "pid": "12x", "elections": -1, "zklock": {"a": "b"}}');
$other->create("/zklock/servers/older-$mark", mode => 'ephemeral', data => '{"server": "older", "host": "h", "pid": 12}');
is(ZkLock::ask($p, "SELECT node, server, host, postmaster_pid, zklock_version, postgres_version, elections, ours, session_id = '" . $other->id . "' FROM zk_servers WHERE node !~ '^([pq]|15)' ORDER BY node COLLATE \"C\""),
	"foreign|||||||f|t\nlasting|x||||||f|\nolder-$mark|older|h|12||||f|t", 'foreign znodes have NULLs, and so has an older server');
$zk->stop;
my $asker = ZkLock::session($p, env => { PGOPTIONS => '-c zklock.connect_timeout=300ms' });
like($asker->fails('SELECT * FROM zk_servers'), qr/^58000: could not reach ZooKeeper within 300 ms/, 'not without ZooKeeper');

done_testing();
