//! Huge pages for the hugetlb rows, reserved by root and given back.

use std::fs::{self, OpenOptions};

use crate::sys;

const COUNT: &str = "/proc/sys/vm/nr_hugepages";
const WANTED: usize = 16;

/// Takes off on drop what it added, no more and no less: others may change the count meanwhile.
/// Ctrl-C does so too.
pub(crate) struct HugePages(());

impl HugePages {
    /// Sees to it that 16 huge pages are free, if root. `None`: nothing to do, or not allowed; the
    /// rows then say so.
    pub(crate) fn reserve() -> Option<Self> {
        let free = read("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")?;
        if sys::effective_uid() != 0 || free >= WANTED {
            return None;
        }
        let file = OpenOptions::new().read(true).write(true).open(COUNT).ok()?;
        let before = read(COUNT)?;
        fs::write(COUNT, (before + WANTED - free).to_string()).ok()?;
        let added = read(COUNT)?.saturating_sub(before); // less than asked for where memory is fragmented
        sys::take_off_on_signal(file, added);
        Some(Self(()))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if !sys::take_off() {
            eprintln!("pindown: could not give the huge pages back: see {COUNT}");
        }
    }
}

fn read(path: &str) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
