/*
 * pindown: memory registration that stays right while the address space changes.
 *
 *   struct pindown_provider   who pins pages: io_uring, verbs, or functions of your own
 *   struct pindown_builder    settings
 *   struct pindown_cache      registrations by address; pindown_acquire and pindown_put
 *   struct pindown_queue      the same without blocking: submit, poll
 *   struct pindown_everything keys for any memory, nothing registered by you
 *   struct pindown_watch      notifications alone, for a cache of your own
 *
 * What holds for every function:
 *
 * - Each pointer is NULL or leads to what its type says, aligned, and alive during the call. NULL is refused with
 *   PINDOWN_E_INVALID, unless the function says what it means. A handle of another kind is refused with PINDOWN_E_HANDLE;
 *   using one that was freed is undefined, though often noticed.
 * - Functions that return a pindown_status return PINDOWN_OK (0) or another number that is not negative when they did what
 *   they are for, a negative one if not. pindown_strerror says what a number means; pindown_last_error says, for this
 *   thread, what went wrong and what to do.
 * - Safe from any thread, several at once, unless said otherwise (builders). Free a handle when no other thread uses it.
 * - In a forked child, what the parent made answers PINDOWN_E_FORKED and can be freed; make new ones there.
 * - Strings that are returned are the library's. Times are in nanoseconds, lengths in bytes.
 * - No function throws. Functions that you pass must not throw, longjmp, or call exit.
 * - Structures that begin with `size` grow in later versions: zero them, set size to sizeof, then the members you want.
 *
 * The library cannot be unloaded: dlclose(3) leaves it in memory (-z nodelete).
 */


#ifndef PINDOWN_H
#define PINDOWN_H

/* Made by `cargo xtask header`; do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pindown_provider pindown_provider;
typedef struct pindown_builder pindown_builder;
typedef struct pindown_cache pindown_cache;
typedef struct pindown_notifier pindown_notifier;
typedef struct pindown_queue pindown_queue;
typedef struct pindown_everything pindown_everything;
typedef struct pindown_segments pindown_segments;
typedef struct pindown_watch pindown_watch;


/**
 * The device reads (sends from the memory). Always allowed, hence zero.
 */
#define PINDOWN_READ 0

/**
 * The local device may write (receive, RDMA READ into, READ_FIXED).
 */
#define PINDOWN_LOCAL_WRITE 1

/**
 * A peer may read. Such memory is never registered beyond its pages; see docs/remote-access.md.
 */
#define PINDOWN_REMOTE_READ 2

/**
 * A peer may write.
 */
#define PINDOWN_REMOTE_WRITE 4

/**
 * A peer may do atomics.
 */
#define PINDOWN_REMOTE_ATOMIC 8

/**
 * The device may reorder its memory accesses.
 */
#define PINDOWN_RELAXED_ORDERING 16

/**
 * The cache may register more than was asked for, to serve neighbours.
 */
#define PINDOWN_OPS_MAY_WIDEN 1

/**
 * Registrations follow the address space by themselves (on-demand paging): no monitor is needed.
 */
#define PINDOWN_OPS_COHERENT 2

/**
 * Only the thread that calls pindown_provider_new may register and deregister; it calls pindown_cache_drive.
 */
#define PINDOWN_OPS_OWNER_THREAD 4

/**
 * The ring has a table of buffers; use its empty slots application_slots..slots. Nobody else may fill or clear them,
 * nor unregister the table, while the cache or a registration exists.
 */
#define PINDOWN_IO_URING_EXISTING_TABLE 1

/**
 * A region's memory is not what it was.
 */
#define PINDOWN_EVENT_CHANGED 1

/**
 * The end of a batch: it held everything up to `generation`.
 */
#define PINDOWN_EVENT_END 2

/**
 * What a function came to. Numbers never change; new ones may be added.
 */
