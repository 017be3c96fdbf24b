# At most N at a time, on all servers: in order, released like locks.
use strict;
use warnings;

use Test::More;
use Wait;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $a = ZkLock::server('a', $zk, conf => 'max_prepared_transactions = 5');
my $b = ZkLock::server('b', $zk);
my @both = ($a, $b);
my @a = map { ZkLock::session($a) } 1 .. 4;
my @b = map { ZkLock::session($b) } 1 .. 3;
my $directory = ZkLock::directory('job', 'semaphores');

sub in_queue { return ZkLock::wait_queue($zk, 'job', $_[0], 'semaphores'); }

# ... and nothing is on its way there that somebody had asked for who does not wait any more
sub settled
{
	ZkLock::wait_answered($_) for @both;
	return in_queue($_[0]);
}

sub clean { local $Test::Builder::Level = $Test::Builder::Level + 1; return ZkLock::ok_clean($zk, \@both, 'job', $_[0], 'semaphores'); }
sub rows { return ZkLock::ask($_[0], "SELECT $_[1] FROM zk_locks ORDER BY token, wait_start"); }

#
# Two at a time
#
$_->query('BEGIN') for @a, @b;
my $token = $a[0]->query("SELECT zk_acquire('job', 2)");
my ($contender) = in_queue(1);
like($contender, qr/^_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-permit2-\d{10}$/, 'a contender says how many permits there are');
is($zk->stat("$directory/$contender")->{czxid}, $token, 'the token is its czxid');
cmp_ok($b[0]->query("SELECT zk_acquire('job', 2)"), '>', $token, 'a second one has one, too, with a larger token');
is($a[1]->query("SELECT zk_try_acquire('job', 2)"), 'f', 'a third one has not');
is($b[1]->query("SELECT zk_try_acquire('job', 2, timeout => '10 ms')"), 'f', '... nor on the other server');
is($b[1]->query("SELECT zk_try_lock('job')"), 't', 'a lock is another thing');
is($b[1]->query("SELECT zk_try_acquire('other', 2)"), 't', '... and so is another name');
$b[1]->query('ROLLBACK; BEGIN');
in_queue(2);
is(rows($a, "kind, name, permits, mode, scope, granted, grant_state, count, token = $token, pid = @{[ $a[0]->pid ]}"),
	'semaphore|job|2||transaction|t|releasing|1|t|t', 'zk_locks of a holder');
is(ZkLock::ask($a, q{SELECT string_agg(concat_ws(' ', position, server, coalesce(mode, '-'), granted, permits), ', ' ORDER BY position) FROM zk_contenders('job') WHERE kind = 'semaphore'}),
	'1 a - t 2, 2 b - t 2', 'zk_contenders');

