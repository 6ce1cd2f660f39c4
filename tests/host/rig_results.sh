#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests how the scripts of tools/rig read the output of test programs, cargo and guests: results in
# KTAP (ktap.awk), the output of cargo test (cargo.awk), and the console and the results of a guest
# (guest.sh). Output that is wrong or incomplete must count as a failure.

# shellcheck disable=SC2034,SC2154,SC2317,SC2329 # guest.sh uses the variables and the functions
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
rig=$TOP/tools/rig

# counts_of STATUS KTAP: prints the failures that ktap.awk itself records for a program, and the
# numbers of results that passed, failed and were skipped. STATUS is the exit status of the program.
counts_of() {
	printf '%b\n' "$2" | awk -v prog=p -v rc="$1" -v limit=9 -v only="" -f "$rig/ktap.awk" |
		sed -nE 's/^not ok - rig p (.*)/\1;/p; s/^= ([0-9]+ [0-9]+ [0-9]+).*/\1/p' | paste -sd' '
}
plan 39
n_of() { as_wanted "rig KTAP: $1" "$(counts_of "$2" "$3")" "$4"; }
n_of "results that pass, fail and are skipped are counted" 1 '1..3\nok 1 a\nnot ok 2 b\nok 3 c # SKIP why' "1 1 1"
n_of "a program that skips all of its results" 4 '1..0 # SKIP why' "0 0 1"
n_of "exit status 4 of a program that skipped each result" 4 '1..1\nok 1 a # SKIP why' "0 0 1"
n_of "exit status 4 after a result that passed is a failure" 4 '1..2\nok 1 a\nok 2 b # SKIP why' "ended with status 4; 1 1 1"
n_of "a program that fails without a failed result" 1 '1..1\nok 1 a' "ended with status 1; 1 1 0"
n_of "a program that was killed by its time limit" 137 '1..1\nok 1 a' "was killed after its 9 s; 1 1 0"
n_of "no plan" 0 'ok 1 a' "printed no plan (1..N); 1 1 0"
n_of "fewer results than planned" 0 '1..2\nok 1 a' "planned 2 results and printed 1; 1 1 0"
n_of "a second plan is a failure" 0 '1..5\nok 1 a\n1..1' "printed more than one plan; 1 1 0"
n_of "a number that occurs twice is a failure" 0 '1..3\nok 1 a\nok 2 b\nok 2 c' "printed result 2 twice; 3 1 0"
n_of "a number that is greater than the plan is a failure" 0 '1..2\nok 1 a\nok 3 b' "printed result 3 of 2; 2 1 0"
n_of "results without numbers" 0 '1..2\nok - a\nok b' "2 0 0"
n_of "Bail out! is a failure" 0 '1..1\nBail out! no device\nok 1 a' "bailed out: no device; 1 1 0"
n_of "a result without a name is a failure" 1 '1..2\nok 1 a\nnot ok' "1 1 0"
n_of "a tab separates words too" 1 '1..2\nok 1 a\nnot ok\t2 b' "1 1 0"
n_of "the directive SKIP with a colon is a skip" 0 '1..2\nok 1 a # SKIP: why\nok 2 b # skip - why' "0 0 2"
n_of "the directive SKIPPED is a skip" 0 '1..1\nok 1 a # SKIPPED why' "0 0 1"
n_of "the word skip in a name is not a skip" 0 '1..1\nok 1 a skip of b' "1 0 0"

# only_of ONLY: prints the results of the program module_unload that a run with ONLY= records.
only_of() {
	local tap=$work/only.tap ONLY=$1
	: >"$tap"
	# shellcheck source=tools/rig/results.sh
	. "$rig/results.sh"
	collect stock module_unload 1 9 1 >/dev/null <<<$'1..2\nok 1 0.1 a\nnot ok 2 0.10 b'
	grep -E '^(ok|not ok) ' "$tap" | paste -sd';'
}
both='ok - 0.1 a;not ok - 0.10 b'
for only in module_unload kselftest/modules/ module_unload.c; do
	as_wanted "rig ONLY=$only: all results of a program whose name or path matches are recorded" "$(only_of "$only")" "$both"
done
as_wanted "rig ONLY=0.10: only results of this row are recorded" "$(only_of 0.10)" "not ok - 0.10 b"

# cargo_of STATUS OUTPUT: prints the results that cargo.awk and ktap.awk make from the output of
# cargo test.
cargo_of() {
	printf '%b\n' "$2" | awk -v paths="$work/paths" -f "$rig/cargo.awk" | awk -v prog=c -v rc="$1" -v limit=9 -v only="" -f "$rig/ktap.awk" | grep -vE '^(=|#)' | paste -sd';'
}
cargo_is() { as_wanted "rig cargo: $1" "$(cargo_of "$2" "$3")" "$4"; }
running='     Running unittests src/lib.rs (target/debug/deps/'
cargo_is "results of two test binaries" 0 "${running}one-1a)\nrunning 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n${running}two-1b)\nrunning 1 test\ntest tests::r1_2_it_is ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out" \
	"ok - one a;ok - 1.2 it is"
cargo_is "a test binary that died beside another test that failed" 0 "${running}one-1a)\nrunning 2 tests\ntest a ... ok\nerror: test failed\n\nCaused by:\n  (signal: 11, SIGSEGV: invalid memory reference)\n${running}two-1b)\nrunning 1 test\ntest b ... FAILED\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out" \
	"ok - one a;not ok - two b;not ok - rig the tests of one ran to their end"
cargo_is "a last test binary that died" 0 "${running}one-1a)\nrunning 1 test\ntest a ... FAILED\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n   Doc-tests two\nrunning 1 test" \
	"not ok - one a;not ok - rig the tests of two ran to their end"
