//! `pindown_provider`: whoever pins pages, one type for all of them.

mod any;
mod foreign;
mod io_uring;
mod verbs;

pub(crate) use any::Any;

use crate::handle::{free, handle};
use crate::status::pindown_status;

handle!(
    /// A provider that no builder has taken yet.
    pindown_provider(Box<Any>) = b"pd.provd"
);

/// Frees a provider that no builder has taken. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_provider_free(provider: Option<Box<pindown_provider>>) -> pindown_status {
    free(provider)
}
