# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2015,SC2034,SC2086,SC2154,SC2317,SC2329,SC3043
#
# Helpers for the tests with program names that are not plain text: they start programs with such
# names, and check the outputs of pfc.

program=/tests/pfc_follow
rounds=20000000
escape=$(printf '\033')
# Patterns of grep in the C locale: the control characters U+0080 to U+009F, and the line separators
# and the characters that set the direction of writing.
c1=$(printf '\302[\200-\237]')
direction=$(printf '\330\234\|\342\200[\216\217\250-\256]\|\342\201[\246-\251]')
# Names of programs. The kernel cuts the name $cut after 15 bytes, in the middle of its last
# character.
latin=$(printf 'caf\351')
cut=$(printf 'aaaaaaaaaaaaaa\303\251')
hostile=$(printf 'q\033[31m\007\nx\302\233\342\200\216')
shown_hostile='q\\x1b\[31m\\x07\\nx\\xc2\\x9b\\xe2\\x80\\x8e'
hostile_json='"q\u001b[31m\u0007\nx\u009b\u200e"'

is_plain() { # FILE: true if a terminal interprets no characters in it except newlines and tabs
	! grep -n "$escape" "$1" && ! LC_ALL=C tr -d '\011\012\040-\176\200-\377' <"$1" | grep -q . &&
		! LC_ALL=C grep -n "$c1\|$direction" "$1"
}
# Starts the program under the name NAME, and stores its pid in $victim.
start() { # NAME [MODE]
	cp $program "$1"
	run_victim "./$1" ${2:-calls} 100000000000
}
stop() {
	kill_and_wait $victim
	return ${1:-0}
}
# Starts the program under the name NAME, and records samples of the running program in the file
# "r".
record_running() { # NAME
	start "$1"
	pfc record -p $victim -e task-clock -F 200 -o r -- sh -c "$run_for" $victim 200
	stop $?
}
# Succeeds if work_inner, the busy function, is the first user-mode function in the report on the
# file "r". Functions of the kernel are left out, because on a busy host one of them can have more
# samples than work_inner.
is_named() {
	pfc report -i r --sort sym >table
	cat table
	[ "$(awk '/\[\.\]/ { print $NF; exit }' table)" = work_inner ]
}
load_modules() {
	insmod_each perfcounters perfmon perftrace ppa pfm_soft pfm_ring
}
