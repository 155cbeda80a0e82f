/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What the programs and user space share. Mirrored by src/monitor/ebpf/layout.rs. */
#ifndef PINDOWN_STATE_H
#define PINDOWN_STATE_H
#include "kernel.h"

#define SLOTS 256		/* clients */
#define SLOTS_PER_MM 7		/* monitors in one process */
#define FILES 4096		/* files that clients have mapped shared */
#define FILES_PER_SLOT 256
#define CHUNK_SHIFT 21		/* the filter's grain */
#define CHUNK_WORDS 512		/* 32,768 bits, hashed */
#define CHUNKS_EXAMINED 16	/* longer ranges pass the filter */

enum kind { UNMAP, REMAP, REMOVE, FILE_CHANGED, PROTECT, EVERYTHING };

/* One number a program; the self-test wants each to have counted. */
enum hook {
	H_SYS_EXIT, H_PAGE_CACHE, H_URING, H_ZAP, H_HUGETLB, H_MOVE, H_PROTECT, H_RMAP, H_RMAP_PMD,
	H_FLUSH, HOOKS = 16,
};

/* Read-only for the client (a frozen map). */
struct status {
	u64 generation;		/* moves after each record, and after each drop */
	u64 dropped;		/* records that found the ring full */
	u64 uring_madvise;	/* madvise calls that were handed to io_uring's workers */
	u64 files;		/* entries of `files` that this client caused */
	u64 asked;		/* the cookie of the last answered question, written last */
	u64 answer;		/* VMA_* bits */
	u64 vma_start, vma_end;
	u64 break_high;		/* the highest that brk ever returned */
	u64 seen[HOOKS];	/* events of registered memory, by program */
};

/* Written by the client alone. */
struct filter {
	u64 ranges;		/* how many are watched; 0: nothing passes */
	u64 remote;		/* how many of them a peer may write */
	u64 wake;		/* wake who polls the ring */
	u64 chunks[CHUNK_WORDS];
	u64 remote_chunks[CHUNK_WORDS];
};

struct record { u64 start, end; u32 kind, hook; };

/* Which clients watch an address space. */
struct tracked { u32 count, slot[SLOTS_PER_MM]; };
/* Which clients have a file mapped: one bit a slot; how many bits, and DEAD once it is being deleted. */
struct watchers { u64 state, mask[SLOTS / 64]; };
#define DEAD (1ULL << 63)
/* What user space asks of an iterator, and its answer. */
struct request { u64 slot, mm; };

struct status_map {
	UINT(type, MAP_ARRAY); UINT(map_flags, F_MMAPABLE); UINT(max_entries, 1);
	UINT(key_size, 4); UINT(value_size, sizeof(struct status));
};
struct filter_map {
	UINT(type, MAP_ARRAY); UINT(map_flags, F_MMAPABLE); UINT(max_entries, 1);
	UINT(key_size, 4); UINT(value_size, sizeof(struct filter));
};
struct ring_map { UINT(type, MAP_RINGBUF); UINT(max_entries, 1 << 18); };

struct { UINT(type, MAP_ARRAY_OF_MAPS); UINT(max_entries, SLOTS); TYPE(key, u32);
	 struct status_map *values[]; } status_of SEC(".maps");
struct { UINT(type, MAP_ARRAY_OF_MAPS); UINT(max_entries, SLOTS); TYPE(key, u32);
	 struct filter_map *values[]; } filter_of SEC(".maps");
struct { UINT(type, MAP_ARRAY_OF_MAPS); UINT(max_entries, SLOTS); TYPE(key, u32);
	 struct ring_map *values[]; } ring_of SEC(".maps");
struct { UINT(type, MAP_HASH); UINT(max_entries, 2 * SLOTS); TYPE(key, u64);
	 TYPE(value, struct tracked); } mms SEC(".maps");
struct { UINT(type, MAP_HASH); UINT(max_entries, FILES); TYPE(key, u64);
	 TYPE(value, struct watchers); } files SEC(".maps");
struct { UINT(type, MAP_ARRAY); UINT(max_entries, 1); TYPE(key, u32); TYPE(value, struct request); } request SEC(".maps");

#endif
