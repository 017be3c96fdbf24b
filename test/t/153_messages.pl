# Messages that are not ours: zklock leaves them as they were written, whatever is in them, and
# adds nothing to the time that they take.  What finds the name behind PostgreSQL's numbers.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Pages qw(blocks_of);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('a', $zk, conf => "deadlock_timeout = '50ms'\nlog_lock_waits = on");
ZkLock::wait_connected($node);

sub log_of { return PostgreSQL::Test::Utils::slurp_file($node->logfile); }

# The lock of somebody else, in the words of PostgreSQL
ZkLock::ask($node, 'CREATE ROLE alice LOGIN');
my $holder = ZkLock::session($node);
$holder->query("BEGIN; SELECT zk_lock('secret')");
my $alice = ZkLock::session($node, user => 'alice');
$alice->query('\set SHOW_CONTEXT always');
my $tag = $alice->query("SELECT format('advisory lock [0,%s,%s,%s]', classid, objid, objsubid) FROM pg_locks WHERE $ZkLock::level1");
like($tag, qr/^advisory lock \[0,\d+,\d+,31339\]$/, 'pg_locks shows the numbers to all');
is($alice->query('SELECT count(name) FROM zk_locks'), 0, '... and zk_locks the name to few');

#
# Texts of clients
#
is($alice->fails(qq{DO \$\$ BEGIN RAISE EXCEPTION USING ERRCODE = '40P01', MESSAGE = 'm $tag', DETAIL = 'd $tag', HINT = 'h $tag'; END \$\$}), "40P01: m $tag", 'an error that a client raises');
like($alice->notices, qr/^DETAIL:  d \Q$tag\E$/m, '... comes with its detail');
is($alice->fails(qq{DO \$\$ BEGIN EXECUTE 'SELECT 1/0 /* $tag */'; END \$\$}), '22012: division by zero', 'an error in a statement');
like($alice->{answer} . $alice->notices, qr{/\* \Q$tag\E \*/}, '... comes with the statement as it is');
unlike($alice->{answer} . $alice->notices, qr/secret/, '... without the name');
my $many = "$tag " x 300;
$alice->query("DO \$\$ BEGIN RAISE LOG 'here: %', '$many'; END \$\$");
ok(index(log_of(), "LOG:  here: $many\n") >= 0, 'so does a line of the log');

# Much of it: what is slow here cannot be interrupted
my $much = q{DO $$ BEGIN RAISE LOG '%: %', $q$%s$q$, repeat('advisory lock [0,1,1,31339]', 500000); PERFORM pg_sleep(86400); END $$};
is($alice->fails("SET statement_timeout = '100ms'; " . $much =~ s/%s/first/r), '57014: canceling statement due to statement timeout', 'statement_timeout ends one who writes long texts');
$alice->send('SET statement_timeout = 0; ' . $much =~ s/%s/second/r);
ZkLock::wait_until(sub { index(log_of(), 'LOG:  second: ' . 'advisory lock [0,1,1,31339]' x 500000 . "\n") >= 0 }, 'a long text is written');
$alice->terminate;
like($alice->failure, qr/^(?:57P01|lost)/, 'terminate does');

#
# Names
#
my $other = ZkLock::session($node);
$holder->query('COMMIT');
$holder->query("BEGIN; SELECT zk_lock('other')");
$other->query("BEGIN; SELECT zk_lock('job')");
$other->query("SET deadlock_timeout = '1h'");
$other->send("SELECT zk_lock('other')")->wait_level(1);
is($holder->fails("SELECT zk_lock('job')"), '40P01: deadlock detected', 'a deadlock within a server');
# the lines of a message but the first are in the answer
my $said = $holder->notices . "\n" . $holder->{answer};
my @tags = $said =~ /ExclusiveLock on advisory lock \[0,(\d+,\d+),31339\]; blocked/g;
is(scalar(@tags), 2, '... which PostgreSQL describes by numbers') or diag $said;
unlike($said, qr/job|other/, '... alone');
like(log_of(), qr/while waiting for exclusive lock "job", which process @{[ $other->pid ]} holds$/m, 'the log has the name');
$holder->query('ROLLBACK');
$other->result;
$other->query('ROLLBACK');
$_->quit for $holder, $other;

my ($find) = @{ blocks_of('doc/locks.md')->{'In pg_locks'} };
ZkLock::ask($node, 'CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
my $watcher = ZkLock::session($node, user => 'watcher');
is($watcher->query($find), 'lock|job', 'the documentation has a query that finds it');
for my $of ([ $tags[0], 'lock|job' ], [ $tags[1], 'lock|other' ])
{
	my ($high, $low) = split /,/, $of->[0];
	is($watcher->query($find =~ s/= \d+::bigint << 32 \| \d+/= $high\::bigint << 32 | $low/r), $of->[1], '... with the numbers of a message');
}

# Of a job, too
$holder = ZkLock::session($node);
$holder->query("SELECT zk_run_begin('report', every => '1 day')");
my $numbers = ZkLock::ask($node, "SELECT classid || '::bigint << 32 | ' || objid FROM pg_locks WHERE $ZkLock::level1 AND pid = " . $holder->pid);
is($watcher->query($find =~ s/= \d+::bigint << 32 \| \d+/= $numbers/r), 'job|report', 'that finds a job, too');

done_testing();
