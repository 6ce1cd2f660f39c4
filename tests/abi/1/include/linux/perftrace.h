/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perftrace: tracing of user programs. Programs write events, without a system call, into
 * buffers that the kernel owns.
 *
 * An open file of /dev/perftrace is bound to one of two things: to the process that is to be
 * traced (PERFTRACE_ATTACH, followed by mmap), or to a trace (PERFTRACE_CREATE, PERFTRACE_OPEN).
 *
 * See Documentation/tracing.md.
 */
#ifndef _UAPI_LINUX_PERFTRACE_H
#define _UAPI_LINUX_PERFTRACE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PERFTRACE_VERSION	1

/* Number of slots for traces, and marker numbers that a process can use in its lifetime. */
#define PERFTRACE_NR_TRACES	16
#define PERFTRACE_NR_MARKERS	4096
/* The number of a marker that was refused. */
#define PERFTRACE_NO_NUMBER	0xffffffffU
/* Maximum size in bytes of a name and of a list of fields, NUL included, and of a filter. */
#define PERFTRACE_NAME_MAX	64
#define PERFTRACE_FIELDS_MAX	256
#define PERFTRACE_FILTER_MAX	4096
/* Limits of the size in bytes of a buffer's records, which is a power of two. */
#define PERFTRACE_BYTES_MIN	4096
#define PERFTRACE_BYTES_MAX	(4 << 20)
/* Maximum size in bytes of a record, header included. */
#define PERFTRACE_RECORD_MAX	2048

/*
 * Offsets in the file of the two areas that a traced process maps. It maps the first one
 * read-only: struct perftrace_control, then a __u32 for each marker (bit t is set if trace t wants
 * the marker's events), then a page with the filter of each trace. The second area has the
 * buffers and is writable:
 *
 *	buffer of trace t on CPU c = buffers + ((t * nr_cpus + c) << stride)
 *
 * PERFTRACE_ATTACH returns nr_cpus, stride and the size of the second area. Pages are allocated at
 * the first access. An access to the buffers or the filter of an unused slot reaches a dummy page,
 * which no trace reads. A child of fork() inherits its parent's markers, and gets pages of its own
 * at its first access.
 */
#define PERFTRACE_CONTROL	0
#define PERFTRACE_WORDS		0x1000
#define PERFTRACE_FILTERS	0x10000
#define PERFTRACE_READ_BYTES	0x20000
#define PERFTRACE_BUFFERS	0x100000

/* Flags of a trace: perftrace_slot.flags, perftrace_create.flags, perftrace_info.flags. */
#define PERFTRACE_FLIGHT	0x01	/* flight recorder: old events are overwritten */
#define PERFTRACE_WAIT		0x02	/* threads wait for room; not with FLIGHT, SHARED, KEEP */
#define PERFTRACE_SHARED	0x04	/* all processes share one buffer per CPU */
#define PERFTRACE_FILTERED	0x08	/* the trace has a filter */
#define PERFTRACE_KEEP		0x10	/* the trace continues when its last file is closed */
#define PERFTRACE_PAUSED	0x20	/* no events are written */
#define PERFTRACE_ALL_USERS	0x40	/* trace processes of all users; needs CAP_PERFMON */
#define PERFTRACE_UNSTABLE	0x80	/* out: the kernel has marked the TSC unstable */

/**
 * struct perftrace_slot - the state of a trace, for a process that takes part in it
 * @generation: odd while the slot is in use; changes when a trace begins and when it ends
 * @flags: PERFTRACE_FLIGHT, _WAIT, _SHARED, _FILTERED
 * @mask: size in bytes of a buffer's records, minus 1
 * @wait_ms: with PERFTRACE_WAIT, perftrace_create.wait_ms, for threads that cannot call
 *	PERFTRACE_WAIT_ROOM because the program has closed the file
 */
struct perftrace_slot {
	__u32	generation;
	__u32	flags;
	__u32	mask;
	__u32	wait_ms;
};

