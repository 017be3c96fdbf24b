# Work that is handed out, when a server is killed at each step: an item is there exactly if
# its transaction has committed, and done exactly once by the pattern of doc/queues.md.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Pages qw(blocks_of);
use Proxy;
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $proxy = Proxy->new($zk->host);
# What was not flushed because it had to be, is lost with the server.
my $a = ZkLock::server('a', $proxy, conf => "cluster_name = 'a'\nsynchronous_commit = off\nwal_writer_delay = 10s\nrestart_after_crash = off");
my $b = ZkLock::server('b', $zk, conf => "cluster_name = 'b'\nzklock.max_locks = 8000");
ZkLock::wait_connected($a, $b);
my $sb = ZkLock::session($b);

sub dir { my ($queue, $part) = @_; return ZkLock::directory($queue, 'queues') . "/$part"; }
sub take { my ($queue) = @_; return $sb->query("SELECT payload, attempt FROM zk_queue_take('$queue')"); }

# Nothing of A is left but what is on its disk and in the ensemble.
sub crash
{
	my $postmaster = $a->{_pid};
	ZkLock::hang_up($a);
	kill 'STOP', $postmaster; # it has no more children than these
	my @children = map { m{/proc/(\d+)/} } grep { eval { PostgreSQL::Test::Utils::slurp_file($_) =~ /^PPid:\s+$postmaster$/m } } glob '/proc/[0-9]*/status';
	$a->kill9;
	kill 'KILL', @children;
	# pg_ctl does not tell a dead one that nobody has taken note of from another
	ZkLock::wait_until(sub { !kill 0, $postmaster }, 'the postmaster has gone');
	ZkLock::start_again($a);
	$proxy->heal->accept;
	ZkLock::wait_connected($a);
	return;
}

#
# Puts
#
ZkLock::ask($a, 'CREATE TABLE done (id uuid PRIMARY KEY); CREATE TABLE result (payload text)');
for my $case (
	[ 'request create', 0, 0, 'before it is written' ],
	[ 'reply create', 0, 1, 'before the commit' ],
	[ 'request multi', 1, 1, 'before it is in the queue' ],
	[ 'reply multi', 1, 0, 'before it hears that it is in the queue' ])
{
	my ($loss, $commits, $left, $what) = @$case;
	my ($how, $kind) = split ' ', $loss;
	my $queue = "put $loss";
	my $lose = "lose_$how";
	# the queue has its directories
	ZkLock::ask($a, "SELECT zk_queue_put('$queue', 'first')");
	length_is($b, $queue, '1 0 0', 'one is there');
	my $s = ZkLock::session($a);
	$s->query("BEGIN; SELECT zk_queue_put('$queue', 'second'); INSERT INTO result VALUES ('$queue')");
	$proxy->refuse->$lose($kind, $kind eq 'multi' ? '' : '/puts/');
	my $lost = $proxy->lost;
	$s->send('COMMIT');
	is($s->result, '', "$what: it commits") if $commits;
	ZkLock::wait_until(sub { $proxy->lost > $lost }, "the $loss is lost");
	ZkLock::wait_until(sub { (() = $zk->children(dir($queue, 'puts'))) == $left }, 'it is where it should be');
	ok($s->busy, "$what: it has not committed") unless $commits;
	crash();
	length_is($b, $queue, (1 + $commits) . ' 0 0', "$what: it is there exactly if the transaction committed");
	is(ZkLock::ask($a, "SELECT count(*) FROM result WHERE payload = '$queue'"), $commits, '... as is the row');
	is(take($queue), 'first|1', '... in its order');
	is(take($queue), $commits ? 'second|1' : '', '... behind the other');
}

