#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2016,SC2086,SC2154,SC2317,SC2329,SC2015
#
# Runs the programs and loads the modules that the documentation quotes, and checks the results.
# tests/host/documentation.sh checks that the quotes are the same as the files.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

examples=/tests/examples
plan 11
unload_modules
insmod_each perfcounters perfmon ppa perftrace test_driver pfm_soft pfm_ring

add_one_of_each_kind

test_snapshot() {
	$examples/snapshot test/counter no/such test/gauge >values && printf 'test/counter 42\ntest/gauge -2\n' | diff - values
}

test_faults() {
	$examples/faults >counted || return 1
	read -r faults _ ns _ <counted
	# The program touches 100 pages, and printf() and the stack add a few faults.
	[ "$faults" -ge 100 ] && [ "$faults" -lt 130 ] && [ "$ns" -gt 1000 ] || { cat counted; return 1; }
}

# One run of the program `ring` uses 0.2 s of CPU time. On a busy host, late ticks may be merged
# into one sample or arrive after sampling has ended. The samples of several runs are therefore
# added up.
test_ring() {
	all=0
	for _ in $(seq 60); do
		$examples/ring >sampled || return 1
		read -r samples _ mine _ _ _ lost _ <sampled
		[ "$mine" = "$samples" ] || { cat sampled; return 1; }
		# On a busy host the program may read the ring too late and lose samples.
		[ "$lost" = 0 ] || continue
		all=$((all + samples))
		[ $all -lt 5 ] || return 0
	done
	echo "$all samples in runs that lost none"
	return 1
}

test_times() {
	! $examples/time 2>said_off || { echo "it says times while nothing is accounted"; return 1; }
	echo "1 0 0 1" >/proc/sys/kernel/ppa
	$examples/time >time1 || return 1
	read -r us _ _ _ _ system _ _ _ calls _ <time1
	echo "0 0 0 1" >/proc/sys/kernel/ppa
	[ "$us" -gt 0 ] && [ "$system" -le "$us" ] && [ "$calls" -gt 0 ] || { cat time1; return 1; }
}

check "counter-pages.md: the program reads consistent values by the protocol" test_snapshot
check "perfmon.md: the program counts its own page faults" test_faults
check "sampling.md: the program reads samples of its own thread from a ring" test_ring
check "accounting.md: the program prints its own times" test_times
check "counter-pages.md: the program prints the sums of all instances" sh -c '$0/reader >o && grep -qx "test/counter 42" o && grep -qx "test/gauge -2" o' $examples

test_filter() {
	pfc trace start shop -e 'shop:*' -f 'price > 10' --format text -o shop.txt -- $examples/shop 50 || return 1
	# Computes how many events must pass the filter.
	want=0
	for event in $(seq 0 49); do [ $((event * 7 % 100)) -le 10 ] || want=$((want + 1)); done
	[ "$(grep -c 'shop:sold' shop.txt)" = $want ] || { echo "$want wanted"; head -n 5 shop.txt; return 1; }
}
check "tracing.md: the program's events that pass the filter are traced" test_filter

insmod /modules/tutorial_provider.ko
test_signals() {
	got=0
	before=$(pfc read --csv tutorial/usr1 | tail -n 1 | tr , '\n' | grep -xE '[0-9]+' | tail -n 1)
	trap 'got=$((got + 1))' USR1
	while [ $got -lt 100 ]; do kill -USR1 $$; done
	trap - USR1
	after=$(pfc read --csv tutorial/usr1 | tail -n 1 | tr , '\n' | grep -xE '[0-9]+' | tail -n 1)
	[ $((after - before)) = 100 ] || { echo "$before to $after"; return 1; }
}
check "providers.md: the provider counts each of 100 signals" test_signals
check "providers.md: the provider unloads, its instances are dormant" sh -c 'rmmod tutorial_provider && ! pfc list tutorial && pfc list --all tutorial | grep -q dormant'

insmod /modules/tutorial_pmu.ko
# The program `ticks` counts for half a second. On a busy host, half a second may have too few
# ticks, so the check repeats `ticks` until it counts enough of them.
check "pmu-tutorial.md: the program counts with the tutorial's PMU" within 5 sh -c '$0/ticks >o; cat o; grep -qE "^[1-9][0-9]* times ten ticks, 2 CPUs$" o' $examples
insmod /modules/tutorial_format.ko
check "format-tutorial.md: the program samples with the tutorial's format" sh -c '$0/by_cpu >o; cat o; [ "$(grep -cE "^50 samples: [0-9]+ [0-9]+$" o)" = 3 ]' $examples
check "the modules of both tutorials unload" sh -c 'rmmod tutorial_pmu tutorial_format'
exit $failed
