//! What the fuzz targets run, as plain functions of bytes: also run by the tests here, on random
//! bytes. Not in release builds (`cfg(any(test, fuzzing))`). Each panics where a promise is broken.

mod bytes;
mod cache_ops;
mod interval_map;
mod monitor;
mod pending;

pub use cache_ops::cache_ops;
pub use interval_map::interval_map;
pub use pending::pending;

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    /// `PROPTEST_CASES` times as many for a long run.
    fn config(cases: u32) -> ProptestConfig {
        let more = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
        ProptestConfig {
            cases: more.unwrap_or(cases),
            failure_persistence: None,
            ..ProptestConfig::default()
        }
    }

    proptest! {
        #![proptest_config(config(400))]
        #[test]
        fn cache_ops(data in prop::collection::vec(any::<u8>(), 0..700)) {
            super::cache_ops(&data);
        }
    }

    proptest! {
        #![proptest_config(config(300))]
        #[test]
        fn interval_map(data in prop::collection::vec(any::<u8>(), 0..500)) {
            super::interval_map(&data);
        }

        #[test]
        fn pending(data in prop::collection::vec(any::<u8>(), 0..2000)) {
            super::pending(&data);
        }
    }
}
