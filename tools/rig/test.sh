#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs the tests: collects the tests, splits them into jobs, lets GNU make run the jobs in parallel
# (plan.sh), gives failed tests a second attempt (retry.sh), and prints the report.
#
# Usage: test.sh          make test: runs the worlds host (cargo test, tests/host) and stock
#                         (tests/kselftest in guests)
#        test.sh all      make test-all: also runs the long tests and the world debug
#        test.sh debug    make test-debug: runs the worlds debug and kcsan, with the long tests
# Variables:
#   ONLY=PATTERN    runs only programs whose source or path matches PATTERN (or a row id: 1.12)
#   WORLDS='...'    runs these worlds, of host, stock, debug and kcsan
#   LIMIT=SECONDS   ends the test run after SECONDS; 0 for no limit
#   LOAD=N          runs N busy loops at the same time
#
# The exit status is 0 if at least one test passed and no test failed. Documentation/testing.md
# describes the tests.

# shellcheck disable=SC2015 # in "A && B || C" here, C is meant for both
# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tools/rig/history.sh
. "$TOP/tools/rig/history.sh"
# shellcheck source=tools/rig/file_times.sh
. "$TOP/tools/rig/file_times.sh"

whole=""
! is_whole || whole=1
make=test${1:+-$1}
case $make in
test) ALL="" LIMIT=${LIMIT:-4200} usual="host stock" ;;
test-all) ALL=1 LIMIT=${LIMIT:-10800} usual="host stock debug" ;;
test-debug) ALL=1 LIMIT=${LIMIT:-10800} usual="debug kcsan" ;;
*) die "test.sh: unknown argument '$1'; use all or debug" ;;
esac
[[ $LIMIT =~ ^[0-9]{1,9}$ ]] || die "LIMIT=$LIMIT is not a number of up to 9 digits; give seconds, or 0 for no limit"
LIMIT=$((10#$LIMIT))
# Only a second attempt sets EXACT, to select cargo tests. Ignore EXACT in the environment of make.
unset EXACT
WORLDS=${WORLDS:-$usual}
export ONLY=${ONLY:-} ALL LOAD=${LOAD:-}
# ONLY= also selects long tests, which a plain make test leaves out.
[ -z "$ONLY" ] || ALL=1
# With LONG=1 tests run their long forms. LONG is 1 in make test-all, in make test-debug and with
# ONLY=, unless the user sets LONG= (empty).
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

# mentions FILE|DIRECTORY...: true if ONLY is empty or matches the path below $TOP or the contents of
# one of the source files. A row id such as 1.12 matches "1.12" and "r1_12_".
mentions() {
	[ -n "$ONLY" ] || return 0
	local pattern="$ONLY|${ONLY// /_}"
	[[ ! $ONLY =~ ^([0-9]+)\.([0-9]+)$ ]] ||
		pattern="(^|[^0-9.])${BASH_REMATCH[1]}\.${BASH_REMATCH[2]}([^0-9]|$)|\<r${BASH_REMATCH[1]}_${BASH_REMATCH[2]}_"
	grep -rqE --include='*.rs' --include='*.c' --include='*.sh' -e "$pattern" "$@" || grep -qE -e "$pattern" <<<"${*#"$TOP"/}"
}

# For each program, the seconds of its last run in any clone that uses the cache.
declare -A took
while read -r label program seconds; do took["$label $program"]=$seconds; done < <(cat "$CACHE/seconds" 2>/dev/null)
# expected LABEL PROGRAM LIMIT: prints the seconds that a program took when it was last run. For a
# program that was never run, prints 3 s plus 5 % of LIMIT.
expected() {
	echo "${took["$1 $2"]:-$((3 + $3 / 20))}"
}

# job SECONDS NAME NEEDS COMMAND...: appends a job to $work/jobs. SECONDS is the expected duration
# of the job, NEEDS are its prerequisites in plan.mk, and COMMAND are the arguments of job.sh.
job() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${*:4}" >>"$work/jobs"; }

# host_jobs: appends the jobs that run on the host: cargo test and the scripts of tests/host.
host_jobs() {
	local s name needs tests=""
	if mentions "$TOP/tools" "$TOP/src/protocols" "$TOP"/src/*/rules; then
		# If two cargo builds use the same target directory, one waits for the other. To
		# avoid such waits, the makefile first builds the tools, then the tests, and then
		# runs the jobs that use cargo's debug builds.
		tests=test-binaries
		job "$(expected host cargo_test 1500)" "cargo test" "tools test-binaries" cargo "'cargo test' '' --workspace"
		if [ -z "$ALL" ]; then echo loom >>"$work/left-out"; else job "$(expected host loom 1500)" loom tools cargo "loom '--cfg loom' -p protocols --test loom --test loom_ring --test self_page --release"; fi
	fi
	for s in "$TOP"/tests/host/*.sh; do
		mentions "$s" || continue
		name=$(basename "$s")
		! left_out "$s" || { echo "$name" >>"$work/left-out"; continue; }
		needs="tools modules-stock"
		[ -z "$(head_of "$s" emulator "")" ] || needs+=" emulator"
		[[ $(head_of "$s" prepare "") != *dkms* ]] || needs+=" dkms"
		[[ $(head_of "$s" cargo "") != debug ]] || needs+=" $tests"
		job "$(expected host "$name" "$(limit_of "$s")")" "$name" "$needs" script "$name"
	done
}

# boots_of WORLD: prints a line "GUEST BOOT PROGRAM LIMIT SECONDS FORM" for each program. BOOT is "-"
# for the first boot of a guest, and .2, .3 and so on for further boots. A boot ends before its
# programs take more than 200 s (300 s in make test-all, 600 s on debug kernels), because a single
# long boot could delay the end of the test run. FORM is that of programs_of().
boots_of() {
	local world=$1 most guest name limit form label
	if [ -n "$ALL" ]; then most=300; else most=200; fi
	[ "$world" = stock ] || most=600
	programs_of "$world" | while read -r guest name limit form; do
		label=$world/$guest
		printf '%s %s %s %s%s\n' "$guest" "$(expected "${label%/plain}" "$name" "$limit")" "$name" "$limit" "${form:+ $form}"
	done | sort -k1,1 -k2,2nr -k3,3 | awk -v most=$most '
		$1 != guest { guest = $1; boot = 1; sum = 0 }
		sum && sum + $2 > most { boot++; sum = 0 }
		{ sum += $2; print guest, (boot > 1 ? "." boot : "-"), $3, $4, $2, $5 }' | sort -k1,1 -k2,2 -k3,3
}

# guest_jobs WORLD: appends the jobs of a world that has guests, one job for each boot.
guest_jobs() {
	local world=$1 guest part name limit seconds form dir needs disk
	while read -r guest part name limit seconds form; do
		dir=$work/$world.$guest${part#-}
		mkdir -p "$dir"
		printf '%s %s%s\n' "$name" "$limit" "${form:+ $form}" >>"$dir/list"
		echo "$seconds" >>"$dir/seconds"
	done < <(boots_of "$world")
	# Without ONLY=, boot the guest `plain` even if it has no programs, because the boot itself
	# is a test.
	[ -n "$ONLY" ] || compgen -G "$work/$world.plain*" >/dev/null || { mkdir -p "$work/$world.plain"; : >"$work/$world.plain/list"; }
	for dir in "$work/$world".*/; do
		[ -e "$dir/list" ] || continue
		dir=$(basename "$dir")
		IFS=. read -r _ guest _ <<<"$dir"
		needs=image-$world
		[ -z "$(need_of "$guest" "$world" emulator)" ] || needs+=" emulator"
		disk=$(need_of "$guest" "$world" disk)
		case $disk in
		*debian_disk.sh) needs+=" disk-debian" ;;
		*deb*) needs+=" disk-deb" ;;
		esac
		job $(($(paste -sd+ "$work/$dir/seconds" 2>/dev/null || echo 0) + 15)) "$dir" "$needs" guest "$dir"
	done
}

