#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make test [ONLY=PATTERN] [WORLDS='...'] [LIMIT=SECONDS]: the host world (cargo test, tests/host)
# and the stock world (tests/kselftest in guests), as jobs that run side by side (plan.sh).
# A failed unit runs once more, alone (retry.sh). See Documentation/testing.md.
# Usage: test.sh          make test
#        test.sh all      make test-all: the long tests as well, and the debug kernel's world
#        test.sh debug    make test-debug: the worlds debug and kcsan

# shellcheck disable=SC2015 # in "A && B || C" here, C is meant for both
# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tools/rig/history.sh
. "$TOP/tools/rig/history.sh"

whole=""
! is_whole || whole=1
make=test${1:+-$1}
case $make in
test) ALL="" LIMIT=${LIMIT:-4200} usual="host stock" ;;
test-all) ALL=1 LIMIT=${LIMIT:-10800} usual="host stock debug" ;;
test-debug) ALL=1 LIMIT=${LIMIT:-10800} usual="debug kcsan" ;;
*) die "test.sh $1: all or debug is wanted" ;;
esac
[[ $LIMIT =~ ^[0-9]+$ ]] || die "LIMIT=$LIMIT: a number of seconds is wanted, 0 for no limit"
WORLDS=${WORLDS:-$usual}
export ONLY=${ONLY:-} ALL LOAD=${LOAD:-}
# A test that is asked for by name runs, however long it takes.
[ -z "$ONLY" ] || ALL=1
# The tests run their long forms; LONG= with ONLY runs the short ones.
export LONG=${LONG-${ALL:+1}}
work=$LOGS/run.$$
tap=$work/tap
export work RUN_DIR=$work
TIMES=$work/times
export TIMES
# shellcheck source=tools/rig/results.sh
. "$TOP/tools/rig/results.sh"
# shellcheck source=tools/rig/guest.sh
. "$TOP/tools/rig/guest.sh"
# shellcheck source=tools/rig/retry.sh
. "$TOP/tools/rig/retry.sh"

# mentions FILE|DIRECTORY...: do these sources speak of what was asked for?
mentions() {
	[ -n "$ONLY" ] || return 0
	local pattern="$ONLY|${ONLY// /_}"
	[[ ! $ONLY =~ ^([0-9]+)\.([0-9]+)$ ]] ||
		pattern="(^|[^0-9.])${BASH_REMATCH[1]}\.${BASH_REMATCH[2]}([^0-9]|$)|\<r${BASH_REMATCH[1]}_${BASH_REMATCH[2]}_"
	grep -rqE --include='*.rs' --include='*.c' --include='*.sh' -e "$pattern" "$@" || grep -qE -e "$pattern" <<<"$*"
}

# Seconds that a program took the last time, here or in another clone; or a guess.
declare -A took
while read -r label program seconds; do took["$label $program"]=$seconds; done < <(cat "$CACHE/seconds" 2>/dev/null)
expected() { # LABEL PROGRAM LIMIT
	echo "${took["$1 $2"]:-$((3 + $3 / 20))}"
}

# job SECONDS NAME NEEDS COMMAND...: a line of the plan's source, sorted by make_plan.
job() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${*:4}" >>"$work/jobs"; }

