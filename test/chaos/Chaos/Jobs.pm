# Chaos::Jobs - what the runs of jobs leave behind, and what that proves.
#
# A run's transaction leaves a row in its server's database (job_here), and by postgres_fdw
# one in the fourth (job_there), which commits before its own does: a while before, as
# it often waits there.  So many a run stands between "committing" and "done" when something
# breaks.  With its row here go
#
#   generation   how often the ensemble has gone back (restored, wiped)
#   runs         what zk_jobs says of the runs of its slot, itself first
#
# both read in the run.  No clock is needed to judge:
#
#   missing   A client goes on to the next slot when it was told that its slot is done, or a
#             later one.  So every slot up to the last one that somebody was told of was
#             committed somewhere.  With in_doubt => 'skip' it may be that it was not; but
#             then the first one who was told that it is done was told that it was skipped.
#   wrong     Of two runs of one slot that committed, the later one (by token) must know of
#             the earlier one as in doubt, and with 'skip' it must not run at all; unless
#             the ensemble went back between the two, and forgot.  Nor may it be in doubt
#             when nothing but its session was harmed: its server lives, and can tell.  In no
#             case are both of
#             one server, which knows by its own zk_runs.  (ZooKeeper may go back by itself,
#             ZOOKEEPER-4785: then its servers' logs show it; or one of ours has said so, and
#             the record's numbers are smaller.)
#   untrue    zk_runs has a row for each run that committed, and no other one.  Each has
#             exactly one row in the fourth database.  When nobody runs anything any more,
#             zk_jobs says "done" of a run only if it has committed, and always then,
#             unless the ensemble went back; and nothing is in doubt.
#
# Counted only, for it may be:
#
#   skipped   slots that nobody committed, and that were skipped
#   again     commits of a slot that was committed before, by a run that was in doubt
#             (with 'run'), or that the ensemble has forgotten
#   half      rows in the fourth database alone: runs that stopped between the two commits.
#             What leaves the runner's own database is done at least once, no more
#   settled   runs in doubt that their servers have told the end of
package Chaos::Jobs;

use strict;
use warnings;

use JSON::PP ();
use List::Util qw(max min);
use Time::Local ();
use Time::HiRes qw(sleep);
use Chaos::Judge;
use Chaos::Log;
use Chaos::Postgres;

# More runs of a job zk_jobs does not remember.
my $remembered = 16;

sub set_up
{
	my ($data, @servers) = @_;
	my $there = 'job_there (job text, slot bigint, call bigint)';
	my $went_back = 'went_back (at timestamptz)';
	$data->must(<<"SQL");
CREATE TABLE $there;
CREATE TABLE $went_back;
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
\$\$BEGIN IF random() < 0.5 THEN PERFORM pg_sleep(random()); END IF; RETURN NULL; END\$\$;
CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON job_there
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION dawdle();
SQL
	$_->must(<<"SQL") for @servers;
CREATE EXTENSION postgres_fdw;
CREATE SERVER data FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '@{[ $data->dir ]}', dbname 'postgres');
CREATE USER MAPPING FOR postgres SERVER data OPTIONS (user 'postgres');
CREATE FOREIGN TABLE $there SERVER data;
CREATE FOREIGN TABLE $went_back SERVER data;
CREATE TABLE job_here (job text, slot bigint, call bigint, generation bigint, runs jsonb);
SQL
}

# What a run does.
sub command
{
	my ($job, $slot, $call) = @_;
	return <<"SQL";
INSERT INTO job_there VALUES ('$job', $slot, $call);
INSERT INTO job_here SELECT '$job', $slot, $call, (SELECT count(*) FROM went_back),
    (SELECT jsonb_agg(r ORDER BY (r->>'number')::bigint DESC) FROM zk_jobs, jsonb_array_elements(runs) r
     WHERE job = '$job' AND (r->>'slot')::timestamptz = to_timestamp($slot));
SQL
}

# To be called while no ZooKeeper runs.
sub went_back { my $data = shift; $data->must('INSERT INTO went_back VALUES (now())'); }

sub rows
{
	my ($server, $query) = @_;
	return @{ JSON::PP::decode_json($server->must("SELECT coalesce(json_agg(t), '[]') FROM ($query) AS t")) };
}

