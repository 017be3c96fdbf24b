# TLS, which the library must have, and the library's log.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $dir = PostgreSQL::Test::Utils::tempdir();
my $a = ZkLock::server('a', $zk);
my $s = ZkLock::session($a);
ZkLock::wait_connected($a);

sub log_of { return PostgreSQL::Test::Utils::slurp_file($a->logfile); }

sub set_and_reload
{
	my (%setting) = @_;
	ZkLock::ask($a, "ALTER SYSTEM SET zklock.$_ = '$setting{$_}'") for sort keys %setting;
	ZkLock::ask($a, 'SELECT pg_reload_conf()');
}

sub last_error { return ZkLock::ask($a, 'SELECT last_error FROM zk_session'); }

# Which library it is.
my $library = ZkLock::ask($a, 'SELECT library FROM zk_session');
like($library, qr/^libzookeeper_[sm]t \d+\.\d+\.\d+\S*$/, "zk_session.library: $library");
like(log_of(), qr/LOG:  zklock \S+ worker started with \Q$library\E$/m, '... and the log');

# What the library says.
unlike(log_of(), qr/libzookeeper:/, 'log_min_messages: nothing by default');
ZkLock::set($a, 'zklock.log_min_messages', 'info');
$zk->restart;
for my $line (qr/error: Socket .* zk retcode=-4/, qr/session establishment complete on server/)
{
	ok(ZkLock::wait_until(sub { log_of() =~ /LOG:  libzookeeper: $line/ }, "the log has $line"), "... info includes $line");
}
unlike(log_of(), qr/LOG:  libzookeeper: debug: /, '... but not debugging output');
set_and_reload(log_min_messages => 'debug');
ZkLock::wait_until(sub { log_of() =~ /LOG:  libzookeeper: debug: / }, 'debugging output');
set_and_reload(log_min_messages => 'error');
ok($s->query("SELECT zk_try_lock('job')") eq 't', 'all works meanwhile');
like($s->fails("SET zklock.log_min_messages = 'info'"), qr/^55P02: /, 'only by reload');

# Without TLS in the library, or with one that has threads.
my $threads = $library =~ /_mt/;
my $has_tls = !$threads && `nm -D \$(ldconfig -p | awk '/libzookeeper_st.so.2/ { print \$NF; exit }')` =~ /zookeeper_init_ssl/;
SKIP:
{
	skip 'this library has TLS', 5 if $has_tls;
	set_and_reload(tls_ca_file => "$dir/ca");
	my $none = "\"zklock.tls_ca_file\" is set, and zklock has no TLS with $library";
	ZkLock::wait_until(sub { last_error() =~ /TLS/ }, 'no TLS: an error');
	is(last_error(), "$none; the previous settings stay in use", '... at reload');
	is($s->query("SELECT zk_try_lock('job2')"), 't', '... which changes nothing');
	$a->restart;
	$s = ZkLock::session($a);
	ZkLock::wait_until(sub { last_error() eq $none }, '... at start');
	$s->query("SET zklock.connect_timeout = '200ms'");
	is($s->fails("SELECT zk_lock('job')"), '58000: could not reach ZooKeeper within 200 ms', '... is never without TLS');
	like($s->notices, qr/: \Q$none\E\.$/m, '... and why');
	like($s->fails("ALTER SYSTEM SET zklock.tls_ca_file = 'a,b'"), qr/^22023: invalid value/, 'a comma would cut the name in two');
}

# A library with threads that does not work as we know it: here one that has sockets for its
# pipe.  Nothing is done with it, and who wants a lock hears what to install.
if ($threads)
{
	PostgreSQL::Test::Utils::append_to_file("$dir/pipe.c", <<'END');
#include <sys/socket.h>
int pipe(int fds[2])
{
	return socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
}
END
	system('gcc', '-shared', '-fPIC', '-o', "$dir/pipe.so", "$dir/pipe.c") == 0 or die 'no pipe.so';
	ZkLock::hang_up($a);
	$s->quit;
	$a->stop;
	{
		local $ENV{LD_PRELOAD} = "$dir/pipe.so";
		$a->append_conf('postgresql.auto.conf', "zklock.tls_ca_file = ''\n");
		$a->start;
	}
	my $why = 'libzookeeper_mt cannot be used: there is no pipe that wakes its I/O thread; install libzookeeper_st, and build zklock with ZOOKEEPER_LIB=st';
	ZkLock::wait_until(sub { last_error() eq $why }, 'a library that is not as we know it');
	$s = ZkLock::session($a);
	$s->query("SET zklock.connect_timeout = '200ms'");
	is($s->fails("SELECT zk_lock('job')"), '58000: could not reach ZooKeeper within 200 ms', '... is not used');
	like($s->notices, qr/\Q$why\E/, '... and why');
	unlike(log_of(), qr/PANIC|terminated by signal/, '... and nothing breaks');
	done_testing();
	exit;
}

