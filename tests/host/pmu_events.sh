#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# timeout: 60
#
# Checks that Documentation/emulated-pmu.md lists the events of the emulated PMU.

set -u
code=$(sed -nE 's/^    \{ "([^"]+)", +(0x[0-9a-f]+|0), +(0x[0-9a-f]+|0), +([0-9]+), ([0-9]+) \},/\1 \2 \3 \4\/\5/p' "$TOP/tests/qemu-pmu/events.c")
text=$(sed -nE 's/^\| ([a-z ]+) \| (0x[0-9a-f]+|0) \| (0x[0-9a-f]+|0) \| ([0-9]+)\/([0-9]+) \|$/\1 \2 \3 \4\/\5/p' "$TOP/Documentation/emulated-pmu.md")
echo "TAP version 13"
echo "1..1"
if [ "$(wc -l <<<"$code")" -ge 10 ] && [ "$code" = "$text" ]; then
	echo "ok 1 pmu events: emulated-pmu.md lists exactly the emulated events"
else
	echo "not ok 1 pmu events: emulated-pmu.md lists exactly the emulated events"
	diff <(echo "$code") <(echo "$text") | sed 's/^/# /'
	exit 1
fi
