# zklock-run: the command runs while its session has the lock, gets what it needs, and its
# status is that of zklock-run; the other statuses are those of doc/run.md.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use PostgreSQL::Test::Utils;
use Run;
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk) } qw(a b);
ZkLock::wait_connected($a, $b);
my $dir = PostgreSQL::Test::Utils::tempdir();

sub run { return Run->start(@_); }

# What runs until it may end: by a file.
sub holding { my ($file) = @_; return ('sh', '-c', 'echo started; while ! [ -e "$0" ]; do sleep 0.02; done', $file); }
sub release { my ($file) = @_; append_to_file($file, ''); }

#
# The command
#
my $r = run($a, { in => "one\ntwo\n" }, qw(job -- sh -c), 'cat; printf "<%s>" "$@"; echo said >&2; exit 7', 'sh', 'a b', '', '--timeout', '*');
is($r->status, 7, 'the status is that of the command');
is($r->out, "one\ntwo\n<a b><><--timeout><*>", '... which has its input, and its arguments as they are');
is($r->err, "said\n", '... and nobody else says anything');
is(run($a, qw(job true))->status, 0, 'without --');
is(run($a, qw(job -- sh -c), 'kill -TERM $$')->status, 143, 'a command that a signal has ended');
$r = run($a, qw(job -- sh -c), 'echo "$ZKLOCK_NAME $ZKLOCK_TOKEN"; psql -XAtqc "SELECT application_name FROM zk_locks WHERE name = \'job\'"');
is($r->status, 0, 'the command can use psql');
like($r->out, qr/^job [1-9][0-9]*\nzklock-run sh\n$/, '... and has name and token; zk_locks shows who it is');
my ($token) = $r->out =~ / ([0-9]+)/;
is(ZkLock::session($a)->query("SELECT zk_fence('x', $token)"), '', 'the token is a fencing token');
$r = run($a, "it's \"\x{c3}\x{a4}\" 100%", qw(-- sh -c), 'echo "$ZKLOCK_NAME"');
is($r->status . $r->out, "0it's \"\x{c3}\x{a4}\" 100%\n", 'a name of all kinds');
is(run($a, qw(job -- nowhere))->status, 127, 'a command that is not there');
append_to_file("$dir/text", 'text');
$r = run($a, 'job', '--', "$dir/text");
is($r->status, 126, 'a command that cannot be executed');
like($r->err, qr{^zklock-run: could not run "\Q$dir\E/text": Permission denied$}, '... and why');
# What our caller has closed: our messages do not go to the server
for my $closed ('2>&-', '0<&- 1>&- 2>&-')
{
	my %env = (PGHOST => $a->host, PGPORT => $a->port, PGDATABASE => 'postgres');
	local @ENV{ keys %env } = values %env;
	is(system(qw(bash -c), "zklock-run job -- nowhere $closed") >> 8, 127, "the same with $closed");
	isnt(system(qw(bash -c), "zklock-run job -- sh -c ': >&2' $closed") >> 8, 0, '... and the command finds it closed');
}
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

# A name is in the encoding of the locale, and so the same lock in databases of all encodings.
ZkLock::ask($a, q(CREATE DATABASE latin1 ENCODING latin1 LOCALE 'C' TEMPLATE template0));
ZkLock::session($a, dbname => 'latin1')->query('CREATE EXTENSION zklock');
$r = run($a, { env => { LC_ALL => 'C.UTF-8' } }, qw(-d latin1), "\x{c3}\x{a4}", qw(-- psql -XAtqc), 'SELECT name FROM zk_locks');
is($r->status . $r->out, "0\x{c3}\x{a4}\n", 'a name beyond ASCII, in a database of another encoding');

