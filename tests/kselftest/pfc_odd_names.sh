#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# timeout: 180
# shellcheck disable=SC2015,SC2016,SC2086,SC2317,SC2329,SC3043
#
# Tests pfc with names, paths and arguments that are not text: bytes that are not UTF-8, a name that
# the kernel cuts in the middle of a character, newlines, and escape sequences for a terminal.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

program=/tests/pfc_follow
shop=/tests/examples/shop
rounds=20000000
escape=$(printf '\033')
# Names of programs. The kernel cuts the second one after 15 bytes, of which the last is the first
# byte of a character.
latin=$(printf 'caf\351')
cut=$(printf 'aaaaaaaaaaaaaa\303\251')
hostile=$(printf 'q\033[31m\007\nx')
shown_hostile='q\\x1b\[31m\\x07\\nx'

is_plain() { # FILE: no control characters but newlines and tabs
	! grep -n "$escape" "$1" && ! LC_ALL=C tr -d '\011\012\040-\176\200-\377' <"$1" | grep -q .
}
# Starts the program under another name, as $victim.
start() { # NAME [MODE]
	cp $program "$1"
	"./$1" ${2:-calls} 100000000000 &
	victim=$!
}
stop() {
	kill -9 $victim
	wait $victim 2>/dev/null
	return ${1:-0}
}
# Samples the program, which runs already, into the file "r".
record_running() { # NAME
	start "$1"
	pfc record -p $victim -e task-clock -F 200 -o r -- sh -c "$run_for" $victim 500
	stop $?
}
# Succeeds if 80 % or more of the samples in "r" are in the busy function.
is_named() {
	pfc report -i r --sort sym >table
	cat table
	share=$(awk '!/^#/ && NF { sub("%", "", $1); print $NF == "work_inner" ? int($1) : 0; exit }' table)
	[ "$share" -ge 80 ]
}

