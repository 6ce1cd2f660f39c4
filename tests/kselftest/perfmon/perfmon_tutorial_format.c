// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: plain
 * timeout: 120
 *
 * Tests the sampling format of Documentation/format-tutorial.md and the example program of that
 * page. The tutorial's format counts the samples of each CPU. When the format's buffer is full, the
 * format queues a message, and takes no samples until a restart.
 */
#include "sampling.h"
#define main by_cpu
#include "../pfc/readme/by_cpu.c"
#undef main

static volatile __u64 *counts;

/* Spins on CPU @cpu until the thread has used @milliseconds of CPU time. */
static void spin_on(int cpu, __u64 milliseconds)
{
	__u64 end;

	pin_to_cpu(cpu);
	for (end = thread_ns() + milliseconds * MS; thread_ns() < end;)
		spin(10000);
}

static void test_program(void)
{
	unsigned long long samples, first, second, sum = 0;
	char text[200] = "", *line;
	int out = open("/tmp/by_cpu", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int lines = 0;

	is(in_child(dup2(out, 1); _exit(by_cpu() || fflush(stdout))), 0,
	   "1.9 tutorial: its program runs");
	read_file("/tmp/by_cpu", text, sizeof(text));
	close(out);
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (sscanf(line, "%llu samples: %llu %llu", &samples, &first, &second) != 3 ||
		    samples != 50)
			break;
		sum += first + second;
		lines++;
	}
	if (!ok(lines == 3 && sum == 150,
		"1.9 tutorial: its program counts 50 samples three times"))
		note("%d lines, %llu", lines, sum);
}

int main(void)
{
	__u64 full = 0;
	struct pfarg_ovfl_msg msg;
	int fd;

	plan(21);
	write_file("/proc/sys/kernel/modprobe", "\n");
	insmod_each("perfcounters perfmon pfm_soft");
	/* An earlier test may have left tutorial_format loaded. */
	rmmod("tutorial_format");
	is(pfm_create_format(0, "by-cpu", &full, sizeof(full)), -ENOENT,
	   "1.9 tutorial: create is ENOENT before its module is loaded");
	is(insmod("tutorial_format", ""), 0, "1.9 tutorial: its module loads");
	test_program();
	is(pfm_create_format(0, "by-cpu", &full, sizeof(full)), -EINVAL,
	   "1.9 tutorial: layout() refuses an argument of 0 with EINVAL");
	full = 200;
	is(pfm_create_format(0, "by-cpu", &full, 4), -EINVAL,
	   "1.9 tutorial: an argument of 4 bytes is EINVAL");
	fd = pfm_create_format(0, "by-cpu", &full, sizeof(full));
	counts = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	bail_if(!ok(fd >= 0 && counts != MAP_FAILED,
		    "1.9 tutorial: a context is created and its buffer mapped"), "create");
	is(map_error(fd, 8192, PROT_READ, MAP_SHARED, 0), -EINVAL,
	   "1.9 tutorial: a mapping of two pages is refused");
	is(map_error(fd, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 0), -EACCES,
	   "1.9 tutorial: a writable mapping is refused");
	ok(counts[0] == 2 && counts[1] == full && !counts[2] && !counts[3] && !counts[4],
	   "1.9 tutorial: the buffer has the values of init()");
	is(rmmod("tutorial_format"), -EWOULDBLOCK,
	   "1.9 tutorial: rmmod is EWOULDBLOCK while a context uses the format");
	pfm_period(fd, PERFMON_TASK_CLOCK, MS, PFM_REGFL_OVFL_NOTIFY);
	is(pfm_load(fd, this_thread()), 0, "1.9 tutorial: load succeeds");
	pfm_start(fd);
	spin_on(0, 40);
	spin_on(1, 40);
	pfm_stop(fd);
	ok(counts[3] && counts[4] && counts[3] + counts[4] == counts[2],
	   "1.9 tutorial: samples are counted for both CPUs");
	ok(!pfm_read_message(fd, &msg, 0), "1.15 tutorial: no message before the buffer is full");
	pfm_start(fd);
	while (counts[2] < full)
		spin_on(1, 10);
	ok(pfm_read_message(fd, &msg, 1000) && msg.msg_type == PFM_MSG_OVFL,
	   "1.15 tutorial: a message when the buffer is full");
	spin_on(1, 40);
	is(counts[2], full, "1.8 tutorial: nothing is sampled while the buffer is full");
	ok(!pfm_read_message(fd, &msg, 0),
	   "1.15 tutorial: one message only while the buffer is full");
	is(pfm_restart(fd), 0, "1.8 tutorial: restart succeeds");
	ok(counts[2] < full, "1.8 tutorial: restart empties the buffer");
	spin_on(1, 40);
	ok(counts[4] && !counts[3],
	   "1.9 tutorial: samples after the restart are counted for CPU 1 only");
	munmap((void *)counts, 4096);
	close(fd);
	is(rmmod("tutorial_format"), 0, "1.9 tutorial: rmmod succeeds");
	return finish();
}
