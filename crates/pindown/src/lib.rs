//! pindown: memory registration that stays right while the address space changes.

pub mod monitor;
pub mod provider;
mod sys;

pub use pindown_core::*;
