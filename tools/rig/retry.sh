# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2015 # in "A && B || C" here, C is meant for both
#
# Gives each failed unit a second attempt: the unit is run again at the end of the test run, while
# no other job runs. test.sh sources this file.
#
# A unit is a program in one guest, a script of tests/host, or one named cargo test. If a guest hung
# or died, the guest counts as one failed unit, and each program that had not ended is run again in
# a boot of its own. If the kernel reports a fault (an oops, a warning, lockdep, KASAN, a leak, a
# lockup), no unit of that boot gets a second attempt. If a job failed as a whole, none of its units
# gets a second attempt.

: "${work:?}" "${TOP:?}" "${CACHE:?}" "${make:?}"

# units_of JOB KIND: prints a line "STATE KIND JOB LABEL PROGRAM" for each unit of a job, with tabs
# between the fields. STATE is ok, failed, unfinished (the unit's guest hung or died), guest (the
# boot itself failed; PROGRAM is "guest"), or final (the unit failed, and gets no second attempt).
units_of() {
	local whole=""
	[ ! -e "$work/$1.done" ] || whole=1
	awk -v job="$1" -v kind="$2" -v whole="$whole" '
		function unit(state, label, program) { print state "\t" kind "\t" job "\t" label "\t" program }
		/^# [^ ]+ / { label[++n] = $2; program[n] = substr($0, length($2) + 4); state[n] = "ok"; next }
		kind == "cargo" && /^(not )?ok - / {
			name = $0
			sub(/^(not )?ok - /, "", name)
			if (/^not / && name ~ /^rig /) final = 1
			else { tests++; test[tests] = name; of[tests] = n; good[tests] = !/^not / }
			next
		}
		/^not ok - / {
			name = substr($0, 10)
			if (program[n] == "rig" && name ~ /^rig the guest(\047s clock goes right| boots| runs to its end)$/) { guest = 1; boot = n }
			else if (program[n] == "rig" || program[n] ~ /, as reported$/) final = 1
			else if (name == "rig " program[n] " did not end") state[n] = "unfinished"
			else if (state[n] == "ok") state[n] = "failed"
		}
		END {
			final = final || !whole
			for (i = 1; i <= tests; i++)
				unit(good[i] ? "ok" : final ? "final" : "failed", label[of[i]], test[i])
			for (i = 1; kind != "cargo" && i <= n; i++)
				if (program[i] != "rig" && program[i] !~ /, as reported$/)
					unit(state[i] == "ok" ? "ok" : final ? "final" : guest ? state[i] : "failed", label[i], program[i])
			if (guest)
				unit(final ? "final" : "guest", label[boot], "guest")
		}' "$work/$1.tap"
}

# name_of LABEL PROGRAM: prints the name of a unit, without blanks and commas.
name_of() { tr ' ,' __ <<<"$1:$2"; }

# command_of JOB: prints the arguments with which job.sh runs a job.
command_of() { awk -F '\t' -v job="$1" '$2 == job { print $4; exit }' "$work/jobs"; }

# failures_of JOB LABEL PROGRAM: prints the failed results of a unit with their diagnostics.
failures_of() {
	awk -v head="# $2 $3" -v test="not ok - $3" '
		/^# [^ ]+ / { on = $0 == head; cargo = $3 == "cargo" || $3 == "loom"; next }
		/^not ok - / { shown = on || (cargo && $0 == test) }
		/^ok - / { shown = 0 }
		shown' "$work/$1.tap"
}

# attempt DIR KIND JOB LABEL PROGRAM: runs a unit while no other job runs. Writes the results of the
# unit to DIR/JOB.tap.
attempt() {
	local dir=$1 kind=$2 job=$3 label=$4 program=$5 path="" world
	mkdir -p "$dir"
	if [ "$kind" = guest ]; then
		IFS=. read -r world _ <<<"$job"
		# The second attempt uses the image of this test run.
		ln "$work/$world.cpio" "$dir/" 2>/dev/null || :
		[ ! -e "$work/$world.programs" ] || ln -s "$work/$world.programs" "$dir/"
		mkdir "$dir/$job"
		# If PROGRAM is "guest", the list of programs for the second boot is empty, and the
		# second attempt passes if the guest boots and runs to its end.
		awk -v p="$program" '$1 == p' "$work/$job/list" >"$dir/$job/list"
	elif [ "$kind" = cargo ]; then
		path=$(awk -F '\t' -v p="$program" '$1 == p { print $2 }' "$work/$job.paths" | paste -s)
	fi
	eval "set -- $(command_of "$job")"
	until_limit "$TOP/tools/rig/timed.sh" second "$(name_of "$label" "$program")" \
		env "work=$dir" TIMES= LOAD= "EXACT=$path" "$TOP/tools/rig/job.sh" "$@"
}