# The library with threads has the same names as the one without.  Where some other library
# has brought it, and so its functions are the first ones, nothing is done with it.
PostgreSQL::Test::Utils::append_to_file("$dir/threads.c", 'void *zookeeper_init2(void) { return 0; } int zoo_create(void) { return 0; }');
system('gcc', '-shared', '-fPIC', '-o', "$dir/threads.so", "$dir/threads.c") == 0 or die 'no threads.so';
$s->quit;
ZkLock::hang_up($a);
$a->stop;
{
	local $ENV{LD_PRELOAD} = "$dir/threads.so";
	$a->append_conf('postgresql.auto.conf', "zklock.tls_ca_file = ''\n");
	$a->start;
}
my $threads_first = 'another library has loaded libzookeeper_mt before libzookeeper_st: put zklock first in shared_preload_libraries';
ZkLock::wait_until(sub { last_error() eq $threads_first }, 'another library that has brought the one with threads', sub { last_error() });
$s = ZkLock::session($a);
$s->query("SET zklock.connect_timeout = '200ms'");
is($s->fails("SELECT zk_lock('job')"), '58000: could not reach ZooKeeper within 200 ms', '... is not used');
like($s->notices, qr/\Q$threads_first\E/, '... and why');
$s->quit;
ZkLock::hang_up($a);
$a->restart;
ZkLock::wait_connected($a);
$s = ZkLock::session($a);

# With: here a library that has the function, and notes what it is given.
PostgreSQL::Test::Utils::append_to_file("$dir/tls.c", <<'END');
#include <stdio.h>
#include <stdlib.h>
extern void *zookeeper_init2(const char *, void *, int, const void *, void *, int, void *);
void *zookeeper_init_ssl(const char *hosts, const char *certificates, void *watcher, int timeout,
	const void *id, void *context, int flags)
{
	FILE *file = fopen(getenv("TLS_NOTE"), "a");
	fprintf(file, "%s\n", certificates);
	fclose(file);
	return zookeeper_init2(hosts, watcher, timeout, id, context, flags, NULL);
}
END
SKIP:
{
	skip 'no compiler', 5
	  unless system('gcc', '-shared', '-fPIC', '-Wl,-z,lazy', '-o', "$dir/tls.so", "$dir/tls.c") == 0;
	ZkLock::hang_up($a);
	$s->quit;
	$a->stop;
	{
		local @ENV{qw(LD_PRELOAD TLS_NOTE)} = ("$dir/tls.so", "$dir/note");
		$a->append_conf('postgresql.auto.conf', "zklock.tls_ca_file = '$dir/ca'\n");
		$a->start;
	}
	my $try = sub { my $error = shift; ZkLock::wait_until(sub { last_error() eq $error }, $error); pass($error); };
	$try->('"zklock.tls_ca_file" needs "zklock.tls_cert_file" and "zklock.tls_key_file" beside it');
	set_and_reload(tls_cert_file => "$dir/cert", tls_key_file => "$dir/key");
	$try->("could not access file \"$dir/ca\": No such file or directory");
	# what the worker looks at first comes last, when the rest is as it should be
	PostgreSQL::Test::Utils::append_to_file("$dir/$_", "x\n") for qw(cert key);
	chmod 0644, "$dir/key";
	PostgreSQL::Test::Utils::append_to_file("$dir/ca", "x\n");
	$try->("file \"$dir/key\" has group or world access: its permissions must be 0600 or less if it is owned by the server's user, or 0640 or less if owned by root");
	ok(!-e "$dir/note", 'no attempt so far');
	chmod 0600, "$dir/key";
	ZkLock::wait_connected($a);
	# once to close the session of before the restart
	like(PostgreSQL::Test::Utils::slurp_file("$dir/note"), qr{^($dir/ca,$dir/cert,$dir/key\n)+$}, 'TLS is used');
	is(ZkLock::ask($a, "SELECT zk_try_lock('job')"), 't', '... and locks');
	set_and_reload(tls_ca_file => '');
	$try->('"zklock.tls_cert_file" and "zklock.tls_key_file" need "zklock.tls_ca_file" beside them; the previous settings stay in use');
}

done_testing();
