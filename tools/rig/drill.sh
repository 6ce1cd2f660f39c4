#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# The kernel-update drill (make drill [KERNEL_RELEASE=...]): tries the modules with another kernel
# than the usual one. It prepares the kernel's tree, compares the prototypes of tracepoints, builds
# the modules against it, and boots it with them. The default is the newest complete kernel in the
# archive, supported or not. Documentation/porting.md says what to do about failures.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

# prototype TREE TRACEPOINT: prints a tracepoint's TP_PROTO in a kernel tree. The compiler does not
# compare it with the arguments of the probe in probe.rs.
prototype() {
	grep -rhA8 -E "^(TRACE_EVENT|DEFINE_EVENT|DECLARE_TRACE|DECLARE_EVENT_CLASS)[A-Z_]*\(.*\b$2\b|^TRACE_EVENT[A-Z_]*\($2,|^DEFINE_EVENT\([a-z_]*, $2," \
		"$1/include/trace/events" "$1/arch/x86/include/asm/trace" | sed -n '/TP_PROTO/,/)/p'
}
# prototypes TREE TREE: fails if a tracepoint that probe.rs names has other arguments in one tree
# than in the other.
prototypes() {
	local name changed=
	while read -r name; do
		diff <(prototype "$1" "${name%_tp}") <(prototype "$2" "${name%_tp}") || changed+=" $name"
	done < <(grep -oE 'c"[a-z_]+"' "$TOP/src/perfcounters/sys/probe.rs" | sed 's,c",,; s,",,' | sort -u)
	[ -z "$changed" ] || die "these tracepoints have other arguments now:$changed; change their prototypes in src/perfcounters/sys/probe.rs"
	say "    prototypes of tracepoints: unchanged"
}

wish=${KERNEL_RELEASE:-}
unset KERNEL_RELEASE
set_up
usual=$RELEASE usual_tree=$KTREE
# With /dev/null as the table of supported series, releases.sh lists the newest release first.
KERNEL_RELEASE=${wish:-$(inside "$TOP/tools/rig/releases.sh" /dev/null | awk -v usual="$usual" '$1 != usual { print $1; exit }')}
[ -n "$KERNEL_RELEASE" ] || die "the archive has no other whole kernel than $usual, which is the usual one; name one with KERNEL_RELEASE="
export KERNEL_RELEASE
step "drill: $KERNEL_RELEASE"
set_up
prototypes "$usual_tree" "$KTREE"
# The programs of the documentation use each interface.
CMD=${CMD:-'cd /tmp && sh /tests/documented_programs.sh'} "$TOP/tools/rig/vm.sh" shell
