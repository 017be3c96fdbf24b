# A table that is full, with a name which is kept for nobody: whoever asks for another
# name waits until that one is given up.  Whatever ends that wait, it leaves
# nothing, and each limit ends it in time.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
# An hour: if a limit is not looked at, the session does not answer.
my $conf = "zklock.keep_time = '1h'\nzklock.connect_timeout = '1h'\nzklock.session_timeout = '60s'";
my $a = ZkLock::server('a', $zk, conf => "$conf\nzklock.max_locks = 5");
my $b = ZkLock::server('b', $zk, conf => 'zklock.session_timeout = 60s');
ZkLock::wait_connected($a, $b);
my $other = ZkLock::session($b);
my $keeper = ZkLock::session($a);

sub worker { return ZkLock::ask($a, 'SELECT worker_pid FROM zk_session'); }

# Four names are held.  A fifth one is kept, and with the worker stopped nobody gives it up.
my $kept = 0;
$keeper->query("SELECT zk_lock('held $_', scope => 'session')") for 1 .. 4;

sub fill
{
	# A late answer to the last one's need of room may give one up.
	ZkLock::wait_until(
		sub {
			my ($names, $counted) = split /\|/, ZkLock::ask($a, 'SELECT names, kept FROM zk_session');
			$keeper->query("SELECT zk_lock('kept " . ++$kept . "')") if $names < 5;
			return $names == 5 && $counted == 1;
		},
		'the table is full, and one name is kept');
	my $worker = worker();
	ZkLock::stop_process($a, $worker);
	return $worker if ZkLock::ask($a, 'SELECT names FROM zk_session') == 5;
	# it came just now
	kill 'CONT', $worker or die;
	return fill();
}

