/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* pindown's programs: they tell a process, through memory it has mapped, that its address space
 * changed. Which of them are loaded is decided at run time (src/monitor/ebpf/hooks.rs).
 *
 * The target is told by the address space that changed, never by `current`: another process's
 * truncate runs in that process.
 *
 * Raw tracepoints run with preemption off, so none is skipped because another task was preempted
 * inside the same program; fexit programs can be, and are backed by fentry programs on functions
 * that always run with preemption off. */
#include "ask.h"
#include "syscalls.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* ---- tracepoint variant: own calls, at their exit, so after the page-table entries went ---- */

SEC("tp_btf/sys_exit")
int sys_exit(u64 *ctx)
{
	struct pt_regs *r = (struct pt_regs *)ctx[0];
	struct task_struct *task = bpf_get_current_task_btf();
	u64 nr = r->orig_ax & ~(u64)X32_BIT;
	int compat = task->thread_info.status & TS_COMPAT;

	if (compat) /* other numbers, and nobody does: a 64-bit process through int 0x80 */
		return report(task->mm, 0, ALL_MEMORY, UNMAP, H_SYS_EXIT);
	if (!may_change(nr))
		return 0;
	if (nr == NR_madvise && r->dx == ASK)
		return answer(task, task->mm, r->di, r->si, r->r10);
	return report_call(task->mm, r, nr, ctx[1], H_SYS_EXIT);
}

/* A shared file loses a page, whoever did it. The page's last mapping is gone by now and cannot
 * come back: the folio is locked (mm/truncate.c, mm/shmem.c). */
SEC("tp_btf/mm_filemap_delete_from_page_cache")
int page_cache(u64 *ctx)
{
	struct event e = { .start = 0, .end = ALL_MEMORY, .kind = FILE_CHANGED, .hook = H_PAGE_CACHE };
	struct folio *folio = (struct folio *)ctx[0];
	u64 key = (u64)folio->mapping;
	struct watchers *w = bpf_map_lookup_elem(&files, &key);

	if (!w)
		return 0;
	for (u32 word = 0; word < SLOTS / 64; word++) {
		u64 mask = w->mask[word];

		for (u32 bit = 0; mask && bit < 64; bit++, mask >>= 1)
			if (mask & 1)
				report_slot(word * 64 + bit, &e);
	}
	return 0;
}

/* io_uring's MADVISE runs in a worker, which makes no system call. This is before it runs; when it
 * ends is not seen, so the client caches nothing from now on. The self-test asks with an advice that
 * no kernel knows, which is counted as seen and discards nothing. */
SEC("tp_btf/io_uring_queue_async_work")
int uring_work(u64 *ctx)
{
	enum { IORING_OP_MADVISE = 25 };
	struct io_kiocb *req = (struct io_kiocb *)ctx[0];
	struct io_madvise *call = (void *)__builtin_preserve_access_index(&req->cmd);
	u64 key = (u64)current_mm();
	struct tracked *t;
	u32 advice = ~0;

	if (req->opcode != IORING_OP_MADVISE)
		return 0;
	READ(advice, call, advice);
	if (advice != ASK && !discards(advice))
		return 0;
	t = bpf_map_lookup_elem(&mms, &key);
	for (u32 i = 0; t && i < SLOTS_PER_MM && i < t->count; i++) {
		struct status *s = status_of_slot(t->slot[i]);

		if (s)
			__sync_fetch_and_add(advice == ASK ? &s->seen[H_URING] : &s->uring_madvise, 1);
	}
	return advice == ASK ? 0 : report(current_mm(), 0, ALL_MEMORY, EVERYTHING, H_URING);
}

/* ---- both variants ---- */

/* The address space ends: its pointer may be another's tomorrow. */
SEC("tp_btf/exit_mmap")
int exit_mmap(u64 *ctx)
{
	u64 key = ctx[0];

	bpf_map_delete_elem(&mms, &key);
	return 0;
}

/* Run by user space on a pidfd: which address space has that process? */
SEC("iter/task")
int find_mm(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	u32 zero = 0;
	struct request *r = bpf_map_lookup_elem(&request, &zero);

	if (task && r && task->mm)
		r->mm = (u64)task->mm;
	return 0;
}

/* Run by user space when a client has gone: its files are watched no more. */
SEC("iter/task")
int forget(struct bpf_iter__task *ctx)
{
	u32 zero = 0, slot;
	struct request *r = bpf_map_lookup_elem(&request, &zero);

	if (!ctx->task || !r)
		return 0;
	slot = r->slot;
	bpf_for_each_map_elem(&files, forget_file, &slot, 0);
	return 0;
}

