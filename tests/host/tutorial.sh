#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Documentation/pmu-tutorial.md shows the very module and program that
# tests/kselftest/perfmon_scripted.c runs, the module is as short as promised, and
# it is built out of the tree as the tutorial says.

# shellcheck disable=SC2001 # a here-string has several lines
set -u
doc=$TOP/Documentation/pmu-tutorial.md
module=$TOP/tests/modules/tutorial_pmu.c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
n=0

check() { # check STATUS NAME DIAGNOSTICS
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n $2"
	else
		failed=1
		echo "not ok $n $2"
		sed 's/^/# /' <<<"$3"
	fi
}

# shown LANGUAGE N: the Nth block of that language.
shown() {
	awk -v begin="\`\`\`$1" -v n="$2" '$0 == "```" { on = 0 } on; $0 == begin { on = ++seen == n }' "$doc"
}

echo "TAP version 13"
echo "1..5"
said=$(diff <(shown c 1) "$module")
check $? "1.1 the tutorial shows the module that is tested" "$said"
# Comments go first: a line that has nothing else is none.
lines=$(gcc-14 -fpreprocessed -dD -E -P "$module" | grep -c .)
[ "$lines" -le 60 ] && [ "$lines" -gt 30 ]
check $? "1.1 the tutorial's module has at most 60 lines, comments and blank ones not counted" "$lines lines"
said=$(diff <(shown c 2) "$TOP/tests/kselftest/readme/ticks.c")
check $? "1.1 the tutorial shows the program that is tested" "$said"
said=$(gcc-14 -std=gnu11 -Wall -Wextra -Werror -I "$TOP/include/uapi" -o "$work/ticks" "$TOP/tests/kselftest/readme/ticks.c" 2>&1)
check $? "1.1 the tutorial's program compiles with the uapi header alone, without a warning" "$said"
mkdir "$work/pmu"
cp "$module" "$work/pmu/"
shown make 1 | sed "s#/usr/local/include/perfcounters-driver#$TOP/include#" >"$work/pmu/Kbuild"
said=$(make -C "$KTREE" CC=gcc-14 "M=$work/pmu" "KBUILD_EXTRA_SYMBOLS=$KBUILD_OUT/Module.symvers" modules 2>&1) &&
	[ -e "$work/pmu/tutorial_pmu.ko" ] && ! grep -i warning <<<"$said"
check $? "1.1 the tutorial's module is built out of the tree, without a warning" "$said"
exit $failed
