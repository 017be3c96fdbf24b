# Settings of elections: standbys and promotion, elections entered at start,
# notifications; and privileges.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Cluster;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;

sub log_of { my $node = shift; open my $fh, '<', $node->logfile or die; local $/; return <$fh>; }
sub wait_ask
{
	my ($node, $sql, $answer, $what) = @_;
	ok(eval { ZkLock::wait_until(sub { (eval { ZkLock::ask($node, $sql) } // '') eq $answer }, $what) }, $what)
	  or diag "$sql: " . ZkLock::ask($node, $sql);
}

sub reload
{
	my ($node, %setting) = @_;
	ZkLock::ask($node, "ALTER SYSTEM SET zklock.$_ = '$setting{$_}'") for keys %setting;
	$node->reload;
}

#
# Entered at start.  What ZooKeeper has refused is tried again with a heartbeat, six in a
# session's timeout; further down a heartbeat would be longer in coming than anybody waits.
#
my $primary = ZkLock::server('primary', $zk, init => { allows_streaming => 1 },
	conf => "zklock.session_timeout = '20s'\ncluster_name = primary\nzklock.elections = 'listed, \"With, comma\"'\nzklock.notify_database = 'postgres'");
wait_ask($primary, "SELECT string_agg(election || ' ' || is_leader, ';' ORDER BY election) FROM zk_elections",
	'With, comma true;listed true', 'elections of zklock.elections are entered at start, and had');
is(ZkLock::ask($primary, "SELECT zk_resign('listed')"), 't', 'one can be resigned from');
wait_ask($primary, "SELECT count(*) FROM zk_elections WHERE election = 'listed'", 0, '... and that lasts');
is(ZkLock::ask($primary, "SELECT (SELECT token FROM zk_elections WHERE election = 'listed') IS NULL"), 't', '... also when somebody asks for the token');
reload($primary, elections => 'listed,more');
wait_ask($primary, "SELECT string_agg(election || ' ' || is_leader, ';' ORDER BY election) FROM zk_elections",
	'With, comma true;listed true;more true', 'a reload enters what is listed, and leaves nothing');
my $s = ZkLock::session($primary);
is($s->fails("ALTER SYSTEM SET zklock.elections = 'a,,b'"), '22023: invalid value for parameter "zklock.elections": "a,,b"', 'a bad list is refused');
is($s->fails("ALTER SYSTEM SET zklock.elections = '\"" . 'x' x 256 . "\"'") =~ s/x+/x/gr, '22023: invalid value for parameter "zklock.elections": ""x""', '... as is a name that is too long');
is($s->fails("ALTER SYSTEM SET zklock.leader_eligible = 'nobody'"), '22023: invalid value for parameter "zklock.leader_eligible": "nobody"', '... and a bad word');

#
# Refused by ZooKeeper: false, said once, and tried again
#
$zk->create('/zklock/elections/refused', mode => 'ephemeral', data => 'an ephemeral node has no children');
is(ZkLock::ask($primary, "SELECT zk_is_leader('refused', '500 ms')"), 'f', 'where ZooKeeper refuses, nobody leads');
ZkLock::wait_until(sub { log_of($primary) =~ /could not become a candidate in election "refused"/ }, 'the log says so');
my ($member) = grep { /^primary-/ } $zk->children('/zklock/servers');
my $heartbeats = sub { $zk->stat("/zklock/servers/$member")->{version} };
my $before = $heartbeats->();
ZkLock::wait_until(sub { $heartbeats->() > $before + 2 }, 'it has been tried again');
is(scalar(() = log_of($primary) =~ /refused"/g), 2, '... once, and what ZooKeeper said') or diag(grep { /refused"/ } split /^/, log_of($primary));
$zk->delete('/zklock/elections/refused');
wait_ask($primary, "SELECT zk_is_leader('refused')", 't', '... and tries again');

#
# A standby
#
ZkLock::hang_up($primary);
$primary->append_conf('postgresql.conf', "zklock.session_timeout = '1h'");
$primary->restart;
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', "cluster_name = standby");
$standby->start;
ZkLock::wait_connected($standby);
is(ZkLock::ask($standby, "SELECT zk_is_leader('job', '1 h'), zk_is_leader('more', '1 h')"), 'f|f', 'a standby is no leader, and need not wait for that');
wait_ask($standby, "SELECT ARRAY(SELECT server FROM zk_candidates('job')), ARRAY(SELECT server FROM zk_candidates('more'))", '{}|{primary}', '... and no candidate');
is(ZkLock::ask($standby, "SELECT string_agg(election || ' ' || is_leader, ';' ORDER BY election) FROM zk_elections"), 'job false;listed false;more false',
	'... but would be one: zk_elections has it');
is(ZkLock::session($standby)->fails("SELECT zk_require_leader('job')"), '40001: this server is not the leader of election "job"', '... zk_require_leader fails');

# ... unless it may
$standby->append_conf('postgresql.conf', "zklock.leader_eligible = any");
$standby->reload;
wait_ask($standby, "SELECT zk_is_leader('job'), ARRAY(SELECT server FROM zk_candidates('more'))", 't|{primary,standby}', 'zklock.leader_eligible = any: it may');
$standby->append_conf('postgresql.conf', "zklock.leader_eligible = primary");
$standby->reload;
wait_ask($standby, "SELECT zk_is_leader('job'), ARRAY(SELECT server FROM zk_candidates('job')), ARRAY(SELECT server FROM zk_candidates('more'))", 'f|{}|{primary}', '... and leaves when it may not');
like(log_of($standby), qr/is no longer leader of election "job", token \d+: not eligible any more/, '... the log says why');
like(log_of($standby), qr/no notifications of leadership changes are sent during recovery/, '... and that nothing is notified');

# A command that the standby can run as leader, read-only
$standby->append_conf('postgresql.conf', "zklock.leader_eligible = any");
$standby->reload;
wait_ask($standby, "SELECT zk_is_leader('job')", 't', 'it leads again');
is(ZkLock::ask($standby, "CALL zk_run_as_leader('job', 'SELECT 1'); SELECT zk_require_leader('job') > 0"), 't', 'guards work on a standby');
$standby->append_conf('postgresql.conf', "zklock.leader_eligible = primary");
$standby->reload;
wait_ask($standby, "SELECT zk_is_leader('job')", 'f', 'and leaves again');

# Promotion
ZkLock::hang_up($primary);
$primary->stop('fast');
$standby->promote;
wait_ask($standby, "SELECT zk_is_leader('job') AND zk_is_leader('more') AND zk_is_leader('listed')", 't', 'promoted, it is a candidate, and leads');

#
# Notifications
#
$s = ZkLock::session($standby);
$s->query('LISTEN zklock');
ZkLock::ask($standby, "SELECT zk_is_leader('näme')");
sub notified { my $pattern = shift; my $seen = ''; return eval { ZkLock::wait_until(sub { ($seen .= $s->query('SELECT 1')) =~ $pattern }, "notification $pattern") }; }
ok(notified(qr/Asynchronous notification "zklock" with payload "näme:standby" received/), 'gaining the leadership is notified');
ZkLock::ask($standby, "SELECT zk_resign('näme')");
ok(notified(qr/Asynchronous notification "zklock" with payload "näme:" received/), '... and so is losing it');

# A database that is not there: one attempt a change, and what was not sent comes later.
my $notifiers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'zklock notifier'";
# The process that has sent the last one would send the next one, too.
wait_ask($standby, $notifiers, 0, 'the notifier has gone');
reload($standby, notify_database => 'nowhere');
ZkLock::wait_until(sub { ZkLock::ask($standby, "SHOW zklock.notify_database") eq 'nowhere' }, 'reloaded');
ZkLock::ask($standby, "SELECT zk_is_leader('late')");
ZkLock::wait_until(sub { log_of($standby) =~ /database "nowhere" does not exist/ }, 'the log says that there is no such database');
# each of these makes the worker go round
ZkLock::ask($standby, "SELECT zk_try_lock('round')") for 1 .. 50;
is(scalar(() = log_of($standby) =~ /database "nowhere" does not exist/g), 1, 'a failure is not repeated without need');
reload($standby, notify_database => 'postgres');
ZkLock::wait_until(sub { ZkLock::ask($standby, "SHOW zklock.notify_database") eq 'postgres' }, 'reloaded');
ZkLock::ask($standby, "SELECT zk_is_leader('later')");
ok(notified(qr/payload "late:standby" received.*payload "later:standby" received/s), 'what was not sent comes later');
wait_ask($standby, $notifiers, 0, 'the notifier has gone');

done_testing();
