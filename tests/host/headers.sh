#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks that every file has an SPDX line near its top and at most 600 lines. Pictures (.svg) may
# have more than 600 lines, because programs generate them.

set -u
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
# list_files: lists the files of the tree. Leaves out files that cannot have an SPDX line: the
# licence, Cargo.lock, three files in formats of Debian, and object files.
list_files() {
	cd "$TOP" && find . \( -name .git -o -name target \) -prune -o -type f ! -name LICENSE ! -name Cargo.lock ! -name '*.o' \
		! -path './tools/deb/debian/changelog.in' ! -path './tools/deb/debian/copyright' ! -path './tools/deb/debian/source/format' -print | sort
}

plan 2
nothing "every file has an SPDX line" "$(list_files | while read -r f; do head -n 20 "$f" | grep -q 'SPDX-License-Identifier: GPL-2.0' || echo "$f"; done)"
nothing "no file has more than 600 lines" "$(list_files | grep -v '[.]svg$' | while read -r f; do lines=$(wc -l <"$f"); [ "$lines" -le 600 ] || echo "$f: $lines"; done)"
exit $failed
