//! The kinds of memory under test: one row each.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use super::scene::Held;
use super::traits::Traits;
use super::worker_stack::ParkedThread;
use crate::sys::{self, Arena, Block, HUGE_BYTES, PAGE_BYTES, Segment, Source, Span, Via};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A row of the table: a kind of memory.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    /// Name in tables and JSON.
    pub(crate) name: &'static str,
    /// What it is, for [`super::event::Event::applies`].
    pub(crate) traits: Traits,
    /// Makes one.
    make: fn(&Arena) -> io::Result<Made>,
}

/// Memory under test.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) span: Span,
    pub(crate) traits: Traits,
    /// Size of the pages beneath, in bytes.
    pub(crate) page_bytes: usize,
    /// The mapped file, if the process keeps it open.
    pub(crate) file: Option<File>,
    /// What the memory is part of.
    pub(crate) held: Held,
}

struct Made {
    span: Span,
    file: Option<File>,
    held: Held,
}

impl Made {
    fn plain(span: Span) -> Self {
        Self { span, file: None, held: Held::Nothing }
    }
}

impl Mapping {
    /// Makes the memory, filled.
    pub(crate) fn make(&self, arena: &Arena) -> io::Result<Memory> {
        let Made { span, file, held } = (self.make)(arena)?;
        Ok(self.memory(span, file, held))
    }

    /// The memory of this kind at `span`.
    pub(crate) fn memory(&self, span: Span, file: Option<File>, held: Held) -> Memory {
        let page_bytes = if self.traits.any(Traits::HUGE) { HUGE_BYTES } else { PAGE_BYTES };
        Memory { span, traits: self.traits, page_bytes, file, held }
    }
}

const SMALL: usize = 8 * PAGE_BYTES;
const LARGE: usize = 2 * HUGE_BYTES;
const BLOCK: usize = 1 << 20;
/// Below glibc's threshold for blocks with a mapping of their own (128 KiB).
pub(crate) const HEAP_BLOCK: usize = 96 << 10;

/// All kinds of memory.
#[rustfmt::skip]
pub(crate) const MAPPINGS: &[Mapping] = &[
    row("anon-private",    Traits::PRIVATE.with(Traits::ANON), |a| anonymous(a, SMALL, false, false)),
    row("anon-shared",     Traits::SHARED.with(Traits::SHMEM), |a| anonymous(a, SMALL, true, false)),
    row("ro-anon",         Traits::PRIVATE.with(Traits::ANON).with(Traits::READ_ONLY), |a| anonymous(a, SMALL, false, false)),
    row("thp",             Traits::PRIVATE.with(Traits::ANON).with(Traits::THP), transparent_huge),
    row("hugetlb-private", Traits::PRIVATE.with(Traits::ANON).with(Traits::HUGE), |a| anonymous(a, LARGE, false, true)),
    row("hugetlb-memfd",   Traits::SHARED.with(Traits::FILE).with(Traits::HUGE), huge_memfd),
    row("brk-heap",        Traits::PRIVATE.with(Traits::ANON).with(Traits::BRK), |_| brk_heap()),
    row("malloc-large",    Traits::PRIVATE.with(Traits::ANON).with(Traits::MALLOC).with(Traits::MALLOC_MMAP), |_| block(BLOCK)),
    row("malloc-heap",     Traits::PRIVATE.with(Traits::ANON).with(Traits::MALLOC), |_| block(HEAP_BLOCK)),
    row("stack",           Traits::PRIVATE.with(Traits::ANON).with(Traits::STACK), |_| Err(needs_frame())),
    row("thread-stack",    Traits::PRIVATE.with(Traits::ANON).with(Traits::STACK).with(Traits::THREAD), |_| thread_stack()),
    row("memfd-shared",    Traits::SHARED.with(Traits::SHMEM).with(Traits::FILE), |a| memfd(a, true, 0, true)),
    row("memfd-private",   Traits::PRIVATE.with(Traits::SHMEM).with(Traits::FILE), |a| memfd(a, false, 0, true)),
    row("memfd-closed",    Traits::SHARED.with(Traits::SHMEM), |a| memfd(a, true, 0, false)),
    row("memfd-sealed",    Traits::SHARED.with(Traits::SHMEM).with(Traits::FILE), |a| memfd(a, true, SEALS, true)),
    row("tmpfs-shared",    Traits::SHARED.with(Traits::SHMEM).with(Traits::FILE), |a| file(a, shm_dir()?, true, READ_WRITE)),
    row("tmpfs-private",   Traits::PRIVATE.with(Traits::SHMEM).with(Traits::FILE), |a| file(a, shm_dir()?, false, READ_WRITE)),
    row("sysv-shm",        Traits::SHARED.with(Traits::SHMEM).with(Traits::SYSV), sysv),
    row("file-private",    Traits::PRIVATE.with(Traits::FILE).with(Traits::DISK), |a| file(a, disk_dir()?, false, READ_WRITE)),
    row("file-shared",     Traits::SHARED.with(Traits::FILE).with(Traits::DISK), |a| file(a, disk_dir()?, true, READ_WRITE)),
    row("ro-file-private", Traits::PRIVATE.with(Traits::FILE).with(Traits::DISK).with(Traits::READ_ONLY), |a| file(a, disk_dir()?, false, READ_WRITE)),
];

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_FUTURE_WRITE;

