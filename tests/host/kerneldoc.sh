#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# timeout: 600
#
# Checks that the documentation in the sources of the modules builds without warnings. The script
# runs rustdoc on crates, with the flags with which Kbuild compiled each crate. The script also runs
# kernel-doc on the headers for drivers and programs. Because rustdoc compiles each crate once more,
# the script runs rustdoc on five crates only. With LONG=1, which make test-all and make check set,
# the script runs rustdoc on all crates.

set -u
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

cd "$KBUILD_OUT" || exit 1
# Kbuild stores the command that compiled each object in a file (.cmd). The compiler options about
# generated code are removed from the command below, because rustdoc does not support these options.
crates=(src/{base/.base,counters/.main,perfmon/.main,ppa/.main,trace/.main}.o.cmd)
[ -z "${LONG:-}" ] || mapfile -t crates < <(grep -lE '^savedcmd_[^ ]* := .*rustc ' src/*/.*.o.cmd src/*/*/.*.o.cmd | sort)
headers=("$TOP"/include/linux/*.h "$TOP"/include/uapi/linux/*.h)
plan "$((${#crates[@]} + ${#headers[@]}))"
# The sources include generated files from the directory PFC_OUT, which Kbuild sets.
export RUSTC_BOOTSTRAP=1 PFC_OUT=$KBUILD_OUT/src
for crate in "${crates[@]}"; do
	command=$(sed -nE '1s/^savedcmd_[^ ]* := //p' "$crate" | sed -E "s/ rustc / rustdoc --document-private-items -Dwarnings -Arustdoc::private_intra_doc_links -o ${out//\//\\/} /
		s/ --(emit|out-dir|crate-type)[ =][^ ]+//g; s/ -C(embed-bitcode|lto)=[^ ]+//g; s/;.*//")
	said=$(eval "$command" 2>&1)
	result $? "rustdoc $(sed 's/^src\/\(.*\)\/\.\(.*\)\.o\.cmd/\1\/\2/' <<<"$crate"): no warning" "$said"
done
for header in "${headers[@]}"; do
	said=$("$KTREE/scripts/kernel-doc" -none -Wall -Werror "$header" 2>&1)
	result $? "kernel-doc ${header#"$TOP"/include/}: no warning" "$said"
done
exit $failed
