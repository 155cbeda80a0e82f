//! libfabric's interface: `<rdma/fabric.h>`, `<rdma/fi_ext.h>`.

mod abi;
mod exports;
mod import;

pub use abi::{Fid, FidFabric};
pub use exports::*;
