# SPDX-License-Identifier: GPL-2.0
#
# Converts the output of cargo test to KTAP. The variable paths names a file to which a line
# "NAME<tab>PATH" is written for each failed test, with the path that cargo test --exact expects. If
# paths is empty, no file is written.
#
# A test binary ends its output with the numbers of its results. If these numbers are missing (the
# binary has died) or differ from the results that were found, the output has one more result, which
# fails.

# Returns the name of a test in the report. For the test function r0_10_same_name the name is "0.10
# same name". For other tests the name consists of the crate and the path of the test. The name of a
# doc test has no line number.
function title(crate, path,    n, parts, i, out, last) {
	if (path ~ / - /) {
		sub(/ \(line [0-9]+\)/, "", path)
		return crate " doc " path
	}
	n = split(path, parts, "::")
	last = parts[n]
	if (last ~ /^r[0-9]+_[0-9]+_/) {
		sub(/^r/, "", last)
		sub(/_/, ".", last)
		gsub(/_/, " ", last)
		return last
	}
	out = crate
	for (i = 1; i <= n; i++)
		if (parts[i] != "tests" && parts[i] != "test")
			out = out " " parts[i]
	gsub(/_/, " ", out)
	return out
}

# Checks that the test binary whose output ends before this line has printed all of its results.
function end_binary() {
	if (crate != "" && !ended)
		broken[++wrong] = "the tests of " crate " ran to their end"
	else if (crate != "" && reported != found)
		broken[++wrong] = "the tests of " crate " printed all results"
	ended = reported = found = 0
}

/^ +Running / {
	end_binary()
	crate = $NF
	gsub(/.*\/|-[0-9a-f]+\)$|\)$/, "", crate)
}
/^ +Doc-tests / { end_binary(); crate = $2 }
/^running [0-9]+ tests?$/ { ended = 0 }
/^test result: / {
	ended = 1
	reported += $4 + $6 + $8
}
# If a test hangs until cargo is killed, the output has only the line "has been running for over 60
# seconds" about this test.
/^test .* has been running for over 60 seconds$/ {
	path = $2
	slow[crate SUBSEP path] = title(crate, path)
	next
}
/^test .* \.\.\. (ok|FAILED|ignored)/ {
	path = $0
	sub(/^test /, "", path)
	match(path, / \.\.\. (ok|FAILED|ignored)/)
	verdict = substr(path, RSTART + 5)
	path = substr(path, 1, RSTART - 1)
	sub(/ - should panic$/, "", path)
	count++
	found++
	key[count] = crate SUBSEP path
	delete slow[key[count]]
	name[count] = title(crate, path)
	state[count] = verdict
	next
}
/^---- .* stdout ----$/ {
	block = crate SUBSEP substr($0, 6, length($0) - 17)
	next
}
/^failures:$/ || /^test result:/ { block = "" }
block != "" { if ($0 != "") said[block] = said[block] "# " $0 "\n" }
END {
	end_binary()
	print "TAP version 13"
	for (i in slow)
		hung++
	print "1.." count + hung + wrong
	for (i = 1; i <= count; i++) {
		if (state[i] ~ /^ok/)
			print "ok " i " " name[i]
		else if (state[i] ~ /^ignored/) {
			why = state[i]
			sub(/^ignored,? */, "", why)
			print "ok " i " " name[i] " # SKIP " (why == "" ? "ignored in its source" : why)
		} else {
			printf "%s", said[key[i]]
			print "not ok " i " " name[i]
			if (paths != "") {
				split(key[i], part, SUBSEP)
				print name[i] "\t" part[2] >paths
			}
		}
	}
	for (i in slow) {
		print "# still running when cargo test was killed"
		print "not ok " ++count " " slow[i]
	}
	for (i = 1; i <= wrong; i++)
		print "not ok " ++count " rig " broken[i]
}