#define PERFTRACE_CLOCK_TSC		0	/* ticks of RDTSC */
#define PERFTRACE_CLOCK_MONOTONIC	1	/* nanoseconds, if the TSC is not usable */

/**
 * struct perftrace_control - the control page of a traced process
 * @version: PERFTRACE_VERSION
 * @nr_cpus: number of CPU ids (the kernel's nr_cpu_ids)
 * @stride: log2 of the distance in bytes from one buffer to the next
 * @clock: PERFTRACE_CLOCK_*
 * @key: identifies this process; follows the header of its records in shared buffers
 * @offset: nanoseconds by which CLOCK_MONOTONIC of this process's time namespace is ahead; the
 *	writer subtracts them from times of PERFTRACE_CLOCK_MONOTONIC
 * @pid: id of this process in its pid namespace
 * @reserved: 0
 * @reserved2: 0
 * @slots: the traces; the generation of a slot is even if this process takes part in no trace there
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
 * struct perftrace_buffer - header of a buffer, in its first page; records follow in the next page
 * @head: number of bytes written; in flight recorders, the negative of it. The store to @head
 *	  commits a record
 * @limit: the writer's fast path leaves a record that would end above @limit (in flight recorders:
 *	   begin below it, compared as signed) to its slow path; 0: it leaves all records to it
 * @reserve: flight recorders only: lowest position at which a record was ever begun
 * @lost: number of events that were lost because there was no room
 * @told: the value of @lost in the last PERFTRACE_LOST record
 * @owner: id of the thread that writes, on systems without restartable sequences; 0: none
 * @reserved: 0
 * @stalled: @tail + 1 if a thread that cannot call PERFTRACE_WAIT_ROOM has timed out at this @tail;
 *	     such threads do not wait again until the reader has advanced @tail
 * @reserved2: 0
 * @tail: number of bytes read, written by the kernel
 *
 * The kernel initializes @limit: to minus the size of the records in flight recorders, otherwise to
 * half of the size. The other fields start at 0. Afterwards the kernel writes @tail only.
 *
 * A record is written at offset (@head & mask) of the records. In flight recorders a record ends
 * at @head, and begins at offset (@head - its size) & mask. A record is never split at the end
 * of the buffer: a PERFTRACE_PAD fills the space that is left. The order of writes is: @reserve is
 * lowered, the record is written, @head is stored.
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
 * Header of a record. In shared buffers the process's key follows. Then the fields follow in the
 * order of the marker, without padding between them, and zeroes up to a multiple of 8 bytes.
 */
struct perftrace_record {
	__u16	marker;		/* number of the marker, PERFTRACE_PAD or PERFTRACE_LOST */
	__u16	words;		/* size in words of 8 bytes, header included */
	__u32	thread;		/* thread id, in the pid namespace of the thread */
	__u64	time;		/* in ticks of perftrace_control.clock */
};

#define PERFTRACE_PAD		0xffff	/* padding; only its first 8 bytes are valid */
#define PERFTRACE_LOST		0xfffe	/* one __u64, no key: perftrace_buffer.lost so far */

/*
 * The fields of a marker are a text: "name:type" items, separated by single blanks. Types are u8
 * u16 u32 u64 s8 s16 s32 s64, x8 x16 x32 x64 (shown in hexadecimal), f32 f64, and str (bytes and a
 * NUL). The name of a field has letters, digits and underscores, at most 31 bytes, and is unique in
 * its marker. A marker has at most 16 fields. The name of a marker is "provider:event", where both
 * parts consist of letters, digits, underscores, dots and dashes.
 */

#define PERFTRACE_THREAD_SHARED	1	/* in perftrace_thread.number: shared with a process */

/**
 * struct perftrace_thread - thread-local variable of the writer that the kernel also writes
 * @sequence: offset of the thread's struct rseq from the thread pointer; 0: events are written by
 *	      the slow path
 * @number: thread id << 32; 0: not known yet
 *
 * A child of fork() starts with a copy of the structure of the thread that called fork(). The
 * kernel sets both fields of this copy to 0 before the child's first event. A child of vfork(), or
 * of clone() with CLONE_VM and without CLONE_THREAD, shares the structure with its parent and has
 * no struct rseq. Before such a child runs, the kernel sets @sequence to 0 and
 * PERFTRACE_THREAD_SHARED in @number. The thread that writes the next event then has to call
 * gettid() to find out whether it is the thread in @number or the child.
 */
