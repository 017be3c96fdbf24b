# Replies that are damaged on their way, or come from a faulty server: the
# connection is closed, the log says why, and nothing else happens.  No process crashes, the
# ZooKeeper session lives, what is held is held, and what was asked is asked again.
use strict;
use warnings;

use Test::More;
use Proxy;
use ZkLock;

# Any other test fails whose servers log such a line.
$ZkLock::damaging = 1;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->host);
my $a = ZkLock::server('a', $proxy);
ZkLock::wait_connected($a);
my $s = ZkLock::session($a);
my $keeper = ZkLock::session($a);
$keeper->query("SELECT zk_lock('kept', scope => 'session')");

# What must stay.
sub state_of_it
{
	return join ' ', $keeper->pid, $s->pid, ZkLock::ask($a, 'SELECT worker_pid, session_id FROM zk_session'),
	  ZkLock::ask($a, 'SELECT pg_postmaster_start_time()'), $zk->stat(ZkLock::directory('kept') . '/' . (ZkLock::queue($zk, 'kept'))[0])->{czxid};
}
my $state = state_of_it();

sub log_of { return PostgreSQL::Test::Utils::slurp_file($a->logfile); }
my $damage = qr/LOG:  (?:closed the connection to ZooKeeper server 127\.0\.0\.1:\d+, from which damaged data came: |could not connect to ZooKeeper server 127\.0\.0\.1:\d+: what it answers is not ZooKeeper's \()/;
sub lines { my $said = shift; return scalar(() = log_of() =~ /$damage[^\n]*$said/g); }
sub last_error { return ZkLock::ask($a, 'SELECT last_error FROM zk_session'); }

# Nothing else remembers an old name: each case has its own.
my $n = 0;

# One case: what is damaged, how, what the log says of it, and what brings it about.
sub damaged
{
	my ($what, $kind, $path, $how, $said, $act) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($before, $lost) = (lines($said), $proxy->lost);
	$proxy->damage($kind, $path, @$how);
	$act->();
	ZkLock::wait_until(sub { $proxy->lost > $lost && lines($said) > $before },
		"$what: the log says $said", sub { join "\n", $proxy->lost - $lost, (split /\n/, log_of())[ -10 .. -1 ] });
	ZkLock::wait_connected($a);
	# which is written after the line
	my $seen;
	ZkLock::wait_until(sub { ($seen = last_error()) =~ /(?:damaged data came: |not ZooKeeper's \().*$said/ }, "$what: so does last_error", sub { $seen });
	pass("$what: so does last_error");
	$n++;
	is($s->query("BEGIN; SELECT zk_lock('after$n') > 0; COMMIT"), 't', "$what: a lock can be had");
	is(state_of_it(), $state, "$what: nothing else has happened");
}

# A lock in a directory that is there, and given back.
sub lock_in
{
	my $name = shift;
	return sub {
		is($s->query("BEGIN; SELECT zk_lock('$name') > 0; COMMIT"), 't', "$name: a lock is had");
	};
}

#
# What answers a create: 4 bytes length, xid at 4, zxid at 8, error at 16, the path's length
# at 20, the Stat in the last 68
#
my $unasked = '00000010' . '7ffffff0' . '0000000000000001' . '00000000';
for my $case (
	[ 'another xid', ['at=4:7fffffff'], 'does not answer the oldest request' ],
	[ 'xid of an event', ['at=4:ffffffff'], 'an event has a wrong type' ],
	[ 'xid of a ping', ['at=4:fffffffe'], 'nothing of its kind is open' ],
	[ 'xid of credentials', ['at=4:fffffffc'], 'nothing of its kind is open' ],
	[ 'xid of watches', ['at=4:fffffff8'], 'nothing of its kind is open' ],
	[ 'an xid below zero', ['at=4:80000000'], 'does not answer the oldest request' ],
	[ 'an error above zero', ['at=16:00000001'], 'its error code is none' ],
	[ 'an error that has a body', ['at=16:ffffff9b'], 'it is longer than what it says' ],
	[ 'a body cut short', ['cut=1'], 'it is too short for what it says' ],
	[ 'half a Stat', ['cut=34'], 'it is too short for what it says' ],
	[ 'no Stat', ['cut=68'], 'it is too short for what it says' ],
	[ 'a byte more', ['add=00'], 'it is longer than what it says' ],
	[ 'much more', [ 'add=' . '00' x 500 ], 'it is too long' ],
	[ 'a length without memory', ['at=0:7fffffff'], 'its length is none' ],
	[ 'a length below zero', ['at=0:ffffffff'], 'its length is none' ],
	[ 'no length', ['at=0:00000000'], 'its length is none' ],
	[ 'a length too short', ['plus=0:-1'], 'it is too short for what it says' ],
	[ 'a length too long', ['plus=0:1'], 'it is longer than what it says' ],
	[ 'twice', ['twice'], '(?:does not answer the oldest request|nothing is open)' ],
	[ 'what nobody has asked for before it', ["before=$unasked"], 'does not answer the oldest request' ],
	[ 'what nobody has asked for behind it', ["then=$unasked"], '(?:does not answer the oldest request|nothing is open)' ],
	[ 'a path without memory', ['at=20:7fffffff'], 'it is too short for what it says' ],
	[ 'a path below zero', ['at=20:ffffffff'], 'a string has a wrong length' ],
	[ 'a path too short', ['plus=20:-1'], 'a Stat ' ],
	[ 'a path too long', ['plus=20:1'], 'a string has a zero in it' ],
	[ 'a path that is none', ['at=24:00'], 'a string has a zero in it' ],
	[ 'a czxid out of path bytes', ['at=-68:6e2d'], 'a Stat has transactions in a wrong order' ],
	[ 'a czxid and an mzxid that are', ['at=-68:6e2d', 'at=-60:6e2d'], 'a Stat is newer than its reply' ],
	[ 'transactions of another epoch', [ 'at=8:6e2d', 'at=-68:6e2d', 'at=-60:6e2d' ], 'its transaction is far ahead' ],
	[ 'children below zero', ['at=-12:ffffffff'], 'a Stat has a wrong number of children' ])
{
	my ($what, $how, $said) = @$case;
	my $name = 'created' . ++$n;
	$zk->create("/zklock/locks/$name", mode => 'container');
	damaged("create: $what", create => "/locks/$name", $how, $said, lock_in($name));
}

#
# A listing: the number of children at 20, the first one's length at 24
#
for my $case (
	[ 'no list', ['at=20:ffffffff'], 'a list has a wrong length' ],
	[ 'a list without memory', ['at=20:7fffffff'], 'a list has a wrong length' ],
	[ 'a child more', ['plus=20:1'], '' ],
	[ 'a child less', ['plus=20:-1'], '' ],
	[ 'a child without memory', ['at=24:7fffffff'], 'it is too short for what it says' ],
	[ 'a child below zero', ['at=24:fffffffe'], 'a string has a wrong length' ],
	[ 'a number of children', ['plus=-12:1'], 'a Stat has a wrong number of children' ],
	[ 'a length far too long', ['at=0:30000000'], 'it is longer than what it says' ])
{
	my ($what, $how, $said) = @$case;
	my $name = 'listed' . ++$n;
	$zk->create("/zklock/locks/$name", mode => 'container');
	damaged("children: $what", children => "/locks/$name", $how, $said, lock_in($name));
}

#
# What has no body
#
for my $case ([ 'a body', ['add=00'], 'it is too long' ], [ 'cut short', ['cut=2'], 'its length is none' ])
{
	my ($what, $how, $said) = @$case;
	my $name = 'deleted' . ++$n;
	damaged("delete: $what", delete => "/locks/$name", $how, $said, lock_in($name));
}

#
# A multi: the first result's type at 20, whether that is none at 24
#
for my $case (
	[ 'a type', ['at=20:00000007'], 'a multi has a result of a wrong type' ],
	[ 'an end', ['at=24:01'], 'a multi has too few results' ],
	[ 'no end', ['at=-5:00'], 'a multi has too many results' ],
	# it writes our server's node, and then makes contenders
	[ 'a Stat', ['at=29:7fffffff'], 'a Stat has transactions in a wrong order' ],
	[ 'a path', ['at=106:7fffffff'], 'it is too short for what it says' ])
{
	my ($what, $how, $said) = @$case;
	my @names = map { 'all' . ++$n } 1 .. 2;
	$zk->create("/zklock/locks/$_", mode => 'container') for @names;
	damaged("multi: $what", multi => '', $how, $said,
		sub { like($s->query("BEGIN; SELECT zk_lock_all('$names[0]', '$names[1]'); COMMIT"), qr/^\{\d+,\d+\}$/, "$what: both") });
}

#
# An event: type at 20, state at 24, the path's length at 28
#
for my $case (
	[ 'a type', ['at=20:00000063'], 'an event has a wrong type' ],
	[ 'the end of the session', [ 'at=20:ffffffff', 'at=24:ffffff90' ], 'an event has a wrong type' ],
	[ 'a state', ['at=24:ffffff90'], 'an event has a wrong state' ],
	[ 'a path too long', ['plus=28:1'], 'it is too short for what it says' ],
	[ 'a path below zero', ['at=28:ffffffff'], 'a string has a wrong length' ],
	[ 'no path', ['cut=20'], 'it is too short for what it says' ])
{
	my ($what, $how, $said) = @$case;
	my $name = 'watched' . ++$n;
	$zk->create("/zklock/locks/$name", mode => 'persistent');
	my $other = $zk->create("/zklock/locks/$name/lock-", mode => 'ephemeral_sequential');
	$s->send("BEGIN; SELECT zk_lock('$name') > 0")->wait_level(2);
	ZkLock::wait_until(sub { grep { $_ eq $other } $zk->watches }, "$name: the waiter watches");
	damaged("event: $what", event => $name, $how, $said, sub { $zk->delete($other); is($s->result, 't', "$name: it waits no more"); $s->query('COMMIT'); });
}

#
# A session: the timeout at 8, the id at 12, the password's length at 20
#
for my $case (
	[ 'no timeout', ['at=8:00000000'], 'a timeout that cannot be' ],
	[ 'a timeout below zero', ['at=8:ffff0000'], 'a timeout that cannot be' ],
	[ 'a timeout of days', ['at=8:7fff0000'], 'a timeout that cannot be' ],
	[ 'no id', ['at=12:0000000000000000'], 'no session has a timeout' ],
	[ 'another id', ['at=12:0000000000000007'], 'another session than was asked for' ],
	[ 'a password too long', ['at=20:00000011'], '' ],
	[ 'another version', ['at=4:00000001'], 'of an unknown version' ],
	[ 'a length without memory', ['at=0:7fffffff'], 'its length is none' ],
	[ 'a length too short', ['at=0:00000010'], 'its length is none' ])
{
	my ($what, $how, $said) = @$case;
	damaged("session: $what", session => '', $how, $said, sub { $proxy->cut });
}

# In fewer bytes than one has
for my $cut (21, 25, 36)
{
	my $short = 41 - $cut;
	damaged("session: in $short bytes", session => '', ["cut=$cut"], 'its length is none', sub { $proxy->cut });
}

is($keeper->query("SELECT zk_assert('kept') > 0"), 't', 'what was held is held');
unlike(log_of(), qr/terminated by signal|all server processes terminated|PANIC/, 'nothing has crashed');
$keeper->quit;

#
# Somebody who answers something else each time, and in pieces: the log says so once, until
# there was a good connection.
#
my @rubbish = map { unpack 'H*', $_ } "\0" x 400, pack('N', 37) . "\1" x 37, pack('N', 16) . "\0" x 16, "HTTP/1.1 400 Bad Request\r\n\r\n",
  pack('N/a', pack 'N N q> N/a C', 0, 0, 0x1234567, "\0" x 16, 0), pack('N/a', pack 'N N q> N/a C', 0, 12_000, 0x1234567, 'x' x 16, 0);
for my $outage (1, 2)
{
	my ($accepted, $lines) = ($proxy->accepted, lines(''));
	$proxy->rubbish(@rubbish)->cut;
	ZkLock::wait_until(sub { $proxy->accepted > $accepted + @rubbish }, "outage $outage: each answer is tried");
	ZkLock::wait_until(sub { lines('') > $lines }, '... the log says so');
	is(lines(''), $lines + 1, '... the log says so once');
	$proxy->heal;
	ZkLock::wait_connected($a);
	is($s->query("BEGIN; SELECT zk_lock('outage$outage') > 0; COMMIT"), 't', '... and afterwards a lock can be had');
}
ZkLock::ok_clean($zk, [$a], $_) for 'kept', 'created1';

done_testing();
