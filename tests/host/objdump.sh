#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks the machine code of the fast paths: the test counts instructions and does not measure
# times.

# shellcheck disable=SC2001 # a here-string has several lines
set -u
out=${KBUILD_OUT:?}

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

# code OBJECT FUNCTION: prints the instructions of a function, one instruction a line, with the
# symbol of a relocation after "@". Leaves out the patchable call of ftrace at the beginning of the
# function and the padding at its end.
code() {
	objdump -dr --no-show-raw-insn --no-addresses --disassemble="$2" "$1" |
		awk -v start="^<$2>:" '
			$0 ~ start { on = 1; next }
			on && /^$/ { exit }
			!on { next }
			/R_X86_64_/ { sub(/.*R_X86_64_[A-Z0-9]*[ \t]*/, ""); line[k] = line[k] " @" $0; next }
			{ gsub(/[ \t]+/, " "); sub(/^ /, ""); sub(/ *#.*/, ""); line[++k] = $0 }
			END { for (i = 1; i <= k; i++) if (line[i] !~ /@__fentry__|^nop|^int3/) print line[i] }'
}

count() { grep -cE "$1" <<<"$2"; }
is() { [ "$1" = "$2" ]; echo $?; }

test_driver=$out/tests/modules/test_driver.ko
plan 16

c=$(code "$test_driver" test_driver_inline_add)
[ "$(wc -l <<<"$c")" = 2 ] && grep -qE '^add %rsi,%gs:\(%rdi\)' <<<"$c" && grep -qE '^(ret|jmp .*@__x86_return_thunk)' <<<"$c"
result $? "0.8 the inline perf_counter_add in C is one instruction" "$c"

c=$(code "$test_driver" test_driver_inline_group)
writes=$(grep -E '%gs:' <<<"$c" | grep -v __preempt_count)
result "$(is "$(wc -l <<<"$writes")" 4)" "0.8 a group of two writes four times: flag, two values, flag" "$c"
result "$(is "$(sed -E 's/ .*//' <<<"$writes" | tr '\n' ' ')" "incq add add addq ")" \
	"0.8 a group of two: the order is in flight, values, completed" "$writes"
result "$(is "$(count '__preempt_count' "$c")" 2)" "0.8 a group of two: preemption is disabled and enabled by one instruction each" "$c"
result "$(is "$(grep -E '^call' <<<"$c" | grep -vc '__SCT__preempt_schedule')" 0)" \
	"0.12 a group of two: calls nothing but the scheduler, if a switch is due" "$c"
result "$(is "$(count '^lock|^cmpxchg|^xchg|mfence|sfence' "$c")" 0)" "0.8 a group of two: no locked instruction and no fence" "$c"

c=$(code "$test_driver" test_driver_inline_hist)
result "$(is "$(count '%gs:' "$c")" 1)" "0.8 a histogram's bucket is incremented by one instruction" "$c"

# The test counts the instructions of all paths of perf_adjust(), including the jump to the end of
# the function for an invalid instance number.
c=$(code "$out/src/counters/perfcounters.ko" perf_adjust)
sed 's/^/# perf_adjust: /' <<<"$c"
hot=$(grep -vc '@__SCT__preempt_schedule' <<<"$c")
echo "# perf_adjust: $((hot + 1)) instructions with the caller's call and the return"
[ "$hot" -gt 10 ] && [ $((hot + 1)) -le 24 ]
result $? "0.15 perf_adjust takes at most 24 instructions, call and return included" "$hot + 1"
result "$(is "$(grep -E '^call' <<<"$c" | grep -vc '__SCT__preempt_schedule')" 0)" \
	"0.12 perf_adjust calls nothing but the scheduler, if a switch is due" "$c"
result "$(is "$(grep '%gs:' <<<"$c" | grep -v __preempt_count | sed -E 's/ .*//' | tr '\n' ' ')" "incq add addq ")" \
	"0.8 perf_adjust: flag, value, flag, one instruction each" "$c"
result "$(is "$(count '^lock|^cmpxchg|^xchg|mfence|sfence' "$c")" 0)" "0.8 perf_adjust: no locked instruction and no fence" "$c"

# The sample driver in Rust must have the following per-CPU accesses, in this order: a group of two
# updates between two changes of the preempt count, an update of a histogram's bucket, and then
# stores to gauges and updates of peaks.
rust=$(objdump -dr --no-show-raw-insn --no-addresses "$out/tests/modules/sample_rust.o" | grep '%gs:' | sed -E 's/^[ \t]+//; s/[ \t]+/ /g')
grep -qE '^inc[lq] incq add add addq dec[lq] add (mov mov cmpxchg )+$' <<<"$(sed -E 's/ .*//' <<<"$rust" | tr '\n' ' ')"
result $? "0.8 Rust interface: the same single instructions as in C" "$rust"

# panicking OBJECT...: prints the functions that refer to a function that panics.
panicking() {
	local object
	for object in "$@"; do
		objdump -dr --no-show-raw-insn "$object" | awk '/^[0-9a-f]+ <.*>:$/ { f = $2 }
			/R_X86_64_.*(panic|unwrap_failed|expect_failed)/ { print f }'
	done | sort -u
}

# The crate protocols and the crates counters_rules, perfmon_rules, ppa_rules and trace_rules each
# have an object file (protocols.o or rules.o). A module (.ko) that calls functions of these crates
# can contain copies of the functions. The first crate in a mangled name is the crate of the
# function.
pure='(protocols|(counters|perfmon|ppa|trace)_rules)'
mapfile -t objects < <(find "$out/src" "$out/tests/modules" -name '*.ko' -o -path '*/rules/rules.o')
panics=$(nm "$out"/src/*/rules/rules.o "$out/src/protocols/protocols.o" | grep -iE 'panic|unwrap_failed|bounds')
panics+=$(panicking "${objects[@]}" | sed -E 's/Cs[0-9A-Za-z]*_[0-9]+([a-z_]+)/ \1 &/' | awk -v pure="^$pure" '$2 ~ pure')
nr=$(nm "${objects[@]}" | grep -ciE " t .*Cs[0-9A-Za-z]*_[0-9]+$pure")
[ -z "$panics" ] && [ "$nr" -ge 50 ]
result $? "rig protocols and rules: their code refers to no function that panics ($nr functions)" "$panics"

# Rust code in the kernel is compiled with overflow checks, which call panic(). Only functions
# outside the fast paths may call panic(), for example functions that load a context, attach probes,
# add an entry, allocate memory or copy a list. Functions that access PMU registers must not call
# panic().
mapfile -t objects < <(find "$out/src" -name '*.ko')
panics=$(panicking "${objects[@]}")
found=$(grep -vE '(4init|6attach|4push|17extend_from_slice|4grow|7reserve|9instances3add|15pmu_description|7pmu_map|7perfmon6device|7Session25replace_claimed_registers|7Session10add_thread|7Context4load|13pmu_registers11append_rows|4pmus21log_missing_registers|9cpu_kinds13log_cpu_kinds|7formats15find_registered|10Accounting(7restart|5start)|10EndedTasks28take_probe_records_and_limit|10read_tasks(13collect_tasks|20record_bytes_by_user|10read_entry)|16individual_tasks19add_and_start_entry|11task_record5words|7PpaFile.*14FileOperations(4read|5ioctl)|9NamesFile.*14FileOperations4read|7Tracing5begin|5Trace(17ensure_buffer_set|6remove)|20attach_kernel_probes|17InterfaceListener15interface_added|7pfc_net22add_interface_counters|(6|12Sample)Buffer3new|9perftrace6device(14dispatch_ioctl|30register_or_unregister_markers|17read_next_records)|7Context8grow_set|7Session11add_context|8registry11add_process|30push_within_capacity_unchecked)|<(pfc_netdev_name|pfc_delete_instances_of_module|perfmon_pmu_unregister|pfc_read_identity|ppa_set_entry|perfmon_pmu_register|perfmon_format_register)' <<<"$panics")
# Page-fault handlers must not call panic(). The first grep excludes all functions of some source
# files, including page-fault handlers. A second grep therefore searches the list $panics for
# page-fault handlers.
found+=$(grep -E '14FileOperations(5fault|8vma_open|9vma_close)|7perfmon6device(16insert_self_page|20count_copied_mapping|21count_removed_mapping)' <<<"$panics")
[ -n "$panics" ] && [ -z "$found" ]
result $? "0.12 probes, updates and page faults: their code calls no function that panics" "$found"

off=$(nm -u "$out/tests/modules/sample_off.o" | grep perf_)
on=$(nm -u "$out/tests/modules/sample_c.o" | grep -c perf_)
[ -z "$off" ] && [ "$on" -ge 5 ]
result $? "0.13 driver built without the interface: refers to none of its symbols" "$off"
depends=$(modinfo -F depends "$out/tests/modules/sample_off.ko")
result "$(is "$depends" "")" "0.13 driver built without the interface: depends on no module" "$depends"
exit $failed
