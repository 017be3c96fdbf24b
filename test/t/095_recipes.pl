# The recipes of doc/recipes.md, as they stand there, on two servers; and what README.md and
# doc/operations.md tell to be typed.
use strict;
use warnings;

use File::Temp ();
use FindBin;
use IPC::Run;
use Pages qw(blocks_of);
use PostgreSQL::Test::Utils qw(slurp_file append_to_file);
use Test::More;
use ZkLock;

my $recipes = blocks_of('doc/recipes.md');

sub recipe
{
	my ($heading) = @_;
	return shift @{ $recipes->{$heading} // [] } // die "doc/recipes.md has no further block in \"$heading\"";
}

# The statements of a block that may be sent one by one.
sub statements { return grep { /\S/ } split /;\n/, $_[0]; }

#
# Servers; the database of server a has what both work on
#
my $zk = ZooKeeper->new->start;
# Noon: no night is over before the test is.
my $noon = sprintf "timezone = 'Etc/GMT%+d'", (gmtime)[2] - 12;
my ($a, $b) = map { ZkLock::server($_, $zk, conf => $noon) } 'a', 'b';
ZkLock::wait_connected($a, $b);
my ($sa, $sb) = map { ZkLock::session($_) } $a, $b;
my $dir = File::Temp::tempdir('recipes-XXXXXX', TMPDIR => 1, CLEANUP => 1);

# The environment of a shell in which psql finds a server
sub env { my ($node) = @_; return (PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGAPPNAME => 'recipe'); }

# Run a block of sh; returns its exit status and what it said.
sub shell
{
	my ($node, $command) = @_;
	local %ENV = (%ENV, env($node));
	my $output = '';
	IPC::Run::run([ 'sh', '-c', $command ], '<', \undef, '>&', \$output, init => sub { chdir $dir or die });
	my $status = $? >> 8;
	# what it leaves is there when its sessions have gone
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'recipe'") == 0 },
		'psql has gone');
	return ($status, $output);
}

# ... in the background
sub shell_starts
{
	my ($node, $command) = @_;
	local %ENV = (%ENV, env($node));
	return IPC::Run::start([ 'sh', '-c', $command ], '<', \undef, '>&', "$dir/output", init => sub { chdir $dir or die });
}

# The first tick may come before the ensemble has said who leads.
sub wait_leads
{
	my ($node, $election) = @_;
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT zk_is_leader('$election')") eq 't' }, $node->name . " leads $election");
}

# What cron would run of a line
sub command_of
{
	my ($line) = @_;
	my ($command) = $line =~ /^(?:\S+ ){5} *(.*)$/ or die "no line of a crontab: $line";
	return $command;
}

ZkLock::ask($_, 'CREATE TABLE orders AS SELECT generate_series(1, 100) AS id; CREATE EXTENSION postgres_fdw') for $a, $b;
ZkLock::ask($a, 'CREATE TABLE report (day date, n bigint)');
sub foreign { ZkLock::ask($b, "IMPORT FOREIGN SCHEMA public LIMIT TO (@{[ join ', ', @_ ]}) FROM SERVER a INTO public"); }
ZkLock::ask($b, sprintf "CREATE SERVER a FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'postgres');"
	  . " CREATE USER MAPPING FOR CURRENT_USER SERVER a", $a->host, $a->port);

#
# Once a night
#
my $name = 'Once a night';
ZkLock::ask($a, recipe($name));
foreign('night', 'report');
my $procedure = recipe($name);
ZkLock::ask($_, $procedure) for $a, $b;
my $tick = command_of(recipe($name));
my $nights = 'SELECT (SELECT string_agg(server, \' \' ORDER BY day) FROM night), (SELECT count(*) FROM report WHERE n = 100)';
wait_leads($a, 'nightly');
is_deeply([ shell($a, $tick) ], [ 0, '' ], "$name: the first tick");
is(ZkLock::ask($a, $nights), 'a|1', '... does the work');
is_deeply([ shell($a, $tick) ], [ 0, '' ], '... the next one');
my ($status, $said) = shell($b, $tick);
is($status, 0, '... and one on a server that does not lead');
like($said, qr/^NOTICE:  /, '... which says so');
is(ZkLock::ask($a, $nights), 'a|1', '... do nothing');
ZkLock::ask($a, "SELECT zk_resign('nightly')");
wait_leads($b, 'nightly');
is_deeply([ shell($b, $tick) ], [ 0, '' ], '... nor does one of the next leader');
is(ZkLock::ask($a, $nights), 'a|1', '... who finds it done');
ZkLock::ask($a, 'DELETE FROM night');
ZkLock::ask($b, 'ALTER TABLE orders RENAME TO hidden');
($status, $said) = shell($b, $tick);
like($said, qr/relation "orders" does not exist/, '... work that fails');
is(ZkLock::ask($a, $nights), '|1', '... leaves no row');
ZkLock::ask($b, 'ALTER TABLE hidden RENAME TO orders');
is_deeply([ shell($b, $tick) ], [ 0, '' ], '... and a later tick');
is(ZkLock::ask($a, $nights), 'b|2', '... makes up for it');

