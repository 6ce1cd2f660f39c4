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
# Kbuild stores the command that compiled each object in a file (.cmd). The function document()
# below removes options for code generation from the stored command, because rustdoc does not
# support these options.
crates=(src/{base/.base,counters/.main,perfmon/.main,ppa/.main,trace/.main}.o.cmd)
[ -z "${LONG:-}" ] || mapfile -t crates < <(grep -lE '^savedcmd_[^ ]* := .*rustc ' src/*/.*.o.cmd src/*/*/.*.o.cmd | sort)
headers=("$TOP"/include/linux/*.h "$TOP"/include/uapi/linux/*.h)
plan "$((${#crates[@]} + ${#headers[@]}))"
# The sources include generated files from the directory PFC_OUT, which Kbuild sets.
export RUSTC_BOOTSTRAP=1 PFC_OUT=$KBUILD_OUT/src
# document CRATE NAME: runs rustdoc on a crate. With --check rustdoc checks the documentation as
# usual, but writes no pages. The output and the exit status go to $out/NAME.said and
# $out/NAME.status.
document() {
	local command
	command=$(sed -nE '1s/^savedcmd_[^ ]* := //p' "$1" | sed -E "s/ rustc / rustdoc -Zunstable-options --check --document-private-items -Dwarnings -Arustdoc::private_intra_doc_links -o ${out//\//\\/} /
		s/ --(emit|out-dir|crate-type)[ =][^ ]+//g; s/ -C(embed-bitcode|lto)=[^ ]+//g; s/;.*//")
	eval "$command" >"$out/$2.said" 2>&1
	echo $? >"$out/$2.status"
}
# Run rustdoc on at most $JOBS crates at the same time.
for i in "${!crates[@]}"; do
	[ "$i" -lt "${JOBS:-1}" ] || wait -n
	document "${crates[i]}" "$i" &
done
wait
for i in "${!crates[@]}"; do
	result "$(cat "$out/$i.status")" "rustdoc $(sed 's/^src\/\(.*\)\/\.\(.*\)\.o\.cmd/\1\/\2/' <<<"${crates[i]}"): no warning" "$(cat "$out/$i.said")"
done
# kernel_doc HEADER...: runs kernel-doc on headers.
kernel_doc() { "$KTREE/scripts/kernel-doc" -none -Wall -Werror "$@" 2>&1; }
# First run kernel-doc once on all headers. If it fails, run it on each header, to find the wrong
# header.
refused=""
kernel_doc "${headers[@]}" >/dev/null || refused=1
for header in "${headers[@]}"; do
	said=$([ -z "$refused" ] || kernel_doc "$header")
	result $? "kernel-doc ${header#"$TOP"/include/}: no warning" "$said"
done
exit $failed
