// SPDX-License-Identifier: GPL-2.0
/*
 * Traced processes let go of the device: by themselves, before they are in user mode again.
 */
#include <linux/err.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include "../../../../include/uapi/linux/perftrace.h"
#include "trace.h"
#include "work.h"

/* src/engine/trace.rs holds its twin. */
static_assert(sizeof(struct perftrace_release) == 16);

struct pt_leaving {
	struct callback_head head;
	struct pt_ours ours;
	struct file *wake;
};

/*
 * What takes the place of an area of ours. Shared where it is written: who is late writes there,
 * and it counts as nobody's data.
 */
static unsigned long replace(const struct pt_ours *ours, struct file *wake, unsigned long from,
			     unsigned long to, unsigned long pgoff)
{
	unsigned long within = (pgoff & ours->span) << PAGE_SHIFT;
	unsigned long bytes = to - from;

	if (within >= PERFTRACE_BUFFERS)
		return vm_mmap(NULL, from, bytes, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, 0);
	if (wake && !IS_ERR_VALUE(vm_mmap(wake, from, bytes, PROT_READ, MAP_SHARED | MAP_FIXED,
					  within)))
		return from;
	return vm_mmap(NULL, from, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, 0);
}

/*
 * All areas of ours; false: there is none. One that is moved meanwhile stays; what another thread
 * maps meanwhile where one was goes: the library does neither.
 */
static bool leave_areas(const struct pt_ours *ours, struct file *wake)
{
	struct mm_struct *mm = current->mm;
	unsigned long from = 0, to = 0, pgoff = 0;
	struct vm_area_struct *vma;
	bool any = false;

	do {
		mmap_read_lock(mm);
		vma = find_vma(mm, to);
		while (vma && vma->vm_ops != ours->areas)
			vma = find_vma(mm, vma->vm_end);
		if (vma) {
			from = vma->vm_start;
			to = vma->vm_end;
			pgoff = vma->vm_pgoff;
		}
		mmap_read_unlock(mm);
		if (vma)
			replace(ours, wake, from, to, pgoff);
		any |= !!vma;
	} while (vma);
	return any;
}

static int is_ours(const void *files, struct file *file, unsigned int fd)
{
	return file->f_op == files ? fd + 1 : 0;
}

/* Descriptors by which the process is traced. */
static void leave_files(const struct pt_ours *ours)
{
	unsigned int from = 0;
	int next;

	while ((next = iterate_fd(current->files, from, is_ours, ours->files)) > 0) {
		struct file *file = fget(next - 1);

		if (file && file->f_op == ours->files && pt_is_attached(file))
			close_fd(next - 1);
		if (file)
			fput(file);
		from = next;
	}
}

static void leave(struct callback_head *head)
{
	struct pt_leaving *leaving = container_of(head, struct pt_leaving, head);

	/*
	 * It may have been stopped for long. With VM_LOCKED what is mapped would be filled with
	 * pages, whole.
	 */
	if (pt_is_closed() && current->mm && !(current->mm->def_flags & VM_LOCKED)) {
		/* It attaches just now: another thread uses the descriptor, to map it. */
		if (!leave_areas(&leaving->ours, leaving->wake))
			pt_leaves_later();
		else
			leave_files(&leaving->ours);
	}
	if (leaving->wake)
		fput(leaving->wake);
	kfree(leaving);
	pfc_work_done();
}

/* A process lets go soon, one of its threads for all. -ENOMEM; -ESRCH: it ends. May sleep. */
int pt_leave_later(struct task_struct *leader, const struct pt_ours *ours, struct file *wake)
{
	struct pt_leaving *leaving = kmalloc_obj(*leaving, GFP_KERNEL);
	struct task_struct *thread;

	if (!leaving)
		return -ENOMEM;
	leaving->ours = *ours;
	leaving->wake = wake ? get_file(wake) : NULL;
	init_task_work(&leaving->head, leave);
	scoped_guard(rcu) {
		for_each_thread(leader, thread) {
			if (!(thread->flags & PF_EXITING) &&
			    pfc_work_add(thread, &leaving->head, TWA_SIGNAL))
				return 0;
		}
	}
	if (wake)
		fput(wake);
	kfree(leaving);
	return -ESRCH;
}

/* A file that can stand for the first piece, or an error. Held. */
struct file *pt_wake_get(int fd)
{
	struct file *file = fget(fd);

	if (!file)
		return ERR_PTR(-EBADF);
	if (S_ISREG(file_inode(file)->i_mode) &&
	    (file->f_mode & (FMODE_READ | FMODE_WRITE)) == FMODE_READ &&
	    i_size_read(file_inode(file)) >= PERFTRACE_READ_BYTES)
		return file;
	fput(file);
	return ERR_PTR(-EINVAL);
}

void pt_wake_put(struct file *wake)
{
	fput(wake);
}
