#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# shellcheck disable=SC2016,SC2030,SC2031,SC2086,SC2317,SC2329,SC2043,SC3043
# timeout: 240
#
# Runs every command of pfc on the real device, while providers are loaded and unloaded and a CPU
# goes offline.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

plan 20
unload_modules
check "pfc list without perfcounters.ko: status 2, names modprobe perfcounters" sh -c 'pfc list >o 2>&1; rc=$?; cat o; [ $rc = 2 ] && grep -q "modprobe perfcounters" o'
insmod /modules/perfcounters.ko
check "pfc list: the module's own instances come first" sh -c 'pfc list | sed -n 2p | grep -q perfcounters/faults/served'
insmod_each pfc_sched pfc_syscalls
check "0.2 pfc list --json: has the names of /dev/perfcounters_names" sh -c 'sed 1d /dev/perfcounters_names | cut -f3 | sort >a; pfc list --json | tr , "\n" | sed -nE "s/.*\"name\": *\"([^\"]*)\".*/\1/p" | sort >b; [ -s a ] && cmp a b'
check "pfc list with a pattern: lists matching names only" sh -c 'pfc list "sched/*" | grep -q sched/forks && ! pfc list "sched/*" | grep -q syscalls'
check "pfc list -v: shows the help text" sh -c 'pfc list -v sched/forks | grep -qi "tasks created"'
check "pfc list with a pattern that nothing matches: status 1" has_status 1 pfc list no/such/name
check "pfc read: shows the total of a counter" sh -c 'pfc read sched/context_switches | grep -qE "context_switches +[0-9]"'
check "pfc read --per-cpu: shows a value for each of two CPUs" sh -c 'pfc read --per-cpu --csv sched/context_switches | grep -c "^sched/context_switches,.*,[01],,[0-9]" | grep -qx 2'
check "pfc read --json: prints one JSON document" sh -c 'pfc read --json "sched/*" | tr -d "\n" | grep -qE "^[[{].*[]}]$"'
check "pfc snapshot: shows the generation of /dev/perfcounters_names" sh -c 'g=$(sed -nE "1s/.*generation ([0-9]+).*/\1/p" /dev/perfcounters_names); pfc snapshot "sched/*" | grep -qE "generation +$g$"'
check "pfc snapshot --json: has the generation" sh -c 'pfc snapshot --json "sched/*" | grep -q generation'
check "pfc watch --plain --count 2: prints two samples into a pipe" sh -c 'pfc watch --plain --count 2 --interval 200 "sched/*" | grep -c context_switches | grep -qx 2'

# Check that pfc watch keeps running while drivers and a CPU are removed and added (row 0.14 of
# Documentation/rows.md).
: >watched
pfc watch --plain --count 1000000 --interval 100 >watched 2>watch.err &
watch=$!
# Waits until pfc watch has printed two more samples.
nr_bytes() { wc -c <watched; }
has_more_bytes() { [ "$(nr_bytes)" -gt "$1" ] || ! kill -0 $watch; }
wait_updates() {
	within 60 has_more_bytes "$(nr_bytes)"
	within 60 has_more_bytes "$(nr_bytes)"
}
wait_updates
rmmod pfc_syscalls
insmod /modules/pfc_irq.ko
wait_updates
insmod /modules/pfc_syscalls.ko
rmmod pfc_sched
echo 0 >/sys/devices/system/cpu/cpu1/online
wait_updates
insmod /modules/pfc_sched.ko
echo 1 >/sys/devices/system/cpu/cpu1/online
wait_updates
kill -0 $watch
result $? "0.14 pfc watch: runs on while drivers and a CPU are removed and added"
kill $watch
wait $watch 2>/dev/null
[ ! -s watch.err ] || sed 's/^/# /' watch.err
check "0.14 pfc watch: shows an instance that was added while it ran" grep -q "irq/vector/local_timer" watched

rmmod pfc_sched
check "0.11 pfc list of dormant instances only: status 1" has_status 1 pfc list "sched/*"
check "0.11 pfc list --all: shows dormant instances" sh -c 'pfc list --all "sched/*" | grep -q dormant'
insmod /modules/pfc_sched.ko
check "0.11 pfc list --json: shows incarnation 3 of an instance" sh -c 'pfc list --json sched/forks | tr ",{}" "\n\n\n" | grep -qE "\"(incarnation|life)\": *3"'

check "0.15 pfc read --csv: has a field that is a plain number" sh -c 'pfc read --csv sched/context_switches | tail -n 1 | tr , "\n" | grep -qE "^[1-9][0-9]*$"'

pfc watch --plain --count 1000000 --interval 100 >/dev/null &
watch=$!
within 60 grep -q /dev/perfcounters /proc/$watch/maps
check "0.14 pfc watch: perfcounters.ko cannot be unloaded while it runs" sh -c 'rmmod pfc_sched; rmmod pfc_syscalls; rmmod pfc_irq; ! rmmod perfcounters 2>/dev/null'
kill_and_wait $watch
check "0.14 pfc watch killed: perfcounters.ko unloads" rmmod perfcounters
exit $failed
