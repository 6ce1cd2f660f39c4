#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2015,SC2016,SC2086,SC2154,SC2317,SC2329,SC3043
# timeout: 1200
# worlds: stock
# guest: debian
#
# A real Prometheus scrapes `pfc export --openmetrics --listen`, which runs with the user and the
# capabilities of its systemd unit. Prometheus uses the configuration, the alerts and the dashboard
# of tools/fleet.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/fleet.sh
. /tests/fleet.sh

http_query() { curl -sSfG --data-urlencode "query=$1" http://127.0.0.1:9090/api/v1/query; }
# Prints the values of a PromQL expression, each with its labels. Fails if the expression has no
# value.
print_values() { http_query "$1" | jq -er '.data.result[] | "\(.value[1]) \(.metric | tojson)"'; }
first_value() { print_values "$1" | awk 'NR == 1 { print $1 }'; }
value_is() { [ "$(first_value "$1")" = "$2" ] || { echo "$1 is $(first_value "$1"), not $2"; return 1; }; }
has_no_values() { http_query "$1" >asked && [ "$(jq '.data.result | length' asked)" = 0 ] || { cat asked; return 1; }; }
# Waits until Prometheus has scraped the metric once after this call.
wait_scraped() {
	local now
	now=$(date +%s.%N)
	within 60 is_later "$1" "$now"
}
is_later() { awk "BEGIN { exit !($(first_value "timestamp($1)") + 0 > $2) }"; }
unit=perfcounters-openmetrics.service
# Counters of the kernel that pfc exports: each word of $kernel selects the counters whose names
# contain the word. Most system calls are left out, because the emulator takes most of a second to
# export them.
kernel="ppa sched irq softirq block net mm syscalls/read syscalls/write"
start_exporter() {
	as_unit $unit "" pfc export --openmetrics --listen 127.0.0.1:9464 --tasks 5 test $kernel >url 2>export.err &
	exporter=$!
}

plan 29
unload_modules
modprobe null_blk
load_providers
insmod /modules/test_driver.ko
add_one_of_each_kind
pace=$(add_desc 0 1 0 1 "" test/pace)
pfc ppa on >/dev/null
# Runs a load that produces data for each panel of the dashboard.
(while :; do
	dd if=/dev/nullb0 of=/dev/null bs=16k count=8 iflag=direct
	dd if=/dev/zero of=/dev/nullb0 bs=4k count=2 oflag=direct
	busybox ping -c 1 -W 1 127.0.0.1
	sleep 1
done) >/dev/null 2>&1 &
work=$!
add_paced $pace &
pacer=$!

mkdir -p fleet
cp $fleet/*.yml fleet
sed 's/^  scrape_interval: 15s/  scrape_interval: 1s\n  evaluation_interval: 2s/' $fleet/prometheus.yml >fleet/prometheus.yml
start_exporter
check "prometheus exporter with the unit's user and capabilities: starts" within 60 test -s url
check "prometheus --tasks without CAP_PERFMON: status 2, the error names it" sh -c '. /tests/fleet.sh
	sed "s/^AmbientCapabilities=.*/AmbientCapabilities=/" $fleet/perfcounters-openmetrics.service >no.service
	fleet=$PWD; (as_unit no.service "" pfc export --openmetrics --tasks 5) >out 2>err
	rc=$?; cat err; [ $rc = 2 ] && ! [ -s out ] && grep -q CAP_PERFMON err'
prometheus --config.file=fleet/prometheus.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:9090 \
	--log.level=warn 2>prometheus.log &
prometheus=$!
# Prometheus starts while promtool checks the configuration.
check "prometheus promtool check config: accepts the configuration with the alerts" promtool check config fleet/prometheus.yml
check "prometheus promtool check rules: accepts the alerts" promtool check rules fleet/alerts.yml
check "prometheus promtool test rules: each alert fires only when it should" promtool test rules fleet/alerts.test.yml
check "prometheus the scrape target is up" within 200 value_is 'up{job="perfcounters"}' 1

wait_scraped perfcounters_test_counter_total
# Begins the time in which test_rate() measures the rate of test/pace. The checks in between run in
# this time.
begin_rate() { v0=$(instance_total test/pace) t0=$(date +%s.%N); }
begin_rate
pfc export --openmetrics 'test/counter' 'test/gauge' 'test/peak' 'test/time' 'test/sizes' 'test/odd*' >test.prom
check "prometheus test instances: values of each CPU are those of pfc export" within 30 python3 /tests/prometheus.py same test.prom
test_known_values() { value_is 'perfcounters_test_counter_total{cpu="0"}' 40 && value_is 'perfcounters_test_counter_total{cpu="1"}' 2 && value_is 'perfcounters_test_time_seconds_total{cpu="1"}' 0.0015; }
check "prometheus test instances: values are those that were counted" test_known_values
pfc export --openmetrics --tasks 1 $kernel >all.prom
# Only the OpenMetrics format has units, so the unit of a metric shows that Prometheus scraped this
# format.
check "prometheus metadata: types, units and help texts are those of pfc export" python3 /tests/prometheus.py metadata all.prom
test_between_reads() {
	local low seen
	low=$(instance_total sched/context_switches)
	wait_scraped perfcounters_sched_context_switches_total || return 1
	seen=$(first_value 'sum(perfcounters_sched_context_switches_total)')
	is_between "$low" "$seen" "$(instance_total sched/context_switches)"
}
check "prometheus a counter of the kernel: the value is between two reads of pfc" test_between_reads

# Compares the rate that Prometheus computes for a counter with the rate that pfc shows over the
# same time of 20 seconds or more.
test_rate() {
	local v1 t1 wanted is
	while awk "BEGIN { exit !($(date +%s.%N) - $t0 < 20) }"; do sleep 1; done
	v1=$(instance_total test/pace) t1=$(date +%s.%N)
	wait_scraped perfcounters_test_pace_total || return 1
	wanted="(($v1 - $v0) / ($t1 - $t0))"
	is=$(first_value "sum(rate(perfcounters_test_pace_total[$(awk "BEGIN { printf \"%d\", $t1 - $t0 + .5 }")s] @ $t1))")
	echo "# rate $is, counted $(awk "BEGIN { print $wanted }") a second" >&3
	is_near "$is" "$wanted" 8
}
exec 3>&1
# On a busy host a scrape may be late, so the test is repeated up to three times.
retry_rate() {
	for _ in 1 2 3; do
		test_rate && return 0
		begin_rate
	done
	return 1
}
check "prometheus rate of a counter: within 8 % of the counted one" retry_rate
# The times of the CPUs must add up to the elapsed time.
check "prometheus 4.9 user, system, interrupt and idle time add up to the CPUs' time" python3 /tests/prometheus.py times "$(nproc)"