host_jobs() {
	local s name needs
	if mentions "$TOP/tools" "$TOP/src/engine"; then
		# Builds of cargo's wait for one another; the tools are first.
		job "$(expected host cargo_test 1500)" "cargo test" tools cargo "'cargo test' '' --workspace"
		if [ -z "$ALL" ]; then echo loom >>"$work/left-out"; else job "$(expected host loom 1500)" loom tools cargo "loom '--cfg loom' -p engine --test loom --test loom_ring --test selfpage --release"; fi
	fi
	for s in "$TOP"/tests/host/*.sh; do
		mentions "$s" || continue
		name=$(basename "$s")
		! left_out "$s" || { echo "$name" >>"$work/left-out"; continue; }
		needs="tools modules-stock"
		[ -z "$(head_of "$s" emulator "")" ] || needs+=" emulator"
		[[ $(head_of "$s" prepare "") != *dkms* ]] || needs+=" dkms"
		job "$(expected host "$name" "$(limit_of "$s")")" "$name" "$needs" script "$name"
	done
}

# Programs of one guest are in one boot, or in several where they take long: so that
# the longest job is not what all others are waited for with.
boots_of() { # WORLD
	local world=$1 most=300 guest name limit label
	[ "$world" = stock ] || most=600
	programs_of "$world" | while read -r guest name limit; do
		label=$world/$guest
		printf '%s %s %s %s\n' "$guest" "$(expected "${label%/plain}" "$name" "$limit")" "$name" "$limit"
	done | sort -k1,1 -k2,2nr -k3,3 | awk -v most=$most '
		function boots(  i, b, least) {
			n = int(total / most) + 1
			for (b = 1; b <= n; b++) sum[b] = 0
			# The longest first, each to the boot that has the least so far.
			for (i = 1; i <= count; i++) {
				least = 1
				for (b = 2; b <= n; b++) if (sum[b] < sum[least]) least = b
				sum[least] += seconds[i]
				print guest, (n > 1 ? "." least : "-"), program[i]
			}
		}
		$1 != guest { if (count) boots(); guest = $1; count = total = 0 }
		{ program[++count] = $3 " " $4 " " $2; seconds[count] = $2; total += $2 }
		END { if (count) boots() }' | sort -k1,1 -k2,2 -k3,3
}

guest_jobs() { # WORLD
	local world=$1 guest part name limit seconds dir needs disk
	while read -r guest part name limit seconds; do
		dir=$work/$world.$guest${part#-}
		mkdir -p "$dir"
		printf '%s %s\n' "$name" "$limit" >>"$dir/list"
		echo "$seconds" >>"$dir/seconds"
	done < <(boots_of "$world")
	# Without ONLY the guest is started in any case: that it boots is a result.
	[ -n "$ONLY" ] || compgen -G "$work/$world.plain*" >/dev/null || { mkdir -p "$work/$world.plain"; : >"$work/$world.plain/list"; }
	for dir in "$work/$world".*/; do
		[ -e "$dir/list" ] || continue
		dir=$(basename "$dir")
		IFS=. read -r _ guest _ <<<"$dir"
		needs=image-$world
		[ -z "$(need_of "$guest" "$world" emulator)" ] || needs+=" emulator"
		disk=$(need_of "$guest" "$world" disk)
		case $disk in
		*full.sh) needs+=" disk-full" ;;
		*deb*) needs+=" disk-deb" ;;
		esac
		job $(($(paste -sd+ "$work/$dir/seconds" 2>/dev/null || echo 0) + 15)) "$dir" "$needs" guest "$dir"
	done
}

