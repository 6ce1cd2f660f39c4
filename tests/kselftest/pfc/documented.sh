#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2016,SC2086,SC2154,SC3043,SC2094,SC2317
# timeout: 1800
# worlds: stock
# guest: debian-skylake
#
# Runs every command of the documentation as printed: the lines of the blocks "sh guest" and
# "console guest", in order. Each block runs in its own directory. A command, and each command of a
# pipe, must end with status 0 within four minutes. A command with "until" in its comment gets a
# SIGINT one second after its first output, and may end by this signal. The output must contain the
# lines that a console block shows after the command, in that order; numbers may differ.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
own_mounts
# shellcheck source=tests/kselftest/lib/pmcd.sh
. /tests/pmcd.sh

blocks=/tests/documentation
top=$PWD
grep -E '^[^ ]+ [0-9]+ (sh|console) guest$' $blocks/index >guest

# Prints the commands of a block, one per line: lines continued by a backslash are joined.
commands() { # PAGE LINE LANGUAGE
	if [ "$3" = console ]; then sed -n 's/^~# //p' "$blocks/$1.$2"; else cat "$blocks/$1.$2"; fi |
		sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba' -e '}' | grep -v '^#\|^ *$'
}
total=0
while read -r page line language _; do
	total=$((total + $(commands $page $line $language | wc -l)))
done <guest

# expected_output PAGE LINE NUMBER: prints the lines that the console block shows after its NUMBERth
# command.
expected_output() { awk -v n="$3" '/^~# / { at++; next } at == n' "$blocks/$1.$2"; }
# True if the second file contains the lines of the first file, in order. Numbers in the compared
# lines may differ.
is_within_output() {
	awk '{ gsub(/[0-9]+/, "0"); gsub(/[ \t]+/, " ") } NR == FNR { want[++n] = $0; next }
		at < n && $0 == want[at + 1] { at++ }
		END { if (at < n) { print "not in its output: " want[at + 1]; exit 1 } }' "$1" "$2"
}

# True if the COMMAND wrote to standard output, to standard error, to a file in this directory, or
# to FILE if the COMMAND has the option "-o FILE".
has_output() {
	local named
	named=$(printf '%s\n' "$1" | sed -n 's/.* -o \([^ ]*\).*/\1/p')
	[ ! -s output ] || return 0
	find . $named -type f -size +0 -newer began | grep -q .
}
# Waits until the COMMAND has written output, waits one more second, and sends SIGALRM to
# timeout(1), whose PID is in the file `pid`. On SIGALRM, timeout(1) sends SIGINT to the COMMAND.
interrupt_when_written() {
	until [ -s ../pid ] && has_output "$1"; do sleep 0.2; done
	sleep 1
	kill -ALRM "$(cat ../pid)"
}
# True if at least one program with this NAME runs and all programs with this NAME sleep, in each of
# three checks.
all_sleep() { # NAME
	local pid sleeps
	for _ in 1 2 3; do
		sleeps=""
		for pid in $(pgrep -x "$1"); do
			case $(awk '{ print $3 }' "/proc/$pid/stat") in
			S) sleeps=yes ;;
			Z) ;;
			*) return 1 ;;
			esac
		done
		[ -n "$sleeps" ] || return 1
		sleep 0.1
	done
}
run_command() { # COMMAND: returns its status; its output is in the file output
	local rc=0
	case $1 in
	*'#'*until*)
		: >began
		: >../pid
		interrupt_when_written "$1" 2>/dev/null &
		sh -c 'echo $$ >../pid; exec timeout -k 10 -s INT $((200 * PATIENCE)) sh -o pipefail -c "$0"' "$1" >output 2>&1 </dev/null || rc=$?
		kill $! 2>/dev/null
		# Status 124: timeout ended the command, as expected. Status 130: the command itself
		# returned the status for SIGINT.
		case $rc in 124 | 130) has_output "$1" && rc=0 || echo "nothing came of it" >output ;; esac ;;
	*) timeout -k 10 -s INT $((240 * PATIENCE)) sh -o pipefail -c "$1" >output 2>&1 </dev/null || rc=$? ;;
	esac
	# If the command leaves a program in the background, waits until the program sleeps, which
	# means that it is ready.
	case $1 in *' &' | *' & '*) within 60 all_sleep "${1%% *}" >/dev/null ;; esac
	return $rc
}

# Starts the processes that the pages of the documentation assume: a process 1234, a program with
# markers, and PCP's pmcd.
process_1234() {
	until [ -e /proc/1234 ]; do
		echo 1233 >/proc/sys/kernel/ns_last_pid
		sh -c 'while :; do read -r _ </proc/stat; sleep 0.05; done' &
		[ $! = 1234 ] || kill $!
	done
}
start_environment() {
	# Lets the kernel load PMU descriptions and formats by itself, with the modprobe of the
	# initramfs.
	echo /bin/modprobe >/proc/sys/kernel/modprobe
	modprobe perfcounters
	modprobe perfmon
	modprobe perftrace
	for m in sched syscalls irq block; do modprobe pfc_$m; done
	/tests/examples/shop 1000000 >/dev/null &
	shop=$!
	start_pmcd
	process_1234
	within 120 pminfo mmv.control.files >/dev/null
}

modprobe=$(cat /proc/sys/kernel/modprobe)
plan $total
unload_modules
begin_few_symbols
start_environment
while read -r page line language _; do
	commands $page $line $language >commands
	dir=$top/$page.$line
	mkdir "$dir"
	cd "$dir" || exit 1
	printf 'all:\n\t@n=0; while [ $$n -lt 8000 ]; do n=$$((n + 1)); done; grep -c . /proc/kallsyms\n' >Makefile
	ln -s /tests/examples/* /modules/*.ko .
	number=0
	while read -r command; do
		number=$((number + 1))
		run_command "$command"
		rc=$?
		expected_output $page $line $number >shown
		[ "$language" != console ] || [ $rc != 0 ] || is_within_output shown output >difference || rc=1
		[ $rc = 0 ] || { echo "# $page:$line: status $rc"; cat difference output 2>/dev/null | tail -n 12 | cut -c1-200 | sed 's/^/# /'; }
		result $rc "$page: $(printf '%s' "$command" | sed 's/ *#.*//; s/\\/\//g')"
	done <"$top/commands"
	# Ends all programs that the block has left running, and restores the settings that it
	# changed.
	pkill -x pfc
	pfc ppa off >/dev/null 2>&1
	echo 15 >/proc/sys/kernel/ppa_levels
	cd "$top" || exit 1
done <guest
kill $shop
end_few_symbols
echo "$modprobe" >/proc/sys/kernel/modprobe
exit $failed