sh -c 'while :; do :; done' &
busy=$!
# Succeeds when the task has had 2 s of user time, which is more than any of its other times.
has_worked() { [ "$(user_time $busy)" -gt 2000000000 ]; }
test_task_time() {
	local low seen
	within 60 has_worked || return 1
	low=$(user_time $busy)
	wait_scraped "pfc_task_user_time_seconds_total{pid=\"$busy\"}" || return 1
	seen=$(first_value "pfc_task_user_time_seconds_total{pid=\"$busy\",comm=\"sh\"} * 1e9")
	is_between "$low" "$seen" "$(user_time $busy)"
}
check "prometheus user time of a busy task: between two reads of pfc ppa" test_task_time
busiest_is_first() { print_values 'topk(1, rate(pfc_task_user_time_seconds_total[10s]))' | grep -q "\"pid\":\"$busy\""; }
check "prometheus topk of the tasks: the busy task is first" within 60 busiest_is_first
kill $busy
wait $busy 2>/dev/null
check "prometheus a task has ended: its series disappears" within 90 has_no_values "pfc_task_user_time_seconds_total{pid=\"$busy\"}"
test_nr_tasks() {
	local n
	n=$(first_value 'max_over_time(count(pfc_task_syscalls_total)[60s:1s])')
	[ "$n" = 5 ] && is_between 6 "$(first_value pfc_tasks)" 1000 || { echo "$n tasks of $(first_value pfc_tasks)"; return 1; }
}
check "prometheus --tasks 5: at most five tasks are exported" test_nr_tasks
test_waiting_time() { is_between 0.0001 "$(first_value 'rate(pfc_tasks_waiting_time_seconds_total[30s])')" 100; }
check "prometheus waiting time of all tasks: the rate is plausible" test_waiting_time

