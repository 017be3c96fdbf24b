# Random sequences of everything that a session can ask of zklock, on two servers, beside
# a model of what they may be answered (test/perl/Model.pm).
#
# A sequence is some forty steps.  In each a session does something: takes a lock or a
# permit in some mode, scope and way, gives one up, begins, ends or goes back in a transaction, is
# cancelled or ends.  Then all settles: whoever must be answered has been, whoever waits
# is seen to wait, and the servers and ZooKeeper show what the model expects and nothing
# besides.  So the outcome of a step is known before the next one is made, and who must
# not wait is seen not to: nobody gives up anything before he has his answer.
#
# Two of three servers take part, of which one has room for five names.  Whether they
# keep locks, and how often they hand them on, changes with each sequence.
#
# Environment: SEQUENCES, how many; SEED, that of the first, each has the next one: it
# chooses the same steps, as far as these do not depend on who is first.  A failure
# prints the seed, what was done and answered so far, what was allowed and what came.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use List::Util qw(shuffle sum0 uniq);
use Model;
use Protocol3;
use Test::More;
use Time::HiRes qw(sleep time);
use Wait;
use ZkLock;
use ZooKeeper;

my $sequences = $ENV{SEQUENCES} // 60;
my $seed = $ENV{SEED} // 1000 * int rand 1_000_000;

my $zk = ZooKeeper->new(container_check_ms => 500)->start;
my $conf = "deadlock_timeout = '20ms'\nclient_connection_check_interval = '20ms'\nmax_prepared_transactions = 5\n"
  . "autovacuum = off\nlog_statement = none\nlog_min_messages = error\nzklock.keep_time = 0";
my %room = (a => 10000, b => 10000, c => 5);
my %node = map { $_ => ZkLock::server($_, $zk, conf => "$conf\nzklock.max_locks = $room{$_}") } sort keys %room;
ZkLock::wait_connected(@node{ sort keys %node });
my %observer = map { $_ => Protocol3->new($node{$_}) } keys %node;
my $fenced = 0;
my @elections = qw(e f);

# Of the sequence
my ($model, %client, @names, @permits, @script, @servers, %kept, %setting, %mood, %queued);
my %seen;

#
# Talking to servers
#

sub fail_here { my ($what) = @_; die { what => $what }; }

# An answer in parts: state, error (SQLSTATE), message, value (of the row), tag, text.
sub parse
{
	my $text = shift;
	my %answer = (text => $text, error => '');
	$answer{state} = $1 if $text =~ /(idle|in transaction|aborted|lost)$/;
	@answer{qw(error message)} = ($1, $2) if $text =~ /(?:^|, )([0-9A-Z]{5}): (.*?)(?:, (?:idle|in transaction|aborted|lost))?$/;
	$answer{value} = $1 if $text =~ /(?:^|, )row ([^,]*)/;
	$answer{tag} = $1 if $text =~ /(?:^|, )([A-Z][A-Z ]*[A-Z](?: \d+)*), [a-z ]+$/;
	return \%answer;
}

sub ask
{
	my ($server, $sql) = @_;
	my $answer = parse($observer{$server}->query($sql));
	fail_here("the observer of $server: $sql: $answer->{text}") if $answer->{error} ne '' || !$answer->{state};
	return $answer->{value};
}

sub note_step { push @script, $_[0]; return; }

# Send, by one protocol or the other.
sub transmit
{
	my ($s, $sql) = @_;
	my $c = $client{ $s->{name} };
	note_step("$s->{name}: $sql");
	return rand() < 0.5 ? $c->send_query($sql) : $c->run($sql)->send_sync;
}

