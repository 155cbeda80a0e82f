/* Many threads on one cache: requests, clones put elsewhere, changes, a closing cache. Books balance. Under valgrind too. */
#include "check.h"

enum { THREADS = 4, ROUNDS = 400, PAGES = 32 };

static pindown_cache *cache;
static char *memory;

static void *requests(void *argument) {
  unsigned seed = (unsigned)(uintptr_t)argument;
  for (int i = 0; i < ROUNDS; i++) {
    struct pindown_registration held, copy;
    seed = seed * 1664525u + 1013904223u;
    char *at = memory + (seed >> 8) % PAGES * PAGE;
    int32_t status = pindown_acquire(cache, at, 1, PINDOWN_LOCAL_WRITE, &held);
    if (status == PINDOWN_E_CLOSED) break;
    OK(status);
    if (seed % 7 == 0) OK(pindown_invalidate(cache, at, 1, NULL));
    OK(pindown_registration_clone(&held, &copy));
    OK(pindown_put(&held));
    CHECK(pindown_registration_access(&copy) == PINDOWN_LOCAL_WRITE);
    OK(pindown_put(&copy));
    /* Each thread has its own last error. */
    STATUS(PINDOWN_E_NOT_HELD, pindown_put(&copy));
    CHECK(strstr(pindown_last_error(), "not held") != NULL);
  }
  return NULL;
}

static void *put_elsewhere(void *held) {
  OK(pindown_put((struct pindown_registration *)held));
  return NULL;
}

int main(void) {
  struct device device;
  device_init(&device);
  cache = device_cache(&device, PINDOWN_MONITOR_MANUAL);
  memory = pages(PAGES);
  pthread_t threads[THREADS], putter;
  struct pindown_registration held;
  OK(pindown_acquire(cache, memory, 1, PINDOWN_READ, &held));
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, requests, (void *)(i + 1)) == 0);
  CHECK(pthread_create(&putter, NULL, put_elsewhere, &held) == 0);
  CHECK(pthread_join(putter, NULL) == 0);
  CHECK(stats_of(cache).registrations > 0);
  OK(pindown_cache_close(cache, UINT64_MAX)); /* while they run */
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  OK(pindown_cache_free(cache));
  wait_until(&device, &device.released, 1);
  CHECK(device.live == 0 && device.registered == device.deregistered);
  free(memory);
  puts("threads: good");
  return 0;
}
