# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# shellcheck disable=SC2015 # in "A && B || C" here, C is meant for both
#
# Tests in guests: which programs a world has (test.sh), and one boot of a guest
# (job.sh). Each boot has a folder of its own, $work/WORLD.GUEST, or WORLD.GUEST.N where
# the guest's programs are in several boots, with list, results and console.

# shellcheck source=tests/vm/guests
. "$TOP/tests/vm/guests"
: "${work:?} ${tap:?}"

# What no kernel says without a reason. The debug kernels' detectors first.
splat='BUG:|WARNING:|KASAN:|KCSAN:|UBSAN:|KFENCE:|ODEBUG:|DEBUG_LOCKS_WARN_ON'
splat+='|possible (circular locking|recursive locking|irq lock inversion|deadlock)|inconsistent lock state|[a-zA-Z]+-safe -> [a-zA-Z]+-unsafe lock order'
splat+='|suspicious RCU usage|held lock freed|locks? (still )?held (when|at)|bad unlock balance|bad contention detected|invalid wait context|Nested lock was not taken|MAX_LOCK'
splat+='|sleeping function called|scheduling while atomic|bad: scheduling|in preemptible|Voluntary context switch within RCU'
splat+='|Oops|Kernel panic|general protection fault|Call Trace:|unchecked MSR access|NMI received for unknown|cut here|unable to handle|refcount_t:|list_(add|del) corruption|kernel tried to execute'
splat+='|soft lockup|hard LOCKUP|self-detected stall|detected stalls|detected expedited stalls|blocked for more than|blocked in I/O wait for more'

# head_of FILE KEY DEFAULT: a line "KEY: VALUE" in the head of a source.
head_of() {
	local v
	v=$(head -n 40 "$1" | sed -nE "s#^(/\\*|//| \\*|\\#) *$2: *([^*]*[^* ]).*#\\2#p" | head -n 1)
	echo "${v:-$3}"
}

limit_of() { # a test's seconds on the stock kernel
	head_of "$1" timeout 120 | sed 's/[^0-9].*//'
}

# need_of GUEST WORLD NAME: what the guest's function (tests/vm/guests) sets NAME to.
need_of() {
	# shellcheck disable=SC2034 # the function's to change
	local smp="" mem="" append="" disk="" patience=240 world=$2
	# shellcheck disable=SC2034
	local -a qemu=()
	# shellcheck disable=SC2034
	local cpu="" accel="" pmu="" emulator=pmu
	be_guest "$1" && printf '%s' "${!3}"
}

# left_out FILE [GUEST WORLD]: whether only make test-all runs it: its line "target:" says so, its
# line "gate:" does not name this guest, or the guest has a user land on a disk.
left_out() {
	[ -z "${ALL:-}" ] || return 1
	[ "$(head_of "$1" target test)" = test-all ] || [[ " $(head_of "$1" gate "${2:-}") " != *" ${2:-} "* ]] ||
		[ -n "${2:+$(need_of "$2" "$3" disk)}" ]
}

