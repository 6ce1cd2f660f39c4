// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * guest: pmu-skylake
 *
 * When a user calls PERFMON_LOAD, the kernel must make no audited check of a capability that the
 * call does not need, because a security module would log each denied check. A kprobe at
 * security_capable() counts the audited checks of CAP_SYS_ADMIN and CAP_PERFMON.
 */
#include "capabilities.h"
#include "perfmon.h"
#include <sys/stat.h>

#define TRACING	"/sys/kernel/tracing/"
#define KPROBE_EVENT	TRACING "events/kprobes/pcaudit/"

/* The option CAP_OPT_NOAUDIT of security_capable() is bit 1 of opts. */
static const char kprobe_spec[] = "p:pcaudit security_capable cap=%dx:s32 opts=%cx:u32";

static void kprobe_start(void)
{
	char filter[120];

	write_file(TRACING "kprobe_events", kprobe_spec);
	snprintf(filter, sizeof(filter), "(cap == %d || cap == %d) && !(opts & 2)", CAP_SYS_ADMIN,
		 CAP_PERFMON);
	write_file(KPROBE_EVENT "filter", filter);
}

static void kprobe_stop(void)
{
	write_file(KPROBE_EVENT "enable", "0");
	write_file(TRACING "kprobe_events", "-:pcaudit");
}

static int count_audited(void)
{
	char line[400];
	FILE *f = fopen(TRACING "trace", "re");
	int nr = 0;

	while (f && fgets(line, sizeof(line), f))
		nr += line[0] != '#' && strstr(line, "pcaudit");
	if (f)
		fclose(f);
	return nr;
}

/* Forks a process of user @user that stops itself. Returns when the process has stopped. */
static pid_t fork_stopped(int user)
{
	pid_t child = fork_child({
		switch_user(user, -1);
		raise(SIGSTOP);
	});

	waitpid(child, NULL, WUNTRACED);
	return child;
}

static struct {
	volatile int step;
} *shared;

/*
 * Calls PERFMON_LOAD in a process of user 1000 and returns the result. The context has one hardware
 * register. The target of the context is the thread with ID @target, or the caller if @target is 0.
 * Only the PERFMON_LOAD call is traced.
 */
static int load_by_user(pid_t target)
{
	int status = -1;
	pid_t child;

	shared->step = 0;
	child = fork_child({
		int fd, rc;

		switch_user(1000, -1);
		fd = pfm_create(0);
		pfm_write_pmc(fd, 0, pfm_instructions(guest_model()));
		shared->step = 1;
		wait_until(shared->step == 2);
		rc = pfm_load(fd, target ?: (pid_t)this_thread());
		shared->step = 3;
		wait_until(shared->step == 4);
		_exit(-rc);
	});
	wait_until(shared->step == 1);
	close(open(TRACING "trace", O_WRONLY | O_TRUNC));
	write_file(KPROBE_EVENT "enable", "1");
	shared->step = 2;
	wait_until(shared->step == 3);
	write_file(KPROBE_EVENT "enable", "0");
	shared->step = 4;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -999;
}

int main(void)
{
	pid_t other;
	int fd;

	plan(8);
	pfm_load_modules(guest_model());
	bail_if(chmod("/dev/perfmon", 0666), "chmod");
	shared = map_memory(4096, MAP_SHARED);
	kprobe_start();
	is(load_by_user(0), 0, "9.3 PERFMON_LOAD of a user's own thread succeeds");
	is(count_audited(), 0, "9.3 PERFMON_LOAD of a user's own thread: no capability is audited");
	other = fork_stopped(1000);
	is(load_by_user(other), 0, "9.3 PERFMON_LOAD of another process of the user succeeds");
	is(count_audited(), 0,
	   "9.3 PERFMON_LOAD of another process of the user: no capability is audited");
	kill_child(other);
	/*
	 * The context of CPU 0 uses PMC (control register) 0. The PERFMON_LOAD in load_by_user()
	 * fails, because the user's context needs PMC 0 as well. If a register is in use, the
	 * module checks whether the caller is an administrator, who may evict a user's context.
	 */
	pin_to_cpu(0);
	fd = pfm_create(PFM_FL_SYSTEM_WIDE);
	pfm_write_pmc(fd, 0, pfm_instructions(guest_model()));
	bail_if(pfm_load(fd, 0), "load of a CPU");
	is(load_by_user(0), -EBUSY, "9.3 PERFMON_LOAD with a register of a CPU's context: EBUSY");
	is(count_audited(), 0,
	   "9.3 PERFMON_LOAD with a register of a CPU's context: no capability is audited");
	/* Checks that the kprobe works: a refused PERFMON_CREATE is audited. */
	close(open(TRACING "trace", O_WRONLY | O_TRUNC));
	write_file(KPROBE_EVENT "enable", "1");
	is(in_child({ switch_user(1000, -1); _exit(-pfm_create(PFM_FL_SYSTEM_WIDE)); }), EPERM,
	   "9.3 PERFMON_CREATE of a CPU's context by a user: EPERM");
	ok(count_audited() > 0, "9.3 PERFMON_CREATE of a CPU's context by a user is audited");
	close(fd);
	kprobe_stop();
	return finish();
}
