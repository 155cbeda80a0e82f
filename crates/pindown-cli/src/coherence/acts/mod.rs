//! What happens to memory, one file a group of events.

pub(crate) mod advise;
pub(crate) mod allocator;
pub(crate) mod file;
pub(crate) mod harmless;
pub(crate) mod process;
pub(crate) mod remap;
pub(crate) mod shared;
pub(crate) mod unmap;

use super::traits::Traits;

/// Places that other memory adjoins, so that growing or unmapping around them is out of the question.
const HEMMED_IN: Traits = Traits::BRK.with(Traits::STACK).with(Traits::MALLOC);