# programs_of WORLD: "GUEST PROGRAM SECONDS" for each wanted program and guest; the
# seconds are those it may take.
programs_of() {
	local world=$1 f guest limit name
	for f in "$TOP"/tests/kselftest/*.{c,sh}; do
		[ -e "$f" ] && mentions "$f" && [[ " $(head_of "$f" worlds "stock debug kcsan") " == *" $world "* ]] || continue
		name=$(basename "$f" .c)
		limit=$(($(limit_of "$f") * $(slowness "$world")))
		# shellcheck disable=SC2046 # words
		for guest in $(each_guest $(head_of "$f" guest plain)); do
			if left_out "$f" "$guest" "$world"; then
				echo "$name in $guest" >>"$work/left-out"
			else
				printf '%s %s %s\n' "$guest" "$name" "$limit"
			fi
		done
	done
}

# How much longer than on the stock kernel, on an idle machine, anything may take.
slowness() {
	local slow=1
	[ "$1" = stock ] || [ "$1" = host ] || slow=3
	# shellcheck disable=SC2153 # lib.sh sets it
	echo $((slow * PATIENCE))
}

# run_guest WORLD GUEST DIR: one boot, and what is to be said of it.
run_guest() {
	local world=$1 guest=$2 dir=$3 emulator rc=0 label=$1/$2
	declare -F "guest_${guest%%-*}" >/dev/null || {
		one "$label" "rig there is a guest $guest" "not ok" "tests/vm/guests has no guest_${guest%%-*}"
		return
	}
	: >"$dir/results"
	: >"$dir/console"
	emulator=$(need_of "$guest" "$world" emulator)
	[ -z "$emulator" ] || "$TOP/tests/qemu-$emulator/build.sh" >/dev/null || rc=$?
	if [ $rc != 0 ]; then
		one "$label" "rig the emulator of tests/qemu-$emulator is built" "not ok" "$(cat "$CACHE/qemu-$emulator/why" 2>/dev/null || echo "make qemu-$emulator says why")"
		return
	fi
	begin_guest "$world" "$guest" "$dir"
	follow $! "$world" "$guest" "$dir" $(($(need_of "$guest" "$world" patience) * $(slowness "$world")))
	if [[ $guest == faulty || $guest == lockup-* ]]; then
		expected_reports "$label" "$dir"
	else
		kernel_log "$label" "$dir"
		leaks "$label" "$dir"
	fi
}

begin_guest() { # WORLD GUEST DIR
	WORLD=$1 GUEST=$2 "$TOP/tools/rig/vm.sh" test "$3" >"$3/vm.log" 2>&1 &
}

# follow PID WORLD GUEST DIR PATIENCE: report programs as they end; a guest that
# stops reporting is ended. One whose kernel has not come to the first program within that
# patience is booted once more: nothing of ours was in it.
follow() {
	local pid=$1 world=$2 dir=$4 again="" begun=0 ended=0 new prog limit rc seconds deadline=$((SECONDS + $5)) end="died"
	local results=$dir/results label=$2/$3 ups=0 clocks=""
	label=${label%/plain}
	# Lines come byte by byte: the last one may be a part of one.
	lines() { head -n "$(wc -l <"$results")" "$results" | grep -a "^# $1 " || :; }
	# Never shorter: the next program may have begun when the end of the one before is seen.
	wait_for() { deadline=$((deadline > SECONDS + $1 ? deadline : SECONDS + $1)); }
	while :; do
		local alive=1
		new=$(lines up | wc -l)
		while [ "$ups" -lt "$new" ]; do
			ups=$((ups + 1))
			clocks+=" $(lines up | sed -n "${ups}s/# up //p") $SECONDS"
		done
		kill -0 "$pid" 2>/dev/null || alive=
		new=$(lines begin | wc -l)
		if [ "$new" -gt "$begun" ]; then
			begun=$new
			read -r _ _ prog limit < <(lines begin | sed -n "${begun}p")
			wait_for $((limit + 60 * $(slowness "$world")))
		fi
		new=$(lines end | wc -l)
		while [ "$ended" -lt "$new" ]; do
			ended=$((ended + 1))
			read -r _ _ prog rc seconds < <(lines end | sed -n "${ended}p")
			limit=$(awk -v p="$prog" '$1 == p { print $2 }' "$dir/list")
			block "$dir" "$prog" | collect "$label" "$prog" "$rc" "$limit" "$seconds"
			# The scans for leaks take their time on a debug kernel.
			[ "$world" = stock ] || wait_for $((100 * $(slowness "$world")))
		done
		[ -n "$alive" ] || break
		if [ $SECONDS -gt $deadline ]; then
			kill "$pid" 2>/dev/null || :
			wait "$pid" 2>/dev/null || :
			if [ -z "$again" ] && ! grep -aq '^# ' "$results"; then
				again="its kernel did not come to the first program in $5 s, and was booted once more:
$(tail -n 5 "$dir/console")"
				deadline=$((SECONDS + $5))
				begin_guest "$world" "$3" "$dir"
				pid=$!
				continue
			fi
			end="hung and was ended"
			break
		fi
		sleep 0.3
	done
	if grep -aq '^# ' "$results"; then
		# What vm.sh keeps of guests that it gave up before anything of ours was loaded.
		one "$label" "rig the guest boots" ok "$(cat "$results.again" 2>/dev/null || :)$again"
	else
		one "$label" "rig the guest boots" "not ok" "$(cat "$dir/vm.log"; tail -n 40 "$dir/console")"
	fi
	clock_goes_right "$label" "$clocks"
	if grep -aq '^# done 0' "$results" && [ "$ended" = "$(wc -l <"$dir/list")" ]; then
		one "$label" "rig the guest runs to its end" ok
		return
	fi
	# The program that was running, and all that never ran, are failures.
	tail -n +$((ended + 1)) "$dir/list" | while read -r prog limit; do
		block "$dir" "$prog" | collect "$label" "$prog" "" "$limit" ""
	done
	one "$label" "rig the guest runs to its end" "not ok" "the guest $end; its console's end:
$(tail -n 40 "$dir/console")"
}

# clock_goes_right LABEL "UP AT ..." : what the guest said of its uptime, and when.
clock_goes_right() {
	local up at end_up end_at
	read -r up at end_up end_at <<<"$2"
	# One that did not come to its end has said it once.
	[ -n "${end_at:-}" ] || return 0
	up=$((end_up - up)) at=$((end_at - at))
	if [ $((up > at ? up - at : at - up)) -gt $((10 * $(slowness "${1%%/*}") + at / 10)) ]; then
		one "$1" "rig the guest's clock goes right" "not ok" "$up seconds in $at"
	else
		one "$1" "rig the guest's clock goes right" ok
	fi
}

# block DIR PROGRAM: what it printed.
block() { awk -v p="$2" '/^# (begin|end) / { on = $2 == "begin" && $3 == p; next } on' "$1/results"; }

# ours CONSOLE: the log without data races in which none of our modules took
# part: mainline has its own, and is not what is tested.
ours() {
	awk '/BUG: KCSAN:/ { race = ""; lines = 120 }
		!lines { print; next }
		{ race = race $0 "\n"; lines-- }
		/(\] |^)=+\r?$/ || !lines {
			if (race ~ /\[(perfcounters|pfc_[a-z]+|sample_[a-z]+|puppet|faulty)\]/)
				printf "%s", race
			race = ""
			lines = 0
		}
		END { printf "%s", race }' "$1"
}

# reports CONSOLE: what the kernel complained of, with the program that ran.
# Injected failures announce themselves with a trace, unless told not to: those
# are wanted.
reports() {
	awk -v splat="$splat" '{ sub(/\r$/, "") }
		/\] ### / { prog = $0; sub(/.*\] ### /, "", prog); left = 0 }
		/FAULT_INJECTION: forcing a failure/ { wanted = 60 }
		/<\/TASK>/ { wanted = 0 }
		wanted { wanted--; if (!/BUG:|WARNING:|KASAN/) next; wanted = 0 }
		$0 ~ splat && !left { print "during " (prog ? prog : "boot") ":"; left = 25 }
		left { print; left-- }' <(ours "$1")
}

kernel_log() { # kernel_log LABEL DIR
	local found races label=${1%/plain} splat=$splat
	# That is what this guest's interrupts are.
	[[ $label != */pmu-spurious ]] || splat=${splat/|NMI received for unknown/}
	found=$(reports "$2/console" | sed -n 1,160p)
	races=$(($(grep -ac 'BUG: KCSAN:' "$2/console") - $(ours "$2/console" | grep -ac 'BUG: KCSAN:'))) || : # none is no fault
	if [ -z "$found" ]; then
		one "$label" "rig the kernel log is clean" ok "$([ "$races" = 0 ] || echo "left out: $races data races within the kernel itself")"
	else
		one "$label" "rig the kernel log is clean" "not ok" "$found"
	fi
}

