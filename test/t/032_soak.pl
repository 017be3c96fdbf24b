# Everything at once, for ten seconds, and until there was enough of each.
#
# Several sessions on two servers take a few names in random modes and scopes,
# are cancelled, time out and roll back, while connections are cut, replies are
# lost, and workers are terminated.  No session is lost, so whoever holds a lock
# must hold it alone.
#
# The judge is this process: it knows for certain that a lock is held from the
# moment when it has read the answer until it sends the COMMIT.  What it knows
# must never overlap, and tokens must grow.
#
# In the first half each hold has a contender, in the second grants are kept and
# handed over, so that successive holders on one server may have one token.  Each
# half lasts for ZKLOCK_SOAK_SECONDS, 5 by default, at least.
#
# ZKLOCK_SEED repeats the choices made here, though not their timing.
use strict;
use warnings;

use List::Util qw(max);
use Test::More;
use Time::HiRes qw(sleep time);
use Proxy;
use Wait;
use ZkLock;

my $seconds = $ENV{ZKLOCK_SOAK_SECONDS} // 5;
my $seed = $ENV{ZKLOCK_SEED} // time ^ $$;
srand $seed;
note "ZKLOCK_SEED=$seed";

my $zk = ZooKeeper->new(tick_time => 500, container_check_ms => 50)->start;
# A cut of the connection costs 1/60 of the timeout.
my $conf = "zklock.session_timeout = '30s'\nlog_statement = none\ndeadlock_timeout = '1h'";
my @proxy = map { Proxy->new($zk->host) } 0, 1;
my @node = map { ZkLock::server($_ ? 'b' : 'a', $proxy[$_], conf => $conf) } 0, 1;
ZkLock::wait_connected(@node);
my @session_id = map { ZkLock::ask($_, 'SELECT session_id FROM zk_session') } @node;

my @names = map { "job $_" } 1 .. 3;
my @client = map { { id => $_, server => $_ % 2, session => ZkLock::session($node[ $_ % 2 ]), holds => [], state => 'idle' } } 0 .. 7;
$_->{session}->query('SELECT 1') for @client;

#
# The judge
#
# name => { client id => [ mode, token ] }
my %held = map { $_ => {} } @names;

# name => newest token released, of exclusive and of any holds, by server
my %exclusive_token = map { $_ => [ 0, 0 ] } @names;
my %newest = map { $_ => [ 0, 0 ] } @names;
my $keeps = 0;
my @wrong;
my %count;

sub acquired
{
	my ($c, $name, $mode, $token) = @_;
	$count{acquired}++;
	for my $other (grep { $_ != $c->{id} } keys %{ $held{$name} })
	{
		push @wrong, "$name: client $c->{id} has it in $mode mode while client $other has it in $held{$name}{$other}[0] mode"
		  if $mode eq 'exclusive' || $held{$name}{$other}[0] eq 'exclusive';
	}
	for my $server (0, 1)
	{
		my $least = $exclusive_token{$name}[$server];
		# An exclusive holder's is larger than those of the readers before it.
		$least = max $least, $newest{$name}[$server] if $mode eq 'exclusive';
		my $same = $keeps && $server == $c->{server} && $token == $least;
		$count{same}++ if $same;
		push @wrong, "$name: token $token ($mode, server $c->{server}) after $least (server $server)" if $token <= $least && !$same;
	}
	$held{$name}{ $c->{id} } = [ $mode, $token ];
	push @{ $c->{holds} }, $name;
}

# Before the statement that ends the holds is sent.
sub releasing
{
	my $c = shift;
	for my $name (@{ $c->{holds} })
	{
		my ($mode, $token) = @{ delete $held{$name}{ $c->{id} } };
		$exclusive_token{$name}[ $c->{server} ] = max $exclusive_token{$name}[ $c->{server} ], $token if $mode eq 'exclusive';
		$newest{$name}[ $c->{server} ] = max $newest{$name}[ $c->{server} ], $token;
	}
	$c->{holds} = [];
}

