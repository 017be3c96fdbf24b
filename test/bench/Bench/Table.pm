# Bench::Table - measures contestants in turn and prints what came out.
#
#   heading('One ZooKeeper server');
#   contest($world, 3, 'One client, p50 in us',
#       { name => 'setData', code => sub { ...; return { value => 285, n => 3500 } } },
#       { name => 'zklock, cold', cache => 0, of => 'setData', aim => '<= 1.5', code => ... });
#   fact('memory', '1.2 kB');
#
# A contestant's code returns a value and how many acquisitions it took, perhaps
# a note.  "cache" turns cached grants on or off before, "before" is run first and
# not counted, "of" names the contestant it is compared with, "aim" is what the
# ratio should be.  The table never judges.
package Bench::Table;

use strict;
use warnings;

use Bench::World qw(median);
use Exporter qw(import);
use List::Util qw(min max);

our @EXPORT_OK = qw(heading contest fact title);

our $out = \*STDOUT;

sub _line { my $line = sprintf $_[0], @_[ 1 .. $#_ ]; print $out $line =~ s/\s+$//r, "\n"; }

# Three digits, as far as there are so many.
sub _number
{
	my $x = shift;
	return '-' unless defined $x;
	return sprintf $x >= 100 ? '%.0f' : $x >= 10 ? '%.1f' : $x >= 0.0005 || $x == 0 ? '%.3g' : '%.0e', $x;
}

my $row = '  %-44s %8s %17s  %-26s %9s %9s  %s';

sub heading
{
	_line('');
	_line($row =~ s/^ {2}%-44s/%-46s/r, $_[0], 'median', 'min .. max', 'ratio (aim)', 'requests', 'writes', '');
}

sub title { _line(''); _line('%s', $_[0]); }

sub fact { my ($name, $value, $note) = @_; _line('  %-44s %8s  %s', $name, $value, $note // ''); }

sub contest
{
	my ($world, $repeat, $title, @contestants) = @_;
	@contestants = grep { !$_->{cache} || $world->can_cache } @contestants;
	for my $round (1 .. $repeat)
	{
		# There and back, so that a drift of the machine hits all alike.
		for my $c ($round % 2 ? @contestants : reverse @contestants)
		{
			$world->cache($c->{cache}) if defined $c->{cache};
			$c->{before}->() if $c->{before};
			my $then = $world->counters;
			my $result = $c->{code}->();
			# What was released last may still be on its way.
			Time::HiRes::sleep(0.05);
			my $cost = $result->{cost} // $world->since($then);
			push @{ $c->{values} }, $result->{value};
			push @{ $c->{requests} }, $cost->{requests} / $result->{n};
			push @{ $c->{writes} }, $cost->{writes} / $result->{n};
			$c->{note} = $result->{note};
		}
	}
	title($title);
	my %named = map { $_->{name} => $_ } @contestants;
	for my $c (@contestants)
	{
		my @values = @{ $c->{values} };
		my $of = $named{ $c->{of} // '' };
		my @ratios = $of ? map { $values[$_] / $of->{values}[$_] } grep { $of->{values}[$_] } 0 .. $#values : ();
		my $ratio = @ratios ? _number(median(@ratios)) . " x $c->{of}" : '';
		$ratio .= " ($c->{aim})" if $ratio && $c->{aim};
		_line($row, $c->{name}, _number(median(@values)),
			@values > 1 ? _number(min(@values)) . ' .. ' . _number(max(@values)) : '',
			$ratio, _number(median(@{ $c->{requests} })), _number(median(@{ $c->{writes} })), $c->{note} // '');
	}
}

1;
