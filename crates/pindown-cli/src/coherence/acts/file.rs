//! What happens to the file beneath, through any descriptor, in any process.

use std::io;
use std::os::unix::fs::FileExt;

use super::super::event::{Event, Group};
use super::super::mapping::disk_dir;
use super::super::scene::Scene;
use super::super::traits::Traits;
use crate::sys::{self, PAGE_BYTES, Source, Span, Via};

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

#[rustfmt::skip]
pub(crate) const EVENTS: &[Event] = &[
    event("ftruncate-to-0-and-back", |s| truncate(s, 0)),
    event("ftruncate-to-half-and-back", |s| truncate(s, s.span().len_bytes() / 2)),
    event("open-o-trunc-and-back", open_truncating),
    event("punch-hole", |s| fallocate(s, PUNCH, s.span())),
    event("punch-hole-page", |s| fallocate(s, PUNCH, s.one_page())),
    event("fallocate-zero-range", |s| fallocate(s, libc::FALLOC_FL_ZERO_RANGE, s.one_page())),
    event("fallocate-collapse-range", |s| fallocate(s, libc::FALLOC_FL_COLLAPSE_RANGE, s.one_page())),
    event("fallocate-insert-range", |s| fallocate(s, libc::FALLOC_FL_INSERT_RANGE, s.one_page())),
    event("ftruncate-by-other-process", truncate_elsewhere),
    event("punch-hole-by-other-process", punch_elsewhere),
    event("open-o-trunc-by-other-process", |s| run_elsewhere(s, "open-truncating")),
    event("collapse-by-other-process", |s| run_elsewhere(s, "collapse")),
    event("uring-ftruncate-and-back", uring_truncate),
    event("uring-fallocate-punch-hole", uring_punch),
    event("o-direct-write", |s| write_over(s, libc::O_DIRECT)),
    event("ficlone-over", clone_over).on(Traits::FILE.with(Traits::DISK)),
];

const fn event(name: &'static str, act: fn(&mut Scene) -> io::Result<()>) -> Event {
    Event::new(Group::File, name, act).on(Traits::FILE)
}

fn len(scene: &Scene) -> usize {
    scene.span().len_bytes()
}

fn truncate(scene: &mut Scene, to: usize) -> io::Result<()> {
    scene.file()?.set_len(to as u64)?;
    scene.file()?.set_len(len(scene) as u64)
}

fn open_truncating(scene: &mut Scene) -> io::Result<()> {
    sys::reopen(scene.file()?, libc::O_TRUNC)?.set_len(len(scene) as u64)
}

/// `fallocate` on the part of the file that `part` shows; the length is put right again.
fn fallocate(scene: &mut Scene, mode: i32, part: Span) -> io::Result<()> {
    sys::fallocate(scene.file()?, mode, part.offset_in(scene.span()), part.len_bytes())?;
    scene.file()?.set_len(len(scene) as u64)
}

fn truncate_elsewhere(scene: &mut Scene) -> io::Result<()> {
    run_elsewhere(scene, "truncate")
}

fn punch_elsewhere(scene: &mut Scene) -> io::Result<()> {
    run_elsewhere(scene, "punch")
}

fn run_elsewhere(scene: &Scene, what: &str) -> io::Result<()> {
    let path = sys::reopen_path(scene.file()?);
    sys::run_self(&["__file", what, &path.to_string_lossy(), &len(scene).to_string()])
}

/// The other process's part of [`truncate_elsewhere`] and [`punch_elsewhere`].
pub(crate) fn in_other_process(what: &str, path: &str, len_bytes: usize) -> io::Result<()> {
    let mut open = std::fs::OpenOptions::new();
    let file = open.read(true).write(true).truncate(what == "open-truncating").open(path)?;
    match what {
        "truncate" => file.set_len(0)?,
        "collapse" => sys::fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, PAGE_BYTES)?,
        "punch" => sys::fallocate(&file, PUNCH, 0, len_bytes)?,
        _ => {}
    }
    file.set_len(len_bytes as u64)
}

fn uring_truncate(scene: &mut Scene) -> io::Result<()> {
    let mut ring = scene.ring()?;
    ring.truncate(scene.file()?, 0)?;
    ring.truncate(scene.file()?, len(scene))
}

fn uring_punch(scene: &mut Scene) -> io::Result<()> {
    scene.ring()?.fallocate(scene.file()?, PUNCH, 0, len(scene))
}

/// `write(2)` to the file from other memory.
pub(super) fn write_over(scene: &mut Scene, flags: i32) -> io::Result<()> {
    let from = scene.scratch();
    sys::map_over(from, Source::Anonymous { shared: false, huge: false }, Via::Libc)?;
    from.fill(11);
    sys::write_from_span(&sys::reopen(scene.file()?, flags)?, from, 0)
}

/// A file of the same length is cloned over this one (btrfs, XFS).
fn clone_over(scene: &mut Scene) -> io::Result<()> {
    let other = sys::unnamed_file(&disk_dir()?, len(scene))?;
    other.write_all_at(&[0xC1; 512], 0)?;
    sys::clone_file(&other, scene.file()?)
}