#
# Exclusion
#
my $first = run($a, 'job', '--', holding("$dir/first"))->wait_out(qr/started/);
is(ZkLock::session($b)->query("SELECT zk_try_lock('job')"), 'f', 'others do not get the lock meanwhile');
for my $node ($a, $b)
{
	my $name = $node->name;
	$r = run($node, qw(--timeout 0 job -- echo run));
	is($r->status, 124, "$name: no wait");
	is($r->out . $r->err, '', '... and the command was not run');
	is(run($node, 'job', '--timeout=100ms', '-E', '9', '--', 'true')->status, 9, '... another status by --not-run-status');
}
$r = run($b, qw(-v -t 0 job -- true));
is($r->status, 124, '--verbose');
is($r->err, qq(zklock-run: not run: others have "job"\n), '... says why');
my $second = run($b, qw(job -- echo second))->wait_waiting;
is($second->out, '', 'another server waits');
release("$dir/first");
is($first->status, 0, 'the first has ended');
is($second->status, 0, '... and the second');
is($second->out, "second\n", '... has run');
ZkLock::ok_clean($zk, [ $a, $b ], 'job');

# What a role's settings say of timeouts ends neither the wait nor the command.
ZkLock::ask($a, 'CREATE ROLE hurried SUPERUSER LOGIN');
my $limit = 10; # ms
ZkLock::ask($a, "ALTER ROLE hurried SET $_ = " . 10 * $limit++)
  for qw(lock_timeout statement_timeout idle_session_timeout idle_in_transaction_session_timeout), $a->pg_version >= 17 ? 'transaction_timeout' : ();
