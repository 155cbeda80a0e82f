//! A program on `sideway`: its device, protection domain and queue pair; pindown's registrations.
//!
//! Needs cmake and libclang to build; run it where there is a verbs device:
//! `sideway_write [DEVICE]`.

use std::sync::Arc;

use pindown::provider::verbs::{Options, Verbs};
use pindown::{Access, Builder, Cache};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, GidType};
use sideway::ibverbs::completion::{BasicCompletionQueue, GenericCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SetScatterGatherEntry,
    WorkRequestFlags,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The adapter: a cache on a domain that sideway owns. The `Arc` keeps it alive beside the cache.
struct Registrar {
    cache: Cache<Verbs>,
    _domain: Arc<ProtectionDomain>,
}

impl Registrar {
    fn new(domain: Arc<ProtectionDomain>) -> Result<Self> {
        // SAFETY: the domain lives as long as the cache: `_domain` is dropped after it.
        let provider = unsafe { Verbs::from_pd(domain.pd().as_ptr().cast(), Options::default())? };
        Ok(Self { cache: Builder::new(provider).build()?, _domain: domain })
    }
}

fn main() -> Result<()> {
    let wanted = std::env::args().nth(1);
    let devices = DeviceList::new()?;
    let device = devices.iter().find(|d| wanted.as_ref().is_none_or(|w| d.name() == *w)).ok_or("no verbs device")?;
    let context = device.open()?;
    let domain = context.alloc_pd()?;
    let (mut queue, completions) = connected_to_itself(&context, &domain)?;
    let registrar = Registrar::new(domain)?;
    let (from, to) = (vec![7_u8; 1 << 20], vec![0_u8; 1 << 20]);
    for _ in 0..10 {
        // SAFETY: the device reads `from`, and writes `to`, which is looked at after the completion.
        let (source, target) = unsafe {
            let source = registrar.cache.acquire(from.as_ptr(), from.len(), Access::READ)?;
            (source, registrar.cache.acquire(to.as_ptr(), to.len(), Access::REMOTE_WRITE)?)
        };
        let mut guard = queue.start_post_send();
        let write = guard.construct_wr(1, WorkRequestFlags::Signaled);
        let write = write.setup_write(target.key().rkey, to.as_ptr() as u64);
        // SAFETY: both registrations are held until the completion below.
        unsafe { write.setup_sge(source.key().lkey, from.as_ptr() as u64, from.len() as u32) };
        guard.post()?;
        wait(&completions)?;
    }
    let stats = registrar.cache.stats();
    println!("{}: 10 writes of 1 MiB, {} registrations, {} hits", device.name(), stats.registrations, stats.hits);
    // SAFETY: the device is done with it.
    let arrived = unsafe { std::slice::from_raw_parts(std::hint::black_box(to.as_ptr()), to.len()) };
    if arrived == from { Ok(()) } else { Err("the bytes are wrong".into()) }
}

fn wait(completions: &BasicCompletionQueue) -> Result<()> {
    loop {
        let Ok(mut poller) = completions.start_poll() else { continue };
        let Some(done) = poller.next() else { continue };
        return match done.status() {
            s if s == WorkCompletionStatus::Success as u32 => Ok(()),
            s => Err(format!("work completion status {s}").into()),
        };
    }
}

fn connected_to_itself(
    context: &Arc<DeviceContext>,
    domain: &Arc<ProtectionDomain>,
) -> Result<(BasicQueuePair, Arc<BasicCompletionQueue>)> {
    let completions = context.create_cq_builder().setup_cqe(16).build()?;
    let handle = GenericCompletionQueue::from(completions.clone());
    let mut builder = domain.create_qp_builder();
    let mut queue = builder.setup_send_cq(handle.clone()).setup_recv_cq(handle).build()?;
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(1);
    attr.setup_access_flags(AccessFlags::LocalWrite | AccessFlags::RemoteWrite);
    queue.modify(&attr)?;
    let gids = context.query_gid_table()?;
    let gid = gids.iter().rev().find(|g| g.gid_type() == GidType::RoceV2).or(gids.first()).ok_or("no GID")?;
    let mut address = AddressHandleAttribute::new();
    address.setup_dest_lid(context.query_port(1)?.lid()).setup_port(1).setup_grh_hop_limit(64);
    address.setup_grh_src_gid_index(gid.gid_index() as u8).setup_grh_dest_gid(&gid.gid());
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(Mtu::Mtu1024).setup_rq_psn(1);
    attr.setup_dest_qp_num(queue.qp_number()).setup_max_dest_read_atomic(1).setup_min_rnr_timer(12);
    attr.setup_address_vector(&address);
    queue.modify(&attr)?;
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(1).setup_timeout(14);
    attr.setup_retry_cnt(7).setup_rnr_retry(7).setup_max_read_atomic(1);
    queue.modify(&attr)?;
    Ok((queue, completions))
}
