/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * perftrace: events of user programs, written without a system call into buffers that the
 * kernel owns.
 *
 * An open file of /dev/perftrace becomes one of two things: a process that is traced
 * (PERFTRACE_ATTACH, then mmap), or the hold of a trace (PERFTRACE_CREATE, PERFTRACE_OPEN).
 *
 * See Documentation/tracing.md.
 */
#ifndef _UAPI_LINUX_PERFTRACE_H
#define _UAPI_LINUX_PERFTRACE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PERFTRACE_VERSION	1

/* Traces at once; markers that a process has in its life; bytes of texts and of a filter. */
#define PERFTRACE_NR_TRACES	16
#define PERFTRACE_NR_MARKERS	4096
/* Of a marker that is refused. */
#define PERFTRACE_NO_NUMBER	0xffffffffU
#define PERFTRACE_NAME_MAX	64
#define PERFTRACE_FIELDS_MAX	256
#define PERFTRACE_FILTER_MAX	4096
/* Bytes of a buffer's records: a power of two. */
#define PERFTRACE_BYTES_MIN	4096
#define PERFTRACE_BYTES_MAX	(4 << 20)
/* Bytes of a record, with all that belongs to it. */
#define PERFTRACE_RECORD_MAX	2048

/*
 * What a traced process maps, in two pieces. First what it only reads: struct
 * perftrace_control, a __u32 for each marker (bit t: trace t wants it), each trace's filter in a
 * page of its own. Then what it writes:
 *
 *	buffer of trace t on CPU c = buffers + ((t * nr_cpus + c) << stride)
 *
 * PERFTRACE_ATTACH tells nr_cpus, stride and the bytes of the second piece. Pages come when
 * they are first touched. Where there is no trace there are pages as well, which are
 * nobody's. A child of fork() has its parent's markers, and pages of its own as soon as it looks.
 */
#define PERFTRACE_CONTROL	0
#define PERFTRACE_WORDS		0x1000
#define PERFTRACE_FILTERS	0x10000
#define PERFTRACE_READ_BYTES	0x20000
#define PERFTRACE_BUFFERS	0x100000

/* Of a trace: perftrace_slot.flags, perftrace_create.flags. */
#define PERFTRACE_FLIGHT	0x01	/* the newest events are kept: written backwards */
#define PERFTRACE_WAIT		0x02	/* a thread waits for room; not with FLIGHT, SHARED, KEEP */
#define PERFTRACE_SHARED	0x04	/* one buffer a CPU for all: they can harm each other's */
#define PERFTRACE_FILTERED	0x08	/* there is a filter */
#define PERFTRACE_KEEP		0x10	/* it outlives the file that made it */
#define PERFTRACE_PAUSED	0x20	/* no event is wanted for now */
#define PERFTRACE_ALL_USERS	0x40	/* CAP_PERFMON: processes of all users */
#define PERFTRACE_UNSTABLE	0x80	/* out: the kernel does not trust the clock any more */

/**
 * struct perftrace_slot - a trace, as a process in it sees it
 * @generation: odd: there is one; changes with each
 * @flags: PERFTRACE_FLIGHT, _WAIT, _SHARED, _FILTERED
 * @mask: bytes of a buffer's records - 1
 * @wait_ms: with PERFTRACE_WAIT: perftrace_create.wait_ms, for who cannot ask the kernel to wait
 */
struct perftrace_slot {
	__u32	generation;
	__u32	flags;
	__u32	mask;
	__u32	wait_ms;
};

#define PERFTRACE_CLOCK_TSC		0	/* RDTSC */
#define PERFTRACE_CLOCK_MONOTONIC	1	/* nanoseconds: where the TSC will not do */

