# SPDX-License-Identifier: GPL-2.0
#
# Converts the KTAP output of a test program to lines of these forms:
#   ok - NAME | not ok - NAME | ok - NAME # SKIP why     (diagnostics: # ...)
# Variables: prog is the name of the program, rc its exit status (empty if it did not end), limit
# its time limit in seconds, and only the value of ONLY=. The last line of output is "= PASSED
# FAILED SKIPPED".

function wanted(name) {
	if (only == "")
		return 1
	if (only ~ /^[0-9]+\.[0-9]+$/)
		return index(name, only " ") == 1
	return name ~ only || prog ~ only
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
	plan = substr($1, 4) + 0
	if (plan == 0) {
		why = $0
		sub(/^[^#]*#? *(SKIP|skip)? */, "", why)
		result(1, "rig " prog, why == "" ? "no reason given" : why)
	}
	next
}
/^(ok|not ok) / {
	good = $1 == "ok"
	name = $0
	sub(/^(not )?ok +([0-9]+ *)?(- *)?/, "", name)
	skip = ""
	if (match(name, /#? *# *(SKIP|skip|Skip)( |$)/)) {
		skip = substr(name, RSTART + RLENGTH)
		if (skip == "")
			skip = "no reason given"
		name = substr(name, 1, RSTART - 1)
		sub(/ +$/, "", name)
	}
	seen++
	if (!good)
		bad++
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
	else if (rc != 0 && rc != 4 && !bad)
		broken("ended with status " rc)
	if (rc != "" && rc != 137) {
		if (plan < 0)
			broken("printed no plan (1..N)")
		else if (seen + 0 != plan)
			broken("planned " plan " results and printed " seen + 0)
	}
	print "= " passed + 0, failed + 0, skipped + 0
}
