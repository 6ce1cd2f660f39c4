#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks that every file has an SPDX line near its top and at most 600 lines. Pictures (.svg) may
# have more than 600 lines, because programs generate them.

set -u
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
# list_files: lists the files of the tree. Leaves out files that cannot have an SPDX line: the
# licence, Cargo.lock, three files in formats of Debian, and object files.
list_files() {
	cd "$TOP" && find . \( -name .git -o -name target \) -prune -o -type f ! -name LICENSE ! -name Cargo.lock ! -name '*.o' \
		! -path './tools/deb/debian/changelog.in' ! -path './tools/deb/debian/copyright' ! -path './tools/deb/debian/source/format' -print | sort
}
# each_file COMMAND...: runs a command with all files of the tree as its last arguments. Runs the
# command several times if there are too many files for one command line.
each_file() { list_files | (cd "$TOP" && xargs -d '\n' "$@"); }
# with_spdx: lists the files that have an SPDX line among their first 20 lines.
with_spdx() { each_file awk 'FNR <= 20 && /SPDX-License-Identifier: GPL-2.0/ { print FILENAME }' | sort -u; }
# too_long: lists the files that have more than 600 lines, with the number of lines. Leaves out the
# lines in which wc prints the total of several files.
too_long() { each_file wc -l | awk '$1 > 600 && $2 != "total" && !/[.]svg$/ { print $2 ": " $1 }'; }

plan 2
nothing "every file has an SPDX line" "$(comm -23 <(list_files) <(with_spdx))"
nothing "no file has more than 600 lines" "$(too_long)"
exit $failed
