// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake pmu-amd2
 * gate: pmu-skylake
 * timeout: 120
 *
 * Permissions of /dev/perfmon: each cell of the table in Documentation/perfmon.md. Each attempt is
 * made by a child that has the credentials of its column.
 */
#include "capabilities.h"
#include "perfmon.h"
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static const struct pmu_model *m;

enum who {
	NOBODY,		/* another user than root, without capabilities */
	CAPABLE,	/* that user with CAP_PERFMON */
	TRACER,		/* that user with CAP_SYS_PTRACE */
	INSIDE,		/* root of a user namespace, without capabilities outside */
	ROOT,
	NR_WHO,
};

static const char * const names[NR_WHO] = {
	"a user", "a user with CAP_PERFMON",
	"a user with CAP_SYS_PTRACE", "root of a user namespace", "root",
};

static void become(int user)
{
	prctl(PR_SET_KEEPCAPS, 1);
	if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))
		_exit(97);
}

static void part(enum who who)
{
	switch (who) {
	case NOBODY:
		become(1000);
		drop_capabilities_except(-1);
		break;
	case CAPABLE:
		become(1000);
		drop_capabilities_except(CAP_PERFMON);
		break;
	case TRACER:
		become(1000);
		drop_capabilities_except(CAP_SYS_PTRACE);
		break;
	case INSIDE:
		become(1000);
		drop_capabilities_except(-1);
		if (unshare(CLONE_NEWUSER))
			_exit(96);
		break;
	default:
		break;
	}
	/*
	 * A change of user makes a process undumpable. A program that a user has started is
	 * dumpable.
	 */
	prctl(PR_SET_DUMPABLE, 1);
}

/* Calls @try in a child with these credentials. Returns 0 or a negative errno. */
static int as(enum who who, int (*try)(pid_t whom), pid_t whom)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		part(who);
		_exit(-try(whom));
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -999;
}

