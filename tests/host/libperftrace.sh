#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# timeout: 600
# cargo: debug
#
# Tests the installed libperftrace: the header compiles alone, the libraries have exactly the
# promised symbols, and programs in C and C++ find the libraries by pkg-config. The test also checks
# the events that programs write, among them events of libraries that the programs load and unload
# by dlopen(). To check events, the test uses a libperftrace that is built to write plain files in
# place of the kernel's buffers.

set -u
out=${LIB_OUT:?} top=${TOP:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/host/lib/ktap.sh
. "$TOP/tests/host/lib/ktap.sh"

header=$top/tools/libperftrace/include/perftrace/perftrace.h
strict=(-O2 -Wall -Wextra -Wpedantic -Werror -I "$work/usr/include")
plan 17

PREFIX=$work/usr "$top/tools/libperftrace/install.sh" "$out" "$work/usr" >"$work/log" 2>&1
result $? "3.8 libperftrace: install.sh succeeds" "$(cat "$work/log")"

cat >"$work/alone.c" <<'END'
#include <perftrace/perftrace.h>
static inline void twice(int n)
{
	PERFTRACE(alone, first, (s32, n, n));
	PERFTRACE(alone, second);
}

void once(void);
void once(void)
{
	twice(1);
}
END
said=$({
	for std in c11 gnu17 gnu23; do gcc-14 "-std=$std" "${strict[@]}" -c -o "$work/o" "$work/alone.c" || exit 1; done
	for std in c11 gnu17; do clang "-std=$std" "${strict[@]}" -c -o "$work/o" "$work/alone.c" || exit 1; done
	for std in c++11 c++17 gnu++20; do
		for cc in g++-14 clang++; do "$cc" "-std=$std" "${strict[@]}" -x c++ -c -o "$work/o" "$work/alone.c" || exit 1; done
	done
} 2>&1)
result $? "3.8 perftrace.h compiles alone, as C and as C++" "$said"

promised=$(sed -nE 's/^void (perftrace_[a-z_0-9]+)\(.*/\1/p' "$header" | sort)
got=$(nm -D --defined-only "$out/libperftrace.so" | awk '{ print $3 }' | sort)
as_wanted "3.8 libperftrace.so exports exactly the functions of perftrace.h" "$got" "$promised"
got=$(nm --defined-only --extern-only "$out/libperftrace.a" 2>/dev/null | awk '$2 == "T" && $3 ~ /^perftrace_/ { print $3 }' | sort)
as_wanted "3.8 libperftrace.a defines exactly the functions of perftrace.h" "$got" "$promised"
got=$(readelf -d "$out/libperftrace.so" | sed -nE 's/.*\((NEEDED|SONAME)\).*\[(.*)\]/\1 \2/p; s/.*(NODELETE).*/\1/p' | sort | xargs)
as_wanted "3.8 libperftrace.so.1 needs the C library only, and has the flag NODELETE" "$got" "NEEDED libc.so.6 NODELETE SONAME libperftrace.so.1"

# Check that events with errors do not compile. The errors are: an unknown type, a value of another
# type than its field, a duplicate, invalid or too long field name, and too many fields.
bad=0
while read -r event; do
	echo "#include <perftrace/perftrace.h>
void f(char *text, int n); void f(char *text, int n) { (void)text; (void)n; PERFTRACE($event); }" >"$work/bad.c"
	gcc-14 -std=gnu17 -O2 -I "$work/usr/include" -c -o "$work/o" "$work/bad.c" 2>/dev/null && { bad=1; echo "# $event"; }
	g++-14 -std=gnu++17 -O2 -I "$work/usr/include" -x c++ -c -o "$work/o" "$work/bad.c" 2>/dev/null && { bad=1; echo "# $event, as C++"; }
done <<'END'
a, b, (u24, n, n)
a, b, (u32, n, text)
a, b, (str, n, n)
a, b, (u32, n, n), (u32, n, n)
a, b, (u32, errno-, n)
a, b, (u8,a,1),(u8,b,1),(u8,c,1),(u8,d,1),(u8,e,1),(u8,f,1),(u8,g,1),(u8,h,1),(u8,i,1),(u8,j,1),(u8,k,1),(u8,l,1),(u8,m,1),(u8,o,1),(u8,p,1),(u8,q,1),(u8,r,1)
a, b, (u32, a_name_that_has_more_than_thirty_one_bytes, n)
END
result $bad "3.7 events with invalid fields do not compile" ""

export PKG_CONFIG_PATH=$work/usr/lib/pkgconfig
example=$top/tools/libperftrace/examples/requests.c
# shellcheck disable=SC2046 # words
said=$(gcc-14 -std=gnu11 -Wall -Wextra -Werror -O2 -o "$work/requests" "$example" $(pkg-config --cflags --libs libperftrace) 2>&1 &&
	readelf -d "$work/requests" | grep -q 'NEEDED.*libperftrace.so.1' && LD_LIBRARY_PATH=$work/usr/lib "$work/requests" 3 2>&1)
as_wanted "3.8 a program links with libperftrace.so.1, and runs without the device" "$said" "3 requests, 1"
said=$(PERFTRACE_DEBUG=1 LD_LIBRARY_PATH=$work/usr/lib "$work/requests" 3 2>&1 >/dev/null | sed 's/:[^:]*$//')
[ ! -e /dev/perftrace ] || said="perftrace: off: /dev/perftrace"
as_wanted "3.8 PERFTRACE_DEBUG=1: the reason why tracing is off is printed" "$said" "perftrace: off: /dev/perftrace"
said=$(PERFTRACE=0 PERFTRACE_DEBUG=1 LD_LIBRARY_PATH=$work/usr/lib "$work/requests" 3 2>&1 >/dev/null)
as_wanted "3.8 PERFTRACE=0: tracing is off, for that reason" "$said" "perftrace: off: PERFTRACE=0 is in the environment"

# Builds a libperftrace that writes plain files in place of the kernel's buffers.
# shellcheck disable=SC2153 # job.sh sets it
target=$TARGET/simulate
manifest=$top/tools/Cargo.toml
# The program `simulated`, which prints the events in these files, is built in the target directory
# of cargo test. The option --workspace gives all packages the same features as cargo test, so cargo
# need not compile again what cargo test has compiled.
CARGO_TARGET_DIR=$target cargo build --manifest-path "$manifest" --profile library --locked -p libperftrace --features simulate >"$work/log" 2>&1 &&
	CARGO_TARGET_DIR=$TARGET cargo build --manifest-path "$manifest" --locked --workspace --example simulated >>"$work/log" 2>&1
result $? "3.8 the library can be built with memory in place of the kernel" "$(cat "$work/log")"
mkdir "$work/sim"
ln -s "$target/library/libperftrace.so" "$work/sim/libperftrace.so.1"

# run_traced PROGRAM...: runs a program. Prints the output of the program, then its events.
run_traced() {
	rm -rf "$work/events"
	mkdir "$work/events"
	PERFTRACE_SIMULATE=$work/events LD_LIBRARY_PATH=$work/sim:$work "$@" && "$TARGET/debug/examples/simulated" "$work"/events/*
}

wanted='3 requests, 1
marker 0 requests:begin number:u32 from:str
marker 0 requests:end number:u32 result:u64
marker 0 requests:start
requests:start 
requests:begin \x00\x00\x00\x00there\x00\x00\x00\x00\x00\x00\x00
requests:end \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00
requests:begin \x01\x00\x00\x00here\x00\x00\x00\x00\x00\x00\x00\x00
requests:end \x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00
requests:begin \x02\x00\x00\x00there\x00\x00\x00\x00\x00\x00\x00
requests:end \x02\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00'
# sort_markers: prints the lines of markers first, and sorts these lines, because the order of
# markers depends on the linker.
sort_markers() { awk '/^marker/ { print | "sort"; next } { close("sort") } 1'; }
as_wanted "3.1 shared library: all events of a program with their fields" "$(run_traced "$work/requests" 3 2>&1 | sort_markers)" "$wanted"
said=$(gcc-14 -std=gnu11 -O2 -static -I "$work/usr/include" -o "$work/static" "$example" "$target/library/libperftrace.a" 2>&1 && run_traced "$work/static" 3 2>&1 | sort_markers)
as_wanted "3.1 static library: all events of a program with their fields" "$said" "$wanted"
said=$(GLIBC_TUNABLES=glibc.pthread.rseq=0 run_traced "$work/requests" 3 2>&1 | sort_markers)
as_wanted "3.4 without restartable sequences: all events of a program with their fields" "$said" "$wanted"

# Case: a library is loaded twice. The library has one marker of its own, and one marker that the
# program defines as well.
cat >"$work/plugin.c" <<'END'
#include <perftrace/perftrace.h>
void work(int n);
void work(int n)
{
	PERFTRACE(plugin, work, (s32, n, n));
	PERFTRACE(program, both);
}
END
cat >"$work/program.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
#include <perftrace/perftrace.h>
int main(void)
{
	for (int n = 0; n < 2; n++) {
		void *plugin = dlopen("plugin.so", RTLD_NOW);
		void (*work)(int);

		if (!plugin) {
			puts(dlerror());
			return 1;
		}
		*(void **)&work = dlsym(plugin, "work");
		work(n);
		dlclose(plugin);
		PERFTRACE(program, both);
		if (dlopen("plugin.so", RTLD_NOW | RTLD_NOLOAD))
			return 2;
	}
	return 0;
}
END
said=$({
	# shellcheck disable=SC2046 # words
	gcc-14 -std=gnu11 -Wall -Wextra -O2 -fPIC -shared -o "$work/plugin.so" "$work/plugin.c" $(pkg-config --cflags --libs libperftrace) &&
		gcc-14 -std=gnu11 -Wall -Wextra -O2 -o "$work/program" "$work/program.c" $(pkg-config --cflags --libs libperftrace) &&
		run_traced "$work/program"
} 2>&1)
as_wanted "3.8 a library loaded twice: all its events, and a marker of the program is still registered" "$said" 'marker 0 program:both
marker 0 plugin:work n:s32
plugin:work \x00\x00\x00\x00\x00\x00\x00\x00
program:both 
program:both 
plugin:work \x01\x00\x00\x00\x00\x00\x00\x00
program:both 
program:both '

# Case: a program without libperftrace loads two libraries three times. Each library contains a copy
# of libperftrace.
for name in one two; do
	cat >"$work/$name.c" <<-END
		#include <perftrace/perftrace.h>
		void work(int n);
		void work(int n) { PERFTRACE($name, work, (s32, n, n)); }
	END
done
cat >"$work/rounds.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(void)
{
	static const char *names[] = { "one.so", "two.so" };

	for (int n = 0; n < 3; n++) {
		void *libraries[2];

		for (int i = 0; i < 2; i++) {
			libraries[i] = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
			if (!libraries[i]) {
				puts(dlerror());
				return 1;
			}
		}
		for (int i = 0; i < 2; i++)
			((void (*)(int))dlsym(libraries[i], "work"))(n);
		for (int i = 0; i < 2; i++)
			dlclose(libraries[i]);
	}
	return 0;
}
END
said=$({
	for name in one two; do
		gcc-14 -std=gnu11 -O2 -fPIC -shared -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -I "$work/usr/include" -o "$work/$name.so" "$work/$name.c" "$target/library/libperftrace.a" || exit
	done
	gcc-14 -std=gnu11 -O2 -o "$work/rounds" "$work/rounds.c" && run_traced "$work/rounds"
} 2>&1)
as_wanted "3.1 two copies of libperftrace in a program, loaded 3 times: traced as one process" "$said" 'marker 0 one:work n:s32
marker 0 two:work n:s32
one:work \x00\x00\x00\x00\x00\x00\x00\x00
two:work \x00\x00\x00\x00\x00\x00\x00\x00
one:work \x01\x00\x00\x00\x00\x00\x00\x00
two:work \x01\x00\x00\x00\x00\x00\x00\x00
one:work \x02\x00\x00\x00\x00\x00\x00\x00
two:work \x02\x00\x00\x00\x00\x00\x00\x00'

cat >"$work/program.cc" <<'END'
#include <perftrace/perftrace.h>
template <class T> T same(T x) { PERFTRACE(cc, same, (f64, x, (double)x)); return x; }
inline int times(int x) { PERFTRACE(cc, times, (u8, x, (uint8_t)x)); return x; }
struct Thing { ~Thing() { PERFTRACE(cc, gone); } };
int main()
{
	Thing thing;
	auto more = [](int x) { PERFTRACE(cc, more, (str, s, "lambda"), (x16, x, (uint16_t)x)); return x; };
	same(1.0);
	same(2);
	return more(0) + times(0);
}
END
# shellcheck disable=SC2046 # words
said=$({ g++-14 -std=c++17 -Wall -Wextra -O2 -o "$work/cc" "$work/program.cc" $(pkg-config --cflags --libs libperftrace) && run_traced "$work/cc"; } 2>&1 | grep -v ^marker)
as_wanted "3.8 C++: all events of templates, inline functions, lambdas and destructors" "$said" 'cc:same \x00\x00\x00\x00\x00\x00\xf0?
cc:same \x00\x00\x00\x00\x00\x00\x00@
cc:more lambda\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00
cc:times \x00\x00\x00\x00\x00\x00\x00\x00
cc:gone '

# The code of off() up to its return must be four instructions: load, load, test, branch.
cat >"$work/off.c" <<'END'
#include <perftrace/perftrace.h>
void off(int n);
void off(int n)
{
	PERFTRACE(off, off, (s32, n, n));
}
END
said=$(gcc-14 -std=gnu11 -O2 -I "$work/usr/include" -c -o "$work/off.o" "$work/off.c" && objdump -d --no-show-raw-insn --disassemble=off "$work/off.o" |
	awk -F'\t' '/^ / { split($2, w, " "); print w[1]; if (w[1] ~ /^ret/) exit }' | xargs)
as_wanted "3.8 a marker that is off is two loads, a test and a branch" "$said" "mov mov test jne ret"
exit $failed
