#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes three pictures from real runs in the guest debian-skylake: Documentation/flamegraph.svg (pfc
# flamegraph), ppa.svg (pfc ppa report) and trace.svg (the output of pfc trace live). The script
# takes some minutes and needs root.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/../../tools/rig/lib.sh"
# shellcheck source=tests/documentation/terminal.sh
. "$TOP/tests/documentation/terminal.sh"
set_up
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The guest prints an archive of its files between the lines "# archive begins" and "# archive
# ends".
make -s -C "$TOP" vm GUEST=debian-skylake <"$TOP/tests/documentation/guest_commands.sh" >"$work/output" || {
	tail -n 20 "$work/output" >&2
	die "the commands of tests/documentation/guest_commands.sh failed in the guest; see their output above"
}
tr -d '\r' <"$work/output" | sed '1,/^# archive begins$/d; /^# archive ends$/,$d' | base64 -d | tar -xz -C "$work"

# commented FILE COMMENT: prints an SVG file, and adds the licence and a comment to its head.
commented() { sed "1a <!-- SPDX-License-Identifier: GPL-2.0 -->\n<!-- $2: drawn by tests/documentation/guest.sh. -->" "$work/$1"; }
commented flamegraph.svg "What pfc flamegraph draws" >"$work/flamegraph"
commented ppa.svg "What pfc ppa report draws" >"$work/ppa"
# A terminal needs a carriage return before each newline. A newline after the last line would scroll
# the screen, so it is removed.
printf '%s' "$(sed 's/$/\r/' "$work/trace.txt")" >"$work/typescript"
draw_screen "$work/typescript" "$(wc -l <"$work/trace.txt")" 100 "pfc trace" \
	"pfc trace live: drawn by tests/documentation/guest.sh." >"$work/trace"
for picture in flamegraph ppa trace; do
	mv "$work/$picture" "$TOP/Documentation/$picture.svg"
	say "    $TOP/Documentation/$picture.svg"
done
