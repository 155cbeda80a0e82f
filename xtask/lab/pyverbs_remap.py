#!/usr/bin/env python3
"""pyverbs_remap.py DEVICE GID_INDEX: sends over an RC loopback, registering each message; the memory is
replaced by other memory at the same address in between, in several ways, and each byte is compared."""
import ctypes
import mmap
import sys

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import (IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_QPT_RC, IBV_WC_SUCCESS,
                           IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, IBV_MTU_1024)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

LEN = 64 << 10
MESSAGES = 60
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
SYS_MMAP, SYS_MUNMAP, MADV_DONTNEED, MAP_FIXED = 9, 11, 4, 0x10
FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
RW = mmap.PROT_READ | mmap.PROT_WRITE


def map_new(at=None, flags=0):
    addr = LIBC.mmap(ctypes.c_void_p(at), ctypes.c_size_t(LEN), RW, FLAGS | flags, -1, ctypes.c_long(0))
    if addr in (None, ctypes.c_void_p(-1).value):
        sys.exit("mmap failed")
    return addr


def check(result):
    if result < 0:
        sys.exit(f"a system call failed: errno {ctypes.get_errno()}")


def unmap_and_map(addr):
    check(LIBC.munmap(ctypes.c_void_p(addr), ctypes.c_size_t(LEN)))
    map_new(addr, MAP_FIXED)


def raw_map_over(addr):
    words = [ctypes.c_long(w) for w in (SYS_MMAP, addr, LEN, RW, FLAGS | MAP_FIXED, -1, 0)]
    LIBC.syscall.restype = ctypes.c_long
    check(LIBC.syscall(*words))


def discard(addr):
    check(LIBC.madvise(ctypes.c_void_p(addr), ctypes.c_size_t(LEN), MADV_DONTNEED))


def connected_pair(ctx, pd, cq, gid_index):
    def make():
        return QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(16, 16, 1, 1, 0)))

    def connect(qp, peer):
        route = GlobalRoute(dgid=ctx.query_gid(1, gid_index), sgid_index=gid_index)
        attr = QPAttr(port_num=1)
        attr.path_mtu, attr.dest_qp_num = IBV_MTU_1024, peer.qp_num
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
        qp.to_rts(attr)

    near, far = make(), make()
    connect(near, far)
    connect(far, near)
    return near, far


def wait(cq):
    while True:
        count, done = cq.poll(1)
        if count:
            if done[0].status != IBV_WC_SUCCESS:
                sys.exit(f"work completion status {done[0].status}")
            return


def main():
    ctx = Context(name=sys.argv[1])
    pd, cq = PD(ctx), CQ(ctx, 16)
    near, far = connected_pair(ctx, pd, cq, int(sys.argv[2]))
    source, target = map_new(), map_new()
    to = MR(pd, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, address=target)
    changes = [unmap_and_map, raw_map_over, discard, lambda addr: None, lambda addr: None, lambda addr: None]
    keys = set()
    for i in range(MESSAGES):
        changes[i % len(changes)](source)
        expected = bytes((i * 7 + at * 13 + (at >> 12)) % 251 for at in range(LEN))
        ctypes.memmove(source, expected, LEN)
        mr = MR(pd, LEN, IBV_ACCESS_LOCAL_WRITE, address=source)
        keys.add(mr.lkey)
        wr = SendWR(wr_id=i, sg=[SGE(source, LEN, mr.lkey)], num_sge=1, opcode=IBV_WR_RDMA_WRITE,
                    send_flags=IBV_SEND_SIGNALED)
        wr.set_wr_rdma(to.rkey, target)
        near.post_send(wr)
        wait(cq)
        if ctypes.string_at(target, LEN) != expected:
            sys.exit(f"message {i} is wrong after {changes[i % len(changes)].__name__}")
        mr.close()
    print(f"{MESSAGES} messages registered one by one, all bytes right, {len(keys)} registrations")
    if len(keys) >= MESSAGES:
        sys.exit("nothing came from the cache: is the library preloaded?")
    for thing in (near, far, to, cq, pd, ctx):
        thing.close()


main()
