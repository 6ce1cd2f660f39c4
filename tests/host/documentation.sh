#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# timeout: 900
# cargo: debug
#
# Tests the pages of the documentation. Runs the code blocks for the host, compares excerpts with
# their files, and follows links. Also checks the commands of blocks that no test can run. The words
# after the fence of a block name the kind of the block:
#   sh guest, console guest   commands that tests/kselftest/pfc/documented.sh runs
#   sh host                   commands for the tool chain: run here
#   sh not-run "why"          commands that no test can run: skipped, with the reason; their
#                             programs, options, targets, packages and paths have to exist
#   c|rust|... from=FILE      all of FILE, or pieces of it, with "..." between: compared here
#   LANGUAGE file=NAME        a file that the commands of the page need in their directory
#   text                      neither commands nor a file

# shellcheck disable=SC2016,SC2317,SC2329
set -u
work=$(mktemp -d)
# Removes the temporary files, and kills processes that commands of the pages have left running. The
# commands and their child processes have the variable DOCUMENTATION_TEST in their environment.
finish() {
	local process
	for process in /proc/[0-9]*; do
		! grep -qz "^DOCUMENTATION_TEST=$$\$" "$process/environ" 2>/dev/null || kill "${process#/proc/}"
	done
	rm -rf "$work" "$driver_headers"
}
trap finish EXIT
driver_headers=/usr/local/include/perfcounters-driver
pages=("$TOP"/README.md "$TOP"/CONTRIBUTING.md "$TOP"/CHANGELOG.md "$TOP"/Documentation/*.md)
blocks=$work/blocks
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
mkdir "$blocks"
awk -v out="$blocks" -f "$TOP/tests/documentation/blocks.awk" "${pages[@]}"

# blocks_of PATTERN: prints the lines of $blocks/index for the blocks whose kind matches PATTERN.
blocks_of() { grep -E "^[^ ]+ [0-9]+ $1" "$blocks/index"; }
# commands PAGE LINE: prints the commands of a block, one command a line, without comments.
commands() { sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba' -e '}' "$blocks/$1.$2" | grep -v '^#\|^ *#\|^ *$'; }

# kinds_are_known: fails and prints the blocks whose kind is not known.
kinds_are_known() {
	! blocks_of . | grep -vE "^[^ ]+ [0-9]+ (text|sh host|(sh|console) guest|sh not-run \"[^\"]+\"|[a-z]+ (from|file)=[^ ]+)$"
}
# has_pieces FILE BLOCK: checks that FILE contains each part of BLOCK. Lines of BLOCK that consist
# of "..." separate the parts. White space at the beginning of lines is ignored.
has_pieces() {
	awk '{ sub(/^[ \t]+/, "") } NR == FNR { text = text "\n" $0; next }
		function look() { if (part != "" && index(text "\n", part "\n") == 0) { print "not in the file:" part; bad = 1 } part = "" }
		$0 == "..." { look(); next } { part = part "\n" $0 } END { look(); exit bad }' "$1" "$2"
}
# prepare PAGE DIRECTORY: writes the files of a page to a directory, in which the commands of the
# page run.
prepare() {
	local page line words
	mkdir -p "$2"
	while read -r page line _ words; do
		case $words in
		from=*) cp "$TOP/${words#from=}" "$2/" ;;
		file=*) cp "$blocks/$page.$line" "$2/${words#file=}" ;;
		esac
	done < <(grep "^$1 " "$blocks/index")
}
# run_command DIRECTORY COMMAND: runs a command. A command whose comment contains "until" is
# interrupted after it has printed something on its standard output. The standard output is in
# $work/said, and the error messages are in $work/errors.
run_command() {
	local rc=0 pid
	rm -f "$work/said"
	: >"$work/said"
	# KDIR, BUILT and CARGO_TARGET_DIR name the kernel tree, modules and tools that are built
	# already, so that the command does not build them again. Without --default-signal, a
	# background command of a script ignores SIGINT.
	(cd "$1" && exec env --default-signal=INT DOCUMENTATION_TEST=$$ "KDIR=$KTREE" "BUILT=$KBUILD_OUT" "CARGO_TARGET_DIR=$TARGET" \
		timeout -k 10 -s INT $((600 * PATIENCE)) sh -c "$2" >"$work/said" 2>"$work/errors" </dev/null) &
	pid=$!
	if [[ $2 == *'#'*until* ]]; then
		within $((600 * PATIENCE)) has_printed "$pid"
		kill -INT "$pid" 2>/dev/null
		wait "$pid" || rc=$?
		[ $rc != 130 ] || rc=0
		[ -s "$work/said" ] || rc=1
	else
		wait "$pid" || rc=$?
	fi
	case $2 in *'&') within $((300 * PATIENCE)) is_running "$(sed -n 's/.*--example \([^ ]*\).*/examples\/\1/p' <<<"$2")" ;; esac
	return $rc
}
# has_printed PID: true if the command has printed something, or has ended.
has_printed() { [ -s "$work/said" ] || ! kill -0 "$1" 2>/dev/null; }
# is_running PATTERN: true if a process executes a program whose path matches PATTERN.
is_running() { readlink /proc/[0-9]*/exe 2>/dev/null | grep -q -- "$1"; }
# within SECONDS COMMAND...: repeats a command until it succeeds, twenty times a second.
within() {
	local left=$((20 * $1))
	shift
	until "$@" >/dev/null; do
		[ $((left -= 1)) -gt 0 ] || return 1
		sleep 0.05
	done
}

