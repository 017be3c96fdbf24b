# Good - histories that could be: of each kind of name, from a seed.
#
# Each is made in the order in which all takes effect, at moments that are known here; an
# operation is then called a while before its moment, and answered a while after.  So
# operations overlap as in a real history, and there is an order.  Some answers are not known,
# some locks are lost, and told so late.
#
# An operation is { process, server, f, kind, name, asked, told (both values), call, ret,
# outcome }, times in milliseconds.  Planted changes them.
package Good;

use strict;
use warnings;

my @servers = qw(A B C);

# Options: processes
sub new
{
	my ($class, $seed, %option) = @_;
	srand $seed;
	my $self = bless { ops => [], now => 1000, free => {}, processes => 6, token => 100, %option }, $class;
	return $self;
}

sub ops { my $self = shift; return $self->{ops}; }

sub server { return $servers[ $_[0] % @servers ]; }

# Somebody who is not busy.
sub anybody
{
	my ($self, @not) = @_;
	my %not = map { $_ => 1 } @not;
	while (1)
	{
		my @idle = grep { !$not{$_} && ($self->{free}{$_} // 0) < $self->{now} } 1 .. $self->{processes};
		return $idle[ rand @idle ] if @idle;
		$self->{now} += 1;
	}
}

# The next moment of a process.
sub moment
{
	my ($self, $process) = @_;
	my $free = $self->{free}{$process} // 0;
	$self->{now} = $free if $self->{now} < $free;
	return $self->{now} += 0.01 + rand 3;
}

# Something takes effect now.
sub op
{
	my ($self, $process, $f, %op) = @_;
	my $moment = $self->moment($process);
	my $free = $self->{free}{$process} // 0;
	my $call = $moment - rand($op{early} // 10);
	$call = $free + 0.001 if $call <= $free;
	$call = $moment if $call > $moment;
	my $op = {
		process => $process, server => server($process), f => $f, kind => $self->{kind}, name => $self->{name},
		asked => {}, told => {}, call => $call, ret => $moment + rand($op{late} // 5), outcome => 'ok', %op };
	$self->{free}{$process} = $op->{ret};
	push @{ $self->{ops} }, $op;
	return $op;
}

# Not answered, or never; and in effect or not, as the caller has it.
sub unknown
{
	my ($self, $op) = @_;
	$op->{outcome} = 'info';
	$op->{told} = {};
	return $op;
}

sub fault
{
	my ($self, $harm, $server, $from, $until) = @_;
	push @{ $self->{ops} },
	  { process => 1000 + @{ $self->{ops} }, f => 'fault', kind => 'fault', name => 'planted', asked => { harm => $harm, $server ? (harmed => $server) : () }, told => {}, call => $from, ret => $until, outcome => 'info' };
}

#
# The kinds
#
sub lock
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(lock job);
	my $last = '';
	for my $turn (1 .. $n)
	{
		my $p = $self->anybody;
		# who cannot be told, or gets none
		if (rand() < 0.1)
		{
			my $op = $self->op($self->anybody($p), 'acquire');
			rand() < 0.5 ? $self->unknown($op) : ($op->{outcome} = 'fail');
		}
		$self->{token} += 10 if server($p) ne $last || rand() < 0.5;
		$last = server($p);
		my $token = { token => $self->{token} };
		my $tried = rand() < 0.2;
		$self->op($p, 'acquire', early => 60, told => $tried ? {} : $token, hold => $turn);
		my $twice = $self->{reenters} && rand() < 0.5;
		$self->op($p, 'acquire', told => $token, hold => $turn) if $twice;
		$self->op($p, 'check', told => $token, hold => $turn) for 1 .. rand 3;
		my $how = rand;
		if ($twice && $how >= 0.15)
		{
			$self->op($p, 'release', hold => $turn);
			$self->op($p, 'check', told => $token, hold => $turn);
		}
		if ($how < 0.15)
		{
			# lost: others go on, and it is told later; to give a count back is no claim
			my $before = $#{ $self->{ops} };
			$self->op($p, 'release', late => 40, hold => $turn) if $twice;
			$self->op($p, rand() < 0.5 ? 'check' : 'commit', outcome => 'fail', late => 80, hold => $turn, lost => 1);
			$self->op($p, 'rollback', outcome => 'info', hold => $turn);
			$self->{now} = $self->{ops}[$before]{ret};
		}
		elsif ($how < 0.2) { $self->unknown($self->op($p, 'commit', late => 30, hold => $turn)); }
		else { $self->op($p, 'commit', hold => $turn); }
	}
	return $self;
}

sub reentrant { my ($self, $n) = @_; $self->{reenters} = 1; return $self->lock($n); }

sub readers
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(lock table);
	for my $turn (1 .. $n)
	{
		$self->{token} += 10;
		my $shared = rand() < 0.6;
		my $asked = { mode => $shared ? 'shared' : 'exclusive' };
		my @holders = $self->anybody;
		push @holders, $self->anybody(@holders) for 2 .. ($shared ? 1 + rand 3 : 1);
		my %token = map { $_ => { token => $self->{token} + ord(server($_)) - ord 'A' } } @holders;
		$self->op($_, 'acquire', early => 40, asked => $asked, told => rand() < 0.3 ? {} : $token{$_}, hold => "$turn.$_") for @holders;
		$self->op($_, 'check', asked => $asked, told => $token{$_}, hold => "$turn.$_") for grep { rand() < 0.8 } @holders;
		$self->op($_, 'commit', asked => $asked, hold => "$turn.$_") for @holders;
	}
	return $self;
}

sub semaphore
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(semaphore export);
	my %present;    # process: [ permits, number ]
	for (1 .. $n)
	{
		my $permits = rand() < 0.8 ? 3 : 2;
		my $least = (sort { $a <=> $b } $permits, map { $_->[0] } values %present)[0];
		if (keys(%present) < $least && rand() < 0.7)
		{
			my $p = $self->anybody(sort keys %present);
			$self->op($p, 'acquire', early => 40, asked => { permits => $permits });
			my %taken = map { $_->[1] => 1 } values %present;
			my ($number) = grep { !$taken{$_} } 1 .. $permits;
			$number = 0 if rand() < 0.3;
			$self->op($p, 'check', told => $number ? { number => $number } : {});
			$present{$p} = [ $permits, $number ];
		}
		elsif (my ($p) = sort { ($a * 7 + $_) % 11 <=> ($b * 7 + $_) % 11 } keys %present)
		{
			rand() < 0.2 ? $self->op($p, 'rollback', outcome => 'info') : $self->op($p, 'commit');
			delete $present{$p};
		}
	}
	return $self;
}

sub election
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(election nightly);
	my $leader = $self->anybody;
	for (1 .. $n)
	{
		if (rand() < 0.2)
		{
			$leader = $self->anybody($leader);
			$self->{token} += 10;
		}
		# one of its sessions
		my $p = $self->anybody;
		if (server($p) eq server($leader)) { $self->op($p, 'lead', told => { token => $self->{token} }); }
		else { $self->op($p, 'lead', outcome => 'fail'); }
	}
	return $self;
}

sub register
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(register fenced);
	my $value = 0;
	my $next = 1;
	for (1 .. $n)
	{
		my $p = $self->anybody;
		my $what = rand;
		if ($what < 0.5)
		{
			my $read = $self->op($p, 'read', told => { new => $value });
			$self->unknown($read) if rand() < 0.1;
		}
		elsif ($what < 0.6) { $self->op($p, 'fence', asked => { token => $self->{token} }); }
		else
		{
			$self->{token} += 10 if rand() < 0.3;
			my $cas = $self->op($p, 'cas', asked => { old => $value, new => $next, token => $self->{token} });
			my $fate = rand;
			if ($fate < 0.1) { $cas->{outcome} = 'fail'; }
			elsif ($fate < 0.15)
			{
				# not in effect, and never will be, which nobody knows
				$self->unknown($cas);
			}
			else
			{
				$value = $next;
				$self->unknown($cas) if $fate < 0.2;
			}
			$next++;
		}
	}
	return $self;
}

