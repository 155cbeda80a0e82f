/* Every function with NULL, handles of the wrong kind, numbers out of range, double puts. Runs under valgrind. */
#include "check.h"

static void null_is_refused(void) {
  struct pindown_registration held;
  struct pindown_completion done;
  struct pindown_stats stats;
  struct pindown_segment segment;
  struct pindown_watch_event event;
  size_t count = 0;
  uint64_t left = 0;
  char byte = 0;

  STATUS(PINDOWN_E_INVALID, pindown_provider_new(NULL, NULL, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_provider_verbs(NULL, PINDOWN_PAGING_PINNED, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_provider_verbs_open(NULL, PINDOWN_PAGING_PINNED, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_provider_io_uring(-1, NULL, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_builder_new(NULL, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_builder_monitor(NULL, PINDOWN_MONITOR_AUTO));
  STATUS(PINDOWN_E_INVALID, pindown_builder_max_bytes(NULL, 1));
  STATUS(PINDOWN_E_INVALID, pindown_builder_max_regions(NULL, 1));
  STATUS(PINDOWN_E_INVALID, pindown_builder_widen(NULL, true));
  STATUS(PINDOWN_E_INVALID, pindown_builder_policy(NULL, PINDOWN_POLICY_LRU));
  STATUS(PINDOWN_E_INVALID, pindown_builder_idle(NULL, 1));
  STATUS(PINDOWN_E_INVALID, pindown_builder_sweep(NULL, true));
  STATUS(PINDOWN_E_INVALID, pindown_builder_relieve_pressure(NULL, true));
  STATUS(PINDOWN_E_INVALID, pindown_builder_export(NULL, true));
  STATUS(PINDOWN_E_INVALID, pindown_builder_revoke_on_put(NULL));
  STATUS(PINDOWN_E_INVALID, pindown_builder_build(NULL, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_acquire(NULL, &byte, 1, 0, &held));
  STATUS(PINDOWN_E_INVALID, pindown_lookup(NULL, &byte, 1, 0, &held));
  STATUS(PINDOWN_E_INVALID, pindown_put(NULL));
  STATUS(PINDOWN_E_INVALID, pindown_registration_clone(NULL, &held));
  STATUS(PINDOWN_E_INVALID, pindown_registration_range(NULL, NULL, NULL));
  CHECK(pindown_registration_is_stale(NULL) && !pindown_registration_is_cached(NULL));
  CHECK(pindown_registration_access(NULL) == 0);
  STATUS(PINDOWN_E_INVALID, pindown_invalidate(NULL, &byte, 1, &count));
  STATUS(PINDOWN_E_INVALID, pindown_flush(NULL, &byte, 1));
  STATUS(PINDOWN_E_INVALID, pindown_shrink(NULL, 0, &left));
  STATUS(PINDOWN_E_INVALID, pindown_cache_drive(NULL, &count));
  STATUS(PINDOWN_E_INVALID, pindown_cache_close(NULL, 0));
  STATUS(PINDOWN_E_INVALID, pindown_cache_stats(NULL, &stats, sizeof stats));
  CHECK(pindown_cache_max_bytes(NULL) == 0 && pindown_cache_max_regions(NULL) == 0);
  CHECK(pindown_cache_max_region_bytes(NULL) == 0 && pindown_cache_ibv_pd(NULL) == NULL);
  CHECK(pindown_cache_monitor_name(NULL) == NULL);
  STATUS(PINDOWN_E_INVALID, pindown_notifier_new(NULL, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_notifier_invalidate(NULL, &byte, 1));
  STATUS(PINDOWN_E_INVALID, pindown_notifier_lost(NULL));
  STATUS(PINDOWN_E_INVALID, pindown_queue_new(NULL, NULL, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_queue_close(NULL));
  STATUS(PINDOWN_E_INVALID, pindown_queue_cancel(NULL, 1));
  STATUS(PINDOWN_E_INVALID, pindown_queue_poll(NULL, &done));
  STATUS(PINDOWN_E_INVALID, pindown_queue_wait(NULL, 0, &done));
  STATUS(PINDOWN_E_INVALID, pindown_queue_drive(NULL, &count));
  STATUS(PINDOWN_E_INVALID, pindown_queue_submit(NULL, &byte, 1, 0, 0, &held, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_queue_submit_large(NULL, &byte, 1, 0, 0, NULL, NULL, NULL, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_queue_prefetch(NULL, &byte, 1, 0, 0, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_queue_flush(NULL, &byte, 1, 0, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_queue_watch_stale(NULL, NULL, 0, NULL));
  CHECK(pindown_queue_fd(NULL) == -1 && pindown_queue_outstanding(NULL) == 0);
  CHECK(pindown_queue_unannounced(NULL) == 0);
  STATUS(PINDOWN_E_INVALID, pindown_completion_release(NULL));
  STATUS(PINDOWN_E_INVALID, pindown_everything_new(NULL, 0, 0, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_everything_keys(NULL, &byte, 1, NULL));
  CHECK(!pindown_everything_is_implicit(NULL));
  CHECK(pindown_segments_count(NULL) == 0 && pindown_segments_is_stale(NULL));
  STATUS(PINDOWN_E_INVALID, pindown_segments_get(NULL, 0, &segment));
  STATUS(PINDOWN_E_INVALID, pindown_watch_open(PINDOWN_MONITOR_AUTO, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_watch_register(NULL, &byte, 1, 1));
  STATUS(PINDOWN_E_INVALID, pindown_watch_unregister(NULL, 1));
  STATUS(PINDOWN_E_INVALID, pindown_watch_read(NULL, &event, 1, &count));
  CHECK(pindown_watch_generation(NULL) == 0 && pindown_watch_generation_word(NULL) == NULL);
  CHECK(pindown_watch_fd(NULL) == -1);
  STATUS(PINDOWN_E_RANGE, pindown_prefetch(&byte, 0, 0, NULL));

  OK(pindown_provider_free(NULL)); /* as free(3) */
  OK(pindown_builder_free(NULL));
  OK(pindown_cache_free(NULL));
  OK(pindown_notifier_free(NULL));
  OK(pindown_queue_free(NULL));
  OK(pindown_everything_free(NULL));
  OK(pindown_segments_free(NULL));
  OK(pindown_watch_free(NULL));
}

static void kinds_are_told_apart(pindown_cache *cache) {
  struct pindown_registration held;
  pindown_queue *queue = NULL;
  pindown_notifier *notifier = NULL;
  char *memory = pages(1);
  OK(pindown_queue_new(cache, NULL, &queue));
  OK(pindown_notifier_new(cache, &notifier));
  pindown_cache *no_cache = (pindown_cache *)(void *)queue;
  pindown_queue *no_queue = (pindown_queue *)(void *)cache;
  STATUS(PINDOWN_E_HANDLE, pindown_acquire(no_cache, memory, 1, 0, &held));
  CHECK(strstr(pindown_last_error(), "pindown_cache") != NULL);
  STATUS(PINDOWN_E_NOT_HELD, pindown_put(&held));
  STATUS(PINDOWN_E_HANDLE, pindown_queue_close(no_queue));
  STATUS(PINDOWN_E_HANDLE, pindown_queue_free(no_queue)); /* and frees nothing */
  STATUS(PINDOWN_E_HANDLE, pindown_cache_free((pindown_cache *)(void *)notifier));
  STATUS(PINDOWN_E_HANDLE, pindown_notifier_invalidate((pindown_notifier *)(void *)cache, memory, 1));
  STATUS(PINDOWN_E_HANDLE, pindown_builder_build((pindown_builder *)(void *)cache, &no_cache));
  OK(pindown_acquire(cache, memory, 1, 0, &held));
  OK(pindown_put(&held));
  OK(pindown_notifier_free(notifier));
  OK(pindown_queue_free(queue));
  free(memory);
}

static void puts_and_numbers(pindown_cache *cache) {
  struct pindown_registration held, never;
  struct pindown_stats stats;
  pindown_queue *queue = NULL;
  pindown_provider *provider = NULL;
  pindown_builder *builder = NULL;
  pindown_watch *watch = NULL;
  char *memory = pages(1);
  OK(pindown_acquire(cache, memory, 1, 0, &held));
  OK(pindown_put(&held));
  STATUS(PINDOWN_E_NOT_HELD, pindown_put(&held));
  STATUS(PINDOWN_E_NOT_HELD, pindown_registration_clone(&held, &never));
  STATUS(PINDOWN_E_NOT_HELD, pindown_registration_range(&held, NULL, NULL));
  memset(&never, 0xaa, sizeof never);
  STATUS(PINDOWN_E_NOT_HELD, pindown_put(&never));

  STATUS(PINDOWN_E_RANGE, pindown_acquire(cache, memory, 0, 0, &held));
  STATUS(PINDOWN_E_RANGE, pindown_acquire(cache, memory, SIZE_MAX, 0, &held));
  STATUS(PINDOWN_E_RANGE, pindown_acquire(cache, (void *)UINTPTR_MAX, 1, 0, &held));
  STATUS(PINDOWN_E_INVALID, pindown_acquire(cache, memory, 1, 1u << 31, &held));
  STATUS(PINDOWN_E_INVALID, pindown_acquire(cache, memory, 1, 0, NULL));
  STATUS(PINDOWN_E_INVALID, pindown_cache_stats(cache, &stats, 3));
  STATUS(PINDOWN_E_INVALID, pindown_cache_stats(cache, NULL, sizeof stats));
  STATUS(PINDOWN_E_INVALID, pindown_watch_open(PINDOWN_MONITOR_MANUAL, &watch));
  STATUS(PINDOWN_E_INVALID, pindown_watch_open(99, &watch));
  CHECK(watch == NULL);

  struct pindown_queue_options options;
  memset(&options, 0, sizeof options);
  STATUS(PINDOWN_E_INVALID, pindown_queue_new(cache, &options, &queue)); /* size was forgotten */
  CHECK(queue == NULL && strstr(pindown_last_error(), "sizeof(struct pindown_queue_options)") != NULL);

  struct device device;
  device_init(&device);
  struct pindown_provider_ops ops = device_ops();
  ops.deregister = NULL;
  STATUS(PINDOWN_E_INVALID, pindown_provider_new(&ops, &device, &provider));
  ops = device_ops();
  ops.flags = 1u << 20;
  STATUS(PINDOWN_E_INVALID, pindown_provider_new(&ops, &device, &provider));
  ops = device_ops();
  OK(pindown_provider_new(&ops, &device, &provider));
  STATUS(PINDOWN_E_INVALID, pindown_builder_new(provider, NULL)); /* the provider stays ours */
  OK(pindown_builder_new(provider, &builder));
  STATUS(PINDOWN_E_INVALID, pindown_builder_monitor(builder, 77));
  STATUS(PINDOWN_E_INVALID, pindown_builder_policy(builder, 77));
  OK(pindown_builder_free(builder));
  CHECK(device.released == 1);
  STATUS(PINDOWN_E_INVALID, pindown_provider_verbs_open("x", 9, &provider));
  STATUS(PINDOWN_E_DEVICE, pindown_provider_verbs_open("no such device", PINDOWN_PAGING_PINNED, &provider));
  CHECK(provider == NULL);
  free(memory);
}

int main(void) {
  CHECK(strlen(pindown_last_error()) == 0 && pindown_last_errno() == 0);
  CHECK(pindown_version()[0] >= '0' && strlen(pindown_strerror(-9999)) > 0 && strlen(pindown_strerror(0)) > 0);
  null_is_refused();
  struct device device;
  device_init(&device);
  pindown_cache *cache = device_cache(&device, PINDOWN_MONITOR_MANUAL);
  kinds_are_told_apart(cache);
  puts_and_numbers(cache);
  OK(pindown_cache_close(cache, 0));
  OK(pindown_cache_free(cache));
  wait_until(&device, &device.released, 1);
  CHECK(device.live == 0);
  puts("misuse: good");
  return 0;
}