/* Forks a process that sleeps. Without capabilities, unless @user is 0. */
static pid_t somebody(int user, bool dumpable)
{
	int ready[2];
	pid_t child;
	char byte;

	if (pipe(ready))
		bail("pipe");
	child = fork();
	if (!child) {
		if (user)
			become(user);
		if (user)
			drop_capabilities_except(-1);
		prctl(PR_SET_DUMPABLE, dumpable);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	if (read(ready[0], &byte, 1) != 1)
		bail("somebody");
	close(ready[0]);
	close(ready[1]);
	return child;
}

static int try_load(pid_t whom)
{
	int fd = pfm_create(0);

	if (fd < 0)
		return fd;
	pfm_write_pmc(fd, 0, pfm_instructions(m));
	return pfm_load(fd, whom ?: (pid_t)this_thread());
}

/* A context that would stop the thread at each overflow. */
static int try_blocking(pid_t whom)
{
	int fd = pfm_create(PFM_FL_NOTIFY_BLOCK);

	return fd < 0 ? fd : pfm_load(fd, whom);
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
	return pfm_write_pmc(pfm_create(0), 0, pfm_instructions(m) | PFM_KERNEL);
}

/* Writes of reserved bits are ignored: the counter counts as it does without them. */
static int try_reserved(pid_t unused)
{
	int fd = pfm_create(0);
	__u64 a, b;

	pfm_write_pmc(fd, 0, pfm_instructions(m) | 1ULL << 19 | 1ULL << 20 | 0xffULL << 40);
	if (pfm_load(fd, this_thread()))
		return -1;
	a = pfm_spin(fd, 0, 1000);
	b = pfm_spin(fd, 0, 101000);
	return b - a == 200000 ? 0 : -2;
}

struct row {
	const char *what;
	int (*try)(pid_t whom);
	pid_t whom;
	int want[NR_WHO];
};

static void matrix(void)
{
	pid_t same = somebody(1000, true), hidden = somebody(1000, false);
	pid_t stranger = somebody(1001, true), root = somebody(0, true);
	struct row rows[] = {
		{ "counting its own thread", try_load, 0, { 0, 0, 0, 0, 0 } },
		{ "counting a process of its user", try_load, same, { 0, 0, 0, -EPERM, 0 } },
		{ "counting an undumpable process of its user",
		  try_load, hidden, { -EPERM, 0, 0, -EPERM, 0 } },
		{ "counting another user's process",
		  try_load, stranger, { -EPERM, 0, 0, -EPERM, 0 } },
		{ "counting root's process", try_load, root, { -EPERM, 0, 0, -EPERM, 0 } },
		{ "blocking a process of its user", try_blocking, same, { 0, 0, 0, -EPERM, 0 } },
		{ "blocking an undumpable process of its user", try_blocking, hidden,
		  { -EPERM, -EPERM, 0, -EPERM, 0 } },
		{ "blocking another user's process", try_blocking, stranger,
		  { -EPERM, -EPERM, 0, -EPERM, 0 } },
		{ "blocking root's process", try_blocking, root, { -EPERM, -EPERM, 0, -EPERM, 0 } },
		{ "counting a kernel thread",
		  try_load, 2, { -EPERM, -EPERM, -EPERM, -EPERM, -EPERM } },
		{ "counting a CPU", try_cpu, 0, { -EPERM, 0, -EPERM, -EPERM, 0 } },
		{ "counting in kernel mode", try_kernel_mode, 0, { -EPERM, 0, -EPERM, -EPERM, 0 } },
		{ "writing reserved PMC bits", try_reserved, 0, { 0, 0, 0, 0, 0 } },
	};
	unsigned int i, who;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		for (who = 0; who < NR_WHO; who++)
			is(as(who, rows[i].try, rows[i].whom), rows[i].want[who],
			   "1.6 %s: %s is allowed or EPERM as documented",
			   names[who], rows[i].what);
	kill(same, SIGKILL);
	kill(hidden, SIGKILL);
	kill(stranger, SIGKILL);
	kill(root, SIGKILL);
	while (wait(NULL) > 0)
		;
}

/* Kernel mode is open to users with perf_event_paranoid 1, as for perf, and else to CAP_PERFMON. */
static void paranoia(void)
{
	static const char sysctl[] = "/proc/sys/kernel/perf_event_paranoid";
	char before[8];

	read_file(sysctl, before, sizeof(before));
	write_file(sysctl, "1");
	is(as(NOBODY, try_kernel_mode, 0), 0,
	   "1.6 perf_event_paranoid 1: a user may write a PMC that counts in kernel mode");
	write_file(sysctl, "2");
	is(as(NOBODY, try_kernel_mode, 0), -EPERM,
	   "1.6 perf_event_paranoid 2: a user's PMC that counts in kernel mode is EPERM");
	is(as(CAPABLE, try_kernel_mode, 0), 0,
	   "1.6 perf_event_paranoid 2: CAP_PERFMON may write a PMC that counts in kernel mode");
	write_file(sysctl, before);
}

/*
 * Path of a copy of this program, which a user executes: as an ordinary, set-uid or unreadable one.
 */
#define SECRET	"/tmp/perfmon_secret"

static void copy_self(mode_t mode)
{
	char buffer[65536];
	int from = open("/proc/self/exe", O_RDONLY), to;
	ssize_t n;

	unlink(SECRET);
	to = open(SECRET, O_WRONLY | O_CREAT | O_EXCL, 0700);
	while ((n = read(from, buffer, sizeof(buffer))) > 0)
		if (write(to, buffer, n) != n)
			bail("copy");
	close(from);
	if (fchmod(to, mode))
		bail("fchmod");
	close(to);
}

/*
 * Counts a user's process across exec of a program with that mode. If @ends, the context ends
 * there: nothing is counted after it, and PERFMON_START is ESRCH.
 */
static void exec_ends(mode_t mode, bool ends, const char *what)
{
	__u64 before, after;
	int out[2], in[2], fd, status;
	pid_t child;
	char byte;

	copy_self(mode);
	if (pipe(out) || pipe(in))
		bail("pipe");
	child = fork();
	if (!child) {
		become(1000);
		drop_capabilities_except(-1);
		dup2(out[0], 0);
		dup2(in[1], 1);
		if (read(0, &byte, 1) != 1)
			_exit(1);
		execl(SECRET, SECRET, "spin", NULL);
		_exit(1);
	}
	fd = pfm_create(0);
	pfm_write_pmc(fd, 0, pfm_instructions(m));
	if (pfm_load(fd, child) || pfm_start(fd))
		bail("load");
	if (write(out[1], "x", 1) != 1 || read(in[0], &byte, 1) != 1)
		bail("exec");
	before = pfm_read_pmd(fd, 0);
	if (write(out[1], "x", 1) != 1 || read(in[0], &byte, 1) != 1)
		bail("spin");
	after = pfm_read_pmd(fd, 0);
	if (!ok(ends ? before == after : after - before >= 2000000,
		"1.2 %s: count after the exec", what))
		note("%llu, %llu", before, after);
	is(pfm_start(fd), ends ? -ESRCH : 0, "1.2 %s: result of start", what);
	if (write(out[1], "x", 1) != 1)
		bail("write");
	waitpid(child, &status, 0);
	close(fd);
	close(out[0]);
	close(out[1]);
	close(in[0]);
	close(in[1]);
	unlink(SECRET);
}

/* Changes of a process that another process of the same user monitors. */
enum change { UNDUMPABLE, OTHER_USER, OTHER_SPACE, OTHER_PROGRAM };

static void be_other(enum change change)
{
	switch (change) {
	case UNDUMPABLE:
		prctl(PR_SET_DUMPABLE, 0);
		break;
	case OTHER_USER:
		if (setresuid(1001, 1001, 1001))
			_exit(95);
		/*
		 * Only the user ID is to differ: the change of user has made the process
		 * undumpable.
		 */
		prctl(PR_SET_DUMPABLE, 1);
		break;
	case OTHER_SPACE:
		if (unshare(CLONE_NEWUSER))
			_exit(96);
		break;
	case OTHER_PROGRAM:
		execl(SECRET, SECRET, "spin", NULL);
		_exit(94);
	}
}

static void step(int in, int out)
{
	char byte;

	if (write(out, "x", 1) != 1 || read(in, &byte, 1) != 1)
		_exit(1);
}

static void changing(int in, int out, enum change change, bool calls)
{
	char byte;

	if (read(in, &byte, 1) != 1)
		_exit(1);
	spin(1000000);
	step(in, out);
	dup2(in, 0);
	dup2(out, 1);
	be_other(change);
	/*
	 * Sleeps, so that the next context switch notices the change, unless a call is to notice
	 * it.
	 */
	if (!calls)
		sleep_ms(2);
	step(0, 1);
	spin(1000000);
	step(0, 1);
	_exit(0);
}

#define COUNTED		1	/* counted before the change */
#define TOLD		2
#define GONE		4
#define COUNTED_ON	8	/* counted after the change */
#define UNNOTICED	64	/* a call did not notice the change */

/*
 * Monitors a child that makes the change. Returns a mask of what was seen: COUNTED, TOLD (a message
 * arrived), GONE (PERFMON_START is ESRCH) and COUNTED_ON, or UNNOTICED. With @calls, the monitor
 * makes a call before the thread runs again.
 */
static int watcher(enum change change, bool calls)
{
	struct pollfd poll_fd = { .events = POLLIN };
	int there[2], back[2], fd, seen = 0;
	__u64 first, last;
	pid_t child;

	become(1000);
	drop_capabilities_except(CAP_SETUID);
	prctl(PR_SET_DUMPABLE, 1);
	if (pipe(there) || pipe(back))
		return -1;
	child = fork();
	if (!child)
		changing(there[0], back[1], change, calls);
	fd = pfm_create(0);
	poll_fd.fd = fd;
	pfm_write_pmc(fd, 0, pfm_instructions(m));
	if (pfm_load(fd, child) || pfm_start(fd))
		return -1;
	step(back[0], there[1]);
	first = pfm_read_pmd(fd, 0);
	seen |= first >= 2000000 ? COUNTED : 0;
	step(back[0], there[1]);
	if (calls)
		pfm_read_pmd(fd, 0);
	if (calls && change < OTHER_SPACE && poll(&poll_fd, 1, 0) != 1)
		return UNNOTICED;
	step(back[0], there[1]);
	/*
	 * A worker checks the permission, so the message takes some time. Where none is expected,
	 * the test waits for 500 ms.
	 */
	seen |= poll(&poll_fd, 1, change < OTHER_SPACE ? 30000 : 500) == 1 ? TOLD : 0;
	last = pfm_read_pmd(fd, 0);
	seen |= last - first >= 2000000 && (calls || change >= OTHER_SPACE) ? COUNTED_ON : 0;
	seen |= pfm_start(fd) == -ESRCH ? GONE : 0;
	if (write(there[1], "x", 1) != 1)
		return -1;
	waitpid(child, NULL, 0);
	return seen;
}

#define PROGRAMS	"200"

/*
 * A user makes calls all the time while another process of the user executes programs. During each
 * exec the kernel has the process undumpable for a moment, which must not end the context. Returns
 * 0 if the context is still attached at the end.
 */
static int caller(void)
{
	struct perfmon_status status = { 0 };
	struct pollfd there = { .events = POLLIN };
	int back[2], fd, rc;
	pid_t child;

	switch_user(1000, -1);
	if (pipe(back))
		return 1;
	child = fork();
	if (!child) {
		/* Waits until the context is loaded. */
		raise(SIGSTOP);
		dup2(back[1], 1);
		execl(SECRET, SECRET, "again", PROGRAMS, NULL);
		_exit(94);
	}
	waitpid(child, NULL, WUNTRACED);
	fd = pfm_create(0);
	pfm_write_pmc(fd, 0, pfm_instructions(m));
	if (pfm_load(fd, child) || pfm_start(fd))
		return 2;
	kill(child, SIGCONT);
	there.fd = back[0];
	while (!poll(&there, 1, 0))
		ioctl(fd, PERFMON_STATUS, &status);
	rc = pfm_start(fd);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return rc ? 3 : 0;
}

static void change_ends(enum change change, bool calls, int want, const char *what)
{
	int status = -1;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child)
		_exit(watcher(change, calls));
	waitpid(child, &status, 0);
	is(WIFEXITED(status) ? WEXITSTATUS(status) : -999, want, "9.3 monitored process %s%s", what,
	   calls ? ", with a call in between" : "");
}