struct perftrace_thread {
	__u64	sequence;
	__u64	number;
};

/**
 * struct perftrace_attach - argument of PERFTRACE_ATTACH, which makes the caller a traced process
 * @size: bytes of this structure
 * @flags: PERFTRACE_SHARED: the process takes part in shared traces as well
 * @nr_cpus: out: see perftrace_control
 * @stride: out: see perftrace_control
 * @bytes: out: bytes of the second area
 * @key: out: see perftrace_control
 * @control: out: address at which the process has mapped the whole first area, or 0
 * @buffers: out: address at which the process has mapped the whole second area, or 0
 * @thread: offset of struct perftrace_thread from the thread pointer (FS); 0: there is none
 *
 * A process may attach several times. A further file shares the key, the markers and the areas of
 * the first one, and the areas need not be mapped again. Tracing of the process ends when the areas
 * are unmapped or its last file is closed.
 *
 * EBUSY: the file is bound already, or belongs to another device node than the first one; ENOSPC:
 * the process has 256 files, or too many processes are traced; ENODEV: PERFTRACE_RELEASE is in
 * effect.
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
 * struct perftrace_marker - a marker of a process: a kind of event that the process can write
 * @name: "provider:event"
 * @fields: the fields, as a text in the format described above
 * @number: REGISTER: out: number of the marker in this process, or PERFTRACE_NO_NUMBER;
 *	    UNREGISTER: in: that number
 * @error: REGISTER: out: errno if the marker was refused, otherwise 0; UNREGISTER: 0
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
 * @size: bytes of this structure
 * @nr: number of markers; E2BIG if there are more than PERFTRACE_NR_MARKERS
 * @markers: address of the first struct perftrace_marker
 * @bad: out: index of the first marker that was refused; written if the call fails
 * @refused: out: number of markers that were refused; written if the call fails
 *
 * If a marker with the same name and fields is registered, the call returns its number and counts a
 * reference. The marker stays registered until it has been unregistered as often.
 *
 * A refused marker does not keep the others from being registered. The call then fails with the
 * error of the first one. EINVAL: a bad name, fields or number; ENOSPC: the process has used
 * PERFTRACE_NR_MARKERS numbers; EDQUOT, ENOMEM: the user's limit, or memory, is exhausted.
 */
struct perftrace_markers {
	__u32	size;
	__u32	nr;
	__u64	markers;
	__u32	bad;
	__u32	refused;
};

/*
 * A filter is a program without loops. Each step compares a field with a constant and selects the
 * next step, a later one, or ends the program. A comparison with a field that the marker does not
 * have, or of another kind, is false. Besides the marker's fields a filter can use $thread and
 * $process (numbers) and $marker (text, "provider:event").
 */
/* Integers are compared by value, independent of size and signedness. */
#define PERFTRACE_EQ		1
#define PERFTRACE_NE		2
#define PERFTRACE_LT		3
#define PERFTRACE_LE		4
#define PERFTRACE_GT		5
#define PERFTRACE_GE		6
#define PERFTRACE_ANY		7	/* at least one bit of the constant is set in the field */
/* Text that matches a pattern of * ? [a-z] [!a-z] \x; @value is the offset of the pattern. */
#define PERFTRACE_GLOB		8
#define PERFTRACE_OP		0x0f
#define PERFTRACE_SIGNED	0x10	/* @value is an __s64; not with GLOB */
#define PERFTRACE_FLOAT		0x20	/* @value is a double; not with ANY, GLOB */

#define PERFTRACE_ACCEPT	0xffff
#define PERFTRACE_REJECT	0xfffe

