#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks the comments and pages about memory orderings and locks. Each memory ordering in the code
# of the modules needs a comment that names its partner: the memory ordering with which it pairs.
# The table in Documentation/barriers.md must list each source file that has memory orderings, with
# the number of its orderings and with their partners. When an ordering is added or removed, this
# test fails until the table in barriers.md is corrected. Each lock must be in the table of
# Documentation/architecture.md.

# shellcheck disable=SC2016
set -u
# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"
ordering='load_acquire\(\)|store_release\(|fence_(acquire|release)\(\)|[(, ](Acquire|Release|Full|AcqRel|SeqCst)\)|Ordering::(Acquire|Release|AcqRel|SeqCst)|smp_[a-z_]+\(|[^a-z_]barrier\(\)'

cd "$TOP" || exit 1
# list_orderings: prints the lines with memory orderings. The files protocols/sync.rs and
# base/kernel_version.rs, which define the orderings, are left out. rcu_barrier(),
# smp_processor_id(), smp_call_function() and smp_call_on_cpu() are not orderings.
list_orderings() {
	grep -rnE --include='*.rs' --include='*.c' --include='*.h' "$ordering" src include |
		grep -vE '^src/protocols/sync.rs:|^src/base/kernel_version.rs:|^[^:]*:[0-9]+:\s*(//|\*|/\*)|smp_(processor_id|call_function|call_on_cpu)|raw_smp|fn fence|bindings::rcu_barrier'
}
count_orderings() { list_orderings | cut -d: -f1 | sort | uniq -c | awk '{ print $2, $1 }'; }
documented_counts() { sed -nE 's/^\| `((src|include)\/[^`]*)` \| ([0-9]+) \|.*/\1 \3/p' Documentation/barriers.md | sort; }
# print_uncommented: prints the orderings without a comment about memory ordering in the same line
# or in the 12 lines before.
print_uncommented() {
	list_orderings | while IFS=: read -r file line _; do
		sed -n "$((line > 12 ? line - 12 : 1)),${line}p" "$file" |
			grep -qE '(//|\*|/\*).*([Pp]airs with|partner|[Rr]elease|[Aa]cquire|[Ff]ence|reader|writer|[Bb]arrier|order|[A-DTU]:|who (sees|reads))' ||
			echo "$file:$line: $(sed -n "${line}p" "$file" | sed 's/^\s*//')"
	done
}

# print_unknown_partners: checks the column "partner" of the table in barriers.md. In each row, this
# column must contain a name in backticks. The name is the other half of a pair of memory orderings,
# or the data that both halves access. Prints each row without a name in backticks in the column
# "partner". A name in backticks must be the path of a file, or a word in the source file of its
# row. Prints each other name in backticks, too.
print_unknown_partners() {
	sed -nE 's/^\| `((src|include)\/[^`]*)` \| [0-9]+ \|(.*)\|$/\1 \3/p' Documentation/barriers.md | while read -r file partner; do
		[[ $partner == *\`*\`* ]] || echo "$file: no partner"
		grep -oE '`[^`]+`' <<<"$partner" | tr -d '`()' | while read -r name; do
			[ -e "$name" ] || grep -qwF -- "$name" "$file" || echo "$file: $name"
		done
	done
}

plan 4
nothing "memory orderings: each has a comment about its partner" "$(print_uncommented)"
nothing "barriers.md: the number of memory orderings of each file" "$(diff <(documented_counts) <(count_orderings) | sed -n 's/^</only there:/p; s/^>/in the code:/p')"
nothing "barriers.md: the partners of each file's memory orderings exist" "$(print_unknown_partners)"
# code_lines GLOB: prints the lines of the files that are not comments. base/lock.rs, which
# implements locks, is left out.
code_lines() { grep -rhvE --include="$1" --exclude=lock.rs '^\s*(//|\*|/\*)' src include; }
# list_locks: prints the names of all locks: statics, fields, and variables that are initialised as
# locks.
list_locks() {
	local rust='(Mutex|SpinLock|RawLock|RwLock|RwSemaphore|spinlock_t|bindings::mutex)' name='\b[A-Za-z_][A-Za-z_0-9]*'
	local c='\b((raw_)?spinlock_t|local_lock_t|rwlock_t|seqlock_t|struct (rt_)?mutex|struct [a-z_]*semaphore)'
	code_lines '*.rs' | grep -oE "$name(:| =) [A-Za-z_:<]*${rust}[<>]|$name (=|<-) [A-Za-z_:(]*(new_(mutex|spinlock|rwlock|semaphore)!|$rust::new)" | sed 's/[: ].*//'
	code_lines '*.[ch]' | grep -oE "(DEFINE|DECLARE)_[A-Z_]*(MUTEX|LOCK|RWSEM|SEMAPHORE)\([a-z_0-9]+|${c}[ ,]+[a-z_0-9]+" | sed 's/.*[( ,]//'
}
nothing "architecture.md: every lock is in the table of locks" "$(list_locks | sort -u | while read -r lock; do grep -qE "^\|[^|]*\`$lock\`[^|]* \|" Documentation/architecture.md || echo "$lock"; done)"
exit $failed
