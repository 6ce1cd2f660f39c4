# SPDX-License-Identifier: GPL-2.0
#
# Prints a table with the times of a test run, from the lines that timed.sh and results.sh have
# written.
# Variables: `begin` and `end` are the times of the test run in seconds since 1970; `before` and
# `after` have the form "TICKS IDLE-TICKS", for all CPUs at these two times; `earlier` is empty, or
# names a file with the seconds that programs took in previous runs, for comparison.

function clock(s) { return sprintf("%d:%02d", s / 60, s % 60) }

function row(name, b, e, cpu) { printf "  %-26s %7s %7s %7s\n", name, clock(b - begin), clock(e - begin), clock(cpu) }

$1 == "part" {
	from = $(NF - 2)
	to = $(NF - 1)
	# The name of a part may contain blanks.
	name = $3
	for (i = 4; i <= NF - 3; i++)
		name = name " " $i
	if (!($2 in first) || from < first[$2]) first[$2] = from
	if (to > last[$2]) last[$2] = to
	cpu[$2] += $NF
	if (($2 == "set-up" || $2 == "builds") && to - from >= 3)
		parts[$2] = parts[$2] sprintf("%s\t%d\t%d\t%d\n", name, from, to, $NF)
}
BEGIN { while (earlier != "" && (getline line <earlier) > 0) if (split(line, f, " ") == 3) took[f[1] " " f[2]] = f[3] }

$1 == "program" { program[++programs] = $2 " " $3; seconds[programs] = $4 }

END {
	split(before, b, " ")
	split(after, a, " ")
	idle = a[1] > b[1] ? 100 * (a[2] - b[2]) / (a[1] - b[1]) : 0
	printf "\nWhere the time went: %s; the processors were idle for %.0f %% of it\n", clock(end - begin), idle
	printf "  %-26s %7s %7s %7s\n", "", "from", "to", "CPU"
	count = split("set-up builds host stock debug kcsan second", order, " ")
	for (o = 1; o <= count; o++) {
		g = order[o]
		if (!(g in first))
			continue
		row(g == "second" ? "second attempts" : g, first[g], last[g], cpu[g])
		n = split(parts[g], lines, "\n")
		for (i = 1; i < n; i++) {
			split(lines[i], f, "\t")
			row("    " f[1], f[2], f[3], f[4])
		}
	}
	if (programs)
		print "  the slowest programs, in seconds:"
	largest(10, seconds, "  %7d  %s\n")
	if (earlier != "")
		compare()
}

# Prints the programs with the `count` largest numbers in `of`.
function largest(count, of, form,    i, k, most, shown) {
	for (k = 1; k <= count; k++) {
		most = 0
		for (i = 1; i <= programs; i++)
			if ((i in of) && !(i in shown) && (!most || of[i] > of[most]))
				most = i
		if (!most)
			return
		shown[most] = 1
		printf form, of[most], program[most]
	}
}

# Prints, for each world, the total seconds of its programs in this test run and in their previous
# runs. Then prints the five programs whose time has grown most.
function compare(  i, k, world, n, sum, old, grown, some, names) {
	for (i = 1; i <= programs; i++) {
		world = program[i]
		sub(/[\/ ].*/, "", world)
		if (!(world in sum)) names[++n] = world
		sum[world] += seconds[i]
		old[world] += took[program[i]]
		if (seconds[i] > took[program[i]]) {
			grown[i] = seconds[i] - took[program[i]]
			some = 1
		}
	}
	for (k = 1; k <= n; k++)
		printf "  %s: %d seconds of programs, %d the last time\n", names[k], sum[names[k]], old[names[k]]
	if (some) {
		print "  grown most since then:"
		largest(5, grown, "  %+7d  %s\n")
	}
}
