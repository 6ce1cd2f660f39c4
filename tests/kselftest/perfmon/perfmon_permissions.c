// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake pmu-amd2
 * gate: pmu-skylake
 * timeout: 120
 *
 * Tests the table of permissions of /dev/perfmon in Documentation/perfmon.md, except the row about
 * lockdown (perfmon_lockdown.c). The rows of the table of permissions are actions, and the columns
 * are kinds of credentials. For each pair of an action and a kind of credentials, a child process
 * with these credentials tries the action.
 */
#include "capabilities.h"
#include "perfmon.h"
#include <poll.h>
#include <sys/stat.h>

static const struct pmu_model *model;

enum credentials {
	PLAIN_USER,		/* a user other than root, without capabilities */
	USER_CAP_PERFMON,	/* the plain user with CAP_PERFMON */
	USER_CAP_PTRACE,	/* the plain user with CAP_SYS_PTRACE */
	NAMESPACE_ROOT,		/* root of a user namespace, without capabilities outside */
	ROOT,
	NR_CREDENTIALS,
};

static const char * const names[NR_CREDENTIALS] = {
	"a user", "a user with CAP_PERFMON",
	"a user with CAP_SYS_PTRACE", "root of a user namespace", "root",
};

static void set_credentials(enum credentials cred)
{
	static const int capabilities[ROOT] = { -1, CAP_PERFMON, CAP_SYS_PTRACE, -1 };

	if (cred == ROOT)
		return;
	switch_user(1000, capabilities[cred]);
	exit_if(cred == NAMESPACE_ROOT && unshare(CLONE_NEWUSER), 96);
	/* unshare() makes the process undumpable. PR_SET_DUMPABLE makes it dumpable again. */
	prctl(PR_SET_DUMPABLE, 1);
}

/* Returns the result of @try: 0 or a negative errno. */
static int call_as(enum credentials cred, int (*try)(pid_t target), pid_t target)
{
	return -in_child(set_credentials(cred); _exit(-try(target)));
}

/* Forks a process of @user that sleeps. The process has no capabilities, unless @user is 0. */
static pid_t fork_target(int user, bool dumpable)
{
	int ready[2];
	pid_t child;
	char byte;

	bail_if(pipe(ready), "pipe");
	child = fork_child({
		if (user)
			switch_user(user, -1);
		prctl(PR_SET_DUMPABLE, dumpable);
		exit_if(write(ready[1], "x", 1) != 1, 1);
		pause_forever();
	});
	bail_if(read(ready[0], &byte, 1) != 1, "somebody");
	close(ready[0]);
	close(ready[1]);
	return child;
}

static int try_load(pid_t target)
{
	int fd = pfm_create(0);

	if (fd < 0)
		return fd;
	pfm_write_pmc(fd, 0, pfm_instructions(model));
	return pfm_load(fd, target ?: (pid_t)this_thread());
}

/* Loads a context that would stop the thread at each overflow. */
static int try_blocking(pid_t target)
{
	int fd = pfm_create(PFM_FL_NOTIFY_BLOCK);

	return fd < 0 ? fd : pfm_load(fd, target);
}

static int try_cpu(pid_t unused)
{
	int fd = pfm_create(PFM_FL_SYSTEM_WIDE);

	if (fd < 0)
		return fd;
	pin_to_cpu(0);
	return pfm_load(fd, 0);
}

static int try_kernel_mode(pid_t unused)
{
	return pfm_write_pmc(pfm_create(0), 0, pfm_instructions(model) | PFM_KERNEL);
}

/* The counter must count as it does without the reserved bits. */
static int try_reserved(pid_t unused)
{
	int fd = pfm_create(0);
	__u64 a, b;

	pfm_write_pmc(fd, 0, pfm_instructions(model) | 1ULL << 19 | 1ULL << 20 | 0xffULL << 40);
	if (pfm_load(fd, this_thread()))
		return -1;
	a = pfm_spin(fd, 0, 1000);
	b = pfm_spin(fd, 0, 101000);
	return b - a == 200000 ? 0 : -2;
}

struct row {
	const char *what;
	int (*try)(pid_t target);
	pid_t target;
	int want[NR_CREDENTIALS];
};

