#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# The table of names in Documentation/pfc-record.md must have the same rows as the table in
# tests/kselftest/pfc/pfc_names_perf.sh, a test that compares pfc with perf.

set -uo pipefail
page=$TOP/Documentation/pfc-record.md script=$TOP/tests/kselftest/pfc/pfc_names_perf.sh

wanted=$(sed -n "/^	cat <<'EOF'/,/^EOF/p" "$script" | sed '1d;$d' |
	awk -F '  +' 'function name(text) { return NR == 1 || text ~ /^[-(]/ ? text : "`" text "`" }
		{ printf "| %s | %s | %s |\n", $1, name($2), name($3) } NR == 1 { print "|---|---|---|" }')
shown=$(awk '/^\| code \| pfc \| perf \|$/ { table = 1 } !/^\|/ { table = 0 } table' "$page")
echo "TAP version 13"
echo "1..1"
if [ -n "$shown" ] && [ "$wanted" = "$shown" ]; then
	echo "ok 1 1.9 pfc-record.md: the table of names is that of pfc_names_perf.sh"
else
	diff <(echo "$wanted") <(echo "$shown") | sed 's/^/# /'
	echo "not ok 1 1.9 pfc-record.md: the table of names is that of pfc_names_perf.sh"
	exit 1
fi
