# Planted - faults that are planted into good histories.
#
# Each has the kind of history (a function of Good) and a function that changes its operations;
# it returns false where there is no place for it.  Where two models judge a history, those that must
# find the fault are named.
package Planted;

use strict;
use warnings;

sub any { return $_[ rand @_ ]; }

sub find
{
	my ($ops, $code) = @_;
	return any(grep { $code->() } @$ops);
}

# The operations of one hold, in their order.
sub hold { my ($ops, $hold) = @_; return grep { defined $_->{hold} && $_->{hold} eq $hold } @$ops; }

sub is { my ($op, $f) = @_; return $op->{f} eq $f && $op->{outcome} eq 'ok'; }

# Everybody else on another server.
sub stranger { my $op = shift; return 52 + ord($op->{server}) - ord('A'); }

# Between two answers of one hold, all at that time, somebody else asks these: [ f, told ].
sub between
{
	my ($ops, $from, $until, $process, @asked) = @_;
	my $step = ($until - $from) / (2 * @asked + 2);
	return 0 if $step <= 0;
	my $time = $from;
	for (@asked)
	{
		my ($f, $told, $asked) = @$_;
		push @$ops, { process => $process, server => Good::server($process), f => $f, kind => $ops->[0]{kind}, name => $ops->[0]{name}, asked => $asked // {}, told => $told // {}, call => $time += $step, ret => $time += $step, outcome => 'ok' };
	}
	return 1;
}

# Of a hold that was committed, and lasted: its first answer and its COMMIT, and its token.
sub lasting
{
	my ($ops, $code) = @_;
	my $commit = find($ops, sub { my $c = $_; is($c, 'commit') && defined $c->{hold} && grep { is($_, 'check') } hold($ops, $c->{hold}) }) // return;
	my @hold = hold($ops, $commit->{hold});
	my ($token) = grep { defined } map { $_->{told}{token} } @hold;
	return $commit->{call} > $hold[0]{ret} ? ($hold[0], $commit, $token) : ();
}

# The holds whose tokens are known, in their order: [ first, token ].
sub tokens
{
	my $ops = shift;
	my (%seen, @holds);
	for my $op (grep { defined $_->{hold} } @$ops)
	{
		push @holds, [ $op, undef ] unless $seen{ $op->{hold} }++;
		$holds[-1][1] //= $op->{told}{token} if $holds[-1][0]{hold} eq $op->{hold};
	}
	return grep { defined $_->[1] } @holds;
}

our @faults = (
	[ 'two holders of a lock', 'lock', sub {
		my $ops = shift;
		my ($first, $commit, $token) = lasting($ops) or return 0;
		return between($ops, $first->{ret}, $commit->{call}, stranger($first), [ 'acquire', { token => $token + 5 } ], [ 'check', { token => $token + 5 } ], ['commit']);
	}, 'mutex', 'fenced mutex' ],
	[ 'two holders, and the second one never commits', 'lock', sub {
		my $ops = shift;
		my ($first, $commit, $token) = lasting($ops) or return 0;
		return between($ops, $first->{ret}, $commit->{call}, stranger($first), ['acquire']);
	}, 'mutex', 'fenced mutex' ],
	[ 'a smaller token for a later holder', 'lock', sub {
		my $ops = shift;
		my @holds = tokens($ops);
		my $i = 1 + int rand $#holds;
		$_->{told}{token} = $holds[0][1] - 5 for grep { defined $_->{told}{token} } hold($ops, $holds[$i][0]{hold});
		return 1;
	} ],
	[ 'the same token on two servers', 'lock', sub {
		my $ops = shift;
		my @holds = tokens($ops);
		my $i = any(grep { $holds[$_][0]{server} ne $holds[ $_ - 1 ][0]{server} } 1 .. $#holds) // return 0;
		$_->{told}{token} = $holds[ $i - 1 ][1] for grep { defined $_->{told}{token} } hold($ops, $holds[$i][0]{hold});
		return 1;
	} ],
	[ 'a COMMIT after the lock was lost', 'lock', sub {
		my $ops = shift;
		my $lost = find($ops, sub { my $l = $_; $l->{lost} && grep { is($_, 'acquire') && $_->{call} > $l->{call} && $_->{ret} < $l->{ret} - 1 } @$ops }) // return 0;
		my ($other) = grep { is($_, 'acquire') && $_->{call} > $lost->{call} && $_->{ret} < $lost->{ret} - 1 } @$ops;
		@$lost{qw(f outcome call)} = ('commit', 'ok', $other->{ret} + 0.5);
		return 1;
	}, 'mutex', 'fenced mutex' ],
	[ 'a claim after the lock was lost', 'lock', sub {
		my $ops = shift;
		my $lost = find($ops, sub { my $l = $_; $l->{lost} && grep { is($_, 'acquire') && $_->{call} > $l->{call} && $_->{ret} < $l->{ret} - 1 } @$ops }) // return 0;
		my ($other) = grep { is($_, 'acquire') && $_->{call} > $lost->{call} && $_->{ret} < $lost->{ret} - 1 } @$ops;
		@$lost{qw(f outcome call)} = ('check', 'ok', $other->{ret} + 0.5);
		return 1;
	}, 'mutex', 'fenced mutex' ],
	[ 'a COMMIT of one who has no lock', 'lock', sub {
		my $ops = shift;
		my ($first, $commit) = lasting($ops) or return 0;
		return between($ops, $first->{ret}, $commit->{call}, stranger($first), ['commit']);
	}, 'mutex', 'fenced mutex' ],
	[ 'one who has no lock gives it back', 'lock', sub {
		my $ops = shift;
		my ($first, $commit) = lasting($ops) or return 0;
		return between($ops, $first->{ret}, $commit->{call}, stranger($first), ['release']);
	}, 'mutex', 'fenced mutex' ],
	[ 'a lock that was taken twice is free after one release', 'reentrant', sub {
		my $ops = shift;
		my $release = find($ops, sub { is($_, 'release') }) // return 0;
		my ($next) = grep { is($_, 'check') && $_->{call} > $release->{ret} } hold($ops, $release->{hold});
		return $next && between($ops, $release->{ret}, $next->{call}, stranger($release), ['acquire'], ['check']);
	} ],
	[ 'another token for one who takes the lock again', 'reentrant', sub {
		my $ops = shift;
		my $release = find($ops, sub { is($_, 'release') }) // return 0;
		my (undef, $again) = grep { is($_, 'acquire') } hold($ops, $release->{hold});
		$again->{told} = { token => $again->{told}{token} + 1 };
		return 1;
	} ],
	[ 'a reader beside a writer', 'readers', sub {
		my $ops = shift;
		my $commit = find($ops, sub { my $c = $_; is($c, 'commit') && $c->{asked}{mode} eq 'exclusive' && grep { is($_, 'check') } hold($ops, $c->{hold}) }) // return 0;
		my ($first) = hold($ops, $commit->{hold});
		return $commit->{call} > $first->{ret} && between($ops, $first->{ret}, $commit->{call}, stranger($first), [ 'acquire', {}, { mode => 'shared' } ]);
	} ],
	[ 'a writer beside a reader', 'readers', sub {
		my $ops = shift;
		my $commit = find($ops, sub { my $c = $_; is($c, 'commit') && $c->{asked}{mode} eq 'shared' && grep { is($_, 'check') } hold($ops, $c->{hold}) }) // return 0;
		my ($first) = hold($ops, $commit->{hold});
		return $commit->{call} > $first->{ret} && between($ops, $first->{ret}, $commit->{call}, stranger($first), [ 'acquire', {}, { mode => 'exclusive' } ]);
	} ],
	[ "a reader's token smaller than an earlier writer's", 'readers', sub {
		my $ops = shift;
		my $writer = find($ops, sub { is($_, 'check') && $_->{asked}{mode} eq 'exclusive' }) // return 0;
		my $reader = find($ops, sub { is($_, 'check') && $_->{asked}{mode} eq 'shared' && $_->{call} > $writer->{ret} }) // return 0;
		$_->{told}{token} = $writer->{told}{token} - 1 for grep { defined $_->{told}{token} } hold($ops, $reader->{hold});
		return 1;
	} ],
	[ "a writer's token smaller than an earlier reader's", 'readers', sub {
		my $ops = shift;
		my $reader = find($ops, sub { is($_, 'check') && $_->{asked}{mode} eq 'shared' }) // return 0;
		my ($writer) = grep { is($_, 'acquire') && $_->{asked}{mode} eq 'exclusive' && $_->{call} > $reader->{ret} } @$ops;
		return 0 unless $writer;
		$_->{told} = $_->{told}{token} ? { token => $reader->{told}{token} - 1 } : {} for hold($ops, $writer->{hold});
		return defined((grep { defined } map { $_->{told}{token} } hold($ops, $writer->{hold}))[0]);
	} ],
	[ 'a reader with two tokens', 'readers', sub {
		my $ops = shift;
		my $check = find($ops, sub { my $c = $_; is($c, 'check') && grep { is($_, 'acquire') && $_->{told}{token} } hold($ops, $c->{hold}) }) // return 0;
		$check->{told} = { token => $check->{told}{token} + 1 };
		return 1;
	} ],
	[ 'one claims to read who has never asked', 'readers', sub {
		my $ops = shift;
		my $end = $ops->[-1]{ret};
		return between($ops, $end + 100, $end + 105, 51, [ 'check', {}, { mode => 'shared' } ]);
	} ],
	[ 'one claims a permit who has never asked', 'semaphore', sub {
		my $ops = shift;
		return between($ops, 500, 505, 51, ['check']);
	} ],
	[ 'one who names two comes as the third', 'semaphore', sub {
		my $ops = shift;
		my ($first, $until) = most($ops, 2, 3) or return 0;
		return between($ops, $first, $until, 51, [ 'acquire', {}, { permits => 2 } ]);
	} ],
	[ 'a permit with two numbers', 'semaphore', sub {
		my $ops = shift;
		my $check = find($ops, sub { is($_, 'check') && $_->{told}{number} }) // return 0;
		my ($end) = grep { $_->{process} == $check->{process} && $_->{call} > $check->{ret} } @$ops;
		return $end && is($end, 'commit') && between($ops, $check->{ret}, $end->{call}, $check->{process}, [ 'check', { number => $check->{told}{number} % 2 + 1 } ]);
	} ],
	[ 'one permit too many', 'semaphore', sub {
		my $ops = shift;
		my ($first, $until) = most($ops, 3) or return 0;
		return between($ops, $first, $until, 51, [ 'acquire', {}, { permits => 3 } ]);
	} ],
	[ 'three beside one who names two', 'semaphore', sub {
		my $ops = shift;
		my ($first, $until) = most($ops, 2, 2) or return 0;
		return between($ops, $first, $until, 51, [ 'acquire', {}, { permits => 3 } ]);
	} ],
	[ 'two with the same number', 'semaphore', sub {
		my $ops = shift;
		my %present;
		my @pairs;
		for my $op (@$ops)
		{
			if ($op->{f} =~ /commit|rollback/) { delete $present{ $op->{process} }; }
			elsif (is($op, 'check') && $op->{told}{number})
			{
				push @pairs, map { [ $_, $op ] } grep { $_->{ret} < $op->{call} } @present{ sort keys %present };
				$present{ $op->{process} } = $op;
			}
		}
		# the one who came first has to say it again
		my $pair = any(@pairs) // return 0;
		my ($one, $other) = @$pair;
		my ($end) = grep { $_->{process} == $one->{process} && $_->{call} > $one->{ret} } @$ops;
		return 0 unless $end && is($end, 'commit') && $end->{call} > $other->{ret};
		$other->{told} = { number => $one->{told}{number} };
		return 1;
	} ],
	[ 'a number that there is not', 'semaphore', sub {
		my $op = find($_[0], sub { is($_, 'check') && $_->{told}{number} }) // return 0;
		$op->{told}{number} = 4;
		return 1;
	} ],
	[ 'two leaders at a time', 'election', sub {
		my $ops = shift;
		my @lead = grep { is($_, 'lead') } @$ops;
		my ($i) = grep { $lead[$_]{told}{token} == $lead[ $_ + 1 ]{told}{token} && $lead[$_]{ret} < $lead[ $_ + 1 ]{call} } List::Util::shuffle(0 .. $#lead - 1);
		return defined $i && between($ops, $lead[$i]{ret}, $lead[ $i + 1 ]{call}, stranger($lead[$i]), [ 'lead', { token => $lead[$i]{told}{token} + 5 } ]);
	} ],
	[ 'one token of two leaders', 'election', sub {
		my $ops = shift;
		my $lead = find($ops, sub { is($_, 'lead') }) // return 0;
		return between($ops, $lead->{ret}, $lead->{ret} + 5, stranger($lead), [ 'lead', { token => $lead->{told}{token} } ]);
	} ],
	[ 'a leader who comes back with its old token', 'election', sub {
		my $ops = shift;
		my @lead = grep { is($_, 'lead') } @$ops;
		return 0 if $lead[0]{told}{token} == $lead[-1]{told}{token};
		return between($ops, $lead[-1]{ret}, $lead[-1]{ret} + 5, 60 + ord($lead[0]{server}) - ord('A'), [ 'lead', { token => $lead[0]{told}{token} } ]);
	} ],
	[ 'a register that goes back', 'register', sub {
		my $ops = shift;
		my @cas = grep { is($_, 'cas') } @$ops;
		my $i = 1 + int rand(@cas - 2);
		return between($ops, $cas[$i]{ret}, $cas[$i]{ret} + 0.001, 51, [ 'read', { new => $cas[ $i - 1 ]{asked}{old} } ]);
	} ],
	[ 'a lost update', 'register', sub {
		my $ops = shift;
		my $cas = find($ops, sub { is($_, 'cas') }) // return 0;
		return between($ops, $cas->{ret}, $cas->{ret} + 0.001, 51, [ 'cas', {}, { old => $cas->{asked}{old}, new => 777777 } ]);
	} ],
	[ 'a stale token is accepted', 'register', sub {
		my $ops = shift;
		my @cas = grep { is($_, 'cas') } @$ops;
		my $cas = any(grep { $_->{asked}{token} > $cas[0]{asked}{token} } @cas) // return 0;
		$cas->{asked}{token} = $cas[0]{asked}{token} - 1;
		return 1;
	} ],
	[ 'the fence lets a stale token pass', 'register', sub {
		my $ops = shift;
		my @cas = grep { is($_, 'cas') } @$ops;
		return between($ops, $cas[-1]{ret}, $cas[-1]{ret} + 1, 51, [ 'fence', {}, { token => $cas[-1]{asked}{token} - 5 } ]);
	} ],
	[ 'a value that nobody wrote', 'register', sub {
		my $read = find($_[0], sub { is($_, 'read') }) // return 0;
		$read->{told} = { new => 888888 };
		return 1;
	} ],
	[ 'a refused write is there', 'register', sub {
		my $ops = shift;
		my $cas = find($ops, sub { $_->{f} eq 'cas' && $_->{outcome} eq 'fail' }) // return 0;
		return between($ops, $cas->{ret}, $cas->{ret} + 0.001, 51, [ 'read', { new => $cas->{asked}{new} } ]);
	} ],
	[ 'a lost item', 'queue', sub {
		my $ops = shift;
		my $put = find($ops, sub { is($_, 'put') && $_->{ret} < $ops->[-1]{call} }) // return 0;
		@$ops = grep { $_ == $put || ($_->{told}{item} // $_->{asked}{item} // '') ne $put->{asked}{item} } @$ops;
		return 1;
	} ],
	[ 'an item that was taken, given back, and is lost', 'queue', sub {
		my $ops = shift;
		my $back = find($ops, sub { $_->{f} eq 'done' && $_->{outcome} eq 'fail' }) // return 0;
		my $item = $back->{asked}{item};
		return 0 if grep { $_->{f} eq 'done' && $_->{outcome} ne 'fail' && $_->{asked}{item} eq $item && $_->{ret} < $back->{call} } @$ops;
		my $behind = 0;
		@$ops = grep { my $keep = !$behind || ($_->{told}{item} // $_->{asked}{item} // '') ne $item; $behind ||= $_ == $back; $keep } @$ops;
		$_->{outcome} = 'ok' for grep { $_->{f} eq 'put' && $_->{asked}{item} eq $item } @$ops;
		return 1;
	} ],
	[ 'an item that is done twice', 'queue', sub { return again($_[0]); } ],
	[ 'an item that is done twice, after another server was lost', 'queue', sub {
		my $ops = shift;
		my $done = again($ops) or return 0;
		return lost($ops, $done->{server} eq 'A' ? 'B' : 'A', $done->{ret});
	} ],
	[ 'an item that is done twice, after a session was terminated', 'queue', sub {
		my $ops = shift;
		my $done = again($ops) or return 0;
		push @$ops, { process => 2000, f => 'fault', kind => 'fault', name => 'planted', asked => { harm => 'none', harmed => $done->{server} }, told => {}, call => $done->{ret}, ret => $done->{ret} + 1, outcome => 'info' };
		return 1;
	} ],
	[ 'an item that is done twice, before its server was lost', 'queue', sub {
		my $ops = shift;
		my $done = again($ops) or return 0;
		return lost($ops, $done->{server}, $done->{ret} + 6);
	} ],
	[ 'an item that is done twice, after its server was lost', 'queue', sub {
		my $ops = shift;
		my $done = again($ops) or return 0;
		return lost($ops, $done->{server}, $done->{call} - 6);
	} ],
	[ 'two have one item', 'queue', sub {
		my $ops = shift;
		my ($take, $done) = taken($ops) or return 0;
		return between($ops, $take->{ret}, $done->{call}, 51, [ 'take', $take->{told} ], [ 'done', {}, $done->{asked} ]);
	} ],
	[ 'two have one item, and one gives it back', 'queue', sub {
		my $ops = shift;
		my ($take, $done) = taken($ops) or return 0;
		return between($ops, $take->{ret}, $done->{call}, 51, [ 'take', $take->{told} ]);
	} ],
	[ 'an item that was rolled back is taken', 'queue', sub {
		my $ops = shift;
		my $put = find($ops, sub { $_->{f} eq 'put' && $_->{outcome} eq 'fail' }) // return 0;
		return between($ops, $put->{ret}, $put->{ret} + 5, 51, [ 'take', $put->{asked} ], [ 'done', {}, { item => $put->{asked}{item} } ]);
	} ],
	[ 'an item is taken before its COMMIT', 'queue', sub {
		my $ops = shift;
		my $put = find($ops, sub { my $p = $_; $p->{f} eq 'put' && $p->{outcome} ne 'fail' }) // return 0;
		return between($ops, $put->{call} - 5, $put->{call} - 0.5, 51, [ 'take', $put->{asked} ]);
	} ],
	[ 'one does an item that he has not taken', 'queue', sub {
		my $ops = shift;
		my $end = $ops->[-1]{ret};
		my $put = find($ops, sub { is($_, 'put') }) // return 0;
		return between($ops, $end, $end + 5, 51, [ 'done', {}, { item => $put->{asked}{item} } ]);
	} ],
	[ 'an item is put twice', 'queue', sub {
		my $ops = shift;
		my $end = $ops->[-1]{ret};
		my $put = find($ops, sub { is($_, 'put') }) // return 0;
		my $item = { item => $put->{asked}{item} };
		return between($ops, $end, $end + 5, 51, [ 'put', {}, $item ], [ 'take', $item ], [ 'done', {}, $item ]);
	} ],
	[ 'an item is lost that was put after the ensemble went back', 'queue_back', sub {
		my $ops = shift;
		my ($fault) = grep { $_->{f} eq 'fault' } @$ops;
		my $put = find($ops, sub { is($_, 'put') && $_->{call} > $fault->{ret} + 1 && $_->{ret} < $ops->[-1]{call} }) // return 0;
		@$ops = grep { $_ == $put || ($_->{told}{item} // $_->{asked}{item} // '') ne $put->{asked}{item} } @$ops;
		return 1;
	} ],
	[ 'an item has two ids', 'queue', sub {
		my $take = find($_[0], sub { is($_, 'take') }) // return 0;
		$take->{told} = { %{ $take->{told} }, id => 'uuid-other' };
		return 1;
	} ],
	[ 'a slot that is run twice', 'job', sub { return run_again($_[0], 'D'); } ],
	[ 'a slot that is run twice, before its server was lost', 'job', sub {
		my $ops = shift;
		my $run = run_again($ops, 'D') or return 0;
		return lost($ops, $run->{server}, $run->{ret} + 6);
	} ],
	[ 'a slot that is run twice, after its server was lost', 'job', sub {
		my $ops = shift;
		my $run = run_again($ops, 'D') or return 0;
		return lost($ops, $run->{server}, $run->{call} - 6);
	} ],
	[ 'a slot that is run twice, although runs in doubt are skipped', 'job', sub {
		my $ops = shift;
		my $run = run_again($ops, 'D') or return 0;
		push @$ops, { process => 2000, f => 'fault', kind => 'fault', name => 'planted', asked => { harm => 'server' }, told => {}, call => $run->{ret}, ret => $run->{ret} + 1, outcome => 'info' };
		$_->{asked}{mode} = 'skip' for grep { $_->{f} eq 'run' } @$ops;
		return 1;
	} ],
	[ 'a slot that one server runs twice', 'job', sub {
		my $ops = shift;
		my $run = run_again($ops) or return 0;
		push @$ops, { process => 2000, f => 'fault', kind => 'fault', name => 'planted', asked => { harm => 'ensemble' }, told => {}, call => $run->{ret}, ret => $run->{ret} + 1, outcome => 'info' };
		return 1;
	} ],
	[ 'a slot that is done, and nobody ran', 'job', sub {
		my $ops = shift;
		my $slot = 1000;
		return between($ops, $ops->[-1]{ret}, $ops->[-1]{ret} + 5, 51, [ 'run', { how => 'done' }, { slot => $slot, mode => 'run' } ]);
	} ],
	[ 'a slot that was skipped, with no run in doubt', 'job', sub {
		my $ops = shift;
		return between($ops, $ops->[-1]{ret}, $ops->[-1]{ret} + 5, 51, [ 'run', { how => 'skipped' }, { slot => 1000, mode => 'skip' } ]);
	} ],
	[ 'a slot that was left out', 'job', sub {
		my $ops = shift;
		return between($ops, $ops->[-1]{ret}, $ops->[-1]{ret} + 5, 51, [ 'count', { committed => 0 }, { slot => 1000 } ]);
	} ],
	[ 'a slot that was skipped, and then run', 'job', sub {
		my $ops = shift;
		my $end = $ops->[-1]{ret};
		my $asked = { slot => 1000, mode => 'skip' };
		between($ops, $end, $end + 5, 51, [ 'run', {}, $asked ]);
		$ops->[-1]{outcome} = 'info';
		between($ops, $end + 5, $end + 10, 52, [ 'run', { how => 'skipped' }, $asked ]);
		return between($ops, $end + 10, $end + 15, 53, [ 'run', { how => 'ran' }, $asked ], [ 'count', { committed => 1 }, $asked ]);
	} ],
	[ 'a run that was told of, and is not there', 'job', sub {
		my $count = find($_[0], sub { is($_, 'count') }) // return 0;
		$count->{told} = { committed => 0 };
		return 1;
	} ],
	[ 'a run too many', 'job', sub {
		my $count = find($_[0], sub { is($_, 'count') }) // return 0;
		$count->{told} = { committed => 2 };
		return 1;
	} ],
	[ 'a party that had left before another came', 'barrier', sub {
		my $ops = shift;
		my ($one, $other) = party($ops) or return 0;
		$one->{ret} = $other->{call} - 0.01;
		return 1;
	} ],
	[ 'one of a round waits for more', 'barrier', sub {
		my $ops = shift;
		my ($one) = party($ops) or return 0;
		$one->{asked} = { parties => 4 };
		return 1;
	} ],
	[ 'the last round has one party too few', 'barrier', sub {
		my $ops = shift;
		my $n = 0;
		$n++ while $n < @$ops && $ops->[$n]{outcome} ne 'info';
		@$ops = @$ops[ 0 .. $n - 1 ];
		pop @$ops while @$ops && (!$ops->[-1]{round} || (grep { ($_->{round} // 0) == $ops->[-1]{round} } @$ops) < 3);
		return @$ops && pop @$ops;
	} ],
	[ 'a round with one party too few', 'barrier', sub {
		my $ops = shift;
		my ($one) = party($ops) or return 0;
		@$ops = grep { $_ != $one } @$ops;
		return 1;
	} ]);

# While so many have a permit, and none of them names fewer: from when until when, by what
# all of them have been told.
sub most
{
	my ($ops, $n, $names) = @_;
	my (%present, @times);
	for my $op (@$ops)
	{
		my $p = $op->{process};
		if (is($op, 'check'))
		{
			$present{$p}[0] = $op;
			next unless keys %present == $n;
			my @mine = @present{ sort keys %present };
			my $from = (sort { $b <=> $a } map { $_->[0]{ret} } @mine)[0];
			# each is to confirm it afterwards, by its COMMIT
			my @ends = map { my $one = $_->[0]; my ($end) = grep { $_->{process} == $one->{process} && $_->{call} > $one->{ret} } @$ops; $end } @mine;
			next if grep { !$_ || !is($_, 'commit') } @ends;
			my $until = (sort { $a <=> $b } map { $_->{call} } @ends)[0];
			my $least = (sort { $a <=> $b } map { $_->[1] } @mine)[0];
			push @times, [ $from, $until ] if $until > $from && (!$names || $least == $names);
		}
		elsif (is($op, 'acquire')) { $present{$p} = [ $op, $op->{asked}{permits} ]; }
		else { delete $present{$p}; }
	}
	my $time = any(@times) // return;
	return @$time;
}

# That server is lost then, within a millisecond.
sub lost
{
	my ($ops, $server, $time) = @_;
	return push @$ops, { process => 2000, f => 'fault', kind => 'fault', name => 'planted', asked => { harm => 'server', harmed => $server }, told => {}, call => $time, ret => $time + 1, outcome => 'info' };
}

# Somebody takes and does what was done, at once; the first one's "done".
sub again
{
	my $ops = shift;
	my ($take, $done) = taken($ops) or return 0;
	return 0 if grep { ($_->{told}{item} // $_->{asked}{item} // '') eq $done->{asked}{item} && $_->{call} > $done->{ret} } @$ops;
	return 0 if grep { $_->{kind} eq 'fault' } @$ops;
	between($ops, $done->{ret}, $done->{ret} + 5, 51, [ 'take', $take->{told} ], [ 'done', {}, $done->{asked} ]);
	return $done;
}

sub taken
{
	my $ops = shift;
	my $done = find($ops, sub { is($_, 'done') && $_->{process} != 99 }) // return;
	my ($take) = reverse grep { is($_, 'take') && $_->{process} == $done->{process} && $_->{told}{item} eq $done->{asked}{item} && $_->{ret} < $done->{call} } @$ops;
	return $take && $done->{call} - $take->{ret} > 0.01 ? ($take, $done) : ();
}

sub run_again
{
	my ($ops, $server) = @_;
	my $run = find($ops, sub { is($_, 'run') && $_->{told}{how} eq 'ran' }) // return 0;
	between($ops, $run->{ret}, $run->{ret} + 5, 51, [ 'run', { how => 'ran' }, { %{ $run->{asked} } } ]);
	$ops->[-1]{server} = $server // $run->{server};
	$_->{told}{committed}++ for grep { $_->{f} eq 'count' && $_->{asked}{slot} == $run->{asked}{slot} } @$ops;
	return $run;
}

# Two parties of a round, of whom the second one came later; no other round is near.
sub party
{
	my $ops = shift;
	my $one = find($ops, sub { is($_, 'arrive') }) // return;
	my @round = grep { ($_->{round} // 0) == $one->{round} } @$ops;
	my ($other) = sort { $b->{call} <=> $a->{call} } grep { $_ != $one } @round;
	my ($from) = sort { $a <=> $b } map { $_->{call} } @round;
	my ($until) = sort { $b <=> $a } map { $_->{ret} } @round;
	# who is not known may have been the third
	return if grep { $_->{outcome} eq 'info' && $_->{call} < $until } @$ops;
	return if grep { ($_->{round} // 0) != $one->{round} && $_->{call} < $until && $_->{ret} > $from } @$ops;
	return $one->{call} < $other->{call} - 0.1 ? ($one, $other) : ();
}

1;
