//! [`Slots`]: values that one thread walks without a lock while others add and remove them.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};

/// A bounded set with one walker that may not block, allocate or free; adding and removing wait
/// for a walk under way.
#[derive(Debug)]
pub(crate) struct Slots<T, const N: usize> {
    slots: [AtomicPtr<T>; N],
    /// Odd during a walk.
    walks: AtomicU64,
    walking: AtomicBool,
}

impl<T: Send + Sync, const N: usize> Slots<T, N> {
    pub(crate) fn new() -> Self {
        Self {
            slots: std::array::from_fn(|_| AtomicPtr::default()),
            walks: AtomicU64::new(0),
            walking: AtomicBool::new(false),
        }
    }

    /// Adds `value`: a walk that begins or goes on after this returned includes it. Its place;
    /// `None`: full.
    pub(crate) fn attach(&self, value: T) -> Option<usize> {
        let boxed = Box::into_raw(Box::new(value));
        let null = std::ptr::null_mut();
        let free = self.slots.iter().position(|s| s.compare_exchange(null, boxed, SeqCst, SeqCst).is_ok());
        if free.is_none() {
            // SAFETY: no slot took the box, so it is still this function's alone.
            drop(unsafe { Box::from_raw(boxed) });
        }
        // A walk that began earlier does not include it and may still be acting.
        self.wait_for_walk();
        free
    }

    /// Removes what is at `place`, if anything: no walk uses it after this returned.
    pub(crate) fn detach(&self, place: usize) {
        let value = self.slots[place].swap(std::ptr::null_mut(), SeqCst);
        self.wait_for_walk();
        if !value.is_null() {
            // SAFETY: the box of `attach`. The swap made this the only call that frees it, and a
            // walk that found it before the swap has ended (SeqCst: either the walk's load of the
            // slot came after the swap, or our load of `walks` saw the walk).
            drop(unsafe { Box::from_raw(value) });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.iter().all(|s| s.load(SeqCst).is_null())
    }

    /// Calls `with` with all values. For one thread at a time: another's call does nothing.
    pub(crate) fn with(&self, with: impl FnOnce(&[Option<&T>; N])) {
        if self.walking.swap(true, SeqCst) {
            return;
        }
        self.walks.fetch_add(1, SeqCst);
        let found: [Option<&T>; N] = std::array::from_fn(|i| {
            // SAFETY: null or the box of `attach`, which is not freed during a walk that found it.
            unsafe { self.slots[i].load(SeqCst).as_ref() }
        });
        with(&found);
        self.walks.fetch_add(1, SeqCst);
        self.walking.store(false, SeqCst);
    }

    fn wait_for_walk(&self) {
        let walk = self.walks.load(SeqCst);
        while walk % 2 == 1 && self.walks.load(SeqCst) == walk {
            std::thread::yield_now();
        }
    }
}

impl<T, const N: usize> Drop for Slots<T, N> {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            let value = std::mem::replace(slot.get_mut(), std::ptr::null_mut());
            if !value.is_null() {
                // SAFETY: the box of `attach`; `&mut self` means that no walk or call is under way.
                drop(unsafe { Box::from_raw(value) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn removed_values_are_not_in_use_and_are_freed_once() {
        let slots = Slots::<Arc<AtomicBool>, 4>::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    slots.with(|all| all.iter().flatten().for_each(|live| assert!(live.load(SeqCst))));
                }
            });
            for _ in 0..2000 {
                let live = Arc::new(AtomicBool::new(true));
                let place = slots.attach(Arc::clone(&live)).unwrap();
                slots.detach(place);
                live.store(false, SeqCst);
                assert_eq!(Arc::strong_count(&live), 1);
            }
            stop.store(true, SeqCst);
        });
        assert!(slots.is_empty());
    }

    #[test]
    fn full_is_full() {
        let slots = Slots::<u8, 2>::new();
        let places = [slots.attach(1), slots.attach(2), slots.attach(3)];
        assert_eq!(places, [Some(0), Some(1), None]);
        slots.with(|all| assert_eq!(all, &[Some(&1), Some(&2)]));
        slots.detach(0);
        assert_eq!(slots.attach(4), Some(0));
    }
}
