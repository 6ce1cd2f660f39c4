#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2015,SC2086,SC2154,SC2317,SC2329,SC3043
# timeout: 600
# worlds: stock
# guest: debian
#
# Tests pfc export --openmetrics on the real device with every provider loaded. openmetrics.py reads
# the output with the parser of Prometheus's Python client.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

parse() { python3 /tests/openmetrics.py "$@"; }
export_to() { pfc export --openmetrics -o "$@"; }
read_json_to() { pfc read --json --per-cpu -o "$@"; }
plan 12
unload_modules
load_providers
insmod /modules/test_driver.ko
add_one_of_each_kind

list_names() { sed 1d /dev/perfcounters_names | cut -f3 | sort -u; }
# Exports all instances twice. For counters that change during the test, checks only that they do
# not decrease.
test_whole() {
	list_names >listed.before
	read_json_to before && export_to a.prom && read_json_to after || return 1
	list_names >listed.after
	export_to b.prom && parse a.prom b.prom --json before after >growth
	local rc=$?
	cat growth
	return $rc
}
check "openmetrics all providers: the parser accepts the output" test_whole
check "openmetrics all providers: counters increase between two exports" grep -qE '[1-9][0-9]* samples have grown' growth
# Each name that the device lists both before the export and after it must be in the output. At the
# first occurrence of an interrupt, a counter of the interrupt is added to the device, so the device
# may get new names during the export.
test_names() {
	comm -12 listed.before listed.after >listed
	grep -o 'name="[^"]*"' a.prom | sed 's/^name="//; s/"$//' | sort -u >shown
	echo "$(wc -l <listed) names, $(wc -l <shown) shown"
	grep -vxF -f shown listed >missing
	head -n 5 missing
	[ "$(wc -l <listed)" -gt 100 ] && [ ! -s missing ]
}
check "openmetrics all providers: the output has every name of the device" test_names

# Only this script changes the test instances, so every value of each CPU must be exact.
test_exact() { read_json_to json 'test/*' && export_to t.prom 'test/*' && parse t.prom --json json; }
check "openmetrics test instances: each value is that of pfc read --per-cpu" test_exact
# Compares the exported values with the numbers that this script has added to the counters.
test_known_values() {
	grep -qE '^perfcounters_test_counter_total\{(.*,)?cpu="0".*\} 40$' t.prom &&
		grep -qE '^perfcounters_test_counter_total\{(.*,)?cpu="1".*\} 2$' t.prom &&
		grep -qE '^perfcounters_test_time_seconds_total\{(.*,)?cpu="1".*\} 0\.0015$' t.prom ||
		{ grep _total t.prom; return 1; }
}
check "openmetrics test instances: values are those that were counted" test_known_values
test_accounting() {
	echo 1 0 0 1 >/proc/sys/kernel/ppa && within 60 count_lines && parse p.prom
	local rc=$?
	echo 0 0 0 1 >/proc/sys/kernel/ppa
	[ $rc = 0 ] || { head -n 30 p.prom; return 1; }
}
# Accounting updates the values of each CPU only from time to time, so this check is repeated.
count_lines() {
	export_to p.prom 'ppa/*' && grep -qE '^perfcounters_ppa_idle_time_seconds_total\{(.*,)?cpu="1".*\} [0-9.]+$' p.prom &&
		grep -qE '^perfcounters_ppa_syscalls_total\{(.*,)?cpu="0".*\} [1-9][0-9]*$' p.prom
}
check "openmetrics 4.9 accounting: values of CPUs are in the output" test_accounting
test_sums() { export_to s.prom --sum 'test/*' && parse s.prom --json json; }
check "openmetrics --sum: the output has the totals over CPUs" test_sums

# Tests that a counter that is deleted and added again begins at 0, with a new creation time.
test_added_again() {
	driver_cmd del $counter >deleted
	local before after
	before=$(date +%s.%N)
	counter=$(add_desc 0 1 0 1 "what it counts" test/counter)
	after=$(date +%s.%N)
	on_cpu 0 adjust $counter 1
	read_json_to json 'test/*' && export_to u.prom 'test/*' && parse t.prom u.prom && parse u.prom --json json || return 1
	grep -h test_counter_created t.prom u.prom | sort -u | wc -l | grep -qx 4 || return 1
	# For each CPU, the counter's creation time in the export must be between the times that
	# were taken before and after the counter was added.
	awk -v b="$before" -v a="$after" '/^perfcounters_test_counter_created/ { n++; ok += b <= $2 && $2 <= a; print }
		END { print "between", b, a; exit !(n == 2 && ok == 2) }' u.prom
}
check "openmetrics counter added again: the creation time is the new one" test_added_again

# Tests that a file that pfc export replaces all the time is complete at every read.
pfc export --openmetrics -o live.prom --interval 100 2>live.err &
live=$!
has_changed() { cp live.prom "live$(($1 + 1))" && ! cmp -s "live$1" "live$(($1 + 1))"; }
copy_three_times() {
	local round=0
	while [ ! -e live.prom ] && kill -0 $live; do sleep 0.2; done
	while [ $round -lt 3 ]; do
		within 60 has_changed $((round - 1)) || return 1
		round=$((round + 1))
	done
}
test_replaced() {
	copy_three_times
	local rc=$?
	kill $live
	wait $live
	[ $rc = 0 ] || return 1
	! cmp -s live0 live2 || { echo "it did not change"; return 1; }
	parse live0 live2 && parse live1
}
check "openmetrics -o with --interval: the file is complete at every read" test_replaced

pfc export --openmetrics --listen 127.0.0.1:0 sched irq softirq block net mm test >url &
server=$!
test_served() {
	within 60 test -s url && parse "$(cat url)" "$(cat url)"
}
check "openmetrics --listen: the parser accepts the answer over HTTP" test_served
test_ended() { kill -TERM $server && wait $server; }
check "openmetrics --listen: SIGTERM ends the server with status 0" test_ended

# Checks that openmetrics.py finds a value that is off by 1.
test_errors() {
	sed -E 's/^(perfcounters_test_counter_total\{.*cpu="0".*\}) 1$/\1 2/' u.prom >bad
	! cmp -s u.prom bad || return 1
	! parse bad --json json >bad.out
	cat bad.out
	grep -q '^fault: test/counter of CPU 0' bad.out
}
check "openmetrics openmetrics.py: a value that is off by 1 is a fault" test_errors
unload_modules
exit $failed
