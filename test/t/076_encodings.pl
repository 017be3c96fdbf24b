# What others write into the ensemble is shown in every encoding that a database can
# have, whatever it is and however long, and ends neither a query nor a server.
use strict;
use warnings;

use Encode ();
use Test::More;
use Time::HiRes qw(time);
use ZkLock;

my $zk = ZooKeeper->new->start;
# The worker says nothing about a leadership that it gains while there is no such database.
my $conf = "zklock.session_timeout = '20s'\nzklock.connect_timeout = '60s'\nzklock.notify_database = 'postgres'";
my $node = ZkLock::server('node', $zk, conf => $conf);
my $admin = ZkLock::session($node);
my $started = $admin->query('SELECT pg_postmaster_start_time()');

sub utf8 { my $text = shift; utf8::encode($text); return $text; }
my ($auml, $snow, $clef) = map { utf8(chr $_) } 0xe4, 0x2603, 0x1d11e;

#
# The databases: one for each encoding that a server can have
#
my %database;
for my $i (0 .. 60)
{
	my $name = $admin->query("SELECT pg_encoding_to_char($i)");
	next if $name eq '';
	my $error = $admin->fails("CREATE DATABASE e$i TEMPLATE template0 ENCODING '$name' LOCALE 'C'");
	if ($error eq '') { $database{$name} = "e$i"; next; }
	# those that only a client can have
	like($error, qr/^22023: \w+ is not a valid encoding name$|^42704: \w+ is not a valid encoding name$/, "no encoding of a database: $name");
}
cmp_ok(scalar keys %database, '>=', 30, 'databases of ' . keys(%database) . ' encodings');

# Bytes as they are, both ways: not every encoding can be converted for a client.
sub raw { return ZkLock::session($node, dbname => $database{ $_[0] }, env => { PGCLIENTENCODING => 'SQL_ASCII' }); }

