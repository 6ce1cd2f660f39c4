// SPDX-License-Identifier: GPL-2.0
/*
 * guest: probes
 * worlds: stock debug
 * timeout: 300
 *
 * Tests libperftrace while the module is loaded and unloaded. A program that has started before the
 * module is loaded is traced as soon as the wake file /run/perftrace/wake announces the device by
 * PERFTRACE_WAKE. If the program cannot attach then, it is traced after the next announcement in
 * the wake file. Running programs close the device on PERFTRACE_RELEASE, so that the module can be
 * unloaded. When the module is loaded again, the running programs are traced again.
 * PERFTRACE_RELEASE needs CAP_SYS_MODULE.
 */
#include "perftrace.h"
#include "perftrace_wake.h"
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/resource.h>

#define USER		1000
#define PROGRAMS	6

/*
 * Kinds of traced programs. A BUSY program writes an event each millisecond, and a FORKED program
 * does so in a child of fork(). An IDLE program sleeps in epoll_wait() and writes an event only
 * after the test has woken it. A LOCKED program is an IDLE program that has called mlockall(). A
 * HIDDEN program is a BUSY program whose mount namespace has an empty /dev. A LIMITED program is a
 * BUSY program that may not open any file.
 */
enum { BUSY, FORKED, IDLE, LOCKED, HIDDEN, LIMITED };

/*
 * @events counts the events of a program. @evaluated counts those events whose arguments the macro
 * has evaluated, because the marker was not off.
 */
static struct shared {
	struct {
		pid_t pid, first;
		__u64 events, evaluated;
		int ready, interrupted, poked;
	} programs[PROGRAMS];
	int stop;
} *shared;

static void write_event_of(int n)
{
	PERFTRACE(late, event, (u32, program, n),
		  (u64, number, __atomic_fetch_add(&shared->programs[n].evaluated, 1,
						   __ATOMIC_RELAXED)));
	__atomic_add_fetch(&shared->programs[n].events, 1, __ATOMIC_RELAXED);
}

static void run_busy(int n)
{
	while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
		write_event_of(n);
		usleep(1000);
	}
	_exit(0);
}

static void run_idle(int n)
{
	struct epoll_event got;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
		if (epoll_wait(fd, &got, 1, shared->programs[n].poked ? 1 : 2000) < 0)
			shared->programs[n].interrupted = errno;
		if (shared->programs[n].poked)
			write_event_of(n);
	}
	_exit(0);
}

static void hide_device(void)
{
	exit_if(unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		mount("none", "/dev", "tmpfs", 0, NULL), 96);
}

static void limit_files(pid_t pid, rlim_t max)
{
	struct rlimit limit;

	bail_if(prlimit(pid, RLIMIT_NOFILE, NULL, &limit), "prlimit");
	limit.rlim_cur = max;
	bail_if(prlimit(pid, RLIMIT_NOFILE, &limit, NULL), "prlimit");
}

static void run_program(int n)
{
	shared = perftrace_map_inherited(sizeof(*shared));
	if (n == FORKED && fork())
		pause();
	exit_if(n == LOCKED && mlockall(MCL_FUTURE), 97);
	if (n == HIDDEN)
		hide_device();
	if (n == LIMITED)
		limit_files(getpid(), 0);
	shared->programs[n].pid = getpid();
	shared->programs[n].ready = 1;
	if (n == IDLE || n == LOCKED)
		run_idle(n);
	run_busy(n);
}

static void start_program(int n)
{
	char name[] = { '0' + n, 0 };

	shared->programs[n].first = perftrace_spawn(name);
	wait_until(__atomic_load_n(&shared->programs[n].ready, __ATOMIC_ACQUIRE));
}

/* Number of records that were read, by program. */
static __u64 nr_records[PROGRAMS];

static void add_record(const struct perftrace_record *record, __u32 cpu)
{
	const __u32 *fields = (const void *)(record + 1);

	if (record->marker < PERFTRACE_LOST && record->words == 4 && fields[0] < PROGRAMS)
		nr_records[fields[0]]++;
}

/* Waits for an event of program @n. Returns true if the trace contains an event of this program. */
static bool is_seen(int fd, int n)
{
	memset(nr_records, 0, sizeof(nr_records));
	wait_until((perftrace_drain(fd, add_record), nr_records[n]));
	return nr_records[n];
}

static int release_on(int fd, int wake, __u32 flags, __u32 size, __u32 *left)
{
	struct perftrace_release release = { size, flags, wake, 77 };
	int rc = trace_ioctl(fd, PERFTRACE_RELEASE, &release);

	*left = release.left;
	return rc;
}

/*
 * Calls PERFTRACE_RELEASE on a new file, then closes the file. If PERFTRACE_RELEASE reports that
 * processes still use the device, closing the file cancels the release.
 */
static int release_with(int wake, __u32 flags, __u32 size)
{
	int fd = open_trace_device(), rc;
	__u32 left;

	rc = release_on(fd, wake, flags, size, &left);
	close(fd);
	return rc;
}