# not_of_pfc WORD...: compares the arguments of a pfc command with the output of pfc --help and of
# --help of its subcommands. Prints each subcommand and each long option that the help does not
# list.
not_of_pfc() {
	local help word sub=pfc
	help=$("$TOOLS_OUT/pfc" --help) || { echo "pfc --help"; return; }
	for word in "$@"; do
		case $word in
		--) break ;;
		--help | --version) ;;
		--*) grep -qE -- "(^ *|, )${word%%=*}( |$)" <<<"$help" || echo "$sub $word" ;;
		*[!a-z]*) ;;
		*)
			# If the help of $sub lists subcommands, $word must be one of them.
			grep -q '^Commands:' <<<"$help" || continue
			sub+=" $word"
			# shellcheck disable=SC2086 # words
			help=$("$TOOLS_OUT/"$sub --help 2>&1)
			grep -qE "^Usage: $sub( |$)" <<<"$help" || { echo "$sub"; return; }
			;;
		esac
	done
}
# is_package NAME: true if NAME is a package of this project, a glob that matches such a package, or
# a Debian package that the pages name.
is_package() {
	local package
	case ${1%/trixie-backports} in linux-headers-@RELEASE@ | linux-headers-amd64 | linux-source | mokutil) return ;; esac
	while read -r package; do
		# shellcheck disable=SC2053 # a glob
		[[ $package != $1 ]] || return 0
	done < <(sed -n 's/^Package: //p' "$TOP/tools/deb/debian/control.in")
	return 1
}
# print_missing COMMAND: prints the programs, options, targets, packages and paths in a command that
# do not exist. Ignores text of several words in single quotes.
print_missing() {
	local words word
	sed -E 's/ +#.*//; s/\b[A-Z_]+="[^"]*" //g; s/[$][(]uname -r[)]/@RELEASE@/g; s/'"'[^']* [^']*'/TEXT/g; s/['\"]|\[|\]//g; s/ (&&|[|]) /\n/g" <<<"$1" | while read -ra words; do
		case ${words[0]} in
		pfc) not_of_pfc "${words[@]:1}" ;;
		make)
			for word in "${words[@]:1}"; do
				case $word in
				*=*) grep -qE "^export .*\b${word%%=*}\b|[$][(]${word%%=*}[)]" "$TOP/Makefile" ;;
				*) sed -n 's/^[.]PHONY://p' "$TOP/Makefile" | grep -q " $word\( \|$\)" ;;
				esac || echo "make $word"
			done
			;;
		apt)
			[[ ${words[1]:-} =~ ^(install|purge|remove|update)$ ]] || echo "apt ${words[1]:-}"
			for word in "${words[@]:2}"; do
				word=${word#./}
				[[ $word == -* ]] || is_package "${word%_\*.deb}" || echo "$word"
			done
			;;
		systemctl)
			for word in "${words[@]:2}"; do
				[[ $word != perf* ]] || [ -e "$TOP/tools/fleet/$word.service" ] || [ -e "$TOP/tools/deb/debian/$word.service" ] || echo "$word"
			done
			;;
		# The source of each program in /usr/libexec/perfcounters is in tools/deb.
		/usr/libexec/perfcounters/*) [ -e "$TOP/tools/deb/${words[0]##*/}" ] || echo "${words[0]}" ;;
		# mokutil, reboot, pminfo and pmrep are not checked, because the root file system of
		# the tool chain does not have these tools.
		mokutil | reboot | pminfo | pmrep) ;;
		*/*) ;;
		*) command -v "${words[0]}" >/dev/null || echo "${words[0]}" ;;
		esac
		for word in "${words[@]}"; do
			[[ ! $word =~ ^(src|include|tools|tests|Documentation)/ ]] || [ -e "$TOP/$word" ] || echo "$word"
		done
	done
}
# heading_ids PAGE: prints, for each heading of a page, the id by which links refer to the heading.
heading_ids() { sed -nE 's/^#+ //p' "$1" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-'; }
# print_links PAGE: prints the links to headings and files that do not exist.
print_links() {
	local to
	while read -r to; do
		case $to in
		*://*) ;;
		'#'*) heading_ids "$1" | grep -qxF -- "${to#\#}" || echo "$to" ;;
		*) [ -e "${1%/*}/${to%%#*}" ] || echo "$to" ;;
		esac
	done < <(awk '/^```/ { on = !on; next } !on' "$1" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//')
}

hosts=$(while read -r page line _; do commands "$page" "$line"; done < <(blocks_of 'sh host$') | grep -c .)
plan "$((1 + $(blocks_of '[a-z]+ from=' | wc -l) + hosts + 2 * $(blocks_of 'sh not-run' | wc -l) + ${#pages[@]} + 1))"
said=$(kinds_are_known)
result $? "documentation: every block has a known kind" "$said"
while read -r page line _ from; do
	said=$(has_pieces "$TOP/${from#from=}" "$blocks/$page.$line" 2>&1)
	result $? "$page: the excerpt of ${from#from=} is in that file (line $line)" "$said"
done < <(blocks_of '[a-z]+ from=')

mkdir -p "${driver_headers%/*}"
ln -sfn "$TOP/include" "$driver_headers"
# run_page PAGE: runs the commands of a page's blocks for the host. For each command, prints a line
# with the exit status and the command. If the command has failed, prints the last lines of its
# output, each after a tab.
run_page() {
	local dir=$work/$1 work=$work/run.$1 line command at rc
	mkdir "$work"
	prepare "$1" "$dir"
	while read -r _ line _; do
		while read -r command; do
			at=$dir
			[[ $command != *"cd tools"* ]] || at=$TOP
			rc=0
			run_command "$at" "$command" || rc=$?
			echo "$rc $command"
			[ $rc = 0 ] || tail -n 20 "$work/said" "$work/errors" | sed 's/^/\t/'
		done < <(commands "$1" "$line")
	done < <(blocks_of 'sh host$' | grep "^$1 ")
}
# The commands of different pages run in different directories, so they run at the same time. The
# results are printed in the order of the pages.
mapfile -t host_pages < <(blocks_of 'sh host$' | cut -d' ' -f1 | uniq)
for page in "${host_pages[@]}"; do run_page "$page" >"$work/ran.$page" & done
wait
for page in "${host_pages[@]}"; do
	while read -r rc command; do
		result "$rc" "$page: $(sed 's/ *#.*//' <<<"$command")" "$(sed -n 's/^\t//p' "$work/ran.$page")"
	done < <(grep -v $'^\t' "$work/ran.$page")
done

while read -r page line _ _ why; do
	said=$(commands "$page" "$line" | while read -r command; do print_missing "$command"; done)
	nothing "$page: the programs, options and files in the block of line $line exist" "$said"
	n=$((n + 1))
	echo "ok $n $page: $(commands "$page" "$line" | head -n 1 | sed 's/ *#.*//') ... # SKIP not run: ${why//\"/}"
done < <(blocks_of 'sh not-run')

for page in "${pages[@]}"; do
	said=$(print_links "$page")
	result "$([ -z "$said" ]; echo $?)" "${page##*/}: every link leads to an existing file or heading" "$said"
done
said=$(awk -f "$TOP/tests/documentation/plot.awk" "$TOP/Documentation/performance.md" 2>&1 | diff - "$TOP/Documentation/performance.svg")
result $? "performance.svg: equal to the output of plot.awk for performance.md" "$said"
exit $failed