#
# What they write.  No more than a kilobyte is shown: what is longer ends in dots.
#
my $server = sub { return '{"server": "' . $_[0] . '"' . ($_[1] // '}'); };
my %data = (
	'nothing' => '',
	'plain' => '10.0.0.7',
	'one that converts to few' => $auml x 400,
	'one that converts to fewer' => $snow x 300,
	'one beyond 16 bits' => $clef x 250,
	'800 bytes and one character' => 'x' x 800 . $snow,
	'a kilobyte' => 'x' x 1024,
	'a kilobyte and a byte' => 'x' x 1025,
	'a megabyte' => 'x' x 1_000_000,
	'a megabyte of no ASCII' => $auml x 500_000,
	'a megabyte of NUL' => "\0" x 1_000_000,
	'a megabyte of no UTF-8' => "\xff" x 1_000_000,
	'NUL' => "a\0b",
	'every byte' => join('', map { chr } 0 .. 255),
	'a surrogate' => "\xed\xa0\x80",
	'overlong' => "\xc0\xaf",
	'beyond Unicode' => "\xf4\x90\x80\x80",
	'half a character' => "x\xe2\x98",
	'control characters' => "a\nb\tc\x01\x7f",
	'percent' => '%E4 %',
	'a server' => $server->('A', ', "host": "h", "pid": 1}'),
	'a server with a long name' => $server->($auml x 127),
	'a server with no UTF-8' => $server->("\xe4" x 255),
	'a server with NUL' => $server->("a\0b"),
	'a server, escaped' => $server->('\u00e4\u2603\"\\\\\u0001'),
	'a server, escaped by a pair' => $server->('\ud834\udd1e'),
	'a server, escaped to no character' => $server->('\ud800'),
	'a server, escaped at length' => $server->('\u2603' x 160),
	'a server that never ends' => '{"server": "' . 'x' x 999_000,
	'a server that ends in an escape' => '{"server": "' . 'x' x (1024 - 13) . '\\u12',
	'deep' => '[' x 500_000 . ']' x 500_000,
	'deep behind a server' => $server->('A', ', "x": ' . '{"a":' x 100_000));
# cut within a character, at each of its bytes
$data{"cut after $_ bytes of four"} = 'x' x (1024 - $_) . $clef x 5 for 1 .. 4;
$data{"cut after $_ bytes of two"} = 'x' x (1024 - $_) . $auml x 5 for 1 .. 2;

# What is to be seen of bytes, in an encoding that has them all or in LATIN1
sub shown
{
	my ($bytes, $limit, $latin1) = @_;
	my $cut = length $bytes > $limit;
	$bytes = substr $bytes, 0, $limit if $cut;
	# a character that is incomplete goes
	$bytes =~ s/(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\z// if $cut;
	my $text = $bytes =~ /\0/ ? undef : eval { Encode::decode('UTF-8', my $copy = $bytes, Encode::FB_CROAK) };
	my $shown = !defined $text ? undef : $latin1 ? eval { Encode::encode('iso-8859-1', my $copy = $text, Encode::FB_CROAK) } : $bytes;
	# else percent-encoded
	my $character = qr/[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}/;
	my $escape = $latin1 ? qr{[%/\x00-\x1f\x7f-\x{10ffff}]} : qr{[%/\x00-\x1f\x7f-\x9f\x{e000}-\x{f8ff}\x{fff0}-\x{10ffff}]};
	$shown //= $bytes =~ s{($character)|(.)}{
		my ($one, $bad) = ($1, $2);
		defined $one && Encode::decode('UTF-8', my $copy = $one) !~ $escape ? $one : join '', map { sprintf '%%%02X', ord } split //, $one // $bad}gser;
	return $shown . ($cut ? '...' : '');
}

my $other = $zk->client;
my @order = sort keys %data;
$other->contend('/zklock/locks/data', data => $data{$_}) for @order;
my @names = ($auml x 400, $snow x 300, $clef x 3000, 'x' x 10_000, 'x' x 8183 . $snow x 5, '%E4', 'a b', 'x' x 8200);
# ZooKeeper takes no characters beyond the basic plane in a name
@names = grep { !/[\xf0-\xf4]/ } @names;
$other->create("/zklock/locks/names", mode => 'container');
$other->create("/zklock/locks/names/$_-lock-", mode => 'ephemeral_sequential') for @names;
# candidates: the data is the name
for my $what (@order)
{
	(my $name = $what) =~ s/\W/_/g;
	$other->contend("/zklock/elections/e_$name", kind => 'latch-', data => $data{$what});
	$other->contend("/zklock/elections/all", kind => 'latch-', data => $data{$what});
}
# directories, and the names of the locks that they are, if any
my %directory = (
	$auml x 100 => $auml x 100, $snow => $snow, 'a%2Fb' => 'a/b', '%80x' => "\x80x", 'a%C3' => "a\xc3", '%E4' => "\xe4", '%ED%A0%80' => "\xed\xa0\x80",
	'%F4%90%80%80' => "\xf4\x90\x80\x80", '%C3%28' => undef, 'x%FFy' => undef, 'y' x 5000 => undef, $snow x 1000 => undef);
for my $name (sort keys %directory)
{
	$other->create("/zklock/locks/$name", mode => 'container');
	$other->create("/zklock/locks/$name/x-", mode => 'ephemeral_sequential');
}

# servers
$other->create("/zklock/servers/$order[$_] $_", mode => 'ephemeral', parents => 1, data => $data{ $order[$_] }) for 0 .. $#order;
$other->create("/zklock/servers/$_", mode => 'ephemeral', data => $server->($_, qq{, "host": "$_", "pid": 99999999999, "zklock": "$_", "postgres": "\\u2603"})) for $auml, $snow;

#
# Everything is asked in every database.  A value is valid if it can be converted to its
# own encoding, which checks it.
#
my $invalid = sub { join ' + ', map { "coalesce(sum(CASE WHEN length(convert_to($_, getdatabaseencoding())) < 0 THEN 1 ELSE 0 END), 0)" } @_ };
my $holder = ZkLock::session($node);
$holder->query("SELECT zk_lock('$auml$snow', scope => 'session'), zk_is_leader('$auml$snow')");
for my $name (sort keys %database)
{
	my $s = raw($name);
	$s->query('CREATE EXTENSION zklock');
	my %query = (
		zk_contenders => [ "SELECT count(*), " . $invalid->('server', 'data', 'node') . " FROM zk_contenders('data')", keys(%data) . '|0' ],
		'zk_contenders, of names' => [ "SELECT count(*), " . $invalid->('server', 'data', 'node') . " FROM zk_contenders('names')", @names . '|0' ],
		zk_servers => [ "SELECT count(*), " . $invalid->('server', 'host', 'zklock_version', 'postgres_version', 'node') . " FROM zk_servers", 3 + keys(%data) . '|0' ],
		zk_candidates => [ "SELECT count(*), " . $invalid->('c') . " FROM zk_candidates('all') x (c)", keys(%data) . '|0' ],
		"zk_candidates, one of each" => [ "SELECT count(*), " . $invalid->('l') . " FROM unnest(ARRAY['" . join("', '", map { s/\W/_/gr } sort keys %data) . "']) n, zk_candidates('e_' || n) x (l)", keys(%data) . '|0' ],
		zk_lock_dirs => [ "SELECT count(*) > 3, " . $invalid->('name') . " FROM zk_lock_dirs()", 't|0' ],
		zk_elections => [ "SELECT count(*), " . $invalid->('election', 'leader') . " FROM zk_elections", '1|0' ],
		zk_locks => [ "SELECT count(*), " . $invalid->('name') . " FROM zk_locks", '1|0' ],
		zk_stat_locks => [ "SELECT count(*) > 0, " . $invalid->('name') . " FROM zk_stat_locks", 't|0' ],
		zk_session => [ "SELECT count(*), " . $invalid->('connected_to', 'hosts', 'last_error') . " FROM zk_session", '1|0' ]);
	my @wrong;
	for my $q (sort keys %query)
	{
		my $error = $s->fails($query{$q}[0]);
		my $answer = $error || $s->result;
		push @wrong, "$q: $answer" if $answer ne $query{$q}[1];
	}
	is(join("\n", @wrong), '', "$name: all is shown, and is what such a database can have");
	$s->quit;
}

# ... and shows as much as there is room for, and as the encoding has
my %name = (
	'a server' => 'A', 'deep behind a server' => 'A', 'a server with a long name' => $auml x 127, 'a server with no UTF-8' => "\xe4" x 255,
	'a server, escaped' => "$auml$snow\"\\\x01", 'a server, escaped by a pair' => $clef, 'a server, escaped at length' => $snow x 160);
for my $name ('UTF8', 'SQL_ASCII', 'LATIN1')
{
	my $s = raw($name);
	my $bytes = sub { return "encode(convert_to($_[0], getdatabaseencoding()), 'hex')" };
	# those that are shown otherwise
	my $wrong = sub {
		my ($sql, @wanted) = @_;
		my @got = map { pack 'H*', $_ } split /\n/, $s->query($sql), -1;
		return join ', ', map { ($got[$_] // '') eq $wanted[$_] ? () : $order[$_] } 0 .. $#wanted;
	};
	my @shown = map { shown($data{$_}, 1024, $name eq 'LATIN1') } @order;
	my $columns = $bytes->('data') . " FROM zk_contenders('data') ORDER BY position";
	is($wrong->("SELECT $columns", @shown), '', "$name: the data");
	is($wrong->('SELECT ' . $bytes->('c') . " FROM zk_candidates('all') x (c)", @shown), '', '... the candidates');
	is($wrong->("SELECT coalesce(" . $bytes->('server') . ", '') FROM zk_contenders('data') ORDER BY position",
		map { defined $name{$_} ? shown($name{$_}, 1024, $name eq 'LATIN1') : '' } @order), '', '... the servers');
	my %node = map { shown("$_-lock-", 8192, $name eq 'LATIN1') => 1 } @names;
	my @nodes = map { pack 'H*', $_ } split /\n/, $s->query('SELECT ' . $bytes->('node') . " FROM zk_contenders('names')");
	my @locks = map { pack 'H*', $_ } split /\n/, $s->query('SELECT ' . $bytes->('name') . " FROM zk_lock_dirs()");
	my @wanted = map { shown($_, 1024, $name eq 'LATIN1') } 'data', 'names', "$auml$snow", grep { defined } values %directory;
	is(join("\n", sort @locks), join("\n", sort @wanted), '... the locks');
	# a number that is cut off with the rest is not to be seen
	s/\d{10}\z// for @nodes;
	is(join(', ', map { substr $_, 0, 20 } grep { !$node{$_} } @nodes), '', '... the nodes');
}

#
# The name of this server, and notifications
#
my $plain = raw('SQL_ASCII');
like($plain->fails("ALTER SYSTEM SET zklock.server_name = '$_'"), qr/^22023: invalid value for parameter "zklock\.server_name"/, 'no name of a server: ' . unpack 'H*', $_)
  for "\xe4", "\xed\xa0\x80", "x\xe2\x98";
like($plain->notices, qr/DETAIL:  The server name must be UTF-8\./, '... and why');
$plain->query("ALTER SYSTEM SET zklock.server_name = '" . 'x' . $auml x 200 . "'");
for my $name ('UTF8', 'SQL_ASCII', 'LATIN1', 'EUC_JP', 'MULE_INTERNAL')
{
	next unless $database{$name};
	my $s = raw($name);
	$s->query('LISTEN zklock');
	# the process that has sent the last one would send the next one, too, in its own database
	ZkLock::wait_until(sub { $admin->query("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'zklock notifier'") == 0 }, 'the notifier has gone');
	# the worker must have it before the server leads
	ZkLock::set($node, 'zklock.notify_database', $database{$name});
	my $election = "${auml}_$name";
	$admin->query("SELECT zk_is_leader('$election')");
	my $payload;
	ZkLock::wait_until(sub { ($payload) = $s->query('SELECT 1') =~ /payload "(.*?)" received/ }, 'notified');
	# 255 bytes are 127 of its letters
	my ($letter) = $name =~ /UTF8|ASCII/ ? $auml : $name eq 'LATIN1' ? "\xe4" : $name eq 'EUC_JP' ? "\x8f\xab\xa3" : '%C3%A4';
	is(unpack('H*', $payload), unpack('H*', "${letter}_$name:x" . $letter x 127), "$name: a notification");
	is($s->query("SELECT length(convert_to('$payload', getdatabaseencoding()))"), length $payload, '... which is valid there');
}
$admin->query('ALTER SYSTEM RESET zklock.notify_database');

#
# Settings, and what the library answers, in an error of a wait; the text has an end
# somewhere within a character.
#
for my $hosts ("x$snow$auml:1", join(',', map { "y$snow" . $auml x $_ . ':1' } 100 .. 103))
{
	$admin->query("ALTER SYSTEM SET zklock.hosts = '$hosts'");
	$node->reload;
	ZkLock::wait_until(sub { $admin->query('SELECT hosts, last_error FROM zk_session') =~ /^\Q$hosts\E\|.*$snow/ }, 'no such host');
	for my $name ('UTF8', 'LATIN1', 'EUC_JP')
	{
		my $s = ZkLock::session($node, dbname => $database{$name}, env => { PGOPTIONS => '-c zklock.connect_timeout=100ms' });
		is($s->fails("SELECT zk_lock('x')"), '58000: could not reach ZooKeeper within 100 ms', "$name: an unreachable host");
		my $shown = $name eq 'UTF8' ? "$hosts" : $name eq 'LATIN1' ? $hosts =~ s/$snow/%E2%98%83/gr =~ s/$auml/%C3%A4/gr : '.*%';
		like($s->notices, $name eq 'EUC_JP' ? qr/^DETAIL:  Connect string "/m : qr/^DETAIL:  Connect string "\Q$shown\E": /m, '... is shown');
		$s->quit;
	}
}
is($admin->query('SELECT pg_postmaster_start_time()'), $started, 'it is the same server');

done_testing();
