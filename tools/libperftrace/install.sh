#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Installs the library, its headers, its pkg-config file and its manual page from BUILT into
# DIRECTORY. The pkg-config file names PREFIX as the installation directory. If DIRECTORY is in a
# staging directory (DESTDIR), PREFIX is DIRECTORY without the path of the staging directory. LIBDIR
# is the directory of libraries below PREFIX (default: lib). Usage: install.sh BUILT DIRECTORY

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