# leaks LABEL DIR: what the guest's scans for leaked memory found at the end.
leaks() {
	local found label=${1%/plain}
	grep -aq '^# leaks begin' "$2/results" || {
		[[ $label != debug* ]] || one "$label" "rig nothing leaked" "not ok" "the guest made no scan"
		return 0
	}
	found=$(sed -n '/^# leaks begin/,/^# leaks end/{/^# leaks /!p}' "$2/results" | tr -d '\r' | sed -n 1,160p)
	if [ -z "$found" ]; then
		one "$label" "rig nothing leaked" ok
	else
		one "$label" "rig nothing leaked" "not ok" "$found"
	fi
}

# expected_reports LABEL DIR: each fault that was committed on purpose must have
# been found by the very scans that fail a run.
expected_reports() {
	local found fault text n=0
	found=$(reports "$2/console")
	grep -a '^# expect ' "$2/results" | tr -d '\r' | sed 's/^# expect //' >"$2/expected"
	{
		echo "1..$(wc -l <"$2/expected")"
		while IFS= read -r text; do
			n=$((n + 1))
			fault=${text%%: *} text=${text#*: }
			# grep reads all of it: awk must not fail because nobody reads on.
			if { [ "$fault" = leak ] && sed -n '/^# leaks begin/,/^# leaks end/p' "$2/results" ||
				awk -v f="fault $fault" '/^during / { on = $0 == "during " f ":" } on' <<<"$found"; } | grep -aF -- "$text" >/dev/null; then
				echo "ok $n rig the ${1%%/*} kernel reports $fault"
			else
				echo "not ok $n rig the ${1%%/*} kernel reports $fault"
				echo "# no report that says: $text"
			fi
		done <"$2/expected"
	} | collect "$1" "faulty, as reported" 0 - ""
}
