#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make check: formatting, lints, C style, shell style, host tests. Every
# checker runs, whatever the ones before it said.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

log=$LOGS/check.$$.log
trap 'rm -f "$log"' EXIT
failed=()
: >"$LOGS/check.log"

# checker NAME COMMAND...: one line when it is content, its words when not.
checker() {
	local name=$1 start=$SECONDS
	shift
	if "$@" >"$log" 2>&1 </dev/null; then
		printf '%-34s ok    (%ds)\n' "$name" $((SECONDS - start))
	else
		printf '%-34s FAIL  (%ds)\n' "$name" $((SECONDS - start))
		sed 's/^/    /' "$log" | tail -n 60
		cat "$log" >>"$LOGS/check.log"
		failed+=("$name")
	fi
}


in_tree() { (cd "$TOP" && find . -path ./.git -prune -o -path ./target -prune -o -type f "$@" -print | sort); }

kernel_rustfmt() {
	# shellcheck disable=SC2046 # our own names, no blanks in them
	inside rustfmt --check --color never --edition 2021 --config-path "$TOP" $(in_tree -name '*.rs' ! -path './tools/*')
}

# Kbuild's clippy warns and goes on; here a warning is a fault. It generates no
# code that could be inlined, so modpost is not to judge.
clippy_kernel() {
	local out=$CLONE/build/clippy.$$ rc=0
	mkdir -p "$out"
	inside make -C "$KTREE" -j"$JOBS" "M=$TOP" "MO=$out" CC=gcc-14 CLIPPY=1 KBUILD_MODPOST_WARN=1 modules 2>&1 || rc=1
	rm -rf "$out"
	! grep -A 12 '^warning:' "$log" >"$log.warnings" || { cat "$log.warnings"; rc=1; }
	rm -f "$log.warnings"
	return $rc
}

# The kernel's own checker, by file: there is no patch and no MAINTAINERS here,
# Rust functions are exported from C, and uapi headers cannot use BIT().
checkpatch() {
	local ignore=FILE_PATH_CHANGES,SPDX_LICENSE_TAG,AVOID_EXTERNS,EXPORT_SYMBOL,BIT_MACRO files
	local -a command=(inside "$KTREE/scripts/checkpatch.pl" --no-tree --strict --terse --no-summary --show-types)
	files=$(in_tree \( -name '*.c' -o -name '*.h' \) "$@")
	[ -n "$files" ] || return 0
	# Programs have libc, not the kernel's types and macros, and say what they test in a line;
	# perfmon2's types and <inttypes.h> have names of their own, and what a kernel has not got
	# is ENOSYS.
	[ "$1" != "(" ] || ignore+=,PREFER_KERNEL_TYPES,LONG_LINE_STRING,EMBEDDED_FUNCTION_NAME,STRING_FRAGMENTS,VOLATILE,PREFER_DEFINED_ATTRIBUTE_MACRO,STRCPY,NEW_TYPEDEFS,ENOSYS,CAMELCASE
	ignore+=${tables:+,COMPLEX_MACRO,MACRO_ARG_REUSE,MACRO_ARG_PRECEDENCE}
	local rc=0
	# shellcheck disable=SC2086
	"${command[@]}" --ignore "$ignore" -f $files || rc=$?
	# Its notes about names of the kernel's.
	rm -f "$TOP"/.checkpatch-camelcase.*
	return $rc
}

shell_style() {
	local files
	files=$(in_tree -name '*.sh' ; echo ./tests/vm/init ./tests/vm/guests ./.ci/run ./tools/deb/sign ./tools/deb/modules ./tools/deb/dkms/build)
	# SC2319: the status of a condition is what is meant.
	# shellcheck disable=SC2086
	(cd "$TOP" && inside shellcheck -x -S info -e SC2319 $files)
}

# A test of tests/host that takes seconds.
host_script() {
	inside env "KBUILD_OUT=$KBUILD_OUT" "KTREE=$KTREE" bash "$TOP/tests/host/$1.sh"
}

"$TOP/tools/rig/plan.sh" modules-stock tools
set_up
cargo=(inside env "CARGO_TARGET_DIR=$TARGET" CARGO_TERM_COLOR=never "RUSTDOCFLAGS=-Dwarnings -Arustdoc::private_intra_doc_links" cargo)
workspace=(--manifest-path "$TOP/tools/Cargo.toml")
if [ -e "$TOP/tools/Cargo.toml" ]; then
	checker "rustfmt, tools" "${cargo[@]}" fmt "${workspace[@]}" --all --check -- --color never
	checker "rustdoc, tools" "${cargo[@]}" doc "${workspace[@]}" --workspace --no-deps --locked
	checker "clippy, tools" "${cargo[@]}" clippy "${workspace[@]}" --workspace --all-targets --locked -- -D warnings
fi
checker "rustfmt, modules" kernel_rustfmt
if [ -e "$TOP/Kbuild" ]; then
	checker "clippy, modules" clippy_kernel
fi
LONG=1 checker "rustdoc, kernel-doc" host_script kerneldoc
checker "SPDX, length of each file" host_script headers
checker "orderings and locks, as described" host_script orderings
checker "interfaces, as promised" host_script abi
checker "checkpatch, kernel" checkpatch ! -path './tests/kselftest/*' ! -path './tools/*' ! -path './tests/qemu-pmu/*'
# Fields that the preprocessor takes apart, and C++, are not what it knows.
checker "checkpatch, programs" checkpatch "(" -path './tests/kselftest/*' -o -path './tools/*' ")" \
	! -path './tools/libperftrace/include/perftrace/macro.h' ! -path './tools/libperftrace/bench/lttng_tp.h' \
	! -path './tests/kselftest/ioctl_fuzz.h' ! -path './tests/kselftest/fuzz_perf*.c'
# Macros that write the rows of tables name a member or a list more than once.
tables=1 checker "checkpatch, tables" checkpatch "(" -path './tests/kselftest/ioctl_fuzz.h' -o -path './tests/kselftest/fuzz_perf*.c' ")"
checker "shellcheck" shell_style
if [ -e "$TOP/tools/Cargo.toml" ]; then
	checker "host tests" "${cargo[@]}" test "${workspace[@]}" --workspace --locked --no-fail-fast
fi
[ ${#failed[@]} = 0 ] || { printf '%d checks failed; all of what they said: %s\n' "${#failed[@]}" "$LOGS/check.log"; exit 1; }
echo "all checks passed"
