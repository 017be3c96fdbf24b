# Readers of one server share a grant until somebody else wants the lock.  Then a few
# more may join, and no more: those wait, or are told that it is in vain, for as long as
# somebody else wants it and no longer.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use Time::HiRes qw(time);
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.session_timeout = '20s'") } qw(a b);
ZkLock::wait_connected($a, $b);
my @reader = map { ZkLock::session($a) } 1 .. 5;
my $writer = ZkLock::session($b);
my $foreigner = $zk->client;
my $directory = ZkLock::directory('y');

sub set { my ($name, $value) = @_; return ZkLock::set($a, $name, $value, @reader); }

sub grant_states { return ZkLock::ask($a, "SELECT string_agg(grant_state, ' ' ORDER BY wait_start NULLS FIRST, pid) FROM zk_locks WHERE name = 'y'"); }

# Somebody elsewhere wants it; a reader of A's has it, and so have as many more as may.
sub demanded
{
	my $limit = shift;
	$reader[0]->query("BEGIN; SELECT zk_lock('y', 'shared')");
	$writer->send("SELECT zk_lock('y')")->wait_level(2);
	ZkLock::wait_demanded($zk, $a, 'y');
	$reader[$_]->query("BEGIN; SELECT zk_lock('y', 'shared')") for 1 .. $limit;
	return;
}

sub end
{
	my $limit = shift;
	$reader[$_]->query('COMMIT') for 0 .. $limit;
	return;
}

for my $limit (0, 2)
{
	set('zklock.handoff_limit', $limit);
	my $next = $reader[ $limit + 1 ];

	# no less than was asked for, and not as long as somebody reads
	demanded($limit);
	my $start = time;
	is($next->query("SELECT zk_try_lock('y', 'shared')"), 'f', "handoff_limit $limit: zk_try_lock behind a writer elsewhere");
	is($next->query("SELECT zk_try_lock('y', 'shared')"), 'f', '... once more');
	is($next->query("SELECT zk_try_lock('y', 'shared', timeout => '200ms')"), 'f', '... with a timeout');
	like($next->fails("CALL zk_lock_session('y', 'shared', '200ms')"), qr/^55P03: could not obtain lock "y" within 200 ms/, '... zk_lock_session with a timeout');
	like($next->fails("SET lock_timeout = '200ms'; SELECT zk_lock('y', 'shared')"), qr/^55P03: canceling statement due to lock timeout/, '... lock_timeout');
	$next->query('RESET lock_timeout');
	cmp_ok(time - $start, '>', 0.6, '... not before the time is up');

	# who waits, and for whom?
	$next->send("BEGIN; SELECT zk_lock('y', 'shared')")->wait_level(2);
	my $pids = join ' ', sort map { $_->pid } @reader[ 0 .. $limit ];
	my @waiter = split /[| ]/, ZkLock::ask($a, "SELECT grant_state, array_to_string(blocked_by, ' ') FROM zk_locks WHERE name = 'y' AND NOT granted");
	is(join(' ', shift @waiter, sort @waiter), "queued $pids", '... zk_locks names the readers that are waited for');
	is(ZkLock::ask($a, "SELECT string_agg(DISTINCT grant_state, ' ') FROM zk_locks WHERE name = 'y' AND granted"), 'releasing', '... who have it to the end only');
	ok($next->busy, '... and waits');
	end($limit);
	cmp_ok($writer->result, '>', 0, '... the writer is first');
	cmp_ok($next->result, '>', 0, '... the reader is next');
	$next->query('COMMIT');
	ZkLock::ok_clean($zk, [ $a, $b ], 'y');

	# the demand is withdrawn while a reader waits
	demanded($limit);
	$next->send("BEGIN; SELECT zk_lock('y', 'shared')")->wait_level(2);
	$writer->cancel;
	is($writer->failure, '57014: canceling statement due to user request', '... a writer gives up');
	cmp_ok($next->result, '>', 0, '... the reader who waits joins the others');
	is(grant_states(), join(' ', ('held') x ($limit + 2)), '... the lock is theirs as before');
	is($writer->query("SELECT zk_try_lock('y')"), 'f', '... and nobody else has it');
	$_->query('COMMIT') for $next, @reader[ 0 .. $limit ];
	ZkLock::ok_clean($zk, [ $a, $b ], 'y');

	# ... and before one comes
	demanded($limit);
	$writer->cancel->failure;
	ZkLock::wait_queue($zk, 'y', 1);
	is($next->query("BEGIN; SELECT zk_try_lock('y', 'shared')"), 't', '... a reader who comes then has it at once');
	# two want it; one of them goes
	my @others = map { $foreigner->contend($directory) } 1, 2;
	ZkLock::wait_until(sub { grant_states() =~ /releasing|demanded/ }, 'somebody wants it again');
	$reader[ 3 + $_ ]->fails("BEGIN; SELECT zk_try_lock('y', 'shared')") for 0, 1;
	$reader[ 3 + $_ ]->query('COMMIT') for 0, 1;
	if ($limit == 0)
	{
		my $late = $reader[4]->send("BEGIN; SELECT zk_lock('y', 'shared')")->wait_level(2);
		for my $i (1, 0)
		{
			ok($late->busy, '... a reader waits as long as one of two is left');
			$foreigner->delete($others[$i]);
		}
		cmp_ok($late->result, '>', 0, '... and no longer');
		$late->query('COMMIT');
	}
	else { $foreigner->delete($_) for @others; }
	$_->query('COMMIT') for $next, @reader[ 0 .. $limit ];
	ZkLock::ok_clean($zk, [ $a, $b ], 'y');

	# A reader here who would write waits at level 1 for the one who waits to read, the
	# writer elsewhere for him: the reader waits for neither.
	for my $stays (1, 0)
	{
		demanded($limit);
		$next->send("BEGIN; SELECT zk_lock('y', 'shared')")->wait_level(2);
		$reader[0]->send($stays ? "SELECT zk_lock('y')" : "SAVEPOINT s; SELECT zk_try_lock('y', timeout => '1h')")->wait_level(1);
		cmp_ok($next->result, '>', 0, '... a reader joins one who waits for it, to write');
		is($reader[4]->query("SELECT zk_try_lock('y', 'shared')"), 'f', '... and none who comes later');
		$reader[4]->send("SELECT zk_lock('y', 'shared')")->wait_level(1);
		if (!$stays)
		{
			$writer->cancel->failure;
			ZkLock::wait_queue($zk, 'y', 1);
		}
		$_->query('COMMIT') for $next, @reader[ 1 .. $limit ];
		if ($stays)
		{
			like($reader[0]->failure, qr/^40P01: deadlock detected/, '... a deadlock with the writer');
			cmp_ok($writer->result, '>', 0, '... who has it then');
		}
		else
		{
			is($reader[0]->result, 't', '... who writes if the writer has gone');
			$reader[0]->query('ROLLBACK TO s');
		}
		$reader[0]->query('COMMIT');
		cmp_ok($reader[4]->result, '>', 0, '... the one who came later is next');
		ZkLock::ok_clean($zk, [ $a, $b ], 'y');
	}
}

