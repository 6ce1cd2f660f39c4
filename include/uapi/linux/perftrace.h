/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perftrace: tracing of user programs. The programs write events into buffers that the kernel owns,
 * without a system call.
 *
 * An open file of /dev/perftrace is bound to one of two things: to the process that is to be
 * traced (PERFTRACE_ATTACH, followed by mmap), or to a trace (PERFTRACE_CREATE, PERFTRACE_OPEN).
 *
 * Documentation/tracing.md describes the interface.
 */
#ifndef _UAPI_LINUX_PERFTRACE_H
#define _UAPI_LINUX_PERFTRACE_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include "perftrace_filter.h"

#define PERFTRACE_VERSION	1

/*
 * Maximum number of traces at a time (slots), and maximum number of markers
 * that a process can register in its lifetime.
 */
#define PERFTRACE_NR_TRACES	16
#define PERFTRACE_NR_MARKERS	4096
/* Value of perftrace_marker.number for a marker that was refused. */
#define PERFTRACE_NO_NUMBER	0xffffffffU
/* Maximum sizes in bytes: of a name and of a list of fields, NUL included, and of a filter. */
#define PERFTRACE_NAME_MAX	64
#define PERFTRACE_FIELDS_MAX	256
#define PERFTRACE_FILTER_MAX	4096
/* Limits of perftrace_create.bytes, which is a power of two, or 0 for the default size. */
#define PERFTRACE_BYTES_MIN	4096
#define PERFTRACE_BYTES_MAX	(4 << 20)
/* Maximum size of a record in bytes, header included. */
#define PERFTRACE_RECORD_MAX	2048

/*
 * Offsets, in the file of /dev/perftrace, of the two areas that a traced process maps. The process
 * maps the first area read-only. The first area has struct perftrace_control, then a __u32 for each
 * marker, then, for each trace, a page with its filter. Bit t of a marker's __u32 is set if trace t
 * records the marker's events. The process maps the second area writable. The second area consists
 * of the buffers of the traces:
 *
 *	buffer of trace t on CPU c = buffers + ((t * nr_cpus + c) << stride)
 *
 * PERFTRACE_ATTACH returns nr_cpus, stride and the size of the second area. The pages of the areas
 * are allocated when the traced process first accesses them. An access to the buffers or the filter
 * of an unused slot reaches a dummy page, which no trace reads. A child of fork() inherits its
 * parent's markers, but gets pages of its own for the mapped areas. The child's pages are allocated
 * when the child first accesses them.
 */
#define PERFTRACE_CONTROL	0
#define PERFTRACE_WORDS		0x1000
#define PERFTRACE_FILTERS	0x10000
#define PERFTRACE_READ_BYTES	0x20000
#define PERFTRACE_BUFFERS	0x100000

/* Bits of perftrace_slot.flags, perftrace_create.flags and perftrace_info.flags. */
#define PERFTRACE_FLIGHT	0x01	/* flight recorder: new events overwrite old ones */
#define PERFTRACE_WAIT		0x02	/* threads wait for room; not with FLIGHT, SHARED, KEEP */
#define PERFTRACE_SHARED	0x04	/* all processes share one buffer per CPU */
#define PERFTRACE_FILTERED	0x08	/* the trace has a filter */
#define PERFTRACE_KEEP		0x10	/* the trace continues when its last file is closed */
#define PERFTRACE_PAUSED	0x20	/* no events are written to the trace */
#define PERFTRACE_ALL_USERS	0x40	/* trace processes of all users; needs CAP_PERFMON */
#define PERFTRACE_UNSTABLE	0x80	/* out: the TSC is unstable or has restarted */

/**
 * struct perftrace_slot - the state of a trace, for the processes that the trace records
 * @generation: odd while the slot is in use; changes when a trace begins and when the trace ends
 * @flags: PERFTRACE_FLIGHT, _WAIT, _SHARED and _FILTERED of the trace
 * @mask: size of a buffer's area for records in bytes, minus 1
 * @wait_ms: with PERFTRACE_WAIT, the value of perftrace_create.wait_ms. If the program has closed
 *	its descriptor of /dev/perftrace, its threads cannot call PERFTRACE_WAIT_ROOM. Instead, the
 *	threads poll for room, for at most @wait_ms milliseconds after the last read of the buffer
 */
