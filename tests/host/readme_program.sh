#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# The C programs that the documentation shows need nothing but the uapi headers, and the first
# of them is as short as promised. That they are what is shown documentation.sh says, what they do readme.c
# and documented_programs.sh.

set -u
reader=$TOP/tests/kselftest/readme/reader.c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

programs=("$TOP"/tests/kselftest/readme/*.c)
plan $((1 + ${#programs[@]}))
for program in "${programs[@]}"; do
	name=$(basename "$program" .c)
	said=$(gcc-14 -std=gnu11 -O2 -Wall -Wextra -Werror -static -I "$TOP/include/uapi" -o "$work/program" "$program" 2>&1)
	result $? "0.3 a program of the documentation ($name) compiles with the uapi headers alone, without a warning" "$said"
done
lines=$(grep -vcE '^(#include.*|/[/*].*)?$' "$reader")
[ "$lines" -le 20 ]
result $? "0.3 a reader in plain C has at most 20 lines, includes and blank ones not counted" "$lines lines"
exit $failed
