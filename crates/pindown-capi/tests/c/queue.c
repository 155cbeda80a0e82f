/* The queue: hits at once, completions otherwise, cancellation, announcements, prefetch. Runs under valgrind. */
#include "check.h"
#include <poll.h>

static const uint64_t SECOND_NS = 1000000000;

struct told {
  pthread_mutex_t lock;
  int count;
  uint64_t sum;
};

static int32_t announce(void *context, uint64_t user_data, bool ok) {
  struct told *told = (struct told *)context;
  pthread_mutex_lock(&told->lock);
  told->count += ok ? 1 : 100;
  told->sum += user_data;
  pthread_mutex_unlock(&told->lock);
  return 0;
}

static pindown_queue *queue_with(pindown_cache *cache, size_t depth, struct told *told) {
  struct pindown_queue_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.depth = depth;
  options.threads = 2;
  options.piece_bytes = PAGE;
  if (told != NULL) {
    options.announce = announce;
    options.announce_context = told;
  }
  pindown_queue *queue = NULL;
  OK(pindown_queue_new(cache, &options, &queue));
  return queue;
}

static void submit_and_complete(pindown_cache *cache, char *memory) {
  struct told told;
  memset(&told, 0, sizeof told);
  pthread_mutex_init(&told.lock, NULL);
  pindown_queue *queue = queue_with(cache, 2, &told);
  struct pindown_registration held;
  struct pindown_completion done;
  uint64_t ticket = 0;
  STATUS(PINDOWN_NOT_FOUND, pindown_queue_poll(queue, &done));

  STATUS(PINDOWN_PENDING, pindown_queue_submit(queue, memory, 10, PINDOWN_READ, 7, &held, &ticket));
  CHECK(ticket != 0);
  STATUS(PINDOWN_E_NOT_HELD, pindown_put(&held)); /* pending holds nothing */
  struct pollfd readable = {pindown_queue_fd(queue), POLLIN, 0};
  CHECK(poll(&readable, 1, 10000) == 1);
  OK(pindown_queue_poll(queue, &done));
  CHECK(done.user_data == 7 && done.status == PINDOWN_OK && done.done == PINDOWN_DONE_REGISTERED);
  CHECK(done.registration.key.user != 0 && pindown_queue_outstanding(queue) == 0);
  STATUS(PINDOWN_NOT_FOUND, pindown_queue_cancel(queue, ticket));
  STATUS(PINDOWN_NOT_FOUND, pindown_queue_cancel(queue, 12345678));

  OK(pindown_queue_submit(queue, memory, 10, PINDOWN_READ, 8, &held, NULL)); /* a hit */
  CHECK(held.key.user == done.registration.key.user);
  STATUS(PINDOWN_PENDING, pindown_queue_watch_stale(queue, &held, 9, &ticket));
  OK(pindown_put(&held));
  OK(pindown_completion_release(&done));
  STATUS(PINDOWN_E_NOT_HELD, pindown_put(&done.registration));
  OK(pindown_invalidate(cache, memory, 10, NULL));
  OK(pindown_queue_wait(queue, 10 * SECOND_NS, &done));
  CHECK(done.user_data == 9 && done.done == PINDOWN_DONE_STALE);

  STATUS(PINDOWN_PENDING, pindown_queue_flush(queue, memory, PAGE, 10, NULL));
  OK(pindown_queue_wait(queue, 10 * SECOND_NS, &done));
  CHECK(done.user_data == 10 && done.done == PINDOWN_DONE_FLUSHED && done.status == PINDOWN_OK);

  /* A completion can be taken before it is announced, and staleness is announced by the cache's own thread. */
  int count = 0;
  for (int i = 0; i < 5000 && count < 3; i++) {
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&told.lock);
    count = told.count;
    pthread_mutex_unlock(&told.lock);
  }
  OK(pindown_queue_free(queue));
  CHECK(told.count == 3 && told.sum == 7 + 9 + 10);
}