static void test_matrix(void)
{
	pid_t same_user = fork_target(1000, true), hidden = fork_target(1000, false);
	pid_t other_user = fork_target(1001, true), root = fork_target(0, true);
	struct row rows[] = {
		{ "counting its own thread", try_load, 0, { 0, 0, 0, 0, 0 } },
		{ "counting a process of its user", try_load, same_user, { 0, 0, 0, -EPERM, 0 } },
		{ "counting an undumpable process of its user",
		  try_load, hidden, { -EPERM, 0, 0, -EPERM, 0 } },
		{ "counting another user's process",
		  try_load, other_user, { -EPERM, 0, 0, -EPERM, 0 } },
		{ "counting root's process", try_load, root, { -EPERM, 0, 0, -EPERM, 0 } },
		{ "blocking a process of its user", try_blocking, same_user, { 0, 0, 0, -EPERM,
		  0 } },
		{ "blocking an undumpable process of its user", try_blocking, hidden,
		  { -EPERM, -EPERM, 0, -EPERM, 0 } },
		{ "blocking another user's process", try_blocking, other_user,
		  { -EPERM, -EPERM, 0, -EPERM, 0 } },
		{ "blocking root's process", try_blocking, root, { -EPERM, -EPERM, 0, -EPERM, 0 } },
		{ "counting a kernel thread",
		  try_load, 2, { -EPERM, -EPERM, -EPERM, -EPERM, -EPERM } },
		{ "counting a CPU", try_cpu, 0, { -EPERM, 0, -EPERM, -EPERM, 0 } },
		{ "counting in kernel mode", try_kernel_mode, 0, { -EPERM, 0, -EPERM, -EPERM, 0 } },
		{ "writing reserved PMC bits", try_reserved, 0, { 0, 0, 0, 0, 0 } },
	};
	unsigned int i, cred;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		for (cred = 0; cred < NR_CREDENTIALS; cred++)
			is(call_as(cred, rows[i].try, rows[i].target), rows[i].want[cred],
			   "1.6 %s: %s is allowed or EPERM as documented",
			   names[cred], rows[i].what);
	kill(same_user, SIGKILL);
	kill(hidden, SIGKILL);
	kill(other_user, SIGKILL);
	kill(root, SIGKILL);
	while (wait(NULL) > 0)
		;
}

/* As with perf, kernel mode needs CAP_PERFMON if perf_event_paranoid is 2 or more. */
static void test_paranoid(void)
{
	static const char sysctl[] = "/proc/sys/kernel/perf_event_paranoid";
	char before[8];

	read_file(sysctl, before, sizeof(before));
	write_file(sysctl, "1");
	is(call_as(PLAIN_USER, try_kernel_mode, 0), 0,
	   "1.6 perf_event_paranoid 1: a user may write a PMC that counts in kernel mode");
	write_file(sysctl, "2");
	is(call_as(PLAIN_USER, try_kernel_mode, 0), -EPERM,
	   "1.6 perf_event_paranoid 2: a user's PMC that counts in kernel mode is EPERM");
	is(call_as(USER_CAP_PERFMON, try_kernel_mode, 0), 0,
	   "1.6 perf_event_paranoid 2: CAP_PERFMON may write a PMC that counts in kernel mode");
	write_file(sysctl, before);
}

/* A copy of this program: ordinary, set-uid or unreadable. */
#define PROGRAM_COPY	"/tmp/perfmon_secret"

static void copy_self(mode_t mode)
{
	char buffer[65536];
	int from = open("/proc/self/exe", O_RDONLY), to;
	ssize_t n;

	unlink(PROGRAM_COPY);
	to = open(PROGRAM_COPY, O_WRONLY | O_CREAT | O_EXCL, 0700);
	while ((n = read(from, buffer, sizeof(buffer))) > 0)
		bail_if(write(to, buffer, n) != n, "copy");
	close(from);
	bail_if(fchmod(to, mode), "fchmod");
	close(to);
}

/*
 * Counts the instructions of a user's process before and after the process executes a program with
 * the file mode @mode. If @expect_end is set, the context must end at the exec: nothing is counted
 * after the exec, the count is marked with PERFMON_REGFL_SHORT, and PERFMON_START fails with ESRCH.
 */
static void test_exec(mode_t mode, bool expect_end, const char *what)
{
	__u64 before, after;
	int out[2], in[2], fd;
	pid_t child;
	char byte;

	copy_self(mode);
	bail_if(pipe(out) || pipe(in), "pipe");
	child = fork_child({
		switch_user(1000, -1);
		dup2(out[0], 0);
		dup2(in[1], 1);
		exit_if(read(0, &byte, 1) != 1, 1);
		execl(PROGRAM_COPY, PROGRAM_COPY, "spin", NULL);
		_exit(1);
	});
	fd = pfm_create_instructions(0, model);
	bail_if(pfm_load(fd, child) || pfm_start(fd), "load");
	bail_if(write(out[1], "x", 1) != 1 || read(in[0], &byte, 1) != 1, "exec");
	before = pfm_read_pmd(fd, 0);
	bail_if(write(out[1], "x", 1) != 1 || read(in[0], &byte, 1) != 1, "spin");
	after = pfm_read_pmd(fd, 0);
	if (!ok(expect_end ? before == after : after - before >= 2000000,
		"1.2 %s: count after the exec", what))
		note("%llu, %llu", before, after);
	is(pfm_pmd_flags(fd, 0), expect_end ? PERFMON_REGFL_SHORT : 0,
	   "9.6 %s: flag of a short count", what);
	is(pfm_start(fd), expect_end ? -ESRCH : 0, "1.2 %s: result of start", what);
	bail_if(write(out[1], "x", 1) != 1, "write");
	waitpid(child, NULL, 0);
	close(fd);
	close(out[0]);
	close(out[1]);
	close(in[0]);
	close(in[1]);
	unlink(PROGRAM_COPY);
}

