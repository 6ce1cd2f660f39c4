#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make test [ONLY=PATTERN]: the host world (cargo test, tests/host) and the
# stock world (tests/kselftest in the guest). See Documentation/testing.md.

# shellcheck disable=SC2015 # in "A && B || C" here, C is meant for both
# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

ONLY=${ONLY:-}
work=$LOGS/run.$$
tap=$work/tap
splat='BUG:|WARNING:|Oops|Kernel panic|general protection fault|Call Trace:|cut here|soft lockup|hard LOCKUP|self-detected stall|detected stalls|blocked for more than|refcount_t:|list_(add|del) corruption|unable to handle|UBSAN:|KASAN:|bad: scheduling|sleeping function called'

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
	printf '%-6s %-32s %-4s %3d passed' "$1" "$2" "$word" "$p"
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
	local label=$1 flags=$2
	shift 2
	mentions "$TOP/tools" "$TOP/src/engine" || return 0
	local start=$SECONDS rc=0
	# Other flags, another directory: else each run would build all anew.
	inside env "CARGO_TARGET_DIR=$TARGET${flags:+/$label}" "RUSTFLAGS=$flags" cargo test \
		--manifest-path "$TOP/tools/Cargo.toml" "$@" --locked --no-fail-fast >"$work/cargo.log" 2>&1 </dev/null || rc=$?
	if ! grep -q '^test result:' "$work/cargo.log"; then
		one host "rig the host tests ($label) compile" "not ok" "$(grep -E -A 12 '^error' "$work/cargo.log" | head -n 60 || tail -n 20 "$work/cargo.log")"
		printf 'host   %-32s FAIL, does not compile\n' "$label"
		return
	fi
	# Status 101 is cargo's for failed tests, which the list names already.
	[ "$rc" != 101 ] || ! grep -q '\.\.\. FAILED' "$work/cargo.log" || rc=0
	awk -f "$TOP/tools/rig/cargo.awk" "$work/cargo.log" | collect host "$label" "$rc" - $((SECONDS - start))
}

