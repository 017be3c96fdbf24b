#!/usr/bin/perl
# chaos.pl SECONDS SEED LOGS [WORKLOADS [FAULTS]] - is the lock a lock when things break?
#
# Three ZooKeeper servers (zk1 to zk3) and three PostgreSQL servers (A, B, C) on
# hosts of their own, clients on each server (Chaos::Client), a nemesis
# (Chaos::Nemesis); a fourth database that nothing happens to.  At the end all is
# healed, and what the clients have seen is judged (Chaos::Judge):
#
#   overlaps        two clients had one lock at a time, and not both as
#                   readers, or two servers led one election            must be 0
#   token disorder  a later holder had a smaller token                  must be 0
#   lost updates    of a register written under the lock; with zk_fence they
#                   must be 0, without it a few are to be expected
#   jobs            a slot that nobody committed, or that was committed once more
#                   without a run in doubt or an ensemble that went back between: see
#                   Chaos::Jobs                                         must be 0
#   items           of a queue that were put and are lost, or not put and are there, or
#                   there twice                                         must be 0
#   crowds          more had a permit at a time than one of them names    must be 0
#   long waits      of who waits for one lock and has another, in workload "rings", or
#                   for a set: longer than a deadlock may last          must be 0
#   sessions        that a server gave up since it found that the ensemble went back, when
#                   that had not, and nothing had happened but to another server
#                                                                       must be 0
#   leaked          contenders in ZooKeeper, rows in zk_locks, or level-1 locks
#                   that nobody asks for any more                       must be 0
#
# What the clients asked and were told is judged besides by test/judge, which knows nothing of
# this: the history, build/chaos/history.jsonl, must be one that could be.
#
# Everybody must be calm again within a minute, too, every statement must have
# been answered, and errors must be of the kinds that doc/failures.md names for faults.
# It prints one table, then an "ok" or "not ok" for each of these.  Exit status: 0
# if all is well, 1 if not, 2 if the run itself failed.  test/chaos/run starts it,
# as process 1 of a PID namespace: what it leaves running ends with it.  SEED
# repeats the nemesis's choices, though not their timing.
#
# WORKLOADS and FAULTS are for who looks for something rare.  The first, a list of workloads
# with blanks between, has these clients on each server, and one of "intervals", by which
# recoveries are seen, in place of all.  The second, a regular expression, has those kinds of
# faults alone whose names it matches.
use strict;
use warnings;

use Chaos::Run;

my ($seconds, $seed, $log, $wanted, $faults) = @ARGV;
# One client each, on each server.  Two of one workload meet on their server, too.
my @workloads = qw(intervals long long mixed mixed mixed rings rings sets sets permits permits queue queue register register fenced fenced election reentrant barrier jobs-run jobs-skip);
@workloads = chosen(\@workloads, split ' ', $wanted) if $wanted;
my @kinds = grep { $_->[0] =~ /(?:$faults)/ } @Chaos::Nemesis::kinds;
@kinds or die "chaos: no kind of fault matches \"$faults\"\n";

$| = 1;
# Process 1 gets no signal for which it has no handler.
$SIG{$_} = sub { exit 130 } for qw(INT TERM HUP);

# What is wanted of all workloads.
sub chosen
{
	my ($all, @wanted) = @_;
	my %known = map { $_ => 1 } @$all;
	$known{$_} or die "chaos: there is no workload \"$_\", but: " . join(' ', Chaos::Run::distinct(@$all)) . "\n" for @wanted;
	return ('intervals', grep { $_ ne 'intervals' } @wanted);
}

sub main
{
	print "chaos: starting ...\n";
	Chaos::Run::configure(log => $log, servers => [qw(A B C)], workloads => \@workloads, kinds => \@kinds);
	Chaos::Run::set_up();
	print "chaos: $seconds s of it, seed $seed ...\n";
	my $passed = Chaos::Run::interval(seconds => $seconds, seed => $seed)->{passed};
	open my $report, '<', "$log/report" or die "could not read $log/report: $!\n";
	print "\n", <$report>;
	my $chosen = ($wanted ? " WORKLOADS='$wanted'" : '') . ($faults ? " FAULTS='$faults'" : '');
	print "logs: build/chaos; to repeat: make chaos SECONDS=$seconds SEED=$seed$chosen\n" unless $passed;
	return $passed ? 0 : 1;
}

my $status = eval { main() };
print "chaos: $@" unless defined $status;
exit($status // 2);
