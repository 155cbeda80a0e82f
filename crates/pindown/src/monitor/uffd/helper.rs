//! The thread that ends grace periods, so that a range that is discarded and refilled is cached
//! again soon, whoever asks for it next.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::evidence::{GracePeriods, Live};
use super::hub::Hub;

/// A thread that runs in user mode shows it once a timer tick (1 to 10 ms).
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

/// Until the hub stops. Sleeps while no range is in grace.
pub(super) fn run(hub: &Hub) {
    let _ = hub.helper.set(std::thread::current());
    let mut periods = GracePeriods::default();
    let mut pause = FIRST;
    while !hub.stopping.load(Ordering::Acquire) {
        if periods.advance(&hub.grace, &Live) {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST);
        } else {
            pause = FIRST;
            std::thread::park();
        }
    }
}
