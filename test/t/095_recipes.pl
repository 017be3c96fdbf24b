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
# All that follows is done as the role that the page names.
ZkLock::ask($_, "CREATE ROLE batch LOGIN; CALL zk_grant('batch'); GRANT CREATE ON SCHEMA public TO batch") for $a, $b;
my ($sa, $sb) = map { ZkLock::session($_, user => 'batch') } $a, $b;
my ($as_a, $as_b) = map { ZkLock::session($_, user => 'batch') } $a, $b;
my $dir = File::Temp::tempdir('recipes-XXXXXX', TMPDIR => 1, CLEANUP => 1);

# The environment of a shell in which psql finds a server
sub env { my ($node) = @_; return (PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGAPPNAME => 'recipe', PGUSER => 'batch'); }

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

ZkLock::ask($_, 'CREATE EXTENSION postgres_fdw') for $a, $b;
$_->query('CREATE TABLE orders AS SELECT generate_series(1, 100) AS id') for $as_a, $as_b;
$as_a->query('CREATE TABLE report (day date, n bigint)');
sub foreign { $as_b->query("IMPORT FOREIGN SCHEMA public LIMIT TO (@{[ join ', ', @_ ]}) FROM SERVER a INTO public"); }
ZkLock::ask($b, sprintf "CREATE SERVER a FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'postgres');"
	  . " CREATE USER MAPPING FOR batch SERVER a OPTIONS (user 'batch', password_required 'false'); GRANT USAGE ON FOREIGN SERVER a TO batch", $a->host, $a->port);

#
# Once a night
#
my $name = 'Once a night';
$as_a->query(recipe($name));
foreign('night', 'report');
my $procedure = recipe($name);
$_->query($procedure) for $as_a, $as_b;
my $tick = command_of(recipe($name));
my $nights = 'SELECT (SELECT string_agg(server, \' \' ORDER BY day) FROM night), (SELECT count(*) FROM report WHERE n = 100)';
wait_leads($a, 'nightly');
is_deeply([ shell($a, $tick) ], [ 0, '' ], "$name: the first tick");
is(ZkLock::ask($a, $nights), 'a|1', '... does the work');
is_deeply([ shell($a, $tick) ], [ 0, '' ], '... the next one');
# It waits for two seconds to hear who leads, and says another thing if it has not by then.
is(ZkLock::ask($b, "SELECT zk_is_leader('nightly', '1 h')"), 'f', '... another server knows who leads');
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
$as_a->query("CREATE TABLE event (at timestamptz, id bigserial); $fill; INSERT INTO event SELECT now() FROM generate_series(1, 10);
	CREATE TABLE transactions (id xid8);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN INSERT INTO transactions VALUES (pg_current_xact_id()); RETURN NULL; END\$\$;
	CREATE TRIGGER note AFTER DELETE ON event EXECUTE FUNCTION note()");
$as_a->query(recipe($name));
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
migrate(q{unset PGUSER; psql -qXAtc "SELECT zk_break('migrate', token) FROM zk_contenders('migrate')"});
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

#
# An application that retries
#
$name = 'An application that retries';
$as_a->query(recipe($name));
my ($sell, $loop) = (recipe($name), recipe($name));
$as_a->query('CREATE TABLE stock (item int, n int); INSERT INTO stock VALUES (4, 100)');
my $left = 'SELECT (SELECT n FROM stock), (SELECT count(*) FROM request)';
sub sell
{
	open my $fh, '>', "$dir/sell.sql" or die;
	print $fh map { "$_\n" } @_;
	close $fh or die;
	return shell($a, $loop);
}
is_deeply([ sell($sell) ], [ 0, '' ], "$name: nothing is in its way");
is(ZkLock::ask($a, $left), '99|1', '... and the work is done once');
# The first attempt fails, and leaves a file, by which the second one knows that.
my $raise = sub { my ($state) = @_; return "DO \$\$BEGIN RAISE 'on purpose' USING ERRCODE = '$state'; END\$\$;"; };
my $once = sub { return ('\! test -e tried && echo "\\\\set tried on" >again.sql || echo "\\\\set tried off" >again.sql; touch tried', '\i again.sql', '\if :tried', '\else', @_, '\endif'); };
my $sold = 1;
for my $case ([ 'a serialization failure', $raise->('40001') ], [ 'a deadlock', $raise->('40P01') ], [ 'a timeout', $raise->('55P03') ],
	[ 'an outage', $raise->('58000') ], [ 'a lost connection', 'SELECT pg_terminate_backend(pg_backend_pid());' ])
{
	my ($what, $error) = @$case;
	unlink "$dir/tried";
	is_deeply([ sell($once->($error), $sell) ], [ 0, '' ], "... $what: again");
	is(ZkLock::ask($a, $left), 100 - ++$sold . "|$sold", '... and the work is done once');
}
# The transaction is committed, and the client does not hear of it.
unlink "$dir/tried";
is_deeply([ sell("$sell", $once->('SELECT pg_terminate_backend(pg_backend_pid());')) ], [ 0, '' ], '... a connection that is lost after COMMIT: again');
is(ZkLock::ask($a, $left), 100 - ++$sold . "|$sold", '... and the work is done once');
unlink "$dir/tried";
isnt((sell($once->('SELECT 1/0;'), $sell))[0], 0, '... other errors are not tried again');
is(ZkLock::ask($a, $left), 100 - $sold . "|$sold", '... and nothing is done');

delete $recipes->{'One batch over three databases'};    # 096_batches
is_deeply([ grep { @{ $recipes->{$_} } } sort keys %$recipes ], [], 'all of doc/recipes.md has been run');

#
# README.md: what to grant, and a batch
#
my $readme = blocks_of('README.md');
ZkLock::ask($a, 'CREATE ROLE other LOGIN');
my ($grants) = grep { /zk_grant/ } @{ $readme->{'Quick start'} };
ZkLock::ask($a, $grants =~ s/'batch'/'other'/r);
my $other = ZkLock::session($a, user => 'other');
is($other->fails($_), '', "granted: $_")
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