/**
 * struct perftrace_step - a step of a filter
 * @op: PERFTRACE_EQ to PERFTRACE_GLOB, and PERFTRACE_SIGNED or PERFTRACE_FLOAT
 * @reserved: 0
 * @field: offset in the filter of the NUL-terminated name of the field
 * @yes: next step if the comparison is true: a higher number than this step's,
 *	 PERFTRACE_ACCEPT or PERFTRACE_REJECT
 * @no: next step if the comparison is false, in the format of @yes
 * @value: the constant
 */
struct perftrace_step {
	__u8	op;
	__u8	reserved;
	__u16	field;
	__u16	yes;
	__u16	no;
	__u64	value;
};

/**
 * struct perftrace_filter - a filter
 * @bytes: size of the filter, at most PERFTRACE_FILTER_MAX; the last byte is a NUL
 * @nr_steps: number of steps, at least one
 * @reserved: 0
 * @steps: the steps; names and patterns follow them
 */
struct perftrace_filter {
	__u32	bytes;
	__u16	nr_steps;
	__u16	reserved;
	struct perftrace_step	steps[];
};

/**
 * struct perftrace_create - argument of PERFTRACE_CREATE and PERFTRACE_OPEN
 * @size: bytes of this structure
 * @flags: PERFTRACE_FLIGHT, _WAIT, _SHARED, _KEEP, _PAUSED, _ALL_USERS; OPEN: out
 * @bytes: bytes of a buffer's records; 0: 16 KiB, or 1 MiB with PERFTRACE_SHARED; OPEN: out
 * @filter_bytes: bytes of @filter; 0: no filter
 * @filter: address of a struct perftrace_filter
 * @position: out: if CREATE fails because of the filter, the number of the bad step, or ~0
 * @slot: out: number of the trace's slot
 * @wait_ms: with PERFTRACE_WAIT, the milliseconds that a thread waits for room before its event is
 *	lost; 0: 10,000; ~0: no limit. Without PERFTRACE_WAIT it must be 0
 * @reserved: 0
 * @name: name of the trace, in the format of the event part of a marker's name; unique among the
 *	traces of the user
 * @markers: patterns of marker names, separated by single blanks; "": all but the kernel's. With
 *	CAP_PERFMON also "kernel:sched_switch", "kernel:sys_enter", "kernel:sys_exit". OPEN: out
 *
 * A pattern has at most PERFTRACE_NAME_MAX bytes. With PERFTRACE_SHARED, a process can damage the
 * records of others; it cannot be combined with PERFTRACE_ALL_USERS.
 *
 * PERFTRACE_OPEN binds the file to the trace @name of the caller or, with CAP_PERFMON, of any user.
 * Traces of all users and traces with kernel events can be opened with CAP_PERFMON only.
 *
 * Errors of CREATE: EPERM: a capability is missing, or the kernel is locked down; EEXIST: the name
 * is in use; EBUSY: the file is bound already, or all 16 slots are in use. Without CAP_PERFMON,
 * EBUSY also if 12 slots are in use, if the user has 8 traces, or 32 with those that have ended but
 * are still open; ENODEV: PERFTRACE_RELEASE is in effect.
 *
 * Errors of OPEN: ENOENT: there is no such trace; EPERM: a security module forbids access to its
 * creator; EBUSY: the file is bound already or, without CAP_PERFMON, 8 calls of the user are
 * running.
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
 * @size: bytes of this structure
 * @slot: PERFTRACE_NEXT_TRACE: in: the lowest slot number to return; out: number of the trace's
 *	slot, ~0 if the trace has ended
 * @flags: as in perftrace_create, with PERFTRACE_FILTERED and PERFTRACE_UNSTABLE
 * @bytes: bytes of a buffer's records
 * @nr_cpus: number of CPU ids (the kernel's nr_cpu_ids)
 * @clock: PERFTRACE_CLOCK_*
 * @khz: ticks of the clock per millisecond
 * @uid: user id of its creator
 * @ticks: the current time in ticks
 * @realtime: the current CLOCK_REALTIME in nanoseconds
 * @began: time of its creation, in ticks
 * @nr_processes: number of processes that have buffers in it
 * @memory: bytes of all its buffers, and of the data about processes that have ended
 * @lost: total number of events that were lost because there was no room
 * @cut: total number of bytes that were skipped because the counters in a buffer were invalid
 * @dropped: number of ended processes whose records were dropped unread because of a limit
 * @no_memory: number of buffers, markers, processes and children that could not be set up, because
 *	memory was short or a limit reached; their events are lost and not in @lost
 * @denied: number of processes that were dropped because the trace's creator may no longer trace
 *	them
 * @name: name of the trace
 * @markers: patterns of marker names
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

/* Keys that do not identify a process. */
#define PERFTRACE_KEY_KERNEL	1	/* the kernel's events */
#define PERFTRACE_KEY_SHARED	2	/* the shared buffers */