/* Changes that a monitored process makes to itself. A process of the same user monitors it. */
enum change { UNDUMPABLE, OTHER_USER, OTHER_NAMESPACE, OTHER_PROGRAM };

static void apply_change(enum change change)
{
	switch (change) {
	case UNDUMPABLE:
		prctl(PR_SET_DUMPABLE, 0);
		break;
	case OTHER_USER:
		exit_if(setresuid(1001, 1001, 1001), 95);
		/* setresuid() also makes the process undumpable. */
		prctl(PR_SET_DUMPABLE, 1);
		break;
	case OTHER_NAMESPACE:
		exit_if(unshare(CLONE_NEWUSER), 96);
		break;
	case OTHER_PROGRAM:
		execl(PROGRAM_COPY, PROGRAM_COPY, "spin", NULL);
		_exit(94);
	}
}

static void sync_with_peer(int in, int out)
{
	char byte;

	exit_if(write(out, "x", 1) != 1 || read(in, &byte, 1) != 1, 1);
}

static void run_target(int in, int out, enum change change, bool monitor_calls)
{
	char byte;

	exit_if(read(in, &byte, 1) != 1, 1);
	spin(1000000);
	sync_with_peer(in, out);
	dup2(in, 0);
	dup2(out, 1);
	apply_change(change);
	/*
	 * The kernel notices a change of the monitored thread at the next context switch of the
	 * thread or at the next call on the context. If the monitoring process makes no calls, the
	 * monitored thread sleeps, which causes a context switch. If the monitoring process makes
	 * calls, the monitored thread does not sleep, so that the kernel can notice the change at a
	 * call.
	 */
	if (!monitor_calls)
		sleep_ms(2);
	sync_with_peer(0, 1);
	spin(1000000);
	sync_with_peer(0, 1);
	_exit(0);
}

/* Observations of a process while the process that it monitors changes itself (enum change). */
#define COUNTED		1	/* instructions were counted before the change */
#define MESSAGE		2	/* a message arrived after the change */
#define DETACHED	4	/* PERFMON_START fails with ESRCH after a process changed itself */
#define COUNTED_AFTER	8	/* instructions were counted after the change */
#define SHORT		16	/* the count has PERFMON_REGFL_SHORT */
#define UNNOTICED	64	/* no message is ready after the monitoring process made a call */

/*
 * Monitors a child that makes the change @change. Returns the observations of the monitor: a mask
 * of COUNTED, MESSAGE, DETACHED, COUNTED_AFTER and SHORT, or only UNNOTICED. Returns -1 after an
 * error. If @calls is set, the monitor makes a call before the thread runs again.
 */
static int monitor_change(enum change change, bool calls)
{
	struct pollfd poll_fd = { .events = POLLIN };
	int to_child[2], from_child[2], fd, seen = 0;
	__u64 first, last;
	pid_t child;

	switch_user(1000, CAP_SETUID);
	if (pipe(to_child) || pipe(from_child))
		return -1;
	child = fork_child(run_target(to_child[0], from_child[1], change, calls));
	fd = pfm_create(0);
	poll_fd.fd = fd;
	pfm_write_pmc(fd, 0, pfm_instructions(model));
	if (pfm_load(fd, child) || pfm_start(fd))
		return -1;
	sync_with_peer(from_child[0], to_child[1]);
	first = pfm_read_pmd(fd, 0);
	seen |= first >= 2000000 ? COUNTED : 0;
	sync_with_peer(from_child[0], to_child[1]);
	if (calls)
		pfm_read_pmd(fd, 0);
	if (calls && change < OTHER_NAMESPACE && poll(&poll_fd, 1, 0) != 1)
		return UNNOTICED;
	sync_with_peer(from_child[0], to_child[1]);
	/*
	 * A kernel worker checks whether the monitored process may still be monitored, so the
	 * message about the end of the context may be late. If no message is expected, the test
	 * waits for 500 ms.
	 */
	seen |= poll(&poll_fd, 1, change < OTHER_NAMESPACE ? 30000 : 500) == 1 ? MESSAGE : 0;
	last = pfm_read_pmd(fd, 0);
	seen |= last - first >= 2000000 && (calls || change >= OTHER_NAMESPACE) ? COUNTED_AFTER : 0;
	seen |= pfm_pmd_flags(fd, 0) == PERFMON_REGFL_SHORT ? SHORT : 0;
	seen |= pfm_start(fd) == -ESRCH ? DETACHED : 0;
	if (write(to_child[1], "x", 1) != 1)
		return -1;
	waitpid(child, NULL, 0);
	return seen;
}

