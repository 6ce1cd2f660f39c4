#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# timeout: 300
# cargo: debug
#
# Checks that babeltrace2 reads the CTF 2 that pfc trace writes. The traces are synthetic. Each
# event must be printed with the fields and the time that were written to the trace. The only
# allowed warnings are those about lost events.

# shellcheck disable=SC2317,SC2329 # checks are functions that check() calls
set -u
target=${TOOLS_OUT:?}
target=${target%/*/*}
top=${TOP:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

echo "TAP version 13"
# The option --workspace gives all packages the same features as cargo test, so cargo need not
# compile again what cargo test has compiled.
CARGO_TARGET_DIR=$target cargo build --quiet --locked --manifest-path "$top/tools/Cargo.toml" \
	--workspace --example synthetic >"$work/build" 2>&1 || sed 's/^/# /' "$work/build"
"$target/debug/examples/synthetic" "$work/traces" >"$work/cases" || {
	echo "Bail out! the example synthetic made no traces"
	exit 1
}

# read_trace CASE [OPTIONS...]: prints the events of a trace, with times in ticks of the trace's
# clock. Messages of babeltrace2 go to $work/words.
read_trace() {
	local case=$1
	shift
	babeltrace2 --clock-cycles --no-delta "$@" "$work/traces/$case" 2>"$work/words"
}
# count_discarded: for each warning of babeltrace2 about lost events, prints the number of lost
# events and the two times between which the events were lost.
count_discarded() {
	sed -nE 's/^WARNING: Tracer discarded ([0-9]+) events? between (\[[^]]*\]) and (\[[^]]*\]) .*/\1 \2 \3/p' "$work/words"
}
# is_same CASE: passes if babeltrace2 reads the events and losses of the trace as expected, and
# prints no message except warnings about losses.
is_same() {
	read_trace "$1" >"$work/events" || { cat "$work/words"; return 1; }
	diff "$work/traces/$1.expected" "$work/events" || return 1
	diff "$work/traces/$1.discarded" <(count_discarded) || return 1
	! grep -v '^WARNING: Tracer discarded ' "$work/words"
}
while read -r case; do
	# The trace `corrupt` contains invalid records, which pfc must leave out. According to row
	# 3.7 of Documentation/rows.md, invalid records damage only the events of the process that
	# wrote these records.
	row="pfc trace:"
	[ "$case" != corrupt ] || row=3.7
	check "$row babeltrace2 reads the trace '$case' as it was written" is_same "$case"
done <"$work/cases"

test_seconds() {
	babeltrace2 --clock-seconds --no-delta "$work/traces/types" >"$work/events" &&
		grep -q '^\[1700000000\.000001000\] types:all' "$work/events"
}
check "pfc trace: babeltrace2 prints the real time of an event" test_seconds
test_details() {
	babeltrace2 -c sink.text.details "$work/traces/lost" >"$work/events" &&
		grep -q 'Discarded events' "$work/events" && [ "$(grep -c 'Packet beginning' "$work/events")" = 8 ]
}
check "pfc trace: babeltrace2 finds the lost events between packets" test_details

# babeltrace2 must refuse an incomplete packet. Otherwise a successful exit of babeltrace2 in the
# other tests would not show that the trace is valid.
test_torn() {
	local file=$work/traces/types/stream_17_0
	truncate -s -5 "$file"
	! read_trace types >"$work/events"
}
check "pfc trace: babeltrace2 refuses an incomplete packet" test_torn
echo "1..$n"
exit $failed
