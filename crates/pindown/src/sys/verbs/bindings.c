/*
 * Generator of bindings.rs: struct layouts and constants of libibverbs, from the public header
 * <infiniband/verbs.h> (Debian: libibverbs-dev). Run it after adding a line here:
 *
 *     cc -o /tmp/gen crates/pindown/src/sys/verbs/bindings.c && /tmp/gen > crates/pindown/src/sys/verbs/bindings.rs
 *
 * Only what pindown uses is listed; gaps become padding, and each offset and size is emitted as a
 * compile-time assertion. tests/verbs_bindings.rs reruns this program where the header is
 * installed and compares its output with the committed file.
 */
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static const char *name;
static size_t at;
static int pads;
static char checks[1 << 16];
static size_t used;

#define NOTE(...) (used += (size_t)snprintf(checks + used, sizeof checks - used, __VA_ARGS__))

static void begin(const char *n, size_t size, size_t align)
{
	name = n, at = 0, pads = 0;
	printf("\n#[repr(C)]\n#[derive(Clone, Copy)]\npub(crate) struct %s {\n", n);
	NOTE("    assert!(size_of::<%s>() == %zu && align_of::<%s>() == %zu);", n, size, n, align);
}

static void gap(size_t to)
{
	if (to < at) {
		fprintf(stderr, "%s: fields are not in the header's order\n", name);
		exit(1);
	}
	if (to > at)
		printf("    pub(crate) _pad%d: [u8; %zu],\n", pads++, to - at);
}

static void field(const char *f, size_t offset, size_t size, const char *type)
{
	gap(offset);
	printf("    pub(crate) %s: %s,\n", f, type);
	NOTE(" assert!(offset_of!(%s, %s) == %zu);", name, f, offset);
	at = offset + size;
}

/* Padding at the end is written out only where alignment does not add it by itself. */
static void end(size_t size, size_t align)
{
	if ((at + align - 1) / align * align != size)
		gap(size);
	printf("}\n");
	NOTE("\n");
}

