/* What the tests share: checks that say what failed, and a device that keeps books. C11 and C++17. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <pindown.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The exit status for "this machine cannot"; what is missing is on stdout. */
#define CANNOT 3
#define PAGE ((size_t)4096)

#define CHECK(condition)                                                                                    \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, pindown_last_error()); \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)

/* Checks a status, and shows what it was instead. */
#define STATUS(wanted, call)                                                                                \
  do {                                                                                                      \
    int32_t got_ = (int32_t)(call);                                                                         \
    if (got_ != (int32_t)(wanted)) {                                                                        \
      fprintf(stderr, "%s:%d: %s\n  is %d (%s; %s), not %s\n", __FILE__, __LINE__, #call, got_,             \
              pindown_strerror(got_), pindown_last_error(), #wanted);                                       \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)

#define OK(call) STATUS(PINDOWN_OK, call)

/* A device: counts what is registered, and refuses what it is told to. */
struct device {
  pthread_mutex_t lock;
  uint64_t next_key;
  int live, registered, deregistered, released;
  int refuse_register; /* an errno, once */
  int refuse_deregister;
};

static inline int32_t device_register(void *context, void *addr, size_t len, uint32_t access, struct pindown_mr *mr) {
  struct device *device = (struct device *)context;
  (void)access;
  pthread_mutex_lock(&device->lock);
  int32_t error = device->refuse_register;
  device->refuse_register = 0;
  if (((uintptr_t)addr | len) % PAGE != 0 || len == 0) error = EINVAL;
  if (error == 0) {
    device->live++;
    device->registered++;
    mr->key.user = ++device->next_key;
    mr->handle = (uint64_t)(uintptr_t)malloc(16); /* what is not deregistered leaks, and is seen */
  }
  pthread_mutex_unlock(&device->lock);
  return error;
}

static inline int32_t device_deregister(void *context, const struct pindown_mr *mr) {
  struct device *device = (struct device *)context;
  pthread_mutex_lock(&device->lock);
  int32_t error = device->refuse_deregister;
  device->refuse_deregister = 0;
  if (error == 0) {
    free((void *)(uintptr_t)mr->handle);
    device->live--;
    device->deregistered++;
  }
  pthread_mutex_unlock(&device->lock);
  return error;
}

static inline void device_release(void *context) {
  struct device *device = (struct device *)context;
  pthread_mutex_lock(&device->lock);
  device->released++;
  pthread_mutex_unlock(&device->lock);
}

static inline void device_init(struct device *device) {
  memset(device, 0, sizeof *device);
  pthread_mutex_init(&device->lock, NULL);
}

static inline struct pindown_provider_ops device_ops(void) {
  struct pindown_provider_ops ops;
  memset(&ops, 0, sizeof ops);
  ops.size = sizeof ops;
  ops.name = "books";
  ops.register_memory = device_register;
  ops.deregister = device_deregister;
  ops.release = device_release;
  return ops;
}

static inline pindown_builder *device_builder(struct device *device, uint32_t monitor) {
  struct pindown_provider_ops ops = device_ops();
  pindown_provider *provider = NULL;
  pindown_builder *builder = NULL;
  OK(pindown_provider_new(&ops, device, &provider));
  OK(pindown_builder_new(provider, &builder));
  OK(pindown_builder_monitor(builder, monitor));
  OK(pindown_builder_export(builder, false));
  return builder;
}

static inline pindown_cache *device_cache(struct device *device, uint32_t monitor) {
  pindown_cache *cache = NULL;
  OK(pindown_builder_build(device_builder(device, monitor), &cache));
  return cache;
}

static inline char *pages(size_t count) {
  void *memory = NULL;
  CHECK(posix_memalign(&memory, PAGE, count * PAGE) == 0);
  memset(memory, 1, count * PAGE);
  return (char *)memory;
}

static inline struct pindown_stats stats_of(const pindown_cache *cache) {
  struct pindown_stats stats;
  OK(pindown_cache_stats(cache, &stats, sizeof stats));
  return stats;
}

/* Waits for a count that another thread changes. */
static inline void wait_until(struct device *device, const int *count, int wanted) {
  for (int i = 0; i < 5000; i++) {
    pthread_mutex_lock(&device->lock);
    int now = *count;
    pthread_mutex_unlock(&device->lock);
    if (now == wanted) return;
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
  }
  fprintf(stderr, "the device still has %d, not %d\n", *count, wanted);
  exit(1);
}

#endif