# make_plan: writes the makefile of the test run. The order of targets matters, because make starts
# the first target that is ready. First come the prerequisites, beginning with those that most jobs
# need, and then the jobs, beginning with the longest. Guests do not need the target test-binaries,
# so they do not wait for it.
make_plan() {
	local name needs command seconds target
	{
		echo "include $TOP/tools/rig/plan.mk"
		needs | sed 's/^/jobs needs: /'
		! grep -q test-binaries "$work/jobs" || echo "jobs: test-binaries"
		sort -k1,1nr "$work/jobs" | while IFS=$'\t' read -r seconds name needs command; do
			target=job-${name// /-}
			# shellcheck disable=SC2016 # make's variable
			printf '.PHONY: %s\njobs: %s\n%s: %s\n\t$(timed) %s "%s" %s\n' "$target" "$target" "$target" "$needs" \
				"$(if [[ $command == guest* ]]; then echo "${name%%.*}"; else echo host; fi)" "$name" \
				"tools/rig/job.sh $command"
		done
	} >"$work/plan.mk"
}

# needs: prints the prerequisites of all jobs, without the prerequisite test-binaries. Begins with
# the prerequisites that most jobs have.
needs() { cut -f3 "$work/jobs" | tr ' ' '\n' | sort | uniq -c | sort -rn | awk 'NF == 2 && $2 != "test-binaries" { print $2 }'; }

# until_limit COMMAND...: runs a command. If LIMIT= seconds have passed since the test run began,
# kills the command and sets $ended. The command runs in the background, because bash delays traps
# while a foreground child runs.
until_limit() {
	local timer="" status=0 left
	[ -z "$ended" ] || return 1
	"$@" &
	local command=$!
	if [ "$LIMIT" != 0 ]; then
		left=$((begin + LIMIT - EPOCHSECONDS))
		# The subshell waits with the builtin read, because a sleep process could outlive
		# the subshell.
		(trap - EXIT INT TERM HUP
			read -rt $((left > 0 ? left : 1)) <>"$work/nothing" || :
			: >"$work/ended"
			say "LIMIT=$LIMIT: the time is over; running jobs are killed"
			kill_tree "$command") &
		timer=$!
	fi
	wait "$command" || status=$?
	# SIGKILL, because bash handles a SIGTERM that arrives just before a read only after the read.
	[ -z "$timer" ] || { kill -KILL "$timer"; wait "$timer" || :; } 2>/dev/null
	[ ! -e "$work/ended" ] || { ended=1 status=1; }
	return $status
}

# plan ARGUMENT...: runs plan.sh, and so make, on the makefile of the test run.
plan() {
	SLOTS=$SLOTS until_limit "$TOP/tools/rig/plan.sh" -f "$work/plan.mk" "$@"
}

# run_jobs: runs all jobs. Unless a debug kernel has to be built, a first pass of make makes all
# prerequisites. In a single pass, make would start short jobs first, because the longest jobs have
# the most prerequisites.
run_jobs() {
	local -a made=()
	if [ "$kernels" = 0 ] && plan needs; then
		mapfile -t made < <(needs | sed 's/^/--assume-old=/')
	fi
	plan "${made[@]}" jobs || :
}

# ticks: prints the number of ticks of all CPUs since boot, and the number of ticks in which CPUs
# were idle.
ticks() { awk '/^cpu / { print $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9, $5 + $6; exit }' /proc/stat; }

# report_not_run: prints the programs and jobs that had not run when LIMIT= ended the run, and the
# units whose second attempts had not ended.
report_not_run() {
	local job command name
	[ -n "$ended" ] || return 0
	printf '\nNot run, because LIMIT=%s seconds were over:\n' "$LIMIT"
	sed 's/^/  second attempt: /' "$work/second.left" 2>/dev/null || :
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

# report_skips: records a failure if a run of make test without restricting variables such as ONLY
# skipped a test that testing.md does not list. Each line of the list in testing.md consists of a
# shell pattern for worlds and guests (such as stock/pmu-*), a blank, and a shell pattern for names
# of tests.
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
	done < <(awk '/^# [^ ]+ / { label = $2 } /^ok - .* # SKIP / { sub(/^ok - /, ""); sub(/ # SKIP .*/, ""); print label " " $0 }' "$tap" | sort -u)
	[ -z "$wrong" ] || one host "rig only tests that testing.md lists are skipped" "not ok" "${wrong%$'\n'}"
}

# report_left_out: prints the tests and worlds that this test run left out, and whether make
# test-all or make test-debug runs them.
report_left_out() {
	local world
	[ -z "$ONLY" ] || return 0
	[[ " $WORLDS " == *" debug "* ]] || echo "the world debug" >>"$work/left-out"
	for world in host stock; do [[ " $WORLDS " == *" $world "* ]] || echo "the world $world" >>"$work/left-out"; done
	[ ! -s "$work/left-out" ] || printf '\nLeft to make test-all: %s\n' "$(sort -u "$work/left-out" | paste -sd, | sed 's/,/, /g')"
	[[ " $WORLDS " == *" kcsan "* ]] || printf '\nLeft to make test-debug: the world kcsan\n'
}

# show_failures TAP: prints the failed results in the file TAP, each with up to 45 lines of
# diagnostics.
show_failures() {
	awk '/^# [^ ]+ / { world = $2 }
		/^not ok / { on = 1; sub(/^not ok ([0-9]+|-) /, ""); print "  " world ": " $0; next }
		/^#   / { if (on && on <= 45) print "      " substr($0, 5)
			else if (on == 46) print "      ... more in the log"
			if (on) on++
			next }
		{ on = 0 }' "$1"
}