#
# The clients
#
sub begin_lock
{
	my $c = shift;
	# In the order of names: no deadlocks.
	my $least = @{ $c->{holds} } ? $c->{holds}[-1] : '';
	my @choice = grep { $_ gt $least } @names;
	my $name = $choice[ rand @choice ];
	my $mode = rand() < 0.4 ? 'shared' : 'exclusive';
	my $how = rand;
	# A transaction or a session may not mix scopes here: one statement ends all.
	$c->{scope} //= rand() < 0.3 ? 'session' : 'transaction';
	my $begin = !@{ $c->{holds} } && $c->{scope} eq 'transaction' ? 'BEGIN; ' : '';
	my $sql;
	if ($how < 0.6) { $sql = "SELECT zk_lock('$name', '$mode', '$c->{scope}')"; }
	else
	{
		my $timeout = $how < 0.8 ? 0 : int rand 200;
		$sql = "SELECT CASE WHEN zk_try_lock('$name', '$mode', '$c->{scope}', '$timeout ms') THEN zk_token('$name') END";
	}
	@$c{qw(state name mode)} = ('locking', $name, $mode);
	$c->{cancel_at} = rand() < 0.15 ? time + rand 0.3 : 0;
	$c->{session}->send("$begin$sql");
}

sub begin_release
{
	my $c = shift;
	my $sql = $c->{scope} eq 'transaction' ? (rand() < 0.7 ? 'COMMIT' : 'ROLLBACK') : rand() < 0.3 ? 'DISCARD ALL' : 'SELECT zk_unlock_all()';
	releasing($c);
	$c->{state} = 'releasing';
	$c->{session}->send($sql);
}

sub next_step
{
	my ($c, $more) = @_;
	my $session = $c->{session};
	if ($session->busy)
	{
		return if $c->{state} ne 'locking' || !$c->{cancel_at} || $c->{cancel_at} > time;
		$c->{cancel_at} = 0;
		$count{cancels}++;
		# It may abort the transaction, and that ends its holds.
		releasing($c) if $c->{scope} eq 'transaction';
		$session->cancel;
		return;
	}
	if ($c->{state} eq 'locking')
	{
		my $error = $session->failure;
		if ($error eq '')
		{
			my $token = $session->result;
			if ($token ne '') { acquired($c, $c->{name}, $c->{mode}, $token); }
			else { $count{refused}++; }
			$c->{state} = 'holding';
			$c->{until} = time + rand(0.02);
		}
		else
		{
			push @wrong, "client $c->{id}: $error" unless $error =~ /^57014:/;
			$count{cancelled}++;
			begin_release($c);
		}
	}
	elsif ($c->{state} eq 'releasing')
	{
		my $error = $session->failure;
		push @wrong, "client $c->{id}: $error" if $error ne '';
		@$c{qw(state scope)} = ('idle', undef);
	}
	elsif ($c->{state} eq 'holding')
	{
		return if $c->{until} > time;
		if ($more && @{ $c->{holds} } && $c->{holds}[-1] lt $names[-1] && rand() < 0.2) { begin_lock($c); }
		else { begin_release($c); }
	}
	elsif ($more) { begin_lock($c); }
}

#
# The troubles
#
my @next_cut = map { time + rand 0.5 } @proxy;
my @next_terminate = map { time + 1 + rand 2 } @proxy;

# A lease is proven by writes over nine seconds on one connection.  Only a slow machine comes
# to the end of the one that the session began with: then its server is left alone until
# there is another.
my (@next_look, @calm);

