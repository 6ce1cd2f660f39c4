# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2015,SC3043
#
# Helpers for the tests of pfc doctor: they run pfc doctor with a timeout, in each of its two output
# formats, and check the outputs.

# run_doctor STATUS, run_doctor_as USER STATUS: run pfc doctor and write its outputs to the files
# text and json. In make test, the JSON output is made only for tests that set with_json. Tests that
# do not set with_json check the text only, because pfc makes both outputs from one list of checks.
with_json=${LONG:-}
run_doctor() { run_doctor_by sh "$1"; }
run_doctor_as() { run_doctor_by "su $1 -s /bin/sh" "$2"; }
run_doctor_by() { # SHELL STATUS
	$1 -c "timeout $((30 * PATIENCE)) pfc doctor" >text 2>errors
	local first=$?
	local second=$first
	rm -f json
	[ -z "$with_json" ] || { $1 -c "timeout $((30 * PATIENCE)) pfc doctor --json" >json 2>>errors; second=$?; }
	[ $first = "$2" ] && [ $second = "$2" ] && [ ! -s errors ] || { echo "status $first, with --json $second, want $2"; cat text errors; return 1; }
}
# has_finding STATE SECTION CHECK FOUND [REMEDY]: true if the outputs of pfc doctor contain a check
# with these properties. FOUND and REMEDY are extended regular expressions.
has_finding() {
	awk -v section="$2:" '/^[a-z]+:$/ { on = ($0 == section) } on' text >part
	if ! grep -A 1 -E "^$1 +$3 +.*$4" part >found; then
		echo "not said: $*"
		cat part
		return 1
	fi
	if [ -n "${5:-}" ] && ! grep -qE "^ +-> .*$5" found; then
		echo "no such remedy: $5"
		cat found
		return 1
	fi
	[ -n "$with_json" ] || return 0
	# Each check is an object in the JSON output. tr replaces each opening brace by a newline,
	# so that grep finds each check on a line of its own.
	tr '{' '\n' <json | grep -E "\"check\":\"$3\"" | grep -E "\"section\":\"$2\"" | grep -qE "\"state\":\"$1\"" || { echo "not so in the JSON: $*"; return 1; }
}
