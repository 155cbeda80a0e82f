/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* A client asks what is mapped at an address: madvise(addr, slot, ASK, cookie), which the kernel
 * refuses and the sys_exit program answers in the client's status page. What is mapped shared gets
 * its file watched. So a subscription needs neither /proc nor the helper, and cannot lie. */
#ifndef PINDOWN_ASK_H
#define PINDOWN_ASK_H
#include "report.h"

enum {
	VMA_FOUND = 1, VMA_FILE = 2, VMA_SHARED = 4, VMA_HUGETLB = 8, VMA_SPECIAL = 16,
	VMA_ANON_HUGE = 32, VMA_WATCHED = 64, VMA_BUSY = 128,
	/* include/linux/mm.h */
	VM_SHARED = 0x8, VM_PFNMAP = 0x400, VM_IO = 0x4000, VM_HUGETLB = 0x400000, VM_MIXEDMAP = 0x10000000,
	EBUSY = 16,
};

struct vma_facts { u64 bits, start, end, mapping; };

/* Huge pages without a file of their own: hugetlb_file_setup() names them so. */
INLINE int is_anon_huge(struct file *file)
{
	const u8 *name = file->f_path.dentry->d_name.name;
	u64 head = 0;

	bpf_probe_read_kernel(&head, sizeof(head), name);
	return head == 0x6775685f6e6f6e61ULL; /* "anon_hug" of "anon_hugepage" */
}

static long look(struct task_struct *task, struct vm_area_struct *vma, struct vma_facts *facts)
{
	u64 flags = vma->vm_flags, bits = VMA_FOUND;
	struct file *file = vma->vm_file;

	facts->start = vma->vm_start;
	facts->end = vma->vm_end;
	if (flags & VM_SHARED)
		bits |= VMA_SHARED;
	if (flags & (VM_PFNMAP | VM_IO | VM_MIXEDMAP))
		bits |= VMA_SPECIAL;
	if (flags & VM_HUGETLB)
		bits |= VMA_HUGETLB;
	if (file) {
		bits |= VMA_FILE;
		facts->mapping = (u64)file->f_mapping;
		if (flags & VM_HUGETLB && is_anon_huge(file))
			bits |= VMA_ANON_HUGE;
	}
	facts->bits = bits;
	return 0;
}

/* Sets the client's bit, or says no: the entry was on its way out (ask again). An entry's memory may
 * be given to another file between our look and our write, so the caller looks again. */
INLINE int set_bit(struct watchers *w, u32 word, u64 bit)
{
	if (__sync_fetch_and_add(&w->state, 1) & DEAD)
		goto undo;
	if (!(__sync_fetch_and_or(&w->mask[word], bit) & bit))
		return 1;
undo:
	__sync_fetch_and_add(&w->state, -1ULL);
	return 0;
}

INLINE int has_bit(struct watchers *w, u32 word, u64 bit)
{
	return w && *(volatile u64 *)&w->mask[word] & bit && !(*(volatile u64 *)&w->state & DEAD);
}

/* Adds the client to those who are told when the file loses pages. False when the table is full. */
INLINE int watch_file(struct status *s, u64 mapping, u32 slot)
{
	struct watchers none = {}, *w = bpf_map_lookup_elem(&files, &mapping);
	u32 word = (slot >> 6) & (SLOTS / 64 - 1);
	u64 bit = 1ULL << (slot & 63);

	if (has_bit(w, word, bit))
		return 1;
	if (s->files >= FILES_PER_SLOT)
		return 0;
	if (!w) {
		bpf_map_update_elem(&files, &mapping, &none, F_NOEXIST);
		w = bpf_map_lookup_elem(&files, &mapping);
	}
	if (w && set_bit(w, word, bit))
		__sync_fetch_and_add(&s->files, 1);
	return has_bit(bpf_map_lookup_elem(&files, &mapping), word, bit);
}

/* Takes a client's bit out of one entry, and the entry out of the table when it was the last. */
static long forget_file(void *map, u64 *key, struct watchers *w, u32 *slot)
{
	u32 word = (*slot >> 6) & (SLOTS / 64 - 1);
	u64 bit = 1ULL << (*slot & 63);

	if (!(__sync_fetch_and_and(&w->mask[word], ~bit) & bit))
		return 0;
	__sync_fetch_and_add(&w->state, -1ULL);
	if (__sync_val_compare_and_swap(&w->state, 0, DEAD) == 0)
		bpf_map_delete_elem(map, key);
	return 0;
}

INLINE int is_own_slot(struct mm_struct *mm, u32 slot)
{
	u64 key = (u64)mm;
	struct tracked *t = bpf_map_lookup_elem(&mms, &key);

	for (u32 i = 0; t && i < SLOTS_PER_MM && i < t->count; i++)
		if (t->slot[i] == slot)
			return 1;
	return 0;
}

INLINE int answer(struct task_struct *task, struct mm_struct *mm, u64 addr, u32 slot, u64 cookie)
{
	struct vma_facts facts = {};
	struct status *s;

	if (!is_own_slot(mm, slot))
		return 0;
	s = status_of_slot(slot);
	if (!s)
		return 0;
	if (bpf_find_vma(task, addr, look, &facts, 0) == -EBUSY)
		facts.bits = VMA_BUSY;
	if (facts.bits & VMA_SHARED && facts.mapping && watch_file(s, facts.mapping, slot))
		facts.bits |= VMA_WATCHED;
	s->answer = facts.bits;
	s->vma_start = facts.start;
	s->vma_end = facts.end;
	__sync_lock_test_and_set(&s->asked, cookie);
	return 0;
}

#endif
