# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# shellcheck disable=SC2015 # in "A && B || C" here, C is meant for both
#
# Functions for tests in guests (virtual machines). A *world* is the host or a kernel (stock, debug,
# kcsan) on which tests run. The functions are used in test.sh to list the programs of a world, and
# in job.sh to run one boot of a guest. Each boot has a directory for its list of programs, its
# results and its console output. The directory is $work/WORLD.GUEST, or $work/WORLD.GUEST.N for
# boot N of a guest whose programs are split over several boots.

# shellcheck source=tests/vm/guests
. "$TOP/tests/vm/guests"
: "${work:?} ${tap:?}"

# Pattern of kernel messages that make a test run fail. The messages of the detectors that only
# debug kernels have (such as KASAN) come first.
splat='BUG:|WARNING:|KASAN:|KCSAN:|UBSAN:|KFENCE:|ODEBUG:|DEBUG_LOCKS_WARN_ON'
splat+='|possible (circular locking|recursive locking|irq lock inversion|deadlock)|inconsistent lock state|[a-zA-Z]+-safe -> [a-zA-Z]+-unsafe lock order'
splat+='|suspicious RCU usage|held lock freed|locks? (still )?held (when|at)|bad unlock balance|bad contention detected|invalid wait context|Nested lock was not taken|MAX_LOCK'
splat+='|sleeping function called|scheduling while atomic|bad: scheduling|in preemptible|Voluntary context switch within RCU'
splat+='|Oops|Kernel panic|general protection fault|Call Trace:|unchecked MSR access|NMI received for unknown|cut here|unable to handle|refcount_t:|list_(add|del) corruption|kernel tried to execute'
splat+='|soft lockup|hard LOCKUP|self-detected stall|detected stalls|detected expedited stalls|blocked for more than|blocked in I/O wait for more'

# head_of FILE KEY DEFAULT: prints the value of a key in the comment at the beginning of a source
# file: the text after KEY and a colon. Prints DEFAULT if no line of the comment begins with KEY and
# a colon. The function reads at most 40 lines and starts no program, because a test run calls it
# some 1,000 times before the first job.
head_of() {
	local line n pattern="^(/\\*|//| \\*|#) *$2: *([^*]*[^* ])"
	for ((n = 0; n < 40; n++)); do
		IFS= read -r line || break
		case $line in '#'* | '//'* | '/*'* | ' *'*) ;; *) break ;; esac
		[[ $line =~ $pattern ]] || continue
		printf '%s\n' "${BASH_REMATCH[2]}"
		return
	done <"$1"
	printf '%s\n' "$3"
}

# limit_of FILE: prints a test's time limit on the stock kernel, in seconds.
limit_of() {
	local limit
	limit=$(head_of "$1" timeout 120)
	echo "${limit%%[!0-9]*}"
}

# need_of GUEST WORLD NAME: prints the value that the function of a guest in tests/vm/guests assigns
# to the variable NAME, such as mem (the memory size).
need_of() {
	# shellcheck disable=SC2034 # the guest's function changes them
	local smp="" mem="" append="" disk="" boot_timeout=240 world=$2
	# shellcheck disable=SC2034
	local -a qemu=()
	# shellcheck disable=SC2034
	local cpu="" accel="" pmu="" emulator=pmu
	be_guest "$1" && printf '%s' "${!3}"
}

# left_out FILE [GUEST WORLD]: true if only `make test-all` runs a test. If $ALL is empty, a test
# run leaves out a test in three cases: the test has the line "target: test-all", it has a line
# "gate:" that does not name this guest, or the guest has its user programs on a disk.
left_out() {
	[ -z "${ALL:-}" ] || return 1
	[ "$(head_of "$1" target test)" = test-all ] || [[ " $(head_of "$1" gate "${2:-}") " != *" ${2:-} "* ]] ||
		[ -n "${2:+$(need_of "$2" "$3" disk)}" ]
}

