# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2086,SC3043
#
# Helpers for the tests with Prometheus and PCP: they run programs as the systemd units of
# tools/fleet do.

fleet=/tests/fleet
# The ID of the group that may read /dev/perfcounters. On real machines, a udev rule gives the
# device to a group.
readers=4242

unit_setting() { # UNIT KEY: prints the last value of the key in the unit file
	sed -n "s/^$2=//p" "$fleet/$1" | tail -n 1
}
# as_unit UNIT MORE-GROUPS COMMAND...: runs the command as user 12345, with only the capabilities of
# the unit.
as_unit() {
	local caps groups=$readers$2
	caps=$(unit_setting $1 AmbientCapabilities | sed 's/CAP_/+/g' | tr 'A-Z ' 'a-z,')
	caps=-all${caps:+,$caps}
	shift 2
	chgrp $readers /dev/perfcounters /dev/perfcounters_names
	exec setpriv --reuid 12345 --regid 12345 --groups "$groups" --bounding-set "$caps" \
		--inh-caps "$caps" --ambient-caps "$caps" --no-new-privs "$@"
}
# is_between LOW VALUE HIGH: true if VALUE is at least LOW and at most HIGH.
is_between() { awk "BEGIN { exit !($1 <= $2 && $2 <= $3) }" || { echo "$2 is not between $1 and $3"; return 1; }; }
is_near() { # VALUE WANTED PERCENT: true if VALUE differs from WANTED by PERCENT % or less
	awk "BEGIN { d = $1 - $2; if (d < 0) d = -d; exit !(d <= $2 * $3 / 100) }" || { echo "$1 is not $2 within $3 %"; return 1; }
}
# Adds 10 to an instance on CPU 0 about four times a second, until the function is killed.
add_paced() { # NUMBER: of the instance
	while :; do
		printf 'adjust %s 10' "$1" >/proc/test_driver
		sleep 0.25
	done
}
# Prints the user time of a task in nanoseconds, as accounting reports it.
user_time() {
	pfc ppa "$1" --json | jq '.tasks[0].user * 1000000 / .khz | floor'
}
# Prints the value of an instance, summed over all CPUs.
instance_total() { pfc read --json "$1" | jq '.instances[0].value'; }