enum pindown_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Done.
   */
  PINDOWN_OK = 0,
  /**
   * Submitted; a completion will come.
   */
  PINDOWN_PENDING = 1,
  /**
   * Nothing there: no registration serves the range (pindown_lookup), no completion waits, no such ticket or
   * cookie. Not an error, and `pindown_last_error` is left alone.
   */
  PINDOWN_NOT_FOUND = 2,
  /**
   * NULL where something is needed, an unknown number, or a structure that is too short.
   */
  PINDOWN_E_INVALID = -1,
  /**
   * The handle is of another kind, or was freed.
   */
  PINDOWN_E_HANDLE = -2,
  /**
   * The registration is not held: it was put already, or never acquired.
   */
  PINDOWN_E_NOT_HELD = -3,
  /**
   * No range of this address space: zero length, wrap-around, or beyond the end.
   */
  PINDOWN_E_RANGE = -4,
  /**
   * A limit of the kernel or device (RLIMIT_MEMLOCK, slots, memory).
   */
  PINDOWN_E_LIMIT = -5,
  /**
   * The cache's budget has no room, and what fills it is held.
   */
  PINDOWN_E_BUDGET = -6,
  /**
   * Longer than one registration can be.
   */
  PINDOWN_E_TOO_LONG = -7,
  /**
   * The device or kernel does not register this memory.
   */
  PINDOWN_E_MEMORY = -8,
  /**
   * A passing fault.
   */
  PINDOWN_E_BUSY = -9,
  /**
   * The provider belongs to another thread.
   */
  PINDOWN_E_WRONG_THREAD = -10,
  /**
   * The device is gone.
   */
  PINDOWN_E_DEVICE_GONE = -11,
  /**
   * A system call failed; `pindown_last_errno` has its number.
   */
  PINDOWN_E_IO = -12,
  /**
   * The library or a callback panicked. The objects involved stay usable.
   */
  PINDOWN_E_PANIC = -13,
  /**
   * The object belongs to the parent of this process.
   */
  PINDOWN_E_FORKED = -14,
  /**
   * The cache or queue is closed.
   */
  PINDOWN_E_CLOSED = -15,
  /**
   * Registrations are still held.
   */
  PINDOWN_E_HELD = -16,
  /**
   * The provider does not let go of registrations; they are retried.
   */
  PINDOWN_E_DEREGISTER = -17,
  /**
   * The queue is full.
   */
  PINDOWN_E_QUEUE_FULL = -18,
  /**
   * The submission was cancelled.
   */
  PINDOWN_E_CANCELLED = -19,
  /**
   * The monitor does not start here.
   */
  PINDOWN_E_MONITOR = -20,
  /**
   * The device or library cannot be opened, or lacks what was asked for.
   */
  PINDOWN_E_DEVICE = -21,
  /**
   * The range cannot be watched: not every change of it would be seen.
   */
  PINDOWN_E_NOT_COVERED = -22,
  /**
   * The cookie is in use.
   */
  PINDOWN_E_COOKIE = -23,
  /**
   * Nothing is mapped in part of the range.
   */
  PINDOWN_E_HOLE = -24,
  /**
   * More segments than one transfer may name.
   */
  PINDOWN_E_SEGMENTS = -25,
  /**
   * Not all pages could be made ready.
   */
  PINDOWN_E_INCOMPLETE = -26,
  /**
   * Anything else.
   */
  PINDOWN_E_OTHER = -27,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pindown_status pindown_status;
#else
typedef int32_t pindown_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a completion brings.
 */
enum pindown_done
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Nothing: it failed.
   */
  PINDOWN_DONE_NOTHING = 0,
  /**
   * `registration` holds the range.
   */
  PINDOWN_DONE_REGISTERED = 1,
  /**
   * `ready_bytes` of the range are ready.
   */
  PINDOWN_DONE_PREFETCHED = 2,
  /**
   * `segments` hold the range.
   */
  PINDOWN_DONE_SEGMENTS = 3,
  /**
   * The device has no registration of the range.
   */
  PINDOWN_DONE_FLUSHED = 4,
  /**
   * The watched registration's memory changed: its transfers move the old pages.
   */
  PINDOWN_DONE_STALE = 5,
  /**
   * The device let go of the watched registration.
   */
  PINDOWN_DONE_DEREGISTERED = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pindown_done pindown_done;
#else
typedef uint32_t pindown_done;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Who sees the address space change.
 */
enum pindown_monitor
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * The best that starts here (eBPF, else userfaultfd); where none does, nothing is cached and everything works.
   */
  PINDOWN_MONITOR_AUTO = 0,
  /**
   * userfaultfd events (Linux 6.7, unprivileged).
   */
  PINDOWN_MONITOR_UFFD = 1,
  /**
   * Programs on the kernel's unmap paths (Linux 6.1; CAP_BPF and CAP_PERFMON, or `pindown helper`).
   */
  PINDOWN_MONITOR_EBPF = 2,
  /**
   * The application reports every change, with pindown_invalidate or a pindown_notifier.
   */
  PINDOWN_MONITOR_MANUAL = 3,
  /**
   * Caches nothing: each request registers.
   */
  PINDOWN_MONITOR_UNCACHED = 4,
  /**
   * Caches everything and sees nothing: moves stale bytes. To demonstrate the hazard only.
   */
  PINDOWN_MONITOR_NONE = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pindown_monitor pindown_monitor;
#else
typedef uint32_t pindown_monitor;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Which registration goes when there is no room.
 */
enum pindown_policy
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Chooses by what the others would have cost.
   */
  PINDOWN_POLICY_ADAPTIVE = 0,
  /**
   * The least recently used.
   */
  PINDOWN_POLICY_LRU = 1,
  /**
   * Two queues; a scan passes through.
   */
  PINDOWN_POLICY_S3FIFO = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pindown_policy pindown_policy;
#else
typedef uint32_t pindown_policy;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How memory stays reachable for a verbs device.
 */