/**
 * struct perftrace_read - argument of PERFTRACE_READ, which copies the new records of one buffer
 * @key: in: key of the previous buffer, 0 to start; out: key of the process that owns the buffer
 * @cpu: in: CPU of the previous buffer, ~0 to start; out: CPU of the buffer
 * @bytes: in: size of @to; out: bytes copied, or the size needed with ENOSPC
 * @to: address of the destination. It receives unmodified, complete records, the oldest first; for
 *	flight recorders the newest first, and the last one may be cut where it was overwritten
 * @lost: out: perftrace_buffer.lost
 * @position: out: number of bytes written to the buffer before these records; for flight recorders
 *	the number of all bytes written
 * @ticks: out: the current time in ticks
 *
 * The call searches, from the buffer after @key and @cpu on, the next buffer with new records.
 * Records are consumed by reading them, except in flight recorders. A buffer with invalid counters
 * is skipped and counted in perftrace_info.cut. A call with @key 0 also discards the processes that
 * have ended and whose records have all been read.
 *
 * ENOENT: no further buffer has new records; EBUSY: another file reads this trace.
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
 * struct perftrace_process - argument of PERFTRACE_PROCESS: a traced process
 * @key: in: key of the process; keys are never reused
 * @pid: process id in the caller's pid namespace; 0: not visible there
 * @uid: user id of the process
 * @flags: PERFTRACE_ENDED: tracing of the process has ended
 * @nr_markers: number of marker numbers that the process has used
 * @began: time at which it attached, in ticks
 * @comm: its name
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
 * struct perftrace_describe - argument of PERFTRACE_DESCRIBE and PERFTRACE_NEXT_MARKER: a marker
 * @key: in: key of the process; NEXT_MARKER: in: the lowest key; out: the key found
 * @number: in: number of the marker; NEXT_MARKER: in: the lowest number, for the process @key; out:
 *	    the number found
 * @refs: out: number of registrations; 0: the marker is not registered any longer
 * @marker: out: the marker
 */
struct perftrace_describe {
	__u64	key;
	__u32	number;
	__u32	refs;
	struct perftrace_marker	marker;
};

/**
 * struct perftrace_notify - argument of PERFTRACE_NOTIFY, which wakes the reader of a trace
 * @slot: slot of the trace
 * @cpu: CPU of the buffer
 *
 * A writer calls it when a buffer has become half full or full. ENOENT: there is no such buffer,
 * because memory was short, or the trace has ended.
 */
struct perftrace_notify {
	__u32	slot;
	__u32	cpu;
};