# One is taken again after its server was lost.
sub queue
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(queue import);
	my @there;
	my @again;
	for my $i (1 .. $n)
	{
		my $p = $self->anybody;
		my $put = $self->op($p, 'put', asked => { item => "i$i", id => "uuid-$i" });
		if (rand() < 0.1) { $put->{outcome} = 'fail'; }
		else
		{
			$self->unknown($put) if rand() < 0.1;
			push @there, $i;
		}
		while (@there && rand() < 0.6)
		{
			my $item = shift @there;
			my $who = $self->anybody;
			my $value = { item => "i$item", id => "uuid-$item" };
			$self->op($who, 'take', told => $value);
			my $fate = rand;
			if ($fate > 0.9 && $fate < 0.95)
			{
				# rolled back, and nobody says so
				unshift @there, $item;
				next;
			}
			if ($fate > 0.5 && $fate < 0.6)
			{
				# its session is killed, and another takes the item before it hears of that
				my $other = $self->anybody($who);
				$self->op($other, 'take', told => $value);
				$self->unknown($self->op($who, 'done', asked => { item => "i$item" }, early => 0));
				$self->op($other, 'done', asked => { item => "i$item" });
				next;
			}
			my $done = $self->op($who, 'done', asked => { item => "i$item" });
			if ($fate < 0.1) { $done->{outcome} = 'fail'; }
			elsif ($fate < 0.2) { $self->unknown($done); }
			if ($fate < 0.15) { unshift @there, $item; }
			elsif ($fate > 0.97)
			{
				# done, and its server could not say so
				$self->fault('server', $done->{server}, $done->{ret}, $done->{ret} + 10);
				$self->{now} += 20;
				unshift @there, $item;
			}
		}
	}
	while (defined(my $item = shift @there))
	{
		$self->op(99, 'take', told => { item => "i$item", id => "uuid-$item" });
		$self->op(99, 'done', asked => { item => "i$item" });
	}
	$self->op(99, 'empty');
	return $self;
}

