#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Prints the last commit of main whose tree has passed `make test` on this machine, and the last
# commit whose tree has passed `make test-all` (make proved). Also prints the number of commits that
# follow each of the two. Of a merge, the script follows only the first parent. A tree that has
# passed make test-all counts as having passed make test. The script fails if no commit has passed
# make test, or if no commit has passed make test-all.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

git -C "$TOP" rev-parse -q --verify main >/dev/null || die "this repository has no branch main"
status=0
for target in test test-all; do
	git -C "$TOP" log --first-parent --format='%T %h %s' main | awk -v target="$target" '
		FILENAME != "-" { if ($3 == target || $3 == "test-all") proved[$1] = $2; next }
		# Read all lines: an early exit would end git log by SIGPIPE.
		found { next }
		$1 in proved { time = proved[$1]; sub(/^[^ ]* /, ""); printf "make %s: %s, at %s; %d commits on top\n", target, $0, time, n + 0; found = 1; next }
		{ n++ }
		END { if (!found) { printf "make %s: no commit of main has passed it on this machine\n", target; exit 1 } }' "$(
		[ -e "$CACHE/proved" ] || : >>"$CACHE/proved"
		echo "$CACHE/proved"
	)" - || status=1
done
exit $status
