# Elections that nobody asks for any more: they are seen, and left if that is wanted, or
# when the extension has gone from where they were asked for.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => "zklock.elections = 'listed'") } qw(a b);
ZkLock::wait_connected($a, $b);

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }
sub elections { return ZkLock::ask($_[0], "SELECT string_agg(election, ' ' ORDER BY election) FROM zk_elections"); }
sub wait_elections
{
	my ($node, $wanted, $what) = @_;
	my $seen;
	ok(eval { ZkLock::wait_until(sub { ($seen = elections($node)) eq $wanted }, $what, sub { $seen }) }, $what) or diag $@;
}

#
# When it was asked for last
#
sub last_asked { my $election = shift; return ZkLock::ask($a, "SELECT last_asked FROM zk_elections WHERE election = '$election'"); }
wait_elections($a, 'listed', 'a candidate from its start');
is(last_asked('listed'), '', 'nobody has asked yet');
is(ZkLock::ask($a, "SELECT (SELECT token FROM zk_elections WHERE election = 'listed') IS NULL, (SELECT server FROM zk_candidates('listed') WHERE is_leader) IS NULL, count(*) FROM zk_elections") =~ s/^[tf]\|[tf]\|//r, 1, 'who asks for a token');
is(last_asked('listed'), '', '... does not ask to lead');
for my $sql ("SELECT zk_is_leader('asked', '1 h')", "BEGIN; SELECT zk_require_leader('asked'); COMMIT", "CALL zk_run_as_leader('asked', 'SELECT 1')",
	"SELECT count(*) FROM generate_series(1, 1000) WHERE zk_is_leader('asked')")
{
	my $before = ZkLock::ask($a, 'SELECT clock_timestamp()');
	# to a second: until the worker has looked it is the call before
	ZkLock::wait_until(sub { ZkLock::ask($a, $sql); ZkLock::ask($a, "SELECT last_asked BETWEEN '$before' AND clock_timestamp() FROM zk_elections WHERE election = 'asked'") eq 't' }, "$sql: asked");
	pass("asked: $sql");
}
# one statement, for as long as it runs
my $asker = ZkLock::session($a);
$asker->send("DO \$\$BEGIN LOOP PERFORM zk_is_leader('asked'); END LOOP; END\$\$");
for (1 .. 3)
{
	my $before = last_asked('asked');
	ZkLock::wait_until(sub { last_asked('asked') ne $before }, 'asked again');
}
pass('... by one statement again and again');
$asker->cancel->failure;
$asker->query('ROLLBACK');

#
# Left, if nobody asks
#
is(ZkLock::ask($b, "SELECT zk_is_leader(e, '1 h') FROM unnest('{asked,guarded,idle}'::text[]) e"), "f\nt\nt", 'leader and candidate elsewhere');
is(ZkLock::ask($a, "SELECT zk_is_leader(e, '1 h') FROM unnest('{guarded,idle}'::text[]) e"), "f\nf", 'and here');
ZkLock::ask($b, "SELECT zk_resign('guarded')");
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT zk_is_leader('guarded')") eq 't' }, 'it leads');
my $guard = ZkLock::session($a);
$guard->query("BEGIN; SELECT zk_require_leader('guarded')");
ZkLock::ask($a, "ALTER SYSTEM SET zklock.election_idle_time = '1s'; SELECT pg_reload_conf()");
wait_elections($a, 'guarded listed', 'what nobody asks for is left; not what a transaction requires, nor what is in zklock.elections');
# a moment later, when the delete has been done
my $candidates;
ZkLock::wait_until(
	sub { ($candidates = ZkLock::ask($b, "SELECT ARRAY(SELECT server FROM zk_candidates(e)) FROM unnest('{asked,guarded,idle}'::text[]) e")) eq "{b}\n{a}\n{b}" },
	'candidates in ZooKeeper', sub { $candidates });
pass('... in ZooKeeper, too');
like(log_of($a), qr/LOG:  resigned from election "$_": nobody has asked for it for 1 s/, "... the log says so of $_") for 'asked', 'idle';
like(log_of($a), qr/this server is no longer leader of election "asked", token \d+: nobody asks for it any more/, '... and why it leads no more');
$guard->query('COMMIT');
wait_elections($a, 'listed', '... and then that, too');
ZkLock::ask($a, 'ALTER SYSTEM RESET zklock.election_idle_time; SELECT pg_reload_conf()');
ZkLock::wait_until(sub { ZkLock::ask($a, 'SHOW zklock.election_idle_time') eq '0' }, 'reloaded');
is(ZkLock::ask($a, "SELECT zk_is_leader('idle', '1 h')"), 'f', 'who asks again is a candidate again');
is(elections($b), 'asked idle listed', 'nothing is left where that is not wanted');
ZkLock::ask($a, "SELECT zk_resign('idle')");

#
# DROP EXTENSION
#
ZkLock::ask($a, "CREATE DATABASE d$_") for 1 .. 5;
my @d = map { my $s = ZkLock::session($a, dbname => "d$_"); $s->query('CREATE EXTENSION zklock'); $s } 1 .. 5;
sub enter { my ($election, @in) = @_; $d[ $_ - 1 ]->query("SELECT zk_is_leader('$election', '1 h')") for @in; }
enter('one', 1);
enter('both', 1, 2);
enter('two', 2);
enter('listed', 1);
enter('many', 1 .. 5);
my $all = 'both listed many one two';
is(elections($a), $all, 'elections from several databases');
$d[0]->query('BEGIN; DROP EXTENSION zklock');
is(elections($a), $all, 'DROP EXTENSION leaves nothing before its commit');
$d[0]->query('ROLLBACK');
$d[0]->query('BEGIN; SAVEPOINT s; DROP EXTENSION zklock; ROLLBACK TO s; CREATE TABLE t (); COMMIT');
$d[0]->query('BEGIN; CREATE EXTENSION pg_trgm; DROP EXTENSION pg_trgm; COMMIT') if $d[0]->query("SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_trgm'");
is(elections($a), $all, '... nor if it is rolled back');
$d[0]->query('BEGIN; SAVEPOINT s; DROP EXTENSION zklock; RELEASE s; COMMIT');
wait_elections($a, 'both listed many two', 'what only that database has asked for is left, but for zklock.elections');
ZkLock::wait_until(sub { log_of($a) =~ /this server is no longer leader of election "one", token \d+: the extension was dropped where it was asked for/ }, 'the log says why');
pass('... the log says why');
$d[1]->quit;
ZkLock::ask($a, 'DROP DATABASE d2');
wait_elections($a, 'listed many', '... likewise with a database that is dropped');
$d[2]->query('CREATE SCHEMA x; ALTER EXTENSION zklock SET SCHEMA x; DROP SCHEMA x CASCADE');
enter('three', 4);
is(elections($a), 'listed many three', 'where more databases asked than are told apart, it stays');
$d[3]->query('DROP EXTENSION zklock');
wait_elections($a, 'listed many', 'the next one');
kill 'TERM', my $worker = ZkLock::ask($a, 'SELECT worker_pid FROM zk_session');
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT worker_pid <> $worker AND state = 'connected' FROM zk_session") eq 't' }, 'the next worker');
ZkLock::ask($a, "ALTER SYSTEM SET zklock.election_idle_time = '1s'; SELECT pg_reload_conf()");
wait_elections($a, 'listed', '... and the next worker knows who has not been asked for');

done_testing();
