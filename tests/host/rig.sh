#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests the scripts of tools/rig, which build and run the tests. Clones of the repository that share
# a cache must not disturb each other. A script that waits for another process must print which
# process that is. The output must name failed steps of a build plan and failed jobs. For each world
# (host, stock, debug, kcsan), the target `rows` of make must use the last test run in that world.
# The order of these test runs must not matter.

# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154,SC2269,SC2317,SC2329
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
export PERFCOUNTERS_CACHE=$work/cache
rig=$TOP/tools/rig

# make_clone DIRECTORY: makes a clone with the scripts of the rig.
make_clone() {
	mkdir -p "$1/tools/rig" "$1/tests" "$1/Documentation"
	cp "$rig"/*.sh "$rig"/*.awk "$rig"/plan.mk "$1/tools/rig/"
}
make_clone "$work/a/project"
make_clone "$work/b/project"
# run_in_clone DIRECTORY SCRIPT: starts a shell that sources tools/rig/lib.sh of a clone and then
# runs the commands SCRIPT.
run_in_clone() { bash -c '. "$0/tools/rig/lib.sh"; '"$2" "$1/project"; }

plan 28
one=$(run_in_clone "$work/a" 'echo "$CLONE"') two=$(run_in_clone "$work/b" 'echo "$CLONE"')
result "$([ -n "$one" ] && [ "$one" != "$two" ] && [ -d "$one" ] && [ -d "$two" ]; echo $?)" "rig clones: two clones of the same name have a directory each in the cache" "$one $two"
as_wanted "rig clones: the directory in the cache has the path of the clone" "$(cat "$one/path" "$two/path")" "$work/a/project
$work/b/project"

# A script in clone `a` of the repository holds the lock "thing" until a line is written to the FIFO
# $work/go. While clone `a` holds the lock "thing", a script in clone `b` tries to take it.
mkfifo "$work/go"
run_in_clone "$work/a" 'lock "$CACHE/locks/thing" "the thing"; echo "$$" >"$CACHE/holder"; read -r _ <'"$work/go; echo made >>$work/said" &
: >"$work/said"
until [ -s "$work/cache/holder" ]; do sleep 0.1; done
run_in_clone "$work/b" 'lock "$CACHE/locks/thing" "the thing"; echo had' >>"$work/said" 2>&1 &
until grep -q waiting "$work/said"; do sleep 0.1; done
result "$(grep -q "waiting for the thing, which is being made by process $(cat "$work/cache/holder") of $work/a/project since [0-9:]*$" "$work/said"; echo $?)" \
	"rig lock: a waiting script prints for what it waits, and for which process of which clone" "$(cat "$work/said")"
echo go >"$work/go"
wait
as_wanted "rig lock: the waiting script goes on when the other one has ended" "$(grep -v waiting "$work/said")" "made
had"

# Case: one target of a plan (a makefile) fails. The targets that do not need the failed target are
# made, and the output names the failed target.
cat >"$work/plan" <<END
all: good bad after
good:
	@tools/rig/timed.sh group good touch $work/good
bad:
	@tools/rig/timed.sh group bad sh -c 'exit 7'
after: bad
	@touch $work/after
END
# Make sed slow, to test that plan.sh does not end before its filter, a sed process, has printed the
# messages.
mkdir "$work/slow"
printf '#!/bin/sh\nsleep 0.3\nexec %s "$@"\n' "$(command -v sed)" >"$work/slow/sed"
chmod +x "$work/slow/sed"
PATH=$work/slow:$PATH TIMES=$work/times "$work/a/project/tools/rig/plan.sh" -f "$work/plan" all >"$work/said" 2>&1
rc=$?
result "$([ $rc != 0 ] && [ -e "$work/good" ] && [ ! -e "$work/after" ]; echo $?)" "rig plan: parts that need a failed part are not made, the others are" "$(cat "$work/said")"
as_wanted "rig plan: the failed part is named with its status" "$(cat "$work/said")" "    bad failed (status 7)"
as_wanted "rig plan: the time of each part is recorded" "$(awk '{ print $1, $2, $3, NF }' "$work/times" | sort)" "part group bad 6
part group good 6"

# Case: the results of two test runs are stored, of an earlier run on the debug kernel and of a
# later run on the stock kernel. rows.sh (make rows) uses the results of both test runs.
cat >"$work/a/project/Documentation/rows.md" <<'END'
|0.1|One.|
|0.2|Two.|
|0.3|planned: three.|
|0.4|decided: four.|
END
mkdir -p "$one/logs/results" "$work/a/project/tests/kselftest/one" "$work/a/project/tests/host"
touch "$work/a/project/tests/kselftest/one/x.c"
printf '# debug/plain x\nok - 0.1 one\nnot ok - 0.2 two\n' >"$one/logs/results/debug.x"
printf '# stock x\nok - 0.1 one\nok - 0.2 two\nok - 0.3 three # SKIP why\n' >"$one/logs/results/stock.x"
printf '# stock gone\nnot ok - 0.1 one\n' >"$one/logs/results/stock.gone"
touch -d '2026-01-02 03:04' "$one/logs/results/debug.x"
run_rows() { "$work/a/project/tools/rig/rows.sh" 2>"$work/said" | awk '/^[0-9]+\.[0-9]/ { print $1, $2 }'; }
as_wanted "rig rows: a failure in any world is a failure, a skipped test proves nothing" "$(run_rows)" "0.1 ok
0.2 FAIL
0.3 MISSING
0.4 decided"
result "$(grep -q '^debug: run 2026-01-02 03:04$' "$work/said" && grep -q '^stock: run ' "$work/said"; echo $?)" "rig rows: the time of each world's run is printed" "$(cat "$work/said")"
touch -d '2025-01-01' "$one/logs/results/stock.x"
as_wanted "rig rows: the order of the runs does not matter" "$(run_rows | head -n 2 | xargs)" "0.1 ok 0.2 FAIL"

# function_of FILE NAME: prints the text of a function in a script of the rig.
function_of() { sed -n "/^$2() {/,/^}/p" "$rig/$1"; }

# Case: a run has three jobs, of which one has finished, one died after its first program, and one
# was never started.
mkdir "$work/run"
printf '3\tgood\t\tx\n2\tdied\t\tx\n1\tnever\t\tx\n' >"$work/run/jobs"
printf '# stock good\nok - 0.1 one\n' >"$work/run/good.tap"
printf '# stock died\nok - 0.1 one\n' >"$work/run/died.tap"
: >"$work/run/good.done"
said=$(
	LOGS=$work/run tap=$work/run/tap work=$work/run ONLY="" TOP=$TOP TIMES=/dev/null begin=0 before="0 0" whole="" ended=""
	# shellcheck source=tools/rig/results.sh
	. "$rig/results.sh"
	eval "$(function_of test.sh report)"
	eval "$(function_of test.sh show_failures)"
	keep_results() { :; }
	report_left_out() { :; }
	report_not_run() { :; }
	report_skips() { :; }
	ticks() { echo 1 1; }
	: >"$tap"
	report 2>&1
	echo "status $?"
)
as_wanted "rig a job that died or never ran: the run fails" "$(tail -n 2 <<<"$said" | xargs)" "2 passed, 2 failed status 1"
result "$(grep -q 'the job died ran to its end' <<<"$said" && grep -q 'the job never ran to its end' <<<"$said"; echo $?)" "rig a job that died or never ran: the job is named" "$said"

# Case: test.sh runs stub jobs, all of which pass.
mkdir -p "$work/b/project/tests"/{vm,host,kselftest/one}
cp "$TOP/tests/vm/guests" "$work/b/project/tests/vm/"
cp "$rig/kernels" "$work/b/project/tools/rig/"
printf '// SPDX\n/*\n * worlds: stock\n */\n' >"$work/b/project/tests/kselftest/one/x.c"
printf '# SPDX\n' >"$work/b/project/tests/host/short.sh"
printf '# SPDX\n# target: test-all\n' >"$work/b/project/tests/host/long.sh"
cat >"$work/b/project/tools/rig/plan.sh" <<'END'
#!/bin/bash
cut -f2 "$work/jobs" | while read -r name; do
	printf '# stock %s\nok - 0.1 one\n' "$name" >"$work/$name.tap"
	: >"$work/$name.done"
done
END
said=$(env -u work -u RUN_DIR -u ONLY -u LOAD -u ALL WORLDS="host stock" "$work/b/project/tools/rig/test.sh" 2>&1)
as_wanted "rig a run in which all tests pass: status 0, the last line has the totals" "$? $(tail -n 1 <<<"$said")" "0 3 passed, 0 failed"

# warning_with MEGABYTES: prints the warning of a test run that starts with MEGABYTES free on the
# disk.
mkdir "$work/bin"
printf '#!/bin/sh\necho Filesystem 1000000-blocks Used Available\necho disk 90000 80000 $FREE\n' >"$work/bin/df"
chmod +x "$work/bin/df"
warning_with() {
	env -u work -u RUN_DIR -u ONLY -u LOAD -u ALL WORLDS=stock "PATH=$work/bin:$PATH" "FREE=$1" "$work/b/project/tools/rig/test.sh" 2>&1 |
		grep -oE "only [0-9]+ MB are free in the file system of $work/cache|run make clean"
}
as_wanted "rig a run with less than 5 GB free names the file system of the cache and make clean" \
	"$(warning_with 5000; warning_with 4999)" "only 4999 MB are free in the file system of $work/cache
run make clean"

# test_follow STARTS: calls follow() of guest.sh for a stub of a guest. The guest hangs in each boot
# before boot number STARTS, and runs its program in boot number STARTS. Prints the result that
# follow() records with the name "rig the guest boots", and the diagnostics of this result.
test_follow() {
	(
		export PATIENCE=1 work=$work tap=/dev/null
		mkdir -p "$work/guest"
		printf 'x 5\n' >"$work/guest/list"
		: >"$work/guest/results"
		echo "it stands here" >"$work/guest/console"
		# shellcheck source=tools/rig/guest.sh
		. "$rig/guest.sh"
		one() { [ "$2" != "rig the guest boots" ] || echo "$3: ${4:-}"; }
		collect() { cat >/dev/null; }
		starts=$1
		begin_guest() {
			starts=$((starts - 1))
			[ "$starts" != 0 ] || printf '# begin x 5\n# end x 0 1\n# done 0\n' >"$work/guest/results"
			sleep $((starts == 0 ? 1 : 100)) &
		}
		begin_guest
		follow $! stock plain "$work/guest" 2
	) 2>&1
}
as_wanted "rig a guest that hangs before its first program is booted once more, with a diagnostic" "$(test_follow 2)" \
	"ok: the guest reported nothing in 2 s and was booted once more; end of its console:
it stands here"
result "$(test_follow 3 | grep -q '^not ok'; echo $?)" "rig a guest that hangs twice before its first program is not booted a third time"

# recorded_output: runs a program that prints lines like "# begin" and "# end", with which the guest
# reports the beginning and the end of a program. Prints the recorded output.
recorded_output() {
	(
		export PATIENCE=1 work=$work tap=/dev/null
		mkdir -p "$work/names"
		printf 'x 5\n' >"$work/names/list"
		printf '# begin x 5\n# end by SIGTERM: 1\n# begin y 5\nok 1\n# end x 0 1\n# done 0\n' >"$work/names/results"
		# shellcheck source=tools/rig/guest.sh
		. "$rig/guest.sh"
		one() { :; }
		collect() { printf '%s %s:' "$2" "$3"; tr '\n' '|'; }
		sleep 1 &
		follow $! stock plain "$work/names" 9
	) 2>&1
}
as_wanted "rig a line of a program that looks like its end is output of the program" "$(recorded_output)" \
	"x 0:# end by SIGTERM: 1|# begin y 5|ok 1|"

# print_left_out: prints the tests that `make test` leaves out and `make test-all` runs. The tests
# are selected by the functions programs_of() and left_out() in tools/rig/guest.sh.
# Documentation/testing.md must list exactly the tests that print_left_out prints.
print_left_out() {
	local work=$work/left tap=/dev/null ALL="" ONLY=""
	mkdir -p "$work"
	mentions() { :; }
	# shellcheck source=tools/rig/guest.sh
	. "$rig/guest.sh"
	programs_of stock >"$work/programs"
	for s in "$TOP"/tests/host/*.sh; do ! left_out "$s" || basename "$s" >>"$work/left-out"; done
	sort "$work/left-out"
}
as_wanted "rig testing.md names what make test leaves to make test-all" \
	"$(sed -n '/Left out today are:$/,/^```$/p' "$TOP/Documentation/testing.md" | sed '1,/^```text$/d; /^```$/d')" "$(print_left_out)"

# forms_of WORLDS: prints the programs of this list that `make test-all` runs in their short forms on
# the stock kernel, if it runs these worlds.
forms_of() {
	local work=$work/forms tap=/dev/null ALL=1 ONLY="" WORLDS=$1
	mkdir -p "$work"
	mentions() { [[ $1 =~ /(module_unload|ppa_restart|faults)\.c$ ]]; }
	# shellcheck source=tools/rig/guest.sh
	. "$rig/guest.sh"
	programs_of stock | awk '$4 == "short" { print $2 }'
}
as_wanted "rig make test-all: a long form runs on the debug kernel, on both kernels, or on the stock kernel" \
	"$(forms_of "host stock debug")" "ppa_restart"
as_wanted "rig make test-all without the debug kernel: each long form runs on the stock kernel" \
	"$(forms_of "host stock")" ""

# forget_results: makes the state that a test run in the worlds host and stock leaves, and calls
# forget_results() of test.sh. Prints the names of the stored results that remain. Stored results of
# other worlds (debug, kcsan) must remain. If a stored result of the world host or stock is older
# than the test run, it must be removed. If the test run has left a test out, the old result of this
# test must remain.
forget_results() {
	local LOGS=$work/run work=$work/run WORLDS="host stock"
	mkdir -p "$LOGS/results"
	printf '# stock old\nok - 0.1 one\n' >"$LOGS/results/stock.old"
	printf '# stock/debian long\nok - 0.1 one\n' >"$LOGS/results/stock.debian.long"
	printf '# debug old\nok - 0.1 one\n' >"$LOGS/results/debug.old"
	touch -d '2025-01-01' "$LOGS"/results/*
	printf '# stock new\nok - 0.1 one\n' >"$LOGS/results/stock.new"
	touch -d '2025-01-02' "$work/jobs"
	echo "long in debian" >"$work/left-out"
	eval "$(function_of test.sh forget_results)"
	forget_results
	ls "$LOGS/results"
}
as_wanted "rig rows: results of programs that did not run in their world are removed" "$(forget_results | xargs)" "debug.old stock.debian.long stock.new"

# Case: the path of the source tree contains "readme", a word that image.sh also searches for in the
# paths of programs.
ln -s "$TOP" "$work/readme"
as_wanted "rig image: the names of test programs do not depend on the path of the tree" \
	"$(TOP=$work/readme bash "$rig/image.sh" sources | sed -n '/ tests\/kselftest\/\(modules\/faults\|pfc\/readme\/.*\).c$/p' | sort)" \
	"$(cd "$TOP/tests/kselftest" && printf '%s\n' modules/faults.c pfc/readme/*.c | sed 's,^\(.*\)\.c$,\1 tests/kselftest/&,; s,^modules/,,; s,^pfc/readme,examples,' | sort)"

# Case: a new clone copies cargo's builds of registry packages from another clone. It must not copy
# the other clone's builds of this project.
target=$work/cache/clones/other/target
mkdir -p "$target"/debug/{deps,.fingerprint/{pfc-12,libc-34},examples} "$target/x86_64-unknown-linux-gnu/release/deps"
touch "$target"/debug/deps/{pfc-12,libpfc-12.rlib,libperfcounters-9.rlib,liblibc-34.rlib} "$target"/debug/{pfc,.cargo-lock} \
	"$target"/debug/.fingerprint/{pfc-12,libc-34}/lib "$target"/x86_64-unknown-linux-gnu/release/{pfc,only-theirs} "$target/debug/examples/x"
(
	CACHE=$work/cache TARGET=$work/build/deps/target
	mkdir -p "${TARGET%/*}"
	eval "$(function_of build.sh begin_target)"
	begin_target
)
as_wanted "rig target: a new clone copies another clone's builds of registry packages only" \
	"$(cd "$work/build/deps/target" 2>/dev/null && find . -type f | sort)" "./debug/.cargo-lock
./debug/.fingerprint/libc-34/lib
./debug/deps/liblibc-34.rlib"
mkdir "$work/mine"
touch "$work/mine/own"
(
	CACHE=$work/cache TARGET=$work/mine
	eval "$(function_of build.sh begin_target)"
	begin_target
)
as_wanted "rig target: an existing target directory is kept" "$(ls "$work/mine")" own

# Case: a project is cloned again at the same path. The file "old" has the contents that it had at
# the last build.
git_in() { git -C "$work/project" -c user.name=x -c user.email=x@localhost "$@" >/dev/null 2>&1; }
mkdir -p "$work/project" "$work/clone"
git_in init
echo 1 >"$work/project/old"
echo 1 >"$work/project/changed"
git_in add -A
git_in commit -m x
times_of() {
	(
		TOP=$work/project CLONE=$work/clone
		# shellcheck source=tools/rig/file_times.sh
		. "$rig/file_times.sh"
		restore_times
		stat -c '%n %Y' "$TOP"/{old,changed} | sed "s,.*/,,; s, $EPOCHSECONDS$, now,; s, $((EPOCHSECONDS - 1))$, now,"
	)
}
times_of >/dev/null
sed -i '2,$s/ [0-9]* / 1000000000 /' "$work/clone/times"
git clone -q "$work/project" "$work/again"
rm -rf "$work/project"
mv "$work/again" "$work/project"
echo 2 >"$work/project/changed"
git_in commit -a -m y
as_wanted "rig times: in a new clone at the same path, a file without changes has the time of the last build" \
	"$(times_of)" $'old 1000000000\nchanged now'
echo 3 >"$work/project/changed"
times_of >/dev/null
as_wanted "rig times: the list is removed before a build of files that are not committed" "$(ls "$work/clone")" ""

cat >"$work/times" <<'END'
part set-up base 1000 1060 50.5
part stock stock.plain 1060 1120 100
part host cargo test 1060 1090 20
program stock quick 3
program stock slow 40
END
printf 'stock quick 5\nstock slow 30\n' >"$work/earlier"
said=$(awk -v begin=1000 -v end=1120 -v before="0 0" -v after="200 50" -v earlier="$work/earlier" -f "$rig/times.awk" "$work/times")
result "$(grep -q '2:00; the processors were idle for 25 %' <<<"$said" && grep -qE 'stock +1:00 +2:00 +1:40' <<<"$said" && grep -A 1 slowest <<<"$said" | grep -q '40  stock slow'; echo $?)" \
	"rig the table has stages, idle time, and the slowest program first" "$said"
as_wanted "rig the table compares programs with their previous runs, and names those that grew" "$(sed -n '/seconds of programs/,$p' <<<"$said")" "  stock: 43 seconds of programs, 35 the last time
  grown most since then:
      +10  stock slow"
exit $failed
