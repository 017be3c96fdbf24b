# Resolver - one name whose address moves, or is not told, for one program and what it starts: a
# library that is loaded before others.
#
#   my $resolver = Resolver->new('zk.test', '127.0.0.1') or plan skip_all => 'no compiler';
#   { local @ENV{ $resolver->names } = $resolver->values; $node->start; }
#   $resolver->set('127.0.0.2');
#   $resolver->hang;    # no answer until another address is set
#   $resolver->set('');    # there is no such name
package Resolver;

use strict;
use warnings;

use Carp;
use File::Temp ();

sub new
{
	my ($class, $name, $address) = @_;
	my $dir = File::Temp::tempdir('resolver-XXXXXX', TMPDIR => 1, CLEANUP => 1);
	chmod 0755, $dir;
	open my $source, '>', "$dir/resolver.c" or croak $!;
	print $source <<'END';
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int read_address(char *address)
{
	FILE *file = fopen(getenv("RESOLVER_FILE"), "r");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%63s", address) != 1)
		address[0] = 0;
	fclose(file);
	return 1;
}
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
		(int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **)) dlsym(RTLD_NEXT, "getaddrinfo");
	const char *name = getenv("RESOLVER_NAME");
	char address[64] = "";
	if (node == NULL || name == NULL || strcmp(node, name) != 0 || (hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0) ||
		!read_address(address))
		return real(node, service, hints, res);
	while (strcmp(address, "hang") == 0 && read_address(address))
		usleep(10000);
	return address[0] ? real(address, service, hints, res) : EAI_NONAME;
}
END
	close $source or croak $!;
	system('cc', '-shared', '-fPIC', '-O1', '-o', "$dir/resolver.so", "$dir/resolver.c", '-ldl') == 0 or return;
	return (bless { name => $name, file => "$dir/address", library => "$dir/resolver.so" }, $class)->set($address);
}

# From now on.
sub set
{
	my ($self, $address) = @_;
	open my $file, '>', "$self->{file}.new" or croak $!;
	print $file "$address\n";
	close $file or croak $!;
	rename "$self->{file}.new", $self->{file} or croak $!;
	return $self;
}

# From now on, and whoever asks before that is answered then.
sub hang { my $self = shift; return $self->set('hang'); }

sub names { return qw(LD_PRELOAD RESOLVER_NAME RESOLVER_FILE); }

sub values
{
	my $self = shift;
	return (join(':', $self->{library}, grep { length } $ENV{LD_PRELOAD} // ''), @$self{qw(name file)});
}

1;
