//! What registrations take of the kernel's and the device's memory beside the pages they pin.
//!
//! Estimates from the kernel's sources, for pages that do not lie together: where pages do (huge
//! pages), the kernel joins them and takes less. The memory is not counted against RLIMIT_MEMLOCK, and
//! a cgroup counts only what is allocated with GFP_KERNEL_ACCOUNT.

use pindown_core::ProviderCaps;

/// The estimate for one kind of registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelMemory {
    /// Of which provider.
    pub provider: &'static str,
    /// For each page, in bytes.
    pub per_page_bytes: u64,
    /// For each registration, in bytes.
    pub per_region_bytes: u64,
    /// What that is, and where it is allocated.
    pub source: &'static str,
}

impl KernelMemory {
    /// Bytes for `regions` registrations of `pages` pages together.
    pub fn bytes(&self, pages: u64, regions: u64) -> u64 {
        pages * self.per_page_bytes + regions * self.per_region_bytes
    }

    pub(crate) fn tell(&self, caps: &mut ProviderCaps) {
        caps.kernel_bytes_per_page = self.per_page_bytes;
        caps.kernel_bytes_per_region = self.per_region_bytes;
    }
}

/// A `struct bio_vec` (16 bytes) a page; a `struct io_mapped_ubuf` and a `struct io_rsrc_node`.
/// While it registers, 8 bytes a page more for the array of pages.
pub const IO_URING: KernelMemory = KernelMemory {
    provider: "io-uring",
    per_page_bytes: 16,
    per_region_bytes: 96,
    source: "io_sqe_buffer_register, io_uring/rsrc.c: a bio_vec a page",
};

/// A `struct scatterlist` (32 bytes) a page in `struct ib_umem`, and an entry of the device's
/// translation table (8 bytes; mlx5's MTT, rxe's page list is 16); `struct ib_umem`, the driver's region
/// and its key.
pub const VERBS: KernelMemory = KernelMemory {
    provider: "verbs",
    per_page_bytes: 40,
    per_region_bytes: 1024,
    source: "ib_umem_get, drivers/infiniband/core/umem.c: a scatterlist entry and an MTT entry a page",
};

/// A page frame number and a DMA address (8 bytes each) a page of the range in `struct ib_umem_odp`,
/// present or not, and the device's translation entry.
pub const VERBS_ON_DEMAND: KernelMemory = KernelMemory {
    provider: "verbs, on-demand paging",
    per_page_bytes: 24,
    per_region_bytes: 1024,
    source: "ib_init_umem_odp, drivers/infiniband/core/umem_odp.c: a frame number, a DMA address and an MTT \
             entry a page",
};

/// All estimates.
pub const ALL: [KernelMemory; 3] = [IO_URING, VERBS, VERBS_ON_DEMAND];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terabyte_costs_gigabytes() {
        assert_eq!(IO_URING.bytes(1 << 28, 1), (4 << 30) + 96);
        assert_eq!(VERBS.bytes(0, 2), 2048);
    }
}