# Many chunks, and several queues
{
	my $s = ZkLock::session($a);
	my $put = "SELECT zk_queue_put('many', i::text) FROM generate_series(1, 1000) i; SELECT zk_queue_put('other', i::text) FROM generate_series(1, 1000) i";
	$s->query("BEGIN; $put");
	$proxy->refuse->lose_reply('multi', '');
	$s->query('COMMIT');
	crash();
	length_is($b, 'many', '1000 0 0', 'all of a thousand');
	length_is($b, 'other', '1000 0 0', '... in two queues');
	is($sb->query("SELECT count(DISTINCT payload) FROM generate_series(1, 1000) i, zk_queue_take('many', 0 * i * interval '1 s')"), 1000, 'each is another one');
	$s = ZkLock::session($a);
	$s->query("BEGIN; $put");
	$proxy->refuse->lose_reply('create', '00000003');
	$s->send('COMMIT');
	ZkLock::wait_until(sub { (() = $zk->children(dir('many', 'puts'))) >= 4 }, 'all is written for one');
	crash();
	length_is($b, 'many', '0 0 0', 'none of a thousand');
	length_is($b, 'other', '1000 0 0', '... in two queues');
	# more than the worker keeps: it reads the first again
	$s = ZkLock::session($a);
	$s->query("BEGIN; SELECT zk_queue_put('large', i || repeat('x', 65000)) FROM generate_series(1, 80) i");
	$proxy->refuse->lose_request('get', '/puts/');
	my $lost = $proxy->lost;
	is($s->query('COMMIT'), '', 'as much as the worker does not keep: it commits');
	ZkLock::wait_until(sub { $proxy->lost > $lost }, 'a read is lost');
	crash();
	length_is($b, 'large', '80 0 0', 'all is there');
	is($sb->query("SELECT string_agg(rtrim(payload, 'x'), ' ') FROM zk_queue_take('large', count => 80)"), join(' ', 1 .. 80), '... in its order');
}

#
# Takes
#
# What was done is on disk before the item is deleted.
ZkLock::ask($b, "SELECT zk_queue_put('flush', i::text) FROM generate_series(1, 2) i");
length_is($b, 'flush', '2 0 0', 'two items');
ZkLock::ask($a, "INSERT INTO result SELECT payload FROM zk_queue_take('flush')");
length_is($b, 'flush', '1 0 0', 'one is done');
crash();
is(ZkLock::ask($a, "SELECT count(*) FROM result WHERE payload = '1'"), 1, 'it is done after a crash, too, whatever synchronous_commit says');
is(take('flush'), '2|1', 'the other is there');

# As doc/queues.md has it
my ($page) = grep { /^WITH /m } @{ blocks_of('doc/queues.md')->{Example} };
my ($pattern) = $page =~ /^BEGIN;\n(WITH .*?);\nCOMMIT;/ms or die 'the page has no pattern';
$pattern =~ s/'import', '10 s'/'%s', '%s'/ or die "no queue in $pattern";

# Between the commit and the deletion: again, with the same id
for my $how (qw(request reply))
{
	my $queue = "take $how";
	my $lose = "lose_$how";
	ZkLock::ask($b, "SELECT zk_queue_put('$queue', '$queue ' || i) FROM generate_series(1, 2) i");
	length_is($b, $queue, '2 0 0', 'two items');
	my $s = ZkLock::session($a);
	$s->query('BEGIN; ' . sprintf $pattern, $queue, 0);
	$proxy->refuse->$lose('multi', '');
	my $lost = $proxy->lost;
	$s->query('COMMIT');
	ZkLock::wait_until(sub { $proxy->lost > $lost }, 'the deletion is lost');
	crash();
	length_is($b, $queue, $how eq 'request' ? '2 0 0' : '1 0 0', "$queue: given back, unless it was deleted");
	is($sb->query("BEGIN; SELECT payload, attempt FROM zk_queue_take('$queue')"), $how eq 'request' ? "$queue 1|2" : "$queue 2|1", '... to its old place, the attempt counted');
	$sb->query('ROLLBACK');
	length_is($b, $queue, $how eq 'request' ? '2 0 0' : '1 0 0', 'given back');
	ZkLock::ask($a, sprintf $pattern, $queue, 0) for 1 .. 2;
	length_is($b, $queue, '0 0 0', 'all are done');
	is(ZkLock::ask($a, "SELECT string_agg(payload, ',' ORDER BY payload) FROM result WHERE payload LIKE '$queue %'"), "$queue 1,$queue 2", 'each once');
}

