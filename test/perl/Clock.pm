# Clock - the wall clock of one program, to be set: a library that is loaded before others.
#
#   my $clock = Clock->new or plan skip_all => 'no compiler';
#   { local @ENV{ $clock->names } = $clock->values; $node->start; }
#   $clock->set(3600);            # an hour ahead, from now on
#
# Whatever was started with it, and what that starts, has this clock.  Clocks that measure
# how long something takes go on as they are.
package Clock;

use strict;
use warnings;

use Carp;
use File::Temp ();

my $library;

sub _library
{
	return $library if defined $library;
	my $dir = File::Temp::tempdir('clock-XXXXXX', TMPDIR => 1, CLEANUP => 1);
	open my $source, '>', "$dir/clock.c" or croak $!;
	print $source <<'END';
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile int64_t *ahead;
static int (*real)(clockid_t, struct timespec *);
__attribute__((constructor)) static void begin(void)
{
	int fd = open(getenv("CLOCK_FILE"), O_RDONLY);
	real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
	ahead = mmap(NULL, sizeof(*ahead), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
}
int clock_gettime(clockid_t id, struct timespec *t)
{
	int rc;
	if (real == NULL)
		begin();
	rc = real(id, t);
	if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		t->tv_sec += *ahead;
	return rc;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	struct timespec now;
	(void) zone;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}
time_t time(time_t *t)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t != NULL)
		*t = now.tv_sec;
	return now.tv_sec;
}
END
	close $source or croak $!;
	$library = system('gcc', '-shared', '-fPIC', '-o', "$dir/clock.so", "$dir/clock.c", '-ldl') == 0 ? "$dir/clock.so" : '';
	return $library;
}

sub new
{
	my ($class, $ahead) = @_;
	# also in a list
	return undef unless _library();
	my $self = bless { dir => File::Temp::tempdir('clock-XXXXXX', TMPDIR => 1, CLEANUP => 1) }, $class;
	return $self->set($ahead // 0);
}

sub names { return qw(LD_PRELOAD CLOCK_FILE) }
sub values { my $self = shift; return ($library, "$self->{dir}/ahead"); }

# Seconds ahead of the machine's clock
sub set
{
	my ($self, $ahead) = @_;
	# in place, as it is mapped
	open my $file, -e "$self->{dir}/ahead" ? '+<' : '>', "$self->{dir}/ahead" or croak $!;
	syswrite $file, pack 'q', $ahead;
	$self->{ahead} = $ahead;
	return $self;
}

sub ahead { my $self = shift; return $self->{ahead}; }

1;
