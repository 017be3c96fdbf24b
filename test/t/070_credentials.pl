# Credentials: znodes that nobody else can change, and what goes wrong with them.
use strict;
use warnings;

use Test::More;
use ZkLock;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $file = PostgreSQL::Test::Utils::tempdir() . '/credentials';

sub write_file
{
	my ($text, $mode) = @_;
	unlink $file;
	PostgreSQL::Test::Utils::append_to_file($file, $text);
	chmod $mode // 0600, $file or die;
}

sub state_of { my ($node, $columns) = @_; return ZkLock::ask($node, "SELECT $columns FROM zk_session"); }

sub log_of { my $node = shift; return PostgreSQL::Test::Utils::slurp_file($node->logfile); }

sub set_and_reload
{
	my ($node, %setting) = @_;
	ZkLock::ask($node, "ALTER SYSTEM SET zklock.$_ = '$setting{$_}'") for sort keys %setting;
	ZkLock::ask($node, 'SELECT pg_reload_conf()');
}

# What a client is refused: '' if nothing.
sub refused
{
	my $code = shift;
	return eval { $code->(); 1 } ? '' : $@ =~ /error (-\d+)/ ? $1 : $@;
}

use constant NO_AUTH => -102;

#
# Nothing is made that others can change
#
write_file("# whom ZooKeeper knows us as\n\n  digest\tzklock:s3cr3t \r\n");
my $conf = "zklock.auth_file = '$file'\nzklock.root = '/deep/root'";
my $a = ZkLock::server('a', $zk, conf => $conf);
my $b = ZkLock::server('b', $zk, conf => $conf);
ZkLock::wait_connected($a, $b);
is(state_of($a, 'last_error'), '', 'credentials: no error');
my $s = ZkLock::session($a);
my $t = ZkLock::session($b);
my $token = $s->query("BEGIN; SELECT zk_lock('job')");
cmp_ok($token, '>', 0, 'a lock');
$s->query("SELECT zk_lock('read', 'shared', 'session')");
$t->send("BEGIN; SELECT zk_lock('job')")->wait_level(2);