/**
 * struct perftrace_control - the page that a traced process reads
 * @version: PERFTRACE_VERSION
 * @nr_cpus: numbers of CPUs
 * @stride: log2 of the bytes from one buffer to the next
 * @clock: PERFTRACE_CLOCK_*
 * @key: of this process: what records in shared buffers begin with
 * @offset: nanoseconds that CLOCK_MONOTONIC is ahead in this process's time name space: times
 *	of that clock are without
 * @pid: of this process, in its pid name space
 * @reserved: 0
 * @reserved2: 0
 * @slots: the traces; all 0 where this process is not in one
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
 * struct perftrace_buffer - the first page of a buffer; its records are on the next ones
 * @head: bytes written (of flight recorders: 0 minus these), where a record ends (begins);
 *	  one store of it commits a record
 * @limit: a record that would end above (of flight recorders: begin below, with a sign) takes the
 *	   long way; 0: each one does
 * @reserve: of flight recorders: the lowest place where a record was ever begun
 * @lost: events that found no room
 * @told: @lost, as the last PERFTRACE_LOST record has it
 * @owner: the thread that writes, where there are no restartable sequences; 0: none
 * @reserved: 0
 * @stalled: @tail + 1, if a thread has waited for room there in vain without the kernel; until the
 *	     reader comes no other thread does
 * @reserved2: 0
 * @tail: bytes that were read: the kernel writes it
 *
 * The kernel sets @limit of a new buffer, to 0 minus the bytes of flight recorders, else to the
 * half of the bytes. All else is 0. From then on it writes only @tail.
 *
 * A record at @head is at byte (@head & mask) of the records, a record of flight
 * recorders that ends at @head begins at (@head - its bytes) & mask. None lies across the end:
 * what is left there is a PERFTRACE_PAD. In order: @reserve is lowered before a record's bytes
 * are written, @head is stored after them.
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

#define PERFTRACE_RECORDS	4096	/* where they are in a buffer */

/*
 * A record: this, in shared buffers the process's key, then its fields without holes, in the order
 * of the marker, then zeroes to a multiple of 8 bytes.
 */
struct perftrace_record {
	__u16	marker;		/* its number in the process, or one of those below */
	__u16	words;		/* of 8 bytes, this included */
	__u32	thread;		/* as gettid() has it there */
	__u64	time;
};

#define PERFTRACE_PAD		0xffff	/* nothing; at least its first 8 bytes are there */
#define PERFTRACE_LOST		0xfffe	/* one __u64 (no key): perftrace_buffer.lost, up to here */

/*
 * Fields of a marker, as text: "name:type" with single blanks between. Types are u8 u16 u32 u64 s8
 * s16 s32 s64 x8 x16 x32 x64 (shown in hex) f32 f64 str (bytes and a NUL). Names are letters,
 * digits and _, at most 31 bytes, and not twice; at most 16 fields. A name of a marker is
 * "provider:event", both of letters, digits, and _.-
 */

#define PERFTRACE_THREAD_SHARED	1	/* in a thread's number: another process shares it */

/**
 * struct perftrace_thread - what a thread has of its own: its writer's, and sometimes the kernel's
 * @sequence: where its struct rseq is, from the thread pointer on; 0: events take the long way
 * @number: of the thread << 32, or 0: it is not known yet
 *
 * A child of fork() has its parent's, and is another thread: where @number is that of the thread
 * that made it the kernel writes 0 into both, before the child has its first event. A child of
 * vfork(), or of clone() with CLONE_VM and without CLONE_THREAD, shares its parent's and has no
 * restartable sequence: there the kernel writes 0 into @sequence and adds PERFTRACE_THREAD_SHARED
 * to @number before the child runs. The next event's thread then has to ask for its number, which
 * is @number's or the child's.
 */
struct perftrace_thread {
	__u64	sequence;
	__u64	number;
};

/**
 * struct perftrace_attach - this process is traced from now on
 * @size: of this structure
 * @flags: PERFTRACE_SHARED: it takes part in shared traces, too
 * @nr_cpus: out
 * @stride: out
 * @bytes: out: of the second piece
 * @key: out
 * @control: out: where the process has mapped the first piece, whole, or 0
 * @buffers: out: the same of the second piece
 * @thread: 0, or where a thread has its struct perftrace_thread, from the thread pointer (FS) on
 *
 * A process that is traced already is joined: by the second file it has the same key, markers and
 * pieces, which need not be mapped again. Ends with the mappings, or the last of the files. EBUSY:
 * this file is something else, or of another node than the first one; ENOSPC: the process has 256
 * files, or too many processes are traced.
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
 * struct perftrace_marker - a marker of a process
 * @name: "provider:event"
 * @fields: see above
 * @number: out: its number in this process, or PERFTRACE_NO_NUMBER; of UNREGISTER: in
 * @error: out: why it has none, an errno; of UNREGISTER: 0
 */
