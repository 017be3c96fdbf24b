# Wait - until something has come true.
#
#   wait_until(sub { -e $file }, "$file is there");
#   wait_until(sub { ($n = count()) == 3 }, 'there are three', sub { "$n now" });
#
# Returns what CODE does; dies if that stays false, naming WHAT and, by the third
# argument, what was seen last.
package Wait;

use strict;
use warnings;

use Carp;
use Exporter 'import';
use Time::HiRes qw(sleep time);

our @EXPORT = qw(wait_until);

# Named in an error is whoever called these.
our @CARP_NOT = qw(ZkLock ZkLock::Session ZooKeeper ZooKeeper::Client);

# The limit, in seconds, of every wait in every test: PostgreSQL's, if it is set.
# Only a hang may reach it.  The longest wait takes a few seconds on an idle machine:
# one that is busy with other work takes ten times as long, under a sanitizer thirty
# times, and PostgreSQL's own 180 s would be too close to that.  What a test says must
# happen by itself is proved by timeouts of the product that are longer than this.
our $limit = $ENV{PG_TEST_TIMEOUT_DEFAULT} || 600;

# The limit, in seconds, of a whole test, where test/tap sets one: for what hangs beside all
# these waits, or from one to the next.  The test dies and says where it is; if even its end
# hangs, that ends it.
if ($ENV{TAP_SECONDS})
{
	$SIG{ALRM} = sub {
		$SIG{ALRM} = 'DEFAULT';
		alarm 300;
		confess "this test has run for $ENV{TAP_SECONDS} s, and here it is";
	};
	alarm $ENV{TAP_SECONDS};
}

# For whatever a test starts: pg_ctl, pg_regress, test/client.
$ENV{PG_TEST_TIMEOUT_DEFAULT} = $limit;
$ENV{PGCTLTIMEOUT} //= $limit;

sub wait_until
{
	my ($code, $what, $seen) = @_;
	my $start = time;
	my $deadline = $start + $limit;
	for (;;)
	{
		my $answer = $code->();
		return $answer if $answer;
		croak "waited $limit s in vain until $what" . ($seen ? ': ' . $seen->() : '') if time > $deadline;
		# Whoever waits for long looks less often: others have work for the processor.
		my $pause = (time - $start) / 20;
		sleep($pause < 0.01 ? 0.01 : $pause > 0.2 ? 0.2 : $pause);
	}
}

1;
