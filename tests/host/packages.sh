#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# timeout: 1800
# prepare: tools/deb/dkms-test.sh
# target: test-all
#
# Tests the Debian packages of make deb: lintian must find no error, and DKMS must have built the
# modules in a new Debian. The signatures that tools/deb/sign makes must be valid. make uninstall
# must remove the files that make install has installed. Another test,
# tests/kselftest/pfc/install.sh, tests the packages in a running guest.

set -u
top=${TOP:?} packages=${CLONE:?}/deb/packages dkms=${PREPARED:?} release=${RELEASE:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

plan 22

version=$(sed -nE 's/^version = "(.*)"$/\1/p' "$top/tools/Cargo.toml" | head -n 1)
got=$(cd "$packages" && printf '%s\n' *.deb | sed 's/_[a-z0-9]*\.deb$//' | xargs)
as_wanted "packages make deb: five packages with the version of the workspace" "$got" \
	"libperfmon-dev_$version libperftrace-dev_$version perfcounters-dkms_$version perfcounters-modules-${release}_$version perfcounters_$version"
as_wanted "packages pfc --version: the version of the workspace" "$("$TOOLS_OUT/pfc" --version)" "pfc $version"
said=$(cd "$packages" && lintian --allow-root --fail-on error ./*.deb 2>&1)
result $? "packages lintian finds no error" "$said"
package_files() { dpkg-deb --fsys-tarfile "$packages/$1"_*.deb | tar -t | grep -v '/$'; }
got=$(package_files perfcounters | grep -cE '^\./usr/share/man/man1/pfc.*\.1\.gz$')
wanted=$("$TOOLS_OUT/pfc" man "$work" && find "$work" -name '*.1' | wc -l)
as_wanted "packages perfcounters has every manual page of pfc" "$got" "$wanted"
modules=$(package_files "perfcounters-modules-$release" | sed -nE 's#.*/updates/perfcounters/(.*)\.ko$#\1#p' | sort)
got=$(cd "$KBUILD_OUT/src" && find . -name '*.ko' | sed 's#.*/##; s#\.ko$##' | sort)
as_wanted "packages perfcounters-modules has every module" "$modules" "$got"

# dkms_results SECTION: prints the lines of a section of the results that dkms-test.sh recorded when
# it built the modules from these packages. If the section is missing, prints an error, because some
# tests expect an empty section, and a missing section without an error would look the same.
dkms_results() {
	sed -n "/^== $1\$/,/^== /{/^== /!p}" "$dkms/results"
	grep -qx "== $1" "$dkms/results" || echo "section $1 is missing in the results of dkms-test.sh"
}
as_wanted "packages dkms: apt installs perfcounters-dkms with its dependencies" "$(dkms_results depends)" "whole"
as_wanted "packages dkms: apt install builds for the stock kernel, without the rig's tree" "$(dkms_results status)" \
	"perfcounters/$version, $release, x86_64: installed"
result "$(dkms_results self-check | grep -q '^self-check: all [1-9]'; echo $?)" "packages dkms: the self-check finds every Rust symbol in the kernel" "$(tail -n 20 "$dkms/make.log")"
got=$(cd "$dkms/modules" && printf '%s\n' *.ko | sed 's#\.ko$##' | sort)
as_wanted "packages dkms: every module is built" "$got" "$modules"
# The modules must have the vermagic that the stock kernel requires. loop.ko, a module of the stock
# kernel, has this vermagic.
stock=$(find "$PACKAGED/usr/lib/modules/$release/kernel" -name 'loop.ko*' | head -n 1)
got=$(for ko in "$dkms/modules"/*.ko; do modinfo -F vermagic "$ko"; done | sort -u)
as_wanted "packages dkms: every module has the stock kernel's vermagic" "$got" "$(modinfo -F vermagic "$stock")"
missing=$(nm -u "$dkms/modules"/*.ko | awk '$1 == "U" { print $2 }' | sort -u | comm -23 - <({
	awk '{ print $2 }' "$PACKAGED/usr/src/linux-headers-$release/Module.symvers"
	nm "$dkms/modules"/*.ko | sed -n 's/.* __ksymtab_//p'
} | sort -u))
result "$([ -z "$missing" ]; echo $?)" "packages dkms: every symbol that the modules import is exported" "$missing"
got=$(for ko in "$dkms/modules"/*.ko; do modinfo -F signer "$ko"; done | sort -u)
result "$([ -n "$got" ]; echo $?)" "packages dkms: the modules are signed" "no signer"
as_wanted "packages dkms: a kernel source of another version is refused, with the command to install the right one" "$(dkms_results mismatch | grep -o 'apt install linux-source-[0-9.]*=')" \
	"apt install linux-source-$(cut -d. -f1,2 <<<"$release")="
as_wanted "packages dkms: a prepared tree is used without its source" "$(dkms_results prepared)" "used"
as_wanted "packages dkms: a kernel whose source is missing is skipped, with the command to install the source; its headers install" \
	"$(dkms_results skipped | xargs)" "headers installed apt install linux-source-$(cut -d. -f1,2 <<<"$release")=7.1-1"
as_wanted "packages dkms: apt purge leaves no file behind and removes no other file" "$(dkms_results left)" ""

# tools/rig/tree.sh must refuse a rustc that differs from the rustc that built the kernel.
mkdir "$work/bin"
printf '#!/bin/sh\necho "rustc 1.80.0 (another)"\n' >"$work/bin/rustc"
chmod +x "$work/bin/rustc"
said=$(PATH=$work/bin:$PATH "$top/tools/rig/tree.sh" "$release" /nothing "$PACKAGED/usr/lib/modules/$release/config" /nothing "$work/tree" 2>&1)
result "$([ $? = 1 ] && grep -q "was built with rustc 1.*; the rustc here is rustc 1.80.0" <<<"$said"; echo $?)" "packages tree.sh: another rustc is refused, with both versions" "$said"

# openssl verifies the signature with the certificate. The signed data are the bytes of the module
# before the signature.
"$top/tools/deb/sign" --new "$work/key" >"$work/said" 2>&1
ko=$work/pfc_mm.ko
cp "$KBUILD_OUT/src/counters/providers/pfc_mm.ko" "$ko"
said=$(SIGN_FILE=$KTREE/scripts/sign-file "$top/tools/deb/sign" "$work/key/mok.key" "$work/key/mok.der" "$ko" 2>&1) &&
	said+=$(python3 - "$ko" "$work" <<-'END'
	import struct, sys
	data = open(sys.argv[1], "rb").read()
	magic = b"~Module signature appended~\n"
	assert data.endswith(magic)
	length = struct.unpack(">I", data[-len(magic) - 4:-len(magic)])[0]
	end = len(data) - len(magic) - 12
	open(sys.argv[2] + "/content", "wb").write(data[:end - length])
	open(sys.argv[2] + "/signature", "wb").write(data[end - length:end])
	END
	) && said+=$(openssl x509 -inform DER -in "$work/key/mok.der" -out "$work/mok.pem" 2>&1 &&
		openssl cms -verify -binary -inform DER -in "$work/signature" -content "$work/content" -nointern -certfile "$work/mok.pem" -noverify -out /dev/null 2>&1) &&
	cmp "$work/content" "$KBUILD_OUT/src/counters/providers/pfc_mm.ko"
result $? "packages sign: the signature of a module verifies with the certificate" "$said"
said=$(SIGN_FILE=$KTREE/scripts/sign-file "$top/tools/deb/sign" "$work/key/mok.key" "$work/key/mok.der" "$ko" 2>&1)
result "$(grep -q 'is signed already' <<<"$said"; echo $?)" "packages sign: a signed module is not signed again" "$said"

# test_uninstall: prints the errors of make install and make uninstall, from the results that
# dkms-test.sh recorded.
test_uninstall() {
	local f
	for f in bin/pfc lib/libperfmon.so.2 lib/libperftrace.so.1 linux/perfcounters.h updates/perfcounters/perfcounters.ko; do
		dkms_results install | grep -q "/$f\$" || echo "make install did not install $f"
	done
	dkms_results uninstall
}
as_wanted "packages make install: removes modules of an earlier version" "$(dkms_results install | grep '/old\.ko$')" \
	"./lib/modules/7.0.1/updates/perfcounters/old.ko"
nothing "packages make uninstall: removes all files of make install" "$(test_uninstall)"

said=$(cd "$top" && make help | grep -q 'make deb' && grep -q 'make deb' README.md && grep -q 'apt purge' Documentation/install.md)
result $? "packages README.md and make help name make deb, install.md names apt purge" "$said"
exit $failed
