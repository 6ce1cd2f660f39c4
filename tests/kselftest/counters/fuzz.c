// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 300
 *
 * Makes random calls on /dev/perfcounters and /dev/perfcounters_names, by root and by a user
 * without capabilities that inherits root's open files. Each call must return a plausible result,
 * or an errno that is defined for user space (1 to 133). No call may write to the counter pages or
 * keep perfcounters.ko from being unloaded afterwards. The seed is printed. The environment
 * variable SEED sets the seed, and CALLS sets the total number of calls of both users.
 *
 * readonly.c and bad_input.c test calls for which only one result is right.
 */
#include "kselftest_pc.h"
#include "random.h"
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

/* Number of calls of each of the two users in a long run. */
#define NR_CALLS	40000
#define ARENA	(64UL << 20)
/* Percent of the calls. With fewer, the fuzzer tests little more than the checks of arguments. */
#define MIN_SUCCEEDED	30

static int counters, names, pipe_fd[2];
static char *arena, text[1 << 16], buf[1 << 16];
static size_t text_len;
static unsigned long nr_good, nr_refused, nr_sigbus, nr_bad;
static sigjmp_buf fault_jmp;

/* Returns a number at or near a boundary such as 0 or 2^31, or any number. */
static __u64 boundary_number(void)
{
	static const __u64 edges[] = {
		0, 1, 7, 8, 4095, 4096, 4097, 8192, 1 << 20, 1ULL << 30, 1ULL << 31, 1ULL << 32,
		1ULL << 40, 1ULL << 62, 1ULL << 63, -1ULL, -4096ULL, (1ULL << 63) - 1,
		(1ULL << 63) - 4096,
	};
	__u64 edge = edges[random_below(sizeof(edges) / sizeof(*edges))];

	switch (random_below(4)) {
	case 0: return edge;
	case 1: return edge + random_below(16) * 4096;
	case 2: return random_below(1 << 16);
	default: return random_u64() >> random_below(64);
	}
}

__attribute__((format(printf, 2, 3)))
static bool expect_sane(bool is_sane, const char *fmt, ...)
{
	va_list ap;
	char line[200];

	if (is_sane || nr_bad++ >= 10)
		return is_sane;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	note("uid %d: %s", getuid(), line);
	return false;
}

/*
 * Counts a call as successful or refused, and returns @ret. If the call failed, its errno must be
 * one that is defined for user space (1 to 133), not one that is internal to the kernel.
 */
static long count_result(const char *what, long ret)
{
	int err = errno;

	if (ret < 0)
		nr_refused++;
	else
		nr_good++;
	expect_sane(ret >= 0 || (err > 0 && err < 134), "%s: errno %d", what, err);
	errno = err;
	return ret;
}

static void on_fault(int sig)
{
	siglongjmp(fault_jmp, sig);
}

/*
 * Reads a byte at @p. Returns the byte or, if the read raised a signal, the negative signal number.
 */
static int read_byte(const volatile char *p)
{
	int sig = sigsetjmp(fault_jmp, 1);

	nr_sigbus += sig == SIGBUS;
	return sig ? -sig : *(const volatile unsigned char *)p;
}

static int random_fd(void)
{
	return random_below(2) ? counters : names;
}

static void do_ioctl(void)
{
	static const unsigned int known[] = {
		FIONREAD, FIONBIO, FIOASYNC, FIOCLEX, FIONCLEX, FIOQSIZE, TIOCGWINSZ, TCGETS,
		0x1, 0x2, 0xc020660b, 0x40049409, 0xc0045877, 0x5452,
	};
	bool is_known = random_below(2);
	unsigned int cmd = is_known ? known[random_below(sizeof(known) / sizeof(*known))] :
		random_u64();
	long ret;

	memset(buf, random_u64(), 512);
	ret = count_result("ioctl",
			   ioctl(random_fd(), cmd, random_below(2) ? buf :
				 (char *)boundary_number()));
	expect_sane(is_known || ret < 0 || cmd >> 8 == 0x54 || cmd < 256, "ioctl %#x gave %ld", cmd,
		    ret);
}