# passed DIR JOB LABEL PROGRAM: true if the second attempt passed. The second attempt must run to
# its end without a failure. Its KTAP plan must be equal to the plan of the first attempt, except
# for cargo tests. Each result that failed at the first attempt must pass. A result that the second
# attempt skips has not passed, unless the first attempt skipped it, too.
passed() {
	local tap=$1/$2.tap kind
	[ -e "$1/$2.done" ] && grep -q '^ok - ' "$tap" && ! grep -q '^not ok ' "$tap" || return 1
	kind=$(command_of "$2")
	# A second attempt of cargo tests runs only the tests with one name, so its plan differs.
	[[ $kind == cargo* ]] || [ "$(plan_of "$work/$2" "$3" "$4")" = "" ] || [ "$(plan_of "$work/$2" "$3" "$4")" = "$(plan_of "$1/$2" "$3" "$4")" ] || return 1
	awk '
		function name(line) {
			sub(/^(not )?ok - /, "", line)
			sub(/ \([^()]*[0-9][^()]*\)$/, "", line)
			return line
		}
		# Count the results of each name in the first attempt. If a result of a name failed,
		# the second attempt must have at least as many passed results of this name.
		FNR == NR && /^(not )?ok - / {
			if (/^not / && $0 !~ /^not ok - rig /) wanted[name($0)]
			if (/ # SKIP /) { sub(/ # SKIP .*/, ""); may_skip[$0] } else needed[name($0)]++
			next
		}
		/^ok - / {
			if (/ # SKIP /) { sub(/ # SKIP .*/, ""); if (!($0 in may_skip)) bad = 1 } else had[name($0)]++
		}
		END {
			for (n in wanted)
				if (had[n] < needed[n]) bad = 1
			exit bad
		}' <(results_of "$work/$2" "$3" "$4" "$kind"; echo "# end of the first attempt") <(results_of "$1/$2" "$3" "$4" "$kind")
}

# plan_of FILE LABEL PROGRAM: prints the KTAP plan of a program, from FILE.plans.
plan_of() { awk -F '\t' -v unit="$2 $3" '$1 == unit { print $2 }' "$1.plans" 2>/dev/null || :; }

# results_of FILE LABEL PROGRAM KIND: prints the results of a unit, from FILE.tap.
results_of() {
	case $4 in
	cargo*) grep -E "^(not )?ok - " "$1.tap" | awk -v name="$3" '{ line = $0; sub(/^(not )?ok - /, "", line) } line == name' ;;
	*) awk -v head="# $2 $3" '/^# [^ ]+ / { on = $0 == head } on && /^(not )?ok - /' "$1.tap" ;;
	esac
}

# pass JOB HEAD TEST: prints the results of a job, in which failed results have become passed results
# without diagnostics. Selects the results below the line HEAD, and the result TEST; each of the two
# selects all if it is empty.
pass() {
	awk -v head="$2" -v test="$3" '/^# [^ ]+ / { on = head == "" || $0 == head }
		on && /^not ok / && (test == "" || $0 == test) { sub(/^not /, ""); print; said = 1; next }
		said && /^#   / { next } { said = 0; print }' "$work/$1.tap"
}

