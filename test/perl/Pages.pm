# What the documentation tells to be typed.
package Pages;

use strict;
use warnings;

use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Utils qw(slurp_file);

our @EXPORT_OK = qw(blocks_of transcripts_of);

# blocks_of PAGE, LANGUAGES: { heading => [ block, ... ] }, each to be taken in its turn
sub blocks_of
{
	my ($page, $languages) = @_;
	$languages //= 'sql|sh|crontab';
	my $text = slurp_file("$FindBin::Bin/../../$page");
	my %blocks;
	my $heading = '';
	while ($text =~ /^(?:##+ ([^\n]*)|```(?:$languages)\n(.*?)^```$|```.*?^```$)/msg)
	{
		if (defined $1) { $heading = $1; }
		elsif (defined $2) { push @{ $blocks{$heading} }, $2; }
	}
	return \%blocks;
}

# transcripts_of PAGE: { heading => [ block, ... ] } of what psql is shown to say
sub transcripts_of
{
	my ($page) = @_;
	my $text = slurp_file("$FindBin::Bin/../../$page");
	my %blocks;
	my $heading = '';
	while ($text =~ /^(?:##+ ([^\n]*)|```\n(.*?)^```$|```.*?^```$)/msg)
	{
		if (defined $1) { $heading = $1; }
		elsif (defined $2) { push @{ $blocks{$heading} }, $2; }
	}
	return \%blocks;
}

1;
