# Deadlocks across servers where not all may be written, or read: under <root>/waits, or
# in the waits of PostgreSQL's own sessions.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Deadlocks;
use Digest::SHA qw(sha1_base64);
use PostgreSQL::Test::Utils ();
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $file = PostgreSQL::Test::Utils::tempdir() . '/credentials';
PostgreSQL::Test::Utils::append_to_file($file, "digest zklock:s3cr3t\n");
chmod 0600, $file or die;

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

sub on { return Deadlocks::on(@_); }

sub refused { my $code = shift; return eval { $code->(); 1 } ? '' : $@ =~ /error (-\d+)/ ? $1 : $@; }

use constant NO_AUTH => -102;

# As ZooKeeper's digest scheme has it.
sub admin_hash { return sha1_base64('admin:nimda') . '='; }

# Both are to wait for each other: the ring is found, if nothing is in the way.
my $looked;

sub ring
{
	my ($first, $second, $x, $y) = @_;
	$looked = Deadlocks::watch();
	on($first)->query("BEGIN; SELECT zk_lock('$x')");
	on($second)->query("BEGIN; SELECT zk_lock('$y')");
	on($first)->send("SELECT zk_lock('$y')")->wait_level(2);
	on($second)->send("SELECT zk_lock('$x')");
	return;
}

sub not_found
{
	my ($what, $first, $second) = @_;
	$looked->(on($first), on($second));
	ok(on($first)->busy && on($second)->busy, "$what: nobody is ended");
	is(on($first)->cancel->failure, '57014: canceling statement due to user request', '... but by a cancel');
	on($first)->query('ROLLBACK');
	on($second)->result;
	on($second)->query('ROLLBACK');
	return;
}

#
# Credentials
#
{
	my $conf = "zklock.auth_file = '$file'\nzklock.root = '/closed'";
	my ($a, $b) = map { Deadlocks::server($_, $zk, $conf) } qw(a b);
	ZkLock::wait_connected($a, $b);
	my $friend = $zk->client(auth => [ digest => 'zklock:s3cr3t' ]);
	my $stranger = $zk->client;
	ring($a, $b, 'x', 'y');
	Deadlocks::ok_ring('with credentials', on($a), on($b));
	is("@{ $friend->acl('/closed/waits')->[0] }[0, 1]", '31 digest', '<root>/waits is ours alone');

	# a chain, and what is published meanwhile
	ZkLock::wait_until(sub { !@{ $friend->children('/closed/waits') } }, 'nothing is published any more');
	$looked = Deadlocks::watch();
	on($a)->query("BEGIN; SELECT zk_lock('x')");
	on($b)->query("BEGIN; SELECT zk_lock('y')");
	on($b, 1)->send("BEGIN; SELECT zk_lock('x')")->wait_level(2);
	on($a)->send("SELECT zk_lock('y')")->wait_level(2);
	ZkLock::wait_until(sub { @{ $friend->children('/closed/waits') } == 1 }, 'it is published');
	my $node = "/closed/waits/@{ $friend->children('/closed/waits') }";
	is(refused(sub { $stranger->get($node) }), NO_AUTH, '... others cannot read it');
	is(refused(sub { $stranger->set($node, '') }), NO_AUTH, '... nor write it');
	is(refused(sub { $stranger->create('/closed/waits/' . 'f' x 16) }), NO_AUTH, '... nor anything beside it');
	is(refused(sub { $stranger->children('/closed/waits') }), NO_AUTH, '... nor look what there is');

	# it may not be read or written any more, and a ring closes
	$friend->set_acl($node, [ 31, 'digest', 'somebody:else' ]);
	on($b)->send("SELECT zk_lock('x')")->wait_level(1);
	on($b, 1)->cancel->failure;
	ZkLock::wait_until(sub { log_of($b) =~ m{deadlocks across servers may not be found, since ZooKeeper refused a request on /closed/waits: not authenticated} }, 'the log of b says so');
	not_found('a node that others cannot read', $a, $b);
	on($b, 1)->query('ROLLBACK');
	my $n = () = log_of($b) =~ /refused/g;
	is($n, 1, '... and the log says so once');
	is(ZkLock::ask($b, 'SELECT state FROM zk_session'), 'connected', '... and its worker lives');
	ZkLock::wait_until(sub { !$friend->exists($node) }, 'it is withdrawn');
	ring($a, $b, 'x', 'y');
	Deadlocks::ok_ring('with a node that is made anew', on($a), on($b));

	# made before there were credentials
	$stranger->create($_) for '/before', '/before/waits';
	my $c = Deadlocks::server('c', $zk, $conf =~ s/closed/before/r);
	ZkLock::wait_connected($c);
	ZkLock::wait_until(sub { log_of($c) =~ m{LOG:  znode "/before/waits" was made without "zklock.acl", and is open to every client} }, 'a <root>/waits that is open is named');
	pass('a <root>/waits that is open is named');
}

#
# A root in which zklock may make nothing, and <root>/waits was forgotten
#
{
	my $admin = $zk->client(auth => [ digest => 'admin:nimda' ]);
	$admin->create('/fixed', acl => [ [ 1, 'world', 'anyone' ], [ 31, 'digest', 'admin:' . admin_hash() ] ]);
	$admin->create("/fixed/$_", data => $_ eq 'tokens' ? '0' : '') for qw(locks elections jobs servers tokens);
	my ($d, $e) = map { Deadlocks::server($_, $zk, "zklock.root = '/fixed'") } qw(d e);
	ZkLock::wait_connected($d, $e);
	ring($d, $e, 'x', 'y');
	for my $s ($d, $e)
	{
		ZkLock::wait_until(sub { log_of($s) =~ m{LOG:  deadlocks across servers may not be found, since ZooKeeper refused a request on /fixed/waits: no node} }, 'the log of ' . $s->name . ' says that it cannot be made');
		ok(ZkLock::wait_until(sub { ZkLock::ask($s, q{SELECT last_error ~ '/fixed/waits' FROM zk_session}) eq 't' }, 'zk_session says so'), '... and so does zk_session');
	}
	ok(on($d)->busy && on($e)->busy, '... nobody is ended');
	$admin->create('/fixed/waits');
	Deadlocks::ok_ring('when it is there', on($d), on($e));
	for my $s ($d, $e)
	{
		my $n = () = log_of($s) =~ /deadlocks across/g;
		is($n, 1, 'the log of ' . $s->name . ' has said so once');
	}
}

done_testing();
