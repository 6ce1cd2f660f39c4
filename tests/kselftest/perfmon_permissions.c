// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock debug
 * guest: pmu-skylake pmu-amd2
 * gate: pmu-skylake
 * timeout: 120
 *
 * Who may watch whom: each cell of the table in Documentation/perfmon.md. A child
 * takes a part in each try: who asks, who is asked for.
 */
#include "perfmon.h"
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static const struct pmu_model *m;

enum who {
	NOBODY,		/* another user than root, without capabilities */
	CAPABLE,	/* the same with CAP_PERFMON */
	TRACER,		/* the same with CAP_SYS_PTRACE */
	INSIDE,		/* root of a user namespace, without rights outside */
	ROOT,
	NR_WHO,
};

static const char * const names[NR_WHO] = {
	"another user", "CAP_PERFMON", "CAP_SYS_PTRACE", "root of a user namespace", "root",
};

static void keep(int capability)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (capability >= 0) {
		data[capability / 32].effective = 1u << capability % 32;
		data[capability / 32].permitted = 1u << capability % 32;
	}
	if (syscall(SYS_capset, &header, data))
		_exit(98);
}

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
		keep(-1);
		break;
	case CAPABLE:
		become(1000);
		keep(CAP_PERFMON);
		break;
	case TRACER:
		become(1000);
		keep(CAP_SYS_PTRACE);
		break;
	case INSIDE:
		become(1000);
		keep(-1);
		if (unshare(CLONE_NEWUSER))
			_exit(96);
		break;
	default:
		break;
	}
	/* A change of user makes a process undumpable, as a set-uid program is. */
	prctl(PR_SET_DUMPABLE, 1);
}

/* What a child gets that plays this part: an errno. */
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

/* A process that does nothing, as a user of its own choice. */
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
			keep(-1);
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

static int try_cpu(pid_t unused)
{
	int fd = pfm_create(PFM_FL_SYSTEM_WIDE);

	if (fd < 0)
		return fd;
	on_cpu(0);
	return pfm_load(fd, 0);
}

static int try_kernel_mode(pid_t unused)
{
	return pfm_write_pmc(pfm_create(0), 0, pfm_instructions(m) | PFM_KERNEL);
}

/* Bits that are reserved are ignored: the value is as good as without them. */
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
		{ "its own thread", try_load, 0, { 0, 0, 0, 0, 0 } },
		{ "a process of its user", try_load, same, { 0, 0, 0, -EPERM, 0 } },
		{ "one that is not dumpable", try_load, hidden, { -EPERM, 0, 0, -EPERM, 0 } },
		{ "another user's", try_load, stranger, { -EPERM, 0, 0, -EPERM, 0 } },
		{ "root's", try_load, root, { -EPERM, 0, 0, -EPERM, 0 } },
		{ "a kernel thread", try_load, 2, { -EPERM, -EPERM, -EPERM, -EPERM, -EPERM } },
		{ "a CPU", try_cpu, 0, { -EPERM, 0, -EPERM, -EPERM, 0 } },
		{ "kernel mode", try_kernel_mode, 0, { -EPERM, 0, -EPERM, -EPERM, 0 } },
		{ "reserved bits", try_reserved, 0, { 0, 0, 0, 0, 0 } },
	};
	unsigned int i, who;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		for (who = 0; who < NR_WHO; who++)
			is(as(who, rows[i].try, rows[i].whom), rows[i].want[who],
			   "1.6 %s watches %s", names[who], rows[i].what);
	kill(same, SIGKILL);
	kill(hidden, SIGKILL);
	kill(stranger, SIGKILL);
	kill(root, SIGKILL);
	while (wait(NULL) > 0)
		;
}

/* A copy of this program, that a user runs and that becomes root. */
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

/* A user's process is counted, and becomes a program with more rights. */
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
		keep(-1);
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
	if (!ok(ends ? before == after : after - before >= 2000000, "1.2 %s", what))
		note("%llu, %llu", before, after);
	is(pfm_start(fd), ends ? -ESRCH : 0, "1.2 %s: start", what);
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

int main(int argc, char **argv)
{
	char byte;

	if (argc > 1 && !strcmp(argv[1], "spin")) {
		/* Here; then work; then go. */
		if (write(1, "x", 1) != 1 || read(0, &byte, 1) != 1)
			return 1;
		spin(1000000);
		if (write(1, "x", 1) != 1 || read(0, &byte, 1) != 1)
			return 1;
		return 0;
	}
	m = this_model();
	plan(9 * NR_WHO + 6);
	pfm_load_modules(m);
	if (chmod("/dev/perfmon", 0666) || chmod("/tmp", 01777))
		bail("chmod");
	matrix();
	exec_ends(0755, false, "exec of an ordinary program is counted on");
	exec_ends(04755, true, "exec of a set-uid program ends it");
	exec_ends(0711, true, "exec of a program that its user may not read ends it");
	return finish();
}
