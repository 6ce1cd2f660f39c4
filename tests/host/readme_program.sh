#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Compiles the C programs of the documentation with the uapi headers only, and treats warnings as
# errors. documentation.sh compares the programs with the pages; readme.c and documented_programs.sh
# run the programs.

set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

programs=("$TOP"/tests/kselftest/pfc/readme/*.c)
plan ${#programs[@]}
for program in "${programs[@]}"; do
	name=$(basename "$program" .c)
	said=$(gcc-14 -std=gnu11 -O2 -Wall -Wextra -Werror -static -I "$TOP/include/uapi" -o "$work/program" "$program" 2>&1)
	result $? "0.3 documentation: $name.c compiles with the uapi headers alone, without a warning" "$said"
done
exit $failed
