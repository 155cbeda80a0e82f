//! The provider over a fake library: what no soft-RoCE device can be made to do.

use std::sync::atomic::Ordering::SeqCst;

use pindown_core::{Access, Limit, PageRange, Provider, RegisterError};

use super::{ForkState, OpenError, Options, Paging, Region, Verbs};
use crate::sys::verbs::fake::Fake;
use crate::sys::verbs::{IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_IMPLICIT};

fn range() -> PageRange {
    PageRange::new(0x10000, 0x20000).unwrap()
}

fn register(verbs: &Verbs, range: PageRange, access: Access) -> Result<Region, RegisterError> {
    // SAFETY: the fake touches no memory.
    unsafe { verbs.register(range, access) }
}

fn with(odp: u64, options: Options) -> (Fake, Result<Verbs, OpenError>) {
    let fake = Fake::new(true);
    fake.state().odp_general.store(odp, SeqCst);
    (fake, Verbs::on(fake.pd(), options))
}

fn on_demand(paging: Paging) -> Options {
    Options::default().paging(paging)
}

#[test]
fn what_the_device_lacks_is_a_typed_error() {
    let lacks = with(0, on_demand(Paging::OnDemand)).1.unwrap_err();
    assert!(matches!(&lacks, OpenError::NoOnDemandPaging { device } if device == "fake0"));
    assert!(lacks.to_string().contains("lacks on-demand paging"), "{lacks}");
    let lacks = with(0, on_demand(Paging::Implicit)).1.unwrap_err();
    assert!(matches!(lacks, OpenError::NoOnDemandPaging { .. }));
    let lacks = with(IBV_ODP_SUPPORT, on_demand(Paging::Implicit)).1.unwrap_err();
    assert!(matches!(lacks, OpenError::NoImplicitPaging { .. }));
    let lacks = with(0, Options::default().memory_windows()).1.unwrap_err();
    assert!(matches!(lacks, OpenError::NoMemoryWindows { .. }));
}

#[test]
fn auto_takes_the_best_that_is_there() {
    let taken = |odp| with(odp, on_demand(Paging::Auto)).1.unwrap().paging();
    assert_eq!(taken(0), Paging::Pinned);
    assert_eq!(taken(IBV_ODP_SUPPORT), Paging::OnDemand);
    assert_eq!(taken(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT), Paging::Implicit);
}

#[test]
fn a_library_without_the_extended_table_still_works() {
    let fake = Fake::new(false);
    let verbs = Verbs::on(fake.pd(), Options::default()).unwrap();
    assert_eq!((verbs.caps().max_regions <= 1000, verbs.caps().coherent), (true, false));
    assert!(Verbs::on(fake.pd(), on_demand(Paging::OnDemand)).is_err());
}

#[test]
fn the_on_demand_limit_is_found_and_kept_to() {
    let fake = Fake::new(true);
    fake.state().odp_general.store(IBV_ODP_SUPPORT, SeqCst);
    fake.state().longest_on_demand_bytes.store(1 << 30, SeqCst);
    let verbs = Verbs::on(fake.pd(), on_demand(Paging::OnDemand)).unwrap();
    assert_eq!((verbs.caps().max_region_bytes, verbs.caps().coherent), (1 << 30, true));
    assert_eq!(fake.state().live.load(SeqCst), 0, "probes leave nothing");
    let long = PageRange::new(0, (1 << 30) + 4096).unwrap();
    let made = fake.state().made.load(SeqCst);
    let refused = register(&verbs, long, Access::READ).unwrap_err();
    assert!(matches!(refused, RegisterError::Limit { limit: Limit::RegionBytes, .. }));
    assert_eq!(fake.state().made.load(SeqCst), made, "no call for what cannot work");
}

