#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# make kdir: the tool chain and a prepared kernel tree that matches the stock
# Debian kernel, so that Rust modules built against it load into that kernel.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"
LOG=$LOGS/kdir.log
# shellcheck source=tools/rig/stages.sh
. "$TOP/tools/rig/stages.sh"

# Raise this when tree.sh changes what it makes.
TREE_RECIPE=1

tree_packages() { sed '/^# What follows is for tests/,$d; s/#.*//' "$TOP/tools/rig/packages" | xargs; }
python_packages() { sed 's/#.*//' "$TOP/tools/rig/python-packages" | xargs; }

# The archive the host itself uses; DEBIAN_MIRROR=... overrides. No host name
# is written down here.
mirror() {
	local uri=${DEBIAN_MIRROR:-}
	# shellcheck disable=SC2016 # apt's own variables
	[ -n "$uri" ] || uri=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
		awk '$2 !~ /-security|-backports|-updates/ { print $1; exit }')
	[ -n "$uri" ] || uri=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
		sed -nE 's/^(deb .*|URIs:.*)\b(https?:[^ ]*\/debian\/?)( .*|$)/\2/p' | head -n 1)
	[ -n "$uri" ] || die "no Debian archive is configured for apt here; name one: make kdir DEBIAN_MIRROR=<address of a Debian archive>"
	printf '%s' "$uri"
}

base_system() {
	[ -x "$ROOTFS/usr/bin/apt-get" ] && stamped base "$SUITE" && return
	local uri
	uri=$(mirror)
	step "base system ($SUITE)"
	if ! command -v mmdebstrap >/dev/null; then
		command -v apt-get >/dev/null || die "the set-up needs mmdebstrap, and there is no apt-get here to install it; a Debian 12 or 13 host is expected"
		stage "apt-get update" apt-get update -q
		stage "install mmdebstrap" apt-get install -y -q --no-install-recommends mmdebstrap debian-archive-keyring
	fi
	remove "$ROOTFS" "$ROOTFS.partial" "$STAMPS/packages" "$STAMPS/base"
	# The host's apt may know a proxy or relax date checks: hand that on.
	apt-config dump | grep -E '^Acquire::(https?|Check-)' >"$CACHE/apt.conf" || :
	stage "unpack $SUITE" mmdebstrap --variant=apt --include=ca-certificates --aptopt="$CACHE/apt.conf" \
		"$SUITE" "$ROOTFS.partial" \
		"deb $uri $SUITE main" "deb $uri $SUITE-backports main" \
		"deb-src $uri $SUITE main" "deb-src $uri $SUITE-backports main"
	mv "$ROOTFS.partial" "$ROOTFS"
	stamp base "$SUITE"
}

tool_chain() {
	local want
	want=$(packages)
	if direct; then
		# shellcheck disable=SC2086 # a list of names
		[ "$(dpkg-query -W -f '${db:Status-Status}\n' $want 2>/dev/null | grep -cx installed)" = "$(wc -w <<<"$want")" ] && return
		[ "$(id -u)" = 0 ] || die "packages are missing on this host; run make kdir DIRECT=1 once as root"
	else
		stamped packages "$want" && return
	fi
	step "tool chain"
	stage "package lists" inside apt-get update -q
	stage "compilers, QEMU" inside sh -c "dpkg --configure -a && apt-get -f install -y -q && apt-get install -y -q --no-install-recommends $want"
	stage "check the compilers" inside sh -c 'rustc --version && bindgen --version && gcc-14 --version'
	stamp packages "$want"
}

# Readers of what we write, for tests: a venv of their own, beside the tool chain.
python() {
	local want
	want=$(python_packages)
	stamped python "$want" && [ -x "$CACHE/python/bin/python" ] && return
	step "Python packages"
	remove "$CACHE/python" "$STAMPS/python"
	stage "venv" inside python3 -m venv "$CACHE/python"
	# shellcheck disable=SC2086 # a list of names
	stage "$want" inside "$CACHE/python/bin/pip" install -q --disable-pip-version-check --no-input $want
	stamp python "$want"
}

