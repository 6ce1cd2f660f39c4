// SPDX-License-Identifier: GPL-2.0
/* Compares the text of /dev/perfcounters_names with the descriptors. */
#include "kselftest_pc.h"

#define NAMES	"/dev/perfcounters_names"
#define PATH	"/dev/ide/host0/bus0/target0/lun0/part5"

static char text[1 << 20];

/* Returns true if the text contains the expected line of instance @n. */
static bool has_line(const char *text, __u32 n, const char *state, const char *name)
{
	return strstr(text, format_text("\n%u\t%s\t%s\n", n, state, name));
}

/* Returns true if the text has one line for each used descriptor, in order, and no other lines. */
static bool matches_descriptors(void)
{
	const char *line = strchr(text, '\n') + 1;

	for (__u32 n = 1; n < pc.h->nr_slots; n++) {
		char want[200];
		int len;

		if (pc.desc[n].state == PERFCOUNTERS_FREE)
			continue;
		len = snprintf(want, sizeof(want), "%u\t%s\t%s\n", n,
			       pc.desc[n].state == PERFCOUNTERS_LIVE ? "live" : "dormant",
			       (const char *)pc.desc[n].name);
		if (strncmp(line, want, len)) {
			note("want %s", want);
			return false;
		}
		line += len;
	}
	return !*line;
}

int main(void)
{
	unsigned long long generation = 0;
	char boot_id[40] = "", hex[40] = "", small[64];
	__u32 path, utf8, hist, gone;
	size_t len = 0;
	ssize_t got;
	__u64 gen;
	int fd, fields;

	plan(18);
	load_and_map("");
	path = driver_cmd("add %s", PATH);
	utf8 = driver_cmd("add Zähler mit Leerzeichen");
	hist = driver_cmd("desc 32 4 3 -9 10 0 4 helpnames/hist");
	gone = driver_cmd("add names/gone");
	driver_cmd("del %u", gone);

	read_file(NAMES, text, sizeof(text));
	fields = sscanf(text, "# perfcounters generation %llu boot_id %32s\n",
			&generation, boot_id);
	is(fields, 2, "0.2 names: the first line has the generation and the boot id");
	is(generation, pc.h->gen2, "0.2 names: the generation is that of the header");
	for (int i = 0; i < 16; i++)
		sprintf(hex + 2 * i, "%02x", pc.geometry.boot_id[i]);
	ok(!strcmp(hex, boot_id), "0.2 names: the boot id is that of the header");
	ok(has_line(text, path, "live", PATH),
	   "0.14 names: an instance whose name is a path has one line");
	ok(has_line(text, utf8, "live", "Zähler mit Leerzeichen"),
	   "0.2 names: a name with UTF-8 and blanks is unchanged");
	ok(has_line(text, hist, "live", "names/hist"), "0.2 names: a histogram has one line");
	ok(has_line(text, gone, "dormant", "names/gone"),
	   "0.11 names: a deleted instance has the state dormant");
	ok(matches_descriptors(), "0.2 names: the lines agree with the descriptors");

	fd = open(NAMES, O_RDONLY | O_CLOEXEC);
	gen = pc.h->gen2;
	is(pread(fd, small, 1, 0), 1, "0.2 names: the first read of one byte succeeds");
	driver_cmd("add names/later");
	got = pread(fd, text, sizeof(text) - 1, 0);
	text[got] = '\0';
	ok(!strstr(text, "names/later"),
	   "0.2 names: after its first read, a file does not show a later instance");
	while ((got = read(fd, small, 7)) > 0) {
		if (memcmp(text + len, small, got))
			break;
		len += got;
	}
	ok(got == 0 && len == strlen(text),
	   "0.2 names: reading in pieces of 7 bytes gives the same text");
	is(pread(fd, small, 1, len + 100), 0, "0.2 names: a read after the end returns 0");
	is(lseek(fd, 0, SEEK_SET), 0, "0.2 names: lseek to the start succeeds");
	close(fd);
	read_file(NAMES, text, sizeof(text));
	ok(strstr(text, "names/later") && pc.h->gen2 > gen,
	   "0.2 names: a file opened later shows the new instance and a higher generation");

	gen = pc.h->gen2;
	for (int i = 0; i < 1000; i++)
		driver_cmd("adjust %u 1", path);
	is(pc.h->gen2, gen, "0.2 names: 1,000 updates do not change the generation");

	for (int i = 0; i < 3000; i++)
		driver_cmd("add names/%0100d", i);
	read_file(NAMES, text, sizeof(text));
	ok(matches_descriptors(),
	   "0.2 names: the lines agree with the descriptors, with 3,000 long names");
	is(getpagesize() % sizeof(struct perfcounters_desc), 0,
	   "0.2 descriptors: the size of a page is a multiple of their size");
	ok(pc.desc[hist].kind == PERFCOUNTERS_HISTOGRAM &&
	   pc.desc[hist].unit == PERFCOUNTERS_SECONDS &&
	   pc.desc[hist].exponent == -9 && pc.desc[hist].nr_slots == 10 &&
	   pc.desc[hist].instance == hist && pc.desc[hist].incarnation == 1 &&
	   !strcmp((const char *)pc.desc[hist].help, "help"),
	   "0.2 descriptor of a histogram: kind, unit, exponent, slots and help are set");
	return finish();
}