static void do_read(void)
{
	size_t len = random_below(3) ? random_below(sizeof(buf)) : boundary_number();
	void *to = random_below(8) ? buf : (void *)pc.base;
	off_t at = boundary_number();
	ssize_t got;

	/*
	 * A read of the names file must succeed if it begins within the text of the file and its
	 * length is less than the size of the buffer.
	 */
	if (random_below(4) == 0) {
		got = count_result("pread counters", pread(counters, to, len, at));
		expect_sane(got < 0, "read() of the counters returned %zd bytes", got);
		return;
	}
	got = count_result("pread names", pread(names, to, len, at));
	if (to == (void *)pc.base)
		expect_sane(got <= 0, "read() into the mapping: %zd", got);
	else if (got > 0)
		expect_sane(at >= 0 && (size_t)at + got <= text_len && !memcmp(buf, text + at, got),
			    "pread %zu at %lld: wrong text", len, (long long)at);
	else if (at >= 0 && (size_t)at < text_len && len && len < sizeof(buf))
		expect_sane(false, "pread %zu at %lld: %zd, errno %d", len, (long long)at, got,
			    errno);
}

static void do_seek_read(void)
{
	static const int whences[] = { SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE, 77 };
	off_t at = count_result("lseek", lseek(names, boundary_number(), whences[random_below(6)]));
	struct iovec iov[3] = { { buf, random_below(100) }, { buf + 100, random_below(100) },
	{ buf + 200, 50 } };
	ssize_t got = count_result("readv", readv(names, iov, 1 + random_below(3)));

	if (at >= 0 && got > 0)
		expect_sane((size_t)at + got <= text_len && (!iov[0].iov_len || buf[0] == text[at]),
			    "read at %lld: wrong text", (long long)at);
	count_result("lseek counters",
		     lseek(counters, boundary_number(), whences[random_below(6)]));
	lseek(names, 0, SEEK_SET);
}

static void do_mmap(void)
{
	/* Half of the calls map counter pages for reading, which is refused only for bad ranges. */
	bool is_valid = random_below(2);
	int prot = is_valid ? PROT_READ : random_below(8);
	int flags = is_valid || random_below(2) ? MAP_SHARED : MAP_PRIVATE;
	size_t len = is_valid || random_below(2) ? (1 + random_below(32)) * 4096 :
		boundary_number();
	off_t at = is_valid || random_below(2) ? (off_t)random_below(300) * 4096 :
		(off_t)boundary_number();
	int fd = is_valid ? counters : random_fd();
	char *where = NULL, *p;

	flags |= random_below(4) ? 0 : MAP_POPULATE;
	flags |= random_below(8) ? 0 : MAP_LOCKED;
	flags |= random_below(8) ? 0 : MAP_NORESERVE;
	flags |= is_valid || random_below(16) ? 0 : MAP_HUGETLB;
	flags |= is_valid || random_below(16) ? 0 : MAP_SYNC;
	if (random_below(2) && len <= ARENA / 2) {
		where = arena + random_below(ARENA / 8192) * 4096;
		flags |= MAP_FIXED;
	}
	p = mmap(where, len, prot, flags, fd, at);
	count_result("mmap", p == MAP_FAILED ? -1 : 0);
	if (p == MAP_FAILED)
		return;
	expect_sane(fd == counters && !(prot & (PROT_WRITE | PROT_EXEC)), "mmap prot %d of fd %d",
		    prot, fd);
	if (prot & PROT_READ) {
		expect_sane(read_byte(p) != -SIGSEGV &&
			    read_byte(p + random_below(len)) != -SIGSEGV,
			    "SIGSEGV in a mapping to read");
	}
	if (!where)
		munmap(p, len);
}

