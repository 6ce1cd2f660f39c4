#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# The set-up (make kdir): makes the tool chain and a prepared kernel tree. The tree matches the
# stock Debian kernel, so that Rust modules that are built for the tree load into that kernel.
# Usage: kdir.sh [base|all] [--say]
#   base   makes the tool chain, the Python packages and the stock kernel, but no prepared tree
#   --say  prints a message with the path of the tree instead of "RELEASE TREE"
# Without --say, prints "RELEASE TREE": the release of the kernel and the path of the prepared tree.
# Skips steps whose results exist already.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
LOG=$CACHE/logs/kdir.log
# shellcheck source=tools/rig/stages.sh
. "$TOP/tools/rig/stages.sh"

# Increase TREE_RECIPE when a change of tree.sh makes a different tree. The name of the tree's
# directory contains a hash, of which TREE_RECIPE is an input.
TREE_RECIPE=1

tree_packages() { sed '/^# What follows is for tests/,$d; s/#.*//' "$TOP/tools/rig/packages" | xargs; }
python_packages() { sed 's/#.*//' "$TOP/tools/rig/python-packages" | xargs; }

# mirror: prints the address of the Debian archive: DEBIAN_MIRROR or, if that variable is not set,
# the archive that the host's apt uses. No script of this repository contains the URL of a Debian
# archive.
mirror() {
	local uri=${DEBIAN_MIRROR:-}
	# shellcheck disable=SC2016 # apt's own variables
	[ -n "$uri" ] || uri=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
		awk '$2 !~ /-security|-backports|-updates/ { print $1; exit }')
	[ -n "$uri" ] || uri=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
		sed -nE 's/^(deb .*|URIs:.*)\b(https?:[^ ]*\/debian\/?)( .*|$)/\2/p' | head -n 1)
	[ -n "$uri" ] || die "apt on this host has no Debian archive configured; name one: make kdir DEBIAN_MIRROR=<address of a Debian archive>"
	printf '%s' "$uri"
}

base_system() {
	[ -x "$ROOTFS/usr/bin/apt-get" ] && stamped base "$SUITE" && return
	local uri
	uri=$(mirror)
	step "base system ($SUITE)"
	if ! command -v mmdebstrap >/dev/null; then
		command -v apt-get >/dev/null || die "mmdebstrap not found, and no apt-get to install it; the set-up needs a Debian 12 or 13 host"
		stage "apt-get update" apt-get update -q
		stage "install mmdebstrap" apt-get install -y -q --no-install-recommends mmdebstrap debian-archive-keyring
	fi
	remove "$ROOTFS" "$ROOTFS.partial" "$STAMPS"/packages* "$STAMPS/base"
	# The new base system gets the options of the host's apt for proxies and for checks of
	# dates.
	apt-config dump | grep -E '^Acquire::(https?|Check-)' >"$CACHE/apt.conf" || :
	stage "unpack $SUITE" mmdebstrap --variant=apt --include=ca-certificates --aptopt="$CACHE/apt.conf" \
		--dpkgopt=force-unsafe-io "$SUITE" "$ROOTFS.partial" \
		"deb $uri $SUITE main" "deb $uri $SUITE-backports main" \
		"deb-src $uri $SUITE main" "deb-src $uri $SUITE-backports main"
	mv "$ROOTFS.partial" "$ROOTFS"
	stamp base "$SUITE"
}

# tool_chain "PACKAGE...": installs packages. Packages that are no longer listed stay installed, so
# that clones with different lists of packages can share the root file system.
tool_chain() {
	local want=$1
	if direct; then
		# shellcheck disable=SC2086 # a list of names
		[ "$(dpkg-query -W -f '${db:Status-Status}\n' $want 2>/dev/null | grep -cx installed)" = "$(wc -w <<<"$want")" ] && return
		[ "$(id -u)" = 0 ] || die "packages of tools/rig/packages are not installed on this host; run make kdir DIRECT=1 once as root"
	fi
	step "tool chain"
	stage "package lists" inside apt-get update -q
	stage "compilers, QEMU" inside sh -c "dpkg --configure -a && apt-get -f install -y -q && apt-get install -y -q --no-install-recommends $want"
	stage "check the compilers" inside sh -c 'rustc --version && bindgen --version && gcc-14 --version'
}

# python "PACKAGE...": installs Python packages in a venv in the cache. Tests use the Python
# packages to read the output of this project's programs.
python() {
	step "Python packages"
	remove "$CACHE/python"
	stage "venv" inside python3 -m venv "$CACHE/python"
	# shellcheck disable=SC2086 # a list of names
	stage "$1" inside "$CACHE/python/bin/pip" install -q --disable-pip-version-check --no-input $1
}

