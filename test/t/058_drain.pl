# zklock.drain: a server that is taken out of service leads nowhere, keeps nothing and goes
# on giving locks; and is as it was when that is over.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Cluster;
use Test::More;
use Jobs ();
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
# What another server shows of it comes with its heartbeats.
my $conf = "zklock.keep_time = '1h'";
my $a = ZkLock::server('a', $zk, init => { allows_streaming => 1 }, conf => "$conf\nzklock.elections = 'listed'\nzklock.session_timeout = '20s'");
my $b = ZkLock::server('b', $zk, conf => $conf);
ZkLock::wait_connected($a, $b);

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }
sub is_leader { my ($node, $election) = @_; return ZkLock::ask($node, "SELECT zk_is_leader('$election', '1 h')"); }
sub drain { my ($node, $on) = @_; ZkLock::ask($node, "ALTER SYSTEM SET zklock.drain = $on; SELECT pg_reload_conf()"); return; }
sub state_of { return ZkLock::ask($_[0], 'SELECT drain FROM zk_session'); }
sub wait_state { my ($node, $state) = @_; ZkLock::wait_until(sub { state_of($node) eq $state }, $node->name . " is $state"); return pass($node->name . " is $state"); }
sub wait_leader
{
	my ($node, $election) = @_;
	ZkLock::wait_until(sub { is_leader($node, $election) eq 't' }, $node->name . " leads $election");
	return pass($node->name . " leads $election");
}

#
# A run goes on, and no other begins.
#
my ($run, $waiter) = map { ZkLock::session($a) } 1 .. 2;
is($run->query("SELECT zk_run_begin('night', every => '1 day')"), 't', 'a run begins');
my $other_run = ZkLock::session($b);
$other_run->query("SELECT zk_run_begin('elsewhere', $Jobs::daily)");
$waiter->send("CALL zk_run_once('elsewhere', 'SELECT 1/0', $Jobs::daily)");
$waiter->wait_event('Extension');

#
# All that it has
#
is(join(' ', map { is_leader($a, $_) } qw(job free)), 't t', 'it leads');
wait_leader($a, 'listed');
is(join(' ', map { is_leader($b, $_) } qw(job free listed)), 'f f f', '... and another is a candidate');
ZkLock::ask($a, "SELECT zk_lock('kept')");
my ($holder, $guard) = map { ZkLock::session($a) } 1 .. 2;
$holder->query("SELECT zk_lock('held', scope => 'session'), zk_lock('later', scope => 'session')");
$guard->query("BEGIN; SELECT zk_require_leader('job')");
is(state_of($a), 'off', 'in service');

drain($a, 'on');
my $led;
ZkLock::wait_until(sub { ($led = join ' ', map { is_leader($a, $_) } qw(job free listed)) eq 'f f f' }, 'it leads nowhere', sub { $led });
is(is_leader($a, 'other'), 'f', 'it leads nowhere, whoever asks');
wait_leader($b, $_) for qw(free listed);
is(is_leader($b, 'other'), 't', '... nor where nobody led');
is(is_leader($b, 'job'), 'f', 'a transaction that requires the leadership is awaited');
is($guard->fails('COMMIT'), '', '... and commits');
wait_leader($b, 'job');
is(ZkLock::ask($b, "SELECT ARRAY(SELECT server FROM zk_candidates(e)) FROM unnest('{job,free,listed,other}'::text[]) e"), join("\n", ('{b}') x 4), '... as the only candidate');
like(log_of($a), qr/is no longer leader of election "free", token \d+: "zklock.drain" is on/, 'the log says why');
my $s = ZkLock::session($a);
$s->query("CALL zk_run_as_leader('job', 'SELECT 1/0')");
like($s->notices, qr/NOTICE 00000: this server is not the leader of election "job", skipping\nDETAIL:  The server is taken out of service by "zklock.drain"\./, 'zk_run_as_leader says why');
is($s->fails("SELECT zk_require_leader('job')"), '40001: this server is not the leader of election "job"', '... and zk_require_leader');
like($s->notices, qr/DETAIL:  The server is taken out of service by "zklock.drain"\./, '... as well');

