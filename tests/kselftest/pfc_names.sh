#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: plain
# timeout: 300
# shellcheck disable=SC2012,SC2016,SC2086,SC2317,SC2329,SC3043
#
# Names in samples belong to the program that ran: pfc record and pfc top across an exec, beside a
# file that is replaced while it runs, in other name spaces, and for threads that change their
# name. Each result also holds where perf_event_open(2) is refused ("without perf").
#
# The program $a spends its time in alpha_hot. Its twin $b is the same program with betaa_hot
# in that place and another build id; the *_noid copies have no build id.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

dir=/tmp/names
a=$dir/a b=$dir/b
# Milliseconds of processor time that a program spins.
ms=250
[ -n "${LONG:-}" ] || ms=150
# How pfc is started: with "refuse_perf" perf_event_open() fails with EACCES.
via=""

pfc_here() { # ARGUMENT...
	(pfc_exec "$@")
}
# For the background: the number of the job is that of pfc.
pfc_exec() { # ARGUMENT...
	if [ -n "$via" ]; then exec $a "$via" exec pfc "$@"; else exec pfc "$@"; fi
}
settled() { # PID
	for _ in 1 2 3; do
		[ "$(awk '{ print $3 }' "/proc/$1/stat")" = S ] || return 1
		sleep 0.1
	done
}
begun() { # PID
	within 20 has_open $1 /dev/perfmon && within 20 catches_int $1 && within 20 settled $1
}
# Names the samples of a file: $table has the shares of threads, files and functions, $words what
# pfc report says beside that.
table=report words=report_words
report() { # FILE
	pfc report -i $1 --sort comm,dso,sym >$table 2>$words
	rc=$?
	grep '^# Samples' $table
	grep -v '^#' $table | grep . | head -n 8
	cat $words
	return $rc
}
# The share of a function, in percent, of all threads or of those with a name.
share() { # FUNCTION [THREAD]
	awk -v f="$1" -v t="${2:-}" '!/^#/ && NF && $NF == f && (t == "" || $2 == t) { n += $1 } END { print int(n) }' $table
}
# Two programs ran for the same time: each has 35 % of the samples of both or more.
both() { # FILE
	local alpha beta
	report $1
	alpha=$(share alpha_hot) beta=$(share betaa_hot)
	[ $((alpha + beta)) -ge 15 ] && [ $((alpha * 100)) -ge $(((alpha + beta) * 35)) ] && [ $((beta * 100)) -ge $(((alpha + beta) * 35)) ]
}
# start STEP...: runs $victim in the background; it waits for $dir/go before it spins.
start() { # PROGRAM STEP...
	rm -f $dir/go $dir/more
	"$@" &
	victim=$!
}
# record FILE: pfc record -p $victim in the background, until it samples.
record() { # FILE
	rm -f $1
	pfc_exec record -p $victim -F 1000 -o $1 2>said_by_pfc &
	recorder=$!
	begun $recorder || { cat said_by_* ; stop; return 1; }
	[ -n "$via" ] || has_open $recorder perf_event || { echo "no perf event"; stop; return 1; }
}
# Ends what start and record have started.
stop() {
	kill -9 $victim $recorder
	wait $victim $recorder
	victim="" recorder=""
} 2>/dev/null
exec_of_process() {
	start $a until $dir/go spin $ms exec $b spin $ms
	record x || return 1
	touch $dir/go
	wait $victim $recorder
	both x
}
exec_in_shell() {
	pfc_here record -a -F 1000 -o x -- sh -c "$a spin $ms; exec $b spin $ms" || return 1
	both x
}
exec_of_command() {
	pfc_here record -F 1000 -o x $a spin $ms exec $b spin $ms || return 1
	both x
}
# A later table of pfc top is of the second program.
exec_in_top() {
	start $a until $dir/go spin $ms until $dir/more exec $b spin 1000000
	pfc_exec top -p $victim --plain -I 300 >tables 2>said_by_top &
	recorder=$!
	begun $recorder || { cat said_by_* ; stop; return 1; }
	touch $dir/go
	within 20 grep -q alpha_hot tables
	touch $dir/more
	within 20 grep -q betaa_hot tables
	rc=$?
	stop
	cat tables said_by_top
	return $rc
}
# replaced A B: the file of a running program A becomes B, which has other functions in the
# same places. A's samples are named by A or not at all, and the report says why once.
replaced() {
	rm -f $dir/it
	cp $1 $dir/it
	start $dir/it until $dir/go spin $ms until $dir/more
	record x || return 1
	touch $dir/go
	within 20 has_cpu_ns $victim $((ms * 1000000))
	cp $2 $dir/new
	mv $dir/new $dir/it
	touch $dir/more
	wait $victim $recorder
	another_build
}
# The samples of $dir/it have the file's name and not the functions of $b, and one message.
another_build() {
	report x
	[ "$(share betaa_hot)" = 0 ] && [ "$(grep -c 'another build' $words)" = 1 ] && grep -q ' it  *\[\.\] \[unknown\]' $table
}
# Replaces the file of a running program before pfc record begins.
replaced_before() {
	rm -f $dir/it
	cp $a $dir/it
	start $dir/it until $dir/go spin $ms
	within 20 grep -q /it /proc/$victim/maps
	cp $b $dir/new
	mv $dir/new $dir/it
	record x || return 1
	touch $dir/go
	wait $victim $recorder
	another_build
}
# In the other mount name space $dir/it is $b, here it is $a.
mount_namespace() {
	rm -f $dir/it
	cp $a $dir/it
	pfc_here record -F 1000 -o x $a bind $b $dir/it exec $dir/it spin $ms || return 1
	another_build && [ "$(share alpha_hot)" -le 5 ]
}
# While the process is there its files can be read.
mount_namespace_in_top() {
	rm -f $dir/it
	cp $a $dir/it
	start $a bind $b $dir/it exec $dir/it until $dir/go spin 1000000
	within 20 grep -q /it /proc/$victim/maps
	touch $dir/go
	pfc_here top -p $victim --plain -I 300 --count 2 >tables 2>said_by_top
	kill -9 $victim
	wait $victim 2>/dev/null
	cat tables said_by_top
	grep -q betaa_hot tables && ! grep -q alpha_hot tables
}
# All samples but a few are of a thread with that name.
thread_name() { # NAME STEP...
	local name=$1
	shift
	pfc_here record -F 1000 -o x $a "$@" || return 1
	report x
	[ "$(share alpha_hot $name)" -ge 70 ]
}
named_later() {
	start $a until $dir/go name later spin $ms
	record x || return 1
	touch $dir/go
	wait $victim $recorder
	report x
	[ "$(share alpha_hot later)" -ge 70 ]
}
pid_namespace() {
	$a pidns ${via:+$via} exec pfc record -F 1000 -o x $a spin $ms || return 1
	report x
	[ "$(share alpha_hot a)" -ge 70 ]
}
pid_namespace_process() {
	$a pidns ${via:+$via} exec sh -c "$a spin 1000000 & victim=\$!; pfc record -p \$victim -F 1000 -o x sh -c '$run_for' \$victim $ms; pfc top -p \$victim --plain -I 300 --count 2 >tables; kill -9 \$victim" || return 1
	report x
	cat tables
	[ "$(share alpha_hot a)" -ge 70 ] && grep -q ' a .*alpha_hot' tables
}
# A message says that CPUs also ran processes without a number in this name space.
pid_namespace_cpus() {
	$a spin 1000000 &
	victim=$!
	$a pidns exec pfc record -a -F 1000 -o x $a spin $ms 2>said_by_pfc
	kill -9 $victim
	wait $victim 2>/dev/null
	cat said_by_pfc
	report x
	grep -q 'pid name space' said_by_pfc && [ "$(share alpha_hot a)" -ge 15 ] && [ "$(share alpha_hot swapper)" = 0 ]
}
# So many percent of the samples are in a function, in a file.
named_as() { # PERCENT FUNCTION FILE STEP...
	local least=$1 name=$2 file=$3
	shift 3
	pfc record -F 1000 -o x $a "$@" || return 1
	report x
	awk -v f="$name" -v o="$file" -v least=$least '!/^#/ && NF && $NF ~ f && index($0, o) { n += $1 } END { exit n < least }' $table
}
by_user() {
	chmod 666 /dev/perfmon x 2>/dev/null
	old=$(cat /proc/sys/kernel/perf_event_paranoid)
	echo 3 >/proc/sys/kernel/perf_event_paranoid
	su nobody -s /bin/sh -c "cd /tmp/nobody && pfc record -F 1000 -o x $a spin $ms exec $b spin $ms" 2>said_by_pfc
	rc=$?
	echo $old >/proc/sys/kernel/perf_event_paranoid
	cat said_by_pfc
	[ $rc = 0 ] && both /tmp/nobody/x
}
# Both ways to learn of processes have the same results.
both_ways() { # NAME COMMAND...
	local name=$1
	shift
	via=""
	check "$name" "$@"
	via=refuse_perf
	check "$name, without perf" "$@"
	via=""
}
# The other results are left to make test-all.
long() { # COMMAND...
	[ -z "${LONG:-}" ] || "$@"
}