base() {
	local want mode=chroot
	! direct || mode=direct
	case ${DIRECT:-} in 1) mode=direct ;; 0) mode=chroot ;; esac
	[ "$mode" = chroot ] || grep -q 'VERSION_ID="13"' /etc/os-release ||
		die "DIRECT=1 needs a Debian 13 host; leave it out to use a chroot"
	[ "$mode" = direct ] || [ "$(id -u)" = 0 ] || die "set-up and builds enter a chroot, which needs root; run make as root or with sudo"
	want=$(packages)
	local packages_stamp python_want
	packages_stamp=packages-$(short_hash <<<"$mode $want")
	python_want=$(python_packages)
	# Write the file $CLONE/mode before another script calls direct() (lib.sh), which reads this
	# file.
	[ "$(cat "$CLONE/mode" 2>/dev/null)" = "$mode" ] || echo "$mode" >"$CLONE/mode"
	made() { stamped "$packages_stamp" "$want" && { [ -e "$ROOTFS" ] || [ "$mode" = direct ]; }; }
	have_python() { stamped python "$python_want" && [ -x "$CACHE/python/bin/python" ]; }
	made && have_python && return
	lock "$CACHE/locks/base" "the tool chain"
	made || {
		[ "$mode" = direct ] || base_system
		tool_chain "$want"
		stamp "$packages_stamp" "$want"
	}
	have_python || {
		python "$python_want"
		stamp python "$python_want"
	}
}

is_here() { [ -e "$CACHE/kernel/$1/stock/.whole" ]; }

# is_supported RELEASE: true if tools/rig/kernels lists the series of a kernel release.
is_supported() { [[ " $(words "$TOP/tools/rig/kernels") " == *" $(cut -d. -f1,2 <<<"$1") "* ]]; }

# known_release: prints the kernel release that is recorded for this test run in $RUN_DIR/release.
# Without this file, prints the newest unpacked release that matches the pattern KERNEL_RELEASE. The
# default of KERNEL_RELEASE is the release in $CACHE/release. Prints nothing if the release must be
# chosen from the archive.
known_release() {
	local dir wish=${KERNEL_RELEASE:-$(cat "$CACHE/release" 2>/dev/null)}
	[ ! -s "${RUN_DIR:-/nonexistent}/release" ] || { cat "$RUN_DIR/release"; return; }
	[ -n "$wish" ] || return 0
	# Use the release in $CACHE/release only if this clone supports its series: a clone whose
	# tools/rig/kernels lists other series may have written $CACHE/release.
	[ -n "${KERNEL_RELEASE:-}" ] || is_supported "$wish" || return 0
	# shellcheck disable=SC2086 # a pattern
	for dir in $(cd "$CACHE/kernel" 2>/dev/null && printf '%s\n' $wish | sort -rV); do
		! is_here "$dir" || { echo "$dir"; return; }
	done
}

download() { # RELEASE VERSION
	# shellcheck disable=SC2016
	inside sh -ec 'mkdir -p "$2" && cd "$2" && apt-get download -q -o APT::Sandbox::User=root \
		"linux-binary-$0=$1" "linux-modules-$0=$1" "linux-base-$0=$1" "linux-headers-$0=$1" \
		"linux-source-$(echo "$0" | cut -d. -f1,2)=$1"' "$1" "$2" "$CACHE/debs"
}

# take RELEASE VERSION: downloads and unpacks the packages of a stock kernel. Does not install the
# packages, because an installation would run triggers and set up a boot loader. Returns 1 if the
# configuration of the kernel has no Rust, and 2 if the download failed.
take() {
	local dir=$CACHE/kernel/$1
	! is_here "$1" || return 0
	remove "$CACHE/debs"
	quietly "download $1" "$LOG" download "$1" "$2" || return 2
	remove "$dir/stock"
	mkdir -p "$dir/stock"
	# shellcheck disable=SC2016
	stage "unpack $1" inside sh -ec 'for d in "$0"/*.deb; do dpkg-deb -x "$d" "$1"; done' "$CACHE/debs" "$dir/stock"
	remove "$CACHE/debs"
	if ! grep -q '^CONFIG_RUST=y' "$dir/stock/usr/lib/modules/$1/config"; then
		say "    $1 was built without Rust"
		remove "$dir"
		return 1
	fi
	printf '%s' "$2" >"$dir/version"
	: >"$dir/stock/.whole"
}

