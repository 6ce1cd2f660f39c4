#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks that the fuzzers of tests/kselftest cover all ioctls of include/uapi/linux. Each ioctl
# number of perfmon.h, perftrace.h and ppa.h must be in the table of a fuzzer. Each byte of each
# ioctl's structure must belong to a field that the fuzzer describes. With the argument "tables" a
# fuzzer prints the ioctls in its table. A fuzzer also reports each structure that has a byte
# outside the fields in the table.

set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
uapi=$TOP/include/uapi
devices=(perfmon perftrace ppa)

# header_numbers HEADER: prints "NAME NUMBER" for each ioctl that a header defines.
header_numbers() {
	local name names
	names=$(sed -nE 's/^#define[ \t]+([A-Z_0-9]+)[ \t]+_IO[A-Z]*\(.*/\1/p' "$uapi/linux/$1.h")
	{
		printf '#include <stdio.h>\n#include <linux/%s.h>\nint main(void)\n{\n' "$1"
		for name in $names; do printf 'printf("%s %%u\\n", (unsigned int)%s);\n' "$name" "$name"; done
		echo 'return 0; }'
	} | gcc-14 -I "$uapi" -x c -o "$work/numbers" - && "$work/numbers"
}

# print_tables DEVICE: compiles the fuzzer of a device, and writes a list to $work/DEVICE: the name
# and the number of each ioctl that the fuzzer makes. Prints the errors of the compiler and of the
# fuzzer.
print_tables() {
	gcc-14 -std=gnu11 -O1 -Wall -Wextra -pthread -I "$uapi" -I "$TOP/include" -I "$TOP/tests/kselftest/lib" -o "$work/fuzz_$1" \
		"$TOP"/tests/kselftest/*/"fuzz_$1.c" 2>&1 || return
	"$work/fuzz_$1" tables >"$work/said" || echo "fuzz_$1 tables failed"
	grep '^#' "$work/said"
	grep -v '^#' "$work/said" | sort -u >"$work/$1"
}

plan $((2 * ${#devices[@]} + 1))
for device in "${devices[@]}"; do
	: >"$work/$device"
	nothing "9.5 fuzz_$device describes each byte of its structures" "$(print_tables "$device")"
	header_numbers "$device" >"$work/$device.calls" 2>&1
	nothing "9.5 fuzz_$device makes exactly the ioctls of $device.h" \
		"$(sort -u "$work/$device.calls" | comm -3 - "$work/$device")"
done
# If the pattern in header_numbers() matched no ioctl, the comparisons above would compare empty
# lists and pass.
nr=$(cat "$work"/*.calls | wc -l)
result "$([ "$nr" -ge 32 ]; echo $?)" "9.5 the headers define at least 32 ioctls" "$nr"
exit $failed
