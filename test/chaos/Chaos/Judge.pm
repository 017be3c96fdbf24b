# Chaos::Judge - what the history proves, and the table.
package Chaos::Judge;

use strict;
use warnings;

use List::Util qw(first max min sum);

# Intervals of one name that overlap, and are not both a reader's: [ name, earlier,
# later, seconds ].  The intervals are those that Chaos::Client explains.
sub overlaps
{
	my %claims;
	push @{ $claims{ $_->{name} } }, $_ for claims(@_);
	my @overlaps;
	for my $name (sort keys %claims)
	{
		next if $claims{$name}[0]{mode} eq 'semaphore';
		my %last;    # by mode, of those so far the one that ended last
		for my $claim (sort { $a->{locked} <=> $b->{locked} } @{ $claims{$name} })
		{
			my $mode = $claim->{mode};
			for my $last (@last{ conflicting($mode) })
			{
				next unless $last && $claim->{locked} < $last->{proven};
				my $end = $claim->{proven} < $last->{proven} ? $claim->{proven} : $last->{proven};
				push @overlaps, [ $name, $last, $claim, $end - $claim->{locked} ];
			}
			$last{$mode} = $claim if !$last{$mode} || $claim->{proven} > $last{$mode}{proven};
		}
	}
	return @overlaps;
}

# Modes of locks, and "number" of a permit and "item" of a queue.
sub conflicting { return $_[0] eq 'shared' ? ('exclusive') : $_[0] eq 'exclusive' ? qw(shared exclusive) : $_[0]; }

# Moments at which more had a permit than one of them names: [ how many, of how many, the
# last one to come ].
sub crowds
{
	my (@crowds, @present);
	for my $claim (sort { $a->{locked} <=> $b->{locked} } grep { $_->{mode} eq 'semaphore' } claims(@_))
	{
		@present = ((grep { $_->{proven} > $claim->{locked} } @present), $claim);
		my $least = min(map { $_->{data} } @present);
		push @crowds, [ scalar @present, $least, $claim ] if @present > $least;
	}
	return @crowds;
}

sub claims { return grep { defined $_->{locked} && defined $_->{proven} && $_->{proven} > $_->{locked} } @_; }

# Claims with a smaller token than an earlier one of the same name that could not be
# at the same time.
sub disorders
{
	my (%newest, @disorders);
	# who came first may ask last which permit he has
	for my $claim (sort { $a->{locked} <=> $b->{locked} } grep { $_->{mode} !~ /semaphore|number|item/ } claims(@_))
	{
		my $newest = $newest{ $claim->{name} } //= {};
		my $mode = $claim->{mode};
		push @disorders, map { [ $_, $claim ] } grep { $_ && $claim->{token} < $_->{token} } @$newest{ conflicting($mode) };
		$newest->{$mode} = $claim if !$newest->{$mode} || $claim->{token} > $newest->{$mode}{token};
	}
	return @disorders;
}

# Faults that were there at a time, or had been healed not long before it.
sub faults_at
{
	my ($time, $since, @faults) = @_;
	return map { $_->{kind} } grep { $_->{begin} <= $time && $time <= $_->{heal} + $since } @faults;
}

