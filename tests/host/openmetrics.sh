#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# timeout: 900
# cargo: debug
#
# Checks that the parser of the Python client of Prometheus reads the output of pfc export. A
# program simulates /dev/perfcounters. The simulated counters change until the test kills the
# program.

# shellcheck disable=SC2015,SC2317,SC2329 # checks are functions that check() calls
set -u
pfc=${TOOLS_OUT:?}/pfc
target=${TOOLS_OUT%/*/*}
python=${CACHE:?}/python/bin/python
checker=${TOP:?}/tests/kselftest/pfc/openmetrics.py
work=$(mktemp -d)
device=$work/device
pids=()
clean_up() {
	[ ${#pids[@]} = 0 ] || kill -9 "${pids[@]}" 2>/dev/null
	rm -rf "$work"
}
trap clean_up EXIT

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
# parser_finds PATTERN COMMAND...: runs a command that runs openmetrics.py. Passes if openmetrics.py
# reports an error that matches PATTERN.
parser_finds() {
	local pattern=$1 rc=0
	shift
	"$@" >"$work/fault" 2>&1 || rc=$?
	cat "$work/fault"
	[ "$rc" = 1 ] && grep -q "^fault: .*$pattern" "$work/fault"
}
export_to() { "$pfc" --device "$device" export --openmetrics -o "$@"; }
read_json_to() { "$pfc" --device "$device" read --json --per-cpu -o "$@"; }
parse() { "$python" "$checker" "$@"; }

plan 12

# The program fake_device is built in the target directory of cargo test, with the same profile. The
# option --workspace gives all packages the same features as cargo test, so cargo need not compile
# again what cargo test has compiled.
CARGO_TARGET_DIR=$target cargo build --quiet --locked --manifest-path "$TOP/tools/Cargo.toml" \
	--workspace --example fake_device >"$work/build" 2>&1 || sed 's/^/# /' "$work/build"
"$target/debug/examples/fake_device" "$device" 3 200 &
fake=$!
pids+=("$fake")
for _ in $(seq 1500); do
	"$pfc" --device "$device" list >"$work/list" 2>&1 && grep -q odd/ "$work/list" && break
	sleep 0.02
done

test_scrapes() {
	read_json_to "$work/before" && export_to "$work/a.prom" && read_json_to "$work/after" || return 1
	# On a busy machine, it may take a while until the simulated counters have changed.
	for _ in $(seq 600); do
		sleep 0.1
		export_to "$work/b.prom" && parse "$work/a.prom" "$work/b.prom" --json "$work/before" "$work/after" | tee "$work/growth"
		[ "${PIPESTATUS[0]}" = 0 ] || return 1
		! grep -qE '[1-9][0-9]* samples have grown' "$work/growth" || return 0
	done
}
check "pfc export: the Prometheus parser reads two scrapes, no counter decreases" test_scrapes
check "pfc export: counters have grown between two scrapes" grep -qE '[1-9][0-9]* samples have grown' "$work/growth"
test_sums() { export_to "$work/s.prom" --sum && parse "$work/s.prom"; }
check "pfc export --sum: the Prometheus parser reads it" test_sums

"$pfc" --device "$device" export --openmetrics --listen 127.0.0.1:0 >"$work/url" &
server=$!
pids+=("$server")
for _ in $(seq 1500); do
	[ -s "$work/url" ] && break
	sleep 0.02
done
test_served() { parse "$(cat "$work/url")" "$(cat "$work/url")"; }
check "pfc export --listen: the Prometheus parser reads it" test_served
test_ended() { kill -TERM "$server" && wait "$server"; }
check "pfc export --listen: exits with status 0 at SIGTERM" test_ended

# Stop the simulated device, so that its values no longer change.
kill -9 "$fake"
wait "$fake" 2>/dev/null
test_idle() { read_json_to "$work/json" && export_to "$work/i.prom" && parse "$work/i.prom" --json "$work/json"; }
check "pfc export: every value of pfc read --per-cpu" test_idle
test_idle_sums() { export_to "$work/j.prom" --sum && parse "$work/j.prom" --json "$work/json"; }
check "pfc export --sum: every total of pfc read" test_idle_sums

# Each of the following tests puts one fault into the output of pfc export, or passes two outputs in
# the wrong order. openmetrics.py must report the fault.
sed '/^# EOF/d' "$work/i.prom" >"$work/bad"
check "pfc export: the checker reports a missing end" parser_finds "does not end with # EOF" parse "$work/bad"
sed '0,/_seconds_total{/s/\(_seconds_total{.* \)/\19/' "$work/i.prom" >"$work/bad"
check "pfc export: the checker reports a value with one digit too many" parser_finds "of CPU 0: \[9" parse "$work/bad" --json "$work/json"
sed -E 's/^(.*_created\{.*) [0-9.]+$/\1 9999999999/' "$work/i.prom" >"$work/bad"
check "pfc export: the checker reports a creation time in the future" parser_finds "created at 9999999999" parse "$work/bad"
check "pfc export: the checker reports counters that decrease" parser_finds "fell from" parse "$work/i.prom" "$work/a.prom"
sed '/^# HELP/d' "$work/i.prom" >"$work/bad"
check "pfc export: the checker reports missing help" parser_finds "no # HELP" parse "$work/bad"
exit $failed