struct perftrace_slot {
	__u32	generation;
	__u32	flags;
	__u32	mask;
	__u32	wait_ms;
};

#define PERFTRACE_CLOCK_TSC		0	/* times are ticks of RDTSC */
#define PERFTRACE_CLOCK_MONOTONIC	1	/* times are nanoseconds: the TSC is not usable */

/**
 * struct perftrace_control - the control page that a traced process maps
 * @version: PERFTRACE_VERSION
 * @nr_cpus: number of CPU ids (the kernel's nr_cpu_ids)
 * @stride: log2 of the distance in bytes from one buffer to the next
 * @clock: clock of the records' times, PERFTRACE_CLOCK_*
 * @key: number that identifies this process; in shared buffers it follows the header of each of the
 *	process's records
 * @offset: CLOCK_MONOTONIC in this process's time namespace minus CLOCK_MONOTONIC in the initial
 *	time namespace, in nanoseconds; the writer subtracts @offset from times of
 *	PERFTRACE_CLOCK_MONOTONIC
 * @pid: id of this process in its pid namespace
 * @reserved: 0
 * @reserved2: 0
 * @slots: the state of the trace in each slot; the generation of a slot is even if the slot has no
 *	trace, or if its trace does not record this process
 */
struct perftrace_control {
	__u32	version;
	__u32	nr_cpus;
	__u32	stride;
	__u32	clock;
	__u64	key;
	__s64	offset;
	__u32	pid;
	__u32	reserved;
	__u64	reserved2;
	struct perftrace_slot	slots[PERFTRACE_NR_TRACES];
};

/**
 * struct perftrace_buffer - header of a buffer, in its first page; records begin in the next page
 * @head: number of bytes written to the buffer or, in flight recorders, the negative of this
 *	  number. The store to @head commits a record
 * @limit: position up to which the writer's fast path writes.
 *	   The fast path passes a record to the slow path if the record would end above @limit or,
 *	   in flight recorders, begin below @limit (compared as signed numbers). If @limit is 0, the
 *	   fast path passes all records to the slow path
 * @reserve: in flight recorders, the lowest position at which a writer has begun a record
 * @lost: number of events that were lost because the buffer had no room
 * @told: the value of @lost in the last PERFTRACE_LOST record
 * @owner: on systems without restartable sequences, the id of the thread that is writing; 0: no
 *	thread is writing
 * @reserved: 0
 * @stalled: set to @tail + 1 by a thread that cannot call PERFTRACE_WAIT_ROOM, when its wait for
 *	     room has timed out. Threads that cannot call PERFTRACE_WAIT_ROOM do not wait for room
 *	     while @stalled is equal to @tail + 1
 * @reserved2: 0
 * @tail: number of bytes that were read from the buffer; only the kernel writes this field
 *
 * The kernel initializes @limit to half of the size of the area for records or, in flight
 * recorders, to the negative of this size. All fields of struct perftrace_buffer except @limit
 * start at 0. After the initialization the kernel writes only @tail.
 *
 * A record begins at offset (@head & mask) of the area for records. In flight recorders a record
 * ends at @head, and begins at offset (@head - size) & mask, where size is the size of the record.
 * A record is never split at the end of the buffer: a PERFTRACE_PAD record fills the space that is
 * left. A writer first lowers @reserve (in flight recorders), then writes the record, and then
 * stores @head.
 */
struct perftrace_buffer {
	__u64	head;
	__u64	limit;
	__u64	reserve;
	__u64	lost;
	__u64	told;
	__u32	owner;
	__u32	reserved;
	__u64	stalled;
	__u64	reserved2;
	__u64	tail;
};

#define PERFTRACE_RECORDS	4096	/* offset of the records in a buffer */

/*
 * Header of a record. In shared buffers the header is followed by the key of the process. The
 * fields of the event follow the header and the key, in the order of the marker's fields and
 * without padding between them. The record is padded with zeros to a multiple of 8 bytes.
 */
struct perftrace_record {
	__u16	marker;		/* number of the marker, or PERFTRACE_PAD, PERFTRACE_LOST */
	__u16	words;		/* size of the record in words of 8 bytes, header included */
	__u32	thread;		/* id of the thread, in the pid namespace of the thread */
	__u64	time;		/* time of the event, in ticks of perftrace_control.clock */
};

#define PERFTRACE_PAD		0xffff	/* padding; only the first 8 bytes are valid */
#define PERFTRACE_LOST		0xfffe	/* record with a __u64 (perftrace_buffer.lost), no key */

