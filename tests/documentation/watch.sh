#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes Documentation/watch.svg, the picture of pfc watch in the README, from the output of make
# demo on a terminal. The script takes some minutes and needs root.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/../../tools/rig/lib.sh"
# shellcheck source=tests/documentation/terminal.sh
. "$TOP/tests/documentation/terminal.sh"
set_up
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

script -qec "stty rows 24 cols 100; TERM=xterm-256color DEMO_SECONDS=12 make -C '$TOP' demo" "$work/typescript" >/dev/null </dev/null
draw_screen "$work/typescript" 24 100 NAME "pfc watch in make demo: drawn by tests/documentation/watch.sh." >"$work/svg"
mv "$work/svg" "$TOP/Documentation/watch.svg"
say "    $TOP/Documentation/watch.svg"
