# Versions of the SQL: every one that is shipped works with the library as it is
# now, and updates lead to what CREATE EXTENSION makes.  pg_dump, pg_dumpall and
# pg_upgrade: the fences come along, the extension's objects do not.
#
# There is a first version only, as yet.  So that the test can fail, it writes
# two more, one whose update script is right and one whose script is not.
use strict;
use warnings;

use File::Temp ();
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock;

my $zk = ZooKeeper->new->start;
# zk_raise_tokens costs a session timeout
my $short = "zklock.session_timeout = '4s'\n";
my $node = ZkLock::server('node', $zk, conf => "${short}max_connections = 30", extension => 0);
(my $scripts = `pg_config --sharedir`) =~ s/\n/\/extension/;

sub database { my $name = shift; ZkLock::ask($node, "CREATE DATABASE $name"); return ZkLock::session($node, dbname => $name); }

# Everything that the extension consists of, in words: one line an object, with
# definition, comment and privileges, initial ones included.
my $catalog = q{
	SELECT string_agg(concat_ws(' # ', pg_describe_object(d.classid, d.objid, 0),
		CASE d.classid WHEN 'pg_proc'::regclass THEN pg_get_functiondef(d.objid) END,
		CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END,
		(SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0),
		(SELECT string_agg(pg_get_constraintdef(oid), ', ' ORDER BY pg_get_constraintdef(oid)) FROM pg_constraint WHERE conrelid = c.oid),
		(SELECT string_agg(x::text, ', ' ORDER BY x::text) FROM unnest(coalesce(c.relacl, p.proacl)) x),
		(SELECT string_agg(x::text, ', ' ORDER BY x::text) FROM pg_init_privs i, unnest(i.initprivs) x WHERE (i.classoid, i.objoid) = (d.classid, d.objid)),
		obj_description(d.objid, d.classid::regclass::name),
		'dumped ' || (c.oid = ANY (e.extconfig)) ), E'\n' ORDER BY pg_describe_object(d.classid, d.objid, 0))
	FROM pg_extension e JOIN pg_depend d ON d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
	LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
	WHERE e.extname = 'zklock'};

