#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# timeout: 300
# shellcheck disable=SC2016,SC2046,SC2086,SC2154,SC3043,SC2254,SC2094,SC2013
#
# Compares Documentation/ABI/testing with the live system: each file that is described exists and
# has the documented mode, and each file that the project's modules create is described.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

# Lists all files that modules of the project can create, except the /proc/ppa directories of
# processes.
list_files() {
	find /dev /sys/module/*/parameters /sys/kernel/debug \( -path /sys/kernel/debug/tracing -o -path /dev/pts \) -prune -o -print
	find /proc -path '/proc/[0-9]*' -prune -o -path /proc/ppa -prune -o -print
	[ ! -e /proc/ppa ] || find /proc/ppa
	find /run/perftrace
} 2>/dev/null
# Prints "FIELD<tab>MODE<tab>TEXT" for each entry. FIELD is the value of What:. MODE is the last
# mode that the description states, or "none". TEXT is the description, on one line.
print_entries() {
	awk 'function out(mode, rest) {
			mode = "none"
			rest = text
			gsub(/ +/, " ", rest)
			while (match(rest, /[Mm]ode 0[0-7][0-7][0-7]/)) {
				mode = substr(rest, RSTART + 6, 3)
				rest = substr(rest, RSTART + RLENGTH)
			}
			if (what != "") print what "\t" mode "\t" text
		}
		/^What:/ { out(); sub(/^What:[ \t]*/, ""); what = $0; text = ""; next }
		{ sub(/^[A-Za-z]+:[ \t]*/, ""); gsub(/[ \t]+/, " "); text = text " " $0 } END { out() }' /tests/documentation/ABI/* | sed 's/  */ /g'
}
# Prints the globs of a What: field: <anything> becomes *, and {a,b} becomes two globs.
expand_globs() {
	awk -v what="$1" 'BEGIN {
		gsub(/<[^>]*>/, "*", what)
		if (match(what, /[{][^}]*[}]/)) {
			n = split(substr(what, RSTART + 1, RLENGTH - 2), each, ",")
			for (i = 1; i <= n; i++) print substr(what, 1, RSTART - 1) each[i] substr(what, RSTART + RLENGTH)
		} else print what }'
}
# Reads paths from standard input, and prints the paths that have no entry in
# Documentation/ABI/testing. A path has an entry if an entry describes the path itself or a
# directory above the path. A directory also has an entry if an entry describes a file in the
# directory.
print_undescribed() {
	sed 's,/$,,; s/[.+]/\\&/g; s/[*]/.*/g; s,$,(/.*)?,' globs >patterns
	awk -F/ '{ path = ""
		for (i = 2; i <= NF; i++) {
			part = $i
			gsub(/[.+]/, "\\\\&", part)
			gsub(/[*]/, "[^/]*", part)
			if (part != "") print path = path "/" part
		} }' globs >on_the_way
	grep -vxE -f patterns | while read -r path; do
		[ -d "$path" ] && echo "$path" | grep -qxE -f on_the_way || echo "$path"
	done
}

unload_modules
list_files | sort >before
load_providers
# The program /tests/examples/faults creates a context of /dev/perfmon, which makes the kernel load
# PMU descriptions. The write to /proc/ppa/ppactl adds this shell to the accounting, so that
# /proc/ppa has files of a task.
/tests/examples/faults >/dev/null
echo "$$ 1 1 0 1" >/proc/ppa/ppactl
pfc trace arm
list_files | sort >after

print_entries >entries
plan $(($(wc -l <entries) * 2 + 1 - $(grep -c '=, parameter of ' entries)))
: >globs
tab=$(printf '\t')
# The loop expands $these without quotes where it needs the names of the files that match the globs,
# and with quotes where it needs the globs.
while IFS=$tab read -r what mode text; do
	case $what in
	*'=, parameter of '*)
		module=${what##* }
		grep -aq "parm=${what%%=*}:" "/modules/$module"
		result $? "ABI: $what"
		continue ;;
	esac
	these=$(expand_globs "$what")
	[ -n "$these" ] || these="/no glob of $what"
	echo "$these" >>globs
	missing=
	while read -r glob; do
		set -- $glob
		[ -e "$1" ] || missing="$missing $glob"
	done <<-END
	$these
	END
	[ -z "$missing" ] || echo "# not there:$missing"
	result $([ -z "$missing" ]; echo $?) "ABI: $what exists"
	if [ "$mode" = none ]; then
		# If an entry of Documentation/ABI states no mode, its text must contain
		# "read-only". For an entry without a mode, the first regular file at or below the
		# entry's paths must have mode 04xx.
		file=$(find $these -type f 2>/dev/null | head -n 1)
		case $(stat -c %a "$file") in 4??) rc=0 ;; *) rc=1 ;; esac
		echo "$text" | grep -qi 'read-only' || rc=1
	else
		rc=0
		for file in $these; do [ "$(stat -c %a "$file")" = "$mode" ] || rc=1; done
	fi
	[ $rc = 0 ] || stat -c '# %a %n' $these
	result $rc "ABI: $what has the documented mode"
done <entries

unknown=$(awk 'NR == FNR { seen[$0]; next } !($0 in seen)' before after | print_undescribed | tr '\n' ' ')
[ -z "$unknown" ] || echo "# not described:$unknown" | cut -c1-1000
result $([ -z "$unknown" ]; echo $?) "ABI: every file that the modules create is described"
echo "$$ 0 0 0 1" >/proc/ppa/ppactl
exit $failed
