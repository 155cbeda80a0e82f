/* The cache on a device of our own, with changes reported by hand. Runs under valgrind. C11 and C++17. */
#include "check.h"

static void hits_misses_and_changes(void) {
  struct device device;
  device_init(&device);
  pindown_cache *cache = device_cache(&device, PINDOWN_MONITOR_MANUAL);
  CHECK(strcmp(pindown_cache_monitor_name(cache), "manual") == 0);
  CHECK(pindown_cache_ibv_pd(cache) == NULL);
  char *memory = pages(8);
  struct pindown_registration first, second, copy;

  STATUS(PINDOWN_NOT_FOUND, pindown_lookup(cache, memory, 100, PINDOWN_READ, &first));
  STATUS(PINDOWN_E_NOT_HELD, pindown_put(&first));
  OK(pindown_acquire(cache, memory + 10, 100, PINDOWN_READ, &first));
  CHECK(first.key.user == 1 && first.key.lkey == 0);
  OK(pindown_lookup(cache, memory, PAGE, PINDOWN_READ, &second));
  CHECK(second.key.user == 1);
  OK(pindown_registration_clone(&second, &copy));
  OK(pindown_put(&second));
  OK(pindown_put(&copy));

  void *start = NULL;
  size_t len = 0;
  OK(pindown_registration_range(&first, &start, &len));
  CHECK(start == memory && len == PAGE);
  OK(pindown_registration_range(&first, NULL, NULL));
  CHECK(pindown_registration_access(&first) == PINDOWN_READ && pindown_registration_is_cached(&first));

  size_t count = 9;
  OK(pindown_invalidate(cache, memory, 1, &count));
  CHECK(count == 1 && pindown_registration_is_stale(&first));
  OK(pindown_acquire(cache, memory, 1, PINDOWN_LOCAL_WRITE, &second));
  CHECK(second.key.user == 2 && !pindown_registration_is_stale(&second));
  STATUS(PINDOWN_E_HELD, pindown_flush(cache, memory, 1));
  OK(pindown_put(&first));
  OK(pindown_put(&second));
  OK(pindown_flush(cache, memory, 1));
  CHECK(device.live == 0 && device.registered == 2);

  struct pindown_stats stats = stats_of(cache);
  CHECK(stats.hits == 1 && stats.misses == 3 && stats.registrations == 2 && stats.deregistrations == 2);
  CHECK(stats.invalidated == 1 && stats.invalidated_held == 1 && stats.gets == 4);
  uint64_t some[2] = {7, 7};
  OK(pindown_cache_stats(cache, (struct pindown_stats *)some, sizeof some[0])); /* a program that knows one member */
  CHECK(some[0] == 4 && some[1] == 7);

  OK(pindown_cache_close(cache, 0));
  STATUS(PINDOWN_E_CLOSED, pindown_acquire(cache, memory, 1, PINDOWN_READ, &first));
  OK(pindown_cache_free(cache));
  wait_until(&device, &device.released, 1);
  free(memory);
}

static void limits_and_refusals(void) {
  struct device device;
  device_init(&device);
  pindown_builder *builder = device_builder(&device, PINDOWN_MONITOR_MANUAL);
  OK(pindown_builder_max_regions(builder, 2));
  OK(pindown_builder_max_bytes(builder, 4 * PAGE));
  OK(pindown_builder_policy(builder, PINDOWN_POLICY_LRU));
  OK(pindown_builder_widen(builder, false));
  OK(pindown_builder_idle(builder, 1000000000));
  OK(pindown_builder_sweep(builder, false));
  OK(pindown_builder_relieve_pressure(builder, false));
  pindown_cache *cache = NULL;
  OK(pindown_builder_build(builder, &cache));
  CHECK(pindown_cache_max_bytes(cache) == 4 * PAGE && pindown_cache_max_regions(cache) == 2);
  char *memory = pages(16);
  struct pindown_registration a, b, c;

  OK(pindown_acquire(cache, memory, 1, PINDOWN_READ, &a));
  OK(pindown_acquire(cache, memory + 4 * PAGE, 1, PINDOWN_READ, &b));
  STATUS(PINDOWN_E_BUDGET, pindown_acquire(cache, memory + 8 * PAGE, 1, PINDOWN_READ, &c));
  CHECK(strstr(pindown_last_error(), "max_regions") != NULL);
  OK(pindown_put(&a));
  OK(pindown_acquire(cache, memory + 8 * PAGE, 1, PINDOWN_READ, &c)); /* evicts a's */
  CHECK(stats_of(cache).evictions == 1);
  OK(pindown_put(&b));
  OK(pindown_put(&c));
  uint64_t left = 1;
  OK(pindown_shrink(cache, 0, &left));

  device.refuse_register = EFAULT;
  STATUS(PINDOWN_E_MEMORY, pindown_acquire(cache, memory, 1, PINDOWN_READ, &a));
  CHECK(pindown_last_errno() == EFAULT && strstr(pindown_last_error(), "refuses") != NULL);
  device.refuse_register = ENODEV;
  STATUS(PINDOWN_E_DEVICE_GONE, pindown_acquire(cache, memory, 1, PINDOWN_READ, &a));
  device.refuse_register = EINTR;
  STATUS(PINDOWN_E_BUSY, pindown_acquire(cache, memory, 1, PINDOWN_READ, &a));
  OK(pindown_acquire(cache, memory + 4 * PAGE, 1, PINDOWN_READ, &b));
  OK(pindown_put(&b));
  device.refuse_register = ENOMEM; /* evicts b's, and tries again */
  OK(pindown_acquire(cache, memory, 1, PINDOWN_READ, &a));
  CHECK(stats_of(cache).evictions >= 2 && device.live == 1);
  STATUS(PINDOWN_E_HELD, pindown_cache_close(cache, 1000000));
  device.refuse_deregister = EIO; /* retried */
  OK(pindown_put(&a));
  OK(pindown_cache_close(cache, UINT64_MAX));
  OK(pindown_cache_free(cache));
  wait_until(&device, &device.released, 1);
  CHECK(device.live == 0 && device.registered == device.deregistered);
  free(memory);
}