# The jobs for make, which begins with the first that can begin: what most waits for, then
# the jobs that will take the longest.
make_plan() {
	local name needs command seconds target
	{
		echo "include $TOP/tools/rig/plan.mk"
		needs | sed 's/^/jobs needs: /'
		sort -k1,1nr "$work/jobs" | while IFS=$'\t' read -r seconds name needs command; do
			target=job-${name// /-}
			# shellcheck disable=SC2016 # make's variable
			printf '.PHONY: %s\njobs: %s\n%s: %s\n\t$(timed) %s "%s" %s\n' "$target" "$target" "$target" "$needs" \
				"$(if [[ $command == guest* ]]; then echo "${name%%.*}"; else echo host; fi)" "$name" \
				"tools/rig/job.sh $command"
		done
	} >"$work/plan.mk"
}

# What jobs need, the most needed first.
needs() { cut -f3 "$work/jobs" | tr ' ' '\n' | sort | uniq -c | sort -rn | awk 'NF == 2 { print $2 }'; }

# until_limit COMMAND...: runs it, and ends it when the run's time is up (LIMIT=). Sets $ended then.
# In the background, so that a signal to this script is acted on at once.
until_limit() {
	local timer="" status=0 left
	[ -z "$ended" ] || return 1
	"$@" &
	local command=$!
	if [ "$LIMIT" != 0 ]; then
		left=$((begin + LIMIT - EPOCHSECONDS))
		# read is bash's own: this has no child that could outlive it.
		(trap - EXIT INT TERM HUP
			read -rt $((left > 0 ? left : 1)) <>"$work/nothing" || :
			: >"$work/ended"
			say "LIMIT=$LIMIT: the time is up; what runs is ended"
			kill_tree "$command") &
		timer=$!
	fi
	wait "$command" || status=$?
	[ -z "$timer" ] || { kill_tree "$timer"; wait "$timer" || :; } 2>/dev/null
	[ ! -e "$work/ended" ] || { ended=1 status=1; }
	return $status
}

plan() { # WORDS FOR MAKE...
	SLOTS=$SLOTS until_limit "$TOP/tools/rig/plan.sh" -f "$work/plan.mk" "$@"
}

# What make finds not ready comes after all else, and the longest jobs need the most: so
# where no kernel has to be built, all that jobs need is made before any of them.
run_jobs() {
	local -a made=()
	if [ "$kernels" = 0 ] && plan needs; then
		mapfile -t made < <(needs | sed 's/^/--assume-old=/')
	fi
	plan "${made[@]}" jobs || :
}

# The processors' ticks so far: all, idle.
ticks() { awk '/^cpu / { print $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9, $5 + $6; exit }' /proc/stat; }

# The programs and jobs that had not run when LIMIT ended the run.
report_not_run() {
	local job command name
	[ -n "$ended" ] || return 0
	printf '\nNot run, as LIMIT=%s seconds were over:\n' "$LIMIT"
	while IFS=$'\t' read -r _ job _ command; do
		[ ! -e "$work/$job.done" ] || continue
		if [[ $command == guest* ]]; then
			while read -r name _; do
				grep -qE "^# [^ ]+ $name\$" "$work/$job.tap" 2>/dev/null || echo "  ${job%%.*}: $name"
			done <"$work/$job/list"
		else
			echo "  host: $job"
		fi
	done < <(sort -k2 "$work/jobs")
}

# A whole run of make test may skip the tests that testing.md lists, as shell patterns.
report_skips() {
	local name wrong=""
	[ -n "$whole" ] && [ -z "$ALL" ] || return 0
	local -a allowed
	# shellcheck disable=SC2016 # the page's own quotes
	mapfile -t allowed < <(sed -n '/^Skipped in `make test`:$/,/^```$/{ /^```/d; /^Skipped/d; p }' "$TOP/Documentation/testing.md" | sed '/^$/d')
	while read -r name; do
		for pattern in "${allowed[@]}"; do
			# shellcheck disable=SC2053 # a pattern
			[[ $name != $pattern ]] || continue 2
		done
		wrong+=$name$'\n'
	done < <(sed -nE 's/^ok - (.*) # SKIP .*/\1/p' "$tap" | sort -u)
	[ -z "$wrong" ] || one host "rig only those tests are skipped that testing.md lists" "not ok" "${wrong%$'\n'}"
}

# The names of what this run left to make test-all.
report_left_out() {
	local world
	[ -z "$ONLY" ] || return 0
	[[ " $WORLDS " == *" debug "* ]] || echo "the world debug" >>"$work/left-out"
	for world in host stock; do [[ " $WORLDS " == *" $world "* ]] || echo "the world $world" >>"$work/left-out"; done
	[ ! -s "$work/left-out" ] || printf '\nLeft to make test-all: %s\n' "$(sort -u "$work/left-out" | paste -sd, | sed 's/,/, /g')"
	[[ " $WORLDS " == *" kcsan "* ]] || printf '\nLeft to make test-debug: the world kcsan\n'
}

# show_failures TAP: the failed results of a file, each with what it said.
show_failures() {
	awk '/^# [^ ]+ / { world = $2 }
		/^not ok / { on = 1; sub(/^not ok ([0-9]+|-) /, ""); print "  " world ": " $0; next }
		/^#   / { if (on && on <= 45) print "      " substr($0, 5)
			else if (on == 46) print "      ... more in the log"
			if (on) on++
			next }
		{ on = 0 }' "$1"
}

