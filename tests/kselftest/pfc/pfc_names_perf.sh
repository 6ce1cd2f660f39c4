#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: debian
# timeout: 600
# shellcheck disable=SC2086,SC2317,SC2329,SC3043
#
# Compares the names that pfc and linux-perf give to the same samples, for each kind of code. Each
# kind runs in a program with a name of its own. The samples are in files that pfc record has
# written. The compared name is that of the function with the most samples, as pfc script and perf
# script print it. If pfc or perf prints no name, the compared name is "-".

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh

# Prints the table of the expected names. The columns of the table are separated by two blanks or
# more.
names() {
	cat <<'EOF'
code                              pfc                              perf
static program                    alpha_hot                        alpha_hot
static PIE in Rust                mangled::kinds::rust_hot::<u32>  (mangled)
C++20 constraints                 constrained_hot<unsigned long>   void constrained_hot<unsigned long>(unsigned long)
stub in a PLT                     shared_hot@plt                   shared_hot@plt
inlined function, in a stack      inner_inlined                    outer_hot
assembler without .type           bare_hot                         bare_hot
vDSO                              clock_gettime                    __vdso_clock_gettime
JIT compiler, anon                compiled_hot                     compiled_hot
JIT compiler, memfd               compiled_hot                     -
JIT compiler, zero                compiled_hot                     compiled_hot
JIT compiler, sysv                compiled_hot                     compiled_hot
JIT compiler, hugetlb             compiled_hot                     compiled_hot
JIT compiler in a container       compiled_hot                     -
deleted program that still runs   alpha_hot                        -
program that was replaced         -                                -
stripped                          -                                -
stripped, with a debug link       alpha_hot                        (another function)
stripped, debug file by build ID  betaa_hot                        (another function)
EOF
}

dir=/tmp/names
a=$dir/a b=$dir/b a_noid=$dir/a_noid
ms=100
debug_file=""

# Prints the most frequent line of the input, or "-" if the most frequent line is not a name.
most_frequent() {
	sort | uniq -c | sort -rn | awk '{ sub(/^ *[0-9]+ /, ""); print /^(\[unknown\]|0x[0-9a-f]*)?$/ ? "-" : $0; exit }'
}
# pfc_name and perf_name print the name of the function with the most samples of PROGRAM. If OBJECT
# is given, samples outside of this object file are left out.
pfc_name() { # PROGRAM [OBJECT]
	awk -F '\t' -v program=$1 -v object="${2:-}" '$1 == program && (object == "" || $2 == object) { print $3 }' by_pfc | most_frequent
}
perf_name() { # PROGRAM [OBJECT]
	awk -v program=$1 -v object="${2:-}" '$1 == program && index($0, "(" object)' by_perf |
		sed -E 's/^ *[^ ]+[[:space:]]+[0-9a-f]+ //; s/ \([^ ]*( \(deleted\))?\)$//' | most_frequent
}
# read_samples FILE: lists the samples of a recording, as pfc prints them and as perf prints them.
# The list of pfc has one line for each sample: program, object file and function, separated by
# tabs. Lists of perf have one line for each sample: program, address, function and object file.
read_samples() {
	pfc script --json -i $1 >json || return 1
	jq -r '[.command, (.stack[0].object // ""), (.stack[0].symbol // "[unknown]")] | @tsv' json >by_pfc || return 1
	perf script -i $1 -F comm,ip,sym,dso >frames || return 1
	# In a file with stacks, the line of the program has no function. The line of the innermost
	# function follows.
	awk 'NF == 1 { program = $1; inner = 1; next } program == "" { print } inner { print program, $0; inner = 0 }' frames >by_perf
}
# Succeeds if the line for CODE in the table of names contains both names for the samples of
# PROGRAM: the name from pfc and the name from perf.
has_names() { # CODE PROGRAM [OBJECT]
	local code=$1 pfc perf
	shift
	pfc=$(pfc_name "$@")
	perf=$(perf_name "$@")
	# For some programs, perf prints a wrong name of the function. For a stripped program, the
	# order of functions in the program decides which wrong name perf prints. In place of a
	# wrong name from perf, the table has words in parentheses.
	case "$code $perf" in
	*' _R'*) perf="(mangled)" ;;
	stripped*' alpha_hot' | stripped*' betaa_hot' | stripped*' -') ;;
	stripped*) perf="(another function)" ;;
	esac
	echo "$code  $pfc  $perf"
	grep -w -m 3 $1 by_perf
	names | awk -F '  +' -v code="$code" -v pfc="$pfc" -v perf="$perf" '$1 == code && $2 == pfc && $3 == perf { found = 1 } END { exit !found }'
}
check_names() { # CODE PROGRAM [OBJECT]
	check "1.9 names by pfc and perf: $1" has_names "$@"
}