/* What is held when the last handle goes is deregistered after its put. */
static void a_hold_outlives_its_cache(void) {
  struct device device;
  device_init(&device);
  pindown_cache *cache = device_cache(&device, PINDOWN_MONITOR_MANUAL);
  char *memory = pages(1);
  struct pindown_registration held;
  OK(pindown_acquire(cache, memory, PAGE, PINDOWN_READ, &held));
  OK(pindown_cache_free(cache));
  CHECK(held.key.user == 1 && device.live == 1);
  CHECK(pindown_registration_access(&held) == PINDOWN_READ);
  OK(pindown_put(&held));
  wait_until(&device, &device.released, 1);
  CHECK(device.live == 0);
  free(memory);
}

static void an_allocator_reports(void) {
  struct device device;
  device_init(&device);
  pindown_cache *cache = device_cache(&device, PINDOWN_MONITOR_MANUAL);
  pindown_notifier *notifier = NULL;
  OK(pindown_notifier_new(cache, &notifier));
  char *memory = pages(2);
  struct pindown_registration held;
  OK(pindown_acquire(cache, memory, PAGE, PINDOWN_READ, &held));
  OK(pindown_put(&held));
  OK(pindown_notifier_invalidate(notifier, memory, PAGE));
  STATUS(PINDOWN_NOT_FOUND, pindown_lookup(cache, memory, PAGE, PINDOWN_READ, &held));
  wait_until(&device, &device.live, 0); /* by the worker, unasked */
  OK(pindown_acquire(cache, memory, PAGE, PINDOWN_READ, &held));
  OK(pindown_put(&held));
  OK(pindown_notifier_lost(notifier));
  STATUS(PINDOWN_NOT_FOUND, pindown_lookup(cache, memory, PAGE, PINDOWN_READ, &held));
  STATUS(PINDOWN_E_RANGE, pindown_notifier_invalidate(notifier, memory, 0));
  OK(pindown_cache_free(cache));
  wait_until(&device, &device.released, 1);
  OK(pindown_notifier_invalidate(notifier, memory, PAGE)); /* to nobody */
  OK(pindown_notifier_free(notifier));
  free(memory);
}

/* Peers must not reach memory after its put, where that was asked for. */
static void remote_rights_end_with_the_put(void) {
  struct device device;
  device_init(&device);
  pindown_builder *builder = device_builder(&device, PINDOWN_MONITOR_MANUAL);
  OK(pindown_builder_revoke_on_put(builder));
  pindown_cache *cache = NULL;
  OK(pindown_builder_build(builder, &cache));
  char *memory = pages(1);
  struct pindown_registration held;
  OK(pindown_acquire(cache, memory, 1, PINDOWN_REMOTE_WRITE, &held));
  CHECK(!pindown_registration_is_cached(&held) && device.live == 1);
  OK(pindown_put(&held));
  CHECK(device.live == 0);
  OK(pindown_cache_close(cache, 0));
  OK(pindown_cache_free(cache));
  wait_until(&device, &device.released, 1); /* the device is on this stack */
  free(memory);
}

static void everything_in_segments(void) {
  struct device device;
  device_init(&device);
  pindown_cache *cache = device_cache(&device, PINDOWN_MONITOR_MANUAL);
  pindown_everything *everything = NULL;
  pindown_segments *segments = NULL;
  struct pindown_segment segment;
  OK(pindown_everything_new(cache, PINDOWN_READ, 0, &everything));
  CHECK(!pindown_everything_is_implicit(everything));
  char *memory = pages(3);
  OK(pindown_everything_keys(everything, memory + 5, 2 * PAGE, &segments));
  size_t covered = 0, count = pindown_segments_count(segments);
  CHECK(count >= 1);
  for (size_t i = 0; i < count; i++) {
    OK(pindown_segments_get(segments, i, &segment));
    CHECK((char *)segment.addr == memory + 5 + covered && segment.key.user != 0);
    covered += segment.len;
  }
  CHECK(covered == 2 * PAGE);
  STATUS(PINDOWN_NOT_FOUND, pindown_segments_get(segments, count, &segment));
  CHECK(!pindown_segments_is_stale(segments));
  OK(pindown_invalidate(cache, memory, 3 * PAGE, NULL));
  CHECK(pindown_segments_is_stale(segments));
  OK(pindown_segments_free(segments));
  STATUS(PINDOWN_E_HOLE, pindown_everything_keys(everything, (void *)(uintptr_t)PAGE, 1, &segments));
  CHECK(segments == NULL && strstr(pindown_last_error(), "nothing is mapped") != NULL);
  OK(pindown_everything_free(everything));
  OK(pindown_cache_close(cache, UINT64_MAX));
  OK(pindown_cache_free(cache));
  wait_until(&device, &device.released, 1);
  free(memory);
}

int main(void) {
  hits_misses_and_changes();
  limits_and_refusals();
  a_hold_outlives_its_cache();
  an_allocator_reports();
  remote_rights_end_with_the_put();
  everything_in_segments();
  puts("cache: good");
  return 0;
}