# report: numbers the results, and prints the skipped and failed results, the table of times and the
# totals. The status of this function becomes the exit status of the script.
report() {
	local kept=$LOGS/only p f s part boot now idle
	[ -n "$ONLY" ] || kept=$LOGS/test
	while IFS=$'\t' read -r _ part _; do
		[ ! -e "$work/$part.tap" ] || cat "$work/$part.tap" >>"$tap"
		[ -e "$work/$part.done" ] && [ -e "$work/$part.tap" ] || one "$part" "rig the job $part ran to its end" "not ok" "a prerequisite could not be made, the job was killed, or its results were removed; see the messages above, or the logs in $LOGS"
	done < <(sort -t$'\t' -k2,2 "$work/jobs")
	report_skips
	[ -z "$ended" ] || one host "rig the run ended within LIMIT=$LIMIT seconds" "not ok"
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
	# Store the results of runs without ONLY=, because make rows reads the last results of each
	# program.
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
	[ -z "$whole" ] || remember "$tree" "$make" "$p" "$f" "$s" $((EPOCHSECONDS - begin)) "$idle"
	# Print the names of the failures once more, for users who see only the end of the output.
	[ "$f" = 0 ] || printf '\nFailed, as above:\n%s\n' "$(awk '/^# [^ ]+ / { run = $2 " " $3 }
		/^not ok / { sub(/^not ok [0-9]+ /, ""); print "  " run ": " $0 }' "$kept.tap")"
	printf '\nlog: %s\n' "$kept.tap"
	[ $((p + f + s)) != 0 ] || printf 'no test matches ONLY=%s\n' "$ONLY"
	if [ "$s" = 0 ]; then
		printf '%d passed, %d failed\n' "$p" "$f"
	else
		printf '%d passed, %d failed, %d skipped\n' "$p" "$f" "$s"
	fi
	# A test run in which all tests were skipped counts as failed, because nothing was tested.
	[ "$f" = 0 ] && [ "$p" != 0 ]
}