enum pindown_paging
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Pages are pinned; a monitor keeps the cache coherent.
   */
  PINDOWN_PAGING_PINNED = 0,
  /**
   * On-demand paging: registrations follow the page table.
   */
  PINDOWN_PAGING_ON_DEMAND = 1,
  /**
   * One on-demand registration for all local access; explicit ones for remote rights.
   */
  PINDOWN_PAGING_IMPLICIT = 2,
  /**
   * The first that the device offers of implicit, on-demand, pinned.
   */
  PINDOWN_PAGING_AUTO = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pindown_paging pindown_paging;
#else
typedef uint32_t pindown_paging;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What goes into a work request. Which members mean something depends on the provider; the others are 0.
 * Valid while the registration that it came with is held.
 */
typedef struct pindown_key {
  /**
   * Verbs: for this process's own work requests (ibv_sge.lkey).
   */
  uint32_t lkey;
  /**
   * Verbs: for a peer's requests (wr.rdma.rkey). Whoever knows it reaches all of the registration.
   */
  uint32_t rkey;
  /**
   * io_uring: the SQE's buf_index.
   */
  uint32_t buf_index;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * A provider of your own: whatever its register_memory wrote.
   */
  uint64_t user;
} pindown_key;

/**
 * A held registration: registered until it is put. Lives in your memory and may be moved (copied), but is put once:
 * of two copies only one holds.
 */
typedef struct pindown_registration {
  /**
   * What goes into the work request.
   */
  struct pindown_key key;
  /**
   * The library's.
   */
  uint64_t private_tag;
  /**
   * The library's.
   */
  void *private_hold[2];
} pindown_registration;

/**
 * What a submission came to.
 */
typedef struct pindown_completion {
  /**
   * As submitted.
   */
  uint64_t user_data;
  /**
   * PINDOWN_OK or why not; pindown_last_error then has the words, until the next failure on this thread.
   */
  pindown_status status;
  /**
   * What it brings.
   */
  pindown_done done;
  /**
   * Held where `done` says so.
   */
  struct pindown_registration registration;
  /**
   * Not NULL where `done` says so.
   */
  pindown_segments *segments;
  /**
   * Bytes that a prefetch made ready, from the start of the first page.
   */
  size_t ready_bytes;
  /**
   * The errno behind a failure, or 0.
   */
  int32_t error;
  /**
   * 0.
   */
  uint32_t reserved[7];
} pindown_completion;

/**
 * One registration of a provider of your own: what its register_memory fills in, and gets back later.
 */
typedef struct pindown_mr {
  /**
   * Comes back in pindown_registration.key.
   */
  struct pindown_key key;
  /**
   * Yours: a pointer or a number.
   */
  uint64_t handle;
} pindown_mr;

/**
 * A provider written in C. Zero what you do not need, then set size = sizeof(struct pindown_provider_ops).
 *
 * The functions are called from several threads at once (unless PINDOWN_OPS_OWNER_THREAD), never under a lock of
 * the cache, and may block. They return 0 or an errno (positive), must not throw or longjmp, and must not call
 * pindown on the same cache.
 */
typedef struct pindown_provider_ops {
  /**
   * sizeof(struct pindown_provider_ops).
   */
  size_t size;
  /**
   * For people; copied. NULL: "c".
   */
  const char *name;
  /**
   * Most registrations at a time; 0: no bound.
   */
  uint64_t max_regions;
  /**
   * Longest registration in bytes; 0: no bound.
   */
  uint64_t max_region_bytes;
  /**
   * Most bytes registered at a time; 0: no bound.
   */
  uint64_t max_bytes;
  /**
   * Most registrations that one transfer may name; 0: no bound.
   */
  size_t max_segments;
  /**
   * PINDOWN_OPS_*.
   */
  uint32_t flags;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * Registers len bytes at addr, whole pages, with rights PINDOWN_*. On 0 the device reaches exactly these pages
   * until deregister returned 0. ENOMEM, ENOSPC and EDQUOT make the cache evict and try once more; EAGAIN, EBUSY and
   * EINTR are PINDOWN_E_BUSY; ENODEV is PINDOWN_E_DEVICE_GONE; EFAULT, EINVAL, EPERM, EACCES and EOPNOTSUPP are
   * PINDOWN_E_MEMORY. Required.
   */
  int32_t (*register_memory)(void *context, void *addr, size_t len, uint32_t access, struct pindown_mr *mr);
  /**
   * Gives a registration back. Not 0: it stays registered, and this is called again later. Required.
   */
  int32_t (*deregister)(void *context, const struct pindown_mr *mr);
  /**
   * Has the device ready the pages for a transfer. NULL: there is nothing to ready.
   */
  int32_t (*prefetch)(void *context, const struct pindown_key *key, void *addr, size_t len, uint32_t access);
  /**
   * Called once, when nothing will use the context any more; from any thread. NULL: nothing to do.
   */
  void (*release)(void *context);
} pindown_provider_ops;

/**
 * Settings of pindown_provider_io_uring. Zero is the default of each; set size = sizeof(struct
 * pindown_io_uring_options).
 */
