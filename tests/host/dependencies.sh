#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks which files of src depend on which others. The test fails if files depend on each other in
# a cycle, or if a file uses a component that tests/host/components does not allow. This command
# prints the dependencies of all files:
#
#	python3 tests/host/lib/dependencies.py . tests/host/components list

set -u
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# errors TREE TABLE KIND: prints the dependency errors of the kind KIND, or an error if
# dependencies.py fails.
errors() {
	python3 "$TOP/tests/host/lib/dependencies.py" "$@" 2>&1 || echo "dependencies.py failed"
}

plan 9
for kind in cycles components stale; do
	case $kind in
	cycles) name="src: files have no cyclic dependencies" ;;
	components) name="src: each file is in a component, and uses only allowed components" ;;
	stale) name="components: each listed file exists" ;;
	esac
	nothing "$name" "$(errors "$TOP" "$TOP/tests/host/components" "$kind")"
done
nr=$(errors "$TOP" "$TOP/tests/host/components" list | grep -c ' ')
result "$([ "$nr" -ge 500 ]; echo $?)" "src: at least 500 dependencies are found ($nr)"

# Make a small source tree that has one dependency error of each kind.
mkdir -p "$work/src/low/inner" "$work/src/high" "$work/include/linux"
cat >"$work/src/low/main.rs" <<'END'
//! use crate::inner::Comment;
pub mod inner;
#[path = "../../include/linux/api.rs"]
pub mod api;
END
cat >"$work/src/low/inner.rs" <<'END'
mod leaf;
pub use leaf::Leaf;
pub const TEXT: &str = "crate::api::Text";
END
cat >"$work/src/low/inner/leaf.rs" <<'END'
pub struct Leaf;
fn up() { super::down() }
END
cat >"$work/src/high/high.rs" <<'END'
use low::{api, inner as deep};
extern "C" {
    fn help(n: c_int) -> c_int;
}
fn call() { deep::Leaf; api::Spec }
mod inline {
    pub mod part;
}
END
mkdir "$work/src/high/inline"
cat >"$work/src/high/inline/part.rs" <<'END'
use super::super::call;
END
cat >"$work/src/high/help.c" <<'END'
#include <linux/kernel.h>
#include "help.h"
int help(int n)
{
	return n;
}
END
touch "$work/src/high/help.h" "$work/include/linux/api.rs"
cat >"$work/components" <<'END'
component low src/low/*
component high src/high/*
component api include/linux/*
may high low
may low api
component none src/none/*
END
as_wanted "dependencies: found in use, code, mod, extern blocks and #include; not in comments and strings" \
	"$(errors "$work" "$work/components" list)" "src/high/help.c src/high/help.h
src/high/high.rs include/linux/api.rs
src/high/high.rs src/high/help.c
src/high/high.rs src/high/inline/part.rs
src/high/high.rs src/low/inner.rs
src/high/inline/part.rs src/high/high.rs
src/low/inner.rs src/low/inner/leaf.rs
src/low/inner/leaf.rs src/low/inner.rs
src/low/main.rs include/linux/api.rs
src/low/main.rs src/low/inner.rs"
as_wanted "dependencies: a cycle of files is an error" "$(errors "$work" "$work/components" cycles)" \
	"cycle: src/high/high.rs -> src/high/inline/part.rs -> src/high/high.rs
cycle: src/high/inline/part.rs -> src/high/high.rs -> src/high/inline/part.rs
cycle: src/low/inner.rs -> src/low/inner/leaf.rs -> src/low/inner.rs
cycle: src/low/inner/leaf.rs -> src/low/inner.rs -> src/low/inner/leaf.rs"
as_wanted "dependencies: the use of a component that may not be used is an error" "$(errors "$work" "$work/components" components)" \
	"src/high/high.rs (high) uses include/linux/api.rs (api)"
touch "$work/src/new.rs"
as_wanted "dependencies: a file in no component is an error" "$(errors "$work" "$work/components" components | grep new)" \
	"src/new.rs: in no component"
as_wanted "dependencies: a pattern without a file is an error" "$(errors "$work" "$work/components" stale)" \
	"component src/none/*: no such file"
exit $failed
