#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks formatting, lints, documentation, C style and shell style, and runs cargo test (make
# check). Runs every checker, even if a previous checker has failed.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

log=$LOGS/check.$$.log
trap 'rm -f "$log"' EXIT
failed=()
: >"$LOGS/check.log"

# checker NAME COMMAND...: runs a checker and prints a line with its result. If the checker fails,
# also prints the end of its output, and appends the whole output to check.log.
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
	# shellcheck disable=SC2046 # file names in this tree have no blanks
	inside rustfmt --check --color never --edition 2021 --config-path "$TOP" $(in_tree -name '*.rs' ! -path './tools/*')
}

# Runs clippy by Kbuild, and fails if clippy warns; Kbuild itself does not fail on warnings. Clippy
# compiles without inlining, so the modules may refer to undefined symbols. With
# KBUILD_MODPOST_WARN=1 modpost warns about undefined symbols instead of failing.
clippy_kernel() {
	local out=$CLONE/build/clippy.$$ rc=0
	mkdir -p "$out"
	inside make -C "$KTREE" -j"$JOBS" "M=$TOP" "MO=$out" CC=gcc-14 CLIPPY=1 KBUILD_MODPOST_WARN=1 modules 2>&1 || rc=1
	rm -rf "$out"
	! grep -A 12 '^warning:' "$log" >"$log.warnings" || { cat "$log.warnings"; rc=1; }
	rm -f "$log.warnings"
	return $rc
}

# checkpatch EXPRESSION...: runs the kernel's checkpatch on the C files that find's expression
# selects, as files and not as patches. An expression that begins with "(" selects user programs.
# Some types of messages are ignored, because this source tree has no MAINTAINERS, because Rust
# functions are exported from C, and because uapi headers cannot use BIT(). If $tables is set,
# messages about macros are ignored as well. If $writable is set, messages about files that everyone
# may write are ignored.
checkpatch() {
	local ignore=FILE_PATH_CHANGES,SPDX_LICENSE_TAG,AVOID_EXTERNS,EXPORT_SYMBOL,BIT_MACRO files
	local -a command=(inside "$KTREE/scripts/checkpatch.pl" --no-tree --strict --terse --no-summary --show-types)
	files=$(in_tree \( -name '*.c' -o -name '*.h' \) "$@")
	[ -n "$files" ] || return 0
	# User programs use libc instead of the kernel's types and macros, and have long strings as
	# test names. Also ignore messages about types of perfmon2, about mixed-case macros of
	# <inttypes.h>, and about ENOSYS, which some programs compare with an errno.
	[ "$1" != "(" ] || ignore+=,PREFER_KERNEL_TYPES,LONG_LINE_STRING,EMBEDDED_FUNCTION_NAME,STRING_FRAGMENTS,VOLATILE,PREFER_DEFINED_ATTRIBUTE_MACRO,STRCPY,NEW_TYPEDEFS,ENOSYS,CAMELCASE
	ignore+=${tables:+,COMPLEX_MACRO,MACRO_ARG_REUSE,MACRO_ARG_PRECEDENCE}${writable:+,EXPORTED_WORLD_WRITABLE}
	local rc=0
	# shellcheck disable=SC2086
	"${command[@]}" --ignore "$ignore" -f $files || rc=$?
	# Remove checkpatch's cache of the kernel's mixed-case names.
	rm -f "$TOP"/.checkpatch-camelcase.*
	return $rc
}

shell_style() {
	local files
	files=$(in_tree -name '*.sh' ; echo ./tests/vm/init ./tests/vm/guests ./.ci/run ./tools/deb/sign ./tools/deb/modules ./tools/deb/dkms/build)
	# Exclude SC2319, because scripts use "$?" after a condition to get the status of the
	# condition.
	# shellcheck disable=SC2086
	(cd "$TOP" && inside shellcheck -x -S info -e SC2319 $files)
}

# host_script NAME: runs tests/host/NAME.sh.
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
checker "SPDX lines, length of files" host_script headers
checker "documented orderings and locks" host_script orderings
checker "stable interfaces" host_script abi
checker "checkpatch, kernel" checkpatch ! -path './tests/kselftest/*' ! -path './tools/*' ! -path './tests/qemu-pmu/*' \
	! -path './src/ppa/helpers/proc.c'
# Everyone may open ppactl for writing, like the kernel's file ns_last_pid, because the handler of
# each write checks a capability.
writable=1 checker "checkpatch, files of /proc" checkpatch -path './src/ppa/helpers/proc.c'
# Leave out macro.h and lttng_tp.h, because checkpatch does not understand C++, or macros that
# expand the fields of an event. The next call of checkpatch checks the sources of the fuzzers.
checker "checkpatch, programs" checkpatch "(" -path './tests/kselftest/*' -o -path './tools/*' ")" \
	! -path './tools/libperftrace/include/perftrace/macro.h' ! -path './tools/libperftrace/bench/lttng_tp.h' \
	! -path './tests/kselftest/lib/ioctl_fuzz.h' ! -path './tests/kselftest/*/fuzz_perf*.c'
# In the following files macros generate rows of tables, and use a macro argument more than once.
tables=1 checker "checkpatch, tables" checkpatch "(" -path './tests/kselftest/lib/ioctl_fuzz.h' -o -path './tests/kselftest/*/fuzz_perf*.c' ")"
checker "shellcheck" shell_style
if [ -e "$TOP/tools/Cargo.toml" ]; then
	checker "host tests" "${cargo[@]}" test "${workspace[@]}" --workspace --locked --no-fail-fast
fi
[ ${#failed[@]} = 0 ] || { printf '%d checks failed; their complete output: %s\n' "${#failed[@]}" "$LOGS/check.log"; exit 1; }
echo "all checks passed"