typedef struct pindown_io_uring_options {
  /**
   * sizeof(struct pindown_io_uring_options).
   */
  size_t size;
  /**
   * Size of the ring's table, the application's slots included; at most 16384. 0: 1024.
   */
  uint32_t slots;
  /**
   * Slots 0 to this one stay the application's own.
   */
  uint32_t application_slots;
  /**
   * PINDOWN_IO_URING_*.
   */
  uint32_t flags;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * Not 0: for each buffer that the kernel has let go of, a completion on the ring with user_data = this + buf_index.
   */
  uint64_t release_tags;
} pindown_io_uring_options;

/**
 * Settings of a queue. Zero is the default of each; set size = sizeof(struct pindown_queue_options).
 */
typedef struct pindown_queue_options {
  /**
   * sizeof(struct pindown_queue_options).
   */
  size_t size;
  /**
   * Most submissions that are pending or not yet polled. 0: 256.
   */
  size_t depth;
  /**
   * Threads that register. 0: the processors, 2 to 4.
   */
  size_t threads;
  /**
   * The pieces of pindown_queue_submit_large, in bytes. 0: 64 MiB.
   */
  size_t piece_bytes;
  /**
   * Also told of each completion, once, by the thread that finished it, after it can be polled. Returns 0 or an errno
   * (then the completion still waits, and pindown_queue_unannounced counts it). Must not throw, nor wait for the queue.
   */
  int32_t (*announce)(void *context, uint64_t user_data, bool ok);
  /**
   * For `announce`; must live until the queue is freed.
   */
  void *announce_context;
} pindown_queue_options;

/**
 * One part of a request.
 */
typedef struct pindown_segment {
  /**
   * Its first byte.
   */
  void *addr;
  /**
   * Its length in bytes.
   */
  size_t len;
  /**
   * What goes into the work request.
   */
  struct pindown_key key;
} pindown_segment;

/**
 * Counters and gauges of a cache. Later versions append members; see pindown_cache_stats.
 */
typedef struct pindown_stats {
  /**
   * Requests: hits + misses.
   */
  uint64_t gets;
  /**
   * Requests served by an existing registration.
   */
  uint64_t hits;
  /**
   * Requests that found none.
   */
  uint64_t misses;
  /**
   * Misses that waited for another thread's registration of the same range.
   */
  uint64_t shared_flights;
  /**
   * Registrations made.
   */
  uint64_t registrations;
  /**
   * Registrations given back.
   */
  uint64_t deregistrations;
  /**
   * Registrations that failed.
   */
  uint64_t register_failures;
  /**
   * Deregistrations that failed and are tried again.
   */
  uint64_t deregister_failures;
  /**
   * Registrations given up because their range changed meanwhile.
   */
  uint64_t raced;
  /**
   * Dropped to make room.
   */
  uint64_t evictions;
  /**
   * Dropped because another covers what was asked of them.
   */
  uint64_t superseded;
  /**
   * Made stale by a change.
   */
  uint64_t invalidated;
  /**
   * Made stale while held.
   */
  uint64_t invalidated_held;
  /**
   * Requests served without caching, since their range cannot be kept coherent.
   */
  uint64_t uncached;
  /**
   * Times the set of pending changes overflowed: everything was made stale.
   */
  uint64_t overflows;
  /**
   * Times a monitor lost events: everything was made stale.
   */
  uint64_t lost;
  /**
   * Slow-path drains of reported changes.
   */
  uint64_t drains;
  /**
   * Registrations that lookups can find now.
   */
  uint64_t regions_live;
  /**
   * Bytes of those.
   */
  uint64_t bytes_live;
  /**
   * Registrations with the provider now.
   */
  uint64_t regions_registered;
  /**
   * Bytes of those.
   */
  uint64_t bytes_registered;
  /**
   * Stale or evicted, and still held.
   */
  uint64_t regions_draining;
  /**
   * Waiting to be deregistered.
   */
  uint64_t regions_pending;
  /**
   * Most bytes registered at a time.
   */
  uint64_t bytes_registered_peak;
  /**
   * Most registrations at a time.
   */
  uint64_t regions_registered_peak;
  /**
   * Reported changes: unmap, remap, remove, file, protect, manual, check, sweep.
   */
  uint64_t events[8];
} pindown_stats;

/**
 * Told how far a large submission got, after each piece, by several threads at once. Must not throw.
 */
typedef void (*pindown_progress)(void *context, size_t done_bytes, size_t total_bytes);

/**
 * One record of a batch.
 */
typedef struct pindown_watch_event {
  /**
   * PINDOWN_EVENT_*; ignore those you do not know.
   */
  uint32_t kind;
  /**
   * Of a change: 1: all of the region, or more than is known; 0: exactly `len` bytes at `addr`.
   */
  uint32_t whole;
  /**
   * Of a change: as registered.
   */
  uint64_t cookie;
  /**
   * Of an exact change: its first page.
   */
  size_t addr;
  /**
   * Of an exact change: its length in bytes.
   */
  size_t len;
  /**
   * Of an end: compare the generation word with this from now on.
   */
  uint64_t generation;
} pindown_watch_event;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Settings of a cache over `provider`, which the builder takes on success: do not free it then. One thread at a time.
 */