# What is wrong with the items of "queue", by what was put and what is in the fourth database.
# An ensemble that goes back forgets items, and knows again what had been moved; so what was
# put before that, or before it did so by itself ("losses"), is not asked for.
sub items
{
	my ($data, $transactions, $faults, @losses) = @_;
	my $back = max(0, @losses, map { $_->{heal} } grep { $_->{kind} =~ /^ensemble / } @$faults);
	my %times;
	$times{$_}++ for split /,/, $data->must("SELECT coalesce(string_agg(id::text, ','), '') FROM handed_out");
	my @wrong;
	for my $t (grep { ($_->{data} // '') =~ /^put / } @$transactions)
	{
		my $id = substr($t->{data}, 4);
		my $n = delete $times{$id} // 0;
		# whose COMMIT was not answered, he does not know
		push @wrong, "$id was not put ($t->{outcome}), and is there" if $n && $t->{outcome} ne 'ok' && $t->{outcome} !~ /^commit:(lost|57P)/;
		next if $t->{begun} < $back;
		push @wrong, "$id was put, and is lost" if !$n && $t->{outcome} eq 'ok';
		push @wrong, "$id was put once, and is there $n times" if $n > 1;
	}
	push @wrong, map { "$_ was put by nobody, and is there" } sort keys %times;
	return @wrong;
}

# Waits of "rings" and "sets" with so many seconds in which no fault was there, nor had been so long
# before: [ seconds, transaction ].
sub long_waits
{
	my ($limit, $since, $transactions, $faults) = @_;
	my @long;
	for my $t (grep { $_->{workload} =~ /^(rings|sets)$/ && defined $_->{data} } @$transactions)
	{
		my ($from, $until) = split / /, $t->{data};
		next if $until - $from <= $limit;
		my $calm = 0;
		for my $fault (sort { $a->{begin} <=> $b->{begin} } @$faults)
		{
			last if $fault->{begin} >= $until;
			$calm += max(0, $fault->{begin} - $from);
			$from = max($from, $fault->{heal} + $since);
		}
		$calm += max(0, $until - $from);
		push @long, [ $calm, $t ] if $calm > $limit;
	}
	return @long;
}

# By kind: seconds from the healing until every server has given a lock.  A fault
# is left out if another one has come in between.  (Workers and backends that are
# killed count as healed at once.)
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
		my @first = grep { defined } map { first { $_ >= $heal } @{ $locks{$_} } } @servers;
		next unless @first == @servers;
		my $recovered = max @first;
		next if grep { $_ != $fault && $_->{begin} < $recovered && $_->{heal} > $heal } @$faults;
		push @{ $samples{ $fault->{kind} } }, $recovered - $heal;
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
	my ($fh, $kinds, $faults, $recovery, $lost) = @_;
	my $row = sub {
		my ($kind, $injected, $lost, @samples) = @_;
		printf $fh "%-30s %8d %14s %9s %8d %14d %9d\n", $kind, $injected,
		  @samples ? (sprintf('%.2f s', median(@samples)), sprintf('%.2f s', max @samples)) : ('-', '-'), scalar @samples,
		  $lost->{there} // 0, $lost->{elsewhere} // 0;
	};
	printf $fh "%-30s %8s %14s %9s %8s %14s %9s\n", 'fault', 'injected', 'recovery p50', 'max', 'of', 'sessions lost', 'elsewhere';
	for my $kind (@$kinds) { $row->($kind, scalar(grep { $_->{kind} eq $kind } @$faults), $lost->{$kind}, @{ $recovery->{$kind} // [] }); }
	my %all;
	for my $where (qw(there elsewhere)) { $all{$where} = sum(0, map { $_->{$where} // 0 } @$lost{@$kinds}); }
	$row->('all', scalar @$faults, \%all, map { @$_ } values %$recovery);
}

# Rows: workload => { lost, writes }
sub print_workloads
{
	my ($fh, $transactions, $overlaps, $rows) = @_;
	my $format = "%-10s %10s %10s %10s %9s %8s %8s %13s\n";
	my @done = grep { $_->{name} } @$transactions;
	my $row = sub {
		my ($title, $refused, $row, $of) = @_;
		my @mine = grep { $of->($_) } @done;
		printf $fh $format, $title, scalar @mine, scalar(grep { $_->{outcome} eq 'ok' } @mine), scalar claims(@mine),
		  scalar(grep { $of->($_->[2]) } @$overlaps), $row->{writes} // '-', $refused, $row->{lost} // '-';
	};
	printf $fh "\n$format", 'workload', 'operations', 'committed', 'intervals', 'overlaps', 'writes', 'refused', 'lost updates';
	my $refused = grep { $_->{outcome} =~ /^(fence|write):40001/ } @done;
	for my $workload (qw(intervals long mixed rings sets permits queue register fenced election reentrant barrier))
	{
		$row->($workload, $workload eq 'fenced' ? $refused : '-', $rows->{$workload}, sub { $_[0]{workload} eq $workload });
	}
	$row->('all', '', { writes => '', lost => '' }, sub { 1 });
}

# How the transactions ended, the commonest first.
sub print_outcomes
{
	my ($fh, $transactions) = @_;
	my %outcome;
	$outcome{ $_->{outcome} }++ for @$transactions;
	print $fh "outcomes: ", join(', ', map { "$_ $outcome{$_}" } sort { $outcome{$b} <=> $outcome{$a} || $a cmp $b } keys %outcome), "\n\n";
}

1;
