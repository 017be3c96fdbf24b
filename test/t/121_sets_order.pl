# Sets do not lock each other out, in whatever order they name their locks; what they cost;
# what deadlocks there can be, with what was held before.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
# No heartbeat comes in between, and nothing is looked for that is not asked for.
my $conf = "zklock.keep_time = '1h'\nzklock.handoff_limit = 4\ndeadlock_timeout = '50ms'\nzklock.session_timeout = '120s'";
my $a = ZkLock::server('a', $proxy, conf => $conf);
my ($b, $c) = map { ZkLock::server($_, $zk, conf => $conf) } qw(b c);
my @all = ($a, $b, $c);
ZkLock::wait_connected(@all);
my $sa = ZkLock::session($a);
my $sa2 = ZkLock::session($a);
my $sb = ZkLock::session($b);

# What a server has changed while something is done, but for heartbeats.  It also lists
# directories, a few with each of these, in search of what nobody knows of.
sub asked
{
	my $code = shift;
	ZkLock::wait_answered($a);
	$proxy->requests;
	$code->();
	my $requests = $proxy->requests;
	delete @$requests{qw(ping set children)};
	return join ' ', map { "$_=$requests->{$_}" } sort keys %$requests;
}

my $hundred = "SELECT array_length(zk_lock_all(VARIADIC array_agg('cold ' || i ORDER BY random())), 1) FROM generate_series(1, 100) i";

#
# Requests
#
# The directories are not there yet: one transaction says so, and then they are.
my $counted = asked(sub { is($sa->query("BEGIN; $hundred"), 100, 'a hundred names') });
like($counted, qr/^create=100 multi=2$/, 'with their directories');
$sa->query('COMMIT');
is(asked(sub { is($sa->query($hundred), 100, 'the same again') }), '', '... costs nothing, as they are kept');
is(asked(sub { is($sa2->query($hundred), 100, '... by another session') }), '', '... nor there');
is(asked(sub { is($sa2->query("SELECT zk_try_lock_all(ARRAY['cold 1', 'cold 2'], 'shared')"), 't', '... to be read') }) =~ /\bmulti=(\d+)/ ? $1 : 0, 1, 'readers cost one transaction, as a writer\'s grants are kept');
is(asked(sub { is($sa2->query("SELECT zk_try_lock_all(ARRAY['cold 1', 'cold 2'], 'shared')"), 't', '... and again') }), '', '... and then nothing');
# Another server has one of them: the ninety-nine that are kept stand before the set's place.
$sb->query("BEGIN; SELECT zk_lock('cold 7'); COMMIT");
like(asked(sub { is($sa->query($hundred), 100, 'one of them is another server\'s now') }), qr/\bmulti=1\b/, '... one transaction takes them all anew');
# But for that one, perhaps, which was given back before it could be watched.
cmp_ok(ZkLock::ask($a, "SELECT count(*) FROM zk_locks WHERE grant_state = 'kept'"), '>=', 99, '... and they are kept');
# Cold, with directories: one write.
$sb->query("SET zklock.max_locks_per_backend = 0");
is($sb->query($hundred), 100, 'another server takes them all');
is(ZkLock::ask($b, "SELECT sum(acquired_cold) FROM zk_stat_locks WHERE name LIKE 'cold %'"), 101, 'zk_stat_locks counts each');
like(asked(sub { is($sa->query($hundred), 100, '... and the first one again') }), qr/\bmulti=1\b/, '... by one transaction');

#
# Order
#
my $names = join ', ', map { "'n$_'" } 1 .. 10;

sub loop
{
	my ($order, $n) = @_;
	return "DO \$\$ BEGIN FOR i IN 1 .. $n LOOP PERFORM zk_lock_all(VARIADIC array_agg(n ORDER BY $order)) FROM unnest(ARRAY[$names]) n; COMMIT; END LOOP; END \$\$";
}

for my $keep ('1h', '0')
{
	for my $node (@all)
	{
		$node->append_conf('postgresql.conf', "zklock.keep_time = '$keep'");
		$node->reload;
	}
	my @runs;
	for my $node (@all)
	{
		push @runs, map { ZkLock::session($node)->send($_) } loop('n', 60), loop('n DESC', 60), loop('random()', 60),
		  # some of them, to be read
		  "DO \$\$ BEGIN FOR i IN 1 .. 60 LOOP PERFORM zk_try_lock_all(coalesce(array_agg(n), '{n1}'), 'shared', timeout => '1h') FROM unnest(ARRAY[$names]) n WHERE random() < 0.5; COMMIT; END LOOP; END \$\$",
		  # and beside them one lock at a time
		  "DO \$\$ BEGIN FOR i IN 1 .. 60 LOOP PERFORM zk_lock('n' || 1 + i % 10); COMMIT; END LOOP; END \$\$";
	}
	my @failed = grep { $_ ne '' } map { $_->failure } @runs;
	is("@failed", '', "many sets in many orders, kept for $keep");
}
is(ZkLock::ask($_, 'SELECT deadlocks FROM zk_stat'), 0, 'no deadlock on ' . $_->name) for @all;
for my $node (@all)
{
	$node->append_conf('postgresql.conf', "zklock.keep_time = 0");
	$node->reload;
}
ZkLock::ok_clean($zk, \@all, 'n1', 'after many sets');

#
# What was held before is outside of that
#
$sa->query("BEGIN; SELECT zk_lock('x')");
$sb->query("BEGIN; SELECT zk_lock('y')");
$sa->send("SELECT zk_lock_all('y', 'z')")->wait_level(2);
$sb->send("SELECT zk_lock_all('x', 'w')");
my @said = map { $_->failure } $sa, $sb;
is("@said" =~ s/^ | $//gr, '40P01: deadlock detected', 'a ring of holds and sets is a deadlock, of which one goes on');
$_->query('ROLLBACK') for $sa, $sb;
ZkLock::ok_clean($zk, \@all, $_, 'after the ring') for qw(w x y z);

# A set's lock that is granted, while it waits for another
$sb->query("BEGIN; SELECT zk_lock('q')");
$sa->send("BEGIN; SELECT zk_lock_all('p', 'q')")->wait_level(2);
ZkLock::wait_queue($zk, 'p', 1);
$sb->send("SELECT zk_lock('p')");
@said = map { $_->failure } $sa, $sb;
is("@said" =~ s/^ | $//gr, '40P01: deadlock detected', '... is part of a ring, too');
$_->query('ROLLBACK') for $sa, $sb;
ZkLock::ok_clean($zk, \@all, $_, 'after that ring') for qw(p q);

done_testing();
