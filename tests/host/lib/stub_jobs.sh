# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034 # for scripts that source it
#
# Runs tools/rig/test.sh with stub jobs, for the tests rig_retry.sh and rig_runs.sh in tests/host. In
# these tests, test.sh runs in a separate repository ($clone) with a separate cache ($cache). A stub
# of a test is a shell script that prints KTAP.

: "${work:?}" "${TOP:?}"

clone=$work/project cache=$work/cache
mkdir -p "$clone"/tools/rig "$clone"/tests/{host,kselftest/one,vm} "$clone"/Documentation "$cache"
cp "$TOP"/tools/rig/*.{sh,awk,mk} "$TOP/tools/rig/kernels" "$clone/tools/rig/"
cp "$TOP/tests/vm/guests" "$clone/tests/vm/"
# shellcheck disable=SC2016 # the page's own quotes
printf 'Skipped in `make test`:\n\n```text\nhost listed one\nstock/* listed two\nhost listed b\n```\n' >"$clone/Documentation/testing.md"

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
		IFS=$'\t' read -ra paths <<<"$EXACT"
		echo "1..${#paths[@]}"
		for path in "${paths[@]}"; do echo "$(bash tests/cargo "$path" && echo ok || echo not ok) crate steady"; done
	else
		printf 'crate steady\tpath::%s\n' steady ${TWO:-} >"$work/$name.paths"
		printf '1..%d\nok crate other\n# it said so\n' $((2 ${TWO:++ 1}))
		for path in steady ${TWO:-}; do echo "$(bash tests/cargo "" && echo ok || echo not ok) crate steady"; done
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

# test_is PATH SCRIPT: makes a stub of a test. The next lines make seven stubs that pass. Runs of
# test.sh include these stubs.
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
lines() { cat "$cache/$1" 2>/dev/null | wc -l; }
# remove TEST...: removes stubs of tests. Also removes the file `runs`, in which test.sh records the
# tests that needed a second attempt in earlier runs.
remove() { local t; for t; do rm "$clone/tests/$t"; done; commit; rm -f "$cache/runs"; }

