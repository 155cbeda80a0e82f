//! [`Process`]: what the library knows in one process. A forked child begins anew.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use pindown_preload::settings::{Watcher, wants_summary};

use super::abi::{IbvMr, IbvPd};
use super::domain::Domain;
use super::shell::{Behind, Shell};
use crate::figures::Figures;

type Map<V> = HashMap<usize, V, BuildHasherDefault<DefaultHasher>>;

/// Lock order: `domains` and `shells` are not held together, nor during a call of the cache or libibverbs
/// (but for the opening of a domain's cache, which happens once).
pub(super) struct Process {
    watcher: Watcher,
    pub(super) timed: bool,
    pub(super) figures: Figures,
    /// By the address of the `ibv_pd`. `None`: could not be opened.
    domains: Mutex<Map<Option<Arc<Domain>>>>,
    /// By the address of the shell's `ibv_mr`.
    shells: Mutex<Map<Registered>>,
}

/// A shell is a raw pointer while the program has one too.
type Registered = (*mut Shell, Arc<Domain>, Behind);

static CURRENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

impl Process {
    /// This process's, made at the first call. Never freed: threads may use it until the very end.
    pub(super) fn get() -> &'static Self {
        let current = CURRENT.load(Ordering::Acquire);
        // SAFETY: set below from a leaked box.
        unsafe { current.as_ref() }.unwrap_or_else(Self::begin)
    }

    fn begin() -> &'static Self {
        let new = Box::leak(Box::new(Self {
            watcher: Watcher::from_environment(),
            timed: wants_summary(),
            figures: Figures::default(),
            domains: Mutex::default(),
            shells: Mutex::default(),
        }));
        install_handlers(new.timed);
        let mine: *mut Self = new;
        match CURRENT.compare_exchange(ptr::null_mut(), mine, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: leaked above, or by the thread that was first.
            Ok(_) => unsafe { &*mine },
            // SAFETY: as above.
            Err(first) => unsafe { &*first },
        }
    }

    /// The cache of `pd`, opened at the first call.
    pub(super) fn domain(&self, pd: *mut IbvPd) -> Option<Arc<Domain>> {
        let mut domains = lock(&self.domains);
        let opened = domains.entry(pd.addr()).or_insert_with(|| Domain::open(pd, self.watcher).map(Arc::new));
        opened.clone()
    }

    pub(super) fn known_domain(&self, pd: *mut IbvPd) -> Option<Arc<Domain>> {
        lock(&self.domains).get(&pd.addr()).cloned().flatten()
    }

    /// Takes out the domains for which `chosen` says so.
    pub(super) fn take_domains(&self, chosen: impl Fn(usize, Option<&Domain>) -> bool) -> Vec<Arc<Domain>> {
        let mut domains = lock(&self.domains);
        let all = std::mem::take(&mut *domains).into_iter();
        let (taken, left) = all.partition::<Map<_>, _>(|(pd, domain)| chosen(*pd, domain.as_deref()));
        *domains = left;
        taken.into_values().flatten().collect()
    }

    pub(super) fn all_domains(&self) -> Vec<Arc<Domain>> {
        lock(&self.domains).values().flatten().cloned().collect()
    }

    pub(super) fn insert_shell(&self, shell: Box<Shell>, domain: Arc<Domain>, behind: Behind) -> *mut IbvMr {
        let shell = Box::into_raw(shell);
        lock(&self.shells).insert(shell.addr(), (shell, domain, behind));
        shell.cast() // its first field
    }

    pub(super) fn take_shell(&self, mr: usize) -> Option<(Box<Shell>, Arc<Domain>, Behind)> {
        let (shell, domain, behind) = lock(&self.shells).remove(&mr)?;
        // SAFETY: made by `insert_shell`, and now in the table no more.
        Some((unsafe { Box::from_raw(shell) }, domain, behind))
    }
}

/// A panic elsewhere leaves whole entries.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn install_handlers(summary: bool) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a plain function in a library that is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(begin_anew)) };
        if summary {
            _ = pindown_preload::sys::at_exit(print_summary);
        }
    });
}

/// In a forked child: the parent's registrations are not its own, and locks may be held for ever.
extern "C" fn begin_anew() {
    CURRENT.store(ptr::null_mut(), Ordering::Release);
}

extern "C" fn print_summary() {
    // SAFETY: a leaked box, or null.
    let Some(process) = (unsafe { CURRENT.load(Ordering::Acquire).as_ref() }) else { return };
    if !process.figures.is_empty() {
        let domains = process.all_domains();
        domains.iter().for_each(|d| process.figures.add(&d.cache.stats()));
        let monitor = domains.first().map_or("none at the end", |d| d.cache.monitor().name());
        let (pid, figures) = (std::process::id(), &process.figures);
        pindown_preload::sys::tell(&format!("pindown_verbs[{pid}]: {figures}; monitor: {monitor}"));
    }
}
