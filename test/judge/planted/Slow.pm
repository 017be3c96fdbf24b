# Slow - another judge, for histories of a few operations: it tries each order of them.
#
# It shares nothing with the first one but what the models are to permit.
package Slow;

use strict;
use warnings;

use Good;

# Random histories, most of which are near to being good: { name, ops, good }.
sub histories
{
	my ($kind, $n) = @_;
	srand 1;
	return map { my $ops = $kind eq 'mutex' ? mutex("m$_") : register("r$_"); { name => $ops->[0]{name}, ops => $ops, good => orders($kind, $ops) ? 1 : 0 } } 1 .. $n;
}

sub write
{
	my ($file, @histories) = @_;
	open my $fh, '>', $file or die "could not write $file: $!\n";
	for my $op (map { @{ $_->{ops} } } @histories)
	{
		print $fh Good::line($op, 'invoke', $op->{call}, %{ $op->{asked} }), "\n";
		print $fh Good::line($op, $op->{outcome}, $op->{ret}, %{ $op->{told} }), "\n" if $op->{outcome} ne 'open';
	}
	close $fh or die "could not write $file: $!\n";
}

# Values of two bits; some writes without an answer.
sub register
{
	my $name = shift;
	my @ops;
	for my $process (1 .. 3)
	{
		my $time = 1000 + int rand 20;
		for (1 .. 1 + rand 2)
		{
			my $call = $time += 1 + int rand 10;
			my $ret = $time += 1 + int rand 20;
			my $reads = rand() < 0.5;
			push @ops, {
				process => $process, server => 'A', kind => 'register', name => $name, call => $call, ret => $ret,
				f => $reads ? 'read' : 'cas',
				asked => $reads ? {} : { old => int rand 2, new => int rand 2 },
				told => $reads ? { new => int rand 2 } : {},
				outcome => $reads || rand() < 0.8 ? 'ok' : 'open' };
			last if $ops[-1]{outcome} eq 'open';
		}
	}
	return \@ops;
}

# Holds of one to three answers.
sub mutex
{
	my $name = shift;
	my @ops;
	for my $process (1 .. 3)
	{
		my $time = 1000 + int rand 30;
		for my $f ('acquire', rand() < 0.4 ? 'check' : (), rand() < 0.6 ? 'commit' : ())
		{
			my $call = $time += 1 + int rand 5;
			my $ret = $time += 1 + int rand 10;
			push @ops, { process => $process, server => 'A', kind => 'lock', name => $name, call => $call, ret => $ret, f => $f, asked => {}, told => {}, outcome => 'ok' };
		}
	}
	return \@ops;
}

# Is there an order?  "done" says which of them have their place, by their bits.
sub orders
{
	my ($kind, $ops, $done, $state) = @_;
	$done //= 0;
	$state //= 0;
	my @left = grep { !($done & 1 << $_) } 0 .. $#$ops;
	return 1 unless grep { $ops->[$_]{outcome} eq 'ok' } @left;
	for my $i (@left)
	{
		# nobody has returned before it was called
		next if grep { $ops->[$_]{outcome} eq 'ok' && $ops->[$_]{ret} < $ops->[$i]{call} } @left;
		my $next = $kind eq 'mutex' ? after_mutex($ops, $done, $state, $i) : after_register($ops->[$i], $state);
		return 1 if defined $next && orders($kind, $ops, $done | 1 << $i, $next);
	}
	return 0;
}

sub after_register
{
	my ($op, $state) = @_;
	return $op->{told}{new} == $state ? $state : undef if $op->{f} eq 'read';
	return $op->{asked}{old} == $state ? $op->{asked}{new} : undef;
}

# A lock may be lost after the last answer that confirmed it.
sub after_mutex
{
	my ($ops, $done, $state, $i) = @_;
	my $me = $ops->[$i]{process};
	return undef if $state != ($ops->[$i]{f} eq 'acquire' ? 0 : $me);
	my $claims = grep { $_ != $i && $ops->[$_]{process} == $me && !($done & 1 << $_) } 0 .. $#$ops;
	return $claims ? $me : 0;
}

1;
