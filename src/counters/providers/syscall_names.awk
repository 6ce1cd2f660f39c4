# SPDX-License-Identifier: GPL-2.0
# Prints the names of the system calls of the ABIs x86_64, i386 and x32, by number, as three Rust
# slices. The input is the kernel's syscall_64.tbl and syscall_32.tbl. In syscall_64.tbl, a call of
# the ABI "common" is a call of x86_64 and of x32.
function add(abi) {
	name[abi, $1] = $3
	if ($1 + 0 > max[abi]) max[abi] = $1 + 0
}
$1 !~ /^[0-9]+$/ { next }
$2 == "common" || $2 == "64" { add(1) }
$2 == "i386" { add(2) }
$2 == "common" || $2 == "x32" { add(3) }
END {
	print "// Generated from the kernel\047s tables of system calls.\n["
	for (abi = 1; abi <= 3; abi++) {
		print "    &["
		for (n = 0; n <= max[abi]; n++)
			printf "        %s,\n", ((abi, n) in name) ? "Some(\"" name[abi, n] "\")" : "None"
		print "    ],"
	}
	print "]"
}
