# What a session was told of a loss depends on no setting of the log.  The statement that hears of
# it waits in parse analysis, where no hook of ours is around.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use Jobs qw(record);
use Test::More;
use ZkLock;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
# The ensemble gives the session its whole timeout again when it starts: time to come back.  It
# is to end in the outage alone, and not where the machine stands still for some seconds.
my $a = ZkLock::server('a', $zk, conf => "zklock.session_timeout = '20s'\ncluster_name = 'a'");
ZkLock::wait_connected($a);
ZkLock::ask($a, 'CREATE TABLE t (i int); CREATE TABLE written (i int)');
my $blocker = ZkLock::session($a);

my $cancel = '57014: canceling statement due to user request';
my %setting = (
	'as it is' => '',
	'log_min_error_statement' => 'SET log_min_error_statement = panic',
	'client_min_messages' => 'SET client_min_messages = error',
	map { $_ => "SET log_min_messages = $_" } qw(log fatal panic));
sub is_logged { return $_[0] !~ /^(?:log|fatal|panic)$/; }
sub session
{
	my ($setting) = @_;
	my $s = ZkLock::session($a);
	$s->query($setting{$setting}) if $setting{$setting};
	return $s;
}

#
# A run of a job: by the worker's word
#
for my $setting (sort keys %setting)
{
	my $s = session($setting);
	$s->query("SELECT zk_run_begin('$setting', slot => '2026-01-01')");
	$blocker->query('BEGIN; LOCK TABLE t');
	$s->send('SELECT FROM t')->wait_event('Lock');
	$zk->delete("/zklock/jobs/$setting/" . (ZkLock::queue($zk, $setting, 'jobs'))[0]);
	is($s->failure, is_logged($setting) ? "55000: job \"$setting\" was lost" : $cancel, "$setting: the statement ends");
	$blocker->query('ROLLBACK');
	is($s->query("SELECT zk_run_end('$setting')"), 'f', '... and the run is not done');
	is(record($a, $setting), 'lost|a|1|0', '... but lost');
}

#
# Locks: by the clock alone.  One outage, longer than the timeout, and then the ZooKeeper session
# goes on.  On a slow machine it may end after all: then again.
#
my %take = (
	session => sub { my ($name) = @_; return "SELECT zk_lock('$name', scope => 'session')"; },
	savepoint => sub { my ($name) = @_; return "BEGIN; SELECT zk_lock('$name'); SAVEPOINT s"; });
my %s;

sub outage
{
	for my $setting (sort keys %setting)
	{
		for my $scope (sort keys %take)
		{
			my $name = "$setting, $scope";
			$s{$name} = session($setting);
			$s{$name}->query($take{$scope}($name));
		}
	}
	my $id = ZkLock::ask($a, 'SELECT session_id FROM zk_session');
	$blocker->query('BEGIN; LOCK TABLE t');
	$_->send('SELECT FROM t')->wait_event('Lock') for values %s;
	$zk->stop;
	my %told = map { $_ => $s{$_}->failure } keys %s;
	$blocker->query('ROLLBACK');
	$zk->start;
	ZkLock::wait_connected($a);
	return ZkLock::ask($a, 'SELECT session_id FROM zk_session') eq $id ? \%told : undef;
}

my $told;
for (1 .. 10)
{
	last if $told = outage();
	$_->quit for values %s;
}
ok($told, 'the ZooKeeper session goes on after the outage');
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT lease_remaining > '0' FROM zk_session") eq 't' }, 'there is a lease again');
for my $setting (sort keys %setting)
{
	for my $scope (sort keys %take)
	{
		my $name = "$setting, $scope";
		my $lost = ($scope eq 'session' ? 55000 : 40001) . ": lock \"$name\" was lost";
		is($told->{$name}, is_logged($setting) ? $lost : $cancel, "$name: the statement ends");
		$s{$name}->query('ROLLBACK TO s') if $scope eq 'savepoint';
		is($s{$name}->fails('INSERT INTO written VALUES (1)'), $lost, '... and the lock stays lost');
		if ($scope eq 'savepoint')
		{
			$s{$name}->query('ROLLBACK');
		}
		else
		{
			is($s{$name}->query("SELECT zk_unlock('$name')"), 't', '... until that is acknowledged');
		}
		is($s{$name}->query('SELECT count(*) FROM written'), 0, '... and nothing was written');
		$s{$name}->quit;
	}
}

ZkLock::ok_clean($zk, [$a], "log, $_") for sort keys %take;
done_testing();
