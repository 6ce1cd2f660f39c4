#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make test [ONLY=PATTERN] [WORLDS='...']: the host world (cargo test, tests/host)
# and the worlds of the guest: stock and debug (tests/kselftest on that kernel).
# make test-debug: the worlds debug and kcsan. See Documentation/testing.md.

# shellcheck disable=SC2015 # in "A && B || C" here, C is meant for both
# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

ONLY=${ONLY:-}
usual="host stock debug"
WORLDS=${WORLDS:-$usual}
work=$LOGS/run.$$
tap=$work/tap
# shellcheck source=tools/rig/guest.sh
. "$TOP/tools/rig/guest.sh"

# mentions FILE|DIRECTORY...: do these sources speak of what was asked for?
mentions() {
	[ -n "$ONLY" ] || return 0
	local pattern="$ONLY|${ONLY// /_}"
	[[ ! $ONLY =~ ^([0-9]+)\.([0-9]+)$ ]] ||
		pattern="(^|[^0-9.])${BASH_REMATCH[1]}\.${BASH_REMATCH[2]}([^0-9]|$)|\<r${BASH_REMATCH[1]}_${BASH_REMATCH[2]}_"
	grep -rqE --include='*.rs' --include='*.c' --include='*.sh' -e "$pattern" "$@" || grep -qE -e "$pattern" <<<"$*"
}

# collect WORLD PROGRAM STATUS LIMIT SECONDS <KTAP: results to $tap, a line to the user.
collect() {
	local out counts p f s
	out=$(awk -v prog="$2" -v rc="$3" -v limit="$4" -v only="$ONLY" -f "$TOP/tools/rig/ktap.awk")
	counts=$(tail -n 1 <<<"$out")
	read -r _ p f s <<<"$counts"
	{
		printf '# %s %s\n' "$1" "$2"
		sed '$d' <<<"$out"
	} >>"$tap"
	[ -n "$ONLY" ] && [ $((p + f + s)) = 0 ] && return
	local word=ok
	[ "$f" = 0 ] || word=FAIL
	printf '%-12s %-32s %-4s %3d passed' "$1" "$2" "$word" "$p"
	[ "$f" = 0 ] || printf ', %d failed' "$f"
	[ "$s" = 0 ] || printf ', %d skipped' "$s"
	printf '%s\n' "${5:+  (${5}s)}"
}

# one WORLD NAME ok|"not ok"|skip [DIAGNOSTICS]: a result of the rig's own. A
# partial run leaves the good ones out, unless they were asked for.
one() {
	[ "$3" = "not ok" ] || [ -z "$ONLY" ] || grep -qE -e "$ONLY" <<<"$2" || return 0
	{
		printf '# %s rig\n' "$1"
		case $3 in
		skip) printf 'ok - %s # SKIP %s\n' "$2" "$4" ;;
		*)
			printf '%s - %s\n' "$3" "$2"
			[ -z "${4:-}" ] || sed 's/^/#   /' <<<"$4"
			;;
		esac
	} >>"$tap"
}

cargo_tests() { # LABEL RUSTFLAGS ARGUMENTS...
	local label=$1 flags=$2 limit=1500
	shift 2
	mentions "$TOP/tools" "$TOP/src/engine" || return 0
	local start=$SECONDS rc=0
	# Other flags, another directory: else each run would build all anew.
	inside env "CARGO_TARGET_DIR=$TARGET${flags:+/$label}" "RUSTFLAGS=$flags" timeout -s KILL "$limit" cargo test \
		--manifest-path "$TOP/tools/Cargo.toml" "$@" --locked --no-fail-fast >"$work/cargo.log" 2>&1 </dev/null || rc=$?
	if ! grep -qE '^test (result:|.* has been running)' "$work/cargo.log"; then
		one host "rig the host tests ($label) compile" "not ok" "$(grep -E -A 12 '^error' "$work/cargo.log" | head -n 60 || tail -n 20 "$work/cargo.log")"
		printf '%-12s %-32s FAIL, does not compile\n' host "$label"
		return
	fi
	# Status 101 is cargo's for failed tests, which the list names already.
	[ "$rc" != 101 ] || ! grep -q '\.\.\. FAILED' "$work/cargo.log" || rc=0
	awk -f "$TOP/tools/rig/cargo.awk" "$work/cargo.log" | collect host "$label" "$rc" "$limit" $((SECONDS - start))
}

