#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests the installed libperfmon: each header compiles alone, the libraries export exactly the
# functions that perfmon.h declares, and programs find the libraries by pkg-config. One program is
# written in the style of programs for perfmon2, which treat 64-bit fields as uint64_t.

set -u
out=${LIB_OUT:?} top=${TOP:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

# compiles_alone HEADER: checks that a program that includes only HEADER compiles, as C and as C++.
compiles_alone() {
	local said status=0
	echo "#include <$1>" >"$work/alone.c"
	said=$({
		for std in c99 gnu11 gnu23; do gcc-14 "-std=$std" "${strict[@]}" -c -o "$work/o" "$work/alone.c" || exit 1; done
		for std in c++11 gnu++20; do g++-14 "-std=$std" "${strict[@]}" -x c++ -c -o "$work/o" "$work/alone.c" || exit 1; done
	} 2>&1) || status=1
	result $status "1.3 <$1> compiles alone, as C and as C++" "$said"
}

promised=$(sed -nE 's/^int (pfm_[a-z_]+)\(.*/\1/p' "$top/tools/libperfmon/include/perfmon/perfmon.h" | sort)
strict=(-Wall -Wextra -Wpedantic -Werror -I "$work/usr/include")
plan 15

PREFIX=$work/usr "$top/tools/libperfmon/install.sh" "$out" "$work/usr" >"$work/log" 2>&1
result $? "1.3 libperfmon: install.sh succeeds" "$(cat "$work/log")"
mkdir -p "$work/usr/include/linux"
cp "$top"/include/uapi/linux/*.h "$work/usr/include/linux/"
for h in linux/perf{counters,mon,mon_ring,mon_dfl_smpl}.h perfmon/perfmon{,_dfl_smpl}.h; do compiles_alone "$h"; done

result "$([ "$(wc -l <<<"$promised")" = 23 ]; echo $?)" "1.3 perfmon.h declares 23 functions" "$promised"
got=$(nm -D --defined-only "$out/libperfmon.so" | awk '{ print $3 }' | sort)
result "$([ "$got" = "$promised" ]; echo $?)" "1.3 libperfmon.so exports exactly the functions of perfmon.h" "$got"
got=$(nm --defined-only --extern-only "$out/libperfmon.a" 2>/dev/null | awk '$2 == "T" && $3 ~ /^pfm_/ { print $3 }' | sort)
result "$([ "$got" = "$promised" ]; echo $?)" "1.3 libperfmon.a defines exactly the functions of perfmon.h" "$got"
got=$(readelf -d "$out/libperfmon.so" | sed -nE 's/.*\((NEEDED|SONAME)\).*\[(.*)\]/\1 \2/p' | sort | xargs)
result "$([ "$got" = "NEEDED libc.so.6 SONAME libperfmon.so.2" ]; echo $?)" "1.3 libperfmon.so.2 needs the C library only" "$got"

# A program written like programs for perfmon2: its helpers take uint64_t, it prints with PRIu64,
# and it names every type by its typedef.
cat >"$work/program.c" <<'END'
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <perfmon/perfmon.h>

static void set_bit(uint64_t *vector, unsigned int bit)
{
	vector[bit / 64] |= 1ULL << (bit % 64);
}

int main(void)
{
	pfarg_ctx_t ctx;
	pfarg_pmc_t pmc;
	pfarg_pmd_t pmd;
	pfarg_load_t load;
	pfarg_start_t start;
	pfarg_setdesc_t desc;
	pfarg_setinfo_t info;
	pfarg_msg_t msg;

	memset(&ctx, 0, sizeof(ctx));
	memset(&pmc, 0, sizeof(pmc));
	memset(&pmd, 0, sizeof(pmd));
	memset(&load, 0, sizeof(load));
	memset(&start, 0, sizeof(start));
	memset(&desc, 0, sizeof(desc));
	memset(&info, 0, sizeof(info));
	memset(&msg, 0, sizeof(msg));
	ctx.ctx_flags = PFM_FL_NOTIFY_BLOCK | PFM_FL_SYSTEM_WIDE | PFM_FL_OVFL_NO_MSG;
	pmc.reg_flags = PFM_REGFL_NO_EMUL64;
	pmd.reg_flags = PFM_REGFL_OVFL_NOTIFY | PFM_REGFL_RANDOM;
	set_bit(pmd.reg_smpl_pmds, 1);
	set_bit(pmd.reg_reset_pmds, 70);
	set_bit(msg.pfm_ovfl_msg.msg_ovfl_pmds, 2);
	desc.set_flags = PFM_SETFL_OVFL_SWITCH | PFM_SETFL_TIME_SWITCH;
	if (sizeof(ctx) != 64 || sizeof(pmc) != 48 || sizeof(pmd) != 176 || sizeof(load) != 32 ||
	    sizeof(start) != 32 || sizeof(desc) != 64 || sizeof(info) != 200 || sizeof(msg) != 64)
		return 2;
	if (msg.type == PFM_MSG_OVFL || msg.type == PFM_MSG_END || PFM_VERSION_MINOR(PFM_VERSION) != 8)
		return 3;
	printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", pmd.reg_value, info.set_runs, pmc.reg_value);
	if (pfm_restart(-1) != -1 || errno != EBADF)
		return 4;
	return pfm_stop(-1) != -1 || errno != EBADF;
}
END
export PKG_CONFIG_PATH=$work/usr/lib/pkgconfig
# shellcheck disable=SC2046 # words
said=$(gcc-14 -Wall -Wextra -Werror -o "$work/program" "$work/program.c" $(pkg-config --cflags --libs libperfmon) 2>&1 &&
	LD_LIBRARY_PATH=$work/usr/lib "$work/program" 2>&1 && readelf -d "$work/program" | grep -q 'NEEDED.*libperfmon.so.2')
result $? "1.3 a program links with libperfmon.so.2 and runs" "$said"
# shellcheck disable=SC2046 # words
said=$(gcc-14 -Wall -Wextra -Werror -static -o "$work/static" "$work/program.c" $(pkg-config --static --cflags --libs libperfmon) 2>&1 &&
	"$work/static" 2>&1)
result $? "1.3 a static program links with libperfmon.a and runs" "$said"

missing=$(for f in $promised; do [ -s "$work/usr/share/man/man3/$f.3" ] || echo "$f"; done)
result "$([ -z "$missing" ]; echo $?)" "1.3 each function has a manual page" "$missing"
broken=$(for page in "$work"/usr/share/man/man3/*.3; do
	sed -nE 's/^\.so man3\/(.*)/\1/p; s/^\.Xr ((pfm_[a-z_]+|libperfmon)) 3.*/\1.3/p' "$page" | while read -r to; do
		[ -e "$work/usr/share/man/man3/$to" ] || echo "${page##*/}: $to"
	done
done)
result "$([ -z "$broken" ]; echo $?)" "1.3 the manual pages refer only to pages that exist" "$broken"
exit $failed