const fn row(name: &'static str, traits: Traits, make: fn(&Arena) -> io::Result<Made>) -> Mapping {
    Mapping { name, traits, make }
}

fn anonymous(arena: &Arena, len: usize, shared: bool, huge: bool) -> io::Result<Made> {
    let span = arena.place(0, len);
    sys::map_over(span, Source::Anonymous { shared, huge }, Via::Libc)?;
    Ok(Made::plain(span))
}

fn transparent_huge(arena: &Arena) -> io::Result<Made> {
    let made = anonymous(arena, LARGE, false, false)?;
    made.span.advise(libc::MADV_HUGEPAGE)?;
    Ok(made)
}

fn huge_memfd(arena: &Arena) -> io::Result<Made> {
    map_file(arena, sys::memfd(c"pindown-huge", libc::MFD_HUGETLB, LARGE)?, LARGE, true, READ_WRITE)
}

fn memfd(arena: &Arena, shared: bool, seals: i32, keep: bool) -> io::Result<Made> {
    let file = sys::memfd(c"pindown", libc::MFD_ALLOW_SEALING, SMALL)?;
    let mut made = map_file(arena, file, SMALL, shared, READ_WRITE)?;
    if let (Some(file), true) = (&made.file, seals != 0) {
        sys::seal(file, seals)?;
    }
    made.file = made.file.filter(|_| keep);
    Ok(made)
}

fn file(arena: &Arena, dir: PathBuf, shared: bool, prot: i32) -> io::Result<Made> {
    map_file(arena, sys::unnamed_file(&dir, SMALL)?, SMALL, shared, prot)
}

fn map_file(arena: &Arena, file: File, len: usize, shared: bool, prot: i32) -> io::Result<Made> {
    let span = arena.place(0, len);
    sys::map_over(span, Source::File { fd: file.as_fd(), shared, offset: 0, prot }, Via::Libc)?;
    Ok(Made { span, file: Some(file), held: Held::Nothing })
}

fn sysv(arena: &Arena) -> io::Result<Made> {
    let span = arena.place(0, SMALL);
    Segment::new(SMALL)?.attach_over(span)?;
    Ok(Made::plain(span))
}

fn brk_heap() -> io::Result<Made> {
    let (program_break, span) = sys::ProgramBreak::grow(SMALL)?;
    Ok(Made { span, file: None, held: Held::Break(program_break) })
}

fn block(len: usize) -> io::Result<Made> {
    let block = Block::new(len)?;
    Ok(Made { span: block.interior(), file: None, held: Held::Block(block) })
}

fn thread_stack() -> io::Result<Made> {
    let thread = ParkedThread::start()?;
    Ok(Made { span: thread.span(), file: None, held: Held::Thread(thread) })
}

fn needs_frame() -> io::Error {
    io::Error::other("made by the cell in a frame of its own stack")
}

fn shm_dir() -> io::Result<PathBuf> {
    let dir = PathBuf::from("/dev/shm");
    if sys::is_tmpfs(&dir)? { Ok(dir) } else { Err(io::Error::other("/dev/shm is not a tmpfs")) }
}

/// A directory for files on a disk's file system.
pub(super) fn disk_dir() -> io::Result<PathBuf> {
    let candidates = ["/var/tmp".into(), std::env::temp_dir(), std::env::current_dir()?];
    let usable =
        |dir: &PathBuf| matches!(sys::is_tmpfs(dir), Ok(false)) && sys::unnamed_file(dir, PAGE_BYTES).is_ok();
    candidates.into_iter().find(usable).ok_or_else(|| {
        io::Error::other("no writable directory on a disk among /var/tmp, TMPDIR and the current one")
    })
}