# Number the results, show skips and, where the eye falls, failures; count.
report() {
	local kept=$LOGS/only p f s part boot now idle
	[ -n "$ONLY" ] || kept=$LOGS/test
	while IFS=$'\t' read -r _ part _; do
		[ ! -e "$work/$part.tap" ] || cat "$work/$part.tap" >>"$tap"
		[ -e "$work/$part.done" ] || one "$part" "rig the job $part ran to its end" "not ok" "what it needs could not be made, or it was ended: see above, or the logs in $LOGS"
	done < <(sort -t$'\t' -k2,2 "$work/jobs")
	report_skips
	rm -f "$kept".*.log
	awk 'BEGIN { print "TAP version 13" }
		/^ok - / { sub(/^ok - /, ""); print "ok " ++n " " $0; next }
		/^not ok - / { sub(/^not ok - /, ""); print "not ok " ++n " " $0; next }
		{ print } END { print "1.." n + 0 }' "$tap" >"$kept.tap"
	cat "$work"/*.host.log >"$kept.host.log" 2>/dev/null || :
	for part in "$work"/*.*/ "$work"/second.*/*.*/; do
		[ -e "$part/console" ] || continue
		boot=${part#"$work/"} boot=${boot%/}
		mv -f "$part/console" "$kept.${boot////.}.console.log"
		mv -f "$part/results" "$kept.${boot////.}.guest.log"
	done
	# What make rows speaks of: the last whole run of each program in each world.
	[ -n "$ONLY" ] || { cp "$CACHE/seconds" "$work/seconds" 2>/dev/null || :; keep_results; }
	p=$(grep -E '^ok ' "$kept.tap" | grep -vc ' # SKIP ' || :)
	f=$(grep -cE '^not ok ' "$kept.tap" || :)
	s=$(grep -cE '^ok .* # SKIP ' "$kept.tap" || :)
	if [ "$s" != 0 ]; then
		printf '\nSkipped:\n'
		sed -nE 's/^ok [0-9]+ (.*) # SKIP (.*)/  \1: \2/p' "$kept.tap" | sort -u
	fi
	if [ -s "$work/second.tap" ]; then
		printf '\nPassed at the second attempt; the first one said:\n'
		show_failures "$work/second.tap"
	fi
	if [ "$f" != 0 ]; then
		printf '\nFailed:\n'
		show_failures "$kept.tap"
	fi
	now=$(ticks)
	awk -v begin="$begin" -v end="$EPOCHSECONDS" -v before="$before" -v after="$now" -v earlier="$([ -n "$ONLY" ] || echo "$work/seconds")" \
		-f "$TOP/tools/rig/times.awk" "$TIMES"
	report_not_run
	report_left_out
	idle=$(awk '{ printf "%.0f%%", ($3 > $1 ? 100 * ($4 - $2) / ($3 - $1) : 0) }' <<<"$before $now")
	[ -z "$whole" ] || remember "$tree" "$make" "$p" "$([ -z "$ended" ] && echo "$f" || echo $((f + 1)))" "$s" $((EPOCHSECONDS - begin)) "$idle"
	# Once more by name, for who sees the end only.
	[ "$f" = 0 ] || printf '\nFailed, as above:\n%s\n' "$(awk '/^# [^ ]+ / { run = $2 " " $3 }
		/^not ok / { sub(/^not ok [0-9]+ /, ""); print "  " run ": " $0 }' "$kept.tap")"
	printf '\nlog: %s\n' "$kept.tap"
	[ $((p + f + s)) != 0 ] || printf 'no test matches ONLY=%s\n' "$ONLY"
	if [ "$s" = 0 ]; then
		printf '%d passed, %d failed\n' "$p" "$f"
	else
		printf '%d passed, %d failed, %d skipped\n' "$p" "$f" "$s"
	fi
	# Where all were skipped nothing was tested.
	[ "$f" = 0 ] && [ "$p" != 0 ]
}

# Of this run's worlds, programs that are there no more, or that did not run, have no
# results; those that were left to make test-all keep theirs.
forget_results() {
	local f label program name
	for f in "$LOGS"/results/*; do
		read -r _ label program <"$f"
		[[ " $WORLDS " == *" ${label%%/*} "* ]] && [ ! "$f" -nt "$work/jobs" ] || continue
		name=$program
		[[ $label != */* ]] || name="$program in ${label#*/}"
		grep -qxF -e "$name" -e "$program in plain" "$work/left-out" 2>/dev/null || rm -f "$f"
	done
}

