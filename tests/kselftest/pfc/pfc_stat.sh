#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: pmu-skylake pmu-amd2
# gate: pmu-skylake
# timeout: 300
# shellcheck disable=SC2016,SC2030,SC2031,SC2086,SC2317,SC2329,SC3043
#
# Tests pfc stat, pmu and doctor: names of events, the tasks and CPUs that are counted, output, exit
# statuses, and a PMU that perf or the NMI watchdog uses. pfc_follow.c tests how pfc follows a
# command.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

case $PMU in
amd*) description=pfm_amd name=amd-v2 table=amd64_fam17h known=RETIRED_INSTRUCTIONS counters=6 nr_tests=42 ;;
*) description=pfm_intel name=intel-arch table=skl known=INST_RETIRED:ANY_P counters=4 nr_tests=43 ;;
esac
program=/tests/pfc_follow
# Milliseconds for which a process is counted. Even in a tenth of $nap milliseconds, a program
# executes more instructions than the tests require.
nap=100
fixed_addresses="linux64 -R"

# Prints the values of an event in a CSV file, one value a line.
event_values() { # FILE EVENT
	awk -F, -v e="$2" '{ for (i = 3; i <= NF; i++) if ($i == e) { print $(i - 2); next } }' "$1"
}
is_number() { case $1 in '' | *[!0-9]*) echo "'$1' is no number"; return 1 ;; esac; }
# A loop of 3,000,000 rounds executes 4,000,000 more instructions than a loop of 1,000,000 rounds.
# Addresses are fixed, because the number of instructions in string functions depends on addresses.
test_exact() { # EVENT
	$fixed_addresses pfc stat -x, -o a -e "$1" $program spin 1000000 && $fixed_addresses pfc stat -x, -o b -e "$1" $program spin 3000000 || return 1
	head -n 1 a b
	[ $(($(event_values b "$1") - $(event_values a "$1"))) = 4000000 ]
}

