// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 60
 * symbols: kept
 *
 * pfc_names.sh samples this program. The arguments of this program are steps, which run_steps()
 * executes in order. A twin of this program is a copy of its file in which the name of the hot
 * function and the build id are changed. Without arguments, the program tests that only few bytes
 * are changed in the twin. The program and the twin therefore have the same layout.
 */
#include "kselftest_pc.h"
#include <elf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>

#define HOT_NAME	"alpha_hot"
#define TWIN_NAME	"betaa_hot"
#define LOOPS		20000

static char own_path[200];
static volatile __u64 work_done;

__attribute__((noinline)) void alpha_hot(__u64 rounds)
{
	while (rounds--)
		work_done++;
}

/* Uses no memory, so that its code can run at another address. */
__attribute__((noinline)) static void alpha_hot_mapped(__u64 rounds)
{
	while (rounds--)
		__asm__ volatile("");
}

/* A function in assembler code without the directives .type and .size. */
void bare_hot(__u64 rounds);
__asm__(".text\n"
	".globl bare_hot\n"
	"bare_hot:\n"
	"dec %rdi\n"
	"jnz bare_hot\n"
	"ret\n");

static void spin_in(void (*hot)(__u64), __u64 ms)
{
	__u64 end = thread_ns() + ms * 1000000;

	while (thread_ns() < end)
		hot(LOOPS);
}

/* Spends most of its time in the vDSO, which reads CLOCK_MONOTONIC_COARSE from memory. */
static void vdso_hot(__u64 rounds)
{
	struct timespec t;

	while (rounds--)
		clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
}

/* Lists the code in /tmp/perf-PID.map, as JIT compilers do. */
static int spin_compiled(const char *mapping, __u64 ms)
{
	/* The machine code of bare_hot(). */
	static const char code[] = "\x48\xff\xcf\x75\xfb\xc3";
	int fd = -1, flags = MAP_SHARED | MAP_ANONYMOUS;
	size_t size = 4096;
	FILE *map;
	void *mem;

	if (!strcmp(mapping, "memfd")) {
		fd = memfd_create("jit", 0);
		if (fd < 0 || ftruncate(fd, size))
			return 1;
		flags = MAP_SHARED;
	} else if (!strcmp(mapping, "anon")) {
		flags = MAP_PRIVATE | MAP_ANONYMOUS;
	} else if (!strcmp(mapping, "hugetlb")) {
		flags |= MAP_HUGETLB;
		size = 2 << 20;
	}
	if (!strcmp(mapping, "sysv"))
		mem = shmat(shmget(IPC_PRIVATE, size, 0700 | IPC_CREAT), NULL, SHM_EXEC);
	else
		mem = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, flags, fd, 0);
	map = fopen(format_text("/tmp/perf-%d.map", getpid()), "w");
	if (mem == MAP_FAILED || !map)
		return 1;
	memcpy(mem, code, sizeof(code));
	fprintf(map, "%lx %zx compiled_hot\n", (long)mem, sizeof(code));
	fclose(map);
	spin_in((void (*)(__u64))mem, ms);
	return 0;
}

/*
 * Maps alpha_hot_mapped() from the file of this program or of its twin, runs the code, and unmaps
 * it. The address is the same for each file, as if a library was loaded in place of another one.
 */
static int spin_mapped(const char *path, __u64 ms)
{
	extern const char __ehdr_start[];
	size_t offset = (size_t)alpha_hot_mapped - (size_t)__ehdr_start, size = 2 * 4096;
	int fd = open(path, O_RDONLY);
	char *mem = mmap((void *)0x500000000000, size, PROT_READ | PROT_EXEC,
			 MAP_PRIVATE | MAP_FIXED, fd, offset & ~4095UL);

	if (fd < 0 || mem == MAP_FAILED)
		return 1;
	close(fd);
	spin_in((void (*)(__u64))(mem + offset % 4096), ms);
	return munmap(mem, size);
}

/* Returns the build id in an ELF file that was read into memory, and stores its length in *len. */
static char *find_build_id(char *file, size_t *len)
{
	const Elf64_Ehdr *ehdr = (void *)file;
	const Elf64_Phdr *phdr = (void *)(file + ehdr->e_phoff);

	for (int i = 0; i < ehdr->e_phnum; i++) {
		char *pos = file + phdr[i].p_offset, *end = pos + phdr[i].p_filesz;

		while (phdr[i].p_type == PT_NOTE && pos + sizeof(Elf64_Nhdr) <= end) {
			Elf64_Nhdr *note = (void *)pos;
			char *desc = pos + sizeof(*note) + ((note->n_namesz + 3) & ~3U);

			if (note->n_type == NT_GNU_BUILD_ID) {
				*len = note->n_descsz;
				return desc;
			}
			pos = desc + ((note->n_descsz + 3) & ~3U);
		}
	}
	return NULL;
}

static char *read_own_file(size_t *size)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	struct stat st;
	char *file;

	if (fd < 0 || fstat(fd, &st))
		return NULL;
	file = malloc(st.st_size);
	if (file && read(fd, file, st.st_size) != st.st_size) {
		free(file);
		file = NULL;
	}
	close(fd);
	*size = st.st_size;
	return file;
}

