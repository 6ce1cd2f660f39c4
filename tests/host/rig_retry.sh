#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests how tools/rig/test.sh repeats failed tests, with stub jobs (lib/stub_jobs.sh).

set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
# shellcheck source=tests/host/lib/stub_jobs.sh
. "$TOP/tests/host/lib/stub_jobs.sh"

plan 36
# Case: a test fails in both attempts.
test_is host/bad.sh "echo 1..1; echo not ok 1 a fault; echo '#   what it said'; exit 1"
commit
said=$(run)
ends "a test that fails twice has failed" "11 passed, 1 failed status 1"
says "a test that fails twice was run once more, alone" "^Once more, alone: host:bad.sh$"
says "a test that fails twice is shown with its diagnostics" "^ +what it said$"
as_wanted "rig a run with a failure is in runs, with its second attempt, not in proved" "$(lines proved) $(tail -n 1 "$cache/runs" | cut -d' ' -f4,8)" "0 11/1/0 host:bad.sh"
remove host/bad.sh

# Case: tests fail in the first attempt. The failing tests are a script, a program of a guest and a
# cargo test.
test_is host/moody.sh "$(every_other_time moody)"
commit
said=$(run)
ends "a test that passes at the second attempt has passed" "12 passed, 0 failed status 0"
says "a test that passes at the second attempt is listed" "^Passed at the second attempt"
says "a test that passes at the second attempt is listed with the first diagnostics" "^ +it was not$"
as_wanted "rig a run that passes by a second attempt is in runs and in proved" "$(lines proved) $(tail -n 1 "$cache/runs" | cut -d' ' -f4,8)" "1 12/0/0 host:moody.sh"
echo "- 2026-01-01T00:00:00Z test-all 1/0/0 0 1 1% stock:x,host:moody.sh" >>"$cache/runs"
said=$(run)
ends "the third second attempt of a test in ten runs is a failure" "12 passed, 1 failed status 1"
says "the third second attempt of a test in ten runs is called unreliable" "unreliable: it needed a second attempt in 3 of the last ten whole runs"
for ((i = 0; i < 8; i++)); do echo "- 2026-01-01T00:00:00Z test-debug 1/0/0 0 1 1% -"; done >>"$cache/runs"
for ((i = 0; i < 8; i++)); do echo; done >>"$cache/runs"
said=$(run)
says "empty lines and runs of make test-debug are no runs of make test" "unreliable: it needed a second attempt in 4 of the last ten whole runs"
for ((i = 0; i < 8; i++)); do echo "- 2026-01-01T00:00:00Z test 1/0/0 0 1 1% -"; done >>"$cache/runs"
said=$(run)
ends "a second attempt before the last ten runs does not count" "12 passed, 0 failed status 0"
remove host/moody.sh

test_is host/moo,dy.sh "$(every_other_time moody)"
commit
for ((i = 0; i < 2; i++)); do echo "- 2026-01-01T00:00:00Z test 1/0/0 0 1 1% host:moo_dy.sh"; done >"$cache/runs"
said=$(run)
says "a test with a comma in its name can be unreliable" "unreliable: it needed a second attempt in 3 of"
remove host/moo,dy.sh
test_is kselftest/one/moody.sh "$(every_other_time moody)"
commit
said=$(run)
ends "a program of a guest passes at the second attempt" "12 passed, 0 failed status 0"
remove kselftest/one/moody.sh
test_is cargo "[ -n \"\$1\" ]"
commit
said=$(run)
ends "a cargo test passes at the second attempt, which selects it by its path" "11 passed, 0 failed status 0"
test_is cargo "[ \"\$1\" = path::again ]"
commit
said=$(run TWO=again)
ends "of two cargo tests of one name, one of which fails twice, none has passed" "10 passed, 2 failed status 1"
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

# Case: the results of the second attempt differ from those of the first attempt, although none of
# them fails.
# compare FIRST SECOND: prints "passed" if the second attempt of a test has passed. The test prints
# the KTAP FIRST at its first attempt, and SECOND at its second attempt.
compare() {
	(
		work=$work/compare CACHE=$cache make=test tap=x
		rm -rf "$work"
		mkdir -p "$work/second"
		printf '1\tx.sh\t\tscript x.sh\n' >"$work/jobs"
		# shellcheck source=tools/rig/results.sh
		. "$TOP/tools/rig/results.sh"
		# shellcheck source=tools/rig/retry.sh
		. "$TOP/tools/rig/retry.sh"
		tap=$work/x.sh.tap
		printf '%b' "$1" | collect host x.sh 1 120 1 >/dev/null
		tap=$work/second/x.sh.tap
		printf '%b' "$2" | collect host x.sh 0 120 1 >/dev/null
		: >"$work/second/x.sh.done"
		! passed "$work/second" x.sh host x.sh || echo passed
	)
}
as_wanted "rig a second attempt with the same results has passed" "$(compare '1..2\nnot ok 1 a (1 of 2)\nok 2 b # SKIP no\n' '1..2\nok 1 a (2 of 2)\nok 2 b # SKIP no\n')" passed
differs() { as_wanted "rig $1" "$(compare "$2" "$3")" ""; }
differs "a second attempt with a smaller plan has not passed" '1..3\nnot ok 1 a\nok 2 b\nok 3 c\n' '1..1\nok 1 a\n'
differs "a second attempt with another plan than a test that died has not passed" '1..3\nok 1 a\n' '1..1\nok 1 b\n'
differs "a second attempt that skips a result that passed has not passed" '1..2\nnot ok 1 a\nok 2 listed b\n' '1..2\nok 1 a\nok 2 listed b # SKIP no\n'
differs "a second attempt with another word in parentheses has not passed" '1..2\nnot ok 1 a (forward)\nok 2 b\n' '1..2\nok 1 a (backward)\nok 2 b\n'
differs "a second attempt with one of two figures has not passed" '1..2\nnot ok 1 a (2 CPUs)\nok 2 a (4 CPUs)\n' '1..2\nok 1 a (4 CPUs)\nok 2 b\n'

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
exit $failed
