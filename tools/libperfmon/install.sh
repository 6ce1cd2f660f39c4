#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Installs the library, its headers, its pkg-config file and the manual pages.
#
# Usage: install.sh BUILT DIRECTORY
#   BUILT      directory of the built libraries
#   DIRECTORY  destination, which becomes PREFIX on the target system
# Environment:
#   PREFIX     prefix that the pkg-config file names
#   LIBDIR     directory of libraries below the prefix; lib if unset

set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
built=$1 dest=$2 lib=$2/${LIBDIR:-lib} man=$2/share/man/man3

install -D -m 644 "$built/libperfmon.so" "$lib/libperfmon.so.2"
ln -sf libperfmon.so.2 "$lib/libperfmon.so"
install -m 644 -t "$lib" "$built/libperfmon.a"
install -D -m 644 -t "$dest/include/perfmon" "$here/include/perfmon/"*.h
mkdir -p "$lib/pkgconfig" "$man"
sed "s#@PREFIX@#$PREFIX#; s#@LIBDIR@#${LIBDIR:-lib}#" "$here/libperfmon.pc.in" >"$lib/pkgconfig/libperfmon.pc"
# Install each manual page. A manual page can describe several functions. A function without a page
# of its own gets a page that consists of the roff request .so, which includes the manual page.
for page in "$here"/man/*.3; do
	name=${page##*/}
	install -m 644 -t "$man" "$page"
	sed -nE 's/^\.Nm ([a-z_]+).*/\1/p' "$page" | while read -r f; do
		[ "$f.3" = "$name" ] || echo ".so man3/$name" >"$man/$f.3"
	done
done
