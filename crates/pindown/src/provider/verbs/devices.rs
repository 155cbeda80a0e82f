//! What verbs devices the machine has, for `doctor` and for choosing one.

use std::fs;
use std::io;

use super::OpenError;
use super::options::ForkState;
use crate::sys::verbs::{self as sys, Context, DeviceAttr, Lib, PortAttr};

/// One device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Most regions (`max_mr`).
    pub max_regions: u64,
    /// Longest pinned region in bytes (`max_mr_size`).
    pub max_region_bytes: u64,
    /// It has memory windows.
    pub memory_windows: bool,
    /// It has on-demand paging.
    pub on_demand: bool,
    /// It has implicit on-demand paging.
    pub implicit: bool,
    /// What works on on-demand memory, by transport (`"rc"`, `"uc"`, `"ud"`, `"xrc"`).
    pub on_demand_operations: Vec<(&'static str, Vec<&'static str>)>,
    /// Its ports.
    pub ports: Vec<PortReport>,
    /// How registrations and `fork(2)` get on.
    pub fork: ForkState,
}

/// One port of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortReport {
    /// Its number, from 1.
    pub number: u8,
    /// `"active"`, `"down"`, or what lies between.
    pub state: &'static str,
    /// It is Ethernet (RoCE), so peers are reached by GID.
    pub ethernet: bool,
    /// Path MTU in bytes.
    pub mtu_bytes: u32,
    /// The GIDs that are set: index, address, type (`"RoCE v2"`, `"IB/RoCE v1"`).
    pub gids: Vec<(u8, [u8; 16], String)>,
}

/// All devices of this machine. Empty when there are none; a device that cannot be opened is an
/// error, since it is there and something is wrong with it.
pub fn devices() -> Result<Vec<DeviceReport>, OpenError> {
    let lib = Lib::load()?;
    let listed = sys::device_names(lib);
    let names = match listed {
        // No uverbs in this kernel: no devices.
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => return Ok(Vec::new()),
        other => other.map_err(|source| failed("ibv_get_device_list", "this machine", source))?,
    };
    names.iter().map(|name| report(lib, name)).collect()
}

fn failed(what: &'static str, device: &str, source: io::Error) -> OpenError {
    OpenError::Io { what, device: device.to_owned(), source }
}

fn report(lib: &'static Lib, name: &str) -> Result<DeviceReport, OpenError> {
    let context = Context::open(lib, name).map_err(|e| failed("ibv_open_device", name, e))?;
    let gone = || failed("ibv_open_device", name, io::Error::from_raw_os_error(libc::ENODEV));
    let context = context.ok_or_else(gone)?;
    let attr = context.query().map_err(|e| failed("ibv_query_device_ex", name, e))?;
    let ports = (1..=attr.ports).filter_map(|n| port(&context, name, n).ok()).collect();
    Ok(DeviceReport {
        name: name.to_owned(),
        max_regions: attr.max_mr,
        max_region_bytes: attr.max_mr_size_bytes,
        memory_windows: attr.memory_windows,
        on_demand: attr.odp_general & sys::IBV_ODP_SUPPORT != 0,
        implicit: attr.odp_general & sys::IBV_ODP_SUPPORT_IMPLICIT != 0,
        on_demand_operations: operations(&attr),
        ports,
        fork: ForkState::from_raw(lib.fork_state()),
    })
}

fn operations(attr: &DeviceAttr) -> Vec<(&'static str, Vec<&'static str>)> {
    const BITS: [(u32, &str); 6] = [
        (sys::IBV_ODP_SUPPORT_SEND, "send"),
        (sys::IBV_ODP_SUPPORT_RECV, "recv"),
        (sys::IBV_ODP_SUPPORT_WRITE, "write"),
        (sys::IBV_ODP_SUPPORT_READ, "read"),
        (sys::IBV_ODP_SUPPORT_ATOMIC, "atomic"),
        (sys::IBV_ODP_SUPPORT_SRQ_RECV, "srq"),
    ];
    let transports = [("rc", attr.odp_rc), ("uc", attr.odp_uc), ("ud", attr.odp_ud), ("xrc", attr.odp_xrc)];
    let names = |bits: u32| BITS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    transports.map(|(transport, bits)| (transport, names(bits))).to_vec()
}

fn port(context: &Context, device: &str, number: u8) -> io::Result<PortReport> {
    let attr = context.query_port(number)?;
    Ok(PortReport {
        number,
        state: match attr.state {
            sys::IBV_PORT_ACTIVE => "active",
            sys::IBV_PORT_DOWN => "down",
            _ => "not ready",
        },
        ethernet: attr.link_layer == sys::IBV_LINK_LAYER_ETHERNET,
        mtu_bytes: 128 << attr.active_mtu,
        gids: gids(context, device, number, &attr),
    })
}

/// The GIDs of a port that are set. The type of each is in sysfs
/// (Documentation/ABI/stable/sysfs-class-infiniband: gid_attrs/types).
pub(super) fn gids(
    context: &Context,
    device: &str,
    port: u8,
    attr: &PortAttr,
) -> Vec<(u8, [u8; 16], String)> {
    let last = u8::try_from(attr.gid_table_len).unwrap_or(u8::MAX);
    let set = (0..last).filter_map(|i| Some((i, context.query_gid(port, i.into()).ok()?)));
    let set = set.filter(|(_, gid)| *gid != [0; 16]);
    set.map(|(i, gid)| (i, gid, gid_type(device, port, i))).collect()
}

fn gid_type(device: &str, port: u8, index: u8) -> String {
    let path = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs/types/{index}");
    fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default()
}
