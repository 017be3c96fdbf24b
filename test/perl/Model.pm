# Model - what sessions on several servers may be answered that take and give back
# locks: doc/locks.md as a program.  It knows neither servers nor time.
#
#   my $model = Model->new(a => { names => 10000, handoff_limit => 0, own_tokens => 1 }, b => { names => 5 });
#   my $s = $model->session('a1', 'a');
#   my $call = { name => 'x', mode => 'exclusive', scope => 'transaction', kind => 'lock' };
#   $model->expect($s, $call);          # { granted => ..., waits => ... }: answer => why
#   $model->granted($s, $call, 4711);   # it was; returns what is wrong about that
#
# A session is a hash:
#
#   name, server
#   savepoints   names of those that are open; the nest level is one more
#   block        in a transaction block; aborted: which has failed
#   holds        of { name, mode, scope, level, count, doubt }.  level: of scope
#                transaction.  doubt: how many of these count holds may have ended,
#                since pg_advisory_unlock_all() cannot tell the session's own holds from
#                those of the transaction in the same mode
#   token        { name => { mode => token } }; undef: not known yet
#   names_limit  zklock.max_locks_per_backend
#   guards       of { election, level }: leaderships that the transaction requires
#   waits        the call that waits, if one does
#
# A name like s1-2 is that of 2 permits, of which a session has one; the mode is exclusive.
#
# A call asks for a lock: name, mode, scope, and
#
#   kind         lock     waits for as long as it takes: zk_lock, zk_lock_session,
#                         zk_try_lock with a timeout of an hour
#                try      zk_try_lock without a timeout
#                within   ends by itself: zk_try_lock with a short timeout
#   joins        somebody of the same server waits for it who has the lock to read, and would
#                write: since then it need not wait for other servers
#   passes       what it takes ends with the call: outside of a block, or in an
#                exception block that fails
#   limited      SQLSTATE that may end it, by a timeout of the session's
#   chance       since it waits nobody has stood in its way, for a moment at least
#   floor        the newest tokens when it was sent
package Model;

use strict;
use warnings;

use List::Util qw(max sum0);

sub new
{
	my ($class, %server) = @_;
	return bless { server => \%server, session => {}, newest => {}, election => {} }, $class;
}

sub session
{
	my ($self, $name, $server) = @_;
	return $self->{session}{$name} = { name => $name, server => $server, savepoints => [], block => 0, aborted => 0,
		holds => [], guards => [], token => {}, names_limit => 0, waits => undef };
}

sub sessions { my $self = shift; return map { $self->{session}{$_} } sort keys %{ $self->{session} }; }
sub waiters { my ($self, $name) = @_; return grep { $_->{waits} && (!defined $name || $_->{waits}{name} eq $name) } $self->sessions; }
sub level { my ($self, $s) = @_; return 1 + @{ $s->{savepoints} }; }

#
# Holds
#

sub _sure { my $hold = shift; return $hold->{count} > $hold->{doubt}; }

# The mode in which a session certainly holds a name, '' if it does not.
sub holds
{
	my ($self, $s, $name) = @_;
	my %mode = map { $_->{mode} => 1 } grep { $_->{name} eq $name && _sure($_) } @{ $s->{holds} };
	return $mode{exclusive} ? 'exclusive' : $mode{shared} ? 'shared' : '';
}

# Of so many permits the name is; 0: of a lock.
sub permits_of { my $name = shift; return $name =~ /^s\d+-(\d+)$/ ? $1 : 0; }

sub _excludes { my ($x, $y) = @_; return $x eq 'exclusive' || $y eq 'exclusive'; }

# Other sessions that hold a name so that this mode cannot be granted; "perhaps": also
# those that may do so.
sub in_the_way
{
	my ($self, $s, $name, $mode, $perhaps) = @_;
	my @holders = grep {
		my $other = $_;
		$other != $s && grep { $_->{name} eq $name && ($perhaps || _sure($_)) && _excludes($mode, $_->{mode}) } @{ $other->{holds} };
	} $self->sessions;
	return @holders < permits_of($name) ? () : @holders;
}

# What a name takes in the table of its server: of permits each session takes an entry.
sub _entry { my ($s, $name) = @_; return permits_of($name) ? "$name of $s->{name}" : $name; }

