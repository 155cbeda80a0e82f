/*
 * Cached RDMA WRITE on the program's own protection domain, between two queue pairs of one device. The source is mapped
 * anew in between; each time the target must have the bytes that the CPU sees.
 *
 *   cc verbs_write.c $(pkg-config --cflags --libs pindown) -libverbs && ./a.out rxe0 1
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pindown.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LEN = 65536, ROUNDS = 30 };

static void die(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void must(int32_t status, const char *what) {
  if (status < 0) die(what, pindown_last_error());
}

static void zero(int error, const char *what) {
  if (error != 0) die(what, strerror(error > 0 ? error : errno));
}

static struct ibv_context *open_device(const char *name) {
  int count = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  for (int i = 0; list != NULL && i < count; i++) {
    if (strcmp(ibv_get_device_name(list[i]), name) == 0) {
      struct ibv_context *context = ibv_open_device(list[i]);
      ibv_free_device_list(list);
      return context;
    }
  }
  printf("skipped: there is no verbs device %s\n", name);
  exit(3);
}

static struct ibv_qp *queue_pair(struct ibv_pd *pd, struct ibv_cq *cq) {
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
  init.cap = (struct ibv_qp_cap){.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  if (qp == NULL) die("ibv_create_qp", strerror(errno));
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  zero(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");
  return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, union ibv_gid gid, uint8_t gid_index) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer};
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
  attr.ah_attr.grh = (struct ibv_global_route){.dgid = gid, .sgid_index = gid_index, .hop_limit = 8};
  zero(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  zero(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                    IBV_QP_MAX_QP_RD_ATOMIC), "to RTS");
}

static void write_to(struct ibv_qp *qp, const char *from, uint32_t lkey, char *to, uint32_t rkey) {
  struct ibv_sge sge = {.addr = (uintptr_t)from, .length = LEN, .lkey = lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr *bad;
  wr.wr.rdma.remote_addr = (uintptr_t)to;
  wr.wr.rdma.rkey = rkey;
  zero(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
  struct ibv_wc wc;
  int found;
  while ((found = ibv_poll_cq(qp->send_cq, 1, &wc)) == 0) {
  }
  if (found < 0 || wc.status != IBV_WC_SUCCESS) die("WRITE", found < 0 ? "poll" : ibv_wc_status_str(wc.status));
}

static pindown_cache *cache_on(struct ibv_pd *pd) {
  pindown_provider *provider;
  pindown_builder *builder;
  pindown_cache *cache;
  must(pindown_provider_verbs(pd, PINDOWN_PAGING_PINNED, &provider), "provider");
  must(pindown_builder_new(provider, &builder), "builder");
  must(pindown_builder_build(builder, &cache), "cache");
  if (pindown_cache_ibv_pd(cache) != pd) die("pindown_cache_ibv_pd", "is another");
  return cache;
}

static char *map(void *at) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0);
  char *memory = mmap(at, LEN, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) die("mmap", strerror(errno));
  return memory;
}

static void transfer(pindown_cache *cache, struct ibv_qp *qp, char *from, char *to) {
  struct pindown_registration source, target;
  must(pindown_acquire(cache, from, LEN, PINDOWN_READ, &source), "acquire");
  must(pindown_acquire(cache, to, LEN, PINDOWN_LOCAL_WRITE | PINDOWN_REMOTE_WRITE, &target), "acquire");
  write_to(qp, from, source.key.lkey, to, target.key.rkey);
  must(pindown_put(&source), "put"); /* the WRITE has completed */
  must(pindown_put(&target), "put");
  if (memcmp(from, to, LEN) != 0) die("stale", "the target has other bytes than the source");
}

int main(int argc, char **argv) {
  struct ibv_context *context = open_device(argc > 1 ? argv[1] : "rxe0");
  uint8_t gid_index = (uint8_t)(argc > 2 ? atoi(argv[2]) : 1);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  if (pd == NULL || cq == NULL) die("verbs", strerror(errno));
  union ibv_gid gid;
  zero(ibv_query_gid(context, 1, gid_index, &gid), "ibv_query_gid");
  struct ibv_qp *near = queue_pair(pd, cq), *far = queue_pair(pd, cq);
  connect_to(near, far->qp_num, gid, gid_index);
  connect_to(far, near->qp_num, gid, gid_index);

  pindown_cache *cache = cache_on(pd);
  char *from = map(NULL), *to = map(NULL);
  for (int round = 0; round < ROUNDS; round++) {
    if (round % 5 == 0) map(from);
    memset(from, 'a' + round % 26, LEN);
    transfer(cache, near, from, to);
  }
  struct pindown_stats stats;
  must(pindown_cache_stats(cache, &stats, sizeof stats), "stats");
  printf("monitor %s: %llu requests, %llu registrations, all bytes right\n", pindown_cache_monitor_name(cache),
         (unsigned long long)stats.gets, (unsigned long long)stats.registrations);
  if (strcmp(pindown_cache_monitor_name(cache), "uncached") != 0 && stats.hits == 0) die("hits", "none");

  must(pindown_cache_close(cache, 1000000000), "close");
  must(pindown_cache_free(cache), "free");
  zero(ibv_destroy_qp(near), "ibv_destroy_qp");
  zero(ibv_destroy_qp(far), "ibv_destroy_qp");
  zero(ibv_destroy_cq(cq), "ibv_destroy_cq");
  zero(ibv_dealloc_pd(pd), "ibv_dealloc_pd"); /* EBUSY if a registration were left */
  zero(ibv_close_device(context), "ibv_close_device");
  return 0;
}
