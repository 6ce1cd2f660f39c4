#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# timeout: 60
# prepare: tools/rig/series.sh
# target: test-all
#
# Tests that all modules can be built for each supported kernel series, and not only for the series
# whose kernel the guests boot. The guests test what the modules do.

set -u
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
modules_in() { (cd "$1/src" && find . -name '*.ko' | sort | xargs); }

mapfile -t built <<<"${PREPARED:?}"
plan ${#built[@]}
for line in "${built[@]}"; do
	release=${line%% *}
	as_wanted "modules for the supported series ${release%.*}: all are built" "$(modules_in "${line#* }")" "$(modules_in "$KBUILD_OUT")"
done