# Names that a server holds, or has been asked for.
sub names_used
{
	my ($self, $server) = @_;
	my %name;
	for my $s (grep { $_->{server} eq $server } $self->sessions)
	{
		$name{ _entry($s, $_->{name}) } = 1 for @{ $s->{holds} };
		$name{ _entry($s, $s->{waits}{name}) } = 1 if $s->{waits};
	}
	$name{"election $_"} = 1 for grep { $self->candidate($server, $_) } keys %{ $self->{election} };
	return sort keys %name;
}

sub _add_hold
{
	my ($self, $s, $name, $mode, $scope) = @_;
	my $level = $scope eq 'transaction' ? $self->level($s) : 0;
	my ($hold) = grep { $_->{name} eq $name && $_->{mode} eq $mode && $_->{scope} eq $scope && $_->{level} == $level } @{ $s->{holds} };
	push @{ $s->{holds} }, $hold = { name => $name, mode => $mode, scope => $scope, level => $level, count => 0, doubt => 0 } unless $hold;
	# a new one in session scope finds out about the others
	($hold->{count}, $hold->{doubt}) = ($hold->{count} - $hold->{doubt}, 0) if $scope eq 'session';
	$hold->{count}++;
	return;
}

sub _forget
{
	my ($self, $s) = @_;
	# a server that ends its turn may queue anew
	my %ended = map { $_->{name} => 1 } grep { $_->{count} == 0 } @{ $s->{holds} };
	delete $_->{waits}{passed} for grep { $_->{server} eq $s->{server} && $ended{ $_->{waits}{name} } } $self->waiters;
	$s->{holds} = [ grep { $_->{count} > 0 } @{ $s->{holds} } ];
	my %left = map { ("$_->{name} $_->{mode}" => 1) } @{ $s->{holds} };
	for my $name (keys %{ $s->{token} })
	{
		delete @{ $s->{token}{$name} }{ grep { !$left{"$name $_"} } keys %{ $s->{token}{$name} } };
		delete $s->{token}{$name} unless %{ $s->{token}{$name} };
	}
	return;
}

# Is there a hold in transaction scope in the same mode, which keeps level 1?
sub _beside
{
	my ($self, $s, $hold) = @_;
	return grep { $_->{name} eq $hold->{name} && $_->{mode} eq $hold->{mode} && $_->{scope} eq 'transaction' } @{ $s->{holds} };
}

# Every call, and every end of a transaction, gives up what is in doubt no more.
sub end_void
{
	my ($self, $s) = @_;
	for my $hold (grep { $_->{doubt} && !$self->_beside($s, $_) } @{ $s->{holds} })
	{
		$hold->{count} -= $hold->{doubt};
		$hold->{doubt} = 0;
	}
	return $self->_forget($s);
}

sub _end_levels
{
	my ($self, $s, $level) = @_;
	$_->{count} = 0 for grep { $_->{scope} eq 'transaction' && $_->{level} >= $level } @{ $s->{holds} };
	$s->{guards} = [ grep { $_->{level} < $level } @{ $s->{guards} } ];
	$self->_pass_on;
	return $self->_forget($s);
}

#
# Statements that end something
#

sub begin { my ($self, $s) = @_; $s->{block} = 1; return; }

# COMMIT, ROLLBACK, or what else ends the transaction
sub end_transaction
{
	my ($self, $s) = @_;
	$self->_end_levels($s, 1);
	$self->end_void($s);
	@$s{qw(block aborted savepoints)} = (0, 0, []);
	return;
}

sub savepoint { my ($self, $s, $name) = @_; push @{ $s->{savepoints} }, $name; return; }

sub _depth
{
	my ($self, $s, $name) = @_;
	my @n = grep { $s->{savepoints}[$_] eq $name } 0 .. $#{ $s->{savepoints} };
	return $n[-1];
}

sub rollback_to
{
	my ($self, $s, $name) = @_;
	my $n = $self->_depth($s, $name);
	$self->_end_levels($s, $n + 2);
	$#{ $s->{savepoints} } = $n;
	$s->{aborted} = 0;
	return;
}

sub release
{
	my ($self, $s, $name) = @_;
	my $n = $self->_depth($s, $name);
	for my $hold (grep { $_->{scope} eq 'transaction' && $_->{level} >= $n + 2 } @{ $s->{holds} })
	{
		my $count = $hold->{count};
		$hold->{count} = 0;
		local $s->{savepoints} = [ @{ $s->{savepoints} }[ 0 .. $n - 1 ] ];
		$self->_add_hold($s, @$hold{qw(name mode scope)}) for 1 .. $count;
	}
	$#{ $s->{savepoints} } = $n - 1;
	$_->{level} = $n + 1 for grep { $_->{level} > $n + 1 } @{ $s->{guards} };
	return $self->_forget($s);
}