/*
 * The fields of a marker are described by a text: "name:type" items, separated by single blanks.
 * Types are u8 u16 u32 u64 s8 s16 s32 s64, x8 x16 x32 x64 (shown in hexadecimal), f32 f64, and str
 * (bytes and a NUL). The name of a field consists of letters, digits and underscores, has at most
 * 31 bytes, and is unique in its marker. A marker has at most 16 fields. The name of a marker is
 * "provider:event", where both parts consist of letters, digits, underscores, dots and dashes.
 */

#define PERFTRACE_THREAD_SHARED	1	/* in perftrace_thread.number: a child shares the struct */

/**
 * struct perftrace_thread - thread-local variable that the writer and the kernel write
 * @sequence: offset of the thread's struct rseq from the thread pointer; 0: the slow path writes
 *	      the thread's events
 * @number: thread id << 32; 0: the thread id is not known yet
 *
 * A child of fork() starts with a copy of struct perftrace_thread of the thread that called fork().
 * Before the first event of a child of fork(), the kernel sets @sequence and @number to 0 in the
 * child's copy of struct perftrace_thread. A child of vfork(), or of clone() with CLONE_VM and
 * without CLONE_THREAD, shares struct perftrace_thread with its parent and has no struct rseq.
 * Before a child that shares struct perftrace_thread with its parent runs, the kernel sets
 * @sequence to 0 and sets the bit PERFTRACE_THREAD_SHARED of @number. A thread that finds
 * PERFTRACE_THREAD_SHARED set when it writes an event compares the result of gettid() with the
 * thread id in @number. If gettid() returns another id, the thread is a child that shares struct
 * perftrace_thread with its parent.
 */
struct perftrace_thread {
	__u64	sequence;
	__u64	number;
};

/**
 * struct perftrace_attach - argument of PERFTRACE_ATTACH, which makes the caller a traced process
 * @size: size of this structure in bytes
 * @flags: 0, or PERFTRACE_SHARED: traces with shared buffers record the process as well
 * @nr_cpus: out: the value of perftrace_control.nr_cpus
 * @stride: out: the value of perftrace_control.stride
 * @bytes: out: size of the second area in bytes
 * @key: out: the value of perftrace_control.key
 * @control: out: address at which the process has mapped the whole first area, or 0
 * @buffers: out: address at which the process has mapped the whole second area, or 0
 * @thread: offset of struct perftrace_thread from the thread pointer (FS); 0: the program has no
 *	such structure
 *
 * A process may attach several times, each time with another open file of the device. All attached
 * files of a process share the key, the markers, the first area (control) and the second area
 * (buffers) of the process, so the process maps each area only once. Tracing of the process ends
 * when the areas are unmapped, or when the last file with which the process has attached is closed.
 *
 * Errors of PERFTRACE_ATTACH: EBUSY: the file is bound already, or the process has attached before
 * through another device node; ENOSPC: the process has attached with 256 files, or too many
 * processes are traced; ENODEV: PERFTRACE_RELEASE is in effect.
 */
struct perftrace_attach {
	__u32	size;
	__u32	flags;
	__u32	nr_cpus;
	__u32	stride;
	__u64	bytes;
	__u64	key;
	__u64	control;
	__u64	buffers;
	__s64	thread;
};

/**
 * struct perftrace_marker - a marker of a process, that is, a kind of event that the process can
 * write
 * @name: "provider:event"
 * @fields: the fields of the marker, as a text of "name:type" items
 * @number: number of the marker in this process, returned by PERFTRACE_REGISTER and passed to
 *	    PERFTRACE_UNREGISTER; PERFTRACE_NO_NUMBER if the marker was refused
 * @error: errno if PERFTRACE_REGISTER refused the marker, otherwise 0; for PERFTRACE_UNREGISTER the
 *	caller sets @error to 0
 */
struct perftrace_marker {
	char	name[PERFTRACE_NAME_MAX];
	char	fields[PERFTRACE_FIELDS_MAX];
	__u32	number;
	__u32	error;
};

