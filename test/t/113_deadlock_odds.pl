# Deadlocks across servers where something is odd: name spaces, readers, other programs,
# older servers, what others write under <root>/waits, verdicts that come late.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Deadlocks;
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $a = Deadlocks::server('a', $proxy);
my $b = Deadlocks::server('b', $zk);
my @node = ($a, $b);
ZkLock::wait_connected(@node);
my $foreign = $zk->client;

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

sub on { return Deadlocks::on(@_); }

# A session of another name space, or of another database.
sub session_of { my ($node, %option) = @_; my $s = ZkLock::session($node, %option); $s->pid; return $s; }

sub namespace { return (env => { PGOPTIONS => "-c zklock.namespace=$_[0]" }); }

sub wait_for_row
{
	my ($node, $session) = @_;
	my $pid = $session->pid;
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid") eq 'Lock' }, "$pid waits for a row");
	return;
}

# Server a has looked for rings, from beginning to end, since now; or its session's wait is
# over.
sub looked
{
	my $seen = 0;
	$proxy->requests;
	ZkLock::wait_until(sub { ($seen += $proxy->requests->{sync} // 0) >= 3 || !on($a)->busy }, 'server a has looked for rings');
	return;
}

#
# Name spaces
#
{
	my ($one, $two) = map { session_of($_, namespace('tenant')) } @node;
	$one->query("BEGIN; SELECT zk_lock('x')");
	$two->query("BEGIN; SELECT zk_lock('y')");
	$one->send("SELECT zk_lock('y')");
	$two->send("SELECT zk_lock('x')");
	my ($victim, $said) = Deadlocks::ok_ring('in a name space', $one, $two);
	like($said, qr/waits for lock "([xy])", held by process \d+ of server "[ab]"; process \d+ of server "[ab]" waits for lock "(?!\1)[xy]"/, '... by the names that its sessions use');
	unlike($said, qr/tenant/, '... without that of the name space');

	# one through two of them, by rows
	my ($s1, $s2) = map { session_of($a, namespace($_)) } qw(red blue);
	my ($s3, $s4) = map { session_of($b, namespace($_)) } qw(blue red);
	$s1->query("BEGIN; SELECT zk_lock('red x')");
	$s3->query("BEGIN; SELECT zk_lock('blue y')");
	$_->query('BEGIN; UPDATE t SET v = 1 WHERE id = 1') for $s2, $s4;
	$_->send('UPDATE t SET v = 2 WHERE id = 1') for $s1, $s3;
	wait_for_row($a, $s1);
	wait_for_row($b, $s3);
	$s2->send("SELECT zk_lock('blue y')");
	$s4->send("SELECT zk_lock('red x')");
	($victim, $said) = Deadlocks::ok_ring('through two name spaces', $s1, $s2, $s3, $s4);
	my ($mine, $others) = $victim == $s2 ? qw(blue red) : qw(red blue);
	like($said, qr/lock "$mine [xy]", held by process \d+ of server "\w"; there process \d+ waits for process \d+; process \d+ of server "\w" waits for a lock of another namespace, held by process \d+ of server "\w"; there process \d+ waits for ShareLock on transaction \d+, blocked by process \d+\.$/m,
		'... names what is of its own');
	unlike($said, qr/$others/, '... and nothing of the other');
	$_->quit for $one, $two, $s1, $s2, $s3, $s4;
}

#
# Readers who join a grant
#
{
	my ($h, $r, $w) = (on($a, 1), on($a, 2), on($b, 1));
	$h->query("BEGIN; SELECT zk_lock('x', 'shared')");
	$r->query('BEGIN; UPDATE t SET v = 1 WHERE id = 1');
	$w->send("BEGIN; SELECT zk_lock('x')")->wait_level(2);
	ZkLock::wait_demanded($zk, $a, 'x');
	$h->send('UPDATE t SET v = 2 WHERE id = 1');
	wait_for_row($a, $h);
	$r->send("SELECT zk_lock('x', 'shared')");
	my ($victim, $said) = Deadlocks::ok_ring('a reader who would join another', $h, $r, $w);
	is($victim, $r, '... it is the reader');
	like($said, qr/Process @{[ $r->pid ]} of server "a" waits for lock "x", held by process @{[ $h->pid ]} of server "a"; there process @{[ $h->pid ]} waits for ShareLock on transaction \d+, blocked by process @{[ $r->pid ]}\.$/m,
		'... and is told so');
}

#
# Somebody in the ring says nothing: another program, a server of an older version.  Then
# nobody is ended.
#
for (
	[ 'another program', '10.0.0.7' ],
	[ 'a server of an older version', '{"server": "old", "host": "h", "pid": 1}' ])
{
	my ($what, $data) = @$_;
	my $silent = $foreign->contend(ZkLock::directory('y'), data => $data);
	on($a)->query("BEGIN; SELECT zk_lock('x')");
	on($b)->query("BEGIN; SELECT zk_lock('z')");
	my $waits = $foreign->contend(ZkLock::directory('z'), data => $data);
	on($b)->send("SELECT zk_lock('x')")->wait_level(2);
	on($a)->send("SELECT zk_lock('y')")->wait_level(2);
	looked();
	ok(on($a)->busy && on($b)->busy, "$what in the ring: nobody is ended");
	on($a)->cancel->failure;
	on($a)->query('ROLLBACK');
	on($b)->result;
	on($b)->query('ROLLBACK');
	# behind it there may be a ring
	on($a)->query("BEGIN; SELECT zk_lock('x')");
	on($b)->query("BEGIN; SELECT zk_lock('u')");
	my $between = $foreign->contend(ZkLock::directory('u'), data => $data);
	on($a)->send("SELECT zk_lock('u')")->wait_level(2);
	on($b)->send("SELECT zk_lock('x')");
	ZkLock::wait_until(sub { !on($a)->busy || !on($b)->busy }, 'the ring is found');
	$foreign->delete($between);
	Deadlocks::ok_ring("$what that stands beside", on($a), on($b));
	$foreign->delete($_) for $silent, $waits;
}

#
# What others have written under <root>/waits.  Server b has y, and waits for x by another
# session, who is in nobody's way.
#
{
	my ($holder, $waiter) = (on($b, 1), on($b, 2));
	# what comes is server a's, then
	ZkLock::wait_until(sub { !$zk->children('/zklock/waits') }, 'nothing is published any more');
	on($a)->query("SET deadlock_timeout = '10ms'");
	on($a)->query("BEGIN; SELECT zk_lock('x')");
	$holder->query("BEGIN; SELECT zk_lock('y')");
	$waiter->send("BEGIN; SELECT zk_lock('x')")->wait_level(2);
	ZkLock::wait_queue($zk, 'x', 2);
	ZkLock::wait_demanded($zk, $a, 'x');
	my $looked = Deadlocks::watch();
	on($a)->send("SELECT zk_lock('y')")->wait_level(2);
	ZkLock::wait_until(sub { $zk->children('/zklock/waits') }, 'one publishes');
	# what it has asked for may be published before it has logged that it waits
	$looked->(on($a));

	# the numbers of a contender's UUID: its session's, and its own
	my $uuid = sub { my ($name, $i) = @_; return map { s/-//gr } ((ZkLock::queue($zk, $name))[$i] =~ /^_c_([-0-9a-f]{18})-([-0-9a-f]{17})-lock-/); };
	my ($session, $y) = $uuid->('y', 0);
	my (undef, $x) = $uuid->('x', 1);
	my $node = "/zklock/waits/$session";
	my ($own) = $zk->children('/zklock/waits');
	$_ = sprintf '%u', hex for $x, $y;
	my $head = qq({"version": 1, "server": "forged"}\n);
	my $edge = sub { my %field = (number => 1, stamp => 1, grant => $y, contender => $x, joins => 'false', kind => 'lock', holder => 1, waiter => 2, name => 'x', via => '', @_);
		return '{' . join(', ', map { qq("$_": ) . ($_ =~ /^(?:kind|name|via)$/ ? qq("$field{$_}") : $field{$_}) } qw(number stamp grant contender joins kind holder waiter name via)) . "}\n"; };
	my $good = $head . $edge->();
	my $lie = sub { $foreign->set($node, $_[0]) || $foreign->create($node, data => $_[0]) };
	my %bad = (
		'nothing' => '', 'NULs' => "\0" x 1000, 'JSON' => '{"waits": [{"grant": 1}]}', 'no UTF-8' => "\xff\xfe\n", 'its head' => $head,
		'a newer version' => $good =~ s/"version": 1/"version": 2/r, 'no version' => $good =~ s/"version": 1, //r, 'no name' => qq({"version": 1}\n) . $edge->(),
		'a server without UTF-8' => $good =~ s/forged/\xff/r,
		'a line that was cut off' => substr($good, 0, -1), 'one that ends early' => $head . $edge->() =~ s/, "name.*\}/}/r, 'one that goes on' => $head . $edge->() =~ s/\n/ more\n/r,
		'one line' => $good =~ s/\n/ /gr,
		(map { my $f = $_; map { ("$f $_" => $head . $edge->($f => $_)) } '', '-1', 'x', '18446744073709551616', '99999999999999999999999999', "1\0", '"1"', '1.5' } qw(number stamp grant contender holder waiter)),
		'an unknown form' => $head . $edge->(joins => '"perhaps"'), 'an unknown kind' => $head . $edge->(kind => 'latch'),
		'an election' => $head . $edge->(kind => 'election'), 'a job' => $head . $edge->(kind => 'job'),
		(map { ("the name $_" => $head . $edge->(name => $_)) } '', '%', '%0', '%00', 'x%FF', '..', '/', 'y', 'x' x 256, '%01' x 255),
		'a text without UTF-8' => $head . $edge->(via => "\xff"),
		'one who joins' => $head . $edge->(joins => 'true'),
		'who waits for himself' => $head . $edge->(contender => $y, name => 'y') . $edge->(number => 2, contender => $y, name => 'y', joins => 'true'),
		'another\'s contenders' => $head . $edge->(grant => '18446744073709551615') . $edge->(contender => '18446744073709551615') . $edge->(grant => $x, contender => $y),
		'1 MB of a line' => $head . 'x' x 1_000_000 . "\n", '1 MB of lines' => $head . "\n" x 1_000_000, '1 MB of edges' => $head . $edge->(grant => 0) x 6_000,
		'1 MB of ways that lead nowhere' => $head . join('', map { $edge->(number => $_, name => "n$_", waiter => $_) } 10 .. 5_500));
	# but for checkpoints, which come when it takes minutes
	my $log_lines = sub { return scalar grep { !/LOG:  checkpoint / } split /^/m, log_of($a) };
	my $lines = $log_lines->();
	for my $what (sort keys %bad)
	{
		$lie->($bad{$what});
		looked();
		ok(on($a)->busy, 'nobody is ended for ' . $what =~ s/[^ -~]/?/gr) or last;
	}
	$lie->('');
	# and other nodes
	$foreign->create("/zklock/waits/$_") for '0' x 16, 'F' x 16, 'f' x 15, 'f' x 17, q(waits);
	$foreign->create_many('persistent', map { sprintf '/zklock/waits/%016x', $_ } 1 .. 3000);
	looked();
	ok(on($a)->busy, '... or for thousands of servers that are not there');
	$foreign->delete("/zklock/waits/$_") for grep { $_ ne $own } @{ $foreign->children('/zklock/waits') };
	is($log_lines->(), $lines, '... and the log says nothing');
	is(ZkLock::ask($a, "SELECT state FROM zk_session"), 'connected', '... and the worker lives');

	# what it takes to be believed
	$lie->($good);
	is(on($a)->failure, '40P01: deadlock detected', 'who lies well is believed');
	like(on($a)->notices, qr/Process \d+ of server "a" waits for lock "y", held by process 1 of server "forged"; there process 1 waits for process 2; process 2 of server "forged" waits for lock "x", held by process \d+ of server "a"\.$/m, '... and shown');
	$foreign->delete($node);
	$_->query('ROLLBACK') for on($a), $holder;
	$waiter->result;
	$waiter->query('COMMIT');
	on($a)->query('RESET deadlock_timeout');
	Deadlocks::ended();
}

ZkLock::ok_clean($zk, \@node, $_) for qw(x y z u);
Deadlocks::ok_withdrawn($zk);
done_testing();
