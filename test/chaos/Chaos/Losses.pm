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

use Chaos::Jobs;
use Chaos::Log;

# So many seconds after an ensemble is back a server may find out: one that was away, or has
# waited, or has heard of another who has.
my $late = 60;

# Of the servers' logs: { what ("session"), server, at (seconds since 1970), found }, in order.
sub sessions
{
	my $log = shift;
	my @losses;
	my ($opened, $went_back) = (Chaos::Log::said('opened', '(?:session resumed: )?connected'), Chaos::Log::said('went back'));
	my ($expires, $closes) = map { Chaos::Log::said($_) } 'expired', 'closing';
	for my $file (sort glob "$log/server-[A-Z].log")
	{
		my ($server) = $file =~ /server-(.)\.log$/;
		my $expired;    # no session since
		open my $in, '<', $file or die "could not read $file: $!\n";
		while (<$in>)
		{
			if (/ LOG:  $opened/) { $expired = undef; }
			next unless /^(\S+ [\d:.]+) .* (?:LOG:  (?:(?<expired>$expires)|$closes)|WARNING:  (?<found>$went_back))/;
			my ($time, $how) = ($1, $+{expired} ? 'expired' : $+{found} ? 'found' : 'closing');
			# that it has expired may be how it was found
			if ($expired && $how eq 'found') { $expired->{found} = 1; }
			else { push @losses, { what => 'session', server => $server, at => Chaos::Jobs::seconds($time), found => $how eq 'found' }; }
			$expired = $how eq 'expired' ? $losses[-1] : undef;
		}
		close $in;
	}
	return sort { $a->{at} <=> $b->{at} } @losses;
}

# Runs of jobs that were committed, and then lost before that was recorded, or before anybody
# saw the commit.  Their server went by its clock, and its session may live: so sessions does
# not tell of all of them.
# { what ("run"), server, at (seconds since 1970) }
sub runs
{
	my $log = shift;
	my @losses;
	my $not_recorded = Chaos::Log::said('not recorded', 'is done', Chaos::Log::said('lost', 'job'));
	my $lost_before = Chaos::Log::said('lost before', 'job');
	for my $file (sort glob "$log/server-[A-Z].log")
	{
		my ($server) = $file =~ /server-(.)\.log$/;
		open my $in, '<', $file or die "could not read $file: $!\n";
		while (<$in>)
		{
			push @losses, { what => 'run', server => $server, at => Chaos::Jobs::seconds($1) } if /^(\S+ [\d:.]+) .* (?:DETAIL:  $not_recorded|WARNING:  $lost_before)/;
		}
		close $in;
	}
	return @losses;
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
