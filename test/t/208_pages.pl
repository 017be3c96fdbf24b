# The examples of the pages of capabilities, as they stand there, each as the role that its page
# names.  doc/recipes.md and doc/tutorial.md have tests of their own, and so have the examples of
# jobs.md that go by the calendar (158_jobs_every).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use IPC::Run;
use Pages qw(blocks_of transcripts_of);
use Queues qw(length_is);
use Test::More;
use Transcript;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my ($a, $b, $c) = my @servers = map { ZkLock::server($_, $zk, conf => "deadlock_timeout = '100ms'") } 'A', 'B', 'C';
ZkLock::wait_connected(@servers);
for my $node (@servers)
{
	ZkLock::ask($node, "CREATE ROLE $_ LOGIN; GRANT CREATE ON SCHEMA public TO $_") for qw(batch monitor operator);
	ZkLock::ask($node, "CALL zk_grant('batch'); CALL zk_grant('monitor', 'look'); CALL zk_grant('operator', 'admin')");
}

my ($page, $blocks, $shown);
sub page { ($page) = @_; ($blocks, $shown) = (blocks_of("doc/$page"), transcripts_of("doc/$page")); return; }
# The next block of a section
sub block { my ($heading) = @_; return shift @{ $blocks->{$heading} // [] } // die "doc/$page has no further block in \"$heading\""; }
sub shown { my ($heading) = @_; return shift @{ $shown->{$heading} // [] } // die "doc/$page shows nothing further in \"$heading\""; }
sub all_were_run { is_deeply([ grep { @{ $blocks->{$_} } } sort keys %$blocks ], [], "all of doc/$page has been run"); return; }

# Run it in a psql of its own, as a user would; it says what it says.
sub run
{
	my ($node, $user, $sql) = @_;
	my $said = '';
	IPC::Run::run([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') . " user=$user" ], '<', \$sql, '>&', \$said);
	is($? >> 8, 0, "doc/$page, as $user: " . $sql =~ s/\n.*//sr) or diag $said;
	chomp $said;
	return $said;
}

# ... a line of a crontab
sub tick
{
	my ($node, $user, $line) = @_;
	my ($command) = $line =~ /^(?:\S+ ){5} *(.*)$/ or die "no line of a crontab: $line";
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => $user);
	my $said = '';
	IPC::Run::run([ 'sh', '-c', $command ], '<', \undef, '>&', \$said);
	is($? >> 8, 0, "doc/$page, as $user: $line") or diag $said;
	return $said;
}

sub call_of { my ($block) = @_; return $block =~ /\$\$(CALL .*?)\$\$/s ? "$1;" : die "nothing is called in $block"; }
# psql may be gone before its backend is.
sub nobody_has { my ($what) = @_; return ok(ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT count(*) FROM zk_locks') == 0 }, 'nobody has any'), "$what: all is given back"); }

#
# Locks
#
page('locks.md');
run($a, 'batch', 'CREATE TABLE big (id int)');
my $run = Transcript->new(
	name => 'locks.md',
	user => 'batch',
	sessions => { A => $a, B => $b },
	waits => sub { ZkLock::wait_waiting($b, 2, 1); });
$run->block(shown('Example'));
$run->send('B', 'COMMIT;');
$run->answer('B');
is(run($a, 'batch', block('Work that commits in between')), 't', '... has the lock, and gives it back');
like(run($a, 'batch', block('Several locks in one step')), qr/^\{\d+,\d+,\d+\}$/, '... has three');
is(run($a, 'batch', block('Several locks in one step')), 't', '... has two');

# A waits for B, which waits for A.
my $other = ZkLock::session($b, user => 'batch');
$run->send('A', "BEGIN; SELECT zk_lock('x');");
$run->answer('A');
$other->query("BEGIN; SELECT zk_lock('y')");
$other->send("SELECT zk_lock('x')")->wait_level(2);
ZkLock::wait_until(sub { $zk->children('/zklock/waits') }, 'the wait is published');
$run->block(shown('Deadlocks'));
$run->send('A', 'ROLLBACK;');
$run->answer('A');
$other->result;
$other->query('COMMIT');

# Tokens: those of the page are others.
ZkLock::ask($a, 'CREATE DATABASE warehouse');
my $warehouse = ZkLock::session($a, dbname => 'warehouse');
$warehouse->query("CREATE EXTENSION zklock; CALL zk_grant('batch'); CREATE TABLE report (n int); CREATE TABLE new_report AS SELECT 1 AS n; GRANT ALL ON report, new_report TO batch");
my $token;
my $fencing = Transcript->new(
	name => 'locks.md, fencing',
	user => 'batch',
	sessions => { A => $a, warehouse => $a },
	dbname => { warehouse => 'warehouse' },
	rewrite => sub {
		my ($sql) = @_;
		return $sql unless $sql =~ /451\d\d/;
		$token //= ZkLock::ask($a, "SELECT token FROM zk_locks WHERE name = 'nightly-report'");
		my $older = $token - 1;
		return $sql =~ s/45130/$token/gr =~ s/45127/$older/gr;
	});
$fencing->block(shown('Fencing'));
$fencing->block(shown('Fencing'));
is($warehouse->query('SELECT n FROM report'), 1, 'who has the token writes');

my $found = run($a, 'monitor', block('In pg_locks') =~ s/474490765::bigint << 32 \| 4126854590/hashtextextended('nightly-report', 0)/r);
is($found, 'lock|nightly-report', 'a lock is found by its numbers');
ZkLock::ask($a, 'CREATE EXTENSION postgres_fdw; CREATE SERVER b FOREIGN DATA WRAPPER postgres_fdw; GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO batch; ALTER SERVER b OWNER TO batch');
run($a, 'batch', block('Deadlocks that are not found'));
run($a, 'batch', 'CREATE TABLE parts AS SELECT i AS id, i % 7 AS priority FROM generate_series(1, 20) AS i');
is(run($a, 'batch', 'BEGIN; ' . block('In a query with LIMIT') . 'SELECT count(*) FROM zk_locks;') =~ s/.*\n//r, 20, '... locks all');
$run->quit;
$fencing->quit;
$other->quit;
nobody_has('locks');
all_were_run();

#
# Semaphores
#
page('semaphores.md');
run($a, 'batch', 'CREATE PROCEDURE export_one() LANGUAGE sql AS $$SELECT 1$$');
like(run($a, 'batch', block('Example')), qr/^\d+$/, '... has a permit');
is(run($a, 'batch', block('Example')), "t\nt", '... has one for the session, and gives it back');
nobody_has('permits');
all_were_run();

#
# Barriers
#
page('barriers.md');
my @meeting = map { ZkLock::session($_, user => 'batch') } @servers;
$_->query('CREATE PROCEDURE step_one() LANGUAGE sql AS $$SELECT 1$$; CREATE PROCEDURE step_two() LANGUAGE sql AS $$SELECT 1$$') for @meeting;
my $meet = block('Example');
my @steps = grep { /\S/ } split /;(?:[ \t]*--.*)?\n/, $meet;
is(scalar @steps, 4, 'two steps and two barriers');
for my $step (@steps)
{
	my $last = pop @meeting;
	$_->send($step) for @meeting;
	if ($step =~ /zk_barrier/ && $shown->{Example}[0])
	{
		ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT count(*) FROM zk_barriers') == 2 }, 'two wait');
		my $looks = Transcript->new(name => 'barriers.md', user => 'monitor', sessions => { A => $a });
		$looks->block(shown('Example') =~ s/\bC\b/B/gr);
		$looks->quit;
	}
	push @meeting, $last->send($step);
	is(join('', map { $_->failure } @meeting), '', "all three: $step");
}
$_->quit for @meeting;
all_were_run();

#
# Work queues
#
page('queues.md');
run($a, 'batch', "CREATE TABLE files AS SELECT 'file ' || i AS file FROM generate_series(1, 3) i; CREATE TABLE result (payload text)");
like(run($a, 'batch', block('Example')), qr/^(?:[0-9a-f-]{36}\n?){3}$/, '... puts three, and is told their ids');
length_is($b, 'import', '3 0 0', 'they are there');
run($a, 'batch', block('Example'));
my $take = block('Example');
run($a, 'batch', $take) for 1 .. 3;
is(ZkLock::ask($a, 'SELECT count(*), count(DISTINCT payload) FROM result'), '3|3', 'each is done once');
length_is($b, 'import', '0 0 0', 'none is left');
my $empty = block('To empty the table of ids');
run($a, 'batch', $empty);
is(ZkLock::ask($a, 'SELECT count(*) FROM done'), 3, 'ids that may be needed stay');
ZkLock::ask($a, "UPDATE done SET at = now() - interval '31 days'");
run($a, 'batch', $empty);
is(ZkLock::ask($a, 'SELECT count(*) FROM done'), 0, '... and go when they are old');
all_were_run();

#
# Jobs
#
page('jobs.md');
run($_, 'batch', "CREATE TABLE reports (server text); CREATE PROCEDURE nightly_report() LANGUAGE sql AS \$\$INSERT INTO reports VALUES (current_setting('cluster_name'))\$\$;"
	  . 'CREATE PROCEDURE load() LANGUAGE sql AS $$SELECT 1$$; CREATE PROCEDURE report() LANGUAGE sql AS $$SELECT 1$$; CREATE TABLE orders (day date); CREATE INDEX orders_day ON orders (day)')
  for $a, $b;
sub reports { return join '', map { ZkLock::ask($_, 'SELECT count(*) FROM reports') } $a, $b; }
my $nightly = call_of(block('Example'));
run($_, 'batch', $nightly) for $a, $b;
is(reports(), '10', 'the server that comes first runs it');
my ($cron) = grep { /^\d/ } split /\n/, block('Example');
ZkLock::ask($a, "SELECT zk_job_forget('nightly')");
tick($_, 'batch', $cron) for $b, $a;
is(reports(), '11', '... also from a crontab');
is(run($a, 'operator', block('When the clock was wrong')), 't', '... it is due again');
is(run($a, 'operator', block('Pauses')), "t\nt", '... is paused, and no more');
run($a, 'batch', block('One job after another'));
is(ZkLock::ask($b, "SELECT string_agg(job || ' ' || state, ', ' ORDER BY job) FROM zk_jobs WHERE job IN ('load', 'report')"), 'load done, report done', 'one job after another');
is(run($a, 'batch', block('What commits by itself')), 't', '... is done');
all_were_run();

#
# Elections
#
page('elections.md');
my $leads = sub { ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT zk_is_leader('nightly')") eq 't' }, 'A leads'); };
$leads->();
run($a, 'batch', call_of(block('Example')));
is(reports(), '21', 'the leader runs it');
run($a, 'batch', 'CREATE TABLE job_runs (at timestamptz)');
my @crontab = grep { /^[\d*]/ } split /\n/, block('Example');
is(tick($a, 'batch', $_), '', '... says nothing') for @crontab;
is(reports() . ZkLock::ask($a, 'SELECT count(*) FROM job_runs'), '311', '... also from a crontab');
is(run($b, 'monitor', block('Example')), 'A', '... and is seen');
like(run($a, 'monitor', block('Elections that nobody wants')), qr/^nightly\|[\d:.]+$/, '... and when it was asked for');
run($b, ZkLock::ask($b, 'SELECT current_user'), block('Who should lead'));
is(ZkLock::ask($b, "SELECT setting FROM pg_file_settings WHERE name = 'zklock.leader_priority'"), 200, 'B should lead');
all_were_run();

done_testing();
