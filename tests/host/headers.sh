#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Every file says under which licence it is and what it is for, at its top; and none is so large
# that one does not see what it is about. Pictures are drawn by programs.

set -u
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
# The licence itself, what cargo writes and three of Debian's formats have no heads; objects are nobody's.
files() {
	cd "$TOP" && find . \( -name .git -o -name target \) -prune -o -type f ! -name LICENSE ! -name Cargo.lock ! -name '*.o' \
		! -path './tools/deb/debian/changelog.in' ! -path './tools/deb/debian/copyright' ! -path './tools/deb/debian/source/format' -print | sort
}
# The frozen headers are what they were.
written() { files | grep -v '^./tests/abi/'; }

# Three words at least in a comment, the file's first beside the licence, directives and includes:
# code before it, or why something is safe, is not what a file is for. Of a page, its text; of
# others, what their format has for it.
purpose() {
	case $1 in
	*.3) grep -q '^\.Nd .' "$1" ;;
	*ABI/testing/*) grep -q '^Description:' "$1" ;;
	*.json) grep -qE '"description": "SPDX[^ ]* [^ ]* [A-Za-z]+ [A-Za-z]+ [A-Za-z]' "$1" ;;
	*.md | *.patch) head -n 20 "$1" | grep -v 'SPDX\|^#' | grep -qE '[A-Za-z][^ ]* +[^ ]*[A-Za-z][^ ]* +[^ ]*[A-Za-z]' ;;
	*)
		head -n 20 "$1" | awk '
			sub(/SPDX-License-Identifier: GPL-2\.0[-a-z]*/, "") { licence = 1 }
			/^#!|shellcheck|eslint|^[ \/*#]*(timeout|worlds|guest|prepare|emulator|target): |^ *# *(include|define|if)/ || !/[A-Za-z]/ { next }
			!/^[ \t]*(\/\/|\/\*|\*|#( |$)|"""|<!--)/ { if (licence) exit; next }
			/SAFETY/ { exit }
			/[A-Za-z][^ ]* +[^ ]*[A-Za-z][^ ]* +[^ ]*[A-Za-z]/ { says = 1; exit }
			END { exit !says }'
		;;
	esac
}

plan 3
nothing "every file has an SPDX line" "$(files | while read -r f; do head -n 20 "$f" | grep -q 'SPDX-License-Identifier: GPL-2.0' || echo "$f"; done)"
nothing "every file says what it is for" "$(written | while read -r f; do purpose "$f" || echo "$f"; done)"
nothing "no file has more than 700 lines" "$(files | grep -v '[.]svg$' | while read -r f; do lines=$(wc -l <"$f"); [ "$lines" -le 700 ] || echo "$f: $lines"; done)"
exit $failed
