//! Haul.
fn main() {}
