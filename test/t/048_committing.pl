# A lock that is lost while its holder's commit waits for a standby: what is durable
# cannot be undone, so there is a warning that names the lock, and no more than that.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use File::Path ();
use PostgreSQL::Test::Utils ();
use Protocol3;
use Test::More;
use ZkLock;
use ZooKeeper;

# PostgreSQL's messages in a language that LATIN1 has no letters for; a file of GNU
# gettext.  A session whose lc_messages is ru_RU.UTF-8 sees them.  There need be no such
# locale: it is C.UTF-8 by another name, which alone is never translated from glibc 2.39 on.
sub translate
{
	my %text = ('' => "Content-Type: text/plain; charset=UTF-8\n", @_);
	my @id = sort keys %text;
	my ($major) = `pg_config --version` =~ /(\d+)/;
	my $dir = `pg_config --localedir` =~ s/\n//r . '/ru/LC_MESSAGES';
	File::Path::make_path($dir);
	my $strings = '';
	my (@ids, @texts);
	my $add = sub {
		my ($string, $list) = @_;
		push @$list, length $string, 28 + 16 * @id + length $strings;
		$strings .= "$string\0";
	};
	$add->($_, \@ids) for @id;
	$add->($text{$_}, \@texts) for @id;
	open my $fh, '>', "$dir/postgres-$major.mo" or die "$dir/postgres-$major.mo: $!";
	print $fh pack('L7', 0x950412de, 0, scalar @id, 28, 28 + 8 * @id, 0, 0), pack('L*', @ids, @texts), $strings;
	close $fh or die $!;
	$ENV{LOCPATH} = PostgreSQL::Test::Utils::tempdir();
	for my $name (qw(C ru_RU)) { symlink '/usr/lib/locale/C.utf8', "$ENV{LOCPATH}/$name.utf8" or die $!; }
}
translate('WARNING' => 'ПРЕДУПРЕЖДЕНИЕ', 'division by zero' => 'деление на ноль');

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('a', $zk, init => { allows_streaming => 1 });
my $rival = ZkLock::server('b', $zk);
ZkLock::wait_connected($node, $rival);
ZkLock::ask($node, 'CREATE TABLE t (what text);
	CREATE PROCEDURE "процедура"(what text) LANGUAGE plpgsql AS $$BEGIN INSERT INTO t VALUES (what); COMMIT; END$$;
	CREATE PROCEDURE outermost(what text) LANGUAGE plpgsql AS $$BEGIN CALL "процедура"(what); END$$');
my $postmaster = PostgreSQL::Test::Utils::slurp_file($node->data_dir . '/postmaster.pid') =~ s/\n.*//sr;

# Let commits wait for a standby that does not exist, or no more.  The checkpointer
# says so to the others, so a commit shows when it has.
sub standby
{
	my $names = shift;
	ZkLock::ask($node, "ALTER SYSTEM SET synchronous_standby_names = '$names'");
	ZkLock::ask($node, 'SELECT pg_reload_conf()');
	my $probe = ZkLock::session($node);
	my $commit = "SELECT pg_logical_emit_message(true, 'probe', '')";
	return $probe->query($commit) if $names eq '';
	ZkLock::wait_until(sub { $probe->send($commit) unless $probe->busy; return waits_for_standby($probe); }, 'commits wait');
	$probe->terminate;
}
sub waits_for_standby { return ZkLock::ask($node, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $_[0]->pid) eq 'SyncRep'; }

# Names as they come in a message that must not fail: in ASCII.
my %name = (plain => 'plain', 'замок' => '%D0%B7%D0%B0%D0%BC%D0%BE%D0%BA');

for my $name (sort keys %name)
{
	my %tag = ('COMMIT' => 'COMMIT', 'session scope' => 'INSERT 0 1', 'procedure' => 'CALL');
	my %way = (
		'COMMIT' => [ "BEGIN; SELECT zk_lock('$name'); INSERT INTO t VALUES ('w')", 'COMMIT' ],
		'session scope' => [ "SELECT zk_lock('$name', scope => 'session')", "INSERT INTO t VALUES ('w')" ],
		'procedure' => [ "SELECT zk_lock('$name', scope => 'session')", "CALL outermost('w')" ]);
	for my $way (sort keys %way)
	{
		for my $end ('the standby is given up', 'cancelled')
		{
			my $c = Protocol3->new($node);
			my ($before, $commit) = @{ $way{$way} };
			unlike($c->query($before), qr/ERROR|\w{5}: /, "$name, $way, $end: the lock is held");
			# It has none of these letters.  (PostgreSQL's own warning of a wait that is
			# cancelled names the procedure, and is a PANIC then.)
			$c->query("SET client_encoding = 'LATIN1'") unless $way eq 'procedure' && $end eq 'cancelled';
			standby('nobody');
			$c->send_query($commit);
			ZkLock::wait_until(sub { waits_for_standby($c) }, 'the commit waits');
			my $waiter = ZkLock::session($rival);
			$waiter->send("SELECT zk_lock('$name')");
			ZkLock::ask($node, "SELECT zk_break('$name', token) FROM zk_contenders('$name') WHERE ours");
			like($waiter->result, qr/^\d+$/, '... another server has the lock');
			ok($c->busy, '... and the commit still waits');
			if ($end eq 'cancelled') { ZkLock::ask($node, 'SELECT pg_cancel_backend(' . $c->pid . ')'); }
			else { standby(''); }
			my $answer = $c->answer;
			my $warning = "WARNING 01000: lock \"$name{$name}\" was lost before the commit was visible";
			$warning = "WARNING 01000: canceling wait for synchronous replication due to user request, $warning" if $end eq 'cancelled';
			is($answer, "$warning, $tag{$way}, idle", '... which ends with a warning');
			standby('');
			is($c->query('SELECT zk_unlock_all() >= 0') =~ s/WARNING.*?, //r, 'columns, row t, SELECT 1, idle', '... the connection goes on');
			is(ZkLock::ask($node, "WITH d AS (DELETE FROM t RETURNING what) SELECT string_agg(what, ' ') FROM d"), 'w', '... with what was committed');
		}
	}
}
# Where PostgreSQL's word for WARNING is one that the client cannot be sent, he hears of
# nothing, and the server log has it.
{
	my $c = Protocol3->new($node);
	$c->query("SET lc_messages = 'ru_RU.UTF-8'");
	is($c->query('SELECT 1/0'), '22012: деление на ноль, idle', 'messages are translated');
	$c->query("BEGIN; SELECT zk_lock('plain'); INSERT INTO t VALUES ('w')");
	$c->query("SET client_encoding = 'LATIN1'");
	standby('nobody');
	$c->send_query('COMMIT');
	ZkLock::wait_until(sub { waits_for_standby($c) }, 'the commit waits');
	my $waiter = ZkLock::session($rival)->send("SELECT zk_lock('plain')");
	ZkLock::ask($node, "SELECT zk_break('plain', token) FROM zk_contenders('plain') WHERE ours");
	like($waiter->result, qr/^\d+$/, 'another server has the lock');
	standby('');
	is($c->answer, 'COMMIT, idle', '... the commit ends without the warning');
	is(ZkLock::ask($node, "WITH d AS (DELETE FROM t RETURNING what) SELECT string_agg(what, ' ') FROM d"), 'w', '... with what was committed');
	is($c->query('SELECT 1'), 'columns, row 1, SELECT 1, idle', '... and the connection goes on');
	like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/ПРЕДУПРЕЖДЕНИЕ:  lock "plain" was lost before the commit was visible/, '... the log has it');
}

is(PostgreSQL::Test::Utils::slurp_file($node->data_dir . '/postmaster.pid') =~ s/\n.*//sr, $postmaster, 'the server has not been restarted');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/PANIC|terminated by signal/, '... nor any process of it');

# Lost before the commit, it is refused, or warned of, once.
my $c = Protocol3->new($node);
my $lose = sub {
	ZkLock::ask($node, "SELECT zk_break('job', token) FROM zk_contenders('job') WHERE ours");
	ZkLock::wait_until(sub { ZkLock::ask($node, "SELECT bool_and(grant_state = 'lost') FROM zk_locks WHERE name = 'job'") eq 't' }, 'lost');
};
$c->query("BEGIN; SELECT zk_lock('job'); INSERT INTO t VALUES ('w')");
$lose->();
is($c->query('COMMIT'), '40001: lock "job" was lost, idle', 'lost before the commit: refused');
$c->query("BEGIN; SET LOCAL zklock.on_loss = warn; SELECT zk_lock('job'); INSERT INTO t VALUES ('w')");
$lose->();
is($c->query('COMMIT'), 'WARNING 01000: lock "job" was lost, COMMIT, idle', 'zklock.on_loss = warn: one warning');
is(ZkLock::ask($node, 'SELECT count(*) FROM t'), 1, '... and a row');
ZkLock::ok_clean($zk, [ $node, $rival ], $_) for 'job', sort keys %name;

done_testing();
