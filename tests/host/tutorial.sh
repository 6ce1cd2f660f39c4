#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Documentation/pmu-tutorial.md and format-tutorial.md show the very modules and
# programs that tests/kselftest/perfmon_scripted.c and perfmon_tutorial_format.c run,
# the modules are as short as promised, and they are built out of the tree as the
# tutorials say.

# shellcheck disable=SC2001 # a here-string has several lines
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

# shown LANGUAGE N: the Nth block of that language.
shown() {
	awk -v begin="\`\`\`$1" -v n="$2" '$0 == "```" { on = 0 } on; $0 == begin { on = ++seen == n }' "$doc"
}

# tutorial ROW NAME PROGRAM: tests of Documentation/NAME-tutorial.md.
tutorial() {
	local row=$1 name=$2 doc=$TOP/Documentation/$2-tutorial.md said lines
	local module=$TOP/tests/modules/tutorial_$2.c program=$TOP/tests/kselftest/readme/$3.c
	local dir=$work/$name

	said=$(diff <(shown c 1) "$module")
	result $? "$row the tutorial ($name) shows the module that is tested" "$said"
	# Comments go first: a line that has nothing else is none.
	lines=$(gcc-14 -fpreprocessed -dD -E -P "$module" | grep -c .)
	[ "$lines" -le 60 ] && [ "$lines" -gt 30 ]
	result $? "$row the tutorial's module ($name) has at most 60 lines, comments and blank ones not counted" "$lines lines"
	said=$(diff <(shown c 2) "$program")
	result $? "$row the tutorial ($name) shows the program that is tested" "$said"
	said=$(gcc-14 -std=gnu11 -Wall -Wextra -Werror -I "$TOP/include/uapi" -o "$work/program" "$program" 2>&1)
	result $? "$row the tutorial's program ($name) compiles with the uapi header alone, without a warning" "$said"
	mkdir "$dir"
	cp "$module" "$dir/"
	shown make 1 | sed "s#/usr/local/include/perfcounters-driver#$TOP/include#" >"$dir/Kbuild"
	said=$(make -C "$KTREE" CC=gcc-14 "M=$dir" "KBUILD_EXTRA_SYMBOLS=$KBUILD_OUT/Module.symvers" modules 2>&1) &&
		[ -e "$dir/tutorial_$name.ko" ] && ! grep -i warning <<<"$said"
	result $? "$row the tutorial's module ($name) is built out of the tree, without a warning" "$said"
}

plan 10
tutorial 1.1 pmu ticks
tutorial 1.9 format by_cpu
exit $failed