host_scripts() {
	local s rc start limit emulator prepare
	for s in "$TOP"/tests/host/*.sh; do
		[ -e "$s" ] && mentions "$s" || continue
		rc=0 start=$SECONDS
		limit=$(limit_of "$s")
		emulator=$(head_of "$s" emulator "")
		prepare=$(head_of "$s" prepare "")
		[ -z "$prepare" ] || (cd "$TOP" && $prepare) >>"$work/host.log" 2>&1 || {
			one host "rig $(basename "$s") is prepared" "not ok" "$prepare: $(tail -n 30 "$work/host.log")"
			continue
		}
		[ -z "$emulator" ] || {
			basename "$s" >"$work/list"
			emulator_for "$emulator" host "$work" || continue
			start=$SECONDS
		}
		inside env "KBUILD_OUT=$KBUILD_OUT" "KTREE=$KTREE" "TOOLS_OUT=$TOOLS_OUT" "LIB_OUT=$LIB_OUT" \
			timeout -s KILL "$limit" bash "$s" >"$work/host.out" 2>&1 </dev/null || rc=$?
		cat "$work/host.out" >>"$work/host.log"
		collect host "$(basename "$s")" "$rc" "$limit" $((SECONDS - start)) <"$work/host.out"
	done
}

rig_tests() {
	mentions "$0" || return 0
	local ids theirs=$TOP/../shared/reference/rows.md name="rig rows.md lists every row id"
	ids() { sed -nE 's/^\| *([0-9]+\.[0-9]+) *\|.*/\1/p' "$1"; }
	if [ ! -e "$theirs" ]; then
		one host "$name" skip "there is no list to compare with beside this repository"
	else
		ids=$(diff <(ids "$theirs" | sort -u) <(ids "$TOP/Documentation/rows.md" | sort)) &&
			one host "$name" ok || one host "$name" "not ok" "$ids"
	fi
}

# Tests leave half of the processors' time. The debug kernel's build begins with
# that; the world's own turn builds the rest, as kernel.sh goes on where it was.
beforehand() {
	chrt --idle 0 "$TOP/tools/rig/kernel.sh" debug >/dev/null 2>&1 </dev/null &
	builder=$!
}

end_beforehand() {
	! jobs -pr | grep -qx "${builder:-none}" || kill "$builder"
}

# Number the results, show skips and, where the eye falls, failures; count.
report() {
	local kept=$LOGS/only p f s dir label
	# Only a full run is kept as one: make rows speaks of those.
	[ -n "$ONLY" ] || case $WORLDS in
	"$usual") kept=$LOGS/test ;;
	"debug kcsan") kept=$LOGS/test-debug ;;
	esac
	rm -f "$kept".*.log
	awk 'BEGIN { print "TAP version 13" }
		/^ok - / { sub(/^ok - /, ""); print "ok " ++n " " $0; next }
		/^not ok - / { sub(/^not ok - /, ""); print "not ok " ++n " " $0; next }
		{ print } END { print "1.." n + 0 }' "$tap" >"$kept.tap"
	[ ! -e "$work/cargo.log" ] || cat "$work/cargo.log" >>"$work/host.log"
	for dir in "$work"/*.*/; do
		[ -e "$dir/console" ] || continue
		label=$(basename "$dir")
		mv -f "$dir/console" "$kept.${label%.plain}.console.log"
		mv -f "$dir/results" "$kept.${label%.plain}.guest.log"
	done
	mv -f "$work/host.log" "$kept.host.log" 2>/dev/null || :
	p=$(grep -E '^ok ' "$kept.tap" | grep -vc ' # SKIP ' || :)
	f=$(grep -cE '^not ok ' "$kept.tap" || :)
	s=$(grep -cE '^ok .* # SKIP ' "$kept.tap" || :)
	if [ "$s" != 0 ]; then
		printf '\nSkipped:\n'
		sed -nE 's/^ok [0-9]+ (.*) # SKIP (.*)/  \1: \2/p' "$kept.tap" | sort -u
	fi
	if [ "$f" != 0 ]; then
		printf '\nFailed:\n'
		awk '/^# [^ ]+ / { world = $2 }
			/^not ok / { on = 1; sub(/^not ok [0-9]+ /, ""); print "  " world ": " $0; next }
			/^#   / { if (on && on <= 45) print "      " substr($0, 5)
				else if (on == 46) print "      ... more in the log"
				if (on) on++
				next }
			{ on = 0 }' "$kept.tap"
	fi
	printf '\nlog: %s\n' "$kept.tap"
	[ $((p + f + s)) != 0 ] || printf 'no test matches ONLY=%s\n' "$ONLY"
	if [ "$s" = 0 ]; then
		printf '%d passed, %d failed\n' "$p" "$f"
	else
		printf '%d passed, %d failed, %d skipped\n' "$p" "$f" "$s"
	fi
	[ "$f" = 0 ] && [ $((p + s)) != 0 ]
}

for world in $WORLDS; do
	[[ " host stock debug kcsan " == *" $world "* ]] || die "there is no world $world; WORLDS= takes host, stock, debug, kcsan"
done
"$TOP/tools/rig/build.sh"
set_up
mkdir -p "$work"
: >"$tap"
export TEST_RUN=$$
trap 'end_beforehand; rm -rf "$work"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM HUP
[ -n "$ONLY" ] || [[ " $WORLDS " != *" debug "* ]] || beforehand
for world in $WORLDS; do
	if [ "$world" = host ]; then
		rig_tests
		cargo_tests "cargo test" "" --workspace
		cargo_tests loom "--cfg loom" -p engine --test loom --test loom_ring --test selfpage --release
		host_scripts
	else
		[ "$world" = stock ] || end_beforehand
		guest_tests "$world"
	fi
done
report
