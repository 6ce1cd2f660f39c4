#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make check: formatting, lints, C style, shell style, host tests. Every
# checker runs, whatever the ones before it said.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

log=$LOGS/check.log
failed=()

# checker NAME COMMAND...: one line when it is content, its words when not.
checker() {
	local name=$1 start=$SECONDS
	shift
	if "$@" >"$log" 2>&1 </dev/null; then
		printf '%-34s ok    (%ds)\n' "$name" $((SECONDS - start))
	else
		printf '%-34s FAIL  (%ds)\n' "$name" $((SECONDS - start))
		sed 's/^/    /' "$log" | tail -n 60
		failed+=("$name")
	fi
}

left_out() { printf '%-34s left out: %s\n' "$1" "$2"; }

in_tree() { (cd "$TOP" && find . -path ./.git -prune -o -path ./target -prune -o -type f "$@" -print | sort); }

# Kernel-side Rust by file: rustfmt follows "mod" lines itself, but stops at
# crates it does not know.
kernel_rustfmt() {
	# shellcheck disable=SC2046 # our own names, no blanks in them
	inside rustfmt --check --edition 2021 --config-path "$TOP" --config skip_children=true $(in_tree -name '*.rs' -path './src/*') 2>/dev/null ||
		inside rustfmt --check --edition 2021 --config-path "$TOP" $(in_tree -name '*.rs' -path './src/*')
}

clippy_kernel() {
	local out=$CACHE/build/clippy rc=0
	rm -rf "$out"
	mkdir -p "$out"
	inside make -C "$KTREE" -j"$JOBS" "M=$TOP" "MO=$out" CC=gcc-14 CLIPPY=1 modules || rc=1
	rm -rf "$out"
	return $rc
}

checkpatch() {
	local files
	files=$(in_tree \( -name '*.c' -o -name '*.h' \))
	[ -n "$files" ] || return 0
	# Out of tree there is no MAINTAINERS file; programs under tests are
	# not kernel code where it comes to printing, and follow the rest.
	# shellcheck disable=SC2086
	inside "$KTREE/scripts/checkpatch.pl" --no-tree --strict --terse --no-summary --show-types \
		--ignore FILE_PATH_CHANGES,SPDX_LICENSE_TAG,AVOID_EXTERNS,CONSTANT_CONVERSION -f $files
}

shell_style() {
	local files
	files=$(in_tree -name '*.sh' ; echo ./tests/vm/init; echo ./.ci/run)
	# shellcheck disable=SC2086
	(cd "$TOP" && shellcheck -x $files)
}

"$TOP/tools/rig/build.sh"
set_up
cargo=(inside env "CARGO_TARGET_DIR=$TARGET" cargo)
workspace=(--manifest-path "$TOP/tools/Cargo.toml")
if [ -e "$TOP/tools/Cargo.toml" ]; then
	checker "rustfmt, tools" "${cargo[@]}" fmt "${workspace[@]}" --all --check
	checker "clippy, tools" "${cargo[@]}" clippy "${workspace[@]}" --workspace --all-targets --locked -- -D warnings
fi
checker "rustfmt, modules" kernel_rustfmt
if [ -e "$TOP/Kbuild" ]; then
	checker "clippy, modules" clippy_kernel
fi
checker "checkpatch" checkpatch
if command -v shellcheck >/dev/null; then
	checker "shellcheck" shell_style
else
	left_out "shellcheck" "not installed on this host"
fi
if [ -e "$TOP/tools/Cargo.toml" ]; then
	checker "host tests" "${cargo[@]}" test "${workspace[@]}" --workspace --locked --no-fail-fast
fi
[ ${#failed[@]} = 0 ] || { printf '%d checks failed\n' "${#failed[@]}"; exit 1; }
echo "all checks passed"