static int release_file(const char *path, int how)
{
	int fd = open(path, how | O_CLOEXEC), rc;

	bail_if(fd < 0, path);
	rc = release_with(fd, 0, sizeof(struct perftrace_release));
	close(fd);
	return rc;
}

static int resume(void)
{
	return release_with(-1, PERFTRACE_RESUME, sizeof(struct perftrace_release));
}

/*
 * Repeats PERFTRACE_RELEASE for some seconds, until at most @max processes still use the device.
 * Returns the number of processes that use the device after the last PERFTRACE_RELEASE, or a
 * negative errno.
 */
static int release_all(__u32 max)
{
	int wake = open(WAKE_FILE, O_RDONLY | O_CLOEXEC), fd = open_trace_device(), rc;
	__u32 left = 0;

	for (int i = 0; i < 5000; i++) {
		rc = release_on(fd, wake, 0, sizeof(struct perftrace_release), &left);
		if (rc || left <= max)
			break;
		usleep(1000);
	}
	close(fd);
	close(wake);
	return rc ? rc : (int)left;
}

static int as_user(void)
{
	return in_child({
		exit_if(setresgid(USER, USER, USER) || setresuid(USER, USER, USER), 99);
		_exit(-release_with(-1, 0, sizeof(struct perftrace_release)));
	});
}

/* The last files and the task work of the programs may still be there for a second. */
static int rmmod_soon(void)
{
	int rc = -EBUSY;

	for (int i = 0; i < 1000 && rc; i++) {
		usleep(1000);
		rc = rmmod("perftrace");
	}
	return rc;
}

/* Unmounts the empty /dev of the HIDDEN program. */
static void show_device(void)
{
	int rc;
	const char *path = format_text("/proc/%d/ns/mnt", shared->programs[HIDDEN].pid);

	rc = in_child({
		exit_if(setns(open(path, O_RDONLY | O_CLOEXEC), CLONE_NEWNS) ||
			umount2("/dev", MNT_DETACH), 1);
	});
	bail_if(rc, "umount of /dev");
}

/*
 * Tests a program that cannot attach when the device is announced. The program's first event tries
 * to attach the program. After this attempt has failed, the program's marker is off.
 */
static void test_cannot_attach(int n, const char *why)
{
	__u64 *events = &shared->programs[n].events, *evaluated = &shared->programs[n].evaluated;
	__u64 before;

	wait_until(__atomic_load_n(evaluated, __ATOMIC_RELAXED));
	before = __atomic_load_n(events, __ATOMIC_RELAXED);
	wait_until(__atomic_load_n(events, __ATOMIC_RELAXED) > before + 20);
	is(__atomic_load_n(evaluated, __ATOMIC_RELAXED), 1,
	   "3.8 late attach, %s: the arguments of one event are evaluated", why);
}

static void test_started_before_module(void)
{
	int slot, fd;

	for (int n = BUSY; n <= FORKED; n++)
		start_program(n);
	start_program(HIDDEN);
	start_program(LIMITED);
	trace_load();
	fd = trace_create("late", "late:*", 0, 0, &slot);
	usleep(50000);
	perftrace_drain(fd, add_record);
	is(nr_records[BUSY] + nr_records[FORKED], 0,
	   "3.8 late attach: programs that started before the module are not traced at once");
	write_wake_file(PERFTRACE_WAKE | 1 << 16);
	ok(is_seen(fd, BUSY), "3.8 late attach: a program is traced after PERFTRACE_WAKE is set");
	ok(is_seen(fd, FORKED),
	   "3.8 late attach: a child of fork() is traced after PERFTRACE_WAKE is set");
	test_cannot_attach(HIDDEN, "/dev without the device");
	test_cannot_attach(LIMITED, "no free descriptor");
	show_device();
	limit_files(shared->programs[LIMITED].pid, 1024);
	bail_if(system("pfc trace arm"), "pfc trace arm");
	ok(is_seen(fd, HIDDEN),
	   "3.8 late attach, device in /dev again: traced after the next pfc trace arm");
	ok(is_seen(fd, LIMITED),
	   "3.8 late attach, free descriptors again: traced after the next pfc trace arm");
	start_program(IDLE);
	is(release_all(0), -EBUSY, "3.8 release: EBUSY while there is a trace");
	is(trace_ioctl(fd, PERFTRACE_END, NULL), 0,
	   "3.11 end: the trace that delays the release ends");
	close(fd);
}