# warn_of_full_disk: prints a message if less than 5 GB are free in the file system of the cache.
# The builds of each clone take some GB of the cache until make clean removes them.
warn_of_full_disk() {
	local free
	free=$(df -P -B 1000000 "$CACHE" | awk 'NR == 2 { print $4 }')
	[ "${free:-5000}" -ge 5000 ] ||
		say "only $free MB are free in the file system of $CACHE, and a test run may need 5000 MB; run make clean in each clone whose builds you do not need ($(find "$CACHE/clones" -mindepth 2 -maxdepth 2 -name target | wc -l) clones have builds)"
}

# forget_results: removes, in the worlds of this test run, the stored results of programs that no
# longer exist or did not run. Keeps the results of tests that this test run left out because only
# make test-all runs them.
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

# keep_results: stores the results of this test run, in one file for each world, guest and program.
# Also stores the durations of the programs.
keep_results() {
	mkdir -p "$LOGS/results"
	awk -v dir="$LOGS/results" '/^# [^ ]+ / { file = $0; sub(/^# /, "", file); gsub(/[ \/]/, ".", file); file = dir "/" file
			if (!(file in seen)) print >file; seen[file] = 1 }
		/^(not )?ok / && file != "" { print >>file }' <(cat "$tap")
	forget_results
	# Do not store durations that were measured while busy loops ran (LOAD=), because these
	# durations are too long.
	[ -z "$LOAD" ] || return 0
	{
		cat "$CACHE/seconds" 2>/dev/null || :
		sed -n 's/^program //p' "$TIMES"
	} | awk '{ seconds[$1 " " $2] = $3 } END { for (p in seconds) print p, seconds[p] }' | sort >"$CACHE/seconds.$$"
	mv "$CACHE/seconds.$$" "$CACHE/seconds"
}

