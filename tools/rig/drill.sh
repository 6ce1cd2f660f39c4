#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make drill [KERNEL_RELEASE=...]: the kernel-update drill. Takes another kernel than the one this
# family is developed against, by default the newest of the archive, prepares its tree, builds the
# modules against it, and boots it with them. Documentation/porting.md says what to do with what
# it finds. It has a place of its own in the cache; tool chain and tools are the usual ones.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

newest() {
	inside sh -c 'apt-cache pkgnames linux-binary-' | sed -nE 's/^linux-binary-([0-9.]+\+deb13-amd64)$/\1/p' | sort -V | tail -n 1
}

# What a tree says of the arguments of a tracepoint: no compiler compares them with probe.rs.
prototype() { # TREE TRACEPOINT
	grep -rhA8 -E "^(TRACE_EVENT|DEFINE_EVENT|DECLARE_TRACE|DECLARE_EVENT_CLASS)[A-Z_]*\(.*\b$2\b|^TRACE_EVENT[A-Z_]*\($2,|^DEFINE_EVENT\([a-z_]*, $2," \
		"$1/include/trace/events" "$1/arch/x86/include/asm/trace" | sed -n '/TP_PROTO/,/)/p'
}
prototypes() { # TREE TREE
	local name changed=
	while read -r name; do
		diff <(prototype "$1" "${name%_tp}") <(prototype "$2" "${name%_tp}") || changed+=" $name"
	done < <(grep -oE 'c"[a-z_]+"' "$TOP/src/perfcounters/sys/probe.rs" | sed 's,c",,; s,",,' | sort -u)
	[ -z "$changed" ] || die "these tracepoints have other arguments now; change src/perfcounters/sys/probe.rs:$changed"
	say "    prototypes: as they were"
}

release=${KERNEL_RELEASE:-}
unset KERNEL_RELEASE
"$TOP/tools/rig/build.sh" tools
release=${release:-$(newest)}
[ "$release" != "$(cut -d' ' -f1 "$CACHE/release")" ] ||
	die "the archive has no other kernel than $release, against which everything is built anyway; name one with KERNEL_RELEASE="

place=$CACHE/drill
mkdir -p "$place/stamps"
for shared in rootfs cargo python target mode; do ln -sfn "../$shared" "$place/$shared"; done
cp "$CACHE/stamps"/{base,packages,python} "$place/stamps/"
export PERFCOUNTERS_CACHE=$place KERNEL_RELEASE=$release
step "drill: $release"
"$TOP/tools/rig/kdir.sh"
[ "$(cut -d' ' -f1 "$place/release")" = "$release" ] || die "the archive has no whole $release"
usual=$(cut -d' ' -f1 "${place%/*}/release")
prototypes "${place%/*}/kernel/$usual/tree" "$place/kernel/$release/tree"
"$TOP/tools/rig/build.sh" modules
# With the tools as they are: programs of the documentation touch each interface.
step "boot $release"
NO_BUILD=1 CMD=${CMD:-'cd /tmp && sh /tests/documented_programs.sh'} "$TOP/tools/rig/vm.sh" shell