# They may come before zklock-run has lifted them, on a slow machine.
sub hurried
{
	my ($reached, @args) = @_;
	my $r;
	for (1 .. 20)
	{
		$r = run($a, qw(-d user=hurried), @args);
		ZkLock::wait_until(sub { $r->ended || $reached->() }, 'it has come so far, or has ended', sub { $r->err });
		last unless $r->ended && $r->status == 123;
	}
	return $r;
}
my $holder = ZkLock::session($b);
$holder->query("SELECT zk_lock('job', scope => 'session')");
$r = hurried(sub { ZkLock::ask($a, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'zklock-run%' AND wait_event_type = 'Extension'") == 1 }, qw(job -- echo run));
$holder->query("SELECT pg_sleep(0.2), zk_unlock('job')");
is($r->status, 0, 'short timeouts of the role');
is($r->out, "run\n", '... do not matter');

#
# Shared, permits
#
$first = run($a, qw(--shared job --), holding("$dir/shared"))->wait_out(qr/started/);
is(run($b, qw(--timeout 0 -s job -- true))->status, 0, '--shared: others may read');
is(run($b, qw(--timeout 0 job -- true))->status, 124, '... and not write');
release("$dir/shared");
is($first->status, 0, '... and it ends');

my @permits = map { run($_, qw(--permits=2 sem --), holding("$dir/permits"))->wait_out(qr/started/) } $a, $b;
is(run($a, qw(--permits 2 --timeout 0 sem -- true))->status, 124, '--permits: no more than there are');
$r = run($a, qw(--permits 2 sem -- sh -c), 'echo "$ZKLOCK_TOKEN"')->wait_waiting;
release("$dir/permits");
is($_->status, 0, '... they end') for @permits, $r;
like($r->out, qr/^[1-9][0-9]*$/, '... and the third has a token, too');

#
# --leader
#
my @leader = (qw(--timeout 1h --leader lead --), holding("$dir/leader"));
$first = run($a, @leader)->wait_out(qr/started/);
$r = run($b, qw(-v --leader lead -- echo run));
is($r->status, 0, '--leader: the command of another server is not run');
is($r->out, '', '... really not');
is($r->err, qq(zklock-run: not run: server "a" leads election "lead"\n), '... because the first leads');
is(hurried(sub { 0 }, qw(--leader lead -- sleep 0.2))->status, 0, '... whose transaction no short timeout of the role ends');
is(run($b, qw(-E 5 lead --leader -- true))->status, 5, '... with another status');
ZkLock::ask($a, "SELECT zk_resign('lead')");
is(ZkLock::ask($b, "SELECT server FROM zk_candidates('lead') WHERE is_leader"), 'a', 'it leads until the command has ended');
release("$dir/leader");
is($first->status, 0, '... which it does');
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT zk_is_leader('lead')") eq 't' }, 'the other one leads');
is(run($b, qw(--leader lead -- sh -c), 'exit 3')->status, 3, '... and runs its command');

#
# --job
#
my @job = (qw(--job --every), '36500 days', 'nightly', '--', 'sh', '-c');
$first = run($a, '--attempts=2', @job, 'exit 4');
is($first->status, 4, '--job: a run that fails');
is(ZkLock::ask($b, "SELECT state, server, failures FROM zk_jobs WHERE job = 'nightly'"), 'failed|a|1', '... is recorded');
$first = run($a, '--attempts=2', @job, 'while ! [ -e "$0" ]; do sleep 0.02; done; echo "done $ZKLOCK_TOKEN"', "$dir/job");
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT state FROM zk_jobs") eq 'running' }, 'it runs again');
$r = run($b, qw(-v -t 0), @job, 'echo run');
is($r->status, 0, 'another server does not wait');
is($r->err, qq(NOTICE:  job "nightly" is being run by server "a", skipping\nzklock-run: not run: job "nightly" is not to be run here now\n), '... and does not say that no slot is due');
is(run($b, '--timeout=50ms', @job, 'echo run')->status, 124, '... or for a while');
$second = run($b, @job, 'echo run')->wait_waiting;
release("$dir/job");
is($first->status, 0, 'the second attempt is done');
is($first->out, "done \n", '... and has no token');
is($second->status, 0, 'the other server does not run it');
is($second->out . $second->err, '', '... and says nothing');
is(ZkLock::ask($b, 'SELECT state, server, failures, attempt FROM zk_jobs'), 'done|a|1|2', '... it is done');
$r = run($b, '-v', @job, 'echo run');
is($r->status, 0, '--verbose');
like($r->err, qr/^NOTICE:  .*\nzklock-run: not run: job "nightly" is not to be run here now\n\z/s, '... says who has done it');
is(run($b, '--origin=1950-01-01 UTC', qw(--job --every), '36500 days', qw(old -- true))->status, 0, '--origin');
is(ZkLock::ask($a, "SELECT state, server, slot AT TIME ZONE 'UTC' FROM zk_jobs WHERE job = 'old'"), 'done|b|1950-01-01 00:00:00', '... says when a slot begins');

# Months have no length: the server's hint names the option, which the page's crontab uses
my $crontab = slurp_file("$FindBin::Bin/../../doc/run.md");
my ($bill) = $crontab =~ /^0 4 1 \* \*  (zklock-run .*?)  +#/m or die 'the page has no monthly job';
$bill =~ s/\\%/%/g;
$bill =~ s{/usr/local/bin/bill}{echo bill};
$r = run($a, qw(--job --every), '1 month', qw(bill -- echo bill));
is($r->status, 123, 'each month');
is($r->err, "zklock-run: every must not have months or years\nHINT:  Use slot, such as slot => date_trunc('month', now(), 'UTC').\n", '... the hint');
for my $node ($a, $b)
{
	my %env = (PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres');
	local @ENV{ keys %env } = values %env;
	is(`$bill`, $node == $a ? "bill\n" : '', '... --slot: ' . $node->name);
}
is(ZkLock::ask($a, "SELECT state, server, slot = date_trunc('month', now(), 'UTC') FROM zk_jobs WHERE job = 'bill'"), 'done|a|t', '... is that slot');

#
# The command may wait for all old snapshots on the same server: the session holds none.
#
ZkLock::ask($a, 'CREATE TABLE t (i int PRIMARY KEY)');
ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT zk_resign('snapshot')"); ZkLock::ask($a, "SELECT zk_is_leader('snapshot')") eq 't' }, 'this server leads');
for ([], ['--permits=2'], ['--leader'], [ '--job', '--every=1 day' ])
{
	$r = run($a, @$_, qw(snapshot -- psql -Xqc), 'REINDEX TABLE CONCURRENTLY t');
	is($r->status . $r->err, 0, "REINDEX CONCURRENTLY: @$_");
}

#
# Refusals
#
for (
	[ [], 'no name given' ],
	[ ['job'], 'no command given' ],
	[ [qw(job --)], 'no command given' ],
	[ [qw(--shared --leader job -- true)], '--shared is for locks' ],
	[ [qw(--job --leader job -- true)], '--permits, --leader and --job exclude each other' ],
	[ [qw(--job job -- true)], '--job needs either --every or --slot' ],
	[ [qw(--job --every 1 --slot today job -- true)], '--job needs either --every or --slot' ],
	[ [qw(--job --origin today --slot today job -- true)], '--origin is for --every' ],
	[ [qw(--slot today job -- true)], '--every, --slot, --origin and --attempts need --job' ],
	[ [qw(--every 1 job -- true)], '--every, --slot, --origin and --attempts need --job' ],
	[ [qw(--kill-after x job -- true)], 'invalid value "x" for --kill-after: a number from 0 to 86400 is wanted' ],
	[ [qw(-E 256 job -- true)], 'invalid value "256" for --not-run-status: a whole number from 0 to 255 is wanted' ],
	[ [qw(-E 1.5 job -- true)], 'invalid value "1.5" for --not-run-status: a whole number from 0 to 255 is wanted' ])
{
	my ($args, $why) = @$_;
	$r = run($a, @$args);
	is($r->status, 125, "usage: @$args");
	is($r->err, qq(zklock-run: $why\nTry "zklock-run --help" for more information.\n), '... and why');
}
$r = run($a, qw(--nonsense job -- true));
is($r->status, 125, 'an option that there is not');
$r = run($a, '-d', "host=$dir", qw(job -- echo run));
is($r->status, 123, 'no server');
like($r->err, qr/^zklock-run: connection to server .* failed: No such file or directory$/, '... and why');
$r = run($a, qw(--timeout nonsense job -- echo run));
is($r->status, 123, 'what the server does not accept');
is($r->err, qq(zklock-run: invalid input syntax for type interval: "nonsense"\n), '... and why');
ZkLock::ask($a, 'CREATE ROLE nobody LOGIN');
$r = run($a, qw(-d user=nobody job -- echo run));
is($r->status, 123, 'a role that may not');
is($r->err . $r->out, "zklock-run: permission denied for procedure zk_lock_session\n", '... and why');
ZkLock::ask($a, q(CALL zk_grant('nobody')));
for ([], ['--permits=2'], ['--leader'], [ '--job', '--every=1 day' ])
{
	ZkLock::wait_until(sub { ZkLock::ask($b, "SELECT zk_resign('any')"); ZkLock::ask($a, "SELECT zk_is_leader('any')") eq 't' }, 'this server leads')
	  if "@$_" eq '--leader';
	$r = run($a, qw(-d user=nobody), @$_, qw(any -- echo run));
	is($r->status . $r->err . $r->out, "0run\n", "zk_grant is enough: @$_");
}

#
# The texts
#
my $top = "$FindBin::Bin/../..";
my $help = run($a, '--help');
is($help->status, 0, '--help');
$r = run($a, '--version');
like($r->status . $r->out, qr/^0zklock-run \(zklock\) [0-9.]+$/, '--version');
my ($man, $page) = map { slurp_file("$top/$_") } 'src/run/zklock-run.1', 'doc/run.md';
for my $option ($help->out =~ /--([a-z-]+)/g)
{
	next if $option eq 'help' || $option eq 'version';
	like($man, qr/Fl -$option\b/, "the manual page has --$option");
	like($page, qr/`--$option\b/, "... and doc/run.md");
}
for my $status (122 .. 127)
{
	like($help->out, qr/\b$status\b/, "status $status is in --help");
	like($man, qr/^\.It $status$/m, '... in the manual page');
	like($page, qr/^\| $status \|/m, '... and in doc/run.md');
}
ok(-e `pg_config --mandir` =~ s/\n//r . '/man1/zklock-run.1', 'make install installs the manual page');

done_testing();
