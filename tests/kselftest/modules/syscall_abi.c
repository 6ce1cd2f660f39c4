// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 120
 *
 * Tests system calls of the ABIs x86_64, i386 and x32, in which the same number means different
 * calls. Events of the marker kernel:sys_enter have the ABI in addition to the number. `pfc trace`
 * names a call by the table of its ABI. Process accounting recognises sched_yield() in each ABI.
 * This program makes i386 calls by int 0x80, and x32 calls by their numbers. A kernel without x32
 * fails x32 calls with ENOSYS, but traces the same events for x32 calls as a kernel with x32.
 */
#include "../ppa/ppa.h"
#include "../trace/trace.h"

#define X32_BIT		0x40000000	/* __X32_SYSCALL_BIT */
#define NR_ABIS		3
#define YIELDS		200

static const struct abi {
	const char *name;
	long getpid, yield;
} abis[NR_ABIS] = {
	{ "x86_64", SYS_getpid, SYS_sched_yield },
	{ "i386", 20, 158 },
	{ "x32", X32_BIT | SYS_getpid, X32_BIT | SYS_sched_yield },
};

static long make_call(int abi, long number)
{
	long ret = number;

	if (abi != 1)
		return syscall(number);
	asm volatile("int $0x80" : "+a"(ret) : : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

/* Counts of the calls that were read from a trace, for each ABI. */
static struct {
	__u64 events[NR_ABIS], others, broken;
} nr;

static void count_call(const struct perftrace_record *record)
{
	const char *payload = (const void *)(record + 1);
	__s64 number;
	int abi;

	memcpy(&number, payload, sizeof(number));
	if (record->words != 4) {
		nr.broken++;
		return;
	}
	for (abi = 0; abi < NR_ABIS; abi++)
		if (number == abis[abi].getpid && !strcmp(payload + 8, abis[abi].name))
			nr.events[abi]++;
	for (abi = 0; abi < NR_ABIS; abi++)
		nr.others += number == abis[abi].getpid && strcmp(payload + 8, abis[abi].name);
}

static void test_events(void)
{
	static struct {
		struct perftrace_filter header;
		struct perftrace_step steps[1];
		char process[16];
	} filter = {
		{ sizeof(filter), 1, 0, {} },
		{ { PERFTRACE_EQ, 0, 24, PERFTRACE_ACCEPT, PERFTRACE_REJECT, 0 } },
		"$process",
	};
	struct perftrace_create create = make_trace("abi", "kernel:sys_enter", 0, 1 << 20);
	struct perftrace_describe d = { .key = PERFTRACE_KEY_KERNEL, .number = 1 };
	struct perftrace_read r = first_buffer;
	int fd;

	filter.steps[0].value = getpid();
	create.filter = (unsigned long)&filter;
	create.filter_bytes = sizeof(filter);
	fd = try_open_trace(PERFTRACE_CREATE, &create);
	bail_if(fd < 0, "PERFTRACE_CREATE");
	for (int i = 0; i < 10; i++)
		for (int abi = 0; abi < NR_ABIS; abi++)
			make_call(abi, abis[abi].getpid);
	trace_ioctl(fd, PERFTRACE_DESCRIBE, &d);
	ok(!strcmp(d.marker.fields, "number:s64 abi:str"),
	   "3.11 kernel:sys_enter: its fields are the number and the ABI");
	while (!trace_read_next(fd, &r))
		for (__u32 at = 0; at < r.bytes;) {
			struct perftrace_record *record = (void *)(read_buffer + at);

			if (!record->words)
				break;
			if (record->marker < PERFTRACE_LOST)
				count_call(record);
			at += record->words * 8;
		}
	is(nr.broken, 0, "3.11 kernel:sys_enter: each record has 32 bytes");
	for (int abi = 0; abi < NR_ABIS; abi++)
		is(nr.events[abi], 10, "3.11 getpid() of %s: events have its number and its ABI",
		   abis[abi].name);
	is(nr.others, 0, "3.11 getpid() of each ABI: no event has the name of another ABI");
	close(fd);
}

static int run_shell(const char *command)
{
	int rc = system(command);

	return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

#define START_TRACE	"pfc trace start abi --kernel syscalls --format text "

static void test_names(void)
{
	is(run_shell(START_TRACE "-o abi.txt -- /tests/syscall_abi calls"), 0,
	   "3.11 pfc trace --kernel syscalls: a program that makes calls of each ABI");
	ok(!run_shell("grep -q 'sys_enter: number=39 abi=\"x86_64\" name=\"getpid\"$' abi.txt"),
	   "3.11 pfc trace: call 39 of x86_64 is getpid");
	ok(!run_shell("grep -q 'sys_enter: number=20 abi=\"i386\" name=\"getpid\"$' abi.txt"),
	   "3.11 pfc trace: call 20 of i386 is getpid");
	ok(!run_shell("grep -qE 'sys_enter: number=1073741863 abi=.x32. name=.getpid.$' abi.txt"),
	   "3.11 pfc trace: call 39 of x32 is getpid");
	ok(!run_shell("grep -q 'sys_enter: number=9999 abi=\"x86_64\"$' abi.txt"),
	   "3.11 pfc trace: a number without a call has no name");
	is(run_shell(START_TRACE "-f 'abi == \"i386\"' -o i386.txt -- \\\n"
	       "/tests/syscall_abi calls && grep -q 'abi=\"i386\"' i386.txt &&\n"
	       "! grep -q 'abi=\"x' i386.txt"), 0,
	   "3.10 filter: calls of one ABI are selected by its name");
}

static void test_yields(void)
{
	int dev, other;

	ppa_write(SETTINGS, "1 1 0 1");
	dev = ppa_open();
	pin_to_cpu(0);
	/* Starts another task on the same CPU, to which this task yields. */
	other = fork();
	if (!other)
		for (;;)
			sched_yield();
	for (int abi = 0; abi < NR_ABIS; abi++) {
		struct ppa_task before = ppa_task(dev, getpid()), t;
		long rc = 0;

		for (int i = 0; i < YIELDS; i++)
			rc = make_call(abi, abis[abi].yield);
		t = ppa_task(dev, getpid());
		for (int i = 0; i < PPA_NR_VALUES; i++)
			t.values[i] -= before.values[i];
		note("%s: %ld, yielded %llu, preempted %llu", abis[abi].name, rc,
		     t.values[PPA_PRMPTCTXTCNT], t.values[PPA_PRMPTPRICNT]);
		ok(rc || (t.values[PPA_PRMPTCTXTCNT] >= YIELDS / 4 &&
			  t.values[PPA_PRMPTPRICNT] < YIELDS / 4),
		   "4.4 sched_yield() of %s: its switches are not counted as preemptions",
		   abis[abi].name);
	}
	kill_child(other);
	close(dev);
	ppa_write(SETTINGS, "0 0 0 1");
}

/* /dev/perftrace refuses the calls of x32 programs, whose pointers have 32 bits. */
static void test_x32_ioctl(void)
{
	const char *name = "3.7 x32: PERFTRACE_ATTACH is EOPNOTSUPP";
	struct perftrace_attach attach = { .size = sizeof(attach) };
	int fd = open("/dev/perftrace", O_RDWR | O_CLOEXEC);
	long ret = syscall(X32_BIT | 514, fd, PERFTRACE_ATTACH, &attach);

	if (ret == -1 && errno == ENOSYS)
		skip(name, "the kernel has no x32 calls");
	else
		is(ret == -1 ? -errno : ret, -EOPNOTSUPP, name);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		for (int abi = 0; abi < NR_ABIS; abi++)
			make_call(abi, abis[abi].getpid);
		return make_call(0, 9999) != -1;
	}
	trace_load();
	load_module("ppa");
	bail_if(chdir("/tmp"), "chdir");
	plan(6 + 6 + 3 + 1);
	pin_to_cpu(0);
	test_events();
	test_names();
	test_yields();
	test_x32_ioctl();
	rmmod("test_driver");
	return finish();
}