# The pinned release if the archive still has its image, modules, headers and
# source together, else the newest that is whole: "RELEASE VERSION".
choose_release() {
	local wish=${KERNEL_RELEASE:-$PINNED_RELEASE} found
	# shellcheck disable=SC2016 # for the inner shell
	found=$(inside sh -c '
		have() { apt-cache madison "$1" 2>/dev/null | awk -F" *[|] *" "\$3 ~ / Packages\$/ { print \$2 }"; }
		for rel in "$0" $(apt-cache pkgnames linux-binary- | sed -nE "s/^linux-binary-([0-9.]+\+deb13-amd64)\$/\1/p" | sort -rV); do
			version=$(have "linux-binary-$rel" | head -n 1)
			[ -n "$version" ] || continue
			whole=1
			for part in "linux-modules-$rel" "linux-headers-$rel" "linux-source-$(echo "$rel" | cut -d. -f1,2)"; do
				have "$part" | grep -xF "$version" >/dev/null || whole=
			done
			[ -z "$whole" ] || { echo "$rel $version"; exit; }
		done' "$wish")
	if [ -z "$found" ]; then
		direct && die "apt on this host offers no kernel 7.2 with image, modules, headers and source of one version. Add $SUITE-backports to apt's sources, run apt-get update, and try again."
		die "the archive has no kernel with image, modules, headers and source of one version; try another DEBIAN_MIRROR"
	fi
	[ "${found% *}" = "$wish" ] || say "    the archive no longer has all of $wish; taking ${found% *}"
	printf '%s' "$found" >"$CACHE/release"
}

download() {
	local rel=$1 version=$2
	# shellcheck disable=SC2016
	inside sh -ec 'mkdir -p "$2" && cd "$2" && apt-get download -q -o APT::Sandbox::User=root \
		"linux-binary-$0=$1" "linux-modules-$0=$1" "linux-base-$0=$1" "linux-headers-$0=$1" \
		"linux-source-$(echo "$0" | cut -d. -f1,2)=$1"' "$rel" "$version" "$CACHE/debs"
}

# The stock packages are unpacked, not installed: no boot loader, no triggers.
stock_kernel() {
	local rel version dir
	read -r rel version <"$CACHE/release" || :
	[ ! -e "$CACHE/kernel/$rel/stock/.whole" ] || return 0
	step "stock kernel $rel"
	remove "$CACHE/debs"
	if ! quietly "download" "$LOG" download "$rel" "$version"; then
		# Perhaps the lists are old and the version is gone: look again, once.
		stage "package lists" inside apt-get update -q
		choose_release
		read -r rel version <"$CACHE/release" || :
		stage "download $rel" download "$rel" "$version"
	fi
	dir=$CACHE/kernel/$rel
	remove "$dir/stock"
	mkdir -p "$dir/stock"
	# shellcheck disable=SC2016
	stage "unpack" inside sh -ec 'for d in "$0"/*.deb; do dpkg-deb -x "$d" "$1"; done' "$CACHE/debs" "$dir/stock"
	remove "$CACHE/debs"
	: >"$dir/stock/.whole"
}

prepared_tree() {
	local rel dir tree want config sym
	read -r rel _ <"$CACHE/release" || :
	dir=$CACHE/kernel/$rel tree=$dir/tree
	want="$rel recipe $TREE_RECIPE for $(tree_packages)"
	stamped "tree-$rel" "$want" && [ -e "$tree/include/generated/autoconf.h" ] && return
	step "prepared tree $rel"
	config=$dir/stock/usr/lib/modules/$rel/config
	sym=$dir/stock/usr/src/linux-headers-$rel/Module.symvers
	[[ -e $config && -e $sym ]] || die "the packages of $rel lack config or Module.symvers (looked in $dir/stock)"
	remove "$tree.partial" "$STAMPS/tree-$rel"
	# Kbuild writes the tree's own path into what it generates, so it is
	# prepared where it stays; the stamp alone says that it is whole.
	stage "prepare (the longest stage, some 2 minutes)" inside "$TOP/tools/rig/tree.sh" "$rel" \
		"$(echo "$dir"/stock/usr/src/linux-source-*.tar.xz)" "$config" "$sym" "$tree"
	say "    $(tail -n 1 "$LOG")"
	stamp "tree-$rel" "$want"
}

main() {
	local mode=chroot rel
	! direct || mode=direct
	case ${DIRECT:-} in 1) mode=direct ;; 0) mode=chroot ;; esac
	[ "$mode" = chroot ] || grep -q 'VERSION_ID="13"' /etc/os-release ||
		die "DIRECT=1 is for a Debian 13 host; leave it out and a chroot is used"
	[ "$mode" = direct ] || [ "$(id -u)" = 0 ] || die "set-up and builds enter a chroot, which needs root; run make as root or with sudo"
	lock_cache
	read -r rel _ 2>/dev/null <"$CACHE/release" || rel=
	# All done for this very recipe? Then say nothing.
	local all
	all="$mode ${KERNEL_RELEASE:-$rel} recipe $TREE_RECIPE $(packages) $(python_packages)"
	stamped kdir "$all" && [ -e "$CACHE/kernel/$rel/tree/include/generated/autoconf.h" ] && return
	rm -f "$STAMPS/kdir"
	: >"$LOG"
	echo "$mode" >"$CACHE/mode"
	[ "$mode" = direct ] || base_system
	tool_chain
	python
	if [ -z "$rel" ] || [ "${KERNEL_RELEASE:-$rel}" != "$rel" ]; then
		choose_release
	fi
	stock_kernel
	prepared_tree
	read -r rel _ <"$CACHE/release" || :
	stamp kdir "$mode $rel recipe $TREE_RECIPE $(packages) $(python_packages)"
}

main "$@"
if [ "${1:-}" = --say ]; then
	read -r rel _ <"$CACHE/release" || :
	say "kernel tree ready: $CACHE/kernel/$rel/tree"
fi
