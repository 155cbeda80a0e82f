//! libibverbs, loaded at run time: a program that never asks for verbs never needs it.
//!
//! `bindings.rs` is generated (see `bindings.c`); the other files wrap it so that what is above
//! `sys` needs no `unsafe` but where a device is let loose on memory.

#[allow(dead_code, non_camel_case_types)]
#[rustfmt::skip]
mod bindings;
mod bounce;
mod device;
#[cfg(test)]
pub(crate) mod fake;
mod library;
mod memory;
mod queue;
mod window;

pub(crate) use bindings::{
    IBV_LINK_LAYER_ETHERNET, IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_ATOMIC, IBV_ODP_SUPPORT_IMPLICIT,
    IBV_ODP_SUPPORT_READ, IBV_ODP_SUPPORT_RECV, IBV_ODP_SUPPORT_SEND, IBV_ODP_SUPPORT_SRQ_RECV,
    IBV_ODP_SUPPORT_WRITE, IBV_PORT_ACTIVE, IBV_PORT_DOWN, IBV_WC_SUCCESS,
};
pub(crate) use bounce::Bounce;
pub(crate) use device::{Context, DeviceAttr, PortAttr, device_names};
pub(crate) use library::Lib;
pub use library::LoadError;
pub(crate) use memory::{Advice, Mr, Paging, Pd};
pub(crate) use queue::{Completed, Cq, PathParams, Qp, Sge, Work};
pub(crate) use window::Window;