# A file for each world, guest and program; and how long each took.
keep_results() {
	mkdir -p "$LOGS/results"
	awk -v dir="$LOGS/results" '/^# [^ ]+ / { file = $0; sub(/^# /, "", file); gsub(/[ \/]/, ".", file); file = dir "/" file
			if (!(file in seen)) print >file; seen[file] = 1 }
		/^(not )?ok / && file != "" { print >>file }' <(cat "$tap")
	forget_results
	# Beside busy loops all takes longer than it does.
	[ -z "$LOAD" ] || return 0
	{
		cat "$CACHE/seconds" 2>/dev/null || :
		sed -n 's/^program //p' "$TIMES"
	} | awk '{ seconds[$1 " " $2] = $3 } END { for (p in seconds) print p, seconds[p] }' | sort >"$CACHE/seconds.$$"
	mv "$CACHE/seconds.$$" "$CACHE/seconds"
}

# Busy neighbours: LOAD=8 is that many, until the second attempts.
load() {
	local i
	neighbours=()
	for ((i = 0; i < ${LOAD:-0}; i++)); do
		# Not for longer than this run, whoever kills it, and without its locks.
		(trap - EXIT INT TERM HUP
			for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -lt 10 ] || exec {fd}>&-; done
			while kill -0 $$ 2>/dev/null; do for ((k = 0; k < 300000; k++)); do :; done; done) &
		neighbours+=($!)
	done
}

unload() { [ ${#neighbours[@]} = 0 ] || kill "${neighbours[@]}" 2>/dev/null || :; }

for world in $WORLDS; do
	[[ " host stock debug kcsan " == *" $world "* ]] || die "there is no world $world; WORLDS= takes host, stock, debug, kcsan"
done
in_use
# One that was killed may have left a directory of this number.
rm -rf "$work"
mkdir -p "$work"
: >"$tap"
: >"$work/jobs"
: >"$TIMES"
mkfifo "$work/nothing"
begin=$EPOCHSECONDS before=$(ticks) ended="" tree=$(committed_tree)
export TEST_RUN=$$
# A child that is ended before it has dropped its parent's traps would run this, too.
# shellcheck disable=SC2031,SC2154 # it is, there
trap '[ $BASHPID != $$ ] || { trap "" INT TERM HUP; for job in $(jobs -p); do kill_tree "$job"; done; rm -rf "$work"; }' EXIT
trap 'exit 130' INT TERM HUP
load
# Guests and downloads leave some of the processors idle: a job more than there are
# processors, and one for each debug kernel to build, which has what others leave. Beside
# busy loops more, or it would take hours.
kernels=0
for world in $WORLDS; do
	case $world in debug | kcsan) compgen -G "$CACHE/kernel/*/$world-*/root" >/dev/null || kernels=$((kernels + 1)) ;; esac
	if [ "$world" = host ]; then host_jobs; else guest_jobs "$world"; fi
done
SLOTS=$((JOBS + (kernels > 1 ? kernels : 1) + ${LOAD:-0} / 2))
make_plan
[ ! -s "$work/jobs" ] || run_jobs
# A test that is asked for by name runs once: its failures are of interest.
[ -n "$ONLY" ] || {
	unload
	second_attempts
}
for world in $WORLDS; do
	[ "$world" = host ] || { grep 'does not compile' "$LOGS/image.$world.log" 2>/dev/null || :; } | while read -r _ program _; do
		one "$world" "rig ${program##*/} compiles" "not ok" "$(grep -A 5 "error" "$LOGS/image.$world.log" | head -n 20)"
	done
done
report
