#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Installs the library, its header, pkg-config file and manual page; PREFIX says
# for the pkg-config file where they will be, LIBDIR in which directory libraries are.
# Usage: install.sh BUILT DIRECTORY

set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
built=$1 dest=$2 lib=$2/${LIBDIR:-lib}

install -D -m 644 "$built/libperftrace.so" "$lib/libperftrace.so.1"
ln -sf libperftrace.so.1 "$lib/libperftrace.so"
install -m 644 -t "$lib" "$built/libperftrace.a"
install -D -m 644 -t "$dest/include/perftrace" "$here/include/perftrace/"*.h
mkdir -p "$lib/pkgconfig"
sed "s#@PREFIX@#$PREFIX#; s#@LIBDIR@#${LIBDIR:-lib}#" "$here/libperftrace.pc.in" >"$lib/pkgconfig/libperftrace.pc"
install -D -m 644 -t "$dest/share/man/man3" "$here/man/perftrace.3"