/* Changes the name of the hot function and the build id in the image of a program in memory. */
static void make_twin(char *file, size_t size)
{
	size_t len = 0;
	char *id = find_build_id(file, &len);
	char *pos = file;

	if (id)
		id[len - 1] ^= 0x5a;
	while ((pos = memmem(pos, file + size - pos, HOT_NAME, strlen(HOT_NAME))))
		memcpy(pos, TWIN_NAME, strlen(TWIN_NAME));
}

static int write_copy(const char *path, bool twin, bool with_id)
{
	size_t size, len;
	char *file = read_own_file(&size), *id;
	int fd, rc;

	if (!file)
		return 1;
	if (twin)
		make_twin(file, size);
	/* Changes the type of the build id's note, so that readers ignore the note. */
	id = find_build_id(file, &len);
	if (id && !with_id)
		id[-8] = 99;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0755);
	rc = fd < 0 || write(fd, file, size) != (ssize_t)size;
	close(fd);
	free(file);
	return rc;
}

/* Makes perf_event_open() fail for this thread and its later children. */
static int refuse_perf(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = ARRAY_SIZE(code), .filter = code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int get_exit_status(pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int run_steps(char **argv);

static void *run_thread(void *argv)
{
	exit(run_steps(argv));
}

/* Executes the remaining steps in a new pid namespace with a new mount of /proc. */
static int run_in_pid_namespace(char **argv)
{
	pid_t child;

	if (unshare(CLONE_NEWPID | CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return 1;
	child = fork();
	if (child)
		return get_exit_status(child);
	if (mount("proc", "/proc", "proc", 0, NULL))
		return 1;
	return run_steps(argv);
}

static int run_steps(char **argv)
{
	for (; *argv; argv++) {
		if (!strcmp(*argv, "spin")) {
			spin_in(alpha_hot, atoi(*++argv));
		} else if (!strcmp(*argv, "bare")) {
			spin_in(bare_hot, atoi(*++argv));
		} else if (!strcmp(*argv, "vdso")) {
			spin_in(vdso_hot, atoi(*++argv));
		} else if (!strcmp(*argv, "compiled")) {
			if (spin_compiled(argv[1], atoi(argv[2])))
				return 1;
			argv += 2;
		} else if (!strcmp(*argv, "mapped")) {
			if (spin_mapped(argv[1], atoi(argv[2])))
				return 1;
			argv += 2;
		} else if (!strcmp(*argv, "until")) {
			for (argv++; access(*argv, F_OK);)
				usleep(10000);
		} else if (!strcmp(*argv, "exec")) {
			execvp(argv[1], argv + 1);
			return 127;
		} else if (!strcmp(*argv, "name")) {
			prctl(PR_SET_NAME, *++argv);
		} else if (!strcmp(*argv, "fork")) {
			pid_t child = fork();

			if (child)
				return get_exit_status(child);
		} else if (!strcmp(*argv, "thread")) {
			pthread_t other;

			pthread_create(&other, NULL, run_thread, argv + 1);
			pause();
		} else if (!strcmp(*argv, "block_child_signal")) {
			sigset_t set;

			sigemptyset(&set);
			sigaddset(&set, SIGCHLD);
			sigprocmask(SIG_BLOCK, &set, NULL);
		} else if (!strcmp(*argv, "bind")) {
			if (unshare(CLONE_NEWNS) ||
			    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
			    mount(argv[1], argv[2], NULL, MS_BIND, NULL))
				return 1;
			argv += 2;
		} else if (!strcmp(*argv, "pidns")) {
			return run_in_pid_namespace(argv + 1);
		} else if (!strcmp(*argv, "refuse_perf")) {
			if (refuse_perf())
				return 1;
		} else if (!strcmp(*argv, "copy")) {
			return write_copy(argv[1], false, true);
		} else if (!strcmp(*argv, "twin")) {
			return write_copy(argv[1], true, true);
		} else if (!strcmp(*argv, "copy_noid")) {
			return write_copy(argv[1], false, false);
		} else if (!strcmp(*argv, "twin_noid")) {
			return write_copy(argv[1], true, false);
		} else {
			return 2;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	size_t size, len, nr_different = 0;
	char *file, *twin, *id;

	bail_if(readlink("/proc/self/exe", own_path, sizeof(own_path) - 1) < 0, "readlink");
	if (argc > 1)
		return run_steps(argv + 1);
	plan(2);
	file = read_own_file(&size);
	twin = read_own_file(&size);
	bail_if(!file || !twin, "cannot read this program");
	id = find_build_id(file, &len);
	ok(id && len >= 8, "1.9 pfc_names has a build id");
	make_twin(twin, size);
	for (size_t i = 0; i < size; i++)
		nr_different += file[i] != twin[i];
	note("%zu bytes differ", nr_different);
	ok(nr_different >= strlen(TWIN_NAME) - strlen("_hot") - 1 && nr_different < 200,
	   "1.9 the twin of pfc_names differs in a name and the build id only");
	return finish();
}