# stock_kernel: searches the archive for the first complete kernel that was built with Rust,
# downloads and unpacks this kernel, and sets $found to its release. If a download fails, or if
# apt's lists of packages have no supported kernel, the function updates apt's lists once and
# repeats the search, because the lists may have been out of date. If a download still fails, the
# set-up ends with an error; an older kernel is not taken instead.
stock_kernel() {
	local rel version word rc fresh=
	step "stock kernel"
	while :; do
		while read -r rel version word <&3; do
			# Skip untested kernels until apt's lists have been updated, because the
			# updated lists may have a supported kernel.
			[ "$word" = supported ] || [ -n "$fresh" ] || continue
			rc=0
			take "$rel" "$version" || rc=$?
			[ $rc != 2 ] || [ -z "$fresh" ] || explain "download $rel"
			[ $rc != 2 ] || break
			[ $rc = 0 ] || continue
			# A supported kernel becomes the default kernel of the cache. A clone uses
			# the default kernel if the clone's tools/rig/kernels lists the series of
			# this kernel.
			[ "$word" != supported ] || [ -n "${KERNEL_RELEASE:-}" ] || echo "$rel" >"$CACHE/release"
			found=$rel
			return
		done 3< <(inside "$TOP/tools/rig/releases.sh" "$TOP/tools/rig/kernels" "${KERNEL_RELEASE:-*}" 2>>"$LOG")
		[ -z "$fresh" ] || break
		fresh=1
		# Without --error-on=any, apt-get update succeeds even if it cannot reach the
		# archive.
		stage "package lists" inside apt-get update -q --error-on=any
	done
	! direct || die "apt on this host has no kernel with Rust whose image, modules, headers and source have one version; add $SUITE-backports to apt's sources, run apt-get update, and try again"
	die "the archive has no kernel ${KERNEL_RELEASE:+$KERNEL_RELEASE }with Rust whose image, modules, headers and source have one version; try another DEBIAN_MIRROR= (log: $LOG)"
}

# prepared_tree RELEASE TREE: makes the prepared kernel tree of a release in the directory TREE.
prepared_tree() {
	local rel=$1 tree=$2 dir=$CACHE/kernel/$1 config sym
	step "prepared tree $rel"
	config=$dir/stock/usr/lib/modules/$rel/config
	sym=$dir/stock/usr/src/linux-headers-$rel/Module.symvers
	[[ -e $config && -e $sym ]] || die "the packages of $rel lack config or Module.symvers (looked in $dir/stock)"
	# Prepare the tree at its final path, because Kbuild writes the path into generated files.
	# The file .whole marks the tree as complete.
	stage "prepare the tree of $rel (about 2 minutes)" inside "$TOP/tools/rig/tree.sh" "$rel" \
		"$(echo "$dir"/stock/usr/src/linux-source-*.tar.xz)" "$config" "$sym" "$tree"
	say "    $(tail -n 1 "$LOG")"
	: >"$tree/.whole"
}

main() {
	local rel tree found
	base
	rel=$(known_release)
	[ -n "$rel" ] || {
		lock "$CACHE/locks/stock" "a stock kernel"
		rel=$(known_release)
		[ -n "$rel" ] || { stock_kernel; rel=$found; }
	}
	# A test run uses one kernel release, even if another release is added to the cache during
	# the run. The first call of this script in a test run records the release, and warns if the
	# release is not supported.
	[ -s "${RUN_DIR:-/nonexistent}/release" ] || is_supported "$rel" ||
		say "    kernel $rel is UNTESTED: the supported series are $(words "$TOP/tools/rig/kernels")"
	[ -z "${RUN_DIR:-}" ] || [ -s "$RUN_DIR/release" ] || {
		echo "$rel" >"$RUN_DIR/release.$$"
		mv -n "$RUN_DIR/release.$$" "$RUN_DIR/release"
		rel=$(cat "$RUN_DIR/release")
	}
	tree=$CACHE/kernel/$rel/tree-$(short_hash <<<"$TREE_RECIPE $(tree_packages)")
	[ "$1" = base ] || [ -e "$tree/.whole" ] || {
		LOG=$CACHE/logs/tree-$rel.log
		lock "$tree.lock" "the kernel tree of $rel"
		[ -e "$tree/.whole" ] || prepared_tree "$rel" "$tree"
	}
	if [ "${2:-}" = --say ]; then say "kernel tree ready: $tree"; else echo "$rel $tree"; fi
}

main "${1:-all}" "${2:-}"
