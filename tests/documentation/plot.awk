# SPDX-License-Identifier: GPL-2.0
#
# Draws Documentation/performance.svg from the table of Documentation/performance.md with the cost
# of reading a value, so that the picture and the numbers agree. tests/host/documentation.sh checks
# that the picture matches the table.
# awk -f plot.awk Documentation/performance.md >Documentation/performance.svg

function x_of(cpus) { return 70 + 480 * log(cpus) / log(64) }
function y_of(value) { return 390 - 340 * log(value) / log(3000) }
function line(x1, y1, x2, y2) { printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x1, y1, x2, y2 }
function text(x, y, words, anchor) { printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, words }

# The array `way` describes each way to read a value by three fields: its name in the picture, its
# colour on a light page, and its colour on a dark page.
BEGIN {
	way["**snapshot** of 1,000 counters on all CPUs, checked"] = "counter pages, a checked snapshot;#0060c0;#58a6ff"
	way["perf_event read(), own CPU, a group of 16"] = "perf_event, a group of 16, own CPU;#7a3ea0;#bc8cff"
	way["perf_event read(), own CPU, one counter"] = "perf_event, one counter, own CPU;#a86fcc;#d8b4fe"
	way["BPF per-CPU array, batch lookup"] = "BPF per-CPU array, batch;#b35900;#f0a33e"
	way["BPF per-CPU array, one lookup"] = "BPF per-CPU array, one lookup;#c9982a;#e6cf8b"
	way["/proc/stat, read and parsed"] = "/proc/stat, parsed;#b41e1e;#ff7b72"
	way["/proc/interrupts, read and parsed"] = "/proc/interrupts, parsed;#3f8f27;#7ee06a"
	way["/proc/vmstat, read and parsed"] = "/proc/vmstat, parsed;#707070;#a0a8b0"
	nr = split("1 2 8 64", cpus, " ")
	print "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- SPDX-License-Identifier: GPL-2.0 -->"
	print "<!-- What it takes to read a value: drawn by tests/documentation/plot.awk from performance.md. -->"
	print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 440\" font-family=\"sans-serif\" font-size=\"12\">"
	for (value = 1; value <= 1000; value *= 10) {
		line(70, y_of(value), 550, y_of(value))
		text(62, y_of(value) + 4, value, "end")
	}
	for (n = 1; n <= nr; n++) {
		line(x_of(cpus[n]), 50, x_of(cpus[n]), 390)
		text(x_of(cpus[n]), 408, cpus[n], "middle")
	}
	text(310, 428, "CPUs of the guest", "middle")
	text(70, 30, "guest instructions to read one value", "start")
}
/^Instructions / { wanted = /^Instructions to read one value/ }
wanted && split($0, cell, /[ \t]*\|[ \t]*/) > nr + 1 && cell[2] in way {
	split(way[cell[2]], look, ";")
	at = 60 + 24 * drawn++
	light = light sprintf(".w%d { color: %s }\n", drawn, look[2])
	dark = dark sprintf(".w%d { color: %s }\n", drawn, look[3])
	printf "<g class=\"w%d\" fill=\"currentColor\">\n", drawn
	printf "<polyline fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" points=\""
	for (n = 1; n <= nr; n++) printf "%.1f,%.1f ", x_of(cpus[n]), y_of(cell[n + 2])
	print "\"/>"
	for (n = 1; n <= nr; n++) printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", x_of(cpus[n]), y_of(cell[n + 2])
	printf "<rect x=\"575\" y=\"%d\" width=\"18\" height=\"4\"/>\n</g>\n", at
	text(600, at + 6, look[1], "start")
}
END {
	print "<style>\n:root { color-scheme: light dark }\ntext { fill: #1f2328 }\nline { stroke: #8c959f; stroke-opacity: .35 }"
	printf "%s@media (prefers-color-scheme: dark) {\ntext { fill: #e6edf3 }\n%s}\n", light, dark
	print "</style>\n</svg>"
	if (drawn != 8) { print "plot.awk: " drawn + 0 " of 8 ways are in the table" >"/dev/stderr"; exit 1 }
}