pindown_status pindown_builder_new(pindown_provider *provider,
                                   pindown_builder **builder);

/**
 * Frees a builder that was not built, and its provider. NULL is nothing.
 */
pindown_status pindown_builder_free(pindown_builder *builder);

/**
 * Who sees the address space change: a pindown_monitor. Default: auto.
 */
pindown_status pindown_builder_monitor(pindown_builder *builder, uint32_t monitor);

/**
 * Most bytes registered at a time. Default: below RLIMIT_MEMLOCK, cgroup limits and the provider's.
 */
pindown_status pindown_builder_max_bytes(pindown_builder *builder, uint64_t bytes);

/**
 * Most registrations at a time. Default: what the provider allows.
 */
pindown_status pindown_builder_max_regions(pindown_builder *builder, uint64_t regions);

/**
 * Whether neighbours asked for one after the other are registered together. Default: yes.
 */
pindown_status pindown_builder_widen(pindown_builder *builder, bool widen);

/**
 * Which registration goes when there is no room: a pindown_policy.
 */
pindown_status pindown_builder_policy(pindown_builder *builder, uint32_t policy);

/**
 * Registrations that nobody asked for during this time, in nanoseconds, are given up. Default: kept until room is
 * short.
 */
pindown_status pindown_builder_idle(pindown_builder *builder,
                                    uint64_t idle_ns);

/**
 * Whether registrations whose memory is not mapped any more are looked for. Default: where nothing reports it.
 */
pindown_status pindown_builder_sweep(pindown_builder *builder,
                                     bool sweep);

/**
 * Whether half of what is registered is given up when the machine is short of memory. Default: yes.
 */
pindown_status pindown_builder_relieve_pressure(pindown_builder *builder, bool relieve);

/**
 * Whether `pindown top` sees the cache's counters. Default: yes, unless PINDOWN_EXPORT=0 in the environment.
 */
pindown_status pindown_builder_export(pindown_builder *builder, bool export_);

/**
 * Registrations with remote rights are really deregistered when they are put, so that no peer reaches the memory
 * afterwards. They are then never cached.
 */
pindown_status pindown_builder_revoke_on_put(pindown_builder *builder);

/**
 * Starts the monitor and the worker thread. Frees the builder, whether it succeeds or not; on failure also the
 * provider. PINDOWN_E_MONITOR when the monitor does not start here; auto always does.
 */
pindown_status pindown_builder_build(pindown_builder *builder,
                                     pindown_cache **cache);

/**
 * The memory changed: whatever is registered there is stale from here on. `count`, unless NULL, is how many
 * registrations were. For PINDOWN_MONITOR_MANUAL, and harmless with others. Takes the cache's lock: inside an
 * allocator use a pindown_notifier.
 */
pindown_status pindown_invalidate(const pindown_cache *cache, const void *addr, size_t len, size_t *count);

/**
 * Returns when the device has no registration of any page of the range. PINDOWN_E_HELD: somebody holds one.
 */
pindown_status pindown_flush(const pindown_cache *cache, const void *addr, size_t len);

/**
 * Drops what is registered and not held, down to `max_bytes` registered. `left_bytes`, unless NULL, is what remains.
 */
pindown_status pindown_shrink(const pindown_cache *cache,
                              uint64_t max_bytes,
                              uint64_t *left_bytes);

/**
 * Handles reported changes and deregisters what is due, on this thread. `count`, unless NULL, is how many
 * registrations were given back. Needed only with a provider that belongs to one thread, which must call it at least
 * every 10 ms for stale registrations to go within that time.
 */
pindown_status pindown_cache_drive(const pindown_cache *cache,
                                   size_t *count);

/**
 * Ends the cache: later requests are PINDOWN_E_CLOSED, everything that is not held is deregistered; waits up to
 * `timeout_ns` for what is held. PINDOWN_E_HELD: time was up; what is left is deregistered when it is put. The handle
 * stays: call again, or pindown_cache_free.
 */
pindown_status pindown_cache_close(const pindown_cache *cache,
                                   uint64_t timeout_ns);

/**
 * Frees the handle. Queues and other handles made from the cache keep it running; with the last of them everything
 * that is not held is deregistered, and what is held after its put. Does not wait. NULL is nothing.
 */
pindown_status pindown_cache_free(pindown_cache *cache);

/**
 * Most bytes that may be registered at a time, as in force. 0 on failure.
 */
uint64_t pindown_cache_max_bytes(const pindown_cache *cache);

/**
 * Most registrations that may exist at a time, as in force. 0 on failure.
 */
uint64_t pindown_cache_max_regions(const pindown_cache *cache);

/**
 * Which monitor keeps the cache coherent: "ebpf", "uffd", "manual", "uncached", "none". Never to be freed; NULL on
 * failure.
 */
const char *pindown_cache_monitor_name(const pindown_cache *cache);

/**
 * The protection domain of a verbs provider, to make queue pairs on: a `struct ibv_pd *`. Valid while the cache or
 * anything made from it lives. NULL for other providers and on failure.
 */
