# Jobs at the edges: slots from the first to the last timestamp there is, records whose
# times are none, tables of the extension that are not quite as it made them, and znodes
# that may not be read.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(rows record);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $node = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '1h'\ncluster_name = 'a'");
ZkLock::wait_connected($node);
ZkLock::ask($node, 'CREATE TABLE t (job text)');
my $s = ZkLock::session($node);
$s->query("SET timezone = 'UTC'");

sub call { my ($job, $when) = @_; return "CALL zk_run_once('$job', 'INSERT INTO t VALUES (''$job'')', $when)"; }

#
# Times
#
for my $slot ('4714-11-24 00:00:00+00 BC', '0001-12-31 23:59:59+00 BC', '294276-12-31 23:59:59.999+00')
{
	for my $zone ('UTC', 'Pacific/Kiritimati', 'Pacific/Midway')
	{
		$s->query("SET timezone = '$zone'");
		is($s->fails(call("slot $slot", "slot => '$slot'")), '', "slot $slot, in $zone");
	}
	is(rows($node, "slot $slot") . record($node, "slot $slot"), '1done|a|1|0', '... is run once');
	is($s->query("SELECT slot = '$slot' AND slot = last_done AND runs->0->>'slot' IS NOT NULL FROM zk_jobs WHERE job = 'slot $slot'"), 't', '... and shown');
	is($s->query("SELECT slot = '$slot' FROM zk_runs WHERE name = 'slot $slot'"), 't', '... in zk_runs, too');
}
$s->query('RESET timezone');
like($s->fails(call('endless', "slot => '$_'")), qr/^22023: slot must be finite/, "slot $_") for 'infinity', '-infinity';

# After the last timestamp nothing is due.
my $last = 'slot 294276-12-31 23:59:59.999+00';
is($s->query("SELECT zk_job_reset('$last')"), 't', 'the last slot, reset');
is($s->fails(call($last, "every => '32850 days'")), '', '... is run again, by a call with every');
is(rows($node, $last), 2, '... once');
is($s->fails('TABLE zk_jobs'), '', '... and all jobs can be shown');
is($s->query("SELECT next_due IS NULL FROM zk_jobs WHERE job = '$last'"), 't', '... it is due no more');

# What is no timestamp is no time of a record.
$s->query(call('record', "slot => '2026-01-01'"));
my $good = $zk->get('/zklock/jobs/record');
my ($min, $max) = (-210866803200000, 9224318015999999);
sub replaced { my ($key, $time) = @_; return $good =~ s/"$key": (?:\d+|null)/"$key": $time/r =~ s/"$key": \[\]/"$key": [$time]/r; }
for my $key (qw(paused_until last_done reset_slots slot start end))
{
	for my $time ($min, $max)
	{
		$zk->set('/zklock/jobs/record', replaced($key, $time));
		is($s->fails('TABLE zk_jobs'), '', "$key: $time");
		is(ZkLock::ask($node, "SELECT state FROM zk_jobs WHERE job = 'record'"), 'done', '... is a time');
	}
	for my $time ($min - 1, $max + 1, '18014398509481984', '-18014398509481984')
	{
		$zk->set('/zklock/jobs/record', replaced($key, $time));
		is($s->fails('TABLE zk_jobs'), '', "$key: $time");
		is(ZkLock::ask($node, "SELECT state FROM zk_jobs WHERE job = 'record'"), 'damaged', '... is none');
	}
}
$zk->set('/zklock/jobs/record', $good =~ s/"start": \d+/"start": $min/r =~ s/"end": \d+/"end": $max/r);
is($s->fails('TABLE zk_jobs'), '', 'from the first to the last');
is($s->query("SELECT duration > '290000 years' FROM zk_jobs WHERE job = 'record'"), 't', '... is a long time');
$zk->set('/zklock/jobs/record', $good =~ s/"every": \d+/"every": $max/r =~ s/"last_done": \d+/"last_done": $max/r);
is($s->query("SELECT next_due IS NULL FROM zk_jobs WHERE job = 'record'"), 't', 'the longest period');
$zk->set('/zklock/jobs/record', $good);

#
# Tables
#
my $refused = qr/^55000: table "zk_\w+" is not as extension "zklock" made it$/;
for my $table ('zk_runs', 'zk_fences')
{
	my $use = $table eq 'zk_runs' ? call('table', "slot => '2026-01-01'") : "SELECT zk_fence('x', 1)";
	ZkLock::ask($node, "ALTER TABLE $table SET UNLOGGED");
	like($s->fails($use), $refused, "$table: a crash would empty it");
	like($s->notices, qr/^DETAIL:  It is unlogged, so that a crash empties it\.$/m, '... as the detail says');
	ZkLock::ask($node, "ALTER TABLE $table SET LOGGED");
	is($s->fails($use), '', '... and no more');
}
is(rows($node, 'table'), 1, '... and the slot is run');

# An index by which two jobs would be one, made before the extension's own was made anew
SKIP:
{
	skip 'without ICU', 1 if $s->fails("CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)") ne '';
	ZkLock::ask($node, $_) for 'CREATE INDEX ci ON zk_runs (kind, namespace, name COLLATE ci, slot)', 'REINDEX INDEX CONCURRENTLY zk_runs_slot';
	$s->query(call($_, "slot => '2026-01-01'")) for 'CASE', 'Case';
	is(rows($node, 'CASE') . rows($node, 'Case'), '11', 'jobs that an index takes for one are two');
	ZkLock::ask($node, 'DROP INDEX zk_runs_slot');
	like($s->fails(call('index', "slot => '2026-01-01'")), $refused, '... and there must be another');
	ZkLock::ask($node, 'CREATE INDEX ON zk_runs (kind, namespace, name, slot)');
}

#
# Znodes that may not be read: the others can be shown all the same.
#
$s->query(call($_, "slot => '2026-01-01'")) for 'hidden', 'seen';
$zk->create('/zklock/servers/hidden', data => '{"server": "hidden"}');
$zk->admin->set_acl($_, [ 0, world => 'anyone' ]) for '/zklock/jobs/hidden', '/zklock/servers/hidden';
is($s->fails('TABLE zk_jobs'), '', 'a record that may not be read');
is(ZkLock::ask($node, "SELECT job, state, slot FROM zk_jobs WHERE job IN ('hidden', 'seen') ORDER BY job"), "hidden|damaged|\nseen|done|2026-01-01 00:00:00+00",
	'... is shown as no record, and the others as they are');
like($s->fails($_), qr/^58000: ZooKeeper refused .*: not authenticated$/, "... $_") for call('hidden', "slot => '2026-01-02'"), "SELECT zk_job_forget('hidden')";
is(ZkLock::ask($node, 'SELECT server, ours, since IS NULL, heartbeat IS NULL, node FROM zk_servers ORDER BY ours DESC') =~ s/a-\w+/a/r, "a|t|f|f|a\n|f|t|t|hidden",
	"a server's znode that may not be read");

ZkLock::ok_clean($zk, [$node], 'record', 'after all');
done_testing();