/**
 * struct perftrace_room - argument of PERFTRACE_WAIT_ROOM, which waits for room in a buffer
 * @slot: slot of the trace
 * @cpu: CPU of the buffer
 * @tail: perftrace_buffer.tail when there was no room
 *
 * The call wakes the reader, like PERFTRACE_NOTIFY, and sleeps until the reader has advanced @tail
 * or the trace has ended. It then returns 0, and the caller tries again.
 *
 * ETIMEDOUT: @tail has not changed for perftrace_create.wait_ms since the first call with this
 * @tail; further calls fail at once until it changes. EINTR: a signal was received; the timeout is
 * not restarted. ENOENT: there is no such buffer, or the trace's creator may no longer stop this
 * process. EINVAL: the trace does not have PERFTRACE_WAIT.
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
 * @size: bytes of this structure
 * @flags: 0; or PERFTRACE_RESUME, which cancels the release: processes can attach again
 * @wake: descriptor of a regular file of at least PERFTRACE_READ_BYTES, opened read-only, that is
 *	mapped in place of the first area; -1: none
 * @left: out: number of processes that have not released the device yet; if not 0, call again
 *
 * Needs CAP_SYS_MODULE. EBUSY: there are traces. From the call on, until the module is unloaded or
 * the release is cancelled, attaching and creating traces fail with ENODEV. If @left was not 0 in
 * the last call on a file, closing the file cancels the release.
 *
 * A process releases the device itself, when one of its threads next returns to user mode. It
 * cannot do so while it is stopped, or if mlockall() or mseal() protects its mappings. A system
 * call in which one of its threads sleeps may fail with EINTR, as after SIGSTOP and SIGCONT.
 *
 * A program that has mapped the @wake file, or that found no device when it started, attaches at
 * its next event after PERFTRACE_WAKE has been set in all words of the file.
 */
struct perftrace_release {
	__u32	size;
	__u32	flags;
	__s32	wake;
	__u32	left;
};

/*
 * A word of the @wake file is 0, or has this bit and, between it and the 16 bits of the traces, a
 * number that differs each time that the bit is set.
 */
#define PERFTRACE_WAKE		0x80000000

/*
 * Calls on a file of a traced process. Through an inherited file a child acts on itself; ESRCH if
 * the calling process is not traced.
 */
#define PERFTRACE_ATTACH	_IOWR('A', 0x80, struct perftrace_attach)
#define PERFTRACE_REGISTER	_IOWR('A', 0x81, struct perftrace_markers)
#define PERFTRACE_UNREGISTER	_IOWR('A', 0x82, struct perftrace_markers)
#define PERFTRACE_NOTIFY	_IOW('A', 0x83, struct perftrace_notify)
#define PERFTRACE_WAIT_ROOM	_IOW('A', 0x84, struct perftrace_room)

/*
 * Calls on any file. NEXT_TRACE returns the traces that the caller may open, one by one, and
 * NEXT_MARKER the markers of processes that the caller may trace. ENOENT: there are no more.
 */
#define PERFTRACE_NEXT_TRACE	_IOWR('A', 0x88, struct perftrace_info)
#define PERFTRACE_NEXT_MARKER	_IOWR('A', 0x89, struct perftrace_describe)
#define PERFTRACE_RELEASE	_IOWR('A', 0x8a, struct perftrace_release)
/*
 * PERFTRACE_PROCESS can be called on any file as well. On the file of a trace it returns a process
 * whose records the trace has; on other files, one that the caller may trace.
 */

/*
 * Calls on the file of a trace. poll() reports POLLIN when a buffer has become half full, or when a
 * process has joined or has ended, until PERFTRACE_READ with key 0. It reports POLLHUP when the
 * trace has ended.
 */
#define PERFTRACE_CREATE	_IOWR('A', 0x90, struct perftrace_create)
#define PERFTRACE_OPEN		_IOWR('A', 0x91, struct perftrace_create)
#define PERFTRACE_INFO		_IOWR('A', 0x92, struct perftrace_info)
#define PERFTRACE_READ		_IOWR('A', 0x93, struct perftrace_read)
#define PERFTRACE_PROCESS	_IOWR('A', 0x94, struct perftrace_process)
#define PERFTRACE_DESCRIBE	_IOWR('A', 0x95, struct perftrace_describe)
/* 1: pause the trace, no events are written; 0: resume it */
#define PERFTRACE_PAUSE		_IOW('A', 0x96, __u32)
/* Ends the trace. Its records can be read until its last file is closed. */
#define PERFTRACE_END		_IO('A', 0x97)

#endif /* _UAPI_LINUX_PERFTRACE_H */
