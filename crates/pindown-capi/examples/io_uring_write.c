/*
 * Cached WRITE_FIXED: a buffer is sent through an io_uring again and again, while its memory is mapped anew in between.
 * Each time the file must have the bytes that the CPU sees.
 *
 *   cc io_uring_write.c $(pkg-config --cflags --libs pindown) && ./a.out
 */
#include <errno.h>
#include <pindown.h>
#include <stdio.h>
#include <stdlib.h>

#include "ring.h"

enum { LEN = 65536, ROUNDS = 50 };

static void die(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void must(int32_t status, const char *what) {
  if (status < 0) die(what, pindown_last_error());
}

static pindown_cache *cache_on(int ring_fd) {
  pindown_provider *provider;
  pindown_builder *builder;
  pindown_cache *cache;
  must(pindown_provider_io_uring(ring_fd, NULL, &provider), "provider");
  must(pindown_builder_new(provider, &builder), "builder");
  must(pindown_builder_build(builder, &cache), "cache");
  return cache;
}

/* The program changes its memory as it likes: here, other pages at the same address. */
static void map_anew(char *buffer) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(buffer, LEN, PROT_READ | PROT_WRITE, flags, -1, 0) != buffer) die("mmap", strerror(errno));
}

static void send(pindown_cache *cache, struct ring *ring, int file, const char *buffer) {
  struct pindown_registration held;
  must(pindown_acquire(cache, buffer, LEN, PINDOWN_READ, &held), "acquire");
  int written = ring_write_fixed(ring, file, buffer, LEN, held.key.buf_index);
  must(pindown_put(&held), "put"); /* the transfer has completed */
  if (written != LEN) die("WRITE_FIXED", strerror(-written));
}

static void compare(int file, const char *buffer) {
  static char found[LEN];
  if (pread(file, found, LEN, 0) != LEN) die("pread", strerror(errno));
  if (memcmp(found, buffer, LEN) != 0) die("stale", "the file has other bytes than the buffer");
}

int main(void) {
  struct ring ring;
  if (ring_open(&ring) != 0) {
    printf("skipped: no io_uring here: %s\n", strerror(errno));
    return 3;
  }
  FILE *file = tmpfile();
  if (file == NULL) die("tmpfile", strerror(errno));
  pindown_cache *cache = cache_on(ring.fd);
  char *buffer = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) die("mmap", strerror(errno));

  for (int round = 0; round < ROUNDS; round++) {
    if (round % 5 == 0) map_anew(buffer);
    memset(buffer, 'a' + round % 26, LEN);
    send(cache, &ring, fileno(file), buffer);
    compare(fileno(file), buffer);
  }
  struct pindown_stats stats;
  must(pindown_cache_stats(cache, &stats, sizeof stats), "stats");
  printf("monitor %s: %llu requests, %llu registrations, all bytes right\n", pindown_cache_monitor_name(cache),
         (unsigned long long)stats.gets, (unsigned long long)stats.registrations);
  must(pindown_cache_close(cache, 1000000000), "close");
  must(pindown_cache_free(cache), "free");
  return 0;
}
