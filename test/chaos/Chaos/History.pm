# Chaos::History - what the clients have written down, read while they write.
package Chaos::History;

use strict;
use warnings;

use Carp;

my @field = qw(client server workload name mode begun locked token proven ended outcome data);

# Arguments: the file for the judge's history (Chaos::Told), and the clients' files.
sub new
{
	my ($class, $told, @files) = @_;
	my $self = bless { transactions => [], strange => [], last_lock => {}, last_job => {}, open => {} }, $class;
	open $self->{told}, '>', $told or croak "could not write $told: $!";
	$self->{open}{$_} = { rest => '' } for @files;
	return $self;
}

# Read what has come.
sub update
{
	my $self = shift;
	for my $name (sort keys %{ $self->{open} })
	{
		my $file = $self->{open}{$name};
		$file->{handle} // open($file->{handle}, '<', $name) // croak "could not open $name: $!";
		# A file that grows: forget that its end was seen.
		seek $file->{handle}, 0, 1;
		local $/;
		my $text = $file->{rest} . (readline($file->{handle}) // '');
		my $end = 1 + rindex $text, "\n";
		$file->{rest} = substr $text, $end;
		$self->_line($_) for split /\n/, substr $text, 0, $end;
	}
	return $self;
}

sub _line
{
	my ($self, $line) = @_;
	return $self->tell("$line\n") if $line =~ /^\{/;
	my ($kind, @value) = split /\t/, $line;
	unless ($kind eq 'T' && @value == @field)
	{
		push @{ $self->{strange} }, $line;
		return;
	}
	my %t;
	@t{@field} = map { $_ eq '-' ? undef : $_ } @value;
	push @{ $self->{transactions} }, \%t;
	$self->{last_job}{ $t{server} }{ $t{workload} } = $t{begun} if $t{workload} =~ /^jobs-/ && $t{outcome} eq 'ok';
	my $last = \$self->{last_lock}{ $t{server} };
	$$last = $t{locked} if defined $t{locked} && $t{workload} ne 'election' && $t{locked} > ($$last // 0);
}

# More lines of the judge's history.
sub tell { my ($self, @lines) = @_; print { $self->{told} } @lines; }

sub close_told { my $self = shift; close $self->{told} or croak "could not write the history: $!"; }

sub transactions { my $self = shift; return @{ $self->{transactions} }; }

# Lines that are no transactions: a client's last words.
sub strange { my $self = shift; return @{ $self->{strange} }; }

# When a server last gave a lock to a client; 0 if never.
sub last_lock { my ($self, $server) = @_; return $self->{last_lock}{$server} // 0; }

# When a call for a job that came to a good end was made there; 0 if never.
sub last_job { my ($self, $server, $job) = @_; return $self->{last_job}{$server}{$job} // 0; }

1;
