# The ensemble goes back: it is restored from a backup, or wiped.  Then it gives away
# what it has forgotten, and numbers transactions as it did before.  Every server that
# remembers notices, nothing is granted or believed for a session timeout, and tokens go
# on growing without anybody's hand.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $timeout = 8;
sub conf { return "zklock.session_timeout = '${timeout}s'"; }
my $back = 'ZooKeeper ensemble went back to an earlier state';
my (%seen, %largest);

# How often a server has noticed so far, by its log.
sub findings
{
	my $node = shift;
	return scalar(() = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /WARNING:  $back/g);
}

# Until it has noticed once more than when this was called the last time.
sub wait_found
{
	for my $node (@_)
	{
		my $name = $node->name;
		ZkLock::wait_until(sub { findings($node) > ($seen{$name} // 0) }, "$name notices");
		$seen{$name} = findings($node);
	}
}

my $zk;
sub base { return $zk->get('/zklock/tokens'); }

# A lock, from when on, and whether that is a whole timeout after the finding.
sub ok_granted_later
{
	my ($node, $name, $what) = @_;
	my $session = ZkLock::session($node);
	my $last = ZkLock::ask($node, "SELECT last_error ~ '$back', last_error_time FROM zk_session");
	like($last, qr/^t\|/, "$what: last_error says so");
	(my $found = $last) =~ s/.*\|//;
	my ($token, $late) = split /\|/,
	  $session->query("SELECT token, clock_timestamp() >= '$found'::timestamptz + interval '$timeout s' FROM (SELECT zk_lock('$name') AS token OFFSET 0) AS s");
	is($late, 't', "$what: nothing is granted for a session timeout");
	grown($token, $name, $what);
	return $session;
}

# Tokens of a name, in order.
sub grown
{
	my ($token, $name, $what) = @_;
	cmp_ok($token, '>', $largest{$name} // 0, "$what: the token has grown");
	$largest{$name} = $token;
}

# Time passes in the ensemble.
sub go_on
{
	my $zk = shift;
	$zk->create('/passing') unless $zk->stat('/passing');
	$zk->set('/passing', $_) for 1 .. 300;
}

#
# One ZooKeeper, three servers; C is stopped when it happens
#
$zk = ZooKeeper->new->start;
my ($a, $b, $c) = map { ZkLock::server($_, $zk, conf => conf()) } 'a', 'b', 'c';
ZkLock::wait_connected($a, $b, $c);
is(base(), 0, 'the base of tokens is 0 to begin with');
$zk->save;

my %holder = map { $_->name => ZkLock::session($_) } $a, $b, $c;
go_on($zk);
$holder{$_}->query('BEGIN') for 'a', 'b', 'c';
grown($holder{a}->query("SELECT zk_lock('job')"), 'job', 'before');
grown($holder{b}->query("SELECT zk_lock('other')"), 'other', 'before');
grown($holder{c}->query("SELECT zk_lock('third')"), 'third', 'before');
my $leader = ZkLock::session($a);
ZkLock::wait_until(sub { $leader->query("SELECT zk_is_leader('election')") eq 't' }, 'A leads');
grown($leader->query("SELECT (SELECT token FROM zk_elections WHERE election = 'election')"), 'election', 'before');
$holder{a}->query("SELECT zk_fence('data', $largest{job})");
$holder{c}->query('COMMIT');
$_->quit for $holder{c};
ZkLock::hang_up($c);
$c->stop;

$zk->kill9->go_back->start;
wait_found($a, $b);
is($holder{$_}->fails('COMMIT'), '40001: lock "' . ($_ eq 'a' ? 'job' : 'other') . '" was lost', "restored: $_ has lost its lock") for 'a', 'b';
is($leader->query("SELECT zk_is_leader('election', '0')"), 'f', '... and its leadership');
ok_granted_later($a, 'other', 'restored, A')->quit;
ok_granted_later($b, 'job', 'restored, B')->quit;
cmp_ok(base(), '>', 0, '... by a larger base of tokens');
ZkLock::wait_until(sub { $leader->query("SELECT zk_is_leader('election')") eq 't' }, 'A leads again');
grown($leader->query("SELECT (SELECT token FROM zk_elections WHERE election = 'election')"), 'election', 'restored');
is($leader->query("SELECT token = $largest{election} FROM zk_elections"), 't', '... which is in zk_elections, too');
my $s = ZkLock::session($a);
grown($s->query("SELECT zk_lock('job', 'exclusive', 'session')"), 'job', 'restored');
is($s->query("SELECT zk_fence('data', $largest{job})"), '', 'restored: the fence works on by itself');
is($s->query("SELECT string_agg(token::text, ' ') FROM (SELECT zk_token('job') AS token UNION ALL SELECT zk_assert('job')
		UNION ALL SELECT token FROM zk_locks WHERE name = 'job' UNION ALL SELECT token FROM zk_contenders('job')) AS t"),
	join(' ', ($largest{job}) x 4), '... and the token is the same wherever it is shown');
is(ZkLock::ask($b, "SELECT zk_break('job', $largest{job})"), 't', '... and taken by zk_break');
ZkLock::wait_until(sub { $s->fails('SELECT 1') eq '55000: lock "job" was lost' }, 'its holder hears of it');
pass('... of its holder');
$s->quit;

# C comes back, and knows from its file.
$c->start;
wait_found($c);
ok_granted_later($c, 'third', 'restored, C, which was away')->quit;

#
# Wiped; C is stopped, and its file is lost, or damaged
#
go_on($zk);
$holder{a}->query('BEGIN');
grown($holder{a}->query("SELECT zk_lock('job')"), 'job', 'before');
ZkLock::hang_up($c);
$c->stop;
unlink $c->data_dir . '/zklock.history' or die;
my $base = base();
$zk->kill9->wipe->start;
wait_found($a, $b);
is($holder{a}->fails('COMMIT'), '40001: lock "job" was lost', 'wiped: A has lost its lock');
ok_granted_later($b, 'job', 'wiped, B')->quit;
cmp_ok(base(), '>', $base, '... by a larger base of tokens');
$c->start;
wait_found($c);
ok_granted_later($c, 'job', 'wiped, C, which remembers nothing')->quit;
ZkLock::hang_up($c);
$c->stop;
PostgreSQL::Test::Utils::append_to_file($c->data_dir . '/zklock.history', 'x');
$c->start;
wait_found($c);
ok_granted_later($c, 'job', 'C, whose file is damaged')->quit;
like(PostgreSQL::Test::Utils::slurp_file($c->logfile), qr/LOG:  file "zklock.history" is damaged/, '... of which the log tells');

# It has all that it needs again, and a restart is nothing special.
my $before = findings($c);
$c->restart;
ZkLock::wait_connected($c);
is(findings($c), $before, 'a restart finds nothing');
ZkLock::ask($c, "ALTER SYSTEM SET zklock.server_name = 'renamed'");
my $old_worker = ZkLock::ask($c, 'SELECT worker_pid FROM zk_session, pg_reload_conf()');
kill 'TERM', $old_worker or die;
ZkLock::wait_until(sub { ZkLock::ask($c, "SELECT worker_pid <> $old_worker AND state = 'connected' FROM zk_session") eq 't' }, 'the next worker is connected');
is(findings($c), $before, '... nor does the next worker of a server that was renamed');

#
# Restored while it runs, as by ZooKeeper's AdminServer: the connection goes on, and no
# watch tells of anything.  Only our node shows it, with fewer writes than there were.
#
my $holds = ZkLock::session($c);
$holds->query('BEGIN');
grown($holds->query("SELECT zk_lock('third')"), 'third', 'before');
my $node = ZkLock::ask($c, 'SELECT node FROM zk_servers WHERE ours');
my $writes = sub { return $zk->stat("/zklock/servers/$node")->{version}; };
my $first = $writes->();
ZkLock::wait_until(sub { $writes->() > $first + 1 }, 'it is written');
my $stopped = ZkLock::ask($c, 'SELECT worker_pid FROM zk_session');
kill 'STOP', $stopped or die;
$zk->delete("/zklock/servers/$node");
$zk->create("/zklock/servers/$node");
kill 'CONT', $stopped or die;
wait_found($c);
is($holds->fails('COMMIT'), '40001: lock "third" was lost', 'restored while it runs: C has lost its lock');
like(ZkLock::ask($c, 'SELECT last_error FROM zk_session'), qr/: The znode under .* has version 1, after version \d+$/, '... since its node is an old one');
ok_granted_later($c, 'third', 'restored while it runs, C')->quit;
$zk->delete("/zklock/servers/$node");

#
# By hand
#
my $s_a = ZkLock::session($a);
is($s_a->fails('SELECT zk_raise_tokens(1)'), '22023: fencing tokens are above 1 already', 'tokens are not lowered');
is($s_a->fails('SELECT zk_raise_tokens(-1)'), '22023: fencing tokens are above -1 already', '... whatever is asked for');
is($s_a->fails('SELECT zk_raise_tokens(9223372036854775807)'), '22023: fencing tokens cannot be raised above 9223372036854775807', 'nor out of range');
my $above = 10 * $largest{job};
is($s_a->query("SELECT zk_raise_tokens($above)"), base(), 'the new base');
$largest{$_} = $above for keys %largest;
wait_found($a, $b, $c);
ok_granted_later($_, 'job', 'by hand, ' . $_->name)->quit for $a, $b, $c;

# Somebody deletes it: whoever is there gives it back.
$base = base();
$zk->delete('/zklock/tokens');
ZkLock::wait_until(sub { (base() // '') eq $base }, 'the base is given back');
pass('the base is given back when it is deleted');
$s_a->query('BEGIN');
grown($s_a->query("SELECT zk_lock('job')"), 'job', 'base deleted');
$s_a->query('COMMIT');

# Rubbish instead: no lock without a token.
ZkLock::ask($b, "ALTER SYSTEM SET zklock.connect_timeout = '1s'; SELECT pg_reload_conf()");
$zk->set('/zklock/tokens', 'rubbish');
my $s_b = ZkLock::session($b);
ZkLock::wait_until(sub { ZkLock::ask($b, 'SELECT last_error FROM zk_session') =~ m{could not read the base of fencing tokens from znode "/zklock/tokens": it is not a number} },
	'B notices the rubbish');
ZkLock::wait_until(sub { $s_b->fails("SELECT zk_lock('job')") =~ /^58000/ }, 'nothing is granted');
pass('rubbish for a base: nothing is granted');
$zk->set('/zklock/tokens', $base);
ZkLock::ask($b, "ALTER SYSTEM RESET zklock.connect_timeout; SELECT pg_reload_conf()");
ZkLock::wait_connected($a, $b, $c);
ZkLock::wait_until(sub { $s_b->query('SHOW zklock.connect_timeout') eq '1h' }, 'it has all the time again');
grown($s_b->query("SELECT zk_lock('job')"), 'job', 'base mended');

#
# The worker and the server end in the wait
#
my $d = ZkLock::server('d', $zk, conf => "zklock.session_timeout = '1h'\nzklock.connect_timeout = '100ms'", start => 0);
$d->start;
wait_found($d);
sub state { return ZkLock::ask($d, 'SELECT state FROM zk_session'); }
# It is shown when that is in the file, and by a worker that has started.
sub ok_waits
{
	my ($what) = @_;
	my %seen;
	ZkLock::wait_until(sub { $seen{ state() }++; $seen{'went back'} }, "$what: the state", sub { join ', ', sort keys %seen });
	return ok(!$seen{connected}, $what);
}
ZkLock::wait_until(sub { eval { ZkLock::ask($d, 'CREATE EXTENSION zklock'); 1 } }, 'D answers');
ok_waits('a server that knows nothing of a base that was raised waits');
like(ZkLock::session($d)->fails("SELECT zk_lock('job')"), qr/^58000: could not reach ZooKeeper within/, '... with the usual error');
my $worker = ZkLock::ask($d, 'SELECT worker_pid FROM zk_session');
kill 'TERM', $worker or die;
ZkLock::wait_until(sub { ZkLock::ask($d, "SELECT worker_pid <> $worker AND state = 'went back' FROM zk_session") eq 't' }, 'the next worker waits on');
pass('the next worker waits on');
for my $mode ('fast', 'immediate')
{
	ZkLock::hang_up($d);
	$d->stop($mode);
	$d->start;
	ok_waits("so does the next server, after the end: $mode");
}
like(PostgreSQL::Test::Utils::slurp_file($d->data_dir . '/zklock.history'), qr/^wait 3600000$/m, '... which is in the file');
ZkLock::hang_up($d);
$d->stop;
$zk->stop;

#
# PostgreSQL crashes, then the ensemble is wiped: whoever crashed comes back first.  What it
# saw since it wrote its file for the last time is more than what the ensemble numbers now.
#
for my $how ('its postmaster', 'a backend')
{
	$zk = ZooKeeper->new->start;
	my $e = ZkLock::server($how =~ /backend/ ? 'k' : 'l', $zk, conf => conf() . "\nrestart_after_crash = on");
	ZkLock::wait_connected($e);
	go_on($zk);
	my $s = ZkLock::session($e);
	$largest{crash} = $s->query("SELECT zk_lock('crash', 'exclusive', 'session')");
	my ($pid, $worker) = split /\|/, $s->query('SELECT pg_backend_pid(), worker_pid FROM zk_session');
	$zk->kill9;
	ZkLock::hang_up($e);
	# the session that it leaves would tell, too: see 180
	unlink $e->data_dir . '/pg_stat_tmp/zklock.session' or die;
	if ($how =~ /backend/)
	{
		kill 'KILL', $pid or die;
		ZkLock::wait_until(sub { (eval { ZkLock::ask($e, 'SELECT worker_pid FROM zk_session') } // $worker) ne $worker }, 'the server has started again');
	}
	else
	{
		$e->stop('immediate');
		$e->start;
	}
	$zk->wipe->start;
	$zk->create('/passing');
	$zk->set('/passing', $_) for 1 .. 50;
	wait_found($e);
	my ($top) = PostgreSQL::Test::Utils::slurp_file($e->logfile) =~ /DETAIL:  Its newest transaction makes fencing token \d+, and token (\d+) may have been given before/;
	cmp_ok($top // 0, '>=', $largest{crash}, "wiped after a crash of $how: it remembers what it saw until then");
	ok_granted_later($e, 'crash', "... of $how")->quit;
	ZkLock::hang_up($e);
	ok(-e ZkLock::memory($e), '... by what is left in memory');
	$e->stop;
	ok(!-e ZkLock::memory($e), '... until its good end');
	$zk->stop;
}

# It trusts no memory that others may have written, and does without.
{
	$zk = ZooKeeper->new->start;
	my $e = ZkLock::server('m', $zk, start => 0);
	my $memory = ZkLock::memory($e);
	PostgreSQL::Test::Utils::append_to_file($memory, 'rubbish');
	chmod 0666, $memory or die;
	$e->start;
	ZkLock::ask($e, 'CREATE EXTENSION zklock');
	cmp_ok(ZkLock::session($e)->query("SELECT zk_lock('job')"), '>', 0, 'memory that everybody may write: there are locks');
	(my $name = $memory) =~ s{.*/}{/};
	is(scalar(() = PostgreSQL::Test::Utils::slurp_file($e->logfile) =~ /LOG:  could not open shared memory segment "$name": Permission denied/g), 1, '... and the log says that it is not used');
	is(PostgreSQL::Test::Utils::slurp_file($memory), 'rubbish', '... nor written');
	ZkLock::hang_up($e);
	$e->stop;
	$zk->stop;
}

#
# Three ZooKeepers, which hold an election as they come back: numbers are larger then
#
# It must be back before sessions are over, on a slow machine, too.
$timeout = 30;
my $three = ZooKeeper->new(servers => 3)->start;
$three->wait_elected;
($a, $b) = map { ZkLock::server($_, $three, conf => conf()) } 'e', 'f';
ZkLock::wait_connected($a);
ZkLock::ask($b, 'SELECT 1');
ZkLock::wait_connected($b);
$three->save;
# B's session is younger than that
my $old = ZkLock::ask($b, 'SELECT session_id FROM zk_session');
ZkLock::hang_up($b);
$b->restart;
ZkLock::wait_connected($b);
isnt(ZkLock::ask($b, 'SELECT session_id FROM zk_session'), $old, 'B has a new session');
# A's has written since
my $member = sub { my ($path) = grep { /^e-/ } $three->children('/zklock/servers'); return $three->stat("/zklock/servers/$path")->{version}; };
my $version = $member->();
# nobody needs A's session, which may rest
my $writer = ZkLock::session($a);
ZkLock::wait_until(sub { $writer->query("BEGIN; SELECT zk_lock('write'); SELECT zk_assert('write'); COMMIT"); $member->() > $version + 1 }, 'A writes');
$writer->quit;
%holder = map { $_->name => ZkLock::session($_) } $a, $b;
%largest = ();
$_->query('BEGIN') for values %holder;
grown($holder{'e'}->query("SELECT zk_lock('job')"), 'job', 'three, before');
grown($holder{'f'}->query("SELECT zk_lock('other')"), 'other', 'three, before');
$three->{admin} = undef;
$three->kill9->go_back->start_nowait;
wait_found($a, $b);
$three->wait_elected;
is($holder{$_->name}->fails('COMMIT') =~ /^40001/, 1, 'three: ' . $_->name . ' has lost its lock') for $a, $b;
like(ZkLock::ask($a, 'SELECT last_error FROM zk_session'), qr{: The znode under "/zklock/servers" that this server's ZooKeeper session had made (?:is missing|has version \d+, after version \d+)$},
	'... A since its session is in the backup, and has written since');
like(ZkLock::ask($b, 'SELECT last_error FROM zk_session'), qr/: It does not know ZooKeeper session 0x[0-9a-f]+ any more, which was to live for another \d+ ms$/,
	'... and B since its session is not');
ok_granted_later($a, 'other', 'three, A')->quit;
ok_granted_later($b, 'job', 'three, B')->quit;

#
# Another ensemble altogether
#
my $other = ZooKeeper->new->start;
$timeout = 8;
$a->append_conf('postgresql.conf', conf());
ZkLock::hang_up($a);
$a->restart;
ZkLock::wait_connected($a);
ZkLock::ask($a, "ALTER SYSTEM SET zklock.hosts = '" . $other->hosts . "'");
ZkLock::ask($a, 'SELECT pg_reload_conf()');
wait_found($a);
ok_granted_later($a, 'job', 'another ensemble')->quit;
cmp_ok($other->get('/zklock/tokens'), '>', 0, '... by a base of tokens there');

done_testing();
