# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Records results while tests run: results are appended to the file $tap, and a line is printed for
# each program. job.sh and test.sh source this file.

: "${tap:?}"
ONLY=${ONLY:-}

# path_of PROGRAM: prints the path of a test program's source below $TOP.
path_of() { (cd "$TOP" && compgen -G "tests/host/$1" || compgen -G "tests/kselftest/*/$1" || compgen -G "tests/kselftest/*/$1.c"); }

# collect LABEL PROGRAM STATUS LIMIT SECONDS <KTAP: records the results of a program and prints a
# line about the program. STATUS is the exit status of the program; it is empty if the program did
# not end.
collect() {
	local out counts p f s plan word=ok
	out=$(awk -v prog="$2" -v path="${ONLY:+$(path_of "$2")}" -v rc="$3" -v limit="$4" -v only="$ONLY" -f "$TOP/tools/rig/ktap.awk")
	counts=$(tail -n 1 <<<"$out")
	read -r _ p f s plan <<<"$counts"
	{
		printf '# %s %s\n' "$1" "$2"
		sed '$d' <<<"$out"
	} >>"$tap"
	# Save the KTAP plan, because a second attempt must have the same plan as the first attempt.
	[ -z "$plan" ] || printf '%s %s\t%s\n' "$1" "$2" "$plan" >>"${tap%.tap}.plans"
	[ -z "${TIMES:-}" ] || [ -z "$5" ] || printf 'program %s %s %d\n' "$1" "${2// /_}" "$5" >>"$TIMES"
	[ -n "$ONLY" ] && [ $((p + f + s)) = 0 ] && return
	[ "$f" = 0 ] || word=FAIL
	printf '%-18s %-26s %-4s %3d passed%s%s%s\n' "$1" "$2" "$word" "$p" \
		"$([ "$f" = 0 ] || echo ", $f failed")" "$([ "$s" = 0 ] || echo ", $s skipped")" "${5:+  (${5}s)}"
}

# one LABEL NAME ok|"not ok"|skip [DIAGNOSTICS]: records a result that does not come from a test
# program but from a script of the rig. With ONLY=, records a passed or skipped result only if its
# name matches ONLY.
one() {
	[ "$3" = "not ok" ] || [ -z "$ONLY" ] || grep -qE -e "$ONLY" <<<"$2" || return 0
	{
		printf '# %s rig\n' "$1"
		case $3 in
		skip) printf 'ok - %s # SKIP %s\n' "$2" "$4" ;;
		*)
			printf '%s - %s\n' "$3" "$2"
			[ -z "${4:-}" ] || sed 's/^/#   /' <<<"$4"
			;;
		esac
	} >>"$tap"
}
