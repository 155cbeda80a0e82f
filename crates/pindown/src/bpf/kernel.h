/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The few kernel types, helpers and maps' syntax that pindown's programs need. Field offsets are
 * relocated at load time from the running kernel's BTF (CO-RE), so only names matter here. */
#ifndef PINDOWN_KERNEL_H
#define PINDOWN_KERNEL_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define SUBPROG static __attribute__((noinline))

/* BTF-defined maps: a type's number travels as an array bound (libbpf's convention). */
#define UINT(name, val) int (*name)[val]
#define TYPE(name, val) val *name

/* include/uapi/linux/bpf.h */
enum {
	MAP_HASH = 1, MAP_ARRAY = 2, MAP_ARRAY_OF_MAPS = 12, MAP_RINGBUF = 27,
	F_MMAPABLE = 1 << 10, F_NOEXIST = 1, F_NO_WAKEUP = 1,
};
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *val, u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static long (*const bpf_probe_read_kernel)(void *dst, u32 size, const void *src) = (void *)113;
static void *(*const bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;
static long (*const bpf_for_each_map_elem)(void *map, void *callback, void *ctx, u64 flags) = (void *)164;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
static long (*const bpf_task_pt_regs)(struct task_struct *task) = (void *)175;
static long (*const bpf_find_vma)(struct task_struct *task, u64 addr, void *callback, void *ctx,
				  u64 flags) = (void *)180;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct pt_regs { unsigned long r10, r8, dx, si, di, orig_ax; };
struct thread_info { u32 status; };
struct mm_struct { int dummy; };
struct task_struct { struct thread_info thread_info; struct mm_struct *mm; u32 flags; };
struct qstr { const u8 *name; };
struct dentry { struct qstr d_name; };
struct path { struct dentry *dentry; };
struct file { struct address_space *f_mapping; struct path f_path; };
struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_flags, vm_pgoff;
	struct mm_struct *vm_mm;
	struct file *vm_file;
};
struct page { unsigned long flags; };
struct folio { struct address_space *mapping; unsigned long index; struct page page; };
struct pagetable_move_control {
	struct vm_area_struct *old;
	unsigned long old_end, len_in;
};
struct flush_tlb_info { struct mm_struct *mm; u32 initiating_cpu; };
struct io_cmd_data { int dummy; };
struct io_madvise { u32 advice; };
struct io_kiocb { struct io_cmd_data cmd; u8 opcode; };
struct bpf_iter__task { struct task_struct *task; };
#pragma clang attribute pop

/* The offset of a field of a pointer whose type the verifier does not know. */
#define READ(dst, ptr, field) \
	bpf_probe_read_kernel(&(dst), sizeof(dst), __builtin_preserve_access_index(&(ptr)->field))
/* The size of a kernel type (BPF_CORE_TYPE_SIZE). */
#define KERNEL_SIZEOF(type) __builtin_preserve_type_info(*(type *)0, 1)

#endif
