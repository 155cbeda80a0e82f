//! Verbs devices: ports, on-demand paging, limits, and what fork does to registrations.

use std::fmt::Write;

use pindown::provider::verbs::{DeviceReport, ForkState, PortReport, devices};
use serde::Serialize;

use crate::ui::{Colour, Palette};

/// One device.
#[derive(Debug, Serialize)]
pub(crate) struct DeviceRow {
    name: String,
    ports: Vec<PortRow>,
    on_demand_paging: bool,
    implicit_on_demand_paging: bool,
    /// What works on on-demand memory, by transport.
    on_demand_operations: Vec<(&'static str, Vec<&'static str>)>,
    memory_windows: bool,
    max_regions: u64,
    /// `null`: not bounded by the device.
    max_region_bytes: Option<u64>,
    fork: &'static str,
    fork_remedy: Option<&'static str>,
}

/// One port.
#[derive(Debug, Serialize)]
pub(crate) struct PortRow {
    number: u8,
    state: &'static str,
    link: &'static str,
    mtu_bytes: u32,
    gids: Vec<GidRow>,
}

#[derive(Debug, Serialize)]
struct GidRow {
    index: u8,
    gid: String,
    kind: String,
}

/// All devices; none where there are none or libibverbs is missing, which the provider's row tells.
pub(crate) fn rows() -> Vec<DeviceRow> {
    devices().unwrap_or_default().into_iter().map(row).collect()
}

fn row(device: DeviceReport) -> DeviceRow {
    let (fork, fork_remedy) = fork(device.fork);
    DeviceRow {
        name: device.name,
        ports: device.ports.into_iter().map(port).collect(),
        on_demand_paging: device.on_demand,
        implicit_on_demand_paging: device.implicit,
        on_demand_operations: device.on_demand_operations,
        memory_windows: device.memory_windows,
        max_regions: device.max_regions,
        max_region_bytes: Some(device.max_region_bytes).filter(|bytes| *bytes < u64::MAX >> 1),
        fork,
        fork_remedy,
    }
}

fn port(port: PortReport) -> PortRow {
    let gid = |(index, gid, kind): (u8, [u8; 16], String)| GidRow {
        index,
        gid: std::net::Ipv6Addr::from(gid).to_string(),
        kind,
    };
    PortRow {
        number: port.number,
        state: port.state,
        link: if port.ethernet { "Ethernet" } else { "InfiniBand" },
        mtu_bytes: port.mtu_bytes,
        gids: port.gids.into_iter().map(gid).collect(),
    }
}

fn fork(state: ForkState) -> (&'static str, Option<&'static str>) {
    match state {
        ForkState::Unneeded => ("unneeded: the kernel copies pinned pages for a child", None),
        ForkState::Enabled => (
            "enabled: regions split mappings (MADV_DONTFORK)",
            Some("raise vm.max_map_count, or run Linux 5.12 with rdma-core 35 or later"),
        ),
        ForkState::Disabled => (
            "disabled: a fork may take pinned pages away from this process",
            Some("set IBV_FORK_SAFE=1 or call ibv_fork_init(3) first, or do not fork while regions exist"),
        ),
        _ => ("not known: rdma-core before 35 does not say", Some("update rdma-core")),
    }
}

/// For people; nothing where there is no device.
pub(crate) fn render(out: &mut String, rows: &[DeviceRow], palette: Palette) {
    for row in rows {
        let _ = writeln!(out, "\n{}", palette.bold(&format!("verbs device {}", row.name)));
        row.ports.iter().for_each(|port| render_port(out, port));
        let _ = writeln!(out, "    on-demand paging         {}", paging(row));
        for (transport, operations) in row.on_demand_operations.iter().filter(|(_, all)| !all.is_empty()) {
            let _ = writeln!(out, "      on {transport:<4}                {}", operations.join(" "));
        }
        let windows = if row.memory_windows { "yes" } else { "no" };
        let _ = writeln!(out, "    memory windows           {windows}");
        let longest =
            row.max_region_bytes.map_or("any length".into(), |bytes| format!("up to {} MiB", bytes >> 20));
        let _ = writeln!(out, "    regions                  {}, each of {longest}", row.max_regions);
        let _ = writeln!(out, "    fork                     {}", row.fork);
        if let Some(text) = row.fork_remedy {
            let _ = writeln!(out, "      {} {text}", palette.paint(Colour::Yellow, "remedy:"));
        }
    }
}

fn paging(row: &DeviceRow) -> &'static str {
    match (row.on_demand_paging, row.implicit_on_demand_paging) {
        (_, true) => "yes, implicit too",
        (true, false) => "yes (explicit regions only): --monitor odp",
        (false, false) => "no: pinned regions with a monitor",
    }
}

fn render_port(out: &mut String, port: &PortRow) {
    let PortRow { number, state, link, mtu_bytes, gids } = port;
    let _ = writeln!(out, "    port {number}                   {state}, {link}, path MTU {mtu_bytes}");
    for GidRow { index, gid, kind } in gids {
        let _ = writeln!(out, "      GID {index:<3}                {gid} {kind}");
    }
}
