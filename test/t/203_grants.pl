# zk_grant: what it gives is what doc/security.md lists, and no more than its caller could give.
use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use FindBin;
use ZkLock;

my $zk = ZooKeeper->new->start;
my $node = ZkLock::server('node', $zk);
ZkLock::wait_connected($node);
my $super = ZkLock::session($node);

# The names that the extension has, and that a role may call or look at
my $members = q{
	SELECT name FROM (
		SELECT p.proname, 'f', has_function_privilege(%1$s, p.oid, 'EXECUTE'), (SELECT count(*) FROM aclexplode(proacl) WHERE grantee = 0)
			FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
			JOIN pg_extension e ON d.refobjid = e.oid AND extname = 'zklock' AND d.deptype = 'e' WHERE prorettype <> 'trigger'::regtype
		UNION ALL
		SELECT c.relname, 'r', has_table_privilege(%1$s, c.oid, 'SELECT'), (SELECT count(*) FROM aclexplode(relacl) WHERE grantee = 0)
			FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
			JOIN pg_extension e ON d.refobjid = e.oid AND extname = 'zklock' AND d.deptype = 'e' WHERE relkind IN ('r', 'v')
	) x (name, kind, may, everybody) WHERE %2$s ORDER BY name COLLATE "C"};
sub names { my %seen; return join ' ', grep { !$seen{$_}++ } split /\n/, $super->query(sprintf $members, @_); }
# what nobody needs a grant for, or nobody gets
my $given = "may AND (kind = 'r' OR name <> ALL ('{zk_unlock,zk_unlock_all,zk_release,zk_token,zk_fence_guarded,zk_rows,zk_grant}')) AND name NOT IN ('zk_locks', 'zk_rights')";

# The table of the page
my ($page) = slurp_file("$FindBin::Bin/../../doc/security.md") =~ /^\| `what` \| gives \|\n(.*?)\n\n/ms;
my %listed;
for (split /\n/, $page)
{
	my ($what, $text) = /^\| `(\w+)`[^|]*\| (.*) \|$/ or next;
	$listed{$what} = join ' ', sort { $a cmp $b } $text =~ /`(zk_\w+)`/g;
}
is(join(' ', sort keys %listed), 'admin look use', 'the page has a list for each');

$super->query("CREATE ROLE $_ LOGIN") for qw(use look admin nobody);
is(names("'nobody'", $given), '', 'without a grant a role may do nothing that needs one');
for my $what (sort keys %listed)
{
	$super->query($what eq 'use' ? "CALL zk_grant('use')" : "CALL zk_grant('$what', '$what')");
	is(names("'$what'", $given), $listed{$what}, "$what gives what the page lists");
	is(join(' ', sort { $a cmp $b } split /\n/, $super->query("SELECT name FROM zk_rights WHERE what = '$what'")), $listed{$what}, '... and zk_rights shows');
}
is(names("'pg_monitor'", $given), $listed{look}, 'members of pg_monitor may what "look" gives');
{
	# some columns of a view
	$super->query('GRANT SELECT (state, library) ON zk_session TO nobody');
	my $nobody = ZkLock::session($node, user => 'nobody');
	is($nobody->query('SELECT state, library <> \'\' FROM zk_session; SELECT count(*) FROM zk_session'), "connected|t\n1", 'the right to some columns is enough for these');
	is($nobody->fails('SELECT session_id FROM zk_session'), '42501: permission denied for view zk_session', '... and for no others');
	is($nobody->query("SELECT * FROM zk_rows('zk_session') AS (session_id text, state text, nothing text)"), '|connected|', '... in no other way');
	is($nobody->fails("SELECT * FROM zk_rows('zk_servers') AS (state text)"), '42501: permission denied for view zk_servers', '... and for no other view');
	$super->query('REVOKE SELECT (state, library) ON zk_session FROM nobody');
}
is($super->query(q{SELECT string_agg(relname, ' ') FROM pg_class WHERE relkind = 'v' AND relname LIKE 'zk\_%' AND NOT has_table_privilege('pg_read_all_data', oid, 'SELECT')}), '', 'members of pg_read_all_data may look at all views');
{
	$super->query('CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO reader');
	my $reader = ZkLock::session($node, user => 'reader');
	is($reader->query('SELECT state FROM zk_session'), 'connected', '... and see something there');
	like($reader->fails("SELECT * FROM zk_candidates('x')"), qr/^42501: /, '... and call nothing');
	$reader->quit;
}
my %all = map { $_ => 1 } map { split / / } values %listed;
is(join(' ', sort { $a cmp $b } keys %all, qw(zk_unlock zk_unlock_all zk_release zk_token zk_locks zk_fence_guarded zk_rows zk_rights zk_grant zk_fences)),
	names("'nobody'", "true"), 'each name belongs to one of them, or needs no grant, or is the table of zk_fence');

