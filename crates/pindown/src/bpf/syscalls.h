/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Which system calls change memory, and which range: arch/x86/entry/syscalls/syscall_64.tbl. */
#ifndef PINDOWN_SYSCALLS_H
#define PINDOWN_SYSCALLS_H
#include "report.h"

enum {
	NR_mmap = 9, NR_munmap = 11, NR_brk = 12, NR_mprotect = 10, NR_mremap = 25, NR_madvise = 28,
	NR_shmat = 30, NR_shmdt = 67, NR_remap_file_pages = 216, NR_pkey_mprotect = 329,
	NR_process_madvise = 440,
	X32_BIT = 0x40000000, TS_COMPAT = 2, PF_IO_WORKER = 0x10,
	MAP_FIXED_FLAG = 0x10, MREMAP_FIXED_FLAG = 2, SHM_REMAP_FLAG = 040000, MAX_ERRNO = 4095,
};
#define ALL_MEMORY (~0ULL)
/* madvise's third argument in a client's question; no kernel knows it (EINVAL). See ask.h. */
#define ASK 0x70696e64
/* How far above a shrinking heap is reported when its old end is not known. */
#define BRK_REACH (1ULL << 40)

/* One bit a call below 64; the rest by comparison. Most calls leave here. */
INLINE int may_change(u64 nr)
{
	const u64 low = 1ULL << NR_mmap | 1ULL << NR_munmap | 1ULL << NR_brk | 1ULL << NR_mprotect |
			1ULL << NR_mremap | 1ULL << NR_madvise | 1ULL << NR_shmat;

	if (nr < 64)
		return low >> nr & 1;
	return nr == NR_shmdt || nr == NR_remap_file_pages || nr == NR_pkey_mprotect ||
	       nr == NR_process_madvise;
}

/* Advice that gives pages back. Unknown advice counts. Not FREE: a pinned page is never the one
 * reclaimed (mm/rmap.c, try_to_unmap_one: "the only page refs must be one from isolation"). */
INLINE int discards(u64 advice)
{
	if (advice < 26)
		return advice == 4 /* DONTNEED */ || advice == 9 /* REMOVE */ || advice == 24 /* DONTNEED_LOCKED */;
	return advice != 103 /* GUARD_REMOVE */ && advice != ASK;
}

/* New mappings are reported too: munmap gives its addresses away before it comes to its end, and
 * whoever maps them meanwhile must not find what was registered there. (fexit programs need not: they
 * report while munmap still keeps others from mapping.) */
INLINE int is_error(long ret) { return (u64)ret >= (u64)-MAX_ERRNO; }

INLINE int report_mmap(struct mm_struct *mm, struct pt_regs *r, long ret, enum hook hook)
{
	if (!is_error(ret))
		return report(mm, ret, ret + r->si, UNMAP, hook);
	return r->r10 & MAP_FIXED_FLAG ? report(mm, r->di, r->di + r->si, UNMAP, hook) : 0;
}

/* Growth in place takes its tail from others; a shrink in place loses its tail; all else moves. A
 * failed call may have got half-way. */
INLINE int report_mremap(struct mm_struct *mm, struct pt_regs *r, long ret, enum hook hook)
{
	u64 old = r->di, old_end = r->di + r->si, end = r->di + r->dx;

	if ((u64)ret == old)
		return report(mm, end < old_end ? end : old_end, end < old_end ? old_end : end, UNMAP, hook);
	report(mm, old, old_end, REMAP, hook);
	if (!is_error(ret))
		return report(mm, ret, ret + r->dx, UNMAP, hook);
	return r->r10 & MREMAP_FIXED_FLAG ? report(mm, r->r8, r->r8 + r->dx, UNMAP, hook) : 0;
}

/* The highest break so far, `now` included. Unknown (all memory) in a storm of brk calls. */
INLINE u64 raise_break(struct status *s, u64 now)
{
	u64 high = *(volatile u64 *)&s->break_high;

	for (int i = 0; i < 4; i++) {
		u64 was = high;

		if (was >= now)
			return was;
		high = __sync_val_compare_and_swap(&s->break_high, was, now);
		if (high == was)
			return now;
	}
	return now + BRK_REACH;
}

/* brk tells its new end only. What it ever ended at is remembered (a client calls brk(0) when it is
 * enrolled), and all between is reported: nothing when the heap grows beyond. */
SUBPROG int report_brk(struct mm_struct *mm, u64 now, enum hook hook)
{
	u64 key = (u64)mm;
	struct tracked *t = bpf_map_lookup_elem(&mms, &key);

	for (u32 i = 0; t && i < SLOTS_PER_MM && i < t->count; i++) {
		struct event e = { .start = now, .kind = UNMAP, .hook = hook };
		struct status *s = status_of_slot(t->slot[i]);

		e.end = s ? raise_break(s, now) : now;
		report_slot(t->slot[i], &e);
	}
	return 0;
}

INLINE int report_call(struct mm_struct *mm, struct pt_regs *r, u64 nr, long ret, enum hook hook)
{
	switch (nr) {
	case NR_munmap:
	case NR_remap_file_pages:
		return report(mm, r->di, r->di + r->si, UNMAP, hook);
	case NR_mmap:
		return report_mmap(mm, r, ret, hook);
	case NR_madvise:
		return discards(r->dx) ? report(mm, r->di, r->di + r->si, REMOVE, hook) : 0;
	case NR_mremap:
		return report_mremap(mm, r, ret, hook);
	case NR_brk:
		return report_brk(mm, ret, hook);
	case NR_mprotect:
	case NR_pkey_mprotect:
		return report(mm, r->di, r->di + r->si, PROTECT, hook);
	case NR_shmat:
		if (r->dx & SHM_REMAP_FLAG)
			return report(mm, 0, ALL_MEMORY, UNMAP, hook);
		return is_error(ret) ? 0 : report(mm, ret, ALL_MEMORY, UNMAP, hook); /* its length is not told */
	case NR_process_madvise:
		return discards(r->r10) ? report(mm, 0, ALL_MEMORY, REMOVE, hook) : 0;
	default: /* shmdt names no length */
		return report(mm, 0, ALL_MEMORY, UNMAP, hook);
	}
}

#endif