#[test]
fn implicit_serves_local_access_with_one_region_and_remote_with_its_own() {
    let (fake, verbs) = with(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, on_demand(Paging::Implicit));
    let verbs = verbs.unwrap();
    let before = fake.state().live.load(SeqCst);
    let elsewhere = PageRange::new(0x90000, 0xa0000).unwrap();
    let a = register(&verbs, range(), Access::READ_WRITE).unwrap();
    let b = register(&verbs, elsewhere, Access::READ_WRITE).unwrap();
    assert_eq!(verbs.key(&a), verbs.key(&b));
    assert_eq!(verbs.everything_key(Access::READ_WRITE), Some(verbs.key(&a)));
    assert_eq!(verbs.everything_key(Access::REMOTE_READ), None);
    let remote = register(&verbs, range(), Access::REMOTE_READ).unwrap();
    assert_ne!(verbs.key(&remote).rkey, verbs.key(&a).rkey, "a peer never gets the whole address space");
    assert_eq!(fake.state().live.load(SeqCst) - before, 2);
    for region in [a, b, remote] {
        verbs.deregister(region).unwrap();
    }
    assert_eq!(fake.state().live.load(SeqCst) - before, 1, "the implicit one stays for the next");
    drop(verbs);
    assert_eq!(fake.state().live.load(SeqCst), before);
}

#[test]
fn a_failed_deregistration_hands_the_region_back() {
    let (fake, verbs) = with(0, Options::default());
    let verbs = verbs.unwrap();
    for errno in [libc::EBUSY, libc::EIO] {
        fake.state().failing_errno.store(errno, SeqCst);
        fake.state().failing.store(2, SeqCst);
        let mut region = register(&verbs, range(), Access::READ).unwrap();
        let key = verbs.key(&region);
        for _ in 0..2 {
            let failed = verbs.deregister(region).unwrap_err();
            assert_eq!(failed.source.raw_os_error(), Some(errno));
            assert_eq!(verbs.key(&failed.mr), key, "still registered, under the same key");
            region = failed.mr;
        }
        verbs.deregister(region).unwrap();
        assert_eq!((fake.state().live.load(SeqCst), verbs.lost_with_device()), (0, 0));
    }
}

#[test]
fn a_device_that_went_away_is_an_error_once_and_no_debt() {
    let (fake, verbs) = with(0, Options::default());
    let verbs = verbs.unwrap();
    let region = register(&verbs, range(), Access::READ).unwrap();
    fake.state().gone.store(true, SeqCst);
    assert!(matches!(register(&verbs, range(), Access::READ), Err(RegisterError::DeviceGone { .. })));
    verbs.deregister(region).unwrap();
    assert_eq!(verbs.lost_with_device(), 1);
}

#[test]
fn a_forked_child_is_refused() {
    let (_, verbs) = with(0, Options::default());
    let mut verbs = verbs.unwrap();
    assert_eq!(verbs.fork_state(), ForkState::Enabled);
    verbs.owner_pid = std::process::id() + 1;
    let refused = register(&verbs, range(), Access::READ).unwrap_err();
    assert!(refused.to_string().contains("fork"), "{refused}");
}

#[test]
fn on_demand_regions_have_a_bound_by_default() {
    let bound = |odp| {
        let verbs = with(odp, on_demand(Paging::Auto)).1.unwrap();
        crate::Builder::new(verbs).monitor(crate::MonitorChoice::Manual).build().unwrap().max_bytes()
    };
    let (pinned, paged) = (bound(0), bound(IBV_ODP_SUPPORT));
    assert!(pinned < paged && paged < 1 << 50, "{pinned} {paged}");
}

#[test]
fn remote_access_can_end_with_the_put() {
    let (fake, verbs) = with(0, Options::default());
    let builder = crate::Builder::new(verbs.unwrap()).monitor(crate::MonitorChoice::Manual);
    let cache = builder.revoke_on_put().build().unwrap();
    // SAFETY: the fake touches no memory.
    let get = |access| unsafe { cache.acquire(0x10000 as *const u8, 4096, access) }.unwrap();
    drop(get(Access::READ));
    assert_eq!(fake.state().live.load(SeqCst), 1, "local access is cached");
    let (a, b) = (get(Access::REMOTE_READ), get(Access::REMOTE_READ));
    assert_ne!(a.key().rkey, b.key().rkey, "each has an rkey of its own");
    drop((a, b));
    assert_eq!(fake.state().live.load(SeqCst), 1, "gone when the put returns");
}

#[test]
fn what_is_no_domain_is_refused() {
    // SAFETY: a null domain is refused before it is used.
    match unsafe { Verbs::from_pd(std::ptr::null_mut(), Options::default()) } {
        Err(OpenError::NullDomain) => {}
        Err(OpenError::Load(why)) => eprintln!("skipped: {why}"),
        other => panic!("{other:?}"),
    }
}
