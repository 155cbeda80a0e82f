//! [`Ticket`]s as numbers, for interfaces that have no types.

use super::Ticket;

impl Ticket {
    /// Its number.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The ticket with this number. One that was never given out names nothing.
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }
}