check "prometheus dashboard: each expression returns data" within 60 python3 /tests/prometheus.py dashboard $fleet/dashboard.json
check "prometheus alerts: each one is evaluated without an error" within 60 python3 /tests/prometheus.py rules
test_cost() {
	echo "# a scrape: $(first_value scrape_samples_scraped) samples, $(first_value scrape_samples_post_metric_relabeling) kept, $(first_value 'avg_over_time(scrape_duration_seconds[30s])') s" >&3
	size() { echo "# everything $*: $(pfc export --openmetrics "$@" | grep -vc '^#') samples, $(pfc export --openmetrics "$@" | wc -c) bytes"; }
	size >&3
	size --sum >&3
	has_no_values '{__name__=~"perfcounters_.*_created"}'
}
check "prometheus creation times: dropped by the configuration" test_cost
# promtool supports only the older text format, in which the HELP line of a counter has another
# name, so promtool misses the help texts. promtool must not find any other fault.
test_lint() {
	promtool check metrics <all.prom >lint 2>&1
	grep -v ' no help text$' lint >others
	cat others
	[ -s lint ] && ! [ -s others ]
}
check "prometheus promtool check metrics: finds nothing but help texts, which it cannot see" test_lint

# Deletes a counter and adds it again.
driver_cmd del $counter >deleted
check "prometheus a counter was deleted: its series disappears" within 60 has_no_values perfcounters_test_counter_total
counter=$(add_desc 0 1 0 1 "what it counts" test/counter)
on_cpu 0 adjust $counter 7
check "prometheus a counter was added again: it has the new value" within 60 value_is 'perfcounters_test_counter_total{cpu="0"}' 7
check "prometheus a counter was added again: resets() is 1" value_is 'resets(perfcounters_test_counter_total{cpu="0"}[10m])' 1

# Kills pfc export and starts it again.
wakeups=$(first_value pfc_tasks_wakeups_total)
kill_and_wait $exporter
check "prometheus exporter killed: the scrape target is down" within 60 value_is 'up{job="perfcounters"}' 0
check "prometheus exporter killed: its series disappear" within 60 has_no_values perfcounters_test_counter_total
before=$(instance_total test/pace)
restarted_at=$(date +%s)
start_exporter
test_restarted() {
	within 100 value_is 'up{job="perfcounters"}' 1 && value_is 'perfcounters_test_counter_total{cpu="0"}' 7 &&
		is_between "$before" "$(first_value 'sum(perfcounters_test_pace_total)')" "$(instance_total test/pace)"
}
check "prometheus exporter started again: the target is up, values continue" test_restarted
# The sums must not begin with the values that tasks got before the exporter started again: rate()
# and increase() would show these values as new. Prometheus may miss the first scrape, in which the
# sums are 0, so small values are allowed.
test_sums_restarted() {
	local first
	first=$(first_value "min_over_time(pfc_tasks_wakeups_total[$(($(date +%s) - restarted_at + 1))s])")
	is_between 0 "$first" "$wakeups / 10"
}
check "prometheus exporter started again: the sums over all tasks begin near 0" test_sums_restarted
kill $exporter
test_ended() { wait $exporter; }
check "prometheus exporter: SIGTERM ends it with status 0" test_ended
[ $failed = 0 ] || sed 's/^/# /' prometheus.log export.err
kill $prometheus $work $pacer
wait 2>/dev/null
pfc ppa off >/dev/null
unload_modules
exit $failed
