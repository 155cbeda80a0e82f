/* The least of an io_uring without liburing: one request at a time. io_uring_setup(2), io_uring_enter(2). */
#ifndef RING_H
#define RING_H

#include <linux/io_uring.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct ring {
  int fd;
  unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
  struct io_uring_sqe *sqes;
  struct io_uring_cqe *cqes;
};

static unsigned *ring_word(void *base, uint32_t offset) { return (unsigned *)((char *)base + offset); }

/* 0, or -1 with errno. */
static int ring_open(struct ring *ring) {
  struct io_uring_params p;
  memset(&p, 0, sizeof p);
  ring->fd = (int)syscall(SYS_io_uring_setup, 4, &p);
  if (ring->fd < 0) return -1;
  size_t sq_bytes = p.sq_off.array + p.sq_entries * sizeof(unsigned);
  size_t cq_bytes = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
  size_t sqe_bytes = p.sq_entries * sizeof(struct io_uring_sqe);
  int rw = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
  void *sq = mmap(NULL, sq_bytes, rw, flags, ring->fd, IORING_OFF_SQ_RING);
  void *cq = mmap(NULL, cq_bytes, rw, flags, ring->fd, IORING_OFF_CQ_RING);
  void *sqes = mmap(NULL, sqe_bytes, rw, flags, ring->fd, IORING_OFF_SQES);
  if (sq == MAP_FAILED || cq == MAP_FAILED || sqes == MAP_FAILED) return -1;
  ring->sq_tail = ring_word(sq, p.sq_off.tail);
  ring->sq_mask = ring_word(sq, p.sq_off.ring_mask);
  ring->sq_array = ring_word(sq, p.sq_off.array);
  ring->cq_head = ring_word(cq, p.cq_off.head);
  ring->cq_tail = ring_word(cq, p.cq_off.tail);
  ring->cq_mask = ring_word(cq, p.cq_off.ring_mask);
  ring->cqes = (struct io_uring_cqe *)(void *)((char *)cq + p.cq_off.cqes);
  ring->sqes = (struct io_uring_sqe *)sqes;
  return 0;
}

/* WRITE_FIXED of `len` bytes at `addr`, which lie in buffer `buf_index`; waits. The bytes written, or -errno. */
static int ring_write_fixed(struct ring *ring, int fd, const void *addr, unsigned len, unsigned buf_index) {
  unsigned tail = *ring->sq_tail, at = tail & *ring->sq_mask;
  struct io_uring_sqe *sqe = &ring->sqes[at];
  memset(sqe, 0, sizeof *sqe);
  sqe->opcode = IORING_OP_WRITE_FIXED;
  sqe->fd = fd;
  sqe->addr = (uint64_t)(uintptr_t)addr;
  sqe->len = len;
  sqe->buf_index = (uint16_t)buf_index;
  ring->sq_array[at] = at;
  __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
  if (syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) return -1;
  unsigned head = *ring->cq_head;
  if (head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE)) return -1;
  int result = ring->cqes[head & *ring->cq_mask].res;
  __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
  return result;
}

#endif