# Nothing of x is here, and what is here is true.
sub ok_nothing
{
	my ($s, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# A busy machine may need longer than the statement_timeout for this, too.
	1 while $s->fails('RESET ALL') =~ /^57014:/;
	is($s->query("SELECT zk_token('x') IS NULL"), 't', "$what: no token");
	is($s->query("SELECT count(*) FROM zk_locks WHERE name = 'x'"), 0, '... nor waits');
	is($s->query("SELECT count(*) FROM pg_locks WHERE $ZkLock::level1 AND pid <> @{[ $keeper->pid ]}"), 0, '... nor level 1');
	is($s->fails("SELECT zk_assert('x')"), '55000: you do not hold lock "x"', '... nor anything to assert');
}

sub end_wait
{
	my ($what, %how) = @_;
	my $s = ZkLock::session($a);
	my $statement = $how{statement} // "SELECT zk_lock('x', scope => '" . ($how{scope} // 'transaction') . "')";
	$s->query('\set SHOW_CONTEXT always');
	$s->query($how{set}) if $how{set};
	my $worker = fill();
	$s->query('BEGIN; SAVEPOINT s') if $how{savepoint};
	$s->send($statement);
	# The time may be up before a busy machine has come to the wait.
	for (1 .. 20)
	{
		last if $how{do} || $s->failure !~ /^57014/ || $s->notices =~ /while waiting for room/;
		$s->send($statement);
	}
	if ($how{do})
	{
		$s->wait_event('Extension');
		$how{do}->($s);
	}
	like($s->failure, $how{error}, $what);
	like($s->notices, qr/while waiting for room in the lock table for lock "x"$/m, '... and the context says for what it waited')
	  if $s->{error} =~ /^(?:57014|55P03)/;
	like($s->notices, qr/^DETAIL:  It has room for 5 names, and none of those that are kept for nobody was given up in time\.$/m, '... and why')
	  if $s->{error} =~ /^53200/;
	$s->query('ROLLBACK TO s') if $how{savepoint};
	$s = ZkLock::session($a) unless $s->alive;
	ok_nothing($s, $what);
	is($s->fails('ROLLBACK TO s; COMMIT'), '', '... and the transaction can commit') if $how{savepoint};
	kill 'CONT', $worker or die;

	# What another server has is not to be had, and a new hold is a true one.
	$other->query("SELECT zk_lock('x', scope => 'session')");
	is($s->query("SELECT zk_try_lock('x', 'shared')"), 'f', '... nor what another server holds') or return;
	$other->query("SELECT zk_unlock('x')");
	$s->query('BEGIN');
	cmp_ok($s->query("SELECT zk_lock('x')"), '>', 0, '... a new hold has a token');
	is($other->query("SELECT zk_try_lock('x')"), 'f', '... and keeps the others out');
	is($s->fails('COMMIT'), '', '... until the COMMIT');
	is($other->query("SELECT zk_try_lock('x', timeout => '1h')"), 't', '... and not beyond');
	$s->quit;
}

my $canceled = qr/^57014: canceling statement due to user request$/;
end_wait("statement_timeout, $_ scope", scope => $_, set => "SET statement_timeout = '400ms'",
	error => qr/^57014: canceling statement due to statement timeout$/) for qw(transaction session);
end_wait('cancel', do => sub { $_[0]->cancel }, error => $canceled);
end_wait('cancel after a savepoint', savepoint => 1, do => sub { $_[0]->cancel }, error => $canceled);
end_wait('terminate', do => sub { $_[0]->terminate }, error => qr/^57P01: /);
end_wait('lock_timeout', set => "SET lock_timeout = '300ms'", error => qr/^55P03: canceling statement due to lock timeout$/);
end_wait('the timeout of zk_try_lock', statement => "SELECT zk_try_lock('x', timeout => '300ms')", error => qr/^53200: zklock lock table is full$/);
end_wait('the timeout of zk_lock_session', statement => "CALL zk_lock_session('x', timeout => '300ms')", error => qr/^53200: zklock lock table is full$/);
end_wait('connect_timeout', set => "SET zklock.connect_timeout = '300ms'", error => qr/^53200: zklock lock table is full$/);

# While ZooKeeper is away, that is the reason.
{
	my $s = ZkLock::session($a);
	kill 'CONT', fill();
	$zk->stop;
	ZkLock::wait_until(sub { ZkLock::ask($a, 'SELECT state FROM zk_session') ne 'connected' }, 'disconnected');
	$s->query("SET zklock.connect_timeout = '1s'");
	like($s->fails("SELECT zk_lock('x')"), qr/^58000: could not reach ZooKeeper within 1000 ms$/, 'without ZooKeeper no name is given up');
	ok_nothing($s, 'ZooKeeper away');
	$zk->start;
	ZkLock::wait_connected($a);
	$s->query('RESET ALL');
	cmp_ok($s->query("SELECT zk_lock('x')"), '>', 0, '... until it is back');
}

# One lock_timeout is for the wait for room and that behind others of this server: who has
# waited for room has less left than one that comes to wait beside him.
{
	my ($s, $late, @rival) = map { ZkLock::session($a) } 1 .. 8;
	my $waits = sub { my ($type, @who) = @_; return ZkLock::ask($a, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = '$type' AND pid IN (" . join(',', map { $_->pid } @who) . ')') == @who };
	for (1 .. 50)
	{
		my $worker = fill();
		$s->query("SET lock_timeout = '9s'");
		$late->query("SET lock_timeout = '7s'");
		$_->send("SELECT zk_lock('x', scope => 'session')") for $s, @rival;
		ZkLock::wait_until(sub { !$s->busy || $waits->('Extension', $s, @rival) }, 'all wait for room');
		ZkLock::ask($a, 'SELECT pg_sleep(7)');
		kill 'CONT', $worker or die;
		ZkLock::wait_until(sub { !$s->busy || $waits->('Lock', $s) }, 'one of them has it');
		last if $s->busy;
		# the wrong one, or the time was up before: each has it in its turn
		my @left = ($s->failure eq '' ? $s : (), @rival);
		ZkLock::wait_until(sub { @left = grep { $_->busy || !$_->query('SELECT zk_unlock_all()') } @left; return !@left }, 'all had it');
		# The server keeps it now, and would give it again without any wait for room.
		$other->query("SELECT zk_lock('x', scope => 'session')");
		$other->query("SELECT zk_unlock('x')");
	}
	$late->send("SELECT zk_lock('x')");
	my $first;
	ZkLock::wait_until(sub { $first = !$s->busy ? 'it' : !$late->busy ? 'the other' : '' }, 'a wait ends');
	is($first, 'it', 'lock_timeout goes on while the lock manager waits');
	is($_->failure, '55P03: canceling statement due to lock timeout', '... and ends it') for $s, $late;
	$_->cancel for grep { $_->busy } @rival;
	$_->failure, $_->fails('SELECT zk_unlock_all()') for @rival;
	$_->quit for $s, $late, @rival;
}

done_testing();