# The ensemble goes back, and has forgotten what was in the queue.
sub queue_back
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(queue import);
	my $lost = 1 + int rand $n;
	for my $i (1 .. $n)
	{
		$self->op($self->anybody, 'put', asked => { item => "i$i" });
		if ($i == $lost)
		{
			$self->{now} += 20;
			$self->fault('ensemble', undef, $self->{now}, $self->{now} + 10);
			$self->{now} += 20;
		}
		else
		{
			my $p = $self->anybody;
			$self->op($p, 'take', told => { item => "i$i" });
			$self->op($p, 'done', asked => { item => "i$i" });
		}
	}
	$self->op(99, 'empty');
	return $self;
}

sub job
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(job nightly);
	for my $slot (1 .. $n)
	{
		my $asked = { slot => $slot, mode => $self->{in_doubt} // 'run' };
		my @callers = map { $self->anybody } 1 .. 1 + rand 3;
		my $committed = 0;
		for my $p (@callers)
		{
			my $fate = rand;
			if ($committed) { $self->op($p, 'run', asked => $asked, told => { how => 'done' }); }
			elsif ($fate < 0.2) { $self->op($p, 'run', asked => $asked, outcome => 'fail'); }
			else
			{
				my $run = $self->op($p, 'run', asked => $asked, told => { how => 'ran' }, early => 50);
				$committed = 1;
				$self->unknown($run) if $fate < 0.4;
			}
		}
		if (!$committed)
		{
			$self->op($self->anybody, 'run', asked => $asked, told => { how => 'ran' });
			$committed = 1;
		}
		push @{ $self->{counts} }, [ $slot, $committed ];
	}
	$self->op(99, 'count', asked => { slot => $_->[0] }, told => { committed => $_->[1] }) for @{ $self->{counts} };
	return $self;
}

