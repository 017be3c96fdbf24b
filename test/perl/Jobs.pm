# Jobs - what has become of the runs of jobs, and a gate at which a command stands.
#
# The commands of these jobs insert the job's name into a table t (job text).
#
#   rows(NODE, JOB)     how often it has committed there
#   record(NODE, JOB)   'state|server|attempt|failures', as zk_jobs has it
#   runs(NODE, JOB)     'state server, ...' of the runs that the record knows, newest first
#   is_once(ZK, A, B, JOB, WAITER)
#                       A has committed JOB, and B's call, in session WAITER, hears of it
#                       and does not run it
#
#   $daily, $hourly     arguments of jobs, with slots that do not end while a test runs
#
#   my $gate = Jobs::Gate->new($node);
#   $gate->stand($session, "CALL zk_run_once('job', '...; $Jobs::at_gate', ...)");
#   $gate->open;        # the command goes on
package Jobs;

use strict;
use warnings;

use Exporter 'import';
use Test::More;
use ZkLock;

our @EXPORT = qw(rows record runs is_once);

our $daily = "every => '1 day', origin => to_timestamp(" . ($^T - 43200) . ')';
our $hourly = "every => '1 hour', origin => to_timestamp(" . ($^T - 1800) . ')';

# What a command asks for that shall stand at the gate.
our $at_gate = 'SELECT pg_advisory_xact_lock(1)';

sub rows { my ($node, $job) = @_; return ZkLock::ask($node, "SELECT count(*) FROM t WHERE job = '$job'"); }

sub record { my ($node, $job) = @_; return ZkLock::ask($node, "SELECT state, server, attempt, failures FROM zk_jobs WHERE job = '$job'"); }

sub runs
{
	my ($node, $job) = @_;
	return ZkLock::ask($node, "SELECT string_agg(concat(r->>'state', ' ', r->>'server'), ', ') FROM zk_jobs, jsonb_array_elements(runs) r WHERE job = '$job'");
}

sub is_once
{
	my ($zk, $x, $y, $job, $waiter) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($waiter->result, '', "$job: the other server's call comes to its end");
	like($waiter->notices, qr/is done for slot/, '... as it is done');
	is(rows($x, $job) . rows($y, $job), '10', '... and has not run it again');
	is(runs($y, $job), 'done a', '... as the record says');
	ZkLock::wait_queue($zk, $job, 0, 'jobs');
	return;
}

package Jobs::Gate;

sub new { my ($class, $node) = @_; return bless { session => ZkLock::session($node) }, $class; }

sub close { my $self = shift; $self->{session}->query('SELECT pg_advisory_lock(1)'); return; }

sub open { my $self = shift; $self->{session}->query('SELECT pg_advisory_unlock(1)'); return; }

# Closes it, and waits until the command stands there.
sub stand
{
	my ($self, $session, $call) = @_;
	$self->close;
	return $session->send($call)->wait_event('advisory');
}

1;
