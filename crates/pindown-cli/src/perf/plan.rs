//! What is measured: sizes, churns and modes, and for how long.

use std::time::Duration;

use super::{Args, Churn, Mode};
use crate::exit::CliError;
use crate::sys::PAGE_BYTES;

/// Default transfer sizes, in bytes.
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// How long a run takes whose lines nobody timed.
const DEFAULT_TOTAL: Duration = Duration::from_secs(16);
/// Most buffers a thread uses in turn.
const BUFFERS: usize = 32;
/// Most bytes of those together.
const POOL_BYTES: usize = 64 << 20;
/// The longest transfer, in bytes.
const LONGEST: usize = 256 << 20;

/// When a line is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Until {
    Elapsed(Duration),
    Ops(u64),
}

impl Until {
    /// Its share in one of `rounds`; the shares add up to it.
    pub(crate) fn share(self, round: u32, rounds: u32) -> Self {
        let upto = |ops: u64, round: u32| (u128::from(ops) * u128::from(round) / u128::from(rounds)) as u64;
        match self {
            Self::Elapsed(time) => Self::Elapsed(time / rounds),
            Self::Ops(ops) => Self::Ops(upto(ops, round + 1) - upto(ops, round)),
        }
    }
}

/// Modes that are measured in turn, so that they share what else the machine does.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Group {
    pub(crate) size_bytes: usize,
    pub(crate) churn: Churn,
    pub(crate) buffers: usize,
}

/// The whole.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) groups: Vec<Group>,
    pub(crate) modes: Vec<Mode>,
    pub(crate) until: Until,
    /// Default sizes that do not fit, for people.
    pub(crate) skipped: Vec<String>,
}

impl Plan {
    /// `budget_bytes` may be registered by a thread.
    pub(crate) fn new(args: &Args, budget_bytes: u64) -> Result<Self, CliError> {
        let modes = or_default(&args.modes, &Mode::ALL);
        let churns = or_default(&args.churns, &[Churn::None, Churn::Remap]);
        let (mut groups, mut skipped) = (Vec::new(), Vec::new());
        for size_bytes in or_default(&args.sizes, &SIZES) {
            match buffers(size_bytes, budget_bytes) {
                0 => skipped.push(too_small(size_bytes, budget_bytes)),
                buffers => groups.extend(churns.iter().map(|&churn| Group { size_bytes, churn, buffers })),
            }
        }
        if groups.is_empty() || (!args.sizes.is_empty() && !skipped.is_empty()) {
            return Err(CliError::machine(skipped.join("; "), REMEDY));
        }
        let lines = (groups.len() * modes.len()) as u32;
        let until = match (args.ops, args.seconds) {
            (Some(ops), _) => Until::Ops(ops),
            (None, Some(time)) => Until::Elapsed(time),
            (None, None) => Until::Elapsed(DEFAULT_TOTAL / lines),
        };
        Ok(Self { groups, modes, until, skipped })
    }
}

const REMEDY: &str = "raise `ulimit -l` (memlock in /etc/security/limits.conf, LimitMEMLOCK= in systemd), or take a smaller --size";

fn too_small(size_bytes: usize, budget_bytes: u64) -> String {
    format!(
        "size {} needs {} KiB of registered memory a thread, RLIMIT_MEMLOCK leaves {} KiB",
        size_name(size_bytes),
        (size_bytes * SHARES) >> 10,
        budget_bytes >> 10
    )
}

/// Buffers of one size are registered by the cache (up to twice, widened), by mode preregistered,
/// and once each by per-op and copy.
const SHARES: usize = 5;

/// How many buffers to use so that all modes fit the budget; 0: not even one.
fn buffers(size_bytes: usize, budget_bytes: u64) -> usize {
    let share = usize::try_from(budget_bytes).unwrap_or(usize::MAX) / SHARES;
    (share.min(POOL_BYTES.max(size_bytes)) / size_bytes).min(BUFFERS)
}

fn or_default<T: Clone>(given: &[T], default: &[T]) -> Vec<T> {
    if given.is_empty() { default.to_vec() } else { given.to_vec() }
}

/// The longest transfer that the lanes must have room for.
pub(crate) fn longest(sizes: &[usize]) -> usize {
    or_default(sizes, &SIZES).into_iter().max().unwrap_or(PAGE_BYTES)
}

/// `64K` as bytes: a whole number of pages up to 256 MiB.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        t if t.ends_with('K') => (t[..t.len() - 1].to_owned(), 10),
        t if t.ends_with('M') => (t[..t.len() - 1].to_owned(), 20),
        t => (t.to_owned(), 0),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(1 << shift));
    match bytes {
        Some(bytes) if bytes > 0 && bytes <= LONGEST && bytes.is_multiple_of(PAGE_BYTES) => Ok(bytes),
        _ => Err("must be a multiple of 4K, from 4K to 256M".into()),
    }
}

/// Seconds, with decimals.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds")?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("must be more than 0".into()),
    }
}

/// Bytes as `64K`.
pub(crate) fn size_name(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{}M", b >> 20),
        b => format!("{}K", b >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_pages() {
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_size("8192"), Ok(8192));
        for bad in ["0", "1000", "5000K5", "512M", "", "K", "18446744073709551615K"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(size_name(1 << 20), "1M");
        assert_eq!(size_name(12 << 10), "12K");
    }

    #[test]
    fn buffers_fit_the_budget() {
        assert_eq!(buffers(64 << 10, u64::MAX), 32);
        assert_eq!(buffers(64 << 20, u64::MAX), 1);
        assert_eq!(buffers(LONGEST, u64::MAX), 1, "longer than the pool usually is");
        assert_eq!(buffers(LONGEST, 5 * LONGEST as u64 - 1), 0);
        assert_eq!(buffers(4 << 10, 56 << 10), 2);
        assert_eq!(buffers(64 << 10, 56 << 10), 0);
    }

    #[test]
    fn shares_add_up() {
        let ops = |round| match Until::Ops(1000).share(round, 64) {
            Until::Ops(ops) => ops,
            Until::Elapsed(_) => 0,
        };
        assert_eq!((0..64).map(ops).sum::<u64>(), 1000);
    }

    #[test]
    fn seconds_are_positive() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "x", "inf", "NaN"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