# forgive DIR JOB LABEL PROGRAM: replaces the results of a unit by the results of its second
# attempt. If PROGRAM is "rig", the unit is a boot that failed, for example a guest that hung: its
# failures become passed results, and each program that had not ended in this boot must have passed
# at its second attempt. Appends the failures of the first attempt to second.tap. The report at the
# end of the test run prints the failures in second.tap.
forgive() {
	local tap=$work/$2.tap head="# $3 $4"
	{ echo "$head"; failures_of "$2" "$3" "$4"; } >>"$work/second.tap"
	case $4:$(command_of "$2") in
	rig:*) pass "$2" "$head" "" ;;
	*:cargo*) pass "$2" "" "not ok - $4" ;;
	*)
		awk -v head="$head" '/^# [^ ]+ / { on = $0 == head } !on' "$tap"
		awk -v head="$head" '/^# [^ ]+ / { on = $0 == head } on' "$1/$2.tap"
		;;
	esac >"$tap.new"
	mv "$tap.new" "$tap"
}

# second_attempts: runs failed units again, and replaces the results of each unit that passes. If
# too many units have failed, runs no unit again and records one failure with their number.
second_attempts() {
	local job command state kind label program n=0 units wanted guests
	while IFS=$'\t' read -r _ job _ command; do
		[ ! -e "$work/$job.tap" ] || units_of "$job" "${command%% *}"
	done <"$work/jobs" >"$work/units"
	# Make no second attempts if LIMIT= has ended the test run, because a job that was killed
	# for this reason has not failed by itself.
	[ -z "$ended" ] || return 0
	grep -E $'^(failed|unfinished|guest)\t' "$work/units" | sort -u >"$work/wanted" || return 0
	units=$(grep -cvE $'^guest\t' "$work/units") wanted=$(grep -cvE $'^unfinished\t' "$work/wanted") guests=$(grep -cE $'^guest\t' "$work/wanted") || :
	while IFS=$'\t' read -r state kind job label program; do
		[ "$state" = unfinished ] || name_of "$label" "$program"
	done <"$work/wanted" >"$work/second"
	if [ "$wanted" -gt $(((2 * units + 99) / 100)) ] || [ "${guests:-0}" -gt 2 ]; then
		one retry "rig few units need a second attempt" "not ok" "too many second attempts: $wanted of $units units, $((${guests:-0})) guests; $(((2 * units + 99) / 100)) units and 2 guests may need one"
		return
	fi
	printf '\nOnce more, alone: %s\n' "$(paste -sd' ' "$work/second")"
	while IFS=$'\t' read -r state kind job label program; do
		[ "$state" != guest ] || continue
		n=$((n + 1))
		if attempt "$work/second.$n" "$kind" "$job" "$label" "$program" && passed "$work/second.$n" "$job" "$label" "$program"; then
			forgive "$work/second.$n" "$job" "$label" "$program"
		else
			echo "$job" >>"$work/second.failed"
			[ -z "$ended" ] || name_of "$label" "$program" >>"$work/second.left"
		fi
	done <"$work/wanted"
	# If a boot failed although all of its programs ended, for example because the guest's clock
	# was too fast or too slow, repeat the boot without programs.
	while IFS=$'\t' read -r _ kind job label program; do
		n=$((n + 1))
		if awk -F '\t' -v job="$job" '$1 == "unfinished" && $3 == job { found = 1 } END { exit !found }' "$work/wanted"; then
			! grep -qxF "$job" "$work/second.failed" 2>/dev/null || continue
		else
			attempt "$work/second.$n" "$kind" "$job" "$label" guest && passed "$work/second.$n" "$job" "$label" guest || continue
		fi
		forgive "" "$job" "$label" rig
	done < <(grep -E $'^guest\t' "$work/wanted")
	unreliable
}

# unreliable: records a failure for each unit that needed a second attempt in this test run and in
# at least two of the nine whole test runs before it. Runs of make test-debug use other worlds
# (kernels) than runs of make test and make test-all, so the two kinds of runs are counted
# separately.
unreliable() {
	local name times
	[ -n "$whole" ] || return 0
	while read -r name; do
		times=$({ cat "$CACHE/runs" 2>/dev/null || :; } | awk -v make="$make" 'NF >= 8 && ($3 == "test-debug") == (make == "test-debug")' | tail -n 9 |
			awk -v name="$name" '{ n = split($8, units, ","); for (i = 1; i <= n; i++) if (units[i] == name) { times++; break } } END { print times + 1 }')
		[ "$times" -lt 3 ] || one "${name%%:*}" "rig ${name#*:} is reliable" "not ok" "unreliable: it needed a second attempt in $times of the last ten whole runs"
	done <"$work/second"
}