/**
 * struct perftrace_markers - argument of PERFTRACE_REGISTER and PERFTRACE_UNREGISTER: the markers
 *			      of a program or of a library
 * @size: size of this structure in bytes
 * @nr: number of markers; the call fails with E2BIG if there are more than PERFTRACE_NR_MARKERS
 * @markers: address of the first struct perftrace_marker
 * @bad: out: index of the first marker that was refused; written if the call fails
 * @refused: out: number of markers that were refused; written if the call fails
 *
 * If a marker with the same name and fields is registered already, PERFTRACE_REGISTER returns its
 * number and counts a reference. A marker stays registered until it has been unregistered as often
 * as it was registered.
 *
 * If some markers are refused, the other markers are registered nevertheless, and the call fails
 * with the error of the first refused marker. EINVAL: a name, a field list or a number is invalid;
 * ENOSPC: the process has used PERFTRACE_NR_MARKERS numbers; EDQUOT: the user's limit of memory is
 * exhausted; ENOMEM: there is not enough memory.
 */
struct perftrace_markers {
	__u32	size;
	__u32	nr;
	__u64	markers;
	__u32	bad;
	__u32	refused;
};

/**
 * struct perftrace_create - argument of PERFTRACE_CREATE and PERFTRACE_OPEN
 * @size: size of this structure in bytes
 * @flags: PERFTRACE_FLIGHT, _WAIT, _SHARED, _KEEP, _PAUSED, _ALL_USERS; returned by PERFTRACE_OPEN
 * @bytes: size of a buffer's area for records in bytes; 0: 16 KiB, or 1 MiB with PERFTRACE_SHARED;
 *	returned by PERFTRACE_OPEN
 * @filter_bytes: size of @filter in bytes; 0: the trace has no filter
 * @filter: address of a struct perftrace_filter, if @filter_bytes is not 0
 * @position: out: if PERFTRACE_CREATE fails because of the filter, the number of the invalid step,
 *	or ~0
 * @slot: out: number of the slot that the trace uses
 * @wait_ms: with PERFTRACE_WAIT, maximum time in milliseconds that a thread waits for room.
 *	If a thread has waited for @wait_ms, its event is lost. A @wait_ms of 0 means 10,000 ms, and
 *	~0 means no limit. Without PERFTRACE_WAIT, @wait_ms must be 0
 * @reserved: 0
 * @name: name of the trace, from letters, digits, underscores, dots and dashes; unique among the
 *	traces of the user
 * @markers: markers that the trace records: patterns of their names, separated by single blanks.
 *	An empty text selects all markers except the kernel's. With CAP_PERFMON the markers
 *	"kernel:sched_switch", "kernel:sys_enter" and "kernel:sys_exit" can be selected as well.
 *	PERFTRACE_OPEN returns @markers
 *
 * A pattern of marker names has at most PERFTRACE_NAME_MAX bytes. With PERFTRACE_SHARED, a process
 * can damage the records of other processes. PERFTRACE_SHARED cannot be combined with
 * PERFTRACE_ALL_USERS.
 *
 * PERFTRACE_OPEN binds the file to the trace @name of the calling user or, with
 * CAP_PERFMON, of any user. Traces with PERFTRACE_ALL_USERS and traces with
 * kernel events can be opened only with CAP_PERFMON.
 *
 * Errors of PERFTRACE_CREATE: EPERM: a capability is missing, or the kernel is locked down; EEXIST:
 * the name is in use; EBUSY: the file is bound already, or all 16 slots are in use; ENODEV:
 * PERFTRACE_RELEASE is in effect. Without CAP_PERFMON, PERFTRACE_CREATE also fails with EBUSY if 12
 * slots are in use, if the user has 8 traces, or if the user has 32 traces including ended ones
 * that are still open.
 *
 * Errors of PERFTRACE_OPEN: ENOENT: the trace does not exist; EPERM: a security module forbids
 * access to the trace's creator; EBUSY: the file is bound already or, without CAP_PERFMON, 8 calls
 * of PERFTRACE_OPEN by the user are running.
 */
struct perftrace_create {
	__u32	size;
	__u32	flags;
	__u32	bytes;
	__u32	filter_bytes;
	__u64	filter;
	__u32	position;
	__u32	slot;
	__u32	wait_ms;
	__u32	reserved;
	char	name[PERFTRACE_NAME_MAX];
	char	markers[PERFTRACE_FIELDS_MAX];
};

