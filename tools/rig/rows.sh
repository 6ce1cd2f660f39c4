#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Prints for each row of Documentation/rows.md whether the tests prove it (make rows):
#   ID ok|FAIL|MISSING|decided (tests)
# For each program and world, the script uses the results of the last run without ONLY=. A row is ok
# if at least one test whose name begins with the row's id passed, and no such test failed in any
# world. A skipped test does not make a row ok. A row is decided if, according to rows.md, it is
# proved by other means than a test.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

list=$TOP/Documentation/rows.md
results=()
declare -A newest oldest
for f in "$LOGS"/results/*; do
	[ -e "$f" ] || continue
	read -r _ label program <"$f"
	case $program in
	*.sh) [ -e "$TOP/tests/host/$program" ] || compgen -G "$TOP/tests/kselftest/*/$program" >/dev/null || continue ;;
	*' '* | rig | loom) ;;
	*) compgen -G "$TOP/tests/kselftest/*/$program.c" >/dev/null || continue ;;
	esac
	results+=("$f")
	world=${label%%/*} at=$(date -r "$f" '+%F %H:%M')
	[[ $at < ${newest[$world]:-} ]] || newest[$world]=$at
	[[ $at > ${oldest[$world]:-9} ]] || oldest[$world]=$at
done
[ ${#results[@]} != 0 ] || die "no results of a test run without ONLY= in $LOGS/results; run make test first"
for world in host stock debug kcsan; do
	[ -z "${newest[$world]:-}" ] || say "$world: run ${oldest[$world]}$([ "${oldest[$world]}" = "${newest[$world]}" ] || echo " to ${newest[$world]}")"
done

awk -F "|" -v list="$list" '
	FILENAME != list {
		if ($0 !~ /^(not )?ok /)
			next
		bad = $0 ~ /^not ok /
		name = $0
		sub(/^(not )?ok (- |[0-9]+ )/, "", name)
		id = name
		sub(/ .*/, "", id)
		if (name ~ / # SKIP /) skipped[id]++
		else if (bad) failed[id]++
		else passed[id]++
		next
	}
	/^\| *[0-9]+\.[0-9]+ *\|/ {
		id = $2
		gsub(/ /, "", id)
		rows++
		if (failed[id]) {
			word = "FAIL"
			note = failed[id] " failed, " passed[id] + 0 " passed"
		} else if (passed[id]) {
			word = "ok"
			note = passed[id] (passed[id] == 1 ? " test" : " tests")
		} else if ($3 ~ /^ *decided:/) {
			word = "decided"
			note = "0 tests"
		} else {
			word = "MISSING"
			note = $3 ~ /^ *planned:/ ? "planned" : "0 tests"
		}
		if (skipped[id])
			note = note ", " skipped[id] " skipped"
		total[word]++
		printf "%-5s %-8s (%s)\n", id, word, note
	}
	END {
		printf "\n%d rows: %d ok, %d FAIL, %d MISSING, %d decided\n", rows,
			total["ok"], total["FAIL"], total["MISSING"], total["decided"]
	}' "${results[@]}" "$list"