# One who only tried.
set('zklock.handoff_limit', '0');
$reader[0]->query("BEGIN; SELECT zk_lock('y', 'shared')");
my $tried = $foreigner->contend($directory);
ZkLock::wait_demanded($zk, $a, 'y');
$foreigner->delete($tried);
is($reader[1]->query("BEGIN; SELECT zk_try_lock('y', 'shared')"), 't', 'who has only tried keeps no reader out afterwards');
cmp_ok($reader[2]->query("BEGIN; SELECT zk_lock('y', 'shared')"), '>', 0, '... nor the next one');
$reader[$_]->query('COMMIT') for 0 .. 2;
ZkLock::ok_clean($zk, [ $a, $b ], 'y');

# The answer is as new as the question, whatever this ZooKeeper server knows.
$reader[0]->query("BEGIN; SELECT zk_lock('y', 'shared')");
my $wrong = 0;
for (1 .. 20)
{
	my $path = $foreigner->contend($directory);
	ZkLock::wait_until(sub { grant_states() eq 'releasing' }, 'it is wanted');
	$wrong++ if $reader[1]->query("SELECT zk_try_lock('y', 'shared')") ne 'f';
	$foreigner->delete($path);
	$wrong++ if $reader[1]->query("SELECT zk_try_lock('y', 'shared')") ne 't';
}
is($wrong, 0, 'zk_try_lock says at once when a demand has come, and when it has gone');
$reader[0]->query('COMMIT');
ZkLock::ok_clean($zk, [ $a, $b ], 'y');

done_testing();
