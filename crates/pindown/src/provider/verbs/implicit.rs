//! [`Implicit`]: one on-demand region over the whole address space for each set of local rights.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use pindown_core::Access;

use super::region::Key;
use crate::sys::verbs::{Mr, Paging, Pd};

/// The implicit regions made so far, by local rights; a handful at most.
#[derive(Debug)]
pub(super) struct Implicit {
    pd: Arc<Pd>,
    made: Mutex<Vec<(Access, Mr)>>,
}

impl Implicit {
    pub(super) fn new(pd: Arc<Pd>) -> Self {
        Self { pd, made: Mutex::new(Vec::new()) }
    }

    /// The key for `access`, registering on first use. `access` has no remote right.
    pub(super) fn key(&self, access: Access) -> io::Result<Key> {
        debug_assert!(!access.is_remote());
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, mr)) = made.iter().find(|(rights, _)| *rights == access) {
            return Ok(Key { lkey: mr.lkey(), rkey: mr.rkey() });
        }
        let mr = register_all(&self.pd, access)?;
        let key = Key { lkey: mr.lkey(), rkey: mr.rkey() };
        made.push((access, mr));
        Ok(key)
    }
}

fn register_all(pd: &Pd, access: Access) -> io::Result<Mr> {
    // SAFETY: the region pins nothing and writes nothing by itself; memory is reached only by
    // work requests with its lkey, whose callers keep the contract of `Provider::register`.
    unsafe { pd.register(None, access, Paging::OnDemand, false) }
}

impl Drop for Implicit {
    fn drop(&mut self) {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, mr) in made {
            if let Err((_, error)) = self.pd.deregister(mr) {
                tracing::warn!(%error, "an implicit region could not be given back: left to process exit");
            }
        }
    }
}
