/* UCX's registration cache with registrations that do nothing, hooks on. For UCX 1.13 (Debian 12) and
 * later: the interface is not public, and changed. */
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucm/api/ucm.h>
#include <ucs/memory/rcache.h>

typedef struct {
    ucs_rcache_region_t super;
    uint64_t key;
} region_t;

static unsigned long made, made_bytes;
static long latency_ns;

static ucs_status_t mem_reg(void *context, ucs_rcache_t *rcache, void *arg, ucs_rcache_region_t *region,
                            uint16_t flags)
{
    if (latency_ns > 0) {
        struct timespec time = {0, latency_ns};
        nanosleep(&time, NULL);
    }
    ((region_t *)region)->key = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&made_bytes, region->super.end - region->super.start, __ATOMIC_RELAXED);
    return UCS_OK;
}

static void mem_dereg(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region)
{
}

static void dump(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region, char *text, size_t max)
{
    text[0] = 0;
}

#ifdef PINDOWN_UCX_MERGE
static void merge(void *context, ucs_rcache_t *rcache, void *arg, ucs_rcache_region_t *region)
{
}
#endif

static const ucs_rcache_ops_t ops = {
    .mem_reg = mem_reg,
    .mem_dereg = mem_dereg,
#ifdef PINDOWN_UCX_MERGE
    .merge = merge,
#endif
    .dump_region = dump,
};

int shim_open(long register_ns, ucs_rcache_t **rcache)
{
    ucs_rcache_params_t params;
    latency_ns = register_ns;
    memset(&params, 0, sizeof params);
#ifdef PINDOWN_UCX_MERGE
    ucs_rcache_set_default_params(&params);
#else
    params.max_regions = (unsigned long)-1;
    params.max_size = (size_t)-1;
    params.max_unreleased = (size_t)-1;
    params.alignment = 4096;
    params.max_alignment = 4096;
#endif
    params.region_struct_size = sizeof(region_t);
    params.ucm_events = UCM_EVENT_VM_UNMAPPED;
    params.ucm_event_priority = 1000;
    params.ops = &ops;
    return ucs_rcache_create(&params, "pindown-bench", NULL, rcache);
}

void shim_close(ucs_rcache_t *rcache)
{
    ucs_rcache_destroy(rcache);
}

void *shim_get(ucs_rcache_t *rcache, void *addr, size_t len)
{
    ucs_rcache_region_t *region;
#ifdef PINDOWN_UCX_MERGE
    ucs_status_t status = ucs_rcache_get(rcache, addr, len, 4096, PROT_READ | PROT_WRITE, NULL, &region);
#else
    ucs_status_t status = ucs_rcache_get(rcache, addr, len, PROT_READ | PROT_WRITE, NULL, &region);
#endif
    return status == UCS_OK ? region : NULL;
}

void shim_put(ucs_rcache_t *rcache, void *region)
{
    ucs_rcache_region_put(rcache, region);
}

uint64_t shim_key(const void *region)
{
    return ((const region_t *)region)->key;
}

int shim_covers(const void *region, uintptr_t addr, size_t len)
{
    const ucs_pgt_region_t *super = &((const region_t *)region)->super.super;
    return super->start <= addr && addr + len <= super->end;
}

unsigned long shim_made(void)
{
    return __atomic_load_n(&made, __ATOMIC_RELAXED);
}

unsigned long shim_made_bytes(void)
{
    return __atomic_load_n(&made_bytes, __ATOMIC_RELAXED);
}
