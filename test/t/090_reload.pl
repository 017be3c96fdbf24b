# Settings: which can be reloaded, and that a wrong value is refused with the old
# one kept, by ALTER SYSTEM and at a reload.
use strict;
use warnings;

use FindBin;
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('node', $zk);
my $session = ZkLock::session($node);

# What doc/settings.md says of each.
my %documented;
open my $page, '<', "$FindBin::Bin/../../doc/settings.md" or die;
while (<$page>)
{
	my ($name, $effect) = /^\| `(zklock\.\w+)` \| [^|]+ \| [^|]+ \| (\w+)/ or next;
	$documented{$name} = { reload => 'sighup', restart => 'postmaster', any => 'user', superusers => 'superuser' }->{$effect} // $effect;
}
my %context = map { split /\|/ } split /\n/,
  $session->query("SELECT name, context FROM pg_settings WHERE name LIKE 'zklock.%'");
cmp_ok(scalar keys %context, '>=', 13, 'settings');
is_deeply(\%documented, \%context, 'doc/settings.md says of each setting when it takes effect');
is(join(' ', grep { $context{$_} eq 'postmaster' } sort keys %context), 'zklock.max_locks', 'only what sizes shared memory needs a restart');

# Strings: right and wrong values.  Others follow from pg_settings.
my %right = (
	'zklock.hosts' => $zk->hosts . ',127.0.0.1:1',
	'zklock.root' => '/other/root',
	'zklock.server_name' => 'somebody',
	'zklock.elections' => 'a, "b, c"',
	'zklock.notify_database' => 'postgres',
	'zklock.namespace' => 'tenant.1',
	map { ("zklock.$_" => '/nowhere') } qw(auth_file tls_ca_file tls_cert_file tls_key_file));
my %wrong = (
	'zklock.hosts' => [
		'', 'zk1', 'zk1:', ':2181', 'zk1:0', 'zk1:65536', 'zk1:2181x', 'zk1:x', 'zk1: 2181', 'zk1:2181,', ',zk1:2181',
		'zk1:2181/', 'zk1:2181/a/', 'zk1:2181/a//b', 'zk1:2181/a/../b', 'zk1:2181/a/.', "zk1:2181/a\001", 'a' x 1020 . ':2181' ],
	'zklock.root' => [ '', 'zklock', '/', '/a/', '/a//b', '/..', "/a\001", '/' . 'a' x 200 ],
	'zklock.server_name' => ["a\001b"],
	'zklock.elections' => [ 'a,,b', '"a', ',', '""', 'x' x 256 ],
	'zklock.notify_database' => [],
	'zklock.namespace' => [ 'a/b', 'ä', 'x' x 64 ],
	map { ("zklock.$_" => []) } qw(auth_file tls_ca_file tls_cert_file tls_key_file));
my %default;
for (split /\n/, $session->query(
	"SELECT name, vartype, min_val, max_val, boot_val, enumvals FROM pg_settings WHERE name LIKE 'zklock.%'"))
{
	my ($name, $type, $min, $max, $boot, $enum) = split /\|/, $_, -1;
	$default{$name} = $boot;
	if ($type =~ /integer|real/)
	{
		$wrong{$name} = [ '', 'x', '1 parsec', $min - 1, $max + 1 ];
		$right{$name} = $boot == $min ? $boot + 1 : $min;
	}
	elsif ($type eq 'enum')
	{
		$wrong{$name} = [ '', 'nonsense' ];
		($right{$name}) = grep { $_ ne $boot } $enum =~ /\w+/g;
	}
	elsif ($type eq 'bool')
	{
		$wrong{$name} = [ '', 'maybe' ];
		$right{$name} = $boot eq 'on' ? 'off' : 'on';
	}
	else
	{
		ok($wrong{$name} && defined $right{$name}, "$name: this test has values of it");
	}
}

# Append to postgresql.conf, reload, and wait until it has been read.  A reload in which
# anything is wrong applies the rest: so a setting of the test's shows that.
my $round = 0;
my $conf = $node->data_dir . '/postgresql.conf';
my $original = PostgreSQL::Test::Utils::slurp_file($conf);

