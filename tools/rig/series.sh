#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds the modules for the newest kernel of each supported series (tools/rig/kernels), except for
# the series of the kernel that the tests boot. For each kernel, prints a line "RELEASE DIRECTORY",
# where DIRECTORY has the built modules.

# shellcheck source=tools/rig/lib.sh
. "$(dirname "$0")/lib.sh"

set_up
current=$RELEASE
mapfile -t all < <(grep -v '^#' "$TOP/tools/rig/kernels")
for series in "${all[@]}"; do
	[[ $current != "$series".* ]] || continue
	export KERNEL_RELEASE="$series.*"
	"$TOP/tools/rig/build.sh" modules >&2
	set_up
	echo "$RELEASE $KBUILD_OUT"
done
