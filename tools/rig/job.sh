#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs one job of a test run (test.sh), and writes the results of the job to $work/NAME.tap.
# Usage: job.sh cargo NAME RUSTFLAGS CARGO-TEST-ARGUMENT...
#                                 runs cargo test; with EXACT=PATHS, runs only the tests with these paths,
#                                 which are separated by tabs
#        job.sh script NAME       runs tests/host/NAME
#        job.sh guest NAME        boots a guest, NAME is WORLD.GUEST or WORLD.GUEST.N

# shellcheck disable=SC2015 # in "A && B || C" here, C is meant for both
# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
kind=$1 name=$2
shift 2
tap=${work:?}/$name.tap
: >"$tap"
# shellcheck source=tools/rig/results.sh
. "$TOP/tools/rig/results.sh"
# shellcheck source=tools/rig/guest.sh
. "$TOP/tools/rig/guest.sh"

cargo() { # LABEL RUSTFLAGS ARGUMENTS...
	local -a exact=()
	local label=$1 flags=$2 limit start=$SECONDS rc=0 log=$work/$1.host.log
	shift 2
	[ -z "${EXACT:-}" ] || { IFS=$'\t' read -ra exact <<<"$EXACT"; exact=(-- --exact "${exact[@]}"); }
	limit=$((1500 * $(slowness host)))
	set_up base
	# Each set of compiler flags has a target directory of its own, because in a shared
	# directory cargo would compile everything again whenever the flags change. This function
	# takes no lock, because cargo locks its target directory itself. Two tests for each CPU run
	# at the same time, because many tests wait for time limits of pfc and its libraries.
	inside env "CARGO_TARGET_DIR=$TARGET${flags:+/$label}" "RUSTFLAGS=$RUST_LINK${flags:+ $flags}" ${CI:+CARGO_INCREMENTAL=0} "PROPTEST_CASES=$([ -n "${LONG:-}" ] && echo 256 || echo 64)" "RUST_TEST_THREADS=$((2 * JOBS))" timeout -s KILL "$limit" cargo test \
		--manifest-path "$TOP/tools/Cargo.toml" "$@" --locked --no-fail-fast "${exact[@]}" >"$log" 2>&1 </dev/null || rc=$?
	if ! grep -qE '^test (result:|.* has been running)' "$log"; then
		one host "rig the host tests ($label) compile" "not ok" "$(grep -E -A 12 '^error' "$log" | head -n 60 || tail -n 20 "$log")"
		printf '%-18s %-26s FAIL, does not compile\n' host "$label"
		return
	fi
	# cargo exits with status 101 if tests failed. Failed tests are not a failure of the job
	# itself: the results of the job name the failed tests.
	[ "$rc" != 101 ] || ! grep -q '\.\.\. FAILED' "$log" || rc=0
	# cargo.awk also writes the paths of the failed tests to a file. A second attempt runs the
	# tests in this file.
	awk -v paths="$work/$label.paths" -f "$TOP/tools/rig/cargo.awk" "$log" | collect host "$label" "$rc" "$limit" $((SECONDS - start))
}

script() {
	local s=$TOP/tests/host/$1 rc=0 start=$SECONDS limit log=$work/$1.host.log
	limit=$(($(limit_of "$s") * $(slowness host)))
	# The comment at the beginning of a test script can have a line "emulator:" with the name of
	# an emulator. The test script then gets the path of this emulator in EMULATOR. The comment
	# can have a line "prepare:" with a command. The test script then gets the output of this
	# command in PREPARED.
	local emulator prepare prepared=""
	emulator=$(head_of "$s" emulator "")
	prepare=$(head_of "$s" prepare "")
	set_up
	[ -z "$prepare" ] || prepared=$(cd "$TOP" && $prepare 2>"$log.prepare") || {
		one host "rig $1 is prepared" "not ok" "$prepare: $(tail -n 30 "$log.prepare")"
		return
	}
	emulator=$(build_emulator host "$emulator") || return 0
	start=$SECONDS
	local -a alone=("${ALONE[@]}" sh -c 'busybox ip link set lo up && "$@"' sh)
	[ "$(id -u)" = 0 ] || alone=()
	# Run cargo offline: all packages are in the cache by now, and a script that runs as root
	# has no network.
	inside "${alone[@]}" env CARGO_NET_OFFLINE=true ${CI:+CARGO_INCREMENTAL=0} "RELEASE=$RELEASE" "PACKAGED=$PACKAGED" "KBUILD_OUT=$KBUILD_OUT" "KTREE=$KTREE" "TARGET=$TARGET" \
		"TOOLS_OUT=$TOOLS_OUT" "LIB_OUT=$LIB_OUT" "EMULATOR=$emulator" "PREPARED=$prepared" \
		timeout -s KILL "$limit" bash "$s" >>"$log" 2>&1 </dev/null || rc=$?
	collect host "$1" "$rc" "$limit" $((SECONDS - start)) <"$log"
}

case $kind in
cargo) cargo "$name" "$@" ;;
script) script "$name" ;;
guest)
	IFS=. read -r world guest _ <<<"$name"
	run_guest "$world" "$guest" "$work/$name"
	;;
esac
# The file NAME.done shows that the job ran to its end. If NAME.done is missing, the job counts as a
# failure, even if all results of the job are good.
: >"$work/$name.done"
