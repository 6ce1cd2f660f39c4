#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# timeout: 180
# shellcheck disable=SC2015,SC2016,SC2086,SC2154,SC2317,SC2329,SC3043
#
# Tests that pfc shows control characters in names and paths as escape sequences, in each output, and
# that pfc top says which names are missing.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/odd_names.sh
. /tests/odd_names.sh
own_mounts

# The sampled program is /tests/pfc_follow.
shop=/tests/examples/shop

test_report() {
	pfc report -i r >table && pfc report -g -i r >tree && cat table
	is_plain table && is_plain tree && grep -q " $shown_hostile  *$shown_hostile  *\[.\] work_inner$" table
}
test_script() {
	pfc script -i r >samples && head -n 3 samples
	is_plain samples && [ "$(grep -c "^ *$shown_hostile  *$victim " samples)" = "$(wc -l <samples)" ]
}
test_folded() {
	pfc script --folded -i r >folded && head -n 3 folded
	is_plain folded && grep -q "^$shown_hostile;.*work_inner [0-9]*$" folded && ! grep -vE ' [0-9]+$' folded
}
test_picture() {
	pfc flamegraph -i r >picture 2>/dev/null && is_plain picture && grep -q "<title>$shown_hostile (" picture
}
# Tests that JSON output has the exact name, with its control characters in JSON's escape sequences.
test_json() {
	pfc script --json -i r >lines && pfc report --json -i r >rows && pfc report --firefox -i r >threads && head -n 1 lines
	is_plain lines && is_plain rows && is_plain threads && grep -qF "\"command\":$hostile_json" lines && grep -qF "\"command\":$hostile_json" rows
}
test_top() {
	start "$hostile"
	pfc top --plain -p $victim -e task-clock -I 150 --count 2 >table
	stop $?
	cat table
	is_plain table && grep -q "$shown_hostile  *$shown_hostile" table
}
# A line of pfc top counts the samples of processes that have no id in the pid namespace of pfc.
test_top_pid_namespace() {
	start prog
	/tests/pfc_names pidns exec pfc top --plain -e cpu-clock -F 500 -I 200 --count 2 >table
	stop $?
	cat table
	grep -q '^# [0-9]* samples are of .* pid name space; ' table && grep -q ' :-1 ' table
}
# The file of a program is replaced, and the program ends before pfc top shows its samples. One line
# says why functions of the program have no names.
test_top_other_build() {
	start prog
	within 20 grep -q /prog /proc/$victim/maps
	cp $shop other
	mv other prog
	pfc top --plain -p $victim -e task-clock -I 2000 --count 2 >table &
	top=$!
	within 20 has_open $top /dev/perfmon
	sleep 0.3
	stop
	wait $top
	cat table
	[ "$(grep -c '^# .*/prog: the file is another build' table)" = 1 ] && grep -q ' prog  *prog  *\[.\] \[unknown\]' table
}
test_stat() {
	path=$(printf 'x\033[31m')
	echo contents >"$path"
	pfc stat -e task-clock cat "$path" 2>words || { cat words; return 1; }
	cat words
	is_plain words && grep -qF "'cat x\\x1b[31m'" words
}
test_error() {
	pfc report -i "$(printf 'no\033[31m\nx')" 2>words
	[ $? = 2 ] && cat words && is_plain words && grep -qF 'no\x1b[31m\nx' words
}
test_accounting() {
	pfc ppa on
	start "$hostile"
	run_for $victim 100
	pfc ppa >table && pfc ppa --json >json && pfc ppa --top --plain -d 0.1 -n 2 >changes && pfc ppa --histogram $victim >histogram && pfc ppa record -t 0.2 -o task $victim
	stop $?
	pfc ppa off
	pfc ppa report task >values && head -n 2 values
	grep $victim table
	is_plain json && grep -qF "$hostile_json" json || return 1
	is_plain table && is_plain changes && is_plain histogram && is_plain values && grep -q "^ *$victim .* $shown_hostile" table && grep -q "^ *$victim .* $shown_hostile" changes && grep -q "^$victim $shown_hostile$" values
}
test_doctor() {
	cp $program "$hostile"
	"./$hostile" sleepers 1 3</dev/perfmon &
	victim=$!
	within 60 has_open $victim /dev/perfmon && pfc doctor >found
	stop
	grep contexts found
	is_plain found && grep -q "contexts .*$shown_hostile ($victim)" found
}
test_trace() {
	cp $shop "$hostile"
	pfc trace start t -e 'shop:*' --format text -o events -- "./$hostile" 20 && head -n 2 events
	is_plain events && [ "$(grep -c "^$shown_hostile [0-9]*/[0-9]* .*shop:sold: " events)" = 20 ] && [ "$(wc -l <events)" = 20 ]
}
test_trace_list() {
	run_victim "./$hostile" 1000000
	within 60 has_marker && pfc trace list --markers >markers && pfc trace list --markers --json >json
	stop $?
	cat markers
	is_plain json && grep -qF "$hostile_json" json && is_plain markers && grep -q "^shop:sold .*$shown_hostile/$victim" markers
}
has_marker() { pfc trace list --markers | grep -q shop:sold; }

if [ -n "${LONG:-}" ]; then plan 14; else plan 13; fi
mkdir -p /tmp/visible_names
cd /tmp/visible_names || exit 1
unload_modules
load_modules
begin_few_symbols
record_running "$hostile" >/dev/null 2>&1
check "pfc report: control characters in a name are visible" test_report
check "pfc script: control characters in a name are visible, one line per sample" test_script
check "pfc script --folded: control characters in a name are visible, one line per stack" test_folded
check "pfc flamegraph: control characters in a name are visible" test_picture
check "pfc script --json: a name with control characters is exact" test_json
check "pfc top: control characters in a name are visible" test_top
check "pfc top: a line says how many samples are of processes outside of the pid name space" test_top_pid_namespace
[ -z "${LONG:-}" ] || check "pfc top: one line says that a program's file is of another build" test_top_other_build
check "pfc stat: control characters in an argument are visible" test_stat
check "pfc: control characters in a path are visible in an error message" test_error
check "pfc ppa: control characters in a name are visible in tables and reports" test_accounting
check "pfc doctor: control characters in the name of a user are visible" test_doctor
check "pfc trace start: control characters in a name are visible, one line per event" test_trace
check "pfc trace list: control characters in a name are visible" test_trace_list
end_few_symbols
unload_modules
cd /tmp || exit 1
rm -rf /tmp/visible_names
exit $failed
