//! Whether a verbs device can be used here.

use super::Backend;
use crate::provider::verbs::{DeviceReport, OpenError, devices};

const NO_DEVICE: &str = "install the adapter's driver, or make a soft device: `modprobe rdma_rxe; rdma link add \
                         rxe0 type rxe netdev NETDEV`";

/// The provider's row.
pub(super) fn backend() -> Backend {
    match devices() {
        Err(OpenError::Load(error)) => {
            Backend::unusable("verbs", error.why, "install libibverbs1 and ibverbs-providers (rdma-core)")
        }
        Err(error) => Backend::unusable(
            "verbs",
            error.to_string(),
            "see whether /dev/infiniband/uverbs* may be opened by this user",
        ),
        Ok(all) if all.is_empty() => Backend::unusable("verbs", "no device", NO_DEVICE),
        Ok(all) => found(&all),
    }
}

fn found(all: &[DeviceReport]) -> Backend {
    let active = |d: &&DeviceReport| d.ports.iter().any(|p| p.state == "active");
    let names =
        |some: Vec<&DeviceReport>| some.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ");
    let up: Vec<_> = all.iter().filter(active).collect();
    if up.is_empty() {
        let why = format!("no active port ({})", names(all.iter().collect()));
        return Backend::unusable(
            "verbs",
            why,
            "bring the port's link up (`rdma link`, `ip link set NETDEV up`)",
        );
    }
    let backend = Backend::usable("verbs", "");
    Backend { why: format!("an active port on {}", names(up)), ..backend }
}
