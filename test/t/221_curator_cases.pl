# What Curator's own tests ask of InterProcessMutex, InterProcessSemaphoreMutex and LeaderLatch,
# asked of zklock's locks, semaphores with one permit and elections.  Each test here begins
# with the name of Curator's; doc/judged.md has the list, with those that say nothing of zklock.
#
# A party is a session of a server, or a Curator client in the same queue.  Sessions of
# ZooKeeper last an hour, but for that of server C, which is there to end, and may do so
# whenever the machine is slow.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Java;
use Proxy;
use Test::More;
use ZkLock;
use ZooKeeper;

plan skip_all => 'no Curator, or no JDK' unless Java::there();
Java::compile('Latch', 'Mutex');

my $hour = 3_600_000;
my $zk = ZooKeeper->new(container_check_ms => 200)->start;
my $conf = "autovacuum = off\nzklock.notify_database = 'postgres'";
my %timeout = (a => '1h', b => '1h', c => '2s');
my $proxy = Proxy->new($zk->host);
my %node = map { $_ => ZkLock::server($_, $_ eq 'b' ? $proxy : $zk, conf => "$conf\nzklock.session_timeout = '$timeout{$_}'\ncluster_name = '$_'") } qw(a b c);
ZkLock::wait_connected(values %node);

# The ensemble goes and comes back; the sessions outlast that.
sub without_ensemble
{
	my $code = shift;
	$zk->stop;
	ZkLock::wait_until(sub { ZkLock::ask($node{$_}, 'SELECT state FROM zk_session') ne 'connected' }, "$_ notices") for qw(a b);
	$code->() if $code;
	$zk->start;
	ZkLock::wait_connected(@node{qw(a b)});
	return;
}

# The worker of C is stopped, and ZooKeeper ends C's session; meanwhile.
sub without_session
{
	my $code = shift;
	my $worker = ZkLock::stop_process($node{c}, ZkLock::ask($node{c}, 'SELECT worker_pid FROM zk_session'));
	my $id = ZkLock::ask($node{c}, 'SELECT session_id FROM zk_session');
	ZkLock::wait_until(sub { !$zk->sessions->{$id} }, "the session of c has ended");
	$code->() if $code;
	kill 'CONT', $worker or die "could not continue $worker: $!";
	ZkLock::wait_until(sub { ZkLock::ask($node{c}, "SELECT state = 'connected' AND session_id <> '$id' FROM zk_session") eq 't' }, 'c has another session');
	return;
}

#
# Parties: they take, hold and leave one name
#
package Party;

my %call = (
	lock => {
		take => q{SELECT FROM zk_lock('%s', scope => 'session')},
		briefly => q{SELECT FROM zk_lock('%s')},
		try => q{SELECT zk_try_lock('%s', scope => 'session', timeout => '10ms')},
		leave => q{SELECT zk_unlock('%s')},
		directory => 'locks',
	},
	permit => {
		take => q{SELECT FROM zk_acquire('%s', 1, scope => 'session')},
		briefly => q{SELECT FROM zk_acquire('%s', 1)},
		try => q{SELECT zk_try_acquire('%s', 1, scope => 'session', timeout => '10ms')},
		leave => q{SELECT zk_release('%s')},
		directory => 'semaphores',
	});

# WHERE: a, b or c, or java
sub new
{
	my ($class, $where, $kind, $name) = @_;
	my $self = bless { where => $where, kind => $kind, name => $name }, $class;
	if ($where eq 'java') { $self->{java} = Java->start('Mutex', $zk->hosts, ZkLock::directory($name), $hour); }
	else { $self->{session} = ZkLock::session($node{$where}); }
	return $self;
}