/* ---- fexit variant: exact ranges, can be skipped ---- */

INLINE int report_vma(struct vm_area_struct *vma, u64 start, u64 end, enum kind kind, enum hook hook)
{
	return report(vma->vm_mm, start, end, kind, hook);
}

SEC("fexit/zap") /* unmap_page_range or __zap_vma_range (tlb, vma, start, end) */
int zap(u64 *ctx) { return report_vma((void *)ctx[1], ctx[2], ctx[3], UNMAP, H_ZAP); }

SEC("fexit/__unmap_hugepage_range")
int hugetlb(u64 *ctx) { return report_vma((void *)ctx[1], ctx[2], ctx[3], UNMAP, H_HUGETLB); }

SEC("fexit/move_control") /* move_page_tables(control), from 6.15 */
int move_control(u64 *ctx)
{
	struct pagetable_move_control *c = (void *)ctx[0];

	/* old_addr has moved on by the time it returns. */
	return report_vma(c->old, c->old_end - c->len_in, c->old_end, REMAP, H_MOVE);
}

SEC("fexit/move_args") /* move_page_tables(vma, old, new_vma, new, len, ...) */
int move_args(u64 *ctx) { return report_vma((void *)ctx[0], ctx[1], ctx[1] + ctx[4], REMAP, H_MOVE); }

SEC("fexit/change_protection") /* (tlb, vma, start, end, flags) */
int protect(u64 *ctx)
{
	enum { MM_CP_PROT_NUMA = 2, MM_CP_UFFD_WP = 4, MM_CP_UFFD_WP_RESOLVE = 8 };

	if (ctx[4] & (MM_CP_PROT_NUMA | MM_CP_UFFD_WP | MM_CP_UFFD_WP_RESOLVE))
		return 0;
	return report_vma((void *)ctx[1], ctx[2], ctx[3], PROTECT, H_PROTECT);
}

/* ---- fexit variant: never skipped, since preemption is always off where they run ---- */

INLINE int report_pages(struct folio *folio, u64 page, u64 pages, struct vm_area_struct *vma, enum hook hook)
{
	u64 index = folio->index + (page - (u64)folio) / KERNEL_SIZEOF(struct page);
	u64 start = vma->vm_start + ((index - vma->vm_pgoff) << 12);

	return report(vma->vm_mm, start, start + (pages << 12), UNMAP, hook);
}

SEC("fentry/folio_remove_rmap_ptes") /* (folio, page, pages, vma); under the page-table lock */
int rmap(u64 *ctx)
{
	return report_pages((void *)ctx[0], ctx[1], (u32)ctx[2], (void *)ctx[3], H_RMAP);
}

SEC("fentry/folio_remove_rmap_pmd") /* (folio, page, vma) */
int rmap_pmd(u64 *ctx) { return report_pages((void *)ctx[0], ctx[1], 512, (void *)ctx[2], H_RMAP_PMD); }

SEC("fentry/page_remove_rmap") /* 6.1: (page, vma, compound) */
int rmap_page(u64 *ctx)
{
	struct vm_area_struct *vma = (void *)ctx[1];

	return report_vma(vma, vma->vm_start, vma->vm_end, UNMAP, H_RMAP);
}

/* Moves, zero pages, huge pages: what rmap does not see, when the process does it itself. The flush
 * names a range, but mostly a rounded-up one: the call in progress says which memory is meant. */
SEC("fentry/flush_tlb_func")
int flush(u64 *ctx)
{
	struct flush_tlb_info *info = (void *)ctx[0];
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = 0;
	struct pt_regs *r;
	u32 cpu = ~0;
	u64 nr;

	READ(mm, info, mm);
	READ(cpu, info, initiating_cpu);
	if (!mm || mm != task->mm || cpu != bpf_get_smp_processor_id())
		return 0;
	if (task->flags & PF_IO_WORKER)
		return report(mm, 0, ALL_MEMORY, EVERYTHING, H_FLUSH);
	r = (struct pt_regs *)bpf_task_pt_regs(task);
	nr = r->orig_ax & ~(u64)X32_BIT;
	if (task->thread_info.status & TS_COMPAT)
		return report(mm, 0, ALL_MEMORY, UNMAP, H_FLUSH);
	if (nr == NR_brk) /* not over yet; growth flushes nothing */
		return report(mm, r->di, r->di + BRK_REACH, UNMAP, H_FLUSH);
	return may_change(nr) ? report_call(mm, r, nr, -1, H_FLUSH) : 0;
}