# A statement has failed.
sub failed
{
	my ($self, $s) = @_;
	return unless $s->{block} && !$s->{aborted};
	$self->_end_levels($s, $self->level($s));
	$self->end_void($s) if $self->level($s) == 1;
	$s->{aborted} = 1;
	return;
}

# The session has ended, however that was.
sub gone
{
	my ($self, $s) = @_;
	for my $name (grep { $self->holds($s, $_) eq 'exclusive' } keys %{ $s->{token} })
	{
		# its client may still use the token
		my $newest = $self->_newest($name, $s->{server});
		$newest->{abandoned} = max $newest->{abandoned}, $s->{token}{$name}{exclusive} // $newest->{any};
	}
	delete $self->{session}{ $s->{name} };
	return $self->_pass_on;
}

# zk_unlock: which answers?  And then, that it was so.
sub expect_unlock
{
	my ($self, $s, $name) = @_;
	$self->end_void($s);
	my @holds = grep { $_->{name} eq $name && $_->{scope} eq 'session' } @{ $s->{holds} };
	my %answer;
	$answer{t} = 'there is a hold in session scope' if @holds;
	$answer{f} = 'there is none in session scope, for sure' if !grep { _sure($_) } @holds;
	return \%answer;
}

# The newest one, which is exclusive if any is: what comes after that counts with it.
sub unlocked
{
	my ($self, $s, $name, $answer) = @_;
	my ($hold) = sort { $a->{mode} cmp $b->{mode} } grep { $_->{name} eq $name && $_->{scope} eq 'session' } @{ $s->{holds} };
	return unless $hold;
	if ($answer eq 't')
	{
		$hold->{count}--;
		$hold->{doubt}-- if $hold->{doubt};
	}
	else { $hold->{count} = $hold->{doubt} = 0; }
	return $self->_forget($s);
}

# zk_unlock_all: the least and the most that it may say; then that it was so.
sub expect_unlock_all
{
	my ($self, $s) = @_;
	$self->end_void($s);
	my @holds = grep { $_->{scope} eq 'session' } @{ $s->{holds} };
	return (sum0(map { $_->{count} - $_->{doubt} } @holds), sum0(map { $_->{count} } @holds));
}

sub unlocked_all
{
	my ($self, $s) = @_;
	$_->{count} = 0 for grep { $_->{scope} eq 'session' } @{ $s->{holds} };
	return $self->_forget($s);
}

# pg_advisory_unlock_all and DISCARD ALL
sub level1_gone
{
	my ($self, $s) = @_;
	$self->end_void($s);
	$_->{doubt} = $_->{count} for grep { $_->{scope} eq 'session' } @{ $s->{holds} };
	return $self->end_void($s);
}

#
# Asking for a lock
#

# It has been sent.
sub asks
{
	my ($self, $s, $call) = @_;
	$call->{sent} = 1;
	$s->{waits} = $call;
	return if $call->{mode} eq 'shared' || $call->{kind} eq 'try' || $self->holds($s, $call->{name}) ne 'shared';
	$_->{waits}{joins} = 1 for grep { $_->{server} eq $s->{server} && $_->{waits}{mode} eq 'shared' && $_->{waits}{passed} } $self->waiters($call->{name});
	return;
}