if [ -n "${LONG:-}" ]; then plan 33; else plan 10; fi
cd /tmp || exit 1
unload_modules
insmod /modules/perfcounters.ko
insmod /modules/pfm_soft.ko
insmod /modules/pfm_ring.ko
rm -rf $dir /tmp/nobody
mkdir -p $dir /tmp/nobody
chmod 777 /tmp/nobody
/tests/pfc_names copy $a && /tests/pfc_names twin $b
/tests/pfc_names copy_noid $dir/a_noid && /tests/pfc_names twin_noid $dir/b_noid
both_ways "1.9 pfc record -p sees an exec" exec_of_process
check "1.9 pfc record -a sees an exec in a shell" exec_in_shell
check "1.9 a program that is replaced while it runs keeps its names or has none" replaced $a $b
check "1.9 a program without a build id that is replaced has no names" replaced $dir/a_noid $dir/b_noid
check "1.9 pfc record takes no names from another mount name space" mount_namespace
check "1.9 a thread has the name that it gave itself" thread_name worker thread name worker spin $ms
check "1.9 a child has the name of the parent that forked it" thread_name renamed name renamed fork spin $ms
check "1.9 pfc record and pfc top name a process in a pid name space" pid_namespace_process
via=refuse_perf
long check "1.9 a program that is replaced while it runs keeps its names or has none, without perf" replaced $a $b
long check "1.9 a program without a build id that is replaced has no names, without perf" replaced $dir/a_noid $dir/b_noid
long check "1.9 pfc record takes no names from another mount name space, without perf" mount_namespace
long check "1.9 a thread has the name that it gave itself, without perf" thread_name worker thread name worker spin $ms
long check "1.9 a child has the name of the parent that forked it, without perf" thread_name renamed name renamed fork spin $ms
long check "1.9 pfc record and pfc top name a process in a pid name space, without perf" pid_namespace_process
via=""
long both_ways "1.9 pfc record sees an exec of its command" exec_of_command
long both_ways "1.9 pfc top -p sees an exec" exec_in_top
long both_ways "1.9 a program that was replaced before pfc record has no names" replaced_before
long both_ways "1.9 pfc top reads files in the mount name space of the process" mount_namespace_in_top
long check "1.9 pfc record -p sees a new name" named_later
long both_ways "1.9 pfc record names a command in a pid name space" pid_namespace
long check "1.9 pfc record -a says what it cannot name in a pid name space" pid_namespace_cpus
long check "1.9 a user whom perf refuses has names across an exec" by_user
long check "1.9 functions of the vDSO have names" named_as 10 clock_gettime '[vdso]' vdso $ms
long check "1.9 a function without a type has a name" named_as 50 bare_hot a bare $ms
long check "1.9 a compiler's code in a memfd has names" named_as 50 compiled_hot memfd:jit compiled memfd $ms
long check "1.9 a compiler's code in /dev/zero has names" named_as 50 compiled_hot zero compiled zero $ms
check "1.2 no context is left" busybox rmmod pfm_ring
rm -rf $dir /tmp/nobody /tmp/perf-*.map x $table $words tables said_by_* said last_words
unload_modules
exit $failed
