#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests how tools/rig/test.sh ends a run after LIMIT= seconds, and which runs it records: `runs` has a
# line for each test run that ran all tests, and `proved` has the committed trees that passed such a
# run. The jobs are stubs (lib/stub_jobs.sh).

set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
# shellcheck source=tests/host/lib/stub_jobs.sh
. "$TOP/tests/host/lib/stub_jobs.sh"

plan 47
said=$(run)
ends "all tests pass: the last line has the totals, status 0" "11 passed, 0 failed status 0"
as_wanted "rig a whole run of a committed tree without a failure is in proved" \
	"$(sed -E 's/ [0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z / TIME /' "$cache/proved")" "$(git -C "$clone" rev-parse 'HEAD^{tree}') TIME test 11/0/0"
as_wanted "rig a whole run without a failure is in runs, with no second attempts" "$(cut -d' ' -f1,3-5,8 "$cache/runs")" "$(git -C "$clone" rev-parse 'HEAD^{tree}') test 11/0/0 0 -"

# in_rig FUNCTION: runs a function of the rig in the separate repository, with the assignments of
# $environment in its environment.
# shellcheck disable=SC2086 # words
in_rig() { (cd "$clone" && env -i PATH="$PATH" HOME="$work" PERFCOUNTERS_CACHE="$cache" ${environment:-} bash -c '. tools/rig/lib.sh; . tools/rig/history.sh; '"$1"); }

# Each variable of the loop below, such as ONLY or WORLDS, restricts or changes a test run. If one
# of these variables is set, is_whole (history.sh) must be false. If LONG is set, the loop also runs
# test.sh with each variable. If LONG is not set, the loop runs test.sh only with ONLY=a.
is_not_whole() { ! environment=$1 in_rig is_whole; }
wrong=""
for name in ONLY=a WORLDS=host KERNEL_RELEASE=7 GUEST=plain PMU=arch SMP=2 MEM=1G APPEND=quiet KDIR=/x LONG= LONG=1 PATIENCE=2; do
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

# Case: the settings of git hide a change of the tree.
# hidden NAME COMMAND: changes the tree with a command. committed_tree() must see the change.
hidden() {
	(cd "$clone" && eval "$2") >/dev/null
	as_wanted "rig proved: $1 is a change" "$(in_rig committed_tree)" "- -"
	git_is update-index --no-assume-unchanged tests/cargo
	git_is update-index --no-skip-worktree tests/cargo
	git_is config --unset core.fileMode
	git_is config --unset status.showUntrackedFiles
	rm -f "$clone/fresh" "$clone/.git/info/exclude"
	git_is checkout -f
}
as_wanted "rig proved: a tree without changes" "$(in_rig committed_tree)" "$(git -C "$clone" rev-parse 'HEAD^{tree}' HEAD | xargs)"
hidden "an untracked file that status.showUntrackedFiles hides" 'echo >fresh; git config status.showUntrackedFiles no'
hidden "an untracked file that .git/info/exclude hides" 'echo >fresh; echo fresh >.git/info/exclude'
hidden "a changed file that is marked as unchanged" 'echo true >>tests/cargo; git update-index --assume-unchanged tests/cargo'
hidden "a changed file that is marked as skip-worktree" 'echo true >>tests/cargo; git update-index --skip-worktree tests/cargo'
hidden "a changed mode that core.fileMode hides" 'git config core.fileMode false; chmod +x tests/cargo'
git clone -q "$clone" "$work/other"
environment="GIT_DIR=$work/other/.git GIT_WORK_TREE=$work/other" hidden "a changed file, while GIT_DIR names another repository," 'echo true >>tests/cargo'
git clone -q "$clone" "$work/file" --separate-git-dir "$work/file.git"
as_wanted "rig proved: a repository whose .git is a file" "$(clone=$work/file in_rig committed_tree)" "$(git -C "$clone" rev-parse 'HEAD^{tree}' HEAD | xargs)"
test_is host/d.sh "$good; git -C $clone -c user.name=x -c user.email=x@localhost commit -q --allow-empty -m x"
commit
run >/dev/null
as_wanted "rig proved: a commit without changes during the run" "$(tail -n 1 "$cache/runs" | cut -d' ' -f1)" "-"
remove host/d.sh

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

# Case: the time limit LIMIT= expires after the last job has ended and before make has ended.
sed -i '$a sleep "${SLOW_END:-0}"' "$clone/tools/rig/plan.sh"
commit
said=$(run LIMIT=2 SLOW_END=30)
ends "LIMIT=: a run that did not end in time fails, although all its tests passed" "11 passed, 1 failed status 1"
test_is host/slow.sh "if $(once slow); then sleep 60; else echo 1..1; echo not ok 1 it is so; exit 1; fi"
commit
said=$(run LIMIT=5)
says "LIMIT=: a second attempt that did not end is named" "^  second attempt: host:slow.sh$"
remove host/slow.sh
said=$(run LIMIT=09 EXACT=path::steady)
ends "LIMIT=: a number may begin with 0; EXACT= of the environment selects no cargo test" "11 passed, 0 failed status 0"
said=$(run ONLY=a.sh WORLDS=host LIMIT=00 SLOW_END=2)
ends "LIMIT=: 00 is no limit" "1 passed, 0 failed status 0"
said=$(run LIMIT=10000000000)
says "LIMIT=: a number that is too large is refused" "^perfcounters: LIMIT=10000000000 is not a number of up to 9 digits"
said=$(run ONLY=a.sh WORLDS=host LOAD=08)
ends "LOAD=: a number may begin with 0" "1 passed, 0 failed status 0"

# Case: a job removes a file in which another job has written its results.
test_is host/z.sh "rm -f \$work/a.sh.tap; $good"
commit
said=$(run)
says "a job whose results were removed is named" "the job a.sh ran to its end"
remove host/z.sh

# Case: results are skipped.
test_is host/skips.sh "echo 1..2; echo 'ok 1 listed one # SKIP no'; echo 'ok 2 another # SKIP no'"
commit
said=$(run)
ends "a skip that testing.md does not list fails make test" "11 passed, 1 failed, 2 skipped status 1"
said=$(run WORLDS="host stock")
ends "a skip that testing.md does not list does not fail a run that is not whole" "11 passed, 0 failed, 2 skipped status 0"
test_is host/skips.sh "echo 1..1; echo 'ok 1 listed two # SKIP no'"
commit
said=$(run)
ends "a skip that testing.md lists for another guest fails make test" "11 passed, 1 failed, 1 skipped status 1"
remove host/skips.sh

# Case: the comment at the top of a test has a word that is misspelt, so that the test would not run.
misspelt() {
	printf '# SPDX\n# %s\n%s\n' "$1" "$good" >"$clone/tests/kselftest/one/x.sh"
	commit
	said=$(run)
	says "misspelt: $1" "^perfcounters: tests/kselftest/one/x.sh: .*$2"
	says "misspelt: $1: the run fails" "^status 1$"
	remove kselftest/one/x.sh
}
misspelt "worlds: stok" "unknown world 'stok'"
misspelt "world: stock" "unknown key 'world'"
misspelt "gate: plian" "'plian' is not one of the guests"
misspelt "target: test_all" "unknown target 'test_all'"
misspelt "guest: plian" "unknown guest 'plian'"
misspelt "symbols: keep" "unknown value 'keep'"
misspelt "timeout: ten" "timeout"
exit $failed
