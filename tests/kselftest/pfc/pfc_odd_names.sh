#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# timeout: 180
# shellcheck disable=SC2015,SC2016,SC2086,SC2154,SC2317,SC2329,SC3043
#
# Tests pfc with paths, names and arguments that are not text: bytes that are not UTF-8, a name that
# the kernel cuts in the middle of a character, and newlines.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/odd_names.sh
. /tests/odd_names.sh
own_mounts

# The sampled program is /tests/pfc_follow.

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
	mkdir -p "$latin" && record_running "$latin/prog" && is_named && pfc script -i r >samples && head -n 2 samples && grep -qF '/caf\xe9/prog)' samples
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
plan 9
mkdir -p /tmp/odd_names
cd /tmp/odd_names || exit 1
unload_modules
load_modules
begin_few_symbols
check "pfc record -o: a path that is not UTF-8" test_output_path
check "pfc stat: an argument of the command that is not UTF-8" test_argument
check "pfc record: an argument of the command that is not UTF-8" test_record_argument
check "pfc trace start: an argument of the command that is not UTF-8" test_trace_argument
check "pfc stat: a missing command with an odd name is shown with escape sequences" test_missing_command
check "pfc record -p: a mapped path that is not UTF-8: functions have names" test_mapped_path
check "pfc record: a command whose path is not UTF-8: functions have names" test_exec_path
check "pfc record -p: a name that is cut in the middle of a character" test_cut_name
check "pfc record -p: a mapped path with a newline: functions have names" test_newline_path
end_few_symbols
unload_modules
cd /tmp || exit 1
rm -rf /tmp/odd_names
exit $failed
