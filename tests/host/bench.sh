#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# timeout: 600
#
# Counts the instructions that operations of the driver interface take. The operations run in a QEMU
# guest whose clock counts instructions (-icount). The test is the part of make bench that does not
# need the program in tools/bench.

set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
vmlinuz=$PACKAGED/usr/lib/modules/$RELEASE/vmlinuz
timeout $((500 * PATIENCE)) bash "$TOP/tests/bench/boot.sh" "$work" 1 "$vmlinuz" "$KBUILD_OUT" >"$work/log" 2>&1
tr -d '\r' <"$work/results" >"$work/lines"
sed 's/^/# /' "$work/lines"
failed=0
n=0

# cost_of OPERATION: prints the number of instructions of an operation, from the operation's line in
# the output of tests/modules/bench_main.c. The operation was measured in two series of 41
# measurements. Prints nothing if the shortest time of a series occurs in fewer than 10 measurements
# of that series.
cost_of() {
	awk -v name="$1" '$1 == name && $6 >= 10 && $7 >= 10 { print ($5 - $4) / ($3 - $2) }' "$work/lines"
}

# check NAME OPERATION TEST WANTED: compares the number of instructions of an operation with WANTED.
# TEST is an operator of awk.
check() {
	local was
	n=$((n + 1))
	was=$(cost_of "$2")
	if [ -n "$was" ] && awk -v was="$was" -v want="$4" "BEGIN { exit !(was $3 want) }"; then
		echo "ok $n $1"
	else
		failed=1
		echo "not ok $n $1"
		echo "# $2: '$was', wanted $3 $4"
	fi
}

echo "TAP version 13"
echo "1..8"
check "bench self-check: 1,000 nops take 1,000 ticks" self_check == 1000
check "0.8 executed: perf_counter_add in C takes 1 instruction" inline_add == 1
check "0.8 executed: Counter::add in Rust takes 1 instruction" rust_add == 1
check "0.15 executed: perf_adjust takes at most 24 instructions" perf_adjust "<=" 24
one=$(cost_of group_1)
check "bench a group of 2 takes 1 instruction more than a group of 1" group_2 == "$((one + 1))"
check "bench a group of 4 takes 3 instructions more than a group of 1" group_4 == "$((one + 3))"
check "bench a group of 8 takes 7 instructions more than a group of 1" group_8 == "$((one + 7))"
# A record in a backward ring may take 1 % more instructions than in a forward ring.
forward=$(cost_of ring_forward)
check "2.6 a record takes at most 1 % more instructions in a backward ring than in a forward one" ring_backward \
	"<=" "$(awk -v n="${forward:-0}" 'BEGIN { print n * 1.01 }')"
[ $failed = 0 ] || sed 's/^/# /' "$work/log" "$work/console"
exit $failed
