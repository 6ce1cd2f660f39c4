/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The registers and module parameters of tests/modules/scripted_pmu.c, and functions that read what
 * user space sees of the description.
 */
#ifndef SCRIPTED_H
#define SCRIPTED_H

#include "perfmon.h"

#define FIRST_REG	284	/* number of the first register of scripted_pmu */

enum { SCALE = FIRST_REG, SYSTEMS, THREADS };	/* PMCs (control registers) */
enum {
	WIDE = FIRST_REG, BYTE, TWELVE, NARROW, CARRIED, OF_THREADS, OF_SYSTEMS, SCALED, FIXED,
	HOLE, CONTROL, WHOSE, HERE, OF_THREADS_NOW, BEYOND
};

static int insmod_scripted(const char *edit)
{
	char text[200];

	snprintf(text, sizeof(text), "edit=\"%s\"", edit);
	return insmod("scripted_pmu", *edit ? text : "");
}

static void set_param(const char *what, long long value)
{
	const char *text = format_text(strcmp(what, "refuse") ? "%llu" : "%lld", value);

	write_file(format_text("/sys/module/scripted_pmu/parameters/%s", what), text);
}

static const char *get_param(const char *what)
{
	static char text[300];

	read_file(format_text("/sys/module/scripted_pmu/parameters/%s", what), text, sizeof(text));
	text[strcspn(text, "\n")] = '\0';
	return text;
}

/* All that user space sees: /proc/perfmon_map, and the names in debugfs. */
static char *pmu_listing(void)
{
	static char text[2][32768];
	static int index;
	char *buf = text[index ^= 1];
	FILE *found;
	size_t len;

	read_file("/proc/perfmon_map", buf, sizeof(*text));
	len = strlen(buf);
	found = popen("find /sys/kernel/debug/perfmon | sort", "r");
	if (found) {
		len += fread(buf + len, 1, sizeof(*text) - 1 - len, found);
		pclose(found);
	}
	buf[len] = '\0';
	return buf;
}

#endif