# Runs
$s->query("CALL zk_run_once('day', 'SELECT 1/0', every => '1 day')");
like($s->notices, qr/NOTICE 00000: job "day" is not run by this server, skipping\nDETAIL:  The server is taken out of service by "zklock.drain"\./, 'a drained server begins no run');
is($s->query("SELECT zk_run_begin('day', every => '1 day')"), 'f', '... of either kind');
is(ZkLock::ask($b, "SELECT zk_run_begin('day', every => '1 day')") . ZkLock::ask($b, "SELECT zk_run_end('day')"), 'tt', '... which another does');
is($other_run->query("SELECT zk_run_end('elsewhere', false)"), 't', 'a run elsewhere fails');
is($waiter->result, '', '... and who waits for it here');
like($waiter->notices, qr/job "elsewhere" is not run by this server/, '... does not run it');
is($run->query("SELECT zk_run_end('night')"), 't', 'a run that has begun comes to its end');
$_->quit for $run, $waiter, $other_run;

# Kept grants go, locks go on, and are not kept.
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT count(*) FROM zk_contenders('kept')") == 0 }, 'a kept lock is given back');
is(state_of($a), 'draining', 'not drained while somebody holds a lock');
is($s->query("SELECT zk_lock('new') > 0"), 't', 'a lock can be had');
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT count(*) FROM zk_contenders('new')") == 0 }, '... and is not kept');
is(ZkLock::ask($b, "SELECT zk_try_lock('held')"), 'f', '... nor taken from who has it');
ZkLock::wait_queue($zk, 'held', 1);
is($holder->query("SELECT zk_unlock('held'); SELECT zk_token('later') > 0"), "t\nt", 'a holder goes on');
is(state_of($a), 'draining', 'still not drained');
$holder->quit;
wait_state($a, 'drained');
is(join(' ', map { ZkLock::queue($zk, $_->[0], $_->[1]) } [ 'held', 'locks' ], [ 'later', 'locks' ], [ 'kept', 'locks' ], [ 'new', 'locks' ]), '', '... and nothing is left of it');
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT string_agg(server || ' ' || drain, ',' ORDER BY server) FROM zk_servers") eq 'a drained,b off' }, 'others see it');
like(log_of($a), qr/LOG:  this server is drained: it holds no lock and leads no election/, 'the log says so');
$s->query("BEGIN; SELECT zk_lock('again')");
is(state_of($a), 'draining', 'who takes a lock makes it drain again');
$s->query('COMMIT');
wait_state($a, 'drained');
is(ZkLock::ask($a, "SELECT string_agg(election || ' ' || is_leader, ',' ORDER BY election) FROM zk_elections"), 'free false,job false,listed false,other false', 'it goes on wanting to lead');
is(ZkLock::ask($a, "SELECT zk_resign('free')"), 't', 'it can resign for good');

#
# Restarted so, and back in service
#
$s->quit;
$a->restart;
ZkLock::wait_connected($a);
wait_state($a, 'drained');
is(is_leader($a, 'job'), 'f', 'a restart changes nothing');
is(ZkLock::ask($b, "SELECT ARRAY(SELECT server FROM zk_candidates(e)) FROM unnest('{job,listed}'::text[]) e"), "{b}\n{b}", '... nor does zklock.elections');
ZkLock::ask($a, 'ALTER SYSTEM RESET zklock.drain; SELECT pg_reload_conf()');
wait_state($a, 'off');
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT ARRAY(SELECT server FROM zk_candidates('job'))::text || ARRAY(SELECT server FROM zk_candidates('listed'))::text") eq '{b,a}{b,a}' }, 'back in all elections');
pass('back in service, it is a candidate where somebody asked, or by zklock.elections');
is(ZkLock::ask($b, "SELECT ARRAY(SELECT server FROM zk_candidates('free'))"), '{b}', '... and nowhere else');
drain($b, 'on');
wait_leader($a, 'job');
ZkLock::ask($a, "SELECT zk_lock('kept')");
is(ZkLock::ask($b, "SELECT granted, server FROM zk_contenders('kept')"), 't|a', '... and keeps locks');
wait_state($b, 'drained');

#
# A standby, promoted meanwhile
#
$a->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($a, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'zklock.drain = on');
$standby->start;
ZkLock::wait_connected($standby);
is(is_leader($standby, 'job'), 'f', 'a standby is no leader');
wait_state($standby, 'drained');
ZkLock::hang_up($a);
$a->stop('fast');
$standby->promote;
is(is_leader($standby, 'job'), 'f', '... promoted neither, while it is out of service');
is(ZkLock::ask($b, "SELECT ARRAY(SELECT server FROM zk_candidates('job')), ARRAY(SELECT server FROM zk_candidates('listed'))"), '{}|{}', '... nor a candidate');
is(state_of($standby), 'drained', '... which it says');
drain($standby, 'off');
wait_leader($standby, $_) for qw(job listed);

done_testing();
