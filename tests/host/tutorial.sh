#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# The modules that Documentation/pmu-tutorial.md and format-tutorial.md show are as short as
# promised. documentation.sh has the rest: they are what is built and run, here and out of the tree.

set -u

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

# tutorial ROW NAME: tests of Documentation/NAME-tutorial.md.
tutorial() {
	local row=$1 name=$2 lines
	local module=$TOP/tests/modules/tutorial_$2.c

	# Comments go first: a line that has nothing else is none.
	lines=$(gcc-14 -fpreprocessed -dD -E -P "$module" | grep -c .)
	[ "$lines" -le 60 ] && [ "$lines" -gt 30 ]
	result $? "$row the tutorial's module ($name) has at most 60 lines, comments and blank ones not counted" "$lines lines"
}

plan 2
tutorial 1.1 pmu
tutorial 1.9 format
exit $failed
