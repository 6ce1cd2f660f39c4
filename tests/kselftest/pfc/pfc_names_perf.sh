#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# worlds: stock
# guest: debian
# timeout: 900
# shellcheck disable=SC2086,SC2317,SC2329,SC3043
#
# Compares the names that pfc and linux-perf give to the same samples, for each kind of code. The
# samples are in files that pfc record has written. The compared name is that of the function with
# the most samples, as pfc script and perf script print it. If pfc or perf prints no name, the
# compared name is "-".

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
inlined function, in a stack      inner_inlined                    outer_hot
assembler without .type           bare_hot                         bare_hot
vDSO                              clock_gettime                    __vdso_clock_gettime
JIT compiler, anon                compiled_hot                     compiled_hot
JIT compiler, memfd               compiled_hot                     -
JIT compiler, zero                compiled_hot                     compiled_hot
JIT compiler, sysv                compiled_hot                     compiled_hot
JIT compiler in a container       compiled_hot                     -
deleted program that still runs   alpha_hot                        -
program that was replaced         -                                -
stripped                          -                                -
stripped, with a debug link       alpha_hot                        (another function)
stripped, debug file by build ID  alpha_hot                        (another function)
EOF
}

dir=/tmp/names
a=$dir/a b=$dir/b
ms=100

# Prints the most frequent line of the input, or "-" if the most frequent line is not a name.
most_frequent() {
	sort | uniq -c | sort -rn | awk '{ sub(/^ *[0-9]+ /, ""); print /^(\[unknown\]|0x[0-9a-f]*)?$/ ? "-" : $0; exit }'
}
# pfc_name and perf_name leave out samples outside of the object file $object, unless $object is
# empty.
object=""
pfc_name() {
	pfc script --json -i x 2>>words | jq -r --arg object "$object" '.stack[0] | select($object == "" or .object == $object) | .symbol // "[unknown]"' | most_frequent
}
perf_name() {
	perf script -i x -F "ip,sym${object:+,dso}" >frames 2>>words
	# In a file with stacks, an empty line follows each stack.
	if grep -q '^$' frames; then awk 'NF && !inner { print } { inner = NF }' frames; else cat frames; fi |
		grep -F -e "$object" | sed -E 's/^[[:space:]]*[0-9a-f]+ //; s/ \((inlined|\[vdso\])\)$//' | most_frequent
}
# Succeeds if the table of names has a line for CODE that contains the name from pfc and the name
# from perf for the samples in file x.
same_names() { # CODE
	local pfc perf
	: >words
	pfc=$(pfc_name)
	perf=$(perf_name)
	# For some programs, perf prints a wrong name of the function. For a stripped program, the
	# order of functions in the program decides which wrong name perf prints. In place of a
	# wrong name from perf, the table has words in parentheses.
	case "$1 $perf" in
	*' _R'*) perf="(mangled)" ;;
	stripped*' alpha_hot' | stripped*' -') ;;
	stripped*) perf="(another function)" ;;
	esac
	echo "$1  $pfc  $perf"
	head -n 3 frames
	cat words
	names | awk -F '  +' -v code="$1" -v pfc="$pfc" -v perf="$perf" '$1 == code && $2 == pfc && $3 == perf { found = 1 } END { exit !found }'
}
test_command() { # CODE COMMAND...
	local code=$1
	shift
	pfc record -F 1000 -o x "$@" || return 1
	same_names "$code"
}
test_stacks() { # CODE COMMAND...
	local code=$1
	shift
	pfc record -g -F 1000 -o x "$@" || return 1
	same_names "$code"
}
# Samples a process that is still alive when its samples are read.
test_process() { # CODE PID
	within 60 has_cpu_ns $2 1000000
	pfc record -p $2 -F 1000 -o x sh -c "$run_for" $2 $ms || return 1
	same_names "$1"
}
test_container() { # CODE
	local child rc
	mkdir -p $dir/tmp
	$a pidns bind $dir/tmp /tmp compiled anon 1000000 &
	victim=$!
	within 60 has_child $victim || return 1
	read -r child <"/proc/$victim/task/$victim/children"
	test_process "$1" ${child%% *}
	rc=$?
	kill -9 ${child%% *}
	wait $victim
	return $rc
}
has_child() { # PID
	grep -q . "/proc/$1/task/$1/children"
}
test_deleted() { # CODE
	local rc
	cp $a $dir/deleted
	$dir/deleted spin 1000000 &
	victim=$!
	within 60 has_cpu_ns $victim 1000000
	rm $dir/deleted
	test_process "$1" $victim
	rc=$?
	kill -9 $victim
	wait $victim
	return $rc
}
test_replaced() { # CODE
	cp $a $dir/it
	pfc record -F 1000 -o x $dir/it spin $ms || return 1
	cp $b $dir/new
	mv $dir/new $dir/it
	same_names "$1"
}
# Makes a stripped copy of a program in $dir/stripped, and its debug file.
strip_program() { # PROGRAM DEBUG_FILE
	cp $1 $dir/stripped
	objcopy --only-keep-debug $1 $2
	strip $dir/stripped
}
test_debug_link() { # CODE
	strip_program $dir/a_noid $dir/stripped.debug
	(cd $dir && objcopy --add-gnu-debuglink=stripped.debug stripped) || return 1
	test_command "$1" $dir/stripped spin $ms
}
test_debug_directory() { # CODE
	local id
	rm -f $dir/stripped.debug
	id=$(readelf -n $a | awk '/Build ID/ { print $3 }')
	file=/usr/lib/debug/.build-id/$(echo $id | cut -c 1-2)/$(echo $id | cut -c 3-).debug
	mkdir -p "${file%/*}"
	strip_program $a $file
	test_command "$1" $dir/stripped spin $ms
	rc=$?
	rm $file
	return $rc
}
test_stripped() { # CODE
	strip_program $a /dev/null
	test_command "$1" $dir/stripped spin $ms
}
check_kind() { # CODE COMMAND...
	local code=$1
	shift
	check "1.9 names by pfc and perf: $code" "$@"
}