my $friend = $zk->client(auth => [ digest => 'zklock:s3cr3t' ]);
my $stranger = $zk->client;
my $other = $zk->client(auth => [ digest => 'zklock:guess' ]);
ZkLock::wait_until(sub { @{ $friend->children('/deep/root/locks/job') // [] } == 2 }, 'both queue');

# Every node there is, at the time: all kinds that we make are among them.
my @nodes;
my @todo = '/deep';
while (defined(my $path = shift @todo))
{
	push @nodes, $path;
	push @todo, map { "$path/$_" } @{ $friend->children($path) };
}
for my $kind (qr{^/deep$}, qr{^/deep/root$}, qr{/locks$}, qr{/servers$}, qr{/servers/a-\w+$}, qr{/servers/b-\w+$}, qr{/locks/job$},
	qr{/locks/job/_c_[-\w]+-lock-\d+$}, qr{/locks/read/_c_[-\w]+-read-lock-\d+$})
{
	ok(scalar(grep { /$kind/ } @nodes), "there is a $kind");
}
for my $path (@nodes)
{
	my $acl = $friend->acl($path);
	is(scalar(@$acl), 1, "$path: one entry");
	is("@{ $acl->[0] }[0, 1]", '31 digest', '... is for our credentials');
	for my $client ($stranger, $other)
	{
		my %try = (
			create => sub { $client->create("$path/x") },
			contend => sub { $client->create("$path/_c_x-lock-", mode => 'ephemeral_sequential') },
			set => sub { $client->set($path, 'x') },
			get => sub { $client->get($path) },
			list => sub { $client->children($path) },
			'set ACL' => sub { $client->set_acl($path, [ 31, 'world', 'anyone' ]) });
		# Whether a node may be deleted is its parent's business; nobody can empty this.
		$try{delete} = sub { $client->delete($path) } if $path ne '/deep';
		# An ephemeral node has no children, whoever asks.
		delete @try{qw(create contend)} if $friend->exists($path)->{ephemeralOwner};
		is(refused($try{$_}), NO_AUTH, "... others cannot $_") for sort keys %try;
	}
}
is($t->busy, 1, 'nothing has come of it: one waits');
is($s->query("SELECT zk_token('job')"), $token, '... and the other holds');
$s->query('COMMIT');
cmp_ok($t->result, '>', $token, 'servers with the same credentials share locks');
$t->query('COMMIT');
is(refused(sub { $friend->delete('/deep/root/locks/read/' . $friend->children('/deep/root/locks/read')->[0]) }), '',
	'who has the credentials may do anything');
ZkLock::wait_until(sub { $s->fails('SELECT 1') =~ /^55000: lock "read" was lost/ }, 'the loss is seen');
$s->query('SELECT zk_unlock_all()');

# The library presents them on each connection, and so does a new worker.
my $id = state_of($a, 'session_id');
$token = $s->query("BEGIN; SELECT zk_lock('kept')");
$zk->restart;
ZkLock::wait_until(sub { state_of($a, 'state') eq 'connected' && eval { $t->query("SELECT zk_try_lock('job')") eq 't' } },
	'after a new connection');
my $worker = state_of($a, 'worker_pid');
kill 'TERM', $worker;
ZkLock::wait_until(sub { state_of($a, "state = 'connected' AND worker_pid <> $worker") eq 't' }, 'a new worker');
is(state_of($a, 'session_id'), $id, 'the session goes on');
is($s->query("SELECT zk_lock('job2') > 0"), 't', '... and makes nodes');
is($s->query("SELECT zk_assert('kept')"), $token, '... and writes');
$s->query('COMMIT');

#
# A new credential beside the old, by reload
#
$worker = state_of($a, 'worker_pid');
$token = $s->query("BEGIN; SELECT zk_lock('kept')");
write_file("digest zklock:s3cr3t\ndigest new:n3w\n");
ZkLock::ask($a, 'SELECT pg_reload_conf()');
ZkLock::wait_until(sub { state_of($a, "state = 'connected' AND worker_pid <> $worker") eq 't' }, 'reload: a new worker');
is(state_of($a, 'session_id'), $id, '... resumes the session');
is($s->query("SELECT zk_assert('kept')"), $token, '... and the lock is kept');
$s->query("SELECT zk_lock('both')");
is_deeply([ sort map { $_->[2] =~ /^(\w+)/ } @{ $zk->client(auth => [ digest => 'new:n3w' ])->acl('/deep/root/locks/both') } ],
	[qw(new zklock)], 'nodes are open to both');
$s->query('COMMIT');
$worker = state_of($a, 'worker_pid');
ZkLock::ask($a, 'SELECT pg_reload_conf()');
write_file("digest\n");
ZkLock::ask($a, 'SELECT pg_reload_conf()');
ZkLock::wait_until(sub { state_of($a, 'last_error') =~ /previous settings stay in use$/ }, 'a bad file is refused at reload');
is(state_of($a, 'worker_pid'), $worker, '... and the worker stays, as it does if nothing has changed');
# a name that B has not just given back
is($s->query("SELECT zk_try_lock('job3')"), 't', '... and works');

#
# Files that will not do
#
$b->stop;
my $c = ZkLock::server('c', $zk, conf => "zklock.auth_file = '$file'");
my $u = ZkLock::session($c);
my $impatient = ZkLock::session($c, env => { PGOPTIONS => '-c zklock.connect_timeout=200ms' });
my $dir = PostgreSQL::Test::Utils::tempdir();
my @bad = (
	[ "line 1 of file \"$file\" is not of the form \"scheme credential\", such as \"digest user:password\"", sub { } ],
	[ "file \"$file\" has no credential in it", sub { write_file("# nothing\n\n") } ],
	[ "file \"$file\" has group or world access: its permissions must be 0600 or less if it is owned by the server's user, or 0640 or less if owned by root",
		sub { write_file("digest a:hunter2\n", 0640) } ],
	[ "line 2 of file \"$file\" is not of the form \"scheme credential\", such as \"digest user:password\"",
		sub { write_file("digest a:hunter2\nhunter2\n") } ],
	[ "file \"$file\" has more than 16 credentials", sub { write_file("digest a:hunter2\n" x 17) } ],
	[ "file \"$file\" is too large", sub { write_file('digest a:hunter2' . 'x' x 65536) } ],
	[ "\"$dir\" is not a regular file", sub { set_and_reload($c, auth_file => $dir) } ],
	[ "could not open file \"$file.none\": No such file or directory", sub { set_and_reload($c, auth_file => "$file.none") } ],
	[ '"zklock.acl" is "creator", and "zklock.auth_file" is not set', sub { set_and_reload($c, auth_file => '', acl => 'creator') } ]);
for my $bad (@bad)
{
	my ($error, $do) = @$bad;
	$do->();
	ZkLock::wait_until(sub { state_of($c, 'last_error') eq $error }, $error);
	is(state_of($c, 'state, session_id'), 'connecting|', "not connected: $error");
	is($impatient->fails("SELECT zk_lock('job')"), '58000: could not reach ZooKeeper within 200 ms', '... no lock');
	like($impatient->notices, qr/: \Q$error\E\.$/m, '... and the user is told why');
	unlike($impatient->notices, qr/HINT/, '... and not to look elsewhere');
}
set_and_reload($c, acl => 'auto');
ZkLock::wait_connected($c);
my $open = qr/LOG:  znodes that zklock makes are open to every client of the ZooKeeper ensemble/;
$stranger = $zk->client; # the other fell with the restart
like(log_of($c), $open, 'without credentials all is open, and the log says so');
unlike(log_of($a), $open, '... and only then');
# without a root it was connected as soon
ZkLock::wait_until(sub { $stranger->exists('/zklock/locks') }, 'there is a root');
is(refused(sub { $stranger->create('/zklock/locks/x', mode => 'container') }), '', '... and so it is');
is($u->query("SELECT zk_try_lock('x')"), 't', '... and works');

# What was made so is not protected by credentials that come later.
write_file("digest zklock:s3cr3t\n");
set_and_reload($c, auth_file => $file);
ZkLock::hang_up($c);
$_->quit for $u, $impatient;
$c->restart;
ZkLock::wait_connected($c);
ZkLock::wait_until(sub { state_of($c, 'last_error') =~ /tokens/ }, 'open nodes are noticed');
like(state_of($c, 'last_error'), qr{^znode "/zklock/tokens" was made without "zklock.acl", and is open to every client$}, 'open nodes are named');
my $opened = () = log_of($c) =~ /is open to every client$/mg;
is($opened, 9, '... root, locks, elections, jobs, barriers, semaphores, queues, servers, tokens');
set_and_reload($c, acl => 'open');
ZkLock::wait_until(sub { log_of($c) =~ /DETAIL:  "zklock.acl" is "open"/ }, 'acl = open: the log says so');
ZkLock::wait_connected($c);
$u = ZkLock::session($c);
$u->query("SELECT zk_lock('opened', scope => 'session')");
is("@{ $stranger->acl('/zklock/locks/opened')->[0] }", '31 world anyone', '... and so are the nodes');
$u->query('SELECT zk_unlock_all()');

#
# A scheme that the ensemble does not know.  The session is there to expire.
#
set_and_reload($c, session_timeout => '2s');
ZkLock::hang_up($c);
$u->quit;
$c->restart;
$u = ZkLock::session($c);
$impatient = ZkLock::session($c, env => { PGOPTIONS => '-c zklock.connect_timeout=200ms' });
my $hold = ZkLock::session($c);
$hold->query("BEGIN; SELECT zk_lock('held')");
write_file("klingon hunter2\n");
ZkLock::ask($c, 'SELECT pg_reload_conf()');
ZkLock::wait_until(sub { state_of($c, 'state') eq 'authentication failed' }, 'refused credentials are a state');
is(state_of($c, 'last_error'), "ZooKeeper refused the credentials in \"$file\"", '... with its error');
is($impatient->fails("SELECT zk_lock('job')"), '58000: could not reach ZooKeeper within 200 ms', '... no lock');
like($impatient->notices, qr/: authentication failed\.\nHINT:  Check the credentials in "zklock\.auth_file"\.$/m, '... and the user is told why');
ZkLock::wait_until(sub { ZkLock::title(state_of($c, 'worker_pid')) =~ /zklock worker authentication failed$/ }, 'ps says so');
pass('... and ps says so');
# Between attempts are pauses of 1 s, 2 s, ..., a quarter more or less, which a new worker
# keeps to.
sub attempts { return scalar(() = log_of($c) =~ /refused the credentials/g); }
$worker = state_of($c, 'worker_pid');
kill 'TERM', $worker or die;
ZkLock::wait_until(sub { state_of($c, "state = 'authentication failed' AND worker_pid <> $worker") eq 't' }, 'the pause outlives the worker');
ZkLock::wait_until(sub { attempts() >= 3 }, 'it has tried again');
my @at;
my $log = log_of($c);
push @at, ($1 * 60 + $2) * 60 + $3 while @at < 3 && $log =~ /^\S+ (\d+):(\d+):([\d.]+) .* LOG:  ZooKeeper refused the credentials/mg;
$at[$_] += 86400 for grep { $at[$_] < $at[0] } 1, 2;
cmp_ok($at[$_] - $at[ $_ - 1 ], '>=', 0.74 * $_, "no storm of attempts: pause $_") for 1, 2;
is(state_of($c, 'state'), 'authentication failed', '... and the state stays');
like($hold->fails('COMMIT'), qr/^40001: lock "held" was lost/, 'a lock held is lost when the session\'s time is over');
# The pauses grow to a minute: without the reloads nobody would wait for so many.
my $attempts = attempts();
my $until = $attempts + 20;
ok(ZkLock::wait_until(
		sub {
			my $now = attempts();
			ZkLock::ask($c, 'SELECT pg_reload_conf()') if $now > $attempts || $now == $until - 20;
			$attempts = $now;
			return $now >= $until;
		},
		'each of twenty reloads has been followed by an attempt'),
	'a reload ends the pause');
write_file("digest zklock:s3cr3t\n");
ZkLock::ask($c, 'SELECT pg_reload_conf()');
ZkLock::wait_connected($c);
is($u->query("SELECT zk_try_lock('job')"), 't', '... and all is well');

unlike(log_of($_), qr/s3cr3t|n3w|hunter2/, $_->name . ': no credential in the log') for $a, $b, $c;

done_testing();