sub reload_with
{
	my %setting = @_;
	$round++;
	# Whoever still reads for the round before must not find half a file.
	open my $fh, '>', "$conf.new" or die;
	print $fh $original;
	for my $name (sort keys %setting)
	{
		(my $value = $setting{$name}) =~ s/'/''/g;
		print $fh "$name = '$value'\n";
	}
	print $fh "test.round = '$round'\n";
	close $fh or die;
	rename "$conf.new", $conf or die;
	my $from = -s $node->logfile;
	$node->reload;
	ZkLock::wait_until(sub { ($session->query("SELECT current_setting('test.round', true)") // '') eq $round }, 'reloaded');
	# the postmaster logs before it tells the others
	return substr PostgreSQL::Test::Utils::slurp_file($node->logfile), $from;
}

sub current { return join "\n", split /\n/, $session->query("SELECT name, setting FROM pg_settings WHERE name LIKE 'zklock.%' ORDER BY 1"); }

# The worker reads the same file by itself.
sub works { return $session->query("SELECT zk_lock('still'); SELECT state FROM zk_session") =~ /^\d+\nconnected$/; }

my $before = current();
ZkLock::wait_connected($node);
my $worker = $session->query('SELECT worker_pid FROM zk_session');

#
# Wrong values, all settings at a time
#
my $refused = 0;
for my $i (0 .. 20)
{
	my %now = map { $_ => $wrong{$_}[$i] } grep { $context{$_} && $i < @{ $wrong{$_} } } keys %wrong;
	last unless %now;
	my $log = reload_with(%now);
	is(current(), $before, 'round ' . ($i + 1) . ': wrong values leave the old ones');
	for my $name (sort keys %now)
	{
		my $value = $now{$name};
		like($log, qr/LOG: .*(invalid value for parameter "$name": "\Q$value\E"|outside the valid range for parameter "$name"|parameter "$name" requires a Boolean value)/, "$name = '$value': the log says so");
		like($session->fails("ALTER SYSTEM SET $name = '$value'"), qr/^(22023): .*parameter "$name"/, '... and ALTER SYSTEM refuses it');
		$refused++;
	}
	like($log, qr/contains errors; unaffected changes were applied/, '... and that the rest was applied');
}
cmp_ok($refused, '>=', 50, "$refused wrong values");
is($session->query('SELECT worker_pid FROM zk_session'), $worker, 'the worker has not been replaced');
ok(works(), '... and works');

# The reason stands below, in words
my $log = reload_with('zklock.hosts' => 'zk1', 'zklock.root' => '/a/', 'zklock.server_name' => "a\001", 'zklock.elections' => 'a,,b');
like($log, qr/DETAIL:  "zk1" is not of the form host:port\..*HINT:  Write host:port/s, 'why: hosts');
like($log, qr/DETAIL:  The root must be an absolute path/, 'why: root');
like($log, qr/DETAIL:  The server name must not contain control characters/, 'why: server_name');
like($log, qr/DETAIL:  List syntax is invalid/, 'why: elections');

like(reload_with('zklock.no_such_thing' => 1), qr/parameter name? ?"zklock.no_such_thing"/, 'an unknown setting is told');

# Beside a wrong one, a right one is taken
like(reload_with('zklock.handoff_limit' => 77, 'zklock.keep_time' => 'x'), qr/invalid value for parameter "zklock.keep_time"/, 'one wrong, one right');
is($session->query("SELECT current_setting('zklock.handoff_limit') || ' ' || current_setting('zklock.keep_time')"), '77 0', '... the right one is taken');

#
# Right values
#
reload_with(%right);
for my $name (sort keys %right)
{
	my ($setting, $pending) = split /\|/, $session->query("SELECT setting, pending_restart FROM pg_settings WHERE name = '$name'"), -1;
	if ($context{$name} eq 'postmaster')
	{
		is("$setting $pending", "$default{$name} t", "$name waits for a restart");
	}
	else
	{
		is($setting, $right{$name}, "$name is reloaded");
	}
}
# ... and gone again, by removal from the file
reload_with();
is(current(), $before, 'removed from the file, all are as before');
# The worker may still be at the file of the round before, of which it has told nothing yet: it has
# gone round when it has answered.
$session->query("SELECT count(*) FROM zk_contenders('nobody')") for 1, 2;
# the extra server in the list is gone from the worker, too
ZkLock::wait_until(sub { $session->query('SELECT hosts FROM zk_session') eq $zk->hosts }, 'the worker has the old hosts');
ZkLock::wait_connected($node);
ok(works(), 'locks work');

# A reload is not lost on a worker that is just being started: it reads the file by itself.
PostgreSQL::Test::Utils::append_to_file($conf, "zklock.hosts = '" . $zk->hosts . ",127.0.0.1:1'\n");
kill 'TERM', $session->query('SELECT worker_pid FROM zk_session');
ZkLock::wait_until(sub { $session->query('SELECT hosts FROM zk_session') eq $zk->hosts . ',127.0.0.1:1' }, 'a new worker has the new hosts', sub { $session->query('SELECT hosts, worker_pid FROM zk_session') });
reload_with();
ZkLock::wait_until(sub { $session->query('SELECT hosts FROM zk_session') eq $zk->hosts }, 'the worker has the old hosts again');
ZkLock::wait_connected($node);
ok(works(), 'a worker that starts reads the file');

# At a start there is no old value: PostgreSQL takes the default of an extension's
# setting in place of a wrong one, and says so.
ZkLock::hang_up($node);
$session->quit;
$node->stop;
$node->append_conf('postgresql.conf', "zklock.max_locks = 0\nzklock.keep_time = 'x'");
my $from = -s $node->logfile;
$node->start;
is(ZkLock::ask($node, "SELECT current_setting('zklock.max_locks') || ' ' || current_setting('zklock.keep_time')"), '10000 1min', 'a start with wrong values takes the defaults');
$log = substr PostgreSQL::Test::Utils::slurp_file($node->logfile), $from;
like($log, qr/WARNING: .*0 is outside the valid range for parameter "zklock.max_locks"/, '... and the log says so');
like($log, qr/WARNING: .*invalid value for parameter "zklock.keep_time": "x"/, '... of each');
ZkLock::hang_up($node);
$node->stop;
open my $fh, '>', $conf or die;
print $fh $original, "zklock.max_locks = 123\n";
close $fh or die;
$node->start;
is(ZkLock::ask($node, 'SHOW zklock.max_locks'), 123, 'max_locks after a restart');

done_testing();
