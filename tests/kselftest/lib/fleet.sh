# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2086,SC3043
#
# What the tests of monitors share: programs as the units of tools/fleet run them.

fleet=/tests/fleet
# /dev/perfcounters is this group's, as by a udev rule.
readers=4242

setting() { # UNIT KEY: its value, once
	sed -n "s/^$2=//p" "$fleet/$1" | tail -n 1
}
# as_unit UNIT MORE-GROUPS COMMAND...: as a user of its own, with the unit's
# capabilities and nothing else.
as_unit() {
	local caps groups=$readers$2
	caps=$(setting $1 AmbientCapabilities | sed 's/CAP_/+/g' | tr 'A-Z ' 'a-z,')
	caps=-all${caps:+,$caps}
	shift 2
	chgrp $readers /dev/perfcounters /dev/perfcounters_names
	exec setpriv --reuid 12345 --regid 12345 --groups "$groups" --bounding-set "$caps" \
		--inh-caps "$caps" --ambient-caps "$caps" --no-new-privs "$@"
}
# A number is between two others; within so many per cent of another.
between() { awk "BEGIN { exit !($1 <= $2 && $2 <= $3) }" || { echo "$2 is not between $1 and $3"; return 1; }; }
near() { # VALUE WANTED PERCENT
	awk "BEGIN { d = $1 - $2; if (d < 0) d = -d; exit !(d <= $2 * $3 / 100) }" || { echo "$1 is not $2 within $3 %"; return 1; }
}
# Counts on CPU 0, ten times a second or as often as it goes, until it is killed.
pace() { # NUMBER
	while :; do
		printf 'adjust %s 10' "$1" >/proc/puppet
		sleep 0.1
	done
}
# User time of a task in nanoseconds, says accounting.
user_time() {
	pfc ppa "$1" --json | jq '.tasks[0].user * 1000000 / .khz | floor'
}
# What an instance counted, on all CPUs.
total() { pfc read --json "$1" | jq '.instances[0].value'; }
