#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2015,SC2016,SC2086,SC2317,SC2329,SC3043
# timeout: 600
# worlds: stock
# guest: full
#
# pfc export --openmetrics from the real device, with every provider loaded, read
# by the parser of the Python Prometheus client (openmetrics.py).

n=0 failed=0
check() { # NAME COMMAND...
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >said 2>&1; then
		echo "ok $n $name"
	else
		failed=1
		echo "not ok $n $name"
	fi
	head -n 20 said | cut -c1-300 | sed 's/^/# /'
}
parse() { python3 /tests/openmetrics.py "$@"; }
export_to() { pfc export --openmetrics -o "$@"; }
json_to() { pfc read --json --per-cpu -o "$@"; }
puppet() { # COMMAND...: prints its result
	exec 3<>/proc/puppet
	printf '%s' "$*" >&3
	read -r reply <&3
	exec 3<&-
	echo "$reply"
}
on() { # CPU COMMAND...
	local cpu=$1
	shift
	taskset -c "$cpu" sh -c 'printf "%s" "$0" >/proc/puppet' "$*"
}
# sizeof(struct perf_counter_spec)
size=32
desc() { # KIND UNIT EXPONENT SLOTS HELP NAME: prints its number
	puppet desc $size $1 $2 $3 $4 0 ${#5} "$5$6"
}

echo "TAP version 13"
echo "1..11"

for m in $(ls /sys/module/perfcounters/holders 2>/dev/null) perfcounters; do
	busybox rmmod "$m" 2>/dev/null
done
while read -r ko; do insmod "/modules/$ko" 2>/dev/null; done </modules/order
insmod /modules/puppet.ko
counter=$(desc 0 1 0 1 "what it counts" test/counter)
gauge=$(desc 1 0 0 1 "" test/gauge)
peak=$(desc 2 3 -9 1 "the longest" test/peak)
time=$(desc 3 3 -6 1 "" test/time)
histogram=$(desc 4 2 0 4 "" test/sizes)
bytes=$(desc 0 2 3 1 "a \"quoted\\" "test/odd name/7")
on 0 adjust $counter 40
on 1 adjust $counter 2
on 0 adjust $gauge 5
on 1 adjust $gauge -7
on 0 peak $peak 123
on 1 peak $peak 77
on 1 adjust $time 1500
on 0 hist $histogram 4 0
on 1 hist $histogram 4 1000
on 0 adjust $bytes 3

listed() { sed 1d /dev/perfcounters_names | cut -f3 | sort -u; }
# Everything there is. What moves meanwhile is only looked at for growth.
whole() {
	listed >listed.before
	json_to before && export_to a.prom && json_to after || return 1
	listed >listed.after
	export_to b.prom && parse a.prom b.prom --json before after >growth
	local rc=$?
	cat growth
	return $rc
}
check "openmetrics every provider's counters are read by the parser" whole
check "openmetrics counters of the kernel have grown" grep -qE '[1-9][0-9]* samples have grown' growth
# Each name in the device's own list, before and after, is in the text. Interrupts
# add names when they first happen.
names() {
	comm -12 listed.before listed.after >listed
	grep -o 'name="[^"]*"' a.prom | sed 's/^name="//; s/"$//' | sort -u >shown
	echo "$(wc -l <listed) names, $(wc -l <shown) shown"
	grep -vxF -f shown listed >missing
	head -n 5 missing
	[ "$(wc -l <listed)" -gt 100 ] && [ ! -s missing ]
}
check "openmetrics every name of the device is there" names

# Nothing moves these but this script: every value, each CPU's.
exact() { json_to json 'test/*' && export_to t.prom 'test/*' && parse t.prom --json json; }
check "openmetrics values are exact, each CPU's" exact
# Not only what pfc says of itself: what was counted above.
known() {
	grep -qE '^perfcounters_test_counter_total\{(.*,)?cpu="0".*\} 40$' t.prom &&
		grep -qE '^perfcounters_test_counter_total\{(.*,)?cpu="1".*\} 2$' t.prom &&
		grep -qE '^perfcounters_test_time_seconds_total\{(.*,)?cpu="1".*\} 0\.0015$' t.prom ||
		{ grep _total t.prom; return 1; }
}
check "openmetrics values are what was counted" known
sums() { export_to s.prom --sum 'test/*' && parse s.prom --json json; }
check "openmetrics --sum has the totals" sums

# A counter deleted and added anew begins at zero, and says since when.
again() {
	puppet del $counter >deleted
	counter=$(desc 0 1 0 1 "what it counts" test/counter)
	on 0 adjust $counter 1
	json_to json 'test/*' && export_to u.prom 'test/*' && parse t.prom u.prom && parse u.prom --json json || return 1
	grep -h test_counter_created t.prom u.prom | sort -u | wc -l | grep -qx 4
}
check "openmetrics a new life has a new birth" again

# A file that is replaced over and over is whole whenever it is read.
pfc export --openmetrics -o live.prom --interval 100 2>live.err &
live=$!
replaced() {
	local round=0
	while [ ! -e live.prom ] && kill -0 $live; do sleep 0.2; done
	while [ $round -lt 3 ]; do
		cp live.prom "live$round" && parse "live$round" || return 1
		round=$((round + 1))
	done
	! cmp -s live0 live2 || { echo "it did not change"; return 1; }
	parse live0 live2
}
check "openmetrics a file kept up to date is whole at any time" replaced
kill $live
wait $live

pfc export --openmetrics --listen 127.0.0.1:0 >url &
server=$!
served() {
	local left=300
	until [ -s url ]; do
		left=$((left - 1))
		[ $left -gt 0 ] || return 1
		sleep 0.2
	done
	parse "$(cat url)" "$(cat url)"
}
check "openmetrics over loopback HTTP is read by the parser" served
ended() { kill -TERM $server && wait $server; }
check "openmetrics the server ends well when told to" ended

# The parser's script sees a value that is wrong by one.
wrong() {
	sed -E 's/^(perfcounters_test_counter_total\{.*cpu="0".*\}) 1$/\1 2/' u.prom >bad
	! cmp -s u.prom bad || return 1
	! parse bad --json json >bad.out
	cat bad.out
	grep -q '^fault: test/counter of CPU 0' bad.out
}
check "openmetrics a value that is wrong by one is a fault" wrong
for m in $(ls /sys/module/perfcounters/holders) perfcounters; do busybox rmmod "$m"; done
exit $failed
