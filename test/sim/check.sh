#!/bin/sh
# Run the programs that "make" has built, each as a TAP subtest.
# Environment: CHECK_SEEDS, CHECKED_SEEDS, MUTANTS, LEASE_SEEDS, LEASE_MUTANTS (see
# Makefile).

cd "$(dirname "$0")" || exit 2
set -- ${MUTANTS:=1 2 3 4 5 6 7 8 9 10 11 12 13} ${LEASE_MUTANTS:=1 2 3 4 5 6}
echo "# steps: $(($# + 5))"

n=0
failed=0

subtest()
{
	name=$1
	shift
	n=$((n + 1))
	# Keep the status of the program, not that of the pipe.
	if output=$("$@" 2>&1); then verdict=ok; else
		verdict="not ok"
		failed=1
	fi
	echo "$output" | sed 's/^/    /'
	echo "$verdict $n - $name"
}

subtest "names on the wire" build/test_contender
subtest "simulated schedules" build/sim --seeds "${CHECK_SEEDS:-100000}"
subtest "the same, checked by sanitizers" build/sim-checked --seeds "${CHECKED_SEEDS:=10000}"
for mutant in $MUTANTS; do
	subtest "mutant $mutant dies" "build/sim-mutant$mutant" --seeds 2000 --mutant "mutant $mutant"
done
subtest "schedules of the lease" build/lease_sim --seeds "${LEASE_SEEDS:-150000}"
subtest "the same, checked by sanitizers" build/lease_sim-checked --seeds "$CHECKED_SEEDS"
for mutant in $LEASE_MUTANTS; do
	# The sixth is wrong only behind an observer's master; a paused learner shows it.
	case $mutant in
		6) set -- --observers 2 --only 1 ;;
		*) set -- ;;
	esac
	subtest "lease mutant $mutant dies" "build/lease_sim-mutant$mutant" --seeds 1000000 \
		--mutant "lease mutant $mutant" "$@"
done
echo "1..$n"
exit $failed
