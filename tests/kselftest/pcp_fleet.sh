#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2015,SC2016,SC2086,SC2154,SC2317,SC2329,SC3043
# timeout: 1200
# worlds: stock
# guest: debian
#
# Process accounting in Performance Co-Pilot, exported as the unit of tools/fleet does: read live,
# and from an archive that pmlogger records with the files of tools/fleet.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/fleet.sh
. /tests/fleet.sh
# shellcheck source=tests/kselftest/lib/pmcd.sh
. /tests/pmcd.sh

metric=mmv.perfcounters
# of METRIC TASK: prints the value of a task's instance, whose name begins with the task's number.
of() { pminfo -f "$metric.$1" | sed -nE "s/.* or \"0*$2 .*value ([0-9]+)\$/\1/p"; }
start() {
	as_unit perfcounters-mmv.service ",$(id -g pcp)" pfc export --mmv perfcounters --interval 500 --tasks 3 2>export.err &
	exporter=$!
}

plan 20
unload
insmod /modules/perfcounters.ko
insmod /modules/pfc_sched.ko
insmod /modules/test_driver.ko
pace=$(desc 0 1 0 1 "" test/pace)
pace $pace &
pacer=$!
start_pmcd
check "pcp pmcd starts with the agent mmv" within 120 pminfo mmv.control.files
start
check "pcp exporter with the unit's user and capabilities: metrics appear" within 60 present all.test.pace
check "pcp accounting off: no metrics of tasks" sh -c '! pminfo mmv.perfcounters.tasks'
sh -c 'while :; do :; done' &
busy=$!
pfc ppa on >/dev/null
there() { [ -n "$(of tasks.user_time $busy)" ]; }
check "pcp accounting on: a busy task is among the exported ones" within 100 there
check "pcp user time of a task: type, semantics, units, help, instance" shape tasks.user_time \
	"Data Type: 64-bit int" "Semantics: counter" "Units: nanosec" "In user mode" "inst [$busy or \"$(printf %06d $busy) sh\"]"
check "pcp system calls of a task: counter, unit count" shape tasks.syscalls "Semantics: counter" "Units: count"
check "pcp number of accounted tasks: instantaneous, unit count" shape tasks.accounted "Semantics: instant" "Units: count"
check "pcp waiting time of all tasks: counter, nanoseconds" shape tasks.all.waiting_time "Semantics: counter" "Units: nanosec" "all tasks"
bounded() { [ "$(values tasks.user_time | wc -w)" = 3 ] && between 4 "$(values tasks.accounted)" 1000; }
check "pcp --tasks 3: exactly three tasks are exported" bounded
same() {
	local low seen after
	low=$(user_time $busy)
	after=$(date +%s%N)
	within 60 newer "$after" || return 1
	seen=$(of tasks.user_time $busy)
	between "$low" "$seen" "$(user_time $busy)"
}
newer() { [ "$(values control.time)" -gt "$1" ]; }
check "pcp user time of a task: between two reads of pfc ppa" same
check "pcp 4.9 system time of CPUs: counter, an instance for each CPU" shape percpu.ppa.system_time "Semantics: counter" "Units: nanosec" 'inst [0 or "cpu0"]' 'inst [1 or "cpu1"]'

# An archive as fleets keep it, with a sample each second, and with the counter that is paced.
sed 's/every 10 seconds/every 1 second/' $fleet/pmlogger.conf >pmlogger.conf
printf 'log mandatory on every 1 second {\n\t%s\n}\n' $metric.all.test.pace >>pmlogger.conf
v0=$(total test/pace) t0=$(date +%s.%N)
check "pcp pmlogger: records for 20 seconds" pmlogger -c pmlogger.conf -l pmlogger.log -T 20sec archive
v1=$(total test/pace) t1=$(date +%s.%N)
paced="(($v1 - $v0) / ($t1 - $t0))"
exec 3>&1
echo "# an archive of 20 looks: $(cat archive.0 | wc -c) bytes of values, $(cat archive.meta | wc -c) of descriptions"
column() { # N FILE: prints the mean of the numbers in column N
	awk -v n="$1" '$1 !~ /^[a-z]+:/ && $n ~ /^[0-9.]+$/ { s += $n; k++ } END { if (k > 10) print s / k; else print "none of " k }' "$2"
}
replayed() {
	pmval -a archive -t 1sec -w 20 $metric.all.test.pace >live.out
	echo "# rate $(column 2 live.out) by pmval of the archive, counted $(awk "BEGIN { print $paced }") a second" >&3
	near "$(column 2 live.out)" "$paced" 10
}
check "pcp pmval of the archive: the rate is within 10 % of the counted one" replayed
raw() {
	pmval -a archive -r -t 1sec -w 20 $metric.all.test.pace | awk '$1 ~ /^[0-9:.]+$/ && $2 ~ /^[0-9]+$/ { print $2 }' >raw
	between "$v0" "$(head -n 1 raw)" "$(tail -n 1 raw)" && between "$(head -n 1 raw)" "$(tail -n 1 raw)" "$v1" && sort -nc raw
}
check "pcp pmval -r of the archive: values are the counter's and never decrease" raw
reported() {
	pmrep -a archive -t 1 -o csv -F paced.csv $metric.all.test.pace || return 1
	awk -F, '$2 ~ /^[0-9.]+$/ { print "x", $2 }' paced.csv >paced
	near "$(column 2 paced)" "$paced" 10
}
check "pcp pmrep of the archive: the rate is within 10 % of the counted one" reported
cpus() {
	pmrep -c $fleet/pmrep.conf -a archive -t 1 :pfc-cpus >report || return 1
	head -n 5 report
	awk '$2 ~ /^[0-9.]+$/ { print "x", $2 + $3 + $4 + $5 }' report >sums
	echo "# two CPUs: $(column 2 sums) ms a second by pmrep of the archive" >&3
	near "$(column 2 sums)" 2000 5
}
check "pcp 4.9 pmrep :pfc-cpus: the times add up to all time of both CPUs" cpus
tasks() {
	pmrep -c $fleet/pmrep.conf -a archive -t 1 :pfc-tasks >report || return 1
	head -n 8 report
	grep -E "0*$busy sh" report | sed 's/.* sh//' >rows
	grep -q . rows
}
check "pcp pmrep :pfc-tasks: the report has the busy task" tasks
live() {
	pmval -s 4 -t 1sec -w 20 -i "$(printf %06d $busy)" $metric.tasks.user_time >live.out || { cat live.out; return 1; }
	cat live.out
	# The difference of one second may be more than a second: a value is up to a second old.
	tail -n 4 live.out | awk '{ sum += $NF } END { exit !(NR == 4 && sum > 0.8 && sum < 5.1) }'
}
check "pcp pmval live: the CPU share of the busy task is plausible" live
kill $busy
wait $busy 2>/dev/null
left() { ! there && present tasks.user_time; }
check "pcp a task has ended: its instance disappears, others stay" within 100 left
kill $exporter
wait $exporter
gone() { ! present tasks.user_time 2>/dev/null && ! ls /var/lib/pcp/tmp/mmv/perfcounters.* 2>/dev/null; }
check "pcp exporter ended by SIGTERM: its metrics and files are removed" within 60 gone
[ $failed = 0 ] || sed 's/^/# /' pcp/log export.err pmlogger.log
kill $pmcd $pacer
wait 2>/dev/null
pfc ppa off >/dev/null
unload
exit $failed
