// SPDX-License-Identifier: GPL-2.0
/*
 * Implements PERFTRACE_RELEASE: each traced process replaces its mappings of /dev/perftrace and
 * closes its files of the device. A task work of one thread of the process replaces the mappings
 * and closes the files, before the thread returns to user mode.
 */
#include <linux/anon_inodes.h>
#include <linux/err.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include "../../../include/uapi/linux/perftrace.h"
#include "../../base/helpers/helpers.h"
#include "helpers.h"

/* The type Release in src/trace/rules/abi.rs has the layout of struct perftrace_release. */
static_assert(sizeof(struct perftrace_release) == 16);

struct pt_detach_work {
	struct callback_head head;
	struct pt_device_ops ops;
	struct file *wake;
	u64 key;
};

/*
 * A temporary file that is mapped with MAP_FIXED over a VMA of the device. Before do_mmap() unmaps
 * anything, it calls the file's get_unmapped_area(), with the mmap lock held for writing. If
 * get_unmapped_area() fails, the address space is therefore unchanged. The file's mmap() then sets
 * the file of the new VMA to @wake. If @wake is NULL or cannot be mapped, mmap() sets the file to
 * @memory instead. The new VMA holds no reference to the module.
 */
struct pt_stand_in_vma {
	const struct vm_operations_struct *vm_ops;
	unsigned long from, to, pgoff;
	struct file *wake, *memory;
};

static unsigned long stand_in_get_unmapped_area(struct file *file, unsigned long addr,
						unsigned long len, unsigned long pgoff,
						unsigned long flags)
{
	const struct pt_stand_in_vma *in = file->private_data;
	const struct vm_area_struct *vma = find_vma(current->mm, in->from);

	if (vma && vma->vm_ops == in->vm_ops && vma->vm_start == in->from &&
	    vma->vm_end == in->to && vma->vm_pgoff == in->pgoff)
		return addr;
	return -EAGAIN;
}

static int stand_in_mmap(struct file *file, struct vm_area_struct *vma)
{
	const struct pt_stand_in_vma *in = file->private_data;

	/*
	 * An error from this function would leave a hole in the address space, because the pages of
	 * the old VMA are already unmapped. Therefore @memory is mapped if @wake cannot be mapped.
	 */
	if (in->wake) {
		vma_set_file(vma, in->wake);
		if (!vfs_mmap(in->wake, vma))
			return 0;
	}
	vma_set_file(vma, in->memory);
	return vfs_mmap(in->memory, vma);
}

static const struct file_operations stand_in_ops = {
	.owner = THIS_MODULE,
	.get_unmapped_area = stand_in_get_unmapped_area,
	.mmap = stand_in_mmap,
};

/*
 * Maps @wake or empty shared memory over the VMA that @in describes. The shared memory is not
 * reserved in advance: threads that still write trace records touch only a few of its pages.
 * Returns -EAGAIN if the VMA has changed.
 */
static int replace_vma(const struct pt_device_ops *ops, struct file *wake,
		       struct pt_stand_in_vma *in)
{
	unsigned long within = (in->pgoff & ops->range_pgoff_mask) << PAGE_SHIFT;
	unsigned long bytes = in->to - in->from;
	bool writable = within >= PERFTRACE_BUFFERS;
	int prot = PROT_READ | (writable ? PROT_WRITE : 0);
	struct file *file;
	unsigned long at;

	in->wake = writable ? NULL : wake;
	in->memory = shmem_kernel_file_setup("perftrace", within + bytes,
					     mk_vma_flags(VMA_NORESERVE_BIT));
	if (IS_ERR(in->memory))
		return PTR_ERR(in->memory);
	file = anon_inode_getfile("perftrace", &stand_in_ops, in, writable ? O_RDWR : O_RDONLY);
	if (IS_ERR(file)) {
		fput(in->memory);
		return PTR_ERR(file);
	}
	at = vm_mmap(file, in->from, bytes, prot, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, within);
	/*
	 * If memory runs out, vm_mmap() may leave a hole in place of the VMA. Fill the hole unless
	 * another thread has mapped memory there.
	 */
	if (IS_ERR_VALUE(at) && at != -EAGAIN) {
		unsigned long filled = vm_mmap(in->memory, in->from, bytes, prot,
					       MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE,
					       within);

		/* -EEXIST: the old VMA is still mapped, or another thread has mapped memory. */
		if (IS_ERR_VALUE(filled) && filled != -EEXIST)
			pr_warn_ratelimited("perftrace: %s[%d]: no memory to replace a mapping of the device; the program may end by a signal (error %ld)\n",
					    current->comm, task_pid_nr(current), (long)filled);
	}
	/*
	 * No VMA refers to this file, so the kernel calls none of its operations after the fput().
	 */
	fput(file);
	fput(in->memory);
	return IS_ERR_VALUE(at) ? (int)at : 0;
}

