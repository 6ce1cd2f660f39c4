// SPDX-License-Identifier: GPL-2.0
/*
 * timeout: 300
 *
 * Random calls on /dev/perfcounters and /dev/perfcounters_names, by root and by a user without
 * capabilities that inherits root's open files. Each call must return a plausible result or an
 * errno of user space, nothing may be written, and nothing may keep the module afterwards. The seed
 * is printed. SEED=n in the environment sets it.
 *
 * Calls with one right answer are in readonly.c and bad_input.c.
 */
#include "kselftest_pc.h"
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

/* Calls of each of the two users in a long run. Otherwise there are a quarter of them. */
#define OPS	40000
#define ARENA	(64UL << 20)

static struct pc pc;
static __u64 seed;
static int counters, names, pipe_fd[2];
static char *arena, text[1 << 16], buf[1 << 16];
static size_t text_len;
static unsigned long good, refused, bus, bad;
static sigjmp_buf jump;

static __u64 rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static __u64 below(__u64 n)
{
	return rnd() % n;
}

/* Returns a number at or near a boundary, or any number. */
static __u64 odd(void)
{
	static const __u64 edges[] = {
		0, 1, 7, 8, 4095, 4096, 4097, 8192, 1 << 20, 1ULL << 30, 1ULL << 31, 1ULL << 32,
		1ULL << 40, 1ULL << 62, 1ULL << 63, -1ULL, -4096ULL, (1ULL << 63) - 1,
		(1ULL << 63) - 4096,
	};
	__u64 edge = edges[below(sizeof(edges) / sizeof(*edges))];

	switch (below(4)) {
	case 0: return edge;
	case 1: return edge + below(16) * 4096;
	case 2: return below(1 << 16);
	default: return rnd() >> below(64);
	}
}

__attribute__((format(printf, 2, 3)))
static bool sane(bool is_sane, const char *fmt, ...)
{
	va_list ap;
	char line[200];

	if (is_sane || bad++ >= 10)
		return is_sane;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	note("uid %d: %s", getuid(), line);
	return false;
}

/*
 * Counts the outcome of a call and returns @ret. An error must be an errno of user space, from 1 to
 * 133, and not one that is internal to the kernel.
 */
static long clean(const char *what, long ret)
{
	int err = errno;

	if (ret < 0)
		refused++;
	else
		good++;
	sane(ret >= 0 || (err > 0 && err < 134), "%s: errno %d", what, err);
	errno = err;
	return ret;
}

static void on_fault(int sig)
{
	siglongjmp(jump, sig);
}

/* Reads a byte. Returns its value, or the negative number of the signal that the read raised. */
static int peek(const volatile char *p)
{
	int sig = sigsetjmp(jump, 1);

	bus += sig == SIGBUS;
	return sig ? -sig : *(const volatile unsigned char *)p;
}

static int any_fd(void)
{
	return below(2) ? counters : names;
}

static void do_ioctl(void)
{
	static const unsigned int known[] = {
		FIONREAD, FIONBIO, FIOASYNC, FIOCLEX, FIONCLEX, FIOQSIZE, TIOCGWINSZ, TCGETS,
		0x1, 0x2, 0xc020660b, 0x40049409, 0xc0045877, 0x5452,
	};
	bool is_known = below(2);
	unsigned int cmd = is_known ? known[below(sizeof(known) / sizeof(*known))] : rnd();
	long ret;

	memset(buf, rnd(), 512);
	ret = clean("ioctl", ioctl(any_fd(), cmd, below(2) ? buf : (char *)odd()));
	sane(is_known || ret < 0 || cmd >> 8 == 0x54 || cmd < 256, "ioctl %#x gave %ld", cmd, ret);
}

static void do_read(void)
{
	size_t len = below(3) ? below(sizeof(buf)) : odd();
	void *to = below(8) ? buf : (void *)pc.base;
	off_t at = odd();
	ssize_t got;

	/* A read that begins within the text and fits the buffer must succeed. */
	if (below(4) == 0) {
		got = clean("pread counters", pread(counters, to, len, at));
		sane(got < 0, "read() of the counters returned %zd bytes", got);
		return;
	}
	got = clean("pread names", pread(names, to, len, at));
	if (to == (void *)pc.base)
		sane(got <= 0, "read() into the mapping: %zd", got);
	else if (got > 0)
		sane(at >= 0 && (size_t)at + got <= text_len && !memcmp(buf, text + at, got),
		     "pread %zu at %lld: wrong text", len, (long long)at);
	else if (at >= 0 && (size_t)at < text_len && len && len < sizeof(buf))
		sane(false, "pread %zu at %lld: %zd, errno %d", len, (long long)at, got, errno);
}

static void do_seek_read(void)
{
	static const int whences[] = { SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE, 77 };
	off_t at = clean("lseek", lseek(names, odd(), whences[below(6)]));
	struct iovec iov[3] = { { buf, below(100) }, { buf + 100, below(100) }, { buf + 200, 50 } };
	ssize_t got = clean("readv", readv(names, iov, 1 + below(3)));

	if (at >= 0 && got > 0)
		sane((size_t)at + got <= text_len && (!iov[0].iov_len || buf[0] == text[at]),
		     "read at %lld: wrong text", (long long)at);
	clean("lseek counters", lseek(counters, odd(), whences[below(6)]));
	lseek(names, 0, SEEK_SET);
}

