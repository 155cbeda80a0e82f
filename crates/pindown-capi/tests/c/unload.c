/* dlopen, use, dlclose, and then use once more from exit handlers and thread destructors: the library stays. */
#include <dlfcn.h>
#include <pindown.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                               \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      _Exit(1);                                                       \
    }                                                                 \
  } while (0)

/* Only the types are the header's; the functions come from dlsym. */
static __typeof__(&pindown_acquire) acquire;
static __typeof__(&pindown_put) put;
static __typeof__(&pindown_cache_free) cache_free;
static __typeof__(&pindown_last_error) last_error;
static pindown_cache *cache;
static struct pindown_registration held;
static char memory[3 * 4096];
static int live;

static int32_t on_register(void *context, void *addr, size_t len, uint32_t access, struct pindown_mr *mr) {
  (void)context, (void)addr, (void)len, (void)access, (void)mr;
  __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
  return 0;
}

static int32_t on_deregister(void *context, const struct pindown_mr *mr) {
  (void)context, (void)mr;
  __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
  return 0;
}

static void use_once_more(void) {
  struct pindown_registration other;
  MUST(acquire(cache, memory + 8192, 1, PINDOWN_READ, &other) == PINDOWN_OK);
  MUST(put(&other) == PINDOWN_OK);
  MUST(put(&other) == PINDOWN_E_NOT_HELD);
}

/* Registered first, so it runs last. */
static void last_handler(void) {
  use_once_more();
  MUST(put(&held) == PINDOWN_OK);
  MUST(cache_free(cache) == PINDOWN_OK);
  puts("unload: good");
}

static void thread_ends(void *value) {
  (void)value;
  use_once_more();
}

static void *thread(void *key) {
  MUST(pthread_setspecific(*(pthread_key_t *)key, key) == 0);
  use_once_more();
  use_once_more(); /* a hit: the library now has thread-local data here, and it goes before thread_ends runs */
  return NULL;
}

static pindown_cache *build(void *library) {
  __typeof__(&pindown_provider_new) provider_new = (__typeof__(provider_new))dlsym(library, "pindown_provider_new");
  __typeof__(&pindown_builder_new) builder_new = (__typeof__(builder_new))dlsym(library, "pindown_builder_new");
  __typeof__(&pindown_builder_build) build = (__typeof__(build))dlsym(library, "pindown_builder_build");
  __typeof__(&pindown_builder_monitor) monitor = (__typeof__(monitor))dlsym(library, "pindown_builder_monitor");
  struct pindown_provider_ops ops;
  memset(&ops, 0, sizeof ops);
  ops.size = sizeof ops;
  ops.register_memory = on_register;
  ops.deregister = on_deregister;
  pindown_provider *provider = NULL;
  pindown_builder *builder = NULL;
  pindown_cache *made = NULL;
  MUST(provider_new(&ops, NULL, &provider) == PINDOWN_OK);
  MUST(builder_new(provider, &builder) == PINDOWN_OK);
  MUST(monitor(builder, PINDOWN_MONITOR_MANUAL) == PINDOWN_OK);
  MUST(build(builder, &made) == PINDOWN_OK);
  return made;
}

int main(int argc, char **argv) {
  MUST(argc == 2);
  MUST(atexit(last_handler) == 0);
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  MUST(library != NULL);
  acquire = (__typeof__(acquire))dlsym(library, "pindown_acquire");
  put = (__typeof__(put))dlsym(library, "pindown_put");
  cache_free = (__typeof__(cache_free))dlsym(library, "pindown_cache_free");
  last_error = (__typeof__(last_error))dlsym(library, "pindown_last_error");
  cache = build(library);
  MUST(acquire(cache, memory, 4096, PINDOWN_READ, &held) == PINDOWN_OK && live >= 1);
  MUST(dlclose(library) == 0);
  MUST(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL); /* still there */
  MUST(atexit(use_once_more) == 0);
  pthread_key_t key;
  pthread_t other;
  MUST(pthread_key_create(&key, thread_ends) == 0);
  MUST(pthread_create(&other, NULL, thread, &key) == 0 && pthread_join(other, NULL) == 0);
  MUST(last_error() != NULL);
  return 0;
}