host_scripts() {
	local s rc start limit
	for s in "$TOP"/tests/host/*.sh; do
		[ -e "$s" ] && mentions "$s" || continue
		rc=0 start=$SECONDS
		limit=$(limit_of "$s")
		inside env "KBUILD_OUT=$KBUILD_OUT" "KTREE=$KTREE" "TOOLS_OUT=$TOOLS_OUT" \
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

limit_of() { # a line "timeout: SECONDS" in the head of a source, else 120
	local t
	t=$(head -n 40 "$1" | sed -nE 's#^(/\*|//| \*|\#) *timeout: *([0-9]+).*#\2#p' | head -n 1)
	echo "${t:-120}"
}

guest_tests() {
	local f n=0
	for f in "$TOP"/tests/kselftest/*.{c,sh}; do
		[ -e "$f" ] && mentions "$f" || continue
		printf '%s %s\n' "$(basename "$f" .c)" "$(limit_of "$f")"
	done >"$work/list"
	n=$(wc -l <"$work/list")
	# Without ONLY the guest is started in any case: that it boots is a result.
	[ "$n" -gt 0 ] || [ -z "$ONLY" ] || return 0
	: >"$work/results"
	: >"$work/console"
	NO_BUILD=1 "$TOP/tools/rig/vm.sh" test "$work/list" "$work" >"$work/vm.log" 2>&1 &
	follow $!
	kernel_log
}

# follow PID: report programs as they end; a guest that stops reporting is ended.
follow() {
	local pid=$1 begun=0 ended=0 new prog limit rc seconds deadline=$((SECONDS + 240)) end="died"
	local results=$work/results
	while :; do
		local alive=1
		kill -0 "$pid" 2>/dev/null || alive=
		new=$(grep -ac '^# begin ' "$results" || :)
		if [ "$new" -gt "$begun" ]; then
			begun=$new
			read -r _ _ prog limit < <(grep -a '^# begin ' "$results" | sed -n "${begun}p")
			deadline=$((SECONDS + limit + 60))
			[ ! -t 1 ] || printf 'stock  %s ...\r' "$prog"
		fi
		new=$(grep -ac '^# end ' "$results" || :)
		while [ "$ended" -lt "$new" ]; do
			ended=$((ended + 1))
			read -r _ _ prog rc seconds < <(grep -a '^# end ' "$results" | sed -n "${ended}p")
			limit=$(awk -v p="$prog" '$1 == p { print $2 }' "$work/list")
			block "$prog" | collect stock "$prog" "$rc" "$limit" "$seconds"
		done
		[ -n "$alive" ] || break
		if [ $SECONDS -gt $deadline ]; then
			end="hung and was ended"
			kill "$pid" 2>/dev/null || :
			wait "$pid" 2>/dev/null || :
			break
		fi
		sleep 0.3
	done
	if grep -aq '^# ' "$results"; then
		one stock "rig the guest boots" ok
	else
		one stock "rig the guest boots" "not ok" "$(cat "$work/vm.log"; tail -n 40 "$work/console")"
	fi
	if grep -aq '^# done 0' "$results"; then
		one stock "rig the guest runs to its end" ok
		return
	fi
	# The program that was running, and all that never ran, are failures.
	tail -n +$((ended + 1)) "$work/list" | while read -r prog limit; do
		block "$prog" | collect stock "$prog" "" "$limit" ""
	done
	one stock "rig the guest runs to its end" "not ok" "the guest $end; its console's end:
$(tail -n 40 "$work/console")"
}

# block PROGRAM: what it printed.
block() { awk -v p="$1" '/^# (begin|end) / { on = $2 == "begin" && $3 == p; next } on' "$work/results"; }

kernel_log() {
	local found
	found=$(awk -v splat="$splat" '{ sub(/\r$/, "") }
		/\] ### / { prog = $NF }
		$0 ~ splat && !left { print "during " (prog ? prog : "boot") ":"; left = 25 }
		left { print; left-- }' "$work/console" | head -n 120)
	if [ -z "$found" ]; then
		one stock "rig the kernel log is clean" ok
	else
		one stock "rig the kernel log is clean" "not ok" "$found"
	fi
}

# Number the results, show failures and skips, count.
report() {
	local kept=$LOGS/test p f s
	[ -z "$ONLY" ] || kept=$LOGS/only
	awk 'BEGIN { print "TAP version 13" }
		/^ok - / { sub(/^ok - /, ""); print "ok " ++n " " $0; next }
		/^not ok - / { sub(/^not ok - /, ""); print "not ok " ++n " " $0; next }
		{ print } END { print "1.." n + 0 }' "$tap" >"$kept.tap"
	[ ! -e "$work/cargo.log" ] || cat "$work/cargo.log" >>"$work/host.log"
	mv -f "$work/console" "$kept.console.log" 2>/dev/null || :
	mv -f "$work/results" "$kept.guest.log" 2>/dev/null || :
	mv -f "$work/host.log" "$kept.host.log" 2>/dev/null || :
	p=$(grep -E '^ok ' "$kept.tap" | grep -vc ' # SKIP ' || :)
	f=$(grep -cE '^not ok ' "$kept.tap" || :)
	s=$(grep -cE '^ok .* # SKIP ' "$kept.tap" || :)
	if [ "$f" != 0 ]; then
		printf '\nFailed:\n'
		awk '/^not ok / { on = 1; sub(/^not ok [0-9]+ /, ""); print "  " $0; next }
			/^#   / { if (on && on <= 45) print "      " substr($0, 5)
				else if (on == 46) print "      ... more in the log"
				if (on) on++
				next }
			{ on = 0 }' "$kept.tap"
	fi
	if [ "$s" != 0 ]; then
		printf '\nSkipped:\n'
		sed -nE 's/^ok [0-9]+ (.*) # SKIP (.*)/  \1: \2/p' "$kept.tap"
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

"$TOP/tools/rig/build.sh"
set_up
mkdir -p "$work"
: >"$tap"
trap 'rm -rf "$work"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM HUP
rig_tests
cargo_tests "cargo test" "" --workspace
cargo_tests loom "--cfg loom" -p engine --test loom --release
host_scripts
guest_tests
report