static void do_mmap(void)
{
	int prot = below(8), flags = below(2) ? MAP_SHARED : MAP_PRIVATE;
	size_t len = below(2) ? (1 + below(32)) * 4096 : odd();
	off_t at = below(2) ? (off_t)below(300) * 4096 : (off_t)odd();
	int fd = any_fd();
	char *where = NULL, *p;

	flags |= below(4) ? 0 : MAP_POPULATE;
	flags |= below(8) ? 0 : MAP_LOCKED;
	flags |= below(8) ? 0 : MAP_NORESERVE;
	flags |= below(16) ? 0 : MAP_HUGETLB;
	flags |= below(16) ? 0 : MAP_SYNC;
	if (below(2) && len <= ARENA / 2) {
		where = arena + below(ARENA / 8192) * 4096;
		flags |= MAP_FIXED;
	}
	p = mmap(where, len, prot, flags, fd, at);
	clean("mmap", p == MAP_FAILED ? -1 : 0);
	if (p == MAP_FAILED)
		return;
	sane(fd == counters && !(prot & (PROT_WRITE | PROT_EXEC)), "mmap prot %d of fd %d", prot,
	     fd);
	if (prot & PROT_READ) {
		sane(peek(p) != -SIGSEGV && peek(p + below(len)) != -SIGSEGV,
		     "SIGSEGV in a mapping to read");
	}
	if (!where)
		munmap(p, len);
}

/* Memory calls on a random part of the arena: pieces of mappings, or reserved addresses. */
static void do_arena(void)
{
	char *p = arena + below(ARENA / 8192) * 4096 + (below(16) ? 0 : below(4096));
	size_t len = below(4) ? (1 + below(64)) * 4096 : below(ARENA / 2);
	struct iovec local = { buf, below(sizeof(buf)) }, remote = { p, len };
	size_t to = (1 + below(64)) * 4096;
	unsigned char core[64];
	char *q;

	switch (below(14)) {
	case 0:
		clean("mprotect", mprotect(p, len, below(8)));
		break;
	case 1:
		q = mremap(p, len, to, below(2) ? MREMAP_MAYMOVE : 0);
		clean("mremap", q == MAP_FAILED ? -1 : 0);
		/* The mapping has left the arena, where no later call would find it. */
		if (q != MAP_FAILED && (q < arena || q >= arena + ARENA))
			munmap(q, to);
		break;
	case 2:
		q = mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
			   arena + below(ARENA / 8192) * 4096);
		clean("mremap fixed", q == MAP_FAILED ? -1 : 0);
		break;
	case 3:
		clean("madvise", madvise(p, len, below(26)));
		/*
		 * MADV_HWPOISON and MADV_SOFT_OFFLINE (100, 101) are tried on counter pages only.
		 * They must fail.
		 */
		q = (char *)pc.base + below(100) * 4096;
		sane(clean("madvise 100", madvise(q, 4096, 100 + below(2))) < 0,
		     "a page of counters can be poisoned");
		break;
	case 4:
		clean("mlock", mlock2(p, len, below(3)));
		clean("munlock", munlock(p, len));
		break;
	case 5:
		clean("process_vm_readv", process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
		break;
	case 6:
		remote.iov_len = 4096;
		clean("vmsplice", vmsplice(pipe_fd[1], &remote, 1, SPLICE_F_NONBLOCK));
		while (read(pipe_fd[0], buf, sizeof(buf)) > 0)
			;
		break;
	case 7:
		clean("msync", msync(p, len, below(8)));
		break;
	case 8:
		clean("mincore", mincore(p, below(64) * 4096, core));
		break;
	case 9:
		clean("mbind", syscall(SYS_mbind, p, len, below(5), buf, below(64), below(8)));
		break;
	case 10:
		clean("remap_file_pages", syscall(SYS_remap_file_pages, p, len, 0, below(512), 0));
		break;
	case 11:
		clean("munmap", munmap(p, len));
		break;
	case 12:
		clean("pkey_mprotect", syscall(SYS_pkey_mprotect, p, len, below(8), -1));
		break;
	case 13:
		peek(p);
		break;
	}
}

static void do_splice(void)
{
	loff_t at = odd();
	int fd = any_fd(), err;
	long got;

	switch (below(4)) {
	case 0:
		got = splice(fd, below(2) ? &at : NULL, pipe_fd[1], NULL, odd(), SPLICE_F_NONBLOCK);
		break;
	case 1:
		got = splice(pipe_fd[0], NULL, fd, &at, odd(), SPLICE_F_NONBLOCK);
		break;
	case 2:
		got = sendfile(pipe_fd[1], fd, below(2) ? &at : NULL, odd());
		break;
	default:
		got = copy_file_range(fd, &at, any_fd(), NULL, odd(), 0);
		break;
	}
	err = errno;
	while (read(pipe_fd[0], buf, sizeof(buf)) > 0)
		;
	errno = err;
	clean("splice", got);
}

