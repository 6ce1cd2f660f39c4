# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034 # for scripts that source it
#
# Functions that print KTAP for the tests in tests/host. A test ends with `exit $failed`.

n=0 failed=0

# plan TESTS: prints the header of KTAP, which announces TESTS results.
plan() {
	echo "TAP version 13"
	echo "1..$1"
}

# result STATUS NAME [DIAGNOSTICS]: prints a result, which passes if STATUS is 0. If the result
# fails, up to 40 lines of DIAGNOSTICS are printed.
result() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n $2"
	else
		failed=1
		[ -z "${3:-}" ] || head -n 40 <<<"$3" | sed 's/^/# /'
		echo "not ok $n $2"
	fi
}

# as_wanted NAME GOT WANTED: passes if GOT and WANTED are equal, and prints their difference if not.
as_wanted() {
	result "$([ "$2" = "$3" ]; echo $?)" "$1" "$(diff <(echo "$3") <(echo "$2"))"
}

# nothing NAME WRONG: passes if WRONG, a list of errors, is empty.
nothing() {
	[ -z "$2" ]
	result $? "$1" "$2"
}

# check NAME COMMAND...: passes if the command succeeds. Prints up to 20 lines of the command's
# output, which is kept in $work/said.
check() {
	local name=$1 status=0
	shift
	"$@" >"${work:?}/said" 2>&1 || status=$?
	head -n 20 "$work/said" | cut -c1-300 | sed 's/^/# /'
	result "$status" "$name"
}