void *pindown_cache_ibv_pd(const pindown_cache *cache);

/**
 * The longest single registration in bytes. 0 on failure.
 */
uint64_t pindown_cache_max_region_bytes(const pindown_cache *cache);

/**
 * Puts what `completion` holds, registration or segments, and leaves it empty.
 */
pindown_status pindown_completion_release(struct pindown_completion *completion);

/**
 * Keys for any memory, with rights `access`; costs nothing until it is used. `max_segments`: most segments that one
 * request may come to; 0: 16, or what the device takes if that is less.
 */
pindown_status pindown_everything_new(const pindown_cache *cache,
                                      uint32_t access,
                                      size_t max_segments,
                                      pindown_everything **everything);

/**
 * Frees it. NULL is nothing.
 */
pindown_status pindown_everything_free(pindown_everything *everything);

/**
 * Whether the device has one key of all memory (implicit on-demand paging). False on failure.
 */
bool pindown_everything_is_implicit(const pindown_everything *everything);

/**
 * The keys of `len` bytes at `addr`, in order of addresses, held until `segments` is freed. Registers what is not
 * registered yet. PINDOWN_E_HOLE, PINDOWN_E_MEMORY and PINDOWN_E_SEGMENTS say how far the request is good. The demands of
 * pindown_acquire hold.
 */
pindown_status pindown_everything_keys(const pindown_everything *everything,
                                       const void *addr,
                                       size_t len,
                                       pindown_segments **segments);

/**
 * Why the last call that failed on this thread did, and what to do about it, in English. Empty if none did.
 * Valid until the next call on this thread that fails; not to be freed. Never NULL.
 */
const char *pindown_last_error(void);

/**
 * The errno of the system call behind that failure; 0 if there was none.
 */
int32_t pindown_last_errno(void);

/**
 * Through which changes of memory are reported to `cache` from anywhere, also from inside free(). It may outlive the
 * cache, and then reports to nobody.
 */
pindown_status pindown_notifier_new(const pindown_cache *cache,
                                    pindown_notifier **notifier);

/**
 * Frees it. NULL is nothing.
 */
pindown_status pindown_notifier_free(pindown_notifier *notifier);

/**
 * The memory changed, or is about to: what was registered there before this call is stale. Allocates nothing, takes no
 * lock, does not block; a failure leaves pindown_last_error alone.
 */
pindown_status pindown_notifier_invalidate(const pindown_notifier *notifier,
                                           const void *addr,
                                           size_t len);

/**
 * Reports were lost: everything is stale. As pindown_notifier_invalidate otherwise.
 */
pindown_status pindown_notifier_lost(const pindown_notifier *notifier);

/**
 * Frees a provider that no builder has taken. NULL is nothing.
 */
pindown_status pindown_provider_free(pindown_provider *provider);

/**
 * A provider of your own. `ops` is copied; `context` is passed to each of its functions until `release` is called, which
 * may be after pindown_cache_free returned. On failure `release` is not called.
 */
pindown_status pindown_provider_new(const struct pindown_provider_ops *ops,
                                    void *context,
                                    pindown_provider **provider);

/**
 * Fixed buffers of the io_uring behind `ring_fd`, which the application keeps submitting to. The descriptor is
 * duplicated. The cache owns the ring's table of buffers, or part of it: see `options` (NULL: the defaults).
 * pindown_key.buf_index is what the SQE wants; the SQE names memory by its address. Linux 5.19.
 *
 * A ring with IORING_SETUP_SINGLE_ISSUER belongs to the calling thread, which must call pindown_cache_drive.
 */
pindown_status pindown_provider_io_uring(int32_t ring_fd,
                                         const struct pindown_io_uring_options *options,
                                         pindown_provider **provider);

/**
 * Registrations on `pd`, a `struct ibv_pd *` of the libibverbs that this process has loaded. It and its context stay
 * the application's, and must live until the cache is closed and everything is put. `paging` is a pindown_paging.
 * Each registration is an ibv_reg_mr(3); its pindown_key has the lkey and rkey.
 */
pindown_status pindown_provider_verbs(void *pd,
                                      uint32_t paging,
                                      pindown_provider **provider);

/**
 * Opens the verbs device called `device` (ibv_devices(1)) and makes a protection domain on it, which is
 * pindown_cache_ibv_pd of the cache that is built.
 */
pindown_status pindown_provider_verbs_open(const char *device, uint32_t paging, pindown_provider **provider);

/**
 * A queue over `cache`, which it keeps. `options` NULL: the defaults.
 */
pindown_status pindown_queue_new(const pindown_cache *cache,
                                 const struct pindown_queue_options *options,
                                 pindown_queue **queue);

/**
 * Takes no more submissions, completes what has not begun as PINDOWN_E_CLOSED, and waits for what runs. What is complete
 * can still be polled.
 */
pindown_status pindown_queue_close(const pindown_queue *queue);

/**
 * Closes and frees it, and puts what nobody polled. NULL is nothing.
 */
