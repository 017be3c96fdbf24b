# The batch of doc/recipes.md, as it stands there, over three databases: by psql, as the role that the
# page names, with a server that is killed in the middle of it.
use strict;
use warnings;

use File::Temp ();
use IPC::Run;
use Pages qw(blocks_of);
use Queues qw(length_is);
use Test::More;
use ZkLock;

my $blocks = blocks_of('doc/recipes.md');
my ($tables, $split, $load, $lock, $locked, $change, $unlock, $prune) = @{ $blocks->{'One batch over three databases'} };
ok(defined $prune, 'the page has the blocks');

my $zk = ZooKeeper->new->start;
my ($a, $b, $c) = my @servers = map { ZkLock::server($_, $zk) } 'a', 'b', 'c';
ZkLock::wait_connected(@servers);
ZkLock::ask($_, "CREATE ROLE batch LOGIN; CALL zk_grant('batch'); GRANT CREATE ON SCHEMA public TO batch") for @servers;
ZkLock::session($_, user => 'batch')->query($tables) for @servers;

# A script in psql, in the background: it reads a file, and waits for nobody.
sub start
{
	my ($node, @blocks) = @_;
	my %run = (node => $node, output => '');
	my $file = File::Temp->new(TEMPLATE => 'batch-XXXXXX', TMPDIR => 1);
	print {$file} join("\n", @blocks) or die;
	close $file or die;
	$run{file} = $file;    # is deleted with the run
	$run{psql} = IPC::Run::start([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-f', "$file", '-d', $node->connstr('postgres') . ' user=batch' ], '<', \undef, '>&', \$run{output});
	return \%run;
}

sub finish
{
	my ($run) = @_;
	$run->{psql}->finish;
	return ($? >> 8, $run->{output});
}

sub rows { my ($sql, @nodes) = @_; my $n = 0; $n += ZkLock::ask($_, $sql) for @nodes; return $n; }

# Of the three who begin one does it.
my @runs = map { start($_, $split) } @servers;
my @said = map { [ finish($_) ] } @runs;
is_deeply([ map { $_->[0] } @said ], [ 0, 0, 0 ], 'all three begin') or diag explain \@said;
is(scalar(grep { $_->[1] =~ /: NOTICE:  job "split"/ } @said), 2, '... and two of them say that it is done');
length_is($a, 'parts', '30 0 0', 'the parts are there, once');

# A server dies with a part in hand.
my $killed = ZkLock::session($c, user => 'batch');
$killed->query('BEGIN');
is($killed->query("SELECT payload FROM zk_queue_take('parts')"), 'part 1', 'a server takes a part');
$c->stop('immediate');
@runs = map { start($_, $load) } $a, $b;
$c->start;
ZkLock::wait_connected($c);
push @runs, start($c, $load);
is_deeply([ finish($_) ], [ 0, '' ], $_->{node}->name . ' has loaded') for @runs;
is(rows('SELECT count(*) FROM loaded', @servers), 30, 'each part is loaded');
is(rows('SELECT count(*) FROM orders_new', @servers), 300, '... once');

# A report reads; it is waited for, and nobody changes anything before.
my $report = ZkLock::session($b, user => 'batch');
$report->query('BEGIN');
$report->query("SELECT zk_lock('orders', 'shared'), zk_lock('stock', 'shared')");
@runs = (start($a, $lock, $locked, $change, $unlock), map { start($_, $locked, $change) } $b, $c);
ZkLock::wait_until(sub { ZkLock::ask($a, "SELECT count(*) FROM zk_barriers WHERE name = 'locked'") == 2 }, 'two wait at the barrier');
is(rows('SELECT count(*) FROM orders', @servers), 0, 'nothing has changed while a report reads');
$report->query('COMMIT');
is_deeply([ finish($_) ], [ 0, $_->{node} == $a ? "t\n2\n" : '' ], $_->{node}->name . ' has changed tables') for @runs;
is(rows('SELECT count(*) FROM orders', @servers), 300, 'all is there');
is($report->query("SELECT zk_try_lock_all('{orders,stock}', 'shared', timeout => '1 h')"), 't', 'the next report reads');
is(ZkLock::ask($a, 'SELECT count(*) FROM zk_barriers'), 0, 'nobody is left at a barrier');
length_is($a, 'parts', '0 0 0', '... nor a part in the queue');
$report->query('COMMIT');

# Ids that are not needed any more
is_deeply([ finish(start($a, $prune)) ], [ 0, '' ], 'ids are deleted');
is(rows('SELECT count(*) FROM loaded', @servers), 30, '... if they are old');
ZkLock::ask($_, "UPDATE loaded SET at = now() - interval '31 days'") for @servers;
is_deeply([ finish(start($_, $prune)) ], [ 0, '' ], '... on ' . $_->name) for @servers;
is(rows('SELECT count(*) FROM loaded', @servers), 0, '... and all are old');

$_->stop for @servers;
done_testing();
