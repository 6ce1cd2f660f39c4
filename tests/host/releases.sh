#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests how tools/rig/releases.sh chooses a kernel from a Debian archive in which some packages are
# missing. A stand-in for apt-cache lists the packages of an archive. Pages of the documentation
# must name the same supported kernel series as tools/rig/kernels, which the scripts of tools/rig,
# the packages and `pfc doctor` use.

set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

cat >"$work/apt-cache" <<'END'
#!/bin/bash
# The file $ARCHIVE has lines "PACKAGE VERSION".
case $1 in
pkgnames) sed -n "s/^\($2[^ ]*\) .*/\1/p" "$ARCHIVE" | sort -u ;;
madison)
	sed -n "s/^$2 \(.*\)/\1/p" "$ARCHIVE" | while read -r version; do
		printf ' %s | %s | http://an.archive suite/main amd64 Packages\n' "$2" "$version"
	done
	;;
esac
END
chmod +x "$work/apt-cache"
printf '# supported\n7.3\n7.2 # with a word\n' >"$work/table"
export ARCHIVE=$work/archive

# print_packages RELEASE VERSION [WITHOUT]: prints the packages of a kernel release except the
# package of the kind WITHOUT (binary, modules, headers or source).
print_packages() {
	local kind
	for kind in binary modules headers; do
		[ "$kind" = "${3:-}" ] || echo "linux-$kind-$1+deb13-amd64 $2"
	done
	[ "${3:-}" = source ] || echo "linux-source-$(cut -d. -f1,2 <<<"$1") $2"
}
# run_releases [PATTERN]: prints the kernels that releases.sh finds in the archive.
run_releases() { PATH=$work:$PATH "$TOP/tools/rig/releases.sh" "$work/table" "$@"; }

# print_series TEXT...: prints the kernel series in a text, such as 7.3, the newest first.
print_series() { grep -oE '\b[0-9]+\.[0-9]+\b' <<<"$*" | sort -uVr | xargs; }
# series_in_page FILE PATTERN: searches each paragraph of FILE for text that matches PATTERN, an
# extended regular expression of sed, and prints the kernel series in the text. The lines of a
# paragraph are joined before the search for PATTERN.
series_in_page() {
	awk -v RS= '{ gsub(/\n */, " "); print }' "$TOP/$1" | sed -nE "s/.*($2).*/\1/p" | while read -r text; do
		print_series "$text"
	done
}

plan 13
{ print_packages 7.2.12 7.2.12-1; print_packages 7.2.9 7.2.9-1; print_packages 7.3.4 7.3.4-1; print_packages 7.10.1 7.10.1-1; } >"$ARCHIVE"
as_wanted "releases the newest release of a supported series is first" "$(run_releases | head -n 1)" "7.3.4+deb13-amd64 7.3.4-1 supported"
as_wanted "releases older supported releases are next, then the others, as untested" "$(run_releases | tail -n +2)" \
	"7.2.12+deb13-amd64 7.2.12-1 supported
7.2.9+deb13-amd64 7.2.9-1 supported
7.10.1+deb13-amd64 7.10.1-1 untested"
as_wanted "releases a pattern selects the releases that match" "$(run_releases '7.2.*' | head -n 1)" "7.2.12+deb13-amd64 7.2.12-1 supported"
as_wanted "releases a pattern can select an untested release" "$(run_releases '7.10.*')" "7.10.1+deb13-amd64 7.10.1-1 untested"
nothing "releases a kernel without modules, headers or source is not listed" "$(for kind in modules headers source; do
	print_packages 7.3.4 7.3.4-1 $kind >"$ARCHIVE"
	run_releases
done)"
{ print_packages 7.3.4 7.3.4-1 source; echo "linux-source-7.3 7.3.5-1"; print_packages 7.2.12 7.2.12-1; } >"$ARCHIVE"
as_wanted "releases a kernel whose source has another version is not listed" "$(run_releases)" "7.2.12+deb13-amd64 7.2.12-1 supported"
{ print_packages 7.2.9 7.2.9-1; print_packages 7.2.9 7.2.9-2 headers; } >"$ARCHIVE"
as_wanted "releases the newest complete version of a release is listed" "$(run_releases)" "7.2.9+deb13-amd64 7.2.9-1 supported"
: >"$ARCHIVE"
nothing "releases an archive without kernels: nothing is listed" "$(run_releases)"

supported=$(print_series "$(sed 's/#.*//' "$TOP/tools/rig/kernels")")
as_wanted "releases README.md names the supported series in its first paragraph" "$(series_in_page README.md 'unmodified kernels [0-9. and]*')" "$supported"
as_wanted "releases README.md names the supported series in its limits" "$(series_in_page README.md 'series that work today are [0-9. and]*')" "$supported"
as_wanted "releases README.md has a row for each supported series" "$(print_series "$(sed -nE 's/^\| Debian ([0-9]+\.[0-9]+)\..*/\1/p' "$TOP/README.md")")" "$supported"
as_wanted "releases install.md names the supported series" "$(series_in_page Documentation/install.md 'kernels of the series [0-9. and]*')" "$supported"
as_wanted "releases porting.md names the supported series" "$(series_in_page Documentation/porting.md 'series, today [0-9. and]*')" "$supported"
exit $failed
