#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests the modules on a kernel that differs from the default kernel of the cache (make drill
# [KERNEL_RELEASE=...]). The script prepares the tree of the other kernel, and compares the
# prototypes of the tracepoints in the two kernels. Then the script builds the modules for the other
# kernel, and boots the other kernel with the modules in a guest. By default the other kernel is the
# newest complete kernel in the Debian archive, even if this project does not support it. If a step
# fails, Documentation/porting.md describes what to do.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

# prototype TREE TRACEPOINT: prints the TP_PROTO of a tracepoint in a kernel tree. The compiler does
# not compare TP_PROTO with the arguments of the probe in tracepoint.rs.
prototype() {
	grep -rhA8 -E "^(TRACE_EVENT|DEFINE_EVENT|DECLARE_TRACE|DECLARE_EVENT_CLASS)[A-Z_]*\(.*\b$2\b|^TRACE_EVENT[A-Z_]*\($2,|^DEFINE_EVENT\([a-z_]*, $2," \
		"$1/include/trace/events" "$1/arch/x86/include/asm/trace" | sed -n '/TP_PROTO/,/)/p'
}
# prototypes TREE TREE: compares the tracepoints that tracepoint.rs names. Fails if a tracepoint has
# different arguments in the two kernel trees.
prototypes() {
	local name changed=
	while read -r name; do
		diff <(prototype "$1" "${name%_tp}") <(prototype "$2" "${name%_tp}") || changed+=" $name"
	done < <(grep -oE 'c"[a-z_]+"' "$TOP/src/base/tracepoint.rs" | sed 's,c",,; s,",,' | sort -u)
	[ -z "$changed" ] || die "these tracepoints have other arguments now:$changed; change their prototypes in src/base/tracepoint.rs"
	say "    prototypes of tracepoints: unchanged"
}

wish=${KERNEL_RELEASE:-}
unset KERNEL_RELEASE
set_up
usual=$RELEASE usual_tree=$KTREE
# Pass an empty table of supported series, /dev/null: releases.sh then lists the newest release
# first.
KERNEL_RELEASE=${wish:-$(inside "$TOP/tools/rig/releases.sh" /dev/null | awk -v usual="$usual" '$1 != usual { print $1; exit }')}
[ -n "$KERNEL_RELEASE" ] || die "the archive has no other whole kernel than $usual, which is the usual one; name one with KERNEL_RELEASE="
export KERNEL_RELEASE
step "drill: $KERNEL_RELEASE"
set_up
prototypes "$usual_tree" "$KTREE"
# In the guest, run the programs of the documentation, which together use each interface of the
# modules.
CMD=${CMD:-'cd /tmp && sh /tests/documented_programs.sh'} "$TOP/tools/rig/vm.sh" shell
