#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2015,SC2016,SC2154,SC2086,SC2317,SC2329,SC3043
# timeout: 900
# worlds: stock
# guest: debian
#
# pfc export --mmv, read through a real pmcd with its agent pmdammv: what PCP's clients show must be
# the values and descriptions of the counters.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/pmcd.sh
. /tests/pmcd.sh

metric=mmv.pc
are() { # METRIC VALUES
	values "$1" >now
	[ "$(cat now)" = "$2" ] || { echo "$1: $(cat now), not $2"; return 1; }
}
become() { within 60 are "$@"; }
absent() { ! pminfo "mmv.pc.$1" >/dev/null 2>&1; }
exporter() {
	pfc export --mmv pc --interval 200 "$@" 2>export.err &
	exporter=$!
}
# Waits until the exporter has written values that it read after this moment.
settle() {
	local after
	after=$(date +%s%N)
	within 60 newer "$after"
}
newer() { [ "$(values control.time)" -gt "$1" ]; }

plan 22
unload
insmod /modules/perfcounters.ko
insmod /modules/test_driver.ko

start_pmcd
check "pcp pmcd starts with the agent mmv" within 120 pminfo mmv.control.files

one_of_each_kind

exporter
check "pcp pfc export --mmv: metrics appear in pmcd" within 60 present all.test.counter
check "pcp a counter: type, semantics, units, help and instances" shape percpu.test.counter \
	"Data Type: 64-bit int" "Semantics: counter" "Units: count" "what it counts" \
	"test/counter: counter, events" 'inst [0 or "cpu0"]' 'inst [1 or "cpu1"]'
check "pcp a gauge: instantaneous, without a unit" shape all.test.gauge "Semantics: instant" "Units: none"
check "pcp a peak: instantaneous, with its unit and help" shape all.test.peak "Semantics: instant" "Units: nanosec" "the longest"
check "pcp a time: counter, with its unit" shape percpu.test.time "Semantics: counter" "Units: microsec"
check "pcp a histogram: counter, with an instance for each bucket" shape all.test.sizes "Semantics: counter" "Units: count" \
	'"<=0"' '"1-1"' '"2-3"' '">=4"'
check "pcp a name with blanks and digits: escaped, with the unit bytes" shape all.test.odd_x20_name.x_7 "Units: byte" "test/odd name/7: counter, bytes"

exact() {
	are percpu.test.counter "40 2" && are all.test.counter 42 &&
		are percpu.test.gauge "5 -7" && are all.test.gauge -2 &&
		are percpu.test.peak "123 77" && are all.test.peak 123 &&
		are percpu.test.time "0 1500" && are all.test.time 1500 &&
		are all.test.sizes "1 0 2 1" && are all.test.odd_x20_name.x_7 3000
}
check "pcp values: those of the counters, by CPU and in total" exact
accounting() {
	echo 1 0 0 1 >/proc/sys/kernel/ppa
	within 60 shape percpu.ppa.idle_time "Semantics: counter" "Units: nanosec" "Idle" 'inst [1 or "cpu1"]' &&
		within 60 grows && shape all.ppa.softirq.net_rx "Units: count"
	local rc=$?
	echo 0 0 0 1 >/proc/sys/kernel/ppa
	return $rc
}
grows() { [ "$(values all.ppa.idle_time)" -gt 100000000 ]; }
check "pcp 4.9 accounting: values of CPUs are metrics" accounting
check "pcp pmval: shows the value of a CPU" sh -c 'pmval -s 1 -w 20 -r -i cpu1 mmv.pc.percpu.test.counter | tail -n 1 | grep -qE "^[^0-9]*([0-9:.]+ +)?2 *$" || { pmval -s 1 -r -i cpu1 mmv.pc.percpu.test.counter; false; }'
on 1 adjust $counter 1000
check "pcp a counter was updated: the metric has the new value" become percpu.test.counter "40 1002"

# Changes the set of instances. Instances that stay keep the number of their metric.
pminfo -m mmv.pc.all.test.counter >before
driver_cmd del $gauge >/dev/null
late=$(driver_cmd add test/late)
on 0 adjust $late 11
check "pcp a counter was added: its metric appears" become percpu.test.late "11 0"
check "pcp a counter was deleted: its metric disappears" absent all.test.gauge
check "pcp set of counters changed: another metric keeps number and value" sh -c 'pminfo -m mmv.pc.all.test.counter | cmp - before'
again=$(desc 1 0 0 1 "" test/gauge)
on 1 adjust $again 3
check "pcp a counter was added again: its metric begins at 0" become percpu.test.gauge "0 3"

# A counter that changes all the time is compared with two reads around it. There are more
# counters than a cluster of metrics holds.
load_providers
i=0
while [ $i -lt 1000 ]; do
	echo "add many/n$i"
	i=$((i + 1))
done | while read -r line; do printf '%s' "$line" >/proc/test_driver; done
total() { pfc read --csv "$1" | tail -n 1 | cut -d, -f"$column"; }
column=$(pfc read --csv sched/context_switches | head -n 1 | tr , '\n' | grep -nx value | cut -d: -f1)
between() {
	low=$(total sched/context_switches)
	settle || return 1
	seen=$(values all.sched.context_switches)
	high=$(total sched/context_switches)
	echo "$low $seen $high"
	[ "$low" -gt 0 ] && [ "$low" -le "$seen" ] && [ "$seen" -le "$high" ]
}
check "pcp a counter of the kernel: the value is between two reads of pfc" between
every() {
	settle || return 1
	pfc list --json | grep -c '"name"' >listed
	pminfo mmv.pc.all | wc -l >shown
	[ "$(cat listed)" -gt 1024 ] && cmp listed shown || { cat listed shown; return 1; }
	present all.many.n999 && are percpu.many.n999 "0 0"
}
check "pcp more than 1,024 counters: each one is a metric" every

# After the exporter is killed, PCP ignores the files that it has left behind.
kill -9 $exporter
wait $exporter 2>/dev/null
check "pcp exporter killed: its metrics disappear" within 60 absent all.test.counter
check "pcp exporter killed: its files are left behind" sh -c 'ls /var/lib/pcp/tmp/mmv/pc.* >/dev/null'
exporter 'test/*'
check "pcp exporter started again: its metrics are back" become percpu.test.counter "40 1002"
kill $exporter
wait $exporter
gone() { absent all.test.counter && ! ls /var/lib/pcp/tmp/mmv/pc.* >/dev/null 2>&1; }
check "pcp exporter ended by SIGTERM: its metrics and files are removed" within 60 gone
[ $failed = 0 ] || sed 's/^/# pmcd: /' pcp/log export.err
kill $pmcd
unload
exit $failed
