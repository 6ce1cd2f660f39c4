#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Each memory ordering in the kernel's code names its partner, where it stands and in the table of
# Documentation/barriers.md, which has how many there are in each file, and where the other half
# is: who adds one, or takes one away, has to look for it. And each lock is in the table of architecture.md.

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

# What the table names as the other half is no word of that row's file, nor a file; or it names nothing.
strangers() {
	sed -nE 's/^\| `((src|include)\/[^`]*)` \| [0-9]+ \|(.*)\|$/\1 \3/p' Documentation/barriers.md | while read -r file partner; do
		[[ $partner == *\`*\`* ]] || echo "$file: no partner"
		grep -oE '`[^`]+`' <<<"$partner" | tr -d '`()' | while read -r name; do
			[ -e "$name" ] || grep -qwF -- "$name" "$file" || echo "$file: $name"
		done
	done
}

plan 4
nothing "each memory ordering says in a comment whom it is for" "$(lonely)"
nothing "barriers.md has each file with memory orderings, and how many" "$(diff <(tabled) <(counted) | sed -n 's/^</only there:/p; s/^>/in the code:/p')"
nothing "barriers.md says of each file's orderings where their other half is" "$(strangers)"
# Every lock is in the table of locks by its name: statics, fields, types, and what makes one.
# sys/rawlock.rs is what a raw lock is made of.
code() { grep -rhvE --include="$1" --exclude=rawlock.rs '^\s*(//|\*|/\*)' src include; }
locks() {
	local rust='(Mutex|SpinLock|RawLock|RwLock|RwSemaphore|spinlock_t|bindings::mutex)' name='\b[A-Za-z_][A-Za-z_0-9]*'
	local c='\b((raw_)?spinlock_t|local_lock_t|rwlock_t|seqlock_t|struct (rt_)?mutex|struct [a-z_]*semaphore)'
	code '*.rs' | grep -oE "$name(:| =) [A-Za-z_:<]*${rust}[<>]|$name (=|<-) [A-Za-z_:(]*(new_(mutex|spinlock|rwlock|semaphore)!|$rust::new)" | sed 's/[: ].*//'
	code '*.[ch]' | grep -oE "(DEFINE|DECLARE)_[A-Z_]*(MUTEX|LOCK|RWSEM|SEMAPHORE)\([a-z_0-9]+|${c}[ ,]+[a-z_0-9]+" | sed 's/.*[( ,]//'
}
nothing "architecture.md has each lock" "$(locks | sort -u | while read -r lock; do grep -qE "^\|[^|]*\`$lock\`[^|]* \|" Documentation/architecture.md || echo "$lock"; done)"
exit $failed