static void test_release_errors(void)
{
	char path[] = "/tmp/shortXXXXXX";
	const __u32 size = sizeof(struct perftrace_release);
	int fd = mkstemp(path), pipe_fds[2];

	is(as_user(), EPERM, "9.3 release: a user without CAP_SYS_MODULE gets EPERM");
	is(release_with(-1, 0, size - 1), -EINVAL, "3.8 release: another structure size is EINVAL");
	is(release_with(-1, 2, size), -EINVAL, "3.8 release: an unknown flag is EINVAL");
	is(release_with(fd, PERFTRACE_RESUME, size), -EINVAL,
	   "3.8 resume: with a wake file is EINVAL");
	is(release_with(-2, 0, size), -EBADF, "3.8 release: wake descriptor -2 is EBADF");
	is(release_file(WAKE_FILE, O_RDWR), -EINVAL,
	   "3.8 release: a wake file that is open for writing is EINVAL");
	bail_if(ftruncate(fd, PERFTRACE_READ_BYTES - 1), "ftruncate");
	is(release_file(path, O_RDONLY), -EINVAL,
	   "9.4 release: a wake file that is one byte too short is EINVAL");
	is(release_file("/tmp", O_RDONLY), -EINVAL,
	   "3.8 release: a directory as wake file is EINVAL");
	is(release_file(DEVICE, O_RDONLY), -EINVAL,
	   "3.8 release: the device as wake file is EINVAL");
	bail_if(pipe(pipe_fds), "pipe");
	is(release_with(pipe_fds[0], 0, size), -EINVAL,
	   "3.8 release: a pipe as wake file is EINVAL");
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	close(fd);
	unlink(path);
}

static void test_release(void)
{
	struct perftrace_create create = make_trace("none", "", 0, 0);
	struct perftrace_attach attach;
	__u64 before;
	int fd;

	write_wake_file(0);
	is(release_all(0), 0, "3.8 release: all programs let go of the device");
	fd = open_trace_device();
	is(try_attach(fd, 0, &attach), -ENODEV, "3.8 release: attaching is ENODEV afterwards");
	close(fd);
	is(try_open_trace(PERFTRACE_CREATE, &create), -ENODEV,
	   "3.8 release: creating a trace is ENODEV afterwards");
	is(resume(), 0, "3.8 resume: succeeds after all programs have let go");
	fd = open_trace_device();
	is(try_attach(fd, 0, &attach), 0, "3.8 resume: a process can attach again");
	close(fd);
	is(release_all(0), 0, "3.8 release: all programs let go after a resume, too");
	is(rmmod_soon(), 0, "1.1 rmmod: perftrace.ko unloads while programs with markers run");
	before = __atomic_load_n(&shared->programs[BUSY].events, __ATOMIC_RELAXED);
	usleep(100000);
	ok(__atomic_load_n(&shared->programs[BUSY].events, __ATOMIC_RELAXED) > before,
	   "3.8 release: a busy program keeps running after rmmod");
	ok(!kill(shared->programs[IDLE].pid, 0),
	   "3.8 release: a sleeping program keeps running after rmmod");
	is(shared->programs[IDLE].interrupted, EINTR,
	   "3.8 release: epoll_wait() of the sleeping program returned EINTR");
}

static void test_next_module(void)
{
	int slot, fd;

	trace_load();
	fd = trace_create("again", "late:*", 0, 0, &slot);
	shared->programs[IDLE].poked = 1;
	write_wake_file(PERFTRACE_WAKE | 3 << 16);
	for (int n = BUSY; n < IDLE; n++)
		ok(is_seen(fd, n), "3.8 reload: program %d is traced by the next module", n);
	ok(is_seen(fd, IDLE), "3.8 reload: a sleeping program is traced at its next event");
	write_wake_file(0);
	trace_end(fd);
}

static void test_not_released(void)
{
	int slot, fd;

	kill(shared->programs[BUSY].pid, SIGSTOP);
	start_program(LOCKED);
	is(release_all(2), 2,
	   "3.8 release: a stopped program and one with locked memory remain attached");
	is(rmmod("test_driver"), 0,
	   "1.1 rmmod: test_driver.ko unloads while programs are attached");
	is(rmmod("perftrace"), -EAGAIN,
	   "1.1 rmmod: perftrace.ko is EAGAIN while programs are attached");
	is(resume(), 0, "3.8 resume: succeeds while programs are still attached");
	kill(shared->programs[BUSY].pid, SIGCONT);
	fd = trace_create("stays", "late:*", 0, 0, &slot);
	ok(is_seen(fd, BUSY), "3.8 resume: a program that was still attached is still traced");
	write_wake_file(PERFTRACE_WAKE | 4 << 16);
	ok(is_seen(fd, FORKED),
	   "3.8 resume: a program that had let go is traced again after PERFTRACE_WAKE");
	trace_end(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		run_program(argv[1][0] - '0');
	restart_untraced(argv);
	plan(38);
	shared = perftrace_map_shared(sizeof(*shared));
	unload_modules();
	write_wake_file(0);
	test_started_before_module();
	test_release_errors();
	test_release();
	test_next_module();
	test_not_released();
	shared->stop = 1;
	for (int n = 0; n < PROGRAMS; n++) {
		kill(shared->programs[n].pid, SIGKILL);
		kill(shared->programs[n].first, SIGKILL);
	}
	while (wait(NULL) > 0)
		;
	unlink(WAKE_FILE);
	return finish();
}
