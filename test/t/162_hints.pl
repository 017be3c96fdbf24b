# Hints that can be followed: each test brings about the state in which a hint is printed, does
# what it says, word for word where it has a call, and looks whether that helps and loses
# nothing.  Here are those of calls; 170 has those of settings and of the ensemble.  Which test
# follows which hint is in test/hints.md, which is complete: a test below compares it with src/.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(record runs);
use Test::More;
use ZkLock;
use ZooKeeper;

#
# The list
#
sub texts_of
{
	my ($code) = @_;
	my @texts;
	# strings that stand side by side are one
	while ($code =~ /((?:"(?:[^"\\]|\\.)*"\s*)+)/g) { push @texts, join('', $1 =~ /"((?:[^"\\]|\\.)*)"/g) =~ s/\\"/"/gr; }
	return @texts;
}

my (%printed, %listed, %indirect, %code_of);
my $part = '';
for my $file (glob "$FindBin::Bin/../../src/*/*.c")
{
	my $code = PostgreSQL::Test::Utils::slurp_file($file);
	my ($name) = $file =~ m{/src/(.*)};
	$code_of{$name} = $code;
	my @hints = map { (texts_of($_))[0] // 'no text' } $code =~ /errhint\(((?:\s*"(?:[^"\\]|\\.)*")*)/g;
	push @hints, map { texts_of($_) } $code =~ /(?<!\.)\bhint =\s([^;]*);/g;
	push @hints, map { (texts_of($_))[0] } $code =~ /\.hint =\s*((?:"(?:[^"\\]|\\.)*"\s*)+)/g;
	# of a kind's loss, in contender.c
	push @hints, map { (texts_of($_))[0] } $code =~ /\.(?:retry|ways) =\s*((?:"(?:[^"\\]|\\.)*"\s*)+)/g;
	$indirect{"$name: $_"} = 1 for $code =~ /errhint\("%s", ([^()]*)\)/g;
	push @hints, map { (texts_of($_))[-1] } $code =~ /zklock_leave_transaction\(fcinfo,([^;]*);/g;
	$printed{"$name: $_"} = 1 for grep { $_ ne '%s' } @hints;
}
for my $line (split /\n/, PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/../hints.md"))
{
	$part = $1 if $line =~ /^## (.*)/;
	my ($file, $text, $tests) = $line =~ /^\| `(\S+)` \| (.*) \| (.*) \|$/ or next;
	$listed{"$file: $text"} = 1 if $part eq 'Messages';
	ok(index($code_of{$file}, $text =~ s/"/\\"/gr) >= 0, "$file says: $text") if $part =~ /^Details/;
	ok(-f "$FindBin::Bin/$_.pl" || -f "$FindBin::Bin/../../sql/$_.sql", "a test $_ for: $text") for split /, /, $tests =~ s/^(?:by hand|not followed):.*//r;
}
is(join("\n", sort keys %listed), join("\n", sort keys %printed), 'test/hints.md has all hints in src, and no other');
is(join(', ', sort keys %indirect), 'backend/check.c: hint, backend/command.c: hint, backend/job_settler.c: error->hint, backend/limit.c: texts[limit].hint, backend/loss.c: text.hint', 'hints that are made elsewhere are known');
is(join("\n", grep { !/: [A-Z].*\.$/ && !/: zk_\w+\(.*\.$/ } sort keys %printed), '', 'all are sentences');

#
# Two servers
#
my $zk = ZooKeeper->new->start;
my ($a, $b) = map {
	ZkLock::server($_, $zk, init => { allows_streaming => 1 }, conf => "zklock.session_timeout = '1h'\ncluster_name = '$_'\nmax_prepared_transactions = 2")
} qw(a b);
ZkLock::wait_connected($a, $b);
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;
ZkLock::ask($_, 'CREATE TABLE t (job text)') for $a, $b;

sub hint { my ($session) = @_; return $session->notices =~ /^HINT:  (.*)$/m ? $1 : 'no hint'; }

# What a hint says to call, as it says it
sub calls { my ($session) = @_; return hint($session) =~ /((?:SELECT )?zk_\w+\((?:[^()']|'[^']*'|\(\))*\))/g; }
sub call { my ($session, $n) = @_; return (calls($session))[ $n // 0 ] // 'SELECT 1/0'; }

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }

# What a session has of a name, in messages.
sub held { my ($kind) = @_; return $kind eq 'semaphore' ? 'a permit of semaphore' : $kind; }

# Its server hears that the contender is gone; the session need not.
sub lose
{
	my ($kind, $name) = @_;
	my $directory = { lock => 'locks', semaphore => 'semaphores', job => 'jobs', election => 'elections' }->{$kind};
	my $before = () = log_of($a) =~ /\Q$kind "$name" was lost while held/g;
	# nobody watches a permit before the next heartbeat
	ZkLock::ask($a, "SELECT zk_break('$name', token) FROM zk_contenders('$name')") if $kind eq 'semaphore';
	$zk->delete(ZkLock::directory($name, $directory) . '/' . (ZkLock::queue($zk, $name, $directory))[0]) if $kind ne 'semaphore';
	ZkLock::wait_until(sub { (() = log_of($a) =~ /(?:\Q$kind "$name" was lost while held\E|no longer leader of election "\Q$name\E")/g) > $before }, "$name: $kind is lost");
	return;
}

# "Does it work now?"
sub works
{
	my ($session, $sql, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($session->fails($sql), '', $what) || diag($session->notices);
}

#
# Words that are not understood
#
for my $sql (
	"SELECT zk_lock('word', 'session')", "SELECT zk_lock('word', 'transaction')", "SELECT zk_try_lock('word', 'session')",
	"SELECT zk_try_lock_all('{word}', 'session')", "SELECT zk_lock('word', 'exclusive', 'shared')", "SELECT zk_lock('word', 'shared', 'exclusive')")
{
	like($sa->fails($sql), qr/^22023: unrecognized lock (?:mode|scope)/, $sql);
	my ($written) = hint($sa) =~ /write (\w+ => '\w+')/;
	my ($word) = $written =~ /'(\w+)'/;
	works($sa, $sql =~ s/, '(?:exclusive', ')?\Q$word\E'|, 'shared', '\Q$word\E'/, $written/r, "... $written");
	$sa->query('SELECT zk_unlock_all()');
}
for my $sql ("SELECT zk_lock('word', '%s')", "CALL zk_lock_session('word', '%s')", "SELECT zk_lock('word', 'shared', '%s')",
	"SELECT zk_acquire('word', 2, '%s')", "CALL zk_run_once('word', 'SELECT 1', slot => '2026-01-01', in_doubt => '%s')")
{
	# a word of the other kind, where the call has only one
	my $wrong = $sql =~ /session/ ? 'session' : $sql =~ /acquire/ ? 'shared' : 'x';
	like($sa->fails(sprintf $sql, $wrong), qr/^22023: unrecognized/, sprintf $sql, $wrong);
	my @allowed = hint($sa) =~ /^Allowed \w+ are.*/ ? hint($sa) =~ /"(\w+)"/g : ();
	is(scalar(@allowed), 2, '... has a hint with two words');
	for my $word (@allowed)
	{
		works($sa, sprintf($sql, $word), "... of which $word works");
		$sa->query('SELECT zk_unlock_all()');
	}
}
for my $sql ("SELECT zk_try_lock('word', timeout => '%s')", "CALL zk_lock_session('word', timeout => '%s')", "SELECT zk_queue_take('word', '%s')",
	"CALL zk_run_once('interval', 'SELECT 1', slot => '2026-01-01', timeout => '%s')", "CALL zk_run_once('interval', 'SELECT 1', every => '%s')")
{
	like($sa->fails(sprintf $sql, '-1 s'), qr/^22023: /, sprintf $sql, '-1 s');
	my ($interval) = hint($sa) =~ /such as '([^']+)'/;
	works($sa, sprintf($sql, $interval // 'none'), '... works with the interval of its hint');
	$sa->query('SELECT zk_unlock_all()');
}
for my $args ('', ", every => '1 day', slot => '2026-01-01'")
{
	$sa->fails("CALL zk_run_once('neither', 'SELECT 1'$args)");
	my ($every) = hint($sa) =~ /every, such as ('[^']+')/;
	works($sa, "CALL zk_run_once('neither', 'SELECT 1', every => $every)", 'every, as the hint has it');
}

$sa->query("SET zklock.namespace = 'tenant'");
$sa->fails("SELECT zk_lock(repeat('x', 255))");
like(hint($sa), qr/^The namespace "tenant" counts, too\.$/, 'a name that is too long with the namespace');
my ($most) = $sa->notices =~ /a name has 1 to (\d+)\./;
works($sa, "SELECT zk_lock(repeat('x', $most))", '... and one that is not');
$sa->query('RESET zklock.namespace');

$sa->fails("ALTER SYSTEM SET zklock.hosts = 'zk1'");
my ($hosts) = hint($sa) =~ /for example "([^"]+)"/;
works($sa, "ALTER SYSTEM SET zklock.hosts = '$hosts'; ALTER SYSTEM RESET zklock.hosts", 'hosts as the hint has them');
for my $of ([ 'hosts', 'zk1:2181' ], [ 'root', '' ])
{
	my ($setting, $before) = @$of;
	like($sa->fails("ALTER SYSTEM SET zklock.$setting = '$before/path/'"), qr/^22023: invalid value for parameter "zklock\.$setting"/, "a path of $setting that ends in a slash");
	my ($path) = $sa->notices =~ /^DETAIL:  .*such as "([^"]+)", without a trailing slash\.$/m;
	works($sa, "ALTER SYSTEM SET zklock.$setting = '$before" . ($path // 'none') . "'; ALTER SYSTEM RESET zklock.$setting", '... and as the detail has it');
}

#
# Where calls belong
#
for my $of ([ "CALL zk_lock_session('own')", "SELECT zk_unlock('own')" ], [ "CALL zk_barrier('own', 1)", '' ],
	[ "CALL zk_run_once('own', 'SELECT 1', slot => '2026-01-01')", '' ],
	[ "CALL zk_run_begin_session('own', slot => '2026-01-02')", "SELECT zk_run_end('own')" ])
{
	my ($sql, $end) = @$of;
	like($sa->fails("BEGIN; $sql"), qr/^25001: /, "$sql in a transaction block");
	my $hint = hint($sa);
	like($hint, qr/^Call it on its own\b/, '... has a hint');
	$sa->query('ROLLBACK');
	works($sa, $sql, '... works on its own');
	is($sa->query($end), 't', '... and comes to its end') if $end;
	if ($hint =~ /zk_lock\(name, mode, 'session'\)/)
	{
		works($sa, "BEGIN; SELECT zk_lock('own', 'exclusive', 'session'); COMMIT", '... the other way works in one');
		is($sa->query($end), 't', '... and comes to its end');
	}
	elsif ($hint =~ /zk_run_begin\b/)
	{
		is($sa->query("BEGIN; SELECT zk_run_begin('own', slot => '2026-01-03'); COMMIT"), 't', '... the other way works in one');
		is($sa->query($end), 't', '... and comes to its end');
	}
}
$sa->query("SELECT zk_run_begin('written', slot => '2026-01-01')");
like($sa->fails("BEGIN; INSERT INTO t VALUES ('written'); SELECT zk_run_end('written')"), qr/^25001: /, 'zk_run_end in a transaction that has written');
my ($own) = hint($sa) =~ /^The transaction is rolled back\. Repeat it without zk_run_end, commit, and then use (SELECT .*\)) on its own\.$/;
is($own, "SELECT zk_run_end('written')", '... has a hint');
$sa->query('ROLLBACK');
is($sa->fails($own), '55000: the run of job "written" is not done', '... which is not half followed');
my ($not_done) = hint($sa) =~ /^Repeat it, or use (SELECT .*\))\.$/;
$sa->query("BEGIN; INSERT INTO t VALUES ('written'); COMMIT");
is($sa->query($own), 't', '... and after the commit it is done');
is(Jobs::rows($a, 'written') . record($a, 'written'), '1done|a|1|0', '... and what was written is there, once');

$sa->query("SELECT zk_run_begin('written', slot => '2026-01-02')");
$sa->fails('SELECT 1/0');
is($sa->query($not_done) . record($a, 'written'), 'tfailed|a|1|1', '... and it fails if it is not repeated');

my $walsender = ZkLock::session($a, options => 'replication=database');
like($walsender->fails("SELECT zk_lock('walsender')"), qr/^55000: /, 'a replication connection');
like(hint($walsender), qr/^Use an ordinary connection\.$/, '... has a hint');
works($sa, "SELECT zk_lock('walsender')", '... and an ordinary one works');
$walsender->quit;

$sa->query("CREATE FUNCTION takes() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN zk_lock(''parallel''); END';
	SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('debug_parallel_query', 'force_parallel_mode')");
like($sa->fails('SELECT takes()'), qr/^55000: cannot use zklock in a parallel worker/, 'a parallel worker');
my ($marked) = hint($sa) =~ /marked (PARALLEL UNSAFE)\./;
$sa->query("ALTER FUNCTION takes() $marked");
works($sa, 'SELECT takes()', '... and a function that is marked as the hint says');
$sa->query('RESET ALL');
$sa->query('DROP FUNCTION takes()');

for my $of ([ "zk_lock('prepared', %s)", 'exclusive', 'transaction', "zk_unlock('prepared')" ], [ "zk_acquire('prepared', %s)", 2, 'transaction', "zk_release('prepared')" ])
{
	my ($take, $first, $scope, $end) = @$of;
	my $sql = sub { return 'BEGIN; SELECT ' . sprintf($take, "'$first', '$_[0]'") . "; INSERT INTO t VALUES ('prepared'); PREPARE TRANSACTION 'p'"; };
	like($sa->fails($sql->($scope)), qr/^55000: cannot PREPARE/, "PREPARE TRANSACTION with $take");
	my ($other) = hint($sa) =~ /^Use (session) scope/;
	works($sa, $sql->($other), '... in session scope');
	$sa->query("COMMIT PREPARED 'p'");
	is($sa->query("SELECT $end"), 't', '... which outlives it');
}

#
# What a session has
#
$sa->query("BEGIN; SELECT zk_lock('scope')");
is($sa->query("SELECT zk_unlock('scope')"), 'f', 'a hold in transaction scope is not unlocked');
like(hint($sa), qr/ends with its transaction\.$/, '... has a hint');
$sa->query('COMMIT');
ZkLock::ok_clean($zk, [$a], 'scope');

$sa->query("SELECT zk_acquire('semaphores', 3, 'session')");
like($sa->fails("SELECT zk_acquire('semaphores', 2, 'session')"), qr/^55000: cannot acquire/, 'one of fewer permits');
my ($number) = hint($sa) =~ /ask for one of (\d+)\./;
works($sa, "SELECT zk_acquire('semaphores', $number, 'session')", '... of the number that the hint has');
$sa->query("SELECT zk_release('semaphores')") for 1, 2;
works($sa, "SELECT zk_acquire('semaphores', 2, 'session')", '... or released before');
$sb->query("SELECT zk_acquire('semaphores', 3, 'session')");
like($sb->notices, qr/^WARNING 01000: another session asks for one of 2 permits/, 'others name another number');
is($sb->query("SELECT string_agg(concat(server, permits), ' ') FROM " . call($sb)), 'a2 b3', '... and the call of the hint shows who');
$_->query('SELECT zk_unlock_all()') for $sa, $sb;

$sa->query("SELECT zk_lock('set', 'shared', 'session')");
my $both = "SELECT zk_try_lock_all('{set,other}', scope => 'session', timeout => '1 h')";
like($sa->fails($both), qr/^55000: cannot acquire lock "set" in exclusive mode/, 'together with others');
like(hint($sa), qr/^Acquire it in exclusive mode on its own, or release it before\.$/, '... has a hint');
works($sa, "SELECT zk_lock('set', scope => 'session'); $both", '... on its own');
$sa->query('SELECT zk_unlock_all()');
$sa->query("SELECT zk_lock('set', 'shared', 'session'); SELECT zk_unlock('set')");
is($sa->query($both), 't', '... or released before');
$sa->query('SELECT zk_unlock_all()');

# A request that ZooKeeper would not take: as many as fit
my $large = "SELECT zk_try_lock_all(ARRAY(SELECT repeat('%%', 250) || i FROM generate_series(1, %d) i), scope => 'session', timeout => '1 h')";
like($sa->fails(sprintf $large, 1000), qr/^54000: cannot acquire 1000 locks in one step/, 'more names than a request has room for');
is(hint($sa), 'Acquire fewer of them.', '... has a hint');
my ($bytes, $room) = $sa->notices =~ /would have (\d+) bytes, and ZooKeeper accepts (\d+)\./;
my $fewer = int(1000 * $room / $bytes) - 10;
is($sa->query(sprintf $large, $fewer), 't', "... and $fewer can be had");
is($sa->query('SELECT zk_unlock_all()'), $fewer, '... each once');

$sa->query("SELECT zk_run_begin('running', slot => '2026-01-01')");
like($sa->fails("SELECT zk_run_begin('running', slot => '2026-01-02')"), qr/^55006: /, 'a run is begun twice');
my ($if_done, $if_not) = hint($sa) =~ /^If what it runs has come to its end, use (SELECT .*?\)); if not, use (SELECT .*?\))\.$/;
is($sa->query($if_not), 't', "... $if_not");
is(record($a, 'running'), 'failed|a|1|1', '... ends it');
$sa->query("SELECT zk_run_begin('running', slot => '2026-01-01', attempts => 2)");
$sa->fails("SELECT zk_run_begin('running', slot => '2026-01-02')");
is($sa->query($if_done), 't', "... $if_done");
is(record($a, 'running'), 'done|a|2|1', '... ends it, too');
is($sa->query("SELECT zk_run_begin('running', slot => '2026-01-02')"), 't', '... and the next begins');
$sa->query('DISCARD ALL');
is($sa->query("SELECT zk_run_end('running')"), 't', 'DISCARD ALL gives it up');
like(hint($sa), qr/use neither DISCARD ALL nor pg_advisory_unlock_all\(\)\.$/, '... has a hint');
is($sa->query("SELECT zk_run_begin('running', slot => '2026-01-03')") . $sa->query("SELECT zk_run_end('running')") . $sa->notices, 'tt', '... and without there is no warning');

$sa->query("SET zklock.max_locks_per_backend = 1; BEGIN; SELECT zk_lock('one')");
like($sa->fails("SELECT zk_lock('two')"), qr/^53400: /, 'too many locks');
like(hint($sa), qr/^Release locks, or ask an administrator for a higher limit\.$/, '... has a hint');
$sa->query('ROLLBACK');
works($sa, "SELECT zk_lock('two')", '... released');
works($sa, "SET zklock.max_locks_per_backend = 2; BEGIN; SELECT zk_lock('one'); SELECT zk_lock('two'); COMMIT; RESET zklock.max_locks_per_backend", '... or a higher limit');

my $waits = ZkLock::session($b)->send("CALL zk_barrier('parties', 3)")->wait_event('Extension');
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT count(*) FROM zk_barriers WHERE name = 'parties'") eq '1' }, 'one is there');
like($sa->fails("CALL zk_barrier('parties', 2)"), qr/^22023: barrier "parties" is for 3 parties, not 2/, 'parties that name different numbers');
is($sa->query("SELECT DISTINCT server || parties FROM @{[ hint($sa) =~ /(zk_\w+)/ ]} WHERE name = 'parties'"), 'b3', '... and the view of the hint shows who');
my $third = ZkLock::session($b)->send("CALL zk_barrier('parties', 3)");
works($sa, "CALL zk_barrier('parties', 3)", '... and with the number that is there it opens');
$_->result for $waits, $third;
$_->quit for $waits, $third;

# An upgrade that cannot be: begun again in exclusive mode
$sa->query("BEGIN; SELECT zk_lock('upgrade', 'shared')");
$sb->send("BEGIN; SELECT zk_lock('upgrade')")->wait_level(2);
ZkLock::wait_queue($zk, 'upgrade', 2);
like($sa->fails("SELECT zk_lock('upgrade')"), qr/^40P01: /, 'an upgrade that cannot be');
my ($mode) = hint($sa) =~ /^Acquire a lock in (\w+) mode to begin with/;
$sa->query('ROLLBACK');
$sb->result;
$sa->send("BEGIN; SELECT zk_lock('upgrade', '$mode')")->wait_level(2);
$sb->query('COMMIT');
works($sa, 'COMMIT', '... and in the mode that the hint has it waits for its turn') if $sa->result;

#
# Losses
#
my %held = (
	'exclusive' => [ 'lock', "zk_lock('%s', 'exclusive', 'session')" ],
	'shared' => [ 'lock', "zk_lock('%s', 'shared', 'session')" ],
	"it's \\" => [ 'lock', "zk_lock('%s', scope => 'session')" ],
	'semaphore' => [ 'semaphore', "zk_acquire('%s', 2, 'session')" ],
);
for my $name (sort keys %held)
{
	my ($kind, $take) = @{ $held{$name} };
	my $literal = $name =~ s/'/''/gr;
	my $directory = $kind eq 'semaphore' ? 'semaphores' : 'locks';
	my $what = "SELECT count, scope, mode FROM zk_locks WHERE kind = '$kind' AND granted AND name = '$literal' AND pid = " . $sa->pid;
	for my $n (0, 1)
	{
		my $token = $sa->query('SELECT ' . sprintf $take, $literal);
		my $before = ZkLock::ask($a, $what);
		lose($kind, $name);
		is($sa->fails('SELECT count(*) FROM pg_class'), "55000: @{[ held($kind) ]} \"$name\" was lost", "$name: lost");
		my $hinted = call($sa, $n);
		my $answer = $sa->query($hinted);
		works($sa, 'SELECT count(*) FROM pg_class', "... $hinted helps");
		if ($n == 0) { is($answer, 't', '... and releases it'); }
		else
		{
			cmp_ok($answer, '>', $token, '... with a larger token');
			is(ZkLock::ask($a, $what), $before, '... and holds what was held, for as long, once');
			is($sa->query($kind eq 'semaphore' ? "SELECT zk_release('$literal')" : "SELECT zk_unlock('$literal')"), 't', '... until it is released');
		}
		ZkLock::ok_clean($zk, [$a], $name, "$name, $hinted", $directory);
	}
}

# Held twice: by whom is not known here, so each of them is told, unless the hint is followed
# as often as it says.
for my $of ([ 'lock', 'twice', "zk_lock('twice', 'exclusive', 'session')", "zk_lock('twice', 'exclusive', 'session')" ],
	[ 'lock', 'in both modes', "zk_lock('in both modes', 'shared', 'session')", "zk_lock('in both modes', 'exclusive', 'session')" ],
	[ 'semaphore', 'permit twice', "zk_acquire('permit twice', 2, 'session')", "zk_acquire('permit twice', 2, 'session')" ])
{
	my ($kind, $name, @takes) = @$of;
	my $take = sub { $sa->query("SELECT $_") for @takes; };
	$take->();
	lose($kind, $name);
	is($sa->fails('SELECT count(*) FROM pg_class'), "55000: @{[ held($kind) ]} \"$name\" was lost", "$name: lost");
	my ($times) = hint($sa) =~ /zk_(?:unlock|release)\([^()]*\) once for each of the (\d+) holds to acknowledge the loss, or .* again, as one hold\.$/;
	is($times, 2, '... which its hint counts');
	my $unlock = call($sa);
	is($sa->query($unlock), 't', '... acknowledged once');
	is($sa->fails('SELECT count(*) FROM pg_class'), "55000: @{[ held($kind) ]} \"$name\" was lost", '... it is lost for the other hold');
	is(call($sa), $unlock, '... which its hint has');
	unlike(hint($sa), qr/holds/, '... as the only one');
	is($sa->query($unlock), 't', '... acknowledged twice');
	works($sa, 'SELECT count(*) FROM pg_class', '... it helps');
	ZkLock::ok_clean($zk, [$a], $name, "$name, released", $kind . 's');

	$take->();
	lose($kind, $name);
	$sa->fails('SELECT count(*) FROM pg_class');
	$sa->query(call($sa, 1));
	works($sa, 'SELECT count(*) FROM pg_class', '... or taken anew');
	is(ZkLock::ask($a, "SELECT sum(count) FROM zk_locks WHERE kind = '$kind' AND name = '$name' AND granted"), 1, '... as one hold');
	is($sa->query($unlock), 't', '... which is released');
	ZkLock::ok_clean($zk, [$a], $name, "$name, taken anew", $kind . 's');
}

# All other ways of doc/failures.md
my $n = 0;
for my $way ("SELECT zk_try_lock('%s', scope => 'session')", "CALL zk_lock_session('%s')", "SELECT zk_try_lock_all('{%s,other}', scope => 'session')",
	"SELECT zk_lock_all('%s', 'other')", 'SELECT zk_unlock_all()', 'SELECT pg_advisory_unlock_all()', 'DISCARD ALL')
{
	# a name that a server comes back to is not watched at once
	my $name = 'way ' . ++$n;
	my $token = $sa->query("SELECT zk_lock('$name', scope => 'session')");
	lose('lock', $name);
	is($sa->fails('SELECT count(*) FROM pg_class'), "55000: lock \"$name\" was lost", "$name: lost");
	is($sa->fails($way =~ s/%s/$name/r), '', "... and acknowledged: $way");
	works($sa, 'SELECT count(*) FROM pg_class', '... which helps');
	my ($now) = $sa->query("SELECT token FROM zk_locks WHERE name = '$name' AND granted AND scope = 'session'");
	if ($way =~ /unlock|DISCARD|zk_lock_all/) { is($now, '', '... and nothing is held'); }
	else { cmp_ok($now, '>', $token, '... and the lock is held anew'); }
	$sa->query('SELECT zk_unlock_all()');
	ZkLock::ok_clean($zk, [$a], $name);
}

# In a transaction: what was done under the lock is undone, and done once by the retry
my %transaction = (
	'transaction' => [ 'lock', "SELECT zk_lock('transaction')" ],
	'permit too' => [ 'semaphore', "SELECT zk_acquire('permit too', 2)" ],
);
for my $name (sort keys %transaction)
{
	my ($kind, $take) = @{ $transaction{$name} };
	my @statements = ($take, "INSERT INTO t VALUES ('$name')");
	$sa->query('BEGIN; ' . join '; ', @statements);
	lose($kind, $name);
	like($sa->fails('COMMIT'), qr/^40001: @{[ held($kind) ]} "$name" was lost/, "$name: lost");
	like(hint($sa), qr/^The transaction might succeed if retried\.$/, '... has a hint');
	works($sa, 'BEGIN; ' . join('; ', @statements) . '; COMMIT', '... and the retry');
	is(Jobs::rows($a, $name), 1, '... does it once');
}

# A run of a job
my $gate = Jobs::Gate->new($a);
my $run = "CALL zk_run_once('once', 'INSERT INTO t VALUES (''once''); $Jobs::at_gate', slot => '2026-01-01')";
$gate->stand($sa, $run);
lose('job', 'once');
like($sa->failure, qr/^40001: job "once" was lost/, 'a run is lost');
like(hint($sa), qr/^The next call runs the job, if it is still due\.$/, '... has a hint');
$gate->open;
works($sb, $run, '... and who calls next');
works($sa, $run, '... and then again');
is(Jobs::rows($a, 'once') . Jobs::rows($b, 'once'), '01', '... has run it, once');

$sa->query("SELECT zk_run_begin('begun', slot => '2026-01-01')");
lose('job', 'begun');
like($sa->fails('SELECT count(*) FROM pg_class'), qr/^55000: job "begun" was lost/, 'a run that was begun is lost');
is($sa->query(call($sa)), 'f', '... ' . call($sa));
like(hint($sa), qr/^The next call runs the job, if it is still due\.$/, '... says that it was lost');
is($sa->query("SELECT zk_run_begin('begun', slot => '2026-01-01')") . $sa->query("SELECT zk_run_end('begun')"), 'tt', '... and who calls next runs it');
is(runs($a, 'begun'), 'done a, lost a', '... once');

# A leadership
sub retry_where
{
	my ($election, $what) = @_;
	my ($question) = calls($sa);
	my $leader = $sa->query('SELECT server FROM ' . $question =~ s/^SELECT //r . ' LIMIT 1');
	my %node = (a => $sa, b => $sb);
	ok(exists $node{$leader}, "$what: $question lists a server first") or return;
	works($node{$leader}, "BEGIN; SELECT zk_require_leader('$election'); INSERT INTO t VALUES ('$election'); COMMIT", '... and there it works');
	is(Jobs::rows($a, $election) + Jobs::rows($b, $election), 1, '... once');
	return;
}
for my $s ($sa, $sb) { ZkLock::wait_until(sub { $s->query("SELECT zk_is_leader('lost')"); $zk->children('/zklock/elections/lost') > 0 }, 'a candidate'); }
$zk->wait_children('/zklock/elections/lost', 2);
is($sa->query("SELECT zk_is_leader('lost', '1 h')"), 't', 'one leads');
$sa->query("BEGIN; SELECT zk_require_leader('lost'); INSERT INTO t VALUES ('lost')");
lose('election', 'lost');
like($sa->fails('COMMIT'), qr/^40001: leadership of election "lost" was lost/, '... and loses that');
ZkLock::wait_until(sub { $sb->query("SELECT zk_is_leader('lost')") eq 't' }, 'the other leads');
retry_where('lost', 'a leadership that was lost');
$sb->query("SELECT zk_is_leader('not')");
ZkLock::wait_until(sub { $sb->query("SELECT zk_is_leader('not')") eq 't' }, 'the other leads');
# who has not heard of it in two seconds gets no hint
is($sa->query("SELECT zk_is_leader('not', '1 h')"), 'f', '... and this one knows that');
like($sa->fails("BEGIN; SELECT zk_require_leader('not')"), qr/^40001: this server is not the leader/, 'not the leader');
$sa->query('ROLLBACK');
$sa->fails("SELECT zk_require_leader('not')");
retry_where('not', 'not the leader');
# ... also for whom the Quick start has given rights to
my ($grants) = PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/../../README.md") =~ /```sql\n(CALL zk_grant.*?)```/s;
ZkLock::ask($a, "CREATE ROLE batch LOGIN; $grants");
my $batch = ZkLock::session($a, user => 'batch');
$batch->fails("SELECT zk_require_leader('not')");
is($batch->query('SELECT server FROM ' . call($batch) =~ s/^SELECT //r . ' LIMIT 1'), 'b', '... a role of the Quick start is told where');
$batch->quit;

#
# Items
#
$sa->query("SET zklock.max_item_size = 10");
like($sa->fails("SELECT zk_queue_put('large', repeat('x', 11))"), qr/^54000: /, 'an item that is too large');
like(hint($sa), qr/^Put the row elsewhere, and its key into the queue\.$/, '... has a hint');
$sa->query("CREATE TABLE large (id int, payload text); BEGIN; INSERT INTO large VALUES (1, repeat('x', 11)); SELECT zk_queue_put('large', '1'); COMMIT");
is($sa->query("BEGIN; SELECT length(large.payload) FROM zk_queue_take('large', '1 h') i JOIN large ON large.id::text = i.payload; COMMIT"), 11, '... which works');
$sb->query("SELECT zk_queue_put('items', 'first'); SELECT zk_queue_take('items', '1 h')");
my $item = '0198d3a0-1b2c-7345-8678-9abcdef01234-0000000000';
my $foreign = "/zklock/queues/items/items/$item";
$zk->create($foreign, data => 'x' x 65537);
my $znode;
ZkLock::wait_until(sub {
	$sb->query("SELECT zk_queue_take('items')");
	($znode) = PostgreSQL::Test::Utils::slurp_file($b->logfile) =~ /item "$item" of queue "items" is set aside\n.*\n.*HINT:  Delete znode "([^"]+)" in the queue's directory, with what is below it\./;
	return defined $znode;
}, 'what is no item is set aside');
is("/zklock/queues/items/$znode", $foreign, '... and the hint names its znode');
$sb->query("SELECT zk_queue_put('items', 'item')");
$zk->delete($foreign);
is($sb->query("SELECT payload FROM zk_queue_take('items', '1 h')"), 'item', '... without which the queue goes on, and nothing is lost');

#
# Fences
#
$sa->query("SELECT zk_fence('fenced', zk_lock('fenced'))");
my ($token) = $sb->query("BEGIN; SELECT zk_lock('fenced')");
$sa->query("SELECT zk_fence('fenced', $token)");
my $old = $sa->fails("SELECT zk_fence('fenced', $token - 1)");
like($old, qr/^40001: fencing token \d+ for resource "fenced" is too old/, 'a token that is too old');
$sb->query('COMMIT');
works($sa, "BEGIN; SELECT zk_fence('fenced', zk_lock('fenced')); COMMIT", '... and the lock acquired anew');

for my $of ([ "zk_fence('table', zk_lock('table'))", 'zk_fences', 'fences' ], [ "zk_run_begin('table', slot => '2026-01-01')", 'zk_runs', 'runs' ])
{
	my ($call, $table) = @$of;
	my $rows = $sa->query("SELECT count(*) FROM $table");
	$sa->query("CREATE TABLE log (i int); CREATE RULE r AS ON INSERT TO $table DO ALSO INSERT INTO log VALUES (1)");
	my $failure = $sa->fails("SELECT $call") . $sa->fails("SELECT zk_run_end('table', ok => false)");
	like($failure, qr/^55000: table "$table" is not as/, "$table has a rule");
	my $hint = hint($sa);
	$sa->query("DROP RULE r ON $table; DROP TABLE log");
	works($sa, "SELECT $call", '... and after the change is undone');
	$sa->fails("SELECT zk_run_end('table', ok => false)");
	cmp_ok($sa->query("SELECT count(*) FROM $table"), '>', $rows, '... it has all its rows, and one more');
}

#
# Jobs' records
#
my $job = "CALL zk_run_once('record', 'INSERT INTO t VALUES (''record'')', slot => '2026-01-01')";
works($sa, $job, 'a job');
my $good = $zk->get('/zklock/jobs/record');
$zk->set('/zklock/jobs/record', '{}');
like($sb->fails($job), qr/^22023: record of job "record" in ZooKeeper is damaged/, 'a record that is damaged');
like(hint($sb), qr/^Repair it, or use SELECT zk_job_forget\('record'\) to forget all runs, those that are done included\.$/, '... has a hint, which says what it costs');
my $forget = call($sb);
$zk->set('/zklock/jobs/record', $good);
works($sb, $job, '... repaired');
is(Jobs::rows($a, 'record') . Jobs::rows($b, 'record'), '10', '... it is not run again');
$zk->set('/zklock/jobs/record', '{}');
is($sb->query($forget), 't', '... or forgotten');
works($sb, $job, '... and run again');
is(Jobs::rows($a, 'record') . Jobs::rows($b, 'record'), '11', '... as it says');
$zk->set('/zklock/jobs/record', $good =~ s/"version": *1/"version": 2/r);
like($sb->fails($job), qr/^55000: record of job "record" in ZooKeeper is of a newer version/, 'a record of a newer version');
like(hint($sb), qr/^Update zklock on this server\.$/, '... has a hint');

#
# Numbers that were never given
#
my $uuid = '01234567-89ab-4cde-8f01-23456789abcd';
for my $of ([ 'lock', 'locks', "zk_lock('never')" ], [ 'semaphore', 'semaphores', "zk_acquire('never', 1)" ], [ 'job', 'jobs', "zk_run_begin('never', slot => '2026-01-01')" ])
{
	my ($kind, $directory, $take) = @$of;
	# nobody but the one that is meant is to be removed
	$sb->query("BEGIN; SELECT zk_lock('never')") if $kind ne 'lock';
	my $path = ZkLock::directory('never', $directory) . "/_c_$uuid-lock-0000000777";
	$zk->create($path, mode => 'ephemeral', parents => 1);
	like($sa->fails("SELECT $take"), qr/^55000: queue of $kind "never" has a contender whose sequence number was never given/, "a $kind with a number that was never given");
	my ($find, $remove) = calls($sa);
	if ($find)
	{
		my ($token) = $sa->query("SELECT token FROM $find WHERE node LIKE '%777'");
		isnt($token, '', "... which $find finds");
		is($sa->query('SELECT ' . $remove =~ s/\btoken\b/$token/r), 't', "... and $remove removes");
	}
	else
	{
		like(hint($sa), qr/^Delete it from the job's directory in ZooKeeper, or let /, '... has a hint');
		$zk->delete($path);
	}
	ZkLock::wait_until(sub { !$zk->stat($path) }, 'it is gone');
	works($sa, "BEGIN; SELECT $take; COMMIT", '... and it goes on');
	is($sb->fails("SELECT zk_assert('never'); COMMIT"), '', '... and others have what they had') if $kind ne 'lock';
}
$sa->query("SELECT zk_run_end('never')");

#
# Permissions
#
my @nobody = ([ 17, 'world', 'anyone' ]);
my @all = ([ 31, 'world', 'anyone' ]);
$zk->create($_, mode => 'persistent', acl => \@nobody) for '/zklock/locks/closed', '/zklock/barriers/closed', '/zklock/queues/closed';
for my $of ([ '/zklock/locks/closed', "SELECT zk_lock('closed')" ], [ '/zklock/barriers/closed', "CALL zk_barrier('closed', 2, '1 h')" ],
	[ '/zklock/queues/closed', "SELECT zk_queue_put('closed', 'x')" ])
{
	my ($path, $sql) = @$of;
	$zk->admin->set_acl($path, @nobody);
	like($sa->fails($sql), qr/^58000: ZooKeeper refused/, "$sql: refused");
	like(hint($sa), qr/^Check the permissions of the znodes under "zklock\.root"\.$/, '... has a hint');
	$zk->admin->set_acl($path, @all);
	$sb->send($sql)->wait_event('Extension') if $sql =~ /barrier/;
	my $now;
	ZkLock::wait_until(sub { ($now = $sa->fails($sql)) !~ /^58000/ }, 'it is allowed', sub { $now });
	is($now, '', '... and with other permissions it works');
	is($sb->failure, '', '... for both who meet') if $sql =~ /barrier/;
}
$zk->admin->set_acl('/zklock/locks/closed', [ 30, 'world', 'anyone' ]);
like($sa->fails("SELECT * FROM zk_contenders('closed')"), qr/^58000: ZooKeeper refused to answer/, 'a question: refused');
like(hint($sa), qr/^Check the permissions of the znodes under "zklock\.root"\.$/, '... has a hint');
$zk->admin->set_acl('/zklock/locks/closed', @all);
works($sa, "SELECT * FROM zk_contenders('closed')", '... and with other permissions it is answered');

done_testing();