cargo_is "a result that the output of a test hides" 0 "${running}one-1a)\nrunning 2 tests\ntest a ... ok\nprinted by b test b ... FAILED\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out" \
	"ok - one a;not ok - rig the tests of one printed all results"
cargo_of 0 "${running}one-1a)\ntest tests::r1_2_x ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored;\n${running}two-1a)\ntest other::r1_2_x ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored;" >/dev/null
as_wanted "rig cargo: two tests of one name are both in the list for second attempts" "$(cat "$work/paths")" $'1.2 x\ttests::r1_2_x\n1.2 x\tother::r1_2_x'

# Tests of the functions of guest.sh. A case is the text of the guest's console, or the lines that
# the guest writes about its programs.
export PATIENCE=1 tap=/dev/null
# shellcheck source=tools/rig/guest.sh
. "$rig/guest.sh"
report_in() { printf '%b\n' "$1" >"$work/console"; reports "$work/console" | paste -sd'|'; }
injected='[ 1.0] FAULT_INJECTION: forcing a failure.\n[ 1.0] name failslab, interval 1\n[ 1.0] CPU: 0 PID: 7 Comm: x\n[ 1.0] Call Trace:\n[ 1.0]  <TASK>\n[ 1.0]  dump_stack_lvl+0x5d\n[ 1.0]  </TASK>'
as_wanted "rig console: the stack trace of an injected failure is not a report" "$(report_in "[ 1.0] ### p\n$injected\n[ 1.1] ### q")" ""
for line in 'general protection fault, maybe for address 1' 'list_del corruption. prev->next should be 1' 'x is trying: possible circular locking dependency detected' 'Oops: 0002 [#1]' 'BUG: KASAN: slab-out-of-bounds'; do
	wrong=""
	[ "$(report_in "[ 1.0] ### p\n$injected\n[ 1.1] $line")" = "during p:|[ 1.1] $line" ] || wrong+="after it;"
	[ "$(report_in "[ 1.0] ### p\n${injected/Call Trace/$line\\n[ 1.0] Call Trace}")" != "" ] || wrong+="within it;"
	nothing "rig console: '${line%%[,:.]*}' next to an injected failure is a report" "$wrong"
done

# follow_lines LINES: prints what follow() records for a guest that writes LINES. The list of
# the guest has the programs x and y.
follow_lines() {
	(
		mkdir -p "$work/guest"
		printf 'x 5\ny 5\n' >"$work/guest/list"
		: >"$work/guest/console"
		printf '%b\n' "$1" >"$work/guest/results"
		one() { [[ $2 != "rig the guest runs to its end" ]] || printf 'end %s;' "$3"; }
		collect() { printf '%s %s: %s;' "$2" "$3" "$(paste -sd'|')"; }
		sleep 1 &
		follow $! stock plain "$work/guest" 9
	) 2>&1
}
as_wanted "rig guest: two programs and the end" \
	"$(follow_lines '# up 1\n# begin x 5\nout\n# end x 0 1\n# begin y 5\n# end y 0 1\n# up 2\n# done 0')" \
	"x 0: out;y 0: ;end ok;"
as_wanted "rig guest: a program that prints the guest's last line, in a guest that dies at its end" \
	"$(follow_lines '# up 1\n# begin x 5\n# done 0\n# end x 0 1\n# begin y 5\n# end y 0 1')" "x 0: # done 0;y 0: ;end not ok;"
as_wanted "rig guest: a program that prints the line for a repeated boot" \
	"$(follow_lines '# up 1\n# begin x 5\n# again\n# end x 0 1\n# begin y 5\n# end y 0 1\n# up 2\n# done 0')" \
	"x 0: # again;y 0: ;end ok;"

# boots_of_guest LINES: calls is_repeated() of vm.sh for a guest that has written LINES. Prints
# "twice" if is_repeated() is true at its first two calls, and "three times" if it is true at the
# next call, too.
boots_of_guest() {
	(
		results=$work/vm.results boots=0 lines=$1
		eval "$(sed -n '/^is_repeated() {/,/^}/p' "$rig/vm.sh")"
		printf '%b\n' "$lines" >"$results"
		rm -f "$results.again"
		is_repeated && is_repeated && echo "twice"
		is_repeated && echo "three times"
	)
}
as_wanted "rig guest: a stopped timer before the first program repeats the boot, at most twice" "$(boots_of_guest '# again: the timer of CPU 1 has stopped')" "twice"
as_wanted "rig guest: a line # again after the first program repeats no boot" "$(boots_of_guest '# up 1\n# begin x 5\n# again: x')" ""

# console_of_two_boots: prints the console of a guest that was booted twice. A stub of boot() opens
# the files of the serial lines as QEMU does.
console_of_two_boots() {
	(
		mkdir -p "$work/twice" && : >"$work/twice/list"
		orders=$work/twice boot=0
		eval "$(sed -n '/^tests() {/,/^}/p' "$rig/vm.sh")"
		boot() {
			local argument path first=1
			for argument; do
				path=${argument#*file[:,]} path=${path#*path=}
				case $argument in
				file:*) echo "boot $boot" >"$path" ;;
				file,*append=on*) echo "boot $boot" >>"${path%%,*}" ;;
				esac
			done
		}
		cp() { :; }
		order() { :; }
		for boot in 1 2; do tests "$work/twice"; done
		paste -sd' ' "$work/twice/console" "$work/twice/results"
	)
}
as_wanted "rig guest: a repeated boot keeps the console of the boot before, and not its results" "$(console_of_two_boots)" $'boot 1 boot 2\nboot 2'
exit $failed
