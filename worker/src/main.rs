//! The worker's binary.
#![deny(unsafe_code)]

fn main() {}