# short_in WORLD FILE: prints "short" if `make test-all` runs a test in its short form on the stock
# kernel, because it runs the test in its long form on the debug kernel. With the line "long: stock",
# a test runs in its long form on both kernels.
short_in() {
	[ -z "${ALL:-}" ] || [ -n "$ONLY" ] || [ "$1" != stock ] || [[ " $WORLDS " != *" debug "* ]] || [ "$(head_of "$2" long "")" = stock ] ||
		[[ " $(head_of "$2" worlds "stock debug kcsan") " != *" debug "* ]] || echo short
}

# programs_of WORLD: prints a line "GUEST PROGRAM SECONDS FORM" for each selected program and guest.
# SECONDS is the time limit of the program. FORM is "short" (see short_in) or empty. If this test run
# leaves out a program, the function does not print the program, but appends its name and its guest
# to $work/left-out.
programs_of() {
	local world=$1 f form guest limit name slow
	slow=$(slowness "$world")
	for f in "$TOP"/tests/kselftest/*/*.{c,sh}; do
		[ -e "$f" ] && [[ $f != */kselftest/lib/* ]] && mentions "$f" && [[ " $(head_of "$f" worlds "stock debug kcsan") " == *" $world "* ]] || continue
		name=$(basename "$f" .c)
		limit=$(($(limit_of "$f") * slow))
		form=$(short_in "$world" "$f")
		# shellcheck disable=SC2046 # words
		for guest in $(each_guest $(head_of "$f" guest plain)); do
			if left_out "$f" "$guest" "$world"; then
				echo "$name in $guest" >>"$work/left-out"
			else
				printf '%s %s %s%s\n' "$guest" "$name" "$limit" "${form:+ $form}"
			fi
		done
	done
}

# check_heads: checks the keys and values in the comments at the beginning of all tests. A misspelt
# word could otherwise leave out a test without a message. Ends the script at the first wrong word.
check_heads() {
	local f n line wrong known="timeout worlds long guest target gate symbols prepare emulator cargo"
	for f in "$TOP"/tests/kselftest/*/*.{c,sh} "$TOP"/tests/host/*.sh; do
		[ -e "$f" ] && [[ $f != */kselftest/lib/* ]] || continue
		# shellcheck disable=SC2094 # check_head() only reads the file
		for ((n = 0; n < 40; n++)); do
			IFS= read -r line || break
			case $line in '#'* | '//'* | '/*'* | ' *'*) ;; *) break ;; esac
			[[ $line =~ ^(/\*|//|\ \*|\#)\ *([a-z_]+):\ *([^*]*[^*\ ]) ]] || continue
			# shellcheck disable=SC2086 # words
			check_head "$f" "${BASH_REMATCH[2]}" ${BASH_REMATCH[3]} || die "${f#"$TOP"/}: $wrong"
		done <"$f"
	done
}

# check_head FILE KEY WORD...: checks a line of a comment for check_heads(). Sets $wrong to a message
# if the line has a wrong word.
check_head() {
	local key=$2 word guests=""
	# shellcheck disable=SC2046 # words
	[ "$key" != gate ] || guests=" $(each_guest $(head_of "$1" guest plain) | xargs) "
	shift 2
	wrong=""
	[[ " $known " == *" $key "* ]] || { wrong="unknown key '$key' in the comment at the top; the keys are $known"; return 1; }
	for word; do
		case $key in
		worlds) [[ " stock debug kcsan " == *" $word "* ]] || wrong="unknown world '$word'; the worlds are stock, debug, kcsan" ;;
		long) [ "$word" = stock ] || wrong="unknown world '$word' of long; it can be stock" ;;
		target) [ "$word" = test-all ] || wrong="unknown target '$word'; the target can be test-all" ;;
		gate) [[ $guests == *" $word "* ]] || wrong="'$word' is not one of the guests of this test:$guests" ;;
		guest) [ "$word" = pmu ] || declare -F "guest_${word%%-*}" >/dev/null || wrong="unknown guest '$word'; tests/vm/guests has the guests" ;;
		symbols) [[ $word == kept || $word == debug ]] || wrong="unknown value '$word' of symbols; it can be kept or debug" ;;
		timeout) [[ $word =~ ^[1-9][0-9]{0,4}s?$ ]] || wrong="timeout: '$word' is not a number of seconds" ;;
		esac
		[ -z "$wrong" ] || return 1
	done
}

# slowness WORLD: prints the factor by which time limits in a world are longer than those of the
# stock kernel on an idle machine.
slowness() {
	local slow=1
	[ "$1" = stock ] || [ "$1" = host ] || slow=3
	# shellcheck disable=SC2153 # lib.sh sets it
	echo $((slow * PATIENCE))
}

# run_guest WORLD GUEST DIR: runs one boot of a guest and records its results.
run_guest() {
	local world=$1 guest=$2 dir=$3 emulator label=$1/$2
	declare -F "guest_${guest%%-*}" >/dev/null || {
		one "$label" "rig there is a guest $guest" "not ok" "tests/vm/guests has no guest_${guest%%-*}"
		return
	}
	: >"$dir/results"
	: >"$dir/console"
	emulator=$(need_of "$guest" "$world" emulator)
	build_emulator "$label" "$emulator" >/dev/null || return 0
	begin_guest "$world" "$guest" "$dir"
	follow $! "$world" "$guest" "$dir" $(($(need_of "$guest" "$world" boot_timeout) * $(slowness "$world")))
	if [[ $guest == faulty || $guest == hard_lockup-* ]]; then
		expected_reports "$label" "$dir"
	else
		kernel_log "$label" "$dir"
		leaks "$label" "$dir"
	fi
}

# build_emulator LABEL EMULATOR: builds an emulator if EMULATOR is not empty, and prints the path of
# the emulator. If the build fails, records the failure and fails.
build_emulator() {
	[ -z "$2" ] || "$TOP/tests/qemu-$2/build.sh" || {
		one "$1" "rig the emulator of tests/qemu-$2 is built" "not ok" "$(cat "$CACHE/qemu-$2/why" 2>/dev/null || echo "run make qemu-$2 to see the reason")"
		return 1
	}
}

# begin_guest WORLD GUEST DIR: starts a guest in the background. Afterwards $! is the process id of
# the guest's vm.sh.
begin_guest() {
	WORLD=$1 GUEST=$2 "$TOP/tools/rig/vm.sh" test "$3" >"$3/vm.log" 2>&1 &
}

# follow PID WORLD GUEST DIR TIMEOUT: records the results of each program when the program ends.
# Kills a guest that stops reporting. If a guest has reported nothing after TIMEOUT seconds, boots
# the guest once more. A guest that has reported nothing has loaded no module under test, so no
# module under test can have caused its failure.
follow() {
	local pid=$1 world=$2 dir=$4 again="" ended=0 running="" prog limit rc seconds deadline=$((SECONDS + $5)) end="died"
	local results=$dir/results label=$2/$3 clocks="" is_done="" part="" line news reopen="" nap
	label=${label%/plain}
	exec {news}<"$results" {nap}<> <(:)
	# allow SECONDS: sets the deadline to SECONDS from now. A deadline that is already later
	# stays as it is. It can be later, for example, because the previous program ended long
	# before its time limit.
	allow() { deadline=$((deadline > SECONDS + $1 ? deadline : SECONDS + $1)); }
	while :; do
		local alive=1
		[ -z "$reopen" ] || exec {news}<&- {news}<"$results"
		reopen=""
		kill -0 "$pid" 2>/dev/null || alive=
		# Read the lines that the guest has written since the last pass. The guest writes
		# byte by byte, so the last line may be incomplete; its end is read in a later pass.
		# Builtins of bash read the lines, because starting several programs per second for
		# each guest would take CPU time.
		while IFS= read -r -u "$news" line || { part+=$line; false; }; do
			line=$part$line part=""
			line=${line%$'\r'}
			case $line in
			# If the first line of the guest is "# again", vm.sh boots the guest once
			# more, and QEMU then truncates the file `results`.
			"# again"*) [ -n "$clocks" ] || reopen=1 ;;
			"# up "*) [ -n "$running" ] || clocks+=" ${line#\# up } $SECONDS" ;;
			# A program may print lines that look like the lines of the guest. While a
			# program runs, ignore lines such as "# begin" and "# done", and each line
			# "# end" that does not name the running program.
			"# done 0") [ -n "$running" ] || is_done=1 ;;
			"# begin "*)
				[ -z "$running" ] || continue
				read -r _ _ prog limit <<<"$line"
				running=$prog
				allow $((limit + 60 * $(slowness "$world")))
				;;
			"# end ${running:-/} "*)
				ended=$((ended + 1)) running=""
				read -r _ _ prog rc seconds <<<"$line"
				limit=$(awk -v p="$prog" '$1 == p { print $2 }' "$dir/list")
				block "$dir" "$prog" | collect "$label" "$prog" "$rc" "$limit" "$seconds"
				# After the last program, a debug kernel scans for memory leaks,
				# which takes long.
				[ "$world" = stock ] || allow $((100 * $(slowness "$world")))
				;;
			esac
		done
		[ -n "$alive" ] || break
		if [ $SECONDS -gt $deadline ]; then
			kill "$pid" 2>/dev/null || :
			wait "$pid" 2>/dev/null || :
			if [ -z "$again" ] && ! grep -aq '^# ' "$results"; then
				again="the guest reported nothing in $5 s and was booted once more; end of its console:
$(tail -n 5 "$dir/console")"
				deadline=$((SECONDS + $5))
				begin_guest "$world" "$3" "$dir"
				pid=$! reopen=1
				continue
			fi
			end="hung and was killed"
			break
		fi
		read -rt 0.3 -u "$nap" _ || :
	done
	exec {news}<&- {nap}<&-
	if grep -aq '^# ' "$results"; then
		# The file results.again has a line for each boot that vm.sh has repeated.
		one "$label" "rig the guest boots" ok "$(cat "$results.again" 2>/dev/null || :)$again"
	else
		one "$label" "rig the guest boots" "not ok" "$(cat "$dir/vm.log"; tail -n 40 "$dir/console")"
	fi
	clock_goes_right "$label" "$clocks"
	if [ -n "$is_done" ] && [ "$ended" = "$(wc -l <"$dir/list")" ]; then
		one "$label" "rig the guest runs to its end" ok
		return
	fi
	# Record as failures the program that was running when the guest ended, and the programs
	# that had not begun.
	tail -n +$((ended + 1)) "$dir/list" | while read -r prog limit _; do
		block "$dir" "$prog" | collect "$label" "$prog" "" "$limit" ""
	done
	one "$label" "rig the guest runs to its end" "not ok" "the guest $end; end of its console:
$(tail -n 40 "$dir/console")"
}

# clock_goes_right LABEL TIMES: checks that the clock of the guest advanced as fast as the clock of
# the host. TIMES has a pair of times from before the first program, and a pair from after the last
# program. The first time of a pair is the guest's uptime in seconds. The second time of a pair is
# the host's time in seconds when this script read the uptime of the guest.
clock_goes_right() {
	local up at end_up end_at
	read -r up at end_up end_at <<<"$2"
	# Do not check a guest that did not run to its end, because it has reported its uptime only
	# once.
	[ -n "${end_at:-}" ] || return 0
	up=$((end_up - up)) at=$((end_at - at))
	if [ $((up > at ? up - at : at - up)) -gt $((10 * $(slowness "${1%%/*}") + at / 10)) ]; then
		one "$1" "rig the guest's clock goes right" "not ok" "the guest's clock advanced by $up s in $at s"
	else
		one "$1" "rig the guest's clock goes right" ok
	fi
}

# block DIR PROGRAM: prints the output of a program, from the results of a boot.
block() {
	awk -v p="$2" 'name == "" && /^# begin / { name = $3; on = name == p; next }
		name != "" && $1 == "#" && $2 == "end" && $3 == name { name = ""; on = 0; next }
		on' "$1/results"
}

# without_foreign_races CONSOLE: prints a kernel log, but keeps a report of KCSAN only if it names a
# module of this project. Data races within the kernel itself do not make a test run fail.
without_foreign_races() {
	awk '/BUG: KCSAN:/ { race = ""; lines = 120 }
		!lines { print; next }
		{ race = race $0 "\n"; lines-- }
		/(\] |^)=+\r?$/ || !lines {
			if (race ~ /\[(perfcounters|perfmon|perftrace|ppa|pf[cm]_[a-z]+|sample_[a-z]+|test_driver|faulty)\]/)
				printf "%s", race
			race = ""
			lines = 0
		}
		END { printf "%s", race }' "$1"
}

# reports CONSOLE: prints the kernel's reports of faults (lines that match $splat) in a kernel log,
# up to 25 lines of each report, with the name of the program that was running. Skips the line "Call
# Trace:" of the stack trace that the kernel's fault injection prints for each failure that it
# injects; the other lines of such a trace do not match $splat.
reports() {
	awk -v splat="$splat" '{ sub(/\r$/, "") }
		/\] ### / { prog = $0; sub(/.*\] ### /, "", prog); left = injected = 0 }
		/FAULT_INJECTION: forcing a failure/ { injected++ }
		/Call Trace:/ && injected { injected--; if (!left) next }
		$0 ~ splat && !left { print "during " (prog ? prog : "boot") ":"; left = 25 }
		left { print; left-- }' <(without_foreign_races "$1")
}

# kernel_log LABEL DIR: records a test result, which fails if the kernel log of a boot has a report
# of a fault.
kernel_log() {
	local found races label=${1%/plain} splat=$splat
	# The PMU of the guest pmu-spurious raises spurious NMIs, which the kernel reports.
	[[ $label != */pmu-spurious ]] || splat=${splat/|NMI received for unknown/}
	found=$(reports "$2/console" | sed -n 1,160p)
	races=$(($(grep -ac 'BUG: KCSAN:' "$2/console") - $(without_foreign_races "$2/console" | grep -ac 'BUG: KCSAN:'))) || : # grep fails if it counts 0
	if [ -z "$found" ]; then
		one "$label" "rig the kernel log is clean" ok "$([ "$races" = 0 ] || echo "ignored: $races data races within the kernel itself")"
	else
		one "$label" "rig the kernel log is clean" "not ok" "$found"
	fi
}