/**
 * struct perftrace_info - the state of a trace
 * @size: size of this structure in bytes
 * @slot: out: number of the slot that the trace uses, ~0 if the trace has ended. The caller of
 *	PERFTRACE_NEXT_TRACE sets @slot to the lowest slot number to be returned
 * @flags: perftrace_create.flags of the trace; also PERFTRACE_FILTERED if the trace has a filter,
 *	and PERFTRACE_UNSTABLE if the TSC is unstable or has restarted in a suspend since the trace
 *	was created
 * @bytes: size of a buffer's area for records in bytes
 * @nr_cpus: number of CPU ids (the kernel's nr_cpu_ids)
 * @clock: clock of the records' times, PERFTRACE_CLOCK_*
 * @khz: ticks of the clock per millisecond
 * @uid: user id of the trace's creator
 * @ticks: the current time in ticks
 * @realtime: the current CLOCK_REALTIME in nanoseconds
 * @began: time in ticks when the trace was created
 * @nr_processes: number of processes that have buffers of the trace
 * @memory: size in bytes of all buffers of the trace, and of its data about processes that have
 *	ended
 * @lost: total number of events that were lost because a buffer had no room
 * @cut: total number of bytes that were skipped because the counters in the header of a buffer were
 *	invalid
 * @dropped: number of ended processes whose records were discarded unread because a limit was
 *	reached
 * @no_memory: number of buffers, markers, processes and child processes that could not be set up,
 *	because memory was short, a limit was reached, or the permission to trace a process could
 *	not be checked. @lost does not count events that are lost for this reason
 * @denied: number of processes that the trace does not record because its creator may no longer
 *	trace them or, with PERFTRACE_WAIT, may not stop them
 * @name: name of the trace
 * @markers: patterns of marker names, as in perftrace_create.markers
 */
struct perftrace_info {
	__u32	size;
	__u32	slot;
	__u32	flags;
	__u32	bytes;
	__u32	nr_cpus;
	__u32	clock;
	__u32	khz;
	__u32	uid;
	__u64	ticks;
	__u64	realtime;
	__u64	began;
	__u64	nr_processes;
	__u64	memory;
	__u64	lost;
	__u64	cut;
	__u64	dropped;
	__u64	no_memory;
	__u64	denied;
	char	name[PERFTRACE_NAME_MAX];
	char	markers[PERFTRACE_FIELDS_MAX];
};

/* Keys of buffers that belong to no process. */
#define PERFTRACE_KEY_KERNEL	1	/* the buffers with the kernel's events */
#define PERFTRACE_KEY_SHARED	2	/* the buffers that processes share */

/**
 * struct perftrace_read - argument of PERFTRACE_READ, which copies the new records of one buffer
 * @key: in: key of the buffer that was read before, 0 to start; out: key of the process that owns
 *	the buffer
 * @cpu: in: CPU of the buffer that was read before, ~0 to start; out: CPU of the buffer
 * @bytes: in: size of @to in bytes; out: number of bytes copied or, with ENOSPC, the size that is
 *	needed
 * @to: address to which the records are copied. The records are unmodified and complete, the oldest
 *	first. The records of flight recorders come newest first, and the last record may be cut
 *	where it was overwritten
 * @lost: out: value of perftrace_buffer.lost
 * @position: out: number of bytes written to the buffer before the copied records; for flight
 *	recorders the number of all bytes written
 * @ticks: out: the current time in ticks
 *
 * PERFTRACE_READ searches for the next buffer with new records, beginning after the buffer of @key
 * and @cpu. Reading consumes the records, except those of flight recorders. If the counters in the
 * header of a buffer are invalid, the buffer is skipped and its bytes are counted in
 * perftrace_info.cut. A PERFTRACE_READ with @key 0 also removes ended processes from the trace if
 * all their records were read or, with PERFTRACE_SHARED, after one complete pass over all buffers.
 *
 * Errors of PERFTRACE_READ: ENOENT: no further buffer has new records; EBUSY: another file reads
 * this trace.
 */
struct perftrace_read {
	__u64	key;
	__u32	cpu;
	__u32	bytes;
	__u64	to;
	__u64	lost;
	__u64	position;
	__u64	ticks;
};

#define PERFTRACE_ENDED		0x01

/**
 * struct perftrace_process - argument of PERFTRACE_PROCESS, which describes a traced process
 * @key: in: key of the process; keys are never reused
 * @pid: id of the process in the caller's pid namespace; 0 if the process is not visible there
 * @uid: user id of the process
 * @flags: 0, or PERFTRACE_ENDED: tracing of the process has ended
 * @nr_markers: number of marker numbers that the process has used
 * @began: time in ticks when the process attached
 * @comm: name of the process
 */
