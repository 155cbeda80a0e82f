#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pindown::fuzzing::maps_parser(data));
