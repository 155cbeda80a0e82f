//! Huge pages for the hugetlb rows, reserved by root and given back.

use std::fs::{self, OpenOptions};

use crate::sys;

const COUNT: &str = "/proc/sys/vm/nr_hugepages";
const WANTED: usize = 16;

/// Gives back on drop what it added; Ctrl-C does so too.
pub(crate) struct HugePages {
    before: usize,
}

impl HugePages {
    /// Sees to it that 16 huge pages are free, if root. `None`: nothing to do, or not allowed; the
    /// rows then say so.
    pub(crate) fn reserve() -> Option<Self> {
        let before = read(COUNT)?;
        let free = read("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")?;
        if sys::effective_uid() != 0 || free >= WANTED {
            return None;
        }
        let file = OpenOptions::new().write(true).open(COUNT).ok()?;
        sys::restore_on_signal(file, before);
        fs::write(COUNT, (before + WANTED - free).to_string()).ok()?;
        Some(Self { before })
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(error) = fs::write(COUNT, self.before.to_string()) {
            eprintln!("pindown: could not set {COUNT} back to {}: {error}", self.before);
        }
    }
}

fn read(path: &str) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