# What zk_jobs says in the end: when nothing is in doubt any more, or servers had so long to
# settle it.
sub record
{
	my ($server, $wait) = @_;
	my $deadline = Chaos::Postgres::now() + $wait;
	while (1)
	{
		my @runs = eval { rows($server, "SELECT job, r->>'state' AS state, r->>'token' AS token, r->>'number' AS number FROM zk_jobs, jsonb_array_elements(runs) AS r") };
		my $error = $@;
		return \@runs if $error eq '' && !grep { $_->{state} eq 'in doubt' } @runs;
		next if Chaos::Postgres::now() < $deadline;
		die $error if $error ne '';
		return \@runs;
	}
	continue { sleep 0.2; }
}

# Which run, by what zk_jobs or zk_runs says of it
sub id { my $run = shift; return "$run->{token}/$run->{number}"; }

# Of one job: numbers for the table, and complaints.  The record is what was had of it above.
# "harms": when servers, or what they need, were harmed: [ from, until, the one that was, if it is
# no other ]; and when the ensemble lost something "by_itself", in whole seconds: by their clock.
sub judge
{
	my ($job, $transactions, $record, $data, $servers, $log, $harms, @by_itself) = @_;
	my %seen = (job => $job, missing => [], wrong => [], untrue => [], half => 0, doubt => 0, forgotten => 0, settled => 0, slots => 0);

	# what clients were told
	my (%called, %answered, %skipped);
	for my $t (grep { $_->{workload} eq $job } @$transactions)
	{
		my ($slot, $how, $done) = split / /, $t->{data};
		$seen{calls}++;
		$called{$slot} = min grep { defined } $t->{begun}, $called{$slot};
		next unless $how;
		$answered{$slot} = min grep { defined } $t->{ended}, $answered{$slot};
		$seen{slots} = max $seen{slots}, $done;
		$skipped{$done} = 1 if $how eq 'skipped';
	}
	$seen{after} = [ map { $answered{$_} - $called{$_} } keys %answered ];

	# what was committed
	my %there;
	$there{ $_->{call} }++ for rows($data, "SELECT call FROM job_there WHERE job = '$job'");
	my (%committed, %runs);
	for my $server (@$servers)
	{
		my $name = $server->name;
		for my $row (rows($server, <<"SQL"))
SELECT h.*, r.number IS NOT NULL AS told FROM (SELECT * FROM job_here WHERE job = '$job') AS h FULL JOIN
    (SELECT extract(epoch FROM slot)::bigint AS slot, number, token FROM zk_runs
     WHERE kind = 'job' AND name = '$job' AND outcome = 'done') AS r
    ON r.slot = h.slot AND r.number = (h.runs->0->>'number')::bigint AND r.token = (h.runs->0->>'token')::bigint
SQL
		{
			if (!defined $row->{call})
			{
				push @{ $seen{untrue} }, "zk_runs of $name has a run of $job that did not commit";
				next;
			}
			push @{ $seen{untrue} }, "zk_runs of $name lacks a run of slot $row->{slot} of $job" unless $row->{told};
			my $rows = delete $there{ $row->{call} } // 0;
			push @{ $seen{untrue} }, "a run of slot $row->{slot} of $job has $rows rows in the fourth database" if $rows != 1;
			next unless $row->{told};
			$row->{server} = $name;
			$row->{run} = $row->{runs}[0];
			push @{ $committed{ $row->{slot} } }, $row;
			push @{ $seen{untrue} }, "two runs of $job are both " . id($row->{run}) if $runs{ id($row->{run}) };
			$runs{ id($row->{run}) } = $row;
		}
	}
	$seen{half} = keys %there;
	for my $slot (grep { !$committed{$_} } 1 .. $seen{slots})
	{
		if ($skipped{$slot} && $job eq 'jobs-skip') { $seen{skipped}++; }
		else { push @{ $seen{missing} }, "slot $slot of $job"; }
	}

	# when servers found out that the ensemble went back
	my @found;
	my $went_back = Chaos::Log::said('went back');
	for my $file (glob "$log/server-[A-Z].log")
	{
		open my $in, '<', $file or die "could not read $file: $!\n";
		push @found, map { /^(\S+ [\d:.]+) .*WARNING:  $went_back/ ? seconds($1) : () } <$in>;
		close $in;
	}

	# once more than once
	for my $slot (sort { $a <=> $b } keys %committed)
	{
		my @rows = sort { $a->{run}{token} <=> $b->{run}{token} || $a->{run}{number} <=> $b->{run}{number} } @{ $committed{$slot} };
		for my $i (1 .. $#rows)
		{
			my %why = map { why($job, $_, $rows[$i], $harms, \@found, @by_itself) => 1 } @rows[ 0 .. $i - 1 ];
			my ($kind) = grep { $why{$_} } qw(wrong doubt forgotten);
			if ($kind ne 'wrong') { $seen{$kind}++; }
			else { push @{ $seen{wrong} }, "slot $slot of $job on " . join ' ', map { "$_->{server} (" . id($_->{run}) . ')' } @rows[ 0 .. $i ]; }
		}
	}

	# what is told in the end
	my $generation = $data->must('SELECT count(*) FROM went_back');
	for my $run (grep { $_->{job} eq $job } @$record)
	{
		my $row = $runs{ id($run) };
		my $done = $run->{state} eq 'done';
		push @{ $seen{untrue} }, 'run ' . id($run) . " of $job is still in doubt" if $run->{state} eq 'in doubt';
		push @{ $seen{untrue} }, 'run ' . id($run) . " of $job is $run->{state}, and has " . ($row ? '' : 'not ') . 'committed'
		  if $row ? !$done && $row->{generation} == $generation && !lost_since(seconds($row->{run}{started}), @by_itself) : $done;
	}
	my $settled = Chaos::Log::said('settled', quotemeta $job);
	for my $file (glob "$log/server-[A-Z].log")
	{
		open my $in, '<', $file or die "could not read $file: $!\n";
		$seen{settled} += grep { /$settled/ } <$in>;
		close $in;
	}
	return \%seen;
}

# Of a time in UTC, as PostgreSQL writes it in a log or in JSON.
sub seconds
{
	my ($year, $month, $day, $hour, $minute, $second) = $_[0] =~ /^(\d+)-(\d+)-(\d+)[ T](\d+):(\d+):([\d.]+)/ or die "no time: $_[0]\n";
	return Time::Local::timegm(0, $minute, $hour, $day, $month - 1, $year) + $second;
}

# Of the times in whole seconds, those after which something was lost that was written then.
sub lost_since { my ($time, @by_itself) = @_; return grep { $time < $_ + 1 } @by_itself; }

# Why a slot was committed once more.
sub why
{
	my ($job, $earlier, $later, $harms, $found, @by_itself) = @_;
	my ($from, $until) = map { seconds($_->{run}{started}) } $earlier, $later;
	return 'wrong' if $earlier->{server} eq $later->{server};
	return 'forgotten' if $earlier->{generation} != $later->{generation};
	# it may be the end of the run alone that was lost, or all of the run
	return 'forgotten' if grep { $_ < $until } lost_since($from, @by_itself);
	# not all who look do so at once
	return 'forgotten' if $later->{run}{number} <= $earlier->{run}{number}
	  && grep { $from < $_ && $_ < $until + 10 } @$found;
	return 'wrong' if $job eq 'jobs-skip'
	  || !grep { $_->[0] < $until && $from < $_->[1] && (!defined $_->[2] || $_->[2] eq $earlier->{server}) } @$harms;
	my ($known) = grep { id($_) eq id($earlier->{run}) } @{ $later->{runs} };
	return 'doubt' if $known ? $known->{state} eq 'in doubt' : @{ $later->{runs} } == $remembered;
	return 'wrong';
}

sub print_table
{
	my ($fh, @seen) = @_;
	my $format = "%-10s %8s %8s %8s %8s %16s %10s %6s %6s %8s %9s %9s\n";
	printf $fh "\n$format", 'job', 'calls', 'slots', 'missing', 'skipped', 'again: in doubt', 'forgotten', 'wrong', 'half', 'settled', 'done p50', 'max';
	for (@seen)
	{
		my @after = @{ $_->{after} };
		printf $fh $format, $_->{job}, $_->{calls} // 0, $_->{slots}, scalar @{ $_->{missing} }, $_->{skipped} // 0, $_->{doubt},
		  $_->{forgotten}, scalar @{ $_->{wrong} }, $_->{half}, $_->{settled},
		  @after ? (sprintf('%.2f s', Chaos::Judge::median(@after)), sprintf('%.2f s', max @after)) : ('-', '-');
	}
	print $fh "\n";
}

1;