struct perftrace_process {
	__u64	key;
	__u32	pid;
	__u32	uid;
	__u32	flags;
	__u32	nr_markers;
	__u64	began;
	char	comm[16];
};

/**
 * struct perftrace_describe - argument of PERFTRACE_DESCRIBE and PERFTRACE_NEXT_MARKER, which
 * describe a marker
 * @key: in: key of the process; for PERFTRACE_NEXT_MARKER the lowest key to return. out: key of the
 *	process that was found
 * @number: in: number of the marker; for PERFTRACE_NEXT_MARKER the lowest number to return for the
 *	    process @key. out: number of the marker that was found
 * @refs: out: how often the marker is registered; 0: the marker is no longer registered
 * @marker: out: name and fields of the marker
 */
struct perftrace_describe {
	__u64	key;
	__u32	number;
	__u32	refs;
	struct perftrace_marker	marker;
};

/**
 * struct perftrace_notify - argument of PERFTRACE_NOTIFY, which wakes the reader of a trace
 * @slot: number of the slot that the trace uses
 * @cpu: CPU of the buffer
 *
 * A writer calls PERFTRACE_NOTIFY when a buffer has become half full or full. PERFTRACE_NOTIFY
 * fails with ENOENT if the trace has ended, or if the allocation of the buffer has failed.
 */
struct perftrace_notify {
	__u32	slot;
	__u32	cpu;
};

/**
 * struct perftrace_room - argument of PERFTRACE_WAIT_ROOM, which waits for room in a buffer
 * @slot: number of the slot that the trace uses
 * @cpu: CPU of the buffer
 * @tail: value of perftrace_buffer.tail when the buffer had no room
 *
 * PERFTRACE_WAIT_ROOM wakes the reader, like PERFTRACE_NOTIFY, and sleeps until the reader has
 * advanced perftrace_buffer.tail or the trace has ended. PERFTRACE_WAIT_ROOM then returns 0, and
 * its caller tries again to write the event.
 *
 * Errors of PERFTRACE_WAIT_ROOM: ETIMEDOUT: the reader has not advanced perftrace_buffer.tail for
 * perftrace_create.wait_ms since the first call for this buffer with this @tail. After a call has
 * failed with ETIMEDOUT, calls of PERFTRACE_WAIT_ROOM for this buffer fail at once until the reader
 * advances perftrace_buffer.tail. EINTR: a signal was received; the next call does not restart the
 * timeout. ENOENT: the buffer does not exist, or the trace's creator has lost the permission to
 * read this process. EINVAL: the trace does not have PERFTRACE_WAIT.
 */
struct perftrace_room {
	__u32	slot;
	__u32	cpu;
	__u64	tail;
};

#define PERFTRACE_RESUME	0x01

/**
 * struct perftrace_release - argument of PERFTRACE_RELEASE, which makes the traced processes unmap
 *			      and close the device, so that its module can be unloaded
 * @size: size of this structure in bytes
 * @flags: 0; or PERFTRACE_RESUME, which cancels the release: processes can attach again
 * @wake: descriptor of the wake file, which is mapped in place of the first area; -1: no file. The
 *	wake file must be a regular file of at least PERFTRACE_READ_BYTES, opened read-only
 * @left: out: number of processes that have not released the device yet; if @left is not 0, the
 *	caller calls PERFTRACE_RELEASE again
 *
 * PERFTRACE_RELEASE needs CAP_SYS_MODULE, and fails with EBUSY if a trace has not ended. After a
 * successful PERFTRACE_RELEASE, PERFTRACE_ATTACH and PERFTRACE_CREATE fail with ENODEV until the
 * module is unloaded or PERFTRACE_RESUME cancels the release. Closing a file also cancels the
 * release, if the last PERFTRACE_RELEASE on the file has returned a nonzero @left.
 *
 * A process releases the device when one of its threads next returns to user mode. A process cannot
 * release the device while it is stopped, or if mlockall() or mseal() protects its mappings. When
 * PERFTRACE_RELEASE wakes a thread that sleeps in a system call, the system call may fail with
 * EINTR, as after SIGSTOP and SIGCONT.
 *
 * A program that cannot attach when it starts can itself map the wake file. After "pfc trace arm"
 * has set PERFTRACE_WAKE in all marker words of this file, the program attaches at its next event.
 */
