# Chaos::Losses - which sessions the servers lost, and for whose fault.
#
# A server loses its session, and with it its locks, when it crashes, when the session has
# expired, or when the server finds that the ensemble went back.  Who is cut off, or too slow, has
# one that expires: that tells nothing of zklock.  But a finding has a reason: the ensemble did go
# back, by a fault or by itself; or something has happened to this very server.  What happens to
# another server is none: that one has raised the base of tokens without need, which costs
# all servers their sessions.
package Chaos::Losses;

use strict;
use warnings;

use List::Util qw(max min);
use Chaos::Jobs;
use Chaos::Log;

# So many seconds after an ensemble is back a server may find out: one that was away, or has
# waited, or has heard of another who has.
my $late = 60;

# Of the servers' logs: { what ("session"), server, at (seconds since 1970), found, since (when it
# was kept for the runs of a life before, and may have gone) }, in order.
#
# Each session that was opened is lost in the end, but for one that a server closes when it is
# stopped, or when nothing needs it.  Of one that its next life finds expired no line tells but
# that of its successor.
sub sessions
{
	my $log = shift;
	my @losses;
	my %line = (
		opened => Chaos::Log::said('opened', 'connected'),
		resumed => Chaos::Log::said('opened', 'session resumed: connected'),
		found => Chaos::Log::said('went back'),
		map { $_ => Chaos::Log::said($_) } qw(replaced expired keeping closing stopping leaving));
	my $any = join '|', map { "(?<$_>$line{$_})" } sort keys %line;
	for my $file (sort glob "$log/server-[A-Z].log")
	{
		my ($server) = $file =~ /server-(.)\.log$/;
		my $open;       # the session, by its id
		my %kept;       # the one of a life before: its id, and since when it is kept
		my $expired;    # no session since
		my $lose = sub {
			my ($time, %more) = @_;
			push @losses, { what => 'session', server => $server, at => $time, found => 0, since => $kept{since}, %more };
		};
		open my $in, '<', $file or die "could not read $file: $!\n";
		while (<$in>)
		{
			# the log may begin in the middle of a life
			$open = 'unknown' if $. == 1 && !/ LOG:  starting PostgreSQL /;
			next unless /^(\S+ [\d:.]+) .* (?:LOG|WARNING|DETAIL):  (?:$any)/;
			my ($time, $how) = (Chaos::Jobs::seconds($1), keys %+);
			my ($id) = /session (0x[0-9a-f]+)/;
			my $latest = $expired;
			$expired = undef;
			if ($how eq 'opened')
			{
				if (defined $open)
				{
					$lose->($time);
					%kept = ();
				}
				$open = $id;
			}
			elsif ($how eq 'replaced') { pop @losses if @losses && $losses[-1]{at} == $time; }
			elsif ($how eq 'keeping')
			{
				%kept = (id => $id, since => $time);
				$open = undef;
			}
			elsif ($how eq 'closing')
			{
				$lose->($time);
				$open = undef unless ($kept{id} // '') eq $id;
				%kept = ();
			}
			elsif ($how eq 'stopping') { $open = undef; }
			elsif ($how eq 'leaving') { $open = $id; }
			# that it has expired may be how it was found
			elsif ($how eq 'found' && $latest) { $latest->{found} = 1; }
			elsif ($how ne 'resumed')
			{
				$lose->($time, found => $how eq 'found');
				$open = undef;
				$expired = $losses[-1] if $how eq 'expired';
			}
		}
		close $in;
	}
	return sort { $a->{at} <=> $b->{at} } @losses;
}

# Runs of jobs that were committed, and then lost before that was recorded, or before anybody
# saw the commit.  Their server went by its clock, and its session may live: so sessions does
# not tell of all of them.
# { what ("run"), server, since (when it began), at (seconds since 1970) }
sub runs
{
	my $log = shift;
	my @losses;
	my $begins = Chaos::Log::said('begins');
	my $not_recorded = Chaos::Log::said('not recorded', 'is done', Chaos::Log::said('lost', 'job'));
	my $lost_before = Chaos::Log::said('lost before', 'job');
	for my $file (sort glob "$log/server-[A-Z].log")
	{
		my ($server) = $file =~ /server-(.)\.log$/;
		my %began;    # by the process
		open my $in, '<', $file or die "could not read $file: $!\n";
		while (<$in>)
		{
			next unless /^(\S+ [\d:.]+) \S+ \[(\d+)\] (?:.* )?(?:LOG:  (?<begins>$begins)|DETAIL:  $not_recorded|WARNING:  $lost_before)/;
			my ($time, $process) = (Chaos::Jobs::seconds($1), $2);
			if ($+{begins}) { $began{$process} = $time; }
			else { push @losses, { what => 'run', server => $server, at => $time, since => $began{$process} // $time }; }
		}
		close $in;
	}
	return @losses;
}

# Since when a session may have been gone: since the last claim there that was proven before.  What
# transactions say is by another clock, to which "zero" is to be added.  Where nobody claimed
# anything it is gone for no longer than "longest".
sub date
{
	my ($losses, $zero, $longest, @transactions) = @_;
	my %claims;
	# who puts needs no session that lives
	push @{ $claims{ $_->{server} } }, [ $_->{proven} + $zero, $_->{ended} + $zero ] for grep { defined $_->{proven} && $_->{workload} ne 'queue' } @transactions;
	for my $loss (@$losses)
	{
		my $last = max map { $_->[0] } grep { $_->[1] <= $loss->{at} } @{ $claims{ $loss->{server} } };
		$loss->{since} = min grep { defined } $loss->{since}, $last // $loss->{at} - $longest;
	}
}

# Adds to each loss the faults that were there at its time, or had been healed less than "since"
# seconds before, as "near", the newest first; an ensemble that went back by itself counts as one.
# Times of faults are by another clock, to which "zero" is to be added.
sub explain
{
	my ($losses, $since, $zero, $faults, @by_itself) = @_;
	my @all = (
		(map { { kind => $_->{kind}, target => $_->{target}, from => $_->{begin} + $zero, until => $_->{heal} + $zero + ($_->{kind} =~ /^ensemble / ? $late : $since) } } @$faults),
		map { { kind => 'by itself', from => $_ - 1, until => $_ + $late } } @by_itself);
	for my $loss (@$losses)
	{
		$loss->{near} = [ sort { $b->{from} <=> $a->{from} } grep { $_->{from} <= $loss->{at} && $loss->{at} <= $_->{until} } @all ];
	}
}

# Might the fault have struck the server that lost its session?
sub strikes { my ($fault, $loss) = @_; return !defined $fault->{target} || $fault->{target} eq $loss->{server}; }

# By the kind of fault: how many were lost where it may have struck ("there"), and "elsewhere".
# Those without a fault have the kind ''.
sub count
{
	my %count;
	for my $loss (@_)
	{
		my @near = @{ $loss->{near} };
		my ($fault) = grep { strikes($_, $loss) } @near;
		my $kind = ($fault // $near[0] // { kind => '' })->{kind};
		$count{$kind}{ $fault ? 'there' : 'elsewhere' }++;
	}
	return \%count;
}

# Found without a fault that may have struck there.
sub needless
{
	return grep { my $loss = $_; $loss->{found} && !grep { strikes($_, $loss) } @{ $loss->{near} } } @_;
}

1;