sub calm
{
	my $i = shift;
	return $calm[$i] if time < ($next_look[$i] // 0);
	$next_look[$i] = time + 0.5;
	my $left = ZkLock::ask($node[$i], "SELECT extract(epoch FROM coalesce(lease_remaining, '0')) FROM zk_session");
	return $calm[$i] = $left < ($calm[$i] ? 10 : 5);
}

sub trouble
{
	my $i = shift;
	return if calm($i);
	if (time > $next_cut[$i])
	{
		$next_cut[$i] = time + rand 1.5;
		my $what = rand;
		$count{cuts}++;
		if ($what < 0.4) { $proxy[$i]->cut; }
		elsif ($what < 0.6) { $proxy[$i]->lose_reply('create', '_c_'); }
		elsif ($what < 0.75) { $proxy[$i]->lose_reply('delete'); }
		elsif ($what < 0.85) { $proxy[$i]->lose_request('delete'); }
		elsif ($what < 0.95) { $proxy[$i]->lose_reply('children'); }
		else { $proxy[$i]->lose_reply('get'); }
	}
	if (time > $next_terminate[$i])
	{
		$next_terminate[$i] = time + 1.5 + rand 2;
		my $pid = ZkLock::ask($node[$i], 'SELECT worker_pid FROM zk_session');
		$count{terminated}++ if $pid && kill 'TERM', $pid;
	}
}

sub set_keeps
{
	$keeps = $_[0];
	# the defaults, or what ZkLock::configure says
	my %value = $keeps ? (keep_time => '60s', handoff_limit => 16) : (keep_time => 0, handoff_limit => 0);
	for my $node (@node)
	{
		ZkLock::ask($node, "ALTER SYSTEM SET zklock.$_ = '$value{$_}'") for keys %value;
		ZkLock::ask($node, 'SELECT pg_reload_conf()');
	}
}

sub counts { return join ', ', map { "$_: $count{$_}" } sort keys %count; }

# What there is to be seen when it goes on no more.
sub seen
{
	return join "\n", counts(), (map { "client $_->{id} of server $_->{server}: $_->{state} " . ($_->{name} // '') . ($_->{session}->busy ? ', waits' : '') } @client),
	  map { ZkLock::ask($_, "SELECT string_agg(l::text, ' ') FROM zk_locks l") . "\n" . ZkLock::ask($_, 'SELECT s::text FROM zk_session s') } @node;
}

# Go on until CODE is true, or something is wrong.
sub run_until
{
	my ($code, $what, $more) = @_;
	wait_until(
		sub {
			for (1 .. 100)
			{
				next_step($_, $more) for @client;
				$more && trouble($_) for 0, 1;
				sleep 0.001;
				return 1 if @wrong || $code->();
			}
			return 0;
		},
		$what,
		\&seen);
}

# What each half must have seen; "same" is of kept grants only.
my %enough = (acquired => 100, refused => 10, cancels => 10, cancelled => 10, cuts => 5, terminated => 2);
for my $kept (0, 1)
{
	set_keeps($kept);
	my $end = time + $seconds;
	my %least = map { $_ => ($count{$_} // 0) + $enough{$_} } keys %enough;
	$least{same} = 10 if $kept;
	run_until(sub { time > $end && !grep { ($count{$_} // 0) < $least{$_} } keys %least }, 'there was enough of each', 1);
}

# Everybody ends what they do.
$_->heal for @proxy;
run_until(sub { !grep { $_->{state} ne 'idle' } @client }, 'everybody has what they wait for', 0);

set_keeps(0);
note counts();
is_deeply(\@wrong, [], 'nobody held a lock that somebody else had, and tokens grew') or diag "ZKLOCK_SEED=$seed";
ZkLock::wait_connected(@node);
is(ZkLock::ask($node[$_], 'SELECT session_id FROM zk_session'), $session_id[$_], "server $_ had one session") for 0, 1;
ZkLock::ok_clean($zk, \@node, $_) for @names;
unlike(PostgreSQL::Test::Utils::slurp_file($_->logfile), qr/TRAP|PANIC|FATAL|lock ".*" was lost/, 'no bad line in the log') for @node;

done_testing();
