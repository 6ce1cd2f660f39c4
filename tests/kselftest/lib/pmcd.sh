# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034
#
# A pmcd of our own, with nothing but pmdammv in it, as user pcp.

start_pmcd() {
	mkdir -p /run/pcp pcp
	chown pcp:pcp /run/pcp pcp
	printf 'mmv\t70\tdso\tmmv_init\t/usr/lib/pcp/pmdas/mmv/pmda_mmv.so\n' >pcp/conf
	printf 'root {\n\tmmv\t70:*:*\n}\n' >pcp/names
	/usr/lib/pcp/bin/pmcd -f -A -c "$PWD/pcp/conf" -n "$PWD/pcp/names" -l "$PWD/pcp/log" &
	pmcd=$!
}