# leaks LABEL DIR: records a test result. The test fails if the guest's last scans found leaked
# memory, or if kmemleak or lockdep had switched itself off. If the guest made no scan for leaks,
# records a failure on the debug kernel, and nothing on other kernels.
leaks() {
	local found label=${1%/plain}
	grep -aq '^# leaks begin' "$2/results" || {
		[[ $label != debug* ]] || one "$label" "rig nothing leaked" "not ok" "the guest made no scan for leaks"
		return 0
	}
	found=$(sed -n '/^# leaks begin/,/^# leaks end/{/^# leaks /!p}' "$2/results" | tr -d '\r' | sed -n 1,160p)
	if [ -z "$found" ]; then
		one "$label" "rig nothing leaked" ok
	else
		one "$label" "rig nothing leaked" "not ok" "$found"
	fi
}

# expected_reports LABEL DIR: checks that reports() or the scan for leaks has found each fault that
# the guest provoked on purpose, and records a result for each fault. For each provoked fault, the
# guest writes a line that consists of "# expect", the name of the fault, a colon, and a text that
# the report must contain.
expected_reports() {
	local found fault text n=0
	found=$(reports "$2/console")
	grep -a '^# expect ' "$2/results" | tr -d '\r' | sed 's/^# expect //' >"$2/expected"
	{
		echo "1..$(wc -l <"$2/expected")"
		while IFS= read -r text; do
			n=$((n + 1))
			fault=${text%%: *} text=${text#*: }
			# Do not use grep -q: it exits at the first match, and awk would then fail
			# with SIGPIPE.
			if { [ "$fault" = leak ] && sed -n '/^# leaks begin/,/^# leaks end/p' "$2/results" ||
				awk -v f="fault $fault" '/^during / { on = $0 == "during " f ":" } on' <<<"$found"; } | grep -aF -- "$text" >/dev/null; then
				echo "ok $n rig the ${1%%/*} kernel reports $fault"
			else
				echo "not ok $n rig the ${1%%/*} kernel reports $fault"
				echo "# no report with this text: $text"
			fi
		done <"$2/expected"
	} | collect "$1" "faulty, as reported" 0 - ""
}
