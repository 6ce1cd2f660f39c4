#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2015,SC2016,SC2154,SC2086,SC2317,SC2329,SC3043
# timeout: 900
# worlds: stock
# guest: debian
#
# Exports counters with pfc export --mmv and reads them through a real pmcd with its agent pmdammv.
# PCP's clients must show the values and the descriptions of the counters.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/pmcd.sh
. /tests/pmcd.sh

metric=mmv.pc
values_are() { # METRIC VALUES
	metric_values "$1" >now
	[ "$(cat now)" = "$2" ] || { echo "$1: $(cat now), not $2"; return 1; }
}
wait_values() { within 60 values_are "$@"; }
is_absent() { ! pminfo "mmv.pc.$1" >/dev/null 2>&1; }
start_exporter() {
	pfc export --mmv pc --interval 200 "$@" 2>export.err &
	exporter=$!
}
# Waits until the exporter has exported a sample of the counters that is more recent than the call
# of wait_written().
wait_written() {
	local after
	after=$(date +%s%N)
	within 60 is_written_after "$after"
}
is_written_after() { [ "$(metric_values control.time)" -gt "$1" ]; }

plan 22
unload_modules
insmod_each perfcounters ppa test_driver

start_pmcd
check "pcp pmcd starts with the agent mmv" within 120 pminfo mmv.control.files

add_one_of_each_kind

start_exporter
check "pcp pfc export --mmv: metrics appear in pmcd" within 60 is_present all.test.counter
check "pcp a counter: type, semantics, units, help and instances" has_description percpu.test.counter \
	"Data Type: 64-bit int" "Semantics: counter" "Units: count" "what it counts" \
	"test/counter: counter, events" 'inst [0 or "cpu0"]' 'inst [1 or "cpu1"]'
check "pcp a gauge: instantaneous, without a unit" has_description all.test.gauge "Semantics: instant" "Units: none"
check "pcp a peak: instantaneous, with its unit and help" has_description all.test.peak "Semantics: instant" "Units: nanosec" "the longest"
check "pcp a time: counter, with its unit" has_description percpu.test.time "Semantics: counter" "Units: microsec"
check "pcp a histogram: counter, with an instance for each bucket" has_description all.test.sizes "Semantics: counter" "Units: count" \
	'"<=0"' '"1-1"' '"2-3"' '">=4"'
check "pcp a name with blanks and digits: escaped, with the unit bytes" has_description all.test.odd_x20_name.x_7 "Units: byte" "test/odd name/7: counter, bytes"

test_exact() {
	values_are percpu.test.counter "40 2" && values_are all.test.counter 42 &&
		values_are percpu.test.gauge "5 -7" && values_are all.test.gauge -2 &&
		values_are percpu.test.peak "123 77" && values_are all.test.peak 123 &&
		values_are percpu.test.time "0 1500" && values_are all.test.time 1500 &&
		values_are all.test.sizes "1 0 2 1" && values_are all.test.odd_x20_name.x_7 3000
}
check "pcp values: those of the counters, by CPU and in total" test_exact
test_accounting() {
	echo 1 0 0 1 >/proc/sys/kernel/ppa
	within 60 has_description percpu.ppa.idle_time "Semantics: counter" "Units: nanosec" "Idle" 'inst [1 or "cpu1"]' &&
		within 60 idle_time_grows && has_description all.ppa.softirq.net_rx "Units: count"
	local rc=$?
	echo 0 0 0 1 >/proc/sys/kernel/ppa
	return $rc
}
idle_time_grows() { [ "$(metric_values all.ppa.idle_time)" -gt 100000000 ]; }
check "pcp 4.9 accounting: values of CPUs are metrics" test_accounting
check "pcp pmval: shows the value of a CPU" sh -c 'pmval -s 1 -w 20 -r -i cpu1 mmv.pc.percpu.test.counter | tail -n 1 | grep -qE "^[^0-9]*([0-9:.]+ +)?2 *$" || { pmval -s 1 -r -i cpu1 mmv.pc.percpu.test.counter; false; }'
on_cpu 1 adjust $counter 1000
check "pcp a counter was updated: the metric has the new value" wait_values percpu.test.counter "40 1002"

# Adds and deletes instances while pfc exports. A metric keeps its number as long as its instance
# exists.
pminfo -m mmv.pc.all.test.counter >before
driver_cmd del $gauge >/dev/null
late=$(driver_cmd add test/late)
on_cpu 0 adjust $late 11
check "pcp a counter was added: its metric appears" wait_values percpu.test.late "11 0"
check "pcp a counter was deleted: its metric disappears" is_absent all.test.gauge
check "pcp set of counters changed: another metric keeps number and value" sh -c 'pminfo -m mmv.pc.all.test.counter | cmp - before'
again=$(add_desc 1 0 0 1 "" test/gauge)
on_cpu 1 adjust $again 3
check "pcp a counter was added again: its metric begins at 0" wait_values percpu.test.gauge "0 3"

# A counter that changes all the time is compared with two reads by pfc, one before and one after
# the read by PCP. With 1,000 more instances, there are more counters than the 1,024 metrics that a
# cluster of PCP can hold.
load_providers
i=0
while [ $i -lt 1000 ]; do
	echo "add many/n$i"
	i=$((i + 1))
done | while read -r line; do printf '%s' "$line" >/proc/test_driver; done
total_of() { pfc read --csv "$1" | tail -n 1 | cut -d, -f"$column"; }
column=$(pfc read --csv sched/context_switches | head -n 1 | tr , '\n' | grep -nx value | cut -d: -f1)
test_between_reads() {
	low=$(total_of sched/context_switches)
	wait_written || return 1
	seen=$(metric_values all.sched.context_switches)
	high=$(total_of sched/context_switches)
	echo "$low $seen $high"
	[ "$low" -gt 0 ] && [ "$low" -le "$seen" ] && [ "$seen" -le "$high" ]
}
check "pcp a counter of the kernel: the value is between two reads of pfc" test_between_reads
test_every_counter() {
	wait_written || return 1
	pfc list --json | grep -c '"name"' >listed
	pminfo mmv.pc.all | wc -l >shown
	[ "$(cat listed)" -gt 1024 ] && cmp listed shown || { cat listed shown; return 1; }
	is_present all.many.n999 && values_are percpu.many.n999 "0 0"
}
check "pcp more than 1,024 counters: each one is a metric" test_every_counter

# After the exporter is killed, PCP ignores the files that the exporter has left behind.
kill_and_wait $exporter
check "pcp exporter killed: its metrics disappear" within 60 is_absent all.test.counter
check "pcp exporter killed: its files are left behind" sh -c 'ls /var/lib/pcp/tmp/mmv/pc.* >/dev/null'
start_exporter 'test/*'
check "pcp exporter started again: its metrics are back" wait_values percpu.test.counter "40 1002"
kill $exporter
wait $exporter
metrics_are_gone() { is_absent all.test.counter && ! ls /var/lib/pcp/tmp/mmv/pc.* >/dev/null 2>&1; }
check "pcp exporter ended by SIGTERM: its metrics and files are removed" within 60 metrics_are_gone
[ $failed = 0 ] || sed 's/^/# pmcd: /' pcp/log export.err
kill $pmcd
unload_modules
exit $failed
