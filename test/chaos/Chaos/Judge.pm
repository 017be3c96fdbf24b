# Chaos::Judge - what the history proves, and the table.
package Chaos::Judge;

use strict;
use warnings;

use List::Util qw(first max);

# Intervals of one name that overlap: [ name, earlier, later, seconds ].  The
# intervals are those that Chaos::Client explains.
sub overlaps
{
	my %claims;
	push @{ $claims{ $_->{name} } }, $_ for claims(@_);
	my @overlaps;
	for my $name (sort keys %claims)
	{
		my $last;    # of those so far the one that ended last
		for my $claim (sort { $a->{locked} <=> $b->{locked} } @{ $claims{$name} })
		{
			if ($last && $claim->{locked} < $last->{proven})
			{
				my $end = $claim->{proven} < $last->{proven} ? $claim->{proven} : $last->{proven};
				push @overlaps, [ $name, $last, $claim, $end - $claim->{locked} ];
			}
			$last = $claim if !$last || $claim->{proven} > $last->{proven};
		}
	}
	return @overlaps;
}

sub claims { return grep { defined $_->{proven} && $_->{proven} > $_->{locked} } @_; }

# Claims with a smaller token than an earlier one of the same name.
sub disorders
{
	my (%newest, @disorders);
	for my $claim (sort { $a->{locked} <=> $b->{locked} } claims(@_))
	{
		my $newest = $newest{ $claim->{name} };
		if ($newest && $claim->{token} < $newest->{token}) { push @disorders, [ $newest, $claim ]; }
		else { $newest{ $claim->{name} } = $claim; }
	}
	return @disorders;
}

# Faults that were there at a time, or had been healed not long before it.
sub faults_at
{
	my ($time, $since, @faults) = @_;
	return map { $_->{kind} } grep { $_->{begin} <= $time && $time <= $_->{heal} + $since } @faults;
}

# By kind: seconds from the healing to the next lock that each server gave.  One
# sample a fault and server, where no other fault has come in between.
sub recovery
{
	my ($transactions, $faults, @servers) = @_;
	my %locks = map { $_ => [] } @servers;
	push @{ $locks{ $_->{server} } }, $_->{locked} for grep { defined $_->{locked} && $_->{workload} ne 'election' } @$transactions;
	@$_ = sort { $a <=> $b } @$_ for values %locks;
	my %samples;
	for my $fault (@$faults)
	{
		my $heal = $fault->{heal};
		for my $server (@servers)
		{
			my $lock = first { $_ >= $heal } @{ $locks{$server} };
			next unless defined $lock;
			next if grep { $_ != $fault && $_->{begin} < $lock && $_->{heal} > $heal } @$faults;
			push @{ $samples{ $fault->{kind} } }, $lock - $heal;
		}
	}
	return \%samples;
}

sub median { my @sorted = sort { $a <=> $b } @_; return $sorted[ @sorted / 2 ]; }

# Updates of a register that were lost: written, and neither the last value nor
# among those that the last value was made from.
sub lost_updates
{
	my ($data, $name) = @_;
	return $data->must(<<"SQL");
WITH RECURSIVE kept AS (
    SELECT value, previous FROM written JOIN register USING (name, value) WHERE name = '$name'
    UNION ALL
    SELECT w.value, w.previous FROM written w JOIN kept ON w.value = kept.previous WHERE w.name = '$name'
) SELECT (SELECT count(*) FROM written WHERE name = '$name') - (SELECT count(*) FROM kept)
SQL
}

sub writes { my ($data, $name) = @_; return $data->must("SELECT count(*) FROM written WHERE name = '$name'"); }

#
# The table
#
sub print_faults
{
	my ($fh, $kinds, $faults, $recovery) = @_;
	printf $fh "%-28s %8s   %s\n", 'fault', 'injected', 'recovery:   p50       max   (of)';
	for my $kind (@$kinds)
	{
		my @samples = @{ $recovery->{$kind} // [] };
		my $injected = grep { $_->{kind} eq $kind } @$faults;
		printf $fh "%-28s %8d   %13s %9s   %4s\n", $kind, $injected,
		  @samples ? (sprintf('%.2f s', median(@samples)), sprintf('%.2f s', max @samples), scalar @samples) : ('-', '-', '');
	}
	my @all = map { @$_ } values %$recovery;
	printf $fh "%-28s %8d   %13s %9s   %4d\n\n", 'all', scalar @$faults,
	  @all ? (sprintf('%.2f s', median(@all)), sprintf('%.2f s', max @all)) : ('-', '-'), scalar @all;
}

# Rows: workload => { lost, writes }
sub print_workloads
{
	my ($fh, $transactions, $overlaps, $rows) = @_;
	printf $fh "%-10s %12s %10s %10s %9s %8s %8s %13s\n", 'workload', 'operations', 'committed', 'intervals',
	  'overlaps', 'writes', 'refused', 'lost updates';
	for my $workload (qw(intervals long register fenced election))
	{
		my @mine = grep { $_->{workload} eq $workload && $_->{name} } @$transactions;
		printf $fh "%-10s %12d %10d %10d %9d %8s %8s %13s\n", $workload, scalar @mine,
		  scalar(grep { $_->{outcome} eq 'ok' } @mine), scalar claims(@mine),
		  scalar(grep { $_->[2]{workload} eq $workload } @$overlaps),
		  $rows->{$workload}{writes} // '-',
		  $workload eq 'fenced' ? scalar(grep { $_->{outcome} =~ /^(fence|write):40001/ } @mine) : '-',
		  $rows->{$workload}{lost} // '-';
	}
	my %outcome;
	$outcome{ $_->{outcome} }++ for @$transactions;
	print $fh "\noutcomes: ", join(', ', map { "$_ $outcome{$_}" } sort { $outcome{$b} <=> $outcome{$a} } keys %outcome), "\n";
}

1;
