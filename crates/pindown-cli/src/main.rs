//! The `pindown` command.
fn main() {}
