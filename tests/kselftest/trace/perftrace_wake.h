/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Creates the wake file /run/perftrace/wake. A program that starts before the module is loaded maps
 * the wake file. On a real machine, `pfc trace arm` writes the wake file. libperftrace attaches a
 * program after PERFTRACE_WAKE was set in a word of the file.
 */
#ifndef PERFTRACE_WAKE_H
#define PERFTRACE_WAKE_H

#include "perftrace.h"
#include <sys/stat.h>

#define WAKE_DIR	"/run/perftrace"
#define WAKE_FILE	WAKE_DIR "/wake"
/* Offset of the number of the last announcement in the wake file. */
#define ARM_COUNT	0x8000
/* Offset and number of the retry words in the wake file. */
#define RETRY_WORDS	0x9000
#define NR_RETRY_WORDS	1024

/*
 * Creates the wake file if it does not exist, and sets the word of each marker and each retry word
 * to @word. If @word announces the device, the retry word of this announcement is set to 0 instead
 * of @word. The next announcement by "pfc trace arm" then has the next number.
 */
static void write_wake_file(__u32 word)
{
	static __u32 words[PERFTRACE_NR_MARKERS], retry[NR_RETRY_WORDS];
	__u32 count = word >> 16 & 0x7fff;
	int fd;

	mkdir(WAKE_DIR, 0755);
	fd = open(WAKE_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	for (int i = 0; i < PERFTRACE_NR_MARKERS; i++)
		words[i] = word;
	for (int i = 0; i < NR_RETRY_WORDS; i++)
		retry[i] = word;
	retry[(word >> 16) % NR_RETRY_WORDS] = 0;
	bail_if(fd < 0 || ftruncate(fd, PERFTRACE_READ_BYTES) ||
		pwrite(fd, retry, sizeof(retry), RETRY_WORDS) != sizeof(retry) ||
		pwrite(fd, words, sizeof(words), PERFTRACE_WORDS) != sizeof(words) ||
		(word && pwrite(fd, &count, sizeof(count), ARM_COUNT) != sizeof(count)), WAKE_FILE);
	close(fd);
}

/* Repeats the call for some seconds. Returns how many processes use the device, or -errno. */
static inline int release_device(void)
{
	int wake = open(WAKE_FILE, O_RDONLY | O_CLOEXEC), fd = open_trace_device(), rc = 0;
	struct perftrace_release release = { sizeof(release), 0, wake, 77 };

	for (int i = 0; i < 5000 && !rc && release.left; i++) {
		rc = trace_ioctl(fd, PERFTRACE_RELEASE, &release);
		usleep(1000);
	}
	close(fd);
	close(wake);
	return rc ? rc : (int)release.left;
}

#endif