struct perftrace_marker {
	char	name[PERFTRACE_NAME_MAX];
	char	fields[PERFTRACE_FIELDS_MAX];
	__u32	number;
	__u32	error;
};

/**
 * struct perftrace_markers - those of a program or library that was loaded, or goes
 * @size: of this structure
 * @nr: how many: E2BIG if more than PERFTRACE_NR_MARKERS
 * @markers: struct perftrace_marker *
 * @bad: out: the first of them that is refused; the others are there
 * @refused: out: how many are refused
 *
 * One that is there already, with the same fields, gets the same number and is counted; it goes
 * when it has been taken back as often. If some are refused the call's errno is that of the first:
 * EINVAL: a bad name or fields; ENOSPC: the process has PERFTRACE_NR_MARKERS.
 */
struct perftrace_markers {
	__u32	size;
	__u32	nr;
	__u64	markers;
	__u32	bad;
	__u32	refused;
};

/*
 * A filter: a program that only goes forwards. Each step compares a field with a constant, and
 * says which step is next: a later one, or an end. A field that a marker has not, or that is of
 * another kind, makes any comparison false. Besides fields there are $thread and $process
 * (numbers), $marker (text, "provider:event").
 */
/* Integers compare by their values, whatever their sizes and signs. */
#define PERFTRACE_EQ		1
#define PERFTRACE_NE		2
#define PERFTRACE_LT		3
#define PERFTRACE_LE		4
#define PERFTRACE_GT		5
#define PERFTRACE_GE		6
#define PERFTRACE_ANY		7	/* a bit of the constant is set */
/* Text, by * ? [a-z] [!a-z] \x; @value: where the pattern is. */
#define PERFTRACE_GLOB		8
#define PERFTRACE_OP		0x0f
#define PERFTRACE_SIGNED	0x10	/* @value is an __s64 */
#define PERFTRACE_FLOAT		0x20	/* @value is a double, and so compared; not ANY, GLOB */

#define PERFTRACE_ACCEPT	0xffff
#define PERFTRACE_REJECT	0xfffe

/**
 * struct perftrace_step - a step of a filter
 * @op: PERFTRACE_EQ to PERFTRACE_GLOB, and PERFTRACE_SIGNED or PERFTRACE_FLOAT
 * @reserved: 0
 * @field: where its name is: bytes from the filter's beginning; NUL behind it
 * @yes: the step after this one if it is true: higher than its own number
 * @no: if it is false
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
 * @bytes: of it, at most PERFTRACE_FILTER_MAX; the last one is a NUL
 * @nr_steps: steps, at least one; texts follow these
 * @reserved: 0
 * @steps: so many
 */
struct perftrace_filter {
	__u32	bytes;
	__u16	nr_steps;
	__u16	reserved;
	struct perftrace_step	steps[];
};

