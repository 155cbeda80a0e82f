//! A program on the raw layer of `ibverbs` (`ibverbs-sys`): its device and protection domain,
//! pindown's registrations.
//!
//! The safe layer, `ibverbs` 0.9, keeps its `ibv_pd` to itself and posts regions of its own
//! making only, so a cache cannot serve it; whoever needs one works at this level.
//!
//! Needs cmake, libclang, libnl and libudev headers to build; run it where there is a verbs
//! device: `ibverbs_write [DEVICE]`.

use std::ffi::CStr;
use std::time::Duration;

use ibverbs_sys as ffi;
use pindown::provider::verbs::rc::{Endpoint, EndpointOptions, Remote, Request, Segment};
use pindown::provider::verbs::{Options, Verbs};
use pindown::{Access, Builder, Cache};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A domain of this program's own.
struct Domain {
    context: *mut ffi::ibv_context,
    pd: *mut ffi::ibv_pd,
}

impl Domain {
    fn open(wanted: Option<&str>) -> Result<Self> {
        let mut count = 0;
        // SAFETY: plain verbs calls; the list is freed once the device is open (ibv_get_device_list(3)).
        unsafe {
            let list = ffi::ibv_get_device_list(&mut count);
            let devices = std::slice::from_raw_parts(list, count as usize);
            let is_wanted = |d: &&*mut ffi::ibv_device| {
                let name = CStr::from_ptr(ffi::ibv_get_device_name(**d));
                wanted.is_none_or(|w| name.to_bytes() == w.as_bytes())
            };
            let context = devices.iter().find(is_wanted).map(|d| ffi::ibv_open_device(*d));
            ffi::ibv_free_device_list(list);
            let context = context.filter(|c| !c.is_null()).ok_or("no verbs device")?;
            Ok(Self { context, pd: ffi::ibv_alloc_pd(context) })
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: made by `open`; the registrar, which is declared later, was dropped first.
        unsafe {
            assert_eq!(ffi::ibv_dealloc_pd(self.pd), 0, "regions are left");
            ffi::ibv_close_device(self.context);
        }
    }
}

/// The adapter: a cache on a raw domain.
fn cache_on(domain: &Domain) -> Result<Cache<Verbs>> {
    // SAFETY: `main` drops the cache and the endpoints before the domain.
    let provider = unsafe { Verbs::from_pd(domain.pd.cast(), Options::default())? };
    Ok(Builder::new(provider).build()?)
}

fn main() -> Result<()> {
    let wanted = std::env::args().nth(1);
    let domain = Domain::open(wanted.as_deref())?;
    let cache = cache_on(&domain)?;
    let (near, _far) = Endpoint::pair(cache.provider(), &EndpointOptions::default())?;
    let (from, to) = (vec![7_u8; 1 << 20], vec![0_u8; 1 << 20]);
    for _ in 0..10 {
        // SAFETY: the device reads `from`, and writes `to`, which is looked at after the completion.
        let (source, target) = unsafe {
            let source = cache.acquire(from.as_ptr(), from.len(), Access::READ)?;
            (source, cache.acquire(to.as_ptr(), to.len(), Access::REMOTE_WRITE)?)
        };
        let remote = Remote { addr: to.as_ptr() as u64, rkey: target.key().rkey };
        let lkey = source.key().lkey;
        let segment = Segment { addr: from.as_ptr().addr(), len_bytes: from.len() as u32, lkey };
        // SAFETY: the endpoint keeps both until the completion.
        unsafe { near.transfer(Request::Write(remote), segment, (source, target), Duration::from_secs(10))? };
    }
    let stats = cache.stats();
    println!("10 writes of 1 MiB, {} registrations, {} hits", stats.registrations, stats.hits);
    // SAFETY: the device is done with it.
    let arrived = unsafe { std::slice::from_raw_parts(std::hint::black_box(to.as_ptr()), to.len()) };
    let right = arrived == from;
    cache.close(Duration::from_secs(1))?;
    if right { Ok(()) } else { Err("the bytes are wrong".into()) }
}
