#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks that the interfaces keep the promises of Documentation/versions.md. The headers of version
# 1 (tests/abi/1) are compared with the present ones. Programs of version 1 are compiled with the
# present headers, and present programs with those of version 1.

set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
old=$TOP/tests/abi/1 new=$TOP/include/uapi
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
headers=("$old"/include/linux/*.h)
programs=("$old"/examples/*.c) todays=()
for program in "${programs[@]}"; do todays+=("$TOP/tests/kselftest/readme/${program##*/}"); done

includes() { printf '#include <linux/%s>\n' "${headers[@]##*/}"; }

# layout INCLUDE: prints "STRUCT MEMBER OFFSET SIZE" for each member, and "STRUCT = BYTES" for each
# structure of the headers.
layout() {
	includes | gcc-14 -g -fno-eliminate-unused-debug-types -I "$1" -c -x c -o "$work/o" - &&
		pahole "$work/o" | awk '/^struct [a-z_]+ [{]/ { name = $2 }
			match($0, /\/\* *[0-9]+ +[0-9]+ *\*\//) {
				split(substr($0, RSTART + 2, RLENGTH - 4), at, " ")
				member = substr($0, 1, RSTART - 1); sub(/;[ \t]*$/, "", member); sub(/.*[ \t*]/, "", member)
				print name, member, at[1], at[2]
			}
			/\/\* size: / { sub(/,/, "", $3); print name, "=", $3 }' | grep -E '^(perfcounters|perfmon|perftrace|pfarg|pfm|ppa)_'
}
# macros INCLUDE: prints "NAME TEXT" for each macro of the headers.
macros() { includes | gcc-14 -I "$1" -E -dM -x c - | grep -E '^#define (PERF|PFM|PPA)' | sed 's/^#define //' | grep -v '^[A-Z_0-9]*_H *$' | sort; }
# enums NAMES VALUES: prints "NAME VALUE" for each enumerator. The names are those of the include
# directory NAMES, the values those of VALUES.
enums() {
	{
		includes
		echo '#include <stdio.h>'
		echo 'int main(void) {'
		includes | gcc-14 -I "$1" -E -P -x c - | tr '\n' ' ' | grep -oE 'enum [a-z_]* *[{][^}]*' | grep -oE '\bP[A-Z0-9]+_[A-Z0-9_]+' |
			sort -u | sed 's/.*/printf("& %d\\n", (int)&);/'
		echo 'return 0; }'
	} | gcc-14 -I "$2" -x c -o "$work/enums" - && "$work/enums"
}

# fewest NUMBER PATTERN: adds a line that will be reported if fewer than NUMBER lines of $work/old
# match. Otherwise a compiler that fails would leave nothing to compare, and the test would pass.
fewest() { [ "$(grep -cE "$2" "$work/old")" -ge "$1" ] || echo "fewer than $1 lines about version 1 were found" >>"$work/old"; }

plan "$((5 + ${#programs[@]} + ${#todays[@]}))"
layout "$old/include" >"$work/old"
layout "$new" >"$work/new"
fewest 350 .
# Reserved fields are left out: a later version may use them under other names. Their room must
# stay, as all other members are compared with their offsets.
nothing "versions: every structure member of version 1 has the same offset and size" \
	"$(grep -v ' = ' "$work/old" | sed -E 's/ reserved[0-9a-z_]*(\[[0-9]*\])? / reserved /' | grep -v ' reserved ' | grep -vxFf "$work/new")"
nothing "versions: only structures with a size member have grown since version 1" \
	"$(awk 'NR == FNR { if ($2 == "=") size[$1] = $3; if ($2 ~ /^(size|desc_size|min_size)$/) says[$1] = 1; next }
		$2 == "=" && $1 in size && size[$1] != $3 && (size[$1] > $3 || !says[$1]) && $1 != "perfcounters_desc" { print $1, "was", size[$1], "and is", $3 }' "$work/old" "$work/new")"
macros "$old/include" >"$work/old"
fewest 150 '^[A-Z]'
nothing "versions: every macro of version 1 has the same text" "$(grep -vxFf <(macros "$new") "$work/old")"
enums "$old/include" "$old/include" >"$work/old" 2>&1
fewest 35 '^[A-Z0-9_]+ -?[0-9]+$'
enums "$old/include" "$new" >"$work/new" 2>&1
nothing "versions: every enumerator of version 1 has the same value" "$(diff "$work/old" "$work/new")"
compiled() { gcc-14 -std=gnu11 -O2 -Wall -Wextra -Werror -I "$2" -o "$work/program" "$1" 2>&1; }
for program in "${programs[@]}"; do
	nothing "versions: $(basename "$program") of version 1 compiles with today's headers" "$(compiled "$program" "$new")"
done
for program in "${todays[@]}"; do
	nothing "versions: today's $(basename "$program") compiles with the headers of version 1" "$(compiled "$program" "$old/include")"
done
# The kernel's list of ioctl numbers. The kernel's whole source exists only where a debug kernel has
# been built.
others=${KTREE%/*}/source/Documentation/userspace-api/ioctl/ioctl-number.rst
# taken: prints this project's ioctl numbers that the list assigns to other drivers.
taken() {
	local call letter range from to
	{
		includes
		sed -nE 's/^#define[ \t]+((PERFMON|PERFTRACE|PPA)_[A-Z_0-9]+)[ \t]+_IO[A-Z]*\(.*/unsigned int call_\1 = \1;/p' "$new"/linux/*.h
	} | gcc-14 -I "$new" -O1 -S -x c -o - - | awk '$1 == ".long" { print $2 }' >"$work/calls"
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