static void a_full_queue_refuses(pindown_cache *cache, struct device *device, char *memory) {
  pindown_queue *queue = queue_with(cache, 2, NULL);
  struct pindown_registration held;
  struct pindown_completion done;
  device->refuse_register = EFAULT;
  STATUS(PINDOWN_PENDING, pindown_queue_submit(queue, memory, 1, PINDOWN_READ, 1, &held, NULL));
  OK(pindown_queue_wait(queue, 10 * SECOND_NS, &done));
  CHECK(done.status == PINDOWN_E_MEMORY && done.error == EFAULT && done.done == PINDOWN_DONE_NOTHING);
  CHECK(strstr(pindown_last_error(), "refuses") != NULL);
  OK(pindown_completion_release(&done));

  STATUS(PINDOWN_PENDING, pindown_queue_submit(queue, memory, 1, PINDOWN_READ, 2, &held, NULL));
  STATUS(PINDOWN_PENDING, pindown_queue_submit(queue, memory + 9 * PAGE, 1, PINDOWN_READ, 3, &held, NULL));
  STATUS(PINDOWN_E_QUEUE_FULL, pindown_queue_submit(queue, memory + 12 * PAGE, 1, PINDOWN_READ, 4, &held, NULL));
  OK(pindown_queue_close(queue));
  for (int i = 0; i < 2; i++) { /* exactly one completion each, registered or closed */
    OK(pindown_queue_poll(queue, &done));
    CHECK(done.status == PINDOWN_OK || done.status == PINDOWN_E_CLOSED);
    OK(pindown_completion_release(&done));
  }
  STATUS(PINDOWN_NOT_FOUND, pindown_queue_poll(queue, &done));
  STATUS(PINDOWN_E_CLOSED, pindown_queue_prefetch(queue, memory, 1, PINDOWN_READ, 5, NULL));
  OK(pindown_queue_free(queue));
}

static void progress(void *context, size_t done_bytes, size_t total_bytes) {
  struct told *told = (struct told *)context;
  pthread_mutex_lock(&told->lock);
  told->count++;
  told->sum = told->sum > done_bytes ? told->sum : done_bytes;
  CHECK(total_bytes == 4 * PAGE);
  pthread_mutex_unlock(&told->lock);
}

static void large_ranges_and_prefetch(pindown_cache *cache, char *memory) {
  struct told told;
  memset(&told, 0, sizeof told);
  pthread_mutex_init(&told.lock, NULL);
  pindown_queue *queue = queue_with(cache, 4, NULL);
  struct pindown_completion done;
  pindown_segments *segments = NULL;
  OK(pindown_invalidate(cache, memory, 16 * PAGE, NULL));
  STATUS(PINDOWN_PENDING, pindown_queue_submit_large(queue, memory, 4 * PAGE, PINDOWN_READ, 1, progress, &told,
                                                     &segments, NULL));
  CHECK(segments == NULL);
  OK(pindown_queue_wait(queue, 10 * SECOND_NS, &done));
  CHECK(done.done == PINDOWN_DONE_SEGMENTS && pindown_segments_count(done.segments) >= 1);
  CHECK(told.count == 4 && told.sum == 4 * PAGE);
  OK(pindown_queue_submit_large(queue, memory, 4 * PAGE, PINDOWN_READ, 2, NULL, NULL, &segments, NULL));
  OK(pindown_segments_free(segments));
  OK(pindown_completion_release(&done));
  OK(pindown_completion_release(&done)); /* holds nothing any more */

  STATUS(PINDOWN_PENDING, pindown_queue_prefetch(queue, memory, 4 * PAGE, PINDOWN_LOCAL_WRITE, 3, NULL));
  OK(pindown_queue_wait(queue, 10 * SECOND_NS, &done));
  CHECK(done.done == PINDOWN_DONE_PREFETCHED);
  CHECK(done.status == PINDOWN_OK ? done.ready_bytes == 4 * PAGE : done.status == PINDOWN_E_INCOMPLETE);
  size_t ready = 9;
  STATUS(PINDOWN_E_INCOMPLETE, pindown_prefetch((void *)(uintptr_t)PAGE, 1, PINDOWN_READ, &ready));
  CHECK(ready == 0);
  OK(pindown_queue_free(queue));
}

int main(void) {
  struct device device;
  device_init(&device);
  pindown_cache *cache = device_cache(&device, PINDOWN_MONITOR_MANUAL);
  char *memory = pages(16);
  submit_and_complete(cache, memory);
  a_full_queue_refuses(cache, &device, memory);
  large_ranges_and_prefetch(cache, memory);
  OK(pindown_cache_close(cache, UINT64_MAX));
  OK(pindown_cache_free(cache));
  wait_until(&device, &device.released, 1);
  CHECK(device.live == 0);
  free(memory);
  puts("queue: good");
  return 0;
}
