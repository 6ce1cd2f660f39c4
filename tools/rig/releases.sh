#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Lists the complete kernels in the Debian archive, with a line "RELEASE VERSION supported" or
# "RELEASE VERSION untested" for each. A kernel is complete if its image, modules, headers and
# source exist in the same version. Kernels of supported series come first, then all other kernels;
# each of the two groups begins with the newest release. The script runs in the tool chain's root
# file system and uses apt there.
# Usage: releases.sh TABLE [PATTERN]
#   TABLE    a file with the supported series, one on each line (tools/rig/kernels)
#   PATTERN  only releases that match this shell pattern, e.g. '7.3.*'

set -euo pipefail
table=$1 pattern=${2:-*}

versions_of() { apt-cache madison "$1" 2>/dev/null | awk -F' *[|] *' '$3 ~ / Packages$/ { print $2 }'; }

series_of() { cut -d. -f1,2 <<<"$1"; }

# whole RELEASE: prints the newest version for which all packages of a kernel release exist. Fails
# if no version of the kernel release has all packages.
whole() {
	local version part
	for version in $(versions_of "linux-binary-$1" | sort -rV); do
		for part in "linux-modules-$1" "linux-headers-$1" "linux-source-$(series_of "$1")"; do
			versions_of "$part" | grep -xF -- "$version" >/dev/null || continue 2
		done
		echo "$version"
		return
	done
	return 1
}

mapfile -t series < <(sed "s,#.*,," "$table" | xargs -n 1)
mapfile -t all < <(apt-cache pkgnames linux-binary- | sed -nE 's/^linux-binary-([0-9.]+\+deb13-amd64)$/\1/p' | sort -rV)
for word in supported untested; do
	for release in "${all[@]}"; do
		# shellcheck disable=SC2053 # a pattern
		[[ $release == $pattern ]] || continue
		is=untested
		[[ " ${series[*]} " != *" $(series_of "$release") "* ]] || is=supported
		[ $is = $word ] || continue
		version=$(whole "$release") || continue
		echo "$release $version $word"
	done
done
