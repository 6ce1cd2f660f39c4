# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034 # for who sources it
#
# What tests on the host say, as tests/kselftest/lib has it for those in the guest. Each ends with
# `exit $failed`.

n=0 failed=0

plan() { # TESTS
	echo "TAP version 13"
	echo "1..$1"
}

result() { # STATUS NAME [DIAGNOSTICS]
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n $2"
	else
		failed=1
		[ -z "${3:-}" ] || head -n 40 <<<"$3" | sed 's/^/# /'
		echo "not ok $n $2"
	fi
}

as_wanted() { # NAME GOT WANTED
	result "$([ "$2" = "$3" ]; echo $?)" "$1" "$(diff <(echo "$3") <(echo "$2"))"
}

nothing() { # NAME WRONG: what is wrong is nothing
	[ -z "$2" ]
	result $? "$1" "$2"
}

check() { # NAME COMMAND...: what it says is shown, and kept in $work
	local name=$1 status=0
	shift
	"$@" >"${work:?}/said" 2>&1 || status=$?
	head -n 20 "$work/said" | cut -c1-300 | sed 's/^/# /'
	result "$status" "$name"
}