#
# A batch
#
$name = 'A batch with COMMITs in between';
my $fill = "INSERT INTO event SELECT now() - '1 year'::interval FROM generate_series(1, 2500)";
ZkLock::ask($a, "CREATE TABLE event (at timestamptz, id bigserial); $fill; INSERT INTO event SELECT now() FROM generate_series(1, 10);
	CREATE TABLE transactions (id xid8);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN INSERT INTO transactions VALUES (pg_current_xact_id()); RETURN NULL; END\$\$;
	CREATE TRIGGER note AFTER DELETE ON event EXECUTE FUNCTION note()");
ZkLock::ask($a, recipe($name));
my ($lock, $work, $unlock) = statements(recipe($name));
my $try = "SELECT zk_try_lock('purge')";
$sa->query($lock);
is($sb->query($try), 'f', "$name: nobody else has the lock before");
$sa->query($work);
is(ZkLock::ask($a, 'SELECT (SELECT count(*) FROM event), (SELECT count(DISTINCT id) FROM transactions)'), '10|4', '... it is done, in transactions');
is($sb->query($try), 'f', '... nor after it');
is($sa->query($unlock), 't', '... until it is given back');
is($sb->query("SELECT zk_try_lock('purge', timeout => '1h')"), 't', '... then somebody else has it');
ZkLock::ask($a, $fill);
$sa->query($lock);
ZkLock::ask($b, "SELECT zk_break('purge', token) FROM zk_contenders('purge')");
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT grant_state FROM zk_locks WHERE name = 'purge'") eq 'lost' }, 'lost');
is($sa->fails($work), '55000: lock "purge" was lost', '... a loss');
is(ZkLock::ask($a, 'SELECT count(*) FROM event'), 2510, '... ends the batch');
is($sa->query($unlock), 't', '... and is acknowledged');

#
# Several locks
#
$name = 'Several locks at once';
$sb->query("BEGIN; SELECT zk_lock('stock/17')");
$sa->send(recipe($name) =~ s/'1 min'/'1 h'/r)->wait_level(2);
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM zk_contenders('stock/4')") == 1 }, "$name: who waits for one has a place in both queues");
$sb->query('COMMIT');
like($sa->result, qr/^\{\d+,\d+\}$/m, '... then it has both');
is(ZkLock::ask($a, "SELECT string_agg(name, ' ' ORDER BY name COLLATE \"C\") FROM zk_locks WHERE granted"), 'stock/17 stock/4', '... at once');
$sa->query('COMMIT');

#
# A work queue
#
$name = 'A work queue';
ZkLock::ask($a, "CREATE FUNCTION held() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM zk_locks WHERE pid = pg_backend_pid()';
	CREATE TABLE job (id bigint PRIMARY KEY, priority int, done timestamptz);
	CREATE TABLE result (id bigint, server text, held bigint DEFAULT held());
	INSERT INTO job SELECT i, i % 7 FROM generate_series(1, 20) AS i");
foreign('job', 'result');
$sa->query('BEGIN');
is($sa->query(recipe($name)) =~ tr/\n//, 0, "$name, wrong: it returns one");
is($sa->query('SELECT held()'), 20, '... and locks all');
$sa->query('ROLLBACK');
$procedure = recipe($name);
ZkLock::ask($_, $procedure) for $a, $b;
my $take = recipe($name);
$sb->query("BEGIN; SELECT zk_lock('job/7')");
$sa->query($take);
is(ZkLock::ask($a, 'SELECT id, server, held FROM result'), '14|a|1', '... right: it takes the first that is free, and locks one');
$sb->query('COMMIT');
my @workers = map { ZkLock::session($_) } $a, $a, $b, $b;
while (ZkLock::ask($a, 'SELECT count(*) FROM job WHERE done IS NULL') > 0)
{
	$_->send($take) for @workers;
	# A row that somebody else has written since the list was made
	like($_->failure, qr/^(40001: could not serialize access|$)/, '... a turn') for @workers;
}
is(ZkLock::ask($a, 'SELECT count(*), count(DISTINCT id), max(held) FROM result'), '20|20|1', '... each is done once');

#
# Migrations
#
$name = 'Migrations';
my $migration = recipe($name);
sub migrate
{
	open my $fh, '>', "$dir/migrate" or die;
	print $fh "#!/bin/sh\n", @_;
	close $fh or die;
	chmod 0755, "$dir/migrate" or die;
}
migrate('echo begin >>log; until test -e go; do sleep 0.02; done; ',
	'psql -qXc "CREATE INDEX CONCURRENTLY IF NOT EXISTS orders_id ON orders (id)" && echo end >>log');
my $first = shell_starts($a, $migration);
ZkLock::wait_until(sub { -e "$dir/log" }, 'the first migrates');
my @others = map { shell_starts($_, $migration) } $a, $b;
ZkLock::wait_waiting($a, 1, 1);
ZkLock::wait_waiting($b, 2, 1);
append_to_file("$dir/go", '');
ok($_->finish, "$name: one has migrated") for $first, @others;
is(slurp_file("$dir/log"), "begin\nend\n" x 3, '... one after the other, and no CREATE INDEX CONCURRENTLY waits for a waiter');
is(ZkLock::ask($_, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'orders_id'::regclass"), 't', '... on ' . $_->name) for $a, $b;
migrate('exit 3');
isnt((shell($a, $migration))[0], 0, '... a tool that fails is noticed');
migrate(q{psql -qXAtc "SELECT zk_break('migrate', token) FROM zk_contenders('migrate')"});
($status, $said) = shell($a, $migration);
isnt($status, 0, '... so is a lock that was lost');
like($said, qr/lock "migrate" was lost/, '... which is said');
migrate('true');
is_deeply([ shell($a, $migration) ], [ 0, '' ], '... and the next one succeeds');

#
# VACUUM
#
$name = 'VACUUM on one server of many';
my $vacuum = recipe($name);
my $vacuumed = sub { return join ' ', map { ZkLock::ask($_, "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'orders'") } $a, $b };
wait_leads($a, 'vacuum');
is_deeply([ shell($_, $vacuum) ], [ 0, '' ], "$name: " . $_->name) for $a, $b;
is($vacuumed->(), '1 0', '... the leader does it');
$sb->query("SELECT zk_lock('vacuum', scope => 'session')");
is_deeply([ shell($a, $vacuum) ], [ 0, '' ], '... while somebody does it');
is($vacuumed->(), '1 0', '... he does not');
$sb->query('SELECT zk_unlock_all()');

is_deeply([ grep { @{ $recipes->{$_} } } sort keys %$recipes ], [], 'all of doc/recipes.md has been run');

#
# README.md: what to grant, and a batch
#
my $readme = blocks_of('README.md');
ZkLock::ask($a, 'CREATE ROLE batch LOGIN');
my ($grants) = grep { /zk_grant/ } @{ $readme->{'Quick start'} };
ZkLock::ask($a, $grants);
my $batch = ZkLock::session($a, user => 'batch');
is($batch->fails($_), '', "granted: $_")
  for "BEGIN; SELECT zk_lock('x'), zk_try_lock('x'), zk_assert('x'), zk_fence('x', 1), zk_token('x'); COMMIT",
  "CALL zk_lock_session('x')", "SELECT zk_is_leader('x', '1h')", "SELECT zk_require_leader('x')",
  "CALL zk_run_as_leader('x', 'SELECT 1')", 'SELECT zk_unlock_all()';
$sa->query($_) for statements($readme->{'One batch'}[0]);
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_locks'), 0, 'the batch of README.md');

#
# doc/operations.md: who hangs with a transaction open does not hold a lock for ever
#
my ($limits) = grep { /idle_in_transaction_session_timeout/ } @{ blocks_of('doc/operations.md')->{'How long a lock may be held'} };
ZkLock::ask($a, $limits =~ s/'5 min'/'100ms'/r);
my $hung = ZkLock::session($a, user => 'batch');
is($hung->query('SHOW lock_timeout'), '1min', 'limits of a role');
# in one message, or it may be over before the second statement comes; psql may read its end
# together with its answer
like($hung->fails("BEGIN\\; SELECT zk_lock('x')"), qr/^(25P03: .*)?$/, '... let it take a lock');
cmp_ok($sb->query("SELECT zk_lock('x')"), '>', 0, '... end a transaction that does nothing, and somebody else has its lock');

done_testing();
