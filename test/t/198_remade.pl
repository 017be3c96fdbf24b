# Ours is what we have made, not what bears a name of ours: another client deletes a
# contender and makes a node with its name.  Who had the lock hears of that, and nobody else
# has it beside him for longer.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

# Directories stay when they are empty, as long as the test needs.
my $zk = ZooKeeper->new(container_check_ms => 3_600_000)->start;
my ($a, $b) = map { ZkLock::server($_, $zk) } qw(a b);
# One that keeps its locks watches their directories.
my $keeper = ZkLock::server('keeper', $zk, conf => "zklock.keep_time = '1h'");
ZkLock::wait_connected($a, $b, $keeper);
my ($s, $r, $k) = map { ZkLock::session($_) } $a, $b, $keeper;
my $foreign = $zk->client;

# The contenders of a server, as paths
sub own
{
	my ($node, $kind, $name) = @_;
	my $id = ZkLock::ask($node, 'SELECT session_id FROM zk_session');
	my $directory = ZkLock::directory($name, $kind);
	return grep { sprintf('0x%x', ($zk->stat($_) // { ephemeralOwner => 0 })->{ephemeralOwner}) eq $id } map { "$directory/$_" } ZkLock::queue($zk, $name, $kind);
}

# "between" happens while there is none
sub remake
{
	my ($path, $between) = @_;
	$foreign->delete($path) or die "$path has gone";
	my $answer = $between ? $between->() : undef;
	$foreign->create($path, mode => 'ephemeral');
	return $answer;
}

# What A is told; in a session that only asks whether it has lost
sub told
{
	my ($session) = @_;
	my $failure;
	ZkLock::wait_until(sub { ($failure = $session->fails('SELECT 1')) ne '' }, 'A is told that it has lost');
	return $failure;
}

#
# Another server has it then.  The holder's watch on its own node comes with the next
# heartbeat: a race, hence so often.
#
sub permit { my ($n) = @_; return sub { "SELECT zk_acquire('$_[0]', $n, 'session')" } }
sub lock { my ($mode) = @_; return sub { "SELECT zk_lock('$_[0]', '$mode', 'session')" } }
my @cases = (
	[ 'a permit', 'semaphores', permit(1), permit(1) ],
	[ 'one of two permits', 'semaphores', permit(2), permit(2) ],
	[ 'a lock', 'locks', lock('exclusive'), lock('exclusive') ],
	[ 'a lock to read', 'locks', lock('shared'), lock('exclusive') ],
	[ 'a lock of a set', 'locks', sub { "SELECT zk_try_lock_all(ARRAY['$_[0]', '$_[0] too'], 'exclusive', 'session')" }, lock('exclusive') ]);
for (@cases)
{
	my ($what, $directory, $have, $want) = @$_;
	my $kind = $directory =~ s/s$//r;
	my ($proven, $wrong, $left) = (0, 0, 0);
	for my $n (1 .. 10)
	{
		my $name = "$what $n";
		my $lost = qr/^55000: (?:a permit of )?$kind "\Q$name\E" was lost/;
		my $beside = $what eq 'one of two permits' ? ZkLock::session($b) : undef;
		$beside->query($have->($name)) if $beside;
		# A lock that its server comes back to again and again is granted by its number.
		$s->query($have->($name) . '; SELECT zk_unlock_all()') for $n % 2 ? 1 .. 2 : ();
		$s->query($have->($name));
		my ($path) = own($a, $directory, $name);
		$r->send($want->($name));
		$zk->wait_children(ZkLock::directory($name, $directory), $beside ? 3 : 2);
		remake($path, sub { $r->result });
		my $assert = ($kind eq 'semaphore' ? 'zk_assert_permit' : 'zk_assert') . "('$name')";
		my $failure = $s->fails("SELECT $assert");
		$proven++ if $failure eq '';
		$wrong++ if $failure !~ $lost;
		$wrong++ if told($s) !~ $lost;
		$r->query("SELECT $assert");
		$left++ if own($a, $directory, $name);
		# It may have gone: A deletes what bears its mark and is not its own, if it finds any.
		$foreign->delete($path);
		$_->query('SELECT zk_unlock_all()') for $s, $r, $beside // ();
	}
	is($proven, 0, "$what: zk_assert proves nothing that another server has");
	is($wrong, 0, '... A is told');
	is($left, 0, '... and has nothing left');
}

#
# Nobody waits, and nothing is handed over: the holder is told all the same.
#
for my $case (
	[ 'a permit', $a, $s, 'semaphores', permit(1) ],
	[ 'a lock', $a, $s, 'locks', lock('exclusive') ],
	[ 'a lock to read', $a, $s, 'locks', lock('shared') ],
	[ 'a lock that may be kept', $keeper, $k, 'locks', lock('exclusive') ],
	[ 'a lock that may be kept, to read', $keeper, $k, 'locks', lock('shared') ])
{
	my ($what, $node, $session, $directory, $have) = @$case;
	my $kind = $directory =~ s/s$//r;
	my $wrong = 0;
	for my $n (1 .. 2)
	{
		my $name = "$what alone $n";
		$session->query($have->($name));
		my ($path) = own($node, $directory, $name);
		remake($path);
		$wrong++ if told($session) !~ /^55000: (?:a permit of )?$kind "\Q$name\E" was lost/;
		$session->query('SELECT zk_unlock_all()');
		$foreign->delete($path);
	}
	is($wrong, 0, "$what, and nobody waits: the holder is told");
}

# In a transaction: no commit.
$s->query("BEGIN; SELECT zk_acquire('commit', 1)");
my ($path) = own($a, 'semaphores', 'commit');
remake($path);
ZkLock::wait_until(sub { !$foreign->exists($path) || !ZkLock::ask($a, "SELECT count(*) FROM zk_locks WHERE name = 'commit' AND grant_state <> 'lost'") }, 'A knows');
like($s->fails('COMMIT'), qr/^40001: a permit of semaphore "commit" was lost/, 'the commit of who has lost it fails');

# A grant that is kept for nobody is none any more.
$k->query("SELECT zk_lock('kept')") for 1 .. 4;
($path) = own($keeper, 'locks', 'kept');
ok($path, 'a lock is kept');
remake($path);
$foreign->delete($path);
ZkLock::wait_until(sub { ZkLock::ask($keeper, "SELECT count(*) FROM zk_locks WHERE name = 'kept'") == 0 }, 'the server knows');
$r->query("SELECT zk_lock('kept', scope => 'session')");
is($k->query("SELECT zk_try_lock('kept')"), 'f', '... it is not, when its contender was remade');
$r->query("SELECT zk_unlock('kept')");

#
# A leader is none any more, and queues anew.
#
ZkLock::wait_until(sub { $s->query("SELECT zk_is_leader('e')") eq 't' }, 'A leads');
my $token = $s->query("SELECT (SELECT token FROM zk_elections WHERE election = 'e')");
($path) = own($a, 'elections', 'e');
remake($path);
ZkLock::wait_until(sub { $foreign->delete($path); ($s->query("SELECT (SELECT token FROM zk_elections WHERE election = 'e')") // 0) ne $token }, 'A does not lead with the token of what is gone');
ZkLock::wait_until(sub { $s->query("SELECT zk_is_leader('e')") eq 't' }, 'A leads again');
cmp_ok($s->query("SELECT (SELECT token FROM zk_elections WHERE election = 'e')"), '>', $token, 'a leader whose contender was remade leads with a new one');

done_testing();