/* Finds the first VMA of the device that ends after address @after, and describes it in @in. */
static bool find_device_vma(const struct pt_device_ops *ops, unsigned long after,
			    struct pt_stand_in_vma *in)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;

	mmap_read_lock(mm);
	vma = find_vma(mm, after);
	while (vma && vma->vm_ops != ops->vm_ops)
		vma = find_vma(mm, vma->vm_end);
	if (vma)
		*in = (struct pt_stand_in_vma){ ops->vm_ops, vma->vm_start, vma->vm_end,
						vma->vm_pgoff, NULL, NULL };
	mmap_read_unlock(mm);
	return vma;
}

/*
 * Maximum number of passes over the address space. More than one pass is needed if other threads
 * move VMAs of the device during a pass.
 */
#define MAX_DETACH_PASSES	8

/*
 * Maps the file @wake or empty shared memory over each VMA of the device in the current address
 * space. Returns -ENOENT if the process has no VMA of the device, and -EAGAIN if VMAs are left
 * because other threads move them or memory is short.
 */
static int replace_vmas(const struct pt_device_ops *ops, struct file *wake)
{
	struct pt_stand_in_vma in;
	int error = -ENOENT;

	for (int pass = 0; pass < MAX_DETACH_PASSES; pass++) {
		unsigned long after = 0;

		if (!find_device_vma(ops, 0, &in))
			return error;
		error = 0;
		for (; find_device_vma(ops, after, &in); after = in.to)
			replace_vma(ops, wake, &in);
	}
	return find_device_vma(ops, 0, &in) ? -EAGAIN : 0;
}

static int is_device_file(const void *file_ops, struct file *file, unsigned int fd)
{
	return file->f_op == file_ops ? fd + 1 : 0;
}

/* Closes those descriptors of the device through which the process is attached to user tracing. */
static void close_attached_files(const struct pt_device_ops *ops)
{
	unsigned int from = 0;
	int next;

	while ((next = iterate_fd(current->files, from, is_device_file, ops->file_ops)) > 0) {
		struct file *file = fget(next - 1);

		if (file && file->f_op == ops->file_ops && pt_is_attached(file))
			close_fd(next - 1);
		if (file)
			fput(file);
		from = next;
	}
}

static void detach(struct callback_head *head)
{
	struct pt_detach_work *work = container_of(head, struct pt_detach_work, head);

	/*
	 * PERFTRACE_RESUME may have cancelled the release after this work was queued, for example
	 * while the thread was stopped. If this work fails, the next PERFTRACE_RELEASE queues it
	 * again. The work fails if:
	 * - the thread is exiting, and has no mm any more; other threads of the process may run;
	 * - the process has VM_LOCKED (mlockall()): mmap() would allocate all pages of the new
	 *   mappings;
	 * - -ENOENT: the process is attaching, and another thread is about to map the device;
	 * - -EAGAIN: some VMAs of the device are left.
	 */
	if (pt_is_detaching()) {
		if (!current->mm || current->mm->def_flags & VM_LOCKED ||
		    replace_vmas(&work->ops, work->wake))
			pt_detach_failed(work->key);
		else
			close_attached_files(&work->ops);
	}
	if (work->wake)
		fput(work->wake);
	kfree(work);
	pfc_task_work_done();
}

/*
 * Queues task work for one thread of the process of @leader. The work makes the whole process
 * release the device, or calls pt_detach_failed(@key). Returns -ENOMEM, or -ESRCH if all threads
 * are exiting. May sleep.
 */
int pt_detach_later(struct task_struct *leader, const struct pt_device_ops *ops, struct file *wake,
		    u64 key)
{
	struct pt_detach_work *work = kmalloc_obj(*work, GFP_KERNEL);
	struct task_struct *thread;

	if (!work)
		return -ENOMEM;
	work->ops = *ops;
	work->wake = wake ? get_file(wake) : NULL;
	work->key = key;
	init_task_work(&work->head, detach);
	scoped_guard(rcu) {
		for_each_thread(leader, thread) {
			if (!(thread->flags & PF_EXITING) &&
			    pfc_task_work_add(thread, &work->head, TWA_SIGNAL))
				return 0;
		}
	}
	if (wake)
		fput(wake);
	kfree(work);
	return -ESRCH;
}

/*
 * Returns the file of @fd, with a reference. The file must be suited to replace the read-only part
 * of a process's mapping: a regular file of at least PERFTRACE_READ_BYTES that is open for reading
 * only. Otherwise returns -EBADF or -EINVAL.
 */
struct file *pt_wake_file_get(int fd)
{
	struct file *file = fget(fd);

	if (!file)
		return ERR_PTR(-EBADF);
	if (S_ISREG(file_inode(file)->i_mode) && can_mmap_file(file) &&
	    (file->f_mode & (FMODE_READ | FMODE_WRITE)) == FMODE_READ &&
	    i_size_read(file_inode(file)) >= PERFTRACE_READ_BYTES)
		return file;
	fput(file);
	return ERR_PTR(-EINVAL);
}

void pt_wake_file_put(struct file *wake)
{
	fput(wake);
}