# If pfc cannot program an event completely, pfc must report the event as not supported, and not
# report the value 0.
test_all_counted() {
	case $PMU in
	skylake) more=OFFCORE_RESPONSE_0:DMND_DATA_RD:ANY_RESPONSE,MEM_TRANS_RETIRED:LOAD_LATENCY,FRONTEND_RETIRED:DSB_MISS,r1b7,r1bb:u,r5301cd,r1c6, many=7 ;;
	*) more=r803, many=1 ;;
	esac
	pfc stat -v -x, -o all -e ${more}minor-faults,LLC-loads,INSTRUCTIONS,CYCLES,PAGE-FAULTS,perf::instructions $program spin 1000000 2>words || return 1
	cat all words
	grep -q "'minor-faults': it is an event of perf" words && [ "$(grep -cE "it needs (a second register, [A-Z0-9_]+|two counters merged into one), which is not programmed" words)" = $many ] &&
		! grep -q '^0,' all && [ "$(event_values all INSTRUCTIONS)" -gt 2000000 ] && [ "$(event_values all perf::instructions)" -gt 2000000 ]
}
test_loads_module() {
	pfc pmu >all 2>words
	rc=$?
	cat words
	[ $rc = 0 ] && grep -qx "pfc: loaded perfmon.ko, the module of /dev/perfmon" words && [ -c /dev/perfmon ]
}
test_no_output() {
	pfc doctor >found
	[ $? = 1 ] && cat found && grep -q "modprobe perfcounters" found
}
test_no_pmu() {
	pfc stat -o all -e cycles,instructions true 2>words
	[ $? = 0 ] && cat all words && [ "$(grep -c '<not supported>' all)" = 2 ] && grep -q "pfc doctor" words
}
# Succeeds if two counts differ by at most one: the emulator rounds a fraction of an event when a
# counter starts.
is_within_one() { [ $(($1 - $2)) -ge -1 ] && [ $(($1 - $2)) -le 1 ]; }
test_one_set() {
	pfc stat -x, -o all -e instructions:u,branches:u,branch-misses:u,cycles:u $program spin 1000000 || return 1
	cat all
	i=$(event_values all instructions:u)
	[ "$i" -gt 2000000 ] && is_within_one "$(event_values all branches:u)" $((i / 8)) && is_within_one "$(event_values all branch-misses:u)" $((i / 128)) && is_within_one "$(event_values all cycles:u)" $((i * 5 / 4))
}
test_fixed() {
	pfc stat -x, -o all -e branches:u,branch-misses:u,cache-misses:u,cache-references:u,instructions:u,cycles:u $program spin 1000000 || return 1
	cat all
	i=$(event_values all instructions:u)
	is_number "$i" && is_within_one "$(event_values all cycles:u)" $((i * 5 / 4)) && is_within_one "$(event_values all branches:u)" $((i / 8))
}
# Compares the events 0x0100 and 0x0200, which only fixed counters count, with the same events of
# general counters.
test_fixed_codes() {
	pfc stat -x, -o all -e instructions:u,cycles:u,r100:u,r200:u $program spin 1000000 || return 1
	cat all
	i=$(event_values all instructions:u)
	[ "$i" -gt 2000000 ] && is_within_one "$(event_values all r100:u)" "$i" && is_within_one "$(event_values all r200:u)" "$(event_values all cycles:u)"
}
test_too_many() {
	events=branches:u many=0
	while [ $many -lt $counters ]; do events=$events,branches:u many=$((many + 1)); done
	# The program runs long enough for pfc to load each event set several times.
	pfc stat -x, -o all -e $events /tests/pfc_follow phases 1 100 2>words || return 1
	cat all words
	[ "$(grep -c ',branches:u,' all)" = $((counters + 1)) ] && ! grep -q ',branches:u,.*,100.00,' all
}
test_modes() {
	pfc stat -x, -o all -e instructions:u,instructions:k,instructions true || return 1
	cat all
	[ $(($(event_values all instructions:u) + $(event_values all instructions:k))) = "$(event_values all instructions)" ]
}
test_unknown() {
	pfc stat -x, -o all -e no_such_event,instructions:u true 2>words || return 1
	cat all words
	grep -q '^<not supported>,,no_such_event,0,' all && is_number "$(event_values all instructions:u)" && grep -qx "pfc: 1 event cannot be counted on this machine; for the reasons use -v" words || return 1
	pfc stat -v -x, -o all -e no_such_event,instructions:u true 2>words || return 1
	cat words
	grep -q "^pfc: 'no_such_event': no such event on this processor; pfc pmu lists" words
}
test_text() {
	pfc stat -e cycles:u,instructions:u true >output 2>errors || return 1
	cat errors
	[ ! -s output ] && grep -q "Performance counter stats for 'true'" errors && grep -qE '^ +[0-9,]+ +instructions:u +# +0\.800 insn per cycle' errors && grep -q "seconds time elapsed" errors
}
test_json() {
	pfc stat --json -o all -e instructions:u,no_such_event true 2>/dev/null || return 1
	cat all
	grep -qE '^\{.*"counter-value":"[0-9]+\.000000".*"event":"instructions:u".*\}$' all && grep -q '"counter-value":"<not supported>"' all && [ "$(wc -l <all)" = 2 ]
}
test_intervals() {
	rm -f all
	# The command runs until three intervals have been written, which takes longer on a busy
	# host.
	pfc stat -I 50 -x, -o all -e instructions:u sh -c 'for i in $(seq 600); do sleep 0.1; [ "$(wc -l <all)" -lt 3 ] || exit 0; done' || return 1
	cat all
	lines=$(wc -l <all)
	[ "$lines" -ge 3 ] && [ "$(cut -d, -f1 all | sort -n | uniq | wc -l)" = "$lines" ]
}
# Eight processes fork all the time. pfc must print intervals, and obey SIGTERM.
test_forks() {
	rm -f all stop
	pfc stat -I 100 -x, -o all -e instructions:u sh -c 'for i in 1 2 3 4 5 6 7 8; do while [ ! -e stop ]; do (:); done & done; wait' &
	stat=$!
	within 60 sh -c '[ "$(wc -l <all)" -ge 5 ]'
	rc=$?
	kill -TERM $stat
	within 60 has_ended $stat || { rc=1; kill -9 $stat; }
	wait $stat
	status=$?
	touch stop
	cat all
	[ $rc = 0 ] && [ $status = 143 ]
}
test_sum_of_intervals() {
	# On a busy host the counted program may exit before pfc has written two intervals. If the
	# program exits too early, the loop repeats the test with more rounds.
	for rounds in 10000000 100000000 300000000; do
		$fixed_addresses pfc stat -I 10 -x, -o a -e instructions:u $program spin $rounds && $fixed_addresses pfc stat -x, -o b -e instructions:u $program spin $rounds || return 1
		[ "$(wc -l <a)" -lt 2 ] || break
	done
	sum=$(awk -F, '{ n += $2 } END { print n }' a)
	echo "$sum of $(wc -l <a) intervals, $(event_values b instructions:u)"
	[ "$(wc -l <a)" -ge 2 ] && [ "$sum" = "$(event_values b instructions:u)" ]
}
test_repeated() {
	$fixed_addresses pfc stat -r 3 -x, -o a -e instructions:u $program spin 1000000 && $fixed_addresses pfc stat -r 3 -o b -e instructions:u $program spin 1000000 || return 1
	cat a b
	grep -qE '^[0-9]+,,instructions:u,0\.00%,' a && grep -q "(3 runs)" b && grep -qE '\( \+- +0\.00% \)' b
}
# The first run leaves a process behind that starts busy children all the time. The second run only
# sleeps.
test_repeated_with_leftover() {
	rm -f leftover
	cat >twice.sh <<-END
	if [ ! -e leftover ]; then
		(while :; do $program spin 1000000; done) &
		echo \$! >leftover
	fi
	sleep 1
	END
	pfc stat -r 2 -x, -o a -e instructions:u sh twice.sh
	rc=$?
	kill "$(cat leftover)"
	cat a
	# The standard error of one large and one small count is nearly 100 %.
	[ $rc = 0 ] && [ "$(awk -F, '/instructions/ { print int($4) }' a)" -gt 70 ]
}
test_process() {
	run_victim $program threads 100000000000 2
	within 60 test -e /proc/$victim/task && within 60 sh -c "[ \$(ls /proc/$victim/task | wc -l) = 3 ]"
	# The first thread of the process only waits for the other threads. The other threads are
	# busy and have greater thread IDs.
	# shellcheck disable=SC2012
	tid=$(ls "/proc/$victim/task" | sort -n | tail -n 1)
	pfc stat -x, -o all -e instructions:u -p $victim -- sh -c "$run_for" "$victim/task/$tid" $nap
	rc=$?
	# A thread that is given twice is counted once.
	pfc stat -x, -o one -e instructions:u -t "$tid,$tid" -- sh -c "$run_for" "$victim/task/$tid" $nap || rc=1
	kill_and_wait $victim
	cat all one
	[ $rc = 0 ] && [ "$(event_values all instructions:u)" -gt 1000000 ] && [ "$(event_values one instructions:u)" -gt 100000 ]
}
test_until_interrupted() {
	run_victim sleep 100
	pfc stat -x, -o all -e instructions:u -p $victim &
	stat=$!
	wait_started $stat
	interrupt $stat
	rc=$?
	kill $victim
	cat all
	[ $rc = 0 ] && is_number "$(event_values all instructions:u)"
}
test_until_ended() { # -p or -t
	rm -f all
	run_victim $program spin 1000000000000
	pfc stat -x, -I 50 -o all -e instructions:u $1 $victim &
	stat=$!
	within 60 grep -q instructions all
	ends_with $victim $stat
	rc=$?
	cat all
	[ $rc = 0 ]
}
test_cpus() {
	taskset -c 0 pfc stat -x, -o a -C 1 -e instructions:u taskset -c 1 $program spin 1000000 || return 1
	taskset -c 0 pfc stat -x, -o b -C 1 -e instructions:u taskset -c 1 $program spin 3000000 || return 1
	taskset -c 0 pfc stat -x, -o c -C 0 -e instructions:u taskset -c 1 $program spin 3000000 || return 1
	cat a b c
	grown=$(($(event_values b instructions:u) - $(event_values a instructions:u)))
	[ $grown -ge 3900000 ] && [ $grown -lt 4500000 ] && [ "$(event_values c instructions:u)" -lt 3000000 ]
}
test_all_cpus() {
	pfc stat -a -x, -o all -e instructions:u $program spin 3000000 || return 1
	cat all
	[ "$(event_values all instructions:u)" -ge 6000000 ]
}
test_soft() {
	pfc stat -x, -o all $program spin 1000000 || return 1
	cat all
	[ "$(event_values all page-faults)" -gt 5 ] && is_number "$(event_values all context-switches)" && is_number "$(event_values all cpu-migrations)" && grep -qE '^[0-9.]+,msec,task-clock,[1-9]' all && grep -q "insn per cycle" all
}
# pfc does not support a software event in only one mode, because the kernel counts it in both modes
# together.
test_soft_modes() {
	pfc stat -v -x, -o all -e page-faults:u,page-faults:k,page-faults true 2>words || return 1
	cat all words
	[ "$(grep -c '^<not supported>,,page-faults:[uk],' all)" = 2 ] && [ "$(event_values all page-faults)" -gt 0 ] && [ "$(grep -cx "pfc: 'page-faults': the kernel counts it in both modes together; leave out :u or :k" words)" = 2 ]
}
test_counter() {
	pfc stat -x, -o all -e counter:syscalls/getppid,counter:syscalls/write true || return 1
	pfc stat -x, -o more -e counter:syscalls/write sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do echo; done >/dev/null' || return 1
	cat all more
	[ "$(event_values all counter:syscalls/write)" -lt 5 ] && [ "$(event_values more counter:syscalls/write)" -ge 10 ]
}
test_pmu_busy() {
	$program perf 0 &
	holder=$!
	within 60 has_open $holder perf_event
	pfc doctor >found
	rc=$?
	pfc stat -x, -o all -e instructions,page-faults true 2>words || rc=2
	kill $holder
	wait $holder 2>/dev/null
	cat found all words
	[ $rc = 1 ] && grep -qE "^problem +perf +open in: pfc_follow \($holder\)" found && grep -q '^problem  load' found && grep -q '^<not counted>,,instructions,' all && [ "$(event_values all page-faults)" -gt 0 ] && grep -q "pfc doctor" words
}
test_watchdog() {
	echo 1 >/proc/sys/kernel/nmi_watchdog 2>/dev/null
	[ "$(cat /proc/sys/kernel/nmi_watchdog)" = 1 ] || { echo "there is no watchdog here"; return 1; }
	pfc doctor >found
	rc=$?
	echo 0 >/proc/sys/kernel/nmi_watchdog
	cat found
	[ $rc = 1 ] && grep -qE '^problem +watchdog' found && grep -q "nmi_watchdog=0" found
}
test_unprivileged() {
	chmod 666 /dev/perfmon
	su nobody -s /bin/sh -c "pfc stat -x, -e instructions,page-faults $program forks 1000000 2" 2>all
	rc=$?
	su nobody -s /bin/sh -c "pfc stat -e instructions:k true" 2>words
	kernel=$?
	chmod 660 /dev/perfmon
	cat all words
	[ $rc = 0 ] && [ "$(event_values all instructions:u)" -gt 4000000 ] && [ "$(event_values all page-faults)" -gt 0 ] && [ $kernel = 2 ] && grep -q CAP_PERFMON words
}