pindown_status pindown_queue_free(pindown_queue *queue);

/**
 * Ends a submission that has not begun: it completes as PINDOWN_E_CANCELLED. PINDOWN_NOT_FOUND: it has begun or is done,
 * and completes as it will.
 */
pindown_status pindown_queue_cancel(const pindown_queue *queue,
                                    uint64_t ticket);

/**
 * The next completion, if one waits: PINDOWN_OK and `completion`, else PINDOWN_NOT_FOUND. Does not block. What the
 * completion holds is yours: pindown_completion_release.
 */
pindown_status pindown_queue_poll(const pindown_queue *queue,
                                  struct pindown_completion *completion);

/**
 * As pindown_queue_poll, waiting up to `timeout_ns`. On the one thread that may register, does what is submitted first.
 */
pindown_status pindown_queue_wait(const pindown_queue *queue,
                                  uint64_t timeout_ns,
                                  struct pindown_completion *completion);

/**
 * Submissions that are pending or wait to be polled. 0 on failure.
 */
size_t pindown_queue_outstanding(const pindown_queue *queue);

/**
 * Completions whose announcement failed. 0 on failure.
 */
uint64_t pindown_queue_unannounced(const pindown_queue *queue);

/**
 * For a provider that belongs to one thread: does what is submitted, and the cache's due work, on this thread. `count`,
 * unless NULL, is how many submissions were done.
 */
pindown_status pindown_queue_drive(const pindown_queue *queue,
                                   size_t *count);

/**
 * A descriptor that is readable while completions wait, for poll(2) and epoll(7). The queue's: do not read or close it.
 * -1 on failure.
 */
int32_t pindown_queue_fd(const pindown_queue *queue);

/**
 * The registration that serves `len` bytes at `addr` with `access` (PINDOWN_* rights); made if there is none.
 * Registering blocks this thread and no other, except those that wait for the same range. Put it with pindown_put
 * once the transfer has *completed*, not only been submitted.
 *
 * While it is held the device may read, and with write rights change, the memory when you (or a peer) tell it to.
 * On failure `registration` holds nothing, and may be put without harm.
 */
pindown_status pindown_acquire(const pindown_cache *cache,
                               const void *addr,
                               size_t len,
                               uint32_t access,
                               struct pindown_registration *registration);

/**
 * As pindown_acquire, but never registers: PINDOWN_NOT_FOUND when nothing registered serves. No lock and no
 * allocation.
 */
pindown_status pindown_lookup(const pindown_cache *cache,
                              const void *addr,
                              size_t len,
                              uint32_t access,
                              struct pindown_registration *registration);

/**
 * Puts a registration, from any thread. One store; never deregisters unless the registration is used once
 * (pindown_registration_is_cached). PINDOWN_E_NOT_HELD: it was put already.
 */
pindown_status pindown_put(struct pindown_registration *registration);

/**
 * Holds once more, in `copy`. Each is put on its own.
 */
pindown_status pindown_registration_clone(const struct pindown_registration *registration,
                                          struct pindown_registration *copy);

/**
 * Whether the memory is known to have changed since it was registered: transfers move the old pages. It stays
 * registered until it is put. True on failure.
 */
bool pindown_registration_is_stale(const struct pindown_registration *registration);

/**
 * Whether later requests can be served by it. False: its memory cannot be kept coherent, so it was made for this
 * request and is deregistered when it is put. False on failure.
 */
bool pindown_registration_is_cached(const struct pindown_registration *registration);

/**
 * All that is registered, in whole pages; covers the request. NULL for what you do not want.
 */
pindown_status pindown_registration_range(const struct pindown_registration *registration,
                                          void **addr,
                                          size_t *len);

/**
 * The rights that are registered, PINDOWN_*; they serve the request. 0 on failure.
 */
uint32_t pindown_registration_access(const struct pindown_registration *registration);

/**
 * How many segments. 0 on failure.
 */
size_t pindown_segments_count(const pindown_segments *segments);

/**
 * The segment number `index`, from 0. PINDOWN_NOT_FOUND: there are fewer.
 */
pindown_status pindown_segments_get(const pindown_segments *segments,
                                    size_t index,
                                    struct pindown_segment *segment);

/**
 * Whether any of the memory is known to have changed since it was registered. True on failure.
 */
bool pindown_segments_is_stale(const pindown_segments *segments);

/**
 * Puts all of them. NULL is nothing.
 */
pindown_status pindown_segments_free(pindown_segments *segments);

/**
 * Fills in `stats`. `size` is sizeof(struct pindown_stats), so that a library that knows more members writes no more than
 * you have, and one that knows less leaves zeros.
 */
pindown_status pindown_cache_stats(const pindown_cache *cache,
                                   struct pindown_stats *stats,
                                   size_t size);

/**
 * What `status` means and what to do, in English. Never NULL, never to be freed. Thread-safe.
 */
const char *pindown_strerror(int32_t status);

/**
 * This library's version, "major.minor.patch". Never to be freed.
 */
const char *pindown_version(void);

