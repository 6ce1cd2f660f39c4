#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds Debian packages for the stock kernel (make deb). The cache has a directory for each clone
# of the repository; the packages are written to deb/packages in the directory of this clone.
# debhelper packs the files that `make install` installs. The packages contain the same tools,
# libraries and modules that the tests use, but stripped.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/../rig/lib.sh"

[ -z "${KDIR:-}" ] || die "make deb packs modules of Debian's stock kernel; for a tree of your own: make install KDIR="
here=$TOP/tools/deb
log=$LOGS/deb.log
packages=$CLONE/deb/packages
source=$CLONE/deb/source
WORLD=stock "$TOP/tools/rig/build.sh"
set_up

# inputs: prints the checksums of all inputs of the packages: the built files, the sources for DKMS,
# and the files from which packages are made.
inputs() {
	local f
	echo "$RELEASE"
	sed 's/#.*//' "$TOP/tools/rig/packages"
	find "$KBUILD_OUT/src" -name '*.ko' -print0 | sort -z | xargs -0 sha256sum
	sha256sum "$TOOLS_OUT/pfc" "$LIB_OUT"/libperf*.{so,a}
	for f in Kbuild src include LICENSE tools/Cargo.toml tools/deb/{debian,dkms,modules,sign,build.sh} tools/rig/{install.sh,tree.sh,kernels} tools/fleet tools/libperf{mon,trace}/{include,man,install.sh,*.pc.in}; do
		(cd "$TOP" && find "$f" -type f -print0 | sort -z | xargs -0 sha256sum)
	done
}

# stage_source: makes the source package. The source package consists of the directory debian/ with
# all @NAMES@ replaced, the built files, and the sources for the package perfcounters-dkms.
stage_source() {
	local version series sources kernels oldest
	# List the kernel series of the stock kernel first, then the other supported kernel series.
	series=$({ cut -d. -f1,2 <<<"$RELEASE"; sed 's/#.*//' "$TOP/tools/rig/kernels" | xargs -n 1; } | awk '!seen[$0]++')
	sources=$(sed 's/^/linux-source-/' <<<"$series" | paste -sd'|' | sed 's/|/ | /g')
	oldest=$(sort -V <<<"$series" | head -n 1)
	# shellcheck disable=SC1003 # a backslash for the regular expression
	kernels=$(sed 's/\./\\./g' <<<"$series" | paste -sd'|')
	version=$(sed -nE 's/^version = "(.*)"$/\1/p' "$TOP/tools/Cargo.toml" | head -n 1)
	rm -rf "$source"
	mkdir -p "$source/dkms"
	cp -r "$here/debian" "$source/debian"
	for f in control changelog rules; do
		sed "s/@VERSION@/$version/g; s/@RELEASE@/$RELEASE/g; s/@SOURCES@/$sources/g; s/@OLDEST@/$oldest/g" "$here/debian/$f.in" >"$source/debian/$f"
		rm "$source/debian/$f.in"
	done
	chmod +x "$source/debian/rules"
	for f in "$source/debian/perfcounters-modules".*; do
		sed "s/@RELEASE@/$RELEASE/g" "$f" >"${f%/*}/perfcounters-modules-$RELEASE${f##*/perfcounters-modules}"
		rm "$f"
	done
	cp "$here/modules" "$here/sign" "$source/"
	DESTDIR=$source/built PREFIX=/usr LIBDIR=lib/x86_64-linux-gnu MODULES_DIR=usr/lib/modules "$TOP/tools/rig/install.sh" >>"$log" 2>&1
	cp -r "$TOP"/{Kbuild,src,include,LICENSE,tools/rig/tree.sh} "$here/dkms/build" "$source/dkms/"
	# Write the list of the modules that DKMS installs, with their directories, from the list of
	# built modules.
	{
		KERNELS=$kernels awk '{ at = index($0, "#KERNELS#") }
			at { $0 = substr($0, 1, at - 1) ENVIRON["KERNELS"] substr($0, at + 9) } { print }' "$here/dkms/dkms.conf"
		sed -nE 's#^(.*/)?(src(/[a-z]+)+)/([a-z_]+)\.o$#\2 \4#p' "$KBUILD_OUT/modules.order" |
			awk '{ printf "BUILT_MODULE_NAME[%d]=\"%s\"\nBUILT_MODULE_LOCATION[%d]=\"%s\"\nDEST_MODULE_LOCATION[%d]=\"/updates/dkms\"\n", NR - 1, $2, NR - 1, $1, NR - 1 }'
	} >"$source/debian/perfcounters-dkms.dkms"
}

lock "$CLONE/deb/packages.lock" "the packages"
mkdir -p "$packages"
hash=$(inputs | sha256sum | cut -d' ' -f1)
if [ "$(cat "$packages/.made-from" 2>/dev/null)" != "$hash" ]; then
	: >"$log"
	stage_source
	rm -rf --one-file-system "$packages"
	mkdir -p "$packages"
	# shellcheck disable=SC2016 # for the inner shell
	quietly "packages" "$log" inside sh -ec 'cd "$0" && dpkg-buildpackage --build=binary --no-sign --jobs="$JOBS"
		cd .. && mv ./*.deb "$1"/ && rm -f ./*.buildinfo ./*.changes' "$source" "$packages" || {
		tail -n 25 "$log" >&2
		die "the packages could not be built (log: $log)"
	}
	rm -rf "$source"
	echo "$hash" >"$packages/.made-from"
fi
[ -n "${RUNNING:-}" ] || {
	say "packages: $packages"
	for f in "$packages"/*.deb; do say "    ${f##*/}"; done
}