sub sql { my ($self, $what) = @_; return sprintf $call{ $self->{kind} }{$what}, $self->{name}; }
sub one { my $self = shift; return $self->{java} // $self->{session}; }

sub send_take { my $self = shift; $self->one->send($self->{java} ? 'acquire' : $self->sql('take')); return $self; }
sub taken { my $self = shift; return $self->{java} ? $self->{java}->answer : $self->{session}->result; }
sub take { my $self = shift; $self->send_take->taken; return $self; }
sub busy { my $self = shift; return $self->one->busy; }
sub try { my $self = shift; return $self->{java} ? $self->{java}->ask('acquire 10') : $self->{session}->query($self->sql('try')); }
sub leave { my $self = shift; return $self->{java} ? $self->{java}->ask('release') : $self->{session}->query($self->sql('leave')); }

sub has
{
	my $self = shift;
	return $self->{java}->ask('has') eq 'true' ? 't' : 'f' if $self->{java};
	return $self->{session}->query("SELECT EXISTS (SELECT FROM zk_locks WHERE pid = pg_backend_pid() AND name = '$self->{name}' AND granted)");
}

# Until it waits and has its place
sub waits
{
	my $self = shift;
	if ($self->{java})
	{
		my $there = ZkLock::queue($zk, $self->{name});
		$self->send_take;
		ZkLock::wait_queue($zk, $self->{name}, $there + 1);
	}
	else
	{
		my $session = $self->send_take->{session};
		my $pid = $session->pid;
		my $sql = "SELECT EXISTS (SELECT FROM zk_locks AS wait WHERE pid = $pid AND NOT granted AND (cardinality(pg_blocking_pids($pid)) > 0 OR EXISTS (SELECT FROM zk_contenders(wait.name) AS own WHERE own.ours AND NOT own.granted)))";
		ZkLock::wait_until(sub { ZkLock::ask($session->{node}, $sql) eq 't' }, "$self->{where} waits");
	}
	return $self;
}

# Takes it, or waits for it: true if it waits
sub comes
{
	my $self = shift;
	my $pid = $self->send_take->{session}->pid;
	my $sql = "SELECT count(*) FROM zk_locks WHERE pid = $pid AND NOT granted";
	ZkLock::wait_until(sub { !$self->busy || ZkLock::ask($self->{session}{node}, $sql) }, "$self->{where} has it or waits");
	return $self->busy;
}

package main;

sub party { return Party->new(@_); }

# The worker of who has left it may be slower than who does not wait.
sub gets
{
	my ($party, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(ZkLock::wait_until(sub { $party->try eq 't' }, 'it is free'), $what);
}

# Of a lock two sessions of one server, of two, and a session and a Curator client, either first.
my @sql = ([qw(a a)], [qw(a b)]);
my %pairs = (lock => [ @sql, [qw(a java)], [qw(java a)] ], permit => \@sql);
my $number = 0;
sub pair { my ($kind, $pair) = @_; my $name = 'x' . ++$number; return map { party($_, $kind, $name) } @$pair; }

#
# TestInterProcessMutexBase, of both kinds of mutex
#
for my $kind (qw(lock permit))
{
	my $of = "of a $kind";
	{
		my $s = party('a', $kind, 'locker');
		my $session = $s->{session};
		$session->query('BEGIN; ' . $s->sql('briefly'));
		is($s->has, 't', "testLocker $of: a transaction has it");
		$session->query('COMMIT');
		is($s->has, 'f', '... and nobody after its end');
		$session->fails('BEGIN; ' . $s->sql('briefly') . '; SELECT 1/0');
		gets(party('b', $kind, 'locker'), '... nor after an error');
	}
	for my $pair (@{ $pairs{$kind} })
	{
		my ($first, $second) = pair($kind, $pair);
		$first->take;
		$second->waits;
		without_ensemble();
		ok($second->busy, "testWaitingProcessKilledServer $of, @$pair: the second waits on");
		$first->leave;
		$second->taken;
		is($first->has . $second->has, 'ft', '... and has it in its turn');
		$second->leave;
	}
	for my $pair (@{ $pairs{$kind} })
	{
		my ($first, $second) = pair($kind, $pair);
		$first->take;
		$second->waits;
		is($first->has, 't', "test2Clients $of, @$pair: one has it");
		ok($second->busy, '... and the other waits');
		$first->leave;
		$second->taken;
		is($first->has . $second->has, 'ft', '... in turn');
		$second->leave;
	}
	{
		my ($first, $second);
		my $both = sub {
			my $pair = shift;
			ZkLock::wait_until(
				sub {
					($first, $second) = pair($kind, $pair);
					return $first->{session}->fails($first->sql('take')) eq '' && $second->comes;
				},
				"one of @$pair has it, the other waits");
		};
		$both->([qw(c a)]);
		without_session(sub { $second->taken; });
		is($second->has, 't', "testKilledSession $of: another server gets it");
		like($first->{session}->fails('SELECT 1'), qr/^55000: .* was lost/, '... and the holder is told');
		$second->leave;

		# the same server: when the first session has been told
		$both->([qw(c c)]);
		without_session();
		like($first->{session}->fails('SELECT 1'), qr/^55000: .* was lost/, '... on its own server the holder is told');
		$first->{session}->fails($first->sql('leave'));
		$second->taken;
		is($second->has, 't', '... and then the other gets it');
		$second->leave;
	}
	{
		my @ten = map { party($_ % 2 ? 'b' : 'a', $kind, 'ten') } 1 .. 10;
		my $first = shift @ten;
		$first->take;
		$_->waits for @ten;
		my ($most, $holder) = (1, $first);
		while (@ten)
		{
			$holder->leave;
			ZkLock::wait_until(sub { grep { !$_->busy } @ten }, 'the next has it');
			my @have = grep { !$_->busy } @ten;
			$most = @have if @have > $most;
			$holder = $have[0];
			my $had = $holder;
			@ten = grep { $_ != $had } @ten;
		}
		$holder->leave;
		is($most, 1, "testReentrantSingleLock $of: ten in turn, one at a time");
		my $directory = ZkLock::directory('ten', $call{$kind}{directory});
		ok(ZkLock::wait_until(sub { !$zk->stat($directory) }, 'it is removed'), "testContainerCleanup $of: the directory is removed");
	}
	{
		my ($s, $other) = pair($kind, [qw(a b)]);
		$s->take->take;
		is($other->try, 'f', "testReentrant2Threads $of: a second session does not get it meanwhile");
		$s->take;
		is(join('', map { $s->leave . $s->has } 1 .. 3), 'tttttf', "testReentrant $of: taken three times, given back with the third");
		is($s->leave, 'f', '... and not once more');
		gets($other, '... when the other gets it');
		$other->leave;
	}
	{
		my ($inside, $outside) = pair($kind, [qw(a b)]);
		$inside->{session}->query("SET zklock.namespace = 'test'");
		$inside->take;
		is($outside->try, 't', "testWithNamespace $of: a name in a namespace is another one");
		my $directory = ZkLock::directory($inside->{name}, $call{$kind}{directory}) =~ s{([^/]+)$}{test%FF$1}r;
		is($zk->children($directory), 1, '... and has its own directory');
		is($inside->leave . $outside->leave, 'tt', '... both are given back');
	}
}

#
# TestInterProcessMutex
#
{
	my ($holder, $waiter) = pair('lock', [qw(a b)]);
	my $name = $holder->{name};
	$holder->take;
	$waiter->waits;
	my $curator = party('java', 'lock', $name);
	is($curator->{java}->ask('revoke'), 'asked', 'testRevoking: a Curator client asks the holder to give it up');
	is($holder->{session}->query("SELECT zk_assert('$name') = zk_token('$name')"), 't', '... which does not listen');
	ok($waiter->busy, '... so that the other waits on');
	is(ZkLock::ask($node{b}, "SELECT zk_break('$name', token) FROM zk_contenders('$name') WHERE granted"), 't', '... an administrator takes it away');
	$waiter->taken;
	# the server of the holder may hear of it later than that of the waiter
	my $told;
	ZkLock::wait_until(sub { ($told = $holder->{session}->fails('SELECT 1')) ne '' }, 'the holder is told');
	like($told, qr/^55000: lock "$name" was lost/, '... which the holder is told');
	$waiter->leave;
}
{
	# Curator's test has a mutex make its node so.
	my $name = 'persistent';
	my $maker = $zk->client;
	$zk->create(ZkLock::directory($name), mode => 'container');
	my $path = $maker->create(ZkLock::directory($name) . '/_c_0a-lock-', mode => 'sequential', data => '');
	$maker->close;
	my $s = party('a', 'lock', $name)->waits;
	ok($zk->stat($path), 'testPersistentLock: a node without a session of its own holds the lock');
	$zk->delete($path);
	$s->taken;
	is($s->has, 't', '... until it is deleted');
	$s->leave;
}

#
# TestLeaderLatch.  The candidate is a server, or a Curator client.
#
sub leads { my ($server, $election) = @_; return ZkLock::ask($node{$server}, "SELECT zk_is_leader('$election', '1 h')") eq 't'; }
sub leads_now { my ($server, $election) = @_; return ZkLock::ask($node{$server}, "SELECT zk_is_leader('$election', '0')") eq 't'; }
sub resigns { my ($server, $election) = @_; return ZkLock::ask($node{$server}, "SELECT zk_resign('$election')"); }
sub leaders { my ($election, @servers) = @_; return join '', grep { leads($_, $election) } @servers; }
sub wait_leader { my ($election, @servers) = @_; return ZkLock::wait_until(sub { leaders($election, @servers) }, "one of @servers leads $election"); }
sub candidates { my $election = shift; return ZkLock::ask($node{a}, "SELECT ARRAY(SELECT server FROM zk_candidates('$election'))"); }
sub wait_candidates { my ($election, $expected) = @_; my $seen; return ZkLock::wait_until(sub { ($seen = candidates($election)) eq $expected }, "the candidates of $election are $expected", sub { $seen }); }
sub latch { my ($election, $id) = @_; return Java->start('Latch', $zk->hosts, ZkLock::directory($election, 'elections'), $id, $hour); }

is(candidates('uncreated'), '{}', 'testUncreatedPathGetLeader: nobody leads where there is no directory');
for my $name ('', 'x' x 256) { isnt(ZkLock::session($node{a})->fails("SELECT zk_is_leader('$name')"), '', 'testRelativePath: no name, ' . length($name) . ' bytes'); }

# Four candidates in a row
is(leaders('basic', qw(a b)), 'a', 'testBasic: the first candidate leads');
my $latch = latch('basic', 'java');
wait_candidates('basic', '{a,b,java}');
leads('c', 'basic');
ok(wait_candidates('basic', '{a,b,java,c}'), '... the others queue');
resigns('b', 'basic');
ok(leads('a', 'basic') && $latch->ask('has') eq 'false', 'testCorrectWatching: one in the middle goes, and nobody else leads');
resigns('a', 'basic');
ok(ZkLock::wait_until(sub { $latch->ask('has') eq 'true' }, 'the latch leads'), 'testBasic: the next one leads when the leader goes');
is(leaders('basic', 'c'), '', '... alone');
is($latch->ask('close'), 'closed', '... closes');
is(wait_leader('basic', 'c'), 'c', '... and then the last one leads');
resigns('c', 'basic');
ok(wait_candidates('basic', '{}'), '... which goes, too');

# Several that come at once
{
	my %s = map { $_ => ZkLock::session($node{$_}) } qw(a b);
	$_->send("SELECT zk_is_leader('alt', '1 h')") for values %s;
	is(join('', sort map { $_->result } values %s), 'ft', 'testBasicAlt: of those who come at once one leads');
	my %left = %s;
	my @each;
	while (%left)
	{
		my @leaders = split //, wait_leader('alt', sort keys %left);
		push @each, scalar @leaders;
		resigns($leaders[0], 'alt');
		delete $left{ $leaders[0] };
	}
	is("@each", '1 1', '... and then the other');
}

# Ten in turn
{
	my @ten = map { ZkLock::session($node{ $_ % 2 ? 'b' : 'a' }) } 1 .. 10;
	my ($turns, $together) = (0, 0);
	while (@ten)
	{
		my $leader = wait_leader('turns', qw(a b));
		$together++ if length $leader > 1;
		my ($s) = grep { $_->{node} == $node{$leader} } @ten;
		$turns++ if $s && $s->fails("SELECT zk_require_leader('turns')") eq '';
		@ten = grep { !$s || $_ != $s } @ten;
		resigns($leader, 'turns');
	}
	is("$turns $together", '10 0', 'testWaiting: ten sessions that require the leadership have it in turn');
}

# Again and again at the end of the queue
{
	is(leaders('reset', qw(a b)), 'a', 'testResettingOfLeadershipAfterConcurrentLeadershipChange: the first leads');
	my %s = map { $_ => ZkLock::session($node{$_}) } qw(a b);
	$s{$_}->send("SELECT zk_resign('reset'), zk_is_leader('reset', '1 h')") for qw(a b);
	$_->result for values %s;
	like(wait_leader('reset', qw(a b)), qr/^[ab]$/, '... both resign and come again: one leads');
	is(scalar ZkLock::wait_queue($zk, 'reset', 2, 'elections'), 2, '... and each has one contender');
	my @many = map { ZkLock::session($node{a}) } 1 .. 8;
	$_->send("SELECT zk_is_leader('race'), zk_resign('race'), zk_is_leader('race', '1 h')") for @many;
	$_->result for @many;
	is(scalar ZkLock::wait_queue($zk, 'race', 1, 'elections'), 1, 'testResetRace: eight sessions resign and come again: one contender');
	$_->send("SELECT zk_is_leader('gone', '0'), zk_resign('gone')") for @many;
	$_->result for @many;
	is(scalar ZkLock::wait_queue($zk, 'gone', 0, 'elections'), 0, 'testCreateDeleteRace: they come and resign: none');
}

# What is told
{
	my $heard = '';
	my $listener = ZkLock::session($node{a});
	$listener->query('LISTEN zklock');
	my $hear = sub {
		my $mark = shift;
		leads('a', $mark);
		ZkLock::wait_until(sub { ($heard .= $listener->query('SELECT 1') . $listener->notices) =~ /payload "$mark:/ }, "$mark is heard");
		my @told = $heard =~ /payload "told(:\w*)"/g;
		$heard = '';
		return join ' ', @told;
	};
	for (1 .. 2)
	{
		wait_leader('told', 'a');
		resigns('a', 'told');
	}
	is($hear->('mark1'), ':a : :a :', 'testCallbackSanity: leading twice is told twice, and so are the ends');
	# A has left the queue, and B leads
	ZkLock::wait_queue($zk, 'told', 0, 'elections');
	wait_leader('told', 'b');
	leads('a', 'told');
	resigns('a', 'told');
	is($hear->('mark2'), '', 'testCallbackDontNotify: who does not lead, and resigns, is told nothing');
	leads('a', 'told');
	resigns('b', 'told');
	wait_leader('told', 'a');
	resigns('a', 'told');
	is($hear->('mark3'), ':a :', 'testCallbackNotifyLeader: who leads, and resigns, is told');
}

# Without the ensemble, and without a session
is(leaders('outage', qw(a b)), 'a', 'testSessionErrorPolicy: a server leads');
my @before = ZkLock::queue($zk, 'outage', 'elections');
without_ensemble(
	sub {
		ok(leads('a', 'outage'), '... and while the ensemble is away, as long as its lease is good');
		my $s = ZkLock::session($node{a});
		is($s->query("SELECT zk_is_leader('never', '0')"), 'f', 'testProperCloseWithoutConnectionEstablished: a new candidate does not lead');
		is($s->query("SELECT zk_resign('never')"), 't', '... and resigns');
	});
ok(leads('a', 'outage'), 'testSessionErrorPolicy: it leads when the ensemble is back');
is(join(' ', ZkLock::queue($zk, 'outage', 'elections')), "@before", '... with the same contenders');
ok(wait_candidates('never', '{}'), 'testProperCloseWithoutConnectionEstablished: it is no candidate');

leads('c', 'expires');
leads('a', 'expires');
without_session(
	sub {
		is(wait_leader('expires', 'a'), 'a', "testSessionInterruptionDoNotCauseBrainSplit: a leader's session ends, and the next one leads");
		ok(!leads_now('c', 'expires'), '... and the old one does not');
	});
is(leaders('expires', qw(a c)), 'a', '... nor when it is back');

my @five = map { "circuit$_" } 1 .. 5;
ok(leads('c', $_), "testWithCircuitBreaker: $_ has a leader") for @five;
for (1, 2)
{
	$zk->stop;
	ZkLock::wait_until(sub { !grep { leads_now('c', $_) } @five }, 'c leads none');
	ok(!grep({ leads_now('c', $_) } @five), 'testLostConnection, testErrorPolicies: it leads none when its lease has lapsed');
	$zk->start;
	is(wait_leader($_, 'c'), 'c', "... and $_ again when the ensemble is back") for @five;
}

$zk->stop;
ZkLock::hang_up($node{c});
$node{c}->append_conf('postgresql.conf', "zklock.session_timeout = '1h'");
$node{c}->restart;
ok(!leads_now('c', 'start'), 'testNoServerAtStart: nobody leads without the ensemble');
$zk->start;
ok(leads('c', 'start'), '... one does when it is there');
is(ZkLock::ask($node{c}, "SELECT changes FROM zk_elections WHERE election = 'start'"), 1, '... once');
ZkLock::wait_connected(values %node);

# The node that a candidate would watch is gone when it looks.
is(leaders('watched', qw(a b)), 'a', 'testWatchedNodeDeletedOnReconnect: a server waits for the leader');
$latch = latch('watched', 'java');
wait_candidates('watched', '{a,b,java}');
$zk->stop;
my ($ra, $rb) = map { ZkLock::session($node{$_}) } qw(a b);
is($ra->query("SELECT zk_resign('watched')") . $rb->query("SELECT zk_resign('watched')"), 'tt', '... both resign without a connection');
$zk->start;
ok(ZkLock::wait_until(sub { $latch->ask('has') eq 'true' }, 'the latch leads'), '... and the third leads');
is(candidates('watched'), '{java}', '... the only candidate');
$latch->kill;

# ... or has been in its listing, and goes before it is watched
ok(leads('a', 'listed'), 'testLeadershipElectionWhenNodeDisappearsAfterChildrenAreRetrieved: a server leads');
$proxy->trace;
$proxy->hole('down');
my $late = ZkLock::session($node{b})->send("SELECT zk_is_leader('listed', '1 h')");
ZkLock::wait_until(sub { grep { m{^children /zklock/elections/listed$} } $proxy->trace }, 'the next one has asked who is there');
resigns('a', 'listed');
ZkLock::wait_queue($zk, 'listed', 1, 'elections');
$proxy->heal;
$late->result;
is(wait_leader('listed', 'b'), 'b', '... and goes when another has listed it, which then leads');

# The ensemble forgets all.
for my $name (qw(a b))
{
	ZkLock::hang_up($node{$name});
	$node{$name}->append_conf('postgresql.conf', "zklock.session_timeout = '8s'");
	$node{$name}->restart;
}
ZkLock::wait_connected(values %node);
like(wait_leader('wiped', qw(a b)), qr/^[ab]$/, 'testGetChildrenHitsNoNode: a server leads');
$zk->stop->wipe->start;
my $together = 0;
ZkLock::wait_until(
	sub {
		# who leads by an old lease says so until that has lapsed
		my ($is_a, $is_b) = map { leads_now($_, 'wiped') } qw(a b);
		$together++ if $is_b && leads_now('a', 'wiped') && leads_now('b', 'wiped');
		return ($is_a || $is_b) && ZkLock::queue($zk, 'wiped', 'elections') == 2;
	},
	'both are there, and one leads');
is($together, 0, '... the ensemble is made anew, and one leads');

done_testing();