/**
 * struct perftrace_create - a new trace; or one that is there
 * @size: of this structure
 * @flags: PERFTRACE_FLIGHT, _WAIT, _SHARED, _KEEP, _PAUSED, _ALL_USERS; of OPEN: out
 * @bytes: of a buffer's records; 0: 16 KiB, or 1 MiB of a shared one; of OPEN: out
 * @filter_bytes: of @filter; 0: none
 * @filter: struct perftrace_filter *
 * @position: out: which step of the filter is wrong, if EINVAL
 * @slot: out
 * @wait_ms: with PERFTRACE_WAIT: milliseconds that a thread waits for room at the most, until its
 *	event is lost; 0: 10,000; ~0: for ever
 * @reserved: 0
 * @name: what it is called: as "event" above; a user has no two of one name
 * @markers: globs of markers' names with single blanks between; "": all but the kernel's.
 *	     CAP_PERFMON: "kernel:sched_switch", "kernel:sys_enter", "kernel:sys_exit"
 *
 * A glob has at most PERFTRACE_NAME_MAX bytes. PERFTRACE_ALL_USERS is not with PERFTRACE_SHARED.
 * PERFTRACE_OPEN takes @name, of one's own, or else, with CAP_PERFMON, of anybody. Those of all
 * users and of the kernel's events are nobody's own.
 * EPERM: no such right; of OPEN: the security modules do not let one look at who made it;
 * EEXIST: the name is taken; EBUSY: 16 are there, of users without CAP_PERFMON 12 in all or 8
 * of one's own; or this file is something else.
 * EBUSY of OPEN: without CAP_PERFMON, 8 calls of the same user are running.
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
 * struct perftrace_info - how a trace stands
 * @size: of this structure
 * @slot: in: by number, for PERFTRACE_NEXT_TRACE: the first one from here on; else out
 * @flags: as in perftrace_create; PERFTRACE_UNSTABLE
 * @bytes: of a buffer's records
 * @nr_cpus: numbers of CPUs
 * @clock: PERFTRACE_CLOCK_*
 * @khz: ticks of a millisecond
 * @uid: whose it is
 * @ticks: now
 * @realtime: now, in nanoseconds
 * @began: when it was made, in ticks
 * @nr_processes: that have buffers in it
 * @memory: bytes of all of its buffers, and of what is known of processes that have ended
 * @lost: events that found no room, all in all
 * @cut: bytes that made no sense where they were counted, all in all
 * @dropped: processes that had ended and were dropped unread, as there were too many
 * @no_memory: buffers, markers, processes and children for which there was no memory, or which were
 *	beyond a limit; their events are lost, and not counted
 * @denied: processes that were dropped unread, as the trace's maker may not look at them any more
 * @name: its name
 * @markers: its globs
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

/* Keys that are no process's. */
#define PERFTRACE_KEY_KERNEL	1	/* the kernel's own markers */
#define PERFTRACE_KEY_SHARED	2	/* the shared buffers */

/**
 * struct perftrace_read - what is new in the next buffer that has anything is copied
 * @key: in: after this process (0, and @cpu ~0: the first one); out: whose buffer it is
 * @cpu: in: after this CPU; out: its CPU
 * @bytes: in: of @to; out: copied (ENOSPC: needed)
 * @to: to here: whole records, as their writer left them, oldest first; of flight
 *	recorders newest first, up to where they were written over (maybe in the midst of one)
 * @lost: out: perftrace_buffer.lost
 * @position: out: bytes that were written before these; of flight recorders: up to these
 * @ticks: out: now
 *
 * What was read of a trace that is no flight recorder is not there any more. ENOENT: no
 * other buffer has anything. EBUSY: somebody else reads this trace. A buffer whose
 * counts make no sense is skipped, and counted in perftrace_info.cut. Processes that have
 * ended and of which all was read go when reading begins again, with key 0.
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
 * struct perftrace_process - a process in a trace
 * @key: in: what the trace knows it by; never given again
 * @pid: in the caller's name space; 0: not there
 * @uid: its user
 * @flags: PERFTRACE_ENDED
 * @nr_markers: numbers that it has used
 * @began: when it attached, in ticks
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
 * struct perftrace_describe - what a number in a process's records means
 * @key: in: the process
 * @number: in: of the marker; of PERFTRACE_NEXT_MARKER: the first one from here on, of
 *	    this process and then the next ones; out
 * @refs: out: how often it is registered; 0: it is no more
 * @marker: out
 */
struct perftrace_describe {
	__u64	key;
	__u32	number;
	__u32	refs;
	struct perftrace_marker	marker;
};

/**
 * struct perftrace_notify - a buffer is half full, or full: its reader is woken; ENOENT: there
 *	is none, as there was no memory, or the trace has ended
 * @slot: the trace
 * @cpu: the CPU
 */
struct perftrace_notify {
	__u32	slot;
	__u32	cpu;
};

