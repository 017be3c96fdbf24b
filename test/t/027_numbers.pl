# A place in the queue is a number that the ensemble gives.  Contenders that were made
# without the sequence flag have whatever number they say: ours, one that is yet to come.
# Nobody is granted the lock beside one that was there first.
use strict;
use warnings;

use Compress::Zlib qw(adler32);
use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk) } qw(a b);
ZkLock::wait_connected($a, $b);
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;
my $foreigner = $zk->client;
my $uuid = '01234567-89ab-4cde-8f01-23456789abcd';

# Somebody contends by a number of his own.  Returns the path.
sub forge
{
	my ($name, $number, $prefix) = @_;
	return scalar $foreigner->create(ZkLock::directory($name) . sprintf('/%s%010d', $prefix // "_c_$uuid-lock-", $number),
		mode => 'ephemeral', parents => 1);
}

sub number { return substr($_[0], -10) + 0; }

#
# The number that we are about to be given
#
my $n = 0;
for my $prefix ("_c_$uuid-lock-", "_c_$uuid-read-lock-", "${uuid}__lock__", 'by-hand-')
{
	my $name = 'equal ' . ++$n;
	# it is the first child, so that ours would have the number 1, too
	my $path = forge($name, 1, $prefix);
	is($sa->query("SELECT zk_try_lock('$name')"), 'f', "$prefix: its number is not ours alone");
	is($sa->query("SELECT zk_try_lock('$name')"), 'f', '... at the second look, too');
	$sa->send("SELECT zk_lock('$name')")->wait_level(2);
	ZkLock::wait_until(sub { my @q = ZkLock::queue($zk, $name); @q == 2 && number($q[1]) > 1 }, 'we stand behind it');
	is($sb->query("SELECT zk_try_lock('$name')"), 'f', '... and so does another server');
	ok($sa->busy, '... waiting');
	$foreigner->delete($path);
	cmp_ok($sa->result, '>', 0, '... until it is gone');
	ZkLock::ok_clean($zk, [ $a, $b ], $name);
}

# Two readers may have one number.
my $path = forge('readers', 1, "_c_$uuid-read-lock-");
is($sa->query("SELECT zk_try_lock('readers', 'shared')"), 't', 'a reader beside a reader of its number');
$foreigner->delete($path);
ZkLock::ok_clean($zk, [$a], 'readers');

# It comes while we hold the lock: that is no reason to let go, nor to let another one in.
$sa->query("BEGIN; SELECT zk_lock('late')");
$path = forge('late', number((ZkLock::queue($zk, 'late'))[0]));
is($sb->query("SELECT zk_try_lock('late')"), 'f', 'a holder whose number somebody takes stays the holder');
cmp_ok($sa->query("SELECT zk_assert('late')"), '>', 0, '... and knows it');
$sa->query('COMMIT');
is($sb->query("SELECT zk_try_lock('late', timeout => '100ms')"), 'f', '... then the other one has it');
$foreigner->delete($path);
ZkLock::ok_clean($zk, [ $a, $b ], 'late');

#
# A number that is yet to come: was it there before us?
#
my $never = qr/^55000: queue of lock "future" has a contender whose sequence number was never given/;
$path = forge('future', 5);
for my $mode ('exclusive', 'shared')
{
	like($sa->fails("SELECT zk_try_lock('future', '$mode')"), $never, "$mode: a number that was never given");
}
like($sa->notices, qr/without the sequence flag.*Find it with zk_contenders\('future'\) and remove it with zk_break\(/is, '... it says why, and what to do');
like($sb->fails("SELECT zk_lock('future')"), $never, '... on another server, too');
ZkLock::wait_queue($zk, 'future', 1);
is($sa->query("SELECT concat(position, server) FROM zk_contenders('future')"), '1', '... zk_contenders shows it');
is($sb->query("SELECT zk_try_lock('another')"), 't', '... other locks are not concerned');
# Numbers go on, and have come past it one day.
ZkLock::wait_until(sub { ($sb->fails("SELECT zk_try_lock('future')") || $sb->{answer}) eq 'f' }, 'its number has come');
# the other server's contender may be there still
ZkLock::wait_queue($zk, 'future', 1);
$sa->send("SELECT zk_lock('future')")->wait_level(2);
ZkLock::wait_queue($zk, 'future', 2);
$foreigner->delete($path);
cmp_ok($sa->result, '>', 0, 'it counts like any other then');
ZkLock::ok_clean($zk, [ $a, $b ], 'future');

# It comes when somebody holds the lock, and somebody waits.
$sa->query("BEGIN; SELECT zk_lock('future')");
$sb->send("SELECT zk_lock('future')")->wait_level(2);
ZkLock::wait_queue($zk, 'future', 2);
# It watches whom it waits for.
ZkLock::wait_answered($b);
$path = forge('future', 1_000_000);
$sa->query('COMMIT');
cmp_ok($sb->result, '>', 0, 'who was there before it has his turn');
like($sa->fails("SELECT zk_lock('future')"), $never, '... who comes later has none');
$foreigner->delete($path);
is($sa->query("SELECT zk_try_lock('future', timeout => '1 min')"), 't', '... until it is deleted');
ZkLock::ok_clean($zk, [ $a, $b ], 'future');

# As far from the counter as can be: that is no sign that the counter is at its end.
for my $number (-1, -5, 2_147_483_647)
{
	$path = forge('future', $number);
	like($sa->fails("SELECT zk_lock('future')"), $never, "$number was never given");
	is($sa->query("SELECT zk_break('future', token) FROM zk_contenders('future')"), 't', '... zk_break removes it');
	is($sa->query("SELECT zk_try_lock('future', timeout => '1 min')"), 't', '... and the lock is free');
	ZkLock::ok_clean($zk, [ $a, $b ], 'future');
}

#
# The end of the counter, which is 31 bits wide.  Nobody can wait for it: it is written
# into the server's snapshot.
#
sub set_counter
{
	my ($directory, $number) = @_;
	# a server takes a snapshot as it starts
	$zk->restart->stop;
	my ($newest) = reverse sort map { sprintf '%16s', /(\w+)$/ } glob "$zk->{dir}/1/data/version-2/snapshot.*";
	$newest = "$zk->{dir}/1/data/version-2/snapshot." . $newest =~ s/^ +//r;
	my $old = PostgreSQL::Test::Utils::slurp_file($newest);
	my $new = $old;
	# path, data, acl, czxid, mzxid, ctime, mtime, version, cversion
	my $path = pack 'N/a*', $directory;
	$old =~ /\Q$path\E(....)/s or die "no $directory in $newest";
	my $length = unpack 'l>', $1;
	substr($new, $+[0] + ($length > 0 ? $length : 0) + 44, 4) = pack 'N', $number;
	# checksums of all before them
	while ($old =~ /(.{8})\x00\x00\x00\x01\//gs)
	{
		my $at = $-[0];
		substr($new, $at, 8) = pack 'Q>', adler32(substr $new, 0, $at)
		  if unpack('Q>', $1) == adler32(substr $old, 0, $at);
		pos($old) = $at + 1;
	}
	open my $fh, '>:raw', $newest or die "could not open $newest: $!";
	print $fh $new;
	close $fh or die "could not write $newest: $!";
	$zk->start;
	ZkLock::wait_connected($a, $b);
	return;
}

my $many = ZkLock::directory('many');
my $limit = 2**31 - 2**20;
$zk->create($many, mode => 'persistent');
for my $number (2**30 + 7, $limit - 1)
{
	set_counter($many, $number);
	cmp_ok($sa->query("BEGIN; SELECT zk_lock('many')"), '>', 0, "$number requests, and this one");
	is(number((ZkLock::queue($zk, 'many'))[0]), $number, '... which has that number');
	is($sb->query("SELECT zk_try_lock('many')"), 'f', '... and has the lock') if $number < $limit - 1;
	$sa->query('COMMIT');
}
my $used_up = qr/^54000: sequence numbers of lock "many" are used up/;
like($sa->fails("SELECT zk_lock('many')"), $used_up, 'near their end numbers are used up');
set_counter($many, 2**31 - 1);
like($sa->fails("SELECT zk_try_lock('many', 'shared')"), $used_up, '... and at their end');
like($sa->notices, qr/Delete the directory while nobody uses the lock/, '... it says what to do');
ZkLock::wait_queue($zk, 'many', 0);
$zk->delete($many);
cmp_ok($sa->query("SELECT zk_lock('many')"), '>', 0, '... which helps');
ZkLock::ok_clean($zk, [ $a, $b ], 'many');

# The directory of a job has its record
my $jobs = ZkLock::directory('many', 'jobs');
my ($first, $second) = map { "CALL zk_run_once('many', 'SELECT 1', slot => '2026-01-0$_')" } 1, 2;
$sa->query($first);
ZkLock::wait_queue($zk, 'many', 0, 'jobs');
set_counter($jobs, 2**31 - 1);
like($sa->fails($second), qr/^54000: sequence numbers of job "many" are used up/, 'a job: at their end');
like($sa->notices, qr/^HINT:  Delete the directory while nobody uses the job, and create it again with the same data/m, '... it says what to do');
ZkLock::wait_queue($zk, 'many', 0, 'jobs');
my $record = $zk->get($jobs);
$zk->delete($jobs);
$zk->create($jobs, data => $record);
$sb->query($first);
like($sb->notices, qr/^NOTICE 00000: job "many" is done for slot 2026-01-01/, '... after which what was done is done');
$sb->query($second);
is($sb->notices, '', '... and what is due is run');
$foreigner = $zk->client;

#
# Elections
#
$path = scalar $foreigner->create(ZkLock::directory('boss', 'elections') . "/_c_$uuid-latch-0000000007", mode => 'ephemeral', parents => 1);
$sa->query("SELECT zk_is_leader('boss')");
ZkLock::wait_until(sub { PostgreSQL::Test::Utils::slurp_file($a->logfile) =~ /could not become a candidate in election "boss"/ }, 'the log tells');
like(PostgreSQL::Test::Utils::slurp_file($a->logfile), qr/DETAIL:  A contender has a sequence number that was never given\.\n.*HINT:  Delete it from the election's directory in ZooKeeper, or /, '... why, and what to do');
is($sa->query("SELECT zk_is_leader('boss')"), 'f', 'no leader beside a candidate with a number that was never given');
$foreigner->delete($path);
ZkLock::wait_until(sub { $sa->query("SELECT zk_is_leader('boss')") eq 't' }, 'it leads when that has gone');

done_testing();
