/* The watch: the word moves before the changing call returns, and the batch names what changed. */
#include "check.h"
#include <poll.h>
#include <sys/mman.h>

static uint64_t load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/* Reads a whole batch with an array of `capacity` at a time. */
static size_t batch(pindown_watch *watch, struct pindown_watch_event *all, size_t capacity) {
  size_t read = 0, count = 0;
  do {
    OK(pindown_watch_read(watch, all + read, capacity, &count));
    CHECK(count >= 1 && count <= capacity);
    read += count;
  } while (all[read - 1].kind != PINDOWN_EVENT_END);
  return read;
}

static void changes_are_reported(pindown_watch *watch, char *memory) {
  struct pindown_watch_event events[16];
  const uint64_t *word = pindown_watch_generation_word(watch);
  CHECK(word != NULL);
  for (int attempt = 0;; attempt++) { /* EBUSY and the like pass */
    int32_t status = pindown_watch_register(watch, memory, 4 * PAGE, 7);
    if (status == PINDOWN_OK) break;
    CHECK(attempt < 1000);
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
  }
  STATUS(PINDOWN_E_COOKIE, pindown_watch_register(watch, memory, PAGE, 7));
  OK(pindown_watch_register(watch, memory, PAGE, 8));
  OK(pindown_watch_register(watch, memory, 2 * PAGE, 9));
  size_t count = batch(watch, events, 16);
  uint64_t seen = events[count - 1].generation;
  CHECK(load(word) == seen && pindown_watch_generation(watch) == seen);

  CHECK(madvise(memory, PAGE, MADV_DONTNEED) == 0);
  CHECK(load(word) != seen);
  struct pollfd readable = {pindown_watch_fd(watch), POLLIN, 0};
  CHECK(poll(&readable, 1, 10000) == 1);
  count = batch(watch, events, 1); /* an array of one */
  CHECK(count == 4);
  bool found[3] = {false, false, false};
  for (size_t i = 0; i + 1 < count; i++) {
    CHECK(events[i].kind == PINDOWN_EVENT_CHANGED && events[i].cookie >= 7 && events[i].cookie <= 9);
    found[events[i].cookie - 7] = true;
    if (events[i].cookie == 7 && events[i].whole == 0) {
      CHECK(events[i].addr == (uintptr_t)memory && events[i].len == PAGE);
    }
  }
  CHECK(found[0] && found[1] && found[2] && events[count - 1].generation == load(word));
  OK(pindown_watch_unregister(watch, 8));
  STATUS(PINDOWN_NOT_FOUND, pindown_watch_unregister(watch, 8));
}

int main(void) {
  pindown_watch *watch = NULL;
  int32_t status = pindown_watch_open(PINDOWN_MONITOR_AUTO, &watch);
  if (status == PINDOWN_E_MONITOR) {
    printf("skipped: %s\n", pindown_last_error());
    return CANNOT;
  }
  OK(status);
  char *memory = (char *)mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  memset(memory, 1, 4 * PAGE);
  changes_are_reported(watch, memory);
  CHECK(munmap(memory, 4 * PAGE) == 0);
  OK(pindown_watch_free(watch));
  puts("watch: good");
  return 0;
}
