#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pindown_core::fuzzing::interval_map(data));