# Every answer that may come: "granted", "false", "waits", or an SQLSTATE; each with the
# reason.  "kept": servers that keep the name for nobody, and in which modes, as
# { server => { mode => 1 } }.
sub expect
{
	my ($self, $s, $call, $kept) = @_;
	my ($name, $mode, $kind) = @$call{qw(name mode kind)};
	my $has = $self->holds($s, $name);
	my %may;
	return { '25P02' => 'the transaction has failed' } if $s->{aborted};
	return { '25001' => 'it cannot be called in a transaction block' } if $call->{procedure} && $s->{block};
	$may{$_} = 'the session said so' for @{ $call->{limited} // [] };
	return { granted => 'a hold of the session covers it', %may } if $has eq 'exclusive' || $has eq $mode;
	return { '53400' => "it has $s->{names_limit} names", %may } if !$has && !$call->{sent} && $self->too_many($s, $name);
	if (!$call->{sent})
	{
		my @used = $self->names_used($s->{server});
		return { '53200' => "all names are in use: @used", %may }
		  if @used >= $self->{server}{ $s->{server} }{names} && !grep { $_ eq _entry($s, $name) } @used;
	}

	my @in_the_way = map { $_->{name} } $self->in_the_way($s, $name, $mode);
	my @why;
	push @why, "held by @in_the_way" if @in_the_way;
	if (!@in_the_way)
	{
		$may{granted} = 'nobody is in the way';
		push @why, map { "perhaps held by $_->{name}" } $self->in_the_way($s, $name, $mode, 1);
		push @why, 'permits are held and kept' if permits_of($name);
		push @why, map { "waited for by $_->{name}" } grep { $_ != $s && _excludes($mode, $_->{waits}{mode}) } $self->waiters($name);
		for my $server (grep { $_ ne $s->{server} } sort keys %{ $kept->{$name} // {} })
		{
			push @why, map { "kept by $server, $_" } grep { _excludes($mode, $_) } sort keys %{ $kept->{$name}{$server} };
		}
	}
	# who finds as many as there are permits, whatever becomes of them
	my $permits = permits_of($name);
	@why = () if !@in_the_way && $permits > $self->_contenders($s, $name, $kept);
	my $why = join ', ', @why;
	$may{false} = $why if @why && $kind ne 'lock';
	$may{'55P03'} = $why if @why && $kind eq 'within' && $call->{procedure};
	$may{waits} = $why || 'until it is heard' if $kind eq 'lock';
	$may{'40P01'} = 'they wait for each other' if $kind ne 'try' && $self->deadlocked($s, $call);
	return \%may;
}

# How many others have a contender for a permit, or may have one?
sub _contenders
{
	my ($self, $s, $name, $kept) = @_;
	my $n = grep { my $other = $_; $other != $s && (grep { $_->{name} eq $name } @{ $other->{holds} }, $other->{waits} // ()) } $self->sessions;
	return $n + sum0(map { values %$_ } values %{ $kept->{$name} // {} });
}

# Does a session wait for itself, in the end?  All who ask for a name are taken to wait
# for each other.
sub deadlocked
{
	my ($self, $s, $call) = @_;
	local $s->{waits} = $call;
	my %seen;
	my @next = ($s);
	while (my $x = shift @next)
	{
		my $waits = $x->{waits} or next;
		next if permits_of($waits->{name}) > 1; # anybody may come free
		my @for = (
			$self->in_the_way($x, @$waits{qw(name mode)}, 1),
			grep { $_ != $x && _excludes($waits->{mode}, $_->{waits}{mode}) } $self->waiters($waits->{name}));
		for (@for)
		{
			return 1 if $_ == $s;
			push @next, $_ unless $seen{ $_->{name} }++;
		}
	}
	return 0;
}

# Who waits, and must have an answer whatever nobody else does?  As { name => why }: of
# those who wait for the name, one at least.
sub obliged
{
	my $self = shift;
	my %obliged;
	for my $name (map { $_->{waits}{name} } $self->waiters)
	{
		my @waiters = $self->waiters($name);
		my @holders = grep { grep { $_->{name} eq $name } @{ $_->{holds} } } $self->sessions;
		my $exclusive = grep { $_->{name} eq $name && $_->{mode} eq 'exclusive' } map { @{ $_->{holds} } } @holders;
		$obliged{$name} = 'there is a permit' if @holders < permits_of($name);
		next if permits_of($name);
		$obliged{$name} =
			!@holders ? 'nobody has it'
		  : !$exclusive && !(grep { $_->{waits}{mode} eq 'exclusive' } @waiters) ? 'nobody asks for more than to share it'
		  : !(grep { my $holder = $_; !grep { $_ == $holder } @waiters } @holders) ? 'all who have it wait for it'
		  : (grep { $self->_in_local_circle($_) } @waiters) ? 'they wait for each other, on one server'
		  : next;
	}
	return \%obliged;
}

# Sessions of one server that wait in a circle for what the next one holds, where no other
# server has to do with it: PostgreSQL sees that.
sub _in_local_circle
{
	my ($self, $s) = @_;
	my %seen;
	my @next = ($s);
	while (my $x = shift @next)
	{
		my $waits = $x->{waits} or next;
		next if permits_of($waits->{name}); # which it does not see
		next if grep { my $y = $_; $y->{server} ne $s->{server} && ($y->{waits} && $y->{waits}{name} eq $waits->{name} || grep { $_->{name} eq $waits->{name} } @{ $y->{holds} }) } $self->sessions;
		for ($self->in_the_way($x, @$waits{qw(name mode)}))
		{
			return 1 if $_ == $s;
			push @next, $_ unless $seen{ $_->{name} }++;
		}
	}
	return 0;
}

#
# Turns of the servers
#

# This one is seen in ZooKeeper's queue: from now on the sessions of another server get
# what keeps it out no more often than handoff_limit says.  queued: those who are there
# besides, as sessions.
sub note_queued
{
	my ($self, $s, @queued) = @_;
	my $call = $s->{waits};
	return if $call->{passed} || permits_of($call->{name});
	for my $server (grep { $_ ne $s->{server} } keys %{ $self->{server} })
	{
		my $limit = $self->{server}{$server}{handoff_limit} // next;
		my $most = 0;
		$most += $limit if grep { $_->{server} eq $server && grep { $_->{name} eq $call->{name} } @{ $_->{holds} } } $self->sessions;
		for my $mode (qw(shared exclusive))
		{
			my $n = grep { $_->{server} eq $server && $_->{waits}{name} eq $call->{name} && $_->{waits}{mode} eq $mode } @queued;
			$most += max $limit + 1, $n if $n;
		}
		$call->{passed}{$server} = 0;
		$call->{may_pass}{$server} = $most;
	}
	return;
}

# What is wrong with a new hold of this session, with a view to those who wait elsewhere?
sub _passes_by
{
	my ($self, $s, $name, $mode) = @_;
	my @wrong;
	for my $w (grep { $_->{server} ne $s->{server} && $_->{waits}{passed} && _excludes($mode, $_->{waits}{mode}) } $self->waiters($name))
	{
		my $n = ++$w->{waits}{passed}{ $s->{server} };
		my $most = $w->{waits}{may_pass}{ $s->{server} };
		push @wrong, "$n holds of server $s->{server} while $w->{name} waits, more than $most" if $n > $most;
	}
	return @wrong;
}

# To be called whenever somebody may have gone out of the way.
sub note_chances
{
	my $self = shift;
	for my $s ($self->waiters)
	{
		$s->{waits}{chance} = 1 unless $self->in_the_way($s, @{ $s->{waits} }{qw(name mode)});
	}
	return;
}

sub _newest { my ($self, $name, $server) = @_; return $self->{newest}{$name}{$server} //= { any => 0, exclusive => 0, abandoned => 0 }; }

# The newest tokens of a name, as of now
sub floor
{
	my ($self, $name) = @_;
	return { map { $_ => { %{ $self->_newest($name, $_) } } } keys %{ $self->{server} } };
}

# What is wrong with the token of a new hold?  "floor": the newest ones that it came after.
sub check_token
{
	my ($self, $s, $name, $mode, $token, $floor) = @_;
	return if permits_of($name); # one that is kept is older than others' that end before
	my $own = $self->{server}{ $s->{server} };
	my @wrong;
	for my $server (sort keys %$floor)
	{
		my $newest = $floor->{$server};
		my $least = $mode eq 'exclusive' ? $newest->{any} : $newest->{exclusive};
		my $here = $server eq $s->{server};
		my $may_equal = $here && !($mode eq 'exclusive' && $own->{own_tokens});
		push @wrong, "token $token is no newer than $least, that of server $server" if $token < $least || $token == $least && !$may_equal;
		push @wrong, "token $token is that of a session that has gone" if $token <= $newest->{abandoned};
	}
	my $newest = $self->_newest($name, $s->{server});
	$newest->{any} = max $newest->{any}, $token;
	$newest->{exclusive} = max $newest->{exclusive}, $token if $mode eq 'exclusive';
	return @wrong;
}

# It was granted; token: undef if it is not known yet.  Returns what is wrong.
sub granted
{
	my ($self, $s, $call, $token) = @_;
	my ($name, $mode, $scope) = @$call{qw(name mode scope)};
	my $has = $self->holds($s, $name);
	my $covered = $has eq 'exclusive' || $has eq $mode;
	my @wrong;
	if ($covered)
	{
		$mode = $has;
		my $held = $s->{token}{$name}{$mode};
		push @wrong, "token $token, but its hold has $held" if defined $token && defined $held && $held != $token;
	}
	else
	{
		# as of when it was sent, if it was over before this came to be known
		push @wrong, $self->check_token($s, $name, $mode, $token, $call->{passes} ? $call->{floor} : $self->floor($name)) if defined $token;
		my @in_the_way = $call->{passes} ? () : map { "$_->{name} holds it" } $self->in_the_way($s, $name, $mode);
		push @wrong, @in_the_way;
		push @wrong, $self->_passes_by($s, $name, $mode) unless $call->{joins};
	}
	return @wrong if $call->{passes};
	$self->_add_hold($s, $name, $mode, $scope);
	$s->{token}{$name}{$mode} = $token unless $covered;
	return @wrong;
}

# A token that was not known has been seen.
sub token_seen
{
	my ($self, $s, $name, $mode, $token) = @_;
	return if defined $s->{token}{$name}{$mode};
	$s->{token}{$name}{$mode} = $token;
	return $self->check_token($s, $name, $mode, $token, $self->floor($name));
}

#
# Elections: { election => [ { server, resigned }, ... ] }, in the order in which the
# servers came.  One that has resigned stays until nobody requires its leadership.
#

sub candidate { my ($self, $server, $election) = @_; return (grep { $_->{server} eq $server } @{ $self->{election}{$election} // [] })[0]; }

# "enter": whether it is there, with room in the table; then, that it is.
sub may_enter
{
	my ($self, $server, $election) = @_;
	my @used = $self->names_used($server);
	return $self->candidate($server, $election) || @used < $self->{server}{$server}{names};
}

sub enter
{
	my ($self, $server, $election) = @_;
	push @{ $self->{election}{$election} }, { server => $server, resigned => 0 } unless $self->candidate($server, $election);
	return;
}

sub leads
{
	my ($self, $server, $election) = @_;
	my $first = ($self->{election}{$election} // [])->[0];
	return $first && $first->{server} eq $server && !$first->{resigned};
}

sub _pass_on
{
	my $self = shift;
	for my $election (keys %{ $self->{election} })
	{
		my %guarded = map { $_->{server} => 1 } grep { grep { $_->{election} eq $election } @{ $_->{guards} } } $self->sessions;
		$self->{election}{$election} = [ grep { !$_->{resigned} || $guarded{ $_->{server} } } @{ $self->{election}{$election} } ];
		delete $self->{election}{$election} unless @{ $self->{election}{$election} };
	}
	return;
}

sub resign
{
	my ($self, $server, $election) = @_;
	my $candidate = $self->candidate($server, $election);
	$candidate->{resigned} = 1 if $candidate;
	return $self->_pass_on;
}

# Has it as many names as it may, and not this one, which may be "election e"?
sub too_many
{
	my ($self, $s, $name) = @_;
	my %names = ((map { $_->{name} => 1 } @{ $s->{holds} }), map { ("election $_->{election}" => 1) } @{ $s->{guards} });
	return $s->{names_limit} && !$names{$name} && keys %names >= $s->{names_limit};
}

sub guard { my ($self, $s, $election) = @_; push @{ $s->{guards} }, { election => $election, level => $self->level($s) }; return; }

#
# What zk_locks shows of a session
#

# Hashes: name, mode, scope; waits, or how often it is held, from least to most.
sub rows
{
	my ($self, $s) = @_;
	my %row;
	for my $hold (@{ $s->{holds} })
	{
		my $row = $row{"$hold->{name} $hold->{mode} $hold->{scope}"} //= { %$hold{qw(name mode scope)}, least => 0, most => 0 };
		$row->{least} += $hold->{count} - $hold->{doubt};
		$row->{most} += $hold->{count};
	}
	my @rows = map { $row{$_} } sort keys %row;
	push @rows, { %{ $s->{waits} }{qw(name mode scope)}, waits => 1 } if $s->{waits};
	return @rows;
}

sub row_text
{
	my $row = shift;
	return join ' ', @$row{qw(name mode scope)}, $row->{waits} ? 'waits' : $row->{least} == $row->{most} ? $row->{most} : "$row->{least} to $row->{most}";
}

# All of it, for people
sub text
{
	my $self = shift;
	return join '', (map {
		my $s = $_;
		"$s->{name}: " . join(', ', ($s->{aborted} ? 'aborted' : $s->{block} ? 'in transaction' : 'idle'),
			(map { "savepoint $_" } @{ $s->{savepoints} }), (map { row_text($_) } $self->rows($s)), map { "requires $_->{election}" } @{ $s->{guards} }) . "\n"
	} $self->sessions), map { "election $_: " . join(', ', map { "$_->{server}" . ($_->{resigned} ? ', has resigned' : '') } @{ $self->{election}{$_} }) . "\n" } sort keys %{ $self->{election} };
}

1;