/* Makes memory calls on a random part of the arena (reserved addresses, some with mappings). */
static void do_arena(void)
{
	char *p = arena + random_below(ARENA / 8192) * 4096 +
		(random_below(16) ? 0 : random_below(4096));
	size_t len = random_below(4) ? (1 + random_below(64)) * 4096 : random_below(ARENA / 2);
	struct iovec local = { buf, random_below(sizeof(buf)) }, remote = { p, len };
	size_t to = (1 + random_below(64)) * 4096;
	unsigned char core[64];
	char *q;

	switch (random_below(14)) {
	case 0:
		count_result("mprotect", mprotect(p, len, random_below(8)));
		break;
	case 1:
		q = mremap(p, len, to, random_below(2) ? MREMAP_MAYMOVE : 0);
		count_result("mremap", q == MAP_FAILED ? -1 : 0);
		/* Later calls use only mappings in the arena. */
		if (q != MAP_FAILED && (q < arena || q >= arena + ARENA))
			munmap(q, to);
		break;
	case 2:
		q = mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
			   arena + random_below(ARENA / 8192) * 4096);
		count_result("mremap fixed", q == MAP_FAILED ? -1 : 0);
		break;
	case 3:
		count_result("madvise", madvise(p, len, random_below(26)));
		/*
		 * MADV_HWPOISON and MADV_SOFT_OFFLINE (100, 101) take pages out of use, so the test
		 * tries them on counter pages only, where madvise() must fail.
		 */
		q = (char *)pc.base + random_below(100) * 4096;
		expect_sane(count_result("madvise 100",
					 madvise(q, 4096, 100 + random_below(2))) < 0,
			    "a page of counters can be poisoned");
		break;
	case 4:
		count_result("mlock", mlock2(p, len, random_below(3)));
		count_result("munlock", munlock(p, len));
		break;
	case 5:
		count_result("process_vm_readv",
			     process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
		break;
	case 6:
		remote.iov_len = 4096;
		count_result("vmsplice", vmsplice(pipe_fd[1], &remote, 1, SPLICE_F_NONBLOCK));
		while (read(pipe_fd[0], buf, sizeof(buf)) > 0)
			;
		break;
	case 7:
		count_result("msync", msync(p, len, random_below(8)));
		break;
	case 8:
		count_result("mincore", mincore(p, random_below(64) * 4096, core));
		break;
	case 9:
		count_result("mbind",
			     syscall(SYS_mbind, p, len, random_below(5), buf, random_below(64),
				     random_below(8)));
		break;
	case 10:
		count_result("remap_file_pages",
			     syscall(SYS_remap_file_pages, p, len, 0, random_below(512), 0));
		break;
	case 11:
		count_result("munmap", munmap(p, len));
		break;
	case 12:
		count_result("pkey_mprotect",
			     syscall(SYS_pkey_mprotect, p, len, random_below(8), -1));
		break;
	case 13:
		read_byte(p);
		break;
	}
}

static void do_splice(void)
{
	loff_t at = boundary_number();
	int fd = random_fd(), err;
	long got;

	switch (random_below(4)) {
	case 0:
		got = splice(fd, random_below(2) ? &at : NULL, pipe_fd[1], NULL, boundary_number(),
			     SPLICE_F_NONBLOCK);
		break;
	case 1:
		got = splice(pipe_fd[0], NULL, fd, &at, boundary_number(), SPLICE_F_NONBLOCK);
		break;
	case 2:
		got = sendfile(pipe_fd[1], fd, random_below(2) ? &at : NULL, boundary_number());
		break;
	default:
		got = copy_file_range(fd, &at, random_fd(), NULL, boundary_number(), 0);
		break;
	}
	err = errno;
	while (read(pipe_fd[0], buf, sizeof(buf)) > 0)
		;
	errno = err;
	count_result("splice", got);
}

static void do_fd(void)
{
	int fd = random_fd(), ep;
	struct pollfd p = { .fd = fd, .events = random_u64() };
	struct epoll_event event = { .events = EPOLLIN };

	switch (random_below(10)) {
	case 0:
		count_result("write", pwrite(fd, buf, random_below(4096), random_below(4096)));
		break;
	case 1:
		count_result("ftruncate", ftruncate(fd, boundary_number()));
		break;
	case 2:
		count_result("fallocate",
			     fallocate(fd, random_below(128), boundary_number(),
				       boundary_number()));
		break;
	case 3:
		count_result("fsync", fsync(fd));
		break;
	case 4:
		/* posix_fadvise() returns its error and does not set errno. */
		errno = posix_fadvise(fd, boundary_number(), boundary_number(), random_below(8));
		count_result("fadvise", errno ? -1 : 0);
		break;
	case 5:
		count_result("poll", poll(&p, 1, 0));
		break;
	case 6:
		ep = epoll_create1(EPOLL_CLOEXEC);
		count_result("epoll_ctl", epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event));
		close(ep);
		break;
	case 7:
		/*
		 * F_DUPFD (0) and F_DUPFD_CLOEXEC (1030) are left out because they would use up
		 * descriptors. fcntl() commands for file locks are left out as well.
		 */
		count_result("fcntl",
			     fcntl(fd, random_below(2) ? 1 + random_below(4) :
				   1024 + random_below(6), boundary_number()));
		break;
	case 8:
		count_result("readahead", readahead(fd, boundary_number(), boundary_number()));
		break;
	case 9:
		count_result("sync_file_range",
			     sync_file_range(fd, boundary_number(), boundary_number(),
					     random_below(8)));
		break;
	}
}

