//! How much one user may ask of the helper.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Bounds of the helper's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at a time, of all users; at most 256.
    pub clients: usize,
    /// Connections at a time of one user.
    pub clients_per_uid: usize,
    /// The largest ring a client may have, in bytes; it is the kernel's memory.
    pub ring_bytes: usize,
    /// How long a client may take to introduce itself, in milliseconds.
    pub hello_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { clients: 256, clients_per_uid: 128, ring_bytes: 1 << 20, hello_ms: 2000 }
    }
}

/// Connections by user.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<HashMap<u32, usize>>);

/// One counted connection.
#[derive(Debug)]
pub(crate) struct Seat {
    users: Arc<Users>,
    uid: u32,
}

impl Users {
    /// A seat for one more connection of `uid`, if there is one.
    pub(crate) fn seat(self: &Arc<Self>, uid: u32, limits: &Limits) -> Option<Seat> {
        let mut by_uid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = by_uid.values().sum();
        let own = by_uid.entry(uid).or_default();
        if all >= limits.clients || *own >= limits.clients_per_uid {
            return None;
        }
        *own += 1;
        Some(Seat { users: self.clone(), uid })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut by_uid = self.users.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = by_uid.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                by_uid.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_cannot_take_anothers_seats() {
        let users = Arc::new(Users::default());
        let limits = Limits { clients: 3, clients_per_uid: 2, ..Limits::default() };
        let held: Vec<_> = (0..2).map(|_| users.seat(1, &limits).unwrap()).collect();
        assert!(users.seat(1, &limits).is_none());
        let other = users.seat(2, &limits).unwrap();
        assert!(users.seat(3, &limits).is_none(), "all seats are taken");
        drop((held, other));
        assert!(users.seat(1, &limits).is_some());
    }
}