# An expired session, before and after the commit; somebody else has it, or has had it, by then.
# It is there to expire, but its connection is not to end where the machine stands still for some
# seconds: nothing would be lost on it then.
ZkLock::hang_up($a);
$a->append_conf('postgresql.conf', "zklock.session_timeout = '20s'");
$a->restart;
ZkLock::wait_connected($a);
for my $case ([ 'open' ], [ 'committed', 'has' ], [ 'committed', 'had' ], [ 'committed' ])
{
	my ($state, $else) = @$case;
	my $queue = join '-', @$case;
	ZkLock::ask($b, "SELECT zk_queue_put('$queue', '$queue ' || i) FROM generate_series(1, 3) i");
	length_is($b, $queue, '3 0 0', 'three items');
	my $s = ZkLock::session($a);
	my $id = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
	$s->query('BEGIN; ' . sprintf $pattern, $queue, 0);
	if ($state eq 'open') { $proxy->refuse->cut; }
	else
	{
		$proxy->refuse->lose_request('multi', '');
		$s->query('COMMIT');
	}
	ZkLock::wait_until(sub { !exists $zk->sessions->{$id} }, 'the session expires');
	length_is($b, $queue, '3 0 0', "$queue: the item is anybody's");
	is($sb->query("BEGIN; SELECT payload, attempt FROM zk_queue_take('$queue')"), "$queue 1|2", '... in its old place') if $else;
	$sb->query('COMMIT') if $else && $else eq 'had';
	$proxy->heal->accept;
	ZkLock::wait_connected($a);
	like($s->fails('COMMIT'), qr/^40001: item [0-9a-f-]{36} of queue "open" was lost/, 'it cannot commit') if $state eq 'open';
	if ($else && $else eq 'has')
	{
		$s->query("SELECT zk_queue_put('$queue', '$queue 4')");
		length_is($b, $queue, '4 1 0', 'A has come to the end of it, and the other has it still');
		$sb->query('ROLLBACK');
	}
	my $left = $state eq 'open' ? 3 : $else && $else eq 'has' ? 4 : 2;
	length_is($b, $queue, "$left 0 0", "$queue: as many are left as should be");
	ZkLock::ask($a, sprintf $pattern, $queue, 0) for 1 .. $left;
	length_is($b, $queue, '0 0 0', 'all are done');
	is(ZkLock::ask($a, "SELECT count(*) || ' ' || count(DISTINCT payload) FROM result WHERE payload LIKE '$queue %'"), ($else && $else eq 'has' ? '4 4' : '3 3'), "$queue: each once");
}

#
# The pattern, again and again: who puts knows by a row what it has put
#
ZkLock::ask($a, 'CREATE TABLE put (i int); TRUNCATE done, result');
my ($n, $kills) = (150, 3);
my ($put, $done) = (0, 0);
while ($done < $n)
{
	my @takers = map { ZkLock::session($a) } 1 .. 3;
	my $putter = ZkLock::session($a);
	$putter->send("DO \$\$ BEGIN FOR n IN $put + 1 .. $n LOOP INSERT INTO put VALUES (n); PERFORM zk_queue_put('pattern', n::text); COMMIT; END LOOP; END \$\$");
	$_->send("DO \$\$ BEGIN LOOP " . (sprintf $pattern, 'pattern', '1 h') . "; COMMIT; END LOOP; END \$\$") for @takers;
	my $enough = $kills-- > 0 && $done + 20 < $n ? $done + 20 : $n;
	ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT count(*) FROM result') >= $enough }, "$enough are done");
	crash();
	($put, $done) = split /\|/, ZkLock::ask($a, 'SELECT (SELECT count(*) FROM put), (SELECT count(*) FROM result)');
}
length_is($b, 'pattern', '0 0 0', 'nothing is left');
is(ZkLock::ask($a, 'SELECT count(*), count(DISTINCT payload), max(payload::int) FROM result'), "$n|$n|$n", 'what was put by transactions that committed was done once, though the server was killed again and again');

$_->stop for $a, $b;
done_testing();