/**
 * Asks for a registration; never blocks, and registers on other threads. PINDOWN_OK: the cache had it, `registration`
 * holds it, and there will be no completion. PINDOWN_PENDING: a completion with `user_data` will come; `ticket`, unless
 * NULL, names it. PINDOWN_E_QUEUE_FULL: poll completions, then submit again. The demands of pindown_acquire hold from now
 * until the completion's registration is put.
 */
pindown_status pindown_queue_submit(const pindown_queue *queue,
                                    const void *addr,
                                    size_t len,
                                    uint32_t access,
                                    uint64_t user_data,
                                    struct pindown_registration *registration,
                                    uint64_t *ticket);

/**
 * Asks for the registration of a range of any length, in pieces that several threads register in parallel. PINDOWN_OK:
 * all was registered, and `segments` holds it. PINDOWN_PENDING: the completion has the segments. `report`, unless NULL, is
 * told after each piece, until the completion. Otherwise as pindown_queue_submit.
 */
pindown_status pindown_queue_submit_large(const pindown_queue *queue,
                                          const void *addr,
                                          size_t len,
                                          uint32_t access,
                                          uint64_t user_data,
                                          pindown_progress report,
                                          void *report_context,
                                          pindown_segments **segments,
                                          uint64_t *ticket);

/**
 * Readies pages: faults them in for `access`, and has a device that faults by itself do so. Completes with
 * pindown_completion.ready_bytes; PINDOWN_E_INCOMPLETE if that is not all. Linux 5.14. PINDOWN_PENDING on success.
 */
pindown_status pindown_queue_prefetch(const pindown_queue *queue,
                                      const void *addr,
                                      size_t len,
                                      uint32_t access,
                                      uint64_t user_data,
                                      uint64_t *ticket);

/**
 * Completes when the device has no registration of the range any more. PINDOWN_PENDING on success.
 */
pindown_status pindown_queue_flush(const pindown_queue *queue,
                                   const void *addr,
                                   size_t len,
                                   uint64_t user_data,
                                   uint64_t *ticket);

/**
 * Completes, as PINDOWN_DONE_STALE or PINDOWN_DONE_DEREGISTERED, once the memory of `registration` changed or the device
 * let go of it. Does not hold it. Cancelling ends the watch. PINDOWN_PENDING on success.
 */
pindown_status pindown_queue_watch_stale(const pindown_queue *queue,
                                         const struct pindown_registration *registration,
                                         uint64_t user_data,
                                         uint64_t *ticket);

/**
 * Makes pages ready for `access` on this thread: faults them in, and for writing allocates them. `ready_bytes`, unless
 * NULL, is how many from the start of the first page are; PINDOWN_E_INCOMPLETE if that is not all. Never raises SIGBUS or
 * SIGSEGV. Linux 5.14.
 */
pindown_status pindown_prefetch(const void *addr,
                                size_t len,
                                uint32_t access,
                                size_t *ready_bytes);

/**
 * Begins to watch, with a pindown_monitor: auto, uffd, ebpf. PINDOWN_E_MONITOR when it does not start here.
 */
pindown_status pindown_watch_open(uint32_t monitor, pindown_watch **watch);

/**
 * Ends and frees it. NULL is nothing.
 */
pindown_status pindown_watch_free(pindown_watch *watch);

/**
 * Watches `len` bytes at `addr`, in whole pages, under `cookie`. Do this before you pin: what changes from the return on is
 * reported. PINDOWN_E_COOKIE: the cookie is in use; PINDOWN_E_NOT_COVERED: not every change would be seen.
 */
pindown_status pindown_watch_register(const pindown_watch *watch,
                                      const void *addr,
                                      size_t len,
                                      uint64_t cookie);

/**
 * Ends the region; an event not yet read is dropped. PINDOWN_NOT_FOUND: the cookie names no region.
 */
pindown_status pindown_watch_unregister(const pindown_watch *watch, uint64_t cookie);

/**
 * The word that moves with each change, before the changing call returns. What differs from the last end's `generation`
 * means: read, before you use anything. 0 on failure.
 */
uint64_t pindown_watch_generation(const pindown_watch *watch);

/**
 * Where that word is, so that a check is one load (acquire: C11 atomic_load_explicit, or __atomic_load_n). Valid until
 * the watch is freed. In a forked child it means nothing. NULL on failure.
 */
const uint64_t *pindown_watch_generation_word(const pindown_watch *watch);

/**
 * Fills `events` with up to `capacity` of what changed since the last read; `count` says how many. The last event of a
 * batch is PINDOWN_EVENT_END; if it is not there, the array was too short: read again. Never blocks.
 */
pindown_status pindown_watch_read(const pindown_watch *watch,
                                  struct pindown_watch_event *events,
                                  size_t capacity,
                                  size_t *count);

/**
 * A descriptor that is readable after a change, until the next read; for waiting only, it may come later than the word
 * moves. The watch's: do not read or close it. -1 on failure.
 */
int32_t pindown_watch_fd(const pindown_watch *watch);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PINDOWN_H */