test_output_path() {
	path=$(printf 'o\351')
	pfc record -e task-clock -F 500 -o "$path" $program calls $rounds 2>words || { cat words; return 1; }
	cat words
	mv "$path" r && is_named && grep -qF 'MB o\xe9 (' words
}
test_argument() {
	path=$(printf 'x\351')
	echo contents >"$path"
	pfc stat -e task-clock cat "$path" >out 2>words || { cat words; return 1; }
	cat words
	grep -q contents out && grep -qF "stats for 'cat x\\xe9'" words
}
test_record_argument() {
	path=$(printf 'x\351')
	pfc record -e task-clock -F 500 -o r sh -c "$program calls $rounds; cat \"\$0\"" "$path" >out 2>words || { cat words; return 1; }
	grep -q contents out && is_named && pfc report -i r --json | grep -qF 'x\\xe9'
}
test_trace_argument() {
	path=$(printf 'x\351')
	pfc trace start t --format text -o events -- cat "$path" >out && grep -q contents out
}
test_missing_command() {
	pfc stat -e task-clock "$(printf 'no\351\033[31m')" 2>words
	[ $? = 127 ] && cat words && grep -qF "cannot run 'no\\xe9\\x1b[31m': command not found" words
}
test_mapped_path() {
	mkdir -p "$latin" && record_running "$latin/prog" && is_named && pfc script -i r >script && head -n 2 script && grep -qF '/caf\xe9/prog)' script
}
test_exec_path() {
	pfc record -e task-clock -F 500 -o r "./$latin/prog" calls $rounds && is_named
}
test_cut_name() {
	record_running "$cut" && is_named && pfc report -i r --sort comm >table && cat table && grep -q ' aaaaaaaaaaaaaa\\xc3$' table
}
test_newline_path() {
	record_running "$hostile" && is_named
}
test_report() {
	pfc report -i r >table && pfc report -g -i r >tree && cat table
	is_plain table && is_plain tree && grep -q " $shown_hostile  *$shown_hostile  *\[.\] work_inner$" table
}
test_script() {
	pfc script -i r >script && head -n 3 script
	is_plain script && [ "$(grep -c "^ *$shown_hostile  *$victim " script)" = "$(wc -l <script)" ]
}
test_folded() {
	pfc script --folded -i r >folded && head -n 3 folded
	is_plain folded && grep -q "^$shown_hostile;.*work_inner [0-9]*$" folded && ! grep -vE ' [0-9]+$' folded
}
test_picture() {
	pfc flamegraph -i r >picture 2>/dev/null && is_plain picture && grep -q "<title>$shown_hostile (" picture
}
# In JSON the name is exact.
test_json() {
	pfc script --json -i r >lines && head -n 1 lines
	is_plain lines && grep -qF '"command":"q\u001b[31m\u0007\nx"' lines
}
test_top() {
	start "$hostile"
	pfc top --plain -p $victim -e task-clock -I 300 --count 3 >table
	stop $?
	cat table
	is_plain table && grep -q "$shown_hostile  *$shown_hostile" table
}
test_stat() {
	pfc stat -e task-clock cat "$(printf 'x\033[31m')" 2>words
	cat words
	is_plain words && grep -qF "'cat x\\x1b[31m'" words
}
test_error() {
	pfc report -i "$(printf 'no\033[31m')" 2>words
	[ $? = 2 ] && cat words && is_plain words && grep -qF 'no\x1b[31m' words
}
test_accounting() {
	pfc ppa on
	start "$hostile"
	run_for $victim 100
	pfc ppa >table && pfc ppa --top --plain -d 0.3 -n 2 >changes && pfc ppa --histogram $victim >histogram && pfc ppa record -t 0.2 -o task $victim
	stop $?
	pfc ppa off
	pfc ppa report task >report && head -n 2 report
	grep $victim table
	is_plain table && is_plain changes && is_plain histogram && is_plain report && grep -q "^ *$victim .* $shown_hostile" table && grep -q "^ *$victim .* $shown_hostile" changes && grep -q "^$victim $shown_hostile$" report
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
	"./$hostile" 1000000 &
	victim=$!
	within 60 has_marker && pfc trace list --markers >list
	stop $?
	cat list
	is_plain list && grep -q "^shop:sold .*$shown_hostile/$victim" list
}
has_marker() { pfc trace list --markers | grep -q shop:sold; }

plan 21
cd /tmp || exit 1
unload_modules
for m in perfcounters pfm_soft pfm_ring; do
	insmod /modules/$m.ko
done
check "pfc record -o: a path that is not UTF-8" test_output_path
check "pfc stat: an argument of the command that is not UTF-8" test_argument
check "pfc record: an argument of the command that is not UTF-8" test_record_argument
check "pfc trace start: an argument of the command that is not UTF-8" test_trace_argument
check "pfc stat: a missing command with an odd name is shown with escape sequences" test_missing_command
check "pfc record -p: a mapped path that is not UTF-8: functions have names" test_mapped_path
check "pfc record: a command whose path is not UTF-8: functions have names" test_exec_path
check "pfc record -p: a name that is cut in the middle of a character" test_cut_name
check "pfc record -p: a mapped path with a newline: functions have names" test_newline_path
check "pfc report: control characters in a name are visible" test_report
check "pfc script: control characters in a name are visible, one line per sample" test_script
check "pfc script --folded: control characters in a name are visible, one line per stack" test_folded
check "pfc flamegraph: control characters in a name are visible" test_picture
check "pfc script --json: a name with control characters is exact" test_json
check "pfc top: control characters in a name are visible" test_top
check "pfc stat: control characters in an argument are visible" test_stat
check "pfc: control characters in a path are visible in an error message" test_error
check "pfc ppa: control characters in a name are visible in tables and reports" test_accounting
check "pfc doctor: control characters in the name of a user are visible" test_doctor
check "pfc trace start: control characters in a name are visible, one line per event" test_trace
check "pfc trace list: control characters in a name are visible" test_trace_list
unload_modules
exit $failed