# Call every function and procedure, and read every view, with arguments by type
# and none that has a default.  A library that no longer goes with the SQL crashes,
# or complains of types, columns or the number of arguments: those are neither
# success nor one of zklock's refusals.
sub calls
{
	my ($s, $what) = @_;
	my @calls = split /\n/, $s->query(q{
		SELECT CASE prokind WHEN 'p' THEN 'CALL ' WHEN 'f' THEN 'SELECT * FROM ' END || p.oid::regproc || '(' ||
			coalesce((SELECT string_agg(CASE WHEN provariadic <> 0 AND i = pronargs - 1 THEN 'VARIADIC ' ELSE '' END || CASE
				WHEN proargnames[i + 1] = 'command' THEN '''SELECT 1'''
				WHEN t = 'text'::regtype THEN '''upgrade'''
				WHEN t = 'text[]'::regtype THEN '''{upgrade}'''
				WHEN t = 'bigint'::regtype THEN '9000000000'
				WHEN t = 'integer'::regtype THEN '1'
				ELSE 'NULL' END || '::' || format_type(t, -1), ', ' ORDER BY i)
				FROM generate_subscripts(proargtypes, 1) i, LATERAL (SELECT proargtypes[i] AS t) x
				WHERE i < pronargs - pronargdefaults), '') || ')'
		FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
		JOIN pg_extension e ON d.refobjid = e.oid AND extname = 'zklock'
		-- zk_rows is called by the views
		WHERE prorettype <> 'trigger'::regtype AND proname <> 'zk_rows'
		-- holds first, then what ends them
		ORDER BY proname <> 'zk_lock', proname LIKE '%unlock%' OR proname IN ('zk_resign', 'zk_break'), proname});
	my @views = split /\n/, $s->query(q{
		SELECT 'SELECT * FROM ' || objid::regclass FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid AND extname = 'zklock'
		WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e' ORDER BY 1});
	# a hold that outlives the calls, for those that need one
	$s->query("SELECT zk_lock('upgrade', 'exclusive', 'session')");
	my ($n, @wrong) = (0);
	for my $call (@calls, @views)
	{
		my $error = $s->fails($call);
		$n++;
		push @wrong, "$call: $error" if $error ne '' && $error !~ /^(?:22|40|55|58)/;
	}
	$s->query('SELECT zk_unlock_all()') if $s->alive;
	return ($n, join "\n", @wrong);
}

sub ok_calls
{
	my ($s, $what) = @_;
	my ($n, $wrong) = calls($s);
	is($wrong, '', "$what: $n functions, procedures and views work");
	cmp_ok($n, '>=', 20, '... all of them');
	is($s->query('SELECT zk_lock(\'x\') > 0; SELECT count(*) FROM zk_locks'), "t\n0", '... and a lock comes and goes');
}

#
# Every version that is shipped, and every way from one to another
#
my $admin = ZkLock::session($node);
my $latest = $admin->query("SELECT default_version FROM pg_available_extensions WHERE name = 'zklock'");
my @versions = split /\n/, $admin->query("SELECT version FROM pg_available_extension_versions WHERE name = 'zklock' ORDER BY string_to_array(version, '.')::int[]");
is($versions[-1], $latest, "the newest version, $latest, is what CREATE EXTENSION makes");
(my $id = $latest) =~ s/\W/_/g;
my $fresh = database("fresh_$id");
$fresh->query('CREATE EXTENSION zklock');
my $wanted = $fresh->query($catalog);
ok_calls($fresh, "CREATE EXTENSION, $latest");

# all that was at $from becomes as at $to
sub update
{
	my ($from, $to) = @_;
	(my $id = "u_${from}_$to") =~ s/\W/_/g;
	my $s = database($id);
	$s->query("CREATE EXTENSION zklock VERSION '$from'");
	$s->query("SELECT zk_fence('kept', 7)");
	$s->query("ALTER EXTENSION zklock UPDATE TO '$to'");
	return $s;
}

for my $i (0 .. $#versions - 1)
{
	my $old = database("old_$i");
	$old->query("CREATE EXTENSION zklock VERSION '$versions[$i]'");
	ok_calls($old, "SQL of $versions[$i]");
	my $s = update($versions[$i], $latest);
	is($s->query($catalog), $wanted, "$versions[$i] updated is as $latest");
	is($s->query('TABLE zk_fences'), 'kept|7', '... with its fences');
	ok_calls($s, '... and');
}

#
# The same with versions that do not exist
#
my $base = slurp_file("$scripts/zklock--$versions[0].sql");
my @written;
sub script
{
	my ($name, $text) = @_;
	push @written, "$scripts/zklock--$name.sql";
	open my $fh, '>', $written[-1] or die "$written[-1]: $!";
	print $fh $text;
	close $fh or die;
}
my $owner = $$;
END { unlink @written if @written && $owner == $$; }

my $change = <<'SQL';
CREATE FUNCTION zk_try(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_resign' LANGUAGE C STRICT;
COMMENT ON FUNCTION zk_try(text) IS 'what a later version might have';
REVOKE ALL ON FUNCTION zk_try(text) FROM PUBLIC;
ALTER TABLE zk_fences ADD at timestamptz;
SQL
script('9999.0', $base . $change);
script("$versions[0]--9999.0", $change);
my $later = database('later');
$later->query("CREATE EXTENSION zklock VERSION '9999.0'");
my $as_later = $later->query($catalog);
isnt($as_later, $wanted, 'a later version differs');
my $s = update($versions[0], '9999.0');
is($s->query($catalog), $as_later, 'a right update script leads there');
is($s->query('TABLE zk_fences'), '|kept|7|', '... with the fences');
is($s->query("SELECT zk_fence('kept', 8); TABLE zk_fences"), "\n|kept|8|", '... which the library goes on with');
ok_calls($s, 'a later version');
my $n = 0;
for my $line (grep { /^(COMMENT|REVOKE|ALTER)/ } split /\n/, $change)
{
	script("$versions[0]--9999.0", $change =~ s/\Q$line\E\n//r);
	my $wrong = ZkLock::session($node, dbname => do { ZkLock::ask($node, "CREATE DATABASE wrong_$n"); 'wrong_' . $n++ });
	$wrong->query("CREATE EXTENSION zklock VERSION '$versions[0]'; ALTER EXTENSION zklock UPDATE TO '9999.0'");
	isnt($wrong->query($catalog), $as_later, 'the test sees that an update script lacks: ' . lc substr $line, 0, 20);
}
# ... and that SQL does not go with the library
script('9999.1', $base =~ s/SETOF (record\s+AS 'MODULE_PATHNAME', 'zk_blocking')/$1/r);
my $broken = database('broken');
$broken->query("CREATE EXTENSION zklock VERSION '9999.1'");
like((calls($broken))[1], qr/zk_blocking\(.*\): 39P02/, 'the test sees that a function is not that of the library');
script('9999.2', $base . $change =~ s/'zk_resign'/'zk_gone'/r);
like(database('gone')->fails("CREATE EXTENSION zklock VERSION '9999.2'"), qr/^42883: could not find function "zk_gone"/, 'nor would a function be missing unnoticed');
unlink splice @written;

#
# Dump and restore
#
for my $name (grep { !/^(?:fresh_|postgres)/ } split /\n/, $admin->query('SELECT datname FROM pg_database WHERE NOT datistemplate'))
{
	# PostgreSQL waits for five seconds that its sessions have gone.
	my $error;
	ZkLock::wait_until(sub { ($error = $admin->fails("DROP DATABASE $name WITH (FORCE)")) eq '' }, "$name is dropped", sub { $error });
}
my $tmp = File::Temp::tempdir('dump-XXXXXX', TMPDIR => 1, CLEANUP => 1);
$fresh->query("SELECT zk_fence('näme', 41); SELECT zk_fence('other', 42)");
my $fences = $fresh->query('SELECT * FROM zk_fences ORDER BY 1');
my @at = ('-h', $node->host, '-p', $node->port);
command_ok([ 'pg_dump', @at, '-f', "$tmp/sql", "fresh_$id" ], 'pg_dump');
my $dump = slurp_file("$tmp/sql");
like($dump, qr/^CREATE EXTENSION IF NOT EXISTS zklock /m, '... has the extension');
unlike($dump, qr/^CREATE (?:FUNCTION|PROCEDURE|VIEW|TABLE)|^ALTER .*OWNER/m, '... and none of its objects');
like($dump, qr/^COPY public.zk_fences /m, '... but the fences');
my $restored = database('restored');
command_ok([ 'psql', '-Xq', @at, '-v', 'ON_ERROR_STOP=1', '-d', 'restored', '-f', "$tmp/sql" ], 'restored');
is($restored->query('SELECT * FROM zk_fences ORDER BY 1'), $fences, '... with the fences');
is($restored->query($catalog), $wanted, '... and all objects');
like($restored->fails("SELECT zk_fence('other', 41)"), qr/^40001/, '... a token that was too old still is');

# The whole server, into one that does not preload zklock
command_ok([ 'pg_dumpall', @at, '-f', "$tmp/all" ], 'pg_dumpall');
my $plain = PostgreSQL::Test::Cluster->new('plain');
$plain->init(extra => ['--encoding=UTF8']);
$plain->start;
# the role that initdb made is there
command_ok([ 'psql', '-Xq', '-h', $plain->host, '-p', $plain->port, '-d', 'postgres', '-f', "$tmp/all" ], 'restored');
my $p = ZkLock::session($plain, dbname => "fresh_$id");
is($p->query('SELECT * FROM zk_fences ORDER BY 1'), $fences, '... with the fences, in a server without preloading');
is($p->query($catalog), $wanted, '... and all objects');
like($p->fails("SELECT zk_fence('other', 41)"), qr/^40001/, '... where zk_fence works');
like($p->fails("SELECT zk_lock('x')"), qr/^55000: zklock must be loaded/, '... and zk_lock says what is missing');

#
# pg_upgrade, to the same major: there is no other here
#
ZkLock::hang_up($node);
$node->stop;
my $new = ZkLock::server('new', $zk, conf => $short, start => 0);
(my $bin = `pg_config --bindir`) =~ s/\n//;
{
	# it leaves files where it runs
	my $result = do
	{
		require Cwd;
		my $cwd = Cwd::getcwd();
		chdir $tmp or die;
		my $r = run_log([ 'pg_upgrade', '--retain', '-b', $bin, '-B', $bin, '-d', $node->data_dir, '-D', $new->data_dir,
			'-p', $node->port, '-P', $new->port, '-s', $node->host ]);
		chdir $cwd or die;
		$r;
	};
	ok($result, 'pg_upgrade');
}
my $log = join '', map { slurp_file($_) } glob $new->data_dir . '/pg_upgrade_output.d/*/log/*';
my $worker = qr/LOG:  zklock \S+ worker started/;
like($log, qr/LOG:  database system is ready to accept connections/, '... by servers');
unlike($log, $worker, '... without a worker');
like(slurp_file($node->logfile), $worker, '... as others have');
$new->start;
my $u = ZkLock::session($new, dbname => "fresh_$id");
is($u->query('SELECT * FROM zk_fences ORDER BY 1'), $fences, '... with the fences');
is($u->query($catalog), $wanted, '... and all objects');
ok_calls($u, 'upgraded');

done_testing();
