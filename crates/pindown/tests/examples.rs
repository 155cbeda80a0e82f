//! The examples, run.
#![cfg(feature = "io-uring")]
#![allow(missing_docs, unreachable_pub)]

#[path = "../examples/owner_ring.rs"]
mod owner_ring;
#[path = "../examples/plain_ring.rs"]
mod plain_ring;

#[test]
fn plain_ring_moves_what_the_program_sees() {
    plain_ring::main().unwrap();
}

#[test]
fn owner_ring_moves_what_the_program_sees() {
    owner_ring::main().unwrap();
}
