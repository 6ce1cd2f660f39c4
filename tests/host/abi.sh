#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks the headers in include/uapi. Each header compiles alone, in C and C++, and no structure has
# padding. Structures and constants are the same for 32-bit and 64-bit programs. Constants have the
# same values in C and in C++. The kernel's list of ioctl numbers must not assign a number of these
# headers to another driver. The headers are not compared with an earlier version, because no
# version has been released (Documentation/versions.md).

set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
uapi=$TOP/include/uapi
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
headers=("$uapi"/linux/*.h)

includes() { printf '#include <linux/%s>\n' "${headers[@]##*/}"; }

# layout OPTION: prints "STRUCT MEMBER OFFSET SIZE" for each member, and "STRUCT = BYTES" for each
# structure of the headers, which gcc compiles with OPTION.
layout() {
	includes | gcc-14 "$1" -g -fno-eliminate-unused-debug-types -I "$uapi" -c -x c -o "$work/o" - &&
		pahole "$work/o" | awk '/^struct [a-z_]+ [{]/ { name = $2 }
			match($0, /\/\* *[0-9]+ +[0-9]+ *\*\//) {
				split(substr($0, RSTART + 2, RLENGTH - 4), at, " ")
				member = substr($0, 1, RSTART - 1); sub(/;[ \t]*$/, "", member); sub(/.*[ \t*]/, "", member)
				print name, member, at[1], at[2]
			}
			/\/\* size: / { sub(/,/, "", $3); print name, "=", $3 }' | grep -E '^(perfcounters|perfmon|perftrace|pfarg|pfm|ppa)_'
}
# constants: prints the names of the constants: macros without arguments, and enumerators. The list
# omits PFM_DFL_SMPL_UUID, whose value is a list of numbers.
constants() {
	includes | gcc-14 -I "$uapi" -E -dM -x c - | sed -nE 's/^#define ((PERF|PFM|PPA)[A-Z_0-9]*) .+/\1/p' | grep -vx PFM_DFL_SMPL_UUID
	includes | gcc-14 -I "$uapi" -E -P -x c - | tr '\n' ' ' | grep -oE 'enum [a-z_]* *[{][^}]*' | grep -oE '\bP[A-Z0-9]+_[A-Z0-9_]+'
}
# values OPTION...: prints the name and the value of each constant, as a line of assembly. Each
# OPTION is an option of gcc; one of them selects the language (-x).
values() {
	{
		includes
		constants | sort -u | sed 's/.*/unsigned int value_&[] = { (unsigned int)(&), (unsigned int)((long long)(&) >> 32) };/'
	} | gcc-14 "$@" -I "$uapi" -fno-zero-initialized-in-bss -S -o - - | grep -E '^value_|^[[:space:]]\.(long|zero)'
}
# fewest NUMBER FILE: prints an error if FILE has fewer than NUMBER lines. Without this check, a
# failure of gcc would make both lists of a comparison empty, and the test would pass.
fewest() { [ "$(wc -l <"$work/$2")" -ge "$1" ] || echo "only $(wc -l <"$work/$2") lines were found, at least $1 are expected"; }

# compiled OPTION...: compiles each header alone, as C and as C++. Prints the messages of gcc.
compiled() {
	local header language
	for header in "${headers[@]##*/}"; do
		for language in "c -std=c99 -Wpedantic" "c -std=gnu23 -Wpedantic" "c++ -std=c++11" "c++ -std=gnu++20"; do
			# shellcheck disable=SC2086 # a language and its options
			gcc-14 "$@" -Wall -Wextra -Werror -I "$uapi" -c -o "$work/o" -x $language - <<<"#include <linux/$header>" 2>&1
		done
	done
}

plan 5
nothing "versions: each header compiles alone as C and C++, and no structure has padding" "$(compiled -Wpadded; compiled -Wpadded -m32)"
layout -m64 >"$work/64"
layout -m32 >"$work/32"
nothing "versions: structures have the same layout for 32-bit and 64-bit programs" "$(diff "$work/64" "$work/32"; fewest 350 64)"
values -x c >"$work/64"
for options in "-m32 -x c" "-x c++"; do
	# shellcheck disable=SC2086 # two words
	values $options >"$work/other"
	nothing "versions: constants have the same values with $options" "$(diff "$work/64" "$work/other"; fewest 550 64)"
done
# Path of the kernel's list of ioctl numbers. The list is a file of the complete kernel source. Only
# machines that have built a debug kernel have the complete kernel source.
others=${KTREE%/*}/source/Documentation/userspace-api/ioctl/ioctl-number.rst
# taken: prints the ioctl numbers of this project that the kernel's list assigns to other drivers.
taken() {
	local call letter range from to
	{
		includes
		sed -nE 's/^#define[ \t]+((PERFMON|PERFTRACE|PPA)_[A-Z_0-9]+)[ \t]+_IO[A-Z]*\(.*/unsigned int call_\1 = \1;/p' "${headers[@]}"
	} | gcc-14 -I "$uapi" -O1 -S -x c -o - - | awk '$1 == ".long" { print $2 }' >"$work/calls"
	[ "$(wc -l <"$work/calls")" -ge 30 ] || echo "only $(wc -l <"$work/calls") ioctl numbers were found, at least 30 are expected"
	while read -r letter range _; do
		case $letter in
		"'"?"'") printf -v letter %d "$letter" ;;
		0x[0-9A-F][0-9A-F]) letter=$((letter)) ;;
		*) continue ;;
		esac
		[ "$range" != all ] || range=00-FF
		[[ $range =~ ^[0-9A-F]{2}(-[0-9A-F]{2})?$ ]] || continue
		from=$((16#${range%-*})) to=$((16#${range#*-}))
		while read -r call; do
			[ $((call >> 8 & 255)) != "$letter" ] || [ $((call & 255)) -lt $from ] || [ $((call & 255)) -gt $to ] ||
				printf '%#x is assigned to another driver\n' $((call & 65535))
		done <"$work/calls"
	done <"$others"
}
if [ -s "$others" ]; then
	nothing "versions: no ioctl number is assigned to another driver" "$(taken)"
else
	result 0 "versions: no ioctl number is assigned to another driver # SKIP the kernel's whole source exists only where a debug kernel was built"
fi
exit $failed
