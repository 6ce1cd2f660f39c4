# SPDX-License-Identifier: GPL-2.0
#
# Converts the KTAP output of a test program to lines of these forms:
#   ok - NAME | not ok - NAME | ok - NAME # SKIP why     (diagnostics: # ...)
# Variables: `prog` is the name of the program, `path` is the path of its source, `rc` is its exit
# status (empty if it did not end), `limit` is its time limit in seconds, and `only` is the value of
# ONLY=. The last line of output is "= PASSED FAILED SKIPPED PLAN"; PLAN is missing if the program
# printed no plan.

function wanted(name) {
	if (only == "")
		return 1
	if (only ~ /^[0-9]+\.[0-9]+$/)
		return index(name, only " ") == 1
	return name ~ only || prog ~ only || path ~ only
}

function result(good, name, skip) {
	if (!wanted(name))
		return
	print (good ? "ok - " : "not ok - ") name (skip != "" ? " # SKIP " skip : "")
	if (!good)
		printf "%s", said
	if (!good) failed++; else if (skip != "") skipped++; else passed++
}

# Prints a failure of the program itself, even if ONLY= does not select the program.
function broken(why) {
	print "not ok - rig " prog " " why
	printf "%s", said
	failed++
	said = ""
}

BEGIN { plan = -1 }
{ sub(/\r$/, "") }
/^1\.\.[0-9]+/ {
	if (plan >= 0)
		wrong = "printed more than one plan"
	plan = substr($1, 4) + 0
	if (plan == 0) {
		why = $0
		sub(/^[^#]*#? *(SKIP|skip)? */, "", why)
		result(1, "rig " prog, why == "" ? "no reason given" : why)
	}
	next
}
/^Bail out!/ {
	wrong = $0
	sub(/^Bail out![ \t]*/, "bailed out: ", wrong)
	next
}
/^(ok|not ok)([ \t]|$)/ {
	good = $1 == "ok"
	number = good ? $2 : $3
	if (number ~ /^[0-9]+$/) {
		if (number in printed)
			wrong = "printed result " number " twice"
		printed[number]
		if (number + 0 > highest)
			highest = number + 0
	}
	name = $0
	gsub(/\t/, " ", name)
	sub(/^(not )?ok *([0-9]+ *)?(- *)?/, "", name)
	skip = ""
	# A directive is a word that begins with SKIP in upper or lower case, as in "# SKIP: why".
	if (match(name, /#? *# *[Ss][Kk][Ii][Pp][^ ]*( *- )?/)) {
		skip = substr(name, RSTART + RLENGTH)
		sub(/^ +/, "", skip)
		if (skip == "")
			skip = "no reason given"
		name = substr(name, 1, RSTART - 1)
		sub(/ +$/, "", name)
	}
	seen++
	if (!good)
		bad++
	else if (skip == "")
		good_results++
	result(good, name, skip)
	after = !good && wanted(name)
	said = ""
	next
}
/^(TAP|KTAP) version/ || /^$/ { next }
{
	line = $0
	sub(/^# ?/, "", line)
	if (after && /^#/)
		print "#   " line
	said = said "#   " line "\n"
}
END {
	if (rc == 137)
		broken("was killed after its " limit " s")
	else if (rc == "")
		broken("did not end")
	else if (rc != 0 && !bad && !(rc == 4 && good_results == 0))
		broken("ended with status " rc)
	if (wrong != "")
		broken(wrong)
	if (rc != "" && rc != 137) {
		if (plan < 0)
			broken("printed no plan (1..N)")
		else if (seen + 0 != plan)
			broken("planned " plan " results and printed " seen + 0)
		else if (highest > plan)
			broken("printed result " highest " of " plan)
	}
	print "= " passed + 0, failed + 0, skipped + 0, plan < 0 ? "" : plan
}
