#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests how tools/rig/test.sh repeats failed tests and ends a run after LIMIT= seconds. Also tests
# the files `runs` (a line for each test run that ran all tests) and `proved` (committed trees that
# passed such a run). In this test, test.sh runs in a separate repository with stub jobs. A stub of
# a test is a shell script that prints KTAP.

set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

clone=$work/project cache=$work/cache
mkdir -p "$clone"/tools/rig "$clone"/tests/{host,kselftest/one,vm} "$clone"/Documentation "$cache"
cp "$TOP"/tools/rig/*.{sh,awk,mk} "$TOP/tools/rig/kernels" "$clone/tools/rig/"
cp "$TOP/tests/vm/guests" "$clone/tests/vm/"
# shellcheck disable=SC2016 # the page's own quotes
printf 'Skipped in `make test`:\n\n```text\nlisted *\n```\n' >"$clone/Documentation/testing.md"

# This stub of plan.sh runs the jobs one after the other and continues after a failure, as make -k
# does.
cat >"$clone/tools/rig/plan.sh" <<'E2'
#!/bin/bash
[ "${*: -1}" = jobs ] || exit 0
while IFS=$'\t' read -r _ _ _ command; do eval "tools/rig/job.sh $command"; done <"$work/jobs"
E2

# In this stub of job.sh, the program of a guest is a shell script in tests/kselftest/one. Exit
# status 77 of the script means that the guest hangs, and SPLAT in the script's output stands for a
# report of the kernel.
cat >"$clone/tools/rig/job.sh" <<'E2'
#!/bin/bash
kind=$1 name=$2 rc=0
tap=$work/$name.tap
: >"$tap"
TOP=$PWD
. tools/rig/results.sh
case $kind in
cargo)
	if [ -n "${EXACT:-}" ]; then
		printf '1..1\n%s 1 crate steady\n' "$(bash tests/cargo "$EXACT" && echo ok || echo not ok)"
	else
		printf 'crate steady\tpath::steady\n' >"$work/$name.paths"
		printf '1..2\nok 1 crate other\n# it said so\n%s 2 crate steady\n' "$(bash tests/cargo "" && echo ok || echo not ok)"
	fi | collect host "$name" 0 1500 1
	;;
script)
	eval "$(grep '^ALONE=' tools/rig/lib.sh)"
	[ "$(id -u)" = 0 ] || ALONE=()
	out=$("${ALONE[@]}" bash "tests/host/$name") || rc=$?
	collect host "$name" "$rc" 120 1 <<<"$out"
	;;
guest)
	hung="" log=ok
	while read -r program limit; do
		if [ -n "$hung" ]; then
			collect stock "$program" "" "$limit" "" </dev/null
			continue
		fi
		rc=0
		out=$(bash "tests/kselftest/one/$program") || rc=$?
		[[ $out != *SPLAT* ]] || log="not ok"
		if [ $rc = 77 ]; then hung=1; collect stock "$program" "" "$limit" "" <<<"$out"; else collect stock "$program" "$rc" "$limit" 1 <<<"$out"; fi
	done <"$work/$name/list"
	one stock "rig the guest boots" ok
	one stock "rig the guest runs to its end" "$([ -z "$hung" ] && echo ok || echo not ok)" "${hung:+the guest hung}"
	one stock "rig the kernel log is clean" "$log" "$([ "$log" = ok ] || echo "BUG: a report")"
	;;
esac
: >"$work/$name.done"
E2

# test_is PATH SCRIPT: makes a stub of a test. Each run of test.sh in this file includes the seven
# stubs that the next lines make, which pass.
good='echo 1..1; echo ok 1 a result'
test_is() { printf '# SPDX\n# worlds: stock\n%s\n' "$2" >"$clone/tests/$1"; }
for name in a b c; do
	test_is "host/$name.sh" "$good"
	test_is "kselftest/one/$name.sh" "$good"
done
test_is cargo :

# once NAME: prints a shell condition that is false at its first evaluation, and true later.
once() { echo "[ -e $work/seen.$1 ] || { : >$work/seen.$1; false; }"; }
# every_other_time NAME: prints the script of a test that fails at its first, third, fifth ... run.
every_other_time() { echo "echo 1..1; if $(once "$1"); then rm $work/seen.$1; echo ok 1 it is so; else echo not ok 1 it is so; echo '#   it was not'; exit 1; fi"; }

git_is() { git -C "$clone" -c user.name=x -c user.email=x@localhost "$@" >/dev/null 2>&1; }
commit() { git_is add -A && git_is commit -m "x: a tree" --allow-empty; }
git_is init -b main
commit

# run [VARIABLE=VALUE...]: runs make test and prints its output and its status.
run() {
	rm -rf "$work"/seen.*
	(cd "$clone" && env -i PATH="$PATH" HOME="$work" PERFCOUNTERS_CACHE="$cache" "$@" tools/rig/test.sh 2>&1
	echo "status $?")
}
# ends NAME WANTED, says NAME PATTERN, says_not NAME PATTERN: check the output of the last run of
# make test.
said="" name=""
ends() { as_wanted "rig $1" "$(tail -n 2 <<<"$said" | xargs)" "$2"; }
says() { grep -qE -- "$2" <<<"$said"; result $? "rig $1" "$said"; }
says_not() { ! grep -qE -- "$2" <<<"$said"; result $? "rig $1" "$said"; }
lines() { wc -l <"$cache/$1" 2>/dev/null || echo 0; }
# remove TEST...: removes stubs of tests. Also removes the file `runs`, so that second attempts in
# earlier test runs do not count when a later test run decides whether a test is unreliable.
remove() { local t; for t; do rm "$clone/tests/$t"; done; commit; rm -f "$cache/runs"; }

plan 43
said=$(run)
ends "all tests pass: the last line has the totals, status 0" "11 passed, 0 failed status 0"
as_wanted "rig a whole run of a committed tree without a failure is in proved" \
	"$(sed -E 's/ [0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z / TIME /' "$cache/proved")" "$(git -C "$clone" rev-parse 'HEAD^{tree}') TIME test 11/0/0"
as_wanted "rig a whole run without a failure is in runs, with no second attempts" "$(cut -d' ' -f1,3-5,8 "$cache/runs")" "$(git -C "$clone" rev-parse 'HEAD^{tree}') test 11/0/0 0 -"

# Each variable of the loop below, such as ONLY or WORLDS, restricts a test run. is_whole
# (history.sh) must be false with each variable of the loop. If LONG is set, the loop also runs
# test.sh with each variable. If LONG is not set, the loop runs test.sh only with ONLY=a.
is_not_whole() { ! (cd "$clone" && env -i PATH="$PATH" TOP="$clone" CACHE="$cache" "$1" bash -c '. tools/rig/history.sh; is_whole'); }
wrong=""
for name in ONLY=a WORLDS=host KERNEL_RELEASE=7 GUEST=plain PMU=arch SMP=2 MEM=1G APPEND=quiet; do
	if [ -n "${LONG:-}" ] || [ $name = ONLY=a ]; then run "$name" >/dev/null; fi
	is_not_whole "$name" || wrong+="$name "
done
is_not_whole X=1 && wrong+="no variable"
as_wanted "rig a run that is not whole is neither in runs nor in proved" "$(lines proved) $(lines runs) $wrong" "1 1 "
echo >"$clone/new"
run >/dev/null
as_wanted "rig a run of a tree that is not committed is in runs, not in proved" "$(lines proved) $(lines runs) $(tail -n 1 "$cache/runs" | cut -d' ' -f1)" "1 2 -"
rm "$clone/new"
test_is host/d.sh "$good; echo >$clone/new"
commit
run >/dev/null
as_wanted "rig a run whose tree changes meanwhile is in runs, not in proved" "$(lines proved) $(lines runs)" "1 3"
rm -f "$clone/new"
remove host/d.sh
proved() { (cd "$clone" && env -i PATH="$PATH" HOME="$work" PERFCOUNTERS_CACHE="$cache" tools/rig/proved.sh 2>&1); }
said=$(proved)
says "make proved: names the commit and the number of commits on top" "^make test: [0-9a-f]+ x: a tree, at 2.*Z; 0 commits on top$"
says "make proved: no commit has passed make test-all" "^make test-all: no commit"
git_is commit --allow-empty -m "x: one more"
echo >"$clone/new"
commit
said=$(proved)
says "make proved: counts a commit on top" "; 1 commits on top$"

# Case: a test fails in both attempts.
test_is host/bad.sh "echo 1..1; echo not ok 1 a fault; echo '#   what it said'; exit 1"
commit
said=$(run)
ends "a test that fails twice has failed" "11 passed, 1 failed status 1"
says "a test that fails twice was run once more, alone" "^Once more, alone: host:bad.sh$"
says "a test that fails twice is shown with its diagnostics" "^ +what it said$"
as_wanted "rig a run with a failure is in runs, with its second attempt, not in proved" "$(lines proved) $(tail -n 1 "$cache/runs" | cut -d' ' -f4,8)" "1 11/1/0 host:bad.sh"
remove host/bad.sh

# Case: tests fail in the first attempt. The failing tests are a script, a program of a guest and a
# cargo test.
test_is host/moody.sh "$(every_other_time moody)"
commit
said=$(run)
ends "a test that passes at the second attempt has passed" "12 passed, 0 failed status 0"
says "a test that passes at the second attempt is listed" "^Passed at the second attempt"
says "a test that passes at the second attempt is listed with the first diagnostics" "^ +it was not$"
as_wanted "rig a run that passes by a second attempt is in runs and in proved" "$(lines proved) $(tail -n 1 "$cache/runs" | cut -d' ' -f4,8)" "2 12/0/0 host:moody.sh"
run >/dev/null
said=$(run)
ends "the third second attempt of a test in ten runs is a failure" "12 passed, 1 failed status 1"
says "the third second attempt of a test in ten runs is called unreliable" "unreliable: it needed a second attempt in 3 of the last ten whole runs"
for ((i = 0; i < 8; i++)); do echo "- 2026-01-01T00:00:00Z test 1/0/0 0 1 1% -"; done >>"$cache/runs"
said=$(run)
ends "a second attempt before the last ten runs does not count" "12 passed, 0 failed status 0"
remove host/moody.sh

test_is kselftest/one/moody.sh "$(every_other_time moody)"
commit
said=$(run)
ends "a program of a guest passes at the second attempt" "12 passed, 0 failed status 0"
remove kselftest/one/moody.sh
test_is cargo "[ \"\$1\" = path::steady ]"
commit
said=$(run)
ends "a cargo test passes at the second attempt, which selects it by its path" "11 passed, 0 failed status 0"
test_is cargo :

test_is host/moody.sh "if $(once figures); then echo 1..1; echo 'ok 1 it is so (12)'; else echo 1..1; echo 'not ok 1 it is so (0)'; exit 1; fi"
commit
said=$(run)
ends "a result with another figure in parentheses passes at the second attempt" "12 passed, 0 failed status 0"
remove host/moody.sh

# Case: a result of a test fails in the first attempt. In the second attempt, the test marks the
# failed result with # SKIP, or prints fewer results than it has planned. In both cases, the second
# attempt of the test counts as failed.
test_is host/skips.sh "if $(once skips); then echo 1..1; echo 'ok 1 it is so # SKIP no'; else echo 1..1; echo not ok 1 it is so; exit 1; fi"
commit
said=$(run)
says "a result that is skipped at the second attempt has not passed" "^11 passed, 1 failed"
remove host/skips.sh
test_is host/fewer.sh "if $(once fewer); then echo 1..2; echo 'ok 1 it is so'; else echo 1..2; echo not ok 1 it is so; echo ok 2 more; exit 1; fi"
commit
said=$(run)
says "a second attempt that prints fewer results has not passed" "^12 passed, 1 failed"
remove host/fewer.sh

# Case: the kernel of a guest reports a fault.
test_is kselftest/one/splat.sh "if $(once splat); then $good; else echo SPLAT; echo 1..1; echo not ok 1 it is so; exit 1; fi"
commit
said=$(run)
ends "a program that fails in a boot with a kernel report has failed" "10 passed, 2 failed status 1"
says_not "a program that fails in a boot with a kernel report is not run again" "^Once more"
test_is kselftest/one/splat.sh "echo SPLAT; $good"
commit
said=$(run)
ends "a kernel report is a failure even if all programs pass" "11 passed, 1 failed status 1"
test_is kselftest/one/splat.sh "if $(once splat); then echo SPLAT; $good; else echo 1..1; echo not ok 1 it is so; exit 1; fi"
commit
said=$(run)
says "a kernel report in the second attempt is a failure" "^11 passed, 1 failed"
remove kselftest/one/splat.sh

# Case: a guest hangs.
test_is kselftest/one/b.sh "if $(once hang); then $good; else exit 77; fi"
commit
said=$(run)
ends "programs that a hung guest did not finish pass in boots of their own" "11 passed, 0 failed status 0"
as_wanted "rig a guest that hung counts as one second attempt" "$(tail -n 1 "$cache/runs" | cut -d' ' -f8)" "stock:guest"
test_is kselftest/one/b.sh "exit 77"
commit
said=$(run)
says "a guest that hangs twice has failed" "^9 passed, 2 failed"
test_is kselftest/one/b.sh "$good"

# Case: two of ten tests need a second attempt. The limit for second attempts is 2 % of the tests,
# rounded up, which is one test if there are ten tests.
test_is host/moody.sh "$(every_other_time one)"
test_is host/moodier.sh "$(every_other_time two)"
commit
said=$(run)
ends "too many second attempts: the run fails" "11 passed, 3 failed status 1"
says "too many second attempts: the numbers are printed" "too many second attempts: 2 of 10 units, 0 guests; 1 units and 2 guests may need one"
says_not "too many second attempts: none is made" "^Once more"
said=$(run ONLY=moody)
ends "with ONLY= a test that fails is not run again" "0 passed, 1 failed status 1"
remove host/moody.sh host/moodier.sh

# Case: LIMIT= ends a run of tests that takes too long.
test_is host/slow.sh "echo 1..1; (sleep 4711 &); sleep 60; echo ok 1 slow"
commit
begin=$SECONDS
said=$(run LIMIT=2)
says "LIMIT=: the run ends and has a failure" "^[0-9]+ passed, [1-9][0-9]* failed$"
[ $((SECONDS - begin)) -lt 40 ]
result $? "rig LIMIT=2: the run ends within 40 seconds"
says "LIMIT=: the tests that did not run are named" "^  host: slow.sh$"
as_wanted "rig LIMIT=: background processes of a script end with it" "$(grep -lsxz "[4]711" /proc/[0-9]*/cmdline | wc -l)" 0
as_wanted "rig LIMIT=: the run is in runs with a failure, not in proved" "$(tail -n 1 "$cache/runs" | cut -d' ' -f4 | cut -d/ -f2 | grep -c '^0$') $(grep -c "$(git -C "$clone" rev-parse 'HEAD^{tree}')" "$cache/proved")" "0 0"
remove host/slow.sh

# Case: results are skipped.
test_is host/skips.sh "echo 1..2; echo 'ok 1 listed one # SKIP no'; echo 'ok 2 another # SKIP no'"
commit
said=$(run)
ends "a skip that testing.md does not list fails make test" "11 passed, 1 failed, 2 skipped status 1"
said=$(run WORLDS="host stock")
ends "a skip that testing.md does not list does not fail a run that is not whole" "11 passed, 0 failed, 2 skipped status 0"
exit $failed
