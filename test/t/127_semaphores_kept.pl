# Permits that are kept, what a permit costs, its number, and deadlocks.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Proxy;
use Test::More;
use Wait;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $long = "deadlock_timeout = '100 ms'";
my $proxy = Proxy->new($zk->host);
my $cold = ZkLock::server('cold', $proxy, conf => $long);
my $keeps = ZkLock::server('keeps', $zk, conf => "$long\nzklock.keep_time = '1 h'");
my @both = ($cold, $keeps);
my @c = map { ZkLock::session($cold) } 1 .. 4;
my @k = map { ZkLock::session($keeps) } 1 .. 4;

sub in_queue { return ZkLock::wait_queue($zk, $_[0], $_[1], 'semaphores'); }
sub state { return ZkLock::ask($_[0], "SELECT string_agg(grant_state, ' ' ORDER BY token) FROM zk_locks WHERE name = '$_[1]'"); }

#
# Kept when this server comes back again and again
#
my @tokens;
push @tokens, $k[$_ % 2]->query("SELECT zk_acquire('k', 2)") for 1 .. 3;
wait_until(sub { state($keeps, 'k') eq 'kept' }, 'the third is kept');
my ($contender) = in_queue('k', 1);
my $token = $k[2]->query("SELECT zk_acquire('k', 2)");
is($token, $tokens[2], 'whoever comes next takes it');
is($k[3]->query("SELECT zk_acquire('k', 2)"), $token, '... and the next');
is((ZkLock::queue($zk, 'k', 'semaphores'))[0], $contender, '... with the same contender');
# Somebody else who needs it has it at once; who does not takes another one.
is($c[0]->query("BEGIN; SELECT zk_acquire('k', 1) > 0"), 't', 'whoever needs it on another server has it');
in_queue('k', 1);
isnt((ZkLock::queue($zk, 'k', 'semaphores'))[0], $contender, '... and it is given up');
$c[0]->query('COMMIT');
in_queue('k', 0);

# One for each session; what is kept serves the one with the same number of permits.
$k[0]->query("SELECT zk_acquire('k', 2)") for 1 .. 3;
$_->query('BEGIN') for @k;
$k[0]->query("SELECT zk_acquire('k', 2)");
$k[1]->query("SELECT zk_acquire('k', 2)");
$k[2]->send("SELECT zk_acquire('k', 2)")->wait_level(2);
$k[3]->send("SELECT zk_acquire('k', 2)")->wait_level(2);
$k[1]->query('COMMIT');
$k[2]->result;
ok($k[3]->busy, 'in order within a server');
$k[0]->query('COMMIT');
$k[3]->result;
$_->query('COMMIT') for @k[2, 3];
$k[0]->query("SELECT zk_acquire('k', 2)") for 1 .. 3;
wait_until(sub { state($keeps, 'k') =~ /kept/ }, 'kept again');
is($k[1]->query("SELECT zk_acquire('k', 1) > 0"), 't', 'another number of permits is another contender');
ZkLock::set($keeps, 'zklock.drain', 'on');
in_queue('k', 0);
pass('a server that drains keeps nothing');
ZkLock::set($keeps, 'zklock.drain', 'off', @k);

#
# What it costs
#
sub settle
{
	my ($n) = @_;
	in_queue('n', $n);
	wait_until(sub { ZkLock::ask($cold, 'SELECT in_flight FROM zk_session') == 0 }, 'nothing is under way');
	return;
}

# Heartbeats are sets, too, and now and then the worker lists a directory.
sub costs
{
	my ($n, $what) = @_;
	settle($n);
	$proxy->requests;
	$what->();
	settle($n);
	my $requests = $proxy->requests;
	return join ' ', map { "$requests->{$_} $_" } grep { !/^(?:set|ping)$/ } sort keys %$requests;
}
my $cycle = sub { $c[0]->query("SELECT zk_acquire('n', 3)") };
$cycle->();
sub ok_costs
{
	my ($n, $expected, $what) = @_;
	my @seen = map { costs($n, $cycle) } 1 .. 5;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(scalar(grep { $_ eq $expected } @seen), $what) || diag(join "\n", @seen);
}
ok_costs(0, '1 children 1 create 1 delete', 'a permit that is free costs a create, a listing and a delete');
$c[1]->query("BEGIN; SELECT zk_acquire('n', 3)");
ok_costs(1, '1 children 1 create 1 delete', '... also beside others');
$c[1]->query('COMMIT');

