# doc/drivers.md: its code is taken from the page and run by each driver, one program on each of
# two servers.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use IO::Select;
use IPC::Open2;
use IPC::Run;
use Pages qw(blocks_of);
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use ZkLock;
use ZooKeeper;

my $tmp = PostgreSQL::Test::Utils::tempdir();
my $drivers = "$FindBin::Bin/../drivers";
my $blocks = blocks_of('doc/drivers.md', 'python|java|js|go');
sub code { my ($section) = @_; return join "\n\n", @{ $blocks->{$section} // die "no section $section" }; }
sub put { my ($file, $text) = @_; open my $out, '>', "$tmp/$file" or die "could not write $tmp/$file: $!"; print $out $text; close $out or die $!; return; }

# Each driver: is it here, and how is it started?
sub python
{
	my ($section, $program) = @_;
	mkdir "$tmp/$program" or die;
	put("$program/code_of_page.py", code($section));
	put("$program/harness.py", slurp_file("$drivers/harness.py"));
	return ('python3', '-B', "$drivers/$program.py", "$tmp/$program");
}
sub java
{
	my $jar = '/usr/share/java/postgresql.jar';
	put('Drivers.java', slurp_file("$drivers/Drivers.java") =~ s{// CODE OF THE PAGE}{code('JDBC')}er);
	system('javac', '-d', $tmp, "$tmp/Drivers.java") == 0 or die 'javac failed';
	return (qw(java -Xmx64m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp), "$tmp:$jar", 'Drivers');
}
sub node
{
	put('program.js', "const { Pool, Client } = require('pg');\n" . code('node-postgres') . slurp_file("$drivers/harness.js"));
	return ('node', "$tmp/program.js");
}
# Without the network there is no pgx.
sub has_go
{
	return 0 unless works('command -v go');
	my $pgx = works("$drivers/gopath $tmp/go");
	die 'test/drivers/gopath failed' if !$pgx && $ENV{CI};
	return $pgx;
}
sub go
{
	put('pgx.go', slurp_file("$drivers/pgx.go") =~ s{// CODE OF THE PAGE}{code('pgx')}er);
	local @ENV{qw(GO111MODULE GOPATH GOCACHE)} = ('off', "$tmp/go", "$tmp/gocache");
	system('go', 'build', '-o', "$tmp/program", "$tmp/pgx.go") == 0 or die 'go build failed';
	return ("$tmp/program");
}
# where npm puts what is installed for all
$ENV{NODE_PATH} = '/usr/share/nodejs:/usr/lib/node_modules:/usr/local/lib/node_modules';
sub works { my ($command) = @_; return system("$command >/dev/null 2>&1") == 0; }
my @drivers = (
	[ 'psycopg', works("python3 -c 'import psycopg'"), sub { python('psycopg', 'psycopg') } ],
	[ 'SQLAlchemy', works("python3 -c 'import sqlalchemy, psycopg2'"), sub { python('SQLAlchemy', 'sqlalchemy') } ],
	[ 'JDBC', -e '/usr/share/java/postgresql.jar' && works('command -v javac'), \&java ],
	[ 'node-postgres', works(q(node -e 'require("pg")')), \&node ],
	[ 'pgx', has_go(), \&go ]);
my %described = map { $_->[0] => 1 } @drivers;
is(join(', ', grep { !$described{$_} && $blocks->{$_} } sort keys %$blocks), '', 'each driver of the page is tested');

my $zk = ZooKeeper->new->start;
my %node = map { $_ => ZkLock::server($_, $zk, conf => "cluster_name = '$_'\nzklock.session_timeout = '1h'\nlisten_addresses = '127.0.0.1'") } qw(a b);
ZkLock::wait_connected(values %node);
my $user = ZkLock::ask($node{a}, 'SELECT current_user');
ZkLock::ask($_, 'CREATE TABLE done (i int)') for values %node;
my %gate = map { $_ => ZkLock::session($node{$_}) } keys %node;

#
# Programs
#
my %program;

sub start
{
	my ($name, $port, @command) = @_;
	my $program = $program{$name} = { buffer => '' };
	$program->{pid} = open2($program->{out}, $program->{in}, @command, '127.0.0.1', $port, $user);
	return;
}
sub ask_for { my ($name, $line) = @_; print { $program{$name}{in} } "$line\n"; $program{$name}{in}->flush; return; }
sub heard
{
	my ($name) = @_;
	my $program = $program{$name};
	if (IO::Select->new($program->{out})->can_read(0)) { sysread($program->{out}, $program->{buffer}, 4096, length $program->{buffer}) or die "program $name has ended"; }
	return $program->{buffer} =~ /\n/;
}
sub answer
{
	my ($name) = @_;
	ZkLock::wait_until(sub { heard($name) }, "program $name answers");
	return $program{$name}{buffer} =~ s/^(.*)\n// ? $1 : '';
}
sub end_programs
{
	for my $program (values %program) { kill 'KILL', $program->{pid}; waitpid $program->{pid}, 0; }
	%program = ();
	return;
}
END { local $?; end_programs(); }

# At the gate of its server, in the middle of its work
sub at_gate
{
	my ($name) = @_;
	ZkLock::wait_until(sub { ZkLock::ask($node{$name}, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted") == 1 }, "program $name is at its work", sub { heard($name) ? $program{$name}{buffer} : 'nothing heard' });
	return;
}
sub gates { my ($what, @names) = @_; $gate{$_}->query("SELECT pg_advisory_$what(1)") for @names; return; }
sub rows { return join ' ', map { ZkLock::ask($node{$_}, 'SELECT count(*) FROM done') } @_; }
sub forget { ZkLock::ask($_, 'TRUNCATE done') for values %node; return; }
# ... and its server knows that
sub lose
{
	my ($name, $server) = @_;
	my $losses = ZkLock::ask($node{$server}, 'SELECT losses FROM zk_stat');
	my ($first) = ZkLock::queue($zk, $name);
	$zk->delete(ZkLock::directory($name) . "/$first");
	ZkLock::wait_until(sub { ZkLock::ask($node{$server}, 'SELECT losses FROM zk_stat') > $losses }, "server $server knows of the loss");
	return;
}

# A pooler before server a, by mode
my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
my %pooler;
for my $mode ($pgbouncer ? qw(transaction session) : ())
{
	my $port = ZooKeeper::free_port();
	put("$mode.ini", sprintf <<'END', $node{a}->host, $node{a}->port, $user, $port, $mode);
[databases]
postgres = host=%s port=%s dbname=postgres user=%s pool_size=1
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
pool_mode = %s
unix_socket_dir =
auth_type = any
ignore_startup_parameters = extra_float_digits
END
	$pooler{$mode} = { port => $port, said => '' };
	$pooler{$mode}{run} = IPC::Run::start([ $pgbouncer, "$tmp/$mode.ini" ], '<', \undef, '>&', \$pooler{$mode}{said});
	ZkLock::wait_until(sub { ZkLock::session($node{a}, host => '127.0.0.1', port => $port)->alive }, "pgbouncer is up: $mode");
}
END { local $?; $_->{run}->kill_kill for values %pooler; }

for my $driver (@drivers)
{
	my ($name, $here, $prepare) = @$driver;
  SKIP:
	{
		skip "no $name", 1 unless $here;
		my @command = $prepare->();
		start($_, $node{$_}->port, @command) for sort keys %node;
		forget();

		# One at a time
		gates('lock', 'a', 'b');
		ask_for('a', 'locked job');
		at_gate('a');
		ask_for('b', 'locked job');
		ZkLock::wait_waiting($node{b}, 2, 1);
		is(ZkLock::ask($node{a}, 'SELECT mode || scope FROM zk_locks'), 'exclusivetransaction', "$name: a program has the lock, and another one waits");
		gates('unlock', 'a');
		is(answer('a'), 'done 1', '... its work is done');
		at_gate('b');
		is(rows('a', 'b'), '2 0', '... and committed, and then comes the other');
		# ... whose lock is lost in the middle, so that the first one has it meanwhile
		gates('lock', 'a');
		ask_for('a', 'locked job');
		ZkLock::wait_waiting($node{a}, 2, 1);
		lose('job', 'b');
		at_gate('a');
		gates('unlock', 'b');
		gates('lock', 'b') if ZkLock::wait_until(sub { ZkLock::queue($zk, 'job') == 2 }, 'the loser queues again');
		is(rows('b'), '0', '... it is rolled back when the lock is lost');
		ok(!heard('b'), '... and tries again');
		gates('unlock', 'a');
		is(answer('a'), 'done 1', '... when the other one has done its work');
		at_gate('b');
		gates('unlock', 'b');
		is(answer('b'), 'done 2', '... all of it');
		is(rows('a', 'b'), '4 2', '... which is done once');
		ZkLock::ok_clean($zk, [ values %node ], 'job', $name);

		# At the commit
		gates('lock', 'a', 'b');
		forget();
		ZkLock::ask($node{a}, 'CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_advisory_xact_lock_shared(2); RETURN NULL; END$$;
			CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON done DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.i = 2) EXECUTE FUNCTION at_commit()');
		gates('unlock', 'a', 'b');
		$gate{a}->query('SELECT pg_advisory_lock(2)');
		ask_for('a', 'locked job');
		at_gate('a');
		lose('job', 'a');
		$gate{a}->query('SELECT pg_advisory_unlock(2)');
		is(answer('a'), 'done 2', "$name: a COMMIT fails, and all is done again");
		is(rows('a'), '2', '... once');
		ZkLock::ask($node{a}, 'DROP FUNCTION at_commit CASCADE');
		forget();

		# A session
		gates('lock', 'a', 'b');
		ask_for('a', 'session job');
		at_gate('a');
		is(ZkLock::ask($node{a}, 'SELECT mode || scope FROM zk_locks') . rows('a'), 'exclusivesession1', "$name: the session's lock outlives a commit");
		ask_for('b', 'session job');
		ZkLock::wait_waiting($node{b}, 2, 1);
		gates('unlock', 'a');
		is(answer('a'), 'done 1', '... and ends with its work');
		at_gate('b');
		lose('job', 'b');
		gates('unlock', 'b');
		is(answer('b'), '55000 1', '... it fails when the lock is lost');
		is(rows('b'), '1', '... and what was committed before stays');
		ZkLock::ok_clean($zk, [ values %node ], 'job', "$name: session");
		ask_for('a', 'locked job');
		is(answer('a'), 'done 1', '... the next one has a connection without it');

		# Autocommit
		ask_for('a', 'autocommit job');
		is(answer('a'), 'False 0', "$name: with autocommit zk_lock holds the lock for its statement");
		ask_for('a', 'begun job');
		is(answer('a'), '25001 0', '... without it for the transaction, in which zk_lock_session is refused');
		ZkLock::ok_clean($zk, [ values %node ], 'job', "$name: autocommit");
		end_programs();

		# Through a pooler, with one connection for all
		next unless %pooler;
		forget();
		start($_, $pooler{$_}{port}, @command) for sort keys %pooler;
		ask_for('transaction', 'locked job');
		is(answer('transaction'), 'done 1', "$name: a lock of a transaction through pgbouncer");
		ask_for('session', 'session job');
		is(answer('session'), 'done 1', '... and one of a session, in session pooling');
		is(rows('a'), 4, '... and all is done');
		ZkLock::ok_clean($zk, [ $node{a} ], 'job', "$name: pgbouncer");
		end_programs();
	}
}

done_testing();
