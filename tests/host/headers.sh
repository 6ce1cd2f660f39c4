#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Every file says under which licence it is and what it is for, at its top; and none is so large
# that one does not see what it is about.

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

# Three words at least in a comment, a title, a manual's NAME, or of a page's text, near the top.
purpose() {
	local lead='^[ \t]*(//[!/]?|/\*+|\*|#|<!--|<title>|\.\\"|"""|What:|Description:|"description": "SPDX[^ ]* [^ ]*)[ \t]*'
	case $1 in *.md) lead='^' ;; *.3) grep -q '^\.Nd .' "$1"; return ;;  esac
	case $1 in *ABI/testing/*) grep -q '^Description:' "$1"; return ;; *.patch) lead='^' ;; esac
	head -n 20 "$1" | grep -v '^.\{0,8\}SPDX\|shellcheck\|^#!\|^ *# *\(include\|define\|if\)' |
		grep -qE "${lead}[^ ]*[A-Za-z][^ ]* +[^ ]*[A-Za-z][^ ]* +[^ ]*[A-Za-z]"
}

plan 2
nothing "every file has an SPDX line" "$(files | while read -r f; do head -n 20 "$f" | grep -q 'SPDX-License-Identifier: GPL-2.0' || echo "$f"; done)"
nothing "every file says what it is for" "$(written | while read -r f; do purpose "$f" || echo "$f"; done)"
exit $failed
