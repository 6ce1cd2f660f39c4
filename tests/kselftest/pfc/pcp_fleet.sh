#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2015,SC2016,SC2086,SC2154,SC2317,SC2329,SC3043
# timeout: 1200
# worlds: stock
# guest: debian
#
# Tests process accounting in Performance Co-Pilot. pfc export runs with the user and the
# capabilities of the systemd unit in tools/fleet. Clients read the metrics live, and from an
# archive. pmlogger records the archive with a changed copy of the configuration
# tools/fleet/pmlogger.conf.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/fleet.sh
. /tests/fleet.sh
# shellcheck source=tests/kselftest/lib/pmcd.sh
. /tests/pmcd.sh

metric=mmv.perfcounters
# task_value METRIC TASK: prints the value of the instance whose name begins with the number of the
# task.
task_value() { pminfo -f "$metric.$1" | sed -nE "s/.* or \"0*$2 .*value ([0-9]+)\$/\1/p"; }
start_exporter() {
	as_unit perfcounters-mmv.service ",$(id -g pcp)" pfc export --mmv perfcounters --interval 500 --tasks 3 2>export.err &
	exporter=$!
}

plan 21
unload_modules
insmod_each perfcounters ppa pfc_sched test_driver
pace=$(add_desc 0 1 0 1 "" test/pace)
add_paced $pace &
pacer=$!
start_pmcd
check "pcp pmcd starts with the agent mmv" within 120 pminfo mmv.control.files
start_exporter
check "pcp exporter with the unit's user and capabilities: metrics appear" within 60 is_present all.test.pace
check "pcp accounting off: no metrics of tasks" sh -c '! pminfo mmv.perfcounters.tasks'
sh -c 'while :; do :; done' &
busy=$!
pfc ppa on >/dev/null
task_is_exported() { [ -n "$(task_value tasks.user_time $busy)" ]; }
check "pcp accounting on: a busy task is among the exported ones" within 100 task_is_exported
check "pcp user time of a task: type, semantics, units, help, instance" has_description tasks.user_time \
	"Data Type: 64-bit int" "Semantics: counter" "Units: nanosec" "Time in user mode" "inst [$busy or \"$(printf %06d $busy) sh\"]"
check "pcp system calls of a task: counter, unit count" has_description tasks.syscalls "Semantics: counter" "Units: count"
check "pcp number of accounted tasks: instantaneous, unit count" has_description tasks.accounted "Semantics: instant" "Units: count"
check "pcp number of lost tasks: counter, unit count" has_description tasks.lost "Semantics: counter" "Units: count" "dropped before"
check "pcp waiting time of all tasks: counter, nanoseconds" has_description tasks.all.waiting_time "Semantics: counter" "Units: nanosec" "all tasks"
test_nr_tasks() { [ "$(metric_values tasks.user_time | wc -w)" = 3 ] && is_between 4 "$(metric_values tasks.accounted)" 1000; }
check "pcp --tasks 3: exactly three tasks are exported" test_nr_tasks
test_user_time() {
	local low seen after
	low=$(user_time $busy)
	after=$(date +%s%N)
	within 60 is_written_after "$after" || return 1
	seen=$(task_value tasks.user_time $busy)
	is_between "$low" "$seen" "$(user_time $busy)"
}
is_written_after() { [ "$(metric_values control.time)" -gt "$1" ]; }
check "pcp user time of a task: between two reads of pfc ppa" test_user_time
check "pcp 4.9 system time of CPUs: counter, an instance for each CPU" has_description percpu.ppa.system_time "Semantics: counter" "Units: nanosec" 'inst [0 or "cpu0"]' 'inst [1 or "cpu1"]'