/**
 * struct perftrace_room - a thread waits for room in a buffer
 * @slot: of the trace
 * @cpu: of the buffer
 * @tail: perftrace_buffer.tail, as there was no room
 *
 * The reader is told, as by PERFTRACE_NOTIFY. 0: it has read, or the trace has ended: look again;
 * ETIMEDOUT: it has not within perftrace_create.wait_ms of the first call with this @tail, and
 * until it does this is the answer at once; EINTR: a signal, and the time goes on; ENOENT: there
 * is no buffer, or the trace has no right to stop this process any more; EINVAL: nobody waits in
 * this trace.
 */
struct perftrace_room {
	__u32	slot;
	__u32	cpu;
	__u64	tail;
};

#define PERFTRACE_RESUME	0x01

/**
 * struct perftrace_release - traced processes let go of the device, so that its module can be
 *	unloaded
 * @size: of this structure
 * @flags: 0, or PERFTRACE_RESUME: processes may be traced again, and are asked no more to let go
 * @wake: a regular file of at least PERFTRACE_READ_BYTES, open to be read only, that they have from
 *	then on where the first piece was; -1: none
 * @left: out: processes that have not let go yet: ask again
 *
 * CAP_SYS_MODULE. EBUSY: there are traces. Until the module goes or PERFTRACE_RESUME nobody can
 * attach or make a trace: ENODEV. If the last call of a file had some left, its close is a
 * PERFTRACE_RESUME. A process lets go by itself, and its files of the device are
 * closed: not while it is stopped, nor where mlockall() or mseal() keep its mappings. A call that
 * one of its threads sleeps in may end with EINTR, as by SIGSTOP and SIGCONT.
 *
 * A program that has the file there, or that found no device when it began, attaches at its next
 * event after PERFTRACE_WAKE was set in each of the file's words.
 */
struct perftrace_release {
	__u32	size;
	__u32	flags;
	__s32	wake;
	__u32	left;
};

/*
 * In the words of such a file, if not 0: this bit and, each time it is set, another number in those
 * between it and the traces' bits.
 */
#define PERFTRACE_WAKE		0x80000000

/* Of a process that is traced; ESRCH: the caller is another one, such as its child. */
#define PERFTRACE_ATTACH	_IOWR('A', 0x80, struct perftrace_attach)
#define PERFTRACE_REGISTER	_IOWR('A', 0x81, struct perftrace_markers)
#define PERFTRACE_UNREGISTER	_IOWR('A', 0x82, struct perftrace_markers)
#define PERFTRACE_NOTIFY	_IOW('A', 0x83, struct perftrace_notify)
#define PERFTRACE_WAIT_ROOM	_IOW('A', 0x84, struct perftrace_room)

/*
 * Of any file: traces that the caller may open (ENOENT: no more), markers of processes that he
 * may trace.
 */
#define PERFTRACE_NEXT_TRACE	_IOWR('A', 0x88, struct perftrace_info)
#define PERFTRACE_NEXT_MARKER	_IOWR('A', 0x89, struct perftrace_describe)
#define PERFTRACE_RELEASE	_IOWR('A', 0x8a, struct perftrace_release)
/* PERFTRACE_PROCESS, too, of such a process; of a trace: of one that is in it, or was. */

/*
 * Of a trace. poll() says POLLIN when a buffer became half full, a process came or ended;
 * POLLHUP when it has ended.
 */
#define PERFTRACE_CREATE	_IOWR('A', 0x90, struct perftrace_create)
#define PERFTRACE_OPEN		_IOWR('A', 0x91, struct perftrace_create)
#define PERFTRACE_INFO		_IOWR('A', 0x92, struct perftrace_info)
#define PERFTRACE_READ		_IOWR('A', 0x93, struct perftrace_read)
#define PERFTRACE_PROCESS	_IOWR('A', 0x94, struct perftrace_process)
#define PERFTRACE_DESCRIBE	_IOWR('A', 0x95, struct perftrace_describe)
/* 1: no event is wanted for now; 0: go on. */
#define PERFTRACE_PAUSE		_IOW('A', 0x96, __u32)
/* No event is wanted any more; it goes with its last file. What is there can still be read. */
#define PERFTRACE_END		_IO('A', 0x97)

#endif /* _UAPI_LINUX_PERFTRACE_H */
