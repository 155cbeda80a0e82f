//! The examples, run.
#![cfg(feature = "io-uring")]
#![allow(missing_docs, unreachable_pub)]

#[path = "../examples/owner_ring.rs"]
mod owner_ring;
#[path = "../examples/plain_ring.rs"]
mod plain_ring;
#[path = "../examples/queue_epoll.rs"]
mod queue_epoll;
#[path = "../examples/queue_msg_ring.rs"]
mod queue_msg_ring;
#[path = "../examples/queue_tokio.rs"]
mod queue_tokio;

#[test]
fn plain_ring_moves_what_the_program_sees() {
    plain_ring::main().unwrap();
}

#[test]
fn owner_ring_moves_what_the_program_sees() {
    owner_ring::main().unwrap();
}

#[test]
fn queue_in_an_epoll_loop() {
    queue_epoll::main().unwrap();
}

#[test]
fn queue_in_an_io_uring_loop() {
    queue_msg_ring::main().unwrap();
}

#[test]
fn queue_in_tokio_tasks() {
    queue_tokio::main().unwrap();
}
