#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# The C program in README.md is the one that tests/kselftest/readme.c runs, it
# is as short as promised, and it needs nothing but the uapi header.

# shellcheck disable=SC2001 # a here-string has several lines
set -u
reader=$TOP/tests/kselftest/readme/reader.c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

plan 3
said=$(gcc-14 -std=gnu11 -Wall -Wextra -Werror -static -I "$TOP/include/uapi" -o "$work/reader" "$reader" 2>&1)
result $? "0.3 a reader in plain C compiles with the uapi header alone, without a warning" "$said"
lines=$(grep -vcE '^(#include.*)?$' "$reader")
[ "$lines" -le 20 ]
result $? "0.3 a reader in plain C has at most 20 lines, includes and blank ones not counted" "$lines lines"
if [ -e "$TOP/README.md" ]; then
	awk '/^```c$/ && !seen { on = seen = 1; next } /^```$/ { on = 0 } on' "$TOP/README.md" >"$work/shown.c"
	said=$(diff "$work/shown.c" "$reader")
	result $? "0.3 README.md shows that very program" "$said"
else
	n=$((n + 1))
	echo "ok $n 0.3 README.md shows that very program # SKIP there is no README.md yet"
fi
exit $failed
