// SPDX-License-Identifier: GPL-2.0
/* Functions for pages, and for mappings of pages into user space. */
#include <linux/export.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/personality.h>
#include <linux/sched.h>
#include "helpers.h"

unsigned long pfc_virt_pfn(const void *p)
{
	return PHYS_PFN(virt_to_phys((void *)p));
}
EXPORT_SYMBOL_NS_GPL(pfc_virt_pfn, "PERFCOUNTERS");

/*
 * Makes a mapping permanently non-executable. Returns -EACCES if the caller requested an executable
 * mapping. With the personality READ_IMPLIES_EXEC, the kernel makes each readable mapping
 * executable; in this case VM_EXEC is cleared without an error.
 */
int pfc_vma_noexec(struct vm_area_struct *vma)
{
	if (vma->vm_flags & VM_EXEC && !(current->personality & READ_IMPLIES_EXEC))
		return -EACCES;
	vm_flags_clear(vma, VM_EXEC | VM_MAYEXEC);
	/*
	 * vm_page_prot was computed from the old vm_flags. Pages that are inserted into the mapping
	 * from now on use the new vm_page_prot.
	 */
	vma->vm_page_prot = vm_get_page_prot(vma->vm_flags);
	return 0;
}
EXPORT_SYMBOL_NS_GPL(pfc_vma_noexec, "PERFCOUNTERS");

/*
 * Makes a mapping permanently read-only. VM_PFNMAP and VM_IO are set so that get_user_pages()
 * fails, because pages of the per-CPU allocator must not be pinned.
 */
int pfc_vma_readonly(struct vm_area_struct *vma, const struct vm_operations_struct *ops)
{
	if (vma->vm_flags & VM_WRITE || pfc_vma_noexec(vma))
		return -EACCES;
	vm_flags_mod(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE);
	vma->vm_ops = ops;
	return 0;
}
EXPORT_SYMBOL_NS_GPL(pfc_vma_readonly, "PERFCOUNTERS");
