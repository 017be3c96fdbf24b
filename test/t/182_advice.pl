# Advice that is followed, of which 162 and 170 have the rest: where ZooKeeper is not to be had,
# where what all share is used up, and what a page or a detail says to do.  See test/hints.md.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Queues qw(length_is);
use Test::More;
use ZkLock;
use ZooKeeper;

sub hint { my ($session) = @_; return $session->notices =~ /^HINT:  (.*)$/m ? $1 : 'no hint'; }
sub detail { my ($session) = @_; return $session->notices =~ /^DETAIL:  (.*)$/m ? $1 : 'no detail'; }
sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

# What is done does not show at once.
sub comes_to_work
{
	my ($session, $sql, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $error;
	$session->query('RESET zklock.connect_timeout');
	ZkLock::wait_until(sub { ($error = $session->fails($sql)) eq '' || !$session->fails('ROLLBACK') && 0 }, $what, sub { $error });
	return pass($what);
}

# Until a call of this session fails so, with this detail.
sub comes_to_fail
{
	my ($session, $error, $detail, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$session->query("SET zklock.connect_timeout = '300ms'");
	ZkLock::wait_until(sub { $session->fails("SELECT zk_try_lock('job')") =~ $error && detail($session) =~ $detail }, $what, sub { $session->notices });
	return pass($what);
}

my $zk = ZooKeeper->new->start;

#
# One reason after the other why there is no lock
#
my $file = PostgreSQL::Test::Utils::tempdir() . '/credentials';
sub write_credentials
{
	unlink $file;
	PostgreSQL::Test::Utils::append_to_file($file, join '', map { "$_\n" } @_);
	chmod 0600, $file or die;
}
write_credentials('zklock:s3cr3t');
chmod 0644, $file or die;
my $a = ZkLock::server('a', '127.0.0.1:' . ZooKeeper::free_port(), conf => join "\n", "cluster_name = 'a'", "zklock.session_timeout = '15s'",
	"zklock.root = '/closed'", "zklock.auth_file = '$file'", 'max_worker_processes = 0', 'max_parallel_workers = 0', 'max_logical_replication_workers = 0');
my $s = ZkLock::session($a);
$s->query("SET zklock.connect_timeout = '300ms'");
is($s->fails("SELECT zk_lock('job')"), '55000: zklock worker is not running', 'no worker');
is(hint($s), 'See server log for the reason. You might need to increase "max_worker_processes".', '... has a hint');
like(log_of($a), qr/LOG:  too many background workers\n.*DETAIL:  Up to 0 background workers can be registered/, '... and the log the reason');
$a->append_conf('postgresql.conf', 'max_worker_processes = 8');
$s->quit;
ZkLock::hang_up($a);
$a->restart;
$s = ZkLock::session($a);

my $unreachable = qr/^58000: could not reach ZooKeeper within/;
my $reach = 'Check that the ZooKeeper servers run, that this machine can reach them, and that "zklock.hosts" is right.';
comes_to_fail($s, $unreachable, qr/: file "\Q$file\E" has group or world access: its permissions must be 0600 or less/, '... with more there is one, which cannot use its file');
is(hint($s), 'no hint', '... and says no more than that');
chmod 0600, $file or die;
comes_to_fail($s, $unreachable, qr/: line 1 of file "\Q$file\E" is not of the form "scheme credential", such as "digest user:password"\.$/, '... with these permissions it can read it');
is(hint($s), 'no hint', '... and says no more than what is wrong in it');
write_credentials('digest zklock:s3cr3t');
comes_to_fail($s, $unreachable, qr/^Connect string ".*": .*: Connection refused\.$/, '... in this form it is understood, and there is no ZooKeeper server');
is(hint($s), $reach, '... has a hint');
ZkLock::ask($a, "ALTER SYSTEM SET zklock.hosts = '@{[ $zk->host ]}/chroot'; SELECT pg_reload_conf()");
my $last = '';
ZkLock::wait_until(sub { ($last = ZkLock::ask($a, 'SELECT last_error FROM zk_session')) =~ /: a chroot path in "zklock\.hosts" must exist$/ }, 'the path is missing', sub { $last });
pass('... at the right address there is one, and its path is missing');
$zk->create('/chroot');
comes_to_work($s, "SELECT zk_lock('job')", '... and with the path it works');

#
# The base of tokens
#
my $token = $s->query("SELECT zk_lock('job')");
my $friend = $zk->client(auth => [ digest => 'zklock:s3cr3t' ]);
$friend->set('/chroot/closed/tokens', 'rubbish');
comes_to_fail($s, $unreachable, qr{could not read the base of fencing tokens from znode "/closed/tokens": it is not a number}, 'the base of tokens is damaged');
is(hint($s), 'no hint', '... and nothing else is to be looked at');
$friend->delete('/chroot/closed/tokens');
ZkLock::ask($a, 'SELECT pg_reload_conf()');
comes_to_work($s, "SELECT zk_lock('job')", '... deleted, and the configuration reloaded, it is made anew');
cmp_ok($s->query("SELECT zk_lock('job')"), '>', $token, '... and tokens grow on');

my $base = $s->query("SELECT zk_raise_tokens(9999999)");
comes_to_fail($s, $unreachable, qr/the ensemble went back to an earlier state/, 'tokens are raised');
is(hint($s), 'Try again when a session timeout has passed. See server log for the reason.', '... has a hint');
like(log_of($a), qr/WARNING:  ZooKeeper ensemble went back to an earlier state\n.*DETAIL:  /, '... and the log the reason');
comes_to_work($s, "SELECT zk_lock('job')", '... and then it works');
cmp_ok($s->query("SELECT zk_lock('job')"), '>', $base, '... with larger tokens');

#
# New credentials for old ones, as doc/security.md has it
#
sub reload
{
	my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
	ZkLock::ask($a, 'SELECT pg_reload_conf()');
	ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT state = 'connected' AND worker_pid <> $worker FROM zk_session") eq 't' }, 'the next worker is connected');
	return;
}
my $held = $s->query("SELECT zk_lock('before', scope => 'session')");
write_credentials('digest zklock:s3cr3t', 'digest new:n3w');
reload();
my $both = $zk->client(auth => [ digest => 'zklock:s3cr3t' ]);
$both->auth(digest => 'new:n3w');
my @todo = '/chroot/closed';
while (defined(my $path = shift @todo))
{
	$both->set_acl($path, [ 31, 'auth', '' ]);
	push @todo, map { "$path/$_" } @{ $both->children($path) // [] };
}
write_credentials('digest new:n3w');
reload();
is($s->query("SELECT zk_assert('before')"), $held, 'credentials are changed: what was held is held');
is($s->query("SELECT zk_unlock('before')"), 't', '... until it is released');
comes_to_work($s, "SELECT zk_lock('before'), zk_lock('after'), zk_acquire('semaphore', 2)", '... then the old ones are not needed any more');
is($s->fails("CALL zk_run_once('job', 'SELECT 1', slot => '2026-01-01')"), '', '... for jobs either');
is(ZkLock::ask($a, "SELECT state FROM zk_session"), 'connected', '... and the session goes on');
$s->quit;
ZkLock::hang_up($a);
$a->stop;

#
# ZooKeeper does not answer who holds a lock
#
my $b = ZkLock::server('b', $zk, init => { allows_streaming => 1 }, conf => join "\n", "cluster_name = 'b'", "zklock.session_timeout = '1h'", 'zklock.max_locks = 8',
	"synchronous_standby_names = 'nobody'", 'synchronous_commit = local');
my $c = ZkLock::server('c', $zk, conf => "zklock.session_timeout = '1h'");
ZkLock::wait_connected($b, $c);
my @s = map { ZkLock::session($b) } 1 .. 3;
$s = $s[0];
$s->query('CREATE TABLE t (what text)');
my $begin = "BEGIN; SELECT zk_lock('proof'); INSERT INTO t VALUES ('proof')";
$s->query("$begin; SET LOCAL zklock.connect_timeout = '300ms'");
$zk->stop;
like($s->fails("SELECT zk_assert('proof')"), qr/^58000: could not prove the lock within 300 ms/, 'a lock that cannot be proven');
is(hint($s), 'The transaction might succeed if retried when ZooKeeper answers again.', '... has a hint');
$s->query('ROLLBACK');
$zk->start;
ZkLock::wait_connected($b, $c);
is($s->fails("$begin; SELECT zk_assert('proof'); COMMIT"), '', '... and the retry');
is($s->query("SELECT count(*) FROM t WHERE what = 'proof'"), 1, '... does it once');

#
# A late writer: the fence has who comes next wait until what was late is seen, and lets the
# late one do no more.
#
$s->query("CREATE TABLE written (by text); BEGIN; SELECT zk_fence('written', zk_lock('late')); INSERT INTO written VALUES ('late')");
my $late = $s->query("SELECT zk_token('late')");
$s->query('SET synchronous_commit = on');
$s->send('COMMIT')->wait_event('SyncRep');
ZkLock::ask($b, "SELECT zk_break('late', token) FROM zk_contenders('late') WHERE ours");
my $other = ZkLock::session($c);
my $next = $other->query("SELECT zk_lock('late', scope => 'session')");
cmp_ok($next, '>', $late, 'another server has the lock while the commit waits');
$s[1]->send("BEGIN; SELECT zk_fence('written', $next)")->wait_event('Lock');
ZkLock::set($b, 'synchronous_standby_names', '');
is($s->failure, '', 'a commit that was late is done');
like($s->notices, qr/^WARNING 01000: lock "late" was lost before the commit was visible/, '... with a warning');
is(hint($s), 'Use zk_fence to keep out a late writer.', '... which has a hint');
is($s[1]->failure, '', '... with a fence the next one has waited');
is($s[1]->query('SELECT by FROM written'), 'late', '... and sees what was written');
is($s[1]->fails("INSERT INTO written VALUES ('next'); COMMIT"), '', '... and writes');
like($s->fails("SELECT zk_fence('written', $late)"), qr/^40001: fencing token $late for resource "written" is too old/, '... and the late one writes no more');

# REPEATABLE READ, of a row that another has written since
my $fence = "SELECT zk_fence('written', $next)";
my $repeatable = 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM written';
$s->query($repeatable);
$s[1]->query($fence =~ s/$next/$next + 1/r);
like($s->fails($fence =~ s/$next/$next + 2/r), qr/^40001: could not serialize access/, 'a fence that was written since the snapshot');
$s->query('ROLLBACK');
is($s->fails("$repeatable; " . ($fence =~ s/$next/$next + 2/r) . '; COMMIT'), '', '... and the retry');

# A holder that blocks everyone
my $hangs = ZkLock::session($b);
$hangs->query("BEGIN; SELECT zk_lock('hangs'); INSERT INTO written VALUES ('hangs')");
is($s->query("SELECT pg_terminate_backend(pid) FROM zk_locks WHERE name = 'hangs'"), 't', 'a holder is ended by what zk_locks has');
is($other->query("SELECT zk_try_lock('hangs', timeout => '1 h')"), 't', '... and others have its lock');
is($s->query("SELECT count(*) FROM written WHERE by = 'hangs'"), 0, '... when its transaction is rolled back');

# A lock that a client has forgotten
for my $how ("SELECT zk_lock('forgotten', scope => 'session'); SET idle_session_timeout", "BEGIN; SELECT zk_lock('forgotten'); SET idle_in_transaction_session_timeout")
{
	my $forgets = ZkLock::session($b);
	# the end may come with the answer, or after it
	like($forgets->fails("$how = '1ms'"), qr/^(?:|57P05: .*|25P03: .*)$/, $how);
	is($other->query("SELECT zk_try_lock('forgotten', timeout => '1 h')"), 't', '... ends it');
}

#
# Items, of which this server can have two, and one transaction one
#
my $take = "SELECT payload FROM zk_queue_take('q', '1 h')";
$s->query("SELECT zk_queue_put('q', i::text) FROM generate_series(1, 8) i");
length_is($b, 'q', '8 0 0', 'eight items');
$s[0]->query("BEGIN; $take");
like($s[0]->fails($take), qr/^53400: transaction has taken too many queue items/, 'too many items for a transaction');
is(hint($s[0]), 'Take fewer items in one transaction, or ask an administrator for a higher limit.', '... has a hint');
$s[0]->query('ROLLBACK');
length_is($b, 'q', '8 0 0', '... they are given back');
is($s[0]->query($take) . $s[0]->query($take), '12', '... and are had one by one');
length_is($b, 'q', '6 0 0', '... which are done');
my @items = map { $s[$_]->query("BEGIN; $take") } 0, 1;
like($s[2]->fails($take), qr/^53400: too many queue items are held on this server/, 'too many items for the server');
my $retry = hint($s[2]);
is($retry, 'Retry when other transactions have ended, or ask an administrator for a higher limit.', '... has a hint');
$s[0]->query('COMMIT');
$s[2]->query("SELECT zk_queue_put('q', '9')");
my $taken;
ZkLock::wait_until(sub { $s[2]->fails($take) eq '' && ($taken = $s[2]->{answer}) }, '... and the retry has an item');
push @items, $taken;
$s[1]->query('COMMIT');
is(join(' ', sort @items), '3 4 5', '... each has one of its own');
$_->quit for @s;
ZkLock::ask($b, "ALTER SYSTEM SET zklock.max_locks = 24");
ZkLock::hang_up($b);
$b->restart;
ZkLock::wait_connected($b);
@s = map { ZkLock::session($b) } 1 .. 3;
is(join(' ', map { $_->query("BEGIN; $take") } @s), '6 7 8', '... or with a higher limit all of them have');
is($s[0]->query($take), 9, '... and one of them more');
$_->query('COMMIT') for @s;

#
# Queues
#
$s = $s[0];
sub put { my ($first, $last) = @_; return "SELECT zk_queue_put('many ' || i, 'x') FROM generate_series($first, $last) i"; }
like($s->fails(put(1, 129)), qr/^53400: transaction puts into too many queues/, 'too many queues for a transaction');
is(hint($s), 'Put into fewer queues in one transaction.', '... has a hint, and no limit that an administrator could raise');
is($s->fails(put(1, 128)) . $s->fails(put(129, 129)), '', '... and they are put in two');
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT sum(length) FROM zk_queues WHERE queue LIKE 'many %'") eq '129' }, 'each once');

#
# What a role may have
#
$s->query("CREATE ROLE limited LOGIN; GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO limited; ALTER ROLE limited SET zklock.max_locks_per_backend = 1;
	SELECT zk_queue_put('of role', i::text) FROM generate_series(1, 4) i");
length_is($b, 'of role', '4 0 0', 'items for a role');
my %two = (
	'queue items' => [ "SELECT payload FROM zk_queue_take('of role', '1 h')" ],
	'queues' => [ "SELECT zk_queue_put('one', 'x')", "SELECT zk_queue_put('two', 'x')" ],
	'elections' => [ "SELECT zk_is_leader('one')", "SELECT zk_is_leader('two')" ],
	'zklock locks' => [ "SELECT zk_lock('one')", "SELECT zk_lock('two')" ]);
for my $what (sort keys %two)
{
	my $limited = ZkLock::session($b, user => 'limited');
	my ($first, $second) = ($two{$what}[0], $two{$what}[-1]);
	$limited->query("BEGIN; $first");
	like($limited->fails($second), qr/^53400: .* too many $what$/, "too many $what");
	my ($less) = hint($limited) =~ /^(.*), or ask an administrator for a higher limit\.$/;
	$limited->query('ROLLBACK');
	ok($less, '... has a hint');
	if ($what eq 'elections')
	{
		is($less, 'Resign from some with zk_resign', '... which names a function');
		is($limited->fails("SELECT zk_resign('one'); $second; SELECT zk_resign('two')"), '', '... and so another one is entered');
	}
	elsif ($what eq 'zklock locks') { is($limited->fails($second), '', '... and after a release others are had'); }
	else
	{
		$limited->query($first);
		is($limited->fails($second), '', '... which is had in two');
	}
	$limited->quit;
	ZkLock::ask($b, 'ALTER ROLE limited SET zklock.max_locks_per_backend = 2');
	$limited = ZkLock::session($b, user => 'limited');
	is($limited->fails("BEGIN; $first; $second; COMMIT"), '', '... or with a higher limit in one');
	$limited->quit;
	ZkLock::ask($b, 'ALTER ROLE limited SET zklock.max_locks_per_backend = 1');
}

done_testing();
