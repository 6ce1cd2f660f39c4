# SPDX-License-Identifier: GPL-2.0
# Prints the names of the 64-bit system calls, by number, as a Rust slice.
BEGIN { max = -1; print "// Generated from the kernel's syscall_64.tbl.\n&[" }
$1 ~ /^[0-9]+$/ && ($2 == "common" || $2 == "64") { name[$1] = $3; if ($1 + 0 > max) max = $1 + 0 }
END {
	for (n = 0; n <= max; n++)
		printf "    %s,\n", (n in name) ? "Some(\"" name[n] "\")" : "None"
	print "]"
}
