# Transcript - run what a page shows of psql, and compare the answers.
#
#   my $run = Transcript->new(name => 'locks.md', sessions => { A => $a, B => $b }, user => 'batch',
#       dbname => { B => 'warehouse' }, waits => sub { ... }, rewrite => sub { ... });
#   $run->block($_) for @{ transcripts_of('doc/locks.md')->{Example} };
#
# A block has statements behind prompts, such as "A=# " (A-# where a statement goes on), each with
# its answer.  After a statement with the comment "-- waits" nobody waits for the answer: "waits" is
# called, with the name of the session, and may wait until it stands in the queue.  Its answer comes
# later: behind a line that ends in "-- and B has it:", or in a block that begins without a prompt.
#
# "rewrite" gets a statement, and returns the one to be sent.
#
# Numbers and times are others each time, and so are the widths of columns: they are not compared.
# Nor are lines that psql prints or not, as it is told or as it comes: some tags of commands, the
# number of rows, contexts, and how a server said that it ends.
package Transcript;

use strict;
use warnings;

use IO::Select;
use IPC::Open2;
use Test::More;
use Wait;

sub new
{
	my ($class, %option) = @_;
	return bless { waits => sub { }, name => 'transcript', %option }, $class;
}

# A psql, whose answers are those that a user sees.
sub _session
{
	my ($self, $name) = @_;
	return $self->{psql}{$name} //= do {
		my $node = $self->{sessions}{$name} or die "nobody is \"$name\"";
		my $conninfo = sprintf "host='%s' port=%s dbname='%s' user='%s'", $node->host, $node->port, $self->{dbname}{$name} // 'postgres', $self->{user} // 'postgres';
		my %psql = (name => $name, sent => 0, buffer => '');
		local %ENV = (%ENV, PGAPPNAME => "transcript $name");
		$psql{pid} = open2($psql{out}, $psql{in}, 'sh', '-c', 'exec psql -X -d "$0" 2>&1', $conninfo);
		\%psql;
	};
}

sub send
{
	my ($self, $name, $sql) = @_;
	my $psql = $self->_session($name);
	local $SIG{PIPE} = 'IGNORE';
	my $in = $psql->{in};
	$sql = $self->{rewrite}->($sql) if $self->{rewrite};
	print $in "$sql\n\\echo <end @{[ ++$psql->{sent} ]}>\n";
	$in->flush;
	return;
}

sub answer
{
	my ($self, $name) = @_;
	my $psql = $self->_session($name);
	my $end = qr/^<end $psql->{sent}>\n/m;
	my $lost;
	wait_until(
		sub {
			until ($psql->{buffer} =~ $end || $lost)
			{
				return 0 unless IO::Select->new($psql->{out})->can_read(1);
				sysread($psql->{out}, $psql->{buffer}, 65536, length $psql->{buffer}) or $lost = 1;
			}
			return 1;
		},
		"$name answers",
		sub { $psql->{buffer} });
	my $answer = $psql->{buffer} =~ s/$end.*//sr;
	$psql->{buffer} = '';
	return $answer;
}

sub plain
{
	my ($answer) = @_;
	my @lines = grep { !/^\s*$|^(BEGIN|COMMIT|ROLLBACK|INSERT 0 \d+|\(\d+ rows?\))$|^(FATAL|CONTEXT):|connection to (the )?server was lost/ } split /\n/, $answer;
	s/\d+([-:. T+]+\d+)*/N/g, s/-+/-/g, s/\s+/ /g, s/^ | $//g for @lines;
	return join "\n", @lines;
}

sub _compare
{
	my ($self, $name, $shown) = @_;
	my $answer = $self->answer($name);
	local $Test::Builder::Level = $Test::Builder::Level + 2;
	return is(plain($answer), plain($shown), "$self->{name}: $self->{sql}{$name}") || diag $answer;
}

sub block
{
	my ($self, $block) = @_;
	my ($asked, $statement, $shown, $late) = ('', '', '');
	my $done = sub {
		return if $asked eq '';
		$self->_compare($asked, $shown);
		$self->{late} = '' if $late;
		($asked, $shown, $late) = ('', '', 0);
	};
	# what is left of an answer that was waited for
	if ($block !~ /^\w+[=-][#>] /) { ($asked, $late) = ($self->{late}, 1); }
	for my $line (split /\n/, $block)
	{
		if ($line =~ /^(\w+)([=-])[#>] (.*)$/)
		{
			my ($name, $first, $sql) = ($1, $2 eq '=', $3);
			$done->() if $first;
			$statement = $first ? $sql : "$statement\n$sql";
			next unless $statement =~ /;\s*(--.*)?$|^\\|\\gset$/;
			$self->{sql}{$name} = $statement;
			$self->send($name, $statement);
			if ($statement =~ /-- waits$/)
			{
				$self->{late} = $name;
				$self->{waits}->($name);
			}
			else { $asked = $name; }
		}
		elsif ($line =~ /^\s+-- and (\w+) has it:$/) { $done->(); ($asked, $late) = ($1, 1); }
		else { $shown .= "$line\n"; }
	}
	$done->();
	return;
}

# End all of them.
sub quit
{
	my ($self) = @_;
	local ($?, $SIG{PIPE}) = (0, 'IGNORE');
	for my $psql (values %{ delete $self->{psql} // {} })
	{
		close $psql->{in};
		waitpid $psql->{pid}, 0;
	}
	return;
}

1;