static void do_fd(void)
{
	int fd = any_fd(), ep;
	struct pollfd p = { .fd = fd, .events = rnd() };
	struct epoll_event event = { .events = EPOLLIN };

	switch (below(10)) {
	case 0:
		clean("write", pwrite(fd, buf, below(4096), below(4096)));
		break;
	case 1:
		clean("ftruncate", ftruncate(fd, odd()));
		break;
	case 2:
		clean("fallocate", fallocate(fd, below(128), odd(), odd()));
		break;
	case 3:
		clean("fsync", fsync(fd));
		break;
	case 4:
		/* posix_fadvise() returns its error and does not set errno. */
		errno = posix_fadvise(fd, odd(), odd(), below(8));
		clean("fadvise", errno ? -1 : 0);
		break;
	case 5:
		clean("poll", poll(&p, 1, 0));
		break;
	case 6:
		ep = epoll_create1(EPOLL_CLOEXEC);
		clean("epoll_ctl", epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event));
		close(ep);
		break;
	case 7:
		/*
		 * Not F_DUPFD (0) and F_DUPFD_CLOEXEC (1030), which would use up files, and no
		 * locks.
		 */
		clean("fcntl", fcntl(fd, below(2) ? 1 + below(4) : 1024 + below(6), odd()));
		break;
	case 8:
		clean("readahead", readahead(fd, odd(), odd()));
		break;
	case 9:
		clean("sync_file_range", sync_file_range(fd, odd(), odd(), below(8)));
		break;
	}
}

static void do_open(void)
{
	const char *path = below(2) ? "/dev/perfcounters" : "/dev/perfcounters_names";
	/*
	 * Any flags but O_ASYNC and O_CREAT. With those that are left, only the access mode, O_PATH
	 * and the user decide whether an open may succeed.
	 */
	int flags = rnd() & (O_ACCMODE | O_APPEND | O_TRUNC | O_NONBLOCK | O_SYNC | O_DIRECT |
			     O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC | O_PATH |
			     O_LARGEFILE);
	int fd = open(path, flags);

	clean("open", fd);
	if (fd < 0)
		return;
	sane(flags & O_PATH || ((flags & O_ACCMODE) == O_RDONLY && !getuid()),
	     "open with %#x as uid %d", flags, getuid());
	close(fd);
}

static void (*const ops[])(void) = {
	do_ioctl, do_read, do_seek_read, do_mmap, do_mmap, do_arena, do_arena, do_arena,
	do_splice, do_fd, do_open,
};

/* Results of one user's calls, in memory that the parent shares. */
static struct result {
	unsigned long good, refused, bus, bad;
	bool done;
} *result;

static int nr_ops;

static void run(bool as_nobody)
{
	struct sigaction action = { .sa_handler = on_fault };

	result += as_nobody;
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (pipe2(pipe_fd, O_NONBLOCK | O_CLOEXEC))
		bail("pipe");
	arena = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		bail("arena");
	if (as_nobody && (setgid(65534) || setuid(65534)))
		bail("setuid");
	for (int i = 0; i < nr_ops; i++) {
		ops[below(sizeof(ops) / sizeof(*ops))]();
		/* Removes what moved mappings have left in the arena. */
		if (i % 1000 == 0 && mmap(arena, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
					  MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
			sane(false, "the arena cannot be cleared: errno %d", errno);
	}
	*result = (struct result){ good, refused, bus, bad, true };
	_exit(0);
}

int main(void)
{
	char header[112];
	__u32 n;

	plan(8);
	nr_ops = scale_down(gate_or_long(OPS / 4, OPS));
	result = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	seed = (__u64)time(NULL) * 65537 + getpid();
	if (getenv("SEED"))
		seed = strtoull(getenv("SEED"), NULL, 0);
	seed |= !seed;
	note("SEED=%llu", (unsigned long long)seed);
	load_modules("");
	pc_open(&pc);
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
		status = in_child(run(nobody));
		note("%s: %lu calls succeeded, %lu failed, %lu reads raised SIGBUS", who,
		     r->good, r->refused, r->bus);
		ok(!status && r->done,
		   "0.1 fuzz: %s's calls do not kill the process (%d)", who, status);
		is(r->bad, 0,
		   "0.1 fuzz: %s's calls have plausible results and errnos of user space", who);
		ok(r->good > nr_ops / 20 && r->refused > nr_ops / 20 && r->bus > 20,
		   "0.1 fuzz: %s's calls succeed, fail, and raise SIGBUS often enough", who);
	}
	ok(!memcmp(header, pc.base, sizeof(header)) && pc_total(&pc, n) == 4711,
	   "0.1 fuzz: the header and a counter's value are unchanged");
	close(names);
	pc_close(&pc);
	ok(!rmmod("test_driver") && !rmmod("perfcounters"),
	   "0.1 fuzz: rmmod of test_driver and perfcounters succeeds at the end");
	return finish();
}
