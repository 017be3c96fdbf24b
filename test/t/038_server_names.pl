# What a server is called: names that tell servers apart where nobody has given them any,
# and a word about two of one name.
use strict;
use warnings;

use Sys::Hostname qw(hostname);
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $heartbeats = "zklock.session_timeout = '6s'";

sub log_of { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }
sub of { my ($pattern) = @_; return grep { /^$pattern-[0-9a-f]{16}$/ } $zk->children('/zklock/servers'); }
my $told = qr/another live server has the name/;

# PostgreSQL's module starts a server with its own name for cluster_name.
sub start_as
{
	my ($node, $cluster_name) = @_;
	{
		local $node->{_name} = $cluster_name;
		$node->start;
	}
	ZkLock::ask($node, 'CREATE EXTENSION zklock');
	return $node;
}

sub server { my ($name, $cluster_name, $conf) = @_; return start_as(ZkLock::server($name, $zk, conf => $conf, start => 0), $cluster_name); }

#
# The default
#
my @debian = map { server("main$_", '15/main') } 1 .. 3;
my ($chosen, $slashed, $plain) = (server('chosen', 'A', $heartbeats), server('slashed', 'prod/1'), server('plain', ''));
my $host = hostname;
is(ZkLock::ask($_, "SELECT zk_is_leader('job', '1 h')"), $_ == $debian[0] ? 't' : 'f', $_->name . ' is a candidate') for @debian, $chosen, $slashed, $plain;
is(ZkLock::ask($plain, "SELECT array_to_string(zk_candidates('job'), ' ')"),
	join(' ', map({ "15/main\@$host:" . $_->port } @debian), 'A', 'prod/1', "$host:" . $plain->port),
	"Debian's default is made to tell servers apart, a name that was chosen stays");
is(scalar(of(quotemeta "15%2Fmain\@$host:" . $_->port)), 1, '... in their own znodes, too: ' . $_->name) for @debian;
ZkLock::ask($debian[0], "ALTER SYSTEM SET zklock.server_name = '15/main'");
$debian[0]->restart;
ZkLock::wait_connected($debian[0]);
is(scalar(of('15%2Fmain')), 1, 'zklock.server_name is taken as it is');
unlike(log_of($_), $told, $_->name . ' has found no other one of its name') for @debian, $chosen, $slashed, $plain;
$_->stop for @debian, $slashed, $plain;

#
# Two of one name
#
my $first = $chosen;
my $second = server('second', 'A', $heartbeats);
ZkLock::wait_until(sub { log_of($second) =~ $told }, 'the later one says so');
like(log_of($second), qr/LOG:  another live server has the name "A", too: \{"server": "A", "host": "\Q$host\E", "pid": \d+.*\}$/m, 'the later one says so, and who it is');
like(ZkLock::ask($second, 'SELECT last_error FROM zk_session'), $told, '... in last_error, too');
$_->stop for $first, $second;

#
# Of one's own earlier session there may be a node, and nobody writes it; and names that
# begin alike are others.
#
my $other = $zk->client;
my $mark = '0123456789abcdef';
my $old = "/zklock/servers/a%2Fb-$mark";
$other->create($old, mode => 'ephemeral', data => '{"server": "a/b", "host": "h", "pid": 1}');
my @others = map { "/zklock/servers/$_" } "a%2Fb-c-$mark", "a%2Fb-$mark-$mark", "a%2Fb-" . uc $mark, "a%2Fb";
$other->create($_, mode => 'ephemeral') for @others;
my $lasting = "/zklock/servers/a%2Fb-fedcba9876543210";
$other->create($lasting);
my $node = server('node', 'a/b', $heartbeats);
my ($own) = grep { !/$mark$|fedcba9876543210$/ } of('a%2Fb');
my $writes = sub { return $zk->stat("/zklock/servers/$own")->{version}; };

# Each is followed by a look at the others, and by one more before the next.
sub wait_heartbeats
{
	my $from = $writes->();
	ZkLock::wait_until(sub { $writes->() > $from + 3 }, 'heartbeats');
}
$other->set($_, 'x') for @others, $lasting;
wait_heartbeats();
unlike(log_of($node), $told, 'a node that nobody writes is no live server, nor is one of another name');
$other->set($old, '{"server": "a/b", "host": "' . 'h' x 300 . "\xff");
ZkLock::wait_until(sub { log_of($node) =~ $told }, 'one that somebody writes is');
like(log_of($node), qr/another live server has the name "a\/b", too: \{"server": "a\/b", "host": "h{173}\.\.\.$/m, 'one that somebody writes is');
$other->set($old, 'x');
wait_heartbeats();
kill 'TERM', my $worker = ZkLock::ask($node, 'SELECT worker_pid FROM zk_session');
ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT worker_pid <> $worker AND state = 'connected' FROM zk_session") eq 't' }, 'the next worker');
wait_heartbeats();
is(scalar(() = log_of($node) =~ /$told/g), 1, '... and that is said once');

done_testing();
