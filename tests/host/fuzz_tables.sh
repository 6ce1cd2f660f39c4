#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# The fuzzers of tests/kselftest make every call that include/uapi/linux has: each number of the
# three headers is in the table of a fuzzer, and each byte of each structure belongs to a field
# of the fuzzer's description. The programs say so themselves when their argument is "tables".

set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
uapi=$TOP/include/uapi
devices=(perfmon perftrace ppa)

# "NAME NUMBER" of each call that a header defines.
numbers() { # HEADER
	local name names
	names=$(sed -nE 's/^#define[ \t]+([A-Z_0-9]+)[ \t]+_IO[A-Z]*\(.*/\1/p' "$uapi/linux/$1.h")
	{
		printf '#include <stdio.h>\n#include <linux/%s.h>\nint main(void)\n{\n' "$1"
		for name in $names; do printf 'printf("%s %%u\\n", (unsigned int)%s);\n' "$name" "$name"; done
		echo 'return 0; }'
	} | gcc-14 -I "$uapi" -x c -o "$work/numbers" - && "$work/numbers"
}

# What the fuzzer of a device has, in $work/DEVICE; what its compiler and it say else, shown.
tables() { # DEVICE
	gcc-14 -std=gnu11 -O1 -Wall -Wextra -pthread -I "$uapi" -I "$TOP/include" -o "$work/fuzz_$1" \
		"$TOP/tests/kselftest/fuzz_$1.c" 2>&1 || return
	"$work/fuzz_$1" tables >"$work/said" || echo "the program fails"
	grep '^#' "$work/said"
	grep -v '^#' "$work/said" | sort -u >"$work/$1"
}

plan $((2 * ${#devices[@]} + 1))
for device in "${devices[@]}"; do
	: >"$work/$device"
	nothing "9.5 fuzz_$device describes each byte of its structures" "$(tables "$device")"
	numbers "$device" >"$work/$device.calls" 2>&1
	nothing "9.5 fuzz_$device makes each call of $device.h" \
		"$(sort -u "$work/$device.calls" | comm -3 - "$work/$device")"
done
# A pattern that fits nothing any more finds no call, of which none is missing.
nr=$(cat "$work"/*.calls | wc -l)
result "$([ "$nr" -ge 32 ]; echo $?)" "9.5 the headers have as many calls as they had" "$nr"
exit $failed