# In order, of both servers.
my @order = ($a[1], $b[1], $a[2], $b[2], $a[3]);
for my $i (0 .. $#order)
{
	$order[$i]->send("SELECT zk_acquire('job', 2)")->wait_level(2);
	in_queue(3 + $i);
}
is(ZkLock::ask($b, q{SELECT kind, name, contenders, waiting, oldest_waiter < now() FROM zk_lock_dirs('j')}), 'semaphore|job|7|5|t', 'zk_lock_dirs');
my @holders = ($a[0], $b[0]);
my $last = $token;
for my $i (0 .. $#order)
{
	(shift @holders)->query($i % 2 ? 'ROLLBACK' : 'COMMIT');
	my $t = $order[$i]->result;
	cmp_ok($t, '>', $last, "turn $i, with a larger token");
	$last = $t;
	push @holders, $order[$i];
	is(scalar(grep { $_->busy } @order), $#order - $i, '... and the others wait on');
}
$_->query('COMMIT') for @holders;
clean('after the turns');

#
# One session
#
$a[0]->query('BEGIN');
$token = $a[0]->query("SELECT zk_acquire('job', 1)");
is($a[0]->query("SELECT zk_acquire('job', 1)"), $token, 'who has one has it again');
$a[0]->query('SAVEPOINT s');
$a[0]->query("SELECT zk_acquire('job', 1)");
is(rows($a, 'count'), 3, '... counted');
$a[0]->query('ROLLBACK TO s');
is(rows($a, 'count'), 2, 'a savepoint gives back what it has added');
is($a[0]->query("SELECT zk_token('job') IS NULL"), 't', 'zk_token is of a lock');
is($a[0]->query("SELECT zk_assert_permit('job') = $token"), 't', 'zk_assert_permit');
like($a[0]->fails("PREPARE TRANSACTION 'p'"), qr/cannot PREPARE a transaction that holds a zklock permit/, 'no prepared transaction');
clean('after an error');
$a[0]->query("BEGIN; SAVEPOINT s; SELECT zk_acquire('job', 1); ROLLBACK TO s");
clean('after a rollback to a savepoint');
$a[0]->query('COMMIT');

# Session scope.
$token = $a[0]->query("SELECT zk_acquire('job', 1, 'session')");
$a[0]->query("BEGIN; SELECT zk_acquire('job', 1, 'session'); ROLLBACK");
is(rows($a, 'scope, count'), 'session|2', 'session scope outlives transactions');
$b[0]->send("SELECT zk_acquire('job', 1)")->wait_level(2);
is($a[0]->query("SELECT zk_release('job')"), 't', 'zk_release gives one back');
is($a[0]->query("SELECT zk_unlock('job')"), 'f', '... and a lock is another thing');
like($a[0]->notices, qr/you do not hold lock "job" in session scope/, '... it says so');
ok($b[0]->busy, '... the other one holds it');
is($a[0]->query("SELECT zk_release('job')"), 't', '... and the other one');
$b[0]->result;
is($a[0]->query("SELECT zk_release('job')"), 'f', 'there is no third');
$a[0]->query("SELECT zk_acquire('job', 1, 'session'); SELECT zk_lock('job', scope => 'session')");
is($a[0]->query('SELECT zk_unlock_all()'), 2, 'zk_unlock_all gives back both kinds');
clean('after zk_unlock_all');
for my $sql ('SELECT pg_advisory_unlock_all()', 'DISCARD ALL')
{
	$a[0]->query("SELECT zk_acquire('job', 1, 'session')");
	$a[0]->query($sql);
	clean("after $sql");
}
$a[0]->query("SELECT zk_acquire('job', 1, 'session')");
$a[0]->quit;
clean('after the end of the session');

#
# Different numbers
#
$a[1]->query("BEGIN; SELECT zk_acquire('job', 3)");
$b[0]->query("BEGIN; SELECT zk_acquire('job', 3)");
is($b[1]->query("SELECT zk_try_acquire('job', 2)"), 'f', 'two hold one: too many for who says two');
$b[2]->query("BEGIN; SELECT zk_acquire('job', 3)");
$a[2]->query('BEGIN');
$a[2]->send("SELECT zk_acquire('job', 1)")->wait_level(2);
in_queue(4);
$a[3]->query('BEGIN');
$a[3]->send("SELECT zk_acquire('job', 3)")->wait_level(2);
in_queue(5);
$a[1]->query('COMMIT');
$b[0]->query('COMMIT');
in_queue(3);
ok($a[2]->busy && $a[3]->busy, 'one holds it: too many for who says one, and nobody comes past that');
$b[2]->query('COMMIT');
$a[2]->result;
like($a[2]->notices, qr/^WARNING 01000: another session asks for one of 3 permits of semaphore "job", not of 1/, 'a warning says that they do not agree');
ok($a[3]->busy, '... and while one has it who says one, nobody else does');
$a[2]->query('COMMIT');
$a[3]->result;
is($a[3]->query("SELECT zk_acquire('job', 5) > 0"), 't', 'another number for what one has');
like($a[3]->notices, qr/^WARNING 01000: this session has one of 3 permits of semaphore "job" already, not of 5/, '... is warned of');
$a[3]->query('COMMIT');
clean('after different numbers');

#
# Waits that end
#
$a[1]->query("BEGIN; SELECT zk_acquire('job', 1)");
for my $s ($a[2], $b[1])
{
	$s->query('\set SHOW_CONTEXT always');
	$s->query('BEGIN');
	$s->send("SELECT zk_acquire('job', 1)")->wait_level(2)->cancel;
	like($s->failure, qr/canceling statement due to user request/, 'a wait can be canceled');
	$s->query('ROLLBACK');
	$s->query("SET lock_timeout = '50 ms'");
	like($s->fails("SELECT zk_acquire('job', 1)"), qr/canceling statement due to lock timeout/, '... and ended by lock_timeout');
	# The other server is known once its contender has been watched.  While the contender
	# of a cancelled wait is being deleted, there are two.
	my $who = $s == $a[2] ? qr/, of which process @{[ $a[1]->pid ]} has a permit/ : qr/(?:, which server "a" has| behind server "a")?/;
	like($s->notices, qr/^CONTEXT:  while waiting for semaphore "job"$who$/m, '... whose context says who has it, as far as is known');
	unlike($s->notices, qr/^DETAIL:/m, '... and that is all');
	# for one statement only
	$s->query("SET lock_timeout = 0; BEGIN; SET LOCAL statement_timeout = '50 ms'");
	like($s->fails("SELECT zk_acquire('job', 1)"), qr/canceling statement due to statement timeout/, '... and by statement_timeout');
	$s->query('ROLLBACK');
	settled(1);
}
my $gone = ZkLock::session($b);
$gone->send("SELECT zk_acquire('job', 1)")->wait_level(2)->terminate;
$gone->failure;
settled(1);
# Who waits in the middle leaves the others in order.
$a[2]->query('BEGIN');
$a[2]->send("SELECT zk_acquire('job', 1)")->wait_level(2);
in_queue(2);
$b[1]->send("SELECT zk_acquire('job', 1)")->wait_level(2);
$b[2]->query('BEGIN');
in_queue(3);
$b[2]->send("SELECT zk_acquire('job', 1)")->wait_level(2);
in_queue(4);
$b[1]->cancel;
$b[1]->failure;
in_queue(3);
$a[1]->query('COMMIT');
$a[2]->result;
ok($b[2]->busy, 'one of the middle has left');
$a[2]->query('COMMIT');
$b[2]->result;
$b[2]->query('COMMIT');
clean('after waits that ended');

# A directory that nobody made, and one that vanishes.
$zk->delete($directory) if $zk->stat($directory);
is($a[1]->query("SELECT zk_try_acquire('job', 1)"), 't', 'a directory is made');

#
# Arguments
#
like($a[1]->fails("SELECT zk_acquire('job', $_)"), qr/number of permits must be between 1 and 1000000/, "$_ permits") for 0, -1, 1000001;
like($a[1]->fails("SELECT zk_acquire('', 1)"), qr/semaphore name must not be empty/, 'a name');
like($a[1]->fails("SELECT $_('')"), qr/semaphore name must not be empty/, "... of $_") for qw(zk_release zk_permit zk_assert_permit);

#
# An administrator takes one away
#
$token = $a[1]->query("BEGIN; SELECT zk_acquire('job', 1)");
$b[1]->send("SELECT zk_acquire('job', 1)")->wait_level(2);
is(ZkLock::ask($b, "SELECT zk_break('job', $token)"), 't', 'zk_break');
$b[1]->result;
wait_until(sub { rows($a, 'grant_state') eq 'lost' }, 'the other server hears of it');
like($a[1]->fails('SELECT 1'), qr/a permit of semaphore "job" was lost/, '... is noticed');
$a[1]->query('ROLLBACK');
clean('after zk_break');

done_testing();