static void changes(void)
{
	copy_self(0755);
	for (int calls = 0; calls < 2; calls++) {
		change_ends(UNDUMPABLE, calls, COUNTED | TOLD | GONE,
			    "becomes undumpable: context ends");
		change_ends(OTHER_USER, calls, COUNTED | TOLD | GONE,
			    "changes its user ID: context ends");
		change_ends(OTHER_SPACE, calls, COUNTED | COUNTED_ON,
			    "enters a user namespace: context continues");
		change_ends(OTHER_PROGRAM, calls, COUNTED | COUNTED_ON,
			    "executes a program: context continues");
	}
	is(in_child(_exit(caller())), 0,
	   "9.3 " PROGRAMS " programs executed, with a call at each moment: context continues");
	unlink(SECRET);
}

/* Executes this program @nr more times. The last one writes a byte and sleeps. */
static int again(const char *nr)
{
	char less[12];

	snprintf(less, sizeof(less), "%d", atoi(nr) - 1);
	if (atoi(nr))
		execl(SECRET, SECRET, "again", less, NULL);
	if (write(1, "x", 1) != 1)
		return 1;
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	char byte;

	if (argc > 1 && !strcmp(argv[1], "spin")) {
		/* Reports that it runs, spins after one byte, and exits after another. */
		if (write(1, "x", 1) != 1 || read(0, &byte, 1) != 1)
			return 1;
		spin(1000000);
		if (write(1, "x", 1) != 1 || read(0, &byte, 1) != 1)
			return 1;
		return 0;
	}
	if (argc > 2 && !strcmp(argv[1], "again"))
		return again(argv[2]);
	m = guest_model();
	plan(13 * NR_WHO + 3 + 6 + 8 + 1);
	pfm_load_modules(m);
	if (chmod("/dev/perfmon", 0666) || chmod("/tmp", 01777))
		bail("chmod");
	matrix();
	paranoia();
	exec_ends(0755, false, "exec of an ordinary program, context continues");
	exec_ends(04755, true, "exec of a set-uid program, context ends");
	exec_ends(0711, true, "exec of a program that its user may not read, context ends");
	changes();
	return finish();
}