struct perftrace_release {
	__u32	size;
	__u32	flags;
	__s32	wake;
	__u32	left;
};

/*
 * Bit of the marker words in the wake file (perftrace_release.wake). The wake file has a __u32 word
 * for each marker, at the offset PERFTRACE_WORDS. A marker word of the wake file is 0, or has
 * PERFTRACE_WAKE set to announce the device. In a marker word with PERFTRACE_WAKE, bits 16 to 30
 * have a number that changes with each announcement of the device.
 */
#define PERFTRACE_WAKE		0x80000000

/*
 * PERFTRACE_ATTACH binds a file to the calling process. PERFTRACE_REGISTER, PERFTRACE_UNREGISTER,
 * PERFTRACE_NOTIFY and PERFTRACE_WAIT_ROOM are called on a file that is bound to a process. If a
 * child has inherited a file that is bound to its parent, ioctls of the child on this file act for
 * the child. An ioctl on a file that is bound to a process fails with ESRCH if the calling process
 * is not traced.
 */
#define PERFTRACE_ATTACH	_IOWR('A', 0x80, struct perftrace_attach)
#define PERFTRACE_REGISTER	_IOWR('A', 0x81, struct perftrace_markers)
#define PERFTRACE_UNREGISTER	_IOWR('A', 0x82, struct perftrace_markers)
#define PERFTRACE_NOTIFY	_IOW('A', 0x83, struct perftrace_notify)
#define PERFTRACE_WAIT_ROOM	_IOW('A', 0x84, struct perftrace_room)

/*
 * The following calls can be made on any file of the device. PERFTRACE_NEXT_TRACE returns the next
 * trace that the caller may open. PERFTRACE_NEXT_MARKER returns the next marker of a process that
 * the caller may trace. Both fail with ENOENT if none follows. PERFTRACE_NEXT_MARKER fails with
 * ENOMEM if a permission could not be checked. Processes that attach during the call are left out.
 */
#define PERFTRACE_NEXT_TRACE	_IOWR('A', 0x88, struct perftrace_info)
#define PERFTRACE_NEXT_MARKER	_IOWR('A', 0x89, struct perftrace_describe)
#define PERFTRACE_RELEASE	_IOWR('A', 0x8a, struct perftrace_release)
/*
 * On the file of a trace, PERFTRACE_PROCESS describes a process whose records the trace has. On any
 * other file of the device, PERFTRACE_PROCESS describes a process that the caller may trace.
 * ENOENT: there is no such process; ENOMEM: a permission could not be checked.
 */

/*
 * PERFTRACE_CREATE and PERFTRACE_OPEN bind a file to a trace. PERFTRACE_INFO, PERFTRACE_READ,
 * PERFTRACE_DESCRIBE, PERFTRACE_PAUSE and PERFTRACE_END are called on a file that is bound to a
 * trace. On the file of a trace, poll() reports POLLIN when a buffer has become half full or has
 * lost an event, when a thread waits for room, and when a process has joined or ended.
 * PERFTRACE_READ with key 0 clears POLLIN. poll() reports POLLHUP when the trace has ended.
 */
#define PERFTRACE_CREATE	_IOWR('A', 0x90, struct perftrace_create)
#define PERFTRACE_OPEN		_IOWR('A', 0x91, struct perftrace_create)
#define PERFTRACE_INFO		_IOWR('A', 0x92, struct perftrace_info)
#define PERFTRACE_READ		_IOWR('A', 0x93, struct perftrace_read)
#define PERFTRACE_PROCESS	_IOWR('A', 0x94, struct perftrace_process)
#define PERFTRACE_DESCRIBE	_IOWR('A', 0x95, struct perftrace_describe)
/*
 * If the argument is 1, PERFTRACE_PAUSE pauses the trace: no events are written to the trace. If
 * the argument is 0, PERFTRACE_PAUSE resumes the trace.
 */
#define PERFTRACE_PAUSE		_IOW('A', 0x96, __u32)
/*
 * PERFTRACE_END ends the trace. The records of an ended trace can be read until the last file of
 * the trace is closed.
 */
#define PERFTRACE_END		_IO('A', 0x97)

#endif /* _UAPI_LINUX_PERFTRACE_H */