# A server is lost when its run has committed, before anybody was told so, and another one runs the
# slot again.  The first one may answer later than that, and learn later still that it was lost.
sub job_doubt
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(job nightly);
	for my $slot (1 .. $n)
	{
		my $asked = { slot => $slot, mode => 'run' };
		my $p = $self->anybody;
		my $run = $self->op($p, 'run', asked => $asked, told => { how => 'ran' }, early => 50, late => 100);
		$self->unknown($run) if rand() < 0.4;
		my $committed = 1;
		if (rand() < 0.6)
		{
			# when the last claim was proven there; not when it was lost, which nobody knows
			my $since = $run->{call} - 20 + rand($self->{now} - $run->{call} + 20);
			my $q = $self->anybody(grep { server($_) eq server($p) } 1 .. $self->{processes});
			$self->op($q, 'run', asked => $asked, told => { how => 'ran' }, early => 50);
			$committed = 2;
			$self->fault('server', $run->{server}, $since, $self->{now} + rand 1000);
		}
		$self->op($self->anybody, 'run', asked => $asked, told => { how => 'done' }) if rand() < 0.7;
		push @{ $self->{counts} }, [ $slot, $committed ];
	}
	$self->{now} += 200;
	$self->op(99, 'count', asked => { slot => $_->[0] }, told => { committed => $_->[1] }) for @{ $self->{counts} };
	return $self;
}

sub barrier
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(barrier load);
	for my $round (1 .. $n)
	{
		my @parties;
		push @parties, $self->anybody(@parties) for 1 .. 3;
		if (rand() < 0.2)
		{
			$self->op($parties[0], 'arrive', asked => { parties => 3 }, outcome => 'fail');
			next;
		}
		$self->{now} += rand() < 0.5 ? 5 : 40;
		my $met = $self->{now};
		for my $p (@parties)
		{
			my $op = $self->op($p, 'arrive', asked => { parties => 3 }, round => $round);
			my $free = $op->{call};
			$op->{call} = $met if $op->{call} > $met;
			$self->unknown($op) if rand() < 0.05;
		}
		$_->{ret} += $self->{now} - $met for @{ $self->{ops} }[ -3 .. -1 ];
		$self->{free}{ $_->{process} } = $_->{ret} for @{ $self->{ops} }[ -3 .. -1 ];
	}
	return $self;
}

# The ensemble goes back to where the round is not full: one party does not hear that it was, and
# meets the others when they come again.
sub barrier_back
{
	my ($self, $n) = @_;
	@$self{qw(kind name)} = qw(barrier load);
	for (1 .. $n)
	{
		my @parties;
		push @parties, $self->anybody(@parties) for 1 .. 3;
		my ($from, $time) = ($self->{now}, $self->{now});
		my $arrive = sub {
			my ($p, $call, $ret) = @_;
			push @{ $self->{ops} }, { process => $p, server => server($p), f => 'arrive', kind => 'barrier', name => 'load', asked => { parties => 3 }, told => {}, call => $call, ret => $ret, outcome => 'ok' };
			$self->{free}{$p} = $ret;
		};
		$_ > $time and $time = $_ for map { $self->{free}{$_} // 0 } @parties;
		$arrive->($parties[2], $time + 1, $time + 40);
		for my $p (@parties[ 0, 1 ])
		{
			$arrive->($p, $time + 1 + rand, $time + 5 + rand);
			$arrive->($p, $time + 30 + rand, $time + 35 + rand);
		}
		$self->fault('ensemble', undef, $time + 10, $time + 20);
		$self->{now} = $time + 50;
	}
	return $self;
}

#
# Lines
#
sub line
{
	my ($op, $type, $time, %value) = @_;
	my $value = join ',', map { "\"$_\":" . ($value{$_} =~ /^-?\d+$/ ? $value{$_} : "\"$value{$_}\"") } sort keys %value;
	return sprintf '{"process":%d,"server":"%s","type":"%s","f":"%s","kind":"%s","name":"%s","value":{%s},"time":%.0f}',
	  $op->{process}, $op->{server} // '', $type, @$op{qw(f kind name)}, $value, 1e6 * $time;
}

sub write
{
	my ($self, $file) = @_;
	open my $fh, '>', $file or die "could not write $file: $!\n";
	for my $op (@{ $self->{ops} })
	{
		print $fh line($op, 'invoke', $op->{call}, %{ $op->{asked} }), "\n";
		print $fh line($op, $op->{outcome}, $op->{ret}, %{ $op->{told} }), "\n";
	}
	close $fh or die "could not write $file: $!\n";
}

1;