plan $nr_tests
unload_modules
check "1.16 pfc doctor without a module: status 1, it names modprobe" test_no_output
check "1.16 pfc pmu without a module, not as root: status 2" has_status 2 su nobody -s /bin/sh -c "pfc pmu"
check "1.16 pfc pmu without a module, as root: loads perfmon" test_loads_module
unload_modules
insmod_each perfcounters perfmon
# Keeps the kernel from loading a PMU description when pfc creates a context.
echo >/proc/sys/kernel/modprobe
check "1.16 pfc stat without a PMU description: the command runs, events are not supported" test_no_pmu
insmod /modules/$description.ko
check "1.16 pfc doctor with a PMU description: status 0" has_status 0 pfc doctor
check "1.16 pfc doctor --json: checks with state ok" sh -c 'pfc doctor --json | grep -qE "\"checks\":\[.*\"state\":\"ok\".*\]"'
check "1.1 pfc pmu: the registers of the PMU" sh -c "pfc pmu | grep -qx $name && pfc pmu | grep -qE '^PMD0 .* 48 +PMC0'"
check "1.16 pfc pmu --json: libpfm4's table for this processor" sh -c "pfc pmu --json | grep -q '\"name\":\"$table'"
check "1.16 pfc stat: instructions by generic name are exact" test_exact instructions:u
check "1.16 pfc stat: instructions by raw code are exact" test_exact r00c0:u
check "1.16 pfc stat: instructions by libpfm4's name are exact" test_exact $known:u
check "1.16 pfc stat: instructions by libpfm4's name with the mode inside the name are exact" test_exact $known:u:c=0
check "1.16 pfc stat: an unknown event is not supported, -v shows the reason" test_unknown
check "1.16 pfc stat: user and kernel mode add up to both" test_modes
check "1.6 pfc stat: four events at once are consistent" test_one_set
check "1.6 pfc stat: six events use fixed or more general counters" test_fixed
[ $description = pfm_amd ] || check "1.16 pfc stat: raw codes of fixed counters count as the events' names" test_fixed_codes
check "1.12 pfc stat: more events than counters run by turns" test_too_many
check "1.3 pfc stat: the status is the command's" has_status 7 pfc stat -o all sh -c 'exit 7'
check "1.3 pfc stat: status 128 plus the number of the signal" has_status 137 pfc stat -o all sh -c 'kill -9 $$'
check "1.3 pfc stat: status 127 for an unknown command" has_status 127 pfc stat -o all no_such_command
check "1.3 pfc stat -i: status of the command, and 127 for an unknown one" sh -c 'pfc stat -i -o all no_such_command; [ $? = 127 ] && pfc stat -i -o all sh -c "exit 7"; [ $? = 7 ]'
check "1.3 pfc stat: status 2 for invalid arguments" sh -c 'pfc stat -p 1 -a true; [ $? = 2 ] && pfc stat -C 7 true; [ $? = 2 ] && pfc stat -e instructions:p true; [ $? = 2 ] && pfc stat; [ $? = 2 ]'
check "1.16 pfc stat: the text goes to standard error" test_text
check "1.16 pfc stat --json: one object a line" test_json
check "1.6 pfc stat -I: one line for each interval" test_intervals
check "1.6 pfc stat -I: intervals and SIGTERM while processes fork all the time" test_forks
check "1.6 pfc stat -I: the intervals add up to the count without -I" test_sum_of_intervals
check "1.6 pfc stat -r: means with their error" test_repeated
check "1.6 pfc stat -r: children of a process of the first run are not counted in the second" test_repeated_with_leftover
check "1.6 pfc stat -p and -t: a process and a thread are counted" test_process
check "1.16 pfc stat -v: events that cannot be programmed are not supported, with the reason" test_all_counted
check "1.6 pfc stat -p without a command: until SIGINT" test_until_interrupted
check "1.6 pfc stat -p without a command: until the process has exited" test_until_ended -p
check "1.6 pfc stat -t without a command: until the thread has exited" test_until_ended -t
check "1.6 pfc stat -C: one CPU is counted" test_cpus
check "1.6 pfc stat -a: all CPUs are counted" test_all_cpus
insmod_each pfm_soft pfc_syscalls
check "1.13 pfc stat: the default events" test_soft
check "1.13 pfc stat: software events in one mode are not supported, with the reason" test_soft_modes
check "1.13 pfc stat: instances of the counter pages as events" test_counter
check "1.3 perf uses the PMU: pfc doctor names the process, soft events are counted" test_pmu_busy
check "1.3 NMI watchdog uses the PMU: pfc doctor names it" test_watchdog
check "1.6 pfc stat as user nobody: own program counted, kernel mode refused" test_unprivileged
rm -f a b c all more one found words output errors stop
unload_modules
exit $failed
