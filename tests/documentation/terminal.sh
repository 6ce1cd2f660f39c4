# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Draws pictures of terminals. The scripts of this directory source this file after
# tools/rig/lib.sh.

# draw_screen TYPESCRIPT ROWS COLUMNS WORD COMMENT: prints the last screen of a typescript as SVG.
# WORD must be in the first four lines of the printed screen. The terminal is emulated by the Python
# package pyte, which is installed in a separate virtual environment because no test needs pyte.
draw_screen() {
	local typescript=$1
	shift
	[ -x "$CACHE/terminal/bin/python" ] || {
		inside python3 -m venv "$CACHE/terminal"
		inside "$CACHE/terminal/bin/pip" install -q --disable-pip-version-check pyte==0.8.2
	}
	cp "$typescript" "$CACHE/typescript"
	inside "$CACHE/terminal/bin/python" "$TOP/tests/documentation/screen.py" "$CACHE/typescript" "$@"
}