# Makes a stripped copy of a program, and its debug file.
strip_program() { # PROGRAM COPY DEBUG_FILE
	cp $1 $2
	objcopy --only-keep-debug $1 $3
	strip $2
}
# Makes a program that calls shared_hot() of a shared library through a stub in its PLT. The loop
# with the calls is in the library, so the samples in the program are those in the stub.
make_plt_program() { # PROGRAM LIBRARY
	as -o library.o <<'END' || return 1
	.globl call_often, shared_hot
	.type shared_hot, @function
call_often:
	call *%rdi
	dec %rsi
	jnz call_often
shared_hot:
	ret
	.section .note.GNU-stack, "", @progbits
END
	as -o program.o <<'END' || return 1
	.globl _start
_start:
	mov $shared_hot, %edi
	mov $50000000, %esi
	call call_often@PLT
	xor %edi, %edi
	mov $60, %eax # exit
	syscall
	.section .note.GNU-stack, "", @progbits
END
	ld -shared -o $2 library.o && ld -dynamic-linker /lib64/ld-linux-x86-64.so.2 -o $1 program.o $2
}
make_programs() {
	make_plt_program $dir/plt $dir/shared.so || return 1
	/tests/pfc_names copy $a && /tests/pfc_names twin $b && /tests/pfc_names copy_noid $a_noid || return 1
	for name in static bare vdso jit_anon jit_memfd jit_zero jit_sysv jit_hugetlb; do ln -s a $dir/$name; done
	cp $a $dir/deleted
	cp $a $dir/replaced
	strip_program $a_noid $dir/stripped /dev/null
	strip_program $a_noid $dir/linked $dir/linked.debug
	(cd $dir && objcopy --add-gnu-debuglink=linked.debug linked) || return 1
	# perf uses the debug file for every program that has its build ID. Of the sampled programs,
	# only $dir/with_id has the build ID of $b.
	id=$(readelf -n $b | awk '/Build ID/ { print $3 }')
	debug_file=/usr/lib/debug/.build-id/$(echo $id | cut -c 1-2)/$(echo $id | cut -c 3-).debug
	mkdir -p "${debug_file%/*}"
	strip_program $b $dir/with_id $debug_file
}
# Runs the programs whose samples can be read after they have ended.
run_programs() {
	for program in static bare vdso stripped linked with_id replaced; do
		case $program in
		bare | vdso) step=$program ;;
		*) step=spin ;;
		esac
		echo "$dir/$program $step $ms"
	done
	for memory in anon memfd zero sysv hugetlb; do echo "$dir/jit_$memory compiled $memory $ms"; done
	echo "$dir/plt; /tests/examples/mangled $ms; /tests/examples/constrained $ms"
}
record_programs() {
	pfc record -F 1000 -o x sh -c "$(run_programs)" || return 1
	cp $b $dir/new
	mv $dir/new $dir/replaced
	read_samples x
}
record_stacks() {
	pfc record -g -F 1000 -o x /tests/examples/inlined $ms && read_samples x
}
# Records two processes that are still alive when their samples are read.
record_processes() {
	mkdir -p $dir/tmp
	ln -s a $dir/container
	$dir/container pidns bind $dir/tmp /tmp compiled anon 1000000 &
	container=$!
	$dir/deleted spin 1000000 &
	deleted=$!
	within 60 has_child $container || return 1
	read -r child <"/proc/$container/task/$container/children"
	child=${child%% *}
	within 60 has_cpu_ns $child 1000000
	within 60 has_cpu_ns $deleted 1000000
	rm $dir/deleted
	pfc record -p $child,$deleted -F 1000 -o x sh -c "$run_for" $child $ms && read_samples x
	rc=$?
	kill -9 $child $deleted
	wait $container $deleted
	return $rc
}

plan 22
cd /tmp || exit 1
unload_modules
insmod_each perfcounters perfmon pfm_soft pfm_ring
rm -rf $dir
mkdir -p $dir
echo 1 >/proc/sys/vm/nr_hugepages
make_programs
check "1.9 pfc and perf read samples of ended programs" record_programs
check_names "static program" static
check_names "static PIE in Rust" mangled
check_names "C++20 constraints" constrained
check_names "assembler without .type" bare
check_names "vDSO" vdso '[vdso]'
check_names "stub in a PLT" plt $dir/plt
for memory in anon memfd zero sysv hugetlb; do check_names "JIT compiler, $memory" jit_$memory; done
check_names "program that was replaced" replaced
check_names "stripped" stripped
check_names "stripped, with a debug link" linked
check_names "stripped, debug file by build ID" with_id
check "1.9 pfc and perf read samples with call stacks" record_stacks
check_names "inlined function, in a stack" inlined
check "1.9 pfc and perf read samples of running programs" record_processes
check_names "JIT compiler in a container" container
check_names "deleted program that still runs" deleted
check "1.2 no context is left" busybox rmmod pfm_ring
echo 0 >/proc/sys/vm/nr_hugepages
rm -rf $dir $debug_file /tmp/perf-*.map x json frames by_pfc by_perf library.o program.o said last_words
unload_modules
exit $failed
