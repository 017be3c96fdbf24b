# Chaos::Told - what was asked and told, for a judge who knows nothing of this harness.
#
# Each operation is two lines of JSON, one before it was asked and one when the answer was
# here: test/judge/history.h says what is in them.
package Chaos::Told;

use strict;
use warnings;

use Time::HiRes ();

# In nanoseconds, of CLOCK_MONOTONIC: all processes of the machine share it.
sub now { return sprintf '%.0f', 1e9 * Time::HiRes::clock_gettime(1); }

# The line of an event.  Who: process and server; object: kind and name.
sub event
{
	my ($who, $type, $f, $object, $value, $time) = @_;
	my @pairs = map { "\"$_\":" . ($value->{$_} =~ /^\d+$/ ? $value->{$_} : "\"$value->{$_}\"") } sort grep { defined $value->{$_} } keys %$value;
	return sprintf qq({"process":%d,"server":"%s","type":"%s","f":"%s","kind":"%s","name":"%s","value":{%s},"time":%s}\n),
	  @$who, $type, $f, @$object, join(',', @pairs), $time // now();
}

# Are we sure that it had no effect?  The error is "what:SQLSTATE".
sub refused
{
	my ($f, $error) = @_;
	return 1 if $error =~ /^(busy|connect:)/;
	# a run may be in doubt, a party counted although its call failed
	return $error =~ /:(40001|55P03)/ if $f eq 'arrive';
	return $f ne 'run' && $error !~ /:(lost|silent|57P)/;
}

# Ask the same of some objects.  What the code returns is a hash of what it was told of each; nothing
# is a no.
sub ask
{
	my ($who, $f, $objects, $asked, $code) = @_;
	my $now = now();
	print join '', map { event($who, 'invoke', $f, $_, $asked, $now) } @$objects;
	my @told = eval { $code->() };
	my $error = $@;
	$now = now();
	my $type = $error ? (refused($f, $error) ? 'fail' : 'info') : @told ? 'ok' : 'fail';
	print join '', map { event($who, $type, $f, $objects->[$_], $told[$_] // {}, $now) } 0 .. $#$objects;
	die $error if $error;
}

1;
