#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Compares the time of an event of libperftrace with the time of an event of LTTng-UST. The session
# of LTTng is in snapshot mode, and all programs of a user share its buffers. tests/bench/run calls
# this script inside the tool chain. LTTng's daemons exit with this script, because they are in its
# PID namespace.
# Usage: lttng.sh DIR    DIR receives what is built; prints a line of JSON for each mode

set -euo pipefail
dir=$1
if [ "${2:-}" != alone ]; then
	exec unshare --mount --propagation unchanged --pid --fork --kill-child --mount-proc bash "$0" "$dir" alone
fi

mkdir -p "$dir/home" "$dir/events"
exec 3>&1 >"$dir/log" 2>&1
manifest=$TOP/tools/Cargo.toml
CARGO_TARGET_DIR=$TARGET/simulate cargo build --manifest-path "$manifest" --profile library --locked \
	-p libperftrace --features simulate
here=$TOP/tools/libperftrace
gcc-14 -O2 -Wall -Wextra -I "$here/include" -I "$here/bench" -o "$dir/pair" "$here/bench/lttng.c" \
	-L "$TARGET/simulate/library" -lperftrace -llttng-ust -ldl
ln -sf libperftrace.so "$TARGET/simulate/library/libperftrace.so.1"

export HOME=$dir/home LTTNG_HOME=$dir/home
busybox mount -t tmpfs run /run
busybox mount -t sysfs sys /sys
lttng-sessiond --background --no-kernel
lttng create bench --snapshot
lttng enable-channel --userspace --buffers-uid --subbuf-size=256k --num-subbuf=4 events
lttng enable-event --userspace --channel=events 'bench:*'
lttng start
# The first program writes to a flight recorder, whose buffers are filled backwards. The second
# program writes to a forward trace. Each buffer of a forward trace is read before it is full,
# because a full buffer drops events.
PERFTRACE_SIMULATE=$dir/events PERFTRACE_SIMULATE_FLAGS=1 LD_LIBRARY_PATH=$TARGET/simulate/library \
	timeout 120 "$dir/pair" lttng_flight >"$dir/flight"
PERFTRACE_SIMULATE=$dir/events PERFTRACE_SIMULATE_READ=1 LD_LIBRARY_PATH=$TARGET/simulate/library \
	timeout 120 "$dir/pair" lttng_event >"$dir/event"
lttng snapshot record
lttng destroy bench
# Fails if LTTng has not recorded any events.
grep -q . "$dir"/home/lttng-traces/*/snapshot-*/ust/uid/*/64-bit/events_0
cat "$dir/event" "$dir/flight" >&3
