#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Each memory ordering in the kernel's code names its partner, where it stands and in the table of
# Documentation/barriers.md, which has how many there are in each file: who adds one, or takes one
# away, has to look for the other half. And each lock is in the table of architecture.md.

# shellcheck disable=SC2016
set -u
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
ordering='load_acquire\(\)|store_release\(|fence_(acquire|release)\(\)|[(, ](Acquire|Release|Full|AcqRel|SeqCst)\)|Ordering::(Acquire|Release|AcqRel|SeqCst)|smp_[a-z_]+\(|[^a-z_]barrier\(\)'

cd "$TOP" || exit 1
# engine/sync.rs and sys/release.rs give them their names. rcu_barrier() and smp_processor_id() are something else.
found() {
	grep -rnE --include='*.rs' --include='*.c' --include='*.h' "$ordering" src include |
		grep -vE '^src/engine/sync.rs:|^src/perfcounters/sys/release.rs:|^[^:]*:[0-9]+:\s*(//|\*|/\*)|smp_(processor_id|call_function)|raw_smp|fn fence|bindings::rcu_barrier'
}
counted() { found | cut -d: -f1 | sort | uniq -c | awk '{ print $2, $1 }'; }
tabled() { sed -nE 's/^\| `((src|include)\/[^`]*)` \| ([0-9]+) \|.*/\1 \3/p' Documentation/barriers.md | sort; }
lonely() {
	found | while IFS=: read -r file line _; do
		sed -n "$((line > 12 ? line - 12 : 1)),${line}p" "$file" |
			grep -qE '(//|\*|/\*).*([Pp]airs with|partner|[Rr]elease|[Aa]cquire|[Ff]ence|reader|writer|[Bb]arrier|order|[A-DTU]:|who (sees|reads))' ||
			echo "$file:$line: $(sed -n "${line}p" "$file" | sed 's/^\s*//')"
	done
}

plan 3
nothing "each memory ordering says in a comment whom it is for" "$(lonely)"
nothing "barriers.md has each file with memory orderings, and how many" "$(diff <(tabled) <(counted) | sed -n 's/^</only there:/p; s/^>/in the code:/p')"
# Every lock that has a name is in the table of locks.
locks() {
	grep -rhoE --include='*.rs' 'static [A-Z]+: Mutex' src | cut -d' ' -f2 | tr -d :
	grep -rhoE --include='*.c' 'DEFINE_(MUTEX|RAW_SPINLOCK|SPINLOCK)\([a-z_]+' src | sed 's/.*(//'
	grep -rhoE --include='*.rs' '[a-z_]+ <- new_(mutex|spinlock)!' src | cut -d' ' -f1
}
nothing "architecture.md has each lock" "$(locks | sort -u | while read -r lock; do grep -qE "^\|.*\`$lock\`.* \|" Documentation/architecture.md || echo "$lock"; done)"
exit $failed
