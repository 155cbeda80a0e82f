/* A forked child: what the parent made says so, can be freed, and neither process hangs. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static struct device device;
static char *memory;

static void in_the_child(pindown_cache *cache, pindown_queue *queue, struct pindown_registration *held) {
  struct pindown_registration other;
  struct pindown_completion done;
  alarm(20);
  STATUS(PINDOWN_E_FORKED, pindown_acquire(cache, memory, 1, PINDOWN_READ, &other));
  STATUS(PINDOWN_NOT_FOUND, pindown_lookup(cache, memory, 1, PINDOWN_READ, &other));
  STATUS(PINDOWN_E_FORKED, pindown_flush(cache, memory, 1));
  STATUS(PINDOWN_E_FORKED, pindown_cache_close(cache, UINT64_MAX));
  STATUS(PINDOWN_E_FORKED, pindown_queue_submit(queue, memory, 1, PINDOWN_READ, 1, &other, NULL));
  STATUS(PINDOWN_NOT_FOUND, pindown_queue_poll(queue, &done));
  OK(pindown_put(held));
  OK(pindown_queue_free(queue));
  OK(pindown_cache_free(cache));
  CHECK(device.deregistered == 0); /* the registration is the parent's */

  struct device own; /* a cache of its own works */
  device_init(&own);
  pindown_cache *fresh = device_cache(&own, PINDOWN_MONITOR_MANUAL);
  OK(pindown_acquire(fresh, memory, 1, PINDOWN_READ, &other));
  OK(pindown_put(&other));
  OK(pindown_cache_close(fresh, UINT64_MAX));
  OK(pindown_cache_free(fresh));
  wait_until(&own, &own.released, 1);
  exit(0); /* with exit handlers and destructors */
}

static void fork_with(uint32_t monitor) {
  device_init(&device);
  pindown_builder *builder = device_builder(&device, monitor);
  pindown_cache *cache = NULL;
  int32_t status = pindown_builder_build(builder, &cache);
  if (status == PINDOWN_E_MONITOR) {
    printf("skipped: monitor %u: %s\n", monitor, pindown_last_error());
    return;
  }
  OK(status);
  pindown_queue *queue = NULL;
  OK(pindown_queue_new(cache, NULL, &queue));
  struct pindown_registration held;
  OK(pindown_acquire(cache, memory, 1, PINDOWN_READ, &held));
  fflush(NULL);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) in_the_child(cache, queue, &held);
  int how = -1;
  CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
  struct pindown_registration again; /* the parent goes on */
  OK(pindown_acquire(cache, memory, 1, PINDOWN_READ, &again));
  CHECK(again.key.user == held.key.user || !pindown_registration_is_cached(&again));
  OK(pindown_put(&again));
  OK(pindown_put(&held));
  OK(pindown_queue_free(queue));
  OK(pindown_cache_close(cache, UINT64_MAX));
  OK(pindown_cache_free(cache));
  wait_until(&device, &device.released, 1);
  CHECK(device.live == 0);
}

int main(void) {
  memory = pages(1);
  fork_with(PINDOWN_MONITOR_MANUAL);
  fork_with(PINDOWN_MONITOR_UFFD);
  free(memory);
  puts("fork: good");
  return 0;
}
