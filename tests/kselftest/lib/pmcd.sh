# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2154
#
# Starts a pmcd whose only agent is pmdammv, as user pcp, and reads the values and descriptions of
# the metrics whose names begin with $metric and a dot.

start_pmcd() {
	mkdir -p /run/pcp pcp
	chown pcp:pcp /run/pcp pcp
	printf 'mmv\t70\tdso\tmmv_init\t/usr/lib/pcp/pmdas/mmv/pmda_mmv.so\n' >pcp/conf
	printf 'root {\n\tmmv\t70:*:*\n}\n' >pcp/names
	/usr/lib/pcp/bin/pmcd -f -A -c "$PWD/pcp/conf" -n "$PWD/pcp/names" -l "$PWD/pcp/log" &
	pmcd=$!
}

# Prints the values of all instances of a metric on one line.
metric_values() { # METRIC
	pminfo -f "$metric.$1" | sed -nE 's/.*value (-?[0-9]+)$/\1/p' | xargs
}
is_present() { pminfo "$metric.$1" >/dev/null; } # METRIC
has_description() { # METRIC WORDS...: true if pminfo -d prints each of the words
	pminfo -dfT "$metric.$1" >described || return 1
	shift
	for word; do
		grep -qF -- "$word" described || { echo "no '$word' in:"; cat described; return 1; }
	done
}