#define STRUCT(S, BODY) \
	do { typedef struct S T; begin(#S, sizeof(T), _Alignof(T)); BODY end(sizeof(T), _Alignof(T)); } while (0)
#define A(rust, c, type) field(#rust, offsetof(T, c), sizeof(((T *)0)->c), type);
#define F(c, type) A(c, c, type)
#define FN(c, sig) A(c, c, "Option<unsafe extern \"C\" fn" sig ">")
#define C(c, type) printf("pub(crate) const %s: %s = %lld;\n", #c, type, (long long)(c))

static void structs(void)
{
	STRUCT(ibv_context_ops,
	       FN(alloc_mw, "(*mut ibv_pd, u32) -> *mut ibv_mw")
	       FN(bind_mw, "(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> i32")
	       FN(dealloc_mw, "(*mut ibv_mw) -> i32")
	       FN(poll_cq, "(*mut ibv_cq, i32, *mut ibv_wc) -> i32")
	       FN(post_send, "(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32")
	       FN(post_recv, "(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32"));
	STRUCT(ibv_context,
	       F(device, "*mut ibv_device") F(ops, "ibv_context_ops") F(cmd_fd, "i32") F(async_fd, "i32")
	       F(num_comp_vectors, "i32") F(mutex, "libc::pthread_mutex_t") F(abi_compat, "*mut c_void"));
	STRUCT(verbs_context,
	       FN(advise_mr, "(*mut ibv_pd, u32, u32, *mut ibv_sge, u32) -> i32")
	       FN(query_device_ex, "(*mut ibv_context, *const c_void, *mut ibv_device_attr_ex, usize) -> i32")
	       F(sz, "usize") F(context, "ibv_context"));
	STRUCT(ibv_pd, F(context, "*mut ibv_context") F(handle, "u32"));
	STRUCT(ibv_mr,
	       F(context, "*mut ibv_context") F(pd, "*mut ibv_pd") F(addr, "*mut c_void") F(length, "usize")
	       F(handle, "u32") F(lkey, "u32") F(rkey, "u32"));
	STRUCT(ibv_mw,
	       F(context, "*mut ibv_context") F(pd, "*mut ibv_pd") F(rkey, "u32") F(handle, "u32") A(mw_type, type, "u32"));
	STRUCT(ibv_mw_bind_info,
	       F(mr, "*mut ibv_mr") F(addr, "u64") F(length, "u64") F(mw_access_flags, "u32"));
	STRUCT(ibv_mw_bind, F(wr_id, "u64") F(send_flags, "u32") F(bind_info, "ibv_mw_bind_info"));
	STRUCT(ibv_device_attr,
	       F(max_mr_size, "u64") F(page_size_cap, "u64") F(vendor_id, "u32") F(vendor_part_id, "u32")
	       F(max_qp, "i32") F(max_qp_wr, "i32") F(device_cap_flags, "u32") F(max_sge, "i32") F(max_cqe, "i32")
	       F(max_mr, "i32") F(max_qp_rd_atom, "i32") F(max_qp_init_rd_atom, "i32") F(max_mw, "i32")
	       F(phys_port_cnt, "u8"));
	STRUCT(ibv_odp_caps,
	       F(general_caps, "u64") A(rc_odp_caps, per_transport_caps.rc_odp_caps, "u32")
	       A(uc_odp_caps, per_transport_caps.uc_odp_caps, "u32")
	       A(ud_odp_caps, per_transport_caps.ud_odp_caps, "u32"));
	STRUCT(ibv_device_attr_ex,
	       F(orig_attr, "ibv_device_attr") F(comp_mask, "u32") F(odp_caps, "ibv_odp_caps")
	       F(xrc_odp_caps, "u32"));
	STRUCT(ibv_port_attr,
	       F(state, "u32") F(max_mtu, "u32") F(active_mtu, "u32") F(gid_tbl_len, "i32") F(port_cap_flags, "u32")
	       F(max_msg_sz, "u32") F(lid, "u16") F(link_layer, "u8"));
	STRUCT(ibv_qp,
	       F(context, "*mut ibv_context") F(pd, "*mut ibv_pd") F(handle, "u32") F(qp_num, "u32") F(state, "u32"));
	STRUCT(ibv_qp_cap,
	       F(max_send_wr, "u32") F(max_recv_wr, "u32") F(max_send_sge, "u32") F(max_recv_sge, "u32")
	       F(max_inline_data, "u32"));
	STRUCT(ibv_qp_init_attr,
	       F(qp_context, "*mut c_void") F(send_cq, "*mut ibv_cq") F(recv_cq, "*mut ibv_cq") F(srq, "*mut c_void")
	       F(cap, "ibv_qp_cap") F(qp_type, "u32") F(sq_sig_all, "i32"));
	STRUCT(ibv_global_route,
	       F(dgid, "ibv_gid") F(flow_label, "u32") F(sgid_index, "u8") F(hop_limit, "u8")
	       F(traffic_class, "u8"));
	STRUCT(ibv_ah_attr,
	       F(grh, "ibv_global_route") F(dlid, "u16") F(sl, "u8") F(src_path_bits, "u8") F(static_rate, "u8")
	       F(is_global, "u8") F(port_num, "u8"));
	STRUCT(ibv_qp_attr,
	       F(qp_state, "u32") F(cur_qp_state, "u32") F(path_mtu, "u32") F(path_mig_state, "u32") F(qkey, "u32")
	       F(rq_psn, "u32") F(sq_psn, "u32") F(dest_qp_num, "u32") F(qp_access_flags, "u32") F(cap, "ibv_qp_cap")
	       F(ah_attr, "ibv_ah_attr") F(alt_ah_attr, "ibv_ah_attr") F(pkey_index, "u16") F(max_rd_atomic, "u8")
	       F(max_dest_rd_atomic, "u8") F(min_rnr_timer, "u8") F(port_num, "u8") F(timeout, "u8")
	       F(retry_cnt, "u8") F(rnr_retry, "u8"));
	STRUCT(ibv_sge, F(addr, "u64") F(length, "u32") F(lkey, "u32"));
	STRUCT(ibv_send_wr,
	       F(wr_id, "u64") F(next, "*mut ibv_send_wr") F(sg_list, "*mut ibv_sge") F(num_sge, "i32")
	       F(opcode, "u32") F(send_flags, "u32") A(remote_addr, wr.rdma.remote_addr, "u64")
	       A(rkey, wr.rdma.rkey, "u32"));
	STRUCT(ibv_recv_wr,
	       F(wr_id, "u64") F(next, "*mut ibv_recv_wr") F(sg_list, "*mut ibv_sge") F(num_sge, "i32"));
	STRUCT(ibv_wc,
	       F(wr_id, "u64") F(status, "u32") F(opcode, "u32") F(vendor_err, "u32") F(byte_len, "u32")
	       F(qp_num, "u32"));
}

static void constants(void)
{
	printf("\n");
	C(IBV_ACCESS_LOCAL_WRITE, "u32"), C(IBV_ACCESS_REMOTE_WRITE, "u32"), C(IBV_ACCESS_REMOTE_READ, "u32");
	C(IBV_ACCESS_REMOTE_ATOMIC, "u32"), C(IBV_ACCESS_MW_BIND, "u32"), C(IBV_ACCESS_ON_DEMAND, "u32");
	C(IBV_ACCESS_RELAXED_ORDERING, "u32");
	C(IBV_ODP_SUPPORT, "u64"), C(IBV_ODP_SUPPORT_IMPLICIT, "u64");
	C(IBV_ODP_SUPPORT_SEND, "u32"), C(IBV_ODP_SUPPORT_RECV, "u32"), C(IBV_ODP_SUPPORT_WRITE, "u32");
	C(IBV_ODP_SUPPORT_READ, "u32"), C(IBV_ODP_SUPPORT_ATOMIC, "u32"), C(IBV_ODP_SUPPORT_SRQ_RECV, "u32");
	C(IBV_FORK_DISABLED, "u32"), C(IBV_FORK_ENABLED, "u32"), C(IBV_FORK_UNNEEDED, "u32");
	C(IBV_ADVISE_MR_ADVICE_PREFETCH, "u32"), C(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, "u32");
	C(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, "u32"), C(IBV_ADVISE_MR_FLAG_FLUSH, "u32");
	C(IBV_DEVICE_MEM_WINDOW, "u32"), C(IBV_MW_TYPE_1, "u32");
	C(IBV_QPT_RC, "u32"), C(IBV_QPS_INIT, "u32"), C(IBV_QPS_RTR, "u32"), C(IBV_QPS_RTS, "u32");
	C(IBV_QP_STATE, "u32"), C(IBV_QP_ACCESS_FLAGS, "u32"), C(IBV_QP_PKEY_INDEX, "u32"), C(IBV_QP_PORT, "u32");
	C(IBV_QP_AV, "u32"), C(IBV_QP_PATH_MTU, "u32"), C(IBV_QP_TIMEOUT, "u32"), C(IBV_QP_RETRY_CNT, "u32");
	C(IBV_QP_RNR_RETRY, "u32"), C(IBV_QP_RQ_PSN, "u32"), C(IBV_QP_MAX_QP_RD_ATOMIC, "u32");
	C(IBV_QP_MIN_RNR_TIMER, "u32"), C(IBV_QP_SQ_PSN, "u32"), C(IBV_QP_MAX_DEST_RD_ATOMIC, "u32");
	C(IBV_QP_DEST_QPN, "u32");
	C(IBV_WR_RDMA_WRITE, "u32"), C(IBV_WR_SEND, "u32"), C(IBV_WR_RDMA_READ, "u32"), C(IBV_SEND_SIGNALED, "u32");
	C(IBV_WC_SUCCESS, "u32"), C(IBV_WC_LOC_PROT_ERR, "u32"), C(IBV_WC_WR_FLUSH_ERR, "u32");
	C(IBV_WC_REM_ACCESS_ERR, "u32"), C(IBV_WC_RETRY_EXC_ERR, "u32");
	C(IBV_PORT_DOWN, "u32"), C(IBV_PORT_INIT, "u32"), C(IBV_PORT_ARMED, "u32"), C(IBV_PORT_ACTIVE, "u32");
	C(IBV_LINK_LAYER_ETHERNET, "u8");
}

int main(void)
{
	printf("// Generated by bindings.c from <infiniband/verbs.h>: do not edit.\n\n"
	       "use std::ffi::c_void;\n"
	       "\n/// Opaque.\npub(crate) enum ibv_device {}\n/// Opaque.\npub(crate) enum ibv_cq {}\n"
	       "\n#[repr(C, align(8))]\n#[derive(Clone, Copy)]\npub(crate) struct ibv_gid {\n"
	       "    pub(crate) raw: [u8; %zu],\n}\n", sizeof(union ibv_gid));
	structs();
	constants();
	printf("\n#[cfg(target_arch = \"x86_64\")]\nconst _: () = {\n    use std::mem::offset_of;\n%s};\n", checks);
	return 0;
}
