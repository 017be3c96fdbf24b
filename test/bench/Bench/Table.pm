# Bench::Table - measures contestants in turn and prints what came out.
#
#   heading('One ZooKeeper server');
#   contest($world, 3, 'One client, p50 in us',
#       { name => 'setData', code => sub { ...; return { value => 285, n => 3500 } } },
#       { name => 'zklock, cold', keep => 0, of => 'setData', bars => { ratio => '<= 1.5' }, code => ... });
#   fact('memory', 1.2, bar => '<= 2', note => 'kB');
#   summary();
#
# A contestant's code returns a value and how many acquisitions it took (n), perhaps
# a note, perhaps other figures.  "keep" says whether grants are kept,
# "before" is run first and not counted, "of" names the contestant it is compared
# with.  "servers" says that PostgreSQL servers do it, whose requests are counted
# exactly; for all others, pings of idle sessions are among the requests.
#
# "idle" is what was left of the machine's CPUs: a row that leaves nothing is limited by these.
#
# "bars" are what is to be met: by the ratio, by requests or writes for each acquisition,
# by the share of the requests ("of their requests") that the one compared with makes, or
# by any other figure that the code returns.
package Bench::Table;

use strict;
use warnings;

use Bench::World qw(median);
use Exporter qw(import);
use List::Util qw(min max sum);

our @EXPORT_OK = qw(heading title contest fact failure summary);

our $out = \*STDOUT;

my ($heading, $title);
my ($bars, @missed) = 0;

sub _line { my $line = sprintf $_[0], @_[ 1 .. $#_ ]; print $out $line =~ s/\s+$//r, "\n"; }

# Three digits, as far as there are so many.
sub _number
{
	my $x = shift;
	return sprintf $x >= 100 ? '%.0f' : $x >= 10 ? '%.1f' : $x >= 0.0005 || $x == 0 ? '%.3g' : '%.0e', $x;
}

sub _miss { push @missed, join ': ', @_; }

# A bar and whether it is met, in words.
sub _judge
{
	my ($name, $what, $value, $bar) = @_;
	my ($sign, $limit) = split ' ', $bar;
	my $met = $sign eq '<=' ? $value <= $limit : $value >= $limit;
	$bars++;
	_miss($heading, $title, $name, "$what" . _number($value) . ", not $bar") unless $met;
	return "$what$bar: " . ($met ? 'met' : 'MISSED');
}

my $row = '  %-40s %8s %15s  %-28s %8s %8s %5s  %s';

# "plain": there will be no contests.
sub heading
{
	($heading, my %option) = @_;
	_line('');
	_line('%s', $heading);
	return if $option{plain};
	_line($row, '', 'median', 'min .. max', 'ratio', 'requests', 'writes', 'idle', 'bars');
}

sub title
{
	$title = shift;
	_line('');
	_line('%s', $title);
}

sub fact
{
	my ($name, $value, %option) = @_;
	my @notes = grep { defined } $option{bar} && _judge($name, '', $value, $option{bar}), $option{note};
	_line('  %-40s %8s  %s', $name, _number($value), join '; ', @notes);
}

# Ticks of all CPUs so far: without work, and all.
sub _cpus
{
	open my $fh, '<', '/proc/stat' or die "/proc/stat: $!\n";
	my (undef, @ticks) = split ' ', readline $fh;
	return ($ticks[3] + $ticks[4], sum(@ticks[ 0 .. 7 ]));
}

sub contest
{
	my ($world, $repeat, $contest, @contestants) = @_;
	for my $round (1 .. $repeat)
	{
		# There and back, so that a drift of the machine hits all alike.
		for my $c ($round % 2 ? @contestants : reverse @contestants)
		{
			$world->keep($c->{keep}) if defined $c->{keep};
			$c->{before}->() if $c->{before};
			$world->wait_answered if $c->{servers};
			my $then = $world->counters;
			my ($idle, $all) = _cpus();
			my $result = $c->{code}->();
			die "$c->{name}: nothing was measured\n" unless $result->{n} && $result->{value};
			my ($idle_now, $all_now) = _cpus();
			$result->{idle} = $all_now > $all ? 100 * ($idle_now - $idle) / ($all_now - $all) : 0;
			$world->wait_answered if $c->{servers};
			my $cost = $world->since($then);
			$result->{requests} = $cost->{ $c->{servers} ? 'servers' : 'requests' } / $result->{n};
			$result->{writes} = $cost->{writes} / $result->{n};
			push @{ $c->{results} }, $result;
		}
	}
	title($contest);
	my %named = map { $_->{name} => $_ } @contestants;
	for my $c (@contestants)
	{
		my @results = @{ $c->{results} };
		my $of = $named{ $c->{of} // '' };
		for my $i ($of ? 0 .. $#results : ())
		{
			my $theirs = $of->{results}[$i];
			$results[$i]{ratio} = $results[$i]{value} / $theirs->{value};
			$results[$i]{'of their requests'} = $theirs->{requests} ? $results[$i]{requests} / $theirs->{requests} : 0;
		}
		my $middle = sub { my $what = shift; return median(map { $_->{$what} } @results); };
		my @values = map { $_->{value} } @results;
		my @notes = map { _judge($c->{name}, "$_ ", $middle->($_), $c->{bars}{$_}) } sort keys %{ $c->{bars} // {} };
		_line($row, $c->{name}, _number(median(@values)),
			@values > 1 ? _number(min(@values)) . ' .. ' . _number(max(@values)) : '',
			$of ? _number($middle->('ratio')) . " x $c->{of}" : '',
			_number($middle->('requests')), _number($middle->('writes')), sprintf('%.0f %%', $middle->('idle')),
			join '; ', @notes, $results[-1]{note} // ());
	}
}

# A row that could not be measured.  True.
sub failure
{
	my ($name, $error) = @_;
	title("$name: $error");
	$bars++;
	_miss($heading, $name, 'it failed');
	return 1;
}

sub summary
{
	_line('');
	_line('%d of %d bars are met%s', $bars - @missed, $bars, @missed ? '; missed:' : '.');
	_line('  %s', $_) for @missed;
}

1;