# load: starts the busy loops of LOAD=, which run until the second attempts begin.
load() {
	local i
	neighbours=()
	for ((i = 0; i < ${LOAD:-0}; i++)); do
		# A busy loop ends when this script ends, even if SIGKILL ends the script. The loop
		# first closes inherited descriptors, so that it holds no lock.
		(trap - EXIT INT TERM HUP
			for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -lt 10 ] || exec {fd}>&-; done
			while kill -0 $$ 2>/dev/null; do for ((k = 0; k < 300000; k++)); do :; done; done) &
		neighbours+=($!)
	done
}

unload() { [ ${#neighbours[@]} = 0 ] || kill "${neighbours[@]}" 2>/dev/null || :; }

for world in $WORLDS; do
	[[ " host stock debug kcsan " == *" $world "* ]] || die "unknown world '$world' in WORLDS=; the worlds are host, stock, debug, kcsan"
done
check_heads
warn_of_full_disk
# An earlier test run with the same process id may have left this directory when it was killed.
rm -rf "$work"
mkdir -p "$work"
: >"$tap"
: >"$work/jobs"
: >"$TIMES"
mkfifo "$work/nothing"
begin=$EPOCHSECONDS before=$(ticks) ended="" tree=$(committed_tree)
export TEST_RUN=$$
# In a subshell ($BASHPID is not $$) the trap does nothing, because a subshell may be killed before
# it has reset the inherited traps.
# shellcheck disable=SC2031,SC2154 # the trap itself sets $job
trap '[ $BASHPID != $$ ] || { trap "" INT TERM HUP; for job in $(jobs -p); do kill_tree "$job"; done; rm -rf "$work"; }' EXIT
trap 'exit 130' INT TERM HUP
load
# SLOTS, the number of jobs that run in parallel, is the number of CPUs plus one, as guests and
# downloads leave some CPU time unused. If two debug kernels have to be built, SLOTS is the number
# of CPUs plus two. With LOAD=, half of LOAD is added to SLOTS, so that the test run does not take
# hours.
kernels=0
for world in $WORLDS; do
	case $world in debug | kcsan) compgen -G "$CACHE/kernel/*/$world-*/root" >/dev/null || kernels=$((kernels + 1)) ;; esac
	if [ "$world" = host ]; then host_jobs; else guest_jobs "$world"; fi
done
restore_times
SLOTS=$((JOBS + (kernels > 1 ? kernels : 1) + ${LOAD:-0} / 2))
make_plan
[ ! -s "$work/jobs" ] || run_jobs
# With ONLY= there are no second attempts, because the user wants to see the failures.
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