#define NR_EXECS	"200"

/*
 * The monitoring process calls PERFMON_STATUS all the time, while the monitored child executes
 * NR_EXECS programs one after the other. During each exec the kernel makes the child undumpable for
 * a moment, which must not end the context. Returns 0 if the context is still attached after the
 * last exec.
 */
static int monitor_execs(void)
{
	struct perfmon_status status = { 0 };
	struct pollfd poll_fd = { .events = POLLIN };
	int from_child[2], fd, rc;
	pid_t child;

	switch_user(1000, -1);
	if (pipe(from_child))
		return 1;
	child = fork_child({
		/* Waits until the context is loaded. */
		raise(SIGSTOP);
		dup2(from_child[1], 1);
		execl(PROGRAM_COPY, PROGRAM_COPY, "again", NR_EXECS, NULL);
		_exit(94);
	});
	waitpid(child, NULL, WUNTRACED);
	fd = pfm_create_instructions(0, model);
	if (pfm_load(fd, child) || pfm_start(fd))
		return 2;
	kill(child, SIGCONT);
	poll_fd.fd = from_child[0];
	while (!poll(&poll_fd, 1, 0))
		ioctl(fd, PERFMON_STATUS, &status);
	rc = pfm_start(fd);
	kill_child(child);
	return rc ? 3 : 0;
}

static void test_change(enum change change, bool calls, int want, const char *what)
{
	is(in_child(_exit(monitor_change(change, calls))), want, "9.3 monitored process %s%s", what,
	   calls ? ", with a call in between" : "");
}

static void test_changes(void)
{
	copy_self(0755);
	for (int calls = 0; calls < 2; calls++) {
		test_change(UNDUMPABLE, calls, COUNTED | MESSAGE | DETACHED | SHORT,
			    "becomes undumpable: context ends, count is short");
		test_change(OTHER_USER, calls, COUNTED | MESSAGE | DETACHED | SHORT,
			    "changes its user ID: context ends, count is short");
		test_change(OTHER_NAMESPACE, calls, COUNTED | COUNTED_AFTER,
			    "enters a user namespace: context continues");
		test_change(OTHER_PROGRAM, calls, COUNTED | COUNTED_AFTER,
			    "executes a program: context continues");
	}
	is(in_child(_exit(monitor_execs())), 0,
	   "9.3 " NR_EXECS " programs executed, with a call at each moment: context continues");
	unlink(PROGRAM_COPY);
}

/* Executes this program again, @nr times in a row. The last program writes a byte and sleeps. */
static int exec_again(const char *nr)
{
	if (atoi(nr))
		execl(PROGRAM_COPY, PROGRAM_COPY, "again", format_text("%d", atoi(nr) - 1), NULL);
	if (write(1, "x", 1) != 1)
		return 1;
	pause_forever();
}

int main(int argc, char **argv)
{
	char byte;

	if (argc > 1 && !strcmp(argv[1], "spin")) {
		/*
		 * Writes a byte to report that the program runs, reads a byte and spins, then
		 * writes another byte, reads another byte and exits.
		 */
		if (write(1, "x", 1) != 1 || read(0, &byte, 1) != 1)
			return 1;
		spin(1000000);
		if (write(1, "x", 1) != 1 || read(0, &byte, 1) != 1)
			return 1;
		return 0;
	}
	if (argc > 2 && !strcmp(argv[1], "again"))
		return exec_again(argv[2]);
	model = guest_model();
	plan(13 * NR_CREDENTIALS + 3 + 9 + 8 + 1);
	pfm_load_modules(model);
	bail_if(chmod("/dev/perfmon", 0666) || chmod("/tmp", 01777), "chmod");
	test_matrix();
	test_paranoid();
	test_exec(0755, false, "exec of an ordinary program, context continues");
	test_exec(04755, true, "exec of a set-uid program, context ends");
	test_exec(0711, true, "exec of a program that its user may not read, context ends");
	test_changes();
	return finish();
}
