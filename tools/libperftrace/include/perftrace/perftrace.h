/* SPDX-License-Identifier: GPL-2.0 */
/*
 * perftrace: records events of a program for "pfc trace"; see perftrace(3).
 *
 *	PERFTRACE(app, request, (u32, size, length), (str, path, request->path));
 *
 * An event has a provider, a name, and up to 16 fields, each with type, name and value. While no
 * trace records the event, the macro costs two loads, a comparison and a branch, and the values are
 * not evaluated. While a trace records the event, the macro writes a record to memory, usually
 * without a system call. Events may be recorded in signal handlers. The types of fields are u8 u16
 * u32 u64 s8 s16 s32 s64, x8 x16 x32 x64 (shown in hex), f32, f64 and str.
 *
 * The header requires C11 or C++11 or later, and gcc or clang. On other systems than x86-64 Linux
 * the macro expands to nothing. Link with -lperftrace.
 */
#ifndef _PERFTRACE_PERFTRACE_H
#define _PERFTRACE_PERFTRACE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__LP64__) && defined(__linux__)

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct perftrace_site - a marker in the program; only the library changes it
 * @word: address of the word with a bit for each trace that records the marker
 * @header: bits 0 to 15: number of the marker; bits 16 to 31: size of a record in 8-byte words, or
 *          0 if the event has texts
 * @state: whether the marker is registered in the kernel
 * @text: "provider:event", a NUL, and the fields with a blank before each field
 * @shape: PERFTRACE_KIND_* of each field, four bits for each field, the first field in the lowest
 *         bits
 */
struct perftrace_site {
	const uint32_t *word;
	uint32_t header;
	uint32_t state;
	const char *text;
	uint64_t shape;
};

/**
 * struct perftrace_value - a field's value
 * @bits: the number, or the address of the text
 * @bytes: the maximum length of a text, or 0 if the value is a number
 */
struct perftrace_value {
	uint64_t bits;
	uint64_t bytes;
};

/**
 * struct perftrace_module - the markers of a program or library; only the library changes it
 * @next: the module that was registered before this module
 * @first: the module's first site
 * @last: the end of the module's sites
 * @off: a word that is always 0
 * @users: the number of the module's objects whose constructors have run
 * @reserved: 0
 */
struct perftrace_module {
	struct perftrace_module *next;
	struct perftrace_site *first;
	struct perftrace_site *last;
	const uint32_t *off;
	uint32_t users;
	uint32_t reserved;
};

/*
 * Bind the library's functions at load time, so that the dynamic linker does not have to run in a
 * signal handler.
 */
#if defined(__GNUC__) && !defined(__clang__)
#define PERFTRACE_BOUND_ __attribute__((noplt))
#else
#define PERFTRACE_BOUND_
#endif

/* Only the macros of these headers call the following functions. */
void perftrace_register(struct perftrace_module *module);
void perftrace_unregister(struct perftrace_module *module);
PERFTRACE_BOUND_
void perftrace_write_0(const struct perftrace_site *site);
PERFTRACE_BOUND_
void perftrace_write_1(const struct perftrace_site *site, uint64_t first);
PERFTRACE_BOUND_
void perftrace_write_2(const struct perftrace_site *site, uint64_t first, uint64_t second);
PERFTRACE_BOUND_
void perftrace_write(const struct perftrace_site *site, const uint64_t *fields, size_t words);
PERFTRACE_BOUND_
void perftrace_write_values(const struct perftrace_site *site,
			    const struct perftrace_value *values, size_t n);

/*
 * A program or library has each of the following symbols once, even if it is linked from many
 * object files.
 */
#define PERFTRACE_ONE_ __attribute__((weak, visibility("hidden")))

extern struct perftrace_site __start_perftrace_sites[] PERFTRACE_ONE_;
extern struct perftrace_site __stop_perftrace_sites[] PERFTRACE_ONE_;
extern struct perftrace_module perftrace_module_ PERFTRACE_ONE_;
extern uint32_t perftrace_off_ PERFTRACE_ONE_;
struct perftrace_module perftrace_module_;
uint32_t perftrace_off_;

static void __attribute__((constructor(101), used)) perftrace_begin_(void)
{
	struct perftrace_module *module = &perftrace_module_;

	if (module->users++)
		return;
	module->first = __start_perftrace_sites;
	module->last = __stop_perftrace_sites;
	module->off = &perftrace_off_;
	perftrace_register(module);
}

static void __attribute__((destructor(101), used)) perftrace_end_(void)
{
	if (!--perftrace_module_.users)
		perftrace_unregister(&perftrace_module_);
}

#ifdef __cplusplus
}
#endif

#include <perftrace/macro.h>

#else /* not x86-64 Linux */

#define PERFTRACE(...) do { } while (0)

#endif

#endif /* _PERFTRACE_PERFTRACE_H */