plan 17
cd /tmp || exit 1
unload_modules
insmod /modules/perfcounters.ko
insmod /modules/perfmon.ko
insmod /modules/pfm_soft.ko
insmod /modules/pfm_ring.ko
rm -rf $dir
mkdir -p $dir
/tests/pfc_names copy $a && /tests/pfc_names twin $b && /tests/pfc_names copy_noid $dir/a_noid
static="static program"
check_kind "$static" test_command "$static" $a spin $ms
rust="static PIE in Rust"
check_kind "$rust" test_command "$rust" /tests/examples/mangled $ms
cxx="C++20 constraints"
check_kind "$cxx" test_command "$cxx" /tests/examples/constrained $ms
inlined="inlined function, in a stack"
check_kind "$inlined" test_stacks "$inlined" /tests/examples/inlined $ms
bare="assembler without .type"
check_kind "$bare" test_command "$bare" $a bare $ms
vdso="vDSO"
object="[vdso]"
check_kind "$vdso" test_command "$vdso" $a vdso $ms
object=""
for memory in anon memfd zero sysv; do
	code="JIT compiler, $memory"
	check_kind "$code" test_command "$code" $a compiled $memory $ms
done
container="JIT compiler in a container"
check_kind "$container" test_container "$container"
deleted="deleted program that still runs"
check_kind "$deleted" test_deleted "$deleted"
replaced="program that was replaced"
check_kind "$replaced" test_replaced "$replaced"
stripped="stripped"
check_kind "$stripped" test_stripped "$stripped"
link="stripped, with a debug link"
check_kind "$link" test_debug_link "$link"
directory="stripped, debug file by build ID"
check_kind "$directory" test_debug_directory "$directory"
check "1.2 no context is left" busybox rmmod pfm_ring
rm -rf $dir /tmp/perf-*.map x frames words said last_words
unload_modules
exit $failed
