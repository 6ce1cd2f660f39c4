# SPDX-License-Identifier: GPL-2.0
"""Prints the last full screen of a typescript as SVG. Usage: screen.py FILE ROWS COLUMNS"""

import sys
from xml.sax.saxutils import escape

import pyte

WIDTH, HEIGHT = 8.4, 18
COLOURS = {
    "black": "#1b1b1b", "red": "#e06c60", "green": "#7fb96a", "brown": "#d7a94b", "yellow": "#d7a94b",
    "blue": "#6f9fe0", "magenta": "#b98ad6", "cyan": "#5fb8b8", "white": "#d8d8d8", "default": "#d8d8d8",
    "brightblack": "#808080",
}


def colour(name, default):
    if name == "default":
        return default
    return COLOURS.get(name, "#" + name if len(name) == 6 else default)


def style_runs(row, columns):
    """Yields neighbours that look the same: column, text, foreground, background, bold."""
    at = 0
    while at < columns:
        first, text = row[at], ""
        start = at
        while at < columns and style_of(row[at]) == style_of(first):
            text += row[at].data
            at += 1
        yield start, text, *style_of(first)


def style_of(char):
    fg, bg = colour(char.fg, "#d8d8d8"), colour(char.bg, "#1b1b1b")
    return (bg, fg, char.bold) if char.reverse else (fg, bg, char.bold)


def draw_svg(lines, columns):
    width, height = columns * WIDTH + 16, len(lines) * HEIGHT + 16
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<!-- SPDX-License-Identifier: GPL-2.0 -->'
    yield "<!-- pfc watch in make demo: drawn by tests/documentation/watch.sh. -->"
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
           'font-family="monospace" font-size="14" xml:space="preserve">')
    yield f'<rect width="100%" height="100%" rx="6" fill="#1b1b1b"/>'
    for n, row in enumerate(lines):
        y = 8 + n * HEIGHT
        for start, text, fg, bg, bold in style_runs(row, columns):
            x = 8 + start * WIDTH
            if bg != "#1b1b1b":
                yield f'<rect x="{x:.1f}" y="{y}" width="{len(text) * WIDTH:.1f}" height="{HEIGHT}" fill="{bg}"/>'
            if text.strip():
                weight = ' font-weight="bold"' if bold else ""
                yield (f'<text x="{x:.1f}" y="{y + 14}" textLength="{len(text) * WIDTH:.1f}" '
                       f'fill="{fg}"{weight}>{escape(text)}</text>')
    yield "</svg>"


def main(file, rows, columns):
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    # pyte does not support the alternate screen. pfc clears this screen when it starts, and leaves
    # it when it exits.
    data = open(file, "rb").read().rpartition(b"\x1b[?1049h")[2]
    stream.feed(data.partition(b"\x1b[?1049l")[0])
    if "NAME" not in "".join(screen.display[:4]):
        sys.exit("screen.py: there is no screen of pfc watch in " + file)
    kept = [[screen.buffer[y][x] for x in range(columns)] for y in range(rows)]
    print("\n".join(draw_svg(kept, columns)))


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
