#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Every file says under which licence it is and what it is for, at its top; and none is so large
# that one does not see what it is about.

set -u
n=0 failed=0
check() { # check NAME WRONG
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n $1"
	else
		failed=1
		sed 's/^/# /' <<<"$2"
		echo "not ok $n $1"
	fi
}
# The licence itself and what cargo writes have no heads; objects are nobody's.
files() {
	cd "$TOP" && find . \( -name .git -o -name target \) -prune -o -type f ! -name LICENSE ! -name Cargo.lock ! -name '*.o' -print | sort
}
# The frozen headers are what they were.
written() { files | grep -v '^./tests/abi/'; }

# Three words at least in a comment, a title, a manual's NAME, or of a page's text, near the top.
purpose() {
	local lead='^[ \t]*(//[!/]?|/\*+|\*|#|<!--|<title>|\.\\"|"""|What:|Description:)[ \t]*'
	case $1 in *.md) lead='^' ;; *.3) grep -q '^\.Nd .' "$1"; return ;;  esac
	case $1 in *ABI/testing/*) grep -q '^Description:' "$1"; return ;; *.patch) lead='^' ;; esac
	head -n 20 "$1" | grep -v 'SPDX\|shellcheck\|^#!\|^ *# *\(include\|define\|if\)' |
		grep -qE "${lead}[^ ]*[A-Za-z][^ ]* +[^ ]*[A-Za-z][^ ]* +[^ ]*[A-Za-z]"
}

echo "TAP version 13"
echo "1..2"
check "every file has an SPDX line" "$(files | while read -r f; do head -n 20 "$f" | grep -q 'SPDX-License-Identifier: GPL-2.0' || echo "$f"; done)"
check "every file says what it is for" "$(written | while read -r f; do purpose "$f" || echo "$f"; done)"
exit $failed
