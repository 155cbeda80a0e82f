//! [`Patience`]: how a thread waits for a completion, and for how long.

use std::time::{Duration, Instant};

use super::RcError;

/// How often a waiting thread looks before it sleeps in between.
const SPINS: u32 = 256;
/// Sleeps are this long: a soft device does the work on these CPUs.
const SLEEP: Duration = Duration::from_micros(20);
/// More than this between two looks was not spent waiting: the process, or the machine it runs on, was
/// stopped, and a soft device with it. A virtual machine's clock goes on meanwhile.
const LONGEST_STEP: Duration = Duration::from_millis(200);

/// What is left of a timeout, in time during which this thread could look.
#[derive(Debug)]
pub(super) struct Patience {
    timeout: Duration,
    left: Duration,
    last: Instant,
    looks: u32,
}

impl Patience {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, left: timeout, last: Instant::now(), looks: 0 }
    }

    /// After a look in vain: lets others run, or fails when the time is up.
    pub(super) fn look_again(&mut self) -> Result<(), RcError> {
        if !self.lasts_until(Instant::now()) {
            return Err(RcError::Timeout(self.timeout));
        }
        self.looks = self.looks.saturating_add(1);
        match self.looks {
            ..SPINS => std::thread::yield_now(),
            _ => std::thread::sleep(SLEEP),
        }
        Ok(())
    }

    fn lasts_until(&mut self, now: Instant) -> bool {
        let step = now.saturating_duration_since(self.last).min(LONGEST_STEP);
        self.last = now;
        self.left = self.left.saturating_sub(step);
        !self.left.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lab's qemu was stopped for a minute while 1 MiB reads ran: every wait of 50 s ended in
    /// "no completion", though nothing was lost.
    #[test]
    fn a_stopped_machine_uses_up_one_step() {
        let mut patience = Patience::new(Duration::from_secs(50));
        let start = patience.last;
        assert!(patience.lasts_until(start + Duration::from_secs(60)));
        assert_eq!(patience.left, Duration::from_secs(50) - LONGEST_STEP);
    }

    #[test]
    fn time_in_which_one_could_look_runs_out() {
        let mut patience = Patience::new(Duration::from_secs(1));
        let start = patience.last;
        let lasted =
            (1..).take_while(|n| patience.lasts_until(start + *n * Duration::from_millis(100))).count();
        assert_eq!(lasted, 9);
        let over = patience.look_again();
        assert!(matches!(over, Err(RcError::Timeout(t)) if t == Duration::from_secs(1)), "{over:?}");
    }

    #[test]
    fn no_patience_is_one_look() {
        assert!(Patience::new(Duration::ZERO).look_again().is_err());
    }
}
