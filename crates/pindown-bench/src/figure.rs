//! The table of figures. To add one, add a row here and, for a new kind, a file in `kinds`.

use crate::workload::Order;

/// What a figure counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds an operation.
    Ns,
    /// Bytes a region.
    Bytes,
    /// A ratio, or a count.
    Ratio,
}

impl Unit {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Bytes => "bytes",
            Self::Ratio => "ratio",
        }
    }
}

/// How a figure is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Get and put of what is registered, by so many threads.
    Hits {
        /// Registered regions.
        regions: usize,
        /// Which of them is asked for next.
        order: Order,
        /// Threads, each on a processor of its own.
        threads: usize,
    },
    /// Get here, put on another thread.
    Handover,
    /// First request for each of so many regions.
    Inserts(usize),
    /// `munmap` of memory that is not registered, with regions elsewhere.
    UnmapUnregistered,
    /// `munmap` of a registered region.
    UnmapRegistered,
    /// One `munmap` over 20,000 regions and the next request, which has to know; less the `munmap`.
    UnmapMany,
    /// The cache's work for one region that changed, while another thread hits.
    UnmapBesideHits,
    /// Resident memory by region, 32 KiB apart.
    MemoryDense,
    /// The same of regions of one page, 4 MiB apart.
    MemoryIsolated,
    /// A GiB registered once, and invalidated.
    Huge,
    /// A hit while another thread does something slow: the longest, or its 99.99th percentile.
    Stall {
        /// What the other thread does.
        beside: Beside,
        /// The longest; else the percentile.
        longest: bool,
    },
    /// Bytes registered for 2000 windows of 64 KiB that lie 4 KiB apart, by the bytes that they cover.
    Windows,
    /// Answers that were wrong.
    Check,
}

/// What goes on beside hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Registrations that take 1 ms each.
    Registering,
    /// Invalidations of 20,000 regions at a time.
    Invalidating,
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name in the JSON.
    pub name: &'static str,
    /// What it counts in.
    pub unit: Unit,
    /// How it is measured.
    pub kind: Kind,
    /// Measured with userfaultfd whatever monitor was asked for, since that is what its bar is about.
    pub uffd: bool,
    /// What lies under it, for people; empty: nothing does.
    pub floor: &'static str,
}

const K: usize = 1_000;
const M: usize = 1_000_000;

const fn row(name: &'static str, unit: Unit, kind: Kind, floor: &'static str) -> Figure {
    Figure { name, unit, kind, uffd: false, floor }
}

const fn hits(name: &'static str, regions: usize, order: Order, threads: usize) -> Figure {
    let floor = match order {
        Order::Same | Order::Distinct => "acquire load",
        Order::Dependent => "dependent random loads",
        _ => "random loads",
    };
    row(name, Unit::Ns, Kind::Hits { regions, order, threads }, floor)
}

const fn stall(name: &'static str, beside: Beside, longest: bool) -> Figure {
    row(name, Unit::Ns, Kind::Stall { beside, longest }, "a load beside the same")
}

/// All figures, in the order in which they are measured.
pub const FIGURES: &[Figure] = &[
    hits("hit_same_1t", 1, Order::Same, 1),
    hits("hit_same_2t", 1, Order::Same, 2),
    hits("hit_distinct_2t", 2, Order::Distinct, 2),
    hits("hit_uniform_1k", K, Order::Uniform, 1),
    hits("hit_uniform_100k", 100 * K, Order::Uniform, 1),
    hits("hit_uniform_1m", M, Order::Uniform, 1),
    hits("hit_zipf_1m", M, Order::Zipf, 1),
    hits("hit_dependent_1m", M, Order::Dependent, 1),
    hits("hit_uniform_100k_2t", 100 * K, Order::Uniform, 2),
    row("put_on_other_thread", Unit::Ns, Kind::Handover, "handing over nothing"),
    row("miss_insert_1k", Unit::Ns, Kind::Inserts(K), "atomic read-modify-write pair"),
    row("miss_insert_100k", Unit::Ns, Kind::Inserts(100 * K), "atomic read-modify-write pair"),
    row("miss_insert_1m", Unit::Ns, Kind::Inserts(M), "atomic read-modify-write pair"),
    Figure {
        uffd: true,
        ..row("munmap_unrelated", Unit::Ns, Kind::UnmapUnregistered, "munmap without hooks")
    },
    row("munmap_registered", Unit::Ns, Kind::UnmapRegistered, "munmap without hooks"),
    row("munmap_over_20k", Unit::Ns, Kind::UnmapMany, ""),
    row("munmap_one_beside_hits", Unit::Ns, Kind::UnmapBesideHits, ""),
    row("bytes_per_region", Unit::Bytes, Kind::MemoryDense, ""),
    row("bytes_per_isolated_region", Unit::Bytes, Kind::MemoryIsolated, ""),
    row("huge_region_insert_invalidate", Unit::Ns, Kind::Huge, "munmap without hooks"),
    stall("hit_stall_max_while_registering", Beside::Registering, true),
    stall("hit_p9999_while_registering", Beside::Registering, false),
    stall("hit_p9999_while_invalidating", Beside::Invalidating, false),
    row("window_registered_ratio", Unit::Ratio, Kind::Windows, ""),
    row("check", Unit::Ratio, Kind::Check, ""),
];

/// The figure of that name.
pub fn figure(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|f| f.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (n, f) in FIGURES.iter().enumerate() {
            assert_eq!(FIGURES.iter().position(|g| g.name == f.name), Some(n));
            assert_eq!(figure(f.name).map(|g| g.kind), Some(f.kind));
        }
    }
}
