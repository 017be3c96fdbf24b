# Chaos::Log - what zklock says in the logs of servers, as far as the harness goes by it.
#
# The texts stand here as they do in the source.  test/lint finds one that nobody writes
# any more: else the harness would look for it in vain, and not know.
package Chaos::Log;

use strict;
use warnings;

my %text = (
	opened => '%s to ZooKeeper server %s, session 0x%llx, timeout %d ms',
	expired => 'ZooKeeper session 0x%llx expired',
	replaced => 'It replaces ZooKeeper session 0x%llx, whose lease ended while nothing needed it.',
	keeping => 'keeping ZooKeeper session 0x%llx from before the restart',
	closing => 'closing ZooKeeper session 0x%llx from before the restart',
	stopping => 'closing ZooKeeper session 0x%llx as soon as no lock is held',
	leaving => 'leaving ZooKeeper session 0x%llx open until the next start',
	'went back' => 'ZooKeeper ensemble went back to an earlier state',
	begins => 'job \"%s\": run %lld begins for slot %s, attempt %d, token %lld',
	'not recorded' => 'The run %s. The error was: %s.',
	lost => '%s \"%s\" was lost',
	'lost before' => '%s \"%s\" was lost before the commit was visible',
	settled => 'job \"%s\": run %lld is no longer in doubt: it %s',
	'done for slot' => 'job \"%s\" is done for slot %s, skipping',
	'counts as done' => 'Server \"%s\" was lost while it committed at %s, and that counts as done.',
	damaged => 'closed the connection to ZooKeeper server %s, from which damaged data came: %s',
	'not ZooKeeper' => q(what it answers is not ZooKeeper's%s%s%s));

# A regular expression for a text.  The values are regular expressions, in the order of the
# conversions; where there is none, or undef, anything fits.
sub said
{
	my ($what, @value) = @_;
	my $text = $text{$what} // die "no text $what\n";
	my %any = (s => '.*', d => '\d+', lld => '\d+', llx => '[0-9a-f]+');
	my ($pattern, @part) = ('', split /%(s|d|lld|llx)/, $text =~ s/\\"/"/gr);
	while (@part)
	{
		$pattern .= quotemeta shift @part;
		my $conversion = shift @part // last;
		$pattern .= '(?:' . (shift @value // $any{$conversion}) . ')';
	}
	return qr/$pattern/;
}

# The texts that none of these files has.
sub missing
{
	my @files = @_;
	my $source = '';
	for my $file (@files)
	{
		open my $in, '<', $file or die "could not read $file: $!\n";
		local $/;
		$source .= <$in>;
	}
	return sort grep { index($source, $text{$_}) < 0 } keys %text;
}

1;
