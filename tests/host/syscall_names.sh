#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Compares the names of system calls that pfc shows (tools/perftrace-reader/src/syscalls.txt) with
# the tables of the kernel. A kernel of an older series may lack system calls that pfc names.

set -u
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
source=$TOP/tools/perftrace-reader/src tables=$KTREE/arch/x86/entry/syscalls

# print_calls: prints a line "ABI NUMBER NAME" for each call in the format of syscalls.txt.
print_calls() {
	grep -v '^#' | tr ' ' '\n' | awk '/^abi:$/ { getline abi; n = 0; next }
		/:$/ { n = $1 + 0; next } NF { print abi, n++, $1 }' | sort
}

plan 2
made=$(awk -f "$source/syscalls.awk" "$tables/syscall_64.tbl" "$tables/syscall_32.tbl" | print_calls)
nothing "syscalls.txt has the calls of this kernel, with their numbers and ABIs" \
	"$(comm -23 <(echo "$made") <(print_calls <"$source/syscalls.txt"))"
as_wanted "syscalls.txt has calls of three ABIs" "$(print_calls <"$source/syscalls.txt" | cut -d' ' -f1 | uniq | xargs)" "i386 x32 x86_64"
exit $failed