# What the page says of taking back
sub block { my ($text) = slurp_file("$FindBin::Bin/../../doc/security.md") =~ /```sql\n(REVOKE ALL ON ALL ROUTINES.*?)```/s; return $text; }
$super->query('GRANT use TO nobody');
$super->query(block() =~ s/FROM batch/FROM use/gr);
is(names("'use'", $given), '', 'and is taken back as the page says');
$super->query('REVOKE EXECUTE ON FUNCTION zk_contenders FROM look');
is(names("'look'", $given), join(' ', grep { $_ ne 'zk_contenders' } split / /, $listed{look}), '... one by one, too');
is($super->query("CALL zk_grant('look', 'look'); DROP OWNED BY look; DROP ROLE look; SELECT 1"), 1, '... and all before DROP ROLE');

# Errors
is($super->fails("CALL zk_grant('use', 'all')"), '22023: unrecognized value "all" for what', 'no such word');
like($super->notices, qr/^HINT:  Allowed values are "use", "look" and "admin"\.$/m, '... and which there are');
is($super->fails('CALL zk_grant(NULL)'), '22004: role must not be null', 'no role');
is($super->fails("CALL zk_grant('use', NULL)"), '22004: what must not be null', '... and no word');
is($super->fails("CALL zk_grant('missing')"), '42704: role "missing" does not exist', 'a role that is not there');
my $nobody = ZkLock::session($node, user => 'nobody');
like($nobody->fails("CALL zk_grant('nobody')"), qr/^42501: permission denied for /, 'who may not grant cannot by zk_grant');
is(names("'nobody'", $given), '', '... and has given nothing');
my $use = ZkLock::session($node, user => 'use');
$super->query("CALL zk_grant('use'); CREATE ROLE stranger");
like($use->fails("CALL zk_grant('stranger')"), qr/^42501: permission denied to grant function zk_/, 'nor can one who has the rights, and may not grant them');
is(names("'stranger'", $given), '', '... and has given nothing');
$use->quit;
$super->query('CREATE ROLE half LOGIN; GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO half WITH GRANT OPTION; GRANT SELECT ON ALL TABLES IN SCHEMA public TO half');
my $half = ZkLock::session($node, user => 'half');
is($half->fails("CALL zk_grant('stranger', 'look')"), '42501: permission denied to grant relation zk_barriers', '... nor one who may grant functions, and no views');
$half->quit;
$super->query(q{CREATE DATABASE closed});
{
	# ... nor one who may grant all but the use of the schema, which he has himself
	my $owner = ZkLock::session($node, dbname => 'closed');
	$owner->query('CREATE SCHEMA ext; CREATE EXTENSION zklock SCHEMA ext; GRANT USAGE ON SCHEMA ext TO half;
		GRANT EXECUTE ON ALL ROUTINES IN SCHEMA ext TO half WITH GRANT OPTION; GRANT SELECT ON ALL TABLES IN SCHEMA ext TO half WITH GRANT OPTION');
	my $closed = ZkLock::session($node, dbname => 'closed', user => 'half');
	is($closed->fails("CALL ext.zk_grant('stranger')"), '42501: permission denied to grant usage of schema ext', '... nor one who may not grant the use of the schema');
	is($owner->query("SELECT has_function_privilege('stranger', 'ext.zk_lock(text, text, text)', 'EXECUTE')"), 'f', '... and has given nothing');
	$owner->query('GRANT USAGE ON SCHEMA ext TO stranger');
	is($closed->fails("CALL ext.zk_grant('stranger')"), '', '... unless the role has it already');
	$_->quit for $closed, $owner;
}

# Names that must be quoted, and everybody
$super->query(qq{CREATE ROLE "A b""c" LOGIN; CALL zk_grant('A b"c')});
is(names(q{'A b"c'}, $given), $listed{use}, 'a role with a strange name');
$super->query("CALL zk_grant('public')");
is(names("'nobody'", $given), $listed{use}, 'everybody');

# Any schema, and one before it in the caller's search_path with the same names
my $other = do {
	$super->query('CREATE DATABASE other');
	ZkLock::session($node, dbname => 'other');
};
$other->query(q{CREATE SCHEMA "my ""zk"; CREATE EXTENSION zklock SCHEMA "my ""zk"; CREATE ROLE batch LOGIN;
	CREATE SCHEMA trap; GRANT ALL ON SCHEMA trap TO PUBLIC;
	CREATE FUNCTION trap.format(text, VARIADIC "any") RETURNS text LANGUAGE internal AS 'text_format_nv';
	CREATE FUNCTION trap.zk_lock() RETURNS int LANGUAGE sql AS 'SELECT 1';
	CREATE VIEW trap.zk_rights AS SELECT 'use' AS what, 'zk_break'::name AS name;
	REVOKE ALL ON FUNCTION trap.zk_lock FROM PUBLIC;
	SET search_path = trap, pg_catalog; CALL "my ""zk".zk_grant('batch')});
my $batch = ZkLock::session($node, dbname => 'other', user => 'batch');
is($batch->fails(q{BEGIN; SELECT "my ""zk".zk_lock('x'); COMMIT}), '', 'in a schema of its own, with the schema');
like($batch->fails(q{SELECT "my ""zk".zk_break('x', 1)}), qr/^42501: /, '... no more than that');
like($batch->fails('SELECT trap.zk_lock()'), qr/^42501: /, '... and nothing of others');
$other->query(q{DROP OWNED BY batch; CREATE SCHEMA moved; ALTER EXTENSION zklock SET SCHEMA moved; CALL moved.zk_grant('batch')});
is($batch->fails(q{BEGIN; SELECT moved.zk_lock('x'); COMMIT}), '', '... and when it has moved');

# zklock_advisory: who may lock may call its functions, if they were there when it was granted
{
	$super->query('CREATE DATABASE app; CREATE ROLE migrator LOGIN; CREATE ROLE watcher LOGIN');
	my $app = ZkLock::session($node, dbname => 'app');
	my $migrator = ZkLock::session($node, dbname => 'app', user => 'migrator');
	my $may = q{SELECT count(*) FILTER (WHERE has_function_privilege('%s', oid, 'EXECUTE')), count(*) FROM pg_proc WHERE pronamespace = 'zk_advisory'::regnamespace};
	$app->query(q{CREATE EXTENSION zklock; CALL zk_grant('migrator'); CREATE EXTENSION zklock_advisory});
	is($app->query(sprintf $may, 'migrator'), '0|21', 'the functions of zklock_advisory need a grant');
	like($migrator->fails('SELECT zk_advisory.pg_advisory_lock(1)'), qr/^42501: permission denied for function pg_advisory_lock/, '... which the role is told');
	like($app->query(q{SELECT ok, detail, hint FROM zk_check('migrator') WHERE what = 'rights'}),
		qr/^f\|role "migrator" may not use pg_advisory_lock, .*\|If the role is to use zklock, CALL public\.zk_grant\('migrator'\)\.$/, '... and zk_check says');
	$app->query(q{CALL public.zk_grant('migrator'); CALL zk_grant('watcher', 'look'); CALL zk_grant('watcher', 'admin')});
	is($app->query(sprintf $may, 'migrator'), '21|21', '... zk_grant gives all of them');
	is($migrator->fails('SELECT zk_advisory.pg_advisory_lock(1); SELECT zk_advisory.pg_advisory_unlock_all()'), '', '... and the role locks');
	is($app->query(q{SELECT ok FROM zk_check('migrator') WHERE what = 'rights'}), 't', '... and may all');
	is($app->query(sprintf $may, 'watcher'), '0|21', '... but not to look or to administrate');
	$app->query('REVOKE USAGE ON SCHEMA zk_advisory FROM PUBLIC');
	is($app->query(q{SELECT ok FROM zk_check('migrator') WHERE what = 'rights'}), 'f', 'nor without the schema');
	$app->query(q{CALL zk_grant('migrator')});
	is($migrator->fails('SELECT zk_advisory.pg_advisory_lock(1); SELECT zk_advisory.pg_advisory_unlock_all()'), '', '... which it gives, too');
	$app->query(block() =~ s/FROM batch/FROM migrator/gr =~ s/SCHEMA public/SCHEMA zk_advisory/r);
	is($app->query(sprintf $may, 'migrator'), '0|21', '... and all is taken back');
	$_->quit for $app, $migrator;
}

done_testing();
