# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# AGAIN=1, as .ci/run has it: programs that failed are run once more, with nothing beside them.
# What holds then is unsteady: neither passed nor failed, counted and shown for itself. What the
# kernel complained of and what the rig says is never tried again, nor are more than a few programs.
# Sourced by test.sh.

: "${LOGS:?}" "${TOP:?}"

# failures TAP: "LABEL PROGRAM" of each program that failed; "rig" where it was no program's test.
failures() {
	awk '/^# [^ ]+ / { label = $2; program = $3 }
		/^not ok / { print label, ($0 ~ /^not ok [0-9]+ rig / ? "rig" : program) }' "$1" | sort -u
}

# holds TAP LABEL PROGRAM: does it say that, and nothing else, of this program?
holds() {
	awk -v head="# $2 $3" '/^# [^ ]+ / { on = $0 == head }
		on && /^ok / { good++ } on && /^not ok / { bad++ } END { exit bad || !good }' "$1"
}

# again TAP: the failures of what holds by itself become "ok - ... # UNSTEADY".
again() {
	local kept=$1 label program
	local -a steady=() worlds=() programs=()
	while read -r label program; do
		[ "$program" != rig ] || return 0
		worlds+=("${label%%/*}") programs+=("$program") steady+=("# $label $program")
	done < <(failures "$kept")
	[ ${#programs[@]} -gt 0 ] && [ ${#programs[@]} -le 4 ] || return 0
	printf '\nOnce more, by themselves: %s\n' "$(printf '%s\n' "${programs[@]}" | sort -u | paste -sd' ')"
	AGAIN='' JOBS=1 LOAD='' WORLDS=$(printf '%s\n' "${worlds[@]}" | sort -u | paste -sd' ') \
		ONLY=$(printf '%s\n' "${programs[@]}" | sort -u | paste -sd'|') "$TOP/tools/rig/test.sh" >"$LOGS/again.log" 2>&1 || :
	for label in "${steady[@]}"; do
		read -r _ label program <<<"$label"
		holds "$LOGS/only.tap" "$label" "$program" || continue
		awk -v head="# $label $program" '/^# [^ ]+ / { on = $0 == head }
			on && sub(/^not ok /, "ok ") { print $0 " # UNSTEADY"; next } { print }' "$kept" >"$kept.new"
		mv "$kept.new" "$kept"
	done
}