#
# Numbers
#
$_->query('BEGIN') for @c[0 .. 2];
$c[$_]->query("SELECT zk_acquire('n', 3)") for 0 .. 2;
is($c[$_]->query("SELECT zk_permit('n')"), $_ + 1, "number of holder $_") for 0 .. 2;
is($c[1]->query("SELECT zk_permit('n')"), 2, '... stays');
$c[0]->query('COMMIT');
in_queue('n', 2);
$k[0]->query('BEGIN');
$k[0]->query("SELECT zk_acquire('n', 3)");
is($k[0]->query("SELECT zk_permit('n')"), 1, 'one that is free is another one\'s, on whatever server');
$c[1]->terminate;
in_queue('n', 2);
$k[1]->query('BEGIN');
$k[1]->query("SELECT zk_acquire('n', 3)");
is($k[1]->query("SELECT zk_permit('n')"), 2, '... also that of one who died');
$c[2]->query('COMMIT');
# A server that is lost takes its numbers along.
$keeps->stop('immediate');
ZkLock::hang_up($keeps);
ZkLock::start_again($keeps);
ZkLock::wait_connected($keeps);
$c[0]->query('BEGIN');
$c[0]->query("SELECT zk_acquire('n', 1)");
is($c[0]->query("SELECT zk_permit('n')"), 1, 'a server that crashed has no number any more');
$zk->set(ZkLock::directory('n', 'semaphores'), "rubbish\n1 0\n1 " . 'f' x 32 . "\n");
is($c[0]->query("SELECT zk_permit('n')"), 1, '... known');
$c[0]->query('COMMIT');
$c[0]->query('BEGIN');
$c[0]->query("SELECT zk_acquire('n', 1)");
is($c[0]->query("SELECT zk_permit('n')"), 1, 'what others write there does no harm');
$c[0]->query('COMMIT');
like($c[0]->fails("SELECT zk_permit('n')"), qr/you do not hold a permit of semaphore "n"/, 'of what one does not hold');

#
# Deadlocks: of one permit only
#
@k = map { ZkLock::session($keeps) } 1 .. 2;
$c[0]->query("BEGIN; SELECT zk_acquire('one', 1)");
$k[0]->query("BEGIN; SELECT zk_lock('lock')");
$c[0]->send("SELECT zk_lock('lock')")->wait_level(2);
$k[0]->send("SELECT zk_acquire('one', 1)");
is(scalar(grep { $_->failure =~ /^40P01/ } $c[0], $k[0]), 1, 'with one permit a deadlock across servers is found');
$_->query('ROLLBACK') for $c[0], $k[0];

# The same on one server, where PostgreSQL sees one half of it.
$c[0]->query("BEGIN; SELECT zk_acquire('one', 1)");
$c[2]->query("BEGIN; SELECT pg_advisory_xact_lock(1)");
$c[0]->send('SELECT pg_advisory_xact_lock(1)');
wait_until(sub { ZkLock::ask($cold, 'SELECT count(*) FROM pg_locks WHERE NOT granted') == 1 }, 'it waits');
$c[2]->send("SELECT zk_acquire('one', 1)");
like($c[2]->failure, qr/^40P01/, '... and so it is on one server');
$c[2]->query('ROLLBACK');
$c[0]->result;
$c[0]->query('ROLLBACK');

# Of several permits anybody may come free: lock_timeout ends such a wait.
$c[0]->query("BEGIN; SELECT zk_acquire('two', 2)");
$c[3]->query("BEGIN; SELECT zk_acquire('two', 2)");
$k[0]->query("BEGIN; SELECT zk_lock('lock')");
$c[0]->send("SELECT zk_lock('lock')")->wait_level(2);
$k[0]->query("SET LOCAL lock_timeout = '2 s'");
like($k[0]->fails("SELECT zk_acquire('two', 2)"), qr/^55P03/, 'with two no deadlock is seen; lock_timeout ends the wait');
$k[0]->query('ROLLBACK');
$c[0]->result;
$_->query('ROLLBACK') for @c[0, 3];

# A server that was told that the other one has it, and asks without queueing, gets what that one keeps.
$k[0]->query("BEGIN; SELECT zk_acquire('again', 1)");
is($c[0]->query("SELECT zk_try_acquire('again', 1)"), 'f', 'zk_try_acquire of what another server has');
$k[0]->query('COMMIT');
wait_until(sub { $k[0]->query("SELECT zk_acquire('again', 1)"); state($keeps, 'again') eq 'kept' }, 'it keeps it');
ok(wait_until(sub { $c[0]->query("SELECT zk_try_acquire('again', 1)") eq 't' }, 'it gets it'), '... and of what it keeps for nobody later');

is(ZkLock::ask($cold, "SELECT kind, acquired_cold > 0 FROM zk_stat_locks WHERE name = 'one'"), 'semaphore|t', 'statistics by kind');
ZkLock::ok_clean($zk, [$cold], $_, $_, 'semaphores') for qw(n one two again);

done_testing();