# Records an archive with the configuration of tools/fleet, but with a sample each second and with
# the counter test/pace, which is incremented at a known rate.
sed 's/every 10 seconds/every 1 second/' $fleet/pmlogger.conf >pmlogger.conf
printf 'log mandatory on every 1 second {\n\t%s\n}\n' $metric.all.test.pace >>pmlogger.conf
v0=$(instance_total test/pace) t0=$(date +%s.%N)
check "pcp pmlogger: records for 15 seconds" pmlogger -c pmlogger.conf -l pmlogger.log -T 15sec archive
v1=$(instance_total test/pace) t1=$(date +%s.%N)
paced="(($v1 - $v0) / ($t1 - $t0))"
exec 3>&1
echo "# an archive of 15 looks: $(cat archive.0 | wc -c) bytes of values, $(cat archive.meta | wc -c) of descriptions"
mean_of_column() { # N FILE: prints the mean of the numbers in column N
	awk -v n="$1" '$1 !~ /^[a-z]+:/ && $n ~ /^[0-9.]+$/ { s += $n; k++ } END { if (k > 6) print s / k; else print "none of " k }' "$2"
}
test_archive_rate() {
	pmval -a archive -t 1sec -w 20 $metric.all.test.pace >live.out
	echo "# rate $(mean_of_column 2 live.out) by pmval of the archive, counted $(awk "BEGIN { print $paced }") a second" >&3
	is_near "$(mean_of_column 2 live.out)" "$paced" 10
}
check "pcp pmval of the archive: the rate is within 10 % of the counted one" test_archive_rate
test_archive_raw() {
	pmval -a archive -r -t 1sec -w 20 $metric.all.test.pace | awk '$1 ~ /^[0-9:.]+$/ && $2 ~ /^[0-9]+$/ { print $2 }' >raw
	is_between "$v0" "$(head -n 1 raw)" "$(tail -n 1 raw)" && is_between "$(head -n 1 raw)" "$(tail -n 1 raw)" "$v1" && sort -nc raw
}
check "pcp pmval -r of the archive: values are the counter's and never decrease" test_archive_raw
test_pmrep_rate() {
	pmrep -a archive -t 1 -o csv -F paced.csv $metric.all.test.pace || return 1
	awk -F, '$2 ~ /^[0-9.]+$/ { print "x", $2 }' paced.csv >paced
	is_near "$(mean_of_column 2 paced)" "$paced" 10
}
check "pcp pmrep of the archive: the rate is within 10 % of the counted one" test_pmrep_rate
test_pmrep_cpus() {
	pmrep -c $fleet/pmrep.conf -a archive -t 1 :pfc-cpus >report || return 1
	head -n 5 report
	awk '$2 ~ /^[0-9.]+$/ { print "x", $2 + $3 + $4 + $5 }' report >sums
	echo "# two CPUs: $(mean_of_column 2 sums) ms a second by pmrep of the archive" >&3
	is_near "$(mean_of_column 2 sums)" 2000 5
}
check "pcp 4.9 pmrep :pfc-cpus: the times add up to all time of both CPUs" test_pmrep_cpus
test_pmrep_tasks() {
	pmrep -c $fleet/pmrep.conf -a archive -t 1 :pfc-tasks >report || return 1
	head -n 8 report
	grep -E "0*$busy sh" report | sed 's/.* sh//' >rows
	grep -q . rows
}
check "pcp pmrep :pfc-tasks: the report has the busy task" test_pmrep_tasks
test_pmval_live() {
	pmval -s 4 -t 1sec -w 20 -i "$(printf %06d $busy)" $metric.tasks.user_time >live.out || { cat live.out; return 1; }
	cat live.out
	# pmval prints values that are up to a second old, so two values may differ by more than a
	# second of CPU time.
	tail -n 4 live.out | awk '{ sum += $NF } END { exit !(NR == 4 && sum > 0.8 && sum < 5.1) }'
}
check "pcp pmval live: the CPU share of the busy task is plausible" test_pmval_live
kill $busy
wait $busy 2>/dev/null
only_task_left() { ! task_is_exported && is_present tasks.user_time; }
check "pcp a task has ended: its instance disappears, others stay" within 100 only_task_left
kill $exporter
wait $exporter
metrics_are_gone() { ! is_present tasks.user_time 2>/dev/null && ! ls /var/lib/pcp/tmp/mmv/perfcounters.* 2>/dev/null; }
check "pcp exporter ended by SIGTERM: its metrics and files are removed" within 60 metrics_are_gone
[ $failed = 0 ] || sed 's/^/# /' pcp/log export.err pmlogger.log
kill $pmcd $pacer
wait 2>/dev/null
pfc ppa off >/dev/null
unload_modules
exit $failed
