# SPDX-License-Identifier: GPL-2.0
"""Prints the last full screen of a typescript, or a text, as SVG.

Usage: screen.py FILE ROWS COLUMNS WORD COMMENT. WORD must be in the first lines of the screen."""

import sys
from xml.sax.saxutils import escape

import pyte

WIDTH, HEIGHT = 8.4, 18
# The colours of a terminal, on a light page and on a dark one.
COLOURS = {
    "black": ("#ffffff", "#0d1117"), "red": ("#c22f2f", "#e06c60"), "green": ("#2c7a2c", "#7fb96a"),
    "yellow": ("#8a6100", "#d7a94b"), "blue": ("#0b5cc4", "#6f9fe0"), "magenta": ("#8a3ea8", "#b98ad6"),
    "cyan": ("#067a83", "#39c5cf"), "white": ("#1f2328", "#d8d8d8"), "gray": ("#656d76", "#8d96a0"),
}
# Maps other names that pyte returns for colours to the names in COLOURS. The other names include
# the hexadecimal values of the first 16 of a terminal's 256 colours. A bright colour is mapped like
# the normal colour, but bright black is mapped to gray.
NAMES = {"brown": "yellow", "brightblack": "gray", "7f7f7f": "gray"}
NAMES.update(zip("000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5".split(), COLOURS))
NAMES.update(zip("ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff".split(), list(COLOURS)[1:]))


def colour(name, default):
    """Returns the name of a colour in COLOURS: the default for a colour that is not there."""
    name = name.removeprefix("bright") if name != "brightblack" else name
    name = NAMES.get(name, name)
    return name if name in COLOURS else default


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
    fg, bg = colour(char.fg, "white"), colour(char.bg, "black")
    return (bg, fg, char.bold) if char.reverse else (fg, bg, char.bold)


def rules(used, page):
    """Yields the style of the colours of a picture that are used on a light (0) or dark (1) page."""
    yield f"text {{ fill: {COLOURS['white'][page]} }}"
    for name in sorted(used - {"white"}):
        yield f".{name} {{ fill: {COLOURS[name][page]} }}"
    yield f".bar {{ fill: {COLOURS['white'][page]} }}"


def draw_shapes(lines, columns, used):
    for n, row in enumerate(lines):
        y = 8 + n * HEIGHT
        for start, text, fg, bg, bold in style_runs(row, columns):
            x = 8 + start * WIDTH
            if bg != "black":
                look = "bar" if bg == "white" else bg
                used.add(bg)
                yield f'<rect class="{look}" x="{x:.1f}" y="{y}" width="{len(text) * WIDTH:.1f}" height="{HEIGHT}"/>'
            if text.strip():
                used.add(fg)
                look = "" if fg == "white" else f' class="{fg}"'
                weight = ' font-weight="bold"' if bold else ""
                yield (f'<text{look} x="{x:.1f}" y="{y + 14}" textLength="{len(text) * WIDTH:.1f}"'
                       f'{weight}>{escape(text)}</text>')


def draw_svg(lines, columns, comment):
    width, height = columns * WIDTH + 16, len(lines) * HEIGHT + 16
    used = set()
    shapes = list(draw_shapes(lines, columns, used))
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<!-- SPDX-License-Identifier: GPL-2.0 -->'
    yield f"<!-- {comment} -->"
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
           'font-family="monospace" font-size="14" xml:space="preserve">')
    yield "<style>\n:root { color-scheme: light dark }\n.frame { fill: none; stroke: #8c959f; stroke-opacity: .5 }"
    yield from rules(used, 0)
    yield "@media (prefers-color-scheme: dark) {"
    yield from rules(used, 1)
    yield "}\n</style>"
    yield f'<rect class="frame" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1}" rx="6"/>'
    yield from shapes
    yield "</svg>"


def main(file, rows, columns, word, comment):
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    # pyte does not support the alternate screen. pfc clears this screen when it starts, and leaves
    # it when it exits.
    data = open(file, "rb").read().rpartition(b"\x1b[?1049h")[2]
    stream.feed(data.partition(b"\x1b[?1049l")[0])
    if word not in "".join(screen.display[:4]):
        sys.exit(f"screen.py: there is no {word} at the top of the screen in {file}")
    kept = [[screen.buffer[y][x] for x in range(columns)] for y in range(rows)]
    print("\n".join(draw_svg(kept, columns, comment)))


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
