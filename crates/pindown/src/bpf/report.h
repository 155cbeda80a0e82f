/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* From "this range of this address space changed" to a record in each client's ring. */
#ifndef PINDOWN_REPORT_H
#define PINDOWN_REPORT_H
#include "state.h"

struct event { u64 start, end; u32 kind, hook; };

INLINE u32 chunk_hash(u64 chunk) { return (chunk * 0x9E3779B97F4A7C15ULL) >> 49; }

/* Whether the range may hold registered memory. No false "no": the client sets its bits before it
 * registers, and both that and the clearing of a page-table entry are locked instructions. */
INLINE int may_hit(struct filter *f, const struct event *e)
{
	int remote_only = e->kind == PROTECT;
	u64 chunk = e->start >> CHUNK_SHIFT, last = (e->end - 1) >> CHUNK_SHIFT;
	volatile u64 *words = remote_only ? f->remote_chunks : f->chunks;

	if (!*(volatile u64 *)(remote_only ? &f->remote : &f->ranges) || e->start >= e->end)
		return 0;
	if (last - chunk >= CHUNKS_EXAMINED)
		return 1;
	for (int i = 0; i < CHUNKS_EXAMINED; i++, chunk++) {
		u32 h = chunk_hash(chunk);

		if (words[(h >> 6) & (CHUNK_WORDS - 1)] & (1ULL << (h & 63)))
			return 1;
		if (chunk == last)
			break;
	}
	return 0;
}

/* The record first, the generation last: who sees the word move finds the record. */
INLINE void push(void *ring, struct status *s, const struct event *e, u64 wake)
{
	struct record *r = bpf_ringbuf_reserve(ring, sizeof(*r), 0);

	if (r) {
		r->start = e->start;
		r->end = e->end;
		r->kind = e->kind;
		r->hook = e->hook;
		bpf_ringbuf_submit(r, wake ? 0 : F_NO_WAKEUP);
	} else {
		__sync_fetch_and_add(&s->dropped, 1);
	}
	__sync_fetch_and_add(&s->generation, 1);
}

INLINE struct status *status_of_slot(u32 slot)
{
	void *map = bpf_map_lookup_elem(&status_of, &slot);
	u32 zero = 0;

	return map ? bpf_map_lookup_elem(map, &zero) : 0;
}

SUBPROG int report_slot(u32 slot, const struct event *e)
{
	void *map = bpf_map_lookup_elem(&filter_of, &slot), *ring;
	struct filter *f;
	struct status *s;
	u32 zero = 0;

	if (!map || !e)
		return 0;
	f = bpf_map_lookup_elem(map, &zero);
	if (!f || !may_hit(f, e))
		return 0; /* first: most events are of nobody's concern */
	ring = bpf_map_lookup_elem(&ring_of, &slot);
	s = status_of_slot(slot);
	if (!ring || !s)
		return 0;
	__sync_fetch_and_add(&s->seen[e->hook & (HOOKS - 1)], 1);
	push(ring, s, e, *(volatile u64 *)&f->wake);
	return 0;
}

SUBPROG int report(struct mm_struct *mm, u64 start, u64 end, enum kind kind, enum hook hook)
{
	struct event e = { .start = start, .end = end, .kind = kind, .hook = hook };
	u64 key = (u64)mm;
	struct tracked *t = bpf_map_lookup_elem(&mms, &key);

	if (!t)
		return 0;
	for (u32 i = 0; i < SLOTS_PER_MM && i < t->count; i++)
		report_slot(t->slot[i], &e);
	return 0;
}

INLINE struct mm_struct *current_mm(void) { return bpf_get_current_task_btf()->mm; }

#endif