static void do_open(void)
{
	const char *path = random_below(2) ? "/dev/perfcounters" : "/dev/perfcounters_names";
	/*
	 * The flags are random, but never include O_ASYNC or O_CREAT. Without these two flags, only
	 * the access mode, O_PATH and the user decide whether the open may succeed.
	 */
	int flags = random_u64() & (O_ACCMODE | O_APPEND | O_TRUNC | O_NONBLOCK | O_SYNC |
				    O_DIRECT | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC |
				    O_PATH | O_LARGEFILE);
	int fd = open(path, flags);

	count_result("open", fd);
	if (fd < 0)
		return;
	expect_sane(flags & O_PATH || ((flags & O_ACCMODE) == O_RDONLY && !getuid()),
		    "open with %#x as uid %d", flags, getuid());
	close(fd);
}

static void (*const ops[])(void) = {
	do_ioctl, do_read, do_seek_read, do_mmap, do_mmap, do_arena, do_arena, do_arena,
	do_splice, do_fd, do_open,
};

/* Results of one user's calls, in memory that the child shares with its parent. */
static struct result {
	unsigned long nr_good, nr_refused, nr_sigbus, nr_bad;
	bool done;
} *result;

static int nr_ops;

static void run_user(bool unprivileged)
{
	struct sigaction action = { .sa_handler = on_fault };

	result += unprivileged;
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	bail_if(pipe2(pipe_fd, O_NONBLOCK | O_CLOEXEC), "pipe");
	arena = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	bail_if(arena == MAP_FAILED, "arena");
	bail_if(unprivileged && (setgid(65534) || setuid(65534)), "setuid");
	for (int i = 0; i < nr_ops; i++) {
		ops[random_below(sizeof(ops) / sizeof(*ops))]();
		/* Removes the mappings that mremap() has left in the arena. */
		if (i % 1000 == 0 && mmap(arena, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
					  MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
			expect_sane(false, "the arena cannot be cleared: errno %d", errno);
	}
	*result = (struct result){ nr_good, nr_refused, nr_sigbus, nr_bad, true };
	_exit(0);
}

int main(void)
{
	char header[112];
	__u32 n;

	plan(10);
	nr_ops = scale_down(gate_or_long(NR_CALLS / 4, NR_CALLS));
	if (getenv("CALLS"))
		nr_ops = strtol(getenv("CALLS"), NULL, 0) / 2;
	result = map_memory(4096, MAP_SHARED);
	seed = (__u64)time(NULL) * 65537 + getpid();
	if (getenv("SEED"))
		seed = strtoull(getenv("SEED"), NULL, 0);
	seed |= !seed;
	note("SEED=%llu", (unsigned long long)seed);
	load_and_map("");
	for (int i = 0; i < 700; i++)
		driver_cmd("add fuzz/%d", i);
	n = driver_cmd("add fuzz/x");
	driver_cmd("adjust %u 4711", n);
	driver_close();
	counters = pc.fd;
	names = open("/dev/perfcounters_names", O_RDONLY | O_CLOEXEC);
	text_len = strlen(read_file("/dev/perfcounters_names", text, sizeof(text)));
	memcpy(header, pc.base, sizeof(header));

	for (int nobody = 0; nobody < 2; nobody++) {
		struct result *r = &result[nobody];
		const char *who = nobody ? "nobody" : "root";
		int status;

		seed += nobody;
		status = in_child(run_user(nobody));
		note("%s: %lu calls succeeded, %lu failed, %lu reads raised SIGBUS", who,
		     r->nr_good, r->nr_refused, r->nr_sigbus);
		ok(!status && r->done,
		   "0.1 fuzz: %s's calls do not kill the process (%d)", who, status);
		is(r->nr_bad, 0,
		   "0.1 fuzz: %s's calls have plausible results and errnos of user space", who);
		ok(r->nr_good * 100 >= MIN_SUCCEEDED * (r->nr_good + r->nr_refused),
		   "9.5 fuzz: at least %d %% of %s's calls succeed", MIN_SUCCEEDED, who);
		ok(r->nr_refused > nr_ops / 20 && r->nr_sigbus > 20,
		   "0.1 fuzz: %s's calls fail, and raise SIGBUS, often enough", who);
	}
	ok(!memcmp(header, pc.base, sizeof(header)) && pc_total(&pc, n) == 4711,
	   "0.1 fuzz: the header and a counter's value are unchanged");
	close(names);
	pc_close(&pc);
	ok(!rmmod("test_driver") && !rmmod("perfcounters"),
	   "0.1 fuzz: rmmod of test_driver and perfcounters succeeds at the end");
	return finish();
}