sub answer_of
{
	my $s = shift;
	my $text = eval { $client{ $s->{name} }->answer } // fail_here("$s->{name} has no answer: $@");
	note_step("        $s->{name} -> " . ($text =~ s/^(parsed, bound|columns), //r));
	my $answer = parse($text);
	return $answer;
}

# Is the session in the state that the model has?
sub check_state
{
	my ($s, $answer) = @_;
	my $state = $s->{aborted} ? 'aborted' : $s->{block} ? 'in transaction' : 'idle';
	fail_here("$s->{name} is " . ($answer->{state} // 'in no state') . ", not $state") if ($answer->{state} // '') ne $state;
	return;
}

# Send and wait for the answer: nobody else does anything meanwhile.
sub run
{
	my ($s, $sql) = @_;
	transmit($s, $sql);
	return answer_of($s);
}

# ... which is one of these: an SQLSTATE, a value, or a tag.
sub run_as
{
	my ($s, $sql, @allowed) = @_;
	my $answer = run($s, $sql);
	my $came = $answer->{error} || ($answer->{value} // $answer->{tag} // '');
	fail_here("$s->{name}: $sql: allowed: " . join(' or ', map { "'$_'" } @allowed) . "; came: $answer->{text}") unless grep { $_ eq $came } @allowed;
	$model->failed($s) if $answer->{error};
	return $answer;
}

#
# Judging answers of those who asked for a lock
#

sub describe { my $may = shift; return join '; ', map { "$_ ($may->{$_})" } sort keys %$may; }

# What came, in the model's words
sub outcome
{
	my $answer = shift;
	return $answer->{error} if $answer->{error};
	return ($answer->{value} // '') eq 'f' ? 'false' : 'granted';
}

# One answer.  before: what was allowed when it was sent, or when others had not been
# heard that were answered at the same time.
sub judge
{
	my ($s, $call, $answer, $before) = @_;
	my $came = outcome($answer);
	my $may = $model->expect($s, $call, \%kept);
	my $wrong = sub { fail_here("$s->{name}: $call->{sql}\n  allowed: " . describe($may) . (%$before ? "\n  or: " . describe($before) : '') . "\n  came: $came, $answer->{text}\n  $_[0]") };
	$seen{"$call->{kind}, $came"}++;
	$wrong->('') unless $may->{$came} || $before->{$came} || $came eq 'granted' && $call->{passes} && $call->{chance};
	if ($came eq 'granted')
	{
		my $token = $call->{has_token} ? $answer->{value} : undef;
		$wrong->('no token') if $call->{has_token} && $token !~ /^[1-9]\d*$/;
		my @wrong = $model->granted($s, $call, $token);
		$wrong->(join '; ', @wrong) if @wrong;
	}
	elsif ($came ne 'false') { $model->failed($s); }
	check_state($s, $answer);
	return;
}

# Those who have asked for a lock and been answered; "s" has been, with this answer.
# They may have been answered in any order: errors are looked at first, since whoever
# fails may give up what another one is granted then; then those whose lock ended with
# the call.
sub drain
{
	my ($s, $answer, $before) = @_;
	my @done;
	$model->note_chances;
	my %may = map { $_->{name} => $model->expect($_, $_->{waits}, \%kept) } $model->waiters;
	push @done, [ $s, $s->{waits}, $answer, { %{ $may{ $s->{name} } }, %$before } ] if $s;
	for (my $more = 1; $more;)
	{
		$more = 0;
		for my $w (grep { !$client{ $_->{name} }->busy } grep { my $w = $_; !grep { $w == $_->[0] } @done } $model->waiters)
		{
			my $heard = answer_of($w);
			push @done, [ $w, $w->{waits}, $heard, $heard->{error} ? $may{ $w->{name} } : {} ];
			$more = 1;
		}
	}
	$_->[0]{waits} = undef for @done;
	judge(@$_) for grep { $_->[2]{error} } @done;
	$model->note_chances;
	judge(@$_) for sort { ($b->[1]{passes} // 0) <=> ($a->[1]{passes} // 0) } grep { !$_->[2]{error} } @done;
	return;
}

#
# Settling
#

# What a server shows: rows of zk_locks, and a few numbers.
my $look = <<'END';
SELECT concat_ws('/', names, locks, (SELECT string_agg(concat_ws('+', l.name, coalesce(l.mode, 'exclusive'), coalesce(l.scope, '-'), l.granted::int, l.grant_state,
		coalesce(l.count, 0), coalesce(l.token, 0), coalesce(l.pid, 0), coalesce(a.wait_event_type, '-'),
		(SELECT count(*) FROM pg_locks p WHERE p.pid = l.pid AND p.classid = l.classid AND p.objid = l.objid AND p.objsubid = 31339 AND p.granted
			AND p.mode = CASE l.mode WHEN 'shared' THEN 'ShareLock' ELSE 'ExclusiveLock' END)), ';')
		FROM zk_locks l LEFT JOIN pg_stat_activity a USING (pid)),
	'pg' || (SELECT count(DISTINCT (pid, classid, objid, mode)) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 31339))
	|| '/' || coalesce((SELECT string_agg(concat_ws('+', election, is_leader::int, coalesce(token, 0)), ';') FROM zk_elections), '')
  FROM zk_session
END
$look =~ s/\s+/ /g;

sub look
{
	my $server = shift;
	my ($names, $locks, @rest) = split m{/}, ask($server, $look), -1;
	my %election = map { my ($election, @is) = split /\+/; ($election => \@is) } split /;/, pop @rest;
	my $level1 = pop @rest;
	$level1 =~ s/^pg//;
	my @rows;
	for (split /;/, $rest[0] // '')
	{
		my %row;
		@row{qw(name mode scope granted state count token pid event level1)} = split /\+/;
		push @rows, \%row;
	}
	return { names => $names, locks => $locks, rows => \@rows, level1 => $level1, election => \%election };
}

# These say what is not as it must be, or not yet.

sub wrong_elections
{
	my ($server, $see) = @_;
	my @wrong;
	for my $election (sort keys %{ $model->{election} })
	{
		my $is = delete $see->{election}{$election};
		my $candidate = $model->candidate($server, $election) or next;
		my $leads = $model->leads($server, $election) ? 1 : 0;
		push @wrong, "$server is " . ($is ? 'a' : 'no') . " candidate of $election" if $candidate->{resigned} xor !$is;
		push @wrong, "$server " . ($leads ? 'does not lead ' : 'leads ') . $election if $is && $is->[0] != $leads;
		next unless $is && $is->[0] && $leads;
		my $newest = $model->{leader}{$election} // 0;
		fail_here("the leadership of $server, $election, has token $is->[1] after $newest")
		  if $candidate->{token} ? $candidate->{token} != $is->[1] : $is->[1] <= $newest;
		$model->{leader}{$election} = $candidate->{token} = $is->[1];
	}
	return @wrong, map { "$server is a candidate of $_" } sort keys %{ $see->{election} };
}

# rows: what zk_locks has of this session
sub wrong_session
{
	my ($s, @rows) = @_;
	my @wrong;
	my %is = map { ("$_->{name} $_->{mode} $_->{scope}" . ($_->{granted} ? '' : ' waits') => $_) } @rows;
	for my $expected ($model->rows($s))
	{
		my ($name, $mode) = @$expected{qw(name mode)};
		my $key = "$name $mode $expected->{scope}" . ($expected->{waits} ? ' waits' : '');
		my $row = delete $is{$key};
		my $what = "$s->{name}, " . Model::row_text($expected);
		if (!$row) { push @wrong, "$what: it has not" if $expected->{waits} || $expected->{least}; }
		elsif ($expected->{waits})
		{
			push @wrong, "$what: $row->{state}, but for $row->{event}"
			  unless $row->{event} eq 'Extension' || $row->{event} eq 'Lock' && $row->{state} eq 'waiting';
		}
		else
		{
			push @wrong, "$what: it has $row->{count}" if $row->{count} < $expected->{least} || $row->{count} > $expected->{most};
			push @wrong, "$what: lost" unless $row->{token};
			push @wrong, "$what: not at level 1" unless $row->{level1} || $expected->{least} < $expected->{most};
			my $token = $s->{token}{$name}{$mode};
			if (!defined $token)
			{
				my @bad = $model->token_seen($s, $name, $mode, $row->{token});
				fail_here("$what: " . join '; ', @bad) if @bad;
			}
			# a reader's row shows the newest one of the server's grants
			elsif ($mode eq 'exclusive' ? $row->{token} != $token : $row->{token} < $token)
			{
				push @wrong, "$what: token $row->{token}, not $token";
			}
		}
	}
	return @wrong, map { "$s->{name} has $_ $is{$_}{count}" } sort keys %is;
}

# Of permits each session has an entry and a contender, and so has each that is kept.
sub place { my $row = shift; return ' of ' . ($row->{pid} || $row); }

# contender: { name => { "server mode" => 1 } }, who must have one; token: { name => { token
# => 1 } }, which must be theirs
sub wrong_queues
{
	my ($contender, $token) = @_;
	my @wrong;
	for my $name (@names, @permits)
	{
		my @expected = sort keys %{ $contender->{$name} // {} };
		my @kind = Model::permits_of($name) ? 'semaphores' : ();
		my @queue = ZkLock::queue($zk, $name, @kind);
		$queued{$name} = @queue;
		push @wrong, "$name has $queued{$name} contenders, not those of " . (join(', ', @expected) || 'nobody') if $queued{$name} != @expected;
		next unless $token->{$name};
		my %there = map { ($_->{czxid} => 1) } map { $zk->stat(ZkLock::directory($name, @kind) . "/$_") // () } @queue;
		push @wrong, map { "$name has no contender with the token $_" } grep { !$there{$_} } sort keys %{ $token->{$name} };
	}
	for my $election (@elections)
	{
		my $n = ZkLock::queue($zk, $election, 'elections');
		my @candidates = @{ $model->{election}{$election} // [] };
		push @wrong, "$election has $n candidates, not " . @candidates if $n != @candidates;
	}
	return @wrong;
}

# Of a server: who reads, and would write, waits for those who wait to read; so these have
# to wait for nobody.
sub wrong_upgrades
{
	my @rows = @_;
	my %reads = map { ("$_->{pid} $_->{name}" => 1) } grep { $_->{granted} && $_->{mode} eq 'shared' } @rows;
	my %upgrade = map { ($_->{name} => 1) } grep { $_->{state} eq 'waiting' && $_->{mode} eq 'exclusive' && $reads{"$_->{pid} $_->{name}"} } @rows;
	return map { "process $_->{pid} waits for $_->{name}, and an upgrade for it" } grep { $_->{state} eq 'queued' && $_->{mode} eq 'shared' && $upgrade{ $_->{name} } } @rows;
}

sub unsettled
{
	my $obliged = $model->obliged;
	my @wrong = map { join(' or ', map { $_->{name} } $model->waiters($_)) . " must be answered for $_: $obliged->{$_}" } sort keys %$obliged;
	my (%contender, %token, %is_kept, @queued);
	for my $server (@wrong ? () : @servers)
	{
		my $see = look($server);
		my @rows = @{ $see->{rows} };
		$contender{ $_->{name} }{ "$server $_->{mode}" . (Model::permits_of($_->{name}) ? place($_) : '') } = 1 for grep { $_->{state} ne 'waiting' } @rows;
		$is_kept{ $_->{name} }{$server}{ $_->{mode} }++ for grep { $_->{state} eq 'kept' } @rows;
		$token{ $_->{name} }{ $_->{token} } = 1 for grep { $_->{granted} && $_->{mode} eq 'exclusive' } @rows;
		my $names = uniq((map { Model::permits_of($_->{name}) ? "$_->{name}" . place($_) : $_->{name} } @rows), map { "election $_" } grep { $model->candidate($server, $_) } @elections);
		my ($locks, $guards, $doubt) = (0, 0, 0);
		my %of_others = map { $_->{pid} => 1 } grep { $_->{pid} } @rows;
		for my $s (grep { $_->{server} eq $server } $model->sessions)
		{
			my $pid = $client{ $s->{name} }->pid;
			my @own = grep { $_->{pid} == $pid } @rows;
			delete $of_others{$pid};
			push @wrong, wrong_session($s, @own);
			push @queued, $s if grep { $_->{state} eq 'queued' } @own;
			my @expected = $model->rows($s);
			$locks += uniq map { "$_->{name} $_->{mode}" } @expected;
			$guards += uniq map { $_->{election} } @{ $s->{guards} };
			$doubt = 1 if grep { !$_->{waits} && $_->{least} < $_->{most} } @expected;
		}
		push @wrong, "$server keeps names" if !$setting{$server}{keeps} && grep { $_->{state} eq 'kept' } @rows;
		push @wrong, wrong_elections($server, $see), wrong_upgrades(@rows);
		push @wrong, "$server has $see->{names} names, not $names" if $see->{names} != $names;
		push @wrong, map { "process $_ has something" } sort keys %of_others;
		push @wrong, "$server has $see->{locks} locks, not " . ($locks + $guards) if $see->{locks} != $locks + $guards && !$doubt;
		push @wrong, "$server has $see->{level1} locks at level 1, not $locks" if $see->{level1} != $locks && !$doubt;
	}
	push @wrong, wrong_queues(\%contender, \%token) unless @wrong;
	return join '; ', @wrong if @wrong;

	%kept = %is_kept;
	$seen{'kept for nobody'}++ if %kept;
	for my $s (@queued)
	{
		$model->note_queued($s, grep { $_ != $s } @queued);
	}
	return '';
}

sub settle
{
	my $wrong = 'nobody has looked';
	my $deadline = time + $Wait::limit;
	for (;;)
	{
		drain();
		return if ($wrong = unsettled()) eq '';
		fail_here("it does not settle: $wrong") if time > $deadline;
		sleep 0.001;
	}
}

#
# Steps
#

sub random { return $_[ int rand @_ ]; }

sub random_name { return random(@permits && rand() < $mood{permits} ? @permits : @names); }

sub acquire
{
	my $s = shift;
	my $name = random_name();
	my $permits = Model::permits_of($name);
	my $mode = !$permits && rand() < $mood{shared} ? 'shared' : 'exclusive';
	my $scope = rand() < $mood{session} ? 'session' : 'transaction';
	my $kind = random(qw(lock lock lock lock lock try try try within patient block limited), $permits || $s->{block} && rand() < 0.8 ? () : 'procedure');
	my $call = { name => $name, mode => $mode, scope => $scope, kind => 'lock', has_token => 0 };
	my $before = '';
	my $again = '';
	if ($kind eq 'lock')
	{
		$call->{sql} = "SELECT zk_lock('$name', '$mode', '$scope')";
		$call->{has_token} = 1;
	}
	elsif ($kind eq 'try')
	{
		$call->{sql} = "SELECT zk_try_lock('$name', '$mode', '$scope')";
		$call->{kind} = 'try';
	}
	elsif ($kind eq 'within')
	{
		$call->{sql} = "SELECT zk_try_lock('$name', '$mode', '$scope', '30ms')";
		$call->{kind} = 'within';
	}
	elsif ($kind eq 'patient') { $call->{sql} = "SELECT zk_try_lock('$name', '$mode', '$scope', '1h')"; }
	elsif ($kind eq 'procedure')
	{
		my $timeout = random('NULL', "'1h'", "'30ms'");
		$call->{sql} = "CALL zk_lock_session('$name', '$mode', $timeout)";
		@$call{qw(procedure scope)} = (1, 'session');
		$call->{kind} = 'within' if $timeout eq "'30ms'";
	}
	elsif ($kind eq 'block')
	{
		$call->{sql} = "DO \$\$BEGIN PERFORM zk_lock('$name', '$mode'); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END\$\$";
		@$call{qw(passes scope)} = (1, 'transaction');
	}
	else
	{
		my ($setting, $state) = @{ random([ lock_timeout => '55P03' ], [ statement_timeout => '57014' ]) };
		$call->{sql} = "SELECT zk_lock('$name', '$mode', '$scope')";
		@$call{qw(has_token kind limited)} = (1, 'within', [$state]);
		my $local = $s->{block} ? 'LOCAL ' : '';
		$before = "SET $local$setting = '30ms'";
		$again = "SET $local$setting = 0";
	}
	$call->{sql} =~ s/zk_(try_)?lock\('$name', '$mode'/'zk_' . ($1 \/\/ '') . "acquire('$name', $permits"/e if $permits;
	$call->{passes} = 1 if !$s->{block} && $call->{scope} eq 'transaction';
	run_as($s, $before, 'SET') if $before && !$s->{aborted};
	$model->end_void($s) unless $s->{aborted} || $call->{procedure} && $s->{block};
	my $may = $model->expect($s, $call, \%kept);
	$call->{floor} = $model->floor($name);
	# what ends with a limit of the session's does not say "false"
	if ($call->{limited}) { delete $may->{false}; }
	transmit($s, $call->{sql});
	$model->asks($s, $call);
	if ($may->{waits})
	{
		settle();
		$seen{"$call->{kind}, waits"}++ if $s->{waits};
		return;
	}
	drain($s, answer_of($s), $may);
	if ($again && !$s->{aborted})
	{
		# a slow machine may need longer than that for this, too
		for (;;)
		{
			my $reset = run_as($s, $again, 'SET', '57014');
			last if !$reset->{error} || $s->{aborted};
		}
	}
	return;
}

sub unlock
{
	my $s = shift;
	my $name = random_name();
	my ($kind, $function) = Model::permits_of($name) ? ('semaphore', 'zk_release') : ('lock', 'zk_unlock');
	my $sql = "SELECT $function('$name')";
	return run_as($s, $sql, '25P02') if $s->{aborted};
	my $may = $model->expect_unlock($s, $name);
	my $answer = run_as($s, $sql, sort keys %$may);
	fail_here("$s->{name}: $function: $answer->{text}") unless ($answer->{value} eq 'f') == ($answer->{text} =~ /WARNING 55000: you do not hold (?:a permit of )?$kind "$name" in session scope/);
	$model->unlocked($s, $name, $answer->{value});
	return;
}

sub unlock_all
{
	my $s = shift;
	return run_as($s, 'SELECT zk_unlock_all()', '25P02') if $s->{aborted};
	my ($least, $most) = $model->expect_unlock_all($s);
	run_as($s, 'SELECT zk_unlock_all()', $least .. $most);
	$model->unlocked_all($s);
	return;
}

sub discard
{
	my $s = shift;
	my $sql = $s->{block} ? 'SELECT pg_advisory_unlock_all()' : random('SELECT pg_advisory_unlock_all()', 'DISCARD ALL');
	return run_as($s, $sql, '25P02') if $s->{aborted};
	run_as($s, $sql, '', 'DISCARD ALL');
	$s->{names_limit} = 0 if $sql eq 'DISCARD ALL';
	$model->level1_gone($s);
	return;
}

sub token
{
	my $s = shift;
	my $name = random_name();
	my $function = Model::permits_of($name) ? 'zk_assert_permit' : random(qw(zk_token zk_assert));
	my $sql = "SELECT $function('$name')";
	return run_as($s, $sql, '25P02') if $s->{aborted};
	$model->end_void($s);
	my $mode = $model->holds($s, $name);
	my @doubt = grep { $_->{name} eq $name && $_->{doubt} } @{ $s->{holds} };
	my $token = $mode ? $s->{token}{$name}{$mode} : undef;
	run_as($s, $sql, $mode ? $token : $function eq 'zk_token' ? '' : '55000', @doubt ? '' : ());
	return;
}

sub fence
{
	my $s = shift;
	my ($name) = shuffle(grep { $model->holds($s, $_) } @names, @permits);
	return if !defined $name || $s->{aborted};
	# a resource of its own: a row that another one has written would have to be waited for
	my $mode = $model->holds($s, $name);
	my $token = $s->{token}{$name}{$mode} // return;
	$fenced++;
	# others may hold it at the same time
	return run_as($s, "SELECT zk_fence('r$fenced', $token)", '55000') if $mode eq 'shared' || Model::permits_of($name) > 1;
	run_as($s, "SELECT zk_fence('r$fenced', $token)", '');
	run_as($s, "SELECT zk_fence('r$fenced', $token)", '');
	return if rand() < 0.7;
	# which may be the token of what it shares
	run_as($s, "SELECT zk_fence('r$fenced', $token - 1)", '40001', '55000');
	return;
}

sub election
{
	my $s = shift;
	my $server = $s->{server};
	my $election = random(@elections);
	my $what = random(qw(is_leader is_leader require require run resign token leader candidates));
	my $candidate = $model->candidate($server, $election);
	my $sql = {
		is_leader => "SELECT zk_is_leader('$election', '1h')", require => "SELECT zk_require_leader('$election')",
		run => "CALL zk_run_as_leader('$election', 'SELECT 1')", resign => "SELECT zk_resign('$election')",
		token => "SELECT (SELECT token FROM zk_elections WHERE election = '$election')", leader => "SELECT (SELECT server FROM zk_candidates('$election') WHERE is_leader)",
		candidates => "SELECT array_to_string(ARRAY(SELECT server FROM zk_candidates('$election')), ' ')" }->{$what};
	return run_as($s, $sql, '25P02') if $s->{aborted};
	if ($what =~ /^(is_leader|require|run)$/)
	{
		# whether it stands again while it still leaves, and when, is not said
		return if $candidate && $candidate->{resigned};
		my @standing = grep { !$_->{resigned} } map { $model->candidate($server, $_) // () } @elections;
		return run_as($s, $sql, '53400') if $s->{names_limit} && !$candidate && @standing >= $s->{names_limit};
		return run_as($s, $sql, '53200') unless $model->may_enter($server, $election);
		# the others wait for the verdict for no more than 2 s
		$model->enter($server, $election);
		my $leads = $model->leads($server, $election);
		run_as($s, "SELECT zk_is_leader('$election', '1h')", $leads ? 't' : 'f') if $what eq 'is_leader' || !$candidate;
		settle();
		return if $what eq 'is_leader';
		# a leadership that is required is a name, too
		return run_as($s, $sql, '53400') if $leads && $model->too_many($s, "election $election");
		my @may = $what eq 'run' ? 'CALL' : $leads ? $model->candidate($server, $election)->{token} : '40001';
		my $answer = run_as($s, $sql, @may);
		fail_here("$s->{name}: $sql: $answer->{text}") if $what eq 'run' && ($answer->{text} =~ /NOTICE/ xor !$leads);
		$model->guard($s, $election) if $leads && $s->{block};
		$seen{"$what, " . ($leads ? 'leads' : 'does not lead')}++;
	}
	elsif ($what eq 'resign')
	{
		run_as($s, $sql, $candidate && !$candidate->{resigned} ? 't' : 'f');
		$model->resign($server, $election);
	}
	elsif ($what eq 'token') { run_as($s, $sql, $model->leads($server, $election) ? $candidate->{token} : ''); }
	else
	{
		my @candidates = map { $setting{ $_->{server} }{name} } @{ $model->{election}{$election} // [] };
		run_as($s, $sql, $what eq 'leader' ? $candidates[0] // '' : join ' ', @candidates);
	}
	return;
}

my @wrong_calls = (
	[ "SELECT zk_lock('')", '22023' ], [ "SELECT zk_lock('x', 'update')", '22023' ], [ "SELECT zk_lock('x', 'shared', 'statement')", '22023' ],
	[ "SELECT zk_try_lock('x', timeout => '-1s')", '22023' ], [ 'SELECT zk_lock(NULL)', '22004' ], [ 'SELECT zk_try_lock(NULL)', '22004' ],
	[ "SELECT zk_try_lock('x', NULL)", '22004' ], [ 'SELECT zk_token(NULL)', '22004' ], [ 'SELECT zk_unlock(NULL)', '22004' ], [ "CALL zk_lock_session('')", '22023' ],
	[ 'CALL zk_lock_session(NULL)', '22004' ], [ "CALL zk_lock_session('x', NULL)", '22004' ], [ "SELECT repeat(zk_token('x' || repeat('x', 255))::text, 1)", '22023' ],
	[ 'SELECT 1 / 0', '22012' ]);

# What ZooKeeper has, as functions say
sub look_elsewhere
{
	my $s = shift;
	my $name = random(@names, @permits);
	my $sql = Model::permits_of($name) ? "SELECT count(*) FROM zk_contenders('$name') WHERE kind = 'semaphore'" : random("SELECT count(*) FROM zk_contenders('$name')", "SELECT coalesce(sum(contenders), 0) FROM zk_lock_dirs('$name') WHERE name = '$name'");
	run_as($s, $sql, $s->{aborted} ? '25P02' : $queued{$name});
	return;
}

sub wrong_call
{
	my $s = shift;
	my ($sql, $answer) = @{ random(@wrong_calls) };
	run_as($s, $sql, $s->{aborted} ? '25P02' : $answer);
	return;
}

sub limit_names
{
	my $s = shift;
	return if $s->{block};
	my $n = random(0, 0, 1, 2);
	run_as($s, "SET zklock.max_locks_per_backend = $n", 'SET');
	$s->{names_limit} = $n;
	return;
}

sub begin
{
	my $s = shift;
	run_as($s, 'BEGIN', 'BEGIN');
	return $model->begin($s);
}

sub end
{
	my $s = shift;
	my $prepare = rand() < 0.1 && !$s->{aborted};
	my $holds = @{ $s->{guards} } || grep { $_->{scope} eq 'transaction' } @{ $s->{holds} };
	my $sql = $prepare ? "PREPARE TRANSACTION '$s->{name}'" : random(qw(COMMIT COMMIT ROLLBACK));
	my $answer = run($s, $sql);
	my $came = $answer->{error} || ($answer->{tag} // '');
	my $allowed = $prepare ? ($holds ? '55000' : 'PREPARE TRANSACTION') : $s->{aborted} ? 'ROLLBACK' : $sql;
	fail_here("$s->{name}: $sql: allowed: $allowed; came: $answer->{text}") if $came ne $allowed;
	$model->end_transaction($s);
	run_as($s, random('COMMIT', 'ROLLBACK') . " PREPARED '$s->{name}'", 'COMMIT PREPARED', 'ROLLBACK PREPARED') if $came eq 'PREPARE TRANSACTION';
	check_state($s, $answer);
	return;
}

sub savepoint
{
	my $s = shift;
	my $name = random(qw(p q));
	my @open = @{ $s->{savepoints} };
	my $sql = random("SAVEPOINT $name", @open ? ('ROLLBACK TO', 'ROLLBACK TO', 'RELEASE') : ());
	$name = random(@open) if $sql !~ /^SAVEPOINT/;
	return run_as($s, $sql =~ /^SAVE/ ? $sql : "$sql $name", '25P02') if $s->{aborted} && $sql ne 'ROLLBACK TO';
	if ($sql =~ /^SAVE/)
	{
		run_as($s, $sql, 'SAVEPOINT');
		$model->savepoint($s, $name);
	}
	elsif ($sql eq 'RELEASE')
	{
		run_as($s, "RELEASE $name", 'RELEASE');
		$model->release($s, $name);
	}
	else
	{
		run_as($s, "ROLLBACK TO $name", 'ROLLBACK');
		$model->rollback_to($s, $name);
	}
	return;
}

# Those who wait
sub cancel
{
	my $s = shift;
	my $pid = $client{ $s->{name} }->pid;
	note_step("$s->{name} is cancelled");
	ask($s->{server}, "SELECT pg_cancel_backend($pid)");
	my $answer = answer_of($s);
	drain($s, $answer, { '57014' => 'it was cancelled' });
	# the cancel may come yet
	run_as($s, 'SELECT 1', '1', '57014', '25P02') unless $answer->{error};
	return;
}

# A session ends, and another one comes.
sub leave
{
	my $s = shift;
	my $c = $client{ $s->{name} };
	my $pid = $c->pid;
	my $how = $s->{waits} ? random(qw(terminate drop)) : random(qw(terminate drop quit));
	note_step("$s->{name}: " . { terminate => 'is terminated', drop => 'its client is gone', quit => 'Terminate' }->{$how});
	$seen{"session ends: $how"}++;
	if ($how eq 'terminate') { ask($s->{server}, "SELECT pg_terminate_backend($pid)"); }
	elsif ($how eq 'quit') { $c->terminate; }
	else { $c->hang_up; }
	wait_until(sub { ask($s->{server}, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 }, "the backend of $s->{name} has gone");
	$model->gone($s);
	return connect_as($s->{name}, $s->{server});
}

sub connect_as
{
	my ($name, $server) = @_;
	$client{$name} = Protocol3->new($node{$server});
	return $model->session($name, $server);
}

# One who does not wait gives up what he has; false if nobody has anything.
sub give_way
{
	my ($s) = shuffle grep { !$_->{waits} && ($_->{block} || @{ $_->{holds} }) } $model->sessions;
	return 0 unless $s;
	$s->{block} ? end($s) : unlock_all($s);
	return 1;
}

sub step
{
	my @idle = grep { !$_->{waits} } $model->sessions;
	my @waiters = $model->waiters;
	return if @waiters > 2 && rand() < 0.3 && give_way();
	# The more of them wait, the likelier is it that one of them does not want to any more.
	if (@waiters && (!@idle || rand() < 0.035 * @waiters))
	{
		my $s = random(@waiters);
		return rand() < 0.75 ? cancel($s) : leave($s);
	}
	my $s = random(@idle);
	my $holds = @{ $s->{holds} };
	my @what = (
		[ $s->{block} || $mood{session} > 0.4 ? 14 : 6, \&acquire ], [ $holds ? 2 : 0.3, \&unlock ], [ $holds ? 0.4 : 0.1, \&unlock_all ], [ $holds ? ($s->{block} ? 1 : 0.4) : 0.1, \&discard ],
		[ $holds ? 1 : 0.2, \&token ], [ $holds ? 0.4 : 0, \&fence ], [ 0.15, \&wrong_call ], [ 0.15, \&look_elsewhere ], [ $mood{election}, \&election ], [ 0.3, \&leave ], [ 0.2, \&limit_names ],
		$s->{block} ? ([ $s->{aborted} ? 12 : $mood{end}, \&end ], [ $s->{aborted} ? 5 : 3, \&savepoint ]) : [ 8, \&begin ]);
	my $n = rand sum0(map { $_->[0] } @what);
	for (@what)
	{
		my ($weight, $code) = @$_;
		return $code->($s) if ($n -= $weight) < 0;
	}
	return;
}

# Settings for the worker: it has them when the next contender has the new name.
sub configure
{
	my ($server, $name, $keeps, $limit) = @_;
	ask($server, "ALTER SYSTEM SET $_") for "zklock.server_name = '$name'", 'zklock.keep_time = ' . ($keeps ? "'1h'" : 0), "zklock.handoff_limit = $limit";
	ask($server, 'SELECT pg_reload_conf()');
	wait_until(
		sub {
			return 0 if ask($server, "SELECT current_setting('zklock.server_name')") ne $name;
			ask($server, "SELECT zk_lock('$name', scope => 'session')");
			my $shown = ask($server, "SELECT string_agg(server, ' ') FROM zk_contenders('$name')");
			ask($server, "SELECT zk_unlock('$name')");
			return 1 if $shown eq $name;
			# it would be kept, as it is, from when the settings are there
			ask($server, "SELECT count(zk_break('$name', token)) FROM zk_contenders('$name')");
			return 0;
		},
		"the worker of $server has its settings");
	return;
}

my $serial = 0;

sub sequence
{
	my $n = shift;
	srand $n;
	my $small = rand() < 0.6;
	@servers = $small ? qw(a c) : qw(a b);
	my $steps = 30 + int rand 30;
	@names = map { "n$_" } 1 .. ($small && rand() < 0.6 ? 7 : random(1, 1, 2, 3));
	# how often a lock is shared, and outlives its transaction; how soon a transaction ends
	@permits = map { "s$_-" . random(1, 2, 2, 3) } 1 .. random(0, 1, 1, 2);
	%mood = (permits => random(0.2, 0.5, 0.8), shared => random(0.5, 0.6, 0.85), session => random(0.2, 0.5), end => random(1, 4, 8), election => random(0.3, 0.3, 3));
	@script = ();
	%client = ();
	%kept = ();
	%setting = ();
	my %server;
	for my $server (@servers)
	{
		my ($keeps, $limit) = (int rand 2, int rand 4);
		$setting{$server} = { keeps => $keeps, limit => $limit };
		$server{$server} = { names => $room{$server}, own_tokens => !$keeps && !$limit, handoff_limit => $limit };
		note_step("server $server: zklock.max_locks = $room{$server}, zklock.keep_time = " . ($keeps ? '1h' : 0) . ", zklock.handoff_limit = $limit");
		$serial++;
		$setting{$server}{name} = "$server-$serial";
		configure($server, "$server-$serial", $keeps, $limit);
		push @names, "$server-$serial" if $keeps;
	}
	my ($newest, $leader) = $model ? @$model{qw(newest leader)} : ({}, {});
	$model = Model->new(%server);
	@$model{qw(newest leader)} = ($newest, $leader);
	my @sessions = map { my $server = $_; map { connect_as("$server$_", $server) } 1 .. 4 } @servers;
	settle();
	for (1 .. $steps)
	{
		step();
		settle();
	}

	# All give up what they have, one by one, and only those who wait for each other need help.
	note_step('the end');
	while (my @waiters = $model->waiters)
	{
		cancel(random(@waiters)) unless give_way();
		settle();
	}
	for my $s ($model->sessions)
	{
		end($s) if $s->{block};
		$s->{holds} && rand() < 0.5 ? unlock_all($s) : leave($s);
	}
	for my $server (@servers)
	{
		for my $election (@elections)
		{
			my $was = ask($server, "SELECT zk_resign('$election')");
			fail_here("$server: zk_resign('$election') says $was") if $was ne ($model->candidate($server, $election) ? 't' : 'f');
			$model->resign($server, $election);
		}
	}
	settle();
	# and nothing is kept
	for my $server (@servers)
	{
		ask($server, "ALTER SYSTEM SET zklock.keep_time = 0");
		ask($server, 'SELECT pg_reload_conf()');
		$setting{$server}{keeps} = 0;
	}
	settle();
	return $steps;
}

print '# steps: ', $sequences, "\n";
note "SEED=$seed SEQUENCES=$sequences";
for my $n ($seed .. $seed + $sequences - 1)
{
	my $steps = eval { sequence($n) };
	if (!$steps)
	{
		my $what = ref $@ eq 'HASH' ? $@->{what} : $@;
		fail("SEED=$n");
		diag(join "\n", "SEED=$n SEQUENCES=1", @script, "--- sessions", $model->text . "--- wrong", $what);
		for my $server (@servers)
		{
			diag("server $server: " . (eval { ask($server, $look) } // 'does not answer'));
		}
		last;
	}
	pass("SEED=$n: $steps steps");
}
note "$_: $seen{$_}" for sort keys %seen;
done_testing();
